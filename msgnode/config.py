"""
The configuration: one Struct, filled by the TOML file and by the options.

Its types are the checks.  A mistake names the file, the key, what was
expected and what was found, and stops the start.
"""

import re
import socket
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from msgnode.address import is_scheme
from msgnode.pool import MOST, expand

MOST_SECONDS = 3_153_600_000  # a century; no timer waits for infinity
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
Positive = Annotated[float, Meta(gt=0, le=MOST_SECONDS)]
Count = Annotated[int, Meta(ge=1)]
Bytes = Annotated[int, Meta(ge=1)]
Kind = Literal["web", "line", "admin"]
OrOff = Annotated[int, Meta(ge=0)]

WEB, LINE, ADMIN = 9090, 9091, 9092


class ConfigError(Exception):
    """
    The configuration cannot be used; the text says where and why.
    """


class _Section(Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class SessionTimes(_Section):
    """
    How long a session lives without a connection, and how much may wait for it.
    """

    expiry: Positive = 86400.0
    anonymous_expiry: Positive = 60.0
    unused_expiry: Positive = 60.0
    open_deadline: Positive = 10.0
    queue_messages: Count = 1000
    queue_bytes: Bytes = 8 * 1024 * 1024


class Limits(_Section):
    """
    What one message, one session and the whole node may take.
    """

    message: Bytes = 8_388_608
    sessions: Count = 100_000
    bindings_per_session: Count = 100_000
    learnt_per_session: OrOff = 1000


class AllocationLimits(_Section):
    """
    Addresses in one request.
    """

    per_request: Count = 1000


class PoolAddresses(_Section):
    """
    A foreign pool: its scheme, and its addresses or a pattern of them.
    """

    scheme: str
    addresses: list[str] = []
    pattern: str = ""

    def all_addresses(self) -> list[str]:
        return self.addresses or expand(self.pattern)


class Routing(_Section):
    """
    Is a request to nobody answered 404?
    """

    reply_unknown: bool = False


class WebSocketOptions(_Section):
    """
    Seconds between pings; bytes above which a message is deflated (0: off).
    """

    ping: Seconds = 25.0
    deflate_above: OrOff = 0


class Listen(_Section):
    """
    One listener; with `cert` (and `key`) it speaks TLS, with `client_ca` it asks for a client's certificate.
    """

    kind: Kind
    endpoint: str
    cert: str = ""
    key: str = ""
    client_ca: str = ""


def _traffic() -> str:
    from platformdirs import user_data_path

    return str(user_data_path("msgnode") / "traffic")


def _node() -> str:
    return socket.gethostname()


class Config(_Section):
    """
    Everything an operator can set.  etc/msgnode.toml explains each key.
    """

    domain: str = "localhost"
    node: str = field(default_factory=_node)
    web: list[str] | None = None
    line: list[str] | None = None
    admin: str | None = None
    listen: list[Listen] = []
    traffic: str = field(default_factory=_traffic)
    path_prefix: str = ""
    allowed_origins: list[str] = field(default_factory=lambda: ["*"])
    trusted_proxies: list[str] = []
    session: SessionTimes = field(default_factory=SessionTimes)
    limits: Limits = field(default_factory=Limits)
    allocation: AllocationLimits = field(default_factory=AllocationLimits)
    pools: dict[str, PoolAddresses] = {}
    routing: Routing = field(default_factory=Routing)
    websocket: WebSocketOptions = field(default_factory=WebSocketOptions)

    def listeners(self) -> list[Listen]:
        """
        Every listener: the endpoint strings, the tables, and for a kind that has neither its default.
        """
        found: list[Listen] = []
        kinds: list[tuple[Kind, list[str] | str | None, int]] = [
            ("web", self.web, WEB),
            ("line", self.line, LINE),
            ("admin", self.admin, ADMIN),
        ]
        for kind, given, port in kinds:
            tables = [listen for listen in self.listen if listen.kind == kind]
            if given is None:
                given = [] if tables else [f"tcp:{port}:interface=127.0.0.1"]
            strings = [given] if isinstance(given, str) else given
            found += [Listen(kind=kind, endpoint=where) for where in strings if where != "none"] + tables
        return found


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
    return check({**table, **(options or {})}, "options")


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
    if not re.fullmatch(r"[A-Za-z0-9.-]+(:\d+)?", config.domain):
        yield "domain", f"expected a domain name such as example.org, found {config.domain!r}"
    if not config.node:
        yield "node", "expected a name, found ''"
    if config.session.queue_bytes < config.limits.message:
        yield (
            "session.queue_bytes",
            f"expected at least limits.message ({config.limits.message}), found {config.session.queue_bytes}",
        )
    if config.path_prefix and not re.fullmatch(r"(/[^/?#\s]+)+", config.path_prefix):
        yield "path_prefix", f"expected a path such as /msgnode, found {config.path_prefix!r}"
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
    for number, listen in enumerate(config.listen):
        if not listen.cert and (listen.key or listen.client_ca):
            yield f"listen[{number}]", "expected 'cert' beside 'key' or 'client_ca'"


_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "array | null": "a list",
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
        expected = "expected 'web', 'line' or 'admin'"
    return f"{key}: {expected}, found {found!r}"


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
    kinds = {"pools": PoolAddresses, "listen": Listen}
    if not names:
        return list(Config.__struct_fields__)
    first = str(names[0])
    if first in kinds:
        return list(kinds[first].__struct_fields__)
    section = next(f for f in msgspec.structs.fields(Config) if f.name == first)
    return list(section.type.__struct_fields__)
