"""
Who may open a session, with which token; and what comes of it when it ends.
"""

import json
from hashlib import sha256
from typing import Any

from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.policy.language.program import read
from msgnode.sessions.access.authentication import TOKEN_TIMEOUT_SECONDS
from msgnode.sessions.input_order import MAX_BUFFERED_BYTES
from tests.support.fakes import Client, MemoryNode, directory
from tests.support.openid import OTHER_RSA, provider
from tests.support.world import World

RUNTIME = "runtime://example.org/ann"
SM = "domain://msg-node.example.org/sm"
ANN, BOB = "user://example.org/ann@example.org", "user://example.org/bob@example.org"


class GateCase(SynchronousTestCase):
    """
    A node that looks at tokens.
    """

    auth = "required"
    session: dict[str, Any] = {"unused_expiry_seconds": 3600.0}
    fetched = True  # are the provider's keys there already?

    def setUp(self) -> None:
        self.node = MemoryNode(
            world=World, identity={"auth": self.auth, "providers": [provider()]}, session=self.session
        )
        self.openid = self.node.world.openid
        if self.fetched:
            self.node.world.tokens.start()
            self.node.world.pump()

    def token(self, who: str = "ann", **claims: Any) -> str:
        return self.openid.token(email=f"{who}@example.org", sub=who, **claims)

    def opening(self, token: str | None = None, from_: str = RUNTIME, type: str = "open") -> dict[str, Any]:
        body = {} if token is None else {"body": {"token": token}}
        return {"id": 1, "type": type, "from": from_, "to": "mn:/session", **body}

    def attempt(self, token: str | None = None, from_: str = RUNTIME, type: str = "open") -> Client:
        """
        A client that opens the session.
        """
        client = Client(self.node)
        client.tell(self.opening(token, from_, type))
        client.runtime = from_
        if client.raw:
            client.token = client.got[0]["body"].get("runtimeToken", "")
        return client

    def ann(self, **claims: Any) -> Client:
        client = self.attempt(self.token(**claims))
        self.assertEqual(200, client.take()[0]["body"]["code"])
        return client

    def assertRefused(self, client: Client, retry_after: float | None = None) -> None:
        """
        Closed with 4401, though not at once; nothing was answered.
        """
        self.assertIsNone(client.session)
        self.assertEqual([], client.raw)
        self.node.clock.advance(5)
        assert client.lost is not None
        self.assertEqual((4401, "token", retry_after), tuple(client.lost))

    def renew(self, client: Client, token: Any) -> dict[str, Any]:
        client.tell({"id": 8, "type": "update", "to": "mn:/session", "body": {"token": token}})
        return client.take()[-1]


