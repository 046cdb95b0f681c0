"""
The lines between the node and a stub's process, whatever the process writes.
"""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from msgnode.foreign.sandbox.lines import BadLine, LineBuffer, Posted, cleaned, decoded, encoded, post_line
from tests.support.fuzz import TIMES
from tests.support.stub_processes import World

KINDS = [
    "jail",
    "started",
    "failed",
    "posted",
    "status",
    "log",
    "pong",
    "stopped",
    "open",
    "send",
    "close",
    "fetch",
    "abort",
]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    [
        "m",
        "text",
        "value",
        "desc",
        "level",
        "n",
        "s",
        "url",
        "protocols",
        "base64",
        "code",
        "reason",
        "method",
        "headers",
        "body",
        "missing",
    ]
)
lines = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda kind, fields: encoded(kind, **fields)[:-1],
        st.sampled_from(KINDS),
        st.dictionaries(names, values | st.just("ws://127.0.0.1:1/") | st.just([["a", "b"]]), max_size=6),
    ),
)


class LineBufferTests(SynchronousTestCase):
    """
    A stream in pieces.
    """

    @given(st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b)), st.integers(1, 7))
    @settings(max_examples=100 * TIMES, deadline=None)
    def test_lines_are_the_same_in_whatever_pieces_they_come(
        self, given_lines: list[bytes], size: int
    ) -> None:
        """
        None is lost, doubled or cut.
        """
        stream = b"".join(line + b"\n" for line in given_lines)
        buffer, found = LineBuffer(30), []
        for at in range(0, len(stream), size):
            buffer.add(stream[at : at + size])
            while (line := buffer.next()) is not None:
                found.append(line)

        self.assertEqual(given_lines, found)
        self.assertEqual(0, len(buffer))

    def test_a_line_without_end_is_refused(self) -> None:
        """
        As soon as it is longer than the limit.
        """
        buffer = LineBuffer(10)
        buffer.add(b"x" * 10)
        self.assertIsNone(buffer.next())
        buffer.add(b"x")

        self.assertRaises(BadLine, buffer.next)

    def test_a_message_of_several_lines_is_one_line(self) -> None:
        """
        A line feed outside of strings is white space.
        """
        self.assertEqual(b'{"k":"post","m":{ "a": 1 }}\n', post_line(b'{\n"a": 1\n}'))

    def test_texts_of_a_stub_have_no_control_characters(self) -> None:
        """
        A log and a terminal show them, so nothing is moved or coloured.
        """
        self.assertEqual("a\ufffd[31m\nb", cleaned("a\x1b[31m\nb"))
        self.assertEqual("aa", cleaned("aaaa", 2))


class FuzzTests(SynchronousTestCase):
    """
    Lines that no host script writes.
    """

    @given(lines)
    @settings(max_examples=300 * TIMES, deadline=None)
    def test_a_line_is_decoded_or_refused(self, line: bytes) -> None:
        """
        No other exception.
        """
        try:
            found = decoded(line)
        except BadLine:
            return
        if isinstance(found, Posted):
            self.assertIn(bytes(found.m), line)

    @given(st.lists(lines, max_size=8), st.integers(1, 500))
    @settings(max_examples=200 * TIMES, deadline=None)
    def test_whatever_a_process_writes_it_goes_on_or_is_killed(self, said: list[bytes], size: int) -> None:
        """
        Nothing is raised into the reactor, and nothing is left when it ends.
        """
        world = World()
        stream = b"\n".join(said) + b"\n"
        for at in range(0, len(stream), size):
            world.process.outReceived(stream[at : at + size])
        world.reactor.advance(0.5)
        world.transport.exit(signal=9)

        self.assertEqual(1, len(world.told.of("ended")))
        self.assertIn(world.transport.signals, ([], ["KILL"], ["KILL"] * len(world.transport.signals)))
        self.assertEqual([], world.reactor.getDelayedCalls())
        for (message,) in world.told.of("posted"):
            self.assertTrue(message.startswith(b"{"))
