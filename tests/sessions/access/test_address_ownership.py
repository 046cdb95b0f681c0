"""
Whose an address is: who speaks for it, who may only listen, and what a restart keeps of that.
"""

import sqlite3
from pathlib import Path
from typing import Any

from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.storage.database import MIGRATIONS, NAME, OWNED_SINCE, salvage
from msgnode.structures.time_slices import ADDRESSES
from tests.support.durable import DurableNode
from tests.support.fakes import Client, MemoryNode, directory
from tests.support.http_client import HTTPClient
from tests.support.made_policies import rule, use
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, WebSocketRuntime, dumps

SM = "domain://msg-node.example.org/sm"
ALLOCATION = "domain://msg-node.example.org/hyperty-address-allocation"
VICTIM, THIEF, ASKER = (f"runtime://example.org/{name}" for name in ("victim", "thief", "asker"))
HYPERTY = "hyperty://example.org/announced"
STRICT = {"session": {"from_check": "refuse"}}
UNOWNED = ("comm://d/1/changes", "comm://d/1/children/n", "comm://d/1/registration", "comm://d/1/status")


class OwnershipCase(SynchronousTestCase):
    """
    A node, and three that are connected to it.
    """

    def setUp(self) -> None:
        self.start()

    def start(self, **sections: Any) -> None:
        self.node = MemoryNode(**sections)
        self.victim, self.thief, self.asker = (self.node.client(name) for name in (VICTIM, THIEF, ASKER))

    def allocate(self, client: Client) -> str:
        """
        An address of its own.
        """
        reply = client.ask(type="create", to=ALLOCATION, body={"value": {"number": 1}})
        return str(reply["body"]["value"]["allocated"][0])

    def subscribe(self, client: Client, *addresses: str) -> int:
        """
        The code of the answer.
        """
        reply = client.ask(type="subscribe", to=SM, body={"resources": addresses})
        return int(reply["body"]["code"])

    def send(self, client: Client, from_: str) -> int | None:
        """
        Answer somebody from there; with what it is refused.
        """
        client.tell({"id": 5, "type": "execute", "from": from_, "to": ASKER})
        return next((m["body"]["code"] for m in client.take() if m["type"] == "response"), None)

    def owner(self, address: str) -> str:
        """
        The runtimeURL of the session that owns it.
        """
        session = self.node.owners.owner(address)
        return session.runtime if session is not None else ""

    def verify(self, client: Client, user: str) -> Client:
        """
        The same runtime comes back with a certificate.
        """
        client.drop()
        back = Client(self.node)
        back.identity = user
        back.open(client.runtime)
        return back