class RequiredTests(GateCase):
    """
    `auth = "required"`.
    """

    def test_with_a_good_token_the_session_opens(self) -> None:
        """
        With a good token the session opens, and is its bearer's.
        """
        client = self.ann()

        session = client.session
        assert session is not None and session.proof is not None
        self.assertEqual((ANN, ANN), (session.identity, session.proof.user))

    def test_log_of_refused_tokens_is_bounded(self) -> None:
        """
        A stranger whose tokens are refused a thousand times fills no log; how many there were is in it.
        """
        events = EventLoggingObserver.createWithCleanup(self, globalLogPublisher)

        for _ in range(1000):
            self.attempt("x")
        within_a_minute = len(events)
        self.node.clock.advance(61)
        self.attempt("x")

        self.assertEqual((10, 11), (within_a_minute, len(events)))
        self.assertIn("(990 similar lines were suppressed)", formatEvent(events[-1]))

    def anonymous(self, **claims: Any) -> Client:
        """
        Ann opens without a name, subscribes, and loses the connection.
        """
        client = Client(self.node)
        opening = {"id": 1, "type": "open", "to": "mn:/session", "body": {"token": self.token(**claims)}}
        client.tell(opening)
        client.token = client.take()[0]["body"]["runtimeToken"]
        body = {"resources": ["comm://room"]}
        client.tell({"id": 2, "type": "subscribe", "from": RUNTIME, "to": SM, "body": body})
        client.drop()
        return client

    def heard(self) -> list[str]:
        """
        Who hears what Ann had subscribed without a name.
        """
        return [session.runtime for session in self.node.routes.resolve("comm://room")]

    def test_anonymous_session_gets_a_name(self) -> None:
        """
        The token of an anonymous session opens its user a name, as it would open the session itself.
        """
        token = self.anonymous().token

        again = self.attempt(None, f"{RUNTIME}/{token}", "re-open")

        self.assertEqual({"code": 200}, again.take()[0]["body"])
        self.assertEqual([RUNTIME], self.heard())
        self.assertEqual(ANN, again.session and again.session.identity)

    def test_anonymous_session_of_another(self) -> None:
        """
        With a token of somebody else's in it, `re-open` opens that user's own session, and takes nothing.
        """
        token = self.anonymous().token
        (before,) = self.heard()

        bob = self.attempt(self.token("bob"), f"{RUNTIME}/{token}", "re-open")

        self.assertIn("runtimeToken", bob.take()[0]["body"])
        self.assertEqual(BOB, bob.session and bob.session.identity)
        self.assertEqual([before], self.heard())

    def test_anonymous_session_that_lapsed(self) -> None:
        """
        Once its user's token has ended, it takes a new one; with that, nothing is lost.
        """
        self.node.config.session.anonymous_expiry_seconds = 9999.0
        token = self.anonymous().token
        self.node.clock.advance(5000)

        self.assertRefused(self.attempt(None, f"{RUNTIME}/{token}", "re-open"))
        self.assertNotEqual([RUNTIME], self.heard())
        again = self.attempt(self.token(), f"{RUNTIME}/{token}", "re-open")

        self.assertEqual({"code": 200}, again.take()[0]["body"])
        self.assertEqual([RUNTIME], self.heard())

    def test_anonymous_session_and_one_of_another(self) -> None:
        """
        It opens no session that is somebody else's, and gives nothing to it.
        """
        self.attempt(self.token("bob"))
        token = self.anonymous().token
        (before,) = self.heard()

        self.assertRefused(self.attempt(None, f"{RUNTIME}/{token}", "re-open"))

        self.assertEqual([before], self.heard())

    def test_anonymous_session_and_another_of_its_user(self) -> None:
        """
        Of the session that its user has by that name it is no proof; the user's own token is.
        """
        self.ann()
        token = self.anonymous().token

        self.assertRefused(self.attempt(None, f"{RUNTIME}/{token}", "re-open"))
        again = self.attempt(self.token(), f"{RUNTIME}/{token}", "re-open")

        self.assertEqual(200, again.take()[0]["body"]["code"])
        self.assertEqual([RUNTIME], self.heard())

    def test_without_a_token_or_with_one_that_is_no_good(self) -> None:
        """
        Without a token, or with one that is no good, the connection is closed, and open is not answered.
        """
        for token in (
            None,
            "",
            "x",
            self.openid.token(OTHER_RSA),
            self.token(exp=1),
            5,
            {},
            self.token(aud="x"),
        ):
            self.assertRefused(self.attempt(token))
        self.assertEqual(0, len(self.node.sessions))

    def test_nobody_else(self) -> None:
        """
        The session of one user cannot be opened by another; what waits in it stays there.
        """
        ann = self.ann()
        self.assertRefused(self.attempt(self.token("bob")))
        ann.drop()
        self.node.clock.advance(59)

        self.assertRefused(self.attempt(self.token("bob")))
        self.assertEqual(ANN, self.node.sessions.get(RUNTIME).identity)

    def test_not_below(self) -> None:
        """
        Nor can another open a session below it, and hear what is meant for it.
        """
        self.ann()

        self.assertRefused(self.attempt(self.token("bob"), f"{RUNTIME}/registry"))
        self.assertIsNotNone(self.attempt(self.token(), f"{RUNTIME}/registry").session)

    def test_its_owner_comes_back_with_the_session_token_alone(self) -> None:
        """
        Its owner comes back with the session's token alone, or with a token of the provider alone.
        """
        ann = self.ann()
        ann.drop()

        back = self.attempt(from_=f"{RUNTIME}/{ann.token}", type="re-open")
        self.assertEqual({"code": 200}, back.take()[0]["body"])
        self.assertEqual(ANN, back.session.identity)
        back.drop()
        again = self.attempt(self.token(), type="re-open")
        self.assertEqual(ANN, again.session.identity)

    def test_connection_is_known(self) -> None:
        """
        A connection that has shown its token may open another session.
        """
        client = self.ann()
        client.tell(self.opening(from_="runtime://example.org/second"))

        self.assertEqual(200, client.take()[0]["body"]["code"])
        self.assertEqual(ANN, self.node.sessions.get("runtime://example.org/second").identity)

    def test_session_token_is_for_its_session(self) -> None:
        """
        A session's token opens no other session; the connection that came back by it may, as the same user.
        """
        ann = self.ann()
        below = f"{RUNTIME}/x"
        self.assertRefused(self.attempt(from_=f"{below}/{ann.token}", type="re-open"))
        ann.drop()
        back = self.attempt(from_=f"{RUNTIME}/{ann.token}", type="re-open")
        for other in (below, "runtime://example.org/other"):
            back.tell(self.opening(from_=other))
            self.assertEqual(ANN, self.node.sessions.get(other).identity)

    def test_connection_is_known_no_longer_than_its_token_holds(self) -> None:
        """
        What a connection has shown opens nothing when it has ended.
        """
        client = self.ann()
        client.tell({"id": 3, "type": "close", "from": RUNTIME, "to": "mn:/session"})
        client.lost = None
        self.node.clock.advance(700)
        self.node.sessions.connections.made(client)
        client.tell(self.opening(from_="runtime://example.org/second"))

        self.assertRefused(client)

    def test_takeover_by_token_only(self) -> None:
        """
        With `takeover = "token"` too, the owner takes the session over with a token of the provider.
        """
        self.session = {**self.session, "takeover": "token"}
        self.setUp()
        older = self.ann()
        newer = self.ann()

        self.assertIs(newer, self.node.sessions.get(RUNTIME).connection)
        self.assertIsNone(older.lost)
        self.assertRefused(self.attempt(self.token("bob")))

    def test_client_certificate_is_as_good_as_a_token(self) -> None:
        """
        A client certificate is as good as a token.
        """
        client = Client(self.node)
        client.identity = "urn:ann"
        client.tell(self.opening())

        self.assertEqual("urn:ann", client.session.identity)

    def with_certificate(self, name: str, from_: str = RUNTIME) -> Client:
        client = Client(self.node)
        client.identity = name
        client.tell(self.opening(from_=from_))
        return client

    def test_certificate_owns(self) -> None:
        """
        A session that a certificate opened, and what is below it, is its alone, or its token's.
        """
        for auth in ("required", "optional"):
            self.auth = auth
            self.setUp()
            lamp = self.with_certificate("urn:lamp")
            self.assertEqual("urn:lamp", lamp.session.identity)
            for from_ in (RUNTIME, f"{RUNTIME}/x"):
                self.assertRefused(self.attempt(self.token("bob"), from_))
                self.assertRefused(self.attempt(from_=from_))
                self.assertRefused(self.with_certificate("urn:other", from_))
                self.assertIsNotNone(self.with_certificate("urn:lamp", from_).session)
            secret = self.with_certificate("urn:lamp").take()[0]["body"]["runtimeToken"]
            back = self.attempt(from_=f"{RUNTIME}/{secret}", type="re-open")
            self.assertEqual("urn:lamp", back.session.identity)
            self.assertRefused(self.attempt(self.token("bob")))

    def test_token_may_come_with_the_connection_request(self) -> None:
        """
        The token may come with the connection's request; what stands in `open` goes before it.
        """
        client = Client(self.node)
        client.bearer = self.token()
        client.tell(self.opening())
        self.assertEqual(ANN, client.session.identity)

        other = Client(self.node)
        other.bearer = "nonsense"
        other.tell(self.opening(self.token("bob"), "runtime://example.org/bob"))
        self.assertEqual(BOB, other.session.identity)

    def test_messages_cost_nothing(self) -> None:
        """
        However many messages a session sends, one signature was checked.
        """
        ann = self.ann()
        for _ in range(500):
            ann.post("hyperty://example.org/1")

        self.assertEqual(1, self.node.world.tokens.verified)

    def test_secrecy(self) -> None:
        """
        The token is neither in the log, nor in the traffic log, nor on disk.
        """
        said: list[Any] = []
        globalLogPublisher.addObserver(said.append)
        self.addCleanup(globalLogPublisher.removeObserver, said.append)
        token, forged = self.token(), self.openid.token(OTHER_RSA)
        ann = self.attempt(token)
        self.attempt(forged)
        self.renew(ann, forged)

        written = repr(said) + repr(self.node.traffic_recorder.messages) + repr(ann.session.as_dict())
        for secret in (token, forged):
            self.assertNotIn(secret, written)
            self.assertNotIn(secret.split(".")[2], written)


