"""
Trace lines: what a trace shows of a message, without secrets.
"""

import json
from typing import Any

from msgnode.protocol.message import Message
from msgnode.protocol.token_redaction import loggable
from msgnode.sessions.session import Session
from msgnode.storage.json_lines import cut, cut_id

MAX_BODY_CHARS = 4096
MAX_PARSED_BYTES = 256 * 1024  # of a message whose body is shown
MAX_DEPTH = 20
MASK = "***"
SECRETS = frozenset(
    (
        *("runtimetoken", "sessiontoken", "token", "identity", "auth"),
        *("accesstoken", "assertion", "code_verifier", "login", "credential", "password"),
    )
)
SEALED = frozenset(("ciphertext", "encrypted"))  # keys of a body that is encrypted from end to end


def header(message: Message) -> dict[str, Any]:
    """
    The header of a message, as a trace shows it.
    """
    to = message.to
    return {
        "id": cut_id(message.id),
        "type": cut(message.type),
        "from": cut(loggable(message.from_)),
        "to": cut(loggable(to if isinstance(to, str) else f"{to[0]} and {len(to) - 1} more")),
    }


def outcome(message: Message, session: Session | None) -> dict[str, Any]:
    """
    The outcome of a message, when it came, and how long the node worked on it.
    """
    found: dict[str, Any] = {
        **header(message),
        "session": cut(session.runtime) if session is not None else "",
        "user": cut(session.identity) if session is not None else "",
        "connector": message.origin.connector,
        "peer": message.origin.peer,
        "bytes": len(message.data),
        "came": message.received_at,
        "outcome": message.outcome,
        "recipients": message.recipients,
        "waiting": message.waiting,
        "micros": message.handling_us,
    }
    if message.code:
        found["code"] = message.code
    if message.reason:
        found["reason"] = message.reason
    return found


def body(data: bytes) -> Any:
    """
    The body of a message, with secrets masked, as text cut to MAX_BODY_CHARS if it is long.
    """
    if len(data) > MAX_PARSED_BYTES:
        return f"(a message of {len(data)} bytes; only bodies up to {MAX_PARSED_BYTES} are shown)"
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return "(not JSON)"
    found = message.get("body") if isinstance(message, dict) else None
    if isinstance(found, dict) and SEALED & found.keys():
        return "(encrypted)"
    masked = _masked(found, 0)
    text = loggable(json.dumps(masked, ensure_ascii=False))
    if len(text) > MAX_BODY_CHARS:
        return text[:MAX_BODY_CHARS] + "…"
    return json.loads(text)


def _masked(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {
            key: MASK if key.lower() in SECRETS else _masked(item, depth + 1) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_masked(item, depth + 1) for item in value]
    return value
