"""
The table of attributes that policies can test.

Each is read at most once for a message, and only if a test needs it.
"""

from typing import Any

from msgnode.policy.decision import addresses
from msgnode.policy.decision.attribute import (
    BODY,
    CLOCK,
    HEADER,
    ID,
    IDENTITY,
    LINK,
    RATE,
    RECIPIENTS,
    RECORD,
    SESSION,
    SIZE,
    WEEKDAYS,
    WINDOWS,
    Attribute,
)
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.problems import InvalidValue
from msgnode.structures.error_words import near


def _msg_types(context: Context) -> frozenset[str]:
    return addresses.message_types(context.message.from_, context.to)


def _auth(context: Context) -> Any:
    return context.body.get("auth") if context.trust == "claimed" else context.identity is not None


def _shown(context: Context, place: int) -> Any:
    """
    A part of the result for the tokens in the message (message_tokens.Shown); None if they were not
    validated.
    """
    shown = context.message.shown
    return (shown[place] or None) if shown else None


def _reserved(context: Context, name: str) -> Any:
    """
    A value in a request for a reservation; None in any other message.
    """
    resource, value = context.body.get("resource"), context.body.get("value")
    named = isinstance(resource, str) and (resource + "/").startswith("/reservation/")
    is_request = named if resource is not None else context.to.endswith("/reservation")
    return value.get(name) if is_request and isinstance(value, dict) else None


