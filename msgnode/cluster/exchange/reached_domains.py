"""
The domains that members reach over links: each member tells the others those that it reaches itself.

They are in the directory as addresses of a kind that no client can have, so that a lookup is one dict access.
"""

from collections.abc import Callable, Iterable

from msgnode.cluster.directory_view import MemberDirectory

_KEY = "mn:/reached/"


def is_reached_domain(address: str) -> bool:
    """
    Is it what the directory has for a domain that a member reaches?
    """
    return address.startswith(_KEY)


class ReachedDomains:
    """
    The lookup of the member that is the gateway to a domain. `has_route`: is there a link to the member?
    """

    def __init__(self, directory: MemberDirectory, has_route: Callable[[str], bool]) -> None:
        self._directory = directory
        self._has_route = has_route
        self._told: set[str] = set()

    def tell(self, domains: Iterable[str]) -> None:
        """
        Tells the other members what this one reaches now.
        """
        now = set(domains)
        for domain in now - self._told:
            self._directory.bound(_KEY + domain)
        for domain in self._told - now:
            self._directory.unbound(_KEY + domain)
        self._told = now

    def is_reached(self, domain: str) -> bool:
        """
        Does another member reach the domain?
        """
        return bool(self._directory.shared(_KEY + domain))

    def gateway(self, domain: str) -> str:
        """
        The member that reaches the domain, one with a link if there is one; "" if there is none.
        """
        found = self._directory.shared(_KEY + domain)
        up = (node for node in found if self._has_route(node) and not self._directory.is_suspected(node))
        return next(up, found[0] if found else "")