class OptionalTests(GateCase):
    """
    `auth = "optional"`.
    """

    auth = "optional"

    def test_session_without_token_is_nobodys(self) -> None:
        """
        Without a token the session opens, and is nobody's.
        """
        self.assertEqual("", self.attempt().session.identity)

    def test_who_shows_a_token_that_is_no_good_is_refused(self) -> None:
        """
        Who shows a token that is no good is refused all the same.
        """
        self.assertRefused(self.attempt("nonsense"))

    def test_owned_session_is_not_taken_without_a_token(self) -> None:
        """
        A session that is somebody's is not taken by who shows nothing.
        """
        self.ann()

        self.assertRefused(self.attempt())

    def test_log_in_later(self) -> None:
        """
        A session that was opened without a token becomes its bearer's when it shows one.
        """
        client = self.attempt()
        client.take()

        reply = self.renew(client, self.token())

        self.assertEqual({"code": 200}, reply["body"])
        self.assertEqual(ANN, client.session.identity)

    def said_by(self, client: Client) -> list[Any]:
        """
        Who the node says the client is, to others; nothing if it is not heard.
        """
        bob = self.node.client("runtime://example.org/bob")
        bob.subscribe("hyperty://example.org/bob")
        client.tell(
            {
                "id": 9,
                "type": "update",
                "from": f"{RUNTIME}/x",
                "to": "hyperty://example.org/bob",
                "body": {"assertedIdentity": {}},
            }
        )
        return [message["body"].get("assertedIdentity", {}).get("userURL") for message in bob.take()]

    def test_opened_before_its_owner(self) -> None:
        """
        Who opened it as nobody does not speak for whom it belongs to then, and may only open again.
        """
        eve = self.attempt()
        ann = self.attempt(self.token())

        self.assertEqual([], self.said_by(eve))
        self.assertEqual([ANN], self.said_by(ann))
        self.assertIsNone(eve.lost)
        eve.take()
        eve.tell(self.opening())
        self.assertRefused(eve)

    def test_logs_in_above_others(self) -> None:
        """
        A session that becomes somebody's is no longer that of connections that were superseded before.
        """
        eve, ann = self.attempt(), self.attempt()

        self.renew(ann, self.token())

        self.assertEqual([], self.said_by(eve))
        self.assertEqual([ANN], self.said_by(ann))

    def test_logs_in_too_late(self) -> None:
        """
        Who was superseded in a session that is nobody's cannot make it its own by a token: another has it.
        """
        ann, eve = self.attempt(), self.attempt()
        ann.take()

        reply = self.renew(ann, self.token())

        words = "a newer connection took this session; open it again with the token"
        self.assertEqual((403, words), (reply["body"]["code"], reply["body"]["description"]))
        self.assertEqual([None], self.said_by(eve))
        ann.tell(self.opening(self.token()))
        self.assertEqual([ANN], self.said_by(ann))
        self.assertEqual([], self.said_by(eve))

    def test_logs_in_when_the_newer_is_gone(self) -> None:
        """
        Nor when the newer connection is gone: its client has the session's token, and would come back by it.
        """
        ann, eve = self.attempt(), self.attempt()
        eve.drop()

        self.assertEqual(403, self.renew(ann, self.token())["body"]["code"])
        ann.tell(self.opening(self.token()))
        self.assertEqual([ANN], self.said_by(ann))
        self.assertRefused(self.attempt(from_=f"{RUNTIME}/{eve.token}", type="re-open"))

    def test_entered_by_its_user(self) -> None:
        """
        Where its user comes by a connector that gives no tokens, the token of who had it before is void.
        """
        for logs_in in (False, True):
            self.setUp()
            eve, ann = self.attempt(), Client(self.node)
            ann.bearer = "" if logs_in else self.token()
            self.node.handshake.enter(RUNTIME, ann)
            if logs_in:
                self.renew(ann, self.token())

            self.assertEqual(ANN, ann.session.identity)
            self.assertIsNone(self.node.sessions.by_token(eve.token))
            self.assertRefused(self.attempt(from_=f"{RUNTIME}/{eve.token}", type="re-open"))

    def test_same_user_twice(self) -> None:
        """
        An older connection that showed the same user's token goes on being heard.
        """
        older, _ = self.ann(), self.ann()

        self.assertEqual([ANN], self.said_by(older))

    def test_session_whose_token_has_ended_takes_a_newer_one(self) -> None:
        """
        A session whose token has ended takes a newer one, as where tokens are required.
        """
        ann = self.ann()
        ann.drop()
        self.node.clock.advance(700)
        self.assertTrue(self.node.authenticator.lapsed(self.node.sessions.get(RUNTIME)))

        self.assertRefused(self.attempt(from_=f"{RUNTIME}/{ann.token}", type="re-open"))
        back = self.attempt(self.token(), f"{RUNTIME}/{ann.token}", "re-open")
        self.assertEqual(ANN, back.session.identity)


