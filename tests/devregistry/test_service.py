"""
The embedded registries as services: what they keep, what they fail at when told to, what they are told.
"""

import json
import sqlite3
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.backends.http_client import Response
from msgnode.cli.main import main
from msgnode.config.loader import check, load
from msgnode.config.schema import ConfigError
from msgnode.devregistry.database import connect, run_checkpoint
from msgnode.devregistry.domain_api import MAX_URL_BYTES, DomainApi
from msgnode.devregistry.fault_injection import Fault
from msgnode.devregistry.records import Records
from msgnode.devregistry.resource import RegistryResource, RegistrySite
from msgnode.devregistry.service import PeriodicService, Registries, Rules
from msgnode.devregistry.tap import Options, rules
from msgnode.protocol.errors import Rejected
from msgnode.service.embedded_registry import MAX_SOCKET_PATH_BYTES, Embedded, EmbeddedPaths
from tests.support.back_ends import Memory
from tests.support.fakes import MemoryNode, directory

VALUE = {
    "descriptor": "d",
    "resources": ["chat"],
    "dataSchemes": ["comm"],
    "status": "live",
    "expires": 60,
    "runtime": "r",
}


class FileTests(SynchronousTestCase):
    """
    What is on disk.
    """

    def setUp(self) -> None:
        self.path = directory(self) / "registry.sqlite"

    def test_what_was_written_is_there_after_the_process_ended(self) -> None:
        """
        What was written is there after the process ended without a word, and the log is moved into the file.
        """
        first = DomainApi(Records(connect(self.path), lambda: 0.0))
        first.answer("PUT", "/hyperty/user/u/hyperty%3A%2F%2Fa", json.dumps(VALUE).encode())
        self.assertEqual(0o600, self.path.stat().st_mode & 0o777)
        run_checkpoint(self.path)

        second = connect(self.path)
        self.addCleanup(second.close)

        self.assertEqual(
            200, DomainApi(Records(second, lambda: 0.0)).answer("GET", "/hyperty/user/u", b"").status
        )

    def test_file_that_is_something_else_is_named_and_left_alone(self) -> None:
        """
        A file that is something else is named, and left alone.
        """
        self.path.write_bytes(b"hello" * 1000)

        why = str(self.assertRaises(ConfigError, connect, self.path))

        self.assertEqual(
            f"registry: {self.path} cannot be used: file is not a database; move it away, or name another",
            why,
        )
        self.assertTrue(self.path.read_bytes().startswith(b"hello"))

    def test_service_disconnects_what_has_expired(self) -> None:
        """
        The service disconnects what has expired, without being asked.
        """
        reactor: Any = MemoryReactorClock()
        service = Registries(self.path, reactor, wall=reactor.seconds, rules=Rules(sweep=5))
        service.startService()
        database = sqlite3.connect(self.path)
        self.addCleanup(database.close)
        row = ("hyperty", "h", "u", "u", None, None, "live", 3, 0.0, 0.0, '{"userID":"u"}')
        database.execute(f"INSERT INTO record VALUES ({', '.join('?' * 11)})", row)
        database.commit()
        reactor.advance(5)

        self.assertEqual([("disconnected",)], database.execute("SELECT status FROM record").fetchall())
        self.successResultOf(service.stopService())


class EmbeddedTests(SynchronousTestCase):
    """
    The registries within a node.
    """

    def test_embedded_registries_sweep_as_configured(self) -> None:
        """
        They look for what has expired as often as the configuration says.
        """
        reactor: Any = MemoryReactorClock()
        place = EmbeddedPaths(str(directory(self)))
        node = MemoryNode(registry={"sweep_seconds": 7.0})
        service = Embedded(place, node, reactor, maybeDeferred)
        service.startService()
        database = sqlite3.connect(place.file)
        self.addCleanup(database.close)
        row = ("hyperty", "h", "u", "u", None, None, "live", 3, 0.0, 0.0, '{"userID":"u"}')
        database.execute(f"INSERT INTO record VALUES ({', '.join('?' * 11)})", row)
        database.commit()

        def status() -> Any:
            return database.execute("SELECT status FROM record").fetchone()[0]

        reactor.advance(6.5)
        self.assertEqual("live", status())
        reactor.advance(0.5)

        self.assertEqual("disconnected", status())
        self.successResultOf(service.stopService())


class FullDiskTests(SynchronousTestCase):
    """
    A file that takes nothing.
    """

    def test_writing_is_answered_500_reading_goes(self) -> None:
        """
        Writing is answered 500, reading goes on, and the sweep tries again when there is room.
        """
        clock = Clock()
        clock.advance(1000)
        database = connect(directory(self) / "registry.sqlite")
        self.addCleanup(database.close)
        records = Records(database, clock.seconds)
        resource = RegistryResource(DomainApi(records).answer, clock)
        memory = Memory(clock, lambda: RegistrySite(resource, reactor=clock).buildProtocol(None))
        rest = memory.rest()
        sweep = PeriodicService(20, records.sweep, clock)
        sweep.startService()
        self.addCleanup(sweep.stopService)

        def ask(method: str, path: str, json: Any = None) -> int:
            asked = rest.request(method, path, json)
            memory.pump()
            return self.successResultOf(asked).status

        self.assertEqual(200, ask("PUT", "/hyperty/user/u/h", {**VALUE, "expires": 0}))
        database.execute("PRAGMA query_only = 1")
        self.assertEqual([500, 200], [ask("PUT", "/hyperty/user/u/i", VALUE), ask("GET", "/hyperty/user/u")])
        clock.advance(20)
        self.assertEqual(408, ask("GET", "/hyperty/user/u"))
        database.execute("PRAGMA query_only = 0")
        clock.advance(20)

        self.assertEqual(1, len(records.take_updated()))


