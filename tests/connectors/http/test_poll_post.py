"""
Long-polling: what a client sends, and what pages of other origins may do.
"""

from tests.support.http_client import HTTPClient
from tests.support.poll_case import URL, PollCase
from tests.support.runtimes import dumps
from tests.support.suite_bounds import LIMIT, of_size


class PostTests(PollCase):
    """
    Sending.
    """

    def test_open_is_answered_in_the_response_with_cursor_0(self) -> None:
        """
        `open` is answered in the response, with cursor 0.
        """
        response = self.open()

        (reply,) = response.json()["messages"]
        self.assertEqual({"messages": [reply], "cursor": 0}, response.json())
        self.assertEqual((200, URL, 200), (response.status, reply["to"], reply["body"]["code"]))
        self.assertEqual("application/json", response.headers["Content-Type"])
        self.assertEqual("no-store", response.headers["Cache-Control"])

    def test_one_message_is_taken(self) -> None:
        """
        One message is taken: 202.
        """
        response = self.post(self.update(1, self.other.url))

        self.assertEqual((202, {"accepted": 1}), (response.status, response.json()))
        self.assertEqual([1], [message["id"] for message in self.other.take()])

    def test_posted_array_is_taken_in_order(self) -> None:
        """
        An array of messages is taken in its order.
        """
        messages = [self.update(n, self.other.url) for n in range(5)]

        response = self.post(b" \r\n" + dumps(messages))

        self.assertEqual((202, {"accepted": 5}), (response.status, response.json()))
        self.assertEqual(messages, self.other.take())

    def test_when_one_message_of_an_array_is_refused(self) -> None:
        """
        When one message of an array is refused for its form, none is carried.
        """
        good = self.update(1, self.other.url)
        for bad in (3, [], {"id": 1}, {**good, "to": []}, {**good, "body": 3}, "x", None):
            self.assertError(400, self.post([good, bad, good]))
        opening = {"id": 1, "type": "open", "from": URL, "to": "mn:/session"}
        self.assertError(400, self.post([good, opening]))
        self.assertError(400, self.post([good, {**opening, "type": "RE-OPEN"}]))
        self.assertEqual([], self.other.take())

    def test_no_messages(self) -> None:
        """
        What holds no messages is answered 400, and a deep nest of brackets too.
        """
        for body in (
            b"hello",
            b"[",
            b"[1",
            b"\xff",
            b"[" * 100_000,
            b"[" * 100_000 + b"]" * 100_000,
            b'["\xff"]',
        ):
            self.assertError(400, self.post(body))
            self.assertError(400, self.post(body, token=""))
        self.assertError(400, self.request("POST"))

    def test_close_in_an_array(self) -> None:
        """
        What stands behind a `close` in an array is taken and comes too late.
        """
        close = {"id": 1, "type": "close", "from": URL, "to": "mn:/session"}

        response = self.post([self.update(1, self.other.url), close, self.update(2, self.other.url)])

        self.assertEqual(202, response.status)
        self.assertEqual([1], [message["id"] for message in self.other.take()])
        self.assertError(401, self.post(self.update(3, self.other.url)))

    def test_refused_message(self) -> None:
        """
        A message that is well-formed and refused is taken; its answer comes by GET.
        """
        response = self.post(
            {"id": 8, "type": "create", "from": f"{URL}/x", "to": "domain://registry.example.org"}
        )

        self.assertEqual(202, response.status)
        (reply,) = self.get().response.json()["messages"]
        self.assertEqual((8, 501), (reply["id"], reply["body"]["code"]))

    def test_messages_taken_before_are_skipped_by_seq(self) -> None:
        """
        Messages that were taken before, by the number of the first one, are skipped.
        """
        messages = [self.update(n, self.other.url) for n in range(1, 6)]

        for seq, first, last, received in (
            (1, 0, 2, 2),
            (1, 0, 2, 2),
            (2, 1, 4, 4),
            (5, 4, 5, 5),
            (5, 4, 5, 5),
        ):
            response = self.post(messages[first:last], f"?seq={seq}")

            expected = {"accepted": last - first, "received": received}
            self.assertEqual((202, expected), (response.status, response.json()))
        self.assertEqual(messages, self.other.take())

    def test_seq_out_of_line(self) -> None:
        """
        A number that leaves a gap, or is none, is answered 400.
        """
        self.post(self.update(1, self.other.url))
        self.other.take()

        for seq in ("3", "0", "-1", "x", "1.5", "9" * 30):
            self.assertError(400, self.post(self.update(2, self.other.url), f"?seq={seq}"))
        self.assertEqual([], self.other.take())

    def test_node_that_is_about_to_stop_takes_nothing_more_also(self) -> None:
        """
        A node that is about to stop takes nothing more, also on a connection that is kept alive.
        """
        client = HTTPClient(self.net)
        body, token = dumps(self.update(1, self.other.url)), {"Authorization": f"Bearer {self.token}"}
        self.assertEqual(202, client.request("POST", "/poll", body, **token).status)
        self.other.take()
        self.net.node.sessions.draining = True

        response = client.request("POST", "/poll", body, **token)

        self.assertError(503, response)
        self.assertEqual("1", response.headers["Retry-After"])
        self.assertEqual([], self.other.take())

    def test_without_a_token_there_is_nothing_but_open(self) -> None:
        """
        Without a token there is nothing but `open`; with one that is not known, nothing: 401.
        """
        for token in ("", "mns_" + "x" * 43, "x", self.token[:-1]):
            self.assertError(401, self.post(self.update(1, self.other.url), token=token))
            self.assertError(401, self.get(token=token).response)
        basic = self.post(self.update(1, self.other.url), token="", Authorization="Basic eDp5")
        self.assertError(401, basic)
        self.assertEqual([], self.other.take())

    def test_refused_names(self) -> None:
        """
        A name that cannot be opened is answered 403, and a full node 503 with a time to come back.
        """
        self.assertError(403, self.open(from_="mn:/x"))
        self.restart(limits={"sessions": 2})
        response = self.open(from_="runtime://example.org/c")
        self.assertError(503, response)
        self.assertEqual("30", response.headers["Retry-After"])

    def test_message_over_the_limit_is_answered_413_alone(self) -> None:
        """
        A message over the limit is answered 413, alone, in an array and in `open`.
        """
        self.restart(limits={"message_bytes": LIMIT})

        fits, long = of_size(LIMIT, self.other.url), of_size(LIMIT + 1, self.other.url)

        self.assertError(413, self.post(long))
        self.assertError(413, self.post(b"[" + long + b"]"))
        self.assertError(413, self.post(long, token=""))
        self.assertEqual(202, self.post(b"[" + fits + b"]").status)
        self.assertEqual(1, len(self.other.take()))

    def test_array_of_twice_the_limit(self) -> None:
        """
        An array may have twice the limit, exactly.
        """
        self.restart(limits={"message_bytes": LIMIT})
        array = b"[" + of_size(LIMIT, self.other.url) + b"," + of_size(LIMIT - 3, self.other.url) + b"]"

        self.assertEqual(2 * LIMIT, len(array))
        self.assertEqual(202, self.post(array).status)
        self.assertError(413, self.post(array + b" "))

    def test_content_length(self) -> None:
        """
        A body that says it is too long is refused before any of it comes, and thrown away when it does.
        """
        client = HTTPClient(self.net)

        client.start("POST", "/poll", b"", Content_Length=str(2 * 8_388_608 + 1))
        self.net.pump()

        self.assertError(413, client.response)
        self.assertEqual("close", client.response.headers["Connection"])
        self.assertTrue(client.link.over)

    def test_chunked(self) -> None:
        """
        A body in chunks is refused when it has grown too long.
        """
        self.restart(limits={"message_bytes": LIMIT})
        client = HTTPClient(self.net)
        client.start("POST", "/poll", b"", Transfer_Encoding="chunked", Authorization=f"Bearer {self.token}")
        chunk = b"%x\r\n%s\r\n" % (LIMIT, b"x" * LIMIT)

        client.transport.write(chunk + chunk)
        self.net.pump()
        self.assertIsNone(client.response)
        client.transport.write(chunk)
        self.net.pump()

        self.assertError(413, client.response)

    def test_chunked_message(self) -> None:
        """
        A body in chunks is as good as any.
        """
        client = HTTPClient(self.net)
        data = dumps(self.update(1, self.other.url))
        client.start("POST", "/poll", b"", Transfer_Encoding="chunked", Authorization=f"Bearer {self.token}")

        for at in range(0, len(data), 10):
            part = data[at : at + 10]
            client.transport.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.net.pump()
        client.transport.write(b"0\r\n\r\n")
        self.net.pump()

        self.assertEqual(202, client.response.status)
        self.assertEqual(1, len(self.other.take()))

    def test_slow_body(self) -> None:
        """
        A body that drips in has a minute.
        """
        client = HTTPClient(self.net)
        client.start("POST", "/poll", b"", Content_Length="1000", Authorization=f"Bearer {self.token}")

        for second in range(60):
            self.assertFalse(client.link.over, second)
            client.transport.write(b" ")
            self.net.advance(1)

        self.assertTrue(client.link.over)

    def test_poller_behind_a_trusted_proxy(self) -> None:
        """
        Behind a trusted proxy the peer is the one that the proxy names.
        """
        for proxies, peer in ((["192.0.2.1"], "203.0.113.9"), ([], "192.0.2.1:")):
            self.restart(trusted_proxies=proxies)
            message = {"id": 1, "type": "open", "from": "runtime://example.org/p", "to": "mn:/session"}

            self.post(message, token="", X_Forwarded_For="198.51.100.1, 203.0.113.9")

            session = self.net.node.sessions.get("runtime://example.org/p")
            self.assertTrue(session.connection.peer.startswith(peer), session.connection.peer)

    def test_other_methods_are_answered_405_other_paths_404(self) -> None:
        """
        Other methods are answered 405, other paths 404.
        """
        for method in ("PUT", "DELETE", "PATCH"):
            response = self.request(method)

            self.assertError(405, response)
            self.assertEqual("GET, POST, OPTIONS", response.headers["Allow"])
        self.assertError(404, HTTPClient(self.net).request("GET", "/poll/x"))


