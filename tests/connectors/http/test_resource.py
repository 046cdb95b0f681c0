"""
REST at `/resource/<address>`: methods are types of messages, and the code of the response is the status.
"""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.http.rest.conditions import Conditions, entity_tag
from tests.connectors.http.test_rest import RestCase
from tests.support.http_client import HTTPClient, Response
from tests.support.made_policies import rule, use
from tests.support.runtimes import TCPRuntime, dumps
from tests.support.suite import SM

LAMP = "hyperty://example.org/lamp"


class ResourceCase(RestCase):
    """
    A node, and a device with a lamp.
    """

    def restart(self, **sections: Any) -> None:
        super().restart(**sections)
        self.subscribe(LAMP)

    def subscribe(self, address: str) -> None:
        """
        The device hears the address.
        """
        body = {"resources": [address]}
        self.other.send({"id": 9, "type": "subscribe", "from": self.other.url, "to": SM, "body": body})
        self.other.take()

    def begin(self, method: str, path: str = LAMP, body: Any = None, **headers: str) -> HTTPClient:
        """
        A request whose answer may be outstanding.
        """
        client = HTTPClient(self.net)
        data = b"" if body is None else body if isinstance(body, bytes) else dumps(body)
        client.start(method, f"/resource/{path}", data, **headers)
        self.net.pump()
        return client

    def ask(self, *request: Any, **headers: str) -> Response:
        response = self.begin(*request, **headers).response
        assert response is not None, "no answer yet"
        return response

    def exchange(
        self, request: tuple[Any, ...], *bodies: Any, **headers: str
    ) -> tuple[Response, list[dict[str, Any]]]:
        """
        A request to the device, which answers with these bodies; the answer, and what the device was asked.
        """
        client, asked = self.begin(*request, **headers), []
        for body in bodies:
            [message] = self.other.take()
            asked.append(message)
            self.answer(message, body=body)
        assert client.response is not None, "no answer yet"
        return client.response, asked


