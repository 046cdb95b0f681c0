"""
What messages to the domain registry ask for: the mapping, line by line.
"""

from random import Random
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.backends.registry.record_fields import (
    MAX_EXPIRES_SECONDS,
    MAX_LISTED,
    OBJECT_UPDATABLE,
    UPDATABLE,
)
from msgnode.backends.registry.requests import Call, create, delete, missing, reads, update
from msgnode.protocol.errors import Rejected
from tests.support.fakes import peak
from tests.support.registry import RegistryNode

RUNTIME = "runtime://d/r"
FROM = f"{RUNTIME}/registry/"


def where(body: dict[str, Any]) -> list[str]:
    return [call.path for call in reads(body, "d")]


class ReadTests(SynchronousTestCase):
    """
    Which record, or which search.
    """

    def test_resource(self) -> None:
        """
        A resource alone.
        """
        for resource, path in (
            ("user://g.com/bob@g.com", "/hyperty/user/user%3A%2F%2Fg.com%2Fbob%40g.com"),
            ("user-guid://abc", "/hyperty/guid/user-guid%3A%2F%2Fabc"),
            ("/hyperty/idp-identifier/bob@g.com", "/hyperty/email/bob%40g.com"),
            ("/comm/idp-identifier/a/b", "/hyperty/email/a%2Fb"),
            ("hyperty://d/1", "/hyperty/url/hyperty%3A%2F%2Fd%2F1"),
            ("hyperty-runtime://d/1", "/hyperty/url/hyperty-runtime%3A%2F%2Fd%2F1"),
            ("runtime://d/1", "/hyperty/url/runtime%3A%2F%2Fd%2F1"),
            ("comm://d/1", "/hyperty/dataobject/url/comm%3A%2F%2Fd%2F1"),
            ("connection://d/1", "/hyperty/dataobject/url/connection%3A%2F%2Fd%2F1"),
            ("hello://d/1", "/hyperty/dataobject/url/hello%3A%2F%2Fd%2F1"),
            ("room", "/hyperty/dataobject/name/room"),
            ("dataObject://room", "/hyperty/dataobject/name/room"),
            ("/dataObject/room", "/hyperty/dataobject/name/room"),
            ("/hyperty/hyperty://d/1", "/hyperty/url/hyperty%3A%2F%2Fd%2F1"),
            ("/hyperty/1", "/hyperty/url/hyperty%3A%2F%2Fd%2F1"),
            ("/comm/1", "/hyperty/dataobject/url/comm%3A%2F%2Fd%2F1"),
            ("/hyperty/user/user://d/bob", "/hyperty/user/user%3A%2F%2Fd%2Fbob"),
            ("/comm/user/bob@g.com", "/hyperty/user/bob%40g.com"),
            ("/hyperty/guid/user-guid://x", "/hyperty/guid/user-guid%3A%2F%2Fx"),
            ("/any/url/comm://d/1", "/hyperty/dataobject/url/comm%3A%2F%2Fd%2F1"),
            ("/any/url/hyperty://d/1", "/hyperty/url/hyperty%3A%2F%2Fd%2F1"),
            ("/comm/name/my room", "/hyperty/dataobject/name/my%20room"),
            ("/comm/reporter/hyperty://d/1", "/hyperty/dataobject/reporter/hyperty%3A%2F%2Fd%2F1"),
            ("a+b~(c)", "/hyperty/dataobject/name/a%2Bb~(c)"),
        ):
            self.assertEqual([path], where({"resource": resource}), resource)

    def test_bare_address(self) -> None:
        """
        A bare e-mail address is looked for as a user's, and then as a name.
        """
        self.assertEqual(
            ["/hyperty/email/bob%40g.com", "/hyperty/dataobject/name/bob%40g.com"],
            where({"resource": "bob@g.com"}),
        )

    def test_lists_in_criteria_make_it_a_search(self) -> None:
        """
        With lists in `criteria` it is a search; a text alone is a list of one.
        """
        both = {"resources": ["chat", "a,b+c"], "dataSchemes": "comm"}
        query = "?resources=chat,a%2Cb%2Bc&dataSchemes=comm"
        for resource, path in (
            ("user://d/bob", "/hyperty/user/user%3A%2F%2Fd%2Fbob/hyperty"),
            ("/hyperty/user/user://d/bob", "/hyperty/user/user%3A%2F%2Fd%2Fbob/hyperty"),
            ("/hyperty/idp-identifier/bob@g.com", "/hyperty/email/bob%40g.com/hyperty"),
            ("room", "/hyperty/dataobject/name/room/do"),
        ):
            self.assertEqual([path + query], where({"resource": resource, "criteria": both}), resource)

    def test_no_search(self) -> None:
        """
        Criteria without a value in a list, or for one record, are none.
        """
        for criteria in (
            {},
            None,
            [],
            "x",
            {"scheme": "comm"},
            {"domain": "d", "filter": "x"},
            {"resources": [], "dataSchemes": None},
            {"resources": ""},
            {"resources": [1]},
        ):
            body = {"resource": "user://d/bob", "criteria": criteria}
            self.assertEqual(["/hyperty/user/user%3A%2F%2Fd%2Fbob"], where(body), criteria)
        body = {"resource": "hyperty://d/1", "criteria": {"resources": ["chat"]}}
        self.assertEqual(["/hyperty/url/hyperty%3A%2F%2Fd%2F1"], where(body))

    def test_reporter(self) -> None:
        """
        A reporter in the criteria wins over the resource.
        """
        body: dict[str, Any] = {"resource": "/comm", "criteria": {"reporter": "hyperty://d/1"}}
        self.assertEqual(["/hyperty/dataobject/reporter/hyperty%3A%2F%2Fd%2F1"], where(body))

        body["criteria"]["resources"] = ["chat"]

        path = "/hyperty/dataobject/reporter/hyperty%3A%2F%2Fd%2F1/do?resources=chat"
        self.assertEqual([path], where(body))

    def test_guid_search(self) -> None:
        """
        A search by guid is made in the answer, because the registry has none.
        """
        (call,) = reads({"resource": "user-guid://x", "criteria": {"resources": ["chat"]}}, "d")

        self.assertEqual(
            ("/hyperty/guid/user-guid%3A%2F%2Fx", {"resources": ["chat"]}), (call.path, call.filter)
        )

    def test_without_a_resource_there_is_nothing_to_find(self) -> None:
        """
        Without a resource there is nothing to find.
        """
        for body in ({}, {"resource": ""}, {"resource": 5}, {"resource": None, "criteria": {"reporter": ""}}):
            why = self.assertRaises(Rejected, reads, body, "d")

            self.assertEqual((400, "name what to find in 'resource'"), (why.code, str(why)))


