"""
Named tokens of operators: `<state>/admin-tokens` has their hashes, roles and ends.
"""

import json
import os
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import msgspec

from msgnode.protocol.errors import Rejected

FILE = "admin-tokens"
VIEWER, OPERATOR, POLICY_MANAGER, ADMIN, METRICS = "viewer", "operator", "policy-manager", "admin", "metrics"
ROLES = (VIEWER, OPERATOR, POLICY_MANAGER, ADMIN, METRICS)
MACHINE, SIGNAL = "admin-token", "signal"  # operators without a named token: that of the machine, a signal
RESERVED = {MACHINE, SIGNAL}
MAX_TOKENS = 1000
MAX_NAME_CHARS = 64


class NamedToken(msgspec.Struct, forbid_unknown_fields=True):
    """
    A token: its name, the SHA-256 of its text, its roles, and its end in seconds since 1970, if it has one.
    """

    name: str
    hash: str
    roles: list[str]
    until: float | None = None
    created: float = 0.0
    by: str = ""


_lines = msgspec.json.Decoder(NamedToken)


class NamedTokens:
    """
    The file of named tokens. It is read for every request, so that a token that is revoked is void at once.

    `path` is None without a state directory: then there are none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def all(self) -> list[NamedToken]:
        """
        The tokens, those that have ended too. Lines that cannot be read are left out.
        """
        try:
            lines = self._lines()
        except OSError:
            return []
        return [known for known in map(_decoded, lines) if known is not None]

    def _lines(self) -> list[bytes]:
        """
        The lines of the file; none without a file. Raises OSError.
        """
        try:
            return [] if self._path is None else self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return []

    def _lines_to_change(self) -> list[bytes]:
        """
        The lines of the file, which are written again. Raises Rejected if they cannot be read, for they would
        be lost.
        """
        try:
            return self._lines()
        except OSError as why:
            raise Rejected(f"the tokens cannot be read now: {why.strerror}", 503, "disk") from None

    def find(self, token: str, now: float) -> NamedToken | None:
        """
        The token with this text, if it has not ended.
        """
        hashed = sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
        found = None
        for known in self.all():
            if compare_digest(known.hash, hashed) and (known.until is None or known.until > now):
                found = known
        return found

    def add(self, name: str, roles: list[str], until: float | None, now: float, by: str) -> str:
        """
        Makes a token; returns its text, which is kept nowhere. Raises Rejected.
        """
        lines = self._check(name, roles)
        token = f"mna_{token_urlsafe(32)}"
        hashed = sha256(token.encode()).hexdigest()
        made = NamedToken(name, hashed, sorted(set(roles)), until, now, by)
        self._write([*lines, msgspec.json.encode(made)])
        return token

    def check(self, name: str, roles: list[str]) -> None:
        """
        Raises Rejected if no such token can be made.
        """
        self._check(name, roles)

    def _check(self, name: str, roles: list[str]) -> list[bytes]:
        if self._path is None:
            raise Rejected("tokens need a state directory; this node has none", 409, "conflict")
        lines = self._lines_to_change()
        known = [each for each in map(_decoded, lines) if each is not None]
        if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise Rejected(
                f"expected a printable name of 1 to {MAX_NAME_CHARS} characters, not {name[:80]!r}"
            )
        if name.strip().lower() in RESERVED:
            raise Rejected(f"the name {name!r} is that of another operator in the audit log; choose another")
        if any(each.name == name for each in known):
            raise Rejected(f"there is a token {name!r} already; revoke it first", 409, "conflict")
        if len(lines) >= MAX_TOKENS:
            raise Rejected(f"this node keeps {MAX_TOKENS} tokens; revoke one first", 429, "limit")
        if not roles or (unknown := set(roles) - set(ROLES)):
            found = ", ".join(sorted(unknown)) if roles else "none"
            raise Rejected(f"expected roles of {', '.join(ROLES)}; found {found}")
        return lines

    def revoke(self, name: str) -> None:
        """
        Removes a token. Raises Rejected if there is none of that name.
        """
        self._write(self._without(name))

    def check_known(self, name: str) -> None:
        """
        Raises Rejected if there is no token of that name.
        """
        self._without(name)

    def _without(self, name: str) -> list[bytes]:
        lines = self._lines_to_change()
        left = [line for line in lines if (known := _decoded(line)) is None or known.name != name]
        if len(left) == len(lines):
            raise Rejected(f"there is no token {name[:80]!r}", 404, "not-found")
        return left

    def _write(self, lines: list[bytes]) -> None:
        assert self._path is not None
        write_private(self._path, b"".join(line + b"\n" for line in lines))


def _decoded(line: bytes) -> NamedToken | None:
    """
    The token in a line; None if it cannot be read: such lines stay in the file.
    """
    try:
        return _lines.decode(line)
    except msgspec.DecodeError:
        return None


def write_private(path: Path, data: bytes) -> None:
    """
    Replaces a file at once by one that only its owner may read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as made:
            made.write(data)
            made.flush()
            os.fsync(made.fileno())
        os.replace(beside, path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any:
    """
    The JSON in a file; None if there is none, or it cannot be read.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
