"""
SIGHUP, and the order in which the node stops.
"""

import os
import signal
from typing import Any

import msgspec
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import check
from msgnode.config.reload import Reloading, apply_changes
from msgnode.config.schema import Config, ConfigError
from msgnode.service.lifecycle import NodeService
from msgnode.service.options import Options
from tests.support.fakes import directory
from tests.support.http_client import HTTPClient
from tests.support.network import Network
from tests.support.runtimes import TCPRuntime, WebSocketRuntime
from tests.support.websocket_case import UPGRADE


def logged(test: SynchronousTestCase) -> list[str]:
    """
    The levels and texts of what is logged from now on.
    """
    found: list[str] = []

    def observe(event: dict[str, Any]) -> None:
        if event["log_namespace"].startswith("msgnode."):
            found.append(f"{event['log_level'].name}: {event['log_format'].format(**event)}")

    globalLogPublisher.addObserver(observe)
    test.addCleanup(globalLogPublisher.removeObserver, observe)
    return found


class Renewed:
    """
    A certificate in a file; `wrong` is what is wrong with it.
    """

    wrong = ""
    used = 0

    def read(self) -> int:
        if self.wrong:
            raise ConfigError(self.wrong)
        return self.used + 1

    def use(self, options: int) -> int:
        before, self.used = self.used, options
        return before


class AdoptTests(SynchronousTestCase):
    """
    What a running node takes over.
    """

    def test_in_place(self) -> None:
        """
        Limits and times change in the very objects that everybody holds.
        """
        config = Config()
        limits, session = config.limits, config.session

        changed, waiting = apply_changes(
            config,
            check(
                {
                    "limits": {"connections_per_ip": 7},
                    "session": {"expiry_seconds": 5, "takeover": "token"},
                    "drain_seconds": 1,
                },
                "x",
            ),
        )

        self.assertEqual(
            (7, 5, "token", 1),
            (limits.connections_per_ip, session.expiry_seconds, session.takeover, config.drain_seconds),
        )
        self.assertEqual(
            ["drain_seconds", "session.expiry_seconds", "session.takeover", "limits.connections_per_ip"],
            changed,
        )
        self.assertEqual([], waiting)

    def test_what_is_built_into_the_node_stays_and_is_named(self) -> None:
        """
        What is built into the node stays, and is named.
        """
        config = Config()
        table = {
            "domain": "example.com",
            "node": "other",
            "lines": ["tcp:1"],
            "listen": [{"kind": "web", "endpoint": "tcp:2"}],
            "pools": {"a": {"scheme": "a", "addresses": ["a:1"]}},
            "state": "none",
            "traffic": "none",
            "sync": "full",
        }

        changed, waiting = apply_changes(config, check(table, "x"))

        self.assertEqual(([], sorted(table)), (changed, sorted(waiting)))
        self.assertEqual("localhost", config.domain)

    def test_each_key_that_waits_for_a_restart_is_named_whole(self) -> None:
        """
        Those of a section, and of a table of sections; a section that was added or removed, and the pools,
        are one.
        """
        before = {
            "cluster": {"members": ["a", "b"]},
            "connectors": {"idm": {"stub": "a.example"}, "qos": {"stub": "b.example"}},
            "pools": {"a": {"scheme": "a", "addresses": ["a:1"]}},
        }
        after = {
            "cluster": {"members": ["a", "c"], "user": "x"},
            "connectors": {"idm": {"stub": "c.example"}, "registry": {"stub": "d.example"}},
            "pools": {},
        }

        changed, waiting = apply_changes(msgspec.convert(before, Config), msgspec.convert(after, Config))

        connectors = ["connectors.idm.stub", "connectors.qos", "connectors.registry"]
        self.assertEqual([], changed)
        self.assertEqual(["cluster.members", "cluster.user", *connectors, "pools"], sorted(waiting))

    def test_restart_for_one_key_of_a_table(self) -> None:
        """
        The names of the admin listener change at once; where it listens takes a restart.
        """
        config = Config()

        table = {"listen": "tcp:1", "insecure": True, "hosts": ["mn"]}
        changed, waiting = apply_changes(config, check({"admin": table}, "x"))

        self.assertEqual((["admin.insecure", "admin.hosts"], ["admin.listen"]), (changed, waiting))
        self.assertEqual((None, ["mn"]), (config.admin.listen, config.admin.hosts))

    def test_the_source_of_the_policies_needs_a_restart(self) -> None:
        """
        The node has begun with another one; what else is in the table takes effect.
        """
        config = Config()

        table = {"source": "/x", "keep_versions": 3, "decision_log": "/y", "default_in": "deny"}
        changed, waiting = apply_changes(config, check({"policy": table}, "x"))

        self.assertEqual(["policy.default_in"], changed)
        self.assertEqual(["policy.decision_log", "policy.keep_versions", "policy.source"], sorted(waiting))


