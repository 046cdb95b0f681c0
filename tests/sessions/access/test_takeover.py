"""
Whose a session is: takeover by token, senders that are checked, tokens in every message.
"""

from typing import Any

from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.support.fakes import Client, MemoryNode

RUNTIME = "runtime://example.org/a"


class TakeoverCase(SynchronousTestCase):
    def start(self, **session: Any) -> None:
        self.node = MemoryNode(session=session)
        self.owner = self.node.client(RUNTIME)
        self.owner.subscribe("comm://x")

    def attempt(self, from_: str = RUNTIME, type: str = "open", identity: str = "") -> Client:
        """
        Somebody says that he is the owner.
        """
        client = self.node.client()
        client.identity = identity
        client.tell({"id": 1, "type": type, "from": from_, "to": "mn:/session"})
        return client

    def assertTaken(self, client: Client) -> None:
        """
        He is the owner now.
        """
        self.assertEqual([200], [message["body"]["code"] for message in client.take()])
        self.assertIs(client, self.node.sessions.get(RUNTIME).connection)

    def assertRefused(self, client: Client, retry_after: float | None = None) -> None:
        """
        He is not, hears nothing, and is closed after five seconds.
        """
        self.assertEqual(([], None), (client.take(), client.lost))
        self.assertIsNot(client, self.node.sessions.get(RUNTIME).connection)
        self.node.clock.advance(4.9)
        self.assertIsNone(client.lost)
        self.node.clock.advance(0.2)
        self.assertEqual((4401, "token", retry_after), client.lost)


class OpenTests(TakeoverCase):
    """
    takeover = "open", the default.
    """

    def test_whoever_opens_the_name_has_the_session_as_stubs(self) -> None:
        """
        Whoever opens the name has the session, as stubs need it after a page reload.
        """
        self.start()

        self.assertTaken(self.attempt())

    def test_identity_is_that_of_the_last(self) -> None:
        """
        The session is whose certificate was shown last; without one it is nobody's.
        """
        self.start()

        self.attempt(identity="urn:ann")
        self.assertEqual("urn:ann", self.node.sessions.get(RUNTIME).identity)
        self.attempt()
        self.assertEqual("", self.node.sessions.get(RUNTIME).identity)


class TokenTests(TakeoverCase):
    """
    takeover = "token".
    """

    def test_connected_session_is_not_taken_by_name_or_wrong_token(self) -> None:
        """
        A session that is connected cannot be taken by its name, nor with a wrong token.
        """
        self.start(takeover="token")

        self.assertRefused(self.attempt())
        self.assertRefused(self.attempt(f"{RUNTIME}/mns_{'x' * 43}", "re-open"))

    def test_with_the_token(self) -> None:
        """
        Its token opens it, for open and re-open.
        """
        self.start(takeover="token")

        self.assertTaken(self.attempt(f"{RUNTIME}/{self.owner.token}", "re-open"))

    def test_own_connection(self) -> None:
        """
        Who has the session may open it again.
        """
        self.start(takeover="token")

        self.owner.tell({"id": 2, "type": "open", "from": RUNTIME, "to": "mn:/session"})

        self.assertTaken(self.owner)

    def test_session_without_a_connection_can_be_taken_after(self) -> None:
        """
        A session without a connection can be taken after a minute; the closing says when.
        """
        self.start(takeover="token")
        self.owner.drop()

        self.assertRefused(self.attempt(), retry_after=61)
        self.node.clock.advance(56)
        self.assertTaken(self.attempt())

    def test_session_whose_owner_showed_a_certificate_is_never(self) -> None:
        """
        A session whose owner showed a certificate is never free, but for that certificate.
        """
        self.start(takeover="token")
        self.owner.drop()
        self.node.clock.advance(61)
        ann = self.attempt(identity="urn:ann")
        self.assertTaken(ann)
        ann.drop()
        self.node.clock.advance(1000)

        self.assertRefused(self.attempt())
        self.assertRefused(self.attempt(identity="urn:bob"))
        self.assertTaken(self.attempt(identity="urn:ann"))

    def test_name_below_anothers_cannot_be_opened(self) -> None:
        """
        A name below another's cannot be opened: it would take what is his.
        """
        self.start(takeover="token")

        stranger = self.attempt(f"{RUNTIME}/below")

        self.assertRefused(stranger)
        self.assertIsNone(self.node.sessions.get(f"{RUNTIME}/below"))


class FromTests(TakeoverCase):
    """
    from_check.
    """

    def code(self, from_: str) -> int | None:
        self.owner.tell({"id": 7, "type": "event", "from": from_, "to": "comm://y"})
        return next((message["body"]["code"] for message in self.owner.take()), None)

    def test_from_check_allows_only_ones_own_addresses(self) -> None:
        """
        Only one's own: at or below the runtimeURL, an address one holds, or a hyperty nobody has.
        """
        self.start(from_check="refuse")
        other = self.node.client("runtime://example.org/b")
        other.subscribe("hyperty://example.org/taken")

        self.assertEqual(
            [None, None, None, None, 403, 403, 403],
            [
                self.code(from_)
                for from_ in (
                    RUNTIME,
                    f"{RUNTIME}/sm",
                    "comm://x",
                    "hyperty://example.org/new",
                    "hyperty://example.org/taken",
                    "runtime://example.org/b",
                    f"{RUNTIME}b",
                )
            ],
        )

    def test_with_log_it_passes_and_the_log_says_once_for_each(self) -> None:
        """
        With "log" it passes, and the log says once for each session that it did.
        """
        self.start(from_check="log")

        events = EventLoggingObserver.createWithCleanup(self, globalLogPublisher)

        self.assertEqual([None, None], [self.code("runtime://example.org/b") for _ in range(2)])

        self.assertEqual(
            ["runtime://example.org/b"], [event["from_"] for event in events if "from_" in event]
        )

    def test_by_default_whatever_is_no_node_address_passes(self) -> None:
        """
        By default whatever is no node address passes.
        """
        self.start()

        self.assertIsNone(self.code("runtime://example.org/b"))


class MessageTokenTests(TakeoverCase):
    """
    message_token = "require".
    """

    def setUp(self) -> None:
        self.start(message_token="require")
        self.other = self.node.client("runtime://example.org/b")

    def post(self, **fields: Any) -> list[int]:
        """
        Send something; the codes of what is answered.
        """
        self.owner.tell(
            {"id": 7, "type": "event", "from": RUNTIME, "to": "runtime://example.org/b", **fields}
        )
        return [message["body"]["code"] for message in self.owner.take()]

    def test_in_a_field(self) -> None:
        """
        In the header field `token` it is checked, and never passed on.
        """
        self.assertEqual([], self.post(token=self.owner.token))

        self.assertNotIn(b"mns_", self.other.raw[0])

    def test_message_token_may_end_the_via(self) -> None:
        """
        At the end of body.via, where a stub of today writes it, too.
        """
        self.assertEqual([], self.post(body={"via": f"{RUNTIME}/{self.owner.token}"}))
        self.assertEqual([401], self.post())
        self.assertNotIn(b"mns_", self.other.raw[0])

    def test_messages_before_the_token_is_known_pass(self) -> None:
        """
        What was sent before the token could be known passes, for ten seconds or until the first that has it.
        """
        self.assertEqual([], self.post())
        self.node.clock.advance(10.1)
        self.assertEqual([401], self.post())

    def test_another_session_token_is_none(self) -> None:
        """
        Another session's token is none.
        """
        self.post(token=self.owner.token)

        self.assertEqual([401], self.post(token=self.other.token))
        self.assertEqual(1, len(self.other.take()))
