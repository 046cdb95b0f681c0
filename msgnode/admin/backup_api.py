"""
Backups of the running node: made in a thread, one at a time, and the endpoint `backup`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode import __version__
from msgnode.admin.actions.audited import Audited, Plan, Underway
from msgnode.admin.api.endpoint import Call
from msgnode.node import Node
from msgnode.protocol.errors import Rejected
from msgnode.storage.backup.hot_copy import Origin, take_snapshot, write_backup
from msgnode.storage.backup.manifest import BackupRefused, Manifest, backups_in, read_manifest
from msgnode.storage.spool import Spool

log = Logger()

DIRECTORY = "backups"  # in the state directory, if no other is configured


class BackupReport(Struct, omit_defaults=True):
    """
    A backup: its path, `state` ("running", "done" or "failed"), its bytes, and when it was made, in
    seconds since 1970; `error` if it failed.
    """

    path: str
    state: str
    bytes: int = 0
    created: float = 0.0
    error: str = ""


class Backups:
    """
    The maker of backups of a node. `run` calls a function, maybe in a thread.
    """

    def __init__(self, node: Node, run: Callable[..., Deferred[Any]] = maybeDeferred) -> None:
        self.last: BackupReport | None = None
        self._node = node
        self._run = run
        self._running = False
        self._ends: Deferred[str] = Deferred()  # of the backup that is being made

    @property
    def directory(self) -> Path:
        """
        The directory of backups. Raises Rejected if the node has no state directory.
        """
        config = self._node.config
        if config.state == "none":
            raise Rejected(
                "this node has no state directory, so there is nothing to back up", 409, "conflict"
            )
        return Path(config.admin.backup_dir or Path(config.state, DIRECTORY))

    def begin(self, who: str) -> tuple[BackupReport, Deferred[str]]:
        """
        Begin a backup of this moment. Returns its report, and a Deferred that fires with a text when it is
        complete or fails with Rejected; `last` has its result then, too. Raises Rejected.
        """
        directory, config = self.directory, self._node.config
        if self._running:
            raise Rejected("a backup is being made already", 409, "conflict")
        journal = self._node.sessions.journal
        spool = journal.message_log
        assert isinstance(spool, Spool)
        journal.settle(now=True)
        try:
            kept = self._node.objects.journal
            snapshot = take_snapshot(Path(config.state), spool, kept.segments if kept is not None else None)
        except BackupRefused as why:
            raise Rejected(str(why), 503, "disk") from None
        log.info("a backup into {directory} begins, by {who}", directory=str(directory), who=who)
        self._running = True
        ends = self._ends = Deferred()
        origin = Origin(__version__, config.domain, config.node)
        keep, reserve = config.admin.keep_backups, config.storage.reserve_bytes
        self.last = BackupReport(str(directory), "running")
        done = self._run(write_backup, snapshot, Path(config.state), directory, keep, origin, reserve)
        done.addCallbacks(self._done, self._failed)
        return self.last, ends

    def _done(self, made: tuple[Path, Manifest]) -> None:
        path, manifest = made
        self._running = False
        self.last = BackupReport(str(path), "done", manifest.size, manifest.created)
        log.info("the backup {path} is complete: {size} bytes", path=str(path), size=manifest.size)
        self._ends.callback(f"{path}, {manifest.size} bytes")

    def _failed(self, why: Failure) -> None:
        self._running = False
        directory = self.last.path if self.last is not None else ""
        self.last = BackupReport(directory, "failed", error=why.getErrorMessage())
        if why.check(BackupRefused):
            log.error("the backup failed: {why}", why=why.getErrorMessage())
        else:
            log.failure("the backup failed", why)
        self._ends.errback(Rejected(f"the backup failed: {why.getErrorMessage()}", 503, "disk"))

    def stored(self) -> list[BackupReport]:
        """
        The complete backups, oldest first.
        """
        found = []
        for path in backups_in(self.directory):
            try:
                manifest = read_manifest(path)
            except BackupRefused as why:
                found.append(BackupReport(str(path), "failed", error=str(why)))
            else:
                found.append(BackupReport(str(path), "done", manifest.size, manifest.created))
        return found


class BackupList(Struct):
    """
    The backup that was begun last, since the node started, and those that are kept, oldest first.
    """

    last: BackupReport | None
    backups: list[BackupReport]


class BackupActions:
    """
    The endpoints of backups.
    """

    def __init__(self, audited: Audited, backups: Backups) -> None:
        self._audited = audited
        self._backups = backups

    def list(self, call: Call) -> BackupList:
        return BackupList(self._backups.last, self._backups.stored())

    def begin(self, call: Call) -> Any:
        """
        Begins a backup; the details have its report.
        """

        def begun() -> Underway:
            report, ends = self._backups.begin(call.operator.name)
            return Underway(msgspec.to_builtins(report), ends)

        plan = Plan("backup", [str(self._backups.directory)], begun)
        return self._audited.run(call, plan, call.body.reason)