class NoneTests(GateCase):
    """
    `auth = "none"`: nobody looks.
    """

    auth = "none"

    def test_ignored(self) -> None:
        """
        Tokens change nothing, and renewing one is not offered.
        """
        client = self.attempt("nonsense")
        client.take()

        self.assertEqual("", client.session.identity)
        self.assertEqual(501, self.renew(client, self.token())["body"]["code"])

    def test_switched_off_for_those_who_are_there(self) -> None:
        """
        Who is there when it is switched off is neither warned nor parked any more.
        """
        self.auth = "required"
        self.setUp()
        ann = self.ann()
        self.node.config.identity.auth = "none"
        self.node.apply()
        self.node.world.offer(self.node)
        self.node.clock.advance(545)
        self.node.clock.advance(200)

        self.assertEqual([], ann.take())
        self.assertIsNone(ann.lost)
        self.assertEqual(("", None), (ann.session.identity, ann.session.proof))

    def test_switched_off(self) -> None:
        """
        When the operator switches it off, what was proved before makes nobody else its owner.
        """
        node = MemoryNode(world=World, identity={"auth": "required", "providers": [provider()]})
        self.node, self.openid = node, node.world.openid
        node.world.tokens.start()
        node.world.pump()
        self.ann()
        node.config.identity.auth = "none"
        node.apply()

        taken = self.attempt()

        self.assertEqual("", taken.session.identity)
        self.assertIsNone(taken.session.proof)
        node.clock.advance(700)
        self.assertIsNone(taken.lost)


