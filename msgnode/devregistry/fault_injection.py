"""
Faults on purpose: how a registry behaves on a bad day, for tests of what calls it.
"""

import random
import re
from collections.abc import Callable
from typing import Any

from twisted.web.server import NOT_DONE_YET

from msgnode.devregistry.domain_api import BROKEN

KINDS = ("delay", "drop", "empty", "hang", "html", "redirect")
_FORM = re.compile(rf"({'|'.join(KINDS)})(?:=([\d.]+))?(?:@([\d.]+))?")


class Fault:
    """
    A fault on purpose.

    `kind` of fault, which befalls a share of the requests; `seconds` is for `delay`.

    delay: answer late.  drop: close the connection.  empty: 400 without a body.
    hang: never answer.  html: 500 with a page that says it is JSON.  redirect:
    302, as a balancer answers who shows no certificate.
    """

    def __init__(
        self, kind: str, seconds: float = 1.0, share: float = 1.0, chance: Callable[[], float] = random.random
    ) -> None:
        self.kind = kind
        self.seconds = seconds
        self._share = share
        self._chance = chance

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """
        `hang`, `delay=0.5`, `drop@0.1`.  ValueError says what is expected.
        """
        match = _FORM.fullmatch(text)
        if not match:
            kinds = ", ".join(KINDS)
            raise ValueError(f"expected KIND[=SECONDS][@SHARE] with a kind of {kinds}, found {text!r}")
        return cls(match[1], float(match[2] or 1), float(match[3] or 1))

    def befalls(self) -> bool:
        return self._share >= 1 or self._chance() < self._share

    def spoil(self, request: Any) -> Any:
        """
        Answer a request badly, or not at all.
        """
        if self.kind == "drop":
            request.transport.abortConnection()
            return NOT_DONE_YET
        if self.kind == "hang":
            return NOT_DONE_YET
        request.setHeader(b"Content-Type", b"application/json")
        if self.kind == "redirect":
            request.setResponseCode(302)
            request.setHeader(b"Location", b"/error")
            return b""
        request.setResponseCode(400 if self.kind == "empty" else 500)
        return b"" if self.kind == "empty" else BROKEN.body
