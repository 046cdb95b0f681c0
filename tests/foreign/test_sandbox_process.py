"""
The life of a stub's process: statuses, rates, pings, back pressure, and its end.
"""

import json

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from tests.support.stub_processes import LIMITS, World, a_start

STARTED = '{"k":"started"}'


def status(value: str) -> str:
    return json.dumps({"k": "status", "value": value, "desc": ""})


def posted(number: int) -> str:
    return json.dumps({"k": "posted", "m": {"id": number}})


class StubProcessTests(SynchronousTestCase):
    """
    A process in memory.
    """

    def setUp(self) -> None:
        self.world = World()
        self.reactor, self.told, self.transport = self.world.reactor, self.world.told, self.world.transport

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds * 2)):
            self.reactor.advance(0.5)

    def answer_pings(self) -> None:
        for line in self.world.heard():
            if line.startswith(b'{"k":"ping"'):
                self.world.say(f'{{"k":"pong","n":{json.loads(line)["n"]}}}')

    def live(self) -> None:
        self.world.say(STARTED, status("live"))

    def test_messages_are_taken_once_the_code_ran(self) -> None:
        """
        Before, `post` says False, and `ready` follows.
        """
        self.assertFalse(self.world.process.post(b"{}"))
        self.world.say(STARTED)
        self.world.heard()

        self.assertEqual([()], self.told.of("ready"))
        self.assertTrue(self.world.process.post(b'{"id":1}'))
        self.assertEqual([b'{"k":"post","m":{"id":1}}'], self.world.heard())

    def test_a_full_pipe_refuses_messages_until_it_has_room(self) -> None:
        """
        `ready` is told only to a node that was refused.
        """
        self.live()
        self.transport.producer.pauseProducing()
        self.transport.producer.resumeProducing()
        self.assertEqual([], self.told.of("ready"))

        self.transport.producer.pauseProducing()
        self.assertFalse(self.world.process.post(b"{}"))
        self.transport.producer.resumeProducing()

        self.assertEqual([()], self.told.of("ready"))
        self.assertTrue(self.world.process.post(b"{}"))

    def test_more_than_the_rate_is_not_read_but_kept_in_order(self) -> None:
        """
        The process is paused until there is room again.
        """
        self.live()
        self.world.say(*map(posted, range(250)))
        self.advance(0.5)

        early = len(self.told.of("posted"))
        self.assertLess(early, 200)
        self.assertTrue(self.transport.paused)
        for _ in range(10):
            self.advance(0.5)
            self.answer_pings()

        ids = [json.loads(message)["id"] for (message,) in self.told.of("posted")]
        self.assertEqual(list(range(250)), ids)
        self.assertFalse(self.transport.paused)

    def test_a_message_to_many_counts_as_many(self) -> None:
        """
        A list of recipients costs the node as much as so many messages.
        """
        self.live()
        self.told.counts_as = 200
        self.world.say(posted(1), posted(2))
        first = len(self.told.of("posted"))
        self.reactor.advance(1.5)

        self.assertEqual((1, 2), (first, len(self.told.of("posted"))))

    def test_many_lines_of_one_read_are_handled_in_several_turns(self) -> None:
        """
        So that the reactor does other things between.
        """
        limits = replace(LIMITS, messages_per_second=100_000, output_bytes_per_second=1 << 30)
        self.world = World(a_start(limits=limits))
        self.world.say(*map(posted, range(1000)))

        self.assertLess(len(self.world.told.of("posted")), 100)
        for _ in range(20):
            self.world.reactor.advance(0)
        self.assertEqual(1000, len(self.world.told.of("posted")))

    def test_a_process_that_answers_no_ping_is_killed(self) -> None:
        """
        After `hang_seconds`, and the reason is told when it is gone.
        """
        self.live()
        self.advance(LIMITS.hang_seconds)
        self.assertEqual([], self.transport.signals)
        self.advance(3)
        self.assertIn("KILL", self.transport.signals)
        self.transport.exit(signal=9)

        self.assertEqual([("did not answer within 10 s",)], self.told.of("ended"))
        self.assertEqual([], self.reactor.getDelayedCalls())

    def test_a_process_that_answers_pings_goes_on(self) -> None:
        """
        However long it has nothing else to say.
        """
        self.live()
        for _ in range(120):
            self.advance(1)
            self.answer_pings()

        self.assertEqual([], self.transport.signals)

    def test_a_process_that_the_node_does_not_read_is_not_taken_for_hung(self) -> None:
        """
        Its answer may be in the pipe behind what is not read yet.
        """
        limits = replace(LIMITS, messages_per_second=10)
        self.world = world = World(a_start(limits=limits))
        world.say(STARTED, status("live"), *map(posted, range(150)))
        for _ in range(28):
            world.reactor.advance(0.5)

        self.assertTrue(world.transport.paused)
        self.assertEqual([], world.transport.signals)

    def test_it_must_be_live_in_time(self) -> None:
        """
        At the start, and again after it said `disconnected`.
        """
        self.world.say(STARTED, status("created"), status("in-progress"))
        for _ in range(25):
            self.advance(1)
            self.answer_pings()
        self.world.say(status("live"), status("disconnected"))
        for _ in range(29):
            self.advance(1)
            self.answer_pings()
        self.assertEqual([], self.transport.signals)
        self.advance(2)
        self.transport.exit(signal=9)

        self.assertEqual([("was not live within 30 s",)], self.told.of("ended"))

    def test_stopping_asks_then_terminates_then_kills(self) -> None:
        """
        `disconnect()` first; a Deferred for each that asked.
        """
        self.live()
        self.world.heard()
        stopped = [self.world.process.stop(), self.world.process.stop()]
        self.assertEqual([b'{"k":"stop"}'], self.world.heard())
        self.assertFalse(self.world.process.post(b"{}"))
        self.advance(2)
        self.assertEqual(["TERM"], self.transport.signals)
        self.advance(1)
        self.assertEqual(["TERM", "KILL"], self.transport.signals)
        self.assertNoResult(stopped[0])
        self.transport.exit(signal=9)

        self.assertEqual([None, None], [self.successResultOf(each) for each in stopped])
        self.assertEqual([("was stopped",)], self.told.of("ended"))
        self.successResultOf(self.world.process.stop())

    def test_lines_that_no_host_script_writes_end_the_process(self) -> None:
        """
        The reason has the line.
        """
        for line in (
            '{"k":"posted","m":[]}',
            '{"k":"root"}',
            "Fatal",
            '{"k":"posted","m":{"a":"%s"}}' % ("x" * 10_000),
        ):
            world = World()
            world.say(line)
            self.assertEqual(["KILL"], world.transport.signals)
            world.transport.exit(signal=9)
            self.assertIn("broke the protocol of its host", world.told.of("ended")[0][0])

    def test_the_reason_of_an_end_is_in_words(self) -> None:
        """
        The last line of stderr, cleaned; or that memory was at an end.
        """
        for said, code, signal, why in (
            (b"", 3, None, "ended with exit code 3"),
            (b"a\nerror: \x1b[31mbad\n", 1, None, "ended with exit code 1: error: \ufffd[31mbad"),
            (
                b"# Fatal JavaScript out of memory: Reached heap limit\n",
                133,
                None,
                "ran out of memory; the limit is 128 MiB",
            ),
            (b"", 0, 11, "ended with signal 11"),
        ):
            world = World()
            world.process.errReceived(said)
            world.transport.exit(code, signal)
            self.assertEqual([(why,)], world.told.of("ended"))

    def test_an_unknown_status_is_a_line_of_the_log(self) -> None:
        """
        The node knows five.
        """
        self.world.say(status("half-live"))

        self.assertEqual([], self.told.of("status"))
        self.assertEqual([("warn", "unknown status 'half-live'")], self.told.of("log"))

    def test_a_status_that_changes_without_end_ends_the_process(self) -> None:
        """
        Each change makes the node subscribe again.
        """
        limits = replace(LIMITS, messages_per_second=100_000, output_bytes_per_second=1 << 30)
        self.world = world = World(a_start(limits=limits))
        world.say(STARTED, *[status("live"), status("disconnected")] * 100)
        for _ in range(10):
            world.reactor.advance(0)

        self.assertEqual(50, len(world.told.of("status")))
        self.assertEqual({"statuses": 1}, world.told.limits)
        world.transport.exit(signal=9)
        self.assertEqual([("changed its status too often",)], world.told.of("ended"))

    def test_lines_of_its_console_are_bounded(self) -> None:
        """
        The next one that is handed on says how many were left out.
        """
        limits = replace(LIMITS, messages_per_second=100_000, output_bytes_per_second=1 << 30)
        self.world = world = World(a_start(limits=limits))
        line = json.dumps({"k": "log", "level": "info", "text": "x"})
        world.say(STARTED, *[line] * 150)
        for _ in range(10):
            world.reactor.advance(0)
        self.assertEqual(100, len(world.told.of("log")))
        self.assertEqual({"console": 50}, world.told.limits)
        world.reactor.advance(1)
        world.say(line)

        self.assertEqual(("info", "x (50 lines before it are left out)"), world.told.of("log")[-1])

    def test_only_the_first_line_is_of_the_jail(self) -> None:
        """
        A process that broke out cannot fill the log of the node with it.
        """
        jail = '{"k":"jail","missing":[]}'
        self.world.say(jail, STARTED, jail)

        self.assertEqual(["KILL"], self.transport.signals)

    def test_a_process_that_asks_and_does_not_read_is_ended(self) -> None:
        """
        The answers that wait for it in the node are bounded, even if it answers pings.
        """
        limits = replace(LIMITS, messages_per_second=100_000, output_bytes_per_second=1 << 30)
        self.world = world = World(a_start(limits=limits))
        world.say(STARTED)
        world.process.pauseProducing()
        refused = json.dumps({"k": "open", "s": 1, "url": "ws://b.example/", "protocols": []})
        for _ in range(200):
            world.say(*[refused] * 50)
            world.reactor.advance(0)

        world.transport.exit(signal=9)
        self.assertEqual([("does not read what is written to it",)], world.told.of("ended"))