class LifeTests(GateCase):
    """
    A token's end: a warning, a newer token, a grace period, the park.
    """

    def warnings(self, client: Client) -> list[int]:
        expected = {"id": 0, "type": "update", "from": "mn:/session", "to": RUNTIME}
        got = client.take()
        for message in got:
            self.assertEqual({**expected, "body": message["body"]}, message)
            self.assertEqual("token", message["body"]["attribute"])
        return [message["body"]["value"] for message in got]

    def test_client_is_warned_before_its_token_ends(self) -> None:
        """
        A minute before the end the client is told how long it has, and once more at the end.
        """
        ann = self.ann()
        self.node.clock.advance(539)
        self.assertEqual([], self.warnings(ann))
        self.node.clock.advance(1)
        self.assertEqual([60], self.warnings(ann))
        self.node.clock.advance(60)

        self.assertEqual([0], self.warnings(ann))
        self.assertIsNone(ann.lost)

    def test_session_is_parked_after_the_grace_period(self) -> None:
        """
        After the grace period the connection is closed; the session and its addresses wait for their owner.
        """
        ann = self.ann()
        ann.ask(type="subscribe", to=SM, body={"resources": ["comm://example.org/1"]})
        self.node.clock.advance(540)
        self.node.clock.advance(60)
        self.node.clock.advance(29)
        self.assertIsNone(ann.lost)
        self.node.clock.advance(1)
        self.assertEqual((4401, "token", None), tuple(ann.lost))
        session = self.node.sessions.get(RUNTIME)
        self.assertEqual("", session.identity)
        self.assertIsNone(session.connection)

        self.assertRefused(self.attempt(from_=f"{RUNTIME}/{ann.token}", type="re-open"))
        self.assertRefused(self.attempt(self.token("bob")))
        sender = self.attempt(self.token("bob"), "runtime://example.org/bob")
        sender.post("comm://example.org/1", "update")
        back = self.attempt(self.token(), f"{RUNTIME}/{ann.token}", "re-open")
        reply, update = back.take()
        self.assertEqual({"code": 200}, reply["body"])
        self.assertEqual("comm://example.org/1", update["to"])
        self.assertEqual(ANN, session.identity)

    def test_superseded_too(self) -> None:
        """
        Older connections of the session are closed with it.
        """
        older, newer = self.ann(), self.ann()
        self.node.clock.advance(540)
        self.node.clock.advance(60)
        self.node.clock.advance(30)

        self.assertEqual([4401, 4401], [older.lost.code, newer.lost.code])

    def test_newer_token_goes_on_where_the_old_one_ends(self) -> None:
        """
        A newer token goes on where the old one ends: nothing is closed, nothing is lost.
        """
        ann = self.ann()
        self.node.clock.advance(540)
        ann.take()
        reply = self.renew(ann, self.token())
        self.assertEqual(
            {"id": 8, "type": "response", "from": "mn:/session", "to": RUNTIME, "body": {"code": 200}}, reply
        )
        self.node.clock.advance(539)
        self.assertEqual([], self.warnings(ann))
        self.node.clock.advance(1)

        self.assertEqual([60], self.warnings(ann))
        self.assertIsNone(ann.lost)

    def test_old_token_shown_again_is_not_warned_of_at_once(self) -> None:
        """
        A client that answers each warning by the same token is told twice, not without end.
        """
        token = self.token()
        ann = self.attempt(token)
        ann.take()
        self.node.clock.advance(540)
        self.assertEqual([60], self.warnings(ann))

        self.renew(ann, token)
        self.node.clock.advance(59)
        self.assertEqual([], self.warnings(ann))
        self.node.clock.advance(1)

        self.assertEqual([0], self.warnings(ann))

    def test_renewed_wrongly(self) -> None:
        """
        A token that is another's, or no good, changes nothing and is answered in words.
        """
        ann = self.ann()
        for code, words, token in (
            (403, f"this session belongs to {ANN}", self.token("bob")),
            (401, "is not signed", self.openid.token(OTHER_RSA)),
            (400, "must be the new token", None),
            (400, "must be the new token", 5),
        ):
            body = self.renew(ann, token)["body"]
            self.assertEqual(code, body["code"])
            self.assertIn(words, body["description"])
        self.assertEqual(ANN, ann.session.identity)
        self.assertIsNone(ann.lost)

    def test_token_that_ends_soon_is_warned_of_at_once(self) -> None:
        """
        Who comes with a token that ends in a moment is warned at once.
        """
        ann = self.attempt(self.token(exp=int(self.openid.wall()) + 20))
        ann.take()
        self.node.clock.advance(0)

        self.assertEqual([20], self.warnings(ann))

    def test_at_the_edge(self) -> None:
        """
        A token that is over by less than clocks may differ leaves its bearer the grace period.
        """
        ann = self.attempt(self.token(exp=int(self.openid.wall()) - 40))
        ann.take()
        self.node.clock.advance(29)
        self.assertEqual([0], self.warnings(ann))
        self.assertIsNone(ann.lost)
        self.node.clock.advance(1)

        self.assertEqual(4401, ann.lost.code)

    def test_token_for_years_takes_no_timer_for_years(self) -> None:
        """
        A token for years takes no timer for years.
        """
        self.attempt(self.token(exp=int(self.openid.wall()) + 10**9))

        self.assertTrue(all(call.getTime() <= 86400 for call in self.node.clock.getDelayedCalls()))

    def test_session_whose_identity_ends_while_its_client(self) -> None:
        """
        A session whose identity ends while its client is away has none when it comes back.
        """
        ann = self.ann()
        ann.drop()
        for seconds in (540, 60, 30):
            self.node.clock.advance(seconds)

        self.assertEqual("", self.node.sessions.get(RUNTIME).identity)
        self.assertRefused(self.attempt(from_=f"{RUNTIME}/{ann.token}", type="re-open"))

    def test_session_that_ends_leaves_no_timer_behind(self) -> None:
        """
        A session that ends leaves no timer behind.
        """
        before = len(self.node.clock.getDelayedCalls())
        ann = self.ann()
        ann.close()
        ann.drop()

        self.assertEqual(before, len(self.node.clock.getDelayedCalls()))


