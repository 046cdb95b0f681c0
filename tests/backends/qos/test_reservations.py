"""
Reservations of relay bandwidth at the embedded QoS broker, by messages.
"""

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from msgnode.backends.qos.coturn import DEADLINE_SECONDS, CommandLine, Coturn, RelaySession, credentials
from msgnode.backends.qos.embedded_broker import broker_addresses
from msgnode.backends.qos.reservation import Wanted
from msgnode.backends.qos.reservations import FILE, SWEEP_SECONDS, Reservations
from msgnode.policy.language.program import Program
from msgnode.protocol.errors import Rejected
from msgnode.storage.keyed_journal import RETRY_SECONDS
from tests.support.fakes import Client, MemoryNode, directory
from tests.support.world import World

TOP = Path(__file__).parents[3]
QOS = "domain://qos-broker.example.org/reservation"
ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
OPTIONS = {
    "url": "embedded",
    "turn_urls": ["turn:turn.example.org:3478"],
    "turn_secret": "s3cret",
    "capacity_up": 1000,
    "capacity_down": 2000,
}
AMOUNT, ROOM = {"up": 60_000, "down": 60_000}, {"capacity_up": 10**6, "capacity_down": 10**6}
WANTED = {"session": "comm://example.org/call", "parties": [ANN, BOB], "up": 600, "down": 600, "seconds": 60}


class ReservationCase(SynchronousTestCase):
    """
    A node with the embedded broker, its relay in memory, and a client.
    """

    def setUp(self) -> None:
        self.node = self.make_node()
        self.client = self.node.client(ANN)

    def make_node(self, state: str = "none", **options: Any) -> MemoryNode:
        node = MemoryNode(world=World, qos={**OPTIONS, **options}, state=state)
        self.relay, self.reservations = node.world.relay, node.world.reservations
        self.reservations.startService()
        return node

    def ask(
        self,
        type: str,
        value: Any = None,
        resource: str | None = None,
        client: Client | None = None,
        to: str = QOS,
    ) -> dict[str, Any]:
        body = {"value": value} if resource is None else {"value": value, "resource": resource}
        return (client or self.client).ask(type=type, to=to, body=body)["body"]

    def reserve(self, client: Client | None = None, **value: Any) -> dict[str, Any]:
        body = self.ask("create", {**WANTED, **value}, client=client)
        self.assertEqual(200, body["code"], body)
        return body["value"]

    def use(self, made: dict[str, Any]) -> None:
        """
        Somebody relays with the credentials.
        """
        self.relay.held.append(RelaySession(str(len(self.relay.held)), made["iceServers"][0]["username"]))


