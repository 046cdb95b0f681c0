"""
The look-up of names that strangers choose, in few threads.
"""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IHostnameResolver
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from msgnode.foreign.proxy.resolver import MAX_LOOK_UPS, MAX_WAITING, OTHERS, BoundedResolver


@implementer(IHostnameResolver)
class Silent:
    """
    A resolver that answers when a test says so.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[Any, str]] = []

    def resolveHostName(self, receiver: Any, hostName: str, *rest: Any, **more: Any) -> Any:
        self.asked.append((receiver, hostName))
        receiver.resolutionBegan(self)
        return self


class Receiver:
    """
    The receiver of one look-up.
    """

    def __init__(self) -> None:
        self.addresses: list[Any] = []
        self.is_over = False

    def resolutionBegan(self, resolution: Any) -> None:
        pass

    def addressResolved(self, address: Any) -> None:
        self.addresses.append(address)

    def resolutionComplete(self) -> None:
        self.is_over = True


class BoundedResolverTests(SynchronousTestCase):
    """
    Names whose servers are silent.
    """

    def test_few_look_ups_run_at_once_and_few_wait(self) -> None:
        """
        The others have no address; each that ends lets one of those that wait run.
        """
        inner = Silent()
        resolver = BoundedResolver(inner)
        receivers = [Receiver() for _ in range(MAX_LOOK_UPS + MAX_WAITING + 1)]
        for number, receiver in enumerate(receivers):
            resolver.share(f"d{number}").resolveHostName(receiver, f"d{number}.example", 443)
        self.assertEqual(MAX_LOOK_UPS, len(inner.asked))
        self.assertEqual([True], [each.is_over for each in receivers if each.is_over])

        first, _ = inner.asked[0]
        first.addressResolved(IPv4Address("TCP", "1.1.1.1", 443))
        first.resolutionComplete()

        self.assertEqual(["1.1.1.1"], [each.host for each in receivers[0].addresses])
        self.assertEqual(f"d{MAX_LOOK_UPS}.example", inner.asked[-1][1])

    def test_an_address_does_not_wait(self) -> None:
        """
        It takes no thread for long.
        """
        inner = Silent()
        resolver = BoundedResolver(inner)
        for number in range(MAX_LOOK_UPS):
            resolver.share(f"d{number}").resolveHostName(Receiver(), f"d{number}.example", 443)
        resolver.share("x").resolveHostName(Receiver(), "127.0.0.1", 443)

        self.assertEqual("127.0.0.1", inner.asked[-1][1])

    def test_a_silent_name_server_holds_up_only_its_own_domain(self) -> None:
        """
        A listed domain has one look-up at a time, all that are not listed have two together.
        """
        inner = Silent()
        resolver = BoundedResolver(inner)
        for number, owner in enumerate((OTHERS, OTHERS, OTHERS, "b.example", "b.example", "c.example")):
            resolver.share(owner).resolveHostName(Receiver(), f"{number}.{owner}", 443)
        names = [name for _, name in inner.asked]
        inner.asked[2][0].resolutionComplete()

        self.assertEqual(["0.", "1.", "3.b.example", "5.c.example"], names)
        self.assertEqual("4.b.example", inner.asked[-1][1])
