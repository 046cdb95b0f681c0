"""
Trace lines: what a trace shows of a message, without secrets.
"""

import json
import re
from typing import Any

from msgnode.protocol.message import Message
from msgnode.protocol.token_redaction import loggable
from msgnode.sessions.session import Session
from msgnode.storage.json_lines import cut, cut_id

MAX_BODY_CHARS = 4096
MAX_PARSED_BYTES = 256 * 1024  # of a message whose body is shown
MAX_DEPTH = 20
MASK = "***"
# Names of secrets, in lower case and without - and _; also all that end in one of SECRET_ENDS.
SECRETS = frozenset(("identity", "auth", "authorization", "assertion", "codeverifier", "login", "cookie"))
SECRET_ENDS = ("token", "secret", "password", "passwd", "credential", "credentials", "apikey", "privatekey")
_NAME = r"[A-Za-z0-9_-]{0,64}(?:token|secret|password|passwd|credentials?|assertion|code_?verifier|api_?key)"
_BEGIN = r"(?<![A-Za-z0-9_-])"
# In text: parameters of a URL or of a form, the user and password of a URL, members of JSON that is no text
# of its own, and what is a token by its form (RFC 6750, RFC 7519). The time for each is linear in the text.
_IN_TEXT = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_BEGIN}({_NAME}=)[^&#\s\"'<>]+",
        r"(://)[^/?#@\s]{1,256}(?=@)",
        rf'("{_NAME}\\{{0,9}}"\s{{0,9}}:\s{{0,9}}\\{{0,9}}")[^"\\]+',
        rf"{_BEGIN}((?:bearer|basic) )[A-Za-z0-9._~+/=-]{{8,}}",
        rf"{_BEGIN}()eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*",
        rf"{_BEGIN}(mna_)[A-Za-z0-9_-]{{20,}}",
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
        return {key: MASK if _is_secret(key) else _masked(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, depth + 1) for item in value]
    return _masked_text(value, depth) if isinstance(value, str) else value


def _is_secret(key: str) -> bool:
    name = key.lower().replace("_", "").replace("-", "")
    return name in SECRETS or name.endswith(SECRET_ENDS)


def _masked_text(text: str, depth: int) -> str:
    """
    The text without secrets; it may be JSON itself.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if found is not None:
            masked = _masked(found, depth + 1)
            return text if masked == found else json.dumps(masked, ensure_ascii=False)
    for pattern in _IN_TEXT:
        text = pattern.sub(rf"\1{MASK}", text)
    return text
