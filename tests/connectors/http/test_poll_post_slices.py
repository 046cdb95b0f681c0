"""
Long-polling: a POST of thousands of messages.
"""

import json
import tracemalloc
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.connectors.http.poll_post import HTTPRefusal, elements
from msgnode.structures.time_slices import MESSAGES
from tests.support.http_client import HTTPClient
from tests.support.poll_case import URL, PollCase
from tests.support.runtimes import TCPRuntime, dumps

MANY = 3 * MESSAGES + 5


class ElementsTests(SynchronousTestCase):
    """
    How an array is taken apart.
    """

    def test_as_they_came(self) -> None:
        """
        The elements of an array are found as they were written, whatever space is between them.
        """
        for written in (
            [b"1"],
            [b'{"a":[1,2,{}]}', b'{ "b" : "],[" }'],
            ['"ż\\u20ac"'.encode(), b"[[],[]]", b"-0.10e+3", b"null", b"true"],
            [],
        ):
            for between, around in ((b",", b""), (b" ,\r\n\t", b" \n")):
                body = around + b"[" + around + between.join(written) + around + b"]" + around

                self.assertEqual(written, list(elements(body)))

    def test_what_is_no_array_is_one_message(self) -> None:
        """
        What is no array is one message.
        """
        self.assertEqual([b' {"a":1} '], list(elements(b' {"a":1} ')))

    def test_no_array(self) -> None:
        """
        What only begins like an array is not JSON.
        """
        for body in (
            b"[",
            b"[1",
            b"[1,",
            b"[1,]",
            b"[,1]",
            b"[1]]",
            b"[1] 2",
            b"[] x",
            b"[1 2]",
            b"[nul]",
            b"[[]",
        ):
            with self.assertRaises(HTTPRefusal, msg=body):
                list(elements(body))

    def test_array_element_is_taken_apart_one_at_a_time(self) -> None:
        """
        An element costs no more than itself before the next one is asked for.
        """
        body = b"[" + b",".join([b"1"] * 500_000) + b"]"

        tracemalloc.start()
        next(elements(body))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

        self.assertLess(peak, 10_000)


