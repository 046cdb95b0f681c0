"""
The domain registry through the node: the embedded one behind it, and worse ones.
"""

import json
from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionRefusedError
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http_headers import Headers
from twisted.web.test.requesthelper import DummyRequest

from msgnode.admin.health import EventLoopLag
from msgnode.admin.metrics import Metrics
from msgnode.backends.http_client import BackendClient, Response, Unanswered
from msgnode.backends.registry.disconnector import RETRY_SECONDS
from msgnode.backends.registry.status import (
    CHANGES_PER_TURN,
    MAX_IN_DOUBT,
    RegistryPoller,
    StatusNotifications,
)
from msgnode.devregistry.fault_injection import Fault
from msgnode.service.wiring import add_disconnector, add_domain_registry
from msgnode.structures.time_slices import ADDRESSES
from tests.config.test_reload import logged
from tests.support.back_ends import Scripted, http
from tests.support.fakes import MemoryNode
from tests.support.registry import GLOBAL, REGISTRY, RegistryNode

ANN, BOB = "runtime://example.org/ann", "runtime://example.org/bob"
H1, H2 = "hyperty://example.org/1", "hyperty://example.org/2"
O1, O2 = "comm://example.org/1", "connection://example.org/2"
AWAY = "Temporarily Unavailable"
AFTER = 10  # seconds between a session's end and what is told of it


class RegistryCase(SynchronousTestCase):
    """
    A node with its registry, and a runtime.
    """

    def setUp(self) -> None:
        self.node = RegistryNode()
        self.ann = self.node.client(ANN)

    def read(self, resource: str, **more: Any) -> dict[str, Any]:
        return self.ann.request("read", {"resource": resource, **more})["body"]

    def status(self, url: str) -> str:
        return self.read(url)["value"]["status"]


class EnvelopeTests(RegistryCase):
    """
    What every exchange has in common.
    """

    def test_verbatim(self) -> None:
        """
        The reply comes from the address asked, slash or none or more, with the id as it came.
        """
        for to in (REGISTRY, f"{REGISTRY}/", f"{REGISTRY}/any/where"):
            for id in (7, "7", 0):
                reply = self.ann.request("read", {"resource": H1}, to=to, id=id)

                self.assertEqual(
                    ("response", to, f"{ANN}/registry/", id),
                    tuple(reply[k] for k in ("type", "from", "to", "id")),
                )
                self.assertEqual(404, reply["body"]["code"])

    def test_registry_types_are_understood_in_any_case(self) -> None:
        """
        Types are understood in any case.
        """
        self.ann.register(H1)

        self.assertEqual(200, self.ann.code("UPDATE", {"resource": H1, "value": {"status": "live"}}))
        self.assertEqual(200, self.ann.code("Read", {"resource": H1}))

    def test_always_answered(self) -> None:
        """
        What makes no sense is answered 400 in words, an update too, and reaches no registry.
        """
        for type, body, text in (
            ("update", None, "name the address to update in 'resource', not None"),
            ("update", {"resource": 5}, "name the address to update in 'resource', not 5"),
            ("read", {}, "name what to find in 'resource'"),
            ("create", {}, "describe what to register in an object 'value'"),
            (
                "subscribe",
                {},
                "the domain registry understands create, read, update and delete, not 'subscribe'",
            ),
        ):
            reply = self.ann.request(type, body)["body"]

            self.assertEqual({"code": 400, "description": text, "desc": text}, reply)
        self.assertEqual([], self.node.journey)

    def test_clients_faults(self) -> None:
        """
        A field that holds what it cannot: 400 with its name, and the registry is not asked.
        """
        self.ann.register(H1)
        self.node.journey.clear()
        common = {"url": H2, "user": "ann", "descriptor": "d"}
        for type, body, field in (
            ("create", {"value": {**common, "expires": 2.5}}, "value.expires"),
            ("create", {"value": {**common, "expires": 2**31}}, "value.expires"),
            ("create", {"value": {**common, "expires": 2**70}}, "value.expires"),
            ("create", {"value": {**common, "descriptor": {}}}, "value.descriptor"),
            ("create", {"value": {**common, "user": "/"}}, "value.user"),
            ("update", {"resource": H1, "value": {"resources": "video"}}, "value.resources"),
            ("update", {"resource": H1, "value": {"expires": "soon"}}, "value.expires"),
            ("update", {"resource": H1, "value": 2.5, "attribute": "expires"}, "expires"),
        ):
            reply = self.ann.request(type, body)["body"]

            self.assertEqual((400, True), (reply["code"], reply["desc"].startswith(f"'{field}' must ")))
        self.assertEqual([], self.node.journey)
        self.assertEqual(200, self.ann.code("update", {"resource": H1, "value": {"expires": "1000"}}))
        self.assertEqual(1000, self.read(H1)["value"]["expires"])

    def test_all_of_32_bits(self) -> None:
        """
        Whatever 32 bits hold is taken, the smallest too.
        """
        self.ann.register(H1)
        self.node.journey.clear()

        codes = [
            self.ann.code("update", {"resource": H1, "value": {"expires": seconds}})
            for seconds in (-(2**31), 2**31 - 1, str(-(2**31)))
        ]

        self.assertEqual([200] * 3, codes)
        self.assertEqual(400, self.ann.code("update", {"resource": H1, "value": {"expires": -(2**31) - 1}}))

    def test_a_user_does_not_change(self) -> None:
        """
        An update that names only what no update changes keeps the hyperty alive, and it stays its user's.
        """
        self.ann.register(H1)
        before = self.read(H1)["value"]["userID"]

        for name in ("userID", "user", "guid"):
            self.assertEqual(200, self.ann.code("update", {"resource": H1, "value": {name: "mallory"}}))

        self.assertEqual(before, self.read(H1)["value"]["userID"])

    def test_response_to_the_registry_is_answered_by_nothing(self) -> None:
        """
        A response to the registry is answered by nothing.
        """
        self.ann.post(REGISTRY, "response", body={"code": 200})

        self.assertEqual([], self.ann.take())

    def test_journal(self) -> None:
        """
        The traffic log has the code of the answer, whether it came at once or later.
        """
        self.ann.register(H1)
        self.ann.request("read", {"resource": H2})
        self.ann.request("read", {})

        lines = [(m["type"], m["outcome"], m["code"]) for m in self.node.traffic_recorder.messages[1:]]
        self.assertEqual(
            [("create", "answered", 200), ("read", "answered", 404), ("read", "answered", 400)], lines
        )

    def test_not_the_nodes(self) -> None:
        """
        While the node answers for the registry nobody sends in its name.
        """
        reply = self.ann.ask(type="read", to=BOB, **{"from": f"{REGISTRY}/"})

        self.assertEqual(403, reply["body"]["code"])

    def test_registry_requests_are_counted_by_outcome(self) -> None:
        """
        What came of the requests is counted by back end and outcome.
        """
        node = self.node
        node.back_ends.append(node.rest)
        self.ann.register(H1)
        self.ann.request("read", {"resource": H2})
        node.memory.refuse = ConnectionRefusedError()
        node.memory.cut()
        for _ in range(6):
            self.ann.request("read", {"resource": H2})

        page = Metrics(node, EventLoopLag(node.clock), int).render_GET(DummyRequest([b""])).decode()

        asked = 'msgnode_back_end_requests_total{back_end="domain_registry",outcome="%s"} %.1f'
        for outcome, number in (("2xx", 1), ("4xx", 1), ("unreachable", 5), ("paused", 1)):
            self.assertIn(asked % (outcome, number), page)
        self.assertIn('msgnode_back_end_circuit_open{back_end="domain_registry"} 1.0', page)

    def test_node_without_registries_says_that_it_offers_none(self) -> None:
        """
        A node without registries says that it offers none.
        """
        ann = MemoryNode().client(ANN)

        for to in (REGISTRY, f"{REGISTRY}/", GLOBAL):
            self.assertEqual(501, ann.ask(type="read", to=to, body={"resource": H1})["body"]["code"])


