"""
What is a message, and what is done with one.
"""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import MAX_FROM_CHARS, MAX_RECIPIENTS, MAX_TYPE_CHARS, compose, decode
from tests.support.fuzz import TIMES

LONG = 4096  # characters; longer than anything in a header
PLAIN = {"id": 1, "type": "ping", "from": "hyperty://d/1", "to": "hyperty://d/2"}


def encoded(**fields: Any) -> bytes:
    return json.dumps({**PLAIN, **fields}, separators=(",", ":")).encode()


class DecodeTests(SynchronousTestCase):
    """
    The header is read; the bytes stay as they came.
    """

    def test_id_type_from_and_to_are_read_and_the_data(self) -> None:
        """
        id, type, from and to are read, and the data is what came in.
        """
        data = b' { "to":"b", "id" : 7,"from":"a" ,"type":"PING", "body": {"x": 1.0} , "ttl": 3 } '

        message = decode(data, "origin")

        self.assertEqual((7, "PING", "a", "b"), (message.id, message.type, message.from_, message.to))
        self.assertEqual((data, "origin"), (message.data, message.origin))

    def test_id_keeps_its_value_and_its_json_type(self) -> None:
        """
        An id keeps its value and its JSON type: 0, text, and integers beyond 2^53 and 2^64.
        """
        for id in (0, -1, 1, 2**53 + 1, 2**64, -(2**70), 10**40, "", "1", "ä"):
            found = decode(encoded(id=id)).id

            self.assertEqual((type(id), id), (type(found), found))

    def test_length_of_header_fields(self) -> None:
        """
        A long type or address is refused by its name, also in a list; the answer goes to no long address.
        """
        for name, most in (("type", MAX_TYPE_CHARS), ("from", MAX_FROM_CHARS), ("to", MAX_FROM_CHARS)):
            fits = decode(encoded(**{name: "ä" * most}))
            with self.assertRaisesRegex(Malformed, f"'{name}' has at most {most} characters") as raised:
                decode(encoded(**{name: "ä" * (most + 1)}))

            self.assertEqual(most, max(map(len, (fits.type, fits.from_, str(fits.to)))))
            self.assertEqual((400, "limit"), (raised.exception.code, raised.exception.reason))
            self.assertEqual(None if name == "from" else PLAIN["from"], raised.exception.from_)
        with self.assertRaisesRegex(Malformed, "'to' has at most"):
            decode(encoded(to=["b", "x" * (MAX_FROM_CHARS + 1)]))

    def test_length_of_name_that_opens(self) -> None:
        """
        What opens a session by a long name is read: its connection is closed, as no answer but 200 is known.
        """
        name = "runtime://example.org/" + "x" * 4096

        message = decode(encoded(type="open", to="mn:/session", **{"from": name}))

        self.assertEqual(name, message.from_)

    def test_body_is_object_null_or_absent(self) -> None:
        """
        The body is an object, null or absent; the latter two are an empty one to who asks.
        """
        self.assertEqual({"a": [1]}, decode(encoded(body={"a": [1]})).fields())
        self.assertEqual({}, decode(encoded(body={})).fields())
        self.assertEqual({}, decode(encoded(body=None)).fields())
        self.assertEqual({}, decode(encoded()).fields())

    def test_other_bodies(self) -> None:
        """
        Anything else as a body is refused.
        """
        for body in ([], [{}], "text", "", 0, 1.5, True):
            why = self.assertRaises(Malformed, decode, encoded(body=body))

            self.assertEqual(("'body' must be an object", 1, "hyperty://d/1"), (str(why), why.id, why.from_))

    def test_to_may_be_a_list_of_at_most_so_many(self) -> None:
        """
        `to` may be a list, of at most so many.
        """
        self.assertEqual(["a", "b"], decode(encoded(to=["a", "b"])).to)
        self.assertEqual(["a"] * MAX_RECIPIENTS, decode(encoded(to=["a"] * MAX_RECIPIENTS)).to)

        why = self.assertRaises(Malformed, decode, encoded(to=["a"] * (MAX_RECIPIENTS + 1)))
        self.assertEqual("'to' may name at most 1000 recipients, not 1001", str(why))

    def test_six_megabytes(self) -> None:
        """
        A message of 6 MB is a message.
        """
        self.assertEqual(6_000_000, len(decode(encoded(body={"value": "x" * 6_000_000})).fields()["value"]))

    def test_explained(self) -> None:
        """
        What is no message is told which key is wrong, what was expected and what came.
        """
        wrong = "must be an integer or a string, not"
        for fields, text in (
            ({"id": None}, f"'id' {wrong} null"),
            ({"id": True}, f"'id' {wrong} true or false"),
            ({"id": 1.5}, f"'id' {wrong} the number 1.5"),
            ({"id": [1]}, f"'id' {wrong} a list that holds 1"),
            ({"type": 3}, "'type' must be a string, not the number 3"),
            ({"from": {}}, "'from' must be a string, not an object"),
            ({"to": 3}, "'to' must be a string or a list of strings, not the number 3"),
            ({"to": None}, "'to' must be a string or a list of strings, not null"),
            ({"to": []}, "'to' must name at least one recipient, not []"),
            ({"to": ["a", 3]}, "'to' must be a string or a list of strings, not a list that holds 3"),
            ({"to": [["a"]]}, "'to' must be a string or a list of strings, not a list that holds ['a']"),
        ):
            why = self.assertRaises(Malformed, decode, encoded(**fields))

            self.assertEqual(text, str(why))

    def test_key_that_is_missing_is_named(self) -> None:
        """
        A key that is missing is named; `from` may be missing in an `open`.
        """
        for key in ("id", "type", "to"):
            fields = {name: value for name, value in PLAIN.items() if name != key}

            why = self.assertRaises(Malformed, decode, json.dumps(fields).encode())

            self.assertEqual(f"'{key}' is missing", str(why))
        self.assertEqual("", decode(b'{"id":1,"type":"open","to":"mn:/session"}').from_)

    def test_readable(self) -> None:
        """
        The id and the sender of what is no message are known if both are usable, for the answer.
        """
        for fields, expected in (
            ({"type": 3}, (1, "hyperty://d/1")),
            ({"type": 3, "id": "x"}, ("x", "hyperty://d/1")),
            ({"type": 3, "id": 0}, (0, "hyperty://d/1")),
            ({"id": None}, (None, None)),
            ({"type": 3, "from": 3}, (None, None)),
        ):
            why = self.assertRaises(Malformed, decode, encoded(**fields))

            self.assertEqual(expected, (why.id, why.from_))

    def test_what_is_no_json_object_says(self) -> None:
        """
        What is no JSON object says so.
        """
        for data, text in (
            (b"", "not JSON"),
            (b"hello", "not JSON at byte 0"),
            (b'{"id":1', "not JSON"),
            (encoded() + b"x", "not JSON at byte 6"),
            (b"\xef\xbb\xbf" + encoded(), "not JSON at byte 0"),
            (b"[]", "a message is an object, not a list"),
            (b"[" + encoded() + b"]", "a message is an object, not a list that holds {"),
            (b"null", "a message is an object, not null"),
            (b"3", "a message is an object, not the number 3"),
            (b'"x"', "a message is an object, not a string"),
            (b"true", "a message is an object, not true or false"),
            (b"[" * 100_000, "nested too deeply"),
            (b'{"a":' * 100_000, "nested too deeply"),
        ):
            why = self.assertRaises(Malformed, decode, data)

            self.assertEqual((text, None), (str(why)[: len(text)], why.id))

    def test_nesting_of_any_depth_is_message_or_malformed(self) -> None:
        """
        However deep the nesting, wherever it stands, what comes is a message or Malformed.
        """
        for depth in [*range(1, 800, 50), *range(800, 1100)]:
            nest = b"[" * depth + b"]" * depth
            for data in (
                encoded()[:-1] + b',"x":' + nest + b"}",
                encoded()[:-1] + b',"body":{"via":' + nest + b"}}",
            ):
                try:
                    self.assertIn(decode(data).has_via, (True, False))
                except Malformed as why:
                    self.assertEqual("nested too deeply", str(why))