class AnnouncedTests(OwnershipCase):
    """
    To announce an address is to allocate it, or to be the first to subscribe it.
    """

    def test_who_allocates_an_address_or_subscribes_it_first(self) -> None:
        """
        Who allocates an address or subscribes it first owns it; who subscribes later hears it, no more.
        """
        allocated = self.allocate(self.victim)
        self.subscribe(self.victim, HYPERTY)

        self.assertEqual(200, self.subscribe(self.thief, allocated, HYPERTY))

        for address in (allocated, HYPERTY):
            self.assertEqual(VICTIM, self.owner(address))
            self.assertEqual({VICTIM, THIEF}, {each.runtime for each in self.node.routes.resolve(address)})

    def test_exact_string(self) -> None:
        """
        What lies below an owned address is another address.
        """
        self.subscribe(self.victim, HYPERTY)

        self.subscribe(self.thief, f"{HYPERTY}/below", HYPERTY.upper())

        self.assertEqual([THIEF, THIEF], [self.owner(a) for a in (f"{HYPERTY}/below", HYPERTY.upper())])

    def test_what_is_published_to_has_no_owner(self) -> None:
        """
        What is published to has no owner: anybody may subscribe it, and who is bound may send from it.
        """
        self.start(**STRICT)

        for address in UNOWNED:
            self.assertEqual([200, 200], [self.subscribe(c, address) for c in (self.victim, self.thief)])
            self.assertEqual("", self.owner(address))
            self.assertEqual(
                [None, None, 403], [self.send(c, address) for c in (self.victim, self.thief, self.asker)]
            )

    def test_what_was_learnt_of_a_sender_is_not_owned(self) -> None:
        """
        What was learnt of a sender is not owned: it goes to whoever announces it.
        """
        self.start(**STRICT)
        self.assertIsNone(self.send(self.victim, HYPERTY))
        self.assertIsNone(self.send(self.victim, HYPERTY))
        self.assertEqual("", self.owner(HYPERTY))

        self.assertEqual(200, self.subscribe(self.thief, HYPERTY))

        self.assertEqual(THIEF, self.owner(HYPERTY))
        self.assertEqual(403, self.send(self.victim, HYPERTY))

    def test_owner_ends(self) -> None:
        """
        When an owner ends, no listener inherits; the address is whose who announces it next, a listener too.
        """
        self.start()
        address = self.allocate(self.victim)
        self.subscribe(self.thief, address)
        self.victim.close()
        self.node.config.session.from_check = "refuse"

        self.assertEqual("", self.owner(address))
        self.assertEqual(403, self.send(self.thief, address))
        self.assertEqual(200, self.subscribe(self.asker, address))
        self.assertEqual(ASKER, self.owner(address))
        self.asker.close()
        self.assertEqual(200, self.subscribe(self.thief, address))
        self.assertEqual(THIEF, self.owner(address))

    def test_lessee_of_a_pool_address_owns_it(self) -> None:
        """
        Who leases an address of a pool owns it, though somebody else had subscribed it before.
        """
        self.start(**STRICT, pools={"sip": {"scheme": "sip", "addresses": ["sip:1@example.org"]}})
        self.subscribe(self.thief, "sip:1@example.org")

        body = {"scheme": "sip", "value": {"number": 1}}
        self.victim.ask(type="create", to="domain://msg-node.example.org/address-allocation", body=body)

        self.assertEqual(VICTIM, self.owner("sip:1@example.org"))
        self.assertEqual([None, 403], [self.send(c, "sip:1@example.org") for c in (self.victim, self.thief)])

    def test_given_up(self) -> None:
        """
        Who frees or unsubscribes an address owns it no more; what was allocated outlives its subscription.
        """
        allocated = self.allocate(self.victim)
        self.subscribe(self.victim, HYPERTY, allocated)

        self.victim.ask(type="unsubscribe", to=SM, body={"resources": [HYPERTY, allocated]})
        self.assertEqual(["", VICTIM], [self.owner(address) for address in (HYPERTY, allocated)])
        self.victim.ask(type="delete", to=ALLOCATION, body={"resource": allocated})

        self.assertEqual("", self.owner(allocated))
        self.assertEqual(0, len(self.node.routes.owners))

    def test_refused_whole(self) -> None:
        """
        A request that is refused gives nothing to anybody.
        """
        self.start(**STRICT)
        taken = self.allocate(self.victim)

        self.assertEqual(403, self.subscribe(self.thief, HYPERTY, taken))

        self.assertEqual(["", VICTIM], [self.owner(address) for address in (HYPERTY, taken)])
        self.assertEqual({}, self.thief.session.bindings)


class SlicesTests(OwnershipCase):
    """
    Sessions with more addresses than are freed in one turn.
    """

    def announce(self, client: Client, below: str) -> list[str]:
        addresses = [f"{below}/{number}" for number in range(3 * ADDRESSES)]
        for first in range(0, len(addresses), 100):
            self.subscribe(client, *addresses[first : first + 100])
        return addresses

    def test_session_that_ended_owns_nothing_from_then_on_though(self) -> None:
        """
        A session that ended owns nothing from then on, though its addresses are freed later.
        """
        addresses = self.announce(self.victim, HYPERTY)
        session = self.victim.session
        self.victim.close()
        self.assertNotEqual({}, session.bindings)

        self.assertEqual({""}, {self.owner(address) for address in addresses})
        self.assertEqual(200, self.subscribe(self.thief, *addresses[:2]))
        self.node.clock.advance(0)

        self.assertEqual([THIEF] * 2, [self.owner(address) for address in addresses[:2]])
        self.assertEqual(2, len(self.node.routes.owners))

    def test_taken_back(self) -> None:
        """
        What lies below a runtime that opens is that runtime's at once, though it is taken back later.
        """
        self.start(**STRICT)
        runtime = "runtime://example.org/late"
        addresses = self.announce(self.thief, runtime)

        late = self.node.client(runtime)

        self.assertNotEqual({}, self.thief.session.bindings)
        self.assertEqual({runtime}, {self.owner(address) for address in addresses})
        self.assertFalse(any(self.node.owners.owns(address, self.thief.session) for address in addresses))
        self.assertEqual([None] * 2, [self.send(late, address) for address in addresses[:2]])
        self.node.clock.advance(0)
        self.assertEqual(0, len(self.node.routes.owners))


