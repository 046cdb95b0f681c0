"""
`body.assertedIdentity`: who the node says the sender is.

A sender may put the key there; what stands behind it is the node's own word,
or the key is taken out.  A message that cannot be read for it is refused.  All
others go on byte for byte.
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
_PLAIN, _ESCAPE = KEY.encode(), b"\\u00"  # a key may be spelt in escapes, too
_fields_of = msgspec.json.Decoder(dict[str, Raw]).decode


def with_asserted_identity(message: Message, session: Session) -> bytes:
    """
    The same message, with nothing in it that only the node can know but what the node knows.
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
    said = _said(session)
    try:
        return encode({**fields, "body": {**body, KEY: said} if said else body})
    except RecursionError:
        raise Malformed("nested too deeply", message.id, message.from_) from None


def _said(session: Session) -> dict[str, Any] | None:
    proof = session.proof
    if not session.identity:
        return None
    if proof is None or proof.user != session.identity:
        return {"userURL": session.identity}
    return {"userURL": proof.user, "idp": proof.idp, "preferred_username": proof.username}


def _read_closely(message: Message) -> dict[str, Any]:
    """
    What msgspec does not read, but browsers write: half a character.
    """
    try:
        fields: dict[str, Any] = lossless_json.loads(message.data)
    except (ValueError, RecursionError):
        raise Malformed(f"'body' cannot be read, and may hold {KEY!r}", message.id, message.from_) from None
    return fields
