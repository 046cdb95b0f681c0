"""
Foreign pools: finite addresses, leased to one session at a time.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.responders.allocation import Pool
from msgnode.config.address_range import MAX_ADDRESSES, expand
from msgnode.protocol.errors import Rejected
from msgnode.structures.time_slices import ADDRESSES
from tests.bus.responders.test_allocation import ALLOCATION, AllocationTests
from tests.support.made_policies import rule, use


class ExpandTests(SynchronousTestCase):
    """
    A pattern of addresses.
    """

    def test_range_stands_for_each_of_its_numbers(self) -> None:
        """
        A range stands for each of its numbers, with leading zeros where it has them.
        """
        self.assertEqual(["sip:guest1@d", "sip:guest2@d", "sip:guest3@d"], expand("sip:guest{1..3}@d"))
        self.assertEqual(["a08", "a09", "a10"], expand("a{08..10}"))
        self.assertEqual(["a9", "a10"], expand("a{9..10}"))
        self.assertEqual(["7"], expand("{7..7}"))
        self.assertEqual(["a0b", "a1b"], expand("a{0..1}b"))

    def test_no_range_two_of_them_one_that_goes_down_one_too(self) -> None:
        """
        No range, two of them, one that goes down, one too large: each is told.
        """
        for pattern in ("", "sip:guest@d", "{1..2}{1..2}", "{a..b}", "{1-3}", "{..3}"):
            self.assertIn(repr(pattern), str(self.assertRaises(ValueError, expand, pattern)))
        for pattern in ("{3..1}", f"{{1..{MAX_ADDRESSES + 1}}}", "{0..99999999999999999999}"):
            self.assertIn(pattern, str(self.assertRaises(ValueError, expand, pattern)))
        self.assertEqual(MAX_ADDRESSES, len(expand(f"{{1..{MAX_ADDRESSES}}}")))


class FreeTests(SynchronousTestCase):
    """
    Which addresses are leased next.
    """

    def test_pool_goes_round_past_what_is_leased(self) -> None:
        """
        The pool goes round, past what is leased, so that one just returned is the last to be leased again.
        """
        pool, leased = Pool(["a", "b", "c", "d"]), {"b"}

        self.assertEqual(["a", "c"], pool.free(2, leased.__contains__))
        self.assertEqual(["d"], pool.free(1, leased.__contains__))
        self.assertEqual(["a", "c", "d"], pool.free(3, leased.__contains__))

    def test_pool_with_too_few_left_does_not_move(self) -> None:
        """
        With too few left it is 503, and the turn does not move.
        """
        pool = Pool(["a", "b"])

        why = self.assertRaises(Rejected, pool.free, 2, {"b"}.__contains__)

        self.assertEqual(503, why.code)
        self.assertEqual(["a"], pool.free(1, {"b"}.__contains__))

    def test_looks_once(self) -> None:
        """
        What was found leased is not asked about again, until it is returned, however often it is wanted.
        """
        pool, asked = Pool([f"a{n}" for n in range(1000)]), []

        def is_leased(address: str) -> bool:
            asked.append(address)
            return address != "a7" or len(asked) > 1000

        self.assertRaises(Rejected, pool.free, 2, is_leased)
        self.assertEqual(1000, len(asked))
        for _ in range(100):
            self.assertRaises(Rejected, pool.free, 2, is_leased)

        self.assertEqual(1001, len(asked))
        pool.returned("a8")
        pool.returned("elsewhere")
        self.assertEqual(["a8"], pool.free(1, lambda address: False))

    def test_mostly_leased_pool_is_searched_in_slices(self) -> None:
        """
        A pool of which most is leased is looked through in slices, and offers what is free meanwhile.
        """
        pool, asked = Pool([f"a{n}" for n in range(10 * ADDRESSES)]), [0]

        def is_leased(address: str) -> bool:
            asked[-1] += 1
            return address not in ("a3", f"a{10 * ADDRESSES - 1}")

        for _ in pool.skip_leased(2, is_leased):
            asked.append(0)
            if len(asked) == 3:
                self.assertEqual(["a3"], pool.free(1, lambda address: False))

        self.assertGreater(len(asked), 9)
        self.assertLessEqual(max(asked), ADDRESSES + 2)
        self.assertEqual(["a3", f"a{10 * ADDRESSES - 1}"], sorted(pool.free(2, is_leased)))


class LeaseTests(AllocationTests):
    """
    Allocation from a pool.
    """

    def restart(self, **sections: Any) -> None:
        pools = {
            "ims": {"scheme": "sip", "pattern": "sip:guest{1..3}@example.org"},
            "desk": {"scheme": "tel", "addresses": ["tel:+351100", "tel:+351200"]},
        }
        super().restart(**{"pools": pools, **sections})

    def lease(self, client: Any, number: int, scheme: str = "sip") -> list[str]:
        return self.allocate(client, {"scheme": scheme, "value": {"number": number}})

    def test_pool_address_is_leased_once_and_heard(self) -> None:
        """
        The addresses are those of the pool, each leased once, and heard by who leased them.
        """
        self.assertEqual(["sip:guest1@example.org", "sip:guest2@example.org"], self.lease(self.a, 2))
        self.assertEqual(["sip:guest3@example.org"], self.lease(self.b, 1))
        self.assertEqual(["tel:+351100", "tel:+351200"], self.lease(self.b, 2, "tel"))

        self.b.post("sip:guest1@example.org")

        self.assertEqual(1, len(self.a.got))

    def test_other_schemes(self) -> None:
        """
        Every other scheme is made up as ever, and the hyperty address knows no pools.
        """
        self.assertRegex(self.lease(self.a, 1, "comm")[0], "^comm://")
        hyperties = "domain://msg-node.example.org/hyperty-address-allocation"
        self.assertRegex(self.allocate(self.a, {"scheme": "sip"}, hyperties)[0], "^hyperty://")

    def test_allocation_from_a_pool_with_too_few_is_503(self) -> None:
        """
        When too few are left it is 503, and none is leased.
        """
        self.lease(self.a, 2)

        self.assertRefused(self.ask(self.b, {"scheme": "sip", "value": {"number": 2}}), 503)

        self.assertEqual(2, len(self.node.routes))
        self.lease(self.b, 1)
        self.assertRefused(self.ask(self.b, {"scheme": "sip"}), 503)

    def test_leased_address_is_free_when_given_back_or_session_ends(self) -> None:
        """
        They are free again when given back, when the session closes, and when it expires.
        """
        for give_back in (
            lambda leased: self.release(self.a, {"childrenResources": leased}),
            lambda leased: self.a.close(),
            lambda leased: (self.a.drop(), self.node.clock.advance(86400)),
        ):
            self.restart()
            leased = self.lease(self.a, 3)
            self.assertRefused(self.ask(self.b, {"scheme": "sip"}), 503)

            give_back(leased)

            self.assertEqual(sorted(leased), sorted(self.lease(self.b, 3)))

    def test_session_that_is_away_keeps_its_leases(self) -> None:
        """
        A session that lost its connection keeps its leases.
        """
        self.lease(self.a, 3)
        self.a.drop()
        self.node.clock.advance(3600)

        self.assertRefused(self.ask(self.b, {"scheme": "sip"}), 503)

    def test_who_merely_listens_at_an_address_of_the_pool_does(self) -> None:
        """
        Who merely listens at an address of the pool does not hold it.
        """
        for n in (1, 2, 3):
            self.b.subscribe(f"sip:guest{n}@example.org")

        self.assertEqual(3, len(self.lease(self.a, 3)))
        self.a.close()
        self.assertEqual(3, len(self.lease(self.b, 3)))

    def test_full_session(self) -> None:
        """
        A session that may hold no more leases none.
        """
        self.restart(limits={"bindings_per_session": 2})

        self.assertRefused(self.ask(self.a, {"scheme": "sip", "value": {"number": 3}}), 429)

        self.lease(self.a, 1)
        self.lease(self.b, 2)

    def test_again_and_again(self) -> None:
        """
        An address that was leased, freed, leased and given up with its session is there for the next one.
        """
        for _ in range(3):
            leased = self.lease(self.a, 3)
            self.assertEqual(503, self.ask(self.b, {"scheme": "sip", "value": {"number": 1}})["code"])
            self.release(self.a, {"resource": leased[:2]})
            self.assertEqual(503, self.ask(self.b, {"scheme": "sip", "value": {"number": 3}})["code"])
            self.assertEqual(sorted(leased[:2]), sorted(self.lease(self.b, 2)))
            self.release(self.b, {"resource": leased[:2]})
            self.a.close()
            self.a = self.node.client("runtime://example.org/a")

    def test_what_a_request_was_to_lease_that_is_refused(self) -> None:
        """
        What a request was to lease that is refused in the end is free.
        """
        body = {"scheme": "sip", "value": {"number": 3}, "childrenResources": ["x" * 2048]}
        for _ in range(2):
            self.assertEqual(400, self.ask(self.a, body)["code"])

        self.assertEqual(3, len(self.lease(self.b, 3)))


class ShareTests(AllocationTests):
    """
    How many addresses of a pool one session has.
    """

    def lease(self, client: Any, number: int) -> dict:
        return self.ask(client, {"scheme": "sip", "value": {"number": number}})

    def test_one_session_does_not_lease_the_whole_pool(self) -> None:
        """
        With `per_session` a session is refused more addresses than that, in one request or several; others
        get theirs, and what it returns counts no more.
        """
        ims = {"scheme": "sip", "pattern": "sip:guest{1..4}@example.org", "per_session": 2}
        self.restart(pools={"ims": ims})
        self.b.subscribe("sip:guest3@example.org", "sip:guest4@example.org")  # which is no lease

        refused = self.lease(self.a, 3)
        codes = [self.lease(self.a, 1)["code"] for _ in range(3)]
        self.assertEqual(200, self.lease(self.b, 2)["code"])
        self.release(self.a, {"resource": ["sip:guest1@example.org"]})

        self.assertEqual((429, [200, 200, 429]), (refused["code"], codes))
        self.assertEqual("a session has at most 2 addresses of the pool ims", refused["desc"])
        self.assertEqual(200, self.lease(self.a, 1)["code"])

    def test_refused_requests_count_nothing(self) -> None:
        """
        A request that is refused leaves nothing of the share of its session.
        """
        self.restart(pools={"ims": {"scheme": "sip", "addresses": ["sip:1", "sip:2"], "per_session": 2}})
        self.lease(self.b, 1)

        codes = [self.lease(self.a, 2)["code"] for _ in range(3)]

        self.assertEqual(([503] * 3, 200), (codes, self.lease(self.a, 1)["code"]))


class LeaserTests(AllocationTests):
    """
    Pools for some clients.
    """

    def lease(self, clients: str, identity: str) -> int:
        """
        The code of the answer to a client with this identity, where the pool is for such clients.
        """
        self.restart(pools={"ims": {"scheme": "sip", "addresses": ["sip:guest@example.org"], "for": clients}})
        self.a.identity = identity
        return self.ask(self.a, {"scheme": "sip"})["code"]

    def test_who_may_lease(self) -> None:
        """
        A pool is for anybody, for clients that the node has authenticated, or for the others.
        """
        for clients, guest, user in (("anybody", 200, 200), ("verified", 403, 200), ("unverified", 200, 403)):
            self.assertEqual((guest, user), (self.lease(clients, ""), self.lease(clients, "ann@example.org")))

    def test_a_change_of_identity_ends_no_lease(self) -> None:
        """
        The identity counts when an address is leased: a client that logs in then, or whose login ends, keeps
        it, and gets no other.
        """
        for clients, before, after in (
            ("unverified", "", "ann@example.org"),
            ("verified", "ann@example.org", ""),
        ):
            self.lease(clients, before)
            self.a.identity = after
            self.assertEqual(403, self.ask(self.a, {"scheme": "sip"})["code"], clients)
            self.assertTrue(self.node.allocation.is_leased("sip:guest@example.org"), clients)

    def test_refusal_names_the_pool(self) -> None:
        """
        The refusal says for whom the pool is, and the address stays free.
        """
        self.lease("verified", "")
        answer = self.ask(self.a, {"scheme": "sip"})
        self.assertEqual("the pool ims is for clients that the node has authenticated", answer["desc"])
        self.assertFalse(self.node.allocation.is_leased("sip:guest@example.org"))

    def test_policy_decides_by_pool_and_account(self) -> None:
        """
        A rule may name the pool, and whether the client has an account.
        """
        self.lease("anybody", "")
        self.ask(self.a, {"resource": "sip:guest@example.org"}, type="delete")
        both = {"pool": {"equals": "ims"}, "account": {"exists": True}}
        use(self.node, rule("deny", both))
        self.assertEqual(200, self.ask(self.a, {"scheme": "sip"})["code"])
        self.a.identity = "ann@example.org"

        self.assertEqual(403, self.ask(self.a, {"scheme": "sip"})["code"])
        self.assertEqual(200, self.ask(self.a, {"scheme": "comm"})["code"])


class Leases:
    """
    The leases of a domain of several nodes, which the test grants (PoolLeases).
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.granted: Deferred[list[str]] = Deferred()

    def lease(self, scheme: str, number: int) -> Deferred[list[str]]:
        self.asked.append((scheme, number))
        return self.granted