class ReloadTests(SynchronousTestCase):
    """
    All or nothing.
    """

    def setUp(self) -> None:
        self.path = directory(self) / "node.toml"
        self.path.write_text("")
        self.options = Options()
        self.options.parseOptions(["--config", str(self.path), "--domain", "example.org"])
        self.config = self.options.loaded
        self.certificate = Renewed()
        self.applied: list[int] = []
        self.apply: list[Any] = [lambda: self.applied.append(self.config.limits.message_bytes)]
        self.calls: list[Any] = []
        self.reloading = Reloading(
            self.config,
            self.options.read,
            [self.certificate],
            self.apply,
            self.calls.append,
        )
        self.logged = logged(self)

    def reload(self, text: str) -> None:
        self.path.write_text(text)
        self.reloading.reload()

    def test_changes(self) -> None:
        """
        What changed is told once everybody knows it.
        """
        self.reload("limits.message_bytes = 1000\nallowed_origins = ['https://a.example.org']\n")

        self.assertEqual(([1000], 1), (self.applied, self.certificate.used))
        self.assertEqual(["https://a.example.org"], self.config.allowed_origins)
        changed = "changed: allowed_origins, limits.message_bytes"
        self.assertEqual([f"info: reloaded the configuration and the files it names; {changed}"], self.logged)

    def test_what_needs_a_restart_is_named_in_one_line(self) -> None:
        """
        What needs a restart is named in one line; an option that was given still wins.
        """
        self.reload('domain = "example.com"\nnode = "x"\ntraffic = "none"\n')

        self.assertEqual("example.org", self.config.domain)
        self.assertEqual(
            ["warn: node, traffic changed too, which takes effect only after a restart"], self.logged[1:]
        )

    def test_what_reloads_have_changed_and_what_waits_for_a_restart_is_known(self) -> None:
        """
        What was changed stays so; what waits does so until the file has the old value again.
        """
        self.reload('limits.message_bytes = 1000\nnode = "x"\n')
        self.reload("limits.message_bytes = 1000\nlimits.sessions = 9\n")
        self.reload("limits.sessions = 0\n")  # a mistake

        self.assertEqual({"limits.message_bytes", "limits.sessions"}, self.reloading.changed)
        self.assertEqual(set(), self.reloading.needs_restart)

    def test_reload_of_a_bad_file_changes_nothing(self) -> None:
        """
        A mistake in the file changes nothing, and is one line.
        """
        self.reload("limits.message_bytes = 1000\nlimits.sessions = 0\n")

        self.assertEqual(
            ([], 0, 8_388_608), (self.applied, self.certificate.used, self.config.limits.message_bytes)
        )
        why = f"{self.path}: limits.sessions: expected a whole number >= 1, found 0"
        self.assertEqual([f"error: the reload failed, nothing has changed: {why}"], self.logged)

    def test_cannot_be_applied(self) -> None:
        """
        What cannot be applied is taken back, everywhere.
        """
        before = self.config.limits.message_bytes

        def fragile() -> None:
            if self.config.limits.message_bytes == 1000:
                raise RuntimeError("not with me")

        self.apply.append(fragile)
        self.reload("limits.message_bytes = 1000\n")

        self.assertEqual((before, [1000, before]), (self.config.limits.message_bytes, self.applied))
        self.assertEqual(0, self.certificate.used)
        self.assertEqual(1, len(self.flushLoggedErrors(RuntimeError)))

    def test_file_cannot_be_read(self) -> None:
        """
        Where that is for a file which the new configuration names, the operator is told so in one line.
        """

        def fragile() -> None:
            if self.config.limits.message_bytes == 1000:
                raise ConfigError("/x/secret: cannot be read: No such file or directory")

        self.apply[:] = [fragile]
        self.reload("limits.message_bytes = 1000\n")

        self.assertEqual(8_388_608, self.config.limits.message_bytes)
        why = "/x/secret: cannot be read: No such file or directory"
        self.assertEqual([f"error: the reload failed, nothing has changed: {why}"], self.logged)

    def test_an_error_shows_no_password(self) -> None:
        """
        Neither one in the file nor one of a part of the node is in the log.
        """

        def wrong() -> None:
            if self.config.limits.message_bytes == 1000:
                raise ConfigError("registry: expected a URL, found 'http://user:hush@h:port'")

        self.reload('registry.url = "http://user:hush@"\n')
        self.apply[:] = [wrong]
        self.reload("limits.message_bytes = 1000\n")

        self.assertEqual(2, len(self.logged))
        self.assertNotIn("hush", "".join(self.logged))

    def test_bad_certificate(self) -> None:
        """
        So is a certificate that cannot be used.
        """
        self.certificate.wrong = "/x/cert.pem: expected certificates in PEM"

        self.reload("limits.message_bytes = 1000\n")

        self.assertEqual(([], 8_388_608), (self.applied, self.config.limits.message_bytes))
        self.assertEqual(
            ["error: the reload failed, nothing has changed: /x/cert.pem: expected certificates in PEM"],
            self.logged,
        )

    def test_sighup_is_heard_from_start_to_stop(self) -> None:
        """
        The signal is heard from start to stop, and acted upon on the event loop.
        """
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGHUP, before)

        for starts in (["privilegedStartService", "startService"], ["startService"]):  # as some runners do
            self.calls.clear()
            for start in starts:
                getattr(self.reloading, start)()
            os.kill(os.getpid(), signal.SIGHUP)
            self.assertEqual([self.reloading.reload], self.calls)
            self.reloading.stopService()
            os.kill(os.getpid(), signal.SIGHUP)

            self.assertEqual(1, len(self.calls))


