"""
Identity tokens in messages: whose they are, for the policies, and what is refused.
"""

import base64
import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.config.loader import check
from msgnode.config.schema import ConfigError
from msgnode.protocol.address import SESSION
from msgnode.protocol.message import Message, compose
from msgnode.sessions.access.device_tokens import line, make_token
from tests.support.fakes import Client, MemoryNode, directory, peak, refused_codes
from tests.support.http_client import HTTPClient
from tests.support.made_policies import rule, use
from tests.support.network import Network
from tests.support.openid import OTHER_RSA, provider, unsigned
from tests.support.runtimes import TCPRuntime, WebSocketRuntime
from tests.support.world import World

ANN = "ann@example.org"


class TokensCase(SynchronousTestCase):
    """
    A node that marks what the tokens in messages prove, a sender `a` and a recipient `b`.
    """

    def setUp(self) -> None:
        self.restart("mark")

    def restart(self, what: str, **options: Any) -> None:
        identity = {"message_identity": what, "providers": [provider()], **options}
        self.node = MemoryNode(world=World, identity=identity)
        self.openid = self.node.world.openid
        self.a, self.b = (self.node.client(f"runtime://example.org/{name}") for name in "ab")
        self.warm()

    def warm(self) -> None:
        """
        Have the provider's keys fetched, as a node does when it starts.
        """
        self.node.world.tokens.start()
        self.pump()

    def pump(self) -> None:
        self.node.world.pump()

    def send(self, identity: Any, type: str = "update", client: Client | None = None, **fields: Any) -> None:
        (client or self.a).post("runtime://example.org/b", type, body={"identity": identity}, **fields)

    def permit(self, **condition: Any) -> None:
        """
        Only what meets the condition is carried.
        """
        use(self.node, rule("permit", condition), rule("deny", {}, "rest"), algorithm="firstApplicable")

    def came(self) -> int:
        return len(self.b.take())

    def assertState(self, state: str, identity: Any) -> None:
        for wanted in ("none", "valid", "invalid", "unknown"):
            self.permit(**{"message.identity.state": {"equals": wanted}})
            self.send(identity)
            self.pump()
            self.assertEqual(wanted == state, bool(self.came()), (wanted, state, identity))