class WaitingTests(GateCase):
    """
    A provider that must first be asked for its keys.
    """

    fetched = False

    def test_behind_an_open_that_waits_everything_waits(self) -> None:
        """
        Behind an open that waits everything waits, and is then done in order.
        """
        received = self.node.counts.received
        client = Client(self.node)
        client.tell(self.opening(self.token()))
        client.tell({"id": 2, "type": "subscribe", "from": RUNTIME, "to": SM, "body": {"resources": ["a:b"]}})
        client.tell({"id": 3, "type": "update", "from": RUNTIME, "to": "a:b"})
        self.assertEqual([], client.raw)
        self.node.world.pump()

        self.assertEqual([1, 2, 3], sorted(message["id"] for message in client.take()))
        self.assertEqual(received + 3, self.node.counts.received)
        self.assertEqual(
            ["open", "subscribe", "update"], [m["type"] for m in self.node.traffic_recorder.messages]
        )

    def test_in_vain(self) -> None:
        """
        After two and a half seconds the connection is closed, and may come back; open is not answered.
        """
        self.node.world.provider_wires.refuse = "hang"
        client = self.attempt(self.token())
        self.node.clock.advance(TOKEN_TIMEOUT_SECONDS - 0.1)
        self.assertIsNone(client.lost)
        self.node.clock.advance(0.1)

        self.assertEqual((4401, "token", 5), tuple(client.lost))
        self.assertEqual([], client.raw)

    def test_provider_that_cannot_be_reached_closes(self) -> None:
        """
        A provider that cannot be reached closes the connection, which may come back.
        """
        self.node.world.provider_wires.refuse = ConnectionRefusedError()

        client = self.attempt(self.token())
        self.node.world.pump()

        self.assertRefused(client, 5)

    def test_more_than_64_kib_do_not_wait(self) -> None:
        """
        More than 64 KiB do not wait.
        """
        client = self.attempt(self.token())
        message = {"id": 2, "type": "update", "from": RUNTIME, "to": "a:b", "body": {"value": "x" * 1000}}
        sent = 0
        for _ in range(100):
            if client.lost is not None:
                break
            client.tell(message)
            sent += len(json.dumps(message))

        self.assertEqual(4401, client.lost.code)
        self.assertEqual({}, self.node.input_order.pending)
        self.assertLess(sent - MAX_BUFFERED_BYTES, 2000)

    def test_client_that_leaves_while_it_waits_opens_nothing(self) -> None:
        """
        A client that leaves while it waits opens nothing.
        """
        client = self.attempt(self.token())
        client.drop()
        self.node.world.pump()
        self.node.clock.advance(TOKEN_TIMEOUT_SECONDS)

        self.assertEqual(0, len(self.node.sessions))
        self.assertEqual({}, self.node.input_order.pending)

    def test_refused_late(self) -> None:
        """
        A token that turns out to be no good closes the connection, and what waited is not carried.
        """
        client = self.attempt(self.openid.token(OTHER_RSA))
        client.tell({"id": 2, "type": "update", "from": RUNTIME, "to": "a:b"})
        self.node.world.pump()
        self.node.clock.advance(5)

        self.assertEqual((4401, "token", None), tuple(client.lost))
        self.assertEqual([401], [m["body"]["code"] for m in client.take()])

    def test_renewal_waits(self) -> None:
        """
        A newer token whose key is not known yet is answered when it is; what comes behind does not wait.
        """
        client = self.attempt(self.token())
        self.node.world.pump()
        client.take()
        self.openid.rotate()
        client.tell({"id": 8, "type": "update", "to": "mn:/session", "body": {"token": self.token()}})
        client.tell({"id": 9, "type": "subscribe", "from": RUNTIME, "to": SM, "body": {"resources": ["a:b"]}})
        self.assertEqual([9], [message["id"] for message in client.take()])
        self.node.world.pump()

        self.assertEqual([(8, 200)], [(m["id"], m["body"]["code"]) for m in client.take()])