class MethodTests(ResourceCase):
    """
    Methods and types of messages.
    """

    def test_methods_are_types(self) -> None:
        """
        Each method is a type of message, and its JSON is the body.
        """
        change = {"attribute": "state", "value": "on"}
        for method, kind, body in (
            ("GET", "read", None),
            ("POST", "create", {"value": 1.50}),
            ("PUT", "update", {"value": {"state": "on"}}),
            ("PATCH", "update", change),
            ("PATCH", "update", {"attribute": "state", "operation": "remove"}),
            ("DELETE", "delete", None),
        ):
            response, [asked] = self.exchange((method, LAMP, body), {"code": 200, "value": 1})

            self.assertEqual((kind, LAMP, body), (asked["type"], asked["to"], asked.get("body")))
            self.assertEqual((200, {"code": 200, "value": 1}), (response.status, response.json()))

    def test_code_is_the_status(self) -> None:
        """
        The code of the response is the status; a response without one is a success.
        """
        for body, status, shown in (
            ({"code": 404, "desc": "no lamp"}, 404, {"code": 404, "desc": "no lamp"}),
            ({"value": 3}, 200, {"value": 3}),
            (None, 200, None),
            ({"code": 201}, 201, {"code": 201}),
        ):
            response, _ = self.exchange(("GET",), body)

            self.assertEqual((status, shown), (response.status, response.json()))

    def test_code_that_is_no_status(self) -> None:
        """
        A code that HTTP has no status for is 502, and says so.
        """
        for code in (42, 1000, "200", 302.5):
            response, _ = self.exchange(("GET",), {"code": code})
            self.assertError(502, response)

    def test_status_without_a_body(self) -> None:
        """
        A recipient that answers 204 has answered without a body.
        """
        response, _ = self.exchange(("DELETE",), {"code": 204})

        self.assertEqual((204, b""), (response.status, response.body))

    def test_head_is_a_read_without_its_body(self) -> None:
        """
        HEAD is a read, of which the header fields are answered.
        """
        response, [asked] = self.exchange(("HEAD",), {"code": 200, "version": 3})

        self.assertEqual(("read", 200, b""), (asked["type"], response.status, response.body))
        self.assertEqual('"3"', response.headers["ETag"])

    def test_query_is_the_body_of_a_read(self) -> None:
        """
        Parameters are fields of the body of a read, texts or lists of texts.
        """
        _, [asked] = self.exchange(("GET", f"{LAMP}?resource=user://d/a&a=1&a=2"), {"code": 200})

        self.assertEqual({"resource": "user://d/a", "a": ["1", "2"]}, asked["body"])

    def test_address_in_the_path(self) -> None:
        """
        An address in the path is percent-encoded, or only where it must be.
        """
        self.subscribe("hyperty://example.org/a b?c#d/é")
        for path in (
            "hyperty%3A%2F%2Fexample.org%2Fa%20b%3Fc%23d%2F%C3%A9",
            "hyperty://example.org/a%20b%3Fc%23d/%C3%A9",
        ):
            _, [asked] = self.exchange(("GET", path), {"code": 200})
            self.assertEqual("hyperty://example.org/a b?c#d/é", asked["to"])

    def test_publication_is_accepted(self) -> None:
        """
        What is sent to a publication address reaches its subscribers, and is answered 202 at once.
        """
        self.subscribe("comm://example.org/news/changes")

        response = self.ask("PUT", "comm://example.org/news/changes", {"value": "hi"})

        self.assertEqual((202, {"accepted": 1}), (response.status, response.json()))
        self.assertEqual([("update", {"value": "hi"})], [(m["type"], m["body"]) for m in self.other.take()])

    def test_node_answers_with_its_own_codes(self) -> None:
        """
        What the node answers itself is a status, too.
        """
        self.assertError(404, self.ask("GET", "hyperty://example.org/nobody"))
        self.assertError(501, self.ask("GET", "domain://weather.example.org"))

    def test_policy_refuses(self) -> None:
        """
        A policy decides about the message, as about any other.
        """
        use(self.net.node, rule("deny", {"msgTo": {"equals": LAMP}}))

        self.assertEqual(403, self.ask("GET").status)

    def test_refusal_of_what_has_no_answer(self) -> None:
        """
        An update and a publication that the node refuses are answered so at once, not 504 or 202.
        """
        use(self.net.node, rule("deny", {"direction": {"equals": "in"}, "connector": {"equals": "rest"}}))
        for method, address in (
            ("PUT", LAMP),
            ("PATCH", LAMP),
            ("PUT", "comm://example.org/chat/changes"),
            ("DELETE", "comm://example.org/chat/children/x"),
        ):
            response = self.ask(method, address, {"attribute": "a", "value": 1})

            self.assertEqual((403, "Blocked by policy"), (response.status, response.json()["desc"]))
        self.assertEqual([], self.other.take())

    def test_session_sends(self) -> None:
        """
        With a session token the session is the sender.
        """
        ann = TCPRuntime(self.net, "runtime://example.org/ann").open()

        response, [asked] = self.exchange(("GET",), {"code": 200}, Authorization=f"Bearer {ann.token}")

        self.assertEqual((200, "runtime://example.org/ann"), (response.status, asked["from"]))
        self.assertError(401, self.ask("GET", LAMP, Authorization="Bearer mns_unknown"))

    def test_answers_are_counted(self) -> None:
        """
        Answers are counted by method and class of status.
        """
        self.exchange(("GET",), {"code": 200})
        self.ask("GET", "hyperty://example.org/nobody")

        counted = self.net.node.counts.resource_answers
        self.assertEqual({("GET", "2xx"): 1, ("GET", "4xx"): 1}, dict(counted))