class ReservationTests(ReservationCase):
    """
    From the request to the end.
    """

    def test_granted_with_credentials(self) -> None:
        """
        A reservation is answered with what is granted, an id, and credentials of coturn that end with it.
        """
        made = self.reserve()

        until = int(self.node.wall()) + 60
        user, password = credentials("s3cret", made["id"], until)
        server = {"urls": ["turn:turn.example.org:3478"], "username": user, "credential": password}
        self.assertEqual(f"{until}:{made['id']}", user)
        self.assertEqual(
            {
                "id": made["id"],
                "session": "comm://example.org/call",
                "parties": [ANN, BOB],
                "up": 600,
                "down": 600,
                "expires": until,
                "iceServers": [server],
                "iceTransportPolicy": "relay",
            },
            made,
        )

    def test_spent_capacity_is_409_with_what_is_left(self) -> None:
        """
        More than is left is 409, with what is left; a deleted reservation gives it back.
        """
        made = self.reserve()

        body = self.ask("create", WANTED)
        self.assertEqual((409, {"up": 400, "down": 1400}), (body["code"], body["left"]))
        self.assertEqual(200, self.ask("delete", resource=f"/reservation/{made['id']}")["code"])
        self.reserve()

    def test_inquiry(self) -> None:
        """
        A read without an id has the capacity, what is left, and the session's own reservations.
        """
        made = self.reserve()
        bob = self.node.client(BOB)

        value = self.ask("read")["value"]
        self.assertEqual(
            ({"up": 1000, "down": 2000}, {"up": 400, "down": 1400}), (value["capacity"], value["left"])
        )
        self.assertEqual([made["id"]], [one["id"] for one in value["reservations"]])
        self.assertEqual([], self.ask("read", client=bob)["value"]["reservations"])

    def test_parties_read_and_only_the_owner_changes(self) -> None:
        """
        A party reads the reservation with its credentials; only its own session changes it; others do not see
        it.
        """
        made = self.reserve()
        bob, eve = self.node.client(BOB), self.node.client("runtime://example.org/eve")

        self.assertEqual(made, self.ask("read", {"id": made["id"]}, client=bob)["value"])
        for kind in ("update", "delete"):
            self.assertEqual(403, self.ask(kind, {"id": made["id"]}, client=bob)["code"])
            self.assertEqual(404, self.ask(kind, {"id": made["id"]}, client=eve)["code"])
        self.assertEqual(404, self.ask("read", {"id": made["id"]}, client=eve)["code"])

    def test_changed_while_it_runs(self) -> None:
        """
        An update changes the amount within what is left, and the time, and leaves the rest.
        """
        made = self.reserve()
        changed = self.ask("update", {"id": made["id"], "up": 1000, "seconds": 120})["value"]

        self.assertEqual(
            (1000, 600, made["expires"] + 60), (changed["up"], changed["down"], changed["expires"])
        )
        self.assertEqual(409, self.ask("update", {"id": made["id"], "up": 1001})["code"])
        self.node.clock.advance(61)
        self.assertEqual(1, len(self.reservations))

    def test_ends_with_its_time_its_session_or_a_delete(self) -> None:
        """
        At its end what it relays is cancelled, whatever ended it.
        """

        def expire(made: dict[str, Any]) -> None:
            self.node.clock.advance(60)

        def delete(made: dict[str, Any]) -> None:
            self.ask("delete", {"id": made["id"]})

        def close(made: dict[str, Any]) -> None:
            self.node.sessions.end(self.client.session, "closed")

        other = RelaySession("9", "1800000000:msgnode-of-another")
        for end in (expire, delete, close):
            self.relay.held = [other]
            made = self.reserve()
            self.use(made)
            end(made)
            self.assertEqual(([other], 0), (self.relay.held, len(self.reservations)), end)

    def test_credentials_of_an_ended_reservation_open_nothing_for_long(self) -> None:
        """
        What is relayed again with the credentials of a deleted reservation is cancelled at the next look.
        """
        made = self.reserve()
        self.ask("delete", {"id": made["id"]})
        self.use(made)
        self.node.clock.advance(SWEEP_SECONDS)

        self.assertEqual([], self.relay.held)

    def test_what_ends_together_is_asked_about_together(self) -> None:
        """
        While the relay is asked about one reservation, all others that end wait for one more question. Beyond
        a hundred the next look is for them.
        """
        made = [self.reserve(up=1, down=1, seconds=60) for _ in range(4)]
        self.relay.slow = Deferred()
        clients = [self.client] * 4
        for each, client in zip(made, clients, strict=True):
            self.use(each)
            client.post(QOS, "delete", body={"value": {"id": each["id"]}})
        slow, self.relay.slow = self.relay.slow, None
        slow.callback(None)

        self.assertEqual([200] * 4, [each["body"]["code"] for each in self.client.take()])
        self.assertEqual(([], 2), (self.relay.held, self.relay.listings))

    def test_many_that_end_at_once(self) -> None:
        """
        Beyond a hundred that wait for the relay its next look finds what they relay, and the answer says so.
        """
        self.node.config.qos.max_reservations_per_session = 200
        made = [self.reserve(up=1, down=1) for _ in range(102)]
        self.relay.slow = Deferred()
        for each in made:
            self.use(each)
            self.client.post(QOS, "delete", body={"value": {"id": each["id"]}})
        slow, self.relay.slow = self.relay.slow, None
        slow.callback(None)
        self.assertEqual(1, len(self.relay.held))
        told = [each["body"]["value"] for each in self.client.take()]
        self.assertEqual(["at the next look"], [each["relay"][-16:] for each in told if "relay" in each])
        self.node.clock.advance(SWEEP_SECONDS)

        self.assertEqual([], self.relay.held)

    def test_example_of_policies_holds_at_each_address(self) -> None:
        """
        With etc/policies/reservations.json a client without an identity reserves and changes nothing, at
        whatever address of the broker.
        """
        made = self.reserve()
        sets = (TOP / "etc/policies/reservations.json").read_bytes()
        self.node.enforcement.use(Program([("reservations.json", sets)]), 1)

        for address in broker_addresses("example.org"):
            for kind in ("create", "update"):
                value = {**WANTED, "id": made["id"], "up": 1, "down": 1}
                body = self.ask(kind, value, resource="/reservation", to=address)
                self.assertEqual((403, "Blocked by policy"), (body["code"], body["desc"]), address)
        self.assertEqual(1, len(self.reservations))

    def test_first_credentials_open_nothing_after_a_reservation_was_made_shorter(self) -> None:
        """
        What is relayed with the credentials of before a change that made the reservation shorter is cancelled
        after its end, as long as they are valid.
        """
        made = self.reserve(seconds=14_000)
        self.ask("update", {"id": made["id"], "seconds": 1})
        for seconds in (10, 7000, 6900):
            self.node.clock.advance(seconds)
            self.use(made)
            self.node.clock.advance(SWEEP_SECONDS)

            self.assertEqual([], self.relay.held)

    def test_credentials_of_an_ended_reservation_open_nothing_after_a_restart(self) -> None:
        """
        A node that was restarted cancels what is relayed with the credentials of a reservation that had ended
        before, and leaves that of other nodes alone.
        """
        state = str(directory(self))
        self.node = self.make_node(state)
        self.client = self.node.client(ANN)
        made = self.reserve()
        self.ask("delete", {"id": made["id"]})
        self.reservations.stopService()
        self.node = self.make_node(state)
        other = RelaySession("9", "1800000000:msgnode-1f2e3d4c-00112233")
        self.relay.held = [other]
        self.use(made)
        self.node.clock.advance(SWEEP_SECONDS)

        self.assertEqual([other], self.relay.held)

    def test_relay_that_cannot_be_told_is_told_again(self) -> None:
        """
        While the relay's command line does not answer the end is tried again; the answer says that it may
        still carry packets.
        """
        made = self.reserve()
        self.use(made)
        self.relay.refuses = True
        body = self.ask("delete", {"id": made["id"]})
        self.node.clock.advance(SWEEP_SECONDS)
        self.relay.refuses = False
        self.node.clock.advance(SWEEP_SECONDS)

        self.assertEqual([], self.relay.held)
        value = {"id": made["id"], "relay": "Error contacting the TURN server"}
        self.assertEqual({"code": 200, "value": value}, body)

    def test_limits(self) -> None:
        """
        There are limits of the time, of the reservations of a session, and of all.
        """
        bob = self.node.client(BOB)
        bob.session.host = "192.0.2.99"
        self.node.config.qos.max_reservations_per_session = 1
        self.node.config.qos.max_reservations = 2
        self.assertEqual(400, self.ask("create", {**WANTED, "seconds": 1e6})["code"])
        small = {"up": 1, "down": 1}
        self.reserve(**small)
        self.assertEqual(429, self.ask("create", {**WANTED, **small})["code"])
        self.reserve(client=bob, **small)
        eve = self.node.client("runtime://example.org/eve")
        self.assertEqual(503, self.ask("create", {**WANTED, **small}, client=eve)["code"])

    def test_session_that_is_opened_again_begins_anew(self) -> None:
        """
        Who opens the session again without its token cannot end its reservations: they end with the next
        request, or at the next look, and count no more.
        """
        self.node.config.qos.max_reservations_per_session = 2
        for _ in range(3):
            made = [self.reserve(up=100, down=100) for _ in range(2)]
            self.use(made[0])
            self.client.open(ANN)
        self.assertEqual(403, self.ask("delete", {"id": made[0]["id"]})["code"])
        self.assertEqual(2, len(self.reservations))
        self.node.clock.advance(SWEEP_SECONDS)

        self.assertEqual((0, []), (len(self.reservations), self.relay.held))

    def test_client_without_a_session_token_keeps_its_reservation(self) -> None:
        """
        A client that knows no session tokens has its reservation until somebody opens its session.
        """
        self.node.sessions.void_token(self.client.session)
        made = self.reserve()
        self.node.clock.advance(2 * SWEEP_SECONDS)
        self.assertEqual(200, self.ask("read", {"id": made["id"]})["code"])
        self.client.open(ANN)
        self.node.clock.advance(SWEEP_SECONDS)

        self.assertEqual(0, len(self.reservations))

    def test_anonymous_session_that_gets_a_name_keeps_its_reservation(self) -> None:
        """
        A session that opens without a name and takes one later with its token still has its reservation.
        """
        guest = self.node.client()
        guest.tell({"id": 1, "type": "open", "to": "mn:/session"})
        token, guest.runtime = guest.take()[0]["body"]["runtimeToken"], guest.session.runtime
        made = self.reserve(client=guest)
        guest.reopen(f"runtime://example.org/guest/{token}")
        guest.runtime = "runtime://example.org/guest"
        self.node.clock.advance(SWEEP_SECONDS)

        body = self.ask("read", client=guest)
        self.assertEqual([made["id"]], [each["id"] for each in body["value"]["reservations"]])
        self.assertEqual([guest.runtime], [each.runtime for each in self.reservations])

    def test_one_host_has_a_tenth(self) -> None:
        """
        The sessions of one host have a tenth of all reservations together, and those of another its own.
        """
        self.node.config.qos.max_reservations = 30
        self.node.config.qos.max_reservations_per_session = 2
        clients = [self.node.client(f"runtime://example.org/c{number}") for number in range(3)]
        for client, host in zip(clients, (1, 1, 2), strict=True):
            client.session.host = f"192.0.2.{host}"
        asked = [clients[0], clients[0], clients[1], clients[1], clients[2]]

        codes = [self.ask("create", {**WANTED, "up": 1, "down": 1}, client=client) for client in asked]

        self.assertEqual([200, 200, 200, 429, 200], [body["code"] for body in codes])
        self.assertEqual("a user or host has at most 3 reservations", codes[3]["desc"])

    def test_bad_requests_are_refused_in_words(self) -> None:
        """
        A bad request names what is wrong, and reserves nothing.
        """
        for change, name in (
            ({"up": -1}, "value.up"),
            ({"up": 1.5}, "value.up"),
            ({"up": True}, "value.up"),
            ({"down": "1"}, "value.down"),
            ({"down": 10**18}, "value.down"),
            ({"seconds": 0}, "value.seconds"),
            ({"seconds": None}, "value.seconds"),
            ({"up": 0, "down": 0}, "value.up"),
            ({"session": ""}, "value.session"),
            ({"parties": []}, "value.parties"),
            ({"parties": [5]}, "value.parties"),
        ):
            body = self.ask("create", {**WANTED, **change})
            self.assertEqual(400, body["code"], change)
            self.assertIn(f"'{name}'", body["desc"])
        self.assertEqual(400, self.ask("create", "x")["code"])
        self.assertEqual(501, self.ask("execute", {})["code"])
        self.assertEqual(501, self.ask("create", WANTED, resource="/turn")["code"])
        self.assertEqual(404, self.ask("delete", {"id": "x"})["code"])
        self.assertEqual(0, len(self.reservations))

    def test_restart(self) -> None:
        """
        A reservation outlives a restart if its session does, and ends at its time; others are taken off the
        relay.
        """
        state = str(directory(self))
        self.node = self.make_node(state)
        self.client, bob = self.node.client(ANN), self.node.client(BOB)
        kept, lost = self.reserve(up=100), self.reserve(client=bob, up=100)
        hashes = self.client.session.token_hash
        self.reservations.stopService()
        node = MemoryNode(world=World, qos=OPTIONS, state=state)
        node.client(ANN).session.token_hash = hashes
        self.relay, self.reservations = node.world.relay, node.world.reservations
        self.use(kept)
        self.use(lost)
        self.reservations.startService()

        self.assertEqual([kept["iceServers"][0]["username"]], [one.user for one in self.relay.held])
        node.clock.advance(60)
        self.assertEqual(([], 0), (self.relay.held, len(self.reservations)))

    def test_refused_by_the_disk(self) -> None:
        """
        What was answered 503 because the disk took nothing is not there after a restart; what was deleted
        meanwhile is not, either.
        """
        state = directory(self)
        self.node = self.make_node(str(state))
        self.client = self.node.client(ANN)
        changed, deleted = self.reserve(up=100), self.reserve(up=100)
        kept = (state / FILE).read_bytes()
        (state / FILE).unlink()
        (state / FILE).mkdir()
        codes = [
            self.ask("create", {**WANTED, "up": 1})["code"],
            self.ask("update", {"id": changed["id"], "up": 200})["code"],
            self.ask("delete", {"id": deleted["id"]})["code"],
        ]
        (state / FILE).rmdir()
        (state / FILE).write_bytes(kept)
        self.node.clock.advance(RETRY_SECONDS)
        token_hash = self.client.session.token_hash
        node = MemoryNode(world=World, qos=OPTIONS, state=str(state))
        node.client(ANN).session.token_hash = token_hash
        node.world.reservations.startService()

        self.assertEqual([503, 503, 200], codes)
        self.assertEqual([(changed["id"], 100)], [(each.id, each.up) for each in node.world.reservations])

    def test_public_broker_has_none(self) -> None:
        """
        With a broker of the public API a reservation is 501, in words.
        """
        node = MemoryNode(world=World, qos={"url": "http://qos.example.org:8181", "csp": "example"})
        body = node.client(ANN).ask(type="create", to=QOS, body={"value": WANTED})["body"]

        self.assertEqual(501, body["code"])
        self.assertIn("has no reservations", body["desc"])


