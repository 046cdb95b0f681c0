"""
Loads the configuration: a TOML file, overridden by command-line options.

An error names the file, the key, the expected value, and the value found.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import msgspec

from msgnode.config.federation import Peer
from msgnode.config.schema import (
    Config,
    ConfigError,
    IdentityProvider,
    IntrospectionOptions,
    Listen,
    PoolAddresses,
)
from msgnode.config.secrets import is_secret, text_without_secrets, without_secrets
from msgnode.config.validation import cross_checks

# The old names of keys, and the names they have now.
RENAMED = {
    "line": "lines",
    "admin": "admin.listen",
    "admin_hosts": "admin.hosts",
    "session.expiry": "session.expiry_seconds",
    "session.anonymous_expiry": "session.anonymous_expiry_seconds",
    "session.unused_expiry": "session.unused_expiry_seconds",
    "session.open_deadline": "session.open_deadline_seconds",
    "session.memory": "session.max_memory_bytes",
    "session.takeover_after": "session.takeover_after_seconds",
    "limits.message": "limits.message_bytes",
    "limits.learnt_per_session": "limits.learned_routes_per_session",
    "limits.per_peer": "limits.connections_per_ip",
    "limits.rate_messages": "limits.session_rate_messages",
    "limits.rate_bytes": "limits.session_rate_bytes",
    "limits.peer_rate_messages": "limits.ip_rate_messages",
    "limits.peer_rate_bytes": "limits.ip_rate_bytes",
    "websocket.ping": "websocket.ping_seconds",
    "websocket.deflate_above": "websocket.compress_above_bytes",
    "policy.refresh": "policy.refresh_seconds",
    "policy.deadline": "policy.deadline_seconds",
    "policy.most_bytes": "policy.max_bytes",
    "policy.sample_permits": "policy.permit_sample_rate",
    "policy.mask": "policy.hash_fields",
    "registry.deadline": "registry.deadline_seconds",
    "registry.answer": "registry.max_response_bytes",
    "registry.poll": "registry.poll_seconds",
    "registry.disconnect_after": "registry.disconnect_after_seconds",
    "global_registry.deadline": "global_registry.deadline_seconds",
    "global_registry.answer": "global_registry.max_response_bytes",
    "global_registry.write_deadline": "global_registry.write_deadline_seconds",
    "identity.warn": "identity.expiry_warning_seconds",
    "identity.grace": "identity.grace_seconds",
    "identity.leeway": "identity.leeway_seconds",
    "identity.providers.deadline": "identity.providers.deadline_seconds",
    "identity.providers.answer": "identity.providers.max_response_bytes",
    "qos.deadline": "qos.deadline_seconds",
    "qos.answer": "qos.max_response_bytes",
}


def load(path: str | None = None, options: Mapping[str, Any] | None = None) -> Config:
    """
    Load the configuration from a file, if `path` is given, overridden by `options`. ConfigError if it is
    invalid.
    """
    table: dict[str, Any] = {}
    if path is not None:
        try:
            table = tomllib.loads(Path(path).read_text("utf-8"))
        except OSError as why:
            raise ConfigError(f"{path}: cannot be read: {why.strerror}") from why
        except UnicodeDecodeError as why:
            raise ConfigError(f"{path}: is not UTF-8 at byte {why.start}") from why
        except tomllib.TOMLDecodeError as why:
            raise ConfigError(f"{path}: is not TOML: {why}") from why
        check(table, path)  # so that an error in the file names the file
    return check(merge(table, options or {}), "options")


def merge(table: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """
    The table with the options in it. An option that is itself a table replaces only the keys it has.
    """
    merged = dict(table)
    for name, value in options.items():
        there = merged.get(name)
        if isinstance(there, dict) and isinstance(value, dict):
            merged[name] = {**there, **value}
        else:
            merged[name] = value
    return merged


def check(table: Mapping[str, Any], where: str) -> Config:
    """
    Convert a table to the Config. ConfigError names `where` the table came from; it shows no secret.
    """
    for key, name in _renamed(table):
        raise ConfigError(f"{where}: {key}: is now called {name}")
    try:
        config = msgspec.convert(table, Config)
    except msgspec.ValidationError as why:
        raise ConfigError(f"{where}: {text_without_secrets(_in_words(str(why), table), table)}") from None
    for key, wrong in cross_checks(config):
        raise ConfigError(f"{where}: {key}: {text_without_secrets(wrong, table)}")
    return config


def _renamed(value: Any, key: str = "", shown: str = "") -> Iterator[tuple[str, str]]:
    """
    The renamed keys in a table, as the file spells them, each with its present name.
    """
    if key in RENAMED and not (key == "admin" and isinstance(value, dict)):  # now a table
        yield shown, RENAMED[key]
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _renamed(inner, f"{key}.{name}" if key else name, f"{shown}.{name}" if key else name)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _renamed(inner, key, f"{shown}[{number}]")


_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "array | null": "a list",
    "object | null": "a table",
    "str | null": "a string",
}


def _in_words(complaint: str, table: Any) -> str:
    """
    Rewrite an error of msgspec: the key, the expected value, the value found.
    """
    text, _, path = complaint.partition(" - at `")
    steps = re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", path.rstrip("`"))
    names: list[str | int] = []
    found = table
    for name, index in steps:
        name = name or (_guilty(found) if index == "..." else int(index))
        names.append(name)
        found = _step(found, name)
    key = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names).lstrip(".")
    unknown = re.match(r"Object contains unknown field `(.*)`", text)
    if unknown:
        known = _known(names)
        near = get_close_matches(unknown[1], known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
        return f"{f'{key}.' if key else ''}{unknown[1]}: unknown key; {hint}"
    missing = re.match(r"Object missing required field `(.*)`", text)
    if missing:
        return f"{key}.{missing[1]}: is missing"
    expected = re.sub(r", got .*", "", text).replace("Expected", "expected")
    expected = re.sub(r"`([^`]*)`", lambda quoted: _WORDS.get(quoted[1], quoted[1]), expected)
    if "Invalid enum value" in text:
        *others, last = (repr(word) for word in _choices(names))
        expected = f"expected {', '.join(others)} or {last}"
    name = next((name for name in reversed(names) if isinstance(name, str)), "")
    shown = "another" if is_secret(name) else repr(without_secrets(name, found))
    return f"{key}: {expected}, found {shown}"


def _step(value: Any, name: str | int) -> Any:
    try:
        return value[name]
    except (KeyError, IndexError, TypeError):
        return None


def _guilty(pools: Mapping[str, Any]) -> str:
    """
    The pool that an error of msgspec is about, which the error does not name.
    """
    for name, pool in pools.items():
        try:
            msgspec.convert(pool, PoolAddresses)
        except msgspec.ValidationError:
            return name
    return ""


def _known(names: list[str | int]) -> list[str]:
    return list(_types(names))


def _choices(names: list[str | int]) -> tuple[str, ...]:
    if isinstance(names[-1], int):
        (item,) = get_args(_types(names[:-2])[str(names[-2])])
        return get_args(item)
    return get_args(_types(names[:-1])[str(names[-1])])


def _types(names: list[str | int]) -> dict[str, Any]:
    """
    The keys of the table at this place, with their types.
    """
    place: Any = Config
    if names:
        first = str(names[0])
        kinds: dict[str, Any] = {"pools": PoolAddresses, "listen": Listen, "peer": Peer}
        place = kinds[first] if first in kinds else _types([])[first]
        if names[:2] == ["identity", "providers"]:
            place = IdentityProvider if len(names) < 4 else IntrospectionOptions
    return {field.name: field.type for field in msgspec.structs.fields(place)}