class UserTests(OwnershipCase):
    """
    Sessions of one verified user.
    """

    def test_what_one_session_of_a_user_owns_all_of_them_may(self) -> None:
        """
        What one session of a user owns, all of them may bind and send from, and others not.
        """
        self.start(**STRICT)
        first, second = self.verify(self.victim, "urn:ann"), self.verify(self.asker, "urn:ann")
        bob = self.verify(self.thief, "urn:bob")
        address = self.allocate(first)

        self.assertEqual([None, 403], [self.send(client, address) for client in (second, bob)])
        self.assertEqual([200, 403], [self.subscribe(client, address) for client in (second, bob)])
        first.close()

        self.assertEqual(ASKER, self.owner(address))
        self.assertEqual([None, 403], [self.send(client, address) for client in (second, bob)])
        second.close()
        self.assertEqual("", self.owner(address))
        self.assertEqual(0, len(self.node.routes.owners))

    def test_whichever_of_a_user_sessions_ends_the_others_go(self) -> None:
        """
        Whichever of a user's sessions ends, the others go on; the last takes the ownership with it.
        """
        clients = [self.node.client(f"runtime://example.org/{number}") for number in range(4)]
        clients = [self.verify(client, "urn:ann") for client in clients]
        for client in clients:
            self.subscribe(client, HYPERTY)

        for number in (2, 0, 1):
            clients[number].close()
            self.assertIn(self.owner(HYPERTY), [each.runtime for each in clients if each.session is not None])
        clients[3].close()

        self.assertEqual(0, len(self.node.routes.owners))

    def test_nobody_is_no_user(self) -> None:
        """
        Two whom nobody knows share nothing.
        """
        self.start(**STRICT)

        self.subscribe(self.victim, HYPERTY)

        self.assertEqual(403, self.subscribe(self.thief, HYPERTY))


class AwayTests(OwnershipCase):
    """
    An owner without a connection.
    """

    def test_one_whom_nobody_knows_and_who_is_away_for_takeover(self) -> None:
        """
        One whom nobody knows and who is away for `takeover_after_seconds` is replaced by who announces next.
        """
        self.start(**STRICT)
        address = self.allocate(self.victim)
        self.victim.drop()

        self.node.clock.advance(59)
        self.assertEqual(403, self.subscribe(self.thief, address))
        self.node.clock.advance(2)
        self.assertEqual(200, self.subscribe(self.thief, address))

        self.assertEqual(THIEF, self.owner(address))
        back = self.node.client(VICTIM)
        self.assertEqual(403, self.send(back, address))
        self.assertEqual(403, self.subscribe(back, address))

    def test_not_by_waiting(self) -> None:
        """
        A listener that asked too early listens on when the owner has been away; it has to announce.
        """
        self.subscribe(self.victim, HYPERTY)
        self.subscribe(self.thief, HYPERTY)
        self.victim.drop()
        self.node.clock.advance(61)

        self.assertEqual(VICTIM, self.owner(HYPERTY))
        self.subscribe(self.thief, HYPERTY)
        self.assertEqual(THIEF, self.owner(HYPERTY))

    def test_one_whom_a_certificate_proved_is_not_replaced(self) -> None:
        """
        One whom a certificate proved is not replaced, however long it is away.
        """
        self.start(**STRICT)
        ann = self.verify(self.victim, "urn:ann")
        address = self.allocate(ann)
        ann.drop()

        self.node.clock.advance(10_000)

        self.assertEqual(403, self.subscribe(self.thief, address))
        self.assertEqual(VICTIM, self.owner(address))


