"""
Engine.IO and Socket.IO in bytes.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msgnode.connectors.socketio.codec import Garbled, join, message_event, message_of, socket_packet, split

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=4)


def twice(packet: str) -> bytes:
    """
    A packet in a body as a client of Socket.IO 1 writes it.
    """
    encoded = packet.encode()
    return f"{len(encoded)}:{encoded.decode('latin-1')}".encode()


def once(packet: str) -> bytes:
    """
    The same as a client of Socket.IO 2 writes it.
    """
    return f"{len(packet.encode('utf-16-le')) // 2}:{packet}".encode()


@given(TEXTS)
def test_twice_encoded(texts):
    """
    Bodies of Socket.IO 1, where lengths count the bytes of what is encoded once more, are read.
    """
    assert [text.encode() for text in texts] == split(b"".join(map(twice, texts)), 3)


@pytest.mark.parametrize("text", ["żółw", "😀", "日本 é", 'a"\\b ż😀'])
def test_once_encoded(text):
    """
    So are those of Socket.IO 2, where they count UTF-16 units.
    """
    assert [b"4x", text.encode(), b"2"] == split(once("4x") + once(text) + once("2"), 3)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=4))
def test_written(values):
    """
    What is written in version 3 is ASCII, so that both read it, and says the same.
    """
    packets = [message_event(json.dumps({"v": value}, ensure_ascii=False).encode()) for value in values]

    body = join(packets, 3)

    assert body.isascii()
    read = [json.loads(message_of(packet[2:])) for packet in split(body, 3)]
    assert [{"v": value} for value in values] == read


@given(TEXTS)
def test_separated(texts):
    """
    In version 4 packets stand side by side, as they are.
    """
    packets = [text.replace("\x1e", "").encode() or b"2" for text in texts]

    assert packets == split(join(packets, 4), 4)


@pytest.mark.parametrize(
    "body, why",
    [
        (b"", "at least one packet"),
        (b"5:2", "a packet of 5 was announced, 1 came"),
        (b"2", "expected a length and a colon"),
        (b":2", "expected a length and a colon"),
        (b"-1:2", "expected a length and a colon"),
        (b"1:2x:3", "expected a length and a colon"),
        (b"0:", "at least its type"),
        (b"99999999999:2", "expected a length and a colon"),
        (b"2:4\xff", "not UTF-8 at byte 3"),
        ("3:4ż".encode(), "a packet of 3 was announced, 2 came"),
        (b"\x00\x03\xff4ab", "not UTF-8"),
    ],
)
def test_body_that_is_no_packets_says_why(body, why):
    """
    A body that is none is told why.
    """
    with pytest.raises(Garbled, match=why):
        split(body, 3)


@given(st.binary(max_size=60), st.sampled_from([3, 4]))
def test_any_bytes_are_utf8_packets_or_garbled(body, version):
    """
    Whatever comes is split into UTF-8, or garbled.
    """
    try:
        packets = split(body, version)
    except Garbled:
        return
    for packet in packets:
        packet.decode()


@pytest.mark.parametrize(
    "payload, data",
    [
        (b'["message",{"id":1}]', b'{"id":1}'),
        (b'["message","{\\"id\\":1}"]', b'{"id":1}'),
        (' ["message" , "ż\\u017c" ]'.encode(), "żż".encode()),
        (b'["message",7]', b"7"),
    ],
)
def test_event_holds_message_as_object_or_string(payload, data):
    """
    A message stands in its event as an object, to the byte, or as a string.
    """
    assert data == message_of(payload)


@pytest.mark.parametrize(
    "payload", [b"", b"[", b"{}", b'["message"]', b'["message",1,2]', b'["chat",{}]', b"[" * 9000, b'[7,"a"]']
)
def test_no_events(payload):
    """
    Nothing else is an event that carries a message.
    """
    with pytest.raises(Garbled):
        message_of(payload)


@pytest.mark.parametrize(
    "packet, found",
    [
        (b'42["message",1]', (b"2", b"/", b"", b'["message",1]')),
        (b'4217["message",1]', (b"2", b"/", b"17", b'["message",1]')),
        (b"40", (b"0", b"/", b"", b"")),
        (b'40/chat,{"a":1}', (b"0", b"/chat", b"", b'{"a":1}')),
        (b"40/chat", (b"0", b"/chat", b"", b"")),
        (b"41", (b"1", b"/", b"", b"")),
    ],
)
def test_socket_packets(packet, found):
    """
    A packet of Socket.IO has a kind, a namespace, and the number of an acknowledgement.
    """
    assert found == socket_packet(packet)


def test_no_socket_packet():
    """
    What has no kind is none.
    """
    with pytest.raises(Garbled):
        socket_packet(b"4x")
