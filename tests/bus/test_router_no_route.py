"""
Senders and recipients that nobody announced.
"""

from tests.bus.test_router import RouterTests
from tests.support.fakes import Client, refused_codes


class LearningTests(RouterTests):
    """
    A hyperty that nobody announced is learnt from what it sends.
    """

    def reached(self, address: str) -> list[Client]:
        self.c.post(address)
        return [client for client in (self.a, self.b) if client.take()]

    def test_unowned_hyperty_address_is_learnt(self) -> None:
        """
        Who sends from an unowned hyperty:// address, of any domain, hears it as long as its session lives.
        """
        for address in ("hyperty://example.org/1", "hyperty://other.net/1"):
            self.a.tell({"id": 1, "type": "ping", "from": address, "to": "nobody"})

            self.assertEqual([self.a], self.reached(address))
        self.a.close()
        self.assertEqual([], self.reached("hyperty://example.org/1"))

    def test_who_said_it_first_keeps(self) -> None:
        """
        Who said it first keeps it; another's claim adds no recipient.
        """
        for client in (self.a, self.b, self.a):
            client.tell({"id": 1, "type": "ping", "from": "hyperty://d/1", "to": "nobody"})

        self.assertEqual([self.a], self.reached("hyperty://d/1"))

    def test_address_of_another_session_is_not_learnt(self) -> None:
        """
        An address that another session holds is not learnt.
        """
        self.b.subscribe("hyperty://d/1")

        self.a.tell({"id": 1, "type": "ping", "from": "hyperty://d/1", "to": "nobody"})

        self.assertEqual([self.b], self.reached("hyperty://d/1"))

    def test_what_was_learnt_ends_when_a_session_subscribes(self) -> None:
        """
        What was learnt ends when a session subscribes the address.
        """
        self.a.tell({"id": 1, "type": "ping", "from": "hyperty://d/1", "to": "nobody"})

        self.b.subscribe("hyperty://d/1")

        self.assertEqual([self.b], self.reached("hyperty://d/1"))

    def test_only_short_hyperty_addresses_are_learnt(self) -> None:
        """
        Nothing else is learnt: no other scheme, no channel of an object, no name too long.
        """
        for from_ in (
            "comm://d/1",
            "hyperty-runtime://d/1",
            "runtime://d/9",
            "hyperty://d/1/children/",
            "hyperty://d/1/children/x",
            "hyperty://d/1/changes",
            "hyperty://d/1/subscription",
            "hyperty://d/" + "x" * 2048,
            "domain://other.net/x",
        ):
            self.a.tell({"id": 1, "type": "ping", "from": from_, "to": "nobody"})

            self.assertEqual([], self.reached(from_), from_)
        self.assertEqual(0, len(self.node.routes))

    def test_so_many_are_learnt_of_one_session(self) -> None:
        """
        So many are learnt of one session; one that ends makes room for another.
        """
        self.restart(limits={"learned_routes_per_session": 2})
        for n in range(3):
            self.a.tell({"id": 1, "type": "ping", "from": f"hyperty://d/{n}", "to": "nobody"})
        self.assertEqual([[self.a], [self.a], []], [self.reached(f"hyperty://d/{n}") for n in range(3)])

        self.b.subscribe("hyperty://d/0")
        self.a.tell({"id": 1, "type": "ping", "from": "hyperty://d/2", "to": "nobody"})

        self.assertEqual([self.a], self.reached("hyperty://d/2"))

    def test_never_when_off(self) -> None:
        """
        With a limit of 0 nothing is learnt.
        """
        self.restart(limits={"learned_routes_per_session": 0})

        self.a.tell({"id": 1, "type": "ping", "from": "hyperty://d/1", "to": "nobody"})

        self.assertEqual([], self.reached("hyperty://d/1"))


class NoRouteTests(RouterTests):
    """
    Nobody is bound to the address.
    """

    def test_unroutable_message_is_dropped_and_counted(self) -> None:
        """
        The message is dropped and counted; nobody is told.
        """
        for type in ("create", "read", "update", "response", "ping"):
            self.a.post("hyperty://d/1", type)

        self.assertEqual(([], 5), (self.a.got, self.node.counts.no_route))
        self.assertEqual(("no-route", 0, 0, 0), self.outcome())

    def test_replied(self) -> None:
        """
        Where it is configured, who awaits an answer is told 404, from the address it wrote to.
        """
        self.restart(routing={"reply_unknown": True})
        for type in ("create", "READ", "subscribe", "execute"):
            reply = self.a.ask(type=type, to="hyperty://d/1")

            text = "no session is bound to hyperty://d/1"
            self.assertEqual({"code": 404, "desc": text, "description": text}, reply["body"])
            self.assertEqual(("hyperty://d/1", 7), (reply["from"], reply["id"]))
            self.assertEqual(("no-route", 0, 0, 404), self.outcome())
        self.assertEqual({404: 4}, refused_codes(self.node.counts))
        self.assertEqual(4, self.node.counts.no_route)

    def test_not_replied(self) -> None:
        """
        Also then nothing else is answered: no other type, nothing published, no list.
        """
        self.restart(routing={"reply_unknown": True})
        for type in ("response", "update", "delete", "unsubscribe", "ping"):
            self.a.post("hyperty://d/1", type)
        for to in ("x/changes", "x/children/", "x/children/a", "x/registration", "x/status", ["p", "q"]):
            self.a.post(to, "create")

        self.assertEqual(([], 12), (self.a.got, self.node.counts.no_route))
