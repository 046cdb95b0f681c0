"""
The requests in which the embedded domain registry once differed from the reTHINK one, as tables.
"""

import json
from typing import Any

import msgspec
from msgspec import Raw
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.devregistry.database import connect
from msgnode.devregistry.domain_api import MAX_URL_BYTES, DomainApi, Reply
from msgnode.devregistry.records import Records
from tests.devregistry.test_domain_api import data_object, hyperty

U, MAIL = "/hyperty/user/u", "/hyperty/email/bob@x.org"
FULL_PAGE = b"<html><body><h2>500 Internal Error</h2></body></html>"
# What is written to the hyperty /h, and what is stored then; None: the update is refused with that status.
WRITES: list[tuple[str, Any, int, Any]] = [
    ("a number in a text", {"expires": "1000"}, 200, {"expires": 1000}),
    ("a text with blanks", {"expires": " 10 "}, 200, {"expires": 10}),
    ("a fraction that is whole", {"expires": 10.0}, 200, {"expires": 10}),
    ("such a fraction in a text", {"expires": "1e1"}, 200, {"expires": 10}),
    ("a number below zero", {"expires": -5}, 200, {"expires": -5}),
    ("a number for a text", {"descriptor": 5}, 200, {"descriptor": "5"}),
    ("a fraction for a text", {"runtime": 1.50}, 200, {"runtime": "1.5"}),
    ("a truth for a text", {"p2pHandler": True}, 200, {"p2pHandler": "true"}),
    ("a number for a status", {"status": 1}, 200, {"status": "1"}),
    ("numbers in a list", {"resources": [1, 2.5, False]}, 200, {"resources": ["1", "2.5", "false"]}),
    ("a null in a list", {"dataSchemes": [None, "comm"]}, 200, {"dataSchemes": [None, "comm"]}),
    ("keys that stand twice where nobody looks", {"x": Raw(b'{"a": 1, "a": 2}')}, 200, {"expires": 30}),
    ("a number as it was written", {"descriptor": Raw(b"1.50")}, 200, {"descriptor": "1.50"}),
    ("the same user", {"userID": "u"}, 200, {"userID": "u"}),
    ("another user", {"userID": "v"}, 400, {"userID": "u"}),
    ("a number that is too large", {"expires": 2**31}, 400, {"expires": 30}),
    ("one that is in a text", {"expires": "2147483648"}, 400, {"expires": 30}),
    ("one that is far too large", {"expires": 1e300}, 400, {"expires": 30}),
    ("one that no fraction holds", {"expires": Raw(b"1e400")}, 400, {"expires": 30}),
    ("such a one below zero", {"expires": Raw(b"-1e400")}, 400, {"expires": 30}),
    ("such a one in a text", {"expires": "1e400"}, 400, {"expires": 30}),
    ("a number that is too small", {"expires": -(2**31) - 1}, 400, {"expires": 30}),
    ("the smallest", {"expires": -(2**31)}, 200, {"expires": -(2**31)}),
    ("a half", {"expires": 2.5}, 500, {"expires": 30}),
    ("a word for a number", {"expires": "soon"}, 500, {"expires": 30}),
    ("a truth for a number", {"expires": True}, 500, {"expires": 30}),
    ("an object for a text", {"descriptor": {}}, 500, {"descriptor": "http://descriptor"}),
    ("a list in a list", {"resources": [[]]}, 500, {"resources": ["chat", "voice"]}),
]
# Method, path, and the status; then what the answer has: keys of an object, a page, or nothing at all.
REQUESTS: list[tuple[str, str, int, Any]] = [
    ("GET", f"{U}/hyperty?resources=chat,", 200, {"h"}),
    ("GET", f"{U}/hyperty?resources=,", 200, {"h", "g"}),
    ("GET", f"{U}/hyperty?resources=,chat", 404, {"message"}),
    ("GET", f"{U}/hyperty?resources=", 404, {"message"}),
    ("GET", f"{U}/hyperty?resources=chat&resources=video", 200, {"h"}),
    ("GET", f"{U}/hyperty?resources=video&resources=chat", 200, {"g"}),
    ("GET", f"{U}/hyperty?resources=chat&dataSchemes=comm,", 200, {"h"}),
    ("GET", f"{MAIL}/hyperty?resources=chat,", 200, {"m"}),
    ("GET", MAIL, 200, {"m"}),
    ("GET", "/hyperty/dataobject/url/nothing/test", 404, {"message"}),
    ("GET", "/hyperty/dataobject/url/nothing/do?x=y", 404, {"message"}),
    ("GET", "/hyperty/dataobject/url/o/test", 404, {"message"}),
    ("GET", "/hyperty/x/../url/h", 200, None),
    ("GET", "/hyperty/./url/h", 200, None),
    ("GET", "/hyperty/x/%2E%2e/url/h", 200, None),
    ("GET", "/x/../live", 200, None),
    ("GET", "/x/../../live", 400, b""),
    ("GET", "/hyperty/url/..%2F..%2Flive", 404, {"message"}),
    ("GET", "/hyperty/url/%zz", 400, b""),
    ("GET", "/hyperty/url/a%2", 400, b""),
    ("GET", f"{U}/hyperty?resources=%", 404, {"message"}),
    ("GET", "/hyperty/url/" + "h" * MAX_URL_BYTES, 414, {"message"}),
    ("PUT", "/hyperty/url/" + "h" * MAX_URL_BYTES, 414, {"message"}),
    ("GET", "/live", 200, None),
    ("GET", "/live/", 404, b"<html><body><h2>404 Not found</h2></body></html>"),
    ("GET", "/live/.", 404, b"<html><body><h2>404 Not found</h2></body></html>"),
    ("GET", "/registry/updated/", 404, b"<html><body><h2>404 Not found</h2></body></html>"),
    ("GET", "/registry/updated", 200, {"gone"}),
    ("GET", "/hyperty/url/h/", 200, None),
    ("HEAD", "/", 200, b""),
    ("HEAD", "/live", 200, b""),
    ("HEAD", "/hyperty/url/h", 200, b""),
    ("HEAD", "/hyperty/url/nothing", 200, b""),
    ("HEAD", "/registry/updated", 200, b""),
    ("HEAD", "/live/", 404, b""),
    ("HEAD", "/nowhere", 404, b""),
    ("GET", "/error", 401, {"message"}),
    ("POST", "/error", 404, b"<html><body><h2>404 Not found</h2></body></html>"),
    ("PUT", "/error", 404, b"<html><body><h2>404 Not found</h2></body></html>"),
    ("PUT", "/hyperty/url/h", 500, FULL_PAGE),
    ("DELETE", "/hyperty/user/h", 404, {"message"}),
]


