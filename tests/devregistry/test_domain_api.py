"""
The development domain registry against the black-box tests of the reTHINK one.
"""

import json
from typing import Any
from urllib.parse import quote

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from msgnode.devregistry.database import connect
from msgnode.devregistry.domain_api import DomainApi
from msgnode.devregistry.records import Records

BOB, ALICE = "user://inesc-id.pt/bob", "user://inesc-id.pt/alice"
H1, H2, H3 = (f"hyperty://ua.pt/{number}" for number in (1, 2, 3))
O1, O2 = "comm://ua.pt/1", "connection://ua.pt/2"
NOT_FOUND = {"message": "Not Found"}


def encoded(text: str) -> str:
    return quote(text, safe="-_.!~*'()")


def hyperty(**more: Any) -> dict[str, Any]:
    """
    A body that creates a hyperty; None leaves a key out.
    """
    fields = {
        "descriptor": "http://descriptor",
        "resources": ["chat", "voice"],
        "dataSchemes": ["comm"],
        "status": "live",
        "expires": 30,
        "runtime": "runtime://ua.pt/1",
        "p2pRequester": "q",
        "p2pHandler": "p",
        "guid": "user-guid://1",
        **more,
    }
    return {key: value for key, value in fields.items() if value is not None}


def data_object(**more: Any) -> dict[str, Any]:
    return {
        "schema": "hyperty-catalogue://ua.pt/comm",
        "name": "chat",
        "reporter": H1,
        "resources": ["chat", "voice"],
        "dataSchemes": ["comm"],
        "status": "live",
        "expires": 30,
        "runtime": "runtime://ua.pt/1",
        "p2pRequester": "q",
        **more,
    }


