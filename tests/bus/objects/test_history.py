"""
The history of kept objects: versions, the object as it was, its changes, and who may read them.
"""

import json
from typing import Any

from tests.support.kept_objects import CHANGES, CHILDREN, HISTORY, OBJECT, KeptCase
from tests.support.policy_case import policy, policy_set, program, rule


def versions(answer: dict[str, Any]) -> list[int]:
    return [change["version"] for change in answer["value"]["changes"]]


class VersionTests(KeptCase):
    """
    What observers of a kept object get.
    """

    def test_messages_have_versions(self) -> None:
        """
        Observers get the publications of a kept object with its versions, for changes and children together.
        """
        self.bob.subscribe(CHANGES, CHILDREN)

        self.publish(value=1)
        self.publish(CHILDREN, "create", value="hi")

        got = [(message["to"], message["version"]) for message in self.bob.take()]
        self.assertEqual([(CHANGES, 1), (CHILDREN, 2)], got)

    def test_other_objects_are_unchanged(self) -> None:
        """
        The publications of an object that no pattern names are delivered byte for byte, and not kept.
        """
        other = "comm://example.org/other/changes"
        self.bob.subscribe(other)

        sent = self.ann.post(other, "update", body={"value": 1})

        self.assertEqual([sent], self.bob.take())
        self.assertEqual(0, len(self.journal))

    def test_version_of_a_sender_is_refused(self) -> None:
        """
        A sender cannot give a version to its message, however it is spelt; one in the body is its own affair.
        """
        plain = self.ann.post(CHANGES, "update", version=7, body={})
        self.ann.tell(json.dumps(plain).replace("version", "\\u0076ersion").encode())
        self.ann.tell(json.dumps({**plain, "to": [CHANGES, CHILDREN], "version": None}).encode())
        self.publish(version=7, value=1)

        self.assertEqual({(400, "malformed"): 4}, dict(self.node.counts.refused))
        self.assertEqual([1], versions(self.read()))

    def test_requests_of_other_types_are_not_kept(self) -> None:
        """
        Only create, update and delete make versions, in any case.
        """
        self.publish(type="UPDATE", value=1)
        self.publish(type="ping")
        self.publish(CHILDREN, "response", code=100)

        self.assertEqual([1], versions(self.read()))