class CORSTests(PollCase):
    """
    Pages of other origins.
    """

    PREFLIGHT = {
        "Access_Control_Request_Method": "POST",
        "Access_Control_Request_Headers": "authorization,content-type",
    }

    def test_preflight(self) -> None:
        """
        A browser that asks may send its token and JSON from any page.
        """
        response = self.request("OPTIONS", token="", Origin="https://app.example.org", **self.PREFLIGHT)

        self.assertEqual((204, b""), (response.status, response.body))
        headers = response.headers
        self.assertEqual("*", headers["Access-Control-Allow-Origin"])
        self.assertEqual("GET, POST, OPTIONS", headers["Access-Control-Allow-Methods"])
        for name in ("Authorization", "Content-Type"):
            self.assertIn(name, headers["Access-Control-Allow-Headers"].split(", "))
        self.assertEqual("86400", headers["Access-Control-Max-Age"])

    def test_answers_may_be_read_by_any_page_errors_and_those(self) -> None:
        """
        Answers may be read by any page, errors and those that were held too, with the time to come back.
        """
        held = self.get(Origin="https://app.example.org")
        self.get()
        for response in (held.response, self.open(), self.post({}, token="x"), self.request("PUT")):
            self.assertEqual("*", response.headers["Access-Control-Allow-Origin"])
            self.assertIn("Retry-After", response.headers["Access-Control-Expose-Headers"].split(", "))

    def test_listed_origins(self) -> None:
        """
        With a list of origins only those are allowed, by name.
        """
        self.restart(allowed_origins=["https://app.example.org"])
        for origin, allowed in (
            ("https://app.example.org", True),
            ("https://evil.example", False),
            ("", False),
        ):
            response = self.request("OPTIONS", token="", Origin=origin, **self.PREFLIGHT)

            self.assertEqual(origin if allowed else None, response.headers["Access-Control-Allow-Origin"])
        response = self.request("OPTIONS", token="", Origin="https://app.example.org", **self.PREFLIGHT)
        self.assertEqual("Origin", response.headers["Vary"])


