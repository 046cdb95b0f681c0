"""
The configuration in effect, without its secrets, and where each key comes from.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from msgnode.admin.reads.inspector import Inspector
from msgnode.structures.url_masking import HIDDEN, masked

SECRETS = ("secret", "password", "token")
FILES = ("turn_secret_file", "cli_password_file")
NOT_SECRET = ("message_token", "takeover", "client_secret_file", "token_file", "token_keys_file", *FILES)
DEFAULT, FILE, OPTION, RUNTIME = "default", "file", "option", "runtime"


class ConfigRow(msgspec.Struct):
    """
    A key, its value (secrets as ***), and its origin: `default`, `file`, `option`, or `runtime` for one
    that was reloaded since the start.
    """

    key: str
    value: Any
    origin: str


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
    last = facts.last_reload
    reloaded = set(last.changed) if last is not None and last.ok else set()
    in_file, given = set(_keys(_table(facts.config_file))), set(_keys(facts.given))
    rows = []
    for key, value in _flat(msgspec.to_builtins(facts.config)):
        if key in given:
            origin = OPTION
        elif key in reloaded:
            origin = RUNTIME
        else:
            origin = FILE if key in in_file else DEFAULT
        rows.append(ConfigRow(key, without_secrets(key, value), origin))
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
        if isinstance(value, Mapping) and value and name != "pools":
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def without_secrets(key: str, value: Any) -> Any:
    """
    The value, with *** in the place of each secret in it, also of those in URLs.
    """
    name = key.rpartition(".")[2]
    if name not in NOT_SECRET and any(word in name for word in SECRETS) and isinstance(value, str):
        return HIDDEN if value else ""
    if isinstance(value, Mapping):
        return {each: without_secrets(each, inner) for each, inner in value.items()}
    if isinstance(value, list):
        return [without_secrets(key, inner) for inner in value]
    return masked(value) if isinstance(value, str) else value
