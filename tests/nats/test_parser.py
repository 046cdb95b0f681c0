"""
The parser: commands of a server, in any chunks, and bytes that are none.
"""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.nats.errors import ProtocolError
from msgnode.nats.wire.parser import MAX_LINE_BYTES, Parser

MESSAGE = b"MSG a.b 1 5\r\nhello\r\n"
TRAFFIC = (
    b'INFO {"max_payload": 100}\r\n+OK\r\nPING\r\nPONG\r\n'
    + MESSAGE
    + b"MSG a 22 _INBOX.1 0\r\n\r\nHMSG a 3 12 17\r\nNATS/1.0\r\n\r\nhello\r\n"
    + b"hmsg a 3 r 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    + b"-ERR 'Stale Connection'\r\nmsg\ta 1 2\r\n\r\n\r\nping\r\n"
)


class Kept:
    """
    A receiver that keeps all it gets.
    """

    def __init__(self) -> None:
        self.all: list[Any] = []

    def message_received(self, *parts: bytes) -> None:
        self.all.append(parts)

    def info_received(self, json: bytes) -> None:
        self.all.append(("INFO", json))

    def ping_received(self) -> None:
        self.all.append("PING")

    def pong_received(self) -> None:
        self.all.append("PONG")

    def ok_received(self) -> None:
        self.all.append("+OK")

    def error_received(self, text: str) -> None:
        self.all.append(("-ERR", text))


def parsed(*chunks: bytes, max_payload: int = 1000) -> list[Any]:
    """
    All that a parser passes on; at the end the text of its error, if there is one.
    """
    kept = Kept()
    parser = Parser(kept, max_payload)
    try:
        for chunk in chunks:
            parser.feed(chunk)
    except ProtocolError as why:
        kept.all.append(str(why))
    return kept.all


def test_each_command() -> None:
    """
    Each command is passed on with its parts; verbs may be in lower case.
    """
    assert parsed(TRAFFIC) == [
        ("INFO", b'{"max_payload": 100}'),
        "+OK",
        "PING",
        "PONG",
        (b"a.b", b"1", b"", b"", b"hello"),
        (b"a", b"22", b"_INBOX.1", b"", b""),
        (b"a", b"3", b"", b"NATS/1.0\r\n\r\n", b"hello"),
        (b"a", b"3", b"r", b"NATS/1.0\r\n\r\n", b""),
        ("-ERR", "Stale Connection"),
        (b"a", b"1", b"", b"", b"\r\n"),
        "PING",
    ]


def test_cut_at_every_byte() -> None:
    """
    The same commands come of a stream that is cut in two at any byte, and of single bytes.
    """
    whole = parsed(TRAFFIC)

    assert parsed(*(TRAFFIC[at : at + 1] for at in range(len(TRAFFIC)))) == whole
    for at in range(len(TRAFFIC)):
        assert parsed(TRAFFIC[:at], TRAFFIC[at:]) == whole, at


@pytest.mark.parametrize(
    "stream, says",
    [
        (b"HELLO\r\n", "expected INFO, MSG, HMSG, PING, PONG, +OK or -ERR, found b'HELLO'"),
        (b"\r\n", "expected INFO"),
        (b"MSG a 1\r\n", "expected 'MSG subject sid [reply] size'"),
        (b"MSG a 1 2 3 4\r\n", "expected 'MSG subject sid [reply] size'"),
        (b"HMSG a 1 3\r\n", "HMSG with two sizes"),
        (b"HMSGS a 1 3\r\n", "expected INFO"),
        (b"MSG a 1 -1\r\n", "expected a size in decimal digits, found b'-1'"),
        (b"MSG a 1 1_0\r\n", "expected a size in decimal digits"),
        (b"MSG a 1 99999999999\r\n", "expected a size in decimal digits"),
        (b"MSG a 1 1001\r\n", "expected a message of at most 1000 bytes, found one of 1001"),
        (b"HMSG a 1 9 5\r\n", "expected headers within the message"),
        (b"MSG a 1 3\r\nhello\r\n", "expected CR LF after 3 bytes of payload, found b'lo'"),
        (b"x" * (MAX_LINE_BYTES + 1) + b"\r\n", "expected a line of at most 65536 bytes"),
        (b"x" * (MAX_LINE_BYTES + 2), "expected a line of at most 65536 bytes"),
    ],
)
def test_errors(stream: bytes, says: str) -> None:
    """
    Bytes that are no command are an error that says what was expected, whether they come at once or one by
    one.
    """
    *_, error = parsed(stream)

    assert says in error
    assert parsed(*(stream[at : at + 1] for at in range(len(stream)))) == [error]


