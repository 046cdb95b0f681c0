"""
SIGHUP: the configuration file and the certificates are read again.

All of it takes effect, or nothing does.
"""

import signal
import threading
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.logger import Logger

from msgnode.config.schema import Config, ConfigError
from msgnode.config.sections import Section

log = Logger()

# What may change while the node runs.  The rest is built into what is there.
RELOADABLE = {
    "admin",
    "allowed_origins",
    "drain_seconds",
    "identity",
    "limits",
    "policy",
    "public_url",
    "routing",
    "session",
    "storage",
    "stubs",
    "trusted_proxies",
    "websocket",
}
BUILT_IN = {"admin.listen"}  # of these, what needs a restart all the same


class Renewable(Protocol):
    """
    Files that are read again: a TLS listener's certificate and key, the tokens of devices.

    `use` takes what `read` gave, and gives back what was used before.
    """

    def read(self) -> Any: ...
    def use(self, read: Any) -> Any: ...


class Reloading(Service):
    """
    The service that reads the configuration again at SIGHUP.

    `read` gives the configuration as it is in the file now; `apply` tells those who keep something of it.

    `call` runs a function on the event loop (reactor.callFromThread); a signal
    may come in the middle of anything.
    """

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config],
        renewables: Sequence[Renewable],
        apply: Sequence[Callable[[], None]],
        call: Callable[..., object],
    ) -> None:
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
        self._listen()  # `python -m twisted` has no privileged start

    def _listen(self) -> None:
        if self._before is not None:
            return
        # Not on every system is there a SIGHUP, and only the main thread hears it.
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

    def reload(self) -> None:
        try:
            fresh = self._read()
            renewed = [(renewable, renewable.read()) for renewable in self._renewables]
        except ConfigError as why:
            log.error("not reloaded, everything stays as it was: {why}", why=str(why))
            return
        before = deepcopy(self._config)
        changed, waiting = adopt(self._config, fresh)
        used = [(renewable, renewable.use(read)) for renewable, read in renewed]
        try:
            self._apply_all()
        except Exception as why:
            if isinstance(why, ConfigError):
                log.error("not reloaded, everything stays as it was: {why}", why=str(why))
            else:
                log.failure("not reloaded, everything stays as it was")
            adopt(self._config, before)
            for renewable, read in used:
                renewable.use(read)
            self._apply_all()
            return
        log.info(
            "reloaded the configuration and the files it names; changed: {keys}",
            keys=", ".join(changed) or "no key",
        )
        if waiting:
            log.warn("{keys} changed too, but only a restart makes it so", keys=", ".join(waiting))


def adopt(config: Config, fresh: Config) -> tuple[list[str], list[str]]:
    """
    Take over what may change while the node runs, in place.

    The keys that did, and those that are other in `fresh` but need a restart.
    """
    changed, waiting = [], []
    for name in config.__struct_fields__:
        ours, theirs = getattr(config, name), getattr(fresh, name)
        if ours == theirs:
            continue
        if name not in RELOADABLE:
            waiting.append(name)
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
