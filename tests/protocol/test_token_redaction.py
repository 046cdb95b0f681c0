r"""
No message carries a token to others, however it is spelt, and what is delivered is what was checked.
"""

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.address import Domain
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import Message, decode
from msgnode.protocol.token_redaction import MAX_TOKENS, loggable, redacted
from tests.support.fakes import Client, MemoryNode
from tests.support.fuzz import TIMES
from tests.support.http_client import HTTPClient
from tests.support.poll_case import PollCase

TOKEN = "mns_" + "aA0_-" * 8 + "xyz"
DEVICE = TOKEN.replace("mns_", "mnd_")
STARS = "*" * 47
ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
SM = "domain://msg-node.example.org/sm"
HEADER = '"id":1,"type":"x","from":"a:1","to":"b:1"'


def spelt(text: str, every: int = 1, upper: bool = False) -> str:
    """
    The text with escapes in the place of every so many of its characters.
    """
    form = "\\u{:04X}" if upper else "\\u{:04x}"
    return "".join(form.format(ord(each)) if at % every == 0 else each for at, each in enumerate(text))


def strings(value: Any) -> list[str]:
    """
    Every string in what JSON said, and every key.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return []


def cleaned(text: str) -> str:
    return redacted(decode(text.encode())).data.decode()


class BodyTests(SynchronousTestCase):
    """
    In the values of a body asterisks stand in a token's place.
    """

    def test_as_long(self) -> None:
        """
        As many as it has characters, and all else stays byte for byte.
        """
        for token in (TOKEN, DEVICE):
            for form in (
                '"%s"',
                '"runtime://d/1/%s"',
                '"runtime:\\/\\/d\\/1\\/%s\\/sm"',
                '{"a":[1.50 , "\\"%s\\\\"]}',
            ):
                text = '{HEADER, "body" : {"via": FORM}}'.replace("HEADER", HEADER).replace("FORM", form)

                self.assertEqual(text % STARS, cleaned(text % token))

    def test_token_in_escapes_is_redacted(self) -> None:
        """
        However many of its characters are spelt in escapes.
        """
        for every in (1, 2, 3, 5, 46):
            for upper in (True, False):
                text = f'{{{HEADER},"body":{{"via":"\\u00fc/{spelt(TOKEN, every, upper)}"}}}}'

                self.assertEqual("ü/" + STARS, json.loads(cleaned(text))["body"]["via"])

    def test_letters_around_a_token_do_not_hide_it(self) -> None:
        """
        A letter behind a token hides it no better than one before it, nor does another token.
        """
        for before, behind in (("", "x"), ("x", ""), ("mns_", ""), ("mns_" + "y" * 42, "z"), (TOKEN, DEVICE)):
            text = json.loads(cleaned(f'{{{HEADER},"body":{{"v":"{before}{TOKEN}{behind}"}}}}'))["body"]["v"]

            self.assertEqual(len(before + TOKEN + behind), len(text))
            self.assertNotIn(TOKEN[4:], text)

    def test_text_that_is_no_token_goes_on_unchanged(self) -> None:
        """
        What is no token, or only looks like one behind an escaped backslash, goes on as it came.
        """
        for word in (TOKEN[:-1], "mnx_" + TOKEN[4:], "\\\\u006d" + TOKEN[1:], "\\u0041\\u00fc", "mns_"):
            message = decode(f'{{{HEADER},"body":{{"v":"{word}"}}}}'.encode())

            self.assertIs(message, redacted(message), word)

    def test_behind_backslashes(self) -> None:
        """
        One that follows an escaped backslash is one.
        """
        text = f'{{{HEADER},"body":{{"v":"\\\\u006dns_\\\\{TOKEN}"}}}}'

        self.assertEqual(f"\\u006dns_\\{STARS}", json.loads(cleaned(text))["body"]["v"])

    def test_beside_half_a_character(self) -> None:
        """
        Half a character, which some readers do not read, changes nothing.
        """
        text = rf'{{{HEADER},"body":{{"a":"\ud83d","b":"\\ud83d","v":"{TOKEN}"}}}}'

        self.assertEqual(text.replace(TOKEN, STARS), cleaned(text))

    def test_keys_alike_beside_half_a_character(self) -> None:
        """
        Keys that differ in an escape alone are two, also where half a character stands in the body.
        """
        text = r'{HEADER,"x//0041":1,"x\u0041":22,"body":{"t":"\ud83d","via":"%s"}}'.replace("HEADER", HEADER)

        self.assertEqual(text % STARS, cleaned(text % TOKEN))

    def test_key(self) -> None:
        """
        A token in a key is refused, at any depth; it is not cut, for what is left might be another's key.
        """
        for body in (
            f'{{"assertedIdentity/{TOKEN}":1}}',
            f'{{"{TOKEN}":1}}',
            f'{{"a":[{{"b":{{"x{TOKEN}y" : 1}}}}]}}',
            f'{{"a":"{TOKEN}","{spelt(TOKEN, 7)}"\n:1}}',
            f'{{"\\"{TOKEN}\\"{TOKEN}":1}}',
        ):
            with self.assertRaisesRegex(Malformed, "not in a key"):
                cleaned(f'{{{HEADER},"body":{body}}}')

    def test_thousand_are_replaced(self) -> None:
        """
        A thousand are replaced; a message with more is refused.
        """
        text = '{%s,"body":{"v":[%s]}}'

        many = json.loads(cleaned(text % (HEADER, ",".join([f'"{TOKEN}"'] * MAX_TOKENS))))
        self.assertEqual([STARS] * MAX_TOKENS, many["body"]["v"])
        with self.assertRaisesRegex(Malformed, "more than 1000 times"):
            cleaned(text % (HEADER, ",".join([f'"{TOKEN}"'] * (MAX_TOKENS + 1))))


class HeaderTests(SynchronousTestCase):
    """
    A header holds a token in its field `token`, which is taken out.
    """

    def test_taken_out(self) -> None:
        """
        With its comma, wherever it stands and whatever it holds; nothing is left of it.
        """
        for field in (
            f'"token":"{TOKEN}"',
            '"token" : ""',
            '"\\u0074oken":{"a":[1]}',
            f'"token":{{"{TOKEN}":1}}',
        ):
            for text, expected in (
                ("{FIELD,HEADER}", "{HEADER}"),
                ("{ FIELD , HEADER}", "{ HEADER}"),
                ("{HEADER,FIELD}", "{HEADER}"),
                ('{"x":1 , FIELD , HEADER,"body":{}}', '{"x":1 , HEADER,"body":{}}'),
                ('{HEADER,"body":{"token":1} , FIELD }', '{HEADER,"body":{"token":1} }'),
            ):
                text = text.replace("FIELD", field).replace("HEADER", HEADER)

                self.assertEqual(expected.replace("HEADER", HEADER), cleaned(text))

    def test_in_any_other_field_or_as_a_key_it_is_refused(self) -> None:
        """
        In any other field, or as a key, it is refused, whatever it is spelt like.
        """
        for token in (TOKEN, DEVICE, TOKEN + "x", spelt(TOKEN), spelt(TOKEN, 9)):
            for text in (
                f'{{"id":"{token}","type":"x","from":"a","to":"b"}}',
                f'{{"id":1,"type":"{token}","from":"a","to":"b"}}',
                f'{{"id":1,"type":"x","from":"a/{token}","to":"b","token":"{TOKEN}"}}',
                f'{{"id":1,"type":"x","from":"a","to":"domain:/{token}//msg-node.localhost/sm"}}',
                f'{{"id":1,"type":"x","from":"a","to":["b","{token}"],"body":{{"v":"{TOKEN}"}}}}',
                f'{{{HEADER},"x":{{"y":["{token}"]}},"body":null}}',
                f'{{{HEADER},"{token}":1}}',
                f'{{{HEADER},"body/{token}":{{}}}}',
            ):
                with self.assertRaisesRegex(Malformed, "not elsewhere in the header"):
                    cleaned(text)

    def test_runtime_name_bears_no_token(self) -> None:
        """
        No runtime can bear a token in its name.
        """
        domain = Domain("example.org")

        self.assertEqual(
            [True, False, False], [domain.can_open(f"runtime://d/{n}") for n in ("a", TOKEN, TOKEN + "x")]
        )

    def test_loggable(self) -> None:
        """
        Text for a log has asterisks too.
        """
        self.assertEqual(f"a {STARS}* {STARS}", loggable(f"a {TOKEN}x {DEVICE}"))
        self.assertEqual("mns_short", loggable("mns_short"))


_pieces = st.sampled_from(
    [
        TOKEN,
        DEVICE,
        TOKEN[:20],
        TOKEN[20:],
        "mns_",
        "assertedIdentity",
        "token",
        "via",
        "body",
        "/",
        '"',
        "\\",
        "\\u006d",
        "ü",
        "\ud83d",
        "x",
        ":",
        ",",
        "}",
    ]
)
_texts = st.lists(_pieces, max_size=4).map("".join)
_keys = _texts | st.sampled_from(["via", "assertedIdentity", "a", "token"])
_values = st.recursive(
    st.none() | st.integers(-9, 9) | _texts | st.floats(0, 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=6,
)
_headers = st.fixed_dictionaries(
    {
        "id": st.integers(0, 9) | _texts,
        "type": st.sampled_from(["x", "create"]) | _texts,
        "from": st.sampled_from([ANN, f"{ANN}/x"]) | _texts,
        "to": st.sampled_from([BOB, f"{BOB}/x"])
        | _texts
        | st.lists(st.just(BOB) | _texts, min_size=1, max_size=2),
    },
    optional={
        "body": st.none() | st.dictionaries(_keys, _values, max_size=4),
        "token": _values,
        "x": _values,
    },
).flatmap(lambda fields: st.permutations(list(fields.items())))


def written(pairs: list[tuple[str, Any]], how: list[int]) -> bytes:
    """
    As JSON, some characters of which are spelt in escapes.
    """
    text = json.dumps(dict(pairs), separators=((",", ":"), (" , ", ": "))[how[0] % 2], ensure_ascii=True)
    out, at, turn = [], 0, 0
    while at < len(text):
        if text[at] == "\\":
            width = 6 if text[at + 1] == "u" else 2
            out.append(text[at : at + width])
            at += width
            continue
        turn += 1
        in_token = text[at].isalnum() or text[at] in "_-"
        if in_token and how[turn % len(how)] == 1 and _in_string(text, at):
            out.append(f"\\u{ord(text[at]):04x}")
        else:
            out.append(text[at])
        at += 1
    return "".join(out).encode()


def _in_string(text: str, at: int) -> bool:
    before = text[:at].replace("\\\\", "").replace('\\"', "")
    return before.count('"') % 2 == 1


_spellings = st.lists(st.integers(0, 3), min_size=1, max_size=7)


class AnyMessageTests(SynchronousTestCase):
    """
    Whatever a client sends.
    """

    @given(_headers, _spellings)
    @settings(deadline=None, max_examples=80 * TIMES)
    @example([("id", 1), ("type", "x"), ("from", "a"), ("to", "b"), ("body", {"v": "\ud83d" + TOKEN})], [1])
    def test_no_token(self, pairs: list, how: list[int]) -> None:
        """
        What is left holds no token, and says what the message said but for those.
        """
        data = written(pairs, how)
        try:
            message = decode(data)
        except Malformed:
            return  # half a character in the header
        try:
            clean = redacted(message)
        except Malformed:
            said = json.loads(data)
            body = said.pop("body", None)
            said.pop("token", None)
            keys = [text for text in strings(body) if loggable(text) != text]
            self.assertTrue(keys or any(loggable(text) != text for text in strings(said)))
            return

        self.assertEqual(expected(json.loads(data)), json.loads(clean.data))
        self.assertEqual([], [text for text in strings(json.loads(clean.data)) if loggable(text) != text])
        self.assertSaid(clean)

    def assertSaid(self, message: Message) -> None:
        """
        The header that is checked is the one in the bytes.
        """
        said = json.loads(message.data)
        self.assertEqual(
            (said["id"], said["type"], said["from"], said["to"]),
            (message.id, message.type, message.from_, message.to),
        )

    @given(_headers, _spellings)
    @settings(deadline=None, max_examples=40 * TIMES)
    def test_no_recipient_gets_the_sender_token(self, pairs: list, how: list[int]) -> None:
        """
        No recipient gets the sender's token, nor an `assertedIdentity` of the sender's making.
        """
        node = MemoryNode(identity={"auth": "optional", "devices": "devices"})
        ann, bob = node.client(ANN), node.client(BOB)
        data = written(pairs, how).replace(TOKEN.encode(), ann.token.encode())
        data = data.replace(DEVICE.encode(), ann.token.encode())

        ann.tell(data)

        for raw in bob.raw:
            said = json.loads(raw)
            self.assertEqual([], [text for text in strings(said) if ann.token[4:] in text])
            self.assertNotIn("assertedIdentity", said.get("body") or {})
            line = next(line for line in node.traffic_recorder.messages if line["outcome"] == "delivered")
            self.assertEqual(
                (said["id"], said["type"], said["from"]), (line["id"], line["type"], line["from"])
            )
        self.assertNotIn(ann.token, str(node.traffic_recorder.messages))
        self.assertEqual([], self.flushLoggedErrors())


def expected(said: dict[str, Any]) -> dict[str, Any]:
    said.pop("token", None)
    if "body" in said:
        said["body"] = starred(said["body"])
    return said


def starred(value: Any) -> Any:
    if isinstance(value, str):
        return loggable(value)
    if isinstance(value, dict):
        return {key: starred(each) for key, each in value.items()}
    return [starred(each) for each in value] if isinstance(value, list) else value


class NodeTests(SynchronousTestCase):
    """
    The whole way through a node.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.ann, self.bob = self.node.client(ANN), self.node.client(BOB)

    def refused(self, data: str, client: Client | None = None) -> dict[str, Any]:
        """
        The answer to what is refused; nobody else hears of it, and no log has its token.
        """
        client = client or self.ann
        client.tell(data.encode())
        (answer,) = client.take()
        self.assertEqual([], self.bob.take())
        self.assertNotIn(client.token, str(self.node.traffic_recorder.messages))
        self.assertNotIn(client.token, json.dumps(answer))
        return answer

    def test_sender_is_told_by_mn_validator_in_words_that_repeat(self) -> None:
        """
        The sender is told by mn:/validator, in words that repeat no token.
        """
        for field in ("id", "from", "to", "type", "x"):
            fields = {"id": 7, "type": "create", "from": ANN, "to": BOB, field: f"{ANN}/{self.ann.token}"}

            answer = self.refused(json.dumps(fields))

            self.assertEqual(("mn:/validator", 400), (answer["from"], answer["body"]["code"]))

    def test_misunderstood_session_message_is_logged_without_token(self) -> None:
        """
        What mn:/session does not understand is written down without the token that is in it.
        """
        token = self.ann.token
        for fields in (
            {"type": token},
            {"type": "x", "id": token},
            {"type": f"x{token}y"},
            {"type": "ack", "body": {"received": token}},
            {"type": "update", "body": {"token": token}},
        ):
            answer = self.refused(json.dumps({"id": 7, "from": ANN, "to": "mn:/session", **fields}))

            self.assertNotEqual(200, answer["body"]["code"])

    def test_open_with_id(self) -> None:
        """
        An `open` whose id is a token is answered with it, and written down without.
        """
        self.ann.tell({"id": TOKEN, "type": "ping", "from": f"{ANN}/{TOKEN}", "to": "mn:/session"})

        self.assertEqual(TOKEN, self.ann.take()[0]["id"])
        self.assertNotIn("mns_", str(self.node.traffic_recorder.messages))

    def test_name_with_a_token(self) -> None:
        """
        A runtime whose name would hold a token is not let in, and what is cut off its end is not all it has.
        """
        stranger = Client(self.node)

        stranger.tell({"id": 1, "type": "open", "from": f"{ANN}/{TOKEN}/{DEVICE}", "to": "mn:/session"})

        self.assertEqual(4403, stranger.lost.code)
        self.assertNotIn(
            TOKEN, str(self.node.traffic_recorder.messages) + str(self.node.traffic_recorder.events)
        )

    def test_list_of_copies(self) -> None:
        """
        Each of several recipients gets the message without tokens.
        """
        self.ann.tell(
            {
                "id": 7,
                "type": "x",
                "from": ANN,
                "to": [BOB, f"{BOB}/x"],
                "token": TOKEN,
                "body": {"via": TOKEN},
            }
        )

        self.assertEqual([{"via": STARS}] * 2, [message["body"] for message in self.bob.take()])

    def test_field_of_its_own(self) -> None:
        """
        Of a field `token` nothing is left, not even an empty one, and no policy or recipient sees it.
        """
        self.ann.tell(
            {"id": 7, "type": "x", "from": ANN, "token": self.ann.token, "to": BOB, "body": {"a": 1}}
        )

        self.assertEqual({"id": 7, "type": "x", "from": ANN, "to": BOB, "body": {"a": 1}}, self.bob.take()[0])

    def test_required_and_spelt(self) -> None:
        """
        `message_token` reads the message as it came, in whatever escapes and beside half a character.
        """
        self.node = MemoryNode(session={"message_token": "require"})
        self.ann, self.bob = self.node.client(ANN), self.node.client(BOB)
        self.node.clock.advance(11)
        text = '{"id":7,"type":"x","from":"%s","to":"%s","body":{"half":"\\ud83d","via":"%s/%s"}}'

        self.ann.tell((text % (ANN, BOB, ANN, spelt(self.ann.token))).encode())

        self.assertEqual(f"{ANN}/{STARS}", self.bob.take()[0]["body"]["via"])

    def test_unchecked_claim(self) -> None:
        """
        No half character, long number or token lets a client write `assertedIdentity` itself.
        """
        self.node = MemoryNode(identity={"auth": "optional", "devices": "devices"})
        self.ann, self.bob = self.node.client(ANN), self.node.client(BOB)
        header = f'"id":7,"type":"x","from":"{ANN}","to":"{BOB}"'
        for claim in (
            '"assertedIdentity":"bob"',
            '"\\u0061ssertedIdentity":"bob"',
            '"x":1,"assertedIdentit\\u0079":{}',
        ):
            for beside in (
                '"a":"\\ud83d"',
                f'"a":"\\ud83d","n":{"9" * 5000}',
                f'"n":{"9" * 5000}',
                '"n":1e999',
            ):
                for body in (f"{{{claim},{beside}}}", f"{{{beside},{claim}}}"):
                    self.ann.tell(f'{{{header},"body":{body}}}'.encode())

                    (raw,), self.bob.raw = self.bob.raw, []
                    self.assertNotIn("assertedIdentity", json.loads(raw, parse_int=str)["body"])

        answer = self.refused(
            f'{{{header},"body":{{"assertedIdentity/{self.ann.token}":{{"userURL":"user://d/bob"}}}}}}'
        )
        self.assertEqual(400, answer["body"]["code"])


