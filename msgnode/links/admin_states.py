"""
The administrative states of domains, kept in the state directory over restarts.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from msgnode.config.schema import ConfigError
from msgnode.links.operations import AdminState
from msgnode.protocol.errors import Rejected

FILE = "links.json"
MAX_DOMAINS = 10_000  # with an order; another one is refused
ENABLED: AdminState = "enabled"


class AdminStates:
    """
    A table of the domains that are not `enabled`, and its file in the state directory; None: in memory only.

    It is read once. A damaged file stops the start: a ban must not end by it.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / FILE
        self._states: dict[str, AdminState] = {} if self._path is None else _read(self._path)

    def of(self, domain: str) -> AdminState:
        return self._states.get(domain, ENABLED)

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def set(self, domain: str, state: AdminState) -> None:
        """
        Changes the state of a domain when the file has it. Raises Rejected if it cannot be written.
        """
        states = {name: kept for name, kept in self._states.items() if name != domain}
        if state != ENABLED:
            states[domain] = state
        if len(states) > MAX_DOMAINS:
            raise Rejected(f"there are orders about {MAX_DOMAINS} domains already", 429, "limit")
        if self._path is not None:
            try:
                _write(self._path, states)
            except OSError as why:
                raise Rejected(f"{self._path} cannot be written: {why.strerror}", 503, "disk") from None
        self._states = states


def _read(path: Path) -> dict[str, AdminState]:
    try:
        states = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as why:
        raise ConfigError(f"state: cannot read {path}: {why.strerror}") from why
    except (ValueError, RecursionError) as why:
        raise ConfigError(f"state: {path} is damaged: {why}") from None
    known = get_args(AdminState)
    if not isinstance(states, dict) or not all(state in known for state in states.values()):
        raise ConfigError(f"state: {path} is damaged: expected an object of domains and their states")
    return states


def _write(path: Path, states: dict[str, AdminState]) -> None:
    """
    Replace the file: after a crash it has all of the old or all of the new states.
    """
    fresh = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(json.dumps(states, indent=1, sort_keys=True).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
