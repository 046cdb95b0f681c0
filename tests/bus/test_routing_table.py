"""
Who hears an address.
"""

from twisted.trial.unittest import SynchronousTestCase

from msgnode.bus.routing_table import MAX_SEGMENTS
from msgnode.protocol.address import MAX_ADDRESS_CHARS
from msgnode.sessions.routing import ALLOCATED, LEARNED, SUBSCRIBED
from msgnode.sessions.session import Session
from msgnode.structures.time_slices import ADDRESSES
from tests.support.fakes import MemoryNode, peak

RUNTIME = "runtime://example.org/1"


class Compared(str):
    """
    An address that counts how often it, or another, is compared.
    """

    times = 0

    def __lt__(self, other: str) -> bool:
        Compared.times += 1
        return str.__lt__(self, other)

    def startswith(self, *args: object) -> bool:
        Compared.times += 1
        return str.startswith(self, *args)


class RoutesTests(SynchronousTestCase):
    """
    A routing table and two sessions.
    """

    def setUp(self) -> None:
        self.node = MemoryNode()
        self.routes = self.node.routes
        self.one = self.join("one")
        self.two = self.join("two")

    def join(self, runtime: str) -> Session:
        return self.node.sessions.create(runtime)

    def hear(self, address: str) -> list[str]:
        return [session.runtime for session in self.routes.resolve(address)]


class ResolveTests(RoutesTests):
    """
    Exact addresses first, then the runtime above.
    """

    def test_every_bound_session_hears_once_in_order(self) -> None:
        """
        Everybody bound to an address hears it, once, in the order they came.
        """
        for session in (self.two, self.one, self.two):
            self.routes.bind("comm://d/1/changes", session, SUBSCRIBED)

        self.assertEqual(["two", "one"], self.hear("comm://d/1/changes"))

    def test_as_written(self) -> None:
        """
        Nothing is normalised: a slash at the end, case and escapes make another address.
        """
        self.routes.bind("comm://d/1/children/", self.one, SUBSCRIBED)

        for address in ("comm://d/1/children", "comm://D/1/children/", "comm://d/1/children//", "comm://d/1"):
            self.assertEqual([], self.hear(address))

    def test_lookup_builds_nothing(self) -> None:
        """
        A lookup builds nothing: the same tuple comes every time.
        """
        self.routes.bind("a", self.one, SUBSCRIBED)
        self.routes.bind("b", self.one, SUBSCRIBED)
        self.routes.bind("b", self.two, SUBSCRIBED)

        for address in ("a", "b", "one/below"):
            self.assertIs(self.routes.resolve(address), self.routes.resolve(address))

    def test_below_runtime(self) -> None:
        """
        Everything below a runtimeURL is heard by that runtime, for any scheme and domain.
        """
        for runtime in (RUNTIME, "hyperty-runtime://other.net/a/b", "runtime:/alice", "hyper-1"):
            self.join(runtime)

            for below in ("", "/", "/sm", "/registry/", "/a/b/c"):
                self.assertEqual([runtime], self.hear(runtime + below))

    def test_boundary(self) -> None:
        """
        Runtime 1 does not hear what is for runtime 10, nor what lies above it.
        """
        self.join(RUNTIME)

        for address in (f"{RUNTIME}0", f"{RUNTIME}0/sm", f"{RUNTIME}-", "runtime://example.org", "runtime:"):
            self.assertEqual([], self.hear(address))

    def test_nearest(self) -> None:
        """
        Of two runtimes above an address the nearer one hears it.
        """
        self.join(RUNTIME)
        self.join(f"{RUNTIME}/2")

        self.assertEqual([f"{RUNTIME}/2"], self.hear(f"{RUNTIME}/2/sm"))
        self.assertEqual([RUNTIME], self.hear(f"{RUNTIME}/3/sm"))

    def test_exact_binding_comes_before_the_runtime_above(self) -> None:
        """
        An exact binding comes before the runtime above.
        """
        runtime = self.join(RUNTIME)
        self.routes.bind(f"{RUNTIME}/x", runtime, SUBSCRIBED)

        self.assertEqual([RUNTIME], self.hear(f"{RUNTIME}/x"))

    def test_hostile(self) -> None:
        """
        An address of a megabyte, or of a thousand slashes, is looked for no further than reasonable.
        """
        runtime = self.join(RUNTIME)

        self.assertEqual([RUNTIME], self.hear(RUNTIME + "/x" * (MAX_SEGMENTS - 1)))
        self.assertEqual([], self.hear(RUNTIME + "/x" * MAX_SEGMENTS))
        self.assertEqual([RUNTIME], self.hear(RUNTIME + "/" + "x" * (MAX_ADDRESS_CHARS - len(RUNTIME) - 1)))
        self.assertEqual([], self.hear(RUNTIME + "/" + "x" * (MAX_ADDRESS_CHARS - len(RUNTIME))))
        self.assertEqual((runtime,), runtime.as_tuple)