class BadRequestTests(ResourceCase):
    """
    Requests that are refused.
    """

    def test_refusals_say_why(self) -> None:
        """
        A request that makes no sense is refused in its own words, and reaches nobody.
        """
        for method, path, body, status, words in (
            ("GET", "", None, 404, "name an address"),
            ("GET", "lamp", None, 404, "'lamp' has no scheme"),
            ("GET", "hyperty://%ff", None, 400, "not UTF-8 at byte 10"),
            ("GET", "hyperty://d/%0a", None, 400, "printable"),
            ("GET", "hyperty://d/" + "x" * 2040, None, 400, "at most 2048"),
            ("GET", "comm://d/x/changes", None, 405, "/events?resource="),
            ("GET", LAMP, {"a": 1}, 400, "a GET has no body"),
            ("GET", f"{LAMP}?{'&'.join(f'a{n}=1' for n in range(101))}", None, 400, "at most 100 parameters"),
            ("GET", f"{LAMP}?a=%ff", None, 400, "the query is not UTF-8"),
            ("PUT", f"{LAMP}?a=1", {"a": 1}, 400, "has no query"),
            ("PUT", LAMP, [1], 400, "must be a JSON object"),
            ("PUT", LAMP, b"{", 400, "not JSON"),
            ("PUT", LAMP, b'{},"to":"mn:/session"', 400, "not JSON"),
            ("PATCH", LAMP, {"state": "on"}, 400, "one attribute"),
            ("PATCH", LAMP, {"attribute": "state"}, 400, "one attribute"),
            ("POST", "mn:/session", {}, 400, "/ws or /poll"),
            ("BREW", LAMP, None, 405, "GET, HEAD, POST, PUT, PATCH, DELETE"),
        ):
            response = self.ask(method, path, body)

            self.assertError(status, response)
            self.assertIn(words, response.json()["desc"])
        self.assertEqual([], self.other.take())

    @given(st.binary(max_size=60), st.sampled_from(["PUT", "POST", "PATCH", "DELETE"]))
    def test_any_body_is_answered(self, body: bytes, method: str) -> None:
        """
        Whatever the body is, there is an answer, and no second message comes of it.
        """
        response = self.begin(method, "hyperty://example.org/nobody", body).response

        assert response is not None
        self.assertIn(response.status, (400, 404))

    def test_page_of_another_origin(self) -> None:
        """
        A page of another origin may not act for its user, and a preflight names the methods.
        """
        self.assertError(403, self.ask("GET", LAMP, Origin="https://evil.example"))
        preflight = self.ask("OPTIONS", LAMP, Origin="https://app.example")
        self.assertEqual(204, preflight.status)
        methods = preflight.headers["Access-Control-Allow-Methods"]
        self.assertEqual("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS", methods)


class ConditionTests(ResourceCase):
    """
    Entity tags and conditional requests.
    """

    def test_version_is_the_entity_tag(self) -> None:
        """
        The version in a body, or in its value, is the entity tag.
        """
        for body, tag in (
            ({"version": 7}, '"7"'),
            ({"version": "v1.2"}, '"v1.2"'),
            ({"value": {"version": 8}}, '"8"'),
            ({"version": 7, "value": {"version": 8}}, '"7"'),
            ({"version": None, "value": [1]}, ""),
            ({"version": {"a": 1}}, ""),
            ({"version": 'a"b'}, ""),
            ({"version": "x" * 201}, ""),
            ({}, ""),
        ):
            self.assertEqual(tag, entity_tag(json.dumps(body).encode()), body)

    def test_read_that_has_not_changed(self) -> None:
        """
        A read with the tag of the version that there is, is answered 304 with nothing.
        """
        for tags in ('"7"', 'W/"7"', '"6", "7"', '"a,b", "7" ,', "*"):
            response, _ = self.exchange(("GET",), {"code": 200, "version": 7}, If_None_Match=tags)
            self.assertEqual((304, b"", '"7"'), (response.status, response.body, response.headers["ETag"]))
        response, _ = self.exchange(("GET",), {"code": 200, "version": 8}, If_None_Match='"7"')
        self.assertEqual((200, '"8"'), (response.status, response.headers["ETag"]))

    def test_update_of_the_version_that_was_read(self) -> None:
        """
        An update with If-Match reads first, and is sent if the version is the one that was named.
        """
        request = "PUT", LAMP, {"value": 1}
        bodies = {"code": 200, "version": 7}, {"code": 200, "version": 8}

        response, asked = self.exchange(request, *bodies, If_Match='"7"')

        self.assertEqual((200, '"8"'), (response.status, response.headers["ETag"]))
        self.assertEqual(["read", "update"], [message["type"] for message in asked])

    def test_update_of_another_version(self) -> None:
        """
        An update of a version that is no more is refused with 412, and the recipient is not told of it.
        """
        for tags in ('"6"', 'W/"7"'):
            response, asked = self.exchange(
                ("PUT", LAMP, {"value": 1}), {"code": 200, "version": 7}, If_Match=tags
            )
            self.assertError(412, response)
            self.assertEqual((["read"], '"7"'), ([m["type"] for m in asked], response.headers["ETag"]))
            self.assertEqual([], self.other.take())

    def test_create_of_what_is_not_there(self) -> None:
        """
        `If-None-Match: *` creates only what does not exist.
        """
        request = "POST", LAMP, {"value": 1}
        response, asked = self.exchange(request, {"code": 404}, {"code": 201}, If_None_Match="*")
        self.assertEqual((201, 2), (response.status, len(asked)))

        response, asked = self.exchange(request, {"code": 200}, If_None_Match="*")
        self.assertEqual((412, 1), (response.status, len(asked)))

    def test_condition_that_cannot_be_evaluated(self) -> None:
        """
        If the read fails, the condition is not met, and nothing is sent; a refusal of the read is the answer.
        """
        for code, status in ((501, 412), (405, 412), (403, 403), (404, 412)):
            response, asked = self.exchange(("DELETE",), {"code": code}, If_Match="*")
            self.assertEqual((status, 1), (response.status, len(asked)))

    def test_conditions_are_checked(self) -> None:
        """
        What is no entity tag is refused; a publication has no version.
        """
        for tags in ("7", '"7" "8"', '"a', ",".join(['"1"'] * 101)):
            self.assertError(400, self.ask("GET", LAMP, If_None_Match=tags))
        self.assertError(412, self.ask("PUT", "comm://d/x/changes", {}, If_Match="*"))

    def test_strong_and_weak(self) -> None:
        """
        If-Match compares strongly, If-None-Match weakly (RFC 9110, 13.1).
        """
        self.assertEqual(412, Conditions(match=('W/"1"',)).failure(True, '"1"', False))
        self.assertEqual(304, Conditions(none_match=('W/"1"',)).failure(True, '"1"', True))
        self.assertEqual(0, Conditions(none_match=("*",)).failure(True, '"1"', True))
        self.assertEqual(412, Conditions(match=()).failure(False, "", False))