class DifferencesCase(SynchronousTestCase):
    """
    A registry with hyperties /h and /g of a user, /m of one whose name ends in a slash, and an object /o.
    """

    def setUp(self) -> None:
        clock = Clock()
        clock.advance(1_500_000_000)
        self.domain = DomainApi(Records(connect(":memory:"), clock.seconds))
        for path, body in (
            ("/hyperty/user/u/h", hyperty()),
            ("/hyperty/user/u/g", hyperty(resources=["video"])),
            ("/hyperty/user/user%3A%2F%2Fx.org%2Fbob@x.org%2F/m", hyperty()),
            ("/hyperty/user/w/gone", hyperty()),
            ("/hyperty/dataobject/o", data_object()),
        ):
            self.assertEqual(200, self.ask("PUT", path, body).status)
        self.ask("DELETE", "/hyperty/user/w/gone")

    def ask(self, method: str, path: str, body: Any = b"") -> Reply:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self.domain.answer(method, path, content)

    def record(self, id: str = "h") -> dict[str, Any]:
        return dict(json.loads(self.ask("GET", f"/hyperty/url/{id}").body))


class WriteTests(DifferencesCase):
    """
    What is written.
    """

    def test_updates(self) -> None:
        """
        An update is coerced, or refused and changes nothing, as the reTHINK registry does it.
        """
        for what, change, status, stored in WRITES:
            self.setUp()

            reply = self.ask("PUT", "/hyperty/url/h", change)

            self.assertEqual((status, stored), (reply.status, {k: self.record()[k] for k in stored}), what)

    def test_creations(self) -> None:
        """
        So is what is created; the user is the one of the path, and nobody else's record is touched.
        """
        for what, change, status, stored in WRITES:
            if "userID" in change:
                continue
            self.setUp()

            reply = self.ask("PUT", "/hyperty/user/u/new", hyperty(**change))

            self.assertEqual(status, reply.status, what)
            if status == 200:
                self.assertEqual(stored, {k: self.record("new")[k] for k in stored}, what)
            else:
                self.assertEqual(404, self.ask("GET", "/hyperty/url/new").status, what)

    def test_longer_times_are_stored_as_the_limit(self) -> None:
        """
        Of a longer time an hour is stored in what is created, and thirty days in what is changed.
        """
        found = []
        for path in ("/hyperty/user/u/h", "/hyperty/url/h"):
            self.assertEqual(200, self.ask("PUT", path, hyperty(expires=2**31 - 1)).status)
            found.append(self.record()["expires"])

        self.assertEqual([3600, 30 * 86400], found)

    def test_400_says_what_was_wrong(self) -> None:
        """
        What is refused with 400 says what was wrong.
        """
        twice = b'{"expires": 5, "status": "live", "expires": 6}'
        for path, body, said in (
            ("/hyperty/url/h", {"expires": 2**31}, "'expires' is -2147483648 to 2147483647"),
            ("/hyperty/url/h", {"userID": "v"}, "'userID' cannot change"),
            ("/hyperty/url/h", twice, "the key 'expires' occurs twice"),
            ("/dataobject/url/o", twice, "the key 'expires' occurs twice"),
            ("/hyperty/user/u/n", {**hyperty(), "status": None}, "'status' is a text, not null"),
            ("/hyperty/dataobject/n", {**data_object(), "status": None}, "'status' is a text, not null"),
        ):
            reply = self.ask("PUT", path, body)

            self.assertEqual((400, {"message": said}), (reply.status, json.loads(reply.body)))

    def test_list_with_more_values_than_any_entry_has_room(self) -> None:
        """
        A list with more values than any entry has room for is refused before they are looked at.
        """
        body = b'{"resources": [' + b"0," * 30_000 + b"0]}"

        reply = self.ask("PUT", "/hyperty/url/h", body)

        self.assertEqual(
            (400, "'resources' has at most 22000 values, not 30001"),
            (reply.status, json.loads(reply.body)["message"]),
        )

    def test_one_piece(self) -> None:
        """
        A hyperty that is created or deleted without a user is that of the user "user", from the path.
        """
        self.assertEqual(200, self.ask("PUT", "/hyperty/user/new", hyperty()).status)

        self.assertEqual("user", self.record("new")["userID"])
        self.assertEqual(200, self.ask("DELETE", "/hyperty/user/new").status)


class RequestTests(DifferencesCase):
    """
    What is asked.
    """

    def test_each_request_has_the_status_of_the_rethink_registry(self) -> None:
        """
        Each request has the status of the reTHINK registry, and what matters of its body.
        """
        for method, path, status, has in REQUESTS:
            self.setUp()

            reply = self.ask(method, path)

            what = f"{method} {path[:80]}"
            self.assertEqual(status, reply.status, what)
            if isinstance(has, bytes):
                self.assertEqual(has, reply.body, what)
            elif has is not None:
                self.assertEqual(has, json.loads(reply.body).keys(), what)

    def test_head_takes_nothing(self) -> None:
        """
        HEAD of what changed does not take it.
        """
        self.ask("HEAD", "/registry/updated")

        self.assertEqual({"gone"}, json.loads(self.ask("GET", "/registry/updated").body).keys())