TABLE: dict[str, Attribute] = {
    attribute.name: attribute
    for attribute in (
        Attribute("msgFrom", "address", HEADER, lambda c: addresses.folded(c.message.from_), "`from`"),
        Attribute(
            "msgTo", "address", HEADER, lambda c: addresses.folded(c.to), "`to`; one recipient of several"
        ),
        Attribute("msgId", "any", ID, lambda c: c.message.id, "`id`"),
        Attribute("actionType", "name", HEADER, lambda c: c.message.type.casefold(), "`type`"),
        Attribute(
            "srcScheme", "name", HEADER, lambda c: c.source[0] or None, "what stands before `://` in `from`"
        ),
        Attribute(
            "dstScheme", "name", HEADER, lambda c: c.target[0] or None, "what stands before `://` in `to`"
        ),
        Attribute("srcSPDomain", "name", HEADER, lambda c: c.source[1] or None, "the host in `from`"),
        Attribute("dstSPDomain", "name", HEADER, lambda c: c.target[1] or None, "the host in `to`"),
        Attribute("srcDomain", "name", HEADER, lambda c: c.domains[0] or None, "the domain in `from`"),
        Attribute("dstDomain", "name", HEADER, lambda c: c.domains[1] or None, "the domain in `to`"),
        Attribute("msgType", "names", HEADER, _msg_types, "what it is about, by its addresses"),
        Attribute(
            "interDomain", "flag", HEADER, lambda c: c.is_foreign, "does it come from or go to elsewhere?"
        ),
        Attribute("direction", "name", HEADER, lambda c: c.direction, "where the node asks"),
        Attribute("srcUsername", "text", IDENTITY | BODY, lambda c: c.user, "the sender's user name"),
        Attribute(
            "srcIDPDomain", "name", IDENTITY | BODY, lambda c: c.user_domain, "what follows its last `@`"
        ),
        Attribute("srcIDP", "name", IDENTITY | BODY, lambda c: c.provider, "who vouches for the identity"),
        Attribute(
            "identityVerified", "flag", IDENTITY, lambda c: c.identity is not None, "has the node checked it?"
        ),
        Attribute(
            "sessionUser", "text", IDENTITY, lambda c: c.verified_user, "the verified identity's user name"
        ),
        Attribute(
            "account",
            "text",
            IDENTITY,
            lambda c: c.account,
            "the whole address of the verified identity's user",
        ),
        Attribute("pool", "text", BODY, lambda c: c.pool, "the pool that it asks for addresses of"),
        Attribute("scopes", "any", IDENTITY, lambda c: c.scopes, "what its token is good for"),
        Attribute("auth", "any", IDENTITY | BODY, _auth, "is the sender's token good?"),
        Attribute("resource", "any", BODY, lambda c: c.body.get("resource"), "`body.resource`"),
        Attribute("msgSize", "number", SIZE, lambda c: len(c.message.data), "the length in bytes"),
        Attribute("recipientCount", "number", RECIPIENTS, lambda c: c.recipients, "how many `to` names"),
        Attribute("connector", "name", SESSION, lambda c: c.connector or None, "how the sender is connected"),
        Attribute(
            "peer", "text", SESSION, lambda c: c.peer or None, "the address of the sender's connection"
        ),
        Attribute(
            "session", "text", SESSION, lambda c: c.session or None, "the runtimeURL of the sender's session"
        ),
        Attribute("fromOwned", "flag", SESSION, lambda c: c.owns_from, "is `from` the session's own?"),
        Attribute(
            "topic.owner", "name", SESSION, lambda c: c.topic_owner, "whose is it: `mine`, `other`, `none`"
        ),
        Attribute(
            "topic.ownerUser", "text", SESSION, lambda c: c.topic_user, "its owner's verified user name"
        ),
        Attribute(
            "message.identity.state",
            "name",
            IDENTITY,
            lambda c: _shown(c, 0),
            "are the tokens in it good: `none`, `valid`, `invalid`, `unknown`",
        ),
        Attribute(
            "message.identity.user", "text", IDENTITY, lambda c: _shown(c, 1), "whose they are, if valid"
        ),
        Attribute("message.identity.idp", "name", IDENTITY, lambda c: _shown(c, 2), "who vouches for them"),
        Attribute(
            "message.identity.expires",
            "number",
            IDENTITY,
            lambda c: _shown(c, 3),
            "when they end, in seconds since 1970",
        ),
        Attribute(
            "peer.domain",
            "name",
            LINK,
            lambda c: None if c.far is None else c.far.domain,
            "the other domain, if it comes from there or, at `out`, goes there",
        ),
        Attribute(
            "peer.node",
            "text",
            LINK,
            lambda c: None if c.far is None else c.far.node,
            "the node of that domain",
        ),
        Attribute(
            "peer.kind",
            "name",
            LINK,
            lambda c: None if c.far is None else c.far.kind,
            "what it is: `node` or `stub`",
        ),
        Attribute(
            "route.hops",
            "number",
            LINK,
            lambda c: None if c.far is None else c.far.hops,
            "how many links it passed",
        ),
        Attribute(
            "identity.user",
            "text",
            IDENTITY | LINK,
            lambda c: None if c.asserted is None else c.asserted.user,
            "the sender's user name, as the domain `identity.issuer` says",
        ),
        Attribute(
            "identity.idp",
            "name",
            IDENTITY | LINK,
            lambda c: (c.asserted.provider.casefold() or None) if c.asserted is not None else None,
            "the identity provider of that user, as that domain says",
        ),
        Attribute(
            "identity.issuer",
            "name",
            IDENTITY | LINK,
            lambda c: c.issuer,
            "the domain that says who the sender is",
        ),
        Attribute(
            "record.id",
            "name",
            RECORD,
            lambda c: None if c.message.record is None else c.message.record.casefold(),
            "the id of the record in the body",
        ),
        Attribute(
            "record.name",
            "name",
            RECORD,
            lambda c: None if c.record is None else c.record.name.casefold(),
            "the record's name, if the node knows its definition",
        ),
        Attribute(
            "record.namespace",
            "names",
            RECORD,
            lambda c: frozenset() if c.record is None else frozenset(map(str.casefold, c.record.namespaces)),
            "the record's namespaces, if the node knows its definition",
        ),
        Attribute(
            "reservation.up", "any", BODY, lambda c: _reserved(c, "up"), "bits per second to the relay"
        ),
        Attribute(
            "reservation.down", "any", BODY, lambda c: _reserved(c, "down"), "bits per second from the relay"
        ),
        Attribute(
            "reservation.seconds", "any", BODY, lambda c: _reserved(c, "seconds"), "for how many seconds"
        ),
        Attribute(
            "reservation.session", "any", BODY, lambda c: _reserved(c, "session"), "the application session"
        ),
        Attribute(
            "reservation.parties", "any", BODY, lambda c: _reserved(c, "parties"), "between which addresses"
        ),
        Attribute("time", "time", CLOCK, lambda c: c.moment.strftime("%H:%M:%S"), "local time, `HH:MM:SS`"),
        Attribute("date", "date", CLOCK, lambda c: c.moment.strftime("%Y-%m-%d"), "local date, `YYYY-MM-DD`"),
        Attribute(
            "weekday", "weekday", CLOCK, lambda c: WEEKDAYS[c.moment.weekday()], "local day of the week"
        ),
    )
}
ALIASES = {
    "actType": "actionType",
    "addrAllastMin": "rate.alloc.lastMinute",
    "identity.verified": "identityVerified",
    "link": "peer.domain",
    "peerNode": "peer.node",
}
_SLOT = "record.slot."
# Names from old papers about the language, which no implementation ever had.
_OLD_NAMES = {
    "bodyValue": "body.value",
    "dstUsername": "msgTo",
    "greaterThan": "moreThan",
    "valueAllocate": "body.value.allocate",
    "valueAllocated": "body.value.allocated",
    "valueDescriptor": "body.value.descriptor",
    "valueExpires": "body.value.expires",
    "valueNumber": "body.value.number",
    "valueUser": "body.value.user",
}


