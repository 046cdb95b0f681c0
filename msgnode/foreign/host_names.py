"""
Which foreign domain an address belongs to, as far as stubs lead there.
"""

from collections.abc import Callable

from msgnode.config.foreign import domain_name
from msgnode.config.schema import Config
from msgnode.policy.decision.addresses import domain, split

_THIS_NODE = ("mn:", "global:")


class HostNames:
    """
    The lookup of the domain of an address: this node's own, one that is linked, or a foreign one with a stub.

    `linked` returns the domain over links that decides about an address; "" if there is none.
    """

    def __init__(self, config: Config, linked: Callable[[str], str]) -> None:
        self.own = config.domain.casefold()
        self._config = config
        self._options = config.foreign
        self._linked = linked
        self._listed: frozenset[str] = frozenset()
        self.apply()

    def apply(self) -> None:
        """
        Applies a changed configuration. The stub of a connector leads to no domain.
        """
        listed = {stub.domain for stub in self._options.stub} if self._options.accept != "none" else set()
        self._listed = frozenset(listed - {each.stub for each in self._config.connectors.values()})

    def is_listed(self, name: str) -> bool:
        return name in self._listed

    def home(self, address: str) -> str:
        """
        The domain: this node's own, or a foreign one that a stub may lead to; "" for all others.
        """
        if address.startswith(_THIS_NODE):
            return self.own
        scheme, host = split(address)
        if not host or self._linked(address) not in ("", self.own):
            return ""
        parent = host.partition(".")[2] if scheme == "domain" else ""
        for name in (host, parent):  # of a service, its domain
            if name in self._listed:
                return name
        if host == self.own or host.endswith(f".{self.own}"):
            return self.own
        name = domain(host) if scheme == "domain" else host
        return name if self._options.accept == "any" and is_public_name(name) else ""


def is_public_name(name: str) -> bool:
    """
    Can it be the name of a domain on the Internet, and not an IP address?
    """
    last = name.rpartition(".")[2]
    return "." in name and domain_name(name) and not last.isdigit()