class CommandLineTests(SynchronousTestCase):
    """
    The protocol of coturn's command line.
    """

    def run_with(self, *pieces: bytes) -> tuple[Any, bytes]:
        line, transport = CommandLine("pw", ["psp x"]), StringTransport()
        over = line.over
        line.makeConnection(transport)
        for piece in pieces:
            line.dataReceived(piece)
        line.connectionLost()
        return over, transport.value()

    def test_password_command_quit(self) -> None:
        """
        It gives the password, the command at the prompt, and quits; pieces may be cut anywhere.
        """
        over, written = self.run_with(b"hello\nEnter pass", b"word: \r\n", b"> ", b"1) id=7, user <1:a>\n> ")

        self.assertEqual(b"pw\npsp x\nquit\n", written)
        self.assertIn(b"id=7", self.successResultOf(over))

    def test_wrong_password(self) -> None:
        """
        A command line that asks for the password again refuses it, and is not asked for longer.
        """
        over, written = self.run_with(b"Enter password: ", b"\r\nEnter password: ")

        why = self.failureResultOf(over, Rejected).value
        self.assertEqual((502, b"pw\n"), (why.code, written))
        self.assertIn("refuses the password", str(why))

    def test_ends_too_early(self) -> None:
        """
        A connection that ends before the command has run is a failure.
        """
        over, _ = self.run_with(b"Enter password: ", b"> ")

        self.assertEqual(502, self.failureResultOf(over).value.code)