class CreateTests(SynchronousTestCase):
    """
    What is registered.
    """

    def make(self, **value: Any) -> Call:
        return create({"value": value, "policy": "policy", "identity": {}}, FROM, RUNTIME)

    def test_hyperty_of_today_runtimes_with_what_the_registry(self) -> None:
        """
        A hyperty of today's runtimes, with what the registry knows and nothing else.
        """
        fields = {
            "descriptor": "https://c/d",
            "expires": 60,
            "resources": ["chat"],
            "dataSchemes": ["comm"],
            "status": "live",
            "runtime": "runtime://other/r",
            "p2pRequester": "q",
            "p2pHandler": "p",
            "guid": "user-guid://x",
        }

        call = self.make(user="bob@g.com", url="hyperty://d/1", startingTime="x", extra=1, **fields)

        path = "/hyperty/user/bob%40g.com/hyperty%3A%2F%2Fd%2F1"
        self.assertEqual(("PUT", path, fields, "hyperty://d/1"), call[:4])

    def test_data_object_is_registered(self) -> None:
        """
        A data object, likewise.
        """
        fields = {
            "name": "room",
            "schema": "s",
            "reporter": "hyperty://d/1",
            "expires": 60,
            "resources": ["chat"],
            "dataSchemes": ["x"],
            "status": "live",
            "runtime": RUNTIME,
            "p2pRequester": "q",
        }

        call = self.make(url="comm://d/1", p2pHandler="p", guid="x", interworking=True, **fields)

        self.assertEqual(("PUT", "/hyperty/dataobject/comm%3A%2F%2Fd%2F1", fields, "comm://d/1"), call[:4])

    def test_missing_fields_of_first_runtimes_are_filled_in(self) -> None:
        """
        What the first runtimes send lacks much, which is filled in.
        """
        value = {"user": "user://d/b", "hypertyDescriptorURL": "https://c/d", "hypertyURL": "hyperty://d/1"}

        call = self.make(**value, expires=None)

        expected = {
            "descriptor": "https://c/d",
            "expires": 3600,
            "resources": [],
            "dataSchemes": [],
            "status": "live",
            "runtime": RUNTIME,
        }
        self.assertEqual(expected, call.body)
        self.assertEqual([], missing(call))

    def test_object_defaults(self) -> None:
        """
        A data object's scheme is that of its address; what cannot be known is missing.
        """
        call = self.make(url="comm://d/1")

        body = {
            "dataSchemes": ["comm"],
            "resources": [],
            "status": "live",
            "expires": 3600,
            "runtime": RUNTIME,
        }
        self.assertEqual(body, call.body)
        self.assertEqual(["schema", "name", "reporter"], missing(call))

    def test_runtime(self) -> None:
        """
        The runtime is who sent it; its registry's address tells, else the session.
        """
        for from_, runtime in (
            ("runtime://x/1/registry/", "runtime://x/1"),
            ("runtime://x/1/registry", "runtime://x/1"),
            ("hyperty://x/1", RUNTIME),
        ):
            call = create({"value": {"url": "comm://d/1"}}, from_, RUNTIME)

            self.assertEqual(runtime, call.body["runtime"] if call.body else None)

    def test_without_an_address_or_a_hyperty_without_a_user(self) -> None:
        """
        Without an address, or a hyperty without a user, it would land on another path.
        """
        for value, text in (
            ({"user": "x"}, "'value.url' must be a text that is not empty, not None"),
            ({"user": "x", "url": ""}, "'value.url' must be a text that is not empty, not ''"),
            ({"url": "hyperty://d/1"}, "'value.user' must be a text that is not empty, not None"),
            ({"url": "hyperty://d/1", "user": ""}, "'value.user' must be a text that is not empty, not ''"),
            ("x", "describe what to register in an object 'value'"),
        ):
            why = self.assertRaises(Rejected, create, {"value": value}, FROM, RUNTIME)

            self.assertEqual((400, text), (why.code, str(why)))


