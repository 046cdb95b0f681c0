"""
Device tokens: static tokens for devices without an identity provider.

The file has one line for each device: the SHA-256 of its token, and its user. The token itself is only in the
device; `msgnode token` creates both.
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
    The line of the file for a token.
    """
    return f"{sha256(token.encode()).hexdigest()}  {user}"


def parse(lines: Iterable[str], where: str) -> dict[str, Principal]:
    """
    The principals by the hash of their token. ConfigError names an invalid line.
    """
    found: dict[str, Principal] = {}
    for number, text in enumerate(lines, 1):
        text = text.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            # The text may be a token by mistake, so it is not shown.
            raise ConfigError(f"{where}: line {number}: expected the SHA-256 of a token, and a user")
        line = match[1].lower()
        if line in found:
            raise ConfigError(f"{where}: line {number}: expected each token once")
        found[line] = Principal(match[2], IDP, match[2], match[2], line=line)
    return found


class DeviceTokens:
    """
    The device tokens in the file, reloaded with the configuration (a Renewable).
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
        Replaces the accepted tokens. Returns those accepted before.
        """
        before, self._known = self._known, known
        return before

    def find(self, token: str) -> Principal | None:
        return self._known.get(sha256(token.encode()).hexdigest())

    def knows(self, proof: Principal) -> bool:
        """
        Is the token of this principal still in the file, for the same device?
        """
        if proof.line:
            return self._known.get(proof.line) == proof
        # The principal was stored by a version without `line`.
        return any(known.user == proof.user for known in self._known.values())