class RuntimeTests(OwnershipCase):
    """
    Addresses and runtimeURLs.
    """

    def test_only_the_nearest_runtime_speaks_below_its_url(self) -> None:
        """
        At and below a runtimeURL only that runtime speaks, of several above it the nearest.
        """
        self.start(**STRICT)
        above = self.node.client("runtime://example.org/deep")
        below = self.node.client("runtime://example.org/deep/er")

        self.assertEqual([None, 403], [self.send(c, below.runtime + "/sm") for c in (below, above)])
        self.assertEqual([None, 403], [self.send(c, above.runtime + "/sm") for c in (above, below)])

    def test_owned_address_opens_no_session_for_another(self) -> None:
        """
        An allocated address, or the name of a hyperty that somebody announced, opens no session for another.
        """
        self.subscribe(self.victim, HYPERTY)

        for address in (self.allocate(self.victim), HYPERTY):
            client = Client(self.node)
            client.tell({"id": 1, "type": "open", "from": address, "to": "mn:/session"})

            self.assertEqual([], client.take())
            self.assertEqual(4403, client.lost.code)
            self.assertEqual((VICTIM,), tuple(s.runtime for s in self.node.routes.resolve(address)))

    def test_opened_strictly(self) -> None:
        """
        With `from_check` whatever somebody announced, but in the schemes of runtimes.
        """
        self.start(**STRICT)
        names = ("comm://example.org/room", "runtime://example.org/new")
        self.subscribe(self.victim, *names)

        clients = [Client(self.node) for _ in names]
        for client, name in zip(clients, names, strict=True):
            client.tell({"id": 1, "type": "open", "from": name, "to": "mn:/session"})

        self.assertEqual([4403, None], [client.lost and client.lost.code for client in clients])
        self.assertEqual([VICTIM, names[1]], [self.owner(name) for name in names])

    def test_runtime_address(self) -> None:
        """
        With `from_check` a runtime's address that somebody announced is bound by nobody else.
        """
        self.start(**STRICT)
        addresses = [f"{scheme}://example.org/none/x" for scheme in ("runtime", "hyperty-runtime", "comm")]
        self.subscribe(self.victim, *addresses)

        self.assertEqual([403, 403, 200], [self.subscribe(self.thief, address) for address in addresses])
        self.assertEqual([VICTIM] * 3, [self.owner(address) for address in addresses])


class CheckTests(OwnershipCase):
    """
    `from_check`.
    """

    def test_by_default_whoever_listens_is_let_send_from_there(self) -> None:
        """
        By default whoever listens is let send from there too.
        """
        address = self.allocate(self.victim)
        self.subscribe(self.thief, address)

        self.assertIsNone(self.send(self.thief, address))

    def test_with_log_both_pass_and_the_log_says_each_once(self) -> None:
        """
        With "log" both pass, and the log says each once for a session.
        """
        self.start(session={"from_check": "log"})
        address = self.allocate(self.victim)
        events = EventLoggingObserver.createWithCleanup(self, globalLogPublisher)

        self.assertEqual([200, 200], [self.subscribe(self.thief, address) for _ in range(2)])
        self.assertEqual([None, None], [self.send(self.thief, address) for _ in range(2)])

        self.assertEqual([address], [event["address"] for event in events if "address" in event])
        self.assertEqual([address], [event["from_"] for event in events if "from_" in event])


class ImpersonationTests(SynchronousTestCase):
    """
    Somebody subscribes the allocated address of another, over real connectors, and answers in its name.
    """

    def start(self, **session: Any) -> None:
        self.net = Network(session=session)
        self.victim = WebSocketRuntime(self.net, VICTIM).open()
        self.thief = WebSocketRuntime(self.net, THIEF).open()
        self.asker = TCPRuntime(self.net, ASKER).open()
        reply = self.victim.ask(to=ALLOCATION, body={"value": {"number": 1}})
        self.address = reply["body"]["value"]["allocated"][0]

    def subscribe(self) -> int:
        reply = self.thief.ask(type="subscribe", to=SM, body={"resources": [self.address]})
        return int(reply["body"]["code"])

    def answer(self, from_: str) -> dict[str, Any]:
        return {"id": 7, "type": "execute", "from": from_, "to": ASKER, "body": {"code": 200}}

    def post(self, from_: str, token: str) -> int:
        """
        The status of a POST to /message.
        """
        client = HTTPClient(self.net)
        body = dumps({**self.answer(from_), "type": "update"})
        client.start("POST", "/message?wait=0", body, Authorization=f"Bearer {token}")
        self.net.pump()
        return int(client.response.status)

    def test_from_check_lets_nobody_else_bind(self) -> None:
        """
        With `from_check` nobody else hears it at all.
        """
        self.start(from_check="refuse")

        self.assertEqual(403, self.subscribe())
        self.asker.send({"id": 1, "type": "read", "from": ASKER, "to": self.address})

        self.assertEqual(([], 1), (self.thief.take(), len(self.victim.take())))

    def test_listener_of_before_is_refused_403_when_it_speaks(self) -> None:
        """
        A listener of before is refused 403 when it speaks, and the owner is not.
        """
        self.start()
        self.subscribe()
        self.net.node.config.session.from_check = "refuse"

        self.thief.send(self.answer(self.address))
        self.assertEqual([403], [message["body"]["code"] for message in self.thief.take()])
        self.victim.send(self.answer(self.address))

        self.assertEqual([self.answer(self.address)], self.asker.take())

    def test_rest_takes_a_listener_from_for_its_own_neither(self) -> None:
        """
        REST takes a listener's `from` for its own neither, whatever `from_check` says.
        """
        for from_check in ("off", "log", "refuse"):
            self.start(from_check="off")
            self.subscribe()
            self.net.node.config.session.from_check = from_check

            self.assertEqual(403, self.post(self.address, self.thief.token))
            self.assertEqual(202, self.post(self.address, self.victim.token))

            self.assertEqual([self.address], [message["from"] for message in self.asker.take()])


