"""
The wire of `--verbose`: each message that the client sends and receives, on stderr.
"""

import re
from collections.abc import Callable
from typing import Any

from msgnode.cli.messaging.text import escaped
from msgnode.client.endpoint import Endpoint
from msgnode.client.transports import Link, Owner
from msgnode.protocol.address import SESSION
from msgnode.protocol.close_codes import Closing
from msgnode.protocol.token_redaction import loggable

MAX_SHOWN = 4096  # characters of a message
# An identity token may have any form; it is only in messages to the session service.
_IDENTITY = re.compile(r'("token"\s*:\s*")(?:[^"\\]|\\.)*"')


def observed(endpoint: Endpoint, show: Callable[[str], None]) -> Endpoint:
    """
    Returns the endpoint with links that call `show` with a line for each message and event.
    """
    return endpoint._replace(factory=lambda owner: endpoint.factory(_ObservingOwner(owner, show)))


def shown(data: bytes) -> str:
    """
    Returns a message as one line without control characters and without tokens.
    """
    text = escaped(loggable(data.decode("utf-8", "replace")))
    if SESSION in text:
        text = _IDENTITY.sub(r'\1***"', text)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({len(data):,} bytes)"


class _ObservingLink:
    """
    A link that shows what is sent.
    """

    def __init__(self, link: Link, show: Callable[[str], None]) -> None:
        self._link = link
        self._show = show
        self.speaks = link.speaks
        self.pings = link.pings

    @property
    def silent(self) -> bool:
        return self._link.silent

    @silent.setter
    def silent(self, is_silent: bool) -> None:
        self._link.silent = is_silent

    def send(self, data: bytes) -> None:
        self._show(f"-> {shown(data)}")
        self._link.send(data)

    def leave(self) -> None:
        self._link.leave()

    def abort(self) -> None:
        self._link.abort()


class _ObservingOwner:
    """
    The owner of a link, which shows what arrives.
    """

    def __init__(self, owner: Owner, show: Callable[[str], None]) -> None:
        self._owner = owner
        self._show = show
        self._links: dict[Any, _ObservingLink] = {}

    def arrived(self, link: Link) -> None:
        self._show(f"-- connected by {link.speaks}")
        self._owner.arrived(self._links.setdefault(link, _ObservingLink(link, self._show)))

    def heard(self, data: bytes) -> None:
        self._show(f"<- {shown(data)}")
        self._owner.heard(data)

    def lost(self, link: Link, why: Closing | None, text: str) -> None:
        code = "" if why is None else f"{why.code} "
        self._show(f"-- disconnected: {code}{escaped(why.reason if why else text)}")
        self._owner.lost(self._links.pop(link, _ObservingLink(link, self._show)), why, text)