class FieldTests(SynchronousTestCase):
    """
    Fields that do not hold what they should.
    """

    def refused(self, ask: Any, *arguments: Any) -> str:
        why = self.assertRaises(Rejected, ask, *arguments)
        self.assertEqual(400, why.code)
        return str(why)

    def test_field_the_registry_would_fail_over_is_named(self) -> None:
        """
        What the registry would fail over is refused by the field's name, in a create and in an update.
        """
        seconds = f"must be a whole number of seconds, at most {MAX_EXPIRES_SECONDS}, not"
        for url in ("hyperty://d/1", "comm://d/1"):
            for name, given, words in (
                ("expires", "soon", f"{seconds} 'soon'"),
                ("expires", "", f"{seconds} ''"),
                ("expires", 2.5, f"{seconds} 2.5"),
                ("expires", 2**31, f"{seconds} 2147483648"),
                ("expires", -(2**31) - 1, f"{seconds} -2147483649"),
                ("expires", 10**30, f"{seconds} {10**30}"),
                ("expires", 1e300, f"{seconds} 1e+300"),
                ("expires", True, f"{seconds} True"),
                ("expires", [5], f"{seconds} a list"),
                ("resources", {"a": "b"}, "must be a list of texts, not an object"),
                ("resources", 5, "must be a list of texts, not 5"),
                ("resources", [["chat"]], "must be a list of texts, not a list"),
                ("dataSchemes", [{}], "must be a list of texts, not an object"),
                ("status", {}, "must be a text, not an object"),
                ("runtime", ["a"], "must be a text, not a list"),
                ("p2pRequester", {"deep": {"er": 1}}, "must be a text, not an object"),
            ):
                value = {"url": url, "user": "u", name: given}

                created = self.refused(create, {"value": value}, FROM, RUNTIME)
                changed = self.refused(update, {"resource": url, "value": {name: given}}, "d")

                self.assertEqual([f"'value.{name}' {words}"] * 2, [created, changed])

    def test_of_one_kind(self) -> None:
        """
        So is what only hyperties or only data objects have, and a list that is a text in an update.
        """
        for url, name in (
            ("hyperty://d/1", "descriptor"),
            ("hyperty://d/1", "guid"),
            ("hyperty://d/1", "p2pHandler"),
            ("comm://d/1", "name"),
            ("comm://d/1", "schema"),
            ("comm://d/1", "reporter"),
        ):
            told = self.refused(create, {"value": {"url": url, "user": "u", name: {}}}, FROM, RUNTIME)

            self.assertEqual(f"'value.{name}' must be a text, not an object", told)
        told = self.refused(update, {"resource": "comm://d/1", "value": {"resources": "video"}}, "d")
        self.assertEqual("'value.resources' must be a list of texts, not 'video'", told)

    def test_one_alone(self) -> None:
        """
        The same for one field that comes with its name in `attribute`, an object too: that is no keep-alive.
        """
        for name, given, words in (
            (
                "expires",
                "soon",
                f"'expires' must be a whole number of seconds, at most {MAX_EXPIRES_SECONDS}, not 'soon'",
            ),
            ("resources", "video", "'resources' must be a list of texts, not 'video'"),
            ("descriptor", {"x": 1}, "'descriptor' must be a text, not an object"),
        ):
            body = {"resource": "hyperty://d/1", "value": given, "attribute": name}

            self.assertEqual(words, self.refused(update, body, "d"))

    def test_number_is_taken_for_text_and_text_for_number(self) -> None:
        """
        A number is taken for a text and a text for a number, as the registry does it.
        """
        for name, given, taken in (
            ("expires", "1000", 1000),
            ("expires", "10.0", 10),
            ("expires", 10.0, 10),
            ("expires", 2**31 - 1, 2**31 - 1),
            ("expires", -1, -1),
            ("descriptor", 5, "5"),
            ("descriptor", 1.5, "1.5"),
            ("status", True, "true"),
            ("resources", [1, "a", None, False], ["1", "a", "false"]),
            ("dataSchemes", [], []),
        ):
            value = {"url": "hyperty://d/1", "user": "u", name: given}

            created = create({"value": value}, FROM, RUNTIME).body or {}
            changed = update({"resource": "hyperty://d/1", "value": {name: given}}, "d").body

            self.assertEqual((taken, {name: taken}), (created[name], changed), name)

    def test_one_word(self) -> None:
        """
        Who creates may name one resource without a list around it.
        """
        value = {"url": "hyperty://d/1", "user": "u", "resources": "chat", "dataSchemes": ""}

        body = create({"value": value}, FROM, RUNTIME).body or {}

        self.assertEqual((["chat"], []), (body["resources"], body["dataSchemes"]))

    def test_registry_user_must_have_a_name(self) -> None:
        """
        A user has a name: the registry would store one of slashes, and fail over it from then on.
        """
        for user in ("/", "//"):
            value = {"url": "hyperty://d/1", "user": user}

            told = self.refused(create, {"value": value}, FROM, RUNTIME)

            self.assertEqual(f"'value.user' must name a user, not {user!r}", told)

    def test_name_that_would_lead_to_another_path_is_refused(self) -> None:
        """
        A name that would lead to another path is refused.
        """
        for name in (".", ".."):
            self.refused(reads, {"resource": name}, "d")
            self.refused(create, {"value": {"url": "hyperty://d/1", "user": name}}, FROM, RUNTIME)
            self.refused(create, {"value": {"url": name}}, FROM, RUNTIME)
            self.refused(reads, {"resource": f"/hyperty/user/{name}"}, "d")
        self.refused(reads, {"resource": "dataObject://"}, "d")