class PolicyTests(OwnershipCase):
    """
    `fromOwned`, `topic.owner` and `topic.ownerUser`.
    """

    def topics(self, condition: Any, *clients: Client, address: str = HYPERTY) -> list[int]:
        """
        What each is told who subscribes, where policies deny that.
        """
        denied = {"direction": {"equals": "subscribe"}, **condition}
        use(self.node, rule("deny", denied), rule("permit", id="else"), algorithm="firstApplicable")
        return [self.subscribe(client, address) for client in clients]

    def test_from_owned(self) -> None:
        """
        A listener does not own its `from`; what it owns, and what has no owner, it does.
        """
        self.subscribe(self.victim, HYPERTY)
        self.subscribe(self.thief, HYPERTY, *UNOWNED)
        foreign = {"direction": {"equals": "in"}, "fromOwned": {"equals": False}}

        use(self.node, rule("deny", foreign), rule("permit", id="else"), algorithm="firstApplicable")

        self.assertEqual([None, 403], [self.send(c, HYPERTY) for c in (self.victim, self.thief)])
        self.assertEqual([None] * 4, [self.send(self.thief, address) for address in UNOWNED])
        self.assertEqual([None, 403], [self.send(self.thief, a) for a in (f"{THIEF}/x", f"{VICTIM}/x")])
        self.assertEqual([403, 403], [self.send(self.thief, "hyperty://d/new") for _ in range(2)])

    def test_policies_are_told_the_owner_at_subscribe(self) -> None:
        """
        Policies are told at `subscribe` whose the address is: the asker's, another's, or nobody's.
        """
        self.subscribe(self.victim, HYPERTY)

        for owner, expected in (("mine", [403, 200]), ("other", [200, 403]), ("none", [200, 200])):
            condition = {"topic.owner": {"equals": owner}}
            self.assertEqual(expected, self.topics(condition, self.victim, self.thief))
        for address in ("hyperty://example.org/nobodys", *UNOWNED):
            self.assertEqual(
                [403], self.topics({"topic.owner": {"equals": "none"}}, self.thief, address=address)
            )

    def test_owner_below_runtime(self) -> None:
        """
        What lies below a runtimeURL is that runtime's.
        """
        condition = {"topic.owner": {"equals": "mine"}}

        self.assertEqual([403], self.topics(condition, self.victim, address=f"{VICTIM}/sm"))

    def test_owner_user(self) -> None:
        """
        The owner's verified user is told too; an owner whom nobody knows has none.
        """
        condition = {"topic.ownerUser": {"equals": "urn:ann"}}
        self.subscribe(self.victim, HYPERTY)
        self.assertEqual([200], self.topics(condition, self.thief))
        self.assertEqual([403], self.topics({"topic.ownerUser": {"exists": False}}, self.thief))

        ann = self.verify(self.victim, "urn:ann")

        self.assertEqual([403, 403], self.topics(condition, self.thief, ann))

    def test_at_other_points_there_is_no_topic(self) -> None:
        """
        At other points there is no topic.
        """
        self.subscribe(self.victim, HYPERTY)
        use(self.node, rule("deny", {"topic.owner": {"exists": True}}), rule("permit", id="else"))

        self.victim.post(HYPERTY)

        self.assertEqual([], [m for m in self.victim.take() if m["type"] == "response"])