class CoturnTests(SynchronousTestCase):
    """
    coturn's command line at the end of a wire in memory.
    """

    def setUp(self) -> None:
        self.clock, self.lines = MemoryReactorClock(), []

    def start(self, request: Any, *answers: bytes) -> Deferred[Any]:
        """
        Begin a request; coturn answers each line that it gets after the password with one of these.
        """
        done = Deferred.fromCoroutine(request)
        _, _, factory, _, _ = self.clock.tcpClients[-1]
        line, self.transport = factory.buildProtocol(None), StringTransport()
        line.makeConnection(self.transport)
        line.dataReceived(b"Enter password: ")
        for answer in (b"", *answers):
            line.dataReceived(answer + b"\r\n> ")
        self.line = line
        return done

    def coturn(self) -> Coturn:
        return Coturn("127.0.0.1:5766", lambda: "pw", self.clock)

    def test_empty_listing(self) -> None:
        """
        A relay without sessions of that name has none, which is no failure.
        """
        done = self.start(self.coturn().sessions("msgnode-a"), b"\r\n  Total sessions: 0\r\n")
        self.line.connectionLost(Failure(ConnectionDone()))

        self.assertEqual([], self.successResultOf(done))

    def test_no_answer(self) -> None:
        """
        A command line that does not answer is a failure in words after five seconds, and once.
        """
        done = self.start(self.coturn().sessions("msgnode-a"))
        self.clock.advance(DEADLINE_SECONDS)
        self.line.connectionLost(Failure(ConnectionDone()))

        self.assertEqual("the TURN server does not answer", str(self.failureResultOf(done, Rejected).value))

    def test_listing_of_several(self) -> None:
        """
        Several names are asked for by one connection, and the sessions of all are found.
        """
        one = b"    1) id=001, user <1:a>:\r\n    started 7 secs ago\r\n  Total sessions: 1\r\n"
        none = b"  Total sessions: 0\r\n"
        two = one.replace(b"001", b"002").replace(b"<1:a>", b"<1:c>")
        done = self.start(self.coturn().sessions("a", "b", "c"), one, none, two)
        self.line.connectionLost(Failure(ConnectionDone()))

        self.assertEqual(
            [RelaySession("001", "1:a", 7), RelaySession("002", "1:c", 7)], self.successResultOf(done)
        )
        self.assertEqual(b"pw\npsp a\npsp b\npsp c\nquit\n", self.transport.value())


