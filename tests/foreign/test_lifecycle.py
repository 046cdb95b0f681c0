"""
The lifecycle of a stub: fetched, started, live, restarted, replaced by a new version, stopped.
"""

from typing import Any

from twisted.internet.defer import Deferred

from msgnode.foreign.fetch.stub_code import Unusable
from msgnode.foreign.lifecycle.stub_host import StubEvents, StubStart
from tests.support.fakes import directory
from tests.support.foreign_case import B, ForeignCase, MemoryStub, stub_code


class StartTests(ForeignCase):
    """
    From the first message to a live stub.
    """

    def test_states(self) -> None:
        """
        The registry shows each state, with version, digest, source and hosts.
        """
        self.fetcher.waiting = Deferred()
        self.send()
        states = [self.state()]
        self.fetcher.waiting.callback(stub_code())
        states.append(self.state())
        for value in ("created", "in-progress", "live", "disconnected", "live"):
            self.hosts.last.events.status(value, "")
            states.append(self.state())

        expected = ["downloading", "verified", "created", "in-progress", "live", "disconnected", "live"]
        self.assertEqual(expected, states)
        entry = self.entry()
        self.assertEqual(("1", stub_code().digest), (entry["version"], entry["digest"]))
        self.assertEqual(["msg-node.b.example:443"], entry["hosts"])

    def test_names(self) -> None:
        """
        The stub has an address of its own, and this node a name there that stays over restarts.
        """
        self.live().end()
        self.send()
        self.node.clock.advance(1)
        first, second = (stub.start for stub in self.hosts.stubs)

        self.assertEqual("runtime://a.example/test.1.b.example", first.runtime_url)
        self.assertEqual(first.runtime_url, second.runtime_url)
        self.assertNotEqual(first.url, second.url)
        self.assertTrue(first.url.startswith("runtime://a.example/protostub/"))

    def test_domain_without_a_stub(self) -> None:
        """
        A domain that publishes no stub is refused at once, and fetched again after a minute.
        """
        self.fetcher.codes.clear()
        self.send()
        self.send()
        answers = self.ann.take()

        self.assertEqual([(502, "no-path")] * 2, [(m["body"]["code"], m["body"]["reason"]) for m in answers])
        self.assertEqual(("absent", 1), (self.state(), len(self.fetcher.fetched)))
        self.node.clock.advance(61)
        self.send()
        self.assertEqual(2, len(self.fetcher.fetched))

    def test_one_fetch_for_many_messages(self) -> None:
        """
        What is sent while the stub is fetched waits for the same fetch.
        """
        self.fetcher.waiting = Deferred()
        for id in range(5):
            self.send(id=id)

        self.assertEqual([B], self.fetcher.fetched)
        self.fetcher.waiting.callback(stub_code())
        self.assertEqual([0, 1, 2, 3, 4], [m["id"] for m in self.hosts.last.live().take()])

    def test_failed_fetch_is_told_to_all_that_wait(self) -> None:
        """
        All senders that wait are told that no stub leads there.
        """
        self.fetcher.waiting = Deferred()
        self.send(receipt=True)
        self.ann.take()
        self.fetcher.waiting.errback(Unusable("https://b.example: silent"))

        self.assertEqual([502, 502], [m["body"]["code"] for m in self.ann.take()])

    def test_fetches_are_bounded(self) -> None:
        """
        No more than `fetches_per_minute` domains are fetched in a minute.
        """
        self.make(accept="any", stub=[], fetches_per_minute=2)
        for name in "cdef":
            self.send(to=f"hyperty://{name}.example/h")

        self.assertEqual(["c.example", "d.example"], self.fetcher.fetched)
        self.node.clock.advance(61)
        self.send(to="hyperty://e.example/h")
        self.assertEqual(3, len(self.fetcher.fetched))

    def test_stubs_are_bounded(self) -> None:
        """
        No more than `max_stubs` run; a message for another domain is refused with 503.
        """
        self.make(accept="any", stub=[], max_stubs=1)
        self.fetcher.codes["c.example"] = stub_code("c.example")
        self.send()
        self.send(to="hyperty://c.example/h", id=8)

        [refused] = self.ann.take()
        self.assertEqual(
            (8, 503, "limit"), (refused["id"], refused["body"]["code"], refused["body"]["reason"])
        )

    def test_domains_that_clients_name_do_not_hold_up_a_listed_one(self) -> None:
        """
        Neither its fetch nor its start: places are kept free for those that are listed.
        """
        self.make(accept="any", fetches_per_minute=2, max_stubs=2)
        for name in "cdef":
            self.fetcher.codes[f"{name}.example"] = stub_code(f"{name}.example")
            self.send(to=f"hyperty://{name}.example/h")
        self.assertEqual(["c.example"], [stub.start.domain for stub in self.hosts.stubs])

        self.send()

        self.assertEqual(B, self.hosts.last.start.domain)

    def test_domains_are_bounded(self) -> None:
        """
        Of the domains that were asked for, the registry keeps `max_domains`.
        """
        self.make(accept="any", stub=[], max_domains=3, fetches_per_minute=0)
        for number in range(10):
            self.send(to=f"hyperty://d{number}.example/h")

        self.assertEqual(3, len(self.stubs.to_builtins()))

    def test_digest_is_pinned(self) -> None:
        """
        Code with another digest than the pinned one is not run.
        """
        self.make(stub=[{"domain": B, "digest": "sha256:" + "0" * 64}])
        self.send()

        self.assertEqual([], self.hosts.stubs)
        self.assertIn("which is not the pinned one", self.entry()["last_error"])
        self.make(stub=[{"domain": B, "digest": f"sha256:{stub_code().digest}"}])
        self.send()
        self.assertEqual(1, len(self.hosts.stubs))

    def test_unusable_stubs(self) -> None:
        """
        Malformed descriptors and code that is too large are told in the registry.
        """
        for made in (
            stub_code(code=""),
            stub_code(code="x" * 3_000_000),
            stub_code(configuration="{"),
            stub_code(configuration=5),
        ):
            self.make()
            self.fetcher.codes[B] = made
            self.send()
            self.assertEqual("absent", self.state())
            self.assertTrue(self.entry()["last_error"])

    def test_hosts(self) -> None:
        """
        A stub may connect to the hosts of its descriptor within its domain, and to those that are listed.
        """
        self.make(stub=[{"domain": B, "hosts": ["10.0.0.1:99"]}], hosts=["10.0.0.2:98"])
        more = [
            "https://sub.b.example:8443/x",
            "https://evil.example/",
            "http://b.example:25/",
            "wss://notb.example",
        ]
        urls = {"url": f"wss://{B}/ws", "more": more}
        self.fetcher.codes[B] = stub_code(configuration=urls)
        self.send()

        expected = ("10.0.0.2:98", "10.0.0.1:99", "b.example:443", "sub.b.example:8443")
        self.assertEqual(expected, self.hosts.last.start.hosts)