class DuplicateTests(SynchronousTestCase):
    """
    A header key that stands twice is refused, whatever hides it.
    """

    def test_doubled_key_is_named_with_its_sender(self) -> None:
        """
        The key is named, and the sender known.
        """
        for key, value in {**PLAIN, "body": {}, "ttl": 3}.items():
            data = encoded(body={"a": 1}, ttl=1)
            for doubled in (
                data[:-1] + f',"{key}":{json.dumps(value)}}}'.encode(),
                f'{{"{key}":{json.dumps(value)},'.encode() + data[1:],
            ):
                why = self.assertRaises(Malformed, decode, doubled)

                self.assertEqual(f"'{key}' occurs twice in the header", str(why))
                self.assertEqual(1, why.id)

    def test_escapes_and_spaces_hide_no_doubled_key(self) -> None:
        """
        Neither what is missing elsewhere, nor escapes, nor spaces hide it.
        """
        for data in (
            b'{"id":1,"type":"open","to":"x","to":"mn:/session","body":{}}',
            b'{"id":1,"id":2,"id":3,"type":"open","to":"mn:/session","body":{}}',
            b'{"id":1,"id":1,"type":"x","from":"a","to":[],"body":{}}',
            b'{"id":1,"type":"x","from":"a","to":"b","t\\u006f":"c"}',
            b'{"id":1,"type":"x","from":"a","to":"b","body":{},"body":{}}',
            b'{"id":1,"body":{"a":1},"type":"x","from":"a","to":"b","body" : {"a":1}}',
            b'{ "id": 1, "id" :1, "type":"x","from":"a","to":"b","body":{} }',
        ):
            self.assertIn("occurs twice", str(self.assertRaises(Malformed, decode, data)))

    def test_values(self) -> None:
        """
        A value that is equal to the one that counts, or begins like it, hides no key.
        """
        start = b'{"id":1,"type":"x","from":"a","to":"b",'
        for fields in (b'"x":12,"x":1', b'"x":1 , "x":1', b'"x":12,"y":0,"x":1', b'"\\"":1,"\\u0022":1'):
            with self.assertRaisesRegex(Malformed, "occurs twice"):
                decode(start + fields + b"}")
            with self.assertRaisesRegex(Malformed, "occurs twice"):
                decode(start + fields + b',"body":{"v":"\\ud83d"}}')
        for fields in (b'"x":12,"y":1', b'"\\"":1,"\\\\":[" , "]', b'"\\u00e9":[{"e":1,"e":1}],"e" : 1e5'):
            self.assertEqual("b", decode(start + fields + b"}").to)
            self.assertEqual("b", decode(start + fields + b',"body":{"v":"\\ud83d"}}').to)

    def test_in_the_body(self) -> None:
        """
        What stands twice in the body, or inside another field, is the client's own business.
        """
        for data in (
            b'{"id":1,"type":"x","from":"a","to":"b","body":{"to":1,"to":2}}',
            b'{"body":{"to":"\\"id\\":"},"id":1,"type":"x","from":"a","to":"b"}',
            b'{"id":1,"type":"x","from":"a","to":"b","x":{"id":2,"body":{}}}',
            b'{"body":{"a":1 },"id":1,"type":"t","from":"a","to":"b","x":{"body":{"a":1}}}',
            b'{"x":{"body":{"a":1}},"body":{"a":1},"id":1,"type":"t","from":"a","to":"b"}',
            b'{"id":1,"type":"a\\"b","from":"\\"\\"","to":"b","body":{"\\"":1}}',
        ):
            self.assertEqual("b", decode(data).to)

    def test_number_of_5000_digits_does_no_harm(self) -> None:
        """
        A number of 5000 digits in a field of nobody's concern does no harm.
        """
        self.assertEqual("ping", decode(encoded()[:-1] + b',"x":' + b"1" * 5000 + b"}").type)


