"""
The service of links: what a configuration starts, and what a reload changes.
"""

from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import check
from msgnode.config.schema import Config, ConfigError
from msgnode.links.carrier.service import make_link_service
from msgnode.links.trust.certificates import UntrustedCertificate
from tests.support.authority import Authority
from tests.support.fakes import directory
from tests.support.links_carrier import RecordingListener


class LinkServiceTests(SynchronousTestCase):
    """
    A node of a.example in a reactor in memory.
    """

    def setUp(self) -> None:
        self.directory = directory(self)
        self.authority = Authority(self.directory)
        self.cert = self.authority.issue("msg-node.a.example")
        self.reactor = MemoryReactorClock()

    def config(self, *peers: dict[str, Any], **own: Any) -> Config:
        federation = {"listen": "tcp:9093", "cert": self.cert, **own}
        return check({"domain": "a.example", "node": "a1", "federation": federation, "peer": [*peers]}, "x")

    def started(self, *peers: dict[str, Any], **own: Any) -> Any:
        self.settings = self.config(*peers, **own)
        service = make_link_service(self.settings, RecordingListener(), 1, self.reactor)
        assert service is not None
        service.startService()
        self.addCleanup(service.stopService)
        return service

    def peer(self, domain: str = "b.example", **more: Any) -> dict[str, Any]:
        return {"domain": domain, "url": f"wss://msg-node.{domain}:7/link", **more}

    def dialled(self) -> list[int]:
        return [client[1] for client in self.reactor.tcpClients]

    def test_nothing_without_configuration(self) -> None:
        """
        Without a listener for nodes and without peers there is no service.
        """
        self.assertIsNone(make_link_service(Config(), RecordingListener(), 1, self.reactor))

    def test_unusable_files(self) -> None:
        """
        A certificate that cannot be read is an error of the configuration.
        """
        with self.assertRaises(ConfigError):
            make_link_service(self.config(cert="/nowhere.pem"), RecordingListener(), 1, self.reactor)

    def test_dials_the_peers_that_are_to_be_dialled(self) -> None:
        """
        Peers with a URL are dialled at their host and port; with "none" no domain is.
        """
        others = ({"domain": "c.example"}, {"domain": "d.example", "link": "none"})

        self.started(self.peer(), *others)
        self.assertEqual([7], self.dialled())

        self.started(self.peer(), accept="none")
        self.assertEqual([7], self.dialled())

    def reload(self, service: Any, *peers: dict[str, Any], **own: Any) -> None:
        fresh = self.config(*peers, **own)
        self.settings.peer, self.settings.federation = fresh.peer, fresh.federation
        service.apply()

    def test_reload_adds_and_removes_peers(self) -> None:
        """
        After a reload new peers are dialled, removed ones no longer, and moved ones at their new place.
        """
        service = self.started(self.peer(), self.peer("c.example"))

        self.reload(service, self.peer("c.example", url="wss://c.example:8/link"), self.peer("d.example"))

        self.assertEqual({"c.example", "d.example"}, set(service.dialers))
        self.assertEqual([7, 7, 8, 7], self.dialled())

    def test_reload_with_unusable_file_changes_nothing(self) -> None:
        """
        A reload whose files cannot be read raises, and leaves trust and credentials as they were.
        """
        service = self.started(self.peer())
        before = service.credentials
        with self.assertRaises(ConfigError):
            self.reload(service, self.peer(ca="/nowhere.pem"))
        with self.assertRaises(ConfigError):
            self.reload(service, cert="/nowhere.pem")

        self.assertIs(before, service.credentials)
        self.assertIn("that can be read", self.refusal(service, "b.example"))

    def test_a_reload_with_other_files_is_no_renewal(self) -> None:
        """
        The watch takes the files of an added peer as they are; it finds what is renewed after that.
        """
        service = self.started(self.peer())
        applied: list[None] = []
        service.trust_changed = lambda: applied.append(None)
        self.reload(service, self.peer(ca=self.authority.path))
        before = len(applied)
        service.look_at_files()
        meanwhile = len(applied)
        Authority(self.directory)  # another one, in the same file
        service.look_at_files()

        self.assertEqual((1, 1, 2), (before, meanwhile, len(applied)))

    def test_trust_is_for_advertisements_too(self) -> None:
        """
        The same trust is there for the advertisements of the overlay, and follows a reload.
        """
        service = self.started(self.peer())
        told: list[int] = []
        service.trust_changed = lambda: told.append(1)
        self.assertIn("not a peer", self.refusal(service, "c.example"))

        self.reload(service, self.peer(), self.peer("c.example"))

        self.assertIn("that can be read", self.refusal(service, "c.example"))
        self.assertEqual([1], told)

    def refusal(self, service: Any, domain: str) -> str:
        with self.assertRaises(UntrustedCertificate) as raised:
            service.anchors.verify(domain, [b"x"])
        return str(raised.exception)

    def test_domains_that_are_not_configured(self) -> None:
        """
        With "open" any other domain can be dialled, once; otherwise none.
        """
        service = self.started()
        service.dial("z.example")
        self.assertEqual({}, service.dialers)

        self.reload(service, accept="open")
        for _ in range(2):
            service.dial("z.example")
        service.dial("a.example")

        self.assertEqual({"z.example"}, set(service.dialers))