class EndTests(ForeignCase):
    """
    What ends, and what comes back.
    """

    def test_stub_that_is_not_live_in_time_is_ended(self) -> None:
        """
        A stub that says nothing for `live_seconds` is ended and started again.
        """
        self.make(live_seconds=10)
        self.send(type="update", to=f"comm://{B}/o/changes")
        self.node.clock.advance(10)

        self.assertTrue(self.hosts.last.is_stopped)
        self.assertIn("not live after 10 seconds", self.entry()["last_error"])
        self.node.clock.advance(1)
        self.assertEqual(2, len(self.hosts.stubs))

    def test_restarts_with_a_growing_pause_and_then_fails(self) -> None:
        """
        A stub that dies is started again after 0.5, 1, 2, ... seconds; after `restarts` it has failed.
        """
        self.make(restarts=3, max_wait_seconds=900)
        self.send(type="update", to=f"comm://{B}/o/changes", receipt=True)
        starts = []
        for _ in range(100):
            if len(self.hosts.stubs) > len(starts):
                starts.append(self.node.clock.seconds())
                self.hosts.last.end()
            self.node.clock.advance(0.5)

        self.assertEqual([0, 1, 3, 7], starts)
        self.assertEqual("failed", self.state())
        self.assertEqual(502, self.ann.take()[-1]["body"]["code"])
        self.send(id=9)
        self.assertEqual([(9, 502)], [(m["id"], m["body"]["code"]) for m in self.ann.take()])

    def test_failed_stub_is_tried_again(self) -> None:
        """
        After `failed_seconds` the next message starts it again; so does an operator at once.
        """
        self.make(restarts=1, failed_seconds=100)
        self.send(type="update", to=f"comm://{B}/o/changes")
        for _ in range(2):
            self.hosts.last.end()
            self.node.clock.advance(2)
        self.assertEqual("failed", self.state())

        self.node.clock.advance(100)
        self.send()
        self.assertEqual(3, len(self.hosts.stubs))
        self.stubs.act(B, "restart")
        self.assertEqual(4, len(self.hosts.stubs))

    def test_failed_stub_with_observers_is_tried_again_without_a_message(self) -> None:
        """
        Clients that only listen would hear nothing for ever. The same if it could not be fetched again.
        """
        self.make(restarts=1, failed_seconds=100, idle_seconds=0)
        self.send(
            type="subscribe",
            to="domain://msg-node.a.example/sm",
            body={"resources": [f"comm://{B}/o/changes"]},
        )
        for _ in range(2):
            self.hosts.last.live().end()
            self.node.clock.advance(1)
        self.assertEqual("failed", self.state())

        self.node.clock.pump([10] * 10)

        self.assertEqual(3, len(self.hosts.stubs))
        [again] = self.hosts.last.live().posted
        self.assertEqual([f"comm://{B}/o/changes"], again["body"]["resources"])

    def test_stub_that_cannot_be_started(self) -> None:
        """
        A process that the system refuses counts as one that ended.
        """

        def refuse(start: StubStart, events: StubEvents) -> MemoryStub:
            raise OSError("no more processes")

        self.hosts.makes = refuse
        self.send()
        self.flushLoggedErrors(OSError)

        self.assertEqual("disconnected", self.state())
        self.assertIn("no more processes", self.entry()["last_error"])

    def test_what_waits_survives_a_crash(self) -> None:
        """
        A message that the dead stub has not taken is sent by the next one.
        """
        stub = self.live()
        stub.room = 0
        self.send(id=9)
        stub.end()
        self.node.clock.advance(1)

        self.assertEqual([9], [m["id"] for m in self.hosts.last.live().take()])

    def test_idle_stub_is_stopped(self) -> None:
        """
        A stub without use is stopped after `idle_seconds`, and started again by the next message.
        """
        self.make(idle_seconds=60)
        stub = self.live()
        stub.answer({"id": 7, "to": f"hyperty://{B}/h2", "from": f"{self.ann.runtime}/x"}, 200)
        self.node.clock.pump([5] * 15)

        self.assertEqual((True, "stopped"), (stub.is_stopped, self.state()))
        self.send(id=9)
        self.assertEqual([9], [m["id"] for m in self.hosts.last.live().take()])

    def test_stub_with_observers_is_not_idle(self) -> None:
        """
        A stub runs while a client here listens to its domain.
        """
        self.make(idle_seconds=60)
        stub = self.live()
        body = {"resources": [f"comm://{B}/o/changes"]}
        self.ann.tell(
            {
                "id": 1,
                "type": "subscribe",
                "from": f"{self.ann.runtime}/sm",
                "to": "domain://msg-node.a.example/sm",
                "body": body,
            }
        )
        self.node.clock.pump([5] * 30)

        self.assertFalse(stub.is_stopped)

    def test_stop_tells_who_waits(self) -> None:
        """
        When the node stops, the stub is stopped, and the senders of what waits are told.
        """
        self.send()
        self.stubs.stop()

        self.assertTrue(self.hosts.last.is_stopped)
        self.assertEqual([502], [m["body"]["code"] for m in self.ann.take()])
        self.send(id=8)
        self.assertEqual([(8, 502)], [(m["id"], m["body"]["code"]) for m in self.ann.take()])
        self.assertEqual(1, len(self.hosts.stubs))

    def test_stop_tells_who_waits_for_an_answer(self) -> None:
        """
        When the node stops, a request that the stub has taken is answered 504: it may have been delivered.
        """
        self.live()
        self.send(id=8)
        self.stubs.stop()

        answers = [(m["id"], m["body"]["code"], m["body"]["reason"]) for m in self.ann.take()]
        self.assertEqual([(7, 504, "in-doubt"), (8, 504, "in-doubt")], answers)

    def test_stub_disconnected_is_prodded(self) -> None:
        """
        A stub that connects only when it is to send gets a request while a message waits, and is ended if it
        is not live in time.
        """
        self.make(live_seconds=10)
        stub = self.live()
        stub.events.status("disconnected", "cut")
        stub.posted.clear()
        self.send(id=9)
        self.node.clock.advance(1)
        self.assertEqual(["subscribe"], [m["type"] for m in stub.posted])

        self.node.clock.advance(10)

        self.assertTrue(stub.is_stopped)

    def test_stub_that_says_failed_is_ended(self) -> None:
        """
        A stub that gives up is ended, and started again.
        """
        stub = self.live()
        stub.events.status("failed", "refused")

        self.assertTrue(stub.is_stopped)
        self.assertIn("refused", self.entry()["last_error"])

    def test_dead_stub_says_nothing_more(self) -> None:
        """
        What a process says after its end, or after another took its place, is not believed.
        """
        stub = self.live()
        stub.end()
        stub.say(to=f"{self.ann.runtime}/x")
        stub.events.status("live", "")

        self.assertEqual([], self.ann.take())
        self.assertEqual("disconnected", self.state())