class OddRequestTests(PollCase):
    """
    What calls itself something else, or comes from somewhere else.
    """

    def test_posted_form_is_read_as_what_it_is(self) -> None:
        """
        A body that calls itself a form is read as what it is, whatever stands in its texts.
        """
        for kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
            message = self.update(1, self.other.url, body={"value": "a&seq=1&wait=x"})

            response = self.post(message, Content_Type=kind)

            self.assertEqual((202, [message]), (response.status, self.other.take()))

    def test_poll_from_a_forbidden_origin_takes_no_session(self) -> None:
        """
        A page of an origin that is not allowed may not take a session over, also where no preflight asks.
        """
        self.restart(allowed_origins=["https://good.example"])
        opening = {"id": 1, "type": "open", "from": URL, "to": "mn:/session"}

        response = self.post(opening, token="", Origin="https://evil.example", Content_Type="text/plain")

        self.assertError(403, response)
        self.assertEqual(202, self.post(self.update(1)).status)
        self.assertEqual("Origin", response.headers["Vary"])

    def test_headers_that_are_no_text(self) -> None:
        """
        Bytes in a header that are not UTF-8 are an unknown token or origin, not a fault of the node.
        """
        client = HTTPClient(self.net)
        client.transport.write(
            b"GET /poll HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\r\nOrigin: \xff\r\n\r\n"
        )
        self.net.pump()

        self.assertError(401, client.response)

    def test_refused_body_is_not_carried(self) -> None:
        """
        Of a body that grows too long in pieces nothing is carried, and there is one answer.
        """
        self.restart(limits={"message_bytes": 200})
        message = dumps(self.update(1, self.other.url))
        body = b"[" + message + b" " * (400 - len(message) - 2) + b"]"
        client = HTTPClient(self.net)
        client.transport.write(
            b"POST /poll HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            b"Authorization: Bearer %s\r\n\r\n%x\r\n%s\r\n1\r\n \r\n0\r\n\r\n"
            % (self.token.encode(), len(body), body)
        )
        self.net.pump()

        self.assertEqual(413, client.response.status)
        self.assertEqual(1, client.came.count(b"HTTP/1.1"))
        self.assertEqual([], self.other.take())

    def test_long_header(self) -> None:
        """
        A header line that is too long is answered 431.
        """
        response = HTTPClient(self.net).request("GET", "/poll", Cookie="c" * 20_000)

        self.assertError(431, response)

    def test_opened_again_and_again(self) -> None:
        """
        A client that opens its session again leaves nothing of its earlier life behind.
        """
        for _ in range(20):
            self.open()

        self.assertEqual(1, sum(c.connector == "poll" for c in self.net.node.sessions.connections))

    def test_long_array(self) -> None:
        """
        A long array fills the queue of a recipient that does not read, no more than single messages would.
        """
        self.restart(session={"queue_messages": 10})
        self.other.stop_reading()
        messages = [self.update(n, self.other.url, body={"value": "v" * 10_000}) for n in range(100)]

        self.post(messages)

        self.assertLess(self.other.link.serverIO.size, 200_000)
        self.assertGreater(self.net.node.counts.overflowed, 0)