class RegistryCase(SynchronousTestCase):
    """
    A registry in memory.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1_500_000_000.25)
        self.records = Records(connect(":memory:"), self.clock.seconds)
        self.domain = DomainApi(self.records)

    def raw(self, method: str, uri: str, body: bytes = b"") -> tuple[int, bytes, str]:
        return self.domain.answer(method, uri, body)[:3]

    def get(self, *pieces: str, query: str = "") -> tuple[int, Any]:
        uri = "/" + "/".join(encoded(piece) for piece in pieces) + query
        status, body, kind = self.raw("GET", uri)
        self.assertEqual("application/json", kind)
        return status, json.loads(body)

    def put(self, *pieces: str, body: Any) -> tuple[int, Any]:
        return self.send("PUT", *pieces, body=body)

    def send(self, method: str, *pieces: str, body: Any = None) -> tuple[int, Any]:
        uri = "/" + "/".join(encoded(piece) for piece in pieces)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, answer, _ = self.raw(method, uri, content)
        return status, json.loads(answer) if answer.startswith(b"{") else answer

    def create(self, user: str = BOB, url: str = H1, **more: Any) -> tuple[int, Any]:
        return self.put("hyperty", "user", user, url, body=hyperty(**more))

    def create_object(self, url: str = O1, **more: Any) -> tuple[int, Any]:
        return self.put("hyperty", "dataobject", url, body=data_object(**more))

    def delete(self, user: str, url: str) -> tuple[int, Any]:
        return self.send("DELETE", "hyperty", "user", user, url)

    def updated(self) -> dict[str, Any]:
        status, found = self.get("registry", "updated")
        self.assertEqual(200, status)
        return found


class HypertyTests(RegistryCase):
    """
    Hyperties are created, replaced, found and deleted.
    """

    def test_hyperty_is_created_and_replaced(self) -> None:
        """
        A hyperty is created, and replaced with the same words.
        """
        for _ in range(2):
            self.assertEqual((200, {"message": "Hyperty created"}), self.create())

    def test_hyperty_record_has_13_keys(self) -> None:
        """
        A record by its address has 13 keys, with times in UTC.
        """
        self.create(unknown="x")

        status, record = self.get("hyperty", "url", H1)

        times = dict.fromkeys(("startingTime", "lastModified"), "2017-07-14T02:40:00Z")
        self.assertEqual(200, status)
        self.assertEqual({**hyperty(), "hypertyID": H1, "userID": BOB, **times}, record)
        self.assertEqual(13, len(record))

    def test_nulls_left_out(self) -> None:
        """
        What was not given does not appear.
        """
        self.create(guid=None, p2pHandler=None, p2pRequester=None)

        self.assertEqual(10, len(self.get("hyperty", "url", H1)[1]))

    def test_hyperty_without_a_required_key_is_400_without_a_word(self) -> None:
        """
        Without a required key: 400 and nothing else, not even a word.
        """
        for key in ("expires", "dataSchemes", "resources", "runtime", "status", "descriptor"):
            uri = f"/hyperty/user/{encoded(BOB)}/{encoded(H1)}"
            body = json.dumps(hyperty(**{key: None})).encode()

            self.assertEqual((400, b"", "application/json"), self.raw("PUT", uri, body))

    def test_bad_json_wrong_types_and_no_lifetime_are_answered(self) -> None:
        """
        Bad JSON, wrong types and no lifetime are answered 500 with a page that says it is JSON.
        """
        uri = f"/hyperty/user/{encoded(BOB)}/{encoded(H1)}"
        bodies = [
            b"",
            b"{",
            b"[]",
            *(
                json.dumps({**hyperty(), **wrong}).encode()
                for wrong in (
                    {"expires": None},
                    {"expires": "x"},
                    {"expires": True},
                    {"expires": 2.5},
                    {"resources": "chat"},
                    {"resources": [{}]},
                    {"status": {}},
                )
            ),
        ]
        for body in bodies:
            status, page, kind = self.raw("PUT", uri, body)

            self.assertEqual((500, "application/json"), (status, kind))
            self.assertTrue(page.startswith(b"<html>"))

    def test_another_users(self) -> None:
        """
        A second user cannot claim a hyperty, whether he has others or not.
        """
        self.create()
        self.assertEqual((404, NOT_FOUND), self.create(ALICE))
        self.create(ALICE, H2)

        self.assertEqual((404, NOT_FOUND), self.create(ALICE))
        self.assertEqual(BOB, self.get("hyperty", "url", H1)[1]["userID"])

    def test_replaced_record_keeps_its_startingtime_and_nothing(self) -> None:
        """
        A replaced record keeps its startingTime and nothing else.
        """
        self.create()
        self.clock.advance(5)
        self.create(p2pHandler=None)

        record = self.get("hyperty", "url", H1)[1]

        self.assertEqual("2017-07-14T02:40:00Z", record["startingTime"])
        self.assertEqual("2017-07-14T02:40:05Z", record["lastModified"])
        self.assertNotIn("p2pHandler", record)

    def test_created_record_lives_an_hour_at_most(self) -> None:
        """
        No record is created to live longer than an hour; an update may make it.
        """
        self.create(expires=90000)
        self.assertEqual(3600, self.get("hyperty", "url", H1)[1]["expires"])

        self.put("hyperty", "url", H1, body={"expires": 90000})

        self.assertEqual(90000, self.get("hyperty", "url", H1)[1]["expires"])

    def test_by_user(self) -> None:
        """
        All of a user's; 404 for a user nobody knows.
        """
        self.create()
        self.create(url=H2)
        self.create(ALICE, H3)

        status, found = self.get("hyperty", "user", BOB)

        self.assertEqual((200, {H1, H2}), (status, found.keys()))
        self.assertEqual((404, NOT_FOUND), self.get("hyperty", "user", "user://nobody"))

    def test_by_guid(self) -> None:
        """
        All hyperties of the user who last registered a new one with that guid, whatever guid they carry.
        """
        self.create(guid="user-guid://b")
        self.create(url=H2, guid="user-guid://b")
        self.create(url=H3, guid=None)
        self.create(ALICE, "hyperty://ua.pt/a", guid="user-guid://a")
        self.create(guid="user-guid://replaced")

        self.assertEqual({H1, H2, H3}, self.get("hyperty", "guid", "user-guid://b")[1].keys())
        self.assertEqual(1, len(self.get("hyperty", "guid", "user-guid://a")[1]))
        self.assertEqual((404, NOT_FOUND), self.get("hyperty", "guid", "user-guid://replaced"))

    def test_by_email(self) -> None:
        """
        By the last piece of the user's name, which may be all of it.
        """
        self.create("user://google.com/bob@gmail.com", H1)
        self.create("bob@gmail.com", H2)
        self.create("user://gmail.com/bob", H3)

        self.assertEqual({H1, H2}, self.get("hyperty", "email", "bob@gmail.com")[1].keys())
        self.assertEqual({H3}, self.get("hyperty", "email", "bob")[1].keys())

    def test_at_and_plus(self) -> None:
        """
        An `@` may stand as it is; a bare `+` is a space.
        """
        self.create("bob+x@gmail.com")

        self.assertEqual(200, self.raw("GET", "/hyperty/user/bob%2Bx@gmail.com")[0])
        self.assertEqual(404, self.raw("GET", "/hyperty/user/bob+x@gmail.com")[0])

    def test_deleted_hyperty_is_only_disconnected(self) -> None:
        """
        Its own user deletes a hyperty, which only disconnects it.
        """
        self.create()
        self.create(ALICE, H2)
        for user, url in ((ALICE, H1), (BOB, H3), ("user://nobody", H1), (BOB, H2)):
            self.assertEqual((404, NOT_FOUND), self.delete(user, url))

        self.assertEqual((200, {"message": "Hyperty deleted"}), self.delete(BOB, H1))

        status, record = self.get("hyperty", "url", H1)
        self.assertEqual((408, "disconnected"), (status, record["status"]))


class StatusTests(RegistryCase):
    """
    Who is there and who is not.
    """

    def status(self) -> tuple[int, str]:
        status, record = self.get("hyperty", "url", H1)
        return status, record["status"]

    def listed(self) -> tuple[int, int]:
        status, found = self.get("hyperty", "user", BOB)
        return status, len(found)

    def test_record_is_over_after_its_whole_seconds(self) -> None:
        """
        A record is over when more than `expires` whole seconds have passed, 0 included.
        """
        for expires in (0, 30):
            self.create(expires=expires)
            self.clock.advance(expires + 0.9)
            self.assertEqual(200, self.get("hyperty", "url", H1)[0])
            self.clock.advance(0.1)

            self.assertEqual((408, "disconnected"), self.status())

    def test_user_whose_hyperties_are_all_away_is_408(self) -> None:
        """
        A list is 408 when everybody in it is away; those who are stay in it.
        """
        self.create(expires=0, status="disconnected")
        self.assertEqual((408, 1), self.listed())
        self.create(url=H2, status="disconnected")
        self.assertEqual((408, 2), self.listed())
        self.create(url=H3)
        self.assertEqual((200, 3), self.listed())

    def test_two_characters_keep_a_record_alive(self) -> None:
        """
        Two characters keep a record alive and revive it, and say whether that is news.
        """
        self.create(status="created")
        for changed in ("true", "false"):
            answer = (200, {"statusChanged": changed, "message": "Keep alive"})
            self.assertEqual(answer, self.put("hyperty", "url", H1, body=b"{}"))
        self.clock.advance(40)
        self.assertEqual(408, self.get("hyperty", "user", BOB)[0])

        self.assertEqual("true", self.put("hyperty", "url", H1, body=b"{}")[1]["statusChanged"])

        self.assertEqual("live", self.get("hyperty", "url", H1)[1]["status"])
        self.assertEqual((404, NOT_FOUND), self.put("hyperty", "url", H2, body=b"{}"))

    def test_empty_update(self) -> None:
        """
        Three characters are an update of nothing.
        """
        self.create(status="created")

        self.assertEqual(
            (200, {"statusChanged": "false", "message": "Hyperty updated"}),
            self.put("hyperty", "url", H1, body=b"{ }"),
        )
        self.assertEqual("created", self.get("hyperty", "url", H1)[1]["status"])

    def test_update_is_stored_as_sent_leaves_alone_what_it_does(self) -> None:
        """
        An update is stored as sent, leaves alone what it does not name, and refreshes the timer.
        """
        self.create(expires=30)
        self.clock.advance(20)
        self.put("hyperty", "url", H1, body={"expires": 25, "descriptor": "d", "runtime": None, "x": 1})
        self.clock.advance(20)

        status, record = self.get("hyperty", "url", H1)

        self.assertEqual(
            (200, 25, "d", "live"), (status, record["expires"], record["descriptor"], record["status"])
        )
        self.assertEqual("runtime://ua.pt/1", record["runtime"])

    def test_update_revives_nobody(self) -> None:
        """
        Without a status an update does not bring back who is away.
        """
        self.create()
        self.put("hyperty", "url", H1, body={"status": "disconnected"})

        answer = self.put("hyperty", "url", H1, body={"expires": 60})

        self.assertEqual("false", answer[1]["statusChanged"])
        self.assertEqual(408, self.get("hyperty", "url", H1)[0])


class UpdatedTests(RegistryCase):
    """
    What changed by itself.
    """

    def test_what_a_read_or_the_sweep_found_over_is_told_once(self) -> None:
        """
        What a read or the sweep found over is told once.
        """
        for look in (lambda: self.get("hyperty", "url", H1), self.records.sweep):
            self.create()
            self.clock.advance(32)
            self.assertEqual({}, self.updated())
            look()

            found = self.updated()

            self.assertEqual("disconnected", found[H1]["status"])
            self.assertEqual({}, self.updated())

    def test_deleted_record_is_a_change_once(self) -> None:
        """
        So is what was deleted, once however often.
        """
        self.create()
        for expected in (1, 0):
            self.delete(BOB, H1)

            self.assertEqual(expected, len(self.updated()))

    def test_objects_too(self) -> None:
        """
        Data objects stand among them.
        """
        self.create()
        self.create_object()
        self.clock.advance(32)
        self.records.sweep()

        self.assertEqual({H1, O1}, self.updated().keys())

    def test_put_is_no_news(self) -> None:
        """
        Who sets a status by himself knows; and a record that came back meanwhile is not told of.
        """
        self.create()
        self.put("hyperty", "url", H1, body={"status": "disconnected"})
        self.assertEqual({}, self.updated())
        for back in (b"{}", {"expires": 5}, None):
            self.create()
            self.delete(BOB, H1)
            self.put("hyperty", "url", H1, body=back) if back else self.create()

            self.assertEqual({}, self.updated())


class SearchTests(RegistryCase):
    """
    Searches by resources and data schemes.
    """

    def setUp(self) -> None:
        super().setUp()
        self.create("bob@gmail.com", H1, resources=["chat", "voice"], dataSchemes=["comm"])
        self.create("bob@gmail.com", H2, resources=["chat", "video"], dataSchemes=["comm", "fake"])
        self.create("bob@gmail.com", H3, resources=["chat", "voice", "video"], dataSchemes=["fake"])

    def search(self, query: str, by: str = "user") -> tuple[int, int]:
        status, found = self.get("hyperty", by, "bob@gmail.com", "hyperty", query=query)
        return status, len(found) if status == 200 else 0

    def test_search_needs_every_value_of_both_lists(self) -> None:
        """
        Every value of both lists must be there, however often it is named.
        """
        for query, number in (
            ("?resources=chat", 3),
            ("?resources=chat,voice", 2),
            ("?resources=voice,chat,voice", 2),
            ("?resources=voice%2Cchat", 2),
            ("?dataSchemes=comm,fake", 1),
            ("?resources=video&dataSchemes=fake", 2),
        ):
            for by in ("user", "email"):
                self.assertEqual((200, number), self.search(query, by), query)

    def test_nothing_fits_nothing_is_asked_or_something_else(self) -> None:
        """
        Nothing fits, nothing is asked, or something else is.
        """
        for query in ("?resources=messaging", "?resources=", "", "?", "?rr=aa", "?resources=chat&x=1"):
            self.assertEqual((404, 0), self.search(query), query)
        self.assertEqual((404, NOT_FOUND), self.get("hyperty", "user", "bob@gmail.com", "messaging"))

    def test_search_whose_hits_are_all_away_is_408(self) -> None:
        """
        408 when all that fit are away, though others are not.
        """
        self.delete("bob@gmail.com", H1)

        self.assertEqual(200, self.search("?resources=chat")[0])
        self.assertEqual(200, self.search("?resources=voice")[0])
        self.delete("bob@gmail.com", H3)
        self.assertEqual(408, self.search("?resources=voice")[0])


class ObjectTests(RegistryCase):
    """
    Data objects.
    """

    def test_object_record_has_12_keys(self) -> None:
        """
        A record has 12 keys; no guid and no p2pHandler.
        """
        self.assertEqual(
            (200, {"message": "Data object created"}), self.create_object(p2pHandler="x", guid="y")
        )

        status, record = self.get("hyperty", "dataobject", "url", O1)

        self.assertEqual((200, 12, O1), (status, len(record), record["url"]))

    def test_object_without_a_required_key_is_400(self) -> None:
        """
        Without a required key: 400.
        """
        for key in ("schema", "name", "reporter", "resources", "dataSchemes", "status", "expires", "runtime"):
            body = data_object()
            del body[key]

            self.assertEqual((400, b""), self.put("hyperty", "dataobject", O1, body=body))

    def test_never_408(self) -> None:
        """
        A data object that is over is found all the same.
        """
        self.create_object()
        self.clock.advance(32)

        status, record = self.get("hyperty", "dataobject", "url", O1)

        self.assertEqual((200, "disconnected"), (status, record["status"]))
        self.assertEqual(200, self.get("hyperty", "dataobject", "reporter", H1)[0])

    def test_updates_and_keep_alives_do_not_say_whether(self) -> None:
        """
        Updates and keep-alives do not say whether the status changed.
        """
        self.create_object()

        for body, message in ((b"{}", "Keep alive"), ({"status": "disconnected"}, "data object updated")):
            self.assertEqual((200, {"message": message}), self.put("dataobject", "url", O1, body=body))
        self.assertEqual("disconnected", self.get("hyperty", "dataobject", "url", O1)[1]["status"])
        self.assertEqual((404, NOT_FOUND), self.put("dataobject", "url", O2, body=b"{}"))

    def test_object_is_found_by_reporter_and_name(self) -> None:
        """
        By reporter and by name, with a search or without.
        """
        self.create_object()
        self.create_object(O2, resources=["video"])
        self.create_object("comm://ua.pt/3", name="other", reporter=H2)
        for by, value, query, number in (
            ("reporter", H1, "", 2),
            ("name", "chat", "", 2),
            ("name", "other", "", 1),
            ("reporter", H1, "?resources=chat", 1),
            ("name", "chat", "?dataSchemes=comm&resources=video", 1),
            ("url", O1, "?resources=chat", 1),
        ):
            more = ("do",) if query else ()
            status, found = self.get("hyperty", "dataobject", by, value, *more, query=query)

            self.assertEqual((200, number), (status, len(found)), (by, query))

    def test_object_search_that_finds_nothing(self) -> None:
        """
        Nobody, nothing that fits, no search where one should be; and one question that breaks the server.
        """
        self.create_object()
        for pieces, query in (
            (("name", "nobody"), ""),
            (("url", O2), ""),
            (("name", "chat", "do"), "?rr=aa"),
            (("name", "chat", "test"), ""),
            (("reporter", H1, "do"), "?resources=x"),
            (("url", O1, "do"), "?resources=x"),
        ):
            self.assertEqual((404, NOT_FOUND), self.get("hyperty", "dataobject", *pieces, query=query))
        self.assertEqual(500, self.raw("GET", f"/hyperty/dataobject/url/{encoded(O2)}/do?resources=x")[0])

    def test_objects_cannot_be_deleted(self) -> None:
        """
        They cannot be deleted.
        """
        self.create_object()

        status, page, kind = self.raw("DELETE", f"/hyperty/dataobject/url/{encoded(O1)}")

        self.assertEqual(
            (404, True, True), (status, page.startswith(b"<html>"), kind.startswith("text/html"))
        )


class OtherTests(RegistryCase):
    """
    What else it answers.
    """

    def test_liveness_report_is_all_strings(self) -> None:
        """
        Everything in the report is a string.
        """
        self.create()

        moved = self.domain.answer("GET", "/", b"")
        expected = {"status": "up", "Storage_type": "SQLite", "Hyperties_stored": "1"}
        self.assertEqual((200, expected), self.get("live"))
        self.assertEqual((302, "/live"), (moved.status, moved.location))

    def test_error_page_for_balancers(self) -> None:
        """
        Where balancers send who shows no certificate.
        """
        self.assertEqual((401, {"message": "Unauthorized."}), self.get("error"))

    def test_unknown_path_is_a_page(self) -> None:
        """
        A path nobody knows, or an address that is empty, is a page.
        """
        for method, uri in (
            ("GET", "/x"),
            ("POST", "/live"),
            ("GET", "/hyperty/user/"),
            ("PUT", "/hyperty/url/"),
        ):
            self.assertEqual(404, self.raw(method, uri)[0])
            self.assertIn("text/html", self.raw(method, uri)[2])

    def test_address_is_one_piece_however_many_slashes_it_has(self) -> None:
        """
        An address is one piece however many slashes it has, and any text.
        """
        url = "hyperty://ua.pt/ä/ö?x=1&y#z+%2F"
        self.create(url=url)

        self.assertEqual(url, self.get("hyperty", "url", url)[1]["hypertyID"])
