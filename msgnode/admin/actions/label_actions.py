"""
Labels of sessions: words that operators put on a runtimeURL, so that the next one knows. They have no effect,
and are kept across a restart. Nodes of a domain tell each other theirs when they reach each other.
"""

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from msgnode.admin.access.named_tokens import VIEWER
from msgnode.admin.actions.audited import Audited, Plan, not_kept
from msgnode.admin.actions.state_file import StateFile
from msgnode.admin.api.endpoint import Call, Reason
from msgnode.admin.reads.inspector import Inspector
from msgnode.cluster.operator_requests import ANY_ROLE, NodeAnswer, Operator
from msgnode.protocol.errors import Rejected
from msgnode.sessions.limits.temporary_limits import SESSION, checked

log = Logger()

FILE = "labels.json"
KEPT = "labels-kept"  # the verb by which nodes ask each other
MAX_RUNTIMES, MAX_LABELS = 1000, 8
_LABEL = re.compile(r"[^\W_][\w.:/+-]{0,39}")


class LabelRequest(Reason, kw_only=True):
    """
    The body of labels: all that the runtimeURL has from now on; none: those that it had are removed.
    """

    labels: list[str]


class LabelRow(msgspec.Struct):
    """
    A runtimeURL with its labels, and who set them last, when (in seconds since 1970), and why.
    """

    runtime: str
    labels: list[str]
    reason: str
    by: str
    time: float


class LabelList(msgspec.Struct):
    """
    The runtimeURLs that have labels, also those without a session.
    """

    labels: list[LabelRow]


class LabelActions(Service):
    """
    The labels of a node, of at most `most` runtimeURLs. `path` is None without a state directory.
    """

    def __init__(
        self, inspector: Inspector, audited: Audited, path: Path | None, most: int = MAX_RUNTIMES
    ) -> None:
        self._most = most
        self._inspector = inspector
        self._audited = audited
        self._rows: dict[str, LabelRow] = {}  # without labels: where they were removed
        clock, wall = inspector.clock, inspector.facts.wall
        self._file = StateFile(path, "labels", self._all, audited.audit, clock, wall)

    def startService(self) -> None:
        """
        Restores the labels of before a restart. ConfigError if the disk does not give them.
        """
        super().startService()
        self._rows.update({row.runtime: row for row in self._file.read(list[LabelRow]) or []})
        requests = self._inspector.node.operator_requests
        requests.offer(KEPT, lambda params, operator: msgspec.to_builtins(self._all()), VIEWER)
        requests.on_up.append(self._ask)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        return self._file.stop()

    def _all(self) -> list[LabelRow]:
        return list(self._rows.values())

    def of(self, runtime: str) -> list[str]:
        """
        The labels of a runtimeURL.
        """
        found = self._rows.get(runtime)
        return found.labels if found is not None else []

    def list(self, call: Call) -> LabelList:
        return LabelList([row for row in self._rows.values() if row.labels])

    # -- of other nodes ---------------------------------------------------------------------

    def _ask(self, node: str) -> None:
        requests = self._inspector.node.operator_requests
        asked = maybeDeferred(requests.ask, node, KEPT, {}, Operator(requests.node, (ANY_ROLE,)))
        asked.addCallback(self._adopt)
        asked.addErrback(lambda why: log.failure("the labels of {node} are not known", why, node=node))

    def _adopt(self, answer: NodeAnswer) -> None:
        """
        Takes over what another node knows and this one does not, or of an earlier time; the newest first.
        """
        if answer.code != 200:
            return  # an older release, or it is away again
        try:
            rows = msgspec.convert(answer.value, Annotated[list[LabelRow], Meta(max_length=self._most)])
        except msgspec.ValidationError as why:
            log.warn("another node sent malformed labels: {why}", why=str(why)[:200])
            return
        adopted = [row for row in sorted(rows, key=lambda row: -row.time) if self._take(row)]
        if adopted:
            self._file.save().addErrback(lambda why: None)  # it is written again later

    def _take(self, row: LabelRow) -> bool:
        known = self._rows.get(row.runtime)
        if known is not None and known.time >= row.time:
            return False
        try:
            checked(SESSION, row.runtime)
            _checked(row.labels)
            oldest = self._oldest(row.runtime)
        except Rejected:
            return False
        if oldest and self._rows[oldest].time >= row.time:
            return False
        self._rows.pop(oldest, None)
        self._rows[row.runtime] = row
        return True

    # -- the verb ---------------------------------------------------------------------------

    def set(self, call: Call) -> Any:
        """
        Sets the labels of a runtimeURL. If too many have some, the labels that were set first are dropped, of
        those without a session at this node.
        """
        runtime, body = call.path["runtime"], call.body
        try:
            checked(SESSION, runtime)
        except Rejected:
            text = f"expected a runtimeURL such as runtime://example.org/cam7, found {runtime[:80]!r}"
            raise Rejected(f"runtime: {text}") from None
        labels = _checked(body.labels)
        if labels:
            self._oldest(runtime)
        before = self.of(runtime)

        def labelled() -> Deferred[dict[str, Any]]:
            details: dict[str, Any] = {"labels": labels}
            if labels:
                oldest = self._oldest(runtime)
                if oldest and self._rows.pop(oldest).labels:
                    log.info(
                        "the labels of {runtime} are dropped: too many runtimeURLs have some", runtime=oldest
                    )
                    details["dropped"] = oldest
            if labels or before:
                known, who = self._rows.get(runtime), call.operator.name
                after = known.time + 0.001 if known is not None else 0.0  # of a node whose clock is ahead
                now = max(self._inspector.facts.wall(), after)
                self._rows[runtime] = LabelRow(runtime, labels, body.reason, who, now)
            done = self._file.save().addErrback(not_kept)
            return done.addCallback(lambda saved: details)

        return self._audited.run(call, Plan("label", [runtime], labelled, before=before), body.reason)

    def _oldest(self, runtime: str) -> str:
        """
        The runtimeURL whose labels make room for those of this one; "" if there is room. Raises Rejected.
        """
        if runtime in self._rows or len(self._rows) < self._most:
            return ""
        sessions = self._inspector.node.sessions
        unused = [row for row in self._rows.values() if not row.labels or sessions.get(row.runtime) is None]
        if not unused:
            raise Rejected(f"{self._most} sessions have labels already", 429, "limit")
        return min(unused, key=lambda row: (bool(row.labels), row.time)).runtime


def _checked(labels: list[str]) -> list[str]:
    """
    The labels, each once. Raises Rejected.
    """
    found = list(dict.fromkeys(labels))
    if len(found) > MAX_LABELS:
        raise Rejected(f"labels: expected at most {MAX_LABELS}, found {len(found)}")
    for label in found:
        if _LABEL.fullmatch(label) is None:
            text = "expected 1 to 40 letters, digits or ._:/+-, beginning with a letter or a digit"
            raise Rejected(f"labels: {text}, found {label[:80]!r}")
    return found