_texts = st.text(alphabet='ab"\\/:,{} ü', max_size=5)
_values = st.recursive(
    st.none() | st.integers() | _texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_texts | st.just("body"), inner, max_size=3),
    max_leaves=5,
)
_fields = {
    "id": st.integers() | _texts,
    "type": _texts,
    "from": _texts,
    "to": _texts | st.lists(_texts, min_size=1, max_size=3),
}
_extras = {"body": st.none() | st.dictionaries(_texts | st.just("body"), _values, max_size=3), "x": _values}
_messages = st.fixed_dictionaries(_fields, optional=_extras).flatmap(
    lambda fields: st.permutations(list(fields.items()))
)


class AnyMessageTests(SynchronousTestCase):
    """
    Whatever the order, the spaces and the quotes.
    """

    @given(_messages, st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]), st.booleans())
    @settings(deadline=None)
    def test_message_is_read_as_any_json_reader_does(
        self, pairs: list, separators: tuple, ascii: bool
    ) -> None:
        """
        A message is read as any JSON reader does, and refused when one of its keys stands twice.
        """
        fields = dict(pairs)
        data = json.dumps(fields, separators=separators, ensure_ascii=ascii).encode()
        name, value = pairs[-1]
        double = json.dumps({name: value}, separators=separators, ensure_ascii=ascii).encode()

        message = decode(data)

        self.assertEqual(
            tuple(fields[key] for key in ("id", "type", "from", "to")),
            (message.id, message.type, message.from_, message.to),
        )
        self.assertEqual(fields.get("body") or {}, message.fields())
        self.assertRaises(Malformed, decode, data[:-1] + b"," + double[1:])


