"""
`body.assertedIdentity`: who the node says the sender is.

A sender may put the key there; what stands behind it is the node's own word,
or the key is taken out.  All other messages go on byte for byte.
"""

import json
from typing import Any

import msgspec
from msgspec import Raw

from msgnode.session import Session

KEY = "assertedIdentity"
_PLAIN, _ESCAPE = KEY.encode(), b"\\u00"  # a key may be spelt in escapes, too


def vouched(data: bytes, session: Session) -> bytes:
    """
    The same message, with nothing in it that only the node can know but what the node knows.
    """
    if _PLAIN not in data and _ESCAPE not in data:
        return data
    try:
        fields = msgspec.json.decode(data, type=dict[str, Raw])
        body = msgspec.json.decode(fields["body"], type=dict[str, Raw])
    except (msgspec.DecodeError, KeyError):
        return _with_surrogates(data, session)
    if KEY not in body:
        return data
    del body[KEY]
    said = _said(session)
    return msgspec.json.encode({**fields, "body": {**body, KEY: said} if said else body})


def _said(session: Session) -> dict[str, Any] | None:
    proof = session.proof
    if not session.identity:
        return None
    if proof is None or proof.user != session.identity:
        return {"userURL": session.identity}
    return {"userURL": proof.user, "idp": proof.idp, "preferred_username": proof.username}


def _with_surrogates(data: bytes, session: Session) -> bytes:
    """
    What msgspec does not read, but browsers write: half a character.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return data
    body = fields.get("body") if isinstance(fields, dict) else None
    if not isinstance(body, dict) or KEY not in body:
        return data
    del body[KEY]
    said = _said(session)
    if said is not None:
        body[KEY] = said
    return json.dumps(fields, separators=(",", ":")).encode()