class ClaimsTests(GateCase):
    """
    `body.assertedIdentity` is the node's word, whoever wrote it.
    """

    auth = "optional"

    def heard(self, sender: Client, message: dict[str, Any] | bytes) -> Any:
        listener = self.attempt(from_="runtime://example.org/listener")
        listener.take()
        sender.tell(message)
        return listener.take()[-1]["body"]

    def message(self, body: Any) -> dict[str, Any]:
        return {
            "id": 1,
            "type": "x",
            "from": f"{RUNTIME}/a",
            "to": "runtime://example.org/listener",
            "body": body,
        }

    def test_overwritten(self) -> None:
        """
        A verified sender's word is replaced by who it is.
        """
        told = {"userURL": ANN, "idp": "example.org", "preferred_username": "ann@example.org"}

        for claim in ({"userURL": BOB}, "bob", None):
            body = self.heard(self.ann(), self.message({"assertedIdentity": claim, "value": 1}))
            self.assertEqual({"value": 1, "assertedIdentity": told}, body)

    def test_stripped(self) -> None:
        """
        A sender that showed nothing has its word taken out, however it spells the key.
        """
        sender = self.attempt()
        for key in ("assertedIdentity", "\\u0061ssertedIdentity", "asserted\\u0049dentity"):
            text = (
                '{"id":1,"type":"x","from":"%s/a","to":"runtime://example.org/listener","body":{"%s":"bob"}}'
            )
            self.assertEqual({}, self.heard(sender, (text % (RUNTIME, key)).encode()))
            half = text.replace('"body":{', '"body":{"half":"\\ud83d",')
            heard = self.heard(sender, (half % (RUNTIME, key)).encode())
            self.assertEqual({"half": "\ud83d"}, heard)

    def test_message_without_asserted_identity_is_unchanged(self) -> None:
        """
        Any other message goes on byte for byte.
        """
        listener = self.attempt(from_="runtime://example.org/listener")
        listener.take()
        data = (
            b'{"id":1, "type":"x","from":"%s","to":"runtime://example.org/listener","body": {"v":"\\u0041"}}'
        )
        self.attempt().tell(data % RUNTIME.encode())

        self.assertEqual([data % RUNTIME.encode()], listener.raw)


class RemovedTests(GateCase):
    """
    A provider that the operator takes out of the configuration.
    """

    def test_users_of_a_removed_provider_are_parked(self) -> None:
        """
        Its users are parked, and a session's token alone brings nobody back.
        """
        ann = self.ann()
        self.node.config.identity.providers.clear()
        self.node.world.offer(self.node)

        self.assertEqual(4401, ann.lost.code)
        self.assertRefused(self.attempt(from_=f"{RUNTIME}/{ann.token}", type="re-open"))