class ListenersTests(SynchronousTestCase):
    """
    New connections find the new limits.
    """

    def reload(self, net: Network, **sections: Any) -> None:
        apply_changes(net.node.config, check({"domain": "example.org", "node": "test", **sections}, "test"))
        for name in ("web", "line", "admin", "upgraded"):
            net.listener(name).apply()
        net.node.apply()

    def test_message(self) -> None:
        """
        A lower limit holds for lines at once, and for WebSockets that open from now on.
        """
        net = Network()
        old = WebSocketRuntime(net, "runtime://example.org/old").open()
        line = TCPRuntime(net, "runtime://example.org/line").open()
        self.reload(net, limits={"message_bytes": 1000})
        new = WebSocketRuntime(net, "runtime://example.org/new").open()
        update = {"id": 1, "type": "update", "from": "x", "to": line.url, "body": {"value": "x" * 1000}}

        old.send(update)
        self.assertEqual([update], line.take())
        new.send(update)
        self.assertEqual(1009, new.code)
        line.send(update)
        self.assertEqual(413, line.take()[-1]["body"]["code"])

    def test_compression(self) -> None:
        """
        Compression is switched on, and off again, for connections that open from then on.
        """
        net = Network()
        factory = net.listener("upgraded")
        offer = {**UPGRADE, "Sec_WebSocket_Extensions": "permessage-deflate"}
        found = []
        for above in (0, 100, 0):
            self.reload(net, websocket={"compress_above_bytes": above})
            response = HTTPClient(net).request("GET", "/ws", **offer)
            agreed = "permessage-deflate" in response.headers.get("Sec-WebSocket-Extensions", "")
            found.append((agreed, factory.deflateAbove))

        self.assertEqual([(False, 1024), (True, 100), (False, 100)], found)


