"""
Addresses that the node makes up, in every form that runtimes ask for them.
"""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from msgnode.structures.time_slices import ADDRESSES
from tests.support.fakes import Client, MemoryNode, peak, refused_codes

NODE = "domain://msg-node.example.org"
ALLOCATION = f"{NODE}/address-allocation"
HYPERTIES = f"{NODE}/hyperty-address-allocation"
OBJECTS = f"{NODE}/object-address-allocation"
UUID4 = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


class AllocationTests(SynchronousTestCase):
    """
    A node and two runtimes.
    """

    def setUp(self) -> None:
        self.restart()

    def restart(self, **sections: Any) -> None:
        self.node = MemoryNode(**sections)
        self.a, self.b = (self.node.client(f"runtime://example.org/{name}") for name in "ab")

    def ask(self, client: Client, body: Any = None, to: str = ALLOCATION, type: str = "create") -> dict:
        """
        The body of the reply.
        """
        reply = client.ask(type=type, to=to, **({} if body is None else {"body": body}))
        self.assertEqual((7, "response", to), (reply["id"], reply["type"], reply["from"]))
        self.assertEqual(f"{client.runtime}/x", reply["to"])
        return reply["body"]

    def allocate(self, client: Client, body: Any = None, to: str = ALLOCATION) -> list[str]:
        answer = self.ask(client, body, to)
        self.assertEqual({"code": 200, "value": {"allocated": answer["value"]["allocated"]}}, answer)
        return answer["value"]["allocated"]

    def release(self, client: Client, body: Any, to: str = ALLOCATION) -> None:
        self.assertEqual({"code": 200}, self.ask(client, body, to, "delete"))

    def assertRefused(self, answer: dict, code: int) -> None:
        text = answer["desc"]
        self.assertEqual({"code": code, "desc": text, "description": text}, answer)
        self.assertEqual({code: 1}, refused_codes(self.node.counts))
        line = self.node.traffic_recorder.messages[-1]
        self.assertEqual(("refused", code, None), (line["outcome"], line["code"], line["resources"]))
        self.node.counts.refused.clear()

    def heard(self, *addresses: str) -> list[str]:
        """
        Those of the addresses that somebody is bound to.
        """
        return [address for address in addresses if self.node.routes.resolve(address)]