class DeviceTests(SynchronousTestCase):
    """
    Static tokens from a file.
    """

    def setUp(self) -> None:
        self.path = directory(self) / "devices"
        self.secret = "mnd_" + "x" * 43
        self.write(f"# ours\n\n{sha256(self.secret.encode()).hexdigest()}  device://example.org/lamp\n")
        self.node = MemoryNode(world=World, identity={"auth": "required", "devices": str(self.path)})

    def write(self, text: str) -> None:
        self.path.write_text(text)

    def attempt(self, token: str) -> Client:
        client = Client(self.node)
        client.tell({"id": 1, "type": "open", "from": RUNTIME, "to": "mn:/session", "body": {"token": token}})
        return client

    def test_device_opens_with_the_token_whose_hash(self) -> None:
        """
        A device opens with the token whose hash is in the file, without end.
        """
        client = self.attempt(self.secret)

        self.assertEqual("device://example.org/lamp", client.session.identity)
        self.node.clock.advance(86400 * 30)
        self.assertIsNone(client.lost)

    def test_another_token_opens_nothing_nor_does_the_hash(self) -> None:
        """
        Another token opens nothing, nor does the hash.
        """
        for token in ("mnd_" + "y" * 43, "mnd_", sha256(self.secret.encode()).hexdigest()):
            self.assertIsNone(self.attempt(token).session, token)

    def test_struck_out_device_is_parked(self) -> None:
        """
        A device that is taken out of the file is parked when it is read again.
        """
        client = self.attempt(self.secret)
        self.write("")
        tokens = self.node.world.tokens
        tokens.use(tokens.read())
        self.node.world.offer(self.node)

        self.assertEqual(4401, client.lost.code)
        self.assertIsNone(self.attempt(self.secret).session)

    def reread(self, text: str) -> None:
        self.write(text)
        tokens = self.node.world.tokens
        tokens.use(tokens.read())
        self.node.world.offer(self.node)

    def come_back(self, token: str) -> Client:
        client = Client(self.node)
        client.tell({"id": 1, "type": "re-open", "from": f"{RUNTIME}/{token}", "to": "mn:/session"})
        return client

    def test_struck_out_stays_out(self) -> None:
        """
        Its session's token brings a device that was struck out back no more, until its line is there again.
        """
        before = self.path.read_text()
        for auth in ("required", "optional"):
            self.node.config.identity.auth = auth
            token = self.attempt(self.secret).take()[0]["body"]["runtimeToken"]
            self.reread("")
            self.assertIsNone(self.come_back(token).session, auth)
            self.reread(before)
            self.assertIsNotNone(self.come_back(token).session, auth)

    def test_when_a_device_gets_another_token_who_came(self) -> None:
        """
        When a device gets another token, who came with the one before is parked; the new one opens.
        """
        client = self.attempt(self.secret)
        other = "mnd_" + "z" * 43
        self.reread(f"{sha256(other.encode()).hexdigest()}  device://example.org/lamp\n")

        self.assertEqual(4401, client.lost.code)
        self.assertIsNone(self.come_back(client.take()[0]["body"]["runtimeToken"]).session)
        self.assertIsNotNone(self.attempt(other).session)


class PolicyTests(GateCase):
    """
    Policies know a client by its token, and by nothing else.
    """

    def use(self, condition: Any, effect: str) -> None:
        rule = {"id": "r", "target": {}, "condition": condition, "effect": effect}
        policy = {"id": "p", "target": {}, "rules": [rule], "ruleCombiningAlgorithm": "blockOverrides"}
        document = [
            {"id": "s", "target": {}, "policies": [policy], "policyCombiningAlgorithm": "blockOverrides"}
        ]
        self.node.enforcement.use(read(json.dumps(document).encode()), 1)

    def test_rule_for_a_user_decides_by_its_token(self) -> None:
        """
        A rule for a user name, its provider and its scopes decides by the token, whatever the body says.
        """
        ann, bob = self.ann(), self.attempt(self.token("bob"), "runtime://example.org/bob")
        self.use({"srcUsername": {"equals": "bob@example.org"}, "srcIDP": {"equals": "example.org"}}, "deny")
        claim = {"identity": {"userProfile": {"username": "ann@example.org"}}}

        for client in (ann, bob):
            client.take()
            client.post(RUNTIME, type="read", id=5, body=claim)

        self.assertEqual([403], [message["body"]["code"] for message in bob.take()])
        self.assertEqual(["read"], [message["type"] for message in ann.take()])

    def test_rule_knows_the_user_at_connect(self) -> None:
        """
        It is known by then already, so that a rule can keep it out.
        """
        self.use({"srcUsername": {"equals": "ann@example.org"}, "direction": {"equals": "connect"}}, "deny")

        client = self.attempt(self.token())

        self.assertIsNone(client.session)
        self.assertEqual(4403, client.lost.code)

    def test_manager(self) -> None:
        """
        Who is named in `policy.managers` may manage them with a token, as long as it holds.
        """
        self.node.config.policy.managers.append(ANN)
        ann, bob = self.ann(), self.attempt(self.token("bob"), "runtime://example.org/bob")

        self.assertEqual(ANN, self.node.enforcement.contexts.manager(ann))
        self.assertEqual("", self.node.enforcement.contexts.manager(bob))
        self.node.clock.advance(800)
        self.assertEqual("", self.node.enforcement.contexts.manager(ann))

    def test_manager_by_whole_address(self) -> None:
        """
        A bare user name makes no manager: who bears it depends on who vouches.
        """
        self.node.config.policy.managers.append("ann@example.org")

        self.assertEqual("", self.node.enforcement.contexts.manager(self.ann()))
