"""
The guard of addresses: what the node connects to for a foreign domain.
"""

from ipaddress import ip_address

from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from msgnode.foreign.proxy.guard import (
    HEAD_BYTES,
    RESOLVE_SECONDS,
    AddressGuard,
    NotPermitted,
    bounded,
    is_public,
    split_port,
)
from tests.support.stub_processes import Names

PRIVATE = [
    "127.0.0.1",
    "127.9.9.9",
    "10.1.2.3",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "0.1.2.3",
    "224.0.0.1",
    "239.1.1.1",
    "255.255.255.255",
    "240.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "192.0.0.8",
    "::",
    "::1",
    "fe80::1",
    "fec0::1",
    "fc00::1",
    "fd12:3456::1",
    "ff02::1",
    "2001:db8::1",
    "100::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "::ffff:0:127.0.0.1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
]
PUBLIC = [
    "93.184.215.14",
    "1.1.1.1",
    "2606:4700::1111",
    "64:ff9b::101:101",
    "::ffff:1.1.1.1",
    "2002:101:101::1",
]


class AddressGuardTests(SynchronousTestCase):
    """
    A guard before a resolver whose answers are known.
    """

    def guard(self, *answers: list[str] | None, listed: tuple[str, ...] = ()) -> AddressGuard:
        self.clock = MemoryReactorClock()
        return AddressGuard(Names(*answers), self.clock, listed)

    def test_only_unicast_addresses_of_the_internet_are_public(self) -> None:
        """
        Loopback, private, link-local, shared, multicast, reserved and documentation addresses are not, nor
        their IPv6 forms.
        """
        self.assertEqual([], [text for text in PRIVATE if is_public(ip_address(text))])
        self.assertEqual([], [text for text in PUBLIC if not is_public(ip_address(text))])

    def test_a_name_with_one_private_address_is_refused(self) -> None:
        """
        The public address next to it does not help.
        """
        guard = self.guard(["1.1.1.1", "10.0.0.5"])

        why = self.failureResultOf(guard.check("b.example", 443), NotPermitted)

        self.assertIn("b.example:443 has the address 10.0.0.5", why.getErrorMessage())

    def test_what_the_operator_lists_is_permitted(self) -> None:
        """
        A network, an address, a name; with a port only for that port.
        """
        listed = ("127.0.0.1", "10.1.0.0/16:8443", "node.internal:443", "[fd00::1]:443")
        for host, address, port, permitted in (
            ("localhost", "127.0.0.1", 1, True),
            ("a", "127.0.0.2", 1, False),
            ("a", "10.1.9.9", 8443, True),
            ("a", "10.1.9.9", 443, False),
            ("NODE.internal", "192.168.0.7", 443, True),
            ("node.internal", "192.168.0.7", 80, False),
            ("a", "fd00::1", 443, True),
            ("a", "fd00::2", 443, False),
        ):
            checked = self.guard([address], listed=listed).check(host, port)
            if permitted:
                self.assertEqual([address], self.successResultOf(checked))
            else:
                self.failureResultOf(checked, NotPermitted)

    def test_a_name_without_an_address_is_a_lookup_error(self) -> None:
        """
        So is a resolver that does not answer.
        """
        guard = self.guard([], None)

        self.failureResultOf(guard.check("b.example", 443), DNSLookupError)
        slow = guard.check("b.example", 443)
        self.clock.advance(RESOLVE_SECONDS)

        self.failureResultOf(slow, DNSLookupError)
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_connects_to_the_address_that_was_checked(self) -> None:
        """
        The name is resolved once: a second answer, of a rebinding name server, is never asked for.
        """
        guard = self.guard(["1.1.1.1"], ["127.0.0.1"])

        guard.endpoint("rebind.example", 443).connect(Factory.forProtocol(Protocol))

        self.assertEqual([("1.1.1.1", 443)], [call[:2] for call in self.clock.tcpClients])

    def test_connects_to_the_next_address_if_one_fails(self) -> None:
        """
        The failure of the last is that of the connection.
        """
        guard = self.guard(["1.1.1.1", "1.0.0.1"])
        connecting = guard.endpoint("b.example", 443).connect(Factory.forProtocol(Protocol))

        for number in (0, 1):
            factory = self.clock.tcpClients[number][2]
            factory.clientConnectionFailed(None, _refusal(number))

        self.assertIn("refused 1", self.failureResultOf(connecting).getErrorMessage())

    def test_no_connection_is_tried_to_a_refused_name(self) -> None:
        """
        The endpoint fails before it connects.
        """
        guard = self.guard(["169.254.169.254"])

        connecting = guard.endpoint("metadata.example", 80).connect(Factory.forProtocol(Protocol))

        self.failureResultOf(connecting, NotPermitted)
        self.assertEqual([], self.clock.tcpClients)

    def test_hosts_are_split_from_ports(self) -> None:
        """
        IPv6 addresses have a port only with brackets.
        """
        for text, host, port in (
            ("B.example:443", "b.example", 443),
            ("b.example", "b.example", 0),
            ("[FD00::1]:80", "fd00::1", 80),
            ("[fd00::1]", "fd00::1", 0),
            ("fd00::1", "fd00::1", 0),
            ("10.0.0.0/8:80", "10.0.0.0/8", 80),
        ):
            self.assertEqual((host, port), split_port(text))