class CreateTests(AllocationTests):
    """
    Every form of the request that runtimes send.
    """

    def test_scheme_and_number_may_be_missing(self) -> None:
        """
        Scheme and number may be missing: a hyperty, and one of it.
        """
        for body, scheme, number in (
            ({"scheme": "comm", "value": {"number": 3, "allocationKey": "k"}}, "comm", 3),
            ({"scheme": "connection", "value": {"number": 1}}, "connection", 1),
            ({"value": {"number": 2}}, "hyperty", 2),
            ({"value": {}}, "hyperty", 1),
            ({"scheme": "object", "value": None}, "object", 1),
            ({"scheme": None}, "hyperty", 1),
            ({"scheme": ""}, "hyperty", 1),
            ({}, "hyperty", 1),
            (None, "hyperty", 1),
        ):
            for to in (ALLOCATION, OBJECTS):
                allocated = self.allocate(self.a, body, to)

                self.assertEqual(number, len(set(allocated)))
                for address in allocated:
                    self.assertRegex(address, f"^{scheme}://example.org/{UUID4}$")

    def test_hyperties(self) -> None:
        """
        At the hyperty address the scheme is always hyperty.
        """
        for body in (
            {"value": {"number": 2}},
            {"scheme": "comm", "value": {"number": 2}},
            {"scheme": 3},
            None,
        ):
            for address in self.allocate(self.a, body, HYPERTIES):
                self.assertRegex(address, f"^hyperty://example.org/{UUID4}$")

    def test_create_type_may_be_in_upper_case(self) -> None:
        """
        The type `create` may be in upper case.
        """
        answer = self.ask(self.a, {"value": {"number": 1}}, type="CREATE")
        self.assertEqual({"code": 200}, self.ask(self.a, {"resource": "x"}, type="DELETE"))

        self.assertEqual(200, answer["code"])

    def test_allocated_address_is_heard_until_the_session_ends(self) -> None:
        """
        What is allocated is heard by who asked, until its session ends.
        """
        (address,) = self.allocate(self.a)
        message = self.b.post(address)
        self.assertEqual([message], self.a.take())

        self.a.close()

        self.assertEqual([], self.heard(address))

    def test_sender_does_not_matter(self) -> None:
        """
        The session that asks gets the addresses, whatever `from` it writes.
        """
        reply = self.a.ask(type="create", to=ALLOCATION, **{"from": "hyperty-runtime://d/protostub/1"})

        (session,) = self.node.routes.resolve(reply["body"]["value"]["allocated"][0])
        self.assertEqual(("hyperty-runtime://d/protostub/1", self.a.session), (reply["to"], session))

    def test_names_of_children_make_channels_below_each_address(self) -> None:
        """
        Names of children make channels below each address.
        """
        body = {"scheme": "comm", "childrenResources": ["message", ["file"]], "value": {"number": 2}}

        for address in self.allocate(self.a, body, OBJECTS):
            channels = [f"{address}/children/{name}" for name in ("message", "file")]
            self.assertEqual(channels, self.heard(*channels, f"{address}/children/"))

    def test_allocated_addresses_are_in_the_traffic_log(self) -> None:
        """
        The addresses stand in the traffic log.
        """
        allocated = self.allocate(self.a, {"value": {"number": 3}})

        line = self.node.traffic_recorder.messages[-1]
        self.assertEqual(("answered", 200, allocated), (line["outcome"], line["code"], line["resources"]))


class RefusedTests(AllocationTests):
    """
    Requests that are refused: nothing is allocated.
    """

    def tearDown(self) -> None:
        self.assertEqual([], self.flushLoggedErrors())

    def test_number_to_allocate_is_1_to_the_maximum(self) -> None:
        """
        A number is an integer from 1 to the maximum; all else is 400.
        """
        for number in (0, -1, 1e9, "3", 1001, 10**9, 2**70, 1.0, True, None, [1], {}):
            answer = self.ask(self.a, {"value": {"number": number}})

            self.assertRefused(answer, 400)
            self.assertTrue(answer["desc"].startswith("'number' must be an integer from 1 to 1000, not "))
        self.assertEqual(0, len(self.node.routes))

    def test_maximum_of_one_request_can_be_set_and_is_granted(self) -> None:
        """
        The maximum of one request can be set, and is granted.
        """
        self.restart(allocation={"per_request": 3})

        self.assertEqual(3, len(self.allocate(self.a, {"value": {"number": 3}})))
        self.assertRefused(self.ask(self.a, {"value": {"number": 4}}), 400)

    def test_most_of_session(self) -> None:
        """
        Beyond what one session may hold it is 429, and none of the request is granted.
        """
        self.restart(limits={"bindings_per_session": 5})
        self.allocate(self.a, {"value": {"number": 3}})

        self.assertRefused(self.ask(self.a, {"value": {"number": 3}}), 429)

        self.assertEqual(3, len(self.node.routes))
        self.allocate(self.a, {"value": {"number": 2}})
        self.allocate(self.b, {"value": {"number": 5}})

    def test_freed_addresses_make_room_in_the_session(self) -> None:
        """
        What is given back makes room.
        """
        self.restart(limits={"bindings_per_session": 2})
        addresses = self.allocate(self.a, {"value": {"number": 2}})
        self.assertRefused(self.ask(self.a), 429)

        self.release(self.a, {"childrenResources": addresses})

        self.allocate(self.a, {"value": {"number": 2}})

    def test_value_that_is_no_object_a_key_that_is_no_text(self) -> None:
        """
        A value that is no object, a key that is no text, a scheme that is none, children that are no names.
        """
        for body in (
            {"value": 3},
            {"value": []},
            {"value": "x"},
            {"value": {"allocationKey": 3}},
            {"value": {"allocationKey": ["k"]}},
            {"value": {"allocationKey": "k" * 2049}},
            {"scheme": 3},
            {"scheme": ["comm"]},
            {"scheme": "Comm"},
            {"scheme": "a b"},
            {"scheme": "comm://"},
            {"scheme": "../x"},
            {"childrenResources": [3]},
            {"childrenResources": {}},
        ):
            self.assertRefused(self.ask(self.a, body), 400)
        self.assertEqual(0, len(self.node.routes))

    def test_node_schemes(self) -> None:
        """
        The schemes of the node's own addresses are not given away.
        """
        for scheme in ("mn", "global", "domain"):
            self.assertRefused(self.ask(self.a, {"scheme": scheme}), 403)
        self.assertEqual(0, len(self.node.routes))

    def test_long_child(self) -> None:
        """
        A child's name that makes an address too long is refused, with everything.
        """
        self.assertRefused(self.ask(self.a, {"scheme": "comm", "childrenResources": ["x" * 2048]}), 400)

        self.assertEqual(0, len(self.node.routes))

    def test_only_create_and_delete_are_understood(self) -> None:
        """
        Only create and delete are understood.
        """
        for type in ("read", "execute", "subscribe", "ping"):
            self.assertRefused(self.ask(self.a, {}, type=type), 400)