class MarkTests(TokensCase):
    """
    `message_identity = "mark"`
    """

    def test_a_good_token_is_valid_and_its_user_known(self) -> None:
        """
        Policies see whose it is, who vouches for it and when it ends.
        """
        token = self.openid.token()
        expires = int(self.openid.wall()) + 600
        self.assertState("valid", {"assertion": token})

        for name, value in (("user", ANN), ("idp", "example.org"), ("expires", expires)):
            self.permit(**{f"message.identity.{name}": {"equals": value}})
            self.send({"assertion": token})

        self.assertEqual(3, self.came())

    def test_a_message_with_tokens_is_forwarded_byte_for_byte(self) -> None:
        """
        Marking is for the policies; nothing of it stands in the message.
        """
        data = json.dumps(
            {"id": 1, "type": "update", "from": "runtime://example.org/a", "to": "runtime://example.org/b",
             "body": {"identity": {"assertion": self.openid.token(), "x": "é"}}}
        ).encode()  # fmt: skip

        self.a.tell(data)

        self.assertEqual([data], self.b.raw)

    def test_no_more_than_the_tokens_is_read(self) -> None:
        """
        However much stands beside them, the message goes on, and nothing of it is built.
        """
        token = self.openid.token()
        for much in ("[" + "0," * 500_000 + "0]", "[" + '"",' * 300_000 + '"\\ud83d"]'):
            for beside in (b'"x":%s,"identity":{"assertion":"%s"}', b'"identity":{"x":%s,"assertion":"%s"}'):
                data = (
                    b'{"id":1,"type":"update","from":"runtime://example.org/a","to":"runtime://example.org/b",'
                    b'"body":{%s}}' % beside % (much.encode(), token.encode())
                )

                held = peak(lambda data=data: self.a.tell(data))

                self.assertEqual((1, True), (len(self.b.raw), self.b.raw == [data]))
                self.assertLess(held, 5 * len(data))
                self.b.raw.clear()
        self.assertEqual(4, self.node.message_identity.counts["valid"])

    def test_the_last_of_several_is_the_one(self) -> None:
        """
        As recipients read it: of keys that stand twice the last one, in whatever escapes.
        """
        good, forged = self.openid.token(), self.openid.token(OTHER_RSA)
        for first, last, state in ((good, forged, "invalid"), (forged, good, "valid")):
            for spelt in ("assertion", r"\u0061ssertion"):
                self.permit(**{"message.identity.state": {"equals": state}})
                self.a.tell(
                    (
                        '{"id":1,"type":"update","from":"runtime://example.org/a","to":"runtime://example.org/b",'
                        f'"body":{{"identity":{{"assertion":"{first}","{spelt}":"{last}"}}}}}}'
                    ).encode()
                )

                self.assertEqual(1, self.came())

    def test_a_message_without_tokens_has_none(self) -> None:
        """
        Whatever else stands in the identity, or in its place.
        """
        for identity in (
            {},
            {"userProfile": {"username": "ann"}},
            {"assertion": ""},
            {"assertion": None},
            "x",
            [],
            3,
        ):
            with self.subTest(identity=identity):
                self.assertState("none", identity)
        self.permit(**{"message.identity.state": {"equals": "none"}})
        self.a.post("runtime://example.org/b")
        self.assertEqual(1, self.came())

    def test_a_forged_token_is_never_valid(self) -> None:
        """
        Nor is one that has ended, is from elsewhere, for others, unsigned, a device's, or no token at all.
        """
        claims = {"iss": "https://id.example.org", "sub": "ann-1", "aud": "msgnode", "exp": 2_000_000_000}
        good = self.openid.token()
        head, _, rest = good.partition(".")
        tokens = (
            self.openid.token(OTHER_RSA),
            self.openid.token(exp=int(self.openid.wall()) - 600),
            self.openid.token(iss="https://evil.example"),
            self.openid.token(aud="another"),
            unsigned(claims),
            good[:-8] + "AAAAAAAA",
            f"{head}.{base64.urlsafe_b64encode(json.dumps({**claims, 'email': 'eve@x'}).encode()).decode()}."
            + rest.partition(".")[2],
            make_token(),
            "of my own making",
            "x" * 100_000,
            5,
            {"token": good},
            [good],
        )
        for token in tokens:
            for name in ("assertion", "access_token"):
                with self.subTest(token=str(token)[:60], name=name):
                    self.assertState("invalid", {name: token})
                    self.assertState("invalid", {"assertion": good, name: token})

    def test_a_device_token_is_nobodys_in_a_message(self) -> None:
        """
        Also one that opens sessions here: whoever reads the message could use it.
        """
        devices, secret = directory(self) / "devices", make_token()
        devices.write_text(line(secret, "device://example.org/lamp") + "\n")
        self.restart("mark", devices=str(devices))

        self.assertState("invalid", {"assertion": secret})

    def test_a_runtimes_own_form_of_an_assertion_is_read(self) -> None:
        """
        Base64 of an object that holds the token as `tokenID`, as runtimes make it.
        """
        packed = base64.b64encode(json.dumps({"tokenID": self.openid.token()}).encode()).decode()

        self.assertState("valid", {"assertion": packed})

    def test_both_tokens_must_be_good_and_of_one_user(self) -> None:
        """
        An assertion beside another user's access token proves nothing.
        """
        ann = self.openid.token()
        eve = self.openid.token(sub="eve-1", email="eve@example.org")

        self.assertState("valid", {"assertion": ann, "access_token": self.openid.token(jti="2")})
        self.assertState("invalid", {"assertion": ann, "access_token": eve})

    def test_a_key_in_escapes_is_looked_at_too(self) -> None:
        """
        What recipients read as `identity` is what the node reads.
        """
        self.permit(**{"message.identity.state": {"equals": "none"}})
        head = (
            b'{"id":1,"type":"update","from":"runtime://example.org/a","to":"runtime://example.org/b","body":'
        )
        for body in (
            rb'{"\u0069dentity":{"assertion":"forged"}}',
            rb'{"identity":{"\u0061ssertion":"forged"}}',
            rb'{"identity":{"access\u005ftoken":"forged"}}',
            rb'{"identity":{},"identity":{"assertion":"forged"}}',
            rb'{"half":"\ud83d","identity":{"assertion":"forged"}}',
            rb'{"long":' + b"9" * 5000 + rb',"identity":{"assertion":"forged"}}',
        ):
            with self.subTest(body=body[:60]):
                self.a.tell(head + body + b"}")
                self.assertEqual(0, self.came())

    def test_a_token_that_ended_since_is_no_longer_valid(self) -> None:
        """
        Being remembered does not make it live longer.
        """
        token = self.openid.token()
        self.assertState("valid", {"assertion": token})

        self.node.clock.advance(700)

        self.assertState("invalid", {"assertion": token})

    def test_a_bad_token_is_looked_at_once(self) -> None:
        """
        A flood of messages with one forged token costs one check of its signature.
        """
        forged = self.openid.token(OTHER_RSA)
        for _ in range(50):
            self.send({"assertion": forged})

        self.assertEqual(50, self.node.message_identity.counts["invalid"])
        self.assertGreaterEqual(1, self.node.world.tokens.verified)

    def test_each_recipient_of_several_is_decided_with_the_same_proof(self) -> None:
        """
        A message to a list is looked at once, and known for each of its copies.
        """
        c = self.node.client("runtime://example.org/c")
        self.permit(**{"message.identity.user": {"equals": ANN}})

        self.a.post(
            ["runtime://example.org/b", "runtime://example.org/c"],
            body={"identity": {"assertion": self.openid.token()}},
        )

        self.assertEqual((1, 1), (self.came(), len(c.take())))
        self.assertEqual(1, self.node.message_identity.counts["valid"])


