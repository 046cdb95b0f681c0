"""
Reading the configuration: a TOML file, and options laid over it.

A mistake names the file, the key, what was expected and what was found.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec

from msgnode.address import Domain, is_scheme
from msgnode.config import (
    Config,
    ConfigError,
    IdentityProvider,
    IntrospectionOptions,
    Listen,
    PoolAddresses,
)
from msgnode.pool import MOST, expand
from msgnode.trust import wrong_identity, wrong_qos


def load(path: str | None = None, options: Mapping[str, Any] | None = None) -> Config:
    """
    The configuration in the file, where there is one, with the options laid over it.
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
        check(table, path)  # a mistake in the file is told as the file's
    return check(laid_over(table, options or {}), "options")


def laid_over(table: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """
    The table with the options in it; an option that is a table itself changes only the keys it names.
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
    The Config in this table; ConfigError names `where` it came from.
    """
    try:
        config = msgspec.convert(table, Config)
    except msgspec.ValidationError as why:
        raise ConfigError(f"{where}: {_in_words(str(why), table)}") from None
    for key, wrong in _contradictions(config):
        raise ConfigError(f"{where}: {key}: {wrong}")
    return config


def _contradictions(config: Config) -> Iterator[tuple[str, str]]:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:\d+)?", config.domain):
        yield "domain", f"expected a domain name such as example.org, found {config.domain!r}"
    if not config.node:
        yield "node", "expected a name, found ''"
    if config.session.queue_bytes < config.limits.message:
        yield (
            "session.queue_bytes",
            f"expected at least limits.message ({config.limits.message}), found {config.session.queue_bytes}",
        )
    if config.session.memory < config.session.queue_bytes:
        yield (
            "session.memory",
            f"expected at least session.queue_bytes ({config.session.queue_bytes}), "
            f"found {config.session.memory}",
        )
    for proxy in config.trusted_proxies:
        if proxy != "unix" and not _is_ip(proxy):
            yield "trusted_proxies", f"expected IP addresses, or unix, found {proxy!r}"
    for origin in config.allowed_origins:
        if origin != "*" and not re.fullmatch(r"(?!\w+://.*/)[\w+.-]+://\S+|null", origin):
            yield "allowed_origins", f"expected origins such as https://app.example.org, found {origin!r}"
    source = config.policy.source
    scheme = source.partition("://")[0] if "://" in source else ""
    if scheme and scheme not in ("http", "https"):
        yield "policy.source", f"expected a file, a directory, an https address or push, found {source!r}"
    if not config.policy.decision_log:
        yield "policy.decision_log", "expected a directory or 'none', found ''"
    for name in ("traffic", "state"):
        if not getattr(config, name):
            yield name, "expected a directory or 'none', found ''"
    for name, back_end in (("registry", config.registry), ("global_registry", config.global_registry)):
        if back_end.url not in ("embedded", "none") and (
            not is_base_url(back_end.url) or re.match(r"http\S*\s", back_end.url)
        ):
            urls = "http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH"
            yield f"{name}.url", f"expected 'embedded', 'none', {urls}, found {back_end.url!r}"
        if back_end.key and not back_end.cert:
            yield f"{name}.key", "expected 'cert' beside 'key'"
    if config.path_prefix and not re.fullmatch(r"(/[^/?#\s]+)+", config.path_prefix):
        yield "path_prefix", f"expected a path such as /msgnode, found {config.path_prefix!r}"
    if config.public_url and not re.fullmatch(r"(https?|wss?)://[^/?#\s]+(/[^?#\s]*)?", config.public_url):
        yield "public_url", f"expected a URL such as https://mn.example.org, found {config.public_url!r}"
    if config.stubs and not Path(config.stubs).is_dir():
        yield "stubs", f"expected a directory, found {config.stubs!r}"
    schemes: dict[str, str] = {}
    for name, pool in config.pools.items():
        key = f"pools.{name}"
        other = schemes.setdefault(pool.scheme, name)
        if other != name:
            yield f"{key}.scheme", f"expected a scheme of its own, found {pool.scheme!r} as in pools.{other}"
        if not is_scheme(pool.scheme):
            yield f"{key}.scheme", f"expected a URL scheme such as sip, found {pool.scheme!r}"
        if bool(pool.addresses) == bool(pool.pattern):
            yield key, "expected either 'addresses' or 'pattern'"
        twice = [address for address, count in Counter(pool.addresses).items() if count > 1]
        if twice:
            yield f"{key}.addresses", f"expected each address once, found {twice[0]!r} again"
        if len(pool.addresses) > MOST:
            yield f"{key}.addresses", f"expected at most {MOST}, found {len(pool.addresses)}"
        if pool.pattern:
            try:
                expand(pool.pattern)
            except ValueError as why:
                yield f"{key}.pattern", str(why)
                continue
        foreign = [a for a in pool.all_addresses() if not a.startswith(f"{pool.scheme}:")]
        if foreign:
            yield key, f"expected addresses that begin {pool.scheme}:, found {foreign[0]!r}"
        owned = [a for a in pool.all_addresses() if Domain(config.domain).owns(a)]
        if owned:
            yield key, f"expected addresses that are not the node's own, found {owned[0]!r}"
    certificates = any(listen.client_ca for listen in config.listen)
    yield from wrong_identity(config.identity, certificates)
    yield from wrong_qos(config.qos)
    for number, listen in enumerate(config.listen):
        if not listen.cert and (listen.key or listen.client_ca):
            yield f"listen[{number}]", "expected 'cert' beside 'key' or 'client_ca'"


def is_base_url(url: str) -> bool:
    """
    Can a back end be called there?
    """
    if url.startswith("unix:/"):
        return True
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    return bool(right) and not (parts.query or parts.fragment or parts.username)


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


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
    msgspec's complaint as: key, what was expected, what was found.
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
        return f"{f'{key}.' if key else ''}{unknown[1]}: is not a key here; {hint}"
    missing = re.match(r"Object missing required field `(.*)`", text)
    if missing:
        return f"{key}.{missing[1]}: is missing"
    expected = re.sub(r", got .*", "", text).replace("Expected", "expected")
    expected = re.sub(r"`([^`]*)`", lambda quoted: _WORDS.get(quoted[1], quoted[1]), expected)
    if "Invalid enum value" in text:
        *others, last = (repr(word) for word in _choices(names))
        expected = f"expected {', '.join(others)} or {last}"
    shown = "another" if names[-1:] == ["client_secret"] else repr(found)  # it may well be one
    return f"{key}: {expected}, found {shown}"


def _step(value: Any, name: str | int) -> Any:
    try:
        return value[name]
    except (KeyError, IndexError, TypeError):
        return None


def _guilty(pools: Mapping[str, Any]) -> str:
    """
    The pool that msgspec complains about; it does not say which.
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
    The keys of the table at this place, and what they take.
    """
    place: Any = Config
    if names:
        first = str(names[0])
        kinds: dict[str, Any] = {"pools": PoolAddresses, "listen": Listen}
        place = kinds[first] if first in kinds else _types([])[first]
        if names[:2] == ["identity", "providers"]:
            place = IdentityProvider if len(names) < 4 else IntrospectionOptions
    return {field.name: field.type for field in msgspec.structs.fields(place)}