class UpdateTests(SynchronousTestCase):
    """
    Keep-alives, changes and farewells.
    """

    def test_hyperties_and_objects_are_updated_at_different_places(self) -> None:
        """
        Hyperties and data objects are updated at different places.
        """
        for resource, path in (
            ("hyperty://d/1", "/hyperty/url/hyperty%3A%2F%2Fd%2F1"),
            ("/hyperty/hyperty://d/1", "/hyperty/url/hyperty%3A%2F%2Fd%2F1"),
            ("/hyperty/1", "/hyperty/url/hyperty%3A%2F%2Fd%2F1"),
            ("comm://d/1", "/dataobject/url/comm%3A%2F%2Fd%2F1"),
            ("/comm/1", "/dataobject/url/comm%3A%2F%2Fd%2F1"),
        ):
            self.assertEqual(("PUT", path, {}), update({"resource": resource}, "d")[:3], resource)

    def test_update_value_is_none_text_or_object(self) -> None:
        """
        No value keeps alive; a text with its attribute is a field; of an object the known fields travel.
        """
        for more, body in (
            ({}, {}),
            ({"value": None}, {}),
            ({"value": {}}, {}),
            ({"value": {"status": "live"}, "method": "refresh"}, {"status": "live"}),
            ({"value": {"status": "live", "user": "x", "guid": "y", "p2pHandler": None}}, {"status": "live"}),
            ({"value": "disconnected", "attribute": "status"}, {"status": "disconnected"}),
            ({"value": 60, "attribute": "expires"}, {"expires": 60}),
            ({"value": ["chat"], "attribute": "resources"}, {"resources": ["chat"]}),
        ):
            self.assertEqual(body, update({"resource": "hyperty://d/1", **more}, "d").body, more)

    def test_what_cannot_be_understood_is_told_and_never_taken(self) -> None:
        """
        What cannot be understood is told, and never taken for a keep-alive.
        """
        for body, text in (
            ({"value": {}}, "name the address to update in 'resource', not None"),
            ({"resource": "room"}, "name the address to update in 'resource', not 'room'"),
            (
                {"resource": "/dataObject/room"},
                "name the address to update in 'resource', not '/dataObject/room'",
            ),
            (
                {"resource": "hyperty://d/1", "value": "disconnected"},
                "'value' must be an object, or come with an 'attribute', not 'disconnected'",
            ),
            (
                {"resource": "comm://d/1", "value": "x", "attribute": "p2pHandler"},
                "'attribute' must be one of name, schema, reporter, expires, resources, dataSchemes, status, "
                "runtime, p2pRequester, not 'p2pHandler'",
            ),
        ):
            why = self.assertRaises(Rejected, update, body, "d")

            self.assertEqual((400, text), (why.code, str(why)))