class Slow(Service):
    """
    Stops when it is told that it has.
    """

    def __init__(self, name: str, seen: list[str]) -> None:
        self.setName(name)
        self.seen = seen
        self.stop_seconds = 0.0
        self.stopped: Deferred[None] = Deferred()
        self.stop_seconds = 0.0

    def startService(self) -> None:
        self.seen.append(f"start {self.name}")

    def stopService(self) -> Deferred[None]:
        self.seen.append(f"stop {self.name}")
        return self.stopped


class StopTests(SynchronousTestCase):
    """
    What started last stops first, one after another, within `drain_seconds`.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.whole = NodeService(Config(drain_seconds=10), self.clock)
        self.seen: list[str] = []
        self.services = [Slow(name, self.seen) for name in ("log", "store", "sessions")]
        for service in self.services:
            service.setServiceParent(self.whole)
        self.whole.startService()
        self.logged = logged(self)

    def test_services_stop_one_after_another(self) -> None:
        """
        Each one waits for the one before.
        """
        self.assertEqual(["start log", "start store", "start sessions"], self.seen)
        del self.seen[:]

        stopped = self.whole.stopService()
        for number, service in enumerate(reversed(self.services), 1):
            self.assertNoResult(stopped)
            self.assertEqual(number, len(self.seen))
            service.stopped.callback(None)

        self.successResultOf(stopped)
        self.assertEqual(["stop sessions", "stop store", "stop log"], self.seen)
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_deadline(self) -> None:
        """
        One that takes too long leaves half the time to the others, and the node ends.
        """
        stopped = self.whole.stopService()
        self.clock.advance(4.9)
        self.assertEqual("stop sessions", self.seen[-1])
        self.clock.advance(0.1)
        self.assertEqual("stop store", self.seen[-1])

        self.clock.advance(2.5)
        self.clock.advance(1.25)

        self.successResultOf(stopped)
        self.assertEqual("stop log", self.seen[-1])
        self.assertEqual(
            ["warn: Slow did not stop in time; the node no longer waits for it"] * 3, self.logged
        )

    def test_service_may_have_seconds_of_its_own(self) -> None:
        """
        A service that hands its work over when it stops has more time, and takes none from the others.
        """
        self.services[2].stop_seconds = 30.0
        stopped = self.whole.stopService()
        self.clock.advance(29)
        self.assertEqual("stop sessions", self.seen[-1])
        self.services[2].stopped.callback(None)
        self.assertEqual("stop store", self.seen[-1])

        self.clock.advance(5.4)
        self.assertEqual("stop store", self.seen[-1])
        self.clock.advance(0.2)
        self.assertEqual("stop log", self.seen[-1])
        self.clock.advance(3)
        self.successResultOf(stopped)

    def test_second_signal_leaves_one_second(self) -> None:
        """
        A node that is told again to stop waits no longer for what is under way; what is left may take a
        second.
        """
        stopped = self.whole.stopService()
        self.clock.advance(1)

        self.whole.hurry()
        self.whole.hurry()

        self.assertEqual("stop store", self.seen[-1])
        self.clock.advance(0.5)
        self.clock.advance(0.25)
        self.successResultOf(stopped)
        self.assertEqual("stop log", self.seen[-1])

    def test_service_that_fails_to_stop_keeps_no_other(self) -> None:
        """
        One that fails to stop does not keep the others from it.
        """
        stopped = self.whole.stopService()
        self.services[2].stopped.errback(OSError("disk"))
        self.services[1].stopped.callback(None)
        self.services[0].stopped.callback(None)

        self.successResultOf(stopped)
        self.assertEqual(1, len(self.flushLoggedErrors(OSError)))


class OptionsTests(SynchronousTestCase):
    """
    The options of state.
    """

    def test_state_and_sync_options_win_over_the_file(self) -> None:
        """
        `--state` and `--sync` win over the file.
        """
        options = Options()
        options.parseOptions(["--state", "/x", "--sync", "full"])

        self.assertEqual(("/x", "full"), (options.loaded.state, options.loaded.sync))
