"""
Long-polling: what a client receives, with cursors and answers that may be lost.
"""

from tests.support.http_client import HTTPClient
from tests.support.poll_case import URL, PollCase
from tests.support.poll_runtime import PollRuntime
from tests.support.runtimes import WebSocketRuntime
from tests.support.suite import SM


class GetTests(PollCase):
    """
    Receiving.
    """

    def test_get_is_answered_at_once_with_all_that_waits(self) -> None:
        """
        A GET is answered at once with all that waits.
        """
        self.send(1, 2, 3)

        self.assertGot([1, 2, 3], 3, self.get())

    def test_get_is_held_until_something_comes(self) -> None:
        """
        A GET waits for something to come, and is answered with all that came in one read.
        """
        held = self.get()
        self.assertIsNone(held.response)

        self.send(1, 2)

        self.assertGot([1, 2], 2, held)

    def test_get_that_brings_nothing_is_204(self) -> None:
        """
        When nothing comes the answer is 204: after the time that was asked for, 25 s if none was, 30 at most.
        """
        for query, seconds in (
            ("", 25),
            ("?wait=3", 3),
            ("?wait=30", 30),
            ("?wait=31", 30),
            ("?wait=9999", 30),
        ):
            held = self.get(query)

            self.net.advance(seconds - 1)
            self.assertIsNone(held.response, query)
            self.net.advance(1)

            self.assertEqual((204, b""), (held.response.status, held.response.body), query)
        for query in ("?wait=0", "?wait=-1"):
            self.assertEqual(204, self.get(query).response.status, query)

    def test_wait_that_is_no_number(self) -> None:
        """
        A wait or a cursor that is no number is answered 400.
        """
        for query in ("?wait=x", "?wait=1.5", "?after=x", "?after="):
            if query != "?after=":
                self.assertError(400, self.get(query).response)

    def test_lost_answer(self) -> None:
        """
        What is not acknowledged comes again, in order, with what came since, and no more after it is.
        """
        self.send(1, 2)
        self.get("?after=0")
        self.send(3)

        self.assertGot([1, 2, 3], 3, self.get("?after=0"))
        self.assertGot([2, 3], 3, self.get("?after=1"))
        self.send(4)
        self.assertGot([4], 4, self.get("?after=3"))
        self.assertIsNone(self.get("?after=4").response)

    def test_without_cursor(self) -> None:
        """
        A GET without a cursor acknowledges nothing.
        """
        self.send(1)

        self.assertGot([1], 1, self.get())
        self.assertGot([1], 1, self.get())

    def test_cursor_that_was_not_given(self) -> None:
        """
        A cursor beyond what was handed out, or before what was acknowledged, is answered 400.
        """
        self.send(1, 2)
        self.get()
        self.get("?after=1")

        for after in (3, 0, -1):
            self.assertError(400, self.get(f"?after={after}").response)
        self.assertGot([2], 2, self.get("?after=1"))

    def test_one_poll_answer_brings_about_a_megabyte(self) -> None:
        """
        One answer brings about a megabyte; the rest comes with the next ones, in order.
        """
        for id in range(4):
            self.other.send(self.update(id, body={"value": "v" * 600_000}))

        got, cursor = [], 0
        for _ in range(2):
            answer = self.get(f"?after={cursor}").response
            self.assertLess(len(answer.body), 2_000_000)
            got += [message["id"] for message in answer.json()["messages"]]
            cursor = answer.json()["cursor"]

        self.assertEqual([0, 1, 2, 3], got)

    def test_much_that_is_not_acknowledged(self) -> None:
        """
        A client that acknowledges nothing gets the same megabyte again and again, and no more.
        """
        for id in range(4):
            self.other.send(self.update(id, body={"value": "v" * 600_000}))

        for _ in range(3):
            answer = self.get("?after=0").response.json()
            self.assertEqual([0, 1], [message["id"] for message in answer["messages"]])

    def test_second_get_takes_over(self) -> None:
        """
        A second GET takes over; the first is answered 409 and told to wait five seconds.
        """
        first = self.get()
        second = self.get()

        self.assertError(409, first.response)
        self.assertEqual("5", first.response.headers["Retry-After"])
        self.send(1)
        self.assertGot([1], 1, second)

    def test_poller_that_hangs_up_loses_nothing(self) -> None:
        """
        A client that hangs up while its GET is held loses nothing.
        """
        self.get().hang_up()

        self.send(1)

        self.assertEqual("waiting", self.net.traffic_recorder.outcomes[-1])
        self.assertGot([1], 1, self.get())

    def test_old_http(self) -> None:
        """
        A client of HTTP/1.0 may poll.
        """
        client = HTTPClient(self.net)
        client.transport.write(f"GET /poll HTTP/1.0\r\nAuthorization: Bearer {self.token}\r\n\r\n".encode())
        self.net.pump()

        self.send(1)

        self.assertIn(b'"cursor":1', client.came)
        self.assertTrue(client.link.over)

    def test_lingers(self) -> None:
        """
        Between two GETs a client is attached; after a minute it is away, and the next GET brings it back.
        """
        self.get("?wait=0")

        self.net.advance(59)
        self.assertNotIn(("detached", URL), self.net.traffic_recorder.events)
        self.net.advance(2)
        self.assertEqual(("detached", URL), self.net.traffic_recorder.events[-1])
        self.send(1)

        self.assertGot([1], 1, self.get())
        self.assertEqual(("attached", URL), self.net.traffic_recorder.events[-1])

    def test_held_is_not_away(self) -> None:
        """
        A client whose GETs are held is never away.
        """
        for _ in range(4):
            self.get("?wait=30")
            self.net.advance(30)

        self.assertNotIn(("detached", URL), self.net.traffic_recorder.events)

    def test_posting_is_being_there(self) -> None:
        """
        A client that is away and sends is answered at its next GET.
        """
        self.net.advance(61)
        body = {"resources": ["x://y"]}

        response = self.post({"id": 5, "type": "subscribe", "from": URL, "to": SM, "body": body})

        self.assertEqual(202, response.status)
        self.assertEqual([5], [m["id"] for m in self.get().response.json()["messages"]])

    def test_posts_and_goes(self) -> None:
        """
        A client that was away, sends once and never polls is away again a minute later.
        """
        self.net.advance(61)

        self.post(self.update(1, self.other.url))
        self.assertEqual(("attached", URL), self.net.traffic_recorder.events[-1])
        self.net.advance(61)

        self.assertEqual(("detached", URL), self.net.traffic_recorder.events[-1])

    def test_who_polls_no_more_is_forgotten_in_the_end(self) -> None:
        """
        Who polls no more is forgotten in the end, and its token with it.
        """
        self.net.advance(61 + 60)

        self.assertError(401, self.get().response)
        self.assertIsNone(self.net.node.sessions.get(URL))


