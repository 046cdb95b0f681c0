"""
`body.assertedIdentity`: the sender's identity, asserted by the node.

A sender may include the key; the node replaces its value with the authenticated identity, or removes the key.
A body that cannot be read for it is refused. All other messages stay byte for byte.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from msgnode.protocol import lossless_json
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import Message
from msgnode.sessions.session import Session

KEY = "assertedIdentity"
_PLAIN, _ESCAPE = KEY.encode(), b"\\u00"  # a key may be written with escapes
_fields_of = msgspec.json.Decoder(dict[str, Raw]).decode


def with_asserted_identity(message: Message, session: Session) -> bytes:
    """
    The bytes of the message, in which `body.assertedIdentity`, if present, is what the node asserts.
    """
    data = message.data
    if _PLAIN not in data and _ESCAPE not in data:
        return data
    try:
        fields: dict[str, Any] = _fields_of(data)
        body: Any = fields.get("body")
        if body is not None:
            body = None if bytes(body) == b"null" else _fields_of(body)
        encode: Callable[[Any], bytes] = msgspec.json.encode
    except (msgspec.DecodeError, RecursionError):
        fields, encode = _read_closely(message), lossless_json.dumps
        body = fields.get("body")
    if body is None or KEY not in body:
        return data
    del body[KEY]
    asserted = _asserted(session)
    try:
        return encode({**fields, "body": {**body, KEY: asserted} if asserted else body})
    except RecursionError:
        raise Malformed("nested too deeply", message.id, message.from_) from None


def _asserted(session: Session) -> dict[str, Any] | None:
    proof = session.proof
    if not session.identity:
        return None
    if proof is None or proof.user != session.identity:
        return {"userURL": session.identity}
    return {"userURL": proof.user, "idp": proof.idp, "preferred_username": proof.username}


def _read_closely(message: Message) -> dict[str, Any]:
    """
    The fields of a message with lone surrogates, which browsers send and msgspec refuses.
    """
    try:
        fields: dict[str, Any] = lossless_json.loads(message.data)
    except (ValueError, RecursionError):
        raise Malformed(
            f"'body' cannot be decoded, and may have {KEY!r}", message.id, message.from_
        ) from None
    return fields