_odd = st.text(alphabet='b"\\:,{}', max_size=8) | st.sampled_from(
    ['"body":', '","body":{}', "body", '"to":"']
)
_inner = st.recursive(
    st.none() | st.integers(-9, 9) | _odd,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_odd, inner, max_size=2),
    max_leaves=4,
)
_bodies = st.none() | st.dictionaries(_odd, _inner, max_size=2)
_by_key = {
    "id": st.integers(-9, 9) | _odd,
    "type": _odd,
    "from": _odd,
    "to": _odd | st.lists(_odd, min_size=1, max_size=2),
    "body": _bodies,
    "priority": st.integers(0, 9) | st.none(),
    "ttl": st.integers(0, 9),
    "receipt": st.booleans(),
    "bulk": st.booleans(),
    "log": st.booleans(),
    "transaction": st.integers(-9, 9) | _odd | st.none(),
    "token": _inner,
}
_pairs = st.lists(
    st.sampled_from(sorted(_by_key)).flatmap(lambda key: st.tuples(st.just(key), _by_key[key]))
    | st.tuples(st.sampled_from(['x"body', "x", '"', "\\"]) | _odd.filter(lambda key: key != "body"), _inner),
    max_size=4,
)
_required = st.tuples(*(st.tuples(st.just(key), _by_key[key]) for key in ("id", "type", "to")))


class ExactlyTwiceTests(SynchronousTestCase):
    """
    A header key that stands twice, beside a reader that looks at each.
    """

    @given(_required, _pairs, st.randoms(use_true_random=False), st.sampled_from([",", ", ", "\n,\t"]))
    @settings(deadline=None, max_examples=100 * TIMES)
    def test_doubled_key_is_refused_in_any_spelling(
        self, required: tuple, more: list, random: Any, comma: str
    ) -> None:
        """
        It is refused, in whatever escapes and order, and no other message is.
        """
        pairs = [*required, *more]
        if random.random() < 0.5:
            pairs.append(("long", "x" * LONG))
        random.shuffle(pairs)
        spelt = []
        for key, value in pairs:
            name = json.dumps(key)
            if key.isalpha() and random.random() < 0.2:
                name = f'"\\u{ord(key[0]):04x}{key[1:]}"'
            spelt.append(f"{name}:{json.dumps(value, separators=(',', ':'))}")
        data = f"{{{comma.join(spelt)}}}".encode()
        keys = [key for key, _ in pairs]

        if len(set(keys)) == len(keys):
            self.assertEqual(dict(pairs)["to"], decode(data).to)
        else:
            with self.assertRaisesRegex(Malformed, "occurs twice"):
                decode(data)

    def test_header_has_at_most_ten_thousand_keys_and_texts(self) -> None:
        """
        A header has at most ten thousand keys and texts, so that looking at them takes no time; a body any.
        """
        many = ",".join(f'"{n}":{n}' for n in range(10_000)).encode()

        self.assertEqual("ping", decode(encoded()[:-1] + b',"body":{' + many + b"}}").type)
        with self.assertRaisesRegex(Malformed, "at most 10000 texts and keys; put more into the body"):
            decode(encoded()[:-1] + b"," + many + b"}")

    def test_cut_in_a_body(self) -> None:
        """
        Not where the end of the message is like its body, nor where the end of a key is like `body`.
        """
        start = b'{"body":{"q":1,"q":1,"q":1,"q":1,"z":":::::","body":null}'
        for data in (
            start + b',"id":1,"type":"","from":"f","to":"","to":""}',
            start.replace(b"::", b":::", 1) + b',"from":":","id":-1,"type":"","to":"","to":""}',
            b'{"from":":","body":{":::::::":[],":\\"\\u00fc":[{"\\"":-10,"body":null}]},'
            b'"id":-1,"type":"","to":"","to":""}',
            b'{"body":{},"id":1,"type":"","to":"","to":"","x\\"body":{}}',
        ):
            for text in (
                data,
                data[:-1] + b',"x":"' + b"x" * LONG + b'"}',
                b'{"x":"' + b"x" * LONG + b'",' + data[1:],
            ):
                with self.assertRaisesRegex(Malformed, "'to' occurs twice"):
                    decode(text)