class RegisterTests(RegistryCase):
    """
    Registering, finding, keeping alive and leaving, as runtimes do it.
    """

    def test_registered_hyperty_is_found_by_its_address_its_user(self) -> None:
        """
        A registered hyperty is found by its address, its user's name and e-mail, as objects.
        """
        self.assertEqual({"code": 200}, self.ann.register(H1))

        record = self.read(H1)["value"]
        self.assertEqual(
            (H1, "ann@example.org", "live", ANN),
            tuple(record[k] for k in ("hypertyID", "userID", "status", "runtime")),
        )
        for resource in (
            "/hyperty/idp-identifier/ann@example.org",
            "ann@example.org",
            "/hyperty/user/ann@example.org",
        ):
            self.assertEqual({"code": 200, "value": {H1: record}}, self.read(resource))

    def test_user_url(self) -> None:
        """
        A user's URL finds what is registered under it; so does the guid.
        """
        self.ann.register(H1, user="user://g.com/ann@g.com", guid="user-guid://a")

        for resource in ("user://g.com/ann@g.com", "user-guid://a", "/hyperty/idp-identifier/ann@g.com"):
            self.assertEqual([H1], list(self.read(resource)["value"]))

    def test_criteria_narrow_what_is_found(self) -> None:
        """
        Criteria narrow what is found, also by guid, which the registry does not offer.
        """
        self.ann.register(H1, guid="user-guid://a", resources=["chat", "voice"])
        self.ann.register(H2, resources=["video"])
        for resource in ("ann@example.org", "/hyperty/user/ann@example.org", "user-guid://a"):
            for lists, found in (
                ({"resources": ["chat"]}, [H1]),
                ({"resources": ["voice", "chat"], "dataSchemes": ["comm"]}, [H1]),
                ({"dataSchemes": ["comm"]}, [H1, H2]),
                ({"resources": []}, [H1, H2]),
            ):
                self.assertEqual(
                    found, sorted(self.read(resource, criteria=lists)["value"]), (resource, lists)
                )
            self.assertEqual(404, self.read(resource, criteria={"resources": ["fax"]})["code"])

    def test_not_found_is_404_in_the_registrys_words(self) -> None:
        """
        404 in the registry's words, in both fields.
        """
        self.assertEqual({"code": 404, "description": "Not Found", "desc": "Not Found"}, self.read(H1))

    def test_data_objects_of_any_scheme_are_found_by_address(self) -> None:
        """
        Data objects of any scheme are found by address, name and reporter.
        """
        self.ann.register(O1)
        self.ann.register(O2, resources=["video"])

        self.assertEqual((O2, "room"), tuple(self.read(O2)["value"][k] for k in ("url", "name")))
        self.assertEqual({O1, O2}, self.read("room")["value"].keys())
        by_reporter = {"reporter": "hyperty://example.org/h"}
        self.assertEqual({O1, O2}, self.read("/comm", criteria=by_reporter)["value"].keys())
        self.assertEqual(
            {O2}, self.read("/comm", criteria={**by_reporter, "resources": ["video"]})["value"].keys()
        )

    def test_first_runtimes_create_again_and_delete(self) -> None:
        """
        The first runtimes' way: create again to stay, delete to go.
        """
        value = {"user": "user://g.com/a", "hypertyDescriptorURL": "d", "hypertyURL": H1, "expires": 30}
        for _ in range(2):
            self.assertEqual(200, self.ann.code("create", {"value": value}))
        self.assertEqual([H1], list(self.read("user://g.com/a")["value"]))

        self.assertEqual(
            200, self.ann.code("delete", {"value": {"user": "user://g.com/a", "hypertyURL": H1}})
        )

        self.assertEqual(408, self.read("user://g.com/a")["code"])

    def test_what_the_registry_will_not_take_is_said(self) -> None:
        """
        What the registry will not take is said, where it says nothing itself.
        """
        reply = self.ann.request("create", {"value": {"url": O1, "name": "room"}})["body"]

        self.assertEqual(
            (400, "Bad Request: schema, reporter missing"), (reply["code"], reply["description"])
        )

    def test_too_great(self) -> None:
        """
        A number greater than any record holds is refused as the sender's mistake.
        """
        self.ann.register(H1)

        self.assertEqual(400, self.ann.code("update", {"resource": H1, "value": {"expires": 10**30}}))
        self.assertEqual(400, self.ann.register(H2, expires=-(10**30))["code"])

    def test_anothers(self) -> None:
        """
        An address under which another user is registered is not found.
        """
        self.ann.register(H1)

        self.assertEqual(404, self.ann.register(H1, user="eve@example.org")["code"])

    def test_unregister(self) -> None:
        """
        Today's runtimes leave with a word that older connectors took for a keep-alive.
        """
        self.ann.register(H1)

        code = self.ann.code(
            "update", {"resource": f"/hyperty/{H1}", "value": "disconnected", "attribute": "status"}
        )

        self.assertEqual((200, "disconnected"), (code, self.status(H1)))

    def test_what_is_registered_but_away_is_408_with_the_record(self) -> None:
        """
        What is registered but away is 408, with the record.
        """
        self.ann.register(H1, status="disconnected")

        reply = self.read(H1)

        self.assertEqual((408, AWAY, AWAY), (reply["code"], reply["description"], reply["desc"]))
        self.assertEqual(H1, reply["value"]["hypertyID"])

    def test_away_as_500(self) -> None:
        """
        Or 500, which runtimes of today need to see the record at all, also when found by guid and criteria.
        """
        self.node = RegistryNode(registry={"unavailable_code": 500})
        self.ann = self.node.client(ANN)
        self.ann.register(H1, status="disconnected", guid="user-guid://a")

        for reply in (self.read(H1), self.read("user-guid://a", criteria={"resources": "chat"})):
            self.assertEqual((500, AWAY), (reply["code"], reply["description"]))

    def test_keep_alive_revives_a_registration(self) -> None:
        """
        A keep-alive, with a value or without, revives; of what nobody registered it is 404.
        """
        for url in (H1, O1):
            for body in ({}, {"value": {"status": "live"}, "method": "refresh"}):
                self.ann.register(url, status="disconnected")

                self.assertEqual(
                    (200, "live"), (self.ann.code("update", {"resource": url, **body}), self.status(url))
                )
        self.assertEqual(404, self.ann.code("update", {"resource": H2}))

    def test_delete_object(self) -> None:
        """
        A data object is disconnected, by address or by name; of several only one's own.
        """
        self.ann.register(O1)
        self.ann.register(O2, runtime=BOB)
        bob = self.node.client(BOB)

        self.assertEqual(200, bob.code("delete", {"value": {"name": "room"}}))
        self.assertEqual(["live", "disconnected"], [self.status(O1), self.status(O2)])
        self.assertEqual(404, bob.code("delete", {"value": {"name": "room"}}))
        self.assertEqual(404, bob.code("delete", {"value": {"name": "other"}}))
        self.assertEqual(200, bob.code("delete", {"value": {"url": O1}}))
        self.assertEqual("disconnected", self.status(O1))

    def test_odd_addresses(self) -> None:
        """
        An address may have any characters.
        """
        url = "hyperty://example.org/ä/+ö?x=1&y#z%2F"
        self.ann.register(url, user="ann+x@example.org")

        self.assertEqual(url, self.read(url)["value"]["hypertyID"])
        self.assertEqual([url], list(self.read("ann+x@example.org")["value"]))

    def test_long_search(self) -> None:
        """
        A search whose URL is too long for registries is told so.
        """
        criteria = {"resources": ["x" * 100] * 100}

        body = self.ann.request("read", {"resource": "user://x/ann", "criteria": criteria})["body"]

        self.assertEqual((414, "A URL has at most 8192 bytes."), (body["code"], body["description"]))