class DeleteTests(SynchronousTestCase):
    """
    Registrations taken back.
    """

    def test_hyperty_with_its_user_is_deleted_under_both_names(self) -> None:
        """
        A hyperty with its user is deleted, under both names of its address.
        """
        for value in ({"user": "b", "url": "hyperty://d/1"}, {"user": "b", "hypertyURL": "hyperty://d/1"}):
            call, _ = delete({"value": value})

            self.assertEqual(("DELETE", "/hyperty/user/b/hyperty%3A%2F%2Fd%2F1"), call[:2] if call else None)

    def test_data_object_is_disconnected_not_deleted(self) -> None:
        """
        A data object cannot be, nor a hyperty without a user: it is disconnected.
        """
        for body, path in (
            ({"value": {"url": "comm://d/1"}}, "/dataobject/url/comm%3A%2F%2Fd%2F1"),
            ({"resource": "hyperty://d/1"}, "/hyperty/url/hyperty%3A%2F%2Fd%2F1"),
        ):
            call, _ = delete(body)

            expected = ("PUT", path, {"status": "disconnected"})
            self.assertEqual(expected, call[:3] if call else None)

    def test_with_nothing_but_a_name_the_object_has_to_be_found(self) -> None:
        """
        With nothing but a name the object has to be found first.
        """
        self.assertEqual((None, "room"), delete({"value": {"name": "room"}}))

    def test_with_nothing_at_all_there_is_nothing_to_delete(self) -> None:
        """
        With nothing at all there is nothing to delete.
        """
        for body in ({}, {"value": {}}, {"value": {"name": "", "url": 5}}, {"value": "x"}):
            self.assertEqual(400, self.assertRaises(Rejected, delete, body).code)


