"""
Test vectors of a policy: a message, and the expected decision.

They are under `tests` in the document, or in NAME.vectors.json next to NAME.json.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgnode.policy.decision.attribute import DIRECTIONS, OWNERS, SHOWN
from msgnode.policy.decision.context import CLAIMED, VERIFIED, Context, Identity, Peer
from msgnode.policy.decision.decision import Decision
from msgnode.policy.decision.problems import InvalidValue
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import decode
from msgnode.protocol.token_redaction import TOKEN_STATES
from msgnode.structures.error_words import near, shown

FAR = ("domain", "node", "hops", "identity")  # what a vector says of another node
EFFECTS = ("permit", "deny", "notApplicable", "indeterminate")
KEYS = (
    "name",
    "message",
    "expect",
    "path",
    "clock",
    "direction",
    "to",
    "domain",
    "identity",
    "trust",
    "connector",
    "peer",
    "session",
    "fromOwned",
    "topicOwner",
    "topicOwnerUser",
    "messageIdentity",
    "far",
    "pools",
)
_DEFAULTS = {"id": 1, "type": "create", "from": "hyperty://example.org/1", "to": "hyperty://example.org/2"}


def fails(decide: Callable[[Context], Decision], vector: Any) -> str:
    """
    Why a test vector fails; "" if it passes. InvalidValue if it is malformed.
    """
    made = context(vector)
    expected = vector.get("expect")
    if expected not in EFFECTS:
        hint = near(expected, EFFECTS) if isinstance(expected, str) else ""
        raise InvalidValue(f"expected one of {', '.join(EFFECTS)}; found {shown(expected)}{hint}", "expect")
    decision = decide(made)
    name = f"{vector['name']}: " if vector.get("name") else ""
    by = f" by {decision.path}" if decision.path else ""
    if decision.effect != expected:
        return f"{name}expected {expected}, got {decision.effect}{by}"
    if "path" in vector and vector["path"] != decision.path:
        return f"{name}expected {expected} by {vector['path']}, got it{by}"
    return ""


def context(vector: Any) -> Context:
    """
    The context that a test vector describes. All its keys are optional.
    """
    if not isinstance(vector, dict):
        raise InvalidValue(f"expected an object with {', '.join(KEYS[:3])}, found {shown(vector)}")
    for key in vector:
        if key not in KEYS:
            raise InvalidValue(
                f"unknown key '{key[:100]}'{near(key, KEYS) or '; keys are ' + ', '.join(KEYS)}", key
            )
    fields = vector.get("message", {})
    if not isinstance(fields, dict):
        raise InvalidValue(f"expected a message as an object, found {shown(fields)}", "message")
    try:
        message = decode(json.dumps({**_DEFAULTS, **fields}).encode())
    except Malformed as why:
        raise InvalidValue(str(why), "message") from None
    message.shown = shown_identity(vector.get("messageIdentity"))
    return Context(
        message,
        _choice(vector, "direction", DIRECTIONS, "in"),
        _text(vector, "to") or None,
        domain=_text(vector, "domain"),
        identity=_identity(vector.get("identity")),
        trust=_choice(vector, "trust", (CLAIMED, VERIFIED), VERIFIED),
        now=_clock(vector),
        connector=_text(vector, "connector"),
        peer=_text(vector, "peer"),
        session=_text(vector, "session"),
        owned=(lambda: bool(vector["fromOwned"])) if "fromOwned" in vector else None,
        topic=_topic(vector),
        recipients=len(message.to) if isinstance(message.to, list) else 1,
        far=_far(vector),
        pools=_pools(vector),
    )


def _text(vector: dict[str, Any], key: str) -> str:
    value = vector.get(key, "")
    if not isinstance(value, str):
        raise InvalidValue(f"expected a text, found {shown(value)}", key)
    return value


def _pools(vector: dict[str, Any]) -> dict[str, str]:
    """
    The names of pools by their schemes.
    """
    given = vector.get("pools", {})
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given.values()):
        raise InvalidValue(f"expected the names of pools by their schemes; found {shown(given)}", "pools")
    return given


def _far(vector: dict[str, Any]) -> Peer | None:
    """
    The other node: its domain, or an object with what policies see of it.
    """
    value = vector.get("far")
    if value is None:
        return None
    given = {"domain": value} if isinstance(value, str) else value
    if not isinstance(given, dict) or given.keys() - set(FAR) or not isinstance(given.get("domain"), str):
        raise InvalidValue(
            f"expected a domain, or an object with {', '.join(FAR)}; found {shown(value)}", "far"
        )
    domain, node, hops = given["domain"], given.get("node", ""), given.get("hops", 1)
    if not isinstance(node, str) or not isinstance(hops, int):
        raise InvalidValue(f"expected a text as node and a number of hops; found {shown(value)}", "far")
    identity = _identity(given.get("identity"))
    return Peer(domain, node or f"mn://{domain}/node", "node", hops, identity, domain if identity else "")


def _topic(vector: dict[str, Any]) -> Callable[[str], tuple[str, str] | None]:
    user = _text(vector, "topicOwnerUser")
    if "topicOwner" not in vector:
        if user:
            raise InvalidValue("expected 'topicOwner' too", "topicOwnerUser")
        return lambda to: None
    owner = _choice(vector, "topicOwner", OWNERS, "")
    return lambda to: (owner, user)


def shown_identity(value: Any) -> tuple[Any, ...]:
    """
    The result for the tokens in a message: a state, or an object with the keys SHOWN.

    InvalidValue if it is neither.
    """
    if value is None:
        return ()
    given = value if isinstance(value, dict) else {"state": value}
    state, user, idp, expires = (given.get(name) for name in SHOWN)
    texts = all(text is None or isinstance(text, str) for text in (user, idp))
    number = expires is None or (isinstance(expires, int | float) and not isinstance(expires, bool))
    if state not in TOKEN_STATES or not texts or not number or given.keys() - set(SHOWN):
        what = f"one of {', '.join(TOKEN_STATES)}, or an object with {', '.join(SHOWN)}"
        raise InvalidValue(f"expected {what}; found {shown(value)}", "messageIdentity")
    return state, user or "", idp or "", expires


def _choice(vector: dict[str, Any], key: str, known: tuple[str, ...], default: str) -> str:
    value = vector.get(key, default)
    if value not in known:
        raise InvalidValue(
            f"expected one of {', '.join(known)}; found {shown(value)}{near(value, known)}", key
        )
    return str(value)


def _identity(value: Any) -> Identity | None:
    if value is None or isinstance(value, str):
        return Identity(value) if value else None
    if isinstance(value, dict) and isinstance(value.get("user"), str):
        provider, scopes = value.get("provider", ""), value.get("scopes", [])
        account = value.get("account", "")
        if (
            isinstance(provider, str)
            and isinstance(account, str)
            and isinstance(scopes, list)
            and all(isinstance(s, str) for s in scopes)
        ):
            return Identity(value["user"], provider, tuple(scopes), account)
    raise InvalidValue(
        f'expected a user name, or {{"user", "provider", "scopes", "account"}}, found {shown(value)}',
        "identity",
    )


def _clock(vector: dict[str, Any]) -> Callable[[], datetime]:
    if "clock" not in vector:
        return datetime.now
    try:
        moment = datetime.fromisoformat(vector["clock"])
    except (TypeError, ValueError):
        found = shown(vector["clock"])
        raise InvalidValue(
            f"expected a local time such as '2026-11-18T10:00:00', found {found}", "clock"
        ) from None
    return lambda: moment