class MessageTests(SynchronousTestCase):
    """
    Replies and copies.
    """

    def test_reply_exchanges_from_and_to(self) -> None:
        """
        A reply has the same id, the type `response`, and from and to exchanged.
        """
        for id in (0, "0", 2**70):
            reply = decode(encoded(id=id)).reply({"code": 200})

            expected = {"id": id, "type": "response", "from": "hyperty://d/2", "to": "hyperty://d/1"}
            self.assertEqual({**expected, "body": {"code": 200}}, json.loads(reply.data))

    def test_compose(self) -> None:
        """
        What the node says itself may have neither id nor recipient.
        """
        message = compose(None, "close", "mn:/session", None, {})

        expected = {"id": None, "type": "close", "from": "mn:/session", "to": None, "body": {}}
        self.assertEqual(expected, json.loads(message.data))

    def test_addressed(self) -> None:
        """
        A copy for one of several differs in `to` alone, byte for byte.
        """
        data = b'{"x":1.50,"to":["a","b"],"id":9007199254740993,"from":"f","body":{"v":"\\u00fc"},"type":"T"}'

        copy = decode(data).copy_to("b")

        self.assertEqual(data.replace(b'["a","b"]', b'"b"'), copy.data)
        self.assertEqual(("b", "T", 9007199254740993), (copy.to, copy.type, copy.id))

    def test_via_counts_where_the_stubs_write(self) -> None:
        """
        `via` counts where the stubs write it: in the body, at its top.
        """
        self.assertTrue(decode(encoded(body={"via": "x"})).has_via)
        self.assertTrue(decode(encoded(body={}).replace(b"{}", rb'{"v\u0069a":"x"}')).has_via)
        for fields in (
            {"via": "x"},
            {"body": {"x": {"via": 1}}},
            {"body": {"x": "via"}},
            {"body": None, "via": 1},
        ):
            self.assertFalse(decode(encoded(**fields)).has_via)

    def test_unreadable_body_is_told_when_asked_for(self) -> None:
        """
        A body is skipped at first; when it is asked for and cannot be read, the sender is told.
        """
        for number in (b"1" * 5000, b"1e999"):
            message = decode(encoded()[:-1] + b',"body":{"n":' + number + b"}}")

            why = self.assertRaises(Malformed, message.fields)

            self.assertEqual((1, "hyperty://d/1"), (why.id, why.from_))

    def test_our_fields(self) -> None:
        """
        A client cannot fill in what the node notes down in a message, whatever keys it invents.
        """
        for name in (
            "received_at",
            "outcome",
            "recipients",
            "waiting",
            "code",
            "handling_us",
            "resources",
            "applied",
            "slot",
        ):
            for value in (0, 1, -1, "delivered", "", [], ["a"], ["a", "b"]):
                self.assertRaises(Malformed, decode, encoded(**{f"\x7f{name}": value}))
        message = decode(encoded(**{"\x7fdata": "aGk=", "\x7forigin": "me"}), "origin")
        self.assertEqual(
            (encoded(**{"\x7fdata": "aGk=", "\x7forigin": "me"}), "origin"), (message.data, message.origin)
        )


