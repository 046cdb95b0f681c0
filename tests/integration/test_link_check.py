"""
The check of a link over real TLS and TCP: what it finds, and that no link is made by it.
"""

import random
import time
from typing import Any, ClassVar

from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.tcp import Client
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from msgnode.links.operations import Check, LinkStatus
from msgnode.links.operators.link_check import NAMES, LinkCheck
from msgnode.links.trust.certificates import pin_of
from tests.support.fakes import directory
from tests.support.links_nodes import LinkNode, turns, until


class LinkCheckTests(TestCase):
    """
    a.example checks b.example, which has it for a peer.
    """

    def setUp(self) -> None:
        self.directory = directory(self)
        self.a, self.b = LinkNode(self.directory, "a.example"), LinkNode(self.directory, "b.example")
        self.wall = time.time

    def run_node(self, node: LinkNode) -> None:
        node.start(chance=random.Random(1))
        self.addCleanup(lambda: Deferred.fromCoroutine(node.stop()))

    def start(self, is_trusted: bool = True, **peer: Any) -> None:
        """
        Start both nodes. A knows where B is, and does not dial it.
        """
        if is_trusted:
            self.b.trust(self.a)
        self.run_node(self.b)
        self.a.trust(self.b, **{"url": self.b.url, "link": "auto", **peer})
        self.run_node(self.a)

    def check(self, *links: LinkStatus) -> Deferred[Any]:
        made = LinkCheck("b.example", self.a.service, reactor, lambda: self.wall())
        return made.run(links)

    async def checked(self, *links: LinkStatus) -> dict[str, Check]:
        found = await self.check(*links)
        self.assertEqual(list(NAMES), [each.name for each in found])
        return {each.name: each for each in found}

    async def test_revoked_certificate(self) -> None:
        """
        The check says that the certificate of the other node is revoked.
        """
        self.start(crl=self.b.authority.revoke(self.b.cert))

        found = await self.checked()

        self.assertEqual("failed", found["certificate"].result)
        self.assertIn("was revoked by CN=Test authority", found["certificate"].text)

    async def test_all_is_well(self) -> None:
        """
        Each check is ok or skipped, B would accept the link, and the check itself makes none.
        """
        self.b.trust(self.a)
        self.run_node(self.b)
        self.a.trust(self.b, url=self.b.url, link="auto")
        self.run_node(self.a)
        await until(lambda: self.b.heard.links)
        before = list(self.b.heard.links)

        found = await self.checked(LinkStatus(domain="b.example", node=self.b.name, dialled_by="them"))
        await turns(0.1)

        self.assertEqual(
            {"dns": "ok", "tcp": "ok", "certificate": "ok", "pin": "skipped", "policy": "ok", "clock": "ok"}
            | {"outgoing": "ok", "incoming": "ok"},
            {name: each.result for name, each in found.items()},
            found,
        )
        self.assertEqual((before, []), (self.b.heard.links, self.b.heard.reasons))
        self.assertRegex(found["clock"].text, "its clock is [0-2] s")

    async def test_no_link_is_made(self) -> None:
        """
        Where there is no link before, there is none after a check at either end.
        """
        self.b.trust(self.a)
        self.run_node(self.b)
        self.a.trust(self.b)
        self.run_node(self.a)
        self.a.settings.peer[0].url = self.b.url

        found = await self.checked()
        await turns(0.1)

        self.assertEqual("ok", found["outgoing"].result, found)
        self.assertEqual(([], []), (self.a.heard.links, self.b.heard.links))
        self.assertEqual({}, self.b.table.links)
        await until(lambda: not self.b.table.connections)

    async def test_a_node_that_would_refuse(self) -> None:
        """
        The reason is that of the other node.
        """
        self.start(is_trusted=False)

        found = await self.checked()

        self.assertEqual("failed", found["outgoing"].result)
        self.assertIn("403 the domain a.example is not a peer", found["outgoing"].text)
        self.assertEqual("skipped", found["incoming"].result)

    async def test_a_certificate_that_proves_nothing(self) -> None:
        """
        No hello is said to a node whose certificate is refused; its clock is known nevertheless.
        """
        self.start(ca=self.a.authority.path)

        found = await self.checked()

        self.assertIn("no authority that is trusted for b.example", found["certificate"].text)
        self.assertEqual(
            ["failed", "skipped", "ok"], [found[name].result for name in ("certificate", "outgoing", "clock")]
        )

    async def test_a_check_leaves_no_connection(self) -> None:
        """
        When the check is over its connection is, too, also if the certificate was refused.
        """
        self.b.trust(self.a)
        self.run_node(self.b)
        self.a.trust(self.b, ca=self.a.authority.path)
        self.run_node(self.a)
        self.a.settings.peer[0].url = self.b.url

        found = await self.checked()

        readers: Any = reactor.getReaders()  # type: ignore[attr-defined]
        dialled = [each for each in readers if isinstance(each, Client)]
        self.assertEqual("failed", found["certificate"].result)
        self.assertEqual([], [each for each in dialled if each.getPeer().port == self.b.port])

    async def test_pins(self) -> None:
        """
        A key that is pinned, and one that is not.
        """
        self.start()
        pin = pin_of(self.b.service.credentials.certificate)
        for pins, results in (([pin], ("ok", "ok")), ([f"sha256:{'0' * 64}"], ("failed", "skipped"))):
            self.a.trust(self.b, url=self.b.url, ca="", pins=pins)
            self.a.reload()

            found = await self.checked()

            self.assertEqual(results, (found["pin"].result, found["certificate"].result), found)

    async def test_clocks_that_are_apart(self) -> None:
        """
        A minute is too much.
        """
        self.start()
        self.wall = lambda: time.time() - 90

        found = await self.checked()

        self.assertEqual("failed", found["clock"].result)
        self.assertRegex(found["clock"].text, "its clock is (89|90|91) s ahead of this node's")

    async def test_nobody_listens(self) -> None:
        """
        What cannot be checked without a connection is skipped.
        """
        self.a.trust(self.b, url="wss://127.0.0.1:1/link")
        self.run_node(self.a)

        found = await self.checked()

        self.assertEqual("cannot connect to 127.0.0.1:1: connection refused", found["tcp"].text)
        self.assertEqual("skipped", found["certificate"].result)

    async def test_a_host_without_an_address(self) -> None:
        """
        The DNS is the first that fails.
        """
        self.a.trust(self.b, url="wss://msg-node.b.invalid:1/link")
        self.run_node(self.a)

        found = await self.checked()

        self.assertEqual(("dns", "failed"), (found["dns"].name, found["dns"].result))
        self.assertEqual("skipped", found["tcp"].result)

    async def test_a_check_can_be_cancelled(self) -> None:
        """
        Its connection ends, also to a node that says nothing.
        """
        silent = Factory.forProtocol(Silent)
        port: Any = reactor.listenTCP(0, silent, interface="127.0.0.1")  # type: ignore[attr-defined]
        self.addCleanup(port.stopListening)
        self.a.trust(self.b)
        self.run_node(self.a)
        self.a.settings.peer[0].url = f"wss://127.0.0.1:{port.getHost().port}/link"
        check = self.check()
        await until(lambda: Silent.open)
        await turns(0.05)
        check.cancel()

        with self.assertRaises(CancelledError):
            await check
        await until(lambda: not Silent.open)


class Silent(Protocol):
    """
    A server that reads and says nothing; `open` has its connections.
    """

    open: ClassVar[set[Protocol]] = set()

    def connectionMade(self) -> None:
        self.open.add(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.open.discard(self)
