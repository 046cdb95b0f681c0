"""
Reload at SIGHUP: the configuration file, the certificates and the device tokens are read again.

A reload is atomic: everything takes effect, or nothing.
"""

import hashlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Protocol

import msgspec
from twisted.application.service import Service
from twisted.logger import Logger

from msgnode.config.schema import Config, ConfigError
from msgnode.config.secrets import text_without_secrets
from msgnode.config.sections import Section

log = Logger()

# The keys that may change while the node runs. All others need a restart.
RELOADABLE = {
    "admin",
    "allowed_origins",
    "drain_seconds",
    "federation",
    "foreign",
    "identity",
    "limits",
    "objects",
    "peer",
    "policy",
    "public_url",
    "records",
    "routing",
    "session",
    "storage",
    "stubs",
    "trusted_proxies",
    "websocket",
}
# The exceptions, which need a restart.
BUILT_IN = {
    "admin.listen",
    "federation.listen",
    "policy.decision_log",
    "policy.keep_versions",
    "policy.source",
}
POOLS = "pools"  # a table that is shown as one value


class ReloadVerdict(msgspec.Struct, frozen=True):
    """
    The result of a reload: the keys that changed, those that need a restart; if not `ok`, `text` says why.

    `time` is in seconds since 1970; `by` says who asked for it.
    """

    time: float
    ok: bool
    text: str
    changed: list[str] = []
    needs_restart: list[str] = []
    by: str = "signal"


class Renewable(Protocol):
    """
    Files that are reloaded: a TLS listener's certificate and key, the device tokens.

    `use` puts what `read` returned into effect, and returns what was in effect before.
    """

    def read(self) -> Any: ...
    def use(self, read: Any) -> Any: ...


class Reloading(Service):
    """
    The service that reloads the configuration at SIGHUP.

    `read` loads the configuration file. The functions in `apply` put the changed configuration into effect.
    `call` runs a function on the event loop (reactor.callFromThread), for a signal can interrupt any code.

    `changed` has the keys that reloads have changed since the start, `needs_restart` those that have another
    value in the file, which takes effect at the next start.
    """

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config],
        renewables: Sequence[Renewable],
        apply: Sequence[Callable[[], None]],
        call: Callable[..., object],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.last: ReloadVerdict | None = None  # None: nothing was reloaded since the start
        self.changed: set[str] = set()
        self.needs_restart: set[str] = set()
        self.begins: Callable[[], object] = lambda: None  # called before each reload
        self.reloaded: Callable[[ReloadVerdict], object] = lambda verdict: None  # called after each reload
        self._wall = wall
        self._config = config
        self._read = read
        self._renewables = renewables
        self._apply = apply
        self._call = call
        self._before: Any = None

    def privilegedStartService(self) -> None:
        super().privilegedStartService()
        self._listen()

    def startService(self) -> None:
        super().startService()
        self._listen()  # `python -m twisted` does not call privilegedStartService

    def _listen(self) -> None:
        if self._before is not None:
            return
        # Some systems have no SIGHUP, and only the main thread can handle signals.
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGHUP, lambda *_: self._call(self.reload))

    def stopService(self) -> None:
        super().stopService()
        if self._before is not None:
            signal.signal(signal.SIGHUP, self._before)
            self._before = None

    def _apply_all(self) -> None:
        for apply in self._apply:
            apply()

    def reload(self, by: str = "signal") -> ReloadVerdict:
        """
        Reads everything again, and puts it into effect. Returns what came of it.
        """
        self.begins()
        verdict = self.last = self._reload(by)
        if verdict.ok:
            self.changed.update(verdict.changed)
            self.needs_restart = set(verdict.needs_restart)
        self.reloaded(verdict)
        return verdict

    def check(self) -> tuple[list[str], list[str]]:
        """
        Reads everything, and puts nothing into effect. Returns the keys that a reload would change, and those
        that need a restart. Raises ConfigError.
        """
        fresh = self._read()
        for renewable in self._renewables:
            renewable.read()
        return apply_changes(deepcopy(self._config), fresh)

    def _failed(self, why: str, by: str) -> ReloadVerdict:
        return ReloadVerdict(self._wall(), False, why, by=by)

    def _reload(self, by: str) -> ReloadVerdict:
        try:
            fresh = self._read()
            renewed = [(renewable, renewable.read()) for renewable in self._renewables]
        except ConfigError as why:
            text = text_without_secrets(str(why))
            log.error("the reload failed, nothing has changed: {why}", why=text)
            return self._failed(text, by)
        before = deepcopy(self._config)
        changed, waiting = apply_changes(self._config, fresh)
        used = [(renewable, renewable.use(read)) for renewable, read in renewed]
        try:
            self._apply_all()
        except Exception as why:
            text = "the node failed over this; its log says why"
            if isinstance(why, ConfigError):
                text = text_without_secrets(str(why))
                log.error("the reload failed, nothing has changed: {why}", why=text)
            else:
                log.failure("the reload failed, nothing has changed")
            apply_changes(self._config, before)
            for renewable, read in used:
                renewable.use(read)
            self._apply_all()
            return self._failed(text, by)
        log.info(
            "reloaded the configuration and the files it names; changed: {keys}",
            keys=", ".join(changed) or "no key",
        )
        if waiting:
            log.warn("{keys} changed too, which takes effect only after a restart", keys=", ".join(waiting))
        text = f"changed: {', '.join(changed) or 'no key'}"
        return ReloadVerdict(self._wall(), True, text, changed, waiting, by)


def revision(config: Config) -> str:
    """
    A short text that differs when the configuration in effect differs.
    """
    return hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:12]


def apply_changes(config: Config, fresh: Config) -> tuple[list[str], list[str]]:
    """
    Copy the reloadable keys of `fresh` into `config`, in place.

    Returns the keys that changed, and the keys that differ but need a restart.
    """
    changed: list[str] = []
    waiting: list[str] = []
    for name in config.__struct_fields__:
        ours, theirs = getattr(config, name), getattr(fresh, name)
        if ours == theirs:
            continue
        if name not in RELOADABLE:
            waiting += differing(name, ours, theirs)
        elif isinstance(ours, Section):
            for key in ours.__struct_fields__:
                if getattr(ours, key) == getattr(theirs, key):
                    continue
                if f"{name}.{key}" in BUILT_IN:
                    waiting.append(f"{name}.{key}")
                    continue
                setattr(ours, key, getattr(theirs, key))
                changed.append(f"{name}.{key}")
        else:
            setattr(config, name, theirs)
            changed.append(name)
    return changed, waiting


def differing(name: str, ours: Any, theirs: Any) -> Iterator[str]:
    """
    The keys in which two values of the key `name` differ: those within a section or a table of sections, each
    by its whole name, as in `cluster.url`; else the key itself.
    """
    if ours == theirs:
        return
    if isinstance(ours, Section) and type(ours) is type(theirs):
        for key in ours.__struct_fields__:
            yield from differing(f"{name}.{key}", getattr(ours, key), getattr(theirs, key))
    elif isinstance(ours, dict) and ours and name != POOLS:
        for key in {**ours, **theirs}:
            yield from differing(f"{name}.{key}", ours.get(key), theirs.get(key))
    else:
        yield name
