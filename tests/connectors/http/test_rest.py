"""
REST: one message by POST, its response in the answer.
"""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.http.rest.description import DOCUMENT
from msgnode.sessions.access.device_tokens import line, make_token
from tests.connectors.test_fuzz import _headers, _requests
from tests.support.durable import DurableNode
from tests.support.fakes import directory, refused_codes
from tests.support.fuzz import TIMES
from tests.support.http_client import HTTPClient, Response
from tests.support.made_policies import rule, use
from tests.support.network import Network
from tests.support.openid import provider
from tests.support.runtimes import TCPRuntime, WebSocketRuntime, dumps
from tests.support.suite import SM

PUBLIC = "runtime://example.org/public/rest/"


class RestCase(SynchronousTestCase):
    """
    A node, and a device `b` that answers when it is told to.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.net = Network(**sections)
        self.other = TCPRuntime(self.net, "runtime://example.org/b").open()

    def request(self, **fields: Any) -> dict[str, Any]:
        return {"id": 7, "type": "read", "to": self.other.url + "/x", **fields}

    def start(self, message: Any, query: str = "", token: str = "", **headers: str) -> HTTPClient:
        """
        A request whose answer may be outstanding.
        """
        client = HTTPClient(self.net)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        client.start("POST", f"/message{query}", dumps(message), **headers)
        self.net.pump()
        return client

    def post(self, message: Any, query: str = "", token: str = "", **headers: str) -> Response:
        response = self.start(message, query, token, **headers).response
        assert response is not None, "no answer yet"
        return response

    def answer(self, request: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """
        The device answers; what it said.
        """
        response = {"id": request["id"], "type": "response", "from": request["to"], "to": request["from"]}
        response |= {"body": {"code": 200}, **fields}
        self.other.send(response)
        return response

    def assertError(self, status: int, response: Response) -> None:
        self.assertEqual(status, response.status, response)
        body = response.json()
        self.assertEqual({"code": status, "desc": body["desc"], "description": body["desc"]}, body)
        self.assertEqual([], [c for c in self.net.node.sessions.connections if c.connector == "rest"])
        self.assertEqual({}, self.net.node.expected_responses.waiting)


class VisitorTests(RestCase):
    """
    Without a session.
    """

    def test_request_gets_a_sender_of_its_own_and_its_response(self) -> None:
        """
        A request gets a sender of its own, and its response is the answer, to the byte.
        """
        client = self.start(self.request(body={"a": [1.50]}, **{"from": "me"}))
        [asked] = self.other.take()
        self.assertIsNone(client.response)

        response = self.answer(asked)

        self.assertRegex(asked["from"], f"^{PUBLIC}[0-9a-f-]{{36}}$")
        self.assertEqual(self.request(body={"a": [1.5]}) | {"from": asked["from"]}, asked)
        self.assertEqual((200, dumps(response) + b"\n"), (client.response.status, client.response.body))
        self.assertEqual("application/json", client.response.headers["Content-Type"])
        self.assertEqual(1, len(self.net.node.sessions.connections))

    def test_own_sender_each(self) -> None:
        """
        Two requests with the same id are two: each gets its own response.
        """
        first, second = self.start(self.request()), self.start(self.request())
        one, two = self.other.take()

        self.answer(two, body={"code": 404})
        self.answer(one)

        self.assertEqual([200, 404], [c.response.json()["body"]["code"] for c in (first, second)])

    def test_provisional_response_does_not_end_the_waiting(self) -> None:
        """
        A provisional response does not end the waiting.
        """
        client = self.start(self.request())
        [asked] = self.other.take()

        self.answer(asked, body={"code": 100})
        self.assertIsNone(client.response)
        self.answer(asked)

        self.assertEqual(200, client.response.json()["body"]["code"])

    def test_no_response(self) -> None:
        """
        Nothing within 25 seconds, or `wait`, is 504; what comes late reaches nobody.
        """
        for query, seconds in (("", 25), ("?wait=3", 3), ("?wait=500", 30)):
            client = self.start(self.request(), query)
            self.net.advance(seconds - 1)
            self.assertIsNone(client.response)
            self.net.advance(1)

            self.assertError(504, client.response)
        [asked, *_] = self.other.take()
        self.answer(asked)
        self.assertEqual("no-route", self.net.traffic_recorder.outcomes[-1])

    def test_no_answer_expected(self) -> None:
        """
        What has no answer is answered 202 at once; `wait` says otherwise, both ways.
        """
        for fields in (
            {"type": "update"},
            {"type": "response"},
            {"to": "comm://d/1/changes"},
            {"to": ["x", "y"]},
        ):
            response = self.post(self.request(**fields))
            self.assertEqual((202, {"accepted": 1}), (response.status, response.json()))
        self.assertEqual(202, self.post(self.request(), "?wait=0").status)

        client = self.start(self.request(type="update"), "?wait=5")
        asked = self.other.take()[-1]
        self.answer(asked)

        self.assertEqual(200, client.response.status)

    def test_request_to_an_address_that_nobody_is_bound(self) -> None:
        """
        A request to an address that nobody is bound to is answered 404 at once.
        """
        self.assertError(404, self.post(self.request(to=["x", "y"]), "?wait=9"))
        self.assertError(404, self.post(self.request(to="hyperty://example.org/none")))
        self.assertEqual("no-route", self.net.traffic_recorder.outcomes[-1])

    def test_what_the_node_itself_answers_comes_as_well(self) -> None:
        """
        What the node itself answers comes as well: 501 for what it does not offer.
        """
        response = self.post(self.request(to="domain://registry.example.org"))

        self.assertEqual(200, response.status)
        self.assertEqual(501, response.json()["body"]["code"])

    def test_needs_a_session(self) -> None:
        """
        Addresses and receipts are given to sessions, so a visitor is told to name a token.
        """
        self.assertError(403, self.post(self.request(to=SM, type="subscribe")))
        self.assertError(403, self.post(self.request(to=["x", SM])))
        self.assertError(403, self.post(self.request(receipt=True)))

    def test_visitor_that_hangs_up_leaves_nothing(self) -> None:
        """
        Who does not wait for the answer leaves nothing behind.
        """
        client = self.start(self.request())

        client.hang_up()

        self.assertEqual({}, self.net.node.expected_responses.waiting)
        self.assertEqual(1, len(self.net.node.sessions.connections))
        self.answer(self.other.take()[0])

    def test_answered_visitor_leaves_nothing(self) -> None:
        """
        A visitor leaves no session, no binding and nothing that waits.
        """
        self.post(self.request(type="update"))

        self.assertEqual([self.other.url], [session.runtime for session in self.net.node.sessions])
        self.assertEqual((0, 0), (len(self.net.node.routes), self.net.node.sessions.journal.bytes_in_memory))

    def test_when_the_node_stops_who_waits_is_told_503(self) -> None:
        """
        When the node stops who waits is told 503, and so is who comes.
        """
        self.net.node.sessions.startService()
        client = self.start(self.request())

        self.net.node.sessions.stopService()
        self.net.pump()

        self.assertError(503, client.response)
        self.assertEqual("1", client.response.headers["Retry-After"])
        self.assertError(503, self.post(self.request()))

    def test_name_is_taken(self) -> None:
        """
        No runtime may open the name above the visitors' addresses.
        """
        for name in ("runtime://example.org/public", "runtime://example.org/public/rest"):
            runtime = WebSocketRuntime(self.net, name)
            runtime.send({"id": 1, "type": "open", "from": name, "to": "mn:/session"})
            self.assertEqual(4403, runtime.code)

    def test_half_a_character_passes_by_rest(self) -> None:
        """
        Half a character, as JSON.stringify writes it, passes.
        """
        client = self.start(
            rb'{"id":1,"type":"read","to":"%s","body":{"v":"\ud83d"}}' % self.other.url.encode()
        )

        [asked] = self.other.take()
        self.answer(asked)

        self.assertEqual(("\ud83d", 200), (asked["body"]["v"], client.response.status))

    def test_visitor_without_message_token_does_not_pass(self) -> None:
        """
        Where every message has to carry its session's token, a visitor's does not pass.
        """
        self.restart(session={"message_token": "require"})
        self.net.advance(11)

        response = self.post(self.request(), "?wait=1")

        self.assertEqual(401, response.json()["body"]["code"])
        self.assertEqual([], self.other.take())

    def test_traffic_log_has_connector_and_visitor(self) -> None:
        """
        The traffic log has each with its connector and the visitor's name.
        """
        client = self.start(self.request())
        self.answer(self.other.take()[0])

        request, response = self.net.traffic_recorder.messages[-2:]
        self.assertEqual(("rest", "delivered"), (request["connector"], request["outcome"]))
        self.assertTrue(request["session"].startswith(PUBLIC))
        self.assertEqual(("delivered", 1), (response["outcome"], response["recipients"]))
        self.assertEqual(200, client.response.status)


class SessionTests(RestCase):
    """
    With a session's token.
    """

    def setUp(self) -> None:
        super().setUp()
        self.ann = WebSocketRuntime(self.net, "runtime://example.org/ann").open()

    def test_session_sends_and_the_response_comes_here(self) -> None:
        """
        The session sends, and the response comes here and not by its connection.
        """
        for from_ in (self.ann.url, self.ann.url + "/app", None):
            message = self.request(**({"from": from_} if from_ else {}))
            client = self.start(message, token=self.ann.token)
            asked = self.other.take()[-1]
            response = self.answer(asked)

            self.assertEqual(from_ or self.ann.url, asked["from"])
            self.assertEqual(response, client.response.json())
            self.assertEqual([], self.ann.take())

    def test_late_response(self) -> None:
        """
        A response that comes too late comes by the session's connection.
        """
        client = self.start(self.request(), "?wait=1", self.ann.token)
        self.net.advance(1)
        self.assertError(504, client.response)

        response = self.answer(self.other.take()[0])

        self.assertEqual([response], self.ann.take())

    def test_subscribe_by_rest_binds_to_the_session(self) -> None:
        """
        Addresses are bound to the session.
        """
        message = self.request(type="subscribe", to=SM, body={"resources": ["comm://d/1/changes"]})

        response = self.post(message, token=self.ann.token)

        self.assertEqual({"code": 200}, response.json()["body"])
        update = {"id": 1, "type": "update", "from": "x", "to": "comm://d/1/changes"}
        self.other.send(update)
        self.assertEqual([update], self.ann.take())

    def test_bound_sender(self) -> None:
        """
        An address that is bound to the session may be the sender.
        """
        message = self.request(type="subscribe", to=SM, body={"resources": ["hyperty://d/1"]})
        self.post(message, token=self.ann.token)

        client = self.start(self.request(**{"from": "hyperty://d/1"}), token=self.ann.token)
        self.answer(self.other.take()[0])

        self.assertEqual(200, client.response.json()["body"]["code"])

    def test_another_sender(self) -> None:
        """
        Any other sender is refused.
        """
        for from_ in ("runtime://example.org/annabel", self.other.url, "hyperty://d/1", "mn:/session"):
            self.assertError(403, self.post(self.request(**{"from": from_}), token=self.ann.token))

    def test_same_id(self) -> None:
        """
        A second request with the same sender and id, while the first is answered, is refused 409.
        """
        first = self.start(self.request(), token=self.ann.token)

        second = self.post(self.request(), token=self.ann.token)

        self.assertEqual(409, second.status)
        self.answer(self.other.take()[0])
        self.assertEqual(200, first.response.status)

    def test_token_that_no_session_has_is_answered_401(self) -> None:
        """
        A token that no session has is answered 401.
        """
        self.assertError(401, self.post(self.request(), token="mns_" + "x" * 43))

    def test_receipt_goes_to_the_session(self) -> None:
        """
        A receipt goes to the session.
        """
        self.assertEqual(202, self.post(self.request(receipt=True), "?wait=0", self.ann.token).status)

        [receipt] = self.ann.take()
        self.assertEqual(("receipt", 202), (receipt["type"], receipt["body"]["code"]))


class WrongTests(RestCase):
    """
    Requests that are refused.
    """

    def test_each_in_words_and_nothing_is_carried(self) -> None:
        """
        Each in words, and nothing is carried.
        """
        good = dumps(self.request())
        for status, body, query in (
            (400, b"not JSON", ""),
            (400, b"[]", ""),
            (400, b"\xff", ""),
            (400, b'{"id":1,"to":"x"}', ""),
            (400, b'{"id":1,"type":"read","to":"x","body":[]}', ""),
            (400, b'{"id":1,"id":2,"type":"read","to":"x"}', ""),
            (400, dumps({"id": 1, "type": "open", "from": "runtime://d/1", "to": "mn:/session"}), ""),
            (400, good, "?wait=x"),
            (400, good, "?wait=-1"),
            (400, good, "?wait="),
        ):
            self.assertError(status, self.post(body, query))
        self.assertEqual([], self.other.take())

    def test_only_post_cors_is_answered_and_other_paths(self) -> None:
        """
        Only POST; CORS is answered, and other paths are not there.
        """
        client = HTTPClient(self.net)
        self.assertError(405, client.request("GET", "/message"))
        self.assertError(404, client.request("POST", "/message/x"))
        preflight = client.request("OPTIONS", "/message", Origin="https://a.example")
        self.assertEqual((204, "*"), (preflight.status, preflight.headers["Access-Control-Allow-Origin"]))

    def test_rest_refuses_pages_of_other_origins(self) -> None:
        """
        A page of another origin may not, where origins are restricted.
        """
        self.restart(allowed_origins=["https://a.example"])

        self.assertError(403, self.post(self.request(), Origin="https://b.example"))

    def test_a_page_of_another_origin_cannot_post_without_a_token(self) -> None:
        """
        What any page can make a browser send is refused, whatever it calls its content, and has no effect.
        """
        update = self.request(type="update")
        for origin in ("https://evil.example", "null", "http://example.org:81", "x", "http://[", ""):
            for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
                with self.subTest(origin=origin, kind=kind):
                    if origin:
                        self.assertError(403, self.post(update, Origin=origin, Content_Type=kind))
        self.assertEqual([], self.other.take())

    def test_a_page_of_the_node_itself_may_post(self) -> None:
        """
        A page of this very host, with or without its port, or of public_url, is no stranger.
        """
        self.restart(public_url="wss://public.example/msgnode")
        update = self.request(type="update")

        for origin in (
            "http://example.org",
            "https://example.org",
            "http://EXAMPLE.org:80",
            "https://public.example",
        ):
            with self.subTest(origin=origin):
                self.assertEqual(202, self.post(update, Origin=origin).status)

    def test_a_page_of_another_origin_may_post_with_a_token(self) -> None:
        """
        Who names a session's token is that session's client; and an operator may let every page in.
        """
        self.assertEqual(
            202,
            self.post(
                self.request(type="update", **{"from": self.other.url}),
                Origin="https://a.example",
                token=self.other.token,
            ).status,
        )

        self.restart(allowed_origins=["*"])

        self.assertEqual(202, self.post(self.request(type="update"), Origin="https://a.example").status)

    def test_longest_posted_message_passes(self) -> None:
        """
        A message of the longest size passes; one more byte is 413.
        """
        self.restart(limits={"message_bytes": 1000})
        message = self.request(type="update", body={"v": ""})
        message["body"]["v"] = "v" * (1000 - len(dumps(message)))

        self.assertEqual(202, self.post(message).status)
        message["body"]["v"] += "v"
        self.assertError(413, self.post(message))

    def test_rest_describes_itself_in_openapi(self) -> None:
        """
        The connector describes itself.
        """
        document = HTTPClient(self.net).request("GET", "/message/openapi.json").json()

        self.assertEqual("3.1.0", document["openapi"])
        self.assertEqual(["/message", "/resource/{address}", "/events"], list(document["paths"]))

    def test_document_tells_of_tokens(self) -> None:
        """
        It names every kind of token, and each refusal that a token may meet.
        """
        whose = DOCUMENT["components"]["securitySchemes"]["bearer"]["description"]
        answers = DOCUMENT["paths"]["/message"]["post"]["responses"]
        refusals = {code: told["description"] for code, told in answers.items()}

        for word in ("mns_", "mnd_", "OpenID", "JWT", "opaque", "identity.auth", "assertedIdentity"):
            self.assertIn(word, whose)
        for word in ("no session has it", "invalid", "has expired", "required"):
            self.assertIn(word, refusals["401"])
        for code in ("503", "504"):
            self.assertIn("provider", refusals[code])

    @settings(max_examples=10 * TIMES, deadline=None)
    @given(
        st.lists(st.one_of(st.binary(max_size=60), _requests.map(dumps), _headers.map(dumps)), max_size=5),
        st.sampled_from(["", "?wait=0", "?wait=1", "?wait=x"]),
        st.booleans(),
    )
    def test_anything_posted_has_a_documented_answer(
        self, bodies: list[bytes], query: str, within: bool
    ) -> None:
        """
        Whatever is posted has one of the documented answers, and leaves nothing behind.
        """
        self.restart()
        token = WebSocketRuntime(self.net, "runtime://example.org/ann").open().token if within else ""
        known = set(
            json.loads(HTTPClient(self.net).request("GET", "/message/openapi.json").body)["paths"][
                "/message"
            ]["post"]["responses"]
        )

        clients = [self.start(body, query, token) for body in bodies]
        self.net.advance(26)

        for client in clients:
            self.assertIn(str(client.response.status), known)
            client.response.json()
        self.assertEqual({}, self.net.node.expected_responses.waiting)
        self.assertEqual([], [c for c in self.net.node.sessions.connections if c.connector == "rest"])
        self.assertEqual([], self.flushLoggedErrors())


class RateTests(RestCase):
    """
    Who posts more than the operator wants is told so, whatever it posts.
    """

    def assertTooFast(self, response: Response, again: str) -> None:
        self.assertError(429, response)
        self.assertEqual(again, response.headers["Retry-After"])

    def test_visitors_of_one_address_share_its_rate(self) -> None:
        """
        Visitors of one address share its rate; what is beyond is told 429 and when to try again.
        """
        for limit in ("session_rate_messages", "ip_rate_messages"):
            self.restart(limits={limit: 2})
            for _ in range(2):
                self.assertEqual(202, self.post(self.request(type="update")).status)

            self.assertTooFast(self.post(self.request(type="update")), "1")
            self.assertTooFast(self.post(self.request()), "1")

            self.assertEqual(2, len(self.other.take()))
            self.assertEqual([429, 429], [m["code"] for m in self.net.traffic_recorder.messages[-2:]])
            self.assertEqual(2, refused_codes(self.net.node.counts)[429])
            self.net.advance(1)
            self.assertEqual(202, self.post(self.request(type="update")).status)

    def test_after_much_at_once_the_time_is_as_long_as_it_takes(self) -> None:
        """
        After much at once the time is as long as it takes.
        """
        self.restart(limits={"ip_rate_bytes": 1000})
        self.assertEqual(202, self.post(self.request(type="update", body={"v": "v" * 5000})).status)

        again = int(self.post(self.request()).headers["Retry-After"])

        self.assertIn(again, (4, 5))
        self.net.advance(again)
        self.assertEqual(202, self.post(self.request(type="update")).status)

    def test_so_is_who_posts_by_a_session_which_pays(self) -> None:
        """
        So is who posts by a session, which pays for it.
        """
        self.restart(limits={"session_rate_messages": 2})
        self.other.drop()
        update = {"id": 1, "type": "update", "to": "runtime://example.org/nobody"}
        for _ in range(2):
            self.assertEqual(202, self.post(update, token=self.other.token).status)

        self.assertTooFast(self.post(update, token=self.other.token), "1")
        self.assertEqual(202, self.post(update).status)


class PolicyTests(RestCase):
    """
    What the policies forbid is forbidden here too, at each point where they are asked.
    """

    def use(self, **condition: Any) -> None:
        use(self.net.node, rule("deny", {name: {"equals": value} for name, value in condition.items()}))

    def assertBlocked(self, response: Response) -> None:
        self.assertEqual(200, response.status)
        body = response.json()["body"]
        self.assertEqual((403, "Blocked by policy"), (body["code"], body["desc"]))
        self.assertEqual([], self.other.take())

    def test_policy_in_refuses_a_visitors_message(self) -> None:
        """
        What may not come in is answered 403 by whom it was for; what nobody answers is dropped.
        """
        self.use(direction="in", connector="rest")

        self.assertBlocked(self.post(self.request()))
        self.assertEqual(202, self.post(self.request(type="update")).status)
        self.assertEqual([], self.other.take())

    def test_policy_out_refuses_a_visitors_message(self) -> None:
        """
        So is what may not leave to its recipient.
        """
        self.use(direction="out", session=self.other.url)

        self.assertBlocked(self.post(self.request()))

    def test_policy_connect_refuses_a_visitor(self) -> None:
        """
        A visitor comes in by its POST: who may not is answered 403, a session that is there may send.
        """
        token = self.other.token
        self.use(direction="connect")

        self.assertError(403, self.post(self.request()))
        self.assertError(403, self.post(self.request(type="update")))
        self.assertEqual(202, self.post(self.request(type="update"), token=token).status)

    def test_response_that_may_not_leave_does_not_come_here(self) -> None:
        """
        A response that may not leave does not come here either, for a visitor or for a session.
        """
        for token in ("", self.other.token):
            use(
                self.net.node,
                rule("deny", {"direction": {"equals": "out"}, "actionType": {"equals": "response"}}),
            )
            client = self.start(self.request(), token=token)
            self.answer(self.other.take()[0], body={"code": 200, "secret": "x"})
            self.assertIsNone(client.response)

            self.net.advance(26)

            self.assertError(504, client.response)

    def test_no_policies_yet(self) -> None:
        """
        While there must be policies and are none, all is answered 503, with a time to come back.
        """
        self.net.node.enforcement.close()

        response = self.post(self.request())

        self.assertError(503, response)
        self.assertEqual("30", response.headers["Retry-After"])


class FullDiskTests(RestCase):
    """
    A disk that takes nothing.
    """

    def setUp(self) -> None:
        self.node: Any = DurableNode(directory(self))
        self.addCleanup(lambda: (self.node.spool.close(), self.node.store.shut()))
        self.net = Network(node=self.node)
        self.other = TCPRuntime(self.net, "runtime://example.org/b").open()
        self.other.drop()
        self.net.pump()

    def test_nothing_is_promised(self) -> None:
        """
        What cannot be written down is not said to be taken, from the first message on.
        """
        self.assertEqual(202, self.post(self.request(type="update")).status)
        disk = self.node.disk
        disk.full = True

        for _ in range(2):
            response = self.post(self.request(type="update"))

            self.assertError(503, response)
            self.assertEqual("2", response.headers["Retry-After"])
        self.assertEqual(2, len(self.node.sessions.get(self.other.url).mailbox.undelivered()))
        disk.full = False
        self.node.clock.advance(2)
        self.node.settle()
        self.assertEqual(202, self.post(self.request(type="update")).status)


class TokenTests(SynchronousTestCase):
    """
    Where tokens are looked at, a sender without a session is known by its token.
    """

    def setUp(self) -> None:
        self.net = Network(identity={"auth": "required", "providers": [provider()]})
        self.token = self.net.node.world.openid.token()
        self.other = TCPRuntime(self.net, "runtime://example.org/b")
        opening = {"id": 1, "type": "open", "from": self.other.url, "to": "mn:/session"}
        self.other.send({**opening, "body": {"token": self.token}})
        self.other.take()

    def post(self, token: str = "", **fields: Any) -> Response:
        client = HTTPClient(self.net)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        message = {
            "id": 7,
            "type": "update",
            "to": self.other.url,
            "body": {"assertedIdentity": None},
            **fields,
        }
        client.start("POST", "/message", dumps(message), **headers)
        self.net.pump()
        self.assertIsNotNone(client.response)
        return client.response

    def test_visitors_token_tells_its_recipient_who_sent(self) -> None:
        """
        With a good token its message is taken, and its recipient may know whose it is.
        """
        self.assertEqual(202, self.post(self.token).status)

        (message,) = self.other.take()
        self.assertEqual("user://example.org/ann@example.org", message["body"]["assertedIdentity"]["userURL"])

    def test_keys_are_fetched(self) -> None:
        """
        Also when its provider must first be asked for its keys.
        """
        self.setUp()
        self.net.node.world.openid.rotate()

        self.assertEqual(202, self.post(self.net.node.world.openid.token()).status)
        self.assertEqual(1, len(self.other.take()))

    def test_without_a_token_or_with_a_bad_one_nothing_is_taken(self) -> None:
        """
        Without a token, or with a bad one, nothing is taken.
        """
        for token in ("", "x.y.z", self.token[:-4] + "AAAA"):
            self.assertEqual(401, self.post(token).status)
        self.assertEqual([], self.other.take())

    def test_token_of_a_parked_session_sends_nothing(self) -> None:
        """
        The token of a session whose identity has ended sends nothing.
        """
        opening = {"id": 1, "type": "open", "from": "runtime://example.org/c", "to": "mn:/session"}
        sender = TCPRuntime(self.net)
        openid = self.net.node.world.openid
        sender.send({**opening, "body": {"token": openid.token(exp=int(openid.wall()) + 10)}})
        secret = sender.take()[0]["body"]["runtimeToken"]
        self.assertEqual(202, self.post(secret).status)
        self.other.take()
        self.net.advance(10)
        self.net.advance(30)

        response = self.post(secret)

        self.assertEqual(401, response.status)
        self.assertIn("has expired", response.body.decode())

    def test_visitor_may_show_a_device_token(self) -> None:
        """
        A device's token does as well, and its recipient may know which device it is.
        """
        secret, path = make_token(), directory(self) / "devices"
        path.write_text(line(secret, "device://example.org/lamp") + "\n")
        self.net = Network(identity={"auth": "required", "devices": str(path)})
        self.other = TCPRuntime(self.net, "runtime://example.org/b")
        opening = {"id": 1, "type": "open", "from": self.other.url, "to": "mn:/session"}
        self.other.send({**opening, "body": {"token": secret}})
        self.other.take()

        self.assertEqual(202, self.post(secret).status)

        (message,) = self.other.take()
        self.assertEqual("device://example.org/lamp", message["body"]["assertedIdentity"]["userURL"])
        self.assertEqual(401, self.post(make_token()).status)

    def test_nobody_looks(self) -> None:
        """
        Where nobody looks at tokens, those that are no session's mean nothing.
        """
        self.net = Network()
        self.other = TCPRuntime(self.net, "runtime://example.org/b").open()

        for token in (make_token(), "x.y.z", self.token):
            self.assertEqual(202, self.post(token).status)
        self.assertEqual(401, self.post("mns_" + "x" * 43).status)