def _refusal(number: int) -> Failure:
    return Failure(ConnectError(string=f"refused {number}"))

    def test_a_listed_name_may_be_private_but_not_this_machine(self) -> None:
        """
        The owner of a public name that is listed could lead it to loopback, or to a cloud's metadata.
        """
        for text in ("127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "0.0.0.0"):
            guard = self.guard([text], listed=("mn.c.example:443",))
            self.failureResultOf(guard.check("mn.c.example", 443), NotPermitted)
        for text in ("10.1.2.3", "fd00::1"):
            guard = self.guard([text], listed=("mn.c.example:443",))
            self.assertEqual([text], self.successResultOf(guard.check("mn.c.example", 443)))
        guard = self.guard(["127.0.0.1"], listed=("mn.c.example:443", "127.0.0.1:443"))
        self.assertEqual(["127.0.0.1"], self.successResultOf(guard.check("mn.c.example", 443)))

    def test_public_addresses_of_this_machine_are_refused(self) -> None:
        """
        More may be open to this machine itself than to others, as the admin listener behind a firewall.
        """
        for name, listed in (("b.example", ()), ("mn.c.example", ("mn.c.example:443",))):
            guard = AddressGuard(Names(["1.1.1.1"]), MemoryReactorClock(), listed, lambda address: True)

            why = self.failureResultOf(guard.check(name, 443), NotPermitted)
            self.assertIn("1.1.1.1, which is this machine's and not listed", str(why.value))
        guard = AddressGuard(Names(["1.1.1.1"]), MemoryReactorClock(), ("1.1.1.1",), lambda address: True)
        self.assertEqual(["1.1.1.1"], self.successResultOf(guard.check("b.example", 443)))

    def test_a_connection_ends_after_so_many_bytes(self) -> None:
        """
        Headers of HTTP have no end of their own.
        """
        reactor = MemoryReactorClock()
        dial = bounded(AddressGuard(Names(), reactor).endpoint, 1000)
        made = dial("1.1.1.1", 80).connect(Factory.forProtocol(_Kept))
        transport = StringTransport()
        outer = reactor.tcpClients[0][2].buildProtocol(None)
        outer.makeConnection(transport)
        inner = self.successResultOf(made)
        for _ in range(30):
            outer.dataReceived(b"x" * 10_000)

        self.assertTrue(transport.disconnected or transport.disconnecting)
        self.assertLessEqual(inner.came, 1125 + HEAD_BYTES)


class _Kept(Protocol):
    """
    A protocol that counts what comes.
    """

    came = 0

    def dataReceived(self, data: bytes) -> None:
        self.came += len(data)