class NotificationTests(RegistryCase):
    """
    Whoever subscribed `<address>/registration` is told who comes and goes.
    """

    def setUp(self) -> None:
        super().setUp()
        self.bob, self.cleo = (self.node.client(runtime) for runtime in (BOB, "runtime://example.org/cleo"))
        for watcher in (self.bob, self.cleo):
            watcher.subscribe(*(f"{url}/registration" for url in (H1, O1)))
        self.poller = RegistryPoller(self.node.rest, self.node.registry.changed, 5, self.node.clock)
        self.poller.startService()
        self.addCleanup(self.poller.stopService)

    def test_thousands_of_changes_are_told_in_slices(self) -> None:
        """
        Of thousands of changes a hundred are told in a turn, so that others are heard in between.
        """
        rows = {f"comm://example.org/{n}": {"status": "live"} for n in range(3 * CHANGES_PER_TURN + 1)}

        class Told:
            """
            A registry that answers so.
            """

            async def request(self, method: str, path: str) -> Response:
                return Response(200, Headers(), json.dumps(rows).encode(), self)

        told: list[str] = []
        poller = RegistryPoller(Told(), lambda url, status: told.append(url), 5, self.node.clock)
        poller.startService()
        self.addCleanup(poller.stopService)

        self.node.clock.rightNow += 5
        sizes = [0]
        while len(told) < len(rows):
            self.node.clock.turn()
            sizes.append(len(told))

        self.assertEqual(list(rows), told)
        self.assertEqual(CHANGES_PER_TURN, max(after - before for before, after in pairwise(sizes)))

    def told(self) -> list[str]:
        """
        What both watchers were told; they are told the same.
        """
        bob, cleo = self.bob.take(), self.cleo.take()
        self.assertEqual(bob, cleo)
        for message in bob:
            self.assertEqual(
                ("update", REGISTRY, "status"),
                (message["type"], message["from"], message["body"]["attribute"]),
            )
        self.assertEqual(len(bob), len({message["id"] for message in bob}))
        return [f"{message['to']} {message['body']['value']}" for message in bob]

    def update(self, url: str, **body: Any) -> None:
        self.assertEqual(200, self.ann.code("update", {"resource": url, **body}))

    def test_unregistered(self) -> None:
        """
        A status that changed is told at once to all, and again when it changes back.
        """
        self.ann.register(H1)
        self.assertEqual([], self.told())
        for status in ("disconnected", "live"):
            self.update(H1, value=status, attribute="status")

            self.assertEqual([f"{H1}/registration {status}"], self.told())
            self.update(H1, value=status, attribute="status")
            self.assertEqual([], self.told())

    def test_what_expired_is_told_after_the_next_poll_once(self) -> None:
        """
        What expired is told after the next poll, once.
        """
        self.ann.register(H1, expires=2)
        self.ann.register(O1, expires=2)
        self.node.wait(4)
        self.node.records.sweep()
        self.node.wait(1)

        self.assertEqual(
            [f"{O1}/registration disconnected", f"{H1}/registration disconnected"], sorted(self.told())
        )
        self.node.wait(5)
        self.assertEqual([], self.told())

    def test_deleted_registration_is_told(self) -> None:
        """
        So is what was deleted.
        """
        self.ann.register(H1)
        self.ann.code("delete", {"value": {"user": "ann@example.org", "url": H1}})
        self.node.wait(5)

        self.assertEqual([f"{H1}/registration disconnected"], self.told())

    def test_refreshes(self) -> None:
        """
        A keep-alive is no news, unless it brought somebody back.
        """
        self.ann.register(H1)
        self.ann.register(O1)
        for url in (H1, O1):
            self.update(url)
            self.update(url, value={"status": "live"}, method="refresh")
        self.assertEqual([], self.told())

        self.update(H1, value={"status": "disconnected"})
        self.update(H1)

        self.assertEqual([f"{H1}/registration disconnected", f"{H1}/registration live"], self.told())

    def test_data_object_status_is_told_whenever_it_is_set(self) -> None:
        """
        A data object's status is told whenever it is set: the registry does not say whether it changed.
        """
        self.ann.register(O1)
        self.update(O1, value={"status": "disconnected"})
        self.update(O1, value={"status": "live"})

        self.assertEqual([f"{O1}/registration disconnected", f"{O1}/registration live"], self.told())

    def test_registered_again(self) -> None:
        """
        Who was told that somebody left is told that he registered again.
        """
        self.ann.register(H1)
        self.ann.register(H1)
        self.update(H1, value={"status": "disconnected"})
        self.told()

        self.ann.register(H1)

        self.assertEqual([f"{H1}/registration live"], self.told())

    def test_other_statuses(self) -> None:
        """
        No status but live and disconnected is told: runtimes know no other.
        """
        self.ann.register(H1)
        self.update(H1, value={"status": "created"})

        self.assertEqual([], self.told())

    def test_registry_that_cannot_be_asked_is_asked_again(self) -> None:
        """
        A registry that cannot be asked is asked again.
        """
        self.ann.register(H1, expires=2)
        self.node.domain.fault = Fault("html")
        self.node.wait(5)
        self.node.domain.fault = None
        self.node.records.sweep()
        self.node.wait(5)

        self.assertEqual([f"{H1}/registration disconnected"], self.told())

    def test_change_that_nobody_hears_leaves_no_log_line(self) -> None:
        """
        What nobody listens to leaves no line in the traffic log; what somebody does, one.
        """
        self.ann.register(H2)
        lines = self.node.traffic_recorder.messages
        before = len(lines)
        self.update(H2, value={"status": "disconnected"})
        self.assertEqual(before + 1, len(lines))
        self.ann.register(H1)
        self.update(H1, value={"status": "disconnected"})

        (line,) = [line for line in lines if line["to"] == f"{H1}/registration"]
        self.assertEqual(
            ("node", "", "delivered", 2),
            tuple(line[k] for k in ("connector", "session", "outcome", "recipients")),
        )