class LongTests(SynchronousTestCase):
    """
    Words that are far too long, and lists of far too many, are refused before a path is made of them.
    """

    def refused(self, ask: Any, *arguments: Any) -> None:
        spent = peak(lambda: self.assertEqual(413, self.assertRaises(Rejected, ask, *arguments).code))

        self.assertLess(spent, 2_500_000)

    def test_address_a_name_or_a_user_is_no_longer(self) -> None:
        """
        An address, a name or a user is no longer than an address can be.
        """
        long = "x" * 1_000_000
        for resource in (
            f"user://{long}",
            f"hyperty://d/{long}",
            long,
            f"/hyperty/user/{long}",
            f"{long}@g.com",
        ):
            self.refused(reads, {"resource": resource}, "d")
        self.refused(reads, {"criteria": {"reporter": long}}, "d")
        self.refused(reads, {"resource": "user://x", "criteria": {"resources": [long]}}, "d")
        for value in ({"url": f"comm://d/{long}"}, {"url": "hyperty://d/1", "user": long}):
            self.refused(create, {"value": value}, FROM, RUNTIME)
        self.refused(update, {"resource": f"comm://d/{long}"}, "d")
        self.refused(delete, {"value": {"url": f"comm://d/{long}"}})

    def test_of_resources_and_data_schemes_a_request_names(self) -> None:
        """
        Of resources and data schemes a request names at most a thousand each.
        """
        many = [f"{n}" for n in range(MAX_LISTED + 1)]
        for name in ("resources", "dataSchemes"):
            self.refused(reads, {"resource": "user-guid://x", "criteria": {name: many}}, "d")
            self.refused(create, {"value": {"url": "comm://d/1", name: many}}, FROM, RUNTIME)

            self.assertEqual(1, len(reads({"resource": "user://x", "criteria": {name: many[1:]}}, "d")))


class AnythingTests(SynchronousTestCase):
    """
    Requests of which every part may be anything.
    """

    WORDS = (
        "",
        "x",
        "/",
        "//",
        "..",
        "%zz",
        "\0",
        "é",
        "live",
        "1000",
        "soon",
        "a@b",
        "?x",
        "#",
        "\\",
        "x" * 3000,
    )
    ADDRESSES = ("hyperty://example.org/1", "comm://example.org/1", "user://x", "dataObject://", "/comm/1")
    OTHERS = (
        0,
        -1,
        2**31,
        2**70,
        1.5,
        10.0,
        1e300,
        True,
        None,
        [],
        {},
        [1],
        [None],
        ["a"],
        [[]],
        [{}],
        {"a": 1},
    )

    def test_never_the_registrys_fault(self) -> None:
        """
        Whatever is asked, the answer is no 5xx: what the registry would fail over never reaches it.
        """
        chance = Random(18)
        ann = RegistryNode().client("runtime://example.org/ann")
        things = (*self.WORDS, *self.ADDRESSES, *self.OTHERS)
        fields = (*UPDATABLE, *OBJECT_UPDATABLE, "guid", "url", "hypertyURL", "user", "hypertyDescriptorURL")
        codes = set()
        for _ in range(1500):
            value: Any = {name: chance.choice(things) for name in chance.sample(fields, chance.randint(0, 6))}
            if chance.random() < 0.7:
                value |= {"url": chance.choice(self.ADDRESSES), "user": "ann"}
            body = {
                "resource": chance.choice((*things, *self.ADDRESSES * 5)),
                "value": chance.choice((value, value, value, *things[:5])),
                "attribute": chance.choice((None, None, *fields)),
                "criteria": {name: chance.choice(things) for name in ("resources", "reporter")},
            }

            codes.add(ann.code(chance.choice(("create", "update", "read", "delete")), body))

        self.assertEqual(set(), {code for code in codes if code >= 500})
        self.assertLessEqual({200, 400, 404, 413}, codes)