def find(name: str) -> Attribute:
    """
    The attribute of that name. InvalidValue suggests a similar name.
    """
    known = TABLE.get(ALIASES.get(name, name))
    if known is not None:
        return known
    name = ALIASES.get(name, name)
    first, _, rest = name.partition(".")
    if first == "body" and rest:
        return _in_body(name, rest.split("."))
    if name.startswith(_SLOT) and len(name) > len(_SLOT):
        return _in_slot(name, name[len(_SLOT) :].split("."))
    if first == "rate" and rest:
        return _rate(name, rest)
    if name in _OLD_NAMES:
        raise InvalidValue(f"unknown attribute '{name}', did you mean '{_OLD_NAMES[name]}'?")
    hint = near(name, [known for known in (*TABLE, *ALIASES) if ("." in known) == ("." in name)])
    raise InvalidValue(f"unknown attribute '{name[:100]}'{hint or '; what is in the body is body.NAME'}")


def _in_body(name: str, steps: list[str]) -> Attribute:
    if "" in steps:
        raise InvalidValue(f"'{name}' has an empty step; write body.NAME or body.NAME.NAME")
    return Attribute(name, "any", BODY, lambda context: step_down(context.body, steps))


def _in_slot(name: str, steps: list[str]) -> Attribute:
    if "" in steps:
        raise InvalidValue(f"'{name}' has an empty step; write record.slot.NAME or record.slot.NAME.NAME")
    return Attribute(name, "any", RECORD | BODY, lambda context: step_down(context.slot(steps[0]), steps[1:]))


def step_down(value: Any, steps: list[str]) -> Any:
    """
    The value at the end of the steps, or None. A number steps into a list.
    """
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 10:
            value = value[int(step)] if int(step) < len(value) else None
        else:
            return None
    return value


def _rate(name: str, rest: str) -> Attribute:
    counter, _, window = rest.rpartition(".")
    if not counter or window not in WINDOWS:
        raise InvalidValue(f"'{name}' must be rate.COUNTER.{' or .'.join(WINDOWS)}{near(window, WINDOWS)}")
    return Attribute(name, "number", RATE, lambda c: c.rate(counter.casefold(), WINDOWS[window]))