class SlowProviderTests(TokensCase):
    """
    A provider that must first be asked.
    """

    def warm(self) -> None:
        """
        Nobody has asked for its keys yet.
        """

    def test_what_comes_behind_a_token_waits_for_its_provider(self) -> None:
        """
        The order of a sender holds, and nobody else waits.
        """
        other = self.node.client("runtime://example.org/c")
        self.send({"assertion": self.openid.token()}, id=1)
        self.a.post("runtime://example.org/b", id=2)
        other.post("runtime://example.org/b", id=3)
        self.assertEqual([3], [message["id"] for message in self.b.take()])

        self.pump()

        self.assertEqual([1, 2], [message["id"] for message in self.b.take()])

    def test_a_provider_that_does_not_answer_leaves_the_state_unknown(self) -> None:
        """
        After two and a half seconds the message goes on, and so does what waited behind it.
        """
        self.permit(**{"message.identity.state": {"in": ["unknown", "none"]}})
        self.node.world.provider_wires.refuse = "hang"
        self.send({"assertion": self.openid.token()}, id=1)
        self.a.post("runtime://example.org/b", id=2)

        self.node.clock.advance(2.4)
        self.assertEqual(0, self.came())
        self.node.clock.advance(0.2)

        self.assertEqual([1, 2], [message["id"] for message in self.b.take()])
        self.assertEqual(1, self.node.message_identity.counts["unknown"])

    def test_a_sender_that_goes_meanwhile_has_sent_all_the_same(self) -> None:
        """
        Its message was taken, and is carried when its tokens are known.
        """
        self.send({"assertion": self.openid.token()})
        self.a.drop()

        self.pump()

        self.assertEqual(1, self.came())

    def test_who_comes_back_meanwhile_is_carried_in_order(self) -> None:
        """
        What it sends by its next connection waits for what it sent by the last, whether that was lost or not.
        """
        for is_lost in (True, False):
            for resume in (False, True):
                self.restart("mark")
                client, body = Client(self.node), {"resume": True} if resume else {}
                client.tell(
                    {"id": 1, "type": "open", "from": "runtime://example.org/c", "to": SESSION, "body": body}
                )
                told = client.take()[0]["body"]
                sends: list[dict[str, Any]] = [
                    {"id": 1, "body": {"identity": {"assertion": self.openid.token()}}},
                    {"id": 2},
                    {"id": 3},
                ]
                to_b = {"type": "update", "from": "runtime://example.org/c", "to": "runtime://example.org/b"}
                sends = [to_b | each for each in sends]
                for message in sends[:2]:
                    client.tell(message)

                if is_lost:
                    client.drop()
                newer = Client(self.node)
                body = {"resume": {"epoch": told["resume"]["epoch"], "received": 0}} if resume else {}
                from_ = f"runtime://example.org/c/{told['runtimeToken']}"
                newer.tell({"id": 2, "type": "re-open", "from": from_, "to": SESSION, "body": body})
                received = newer.take()[0]["body"]["resume"]["received"] if resume else 2
                for message in sends[received:]:
                    newer.tell(message)
                self.pump()

                expected = [1, 3] if is_lost and not resume else [1, 2, 3]
                self.assertEqual(expected, [message["id"] for message in self.b.take()])
                self.assertEqual(0, len(self.node.input_order))

    def test_what_comes_behind_a_request_does_not_wait_for_its_answer(self) -> None:
        """
        It waits for the token's provider only.
        """
        answer: Deferred[Message] = Deferred()
        self.node.offer("slow", Slow(answer))
        self.a.post(
            "domain://slow.example.org", "read", id=1, body={"identity": {"assertion": self.openid.token()}}
        )
        self.a.post("runtime://example.org/b", id=2)

        self.pump()

        self.assertEqual([2], [message["id"] for message in self.b.take()])
        answer.callback(compose(1, "response", "domain://slow.example.org", self.a.runtime, {"code": 200}))
        self.assertEqual([200], [message["body"]["code"] for message in self.a.take()])


