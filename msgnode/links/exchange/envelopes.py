"""
Envelopes: what travels with a message, and the message as it may leave its domain.
"""

from typing import Any

import msgspec
from msgspec import Raw

from msgnode.links.exchange.node_parts import ExchangeOptions
from msgnode.links.exchange.node_sessions import Arrival
from msgnode.links.stream.streams import Envelope
from msgnode.protocol import lossless_json
from msgnode.protocol.errors import Rejected
from msgnode.protocol.message import Message, part
from msgnode.sessions.limits.memory_budget import text_size
from msgnode.sessions.queue import FOREVER, default_ttl
from msgnode.sessions.session import Session

# The kind of a message to another node of this domain, where the node that delivers it gives the receipt.
ASKED = "asked"
# The reasons of messages to members.
IN_PLACE = "in place"  # of the answer to a request of a session that has moved
COPY = "copy"  # other members have got the message, too
PUBLICATION = "publication"  # of the home domain of its address, in another domain, for subscribers here
COPY_OF_PUBLICATION = "copy publication"
MAX_IDENTITY_BYTES = 4096
START_BITS = 40  # of a counter, for the messages of one start
_fields_of = msgspec.json.Decoder(dict[str, Raw]).decode


class MessageIds:
    """
    The source of message ids: an instance, and a counter that rises over restarts.

    No id is given twice, also not after a restart or a kill: the number of the start is on disk before.
    """

    def __init__(self, instance: bytes, start: int) -> None:
        self.instance = instance
        self._last = start << START_BITS

    @property
    def last(self) -> int:
        """
        The number of the last id that was given.
        """
        return self._last

    def next(self) -> tuple[bytes, int]:
        return self.take(1)

    def take(self, count: int) -> tuple[bytes, int]:
        """
        The first of so many ids that follow each other.
        """
        first = self._last + 1
        self._last += count
        return self.instance, first


def envelope_of(message: Message, id: tuple[bytes, int], options: ExchangeOptions) -> Envelope:
    """
    The envelope of a client's message.
    """
    data = message.data
    return Envelope(
        "message",
        id,
        int(1000 * time_to_live(message, options)),
        message.effective_priority,
        transaction=message.transaction,
        answer=_flag(data, "answer", b'"answer"'),
        forward=message.forward,
        log=message.log,
        compress=_flag(data, "compress", b'"compress"'),
        encrypt=_flag(data, "encrypt", b'"encrypt"'),
    )


def time_to_live(message: Message, options: ExchangeOptions) -> float:
    """
    The seconds for which the message may be under way.
    """
    to = message.to if isinstance(message.to, str) else message.to[0]
    wait = min(default_ttl(message.type, to), FOREVER if message.ttl is None else message.ttl)
    return min(wait, options.max_wait_seconds)


def _flag(data: bytes, name: str, quoted: bytes) -> bool | None:
    """
    A header field that is true or false; None if it is missing.
    """
    if quoted not in data:
        return None
    try:
        found = part(data, name)
    except ValueError:
        return None
    return {b"true": True, b"false": False}.get(found or b"")


def without_via(message: Message) -> bytes:
    """
    The bytes of the message without `body.via`, by which the stub of its sender knows its own messages.
    """
    if not message.has_via:
        return message.data
    try:
        fields: dict[str, Any] = _fields_of(message.data)
        body = _fields_of(fields["body"])
        body.pop("via", None)
        return msgspec.json.encode({**fields, "body": body})
    except (msgspec.DecodeError, RecursionError):  # a lone surrogate, which msgspec refuses
        fields = lossless_json.loads(message.data)
        fields["body"].pop("via", None)
        return lossless_json.dumps(fields)


def reason_of(message: Message, is_copy: bool) -> str:
    """
    The reason in the envelope of a message to a member: do others get copies, and has the home domain of its
    address published it?
    """
    origin = message.origin
    if isinstance(origin, Arrival) and origin.is_publication:
        return COPY_OF_PUBLICATION if is_copy else PUBLICATION
    return COPY if is_copy else ""


def identity_of(session: Session | None, own: str) -> dict[str, str]:
    """
    The identity of the session's user, as this domain asserts it; empty if it has none.
    """
    if session is None or not session.identity:
        return {}
    proof = session.proof
    if proof is None or proof.user != session.identity:
        return {"issuer": own, "subject": session.identity, "user": session.identity, "idp": ""}
    user = proof.username or proof.user
    return {"issuer": own, "subject": proof.user, "user": user, "idp": proof.idp}


def check_identity(identity: dict[str, str]) -> None:
    """
    Raises Rejected (413) for an identity that no domain has reason to assert.
    """
    if not identity:
        return
    size = sum(len(name) + text_size(text) for name, text in identity.items())
    if size > MAX_IDENTITY_BYTES:
        raise Rejected(f"an identity has at most {MAX_IDENTITY_BYTES} bytes, not {size}", 413, "too-long")