class PolicingTests(ReservationCase):
    """
    What the relay has carried, compared with what is reserved: 60,000 bits, which are 7,500 bytes, a second.
    """

    def setUp(self) -> None:
        self.node = self.make_node(**ROOM)
        self.client = self.node.client(ANN)

    def carry(self, made: dict[str, Any], *rates: int) -> list[dict[str, Any]]:
        """
        A session relays at each of these bytes per second for 20 seconds; what the client was told.
        """
        user = made["iceServers"][0]["username"]
        before = next(iter(self.relay.held), RelaySession("1", user))
        self.relay.held = [before]
        for rate in rates:
            for _ in range(4):
                up, age = before.up + int(rate * SWEEP_SECONDS), before.age + int(SWEEP_SECONDS)
                before = before._replace(age=age, up=up)
                if self.relay.held:
                    self.relay.held = [before]
                self.node.clock.advance(SWEEP_SECONDS)
        return [each["body"] for each in self.client.take()]

    def test_within_the_reservation(self) -> None:
        """
        A session that relays what is reserved, and a tenth more, is let alone, also after a pause.
        """
        made = self.reserve(seconds=600, **AMOUNT)

        self.assertEqual([], self.carry(made, 7500, 8200, 0, 0, 8200, 7500))
        self.assertEqual(1, len(self.relay.held))

    def test_overused(self) -> None:
        """
        A session that relays twice as much is warned, and ended if it goes on; capacity is given back.
        """
        made = self.reserve(seconds=600, **AMOUNT)

        [warned] = self.carry(made, 15000)
        [ended] = self.carry(made, 15000, 15000)

        resource = f"/reservation/{made['id']}"
        self.assertEqual(
            [(resource, "overuse"), (resource, "ended")],
            [(each["resource"], each["value"]["status"]) for each in (warned, ended)],
        )
        self.assertGreater(ended["value"]["used"]["up"], 60_000)
        self.assertEqual(404, self.ask("read", resource=resource)["code"])
        self.assertEqual([], self.relay.held)
        self.assertEqual((1, 1), (self.reservations.warned, self.reservations.stopped))

    def test_overused_once(self) -> None:
        """
        A client that is warned and relays less goes on.
        """
        made = self.reserve(seconds=600, **AMOUNT)

        told = self.carry(made, 15000, 6000, 6000, 6000)

        self.assertEqual(["overuse"], [each["value"]["status"] for each in told])
        self.assertEqual(1, len(self.relay.held))

    def test_all_sessions_count_together(self) -> None:
        """
        Two sessions of one reservation that relay three quarters of it each overuse it.
        """
        made = self.reserve(seconds=600, **AMOUNT)
        user = made["iceServers"][0]["username"]
        for step in range(1, 9):
            size = int(5600 * SWEEP_SECONDS * step)
            age = int(SWEEP_SECONDS * step)
            self.relay.held = [RelaySession(id, user, age, size, 0) for id in ("1", "2")]
            self.node.clock.advance(SWEEP_SECONDS)

        self.assertEqual((1, 0), (self.reservations.warned, self.reservations.stopped))

    def test_a_change_is_measured_from_then_on(self) -> None:
        """
        A reservation that is lowered is not overused by what was relayed before.
        """
        made = self.reserve(seconds=600, **AMOUNT)
        self.carry(made, 7500, 7500)
        self.ask("update", {"up": 30_000, "down": 30_000}, resource=f"/reservation/{made['id']}")

        self.assertEqual([], self.carry(made, 3700, 3700))

    def test_packets_that_came_late(self) -> None:
        """
        coturn updates its counts with each 2048 packets: those of a whole minute, which come at once, are no
        overuse; nor are those of a session that the node sees late.
        """
        made = self.reserve(seconds=600, **AMOUNT)
        user = made["iceServers"][0]["username"]
        for up in (0, 60 * 7500, 60 * 7500, 120 * 7500):
            self.relay.held = [RelaySession("1", user, 0, up, 0)]
            for _ in range(12):
                self.node.clock.advance(SWEEP_SECONDS)
        self.relay.held = [RelaySession("2", user, 1000, 7_500_000, 0)]
        self.node.clock.advance(SWEEP_SECONDS)

        self.assertEqual([], self.client.take())

    def test_reports_of_the_other_direction(self) -> None:
        """
        Who reserves one direction only may answer what comes: a twentieth of it, and 16 kbit/s.
        """
        made = self.reserve(seconds=600, up=0, down=600_000)

        self.assertEqual([], self.carry(made, 5000, 5000))
        self.assertEqual(["overuse"], [each["value"]["status"] for each in self.carry(made, 7500)])

    def test_switched_off(self) -> None:
        """
        With `overuse_seconds` 0 nothing is measured.
        """
        self.node = self.make_node(**ROOM, overuse_seconds=0)
        self.client = self.node.client(ANN)
        made = self.reserve(seconds=600, **AMOUNT)

        self.assertEqual([], self.carry(made, 15000, 15000, 15000))


