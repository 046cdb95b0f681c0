"""
The commands that a client sends, and the INFO of a server. (Source: NATS client protocol.)
"""

import re
from typing import Any

import msgspec

from msgnode.nats.errors import ProtocolError, SubjectError
from msgnode.nats.wire.parser import DEFAULT_MAX_PAYLOAD

PING, PONG = b"PING\r\n", b"PONG\r\n"
MAX_SUBJECT_BYTES = 1000  # three of them fit into a control line of nats-server, 4,096 bytes
_WORD = re.compile(r"[^\s\x00-\x20\x7f]+")
_KEPT = 4096  # subjects whose bytes are remembered


class ServerInfo(msgspec.Struct, frozen=True):
    """
    The fields of INFO; those that a server leaves out have these values. `max_payload` is in bytes.

    `ldm`: the server is in lame duck mode and will close its connections.
    """

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int = DEFAULT_MAX_PAYLOAD
    nonce: str = ""
    cluster: str = ""
    client_id: int = 0
    connect_urls: tuple[str, ...] = ()
    ldm: bool = False


_info = msgspec.json.Decoder(ServerInfo)


def decode_info(json: bytes) -> ServerInfo:
    """
    Read the JSON of INFO. ProtocolError if it is none, or a field has another type.
    """
    try:
        return _info.decode(json)
    except (msgspec.DecodeError, ValueError, RecursionError) as why:
        raise ProtocolError(f"expected INFO with a JSON object: {why}"[:200]) from None


def connect(options: dict[str, Any]) -> bytes:
    return b"CONNECT %b\r\n" % msgspec.json.encode(options)


def subscribe(subject: bytes, queue: bytes, sid: bytes) -> bytes:
    return b"SUB %b %b %b\r\n" % (subject, queue, sid) if queue else b"SUB %b %b\r\n" % (subject, sid)


def unsubscribe(sid: bytes, max_messages: int = 0) -> bytes:
    """
    End a subscription, at once or after the server has sent so many of its messages in all.
    """
    return b"UNSUB %b %d\r\n" % (sid, max_messages) if max_messages else b"UNSUB %b\r\n" % sid


def publish(subject: bytes, reply: bytes, payload: bytes) -> bytes:
    if reply:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload)


def publish_with_headers(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> bytes:
    names = b"%b %b" % (subject, reply) if reply else subject
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (names, len(headers), len(headers) + len(payload), headers, payload)


class Subjects:
    """
    Checks subjects and gives their bytes. The last few thousand are remembered.
    """

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def to_publish(self, subject: str) -> bytes:
        """
        The bytes of a subject without wildcards. SubjectError says what is wrong.
        """
        known = self._known.get(subject)
        if known is not None:
            return known
        encoded = encode_subject(subject)
        if any(token in ("*", ">") for token in subject.split(".")):
            raise SubjectError(f"expected a subject without wildcards, found {subject[:80]!r}")
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[subject] = encoded
        return encoded


def encode_subject(subject: str) -> bytes:
    """
    The bytes of a subject: tokens with dots between them; wildcards `*`, and `>` at the end.
    """
    encoded = encode_word(subject, "subject")
    tokens = subject.split(".")
    if "" in tokens:
        raise SubjectError(f"expected a subject without empty tokens, found {subject[:80]!r}")
    if ">" in tokens[:-1]:
        raise SubjectError(f"expected '>' only at the end of a subject, found {subject[:80]!r}")
    return encoded


def encode_word(word: str, name: str) -> bytes:
    """
    The bytes of a word without spaces and control characters, at most MAX_SUBJECT_BYTES.
    """
    if not _WORD.fullmatch(word):
        raise SubjectError(f"expected a {name} without spaces and control characters, found {word[:80]!r}")
    encoded = word.encode("utf-8", "surrogateescape")
    if len(encoded) > MAX_SUBJECT_BYTES:
        raise SubjectError(f"expected a {name} of at most {MAX_SUBJECT_BYTES} bytes, found {len(encoded)}")
    return encoded