class NoAnswerTests(RegistryCase):
    """
    Writes that the registry carries out while their answers are lost.
    """

    def setUp(self) -> None:
        super().setUp()
        self.bob = self.node.client(BOB)
        self.bob.subscribe(f"{H1}/registration", f"{O1}/registration")
        self.rest = Deaf(self.node.rest)
        self.registry = add_domain_registry(self.node, self.rest)
        add_disconnector(self.node, self.registry, self.node.clock)

    def told(self) -> list[str]:
        return [f"{message['to']} {message['body']['value']}" for message in self.bob.take()]

    def update(self, code: int = 200, outcome: str = "", url: str = H1, **body: Any) -> None:
        self.rest.outcome = outcome
        self.assertEqual(code, self.ann.code("update", {"resource": url, **body}))
        self.rest.outcome = ""

    def test_repeated_status_is_told_once(self) -> None:
        """
        A status that is said again, because it was not answered, is told: disconnected and live, once each.
        """
        for url in (H1, O1):
            self.ann.register(url)
            for status in ("disconnected", "live"):
                for outcome in ("silent", "unreachable", "nonsense"):
                    code = 502 if outcome == "nonsense" else 504
                    self.update(code, outcome, url, value={"status": status})
                self.assertEqual([], self.told())

                self.update(url=url, value={"status": status})

                self.assertEqual([f"{url}/registration {status}"], self.told())
                if url == H1:
                    self.update(value={"status": status})
                    self.assertEqual([], self.told())

    def test_by_a_balancer(self) -> None:
        """
        So is one of which a balancer said that it waited in vain.
        """
        self.ann.register(H1)
        self.update(504, "504", value={"status": "disconnected"})

        self.update(value={"status": "disconnected"})

        self.assertEqual([f"{H1}/registration disconnected"], self.told())

    def test_revived(self) -> None:
        """
        Who was told that somebody left is told of a return that a keep-alive without an answer brought.
        """
        self.ann.register(H1)
        self.update(value={"status": "disconnected"})
        self.told()
        self.update(504, "silent")

        self.update()

        self.assertEqual([f"{H1}/registration live"], self.told())

    def test_kept_alive(self) -> None:
        """
        A keep-alive that was not answered and is said again is no news.
        """
        self.ann.register(H1)
        for body in ({}, {"value": {"status": "live"}, "method": "refresh"}):
            self.update(504, "silent", **body)
            self.update(**body)

        self.assertEqual([], self.told())

    def test_changed_back(self) -> None:
        """
        What was not carried out, or undone since, is not told.
        """
        self.ann.register(H1)
        self.update(503, "busy", value={"status": "disconnected"})
        self.update(504, "paused", value={"status": "disconnected"})
        self.update(value={"status": "live"})
        self.update(504, "silent", value={"expires": 60})
        self.update(value={"status": "live"})

        self.assertEqual([], self.told())

    def test_at_the_end(self) -> None:
        """
        What a session's end disconnected without an answer is told when the registry answers again.
        """
        self.ann.register(H1)
        self.rest.outcome = "silent"
        self.ann.close()
        self.node.wait(AFTER)
        self.assertEqual([], self.told())
        self.rest.outcome = ""

        self.node.wait(RETRY_SECONDS)

        self.assertEqual([f"{H1}/registration disconnected"], self.told())

    def test_of_those_in_doubt_the_newest_are_remembered_however(self) -> None:
        """
        Of those in doubt the newest are remembered, however many there are.
        """
        status_notifications = StatusNotifications(REGISTRY, lambda message: 0)
        urls = [f"hyperty://example.org/{n}" for n in range(MAX_IN_DOUBT + 1)]
        for url in urls:
            status_notifications.doubt(url, "live")

        self.assertEqual(
            [False] + [True] * MAX_IN_DOUBT, [status_notifications.settle(url, "live") for url in urls]
        )


