"""
The configuration in effect, without its secrets, and where each key comes from.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from msgnode.admin.reads.inspector import Inspector
from msgnode.config.reload import POOLS
from msgnode.config.secrets import without_secrets

DEFAULT, FILE, OPTION, RUNTIME = "default", "file", "option", "runtime"


class ConfigRow(msgspec.Struct):
    """
    A key, its value (secrets as ***), and its origin: `default`, `file`, `option`, or `runtime` for one
    that was reloaded since the start. `needs_restart`: the file has another value since the last reload,
    which takes effect when the node is started again.
    """

    key: str
    value: Any
    origin: str
    needs_restart: bool


class ConfigReport(msgspec.Struct):
    """
    All keys of the configuration; `revision` differs when a value does.
    """

    file: str
    revision: str
    keys: list[ConfigRow]


def report_config(inspector: Inspector) -> ConfigReport:
    """
    The report; the file is read again to know which keys it has.
    """
    facts = inspector.facts
    reloading = facts.reloading
    reloaded, pending = (reloading.changed, reloading.needs_restart) if reloading is not None else ((), ())
    in_file, given = set(_keys(_table(facts.config_file))), set(_keys(facts.given))
    rows = []
    for key, value in _flat(msgspec.to_builtins(facts.config)):
        if key in given:
            origin = OPTION
        elif key in reloaded:
            origin = RUNTIME
        else:
            origin = FILE if key in in_file else DEFAULT
        # Of a section that is in the file no more, only the name of the whole section waits.
        waits = key in pending or any(key.startswith(f"{each}.") for each in pending)
        rows.append(ConfigRow(key, without_secrets(key, value), origin, waits))
    return ConfigReport(facts.config_file, facts.revision, rows)


def _table(path: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8")) if path else {}
    except (OSError, ValueError):
        return {}


def _keys(table: Mapping[str, Any]) -> Iterator[str]:
    for key, _ in _flat(table):
        yield key


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping) and value and name != POOLS:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