class DeleteTests(AllocationTests):
    """
    Every form of the request that runtimes send: always a bare 200.
    """

    def test_address_may_stand_alone_in_a_list_in_lists_in_lists(self) -> None:
        """
        An address may stand alone, in a list, in lists in lists, in either field, at each of the addresses.
        """
        for to in (ALLOCATION, HYPERTIES, OBJECTS):
            for spell in (
                lambda a, b, c: {"childrenResources": [a, b, c]},
                lambda a, b, c: {"childrenResources": [[a, b, c]]},
                lambda a, b, c: {"childrenResources": [a, [b, [c]]]},
                lambda a, b, c: {"resource": [a, b, c]},
                lambda a, b, c: {"resource": [[a], b], "childrenResources": c},
                lambda a, b, c: {"resource": a, "childrenResources": [b, c], "attribute": "x"},
            ):
                addresses = self.allocate(self.a, {"scheme": "comm", "value": {"number": 3}})

                self.release(self.a, spell(*addresses), to)

                self.assertEqual([], self.heard(*addresses))

    def test_delete_resource_may_be_the_address_itself(self) -> None:
        """
        `resource` may be the address itself.
        """
        (address,) = self.allocate(self.a)

        self.release(self.a, {"resource": address})

        self.assertEqual([], self.heard(address))
        self.assertEqual([address], self.node.traffic_recorder.messages[-1]["resources"])

    def test_key_stands_for_all_that_was_allocated_under(self) -> None:
        """
        A key stands for all that was allocated under it, alone or in a list, also over a new connection.
        """
        for spell in (lambda key: {"resource": key}, lambda key: {"resource": [key]}):
            body = {"scheme": "comm", "value": {"number": 2, "allocationKey": "k"}}
            addresses = self.allocate(self.a, body) + self.allocate(self.a, body)
            (other,) = self.allocate(self.a, {"value": {"number": 1, "allocationKey": "k2"}})
            self.a.drop()
            self.a = self.node.client(self.a.runtime)

            self.release(self.a, spell("k"))

            self.assertEqual([other], self.heard(*addresses, other))
            self.release(self.a, spell("k"))
            self.release(self.a, spell("k2"))
        self.assertEqual(0, len(self.node.routes))

    def test_keys_are_the_sessions(self) -> None:
        """
        Two sessions may use the same key; each frees its own.
        """
        body = {"value": {"number": 1, "allocationKey": "k"}}
        (mine,), (theirs,) = self.allocate(self.a, body), self.allocate(self.b, body)

        self.release(self.b, {"resource": "k"})

        self.assertEqual([mine], self.heard(mine, theirs))

    def test_key_of_freed(self) -> None:
        """
        A key does not free what was freed already and belongs to another by now.
        """
        (address,) = self.allocate(self.a, {"value": {"allocationKey": "k"}})
        self.release(self.a, {"resource": address})
        self.b.subscribe(address)

        self.release(self.a, {"resource": "k"})

        self.assertEqual([address], self.heard(address))

    def test_deleted_object_goes_with_its_channels(self) -> None:
        """
        An object that its owner deletes goes with its channels, named by the names of its children.
        """
        address = "comm://example.org/9d2"
        beside = [f"{address}{end}" for end in ("/subscription", "/changes", "/children/", "/children/chat")]
        self.a.subscribe(address, *beside, f"{address}/children/kept")

        self.release(self.a, {"resource": address, "childrenResources": ["chat"]}, OBJECTS)

        self.assertEqual(
            [f"{address}/children/kept"], self.heard(address, *beside, f"{address}/children/kept")
        )

    def test_object_of_another(self) -> None:
        """
        An object's observer who deletes it loses nothing, nor does the owner.
        """
        address = "comm://example.org/9d2"
        self.a.subscribe(address, f"{address}/subscription")
        self.b.subscribe(f"{address}/changes")

        self.release(self.b, {"resource": address}, OBJECTS)

        bound = [address, f"{address}/subscription", f"{address}/changes"]
        self.assertEqual(bound, self.heard(*bound))

    def test_somebody_else_address_is_a_200_and_nothing_is_freed(self) -> None:
        """
        Somebody else's address is a 200, and nothing is freed.
        """
        addresses = self.allocate(self.a, {"scheme": "comm", "value": {"number": 2, "allocationKey": "k"}})

        for body in ({"resource": addresses}, {"childrenResources": [addresses]}, {"resource": "k"}):
            self.release(self.b, body)

        self.assertEqual(addresses, self.heard(*addresses))

    def test_what_nobody_knows_is_a_200_and_so_is_nothing(self) -> None:
        """
        What nobody knows is a 200, and so is nothing at all in either field.
        """
        for body in ({"resource": "x"}, {"resource": []}, {"childrenResources": [[]]}, {"resource": None}):
            self.release(self.a, body)

    def test_neither(self) -> None:
        """
        Without either field it is 400.
        """
        for body in ({}, None, {"value": {"allocationKey": "k"}}, {"resources": ["x"]}):
            self.assertRefused(self.ask(self.a, body, type="delete"), 400)

    def test_no_names(self) -> None:
        """
        What is no text in a list is 400, and nothing is freed.
        """
        (address,) = self.allocate(self.a)
        for body in ({"resource": [address, 3]}, {"childrenResources": [address, {}]}, {"resource": 3}):
            self.assertRefused(self.ask(self.a, body, type="delete"), 400)

        self.assertEqual([address], self.heard(address))

    def test_keys_leave_nothing_when_freed_by_address(self) -> None:
        """
        A session that allocates under keys and frees by address, for ever, keeps nothing of it.
        """
        for n in range(300):
            (address,) = self.allocate(self.a, {"value": {"allocationKey": "same" if n % 2 else f"key {n}"}})
            self.release(self.a, {"resource": address})

        self.assertEqual(0, len(self.a.session.keys))


