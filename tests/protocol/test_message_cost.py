"""
One message that is dear to look at costs the node little more than its bytes.
"""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.errors import Malformed
from msgnode.protocol.lone_surrogates import MAX_SURROGATES
from msgnode.protocol.message import MAX_TEXTS, SHORT_BYTES, decode
from tests.support.fakes import MemoryNode, refused_codes

HEAD = b'{"id":1,"type":"update","from":"x","to":"runtime://example.org/b"'
OBJECTS, NUMBERS = b"{}," * 300_000, b"1," * 400_000


def peak(call: Callable[[], Any]) -> int:
    """
    The bytes that a call takes for a while.
    """
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class HeavyTests(SynchronousTestCase):
    """
    A client `a` that sends such messages, and `b` that gets them.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.a, self.b = (self.node.client(f"runtime://example.org/{name}") for name in "ab")

    def assertSmall(self, data: bytes, most: int = 6) -> None:
        """
        It takes so many times its own bytes at most.
        """
        self.assertLess(peak(lambda: self.node.receive(data, self.a)), most * len(data))

    def test_what_is_in_a_body_is_not_built_to_carry_it_whatever(self) -> None:
        """
        What is in a body is not built to carry it, whatever stands where.
        """
        half = b'"h":"\\ud83d",'
        bodies = [
            b',"body":{"v":[%s1]}}' % OBJECTS,
            b',"body":{"v":[%s1]}}' % NUMBERS,
            b',"body":{%s"v":[%s1]}}' % (half, OBJECTS),
            b',"body":{%s"v":[%s1]}}' % (half, NUMBERS),
            b',"body":{"via":"x","v":[%s1]}}' % OBJECTS,
        ]

        for body in bodies:
            self.assertSmall(HEAD + body)

        self.assertEqual([HEAD + body for body in bodies], self.b.raw)

    def test_own_echo(self) -> None:
        """
        Whether a message came through the sender's own stub is seen without building its body.
        """
        self.assertSmall(HEAD.replace(b"/b", b"/a") + b',"body":{"v":[%s1],"via":"x"}}' % OBJECTS)
        self.assertSmall(HEAD.replace(b"/b", b"/a") + b',"body":{"v":[%s1],"x":"via"}}' % OBJECTS)

        self.assertEqual((1, 1), (self.node.counts.echoes, len(self.a.raw)))

    def test_to_say_what_is_wrong_nothing_is_built(self) -> None:
        """
        To say what is wrong, nothing is built of what is long.
        """
        for data, text in (
            (b"[%s1]" % OBJECTS, "a message is an object, not a list"),
            (b'{"type":"x","to":"y","z":[%s1]}' % OBJECTS, "'id' is missing"),
            (
                b'{"id":1,"type":"x","to":[%s1],"from":"x"}' % OBJECTS,
                "'to' must be a string or a list of strings, not a list",
            ),
            (b'{"id":1,"type":{"a":[%s1]},"to":"y"}' % NUMBERS, "'type' must be a string, not an object"),
            (
                b'{"id":1,"type":3,"to":[%s""]}' % (b'"",' * 100_000),
                "'type' must be a string, not the number 3",
            ),
            (b"[" * 2 * SHORT_BYTES, "nested too deeply"),
        ):
            self.assertSmall(data)
            with self.assertRaises(Malformed) as caught:
                decode(data)
            self.assertEqual(text, str(caught.exception))

    def test_body_of_several_hundred_thousand_keys_or_texts(self) -> None:
        """
        A body of several hundred thousand keys or texts is not read, whatever stands in them.
        """
        sm = b'{"id":1,"type":"subscribe","from":"x","to":"domain://msg-node.example.org/sm","body":'
        keys = b",".join(b'"%x":1' % number for number in range(2 * MAX_TEXTS))
        escaped = b",".join(b'"\\\\%x\\\\":1' % number for number in range(2 * MAX_TEXTS + 1))
        texts = b",".join([b'"a"'] * 2 * MAX_TEXTS)

        for body in (b"{%s}" % keys, b"{%s}" % escaped, b'{"resources":[%s]}' % texts):
            self.a.tell(sm + body + b"}")
            self.assertEqual(413, self.a.take()[-1]["body"]["code"])

    def test_long_text_of_quotes_is_one_text(self) -> None:
        """
        A long text with very many quotes in it is one text.
        """
        value = json.dumps({"resources": ["x:y"], "why": '"' * 4 * MAX_TEXTS})
        head = b'{"id":1,"type":"subscribe","from":"x","to":"domain://msg-node.example.org/sm","body":'

        self.a.tell(head + value.encode() + b"}")

        self.assertEqual(200, self.a.take()[-1]["body"]["code"])

    def test_message_of_half_characters_is_no_text(self) -> None:
        """
        A message of nothing but half characters is no text.
        """
        few, many = b"\\ud83d" * 1000, b"\\ud83d" * (MAX_SURROGATES + 1)

        self.a.tell(HEAD + b',"body":{"v":"%s"}}' % few)
        self.a.tell(HEAD + b',"body":{"v":"%s"}}' % many)

        self.assertEqual([HEAD + b',"body":{"v":"%s"}}' % few], self.b.raw)
        self.assertEqual(1, refused_codes(self.node.counts)[400])

    def test_halves_to_a_list(self) -> None:
        """
        In the copies for a list of recipients half characters stand where they stood.
        """
        body = {"v": ["\ud83d", "\udc00 😀", "\\ud83d"], "w": "\ude00"}
        message = {
            "id": 1,
            "type": "update",
            "from": "x",
            "to": [self.b.runtime, "runtime://example.org/c"],
            "body": body,
        }

        for extra in ({}, {"sign": "\ufffd"}):
            self.a.tell(json.dumps({**message, **extra}).encode())

        for got, extra in zip(self.b.take(), ({}, {"sign": "\ufffd"}), strict=True):
            self.assertEqual({**message, **extra, "to": self.b.runtime}, got)

    def test_one_field(self) -> None:
        """
        One field of a body is read as if all were.
        """
        for body in (
            {"a": 1},
            {"a": None},
            {},
            {"b": [{"a": 2}]},
            {"a": {"x": "\ud83d"}},
            {"a": "ż"},
            {"b": "\ud83d", "a": 3},
        ):
            message = decode(
                json.dumps({"id": 1, "type": "x", "to": "y", "from": "z", "body": body}).encode()
            )

            self.assertEqual(message.fields().get("a"), message.field("a"))
        self.assertIsNone(decode(b'{"id":1,"type":"x","to":"y","from":"z"}').field("a"))
        self.assertIsNone(decode(b'{"id":1,"type":"x","to":"y","from":"z","body":null}').field("a"))
