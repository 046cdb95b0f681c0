"""
One message to very many: what it takes of memory, and of one turn of the event loop.
"""

import itertools
import json
import tracemalloc
from typing import ClassVar

from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.lines import LineConnection, LineFactory
from msgnode.protocol.message import compose
from msgnode.sessions.queue import OVERHEAD_BYTES
from msgnode.sessions.routing import SUBSCRIBED
from msgnode.transport.cork import Cork
from tests.support.durable import Counting, DurableNode
from tests.support.fakes import MemoryNode, directory
from tests.support.fastpath_wire import Socket, tcp_server
from tests.support.network import Network
from tests.support.policy_case import policy, policy_set, program, rule
from tests.support.poll_runtime import PollRuntime
from tests.support.socketio_runtime import NewSocketPollRuntime, SocketPollRuntime

KIB = 1024
MIB = 1024 * KIB


class MemoryTests(SynchronousTestCase):
    """
    Lines over Twisted's own TCP transports, to clients that do not read.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.cork = Cork(self.node.settle)
        self.factory = LineFactory(self.node, self.cork, self.node.clock)

    def connect(self, name: str, room: int = 10_000) -> LineConnection:
        line = self.factory.buildProtocol(None)
        line.makeConnection(tcp_server(Socket(room), line))
        self.tell(line, type="open", to="mn:/session", **{"from": f"runtime://example.org/{name}"})
        return line

    def tell(self, line: LineConnection, **message: object) -> None:
        line.dataReceived(json.dumps({"id": 1, **message}).encode() + b"\n")

    def peak(self, line: LineConnection, to: object, size: int) -> int:
        """
        The most memory that it takes to carry such a message.
        """
        data = {"type": "update", "to": to, "from": "runtime://example.org/s", "body": {"value": "x" * size}}
        tracemalloc.start()
        try:
            self.tell(line, **data)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def test_message_to_a_list_each_address_of_which_the_same(self) -> None:
        """
        A message to a list, each address of which the same clients listen to, makes one copy an address.
        """
        addresses = [f"hyperty://example.org/{number}" for number in range(200)]
        for number in range(20):
            self.connect(str(number))
            session = self.node.sessions.get(f"runtime://example.org/{number}")
            assert session is not None
            for address in addresses:
                self.node.routes.bind(address, session, SUBSCRIBED)
        sender = self.connect("s")

        self.assertLess(self.peak(sender, addresses, 61 * KIB), 200 * 2 * 61 * KIB + 20 * MIB)

    def test_long_message_to_many_who_do_not_read(self) -> None:
        """
        A long message to many who do not read it is in memory a few times, not once for each.
        """
        for number in range(50):
            self.connect(str(number))
            session = self.node.sessions.get(f"runtime://example.org/{number}")
            assert session is not None
            self.node.routes.bind("a:b", session, SUBSCRIBED)
        sender = self.connect("s")

        self.assertLess(self.peak(sender, "a:b", 4 * MIB), 10 * 4 * MIB)


class PollMemoryTests(SynchronousTestCase):
    """
    Many who wait by long-polling.
    """

    def test_long_message_is_copied_for_each_poll_a_chunk(self) -> None:
        """
        A long message is copied for each poll a chunk at a time, as its client reads; all of it comes.
        """
        for kind in (PollRuntime, SocketPollRuntime, NewSocketPollRuntime):
            self.check(Network(), kind)

    def check(self, net: Network, kind: type[PollRuntime] | type[SocketPollRuntime]) -> None:
        pollers = [kind(net, f"runtime://example.org/{number}").open() for number in range(20)]
        for poller in pollers:
            net.node.routes.bind("a:b", net.node.sessions.get(poller.url), SUBSCRIBED)
        sender = net.node.client("runtime://example.org/s")
        cork = net.node.fanout.together
        message = {
            "id": 1,
            "type": "update",
            "to": "a:b",
            "from": sender.runtime,
            "body": {"v": "x" * 2 * MIB},
        }

        data = json.dumps(message).encode()
        tracemalloc.start()
        try:
            with cork:
                net.node.receive(data, sender)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        net.pump()

        self.assertLess(peak, 20 * 300 * KIB + 5 * MIB)
        self.assertEqual([[message]] * 20, [poller.take() for poller in pollers])


class SlicesCase(SynchronousTestCase):
    """
    A durable node that sends to ten in a turn, or two a slice; 30 clients that acknowledge listen to a:b.
    """

    limits: ClassVar[dict[str, int]] = {"recipients_at_once": 10}
    number = 30

    def setUp(self) -> None:
        self.node = DurableNode(directory(self), limits=self.limits)
        self.addCleanup(lambda: self.node.spool.close())
        self.sender = self.make("s")
        self.listeners = [self.make(str(number)) for number in range(self.number)]
        self.node.store.committed()
        self.node.clock.advance(1)

    def make(self, name: str, *addresses: str) -> Counting:
        client = Counting(self.node, f"runtime://example.org/{name}")
        client.connect()
        session = self.node.sessions.get(client.runtime)
        for address in addresses or ("a:b",):
            if name != "s":
                self.node.routes.bind(address, session, SUBSCRIBED)
        return client

    def say(self, id: int, client: Counting | None = None, to: object = "a:b", size: int = 10) -> None:
        (client or self.sender).send(id=id, type="update", to=to, body={"value": "x" * size})

    def on_the_way(self) -> int:
        return sum(len(each.wire.on_its_way) for each in self.listeners if each.wire is not None)

    def finish(self) -> int:
        """
        Until all is sent; how many turns it took.
        """
        turns = 0
        while self.node.slices.at_work:
            self.node.clock.turn()
            turns += 1
        return turns

    def got(self, client: Counting) -> list[int]:
        if client.wire is not None:
            client.arrive()
        return [message["id"] for message in client.got]


class SlicesTests(SlicesCase):
    """
    What is sent in slices.
    """

    def test_nothing_leaves_before_all_is_written_down(self) -> None:
        """
        Nothing leaves before all is written down; then a few get it in each turn, and everybody once.
        """
        self.say(1)
        self.assertEqual(0, self.on_the_way())
        at, turns = 0, 0
        while self.node.slices.at_work:
            self.node.clock.turn()
            self.assertLessEqual(self.on_the_way() - at, 2)
            at, turns = self.on_the_way(), turns + 1

        self.assertGreaterEqual(turns, self.number // 2)
        self.assertEqual([[1]] * self.number, [self.got(each) for each in self.listeners])

    def test_few_recipients_get_it_in_one_turn(self) -> None:
        """
        As many as can be sent to in a turn get it in that turn.
        """
        for each in self.listeners[10:]:
            self.node.routes.unbind("a:b", self.node.sessions.get(each.runtime), SUBSCRIBED)

        self.say(1)

        self.assertEqual(10, self.on_the_way())
        self.assertEqual(0, self.node.slices.at_work)

    def test_sender_waits(self) -> None:
        """
        What its sender sends behind it waits until all have had their turn, and is not read meanwhile.
        """
        self.say(1)
        self.say(2)
        self.node.clock.turn()
        self.assertEqual(1, self.node.sessions.get(self.sender.runtime).mailbox.inbox.received)

        self.finish()

        self.assertEqual(2, self.node.sessions.get(self.sender.runtime).mailbox.inbox.received)
        self.assertEqual([[1, 2]] * self.number, [self.got(each) for each in self.listeners])

    def test_others_between(self) -> None:
        """
        What others send between two slices comes behind it, once, whether a recipient had its turn or not.
        """
        other = self.make("other", "x:y")
        self.say(1)
        self.node.clock.turn()
        for number, each in enumerate(self.listeners):
            self.node.routes.bind(f"a:{number}", self.node.sessions.get(each.runtime), SUBSCRIBED)
            other.send(id=2, type="update", to=f"a:{number}")

        self.finish()

        self.assertEqual([[1, 2]] * self.number, [self.got(each) for each in self.listeners])

    def test_other_to_many(self) -> None:
        """
        Two messages to many at once reach everybody, each once, in one order.
        """
        other = self.make("other", "x:y")
        self.say(1)
        self.node.clock.turn()
        self.say(2, other)

        self.finish()

        self.assertEqual([[1, 2]] * self.number, [self.got(each) for each in self.listeners])

    def test_comes_back_between(self) -> None:
        """
        Who loses its connection between two slices, or opens another one, gets it once.
        """
        self.say(1)
        self.node.clock.turn()
        for each in self.listeners[::2]:
            each.lose()
        for each in self.listeners[::4]:
            each.connect()
        for each in self.listeners[1::4]:
            each.connect()  # and the older one is superseded
        self.finish()
        self.say(2)
        self.finish()
        for each in self.listeners[2::4]:
            each.connect()

        self.assertEqual([[1, 2]] * self.number, [self.got(each) for each in self.listeners])
        self.assertEqual([0] * self.number, [each.missed for each in self.listeners])

    def test_opens_anew_between(self) -> None:
        """
        Who begins a new epoch between two slices gets it in that one, once.
        """
        self.say(1)
        for each in self.listeners:
            each.open_anew()
        self.finish()

        self.assertEqual([[1]] * self.number, [self.got(each) for each in self.listeners])

    def test_ends_between(self) -> None:
        """
        Who closes its session between two slices gets nothing, and the others do.
        """
        self.say(1)
        for each in self.listeners[::2]:
            self.node.handshake.close(each.wire)
        self.finish()

        self.assertEqual([[1]] * (self.number // 2), [self.got(each) for each in self.listeners[1::2]])
        for each in self.listeners[1::2]:
            each.acknowledge()
        self.assertEqual(0, self.node.sessions.journal.bytes_in_memory)

    def test_paused_between(self) -> None:
        """
        Who reads no more between two slices gets it once it does.
        """
        self.say(1)
        for each in self.listeners:
            self.node.sessions.connections.write_paused(each.wire)
        self.finish()
        self.assertEqual(0, self.on_the_way())

        for each in self.listeners:
            self.node.sessions.connections.write_resumed(each.wire)

        self.assertEqual([[1]] * self.number, [self.got(each) for each in self.listeners])

    def test_killed_between(self) -> None:
        """
        Kill -9 between any two slices: everybody gets it once, and its sender need not send it again.
        """
        for turns in range(0, self.number // 2 + 1, 3):
            self.say(100 + turns)
            for _ in range(turns):
                self.node.clock.turn()
            for each in self.listeners[::3]:
                each.arrive()
            for each in [*self.listeners, self.sender]:
                each.lose()
            self.node = self.node.killed()
            for each in [*self.listeners, self.sender]:
                each.node = self.node
                each.connect()

            self.assertEqual([], self.sender.kept)

        sent = [100 + turns for turns in range(0, self.number // 2 + 1, 3)]
        self.assertEqual([sent] * self.number, [self.got(each) for each in self.listeners])

    def test_written_once(self) -> None:
        """
        Its bytes are on disk once, whoever gets it, and count once as memory.
        """
        before, used = self.node.spool.size, self.node.sessions.journal.bytes_in_memory
        self.say(1, size=MIB)
        self.assertLess(self.node.spool.size - before, MIB + 100 * self.number + 1000)
        self.assertLess(
            self.node.sessions.journal.bytes_in_memory - used, MIB + OVERHEAD_BYTES * self.number + 1000
        )

        self.finish()
        self.assertLess(
            self.node.sessions.journal.bytes_in_memory - used, MIB + OVERHEAD_BYTES * self.number + 1000
        )
        for each in self.listeners:
            self.got(each)
            each.acknowledge()

        self.assertEqual(used, self.node.sessions.journal.bytes_in_memory)

    def test_paged_out(self) -> None:
        """
        Where it is on disk only, it is read once for those who get it in a row.
        """
        self.node.sessions.journal.most = MIB
        self.say(1, size=MIB)
        self.assertLess(self.node.sessions.journal.bytes_in_memory, MIB // 2)
        session = self.node.sessions.get(self.listeners[0].runtime)
        other = self.node.sessions.get(self.listeners[1].runtime)

        self.finish()

        first, second = session.mailbox, other.mailbox
        self.assertIs(first.read_back(first.undelivered()[0]), second.read_back(second.undelivered()[0]))
        self.assertEqual([[1]] * self.number, [self.got(each) for each in self.listeners])

    def test_unacknowledging_clients_get_slices_once(self) -> None:
        """
        Clients that do not acknowledge get it in slices as well, once.
        """
        clients = [self.node.client(f"runtime://example.org/legacy/{number}") for number in range(20)]
        for client in clients:
            self.node.routes.bind("c:d", client.session, SUBSCRIBED)

        self.say(1, to="c:d")
        self.assertEqual([[]] * 20, [client.raw for client in clients])
        self.finish()

        self.assertEqual([[1]] * 20, [[m["id"] for m in client.take()] for client in clients])
        self.assertEqual(0, self.node.sessions.journal.bytes_in_memory)


class ManyMessagesTests(SlicesCase):
    """
    Messages one after the other, each to as many as are sent to without slices.
    """

    limits: ClassVar[dict[str, int]] = {"recipients_at_once": 50}

    def turns(self, client: Counting) -> list[int]:
        """
        How many messages of this client were carried in each turn, until all were.
        """
        inbox, carried = self.node.sessions.get(client.runtime).mailbox.inbox, [0]
        carried.append(inbox.received)
        while self.node.slices.at_work:
            self.node.clock.turn()
            carried.append(inbox.received)
        return [now - before for before, now in itertools.pairwise(carried) if now > before]

    def test_one_turn_carries_only_some_messages(self) -> None:
        """
        One turn carries only some of them; the others follow, in order, and are not read before.
        """
        for number in range(20):
            self.say(number)
        self.assertFalse(self.sender.wire.reading)
        turns = self.turns(self.sender)

        self.assertEqual(20, sum(turns))
        self.assertLessEqual(max(turns), 5)
        self.assertTrue(self.sender.wire.reading)
        self.assertEqual([list(range(20))] * self.number, [self.got(each) for each in self.listeners])

    def test_same_where_nobody_is_there_to_get_them(self) -> None:
        """
        The same where nobody is there to get them.
        """
        for each in self.listeners:
            each.lose()
        for number in range(20):
            self.say(number)
        turns = self.turns(self.sender)
        for each in self.listeners:
            each.connect()

        self.assertEqual(20, sum(turns))
        self.assertLessEqual(max(turns), 5)
        self.assertEqual([list(range(20))] * self.number, [self.got(each) for each in self.listeners])

    def test_several_senders_have_no_more_of_one_turn_together(self) -> None:
        """
        Several senders have no more of one turn together than one alone, but for a message each.
        """
        senders = [self.make(f"other/{number}", "x:y") for number in range(4)]
        for number in range(10):
            for sender in senders:
                self.say(number, sender)
        inboxes = [self.node.sessions.get(sender.runtime).mailbox.inbox for sender in senders]

        self.assertLessEqual(sum(inbox.received for inbox in inboxes), 5 + 3)
        self.finish()

        self.assertEqual([10] * 4, [inbox.received for inbox in inboxes])

    def test_very_many_away(self) -> None:
        """
        Messages to more than that, none of whom is there, take several turns as well.
        """
        for number in range(60):
            session = self.node.sessions.create(f"runtime://example.org/away/{number}")
            self.node.routes.bind("c:d", session, SUBSCRIBED)
        for number in range(20):
            self.say(number, to="c:d")

        turns = self.turns(self.sender)

        self.assertEqual(20, sum(turns))
        self.assertLessEqual(max(turns), 3)

    def test_and_messages_to_lists_each_of_whose_addresses_few(self) -> None:
        """
        And messages to lists, each of whose addresses few listen to.
        """
        for number, each in enumerate(self.listeners):
            session = self.node.sessions.get(each.runtime)
            self.node.routes.bind(f"c:{number % 10}", session, SUBSCRIBED)
        for number in range(20):
            self.say(number, to=[f"c:{each}" for each in range(10)])

        turns = self.turns(self.sender)

        self.assertEqual(20, sum(turns))
        self.assertLessEqual(max(turns), 5)

    def test_and_those_that_policies_have_a_say_in_for_each(self) -> None:
        """
        And those that policies have a say in, for each who gets them.
        """
        self.node.enforcement.use(
            program(
                [
                    policy_set(
                        [
                            policy(
                                [
                                    rule(
                                        "deny",
                                        {"direction": {"equals": "out"}, "msgSize": {"moreThan": 10**6}},
                                    )
                                ]
                            )
                        ]
                    )
                ]
            ),
            1,
        )
        for each in self.listeners[4:]:
            self.node.routes.unbind("a:b", self.node.sessions.get(each.runtime), SUBSCRIBED)
        for number in range(50):
            self.say(number)

        turns = self.turns(self.sender)

        self.assertEqual(50, sum(turns))
        self.assertLessEqual(max(turns), 14)


class RefusedTests(SlicesCase):
    """
    Some are away, and nothing more is kept for them.
    """

    def test_refused_recipient_is_not_counted_as_waiting(self) -> None:
        """
        Who is refused a place for it does not count as one for whom it waits.
        """
        for each in self.listeners[:5]:
            each.lose()
        self.node.sessions.watermark = Low()
        self.say(1)
        self.finish()

        (message,) = (each for each in self.node.traffic_recorder.messages if each["to"] == "a:b")
        self.assertEqual(
            (25, 0, "delivered"), tuple(message[key] for key in ("recipients", "waiting", "outcome"))
        )

    def test_message_refused_for_all_recipients_is_dropped(self) -> None:
        """
        Where all are refused it is dropped.
        """
        for each in self.listeners:
            each.lose()
        self.node.sessions.watermark = Low()
        self.say(1)

        self.assertEqual("dropped", self.node.traffic_recorder.outcomes[-1])


class Low:
    """
    A disk that is nearly full.
    """

    low = True
    refused = 0


class ListTests(SlicesCase):
    """
    A message to a list whose addresses come to many deliveries.
    """

    limits: ClassVar[dict[str, int]] = {"recipients_at_once": 10, "list_deliveries": 95}

    def bind(self, *addresses: str) -> None:
        for address in addresses:
            for each in self.listeners:
                self.node.routes.bind(address, self.node.sessions.get(each.runtime), SUBSCRIBED)

    def test_it_is_sent_in_slices_as_a_whole(self) -> None:
        """
        It is sent in slices as a whole; each gets each copy once, in order.
        """
        self.bind("c:d", "e:f")
        self.say(1, to=["a:b", "c:d", "e:f"])
        self.assertEqual(0, self.on_the_way())
        self.say(2)
        self.assertGreaterEqual(self.finish(), self.number // 2)

        self.assertEqual([[1, 1, 1, 2]] * self.number, [self.got(each) for each in self.listeners])
        to = [[message["to"] for message in each.got] for each in self.listeners]
        self.assertEqual([["a:b", "c:d", "e:f", "a:b"]] * self.number, to)
        self.assertEqual(
            [30, 30, 30, 30], [m["recipients"] for m in self.node.traffic_recorder.messages[-4:]]
        )

    def test_kill_9_between_two_slices_loses_and_doubles_none(self) -> None:
        """
        Kill -9 between two slices loses and doubles none of the copies.
        """
        self.bind("c:d")
        self.say(1, to=["a:b", "c:d"])
        self.node.clock.turn()
        for each in self.listeners:
            each.lose(1)
        self.sender.lose()
        self.node = self.node.killed()
        for each in [*self.listeners, self.sender]:
            each.node = self.node
            each.connect()

        self.assertEqual([[1, 1]] * self.number, [self.got(each) for each in self.listeners])
        self.assertEqual([], self.sender.kept)

    def test_more_deliveries_than_the_node_takes_on_are_refused(self) -> None:
        """
        More deliveries than the node takes on are refused, all of them, before a copy is made.
        """
        self.bind("c:d", "e:f", "g:h")
        self.say(1, to=["a:b", "c:d", "e:f", "g:h"])
        self.sender.arrive()

        self.assertEqual(413, self.sender.got[-1]["body"]["code"])
        self.assertIn("at most 95 sessions in all, not 120", self.sender.got[-1]["body"]["description"])
        self.assertEqual(0, self.on_the_way())


class DecisionTests(SlicesCase):
    """
    Policies have a say in what goes out: ten decisions are made in a turn, if there are more.
    """

    limits: ClassVar[dict[str, int]] = {"recipients_at_once": 100, "list_deliveries": 1000}

    def use(self, *rules: object) -> None:
        self.node.enforcement.use(program([policy_set([policy(list(rules))])]), 1)

    def deny(self, *numbers: int) -> None:
        sessions = [f"runtime://example.org/{number}" for number in numbers]
        self.use(rule("deny", {"direction": {"equals": "out"}, "session": {"in": sessions}}))

    def test_all_is_decided_before_anybody_gets(self) -> None:
        """
        All is decided before anybody gets it; who may not have it does not, the others do, once.
        """
        self.deny(0, 7, 29)
        self.say(1)
        self.say(2)
        self.node.clock.turn()
        self.node.clock.turn()
        self.assertEqual(0, self.on_the_way())

        self.finish()

        expected = [[] if number in (0, 7, 29) else [1, 2] for number in range(self.number)]
        self.assertEqual(expected, [self.got(each) for each in self.listeners])
        self.assertEqual([27, 27], [m["recipients"] for m in self.node.traffic_recorder.messages[-2:]])

    def test_if_nobody_may_have_it_its_sender_is_told(self) -> None:
        """
        If nobody may have it its sender is told that, as with few.
        """
        self.deny(*range(self.number))
        self.sender.send(id=1, type="create", to="a:b", body={})
        self.finish()
        self.sender.arrive()

        self.assertEqual([403], [message["body"]["code"] for message in self.sender.got])
        self.assertEqual(0, self.on_the_way())

    def test_kill_9_while_it_is_being_decided(self) -> None:
        """
        Kill -9 while it is being decided: its sender sends it again, and everybody gets it once.
        """
        self.deny(3)
        self.say(1)
        self.say(2)
        self.node.clock.turn()
        for each in [*self.listeners, self.sender]:
            each.lose()
        self.node = self.node.killed()
        self.deny(3)
        for each in [*self.listeners, self.sender]:
            each.node = self.node
            each.connect()
        self.assertEqual(0, self.on_the_way())
        self.finish()

        expected = [[] if number == 3 else [1, 2] for number in range(self.number)]
        self.assertEqual(expected, [self.got(each) for each in self.listeners])

    def test_message_to_a_list_is_decided(self) -> None:
        """
        A message to a list is decided on for all its addresses, before anybody gets any copy.
        """
        for each in self.listeners:
            self.node.routes.bind("c:d", self.node.sessions.get(each.runtime), SUBSCRIBED)
        self.deny(3)
        self.say(1, to=["a:b", "c:d"])
        self.say(2)
        self.node.clock.turn()
        self.assertEqual(0, self.on_the_way())

        self.finish()

        expected = [[] if number == 3 else [1, 1, 2] for number in range(self.number)]
        self.assertEqual(expected, [self.got(each) for each in self.listeners])
        self.assertEqual([29, 29, 29], [m["recipients"] for m in self.node.traffic_recorder.messages[-3:]])

    def test_what_the_node_itself_publishes_to_many_is_decided(self) -> None:
        """
        What the node itself publishes to many is decided on in slices too.
        """
        self.deny(3)
        message = compose(1, "update", "domain://registry.example.org", "a:b", {})

        self.assertEqual(self.number, self.node.publish(message))
        self.assertEqual(0, self.on_the_way())
        self.finish()

        self.assertEqual(self.number - 1, self.on_the_way())
        self.assertEqual(29, self.node.traffic_recorder.messages[-1]["recipients"])
