"""
A repository of policies, which is now and then down, slow, or not what it should be.
"""

import json
from typing import Any

from treq.testing import StubTreq
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import (
    ConnectingCancelledError,
    ConnectionLost,
    ConnectionRefusedError,
    TimeoutError,
)
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseNeverReceived
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from msgnode.backends.policy_repository import RepositorySource
from msgnode.config.schema import PolicyOptions
from msgnode.policy.administration.policy_store import PolicyStore
from msgnode.policy.administration.source import SourceFailed
from tests.config.test_reload import logged
from tests.support.fakes import MemoryNode
from tests.support.made_policies import document, rule

URL = "https://user:secret@policies.example.org/all.json?key=secret"
DENY = json.dumps(document(rule("deny"))).encode()


class Repository(Resource):
    """
    Answers with `status`, `kind` and `body`; `slow`: with the first half of it.
    """

    isLeaf = True
    status, kind, body, slow = 200, b"application/json", DENY, False

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[bytes] = []

    def render_GET(self, request: Any) -> Any:
        etag = b'"%d"' % hash(self.body)
        self.asked.append(request.getHeader(b"If-None-Match") or b"")
        request.setHeader(b"ETag", etag)
        request.setHeader(b"Content-Type", self.kind)
        if self.status == 200 and request.getHeader(b"If-None-Match") == etag:
            request.setResponseCode(304)
            return b""
        request.setResponseCode(self.status)
        if self.slow:
            request.write(self.body[:10])
            return NOT_DONE_YET
        return self.body


class SourceTests(SynchronousTestCase):
    """
    A source of its own, and one that a node looks at.
    """

    def setUp(self) -> None:
        self.repository, self.clock = Repository(), Clock()
        self.stub = StubTreq(self.repository)
        self.options = PolicyOptions(source=URL)
        self.source = RepositorySource(URL, self.options, self.stub, self.clock)

    def look(self) -> Deferred[Any]:
        looked = self.source.look()
        self.stub.flush()
        return looked

    def assertFails(self, looked: Deferred[Any], words: str) -> None:
        said = str(self.failureResultOf(looked, SourceFailed).value)
        self.assertIn(words, said)
        self.assertIn("https://policies.example.org/all.json", said)
        self.assertNotIn("secret", said)
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_unchanged_policies_are_not_sent_again(self) -> None:
        """
        What has not changed is not sent again.
        """
        ((_, data),) = self.successResultOf(self.look())
        self.assertEqual(DENY, data)

        self.assertIsNone(self.successResultOf(self.look()))
        self.repository.body = b"[]"
        ((_, data),) = self.successResultOf(self.look())

        self.assertEqual(b"[]", data)
        self.assertEqual([False, True, True], [bool(tag) for tag in self.repository.asked])

    def test_error_is_no_policy(self) -> None:
        """
        An error is no policy.
        """
        for status in (404, 500, 204):
            self.repository.status = status
            self.assertFails(self.look(), f"answered {status}")

    def test_html_page_is_no_policy(self) -> None:
        """
        A page, such as that of a proxy one has to log in at, is no policy.
        """
        self.repository.kind, self.repository.body = b"text/html; charset=utf-8", b"<html></html>"

        self.assertFails(self.look(), "answered with a page (text/html)")

    def test_more_than_max_bytes_is_not_read(self) -> None:
        """
        More than `max_bytes` is not read.
        """
        self.options.max_bytes = len(DENY) - 1

        self.assertFails(self.look(), f"more than {len(DENY) - 1} bytes")

    def test_after_deadline_seconds_it_is_given_up_wherever(self) -> None:
        """
        After `deadline` seconds it is given up, wherever it was.
        """
        self.repository.slow = True
        looked = self.look()
        self.assertNoResult(looked)

        self.clock.advance(10)

        self.assertFails(looked, "did not answer within 10 s")

    def test_nobody_there_nobody_who_lets_us_in_and_what_nobody(self) -> None:
        """
        Nobody there, nobody who lets us in, and what nobody foresaw: each is a reason.
        """
        stub: Any = self.stub
        for why, text in (
            (ConnectionRefusedError(), "cannot be reached"),
            (ConnectingCancelledError(None), "did not answer within 10 s"),
            (TimeoutError(), "did not answer within 10 s"),
            (ResponseNeverReceived([Failure(ConnectionLost())]), "cannot be reached: Connection"),
            (ZeroDivisionError("strange"), "could not be polled: ZeroDivisionError: strange"),
        ):
            stub.get = lambda *how, why=why, **more: fail(why)

            self.assertFails(self.source.look(), text)

    def test_until_the_repository_answers_nothing_passes(self) -> None:
        """
        Until the repository answers nothing passes; then its policies count, and stay while it is down.
        """
        node = MemoryNode(policy={"source": URL})
        client = node.client("runtime://example.org/a")
        source = RepositorySource(URL, node.config.policy, self.stub, node.clock)
        policies = PolicyStore(node.config.policy, node.enforcement, source, None, node.clock)
        self.repository.status = 500
        self.repository.body = json.dumps(document(rule("permit"))).encode()

        policies.startService()
        self.addCleanup(policies.stopService)
        self.stub.flush()
        self.assertEqual(503, client.ask(type="create", to=client.runtime)["body"]["code"])
        self.repository.status = 200
        for status in (200, 500):
            self.repository.status = status
            node.clock.advance(10)
            self.stub.flush()
            client.post(client.runtime)

            self.assertEqual(["ping"], [message["type"] for message in client.take()])
        self.assertIn("answered 500", policies.wrong)

    def test_repository_that_answers_again_has_nothing_wrong(self) -> None:
        """
        A repository that answers again has nothing wrong with it, and its next outage is logged too.
        """
        said = logged(self)
        node = MemoryNode(policy={"source": URL})
        source = RepositorySource(URL, node.config.policy, self.stub, node.clock)
        policies = PolicyStore(node.config.policy, node.enforcement, source, None, node.clock)
        policies.startService()
        self.addCleanup(policies.stopService)
        self.stub.flush()
        for status, wrong in ((500, True), (500, True), (200, False), (500, True)):
            self.repository.status = status
            node.clock.advance(10)
            self.stub.flush()
            self.assertEqual(wrong, "answered 500" in policies.wrong)

        self.assertEqual(2, sum("answered 500" in each for each in said))

    def test_not_encrypted(self) -> None:
        """
        A repository without TLS is warned of at the start.
        """
        for url, warned in ((URL, 0), (URL.replace("https", "http"), 1)):
            said = logged(self)
            node = MemoryNode(policy={"source": url})
            source = RepositorySource(url, node.config.policy, self.stub, node.clock)
            policies = PolicyStore(node.config.policy, node.enforcement, source, None, node.clock)
            policies.startService()
            self.addCleanup(policies.stopService)

            self.assertEqual(warned, sum("is not encrypted" in each for each in said))