class AgainTests(PollCase):
    """
    Sessions that are opened again, or come from elsewhere.
    """

    def test_reopen_continues(self) -> None:
        """
        After `re-open` with the token the numbers go on, for both directions.
        """
        self.send(1, 2)
        self.get()
        self.get("?after=1")
        self.post(self.update(1, self.other.url), "?seq=1")

        response = self.open("re-open", f"{URL}/{self.token}")

        self.assertEqual(1, response.json()["cursor"])
        self.assertEqual({"code": 200}, response.json()["messages"][0]["body"])
        self.send(3)
        self.assertGot([2, 3], 3, self.get("?after=1"))
        received = self.post(self.update(1, self.other.url), "?seq=1").json()["received"]
        self.assertEqual(1, received)
        self.assertEqual(1, len(self.other.take()))

    def test_open_renumbers(self) -> None:
        """
        After `open` the numbers begin anew; what was not acknowledged comes again under new ones.
        """
        self.send(1, 2, 3)
        self.get()
        self.get("?after=1")
        self.post(self.update(1, self.other.url), "?seq=1")

        response = self.open()
        self.token = response.json()["messages"][0]["body"]["runtimeToken"]

        self.assertEqual(0, response.json()["cursor"])
        self.assertGot([2, 3], 2, self.get("?after=0"))
        self.assertEqual(1, self.post(self.update(2, self.other.url), "?seq=1").json()["received"])
        self.assertEqual([1, 2], [message["id"] for message in self.other.take()])

    def test_open_ends_the_held_request(self) -> None:
        """
        A GET that is held while the session is opened anew is answered 409.
        """
        held = self.get()

        self.open()

        self.assertError(409, held.response)
        self.assertError(401, self.get().response)

    def test_from_a_websocket(self) -> None:
        """
        A session that lost its WebSocket goes on by polling with its token alone.
        """
        runtime = WebSocketRuntime(self.net, "runtime://example.org/w").open()
        runtime.drop()
        self.other.send(self.update(1, runtime.url))

        answer = self.get(token=runtime.token).response.json()
        posted = self.post(self.update(2, self.other.url), token=runtime.token)

        self.assertEqual((1, [1]), (answer["cursor"], [message["id"] for message in answer["messages"]]))
        self.assertEqual(202, posted.status)
        self.assertEqual(1, len(self.other.take()))

    def test_beside_a_websocket(self) -> None:
        """
        A client that begins to poll while its WebSocket is there is the newest connection.
        """
        for first in ("GET", "POST"):
            runtime = WebSocketRuntime(self.net, f"runtime://example.org/{first}").open()
            held = self.get(token=runtime.token) if first == "GET" else None

            posted = self.post(self.update(1, self.other.url), token=runtime.token)
            self.other.send(self.update(2, runtime.url))

            self.assertEqual(202, posted.status)
            self.assertEqual([1], [message["id"] for message in self.other.take()])
            answer = (held or self.get(token=runtime.token)).response.json()
            self.assertEqual([2], [message["id"] for message in answer["messages"]])
            self.assertEqual([], runtime.take())

    def test_back_to_a_websocket(self) -> None:
        """
        A poller that goes on over a WebSocket gets there what it did not acknowledge, or what is new.
        """
        runtime = WebSocketRuntime(self.net, URL)
        runtime.token = self.token

        runtime.reopen()
        self.send(1)

        self.assertEqual([1], [message["id"] for message in runtime.take()])

    def test_superseded_by_a_websocket(self) -> None:
        """
        A poller that was replaced is given nothing more; what it sends counts, and is answered at its GET.
        """
        poller = PollRuntime(self.net, "runtime://example.org/p").open()
        runtime = WebSocketRuntime(self.net, poller.url)
        runtime.token = poller.token
        runtime.reopen()

        reply = poller.ask(type="subscribe", to=SM, body={"resources": ["x://y"]})
        self.other.send(self.update(1, poller.url))

        self.assertEqual({"code": 200}, reply["body"])
        self.assertEqual([], poller.take())
        self.assertEqual([1], [message["id"] for message in runtime.take()])

    def test_waits_while_superseded(self) -> None:
        """
        Also between two GETs: what a replaced poller asks is answered at its next one.
        """
        runtime = WebSocketRuntime(self.net, URL)
        runtime.token = self.token
        runtime.reopen()

        self.post({"id": 5, "type": "subscribe", "from": URL, "to": SM, "body": {"resources": ["x://y"]}})

        held = self.get()
        self.assertIsNotNone(held.response)
        self.assertEqual([5], [message["id"] for message in held.response.json()["messages"]])
