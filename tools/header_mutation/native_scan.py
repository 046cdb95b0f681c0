"""
One message, read by the scan of the compiled data plane and by the node's decoder.
"""

import json
from typing import Any

from header_mutation.compare import Disagreement, same
from header_mutation.reference import ACCEPTED
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import NO_TOKEN, Message, decode
from msgnode.protocol.token_redaction import may_hold_token, redacted

BODY_KEYS = {"auth", "assertedIdentity", "identity"}  # those in a body that the scan reports


def check_scan(data: bytes, kind: str, scan: Any) -> bool:
    """
    Whether the scan takes the message; Disagreement if it takes one that it must leave to Python, or reads it
    wrong.

    `kind` is what the message is, as `compare.check` says it.
    """
    found = scan(data)
    if found is None:
        return False
    try:
        message = decode(data)
    except Malformed as why:
        raise Disagreement(f"only the native scan takes it: {why}") from None
    if kind != ACCEPTED:
        raise Disagreement(f"the native scan takes it; it is {kind}")
    _check_header(found, message)
    _check_body_keys(found[4], found[5])
    if _is_unusual(message) or (may_hold_token(data) and redacted(message) is not message):
        raise Disagreement("the native scan takes it; it is none of the usual messages")
    return True


def _check_header(found: tuple[Any, ...], message: Message) -> None:
    id, kind, from_, to, body, _, transaction = found
    spelt = "" if message.transaction is None else json.dumps(message.transaction, ensure_ascii=False)
    same("id, natively", json.dumps(message.id, ensure_ascii=False), id)
    same("transaction, natively", spelt, transaction)
    same("type, natively", message.type, kind)
    same("from, natively", message.from_, from_)
    same("to, natively", message.to, to)
    same("body, natively", bytes(message.body), body)


def _check_body_keys(body: bytes, keys: list[str]) -> None:
    top = (json.loads(body) if body else None) or {}
    if "escaped" not in keys:
        same("keys of the body, natively", BODY_KEYS & top.keys(), set(keys))


def _is_unusual(message: Message) -> bool:
    return message.receipt or not message.log or message.forward or message.token is not NO_TOKEN
