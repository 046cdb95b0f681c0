"""
Static tokens, for devices that no identity provider knows.

The file has one device a line: the SHA-256 of its token, and who it is.  The
token itself is nowhere but in the device; `msgnode token` makes both.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe

from msgnode.config.schema import IDP, ConfigError
from msgnode.sessions.principal import Principal

PREFIX = "mnd_"

_LINE = re.compile(r"([0-9a-fA-F]{64})\s+(\S+)")


def make_token() -> str:
    return PREFIX + token_urlsafe(32)


def line(token: str, user: str) -> str:
    """
    What stands in the file for this token.
    """
    return f"{sha256(token.encode()).hexdigest()}  {user}"


def parse(lines: Iterable[str], where: str) -> dict[str, Principal]:
    """
    Who has which token, by its hash.  ConfigError names the line that is wrong.
    """
    found: dict[str, Principal] = {}
    for number, text in enumerate(lines, 1):
        text = text.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            # What stands there may be a token by mistake.
            raise ConfigError(f"{where}: line {number}: expected the SHA-256 of a token, and who has it")
        line = match[1].lower()
        if line in found:
            raise ConfigError(f"{where}: line {number}: expected each token once")
        found[line] = Principal(match[2], IDP, match[2], match[2], line=line)
    return found


class DeviceTokens:
    """
    The file, read again with the configuration (Reloading's Renewable).
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._known: dict[str, Principal] = {}

    def read(self) -> dict[str, Principal]:
        if not self.path:
            return {}
        try:
            text = Path(self.path).read_text("utf-8")
        except OSError as why:
            raise ConfigError(f"identity.devices: {self.path}: cannot be read: {why.strerror}") from why
        except UnicodeDecodeError as why:
            raise ConfigError(f"identity.devices: {self.path}: is not UTF-8 at byte {why.start}") from why
        return parse(text.splitlines(), f"identity.devices: {self.path}")

    def use(self, known: dict[str, Principal]) -> dict[str, Principal]:
        """
        Believe these from now on; those that were believed before.
        """
        before, self._known = self._known, known
        return before

    def find(self, token: str) -> Principal | None:
        return self._known.get(sha256(token.encode()).hexdigest())

    def knows(self, proof: Principal) -> bool:
        """
        Does the line still stand there, for the same device?
        """
        if proof.line:
            return self._known.get(proof.line) == proof
        # Written down before proofs knew their line.
        return any(known.user == proof.user for known in self._known.values())