class BindTests(RoutesTests):
    """
    Why a session is bound, and when that ends.
    """

    def test_address_is_bound_until_all_kinds_are_taken_back(self) -> None:
        """
        An address both allocated and subscribed is bound until both are taken back.
        """
        self.routes.bind("a", self.one, ALLOCATED)
        self.routes.bind("a", self.one, SUBSCRIBED)

        self.routes.unbind("a", self.one, SUBSCRIBED)
        self.assertEqual(["one"], self.hear("a"))
        self.routes.unbind("a", self.one, ALLOCATED)
        self.assertEqual([], self.hear("a"))
        self.assertEqual(0, len(self.routes))

    def test_one_of_several_is_unbound_and_others_stay(self) -> None:
        """
        One of several leaves, the others stay; who is not bound cannot leave.
        """
        three = self.join("three")
        for session in (self.one, self.two):
            self.routes.bind("a", session, SUBSCRIBED)

        self.routes.unbind("a", three)
        self.routes.unbind("b", self.one)
        self.routes.unbind("a", self.one)

        self.assertEqual(["two"], self.hear("a"))
        self.assertEqual({}, self.one.bindings)

    def test_forgotten_session_takes_its_bindings_along(self) -> None:
        """
        A session's end takes its bindings and its name with it, and nobody else's.
        """
        for session in (self.one, self.two):
            self.routes.bind("a", session, SUBSCRIBED)
        self.routes.bind("b", self.one, ALLOCATED)

        self.routes.forget(self.one)

        self.assertEqual(["two"], self.hear("a"))
        self.assertEqual(([], [], []), (self.hear("b"), self.hear("one"), self.hear("one/sm")))
        self.assertEqual(["two"], self.hear("two/sm"))

    def test_learnt_binding_ends_when_another_allocates_or_subscribes(self) -> None:
        """
        What was learnt of a session ends when another one allocates or subscribes it.
        """
        for kind in (ALLOCATED, SUBSCRIBED):
            address = f"hyperty://d/{kind}"
            self.routes.bind(address, self.one, LEARNED)
            self.assertEqual(1, self.one.learned)

            self.routes.bind(address, self.two, kind)

            self.assertEqual(["two"], self.hear(address))
            self.assertEqual(({}, 0), (self.one.bindings, self.one.learned))

    def test_learnt_becomes_own(self) -> None:
        """
        Who subscribes what was learnt of it keeps it when others come, and it is learnt no more.
        """
        self.routes.bind("hyperty://d/1", self.one, LEARNED)

        self.routes.bind("hyperty://d/1", self.one, SUBSCRIBED)
        self.routes.bind("hyperty://d/1", self.two, SUBSCRIBED)

        self.assertEqual(["one", "two"], self.hear("hyperty://d/1"))
        self.assertEqual(0, self.one.learned)

    def test_allocated_address_is_held_by_its_owner(self) -> None:
        """
        An address is held by who was allocated it, not by who listens there.
        """
        self.routes.bind("sip:1@d", self.one, SUBSCRIBED)
        self.assertFalse(self.routes.is_allocated("sip:1@d"))

        self.routes.bind("sip:1@d", self.two, ALLOCATED)
        self.assertTrue(self.routes.is_allocated("sip:1@d"))

        self.routes.forget(self.two)
        self.assertFalse(self.routes.is_allocated("sip:1@d"))