class MeanwhileTests(ReservationCase):
    """
    A reservation that ends while a change of it is on its way to disk.
    """

    def setUp(self) -> None:
        super().setUp()
        self.writing: list[tuple[Deferred[Any], Any, Any]] = []
        session = self.node.sessions.get(ANN)
        assert session is not None
        self.session = session
        self.kept = Reservations(
            self.node.config.qos,
            self.relay,
            self.node.sessions.get,
            self.node.clock,
            self.node.wall,
            directory(self),
            self.run_later,
        )

    def run_later(self, function: Any, *arguments: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.writing.append((done, function, arguments))
        return done

    def write(self, fails: bool = False) -> None:
        while self.writing:
            done, function, arguments = self.writing.pop(0)
            if fails:
                done.errback(OSError(28, "No space left on device"))
                fails = False
            else:
                done.callback(function(*arguments))

    def test_it_stays_ended_and_the_change_is_refused(self) -> None:
        """
        Whether the change could be written or not.
        """
        for fails, code in ((False, 404), (True, 503)):
            made = Deferred.fromCoroutine(self.kept.create(self.session, Wanted(100, 100, 60), "call", [ANN]))
            self.write()
            found = self.successResultOf(made)
            changed = Deferred.fromCoroutine(self.kept.update(found, self.session, Wanted(200, 200, 90)))
            current = self.kept.find(found.id)
            assert current is not None
            taken = Deferred.fromCoroutine(self.kept.take_back(current))

            self.write(fails)

            self.assertEqual("", self.successResultOf(taken))
            self.assertEqual(code, self.failureResultOf(changed, Rejected).value.code)
            self.assertEqual(0, len(self.kept))
        self.node.clock.advance(91)
        self.assertEqual({"up": 1000, "down": 2000}, self.kept.left())
