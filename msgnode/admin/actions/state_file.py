"""
A file of what operators have decided, in the state directory: read at the start, and written again until the
disk takes it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.admin.access.named_tokens import write_private
from msgnode.config.schema import ConfigError
from msgnode.protocol.errors import Rejected
from msgnode.storage.audit_log import AuditLog

log = Logger()
T = TypeVar("T")

RETRY_SECONDS = 10.0  # until what could not be written is written again


class StateFile:
    """
    The file at `path`, None without a state directory. `what` names what is in it, `now` returns that.

    It is written in turn with the audit log.
    """

    def __init__(
        self,
        path: Path | None,
        what: str,
        now: Callable[[], Any],
        audit: AuditLog,
        clock: IReactorTime,
        wall: Callable[[], float],
    ) -> None:
        self._path = path
        self._what = what
        self._now = now
        self._audit = audit
        self._clock = clock
        self._wall = wall
        self._retry: IDelayedCall | None = None  # while something is not on disk

    def read(self, kind: type[T]) -> T | None:
        """
        The content as this type; None if there is none, or it is damaged: then the file is set aside.
        ConfigError if the disk does not give it: it may be whole, and what is in it must not end by that.
        """
        if self._path is None:
            return None
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except OSError as why:
            raise ConfigError(f"state: cannot read {self._path}: {why.strerror}") from why
        except msgspec.DecodeError as why:
            log.error(
                "the {what} in {path} are damaged, and not in effect: {why}",
                what=self._what,
                path=str(self._path),
                why=str(why),
            )
            self._set_aside(self._path)
            return None

    def _set_aside(self, path: Path) -> None:
        """
        Keeps a damaged file: the next write would replace it.
        """
        try:
            os.replace(path, path.with_name(f"{path.name}.damaged-{self._wall():.0f}"))
        except OSError as why:
            log.error("{path} could not be set aside: {why}", path=str(path), why=why.strerror)

    def save(self) -> Deferred[None]:
        """
        Writes what is now. Fails with Rejected (503) if that is not possible; it is tried again until it is.
        """
        if self._path is None:
            return succeed(None)
        data = msgspec.json.encode(self._now())
        return self._audit.in_turn(write_private, self._path, data).addCallbacks(self._written, self._failed)

    def _written(self, done: object) -> None:
        if self._retry is not None:
            log.info("the {what} are on disk again", what=self._what)
        self._retry_later(False)

    def _failed(self, why: Failure) -> None:
        error = why.trap(OSError) and why.value
        text = getattr(error, "strerror", error)
        if self._retry is None:
            log.error("the {what} cannot be written to disk: {why}", what=self._what, why=text)
        self._retry_later(True)
        raise Rejected(f"this is in effect, but cannot be written to disk: {text}", 503, "disk")

    def _retry_later(self, is_wanted: bool) -> None:
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        self._retry = self._clock.callLater(RETRY_SECONDS, self._save_again) if is_wanted else None

    def _save_again(self) -> None:
        self.save().addErrback(lambda why: why.trap(Rejected) and None)

    def stop(self) -> Deferred[None]:
        """
        Writes what could not be written until now, if the disk takes it.
        """
        if self._retry is None:
            return succeed(None)
        return self.save().addErrback(lambda why: None).addCallback(lambda done: self._retry_later(False))
