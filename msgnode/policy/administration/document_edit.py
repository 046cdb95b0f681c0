"""
Policy documents before they are live: compilation in a thread, version checks, and edits.
"""

import gc
import json
import sys
from collections.abc import Callable
from threading import Lock
from typing import Any

from msgnode.policy.language.program import Program
from msgnode.protocol.errors import Rejected

Files = tuple[tuple[str, str], ...]  # the name and the text of each

SWITCH_SECONDS = 0.0005  # seconds that a thread may hold the interpreter lock while messages wait


def load(files: Files, strict: bool = False, before: Program | None = None) -> Program:
    """
    Compile several documents to one program. PolicyRefused lists all errors.

    Policies that have not changed since `before` are not compiled again.
    """
    data = [(where, _bytes(text)) for where, text in files]
    return Program(data, strict=strict, before=before)


def _bytes(text: str) -> bytes:
    """
    The bytes that a text was decoded from. A lone surrogate stays invalid.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def run_beside_reactor(function: Callable[..., Any], *arguments: Any) -> Any:
    """
    Call a function in a thread with little effect on the latency of messages.

    Meanwhile the interpreter switches threads more often, and the garbage collector is off: a collection of
    so many new objects would take tens of milliseconds.
    """
    with _gentle:
        return function(*arguments)


class _ThreadTuning:
    """
    Tuning of the interpreter, shared by several threads: the first sets it, the last resets it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._before = (0.0, True)

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before = sys.getswitchinterval(), gc.isenabled()
                sys.setswitchinterval(SWITCH_SECONDS)
                gc.disable()

    def __exit__(self, *how: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            interval, collects = self._before
            # Move the new objects, which are long-lived, to the oldest generation without examining them.
            gc.freeze()
            gc.unfreeze()
            if collects:
                gc.enable()
            sys.setswitchinterval(interval)


_gentle = _ThreadTuning()


def to_text(document: Any) -> str:
    """
    A document as text: unchanged if it is text, else as JSON.
    """
    if isinstance(document, bytes):
        return document.decode("utf-8", "surrogateescape")
    if isinstance(document, str):
        return document
    return json.dumps(document, ensure_ascii=False, indent=1)


def parse(text: str) -> Any:
    """
    The JSON value of a document that was live.
    """
    return json.loads(text.removeprefix("\ufeff"))


class DocumentEditor:
    """
    An editor of one document: its `sets`, its `groups`, and its other keys.
    """

    def __init__(self, text: str) -> None:
        value = parse(text)
        self._top: dict[str, Any] = value if isinstance(value, dict) else {"policySets": value}
        self.sets: list[dict[str, Any]] = self._top.setdefault("policySets", [])
        self.groups: dict[str, list[str]] = self._top.get("groups", {})

    @property
    def version(self) -> int:
        version: int = self._top.get("version", 0)
        return version

    def set(self, key: str) -> dict[str, Any]:
        """
        The policy set with that id.
        """
        for each in self.sets:
            if str(each.get("id")) == key:
                return each
        known = ", ".join(str(each.get("id")) for each in self.sets[:20]) or "none"
        raise Rejected(f"there is no policy set {key!r}; there are {known}"[:500], 404)

    def put(self, policy: Any, key: Any, algorithm: Any) -> None:
        """
        Add or replace a policy set by its id. A single policy gets a set of its own.
        """
        if not isinstance(policy, dict):
            raise Rejected("'policy' must be a policy set or a policy, as an object")
        if "policies" not in policy and "rules" in policy:
            algorithm = algorithm or "blockOverrides"
            policy = {"target": {}, "policyCombiningAlgorithm": algorithm, "policies": [policy]}
        if key is not None and str(policy.setdefault("id", key)) != str(key):
            raise Rejected(f"the id of the policy set is {policy['id']!r}, not {key!r}"[:200])
        for position, each in enumerate(self.sets):
            if str(each.get("id")) == str(policy.get("id")):
                self.sets[position] = policy
                return
        self.sets.append(policy)

    def remove(self, key: str) -> None:
        self.sets.remove(self.set(key))

    def policy(self, key: str, id: str) -> dict[str, Any]:
        """
        The policy `id` of the set `key`.
        """
        policies: list[dict[str, Any]] = self.set(key)["policies"]
        for each in policies:
            if str(each.get("id")) == id:
                return each
        known = ", ".join(str(each.get("id")) for each in policies[:20]) or "none"
        raise Rejected(f"policy set {key!r} has no policy {id!r}; there are {known}"[:500], 404)

    def put_policy(self, key: str, id: str, policy: Any) -> None:
        """
        Add or replace a policy of a set.
        """
        if not isinstance(policy, dict):
            raise Rejected("'policy' must be a policy, as an object")
        if str(policy.setdefault("id", id)) != id:
            raise Rejected(f"the id of the policy is {policy['id']!r}, not {id!r}"[:200])
        policies: list[dict[str, Any]] = self.set(key)["policies"]
        self._raise_version(key)
        for position, each in enumerate(policies):
            if str(each.get("id")) == id:
                policies[position] = policy
                return
        policies.append(policy)

    def remove_policy(self, key: str, id: str) -> None:
        self.set(key)["policies"].remove(self.policy(key, id))
        self._raise_version(key)

    def patch(self, key: str, id: str | None, fields: dict[str, Any]) -> None:
        """
        Change fields of a set, or of one of its policies; None removes a field.
        """
        found = self.set(key) if id is None else self.policy(key, id)
        if id is not None or "version" not in fields:
            self._raise_version(key)
        found.update(fields)
        for name in [name for name, value in fields.items() if value is None]:
            del found[name]

    def _raise_version(self, key: str) -> None:
        """
        Increment the version of a set, if it has one.
        """
        found = self.set(key)
        if _is_number(found.get("version")):
            found["version"] += 1

    def group(self, name: str) -> list[str]:
        """
        The members of a group, which may be changed.
        """
        members = self.groups.get(name)
        if members is None:
            known = ", ".join(self.groups) or "none"
            raise Rejected(f"there is no group {name!r}; there are {known}"[:500], 404)
        return members

    def document(self) -> dict[str, Any]:
        """
        The edited document. Its version is incremented, if it has one.
        """
        made = {**self._top, "groups": self.groups}
        if "version" in made:
            made["version"] += 1
        return made


def version_conflict(files: Files, live: Files) -> str:
    """
    Why `files` are not newer than the live ones; "" if they are, or have no versions.
    """
    if len(files) != 1 or len(live) != 1:
        return ""
    try:
        fresh, known = DocumentEditor(files[0][1]), DocumentEditor(live[0][1])
    except (ValueError, AttributeError, TypeError, RecursionError):
        return ""  # the compiler reports the error
    if files[0][1] == live[0][1]:
        return ""
    if fresh.version and known.version and not fresh.version > known.version:
        return f"version {fresh.version} of the document is not newer than {known.version}, which is live"
    before = {str(each.get("id")): each for each in known.sets}
    for each in fresh.sets:
        other = before.get(str(each.get("id"))) if isinstance(each, dict) else None
        if other is None or other == each:
            continue
        ours: Any = other.get("version")
        theirs: Any = each.get("version")
        if _is_number(ours) and _is_number(theirs) and not theirs > ours:
            return f"version {theirs} of policy set {each['id']} is not newer than {ours}, which is live"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