class ChangesTests(KeptCase):
    """
    The changes of an object.
    """

    def test_changes_in_pages(self) -> None:
        """
        Changes are read in pages, each with its version, its time and its message; `next` is where to go on.
        """
        for number in range(5):
            self.publish(value=number)

        first = self.read(limit=2)["value"]
        second = self.read(**{"from": first["next"], "limit": 3})["value"]

        self.assertEqual([0, 1], [each["message"]["body"]["value"] for each in first["changes"]])
        self.assertEqual("runtime://example.org/ann/x", first["changes"][0]["message"]["from"])
        self.assertRegex(first["changes"][0]["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual((3, 5, 1), (first["next"], first["version"], first["oldest"]))
        self.assertEqual([3, 4, 5], [each["version"] for each in second["changes"]])
        self.assertNotIn("next", second)

    def test_changes_from_a_time(self) -> None:
        """
        A time finds the first change at or after it.
        """
        self.publish(value=1)
        self.node.clock.advance(60)
        self.publish(value=2)
        when = self.read()["value"]["changes"][1]["time"]

        self.assertEqual([2], versions(self.read(**{"from": when})))

    def test_numbers_as_texts(self) -> None:
        """
        Versions and the limit may be texts of digits, as in the query of an HTTP request.
        """
        for value in (1, 2, 3):
            self.publish(value=value)

        self.assertEqual(2, self.read(at="2")["value"]["value"])
        self.assertEqual([2], versions(self.read(**{"from": "2", "limit": "1"})))

    def test_bad_requests(self) -> None:
        """
        A request that makes no sense is refused with the name of the field.
        """
        self.publish(value=1)
        for body, text in (
            ({"limit": 0}, "'limit' is 1 to 1000, not 0"),
            ({"limit": "0"}, "'limit' is 1 to 1000, not 0"),
            ({"limit": "five"}, "'limit' is 1 to 1000, not 'five'"),
            ({"at": "9" * 17}, "'at' is a version, or a time"),
            ({"limit": True}, "'limit' is 1 to 1000, not True"),
            ({"from": -1}, "'from' is a version, or a time"),
            ({"from": "yesterday"}, "'from' is a version, or a time"),
            ({"at": 1.5}, "'at' is a version, or a time"),
            ({"at": 1, "limit": 5}, "not both"),
        ):
            answer = self.read(**body)

            self.assertEqual(400, answer["code"], body)
            self.assertIn(text, answer["desc"])

    def test_other_types_are_not_offered(self) -> None:
        """
        The history understands read, and nothing else.
        """
        answer = self.bob.ask(type="create", to=HISTORY, body={})

        self.assertEqual(501, answer["body"]["code"])

    def test_object_without_messages_has_no_changes(self) -> None:
        """
        A kept object to which nobody has published has no changes, and no state.
        """
        self.assertEqual([], self.read()["value"]["changes"])
        self.assertEqual(404, self.read(at=0)["code"])

    def test_history_of_other_objects_is_routed(self) -> None:
        """
        The history of an object that is not kept is an address as any other.
        """
        other = "comm://example.org/other/history"
        self.ann.subscribe(other)

        self.bob.post(other, "read")

        self.assertEqual([other], [message["to"] for message in self.ann.take()])


class AsItWasTests(KeptCase):
    """
    The object as it was.
    """

    def value(self, at: Any) -> Any:
        return self.read(at=at)["value"]["value"]

    def test_object_at_each_version(self) -> None:
        """
        The object is given as it was at each of its versions: before it, created, changed and deleted.
        """
        self.publish(type="create", value={"mood": "good", "list": [1, 2]})
        self.publish(attribute="mood", value="bad")
        self.publish(attribute="list.1", attributeType="array", operation="add", value=[7, 8])
        self.publish(type="delete")

        found = [self.read(at=version)["value"] for version in range(5)]

        self.assertEqual([False, True, True, True, False], [each["exists"] for each in found])
        self.assertEqual({"mood": "bad", "list": [1, 2]}, found[2]["value"])
        self.assertEqual({"mood": "bad", "list": [1, 7, 8, 2]}, found[3]["value"])
        self.assertIsNone(found[4]["value"])
        self.assertTrue(all(each["complete"] for each in found))

    def test_object_at_a_time(self) -> None:
        """
        A time finds the last version at or before it.
        """
        self.publish(value=1)
        self.node.clock.advance(60)
        self.publish(value=2)
        when = self.read()["value"]["changes"]

        self.assertEqual(1, self.value(when[0]["time"].replace("Z", "999Z")))
        self.assertEqual(2, self.value("2999-01-01"))

    def test_children(self) -> None:
        """
        Children have the name that `resource` or the address gives them, and are changed and deleted by it.
        """
        self.publish(f"{CHILDREN}chat", "create", value={"text": "hi"})
        self.publish(CHILDREN, "create", resource="b", value=1)
        self.publish(f"{CHILDREN}chat", "update", attribute="text", value="ho")
        self.publish(CHILDREN, "delete", resource="b")

        before, after = self.read(at=2)["value"]["children"], self.read(at=4)["value"]["children"]

        self.assertEqual({"chat", "b"}, set(before))
        self.assertEqual({"text": "ho"}, after["chat"]["value"])
        self.assertEqual(3, after["chat"]["version"])
        self.assertEqual({"chat"}, set(after))

    def test_invitation_creates_the_object(self) -> None:
        """
        The invitation of the first observer is what creates an object in the runtimes: its data is the value.
        """
        for _ in range(2):
            self.ann.tell(  # the second is another observer's
                {
                    "id": 3,
                    "type": "create",
                    "from": f"{OBJECT}/subscription",
                    "to": "runtime://example.org/bob/h",
                    "body": {"value": {"name": "room", "data": {"mood": "good"}}},
                }
            )
        invited = self.bob.take()
        self.publish(attribute="mood", value="bad")

        self.assertEqual({"name": "room", "data": {"mood": "bad"}}, self.value(2))
        self.assertEqual(["create", "create"], [message["type"] for message in invited])

    def test_updates_that_do_not_fit(self) -> None:
        """
        An update that cannot be applied is named, and the rest is applied.
        """
        self.publish(type="create", value={"text": "x"})
        for attribute in ("text.a", "", 5, ".".join("a" * 65)):
            self.publish(attribute=attribute, value=1)
        self.publish(attribute="text", value="y")

        found = self.read(at=6)["value"]

        self.assertEqual({"text": "y"}, found["value"])
        self.assertEqual([2, 3, 4, 5], found["skipped"])
        self.assertFalse(found["complete"])

    def test_version_of_the_future(self) -> None:
        """
        A version that the object does not have yet is not found.
        """
        self.publish(value=1)

        answer = self.read(at=2)

        self.assertEqual(404, answer["code"])
        self.assertIn("has versions up to 1, not 2", answer["desc"])

    def test_snapshots_change_nothing(self) -> None:
        """
        An object with many messages is reduced from a snapshot, with the same result.
        """
        for number in range(600):
            self.publish(attribute=f"k{number % 7}", value=number)
        self.pass_seconds(1)

        self.assertGreaterEqual(self.journal.counts.snapshots, 1)
        self.assertEqual({f"k{k}": 546 + k for k in range(7)}, self.value(553))
        self.assertEqual({"k0": 0, "k1": 1}, self.value(2))

    def test_object_that_is_too_large(self) -> None:
        """
        An object beyond the limit is not reduced; the answer says so, and its next creation ends that.
        """
        self.start(objects={"max_object_bytes": 1000})
        for number in range(10):
            self.publish(attribute=f"k{number}", value="x" * 500)
        self.assertEqual(413, self.read(at=10)["code"])
        self.publish(type="create", value=1)

        self.assertEqual(1, self.value(11))


class RestartTests(KeptCase):
    """
    What is there after a restart.
    """

    def test_versions_go_on(self) -> None:
        """
        After a restart everything is there, and versions go on.
        """
        self.publish(value=1)
        self.publish(CHILDREN, "create", resource="a", value=2)
        self.journal.close()
        self.start()
        self.publish(value=3)

        found = self.read(at=3)["value"]

        self.assertEqual([1, 2, 3], versions(self.read()))
        self.assertEqual((3, {"a"}), (found["value"], set(found["children"])))


class PolicyTests(KeptCase):
    """
    Who may read the history.
    """

    def enforce(self, *rules: dict[str, Any]) -> None:
        self.node.enforcement.use(program([policy_set([policy(list(rules))])]), 1)

    def test_who_may_not_subscribe_may_not_read(self) -> None:
        """
        Who may not subscribe to the changes of an object reads nothing of its history.
        """
        self.publish(value=1)
        self.enforce(
            rule("deny", {"direction": {"equals": "subscribe"}, "msgTo": {"equals": CHANGES}}),
            rule("permit"),
        )

        refused = self.read()
        (answer,) = self.subscribe_since(0)

        self.assertEqual((403, 403), (refused["code"], answer["body"]["code"]))

    def test_hidden_messages(self) -> None:
        """
        What the policies do not show a reader at egress is in no answer, and in no object as it was.
        """
        self.publish(value="open")
        self.publish(type="create", value="secret")
        self.enforce(
            rule(
                "deny",
                {
                    "direction": {"equals": "out"},
                    "msgTo": {"equals": CHANGES},
                    "actionType": {"equals": "create"},
                },
            ),
            rule("permit"),
        )

        changes, state = self.read()["value"], self.read(at=2)["value"]
        _, *replayed = self.subscribe_since(0)

        self.assertEqual([1], [each["version"] for each in changes["changes"]])
        self.assertEqual(1, changes["hidden"])
        self.assertEqual("open", state["value"])
        self.assertEqual(["open"], [message["body"]["value"] for message in replayed])

    def test_children_that_a_reader_may_not_subscribe_to(self) -> None:
        """
        A child whose address the reader may not subscribe to is in no answer, also if its message gives it
        another name; children that he may subscribe to are there.
        """
        self.publish(value=1)
        self.publish(f"{CHILDREN}open", "create", value="hello")
        self.publish(f"{CHILDREN}kid", "create", value="secret")
        self.publish(f"{CHILDREN}kid", "create", value="secret", resource="shown")
        self.enforce(
            rule("deny", {"direction": {"equals": "subscribe"}, "msgTo": {"equals": f"{CHILDREN}kid"}}),
            rule("permit"),
        )

        changes, state, before = self.read(), self.read(at=4), self.read(at=2)

        self.assertEqual(([1, 2], 2), (versions(changes), changes["value"]["hidden"]))
        self.assertEqual(["open"], list(state["value"]["children"]))
        self.assertEqual("hello", before["value"]["children"]["open"]["value"])
        self.assertNotIn("secret", str((changes, state)))

    def test_a_child_that_was_changed_at_two_addresses(self) -> None:
        """
        Its reader may subscribe to both; the answer does not name them. (No rule is for egress.)
        """
        self.publish(f"{CHILDREN}a", "create", value={"x": 1}, resource="one")
        self.publish(f"{CHILDREN}b", "update", value="secret", resource="one", attribute="y")
        permitted = self.read(at=2)["value"]
        self.enforce(
            rule("deny", {"actionType": {"equals": "subscribe"}, "msgTo": {"equals": f"{CHILDREN}b"}}),
            rule("permit"),
        )
        self.assertFalse(self.node.enforcement.outward)

        hidden = self.read(at=2)["value"]

        self.assertEqual({"x": 1, "y": "secret"}, permitted["children"]["one"]["value"])
        self.assertNotIn("channels", permitted["children"]["one"])
        self.assertEqual({}, hidden["children"])

    def test_many_children_are_decided_in_slices(self) -> None:
        """
        Where policies decide about each child, no turn of the reactor has more than twenty of them.
        """
        for number in range(200):
            self.publish(f"{CHILDREN}{number}", "create", value=number)
        self.enforce(rule("deny", {"actionType": {"equals": "subscribe"}, "msgTo": {"equals": "x"}}))
        self.turns_of_answer()

        self.assertGreaterEqual(self.turns_of_answer(), 10)

    def turns_of_answer(self) -> int:
        """
        Reads the object as it is now; the number of turns until the answer.
        """
        read = {"id": 7, "type": "read", "from": f"{self.bob.runtime}/x", "to": HISTORY, "body": {"at": 200}}
        self.bob.tell(read)
        for number in range(1000):
            if answers := self.bob.take():
                self.assertEqual(200, len(answers[0]["body"]["value"]["children"]))
                return number
            self.turns(1)
        raise AssertionError("there was no answer")


class AddressTests(KeptCase):
    def test_only_the_history_itself(self) -> None:
        """
        Nobody else gets what is sent to the history of a kept object.
        """
        self.ann.subscribe(HISTORY)

        self.read()

        self.assertEqual([], self.ann.take())


class BoundTests(KeptCase):
    """
    Who may have objects kept, and which addresses are those of objects.
    """

    def test_receipt_where_nobody_is_subscribed(self) -> None:
        """
        The receipt of a publication that is kept, and that nobody gets now, says so.
        """
        self.ann.post(CHANGES, "update", body={"value": 1}, receipt=True)

        [receipt] = self.ann.take()
        body = receipt["body"]
        text = "kept in the history; no session is subscribed"
        self.assertEqual((202, 0, text), (body["code"], body["recipients"], body["description"]))

    def test_what_is_not_kept_and_not_heard_has_no_route(self) -> None:
        """
        A message that the journal does not take, by its type or because it has no room, is delivered only if
        somebody is subscribed.
        """
        self.ann.post(CHANGES, "ping", body={}, receipt=True)
        unheard = self.ann.take()[-1]["body"]
        self.bob.subscribe(CHANGES)
        self.ann.post(CHANGES, "ping", body={}, receipt=True)
        heard = self.ann.take()[-1]["body"]

        self.assertEqual((404, 202), (unheard["code"], heard["code"]))

    def test_one_host_cannot_take_all_objects(self) -> None:
        """
        A host that has begun as many objects as it may is refused (429) for another, and goes on with those;
        another host begins its own.
        """
        self.start(objects={"max_objects_per_creator": 2})
        rooms = [f"comm://example.org/rooms/{number}/changes" for number in (1, 2, 3)]
        for room in rooms:
            self.ann.post(room, "create", body={"value": 1}, receipt=True)
        refused = self.ann.take()[-1]
        carol = self.node.client()
        carol.peer = "192.0.2.99:1"
        carol.open("runtime://example.org/carol")
        carol.post(rooms[2], "create", body={"value": 1})
        self.ann.post(rooms[2], "update", body={"value": 2})

        self.assertEqual(429, refused["body"]["code"])
        self.assertEqual(2, self.read(to="comm://example.org/rooms/3/history")["value"]["version"])
        self.assertEqual(1, self.node.objects.events()["refused"])

    def test_what_is_below_an_object_is_of_it(self) -> None:
        """
        With a pattern for all that is below, a channel of a child belongs to the object, not to one of its
        own.
        """
        self.start(objects={"keep": ["comm://example.org/..."]})
        self.publish(value={"mood": "good"})
        self.publish(f"{CHILDREN}chat", "create", value={"text": "hi"})
        self.publish(f"{CHILDREN}chat/changes", attribute="text", value="ho")

        found = self.read(at=3)["value"]

        self.assertEqual({"text": "ho"}, found["children"]["chat"]["value"])
        self.assertEqual([OBJECT], [index.address for index in self.journal.indexes()])