class Deaf:
    """
    In the place of the registry's client: what is asked is carried out, and the answer lost.
    """

    def __init__(self, rest: BackendClient) -> None:
        self._rest = rest
        self.outcome = ""

    def request(self, *what: Any, **how: Any) -> Deferred[Response]:
        outcome = self.outcome
        if outcome in ("busy", "paused"):
            return fail(Unanswered("no", 503 if outcome == "busy" else 504, outcome))
        return self._rest.request(*what, **how).addCallback(self._lose, outcome)

    @staticmethod
    def _lose(answer: Response, outcome: str) -> Response:
        if outcome == "504":
            return answer._replace(status=504, content=b"<html>")
        if outcome:
            raise Unanswered("lost", 502 if outcome == "nonsense" else 504, outcome)
        return answer


class EndTests(RegistryCase):
    """
    What a session had registered is disconnected when it ends.
    """

    def setUp(self) -> None:
        super().setUp()
        self.bob = self.node.client(BOB)
        self.bob.subscribe(f"{H1}/registration")

    def statuses(self, *urls: str) -> list[str]:
        return [self.bob.request("read", {"resource": url})["body"]["value"]["status"] for url in urls]

    def test_all_of_it_when_it_closes_and_who_listens_is_told(self) -> None:
        """
        All of it, when it closes, and who listens is told.
        """
        self.ann.register(H1)
        self.ann.register(O1)
        self.ann.close()
        self.node.wait(AFTER)

        self.assertEqual(["disconnected"] * 2, self.statuses(H1, O1))
        self.assertEqual(["disconnected"], [message["body"]["value"] for message in self.bob.take()])

    def test_when_it_expires_and_not_while_it_is_only_away(self) -> None:
        """
        When it expires, and not while it is only away.
        """
        self.ann.register(H1, expires=3600)
        self.ann.subscribe("comm://example.org/x")
        self.ann.drop()
        self.node.wait(3000)
        self.assertEqual(["live"], self.statuses(H1))

        self.node.wait(86400)

        self.assertEqual("expired", self.node.traffic_recorder.events[-1][0])
        self.assertEqual(["disconnected"], self.statuses(H1))

    def test_opened_again(self) -> None:
        """
        A runtime that opens its session again soon keeps what it had registered, until that session ends.
        """
        self.ann.register(H1)
        self.ann.close()
        self.node.wait(AFTER - 1)
        again = self.node.client(ANN)
        self.node.wait(AFTER)
        self.assertEqual(["live"], self.statuses(H1))
        again.close()
        self.node.wait(AFTER)

        self.assertEqual(["disconnected"], self.statuses(H1))

    def test_thousands_of_registrations_end_in_slices(self) -> None:
        """
        A session that had registered thousands of addresses ends in slices, and finds all of them again.
        """
        urls = [f"comm://example.org/{n}" for n in range(3 * ADDRESSES)]
        for url in urls:
            self.node.registered.add(url, self.ann.session, anew=True)

        self.ann.close()

        self.assertGreaterEqual(sum(url in self.node.registered for url in urls), ADDRESSES)
        self.node.clock.advance(0)
        self.assertFalse(any(url in self.node.registered for url in urls))
        again = self.node.client(ANN)
        self.node.wait(AFTER)
        self.assertTrue(all(url in self.node.registered for url in urls))
        self.assertEqual(sorted(urls), self.node.registered.ended(again.session))

    def test_registered_in_between(self) -> None:
        """
        What another registers while an ended session is being forgotten is that other's.
        """
        urls = [f"comm://example.org/{n}" for n in range(3 * ADDRESSES)]
        for url in urls:
            self.node.registered.add(url, self.ann.session, anew=True)
        self.ann.close()
        held = [url for url in urls if url in self.node.registered]

        for url in held:
            self.node.registered.add(url, self.bob.session, anew=True)
        self.node.clock.advance(0)

        self.assertEqual(sorted(held), self.node.registered.ended(self.bob.session))

    def test_node_that_stops_waits_for_none_of_this(self) -> None:
        """
        A node that stops waits for none of this.
        """
        self.ann.register(H1)
        farewell = add_disconnector(self.node, self.node.registry, self.node.clock)
        self.ann.close()

        farewell.stopService()

        self.node.wait(AFTER)
        self.assertEqual(["live"], self.statuses(H1))

    def test_left_before(self) -> None:
        """
        What it had taken back, or another session has registered since, is left alone.
        """
        self.ann.register(H1)
        self.ann.register(H2)
        self.ann.request("update", {"resource": H2, "value": {"status": "disconnected"}})
        self.bob.register(H1)
        self.node.journey.clear()
        self.ann.close()
        self.node.wait(AFTER)

        self.assertEqual([], self.node.journey)

    def test_resumed_registration_is_disconnected_at_the_end(self) -> None:
        """
        What a session only resumed is its own too.
        """
        self.ann.register(H1)
        self.ann.close()
        self.node.wait(AFTER)
        again = self.node.client(ANN)
        again.request("update", {"resource": H1, "value": {"status": "live"}})
        self.assertEqual(["live"], self.statuses(H1))
        again.close()
        self.node.wait(AFTER)

        self.assertEqual(["disconnected"], self.statuses(H1))

    def test_registry_that_is_away_then_is_told_when_it_is_back(self) -> None:
        """
        A registry that is away then is told when it is back, unless they are back themselves.
        """
        self.ann.register(H1)
        self.ann.register(H2)
        self.node.memory.refuse = ConnectionRefusedError()
        self.node.memory.cut()
        self.ann.close()
        self.node.wait(AFTER)
        self.node.memory.refuse = None
        self.node.client(ANN).register(H2)

        self.node.wait(RETRY_SECONDS)

        self.assertEqual(["disconnected", "live"], self.statuses(H1, H2))

    def test_node_ends_before(self) -> None:
        """
        What the node could not tell before it ended, it tells after the next start.
        """
        self.ann.register(H1)
        session = self.ann.session
        self.node.registered.ended(session)
        self.node.registered.add_leftover(session.sid, H1)
        farewell = add_disconnector(self.node, self.node.registry, self.node.clock)
        farewell.startService()
        self.addCleanup(farewell.stopService)
        self.node.wait(AFTER)

        self.assertEqual(["disconnected"], self.statuses(H1))

    def test_registry_refuses(self) -> None:
        """
        A registry that answers with an error then is told again.
        """
        self.ann.register(H1)
        self.node.domain.fault = Fault("html")
        self.ann.close()
        self.node.wait(AFTER)
        self.node.domain.fault = None
        self.node.wait(RETRY_SECONDS)

        self.assertEqual(["disconnected"], self.statuses(H1))

    def test_refused_disconnects_are_logged_once(self) -> None:
        """
        However many are refused, and however often, the operator reads it once, and once when all are told.
        """
        said = logged(self)
        self.ann.register(H1)
        self.ann.register(H2)
        self.node.domain.fault = Fault("html")
        self.ann.close()
        self.node.wait(AFTER)
        self.node.wait(RETRY_SECONDS)
        self.node.domain.fault = None
        self.node.wait(RETRY_SECONDS)

        again = "it is repeated until it succeeds"
        expected = [
            f"warn: a disconnection failed at the domain registry: The registry said 500; {again}",
            "info: all pending disconnections were accepted by the domain registry, after 4 failures",
        ]
        self.assertEqual(expected, [line for line in said if "disconnection" in line])

    def test_registration_after_the_sessions_end_is_taken_back(self) -> None:
        """
        A registration that succeeds after its session ended is taken back, as others are.
        """
        self.node.domain.fault = Fault("delay", 2)
        self.ann.post(REGISTRY, "create", body={"value": {"url": H1, "user": "a", "descriptor": "d"}})
        self.node.pump()
        self.node.domain.fault = None
        self.ann.close()
        self.node.wait(2)
        self.assertEqual(["live"], self.statuses(H1))
        self.node.wait(AFTER)

        self.assertEqual(["disconnected"], self.statuses(H1))

    def test_two_hundred_are_told_a_few_at_a_time(self) -> None:
        """
        Two hundred are told a few at a time.
        """
        for number in range(200):
            self.ann.register(f"hyperty://example.org/many/{number}")
        self.node.domain.fault = Fault("hang")
        self.ann.close()
        self.node.wait(AFTER)
        self.assertEqual(10, self.node.rest.under_way)
        self.node.domain.fault = None
        for _ in range(4):
            self.node.wait(5.1)

        (status,) = {record["status"] for record in self.read_all().values()}
        self.assertEqual("disconnected", status)

    def read_all(self) -> dict[str, Any]:
        return self.bob.request("read", {"resource": "ann@example.org"})["body"]["value"]