class JoinTests(RoutesTests):
    """
    A runtime opens: what lies below its name is its own.
    """

    def test_stray_bindings_end_when_the_runtime_opens(self) -> None:
        """
        Who bound an address of a runtime before that runtime opened hears it no more.
        """
        for scheme in ("runtime", "hyperty-runtime"):
            name = f"{scheme}://example.org/1"
            for address in (name, f"{name}/", f"{name}/x/y", f"{name}0"):
                self.routes.bind(address, self.one, SUBSCRIBED)

            self.join(name)

            for address in (name, f"{name}/", f"{name}/x/y"):
                self.assertEqual([name], self.hear(address))
            self.assertEqual(["one"], self.hear(f"{name}0"))
            self.routes.unbind(f"{name}0", self.one)
            self.assertEqual({}, self.one.bindings)

    def test_rule_holds_for_a_runtime_that_went_and_came_back(self) -> None:
        """
        The rule holds for a runtime that went and came back, however often.
        """
        for _ in range(3):
            self.routes.bind(f"{RUNTIME}/x", self.one, SUBSCRIBED)
            session = self.join(RUNTIME)

            self.assertEqual([RUNTIME], self.hear(f"{RUNTIME}/x"))
            self.node.sessions.end(session, "closed")

    def test_runtime_keeps_what_it_binds_below_its_name(self) -> None:
        """
        A runtime may bind below its own name, and keeps it when a runtime opens elsewhere.
        """
        session = self.join(RUNTIME)
        self.routes.bind(f"{RUNTIME}/x", session, SUBSCRIBED)

        self.join(f"{RUNTIME}0")

        self.assertEqual([RUNTIME], self.hear(f"{RUNTIME}/x"))
        self.assertEqual([f"{RUNTIME}/x"], list(session.bindings))


