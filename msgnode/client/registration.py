"""
The registration of a hyperty in the domain registry: create, refresh, and end.

The messages are those that runtimes send to `domain://registry.<domain>`.
"""

from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.client.errors import ClientError, Refused
from msgnode.client.message import Message, Requester

log = Logger()

EXPIRES_SECONDS = 3600  # seconds until an entry expires unless it is refreshed; a registry allows no more
GONE = 404
UNAVAILABLE = 408  # the entry is there, but disconnected


def registry(domain: str) -> str:
    return f"domain://registry.{domain}"


class Registration:
    """
    The registry entry of one hyperty; `url` is its address.
    """

    def __init__(self, client: Requester, url: str, entry: dict[str, Any]) -> None:
        self.url = url
        self._client = client
        self._entry = entry
        self._again: IDelayedCall | None = None

    def begin(self) -> Deferred["Registration"]:
        """
        Register the hyperty; fires when the registry has the entry.
        """
        return self._ask("create", {"value": self._entry}).addCallback(self._wait)

    def end(self) -> Deferred[Message]:
        """
        Set the status of the hyperty to disconnected.
        """
        self.stop()
        body = {"resource": f"/hyperty/{self.url}", "value": "disconnected", "attribute": "status"}
        return self._ask("update", body)

    def stop(self) -> None:
        """
        Stop refreshing the entry, so that it expires.
        """
        if self._again is not None and self._again.active():
            self._again.cancel()

    def _wait(self, reply: Message) -> "Registration":
        # A little more than twice before the entry expires.
        lives = min(self._entry["expires"], EXPIRES_SECONDS)
        self._again = self._client.reactor.callLater(lives / 2.2, self._refresh)
        return self

    def _refresh(self) -> None:
        body = {"resource": self.url, "value": {"status": "live"}, "method": "refresh"}
        refreshed = self._ask("update", body).addCallback(self._wait)
        refreshed.addErrback(self._register_again).addErrback(self._give_up)

    def _register_again(self, why: Failure) -> Deferred["Registration"] | Failure:
        if isinstance(why.value, Refused) and why.value.code == GONE:
            return self.begin()
        return why

    def _give_up(self, why: Failure) -> None:
        """
        Log the failure, and try again later: the registry may be available again.
        """
        why.trap(ClientError)
        log.warn("{url} could not be kept registered: {why}", url=self.url, why=why.getErrorMessage())
        if self._client.stopped is None:
            self._wait(Message({}, self._client))

    def _ask(self, type_: str, body: dict[str, Any]) -> Deferred[Message]:
        client = self._client
        return client.request(registry(client.domain), body, type=type_, from_=f"{client.runtime}/registry/")


def entry(
    url: str,
    runtime: str,
    user: str,
    descriptor: str,
    resources: Iterable[str],
    schemes: Iterable[str],
    expires: int,
) -> dict[str, Any]:
    """
    Returns the registry entry of a hyperty.
    """
    if expires < 1:
        raise ValueError(f"'expires' must be 1 to {EXPIRES_SECONDS} seconds, not {expires!r}")
    return {
        "user": user,
        "url": url,
        "descriptor": descriptor,
        "expires": expires,
        "resources": list(resources),
        "dataSchemes": list(schemes),
        "runtime": runtime,
        "status": "live",
    }


def question(what: str, resources: Iterable[str], schemes: Iterable[str]) -> dict[str, Any]:
    """
    Returns the body of a lookup; `what` is a URL of any kind, or an e-mail address.
    """
    resource = what if "://" in what or what.startswith("/") else f"/hyperty/idp-identifier/{what}"
    criteria = {"resources": list(resources), "dataSchemes": list(schemes)}
    wanted = {name: values for name, values in criteria.items() if values}
    return {"resource": resource, "criteria": wanted} if wanted else {"resource": resource}