class FailureTests(RegistryCase):
    """
    A registry that behaves badly.
    """

    def setUp(self) -> None:
        super().setUp()
        self.node.memory.serve = self.scripted
        self.reply = b""

    def scripted(self) -> Scripted:
        server = Scripted()
        server.reply = self.reply
        return server

    def ask(self, reply: bytes, type: str = "read") -> tuple[int, str]:
        """
        What a runtime is told when the registry says this.
        """
        self.reply = reply
        for server in self.node.memory.servers:
            server.reply = reply
        value = {"url": H1, "user": "a", "descriptor": "d"}
        body = self.ann.request(
            type, {"resource": H1, "value": value} if type != "read" else {"resource": H1}
        )["body"]
        self.assertEqual(body["description"], body["desc"])
        return body["code"], body["description"]

    def test_every_status_becomes_a_code_that_runtimes_can_live(self) -> None:
        """
        Every status becomes a code that runtimes can live with.
        """
        for reply, told in (
            (http(b'{"message":"Not Found"}', "404 Not Found"), (404, "Not Found")),
            (http(b"<html>404", "404 Not Found", "text/html"), (404, "Not Found")),
            (http(b"", "400 Bad Request"), (400, "Bad Request")),
            (http(b"", "302 Found"), (401, "Unauthorized")),
            (http(b"Unauthorized request", "401 Unauthorized"), (401, "Unauthorized")),
            (http(b"<html>500", "500 Sorry"), (503, "The registry said 500")),
            (http(b'{"message":"no"}', "503 Sorry"), (503, "no")),
            (http(b"x", "408 Request Timeout"), (408, AWAY)),
        ):
            for type in ("read", "update", "create"):
                if told[0] == 408 and type != "read":
                    continue
                self.assertEqual(told, self.ask(reply, type), reply)

    def test_unauthorized_in_the_log(self) -> None:
        """
        Why a registry may say 401 stands in the log: no certificate, or not the balancer's address.
        """
        events = logged(self)

        self.ask(http(b"Unauthorized request", "401 Unauthorized"), "read")

        (said,) = (text for text in events if "refuses the node's requests" in text)
        self.assertIn("is [registry] cert set", said)
        self.assertIn("LOAD_BALANCER_IP", said)

    def test_that_the_registry_lets_nobody_write_stands_there(self) -> None:
        """
        That the registry lets nobody write stands there once, however many try, and again after it did.
        """
        said = logged(self)
        for _ in range(2):
            for _ in range(3):
                self.ask(http(b"", "302 Found"), "update")
            for server in self.node.memory.servers:
                server.reply = http()
            self.assertEqual(200, self.ann.code("update", {"resource": H1}))

        self.assertEqual(2, sum("refuses the node's requests" in line for line in said))

    def test_traffic_log_has_the_registrys_reason(self) -> None:
        """
        The traffic log has the reason in a word.
        """
        self.ask(http(b"<html>"))
        self.ann.request("read", {})

        lines = self.node.traffic_recorder.messages[-2:]
        self.assertEqual(["back-end", "malformed"], [line["reason"] for line in lines])

    def test_success_that_is_no_json_object_is_502_to_who_reads(self) -> None:
        """
        A success that is no JSON object is 502 to who reads; who writes needs none.
        """
        for reply in (http(b"<html>hello</html>"), http(b"[]"), http(b"")):
            self.assertEqual((502, "Invalid response from the domain registry."), self.ask(reply))
            self.assertEqual(
                200, self.ann.code("create", {"value": {"url": H1, "user": "a", "descriptor": "d"}})
            )

    def test_ten_megabytes_are_502(self) -> None:
        """
        Ten megabytes are 502.
        """
        self.assertEqual(
            (502, "Invalid response from the domain registry."), self.ask(http(b"x" * 10_000_000))
        )

    def test_registry_that_hangs_is_504_after_five_seconds(self) -> None:
        """
        A registry that hangs is 504 after five seconds, and other messages pass meanwhile.
        """
        bob = self.node.client(BOB)
        self.ann.post(REGISTRY, "update", body={"resource": H1})
        self.node.pump()
        bob.post(f"{ANN}/x")
        self.assertEqual(["ping"], [message["type"] for message in self.ann.take()])

        self.node.wait(5.1)

        (reply,) = self.ann.take()
        text = "Error contacting the domain registry."
        self.assertEqual({"code": 504, "description": text, "desc": text}, reply["body"])

    def test_one_that_is_down_is_504_at_once(self) -> None:
        """
        One that is down is 504 at once.
        """
        self.node.memory.refuse = ConnectionRefusedError()

        for _ in range(20):
            self.assertEqual((504, "Error contacting the domain registry."), self.ask(b"", "update"))
        self.assertEqual(10, self.node.memory.dialled)

    def test_json_over_several_lines_comes_as_one(self) -> None:
        """
        JSON over several lines comes as one line, because a connector may send lines.
        """
        self.reply = http(b'{\n "a": "b"\n}')
        self.ann.request("read", {"resource": H1})
        self.ann.post(REGISTRY, "read", body={"resource": H1})
        self.node.pump()

        self.assertNotIn(b"\n", self.ann.raw[0])