class ManyTests(RoutesTests):
    """
    What costs no more with many listeners and many addresses, and goes on in slices.
    """

    def many(self, count: int, address: str = "a") -> list[Session]:
        sessions = [self.join(f"many-{n}") for n in range(count)]
        for session in sessions:
            self.routes.bind(address, session, SUBSCRIBED)
        return sessions

    def bind_all(self, session: Session, count: int, where: str = "comm://d") -> None:
        for n in range(count):
            self.routes.bind(f"{where}/{n}", session, SUBSCRIBED)

    def test_unbind_builds_nothing(self) -> None:
        """
        One of many listeners leaves, and no list of the others is built for that.
        """
        first, *_others = self.many(3000)

        self.assertLess(peak(lambda: self.routes.unbind("a", first)), 2000)

    def test_bind_builds_nothing(self) -> None:
        """
        Of many who come one after the other none has a list built of those before.
        """
        sessions = [self.join(f"many-{n}") for n in range(3000)]
        held: list[tuple[Session, ...]] = []

        for session in sessions:
            self.routes.bind("a", session, SUBSCRIBED)
        for _ in range(3):
            held.append(self.routes.resolve("a"))

        self.assertEqual(tuple(sessions), held[0])
        self.assertTrue(all(each is held[0] for each in held))

    def test_who_leaves_and_comes_again_is_last(self) -> None:
        """
        Who leaves and comes again is last; the others keep their places, down to one and up again.
        """
        one, two, three = self.many(3)

        self.routes.unbind("a", one)
        self.routes.bind("a", one, SUBSCRIBED)
        self.assertEqual((two, three, one), self.routes.resolve("a"))
        self.routes.unbind("a", two)
        self.routes.unbind("a", three)
        self.assertIs(one.as_tuple, self.routes.resolve("a"))
        self.routes.bind("a", two, SUBSCRIBED)

        self.assertEqual((one, two), self.routes.resolve("a"))
        self.assertEqual(1, len(self.routes))
        self.assertIn("a", self.routes)

    def test_open_among_strays(self) -> None:
        """
        A runtime that opens is not compared with the thousands of addresses that look like another's.
        """
        for n in range(3000):
            self.routes.bind(Compared(f"{RUNTIME}/x{n}"), self.one, SUBSCRIBED)
        Compared.times = 0

        self.join(f"{RUNTIME}/y")

        self.assertLess(Compared.times, 100)
        self.assertEqual(3000, len(self.one.bindings))

    def test_strays_in_slices(self) -> None:
        """
        A runtime hears everything below its name from the start, though it is taken back in slices.
        """
        self.bind_all(self.one, 3 * ADDRESSES, RUNTIME)

        self.join(RUNTIME)

        self.assertEqual(2 * ADDRESSES, len(self.one.bindings))
        for n in range(3 * ADDRESSES):
            self.assertEqual([RUNTIME], self.hear(f"{RUNTIME}/{n}"))
        self.node.clock.turn()
        self.assertEqual(ADDRESSES, len(self.one.bindings))
        self.node.clock.advance(0)
        self.assertEqual({}, self.one.bindings)

    def test_strays_of_many(self) -> None:
        """
        One address of a runtime that many others had bound is taken back in slices, too.
        """
        address = f"{RUNTIME}/x"
        others = self.many(2 * ADDRESSES + 1, address)

        self.join(RUNTIME)

        self.assertEqual([RUNTIME], self.hear(address))
        self.assertEqual(ADDRESSES + 1, sum(address in other.bindings for other in others))
        self.node.clock.advance(0)
        self.assertEqual(0, sum(address in other.bindings for other in others))

    def test_gone_while_taken_back(self) -> None:
        """
        A runtime that goes before all was taken back from others leaves them the rest.
        """
        self.bind_all(self.one, 3 * ADDRESSES, RUNTIME)
        session = self.join(RUNTIME)

        self.node.sessions.end(session, "closed")
        self.node.clock.advance(0)

        self.assertEqual(2 * ADDRESSES, len(self.one.bindings))
        for address in self.one.bindings:
            self.assertEqual(["one"], self.hear(address))

    def test_end_in_slices(self) -> None:
        """
        A session that ends is found nowhere any more, though its addresses are freed in slices.
        """
        self.bind_all(self.one, 3 * ADDRESSES)
        self.routes.bind("comm://d/1", self.two, SUBSCRIBED)

        self.node.sessions.end(self.one, "closed")

        self.assertEqual(2 * ADDRESSES, len(self.one.bindings))
        self.assertEqual([["two"]], [self.hear("comm://d/1")])
        self.assertFalse(any(self.hear(f"comm://d/{n}") for n in range(2, 3 * ADDRESSES)))
        self.assertNotIn("comm://d/2", self.routes)
        self.node.clock.turn()
        self.assertEqual(ADDRESSES, len(self.one.bindings))
        self.node.clock.advance(0)
        self.assertEqual(({}, 1), (self.one.bindings, len(self.routes)))

    def test_open_while_forgotten(self) -> None:
        """
        A runtime that opens again while its last session is being forgotten has its addresses at once.
        """
        before = self.join(RUNTIME)
        self.bind_all(before, 3 * ADDRESSES, RUNTIME)
        self.node.sessions.end(before, "closed")

        session = self.join(RUNTIME)
        self.routes.bind(f"{RUNTIME}/1", session, SUBSCRIBED)

        for n in range(3 * ADDRESSES):
            self.assertEqual((session,), self.routes.resolve(f"{RUNTIME}/{n}"))
        self.node.clock.advance(0)
        for n in range(3 * ADDRESSES):
            self.assertEqual((session,), self.routes.resolve(f"{RUNTIME}/{n}"))
        self.assertEqual(1, len(self.routes))

    def test_bind_after_the_end(self) -> None:
        """
        Nothing is bound to a session that has ended, nor kept for it.
        """
        self.node.sessions.end(self.one, "closed")

        self.routes.bind("a", self.one, SUBSCRIBED)

        self.assertEqual(([], {}), (self.hear("a"), self.one.bindings))

    def test_one_of_thousands_of_listeners_is_found_at_once(self) -> None:
        """
        Whether one session hears an address is known without looking at the thousands who hear it, too.
        """
        first, *_others = self.many(3000)
        self.routes.bind("b", first, SUBSCRIBED)
        runtime = self.join(RUNTIME)

        spent = peak(lambda: self.assertIs(first, self.routes.listener("a", first.sid)))

        self.assertLess(spent, 2000)
        self.assertIs(first, self.routes.listener("b", first.sid))
        self.assertIs(runtime, self.routes.listener(f"{RUNTIME}/x", runtime.sid))
        for address, sid in (("a", self.one.sid), ("b", self.one.sid), (f"{RUNTIME}/x", first.sid), ("a", 0)):
            self.assertIsNone(self.routes.listener(address, sid))
        self.node.sessions.end(first, "closed")
        self.assertIsNone(self.routes.listener("a", first.sid))