class ClusterLeaseTests(AllocationTests):
    """
    Allocation from a pool that other nodes of the domain have, too.
    """

    def setUp(self) -> None:
        self.restart(pools={"ims": {"scheme": "sip", "pattern": "sip:guest{1..3}@example.org"}})
        self.leases = self.node.allocation.leases = Leases()

    def want(self, client: Any, number: int = 1) -> None:
        body = {"scheme": "sip", "value": {"number": number}}
        client.tell(
            {"id": 7, "type": "create", "from": f"{client.runtime}/x", "to": ALLOCATION, "body": body}
        )
        self.node.clock.advance(0)

    def test_owner_of_the_pool_says_which_addresses(self) -> None:
        """
        The owner of the pool says which addresses; they are bound, and the client is answered, then.
        """
        self.want(self.a, 2)
        self.assertEqual(([("sip", 2)], []), (self.leases.asked, self.a.take()))

        self.leases.granted.callback(["sip:guest3@example.org", "sip:guest1@example.org"])
        self.node.clock.pump([0] * 5)

        self.assertEqual(["sip:guest3@example.org", "sip:guest1@example.org"], self.allocated(self.a))
        self.assertEqual(2, len(self.heard("sip:guest1@example.org", "sip:guest3@example.org")))

    def allocated(self, client: Any) -> list[str]:
        [answer] = client.take()
        found: list[str] = answer["body"]["value"]["allocated"]
        return found

    def test_refusal_of_the_owner_is_that_of_the_client(self) -> None:
        """
        A refusal of the owner is the client's.
        """
        self.want(self.a)
        self.leases.granted.errback(Rejected("n2 cannot be asked", 503, "no-path"))
        self.node.clock.pump([0] * 5)

        [answer] = self.a.take()
        self.assertEqual((503, "n2 cannot be asked"), (answer["body"]["code"], answer["body"]["desc"]))

    def test_session_that_ended_meanwhile_gets_nothing(self) -> None:
        """
        A session that ended while the owner was asked gets nothing, and no address stays bound to it.
        """
        self.want(self.a)
        self.a.close()

        self.leases.granted.callback(["sip:guest1@example.org"])
        self.node.clock.pump([0] * 5)

        self.assertEqual([], self.heard("sip:guest1@example.org"))
        self.assertFalse(self.node.allocation.is_leased("sip:guest1@example.org"))

    def test_lost_address_is_unbound(self) -> None:
        """
        An address that another node has leased meanwhile is taken from its session.
        """
        self.want(self.a)
        self.leases.granted.callback(["sip:guest1@example.org"])
        self.node.clock.pump([0] * 5)

        self.a.take()
        self.node.allocation.lose("sip:guest1@example.org", "conflict")

        self.assertEqual([], self.heard("sip:guest1@example.org"))
        [told] = self.a.take()
        self.assertEqual(
            ("delete", ALLOCATION, {"resource": "sip:guest1@example.org", "reason": "conflict"}),
            (told["type"], told["from"], told["body"]),
        )
