"""
Labels of sessions: words that operators put on a runtimeURL, so that the next one knows. They have no effect,
and are kept across a restart.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from msgnode.admin.actions.audited import Audited, Plan, not_kept
from msgnode.admin.actions.state_file import StateFile
from msgnode.admin.api.endpoint import Call, Reason
from msgnode.admin.reads.inspector import Inspector
from msgnode.protocol.errors import Rejected
from msgnode.sessions.limits.temporary_limits import SESSION, checked

log = Logger()

FILE = "labels.json"
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
        self._rows: dict[str, LabelRow] = {}
        clock, wall = inspector.clock, inspector.facts.wall
        self._file = StateFile(path, "labels", self._all, audited.audit, clock, wall)

    def startService(self) -> None:
        """
        Restores the labels of before a restart. ConfigError if the disk does not give them.
        """
        super().startService()
        self._rows.update({row.runtime: row for row in self._file.read(list[LabelRow]) or []})

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
        return LabelList(self._all())

    def set(self, call: Call) -> Any:
        """
        Sets the labels of a runtimeURL. If too many have some, the labels that were set first are dropped, of
        those without a session at this node.
        """
        runtime, body = call.path["runtime"], call.body
        checked(SESSION, runtime)
        labels = _checked(body.labels)
        if labels:
            self._oldest(runtime)
        before = self.of(runtime)

        def labelled() -> Deferred[dict[str, Any]]:
            details: dict[str, Any] = {"labels": labels}
            if labels:
                oldest = self._oldest(runtime)
                if oldest:
                    log.info(
                        "the labels of {runtime} are dropped: too many runtimeURLs have some", runtime=oldest
                    )
                    details["dropped"] = self._rows.pop(oldest).runtime
                now, who = self._inspector.facts.wall(), call.operator.name
                self._rows[runtime] = LabelRow(runtime, labels, body.reason, who, now)
            else:
                self._rows.pop(runtime, None)
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
        unused = [row for row in self._rows.values() if sessions.get(row.runtime) is None]
        if not unused:
            raise Rejected(f"{self._most} sessions have labels already", 429, "limit")
        return min(unused, key=lambda row: row.time).runtime


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