class SurrogateTests(SynchronousTestCase):
    """
    Half a character, as JSON.stringify writes it for a text that was cut inside an emoji.
    """

    def test_half_a_character_in_the_body_is_carried(self) -> None:
        """
        A message whose body holds half a character is carried as it came.
        """
        data = rb'{"id":1,"type":"update","from":"a","to":"b","body":{"value":"\ud83d"}}'

        message = decode(data)

        self.assertEqual(("b", data), (message.to, message.data))

    def test_another_field_like_the_body(self) -> None:
        """
        The body is what stands behind `body`, where other fields differ from it in half a character only.
        """
        body, other, sign = rb'{"v":"\ud83d"}', rb'{"v":"\ude00"}', rb'{"v":"\ufffd"}'
        for fields in (
            b'"a":%s,"body":%s,"x":%s' % (sign, body, sign),
            b'"body":%s,"x":%s' % (body, sign),
            b'"x":[{"body":%s}],"bod\\u0079":%s,"y":[%s]' % (sign, body, sign),
        ):
            data = b'{"id":1,"type":"x","from":"a","to":"b",%s}' % fields

            self.assertEqual(body, bytes(decode(data).body))
        for fields in (b'"body":%s,"x":%s' % (sign, body), b'"x":%s,"body":%s' % (other, body)):
            with self.assertRaises(Malformed):
                decode(b'{"id":1,"type":"x","from":"a","to":"b",%s}' % fields)

    def test_spelt_in_a_text(self) -> None:
        r"""
        A text about `\ud83d`, whose backslash is escaped, is no half character, not even beside one.
        """
        data = rb'{"id":1,"type":"\\ud83d","from":"a","to":"b","body":{"resources":["\\ud83d","\ud83d"]}}'

        message = decode(data)

        self.assertEqual((r"\ud83d", data), (message.type, message.data))
        self.assertEqual([r"\ud83d", "\ufffd"], message.fields()["resources"])

    def test_for_the_node(self) -> None:
        """
        In a request to the node a sign stands for half a character; whole ones stay.
        """
        body = rb'{"resources":["\ud83d","\ud83d\ude00","x\ude00"]}'
        message = decode(b'{"id":1,"type":"subscribe","from":"a","to":"b","body":' + body + b"}")

        self.assertEqual(["\ufffd", "\U0001f600", "x\ufffd"], message.fields()["resources"])

    def test_copies_hold_half_a_character_as_it_came(self) -> None:
        """
        Copies for several recipients hold it as it came.
        """
        message = decode(rb'{"id":1,"type":"x","from":"a","to":["b","c"],"body":{"t":"\ud83d"}}')

        self.assertEqual(
            {"id": 1, "type": "x", "from": "a", "to": "b", "body": {"t": "\ud83d"}},
            json.loads(message.copy_to("b").data),
        )

    def test_names_of_fields_as_values(self) -> None:
        """
        A key that stands twice is found, also where a value is the name of an optional field.
        """
        for data in (
            b'{"id":1,"id":2,"type":"ttl","from":"a","to":"b","body":{}}',
            b'{"id":"ttl","type":"receipt","from":"mn:/session","from":"a","to":"b","body":{}}',
            b'{"id":1,"type":"x","from":"priority","to":"b","to":"c","body":{}}',
        ):
            with self.assertRaisesRegex(Malformed, "occurs twice"):
                decode(data)

    def test_via_is_seen_beside(self) -> None:
        """
        `via` is seen beside it.
        """
        self.assertTrue(
            decode(rb'{"id":1,"type":"x","from":"a","to":"b","body":{"via":"v","t":"\ud83d"}}').has_via
        )

    def test_in_the_header(self) -> None:
        """
        An address with half a character is none.
        """
        with self.assertRaises(Malformed):
            decode(rb'{"id":1,"type":"update","from":"a","to":"\ud83d"}')

    def test_beside_a_double_key(self) -> None:
        """
        A key that stands twice is found there too.
        """
        with self.assertRaisesRegex(Malformed, "'to' occurs twice"):
            decode(rb'{"id":1,"type":"x","from":"a","to":"b","to":"c","body":{"value":"\ud83d"}}')

    def test_no_object(self) -> None:
        """
        A body that is no object is refused there too.
        """
        with self.assertRaisesRegex(Malformed, "'body' must be an object"):
            decode(rb'{"id":1,"type":"x","from":"a","to":"b","body":["\ud83d"]}')


class CopiesTests(SynchronousTestCase):
    """
    A list of recipients multiplies a message.
    """

    def test_copies_of_more_than_64_mib_together_are_refused(self) -> None:
        """
        Copies of more than 64 MiB together are refused before the first is made.
        """
        to = ",".join(f'"{n}"' for n in range(100))
        text = b"x" * 1_000_000
        data = b'{"id":1,"type":"update","from":"a","to":[%s],"body":{"value":"%s"}}' % (to.encode(), text)

        with self.assertRaisesRegex(Malformed, "67108864 bytes together; send it to fewer"):
            decode(data)