class PostingTests(PollCase):
    """
    Arrays that are more than one turn of the event loop may have.
    """

    def setUp(self) -> None:
        super().setUp()
        self.messages = [self.update(n, self.other.url) for n in range(MANY)]

    def begin(self, body: Any, query: str = "") -> HTTPClient:
        """
        Post without letting a turn pass.
        """
        client = HTTPClient(self.net)
        client.start("POST", f"/poll{query}", dumps(body), Authorization=f"Bearer {self.token}")
        while client.link.pump(advanceClock=False):
            pass
        return client

    def ids(self) -> list[int]:
        return [message["id"] for message in self.other.take()]

    def test_some_are_taken_at_once_the_others_in_later_turns(self) -> None:
        """
        Some are taken at once, the others in later turns, and 202 comes after the last.
        """
        before = self.net.node.counts.received

        client = self.begin(self.messages)

        self.assertEqual(MESSAGES, self.net.node.counts.received - before)
        self.assertIsNone(client.response)
        self.net.pump()
        self.assertEqual((202, {"accepted": MANY}), (client.response.status, client.response.json()))
        self.assertEqual(list(range(MANY)), self.ids())

    def test_few_posted_messages_are_answered_in_that_turn(self) -> None:
        """
        What one turn may have is answered in that turn.
        """
        client = self.begin(self.messages[:MESSAGES])

        while client.link.pump(advanceClock=False):
            pass
        self.assertEqual(202, client.response.status)
        self.assertEqual(0, self.net.node.slices.done)

    def test_array_of_more_messages_than_a_post_may_have(self) -> None:
        """
        An array of more messages than a POST may have is answered 413, and none of it is taken.
        """
        self.restart(limits={"messages_per_post": MESSAGES})

        few = self.post([self.update(n, self.other.url) for n in range(MESSAGES)])
        many = self.post([self.update(n, self.other.url) for n in range(MESSAGES + 1)])

        self.assertEqual(202, few.status)
        self.assertError(413, many)
        self.assertIn(f"at most {MESSAGES} messages", many.json()["desc"])
        self.assertEqual(list(range(MESSAGES)), self.ids())

    def test_most_in_memory(self) -> None:
        """
        A body of a million elements is refused without building them.
        """
        self.restart(limits={"messages_per_post": 100})
        body = b"[" + b",".join([dumps(self.update(1))] * 50_000) + b"]"

        tracemalloc.start()
        response = self.post(body)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

        self.assertError(413, response)
        self.assertLess(peak, 6 * len(body))

    def test_when_the_last_of_thousands_is_refused_for_its_form(self) -> None:
        """
        When the last of thousands is refused for its form, none is carried.
        """
        self.assertError(400, self.post([*(self.messages * 5), {"id": 1}]))
        self.assertError(400, self.post(dumps(self.messages * 5)[:-1]))

        self.assertEqual([], self.other.take())

    def test_what_the_client_posts_meanwhile_by_whatever(self) -> None:
        """
        What the client posts meanwhile, by whatever connection, comes behind it.
        """
        first = self.begin(self.messages)

        second = self.begin([self.update(MANY, self.other.url)])
        third = self.begin(self.update(MANY + 1, self.other.url))
        self.assertIsNone(second.response)
        self.net.pump()

        self.assertEqual([202] * 3, [client.response.status for client in (first, second, third)])
        self.assertEqual(list(range(MANY + 2)), self.ids())

    def test_many_posts(self) -> None:
        """
        Only a few POSTs may wait for an earlier one; the others are told to come again.
        """
        self.begin(self.messages)

        clients = [self.begin(self.update(MANY + n, self.other.url)) for n in range(11)]
        self.net.pump()

        self.assertEqual([202] * 10 + [503], [client.response.status for client in clients])
        self.assertEqual("1", clients[-1].response.headers["Retry-After"])
        self.assertEqual(list(range(MANY + 10)), self.ids())

    def test_another_client_message_is_not_behind_thousands(self) -> None:
        """
        Another client's message is not behind thousands of the first one's.
        """
        another = TCPRuntime(self.net, "runtime://example.org/c").open()

        self.begin(self.messages)
        another.put(dumps(self.update(-1, self.other.url)))
        while another.link.pump(advanceClock=False):
            pass

        self.assertLess(self.ids().index(-1), MANY)

    def test_repeated_array_is_taken_once(self) -> None:
        """
        An array that is posted again with its `seq` is taken once, however many slices it is.
        """
        self.post(self.messages, "?seq=1")

        again = self.post([*self.messages, self.update(MANY, self.other.url)], "?seq=1")

        self.assertEqual({"accepted": MANY + 1, "received": MANY + 1}, again.json())
        self.assertEqual(list(range(MANY + 1)), self.ids())

    def test_when_the_client_hangs_up_all_is_taken_all_the_same(self) -> None:
        """
        When the client hangs up, all is taken all the same, and no second time when it is posted again.
        """
        client = self.begin(self.messages, "?seq=1")

        client.hang_up()
        again = self.post(self.messages, "?seq=1")

        self.assertEqual({"accepted": MANY, "received": MANY}, again.json())
        self.assertEqual(list(range(MANY)), self.ids())

    def test_array_of_a_taken_over_session_is_409(self) -> None:
        """
        When the session goes on elsewhere meanwhile, the rest is not taken: 409.
        """
        client = self.begin(self.messages, "?seq=1")

        self.net.node.client().reopen(f"{URL}/{self.token}")
        self.net.pump()

        self.assertError(409, client.response)
        self.assertEqual(list(range(MESSAGES)), self.ids())

    def test_when_the_session_is_closed_meanwhile_the_rest(self) -> None:
        """
        When the session is closed meanwhile, the rest is not taken: 401.
        """
        close = {"id": 1, "type": "close", "from": f"{URL}/{self.token}", "to": "mn:/session"}

        response = self.post([*self.messages[:200], close, *self.messages[200:]])

        self.assertError(401, response)
        self.assertEqual(list(range(200)), self.ids())


class JSONTests(SynchronousTestCase):
    """
    Against Python's own reading.
    """

    def test_what_is_taken_apart_is_what_json_loads_reads(self) -> None:
        """
        What is taken apart is what json.loads reads.
        """
        values: list[Any] = [{"id": n, "body": {"x": ["[", "]", ",", n]}} for n in range(300)]

        for indent in (None, 1):
            body = json.dumps(values, indent=indent).encode()

            self.assertEqual(values, [json.loads(part) for part in elements(body)])
