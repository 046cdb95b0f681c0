"""
Subscriptions, in every spelling that runtimes send or sent.
"""

from itertools import pairwise
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.responders.bindings import POLICIES
from msgnode.bus.responders.subscriptions import Subscription
from msgnode.protocol.errors import Blocked
from msgnode.sessions.allocation_keys import key_size
from msgnode.sessions.limits.memory_budget import KEYED, binding_size
from msgnode.sessions.routing import ALLOCATED
from msgnode.structures.time_slices import ADDRESSES
from tests.support.durable import DurableNode
from tests.support.fakes import Client, MemoryNode, directory, peak, refused_codes

SM = "domain://msg-node.example.org/sm"
OBJECT = "comm://example.org/9d2"


class SubscriptionTests(SynchronousTestCase):
    """
    A node and three runtimes.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.node = MemoryNode(**sections)
        self.a, self.b, self.c = (self.node.client(f"runtime://example.org/{name}") for name in "abc")

    def ask(self, client: Client, type: str, body: Any = None) -> dict:
        """
        The body of the reply.
        """
        reply = client.ask(type=type, to=SM, **({} if body is None else {"body": body}))
        expected = {"id": 7, "type": "response", "from": SM, "to": f"{client.runtime}/x"}
        self.assertEqual({**expected, "body": reply["body"]}, reply)
        return reply["body"]

    def grant(self, client: Client, type: str, body: Any) -> None:
        self.assertEqual({"code": 200}, self.ask(client, type, body))

    def assertRefused(self, answer: dict, code: int, text: str = "") -> None:
        desc = answer["desc"]
        self.assertEqual({"code": code, "desc": desc, "description": desc}, answer)
        self.assertIn(text, desc)
        self.assertEqual({code: 1}, refused_codes(self.node.counts))
        line = self.node.traffic_recorder.messages[-1]
        self.assertEqual(("refused", code, None), (line["outcome"], line["code"], line["resources"]))
        self.node.counts.refused.clear()

    def assertBound(self, client: Client, *addresses: str) -> None:
        self.assertEqual(sorted(addresses), sorted(client.session.bindings))


class SubscribeTests(SubscriptionTests):
    """
    `subscribe`
    """

    def test_each_body_that_runtimes_send_names_the_addresses(self) -> None:
        """
        Each body that runtimes send names the addresses it means.
        """
        runtime = "runtime://remote.net/p2prequester/1"
        beside = (OBJECT, f"{OBJECT}/changes", f"{OBJECT}/children/")
        everything = (*beside, f"{OBJECT}/children/n", f"{OBJECT}/n")
        for body, addresses in (
            ({"resources": ["a", "b"], "source": "hyperty://d/1"}, ("a", "b")),
            ({"resources": [f"{OBJECT}/children/"], "source": "x"}, (f"{OBJECT}/children/",)),
            ({"identity": {"userProfile": {}}, "resources": ["a"]}, ("a",)),
            ({"subscribe": ["a"], "source": "runtime://example.org/a"}, ("a",)),
            ({"subscribe": [runtime], "source": "x"}, (runtime,)),
            ({"resource": OBJECT, "childrenResources": ["n"], "schema": "s"}, everything),
            ({"resource": OBJECT, "children": ["n"]}, everything),
            ({"resource": OBJECT, "children": "n"}, everything),
            ({"resource": OBJECT, "children": ["a/b"]}, (*beside, f"{OBJECT}/children/a/b")),
            ({"resource": OBJECT, "children": ["changes"]}, (*beside, f"{OBJECT}/children/changes")),
            ({"resource": OBJECT, "children": ["status"]}, (*beside, f"{OBJECT}/children/status")),
            ({"resource": OBJECT, "children": ["children"]}, (*beside, f"{OBJECT}/children/children")),
            (
                {"resource": OBJECT, "children": ["subscription"]},
                (*beside, f"{OBJECT}/children/subscription"),
            ),
            (
                {"resource": OBJECT, "children": ["registration"]},
                (*beside, f"{OBJECT}/children/registration"),
            ),
            ({"resource": OBJECT, "children": [""]}, beside),
            ({"resource": OBJECT}, (OBJECT, f"{OBJECT}/changes")),
            ({"resources": "a"}, ("a",)),
            ({"subscribe": "a"}, ("a",)),
            ({"resources": [["a"], ["b", ["c"]]]}, ("a", "b", "c")),
            ({"resources": ["a"], "subscribe": ["b"]}, ("a", "b")),
            ({"resources": ["a"], "resource": "b"}, ("a", "b", "b/changes")),
            ({"resource": ["a", "b"]}, ("a", "a/changes", "b", "b/changes")),
            ({"resources": ["a", "a"], "subscribe": ["a"]}, ("a",)),
            ({"resources": []}, ()),
            ({"resources": None, "subscribe": ["a"]}, ("a",)),
        ):
            self.restart()

            self.grant(self.a, "subscribe", body)

            self.assertBound(self.a, *addresses)
            line = self.node.traffic_recorder.messages[-1]
            self.assertEqual(("answered", 200), (line["outcome"], line["code"]))
            self.assertEqual(set(addresses), set(line["resources"]))

    def test_subscribe_type_may_be_in_upper_case(self) -> None:
        """
        The type `subscribe` may be in upper case.
        """
        self.grant(self.a, "SUBSCRIBE", {"resources": ["a"]})
        self.assertBound(self.a, "a")

        self.grant(self.a, "Unsubscribe", {"resources": ["a"]})
        self.assertBound(self.a)

    def test_requester(self) -> None:
        """
        It is the session that asks which is subscribed, whatever `source` and `from` say.
        """
        for source in ({"source": self.b.runtime}, {"source": "hyperty://nobody/1"}, {}):
            reply = self.a.ask(
                type="subscribe",
                to=SM,
                body={"resources": ["x"], **source},
                **{"from": f"{self.b.runtime}/sm"},
            )

            self.assertEqual(f"{self.b.runtime}/sm", reply["to"])
        self.assertBound(self.a, "x")
        self.assertBound(self.b)

    def test_who_subscribes_twice_is_answered_twice_and_hears(self) -> None:
        """
        Who subscribes twice is answered twice and hears once.
        """
        for _ in range(2):
            self.grant(self.a, "subscribe", {"resources": ["x"]})

        self.b.post("x", "update")

        self.assertEqual(1, len(self.a.got))

    def test_it_takes_effect_at_once_for_all_that_comes_behind(self) -> None:
        """
        It takes effect at once, for all that comes behind it.
        """
        self.a.tell({"id": 1, "type": "subscribe", "from": "x", "to": SM, "body": {"resources": ["x"]}})
        self.a.tell({"id": 2, "type": "update", "from": "x", "to": "x"})

        self.assertEqual([1, 2], [message["id"] for message in self.a.got])

    def test_observer_feed_survives_lost_connection_and_re_open(self) -> None:
        """
        An observer keeps its feed across a lost connection and a re-open, whether it repeats it or not.
        """
        self.grant(self.a, "subscribe", {"resources": [f"{OBJECT}/changes"]})
        token = self.a.token
        self.a.drop()
        self.a = self.node.client()

        self.a.reopen(f"runtime://example.org/a/{token}")
        message = self.b.post(f"{OBJECT}/changes", "update")

        self.assertEqual([message], self.a.got)


class UnsubscribeTests(SubscriptionTests):
    """
    `unsubscribe`
    """

    all = (
        OBJECT,
        f"{OBJECT}/changes",
        f"{OBJECT}/children/",
        f"{OBJECT}/children/n",
        f"{OBJECT}/children/m",
        f"{OBJECT}/subscription",
    )

    def test_each_body_that_runtimes_send_ends_what_it_means(self) -> None:
        """
        Each body that runtimes send ends what it means, and nothing more.
        """
        observed = self.all[:3]
        for body, gone in (
            ({"resources": [OBJECT, f"{OBJECT}/changes"]}, self.all[:2]),
            ({"resources": [OBJECT], "source": "hyperty://d/1"}, (OBJECT,)),
            ({"resource": OBJECT, "resources": [f"{OBJECT}/children/"]}, observed),
            ({"resource": OBJECT}, observed),
            ({"resource": OBJECT, "childrenResources": ["n"]}, self.all[:4]),
            ({"resource": OBJECT, "children": ["n", "m"]}, self.all[:5]),
            ({"subscribe": [OBJECT], "source": "x"}, (OBJECT,)),
            ({"unsubscribe": [OBJECT]}, (OBJECT,)),
            ({"unsubscribe": OBJECT}, (OBJECT,)),
            ({"resources": [[OBJECT], [[f"{OBJECT}/changes"]]]}, self.all[:2]),
            ({"resources": [OBJECT], "unsubscribe": [f"{OBJECT}/changes"]}, self.all[:2]),
            ({"resources": []}, ()),
        ):
            self.restart()
            self.grant(self.a, "subscribe", {"resources": list(self.all)})

            self.grant(self.a, "unsubscribe", body)

            self.assertBound(self.a, *(address for address in self.all if address not in gone))

    def test_observer_that_forgets_changes_hears_no_more(self) -> None:
        """
        The observer of today, who forgets /changes, hears no more of the object.
        """
        self.grant(self.a, "subscribe", {"resources": [f"{OBJECT}/changes", f"{OBJECT}/children/"]})

        self.grant(self.a, "unsubscribe", {"resource": OBJECT, "resources": [f"{OBJECT}/children/"]})
        self.b.post(f"{OBJECT}/changes", "update")

        self.assertEqual([], self.a.got)

    def test_only_own(self) -> None:
        """
        Others go on hearing; what one never subscribed is a 200.
        """
        for client in (self.a, self.b):
            self.grant(client, "subscribe", {"resources": ["x"]})

        self.grant(self.a, "unsubscribe", {"resources": ["x", "never"]})
        self.grant(self.c, "unsubscribe", {"resource": "x"})
        self.c.post("x", "update")

        self.assertEqual(([], 1), (self.a.got, len(self.b.got)))

    def test_owner_unsubscribes_and_stays_owner(self) -> None:
        """
        Who unsubscribes its own address is its owner still.
        """
        body = self.a.ask(type="create", to="domain://msg-node.example.org/address-allocation")["body"]
        (address,) = body["value"]["allocated"]
        self.grant(self.a, "subscribe", {"resources": [address]})

        self.grant(self.a, "unsubscribe", {"resources": [address]})

        self.assertBound(self.a, address)

    def test_unsubscribe_of_node_addresses_is_not_refused(self) -> None:
        """
        There is nothing to refuse in ending what cannot be.
        """
        self.grant(self.a, "unsubscribe", {"resources": [SM, "mn:/session", "runtime://example.org/b"]})


class ChildrenTests(SubscriptionTests):
    """
    What was subscribed with an object ends with it.
    """

    with_child = (OBJECT, f"{OBJECT}/changes", f"{OBJECT}/children/", f"{OBJECT}/children/n", f"{OBJECT}/n")

    def subscribe(self, *names: str, **more: Any) -> None:
        self.grant(self.a, "subscribe", {"resource": OBJECT, "childrenResources": list(names), **more})

    def test_child_is_heard_at_both_addresses(self) -> None:
        """
        An observer of an object's child hears what is published at `<object>/<child>` too.
        """
        self.subscribe("n")

        messages = [self.b.post(f"{OBJECT}/{where}", "update") for where in ("n", "children/n", "m")]

        self.assertEqual(messages[:2], self.a.got)

    def test_unsubscribe_of_the_object_alone(self) -> None:
        """
        All children that were subscribed with an object end with it, and no others.
        """
        self.subscribe("n", "m")
        self.grant(self.a, "subscribe", {"resource": "comm://other", "children": "n"})
        others = set(self.a.session.bindings) - {*self.with_child, f"{OBJECT}/m", f"{OBJECT}/children/m"}

        self.grant(self.a, "unsubscribe", {"resource": OBJECT})

        self.assertBound(self.a, *others)
        line = self.node.traffic_recorder.messages[-1]
        self.assertEqual({*self.with_child, f"{OBJECT}/m", f"{OBJECT}/children/m"}, set(line["resources"]))

    def test_unsubscribe_of_one_child(self) -> None:
        """
        Where a child is named, it ends at both addresses, and the others stay.
        """
        self.subscribe("n", "m")

        self.grant(self.a, "unsubscribe", {"resource": OBJECT, "children": ["m"]})

        self.assertBound(self.a, f"{OBJECT}/children/n", f"{OBJECT}/n")

    def test_what_was_subscribed_by_name_stays(self) -> None:
        """
        An address that was subscribed by its own name, before, with or after the object, stays.
        """
        by_name = [f"{OBJECT}/{name}" for name in ("before", "children/with", "after")]
        self.grant(self.a, "subscribe", {"resources": by_name[0]})
        self.subscribe("before", "with", "after", resources=by_name[1])
        self.grant(self.a, "subscribe", {"resources": by_name[2]})

        for body in ({"resource": OBJECT}, {"resource": OBJECT, "children": ["before", "after"]}):
            self.grant(self.a, "unsubscribe", body)

            self.assertBound(self.a, *by_name)

    def test_unsubscribed_by_name_and_subscribed_again(self) -> None:
        """
        A child that was unsubscribed by its address, and subscribed by it again, is no child any more.
        """
        self.subscribe("n")
        for type in ("unsubscribe", "subscribe"):
            self.grant(self.a, type, {"resources": f"{OBJECT}/n"})

        self.grant(self.a, "unsubscribe", {"resource": OBJECT})

        self.assertBound(self.a, f"{OBJECT}/n")

    def test_allocated_stays(self) -> None:
        """
        A child that the session allocated is not freed by unsubscribing its object.
        """
        create = {"scheme": "comm", "childrenResources": ["n"]}
        to = "domain://msg-node.example.org/address-allocation"
        (object,) = self.a.ask(type="create", to=to, body=create)["body"]["value"]["allocated"]
        self.grant(self.a, "subscribe", {"resource": object, "children": ["n"]})

        self.grant(self.a, "unsubscribe", {"resource": object})

        self.assertBound(self.a, object, f"{object}/children/n")

    def test_has_no_owner(self) -> None:
        """
        Who subscribes a child with its object only listens, and takes the address from nobody.
        """
        self.restart(session={"from_check": "refuse"})
        self.subscribe("n")

        refused = self.a.ask(type="update", to="x", **{"from": f"{OBJECT}/n"})
        self.grant(self.b, "subscribe", {"resources": f"{OBJECT}/n"})
        self.b.tell({"id": 9, "type": "update", "from": f"{OBJECT}/n", "to": f"{OBJECT}/n"})

        self.assertEqual(403, refused["body"]["code"])
        self.assertEqual([9], [message["id"] for message in self.a.take()])

    def test_remembered_is_charged(self) -> None:
        """
        What is remembered of children is charged, and given back.
        """
        before = self.node.budget.node.bytes
        for _ in range(2):
            self.subscribe("n", "m")
            bound = sum(map(binding_size, self.a.session.bindings))
            self.assertEqual(before + bound + key_size(OBJECT, 4), self.node.budget.node.bytes)
        many = {"resource": OBJECT, "children": [f"c{number}" for number in range(2 * ADDRESSES)]}
        for type, body in (("subscribe", many), ("unsubscribe", {"resource": OBJECT})):
            self.a.tell({"id": 7, "type": type, "from": "x:y", "to": SM, "body": body})
            self.node.clock.advance(0)

        self.assertEqual([200, 200], [message["body"]["code"] for message in self.a.take()])
        self.assertBound(self.a)
        self.assertEqual(before, self.node.budget.node.bytes)

    def test_subscribe_without_room_for_children_binds_nothing(self) -> None:
        """
        Where there is room for the addresses and not for what is remembered beside, nothing is bound.
        """
        self.restart(limits={"state_bytes_per_session": 8000})
        body = {"resource": "comm://d/1", "children": [f"{number}" for number in range(8)]}

        self.assertRefused(self.ask(self.a, "subscribe", body), 429, "state_bytes_per_session")

        self.assertBound(self.a)

    def test_budget_for_children_that_are_bound_already(self) -> None:
        """
        What is remembered of a child is counted also where the session has its address for another reason.
        """
        routes, names = self.node.routes, [f"{number}" for number in range(8)]
        body = {"resource": "comm://d/1", "children": names}
        self.grant(self.a, "subscribe", {"resource": "comm://d/1", "children": ["0"]})
        for name in names:
            for address in (f"comm://d/1/{name}", f"comm://d/1/children/{name}"):
                routes.bind(address, self.a.session, ALLOCATED)
        room = self.a.session.account.bytes + 14 * KEYED
        self.node.config.limits.state_bytes_per_session = room - 1

        self.assertRefused(self.ask(self.a, "subscribe", body), 429, "state_bytes_per_session")
        self.node.config.limits.state_bytes_per_session = room
        self.grant(self.a, "subscribe", body)

        self.assertEqual(room, self.a.session.account.bytes)

    def test_many_names_of_one_object(self) -> None:
        """
        An object that is named a thousand times ends once, with all its children.
        """
        self.subscribe(*(f"c{number}" for number in range(300)))

        self.grant(self.a, "unsubscribe", {"resource": [OBJECT] * 1000})

        self.assertBound(self.a)
        self.assertEqual(603, len(self.node.traffic_recorder.messages[-1]["resources"]))

    def test_survives_kill(self) -> None:
        """
        A node that was killed still knows what was subscribed with an object.
        """
        node = DurableNode(directory(self), session={"unused_expiry_seconds": 3600})
        a = node.client("runtime://example.org/a")
        for body in ({"resource": OBJECT, "children": ["n", "m"]}, {"resources": f"{OBJECT}/m"}):
            a.tell({"id": 1, "type": "subscribe", "from": "x:y", "to": SM, "body": body})
        node.clock.advance(1)
        charged = node.budget.node.bytes
        node = node.killed()
        self.addCleanup(node.store.shut)
        self.addCleanup(node.spool.close)
        again = node.client()
        self.assertEqual(charged, node.budget.node.bytes)

        again.reopen(f"runtime://example.org/a/{a.token}")
        again.tell({"id": 1, "type": "unsubscribe", "from": "x:y", "to": SM, "body": {"resource": OBJECT}})

        self.assertBound(again, f"{OBJECT}/m")


class RefusedTests(SubscriptionTests):
    """
    What cannot be subscribed: the request takes effect whole or not at all.
    """

    def tearDown(self) -> None:
        self.assertEqual([], self.flushLoggedErrors())

    def test_no_list(self) -> None:
        """
        Without any list it is 400.
        """
        for body in (
            {},
            None,
            {"source": "x"},
            {"children": ["n"]},
            {"resources": None},
            {"Resources": ["a"]},
        ):
            for type in ("subscribe", "unsubscribe"):
                self.assertRefused(self.ask(self.a, type, body), 400, "resources")

    def test_no_texts(self) -> None:
        """
        What is no text in a list is 400, and nothing of it is bound.
        """
        for value in (3, True, {}, [3], ["a", None], ["a", ["b", {}]], 1.5):
            for key in ("resources", "subscribe", "unsubscribe", "resource"):
                for type in ("subscribe", "unsubscribe"):
                    self.assertRefused(self.ask(self.a, type, {key: value}), 400, "is a string, not")
        self.assertRefused(self.ask(self.a, "subscribe", {"resource": "a", "children": [3]}), 400, "child")
        self.assertEqual(0, len(self.node.routes))

    def test_subscribed_address_has_1_to_2048_characters(self) -> None:
        """
        An address has 1 to 2048 characters.
        """
        for address in ("", "x" * 2049):
            self.assertRefused(self.ask(self.a, "subscribe", {"resources": ["a", address]}), 400, "2048")
        self.grant(self.a, "subscribe", {"resources": ["x" * 2048]})
        self.assertBound(self.a, "x" * 2048)

    def test_subscribe_of_node_addresses_is_403(self) -> None:
        """
        The node's own addresses are 403.
        """
        for address in (
            "mn:/session",
            "mn:/x",
            "global://registry",
            "global://registry/",
            "domain://example.org",
            "domain://registry.example.org",
            "domain://registry.example.org/changes",
            SM,
            f"{SM}/x",
        ):
            self.assertRefused(self.ask(self.a, "subscribe", {"resources": ["a", address]}), 403, address)
        self.assertEqual(0, len(self.node.routes))

    def test_other_runtimes(self) -> None:
        """
        What lies at or below another runtime is 403; one's own is granted.
        """
        for below in ("", "/", "/sm", "/a/b/c"):
            address = f"runtime://example.org/b{below}"

            self.assertRefused(self.ask(self.a, "subscribe", {"resources": ["a", address]}), 403, address)
        self.grant(
            self.a, "subscribe", {"resources": ["runtime://example.org/a/x", "runtime://example.org/bb"]}
        )
        self.assertBound(self.a, "runtime://example.org/a/x", "runtime://example.org/bb")

    def test_also_while_that_runtime_is_away(self) -> None:
        """
        Also while that runtime is away, but not when its session is over.
        """
        address = "runtime://example.org/b/x"
        self.b.drop()
        self.assertRefused(self.ask(self.a, "subscribe", {"resources": [address]}), 403)

        self.node.clock.advance(60)

        self.grant(self.a, "subscribe", {"resources": [address]})

    def test_bound_before(self) -> None:
        """
        Who bound it before that runtime opened hears nothing of it from then on.
        """
        for name in ("runtime://example.org/9", "hyperty-runtime://x.net/a/b"):
            addresses = [name, f"{name}/sm", f"{name}/a/b"]
            self.grant(self.a, "subscribe", {"resources": addresses})
            runtime = self.node.client(name)

            for address in addresses:
                self.c.post(address)

            self.assertEqual(([], 3), (self.a.take(), len(runtime.got)))

    def test_bound_before_at_another_name(self) -> None:
        """
        Of a runtime with another scheme the name itself is taken back.
        """
        for name in ("device://example.org/9", "hyper-1"):
            self.grant(self.a, "subscribe", {"resources": [name]})
            runtime = self.node.client(name)

            self.c.post(name)

            self.assertEqual(([], 1), (self.a.take(), len(runtime.got)))

    def test_beyond_what_one_session_may_hold_it_is_429(self) -> None:
        """
        Beyond what one session may hold it is 429; what it holds already is no more.
        """
        self.restart(limits={"bindings_per_session": 2})
        self.grant(self.a, "subscribe", {"resources": ["a", "b"]})

        self.assertRefused(self.ask(self.a, "subscribe", {"resources": ["b", "c"]}), 429)

        self.assertBound(self.a, "a", "b")
        self.grant(self.a, "subscribe", {"resources": ["b", "a"]})
        self.grant(self.a, "unsubscribe", {"resources": ["a"]})
        self.grant(self.a, "subscribe", {"resources": ["c"]})

    def test_only_subscribe_and_unsubscribe_are_understood(self) -> None:
        """
        Only subscribe and unsubscribe are understood.
        """
        for type in ("create", "read", "delete", "ping"):
            self.assertRefused(self.ask(self.a, type, {"resources": ["a"]}), 400, repr(type))


class ManyTests(SubscriptionTests):
    """
    Requests for thousands of addresses.
    """

    def crossed(self, names: int) -> dict[str, list[str]]:
        """
        A body that names so many objects, and as many children of each.
        """
        return {
            "resource": [f"comm://d/{n}" for n in range(names)],
            "childrenResources": [f"c{n}" for n in range(names)],
        }

    def last_line(self) -> tuple[int, list[str] | None]:
        line = self.node.traffic_recorder.messages[-1]
        return line["code"], line["resources"]

    def send(self, type: str, body: dict[str, Any]) -> None:
        self.a.tell({"id": 7, "type": type, "from": f"{self.a.runtime}/x", "to": SM, "body": body})

    def test_crossed_lists_are_refused_by_their_product(self) -> None:
        """
        Two lists that are crossed are refused by what they would make, before it is made.
        """
        body = self.crossed(1000)
        for type in ("subscribe", "unsubscribe"):
            spent = peak(lambda type=type: self.send(type, body))

            self.assertEqual(
                "the request would make 2003000 addresses; one may make 100000",
                self.a.take()[0]["body"]["desc"],
            )
            self.assertEqual((413, None), self.last_line())
            self.assertLess(spent, 1_000_000)
            self.assertBound(self.a)

    def test_crossed_lists_are_refused_by_bytes(self) -> None:
        """
        A few long names and a few short ones make far more bytes than they have; that is refused, too.
        """
        body = {
            "resource": [f"comm://d/{'x' * 1900}/{n}" for n in range(20)],
            "children": [f"{n}" for n in range(1000)],
        }

        answer = self.ask(self.a, "subscribe", body)

        self.assertRefused(answer, 413, "would make 40060 addresses of")
        self.assertBound(self.a)

    def test_bound_by_the_operator(self) -> None:
        """
        How many addresses one request may name or make is the operator's to say.
        """
        self.restart(limits={"addresses_per_request": 5})

        self.grant(self.a, "subscribe", {"resources": ["a", "b", "c", "d", "e"]})
        for body in (
            {"resources": ["1", "2", "3", "4", "5", "6"]},
            {"resources": ["1", "2"], "resource": "o", "children": ["n"]},
        ):
            self.assertRefused(self.ask(self.a, "subscribe", body), 413)

        self.assertBound(self.a, "a", "b", "c", "d", "e")

    def test_one_object_with_many_children(self) -> None:
        """
        What observers of large objects send is taken: one object, and thousands of children.
        """
        body = {"resource": OBJECT, "childrenResources": [f"c{n}" for n in range(3000)]}

        self.send("subscribe", body)
        self.node.clock.advance(0)
        self.assertEqual([200], [message["body"]["code"] for message in self.a.take()])
        self.assertEqual(6003, len(self.a.session.bindings))

        self.send("unsubscribe", body)
        self.node.clock.advance(0)
        self.assertEqual([200], [message["body"]["code"] for message in self.a.take()])
        self.assertBound(self.a)

    def test_in_slices(self) -> None:
        """
        Thousands of addresses are bound some at a time; the answer comes when all are, and order holds.
        """
        many = [f"comm://d/{n}" for n in range(4 * ADDRESSES)]
        bound = []

        self.send("subscribe", {"resources": many})
        self.a.tell(
            {"id": 8, "type": "unsubscribe", "from": "x:y", "to": SM, "body": {"resources": many[:1]}}
        )
        while not self.a.raw:
            bound.append(len(self.a.session.bindings))
            self.node.clock.turn()

        self.assertEqual(0, bound[0])
        self.assertLessEqual(max(after - before for before, after in pairwise(bound)), ADDRESSES)
        self.node.clock.advance(0)
        self.assertEqual([(7, 200), (8, 200)], [(m["id"], m["body"]["code"]) for m in self.a.take()])
        self.assertEqual(set(many[1:]), set(self.a.session.bindings))

    def test_all_or_none_in_slices(self) -> None:
        """
        One address of thousands that may not be bound, and none is.
        """
        self.send("subscribe", {"resources": [*(f"comm://d/{n}" for n in range(3000)), self.b.runtime]})
        self.node.clock.advance(0)

        self.assertEqual([403], [message["body"]["code"] for message in self.a.take()])
        self.assertBound(self.a)

    def test_policies_in_slices(self) -> None:
        """
        The policies are asked about a hundred addresses in a turn, and about all before the first is bound.
        """
        asked: list[str] = []
        so_far: list[int] = []

        class Refusing:
            """
            Policies that refuse one address.
            """

            outward = False

            def check(self, point: str, message: Any, session: Any, count: int = 1) -> None:
                if point == "subscribe":
                    asked.append(message.to)
                    if message.to == "last":
                        raise Blocked("not this one")

        responder = self.node.responders[SM]
        assert isinstance(responder, Subscription)
        responder.policy = Refusing()
        self.send("subscribe", {"resources": [*(f"comm://d/{n}" for n in range(5 * POLICIES)), "last"]})
        while not self.a.raw:
            so_far.append(len(asked))
            self.node.clock.turn()

        self.assertEqual([403], [message["body"]["code"] for message in self.a.take()])
        self.assertEqual(POLICIES, max(after - before for before, after in pairwise(so_far)))
        self.assertEqual(5 * POLICIES + 1, len(asked))
        self.assertBound(self.a)

    def test_room_is_kept(self) -> None:
        """
        Two requests of one session that are bound at once do not take each other's room.
        """
        self.restart(limits={"bindings_per_session": 3000})
        again = self.node.client()
        self.send("subscribe", {"resources": [f"comm://d/{n}" for n in range(2000)]})
        while not self.a.session.bindings:
            self.node.clock.turn()
        again.reopen(f"{self.a.runtime}/{self.a.token}")

        more = {"resources": [f"b:{n}" for n in range(1200)]}
        again.tell({"id": 9, "type": "subscribe", "from": "x:y", "to": SM, "body": more})
        self.node.clock.advance(0)

        self.assertEqual(2000, len(again.session.bindings))
        self.assertIn((9, 429), [(m["id"], m["body"]["code"]) for m in again.take()])

    def test_end_in_between(self) -> None:
        """
        A session that ends while its addresses are bound leaves none behind.
        """
        self.send("subscribe", {"resources": [f"comm://d/{n}" for n in range(4 * ADDRESSES)]})
        while not self.a.session.bindings:
            self.node.clock.turn()

        self.node.sessions.end(self.a.session, "closed")
        self.node.clock.advance(0)

        self.assertEqual(0, len(self.node.routes))

    def test_runtime_that_opens_in_between(self) -> None:
        """
        What a runtime has below its name stays its own, though another was about to bind it.
        """
        below = [f"runtime://example.org/new/{n}" for n in range(3 * ADDRESSES)]
        self.send("subscribe", {"resources": below})
        while not self.a.session.bindings:
            self.node.clock.turn()

        new = self.node.client("runtime://example.org/new")
        self.node.clock.advance(0)

        self.assertBound(self.a)
        self.assertEqual((new.session,), self.node.routes.resolve(below[-1]))

    def test_nothing_but_lists(self) -> None:
        """
        A body that is lists and nothing else is not taken apart: it would cost thirty times its size.
        """
        lists = "[" + ",".join(["[]"] * 200_000) + "]"
        data = (
            f'{{"id":7,"type":"subscribe","from":"x:y","to":"{SM}","body":{{"resources":{lists}}}}}'.encode()
        )

        spent = peak(lambda: self.a.tell(data))

        self.assertEqual([413], [message["body"]["code"] for message in self.a.take()])
        self.assertLess(spent, 4 * len(data))