class KeptTests(SynchronousTestCase):
    """
    On disk.
    """

    def start(self, path: Path, **sections: Any) -> None:
        self.node = DurableNode(path, **sections)
        self.addCleanup(lambda: self.node.store.shut())

    def restart(self) -> None:
        self.node.clock.advance(0)
        self.node = self.node.killed()

    def owners(self, *addresses: str) -> list[str]:
        found = [self.node.routes.owners.get(address) for address in addresses]
        return [session.runtime if session is not None else "" for session in found]

    def ask(self, client: Client, type: str, to: str, body: Any) -> Any:
        client.tell({"id": 7, "type": type, "from": f"{client.runtime}/x", "to": to, "body": body})
        self.node.clock.advance(0)
        return client.take()[-1]["body"]

    def test_who_owns_an_address_and_who_listens_is_known_after(self) -> None:
        """
        Who owns an address and who listens is known after kill -9, and so is that nobody inherited it.
        """
        self.start(directory(self))
        victim, thief = self.node.client(VICTIM), self.node.client(THIEF)
        body = self.ask(victim, "create", ALLOCATION, {"value": {"number": 1}})
        allocated = body["value"]["allocated"][0]
        self.ask(victim, "subscribe", SM, {"resources": [HYPERTY]})
        self.ask(thief, "subscribe", SM, {"resources": [allocated, HYPERTY, UNOWNED[0]]})

        self.restart()

        self.assertEqual([VICTIM, VICTIM, ""], self.owners(allocated, HYPERTY, UNOWNED[0]))
        self.ask(self.node.client(VICTIM), "unsubscribe", SM, {"resources": [HYPERTY]})
        self.restart()
        self.assertEqual([VICTIM, ""], self.owners(allocated, HYPERTY))
        self.assertEqual(1, len(self.node.routes.resolve(HYPERTY)))

    def write_old(self, path: Path) -> None:
        """
        The state of a node of version 0.1.0.
        """
        with sqlite3.connect(path / NAME) as database:
            for number, step in enumerate(MIGRATIONS[: OWNED_SINCE - 1], 1):
                database.executescript(f"BEGIN; {step}; PRAGMA user_version = {number}; COMMIT")
            for sid, runtime in ((1, VICTIM), (2, THIEF)):
                database.execute(
                    "INSERT INTO session VALUES (?, ?, ?, 0, 1, '', NULL)", (sid, runtime, b"%d" % sid)
                )
            for sid, address, kinds in (
                (1, "hyperty://d/allocated", 1),
                (2, "hyperty://d/allocated", 2),
                (1, "hyperty://d/sole", 2),
                (1, "hyperty://d/two", 2),
                (2, "hyperty://d/two", 2),
                (2, "hyperty://d/learnt", 4),
                (1, "comm://d/1/children/n", 1),
                (1, "comm://d/1/changes", 2),
                (1, "comm://d/1/status", 2),
                (1, "comm://d/1/registration", 2),
            ):
                database.execute("INSERT INTO binding VALUES (?, ?, ?)", (sid, address, kinds))
        database.close()

    def assertUpgraded(self, path: Path) -> None:
        self.start(path)
        self.assertEqual(
            [VICTIM, VICTIM, "", ""],
            self.owners(*(f"hyperty://d/{name}" for name in ("allocated", "sole", "two", "learnt"))),
        )
        self.assertEqual(2, len(self.node.routes.owners))
        self.assertEqual(8, len(self.node.routes))
        self.restart()
        self.assertEqual(2, len(self.node.routes.owners))

    def test_owners_are_derived_from_state_of_0_1_0(self) -> None:
        """
        Of the state of 0.1.0 who was allocated an address owns it, or its only subscriber; else nobody.
        """
        path = directory(self)
        self.write_old(path)

        self.assertUpgraded(path)

    def test_upgrade_of_a_repaired_file(self) -> None:
        """
        So it is when the old file had to be repaired first.
        """
        path = directory(self)
        self.write_old(path)
        (path / NAME).rename(path / "damaged")

        salvage(path / "damaged", path / NAME)

        self.assertUpgraded(path)

    def test_upgrade_once(self) -> None:
        """
        Who is left alone at an address does not come to own it by a restart, nor by a repair.
        """
        path = directory(self)
        self.write_old(path)
        self.start(path)
        self.node.sessions.end(self.node.sessions.get(VICTIM), "closed")
        self.restart()
        self.assertEqual(0, len(self.node.routes.owners))
        self.node.spool.close()
        self.node.store.shut()
        (path / NAME).rename(path / "damaged")

        salvage(path / "damaged", path / NAME)

        self.start(path)
        self.assertEqual((3, 0), (len(self.node.routes), len(self.node.routes.owners)))