class VersionTests(ForeignCase):
    """
    New versions of a stub.
    """

    def due(self, **more: Any) -> tuple[MemoryStub, MemoryStub]:
        """
        A live stub, and the one of a newer version beside it.
        """
        self.make(refresh_seconds=100, idle_seconds=0)
        old = self.live()
        self.fetcher.codes[B] = stub_code(code="newer", **more)
        self.node.clock.pump([10] * 11)
        self.assertEqual(2, len(self.hosts.stubs))
        return old, self.hosts.last

    def test_new_version_runs_beside_the_old_one(self) -> None:
        """
        Until the new version is live, the old one carries everything; it has another name there.
        """
        old, new = self.due()
        self.send(id=9)
        self.assertEqual([9], [m["id"] for m in old.take()])
        self.assertNotEqual(old.start.runtime_url, new.start.runtime_url)

        new.live()
        self.send(id=10)

        self.assertEqual([10], [m["id"] for m in new.take()])
        self.assertEqual((True, []), (old.is_stopped, old.take()))
        self.assertEqual("live", self.state())

    def test_new_version_gets_the_subscriptions(self) -> None:
        """
        The new version subscribes what the old one had, before anything else leaves.
        """
        _, new = self.due()
        new.live()

        self.assertEqual([f"{self.ann.runtime}/x"], new.posted[0]["body"]["resources"])

    def test_bad_new_version_is_left_out(self) -> None:
        """
        A new version that dies before it is live is not tried again; the old one goes on.
        """
        old, new = self.due()
        new.end()
        self.node.clock.pump([10] * 30)
        self.send(id=9)

        self.assertEqual([9], [m["id"] for m in old.take()])
        self.assertEqual((2, "live"), (len(self.hosts.stubs), self.state()))
        self.assertIn("a new version was not live", self.entry()["last_error"])

    def test_new_version_is_not_blamed_for_a_foreign_node_that_is_away(self) -> None:
        """
        If the old version has lost its node, too, the new one is tried again.
        """
        old, new = self.due()
        old.events.status("disconnected", "")
        new.end()
        old.live()
        self.node.clock.pump([10] * 15)

        self.assertEqual(b"newer", self.hosts.last.start.code)
        self.assertEqual(3, len(self.hosts.stubs))

    def test_other_code_than_the_pinned_one_is_fetched_ever_more_rarely(self) -> None:
        """
        The time between two looks doubles up to an hour; the pinned version goes on.
        """
        pin = f"sha256:{stub_code().digest}"
        self.make(refresh_seconds=100, idle_seconds=0, stub=[{"domain": B, "digest": pin}])
        self.live()
        self.fetcher.codes[B] = stub_code(code="newer")
        self.node.clock.pump([10] * 360)
        in_an_hour = len(self.fetcher.fetched)
        self.node.clock.pump([10] * 720)

        self.assertLess(in_an_hour, 8)
        self.assertIn(len(self.fetcher.fetched) - in_an_hour, (2, 3))
        self.assertEqual((1, "live"), (len(self.hosts.stubs), self.state()))

    def test_same_version_changes_nothing(self) -> None:
        """
        A fetch that finds the same code and descriptor starts nothing.
        """
        self.make(refresh_seconds=100, idle_seconds=0)
        self.live()
        self.node.clock.pump([10] * 30)

        self.assertEqual(1, len(self.hosts.stubs))
        self.assertLess(1, len(self.fetcher.fetched))


