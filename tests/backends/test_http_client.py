"""
Calls out to a back end, and everything that may go wrong with one.
"""

import gzip
from pathlib import Path
from typing import Any

from cryptography import x509
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.protocol import Factory
from twisted.internet.ssl import Certificate, CertificateOptions, PrivateCertificate
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.trial.unittest import SynchronousTestCase

from msgnode.backends.circuit_breaker import CircuitBreaker
from msgnode.backends.http_client import BackendClient
from msgnode.config.schema import ConfigError
from msgnode.config.sections import BackEndOptions
from msgnode.protocol.errors import Rejected
from tests.support.authority import DAY, Authority
from tests.support.back_ends import Memory, Scripted, http
from tests.support.fakes import directory

DOWN = "Error contacting the registry."


class RestCase(SynchronousTestCase):
    """
    A client and a back end that writes what the test tells it to.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.memory = Memory(self.clock)
        self.rest = self.memory.rest()

    def ask(self, method: str = "GET", path: str = "/live", **more: Any) -> Any:
        asked = self.rest.request(method, path, **more)
        self.memory.pump()
        return asked

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.memory.pump()

    def write(self, data: bytes, server: int = -1) -> None:
        self.memory.servers[server].transport.write(data)
        self.memory.pump()

    def end(self, server: int = -1) -> None:
        self.memory.servers[server].transport.loseConnection()
        self.memory.pump()

    def assertRejected(self, asked: Any, code: int, text: str, outcome: str) -> None:
        why = self.failureResultOf(asked, Rejected).value
        self.assertEqual((code, text), (why.code, str(why)))
        self.assertEqual(1, self.rest.counts[outcome])


class AnswerTests(RestCase):
    """
    A back end that answers.
    """

    def test_request_goes_out_as_it_was_given_and_the_answer(self) -> None:
        """
        The request goes out as it was given, and the answer comes whole.
        """
        asked = self.ask("PUT", "/a%2Fb", json={"expires": 5})
        self.write(http(b'{"message":"ok"}'))

        answer = self.successResultOf(asked)
        head, _, body = self.memory.servers[0].got.partition(b"\r\n\r\n")
        self.assertEqual(b"PUT /a%2Fb HTTP/1.1", head.splitlines()[0])
        self.assertIn(b"Host: registry.example.org", head)
        self.assertIn(b"Content-Type: application/json", head)
        self.assertEqual(b'{"expires":5}', body)
        self.assertEqual((200, {"message": "ok"}), (answer.status, answer.json()))
        self.assertEqual({"2xx": 1}, self.rest.counts)

    def test_any_status(self) -> None:
        """
        Any status is an answer; what it means its connector decides.
        """
        for status in ("302 Found", "404 Not Found", "408 Request Timeout", "500 Sorry"):
            asked = self.ask()
            self.write(http(b"", status))

            answer = self.successResultOf(asked)

            self.assertEqual(int(status[:3]), answer.status)
        self.assertEqual({"3xx": 1, "4xx": 2, "5xx": 1}, self.rest.counts)
        self.assertEqual(1, self.memory.dialled)

    def test_connector_that_only_wants_a_success_is_told_4xx(self) -> None:
        """
        A connector that only wants a success is told 4xx as it came, and all else as 502.
        """
        for status, code in (("404 Not Found", 404), ("302 Found", 502), ("500 Sorry", 502)):
            asked = self.ask()
            self.write(http(b"no such thing", status))

            why = self.assertRaises(Rejected, self.successResultOf(asked).check)

            self.assertEqual((code, "The registry refused: no such thing"), (why.code, str(why)))

    def test_empty_400(self) -> None:
        """
        An empty body is an answer too, though not JSON whatever its type says.
        """
        asked = self.ask()
        self.write(http(b"", "400 Bad Request"))

        answer = self.successResultOf(asked)

        self.assertEqual((400, b""), (answer.status, answer.content))
        self.assertEqual(502, self.assertRaises(Rejected, answer.json).code)

    def test_html_as_json(self) -> None:
        """
        HTML that says it is JSON is refused when JSON is asked of it, and counted.
        """
        asked = self.ask()
        self.write(http(b"<html>500</html>"))

        why = self.assertRaises(Rejected, self.successResultOf(asked).json)

        self.assertEqual((502, "Invalid response from the registry."), (why.code, str(why)))
        self.assertEqual({"2xx": 1, "nonsense": 1}, self.rest.counts)

    def test_base_path(self) -> None:
        """
        A path in the base URL stands before every path.
        """
        self.rest = self.memory.rest("http://registry.example.org:4567/dr/")

        self.ask()

        self.assertTrue(self.memory.servers[0].got.startswith(b"GET /dr/live HTTP/1.1"))

    def test_until_closed(self) -> None:
        """
        A body without a length lasts until the connection is closed.
        """
        asked = self.ask()
        self.write(b"HTTP/1.0 200 OK\r\n\r\n[1]")
        self.assertNoResult(asked)
        self.end()

        self.assertEqual([1], self.successResultOf(asked).json())


class FailureTests(RestCase):
    """
    A back end that does not.
    """

    def test_back_end_that_says_nothing_is_given_up(self) -> None:
        """
        A back end that says nothing is given up at the deadline, and the connection with it.
        """
        asked = self.ask()
        self.wait(4.9)
        self.assertNoResult(asked)
        self.wait(0.2)

        self.assertRejected(asked, 504, DOWN, "silent")
        self.assertEqual((1, 0), (self.memory.dialled, self.memory.open))

    def test_connecting_hangs(self) -> None:
        """
        So is one that cannot be reached, as far as anybody can tell.
        """
        self.memory.refuse = "hang"
        asked = self.ask()
        self.wait(5.1)

        self.assertRejected(asked, 504, DOWN, "silent")

    def test_byte_by_byte(self) -> None:
        """
        The deadline includes the body, however steadily it trickles.
        """
        asked = self.ask()
        self.write(http(b"x" * 100)[:-100])
        for _ in range(49):
            self.wait(0.1)
            self.write(b"x")
        self.assertNoResult(asked)
        self.wait(0.2)

        self.assertRejected(asked, 504, DOWN, "silent")
        self.assertEqual(0, self.memory.open)

    def test_own_deadline(self) -> None:
        """
        A call may have a deadline of its own.
        """
        asked = self.ask(deadline=13)
        self.wait(12.9)
        self.assertNoResult(asked)
        self.wait(0.2)

        self.assertRejected(asked, 504, DOWN, "silent")

    def test_ten_megabytes_are_not_read_to_their_end(self) -> None:
        """
        Ten megabytes are not read to their end.
        """
        asked = self.ask()
        self.write(http(b"x" * 10_000_000))

        self.assertRejected(asked, 502, "Invalid response from the registry.", "large")
        self.assertEqual(0, self.memory.open)

    def test_not_http(self) -> None:
        """
        What answers in another protocol is not asked again: 502.
        """
        asked = self.ask()
        self.write(b"SSH-2.0-OpenSSH_9\r\n\r\n")

        self.assertRejected(asked, 502, "Invalid response from the registry.", "nonsense")
        self.assertEqual(1, self.memory.dialled)

    def test_answers_are_asked_for_uncompressed(self) -> None:
        """
        Answers are asked for unpacked; one that comes packed all the same stays as small as it came.
        """
        packed = gzip.compress(b"0" * 10_000_000)
        asked = self.ask()
        self.write(http(packed).replace(b"Content-Length", b"Content-Encoding: gzip\r\nContent-Length", 1))

        self.assertEqual(packed, self.successResultOf(asked).content)
        asking = self.memory.servers[0].got.lower()
        self.assertIn(b"accept-encoding: identity\r\n", asking)
        self.assertNotIn(b"gzip", asking)

    def test_just_not_too_large(self) -> None:
        """
        The limit itself passes.
        """
        self.rest = self.memory.rest(max_response_bytes=1000)
        asked = self.ask()
        self.write(http(b"x" * 1000))

        self.assertEqual(1000, len(self.successResultOf(asked).content))

    def test_closes_in_the_middle(self) -> None:
        """
        What is safe to repeat is asked once more when the connection breaks; then it is an error.
        """
        asked = self.ask()
        for _ in range(2):
            self.write(http(b"x" * 100)[:-50])
            self.assertNoResult(asked)
            self.end()

        self.assertRejected(asked, 504, DOWN, "unreachable")
        self.assertEqual(2, self.memory.dialled)

    def test_second_attempt(self) -> None:
        """
        The second attempt may succeed, and then nobody hears of the first.
        """
        asked = self.ask("PUT", json={}, safe=True)
        self.end()
        self.write(http())

        self.assertEqual({}, self.successResultOf(asked).json())
        self.assertEqual({"2xx": 1}, self.rest.counts)
        self.assertEqual([b"{}", b"{}"], [server.got[-2:] for server in self.memory.servers])

    def test_not_safe(self) -> None:
        """
        What is not safe is never sent twice.
        """
        asked = self.ask("PUT", json={})
        self.end()

        self.assertRejected(asked, 504, DOWN, "unreachable")
        self.assertEqual(1, self.memory.dialled)

    def test_kept_connection_was_closed(self) -> None:
        """
        A connection that the back end closed while it was idle costs a retry, not an answer.
        """
        first = self.ask()
        self.write(http())
        self.successResultOf(first)
        self.memory.servers[0].transport.loseConnection()

        asked = self.ask()
        self.write(http(b"[2]"))

        self.assertEqual([2], self.successResultOf(asked).json())

    def test_port_where_nobody_listens_is_an_error_at_once_after(self) -> None:
        """
        A port where nobody listens is an error at once, after two attempts.
        """
        self.memory.refuse = ConnectionRefusedError()

        self.assertRejected(self.ask(), 504, DOWN, "unreachable")
        self.assertEqual(2, self.memory.dialled)


class CrowdTests(RestCase):
    """
    More requests than the back end is given at a time.
    """

    def setUp(self) -> None:
        super().setUp()
        self.rest = self.memory.rest(in_flight=2, queue=3)

    def test_two_are_asked_at_a_time(self) -> None:
        """
        Two are asked at a time; the third waits until one is answered.
        """
        asked = [self.ask() for _ in range(3)]
        self.assertEqual(2, self.memory.dialled)

        self.write(http(b"0"), 0)
        self.write(http(b"2"), 0)

        self.assertEqual([0, 2], [self.successResultOf(asked[i]).json() for i in (0, 2)])
        self.assertNoResult(asked[1])

    def test_beyond_the_queue_the_answer_is_503_at_once(self) -> None:
        """
        Beyond the queue the answer is 503 at once.
        """
        for _ in range(5):
            self.ask().addErrback(lambda why: None)

        self.assertRejected(self.ask(), 503, "Too many requests to the registry; try again later.", "busy")
        self.assertEqual(2, self.memory.dialled)
        self.wait(6)

    def test_beyond_so_many_bytes_of_requests_the_answer_is_503(self) -> None:
        """
        Beyond so many bytes of requests the answer is 503 at once, though there is room in the queue.
        """
        self.rest = self.memory.rest(in_flight=2, queue=100, max_pending_bytes=10_000)
        large = "x" * 4000
        asked = [self.rest.request("PUT", "/", large) for _ in range(2)]
        late = self.rest.request("PUT", "/", large)

        self.assertRejected(late, 503, "Too many requests to the registry; try again later.", "busy")
        self.wait(6)
        for each in asked:
            self.failureResultOf(each, Rejected)
        self.assertNoResult(self.rest.request("PUT", "/", large).addErrback(lambda why: None))
        self.wait(6)

    def test_waits_too_long(self) -> None:
        """
        Who waits for a place until the deadline is told that it is busy, not that it is down.
        """
        first = [self.ask(deadline=9).addErrback(lambda why: None) for _ in range(2)]
        asked = self.ask()
        self.wait(5.1)

        self.assertRejected(asked, 503, "Too many requests to the registry; try again later.", "busy")
        self.wait(5)
        self.assertEqual([None] * 2, [self.successResultOf(each) for each in first])


class BreakerTests(RestCase):
    """
    A back end that stays dead.
    """

    def setUp(self) -> None:
        super().setUp()
        self.events = EventLoggingObserver.createWithCleanup(self, globalLogPublisher)
        self.memory.refuse = ConnectionRefusedError()
        for _ in range(5):
            self.failureResultOf(self.ask("PUT"), Rejected)

    def test_answers_at_once(self) -> None:
        """
        After five failures it is asked no more, and everybody is answered at once.
        """
        self.assertTrue(self.rest.down)
        for _ in range(100):
            self.failureResultOf(self.ask(), Rejected)

        self.assertEqual((5, 100), (self.memory.dialled, self.rest.counts["paused"]))
        (warning,) = [event for event in self.events if event["log_level"].name == "warn"]
        self.assertIn("refused", warning["why"])

    def test_after_five_seconds_one_may_try(self) -> None:
        """
        After five seconds one may try; when it is answered all may.
        """
        self.memory.refuse = None
        self.wait(5)
        trial, other = self.ask(), self.ask()
        self.assertRejected(other, 504, DOWN, "paused")

        self.write(http())

        self.successResultOf(trial)
        self.assertFalse(self.rest.down)
        asked = self.ask()
        self.write(http())
        self.successResultOf(asked)

    def test_stays_away(self) -> None:
        """
        A trial that fails changes nothing until the next.
        """
        for _ in range(3):
            self.rest.counts.clear()
            self.wait(5)
            self.assertRejected(self.ask("PUT"), 504, DOWN, "unreachable")
            self.assertRejected(self.ask("PUT"), 504, DOWN, "paused")

    def test_who_waits(self) -> None:
        """
        Whoever waits for a place when it is given up is told so at once, but for four that had one by then.
        """
        self.memory.refuse = "hang"
        self.rest = self.memory.rest(in_flight=5, queue=1000)
        asked = [self.ask(deadline=1) for _ in range(5)] + [self.ask() for _ in range(1000)]

        self.wait(1.1)

        self.assertEqual({"silent": 5, "paused": 996}, self.rest.counts)
        self.wait(5)
        self.assertEqual([504] * 1005, [self.failureResultOf(each, Rejected).value.code for each in asked])

    def test_answers_count_for_life(self) -> None:
        """
        An answer with any status, and one that is too large, show that it lives.
        """
        breaker = CircuitBreaker(lambda: 0.0, failures=2)
        self.assertEqual(
            [False, False, False, True],
            [breaker.failed(), breaker.succeeded(), breaker.failed(), breaker.failed()],
        )


class TLSTests(RestCase):
    """
    A back end behind TLS, and whom we believe.
    """

    def setUp(self) -> None:
        super().setUp()
        self.directory = directory(self)
        self.authority = Authority(self.directory)
        self.cert = self.authority.issue("registry.example.org")
        self.client_ca: Certificate | None = None

    def serve(self) -> Any:
        own = PrivateCertificate.loadPEM(Path(self.cert).read_text())
        options = CertificateOptions(
            privateKey=own.privateKey.original,
            certificate=own.original,
            trustRoot=self.client_ca,
        )
        factory = Factory()
        factory.buildProtocol = self.scripted  # type: ignore[method-assign]
        return TLSMemoryBIOFactory(options, False, factory, self.clock).buildProtocol(None)

    def scripted(self, address: Any) -> Scripted:
        server = Scripted()
        server.reply = http()
        return server

    def call(self, **options: Any) -> Any:
        self.memory = Memory(self.clock, self.serve)
        self.rest = self.memory.rest("https://registry.example.org", **{"ca": self.authority.path, **options})
        return self.ask()

    def test_certificate_of_our_authority_is_believed(self) -> None:
        """
        A certificate of our authority for the host's name is believed.
        """
        self.assertEqual(200, self.successResultOf(self.call()).status)

    def test_wrong_name(self) -> None:
        """
        One for another name is not.
        """
        self.cert = self.authority.issue("elsewhere.example.org")

        self.assertRejected(self.call(), 504, DOWN, "untrusted")
        self.assertEqual(1, self.memory.dialled)

    def test_certificate_of_another_authority_is_not_believed(self) -> None:
        """
        Nor is one that somebody else signed, be it with the right name.
        """
        self.cert = Authority(directory(self)).issue("registry.example.org")

        self.assertRejected(self.call(), 504, DOWN, "untrusted")

    def test_machines_authorities(self) -> None:
        """
        Without `ca` the machine's authorities are believed, which do not know ours.
        """
        self.assertRejected(self.call(ca=""), 504, DOWN, "untrusted")

    def test_nor_is_one_that_has_expired(self) -> None:
        """
        Nor is one that has expired.
        """
        self.cert = self.authority.issue("registry.example.org", until=-DAY / 2)

        self.assertRejected(self.call(), 504, DOWN, "untrusted")

    def test_client_certificate(self) -> None:
        """
        A back end that asks for our certificate is shown it; without one it lets nobody in.
        """
        self.client_ca = Certificate.loadPEM(Path(self.authority.path).read_text())
        own = self.authority.issue("", names=[x509.DNSName("mn.example.org")], file="own")

        self.assertEqual(200, self.successResultOf(self.call(cert=own)).status)
        self.assertRejected(self.call(), 504, DOWN, "untrusted")

    def test_bad_files(self) -> None:
        """
        Files that cannot be used are named before anything starts.
        """
        for options, text in (
            ({"ca": "/nowhere"}, "/nowhere: cannot be read: No such file or directory"),
            ({"ca": __file__}, f"{__file__}: expected certificates in PEM"),
            (
                {"cert": self.authority.path},
                f"{self.authority.path}: expected a certificate and, there or in "
                f"{self.authority.path}, its key in PEM",
            ),
        ):
            why = self.assertRaises(
                ConfigError, BackendClient, "https://x", BackEndOptions(**options), self.clock
            )

            self.assertEqual(text, str(why))