class Slow:
    """
    A responder whose answer takes its time.
    """

    addresses = ("domain://slow.example.org",)

    def __init__(self, answer: Deferred[Message]) -> None:
        self._answer = answer

    def respond(self, message: Message, session: Any) -> Deferred[Message]:
        return self._answer


class RefuseTests(TokensCase):
    """
    `message_identity = "refuse"`
    """

    def setUp(self) -> None:
        self.restart("refuse")

    def test_a_message_whose_token_is_not_good_is_refused_in_words(self) -> None:
        """
        A request is answered 403, an update is dropped and counted; nothing is delivered.
        """
        for type in ("read", "update"):
            self.send({"assertion": self.openid.token(OTHER_RSA)}, type)

        answers = self.a.take()
        self.assertEqual([403], [answer["body"]["code"] for answer in answers])
        self.assertIn("the token in 'body.identity'", answers[0]["body"]["desc"])
        self.assertEqual(({403: 2}, 0), (refused_codes(self.node.counts), self.came()))

    def test_a_message_with_a_good_token_or_none_goes_on(self) -> None:
        """
        Nobody has to show one.
        """
        self.send({"assertion": self.openid.token()})
        self.send({"userProfile": {}})
        self.a.post("runtime://example.org/b")

        self.assertEqual(3, self.came())

    def test_a_token_that_cannot_be_looked_at_is_refused_for_now(self) -> None:
        """
        Letting it pass while its provider is silent would let a forged one pass.
        """
        self.restart_cold()
        self.node.world.provider_wires.refuse = "hang"

        self.send({"assertion": self.openid.token()}, "read")
        self.node.clock.advance(3)

        self.assertEqual([504], [answer["body"]["code"] for answer in self.a.take()])
        self.assertEqual(0, self.came())

    def restart_cold(self) -> None:
        identity = {"message_identity": "refuse", "providers": [provider()]}
        self.node = MemoryNode(world=World, identity=identity)
        self.openid = self.node.world.openid
        self.a, self.b = (self.node.client(f"runtime://example.org/{name}") for name in "ab")


class IgnoreTests(TokensCase):
    """
    `message_identity = "ignore"`, the default
    """

    def setUp(self) -> None:
        self.restart("ignore")

    def test_nobody_looks_at_tokens_in_messages(self) -> None:
        """
        They are carried, and policies know nothing of them.
        """
        self.permit(**{"not": {"message.identity.state": {"exists": True}}})
        self.send({"assertion": "forged"})

        self.assertEqual(1, self.came())
        self.assertEqual(0, sum(self.node.message_identity.counts.values()))


class WireTests(SynchronousTestCase):
    """
    By each wire.
    """

    def test_a_forged_token_is_refused_by_every_connector(self) -> None:
        """
        WebSocket, lines and REST tell the sender 403, and the recipient gets nothing.
        """
        net = Network(identity={"message_identity": "refuse", "providers": [provider()]})
        victim = TCPRuntime(net, "runtime://example.org/victim").open()
        forged = net.node.world.openid.token(OTHER_RSA)
        message = {"id": 7, "type": "read", "to": victim.url, "body": {"identity": {"assertion": forged}}}

        codes = []
        for kind in (WebSocketRuntime, TCPRuntime):
            runtime = kind(net, f"runtime://example.org/{kind.__name__}").open()
            runtime.send({**message, "from": runtime.url})
            net.advance(1)
            codes += [answer["body"]["code"] for answer in runtime.take()]
        client = HTTPClient(net)
        client.start("POST", "/message", json.dumps(message).encode())
        net.advance(1)
        codes.append(client.response.json()["body"]["code"])

        self.assertEqual([403, 403, 403], codes)
        self.assertEqual([], victim.take())


class ConfigTests(SynchronousTestCase):
    """
    The key.
    """

    def test_looking_at_tokens_needs_a_provider(self) -> None:
        """
        Without one no token could be good, and the node says so before it starts.
        """
        with self.assertRaisesRegex(ConfigError, "identity.message_identity: expected providers with 'mark'"):
            check({"identity": {"message_identity": "mark"}}, "x")