class ManyTests(AllocationTests):
    """
    Requests for thousands of addresses.
    """

    def send(self, body: dict[str, Any], type: str = "create", client: Client | None = None) -> None:
        client = client or self.a
        client.tell({"id": 7, "type": type, "from": f"{client.runtime}/x", "to": ALLOCATION, "body": body})

    def codes(self) -> list[int]:
        self.node.clock.advance(0)
        return [message["body"]["code"] for message in self.a.take()]

    def test_addresses_with_children_are_refused_by_their_product(self) -> None:
        """
        Addresses with children are refused by how many they would be together, before they are made.
        """
        body = {"value": {"number": 1000}, "childrenResources": [f"c{n}" for n in range(1000)]}

        spent = peak(lambda: self.send(body))

        self.assertIn("would make 1001000 addresses; one may make 100000", self.a.take()[0]["body"]["desc"])
        self.assertLess(spent, 1_000_000)
        self.assertEqual({}, self.a.session.bindings)

    def test_long_child_names_are_refused_by_bytes(self) -> None:
        """
        So are long names of children, by how many bytes that would be.
        """
        self.send({"value": {"number": 1000}, "childrenResources": ["c" * 1500]})

        self.assertEqual([413], self.codes())
        self.assertEqual({}, self.a.session.bindings)

    def test_create_in_slices(self) -> None:
        """
        Thousands of children are bound some at a time, and all are bound when the answer comes.
        """
        self.send({"value": {"number": 1000, "allocationKey": "k"}, "childrenResources": ["a", "b"]})
        self.assertEqual([], self.a.take())
        self.node.clock.advance(0)

        allocated = self.a.take()[0]["body"]["value"]["allocated"]

        self.assertEqual(1000, len(allocated))
        self.assertEqual(3000, len(self.a.session.bindings))
        self.send({"resource": "k", "childrenResources": ["a", "b"]}, "delete")
        self.assertEqual([200], self.codes())
        self.assertEqual({}, self.a.session.bindings)

    def test_pool_in_slices(self) -> None:
        """
        What is being leased to one session is not leased to another meanwhile.
        """
        self.restart(pools={"sip": {"scheme": "sip", "pattern": "sip:{1..700}@d"}})
        self.send({"scheme": "sip", "value": {"number": 600}, "childrenResources": ["a"]})
        self.assertEqual([], self.a.take())

        self.send({"scheme": "sip", "value": {"number": 101}}, client=self.b)
        self.send({"scheme": "sip", "value": {"number": 100}}, client=self.b)

        self.assertEqual([503, 200], [message["body"]["code"] for message in self.b.take()])
        self.assertEqual([200], self.codes())
        leased = [*self.a.session.bindings, *self.b.session.bindings]
        self.assertEqual(700, len({address for address in leased if "/" not in address}))

    def test_delete_of_what_is_not_there(self) -> None:
        """
        A delete of thousands of names and one address costs no more than what the session holds.
        """
        (address,) = self.allocate(self.a)
        names = [f"c{n}" for n in range(20_000)]
        self.a.subscribe(f"{address}/children/c17", f"{address}/children/other", "a/children/c17")

        spent = peak(lambda: self.send({"resource": [address, *names]}, "delete"))

        self.assertEqual([200], self.codes())
        self.assertEqual({f"{address}/children/other", "a/children/c17"}, set(self.a.session.bindings))
        self.assertLess(spent, 10_000_000)

    def test_delete_by_many_keys(self) -> None:
        """
        All of many keys are freed by one request, some at a time, though each might name a child of each.
        """
        keys = [f"k{n}" for n in range(2 * ADDRESSES)]
        for key in keys:
            self.allocate(self.a, {"value": {"number": 2, "allocationKey": key}, "childrenResources": ["k1"]})
        held = []

        self.send({"childrenResources": keys}, "delete")
        while not self.a.raw:
            held.append(len(self.a.session.bindings))
            self.node.clock.turn()

        self.assertGreater(len(held), 4)
        self.assertEqual([200], self.codes())
        self.assertEqual(({}, 0), (self.a.session.bindings, len(self.a.session.keys)))

    def test_names_that_look_like_paths(self) -> None:
        """
        A child whose own name has `/children/` in it is found as well, however much there is to look through.
        """
        (address,) = self.allocate(self.a, {"childrenResources": ["a/children/b"]})
        names = [f"c{n}" for n in range(10)]

        self.send({"resource": [address, "a/children/b", *names]}, "delete")

        self.assertEqual([200], self.codes())
        self.assertEqual({}, self.a.session.bindings)