def test_longest_line() -> None:
    """
    A line of the greatest length is taken, in any two parts.
    """
    line = b"INFO " + b"x" * (MAX_LINE_BYTES - 5)

    for parts in ((line + b"\r\n",), (line, b"\r\n"), (line + b"\r", b"\n")):
        assert parsed(*parts) == [("INFO", line[5:])]


def test_error_stays() -> None:
    """
    After an error the parser takes nothing any more, and keeps nothing.
    """
    kept = Kept()
    parser = Parser(kept)
    for data in (b"HELLO\r\nPING\r\n", b"PING\r\n"):
        with pytest.raises(ProtocolError, match="HELLO"):
            parser.feed(data)

    assert kept.all == []
    assert parser.held_bytes == 0


def test_error_keeps_nothing() -> None:
    """
    A line that never ends is not kept after the error.
    """
    parser = Parser(Kept())
    parser.feed(b"x" * MAX_LINE_BYTES)
    with pytest.raises(ProtocolError, match="a longer one"):
        parser.feed(b"x" * MAX_LINE_BYTES)

    assert parser.held_bytes == 0


def test_large_payload_in_small_reads() -> None:
    """
    A payload of 4 MB in reads of a few bytes is held once, and passed on whole.
    """
    payload = bytes(range(256)) * 16_384
    stream = b"MSG a 1 %d\r\n%b\r\n" % (len(payload), payload)
    kept = Kept()
    parser = Parser(kept, len(payload))
    for at in range(0, len(stream), 37):
        parser.feed(stream[at : at + 37])

    assert kept.all == [(b"a", b"1", b"", b"", payload)]
    assert parser.held_bytes == 0


def test_receiver_may_change_the_bound() -> None:
    """
    INFO may change the bound of payloads for what follows in the same read.
    """
    kept = Kept()
    parser = Parser(kept, 0)

    def info_received(json: bytes) -> None:
        parser.max_payload = 5

    kept.info_received = info_received
    parser.feed(b"INFO {}\r\n" + MESSAGE)

    assert kept.all == [(b"a.b", b"1", b"", b"", b"hello")]


words = st.sampled_from(
    [b"MSG", b"HMSG", b"PING", b"a", b"1", b"5", b"12", b" ", b"\r\n", b"\r", b"\n", b"hello", b"{}"]
)
lines = st.sampled_from(
    [MESSAGE, b"PING\r\n", b"+OK\r\n", b"-ERR 'x'\r\n", b"HMSG a 1 12 17\r\nNATS/1.0\r\n\r\nhello\r\n"]
)
streams = st.one_of(
    st.binary(max_size=200),
    st.lists(st.one_of(words, lines, st.binary(max_size=3)), max_size=20).map(b"".join),
)


@given(streams)
def test_any_bytes(stream: bytes) -> None:
    """
    No bytes raise anything but a ProtocolError.
    """
    parsed(stream)


@given(streams, st.lists(st.integers(0, 200), max_size=8))
def test_any_chunks(stream: bytes, cuts: list[int]) -> None:
    """
    What comes of a stream, the error too, does not depend on how it is cut.
    """
    places = [0, *sorted(cut for cut in cuts if cut <= len(stream)), len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(places)]

    assert parsed(*chunks) == parsed(stream)
    assert parsed(*(stream[at : at + 1] for at in range(len(stream)))) == parsed(stream)