class PlaceTests(SynchronousTestCase):
    """
    Where the embedded registries lie.
    """

    def test_embedded_registry_lies_in_the_state_directory(self) -> None:
        """
        In the state directory.
        """
        place = EmbeddedPaths("/var/lib/msgnode/state")

        self.assertEqual("/var/lib/msgnode/state/x.sock", place.socket("x.sock"))
        self.assertEqual(Path("/var/lib/msgnode/state/registry.sqlite"), place.file)

    def test_socket_with_too_long_a_name_lies_elsewhere_the_file(self) -> None:
        """
        A socket with too long a name lies elsewhere, the file where it was.
        """
        state = "/" + "é" * (MAX_SOCKET_PATH_BYTES // 2)
        place = EmbeddedPaths(state)
        self.addCleanup(place.clear)

        self.assertNotIn("é", place.socket("x.sock"))
        self.assertEqual(Path(state) / "registry.sqlite", place.file)

    def test_without_a_state_directory_the_sockets_are_temporary(self) -> None:
        """
        Without a state directory the sockets are temporary, and what the registries know is in memory.
        """
        place = EmbeddedPaths("none")

        made = Path(place.socket("x")).parent
        self.assertEqual((0o700, ":memory:"), (made.stat().st_mode & 0o777, place.file))
        place.clear()
        self.assertFalse(made.exists())


class WebTests(SynchronousTestCase):
    """
    What HTTP makes of the answers.
    """

    def setUp(self) -> None:
        clock = Clock()
        resource = RegistryResource(DomainApi(Records(connect(":memory:"), clock.seconds)).answer, clock)
        self.memory = Memory(clock, lambda: RegistrySite(resource, reactor=clock).buildProtocol(None))
        self.rest = self.memory.rest(attempts=1)

    def ask(self, method: str, path: str) -> Response:
        asked = self.rest.request(method, path)
        self.memory.pump()
        return self.successResultOf(asked)

    def test_long_url(self) -> None:
        """
        A URL that is too long is told so, however long it is, and the next request is answered.
        """
        for length in (MAX_URL_BYTES, 2 * MAX_URL_BYTES, 10 * MAX_URL_BYTES):
            answer = self.ask("GET", "/hyperty/url/" + "h" * length)

            self.assertEqual(414, answer.status)
            self.assertEqual({"message": f"A URL has at most {MAX_URL_BYTES} bytes."}, answer.json())
        self.assertEqual(200, self.ask("GET", "/live").status)

    def test_head_is_answered_without_a_body(self) -> None:
        """
        HEAD is answered without a body.
        """
        answer = self.ask("HEAD", "/live")

        self.assertEqual((200, b""), (answer.status, answer.content))


class FaultTests(SynchronousTestCase):
    """
    Failing on purpose.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.serve()

    def serve(self, **how: Any) -> None:
        self.resource = RegistryResource(
            DomainApi(Records(connect(":memory:"), self.clock.seconds)).answer, self.clock, **how
        )
        self.memory = Memory(
            self.clock, lambda: RegistrySite(self.resource, reactor=self.clock).buildProtocol(None)
        )
        self.rest = self.memory.rest(attempts=1)

    def ask(self, fault: str) -> Any:
        self.resource.fault = Fault.parse(fault)
        asked = self.rest.request("GET", "/live")
        self.memory.pump()
        return asked

    def test_bad_answers_of_three_kinds(self) -> None:
        """
        Bad answers of three kinds.
        """
        for fault, status, begins in (("empty", 400, b""), ("html", 500, b"<html>"), ("redirect", 302, b"")):
            answer: Response = self.successResultOf(self.ask(fault))

            self.assertEqual((status, begins), (answer.status, answer.content[: len(begins) or None]))

    def test_no_answer_of_two_kinds(self) -> None:
        """
        No answer, of two kinds.
        """
        self.assertEqual(504, self.failureResultOf(self.ask("drop"), Rejected).value.code)
        self.assertNoResult(asked := self.ask("hang"))
        self.clock.advance(5)
        self.memory.pump()
        self.failureResultOf(asked, Rejected)

    def test_fault_delay_is_a_good_answer_late(self) -> None:
        """
        A good answer, late.
        """
        asked = self.ask("delay=2")
        self.clock.advance(1.9)
        self.memory.pump()
        self.assertNoResult(asked)
        self.clock.advance(0.1)
        self.memory.pump()

        self.assertEqual("up", self.successResultOf(asked).json()["status"])

    def test_only_a_share_of_the_requests(self) -> None:
        """
        Only a share of the requests.
        """
        chances = iter((0.05, 0.15))
        fault = Fault("html", share=0.1, chance=lambda: next(chances))

        self.assertEqual([True, False], [fault.befalls(), fault.befalls()])
        self.assertTrue(Fault.parse("drop").befalls())

    def test_fault_that_does_not_exist_is_told(self) -> None:
        """
        A fault that does not exist is told.
        """
        for text in ("bang", "delay=x", "drop@", ""):
            why = str(self.assertRaises(ValueError, Fault.parse, text))

            kinds = "delay, drop, empty, hang, html, redirect"
            self.assertEqual(f"expected KIND[=SECONDS][@SHARE] with a kind of {kinds}, found {text!r}", why)

    def test_with_a_balancer_nobody_else_may_ask(self) -> None:
        """
        With a balancer's address set, nobody else may ask.
        """
        self.serve(balancer="192.0.2.7")
        asked = self.rest.request("GET", "/live")
        self.memory.pump()

        answer = self.successResultOf(asked)
        self.assertEqual((401, b"Unauthorized request"), (answer.status, answer.content))


class OptionTests(SynchronousTestCase):
    """
    What operators can set.
    """

    def test_environment(self) -> None:
        """
        The environment variables of the reTHINK server.
        """
        given = {"EXPIRES": "60", "EXPIRES_MAX": "7200", "LOAD_BALANCER_IP": "192.0.2.7"}

        self.assertEqual(Rules(60, 7200, "192.0.2.7"), rules(given))
        self.assertEqual(Rules(), rules({}))

    def test_unreadable_registry_certificate_stops_the_start(self) -> None:
        """
        A certificate that cannot be read, or is asked for without one of its own, stops the start.
        """
        for given, why in (
            (["--key", "k.pem"], "--key and --client-ca need --cert"),
            (["--cert", "/nowhere.pem"], "/nowhere.pem: cannot be read: No such file or directory"),
        ):
            with redirect_stderr(StringIO()) as said:
                self.assertRaises(SystemExit, Options().parseOptions, given)

            self.assertEqual(f"msgregistry: {why}\n", said.getvalue())
        for wrong in ("x", "0", "-1"):
            why = str(self.assertRaises(ValueError, rules, {"EXPIRES": wrong}))
            self.assertEqual(f"EXPIRES: expected seconds, found {wrong!r}", why)

    def test_where_a_registry_url_may_be(self) -> None:
        """
        Where a registry may be.
        """
        for url in (
            "none",
            "embedded",
            "http://localhost:4567",
            "https://r.example.org/dr",
            "unix:/run/r.sock",
        ):
            self.assertEqual(url, check({"registry": {"url": url}}, "test").registry.url)
        for url in (
            "registry",
            "ftp://x",
            "http://",
            "http://x:0",
            "http://x:y",
            "unix:relative",
            "http://x?a=1",
            "http://[x",
        ):
            why = str(self.assertRaises(ConfigError, check, {"global_registry": {"url": url}}, "test"))

            urls = "http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH"
            self.assertEqual(
                f"test: global_registry.url: expected 'embedded', 'none', {urls}, found {url!r}", why
            )

    def test_option_over_file(self) -> None:
        """
        The option names another registry, and leaves the file's other keys as they are.
        """
        path = directory(self) / "msgnode.toml"
        path.write_text('[registry]\nurl = "http://a"\npoll_seconds = 1.0\n')

        registry = load(str(path), {"registry": {"url": "none"}}).registry

        self.assertEqual(("none", 1.0), (registry.url, registry.poll_seconds))

    def test_sweep_seconds_is_a_key(self) -> None:
        """
        How often the embedded registry looks for what has expired is a key.
        """
        self.assertEqual(2.5, check({"registry": {"sweep_seconds": 2.5}}, "test").registry.sweep_seconds)
        self.assertEqual(Rules().sweep, check({}, "test").registry.sweep_seconds)
        for wrong in (0, 0.5, 86_401):
            self.assertRaises(ConfigError, check, {"registry": {"sweep_seconds": wrong}}, "test")

    def test_key_without_certificate(self) -> None:
        """
        A key alone is a mistake.
        """
        why = str(self.assertRaises(ConfigError, check, {"registry": {"key": "x"}}, "test"))

        self.assertEqual("test: registry.key: expected 'cert' with 'key'", why)

    def test_msgnode_check_names_a_file_that_cannot_be_used(self) -> None:
        """
        `msgnode check` names a file that cannot be used, and else says which registries there are.
        """
        path = directory(self) / "msgnode.toml"
        for text, code, said in (
            (
                'ca = "/nowhere"',
                2,
                f"msgnode: {path}: registry: /nowhere: cannot be read: No such file or directory",
            ),
            ('url = "none"', 0, "  registry none, global embedded"),
        ):
            path.write_text(f"[registry]\n{text}\n")

            result = CliRunner().invoke(main, ["check", str(path)])

            self.assertEqual((code, said), (result.exit_code, result.output.splitlines()[-1]))