class HTTPTests(PollCase):
    """
    What comes by HTTP.
    """

    def test_address_of_a_request(self) -> None:
        """
        A HEAD whose answer has a body is noted down by Twisted; its address, which may hold a token, is not.
        """
        events = EventLoggingObserver.createWithCleanup(self, globalLogPublisher)

        for path in (
            f"/?token={TOKEN}",
            f"/poll?token={TOKEN}",
            f"/live/{TOKEN}",
            f"/{TOKEN}",
            f"/message/{TOKEN}",
        ):
            HTTPClient(self.net).request("HEAD", path)

        texts = [formatEvent(event) for event in events]
        self.assertTrue([text for text in texts if "HEAD" in text])
        self.assertEqual([], [text for text in texts if "mns_" in text])

    def test_visitor(self) -> None:
        """
        An address that would become the node's without a token is refused, not cut.
        """
        client = HTTPClient(self.net)
        for to in (
            f"domain:/{TOKEN}//msg-node.example.org/sm",
            f"domain:\\/{spelt(TOKEN)}//msg-node.example.org/sm",
        ):
            body = f'{{"id":1,"type":"subscribe","to":"{to}","body":{{"resources":["comm://d/x"]}}}}'

            answer = client.request("POST", "/message", body.encode())

            self.assertEqual(400, answer.status)
            self.assertEqual((), self.net.node.routes.resolve("comm://d/x"))
