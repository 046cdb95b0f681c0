"""
Who may do what on the admin listener: tokens in a file, each with its roles.

`<state>/admin-token` is made at the first start, readable by its owner alone.
Each line is a token and its roles; a token with no role has all of them.
"""

import os
from errno import EDQUOT, ENOSPC
from hmac import compare_digest
from pathlib import Path
from secrets import token_urlsafe

from twisted.application.service import Service
from twisted.logger import Logger

from msgnode.config.schema import ConfigError

log = Logger()

FILE = "admin-token"
EVERY = frozenset({"*"})


class AdminTokens(Service):
    """
    Read again with every question, so that a token taken from the file is void at once.
    """

    def __init__(self, state: str) -> None:
        self._path = None if state == "none" else Path(state, FILE)

    def startService(self) -> None:
        """
        Make the file if there is none; on a full disk it is made when somebody shows a token.
        """
        super().startService()
        try:
            self._make()
        except OSError as why:
            if why.errno not in (ENOSPC, EDQUOT):
                raise ConfigError(f"state: cannot write {self._path}: {why.strerror}") from why
            log.error("there is no room for {path} yet: {why}", path=str(self._path), why=why.strerror)

    def _make(self) -> None:
        if self._path is None or (self._path.exists() and self._path.stat().st_size):
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as made:
            made.write(f"mna_{token_urlsafe(32)}\n")

    def roles(self, token: str) -> frozenset[str]:
        """
        The roles of this token; none if it is not in the file.
        """
        found: frozenset[str] = frozenset()
        for known, *roles in self._lines():
            if compare_digest(known.encode(), token.encode()):
                found = frozenset(roles) or EVERY
        return found

    def _lines(self) -> list[list[str]]:
        if self._path is None:
            return []
        try:
            self._make()
            lines = self._path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        return [line.split() for line in lines if line.strip() and not line.startswith("#")]