class PreferenceTests(ResourceCase):
    """
    Preferences.
    """

    def test_wait(self) -> None:
        """
        `Prefer: wait` says how long to wait for the response, at most 30 seconds.
        """
        for wanted, applied, seconds in (
            ("wait=3", "wait=3", 3),
            ("foo; bar, wait=99", "wait=30", 30),
            ("wait=-1", None, 25),
            ("", None, 25),
        ):
            client = self.begin("GET", LAMP, Prefer=wanted)
            self.net.clock.advance(seconds - 0.1)
            self.net.pump()
            self.assertIsNone(client.response)
            self.net.clock.advance(0.2)
            self.net.pump()

            assert client.response is not None
            self.assertError(504, client.response)
            self.assertEqual(applied, client.response.headers["Preference-Applied"])
            self.other.take()

    def test_respond_async(self) -> None:
        """
        `Prefer: respond-async` is answered 202, at once or when the wait is over.
        """
        response = self.ask("PUT", LAMP, {"value": 1}, Prefer="respond-async")
        self.assertEqual((202, "respond-async"), (response.status, response.headers["Preference-Applied"]))

        client = self.begin("PUT", LAMP, {"value": 1}, Prefer="respond-async, wait=5")
        self.assertIsNone(client.response)
        self.net.clock.advance(5.1)
        self.net.pump()
        assert client.response is not None
        self.assertEqual((202, {"accepted": 1}), (client.response.status, client.response.json()))

    def test_quick_response_ends_the_wait(self) -> None:
        """
        A response that comes in time is the answer, although 202 would do.
        """
        response, _ = self.exchange(("GET",), {"code": 200}, Prefer="respond-async, wait=5")

        self.assertEqual(200, response.status)


class TagTests(SynchronousTestCase):
    """
    Entity tags of odd bodies.
    """

    @given(st.binary(max_size=80))
    def test_any_body_has_a_tag_or_none(self, body: bytes) -> None:
        """
        No body makes a header field that is not one.
        """
        tag = entity_tag(body)
        self.assertTrue(tag == "" or (tag[0] == tag[-1] == '"' and tag.isascii() and tag.isprintable()))