class StoredTests(ForeignCase):
    """
    What is on disk.
    """

    def setUp(self) -> None:
        self.directory = directory(self)
        self.make()

    def test_restart_needs_no_fetch(self) -> None:
        """
        After a restart of the node the stub on disk is run, without a fetch.
        """
        self.live()
        self.make()
        self.send()

        self.assertEqual((1, []), (len(self.hosts.stubs), self.fetcher.fetched))

    def test_stub_on_disk_is_used_if_the_domain_is_silent(self) -> None:
        """
        A fetch that fails falls back to the copy on disk.
        """
        self.live()
        self.make(refresh_seconds=0.001)
        self.node.clock.advance(1)
        self.fetcher.codes.clear()
        self.send()

        self.assertEqual((1, [B]), (len(self.hosts.stubs), self.fetcher.fetched))

    def test_changed_file_is_not_run(self) -> None:
        """
        A stub whose file was changed on disk is fetched again.
        """
        self.live()
        for path in self.directory.glob("*.stub"):
            path.write_bytes(path.read_bytes().replace(b"code", b"evil"))
        self.make()
        self.send()

        self.assertEqual([B], self.fetcher.fetched)

    def test_old_version_is_run_if_the_new_one_never_lives(self) -> None:
        """
        A fresh version that dies at its first start gives way to the one that was live before.
        """
        self.live()
        self.make(refresh_seconds=0.001)
        self.node.clock.advance(1)
        self.fetcher.codes[B] = stub_code(code="newer")
        self.send(type="update", to=f"comm://{B}/o/changes")
        self.assertEqual(b"newer", self.hosts.last.start.code)
        self.hosts.last.end()
        self.node.clock.advance(1)

        self.assertEqual(b"code", self.hosts.last.start.code)
        self.assertEqual(["update"], [m["type"] for m in self.hosts.last.live().take()])


