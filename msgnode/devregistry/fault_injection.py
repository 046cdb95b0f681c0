"""
Fault injection: errors of a registry on purpose, for tests of its clients.
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
    A fault for a share of the requests; `seconds` is the duration of `delay`.

    delay: a late answer. drop: the connection is closed. empty: 400 without a body. hang: no answer. html:
    500 with a page whose content type is JSON. redirect: 302, as from a load balancer without a client
    certificate.
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
        Parse `hang`, `delay=0.5` or `drop@0.1`. ValueError names the expected form.
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
        Answer a request with the fault.
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
