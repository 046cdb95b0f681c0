"""
Forms of the pages: each becomes a call of the admin API, with the same checks and the same audit.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from msgnode.admin.access.named_tokens import POLICY_MANAGER
from msgnode.admin.actions.audit_trail import AuditTrail
from msgnode.admin.actions.audited import check_reason
from msgnode.admin.admin_tokens import with_role
from msgnode.admin.live.trace_filter import KEYS
from msgnode.admin.pages.page_calls import PAGE, PageCalls
from msgnode.cluster.operator_requests import Operator
from msgnode.policy.administration.commands import PolicyCommands
from msgnode.protocol.errors import Rejected

NUMBERS = ("min_waiting_bytes", "idle_over", "min_reconnects", "token_ends_in")
SESSION_FILTERS = ("q", "state", "connector", "user", "peer", "user_agent", "anonymous", "label", *NUMBERS)
MAX_DIGITS = 9
MAX_SHOWN = 20  # targets
Told = tuple[str, dict[str, Any]]  # a sentence, and what else the result shows
Form = dict[str, str]


class Order(NamedTuple):
    """
    A call of the API that a form becomes; `done` says in words that it was done.
    """

    path: list[str]
    done: str
    body: dict[str, Any] = {}
    verb: str = "POST"


def _session(verb: str, done: str, **body: Any) -> Callable[[Form], Order]:
    return lambda form: Order(["sessions", form.get("runtime", ""), verb], done, body)


def _purge(form: Form) -> Order:
    older = 60.0 * _number(form, "older") if form.get("older") else 0.0
    path = ["sessions", form.get("runtime", ""), "purge"]
    return Order(path, "what waited is dropped", {"older_than_s": older})


def _kick_many(form: Form) -> Order:
    filter: dict[str, Any] = {key: form[key] for key in SESSION_FILTERS if form.get(key)}
    filter |= {key: _number(form, key) for key in NUMBERS if key in filter}
    if "anonymous" in filter:
        filter["anonymous"] = filter["anonymous"] == "true"
    return Order(["sessions", "kick"], "their connections are closed", {"filter": filter})


def _ban(form: Form) -> Order:
    body = {"kind": form.get("kind", ""), "value": form.get("value", "").strip(), "seconds": _seconds(form)}
    return Order(["bans"], f"banned for {form.get('minutes')} min", body)


def _limit(form: Form) -> Order:
    body = {
        "kind": form.get("kind", ""),
        "value": form.get("value", ""),
        "seconds": _seconds(form),
        "rate_messages": _number(form, "rate_messages"),
    }
    return Order(["limits"], f"slowed down for {form.get('minutes')} min", body)


def _label(form: Form) -> Order:
    labels = form.get("labels", "").replace(",", " ").split()
    return Order(["sessions", form.get("runtime", ""), "labels"], "its labels are set", {"labels": labels})


def _unbind(form: Form) -> Order:
    path = ["addresses", form.get("address", ""), "unbind"]
    return Order(path, "the address is free", {"session": form.get("session", "")})


def _take_back(form: Form) -> Order:
    return Order(["pools", form.get("address", ""), "take-back"], "the address is free")


def _take_back_reservation(form: Form) -> Order:
    return Order(["reservations", form.get("id", ""), "take-back"], "the reservation has ended")


def _trace(form: Form) -> Order:
    key = form.get("key", "")
    if key not in KEYS:
        raise Rejected(f"trace by one of {', '.join(KEYS)}")
    body = {
        key: form.get("value", "").strip(),
        "seconds": _seconds(form),
        "max": _number(form, "max"),
        "bodies": bool(form.get("bodies")),
    }
    return Order(["traces"], f"the trace runs for {form.get('minutes')} min", body)


ORDERS: dict[str, Callable[[Form], Order]] = {
    "kick": _session("kick", "its connection is closed"),
    "end": _session("kick", "the session has ended", end=True),
    "purge": _purge,
    "expire-token": _session("expire-token", "its token is void"),
    "kick-many": _kick_many,
    "ban": _ban,
    "unban": lambda form: Order(["bans", form.get("id", "")], "the ban is lifted", verb="DELETE"),
    "limit": _limit,
    "unlimit": lambda form: Order(["limits", form.get("id", "")], "the limit is lifted", verb="DELETE"),
    "label": _label,
    "unbind": _unbind,
    "take-back": _take_back,
    "take-back-reservation": _take_back_reservation,
    "trace": _trace,
    "stop-trace": lambda form: Order(["traces", form.get("id", ""), "stop"], "the trace is stopped"),
    "delete-trace": lambda form: Order(["traces", form.get("id", "")], "the trace is deleted", verb="DELETE"),
    "drain": lambda form: Order(["drain"], "the node takes no new clients", {"seconds": _seconds(form)}),
    "undrain": lambda form: Order(["undrain"], "the node takes clients again"),
    "reload": lambda form: Order(["reload"], "the configuration was read again"),
    "revoke": lambda form: Order(["tokens", form.get("name", "")], "the token is void", verb="DELETE"),
    "backup": lambda form: Order(["backup"], "the backup has begun"),
}


class FormActions:
    """
    The actions that forms have. The first time a form is sent nothing is done: the operator sees whom the
    action would hit, and sends it again with a confirmation of just that.
    """

    def __init__(self, calls: PageCalls, trail: AuditTrail, policies: PolicyCommands) -> None:
        self._calls = calls
        self._policies = policies
        self._trail = trail

    def act(self, form: Form, operator: Operator, peer: str) -> Deferred[Told] | Told:
        """
        Does what the form says; a sentence about it, and what else to show. Raises Rejected.
        """
        action = form.get("action", "")
        if action in ORDERS:
            return self._order(form, ORDERS[action](form), operator, peer)
        if action == "rollback":
            return self._roll_back(form, operator, peer)
        raise Rejected(f"there is no action {action[:40]!r}")

    def _order(self, form: Form, order: Order, operator: Operator, peer: str) -> Deferred[Told]:
        fields, check = _checked(form)
        number = _number(form, "confirm") if form.get("check") == check else None
        body = {"reason": form.get("reason", ""), **order.body}
        done = self._calls.ask(
            order.verb, order.path, operator, peer, body=body, dry_run=number is None, confirm=number
        )

        def told(result: dict[str, Any]) -> Told:
            found = result["done"] or len(result["targets"])  # a ban may disconnect no client now
            missing = _not_reached(result)
            if number is not None:
                shown = {**result, "targets": result["targets"][:MAX_SHOWN], "missing": missing}
                if order.path == ["traces"]:
                    shown["open"] = f"/trace?id={quote(result['details']['trace']['id'])}"
                return order.done, shown
            targets = result["targets"][:MAX_SHOWN]
            again = {**fields, "confirm": str(found), "check": check} if found or targets else None
            return _asked(found, len(targets)), {"targets": targets, "again": again, "missing": missing}

        return done.addCallback(told)

    def _roll_back(self, form: Form, operator: Operator, peer: str) -> Told | Deferred[Told]:
        """
        Makes an older version of the policies live again, once it is confirmed.
        """
        with_role(operator, POLICY_MANAGER)
        check_reason(form.get("reason", ""))
        number = _number(form, "number")
        fields, check = _checked(form)
        if form.get("check") != check:
            again = {**fields, "confirm": "1", "check": check}
            return "this concerns:", {"targets": [f"policies, version {number}"], "again": again}
        done = self._policies.ask("rollback", {"number": number}, f"the dashboard, {operator.name}")

        def noted(found: Any) -> Any:
            result = str(found.value) if isinstance(found, Failure) else "done"
            reason = form.get("reason", "")
            self._trail.act(operator, peer, "policy rollback", str(number), reason, result, PAGE)
            return found

        done.addBoth(noted)
        return done.addCallback(lambda version: (f"it is live again, as version {version['number']}", {}))


def _checked(form: Form) -> tuple[Form, str]:
    """
    The fields of a form without its confirmation, and a hash of them.
    """
    fields = {name: value for name, value in form.items() if name not in ("confirm", "check")}
    return fields, sha256(json.dumps(sorted(fields.items())).encode()).hexdigest()


def _not_reached(result: dict[str, Any]) -> list[str]:
    """
    A line for each node of the domain that has not done what was asked, with the reason.
    """
    nodes = result["details"].get("nodes") or {}
    return [f"{name}: {why}" for name, why in nodes.items() if isinstance(why, str)]


def _asked(found: int, shown: int) -> str:
    """
    The sentence above the targets of an action that is not yet done.
    """
    if not found and not shown:
        return "nothing matches"
    return "this concerns:" if found <= shown else f"this concerns {found:,}, among them:"


def _number(form: Form, name: str) -> int:
    text = form.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
        raise Rejected(f"{name}: expected a number, found {text[:40]!r}")
    return int(text)


def _seconds(form: Form) -> float:
    return 60.0 * _number(form, "minutes")