class OperatorTests(ForeignCase):
    """
    What operators do while the node runs.
    """

    def test_stub_is_removed_by_a_reload(self) -> None:
        """
        A domain that is not listed any more loses its stub.
        """
        stub = self.live()
        self.node.config.foreign.stub = []
        self.node.config.foreign.accept = "any"
        self.stubs.apply()
        self.assertFalse(stub.is_stopped)

        self.node.config.foreign.accept = "none"
        self.stubs.apply()

        self.assertTrue(stub.is_stopped)
        self.assertIsNone(self.node.router.foreign)

    def test_reload_ends_what_is_not_permitted_any_more(self) -> None:
        """
        Another digest, fewer hosts, smaller limits hold for the stub that runs, too. A reload that changes
        nothing for it leaves it alone.
        """
        self.make(hosts=["far.example:443"])
        stub = self.live()
        self.stubs.apply()
        self.assertFalse(stub.is_stopped)

        self.node.config.foreign.hosts = []
        self.stubs.apply()
        self.assertTrue(stub.is_stopped)

        self.send()
        self.assertNotIn("far.example:443", self.hosts.last.start.hosts)
        self.node.config.foreign.stub[0].digest = "sha256:" + "0" * 64
        self.stubs.apply()
        self.assertTrue(self.hosts.last.is_stopped)
        self.node.clock.advance(61)
        self.send()
        self.assertEqual(2, len(self.hosts.stubs))
        self.assertIn("not the pinned one", self.entry()["last_error"])

    def test_stub_is_stopped_and_started(self) -> None:
        """
        An operator stops a stub, and starts it again; another domain is unknown.
        """
        stub = self.live()
        self.assertEqual("stopped", self.stubs.act(B, "stop")["state"])
        self.assertTrue(stub.is_stopped)
        self.assertEqual("verified", self.stubs.act(B, "start")["state"])
        with self.assertRaisesRegex(Exception, "no stub of 'c.example'"):
            self.stubs.act("c.example", "start")

    def test_registry_is_read_over_the_bus(self) -> None:
        """
        The registry is at /connectors, for clients that a policy names.
        """
        self.live()

        answer = self.ann.ask(type="read", to="domain://msg-node.a.example/connectors", body={})

        self.assertEqual(403, answer["body"]["code"])
        self.assertIn(B, [each["name"] for each in self.node.components.to_builtins()])
