"""
Reservations of relay bandwidth for operators: by the API, by the command line, and on the page on addresses.
"""

from typing import Any, ClassVar

from msgnode.backends.qos.coturn import RelaySession
from tests.support.admin_case import REASON, A, AdminCase, B
from tests.support.admin_command import AdminCommandCase
from tests.support.dashboard_case import DashboardCase

QOS = "domain://msg-node.example.org/qos-broker/reservation"
CALL = "comm://example.org/call"


class ReservationCase(AdminCase):
    """
    A node with the embedded QoS broker, whose relay is in memory.
    """

    sections: ClassVar[dict[str, Any]] = {
        "qos": {
            "url": "embedded",
            "turn_urls": ["turn:turn.example.org:3478"],
            "turn_secret": "s3cret",
            "capacity_up": 1_000_000,
            "capacity_down": 2_000_000,
        },
    }

    def setUp(self) -> None:
        super().setUp()
        self.relay = self.node.world.relay
        self.node.world.reservations.startService()

    def reserve(self, client: Any = None, **value: Any) -> dict[str, Any]:
        wanted = {"session": CALL, "parties": [A, B], "up": 100_000, "down": 250_000, "seconds": 60, **value}
        body = (client or self.device).ask(type="create", to=QOS, body={"value": wanted})["body"]
        self.assertEqual(200, body["code"], body)
        found: dict[str, Any] = body["value"]
        return found

    def use(self, made: dict[str, Any]) -> None:
        """
        A client relays with the credentials.
        """
        self.relay.held.append(RelaySession("7", made["iceServers"][0]["username"]))


class ListTests(ReservationCase):
    """
    The list.
    """

    def test_each_has_its_session_amounts_and_end(self) -> None:
        """
        The list has what is left of the capacity, too; it has no credentials.
        """
        made = self.reserve()

        answer = self.request("GET", "reservations")
        found = answer.json()

        row = {
            "id": made["id"],
            "session": A,
            "user": "",
            "application": CALL,
            "parties": [A, B],
            "number_of_parties": 2,
            "up": 100_000,
            "down": 250_000,
            "expires": made["expires"],
        }
        self.assertEqual([row], found["reservations"])
        self.assertEqual(
            (True, 1, 1, 0),
            tuple(found[key] for key in ("is_embedded", "total", "matched", "relay_failures")),
        )
        self.assertEqual({"up": 1_000_000, "down": 2_000_000}, found["capacity"])
        self.assertEqual({"up": 900_000, "down": 1_750_000}, found["left"])
        for secret in (made["iceServers"][0]["credential"], "s3cret", "token"):
            self.assertNotIn(secret, answer.body.decode())

    def test_filters_and_pages(self) -> None:
        """
        By session, by user, and by a part of the names; pages follow each other by the cursor.
        """
        first, second = self.reserve(), self.reserve(parties=["runtime://x.example/zoe"])
        third = self.reserve(self.browser, session="comm://example.org/other")
        ids = sorted(each["id"] for each in (first, second, third))

        def matched(query: str) -> list[str]:
            return sorted(row["id"] for row in self.get(f"reservations?{query}")["reservations"])

        self.assertEqual(sorted([first["id"], second["id"]]), matched(f"session={A}"))
        self.assertEqual([], matched("user=user://example.org/ann"))
        self.assertEqual([second["id"]], matched("q=ZOE"))
        self.assertEqual([third["id"]], matched("q=/other"))
        self.assertEqual([first["id"]], matched(f"q={first['id']}"))
        page = self.get("reservations?limit=2")
        self.assertEqual(
            (ids[:2], ids[1], 3), ([row["id"] for row in page["reservations"]], page["next"], page["matched"])
        )
        page = self.get(f"reservations?limit=2&cursor={page['next']}")
        self.assertEqual((ids[2:], None), ([row["id"] for row in page["reservations"]], page["next"]))
        self.assertRefused(self.request("GET", "reservations?limit=0"), 400, "limit")
        self.assertRefused(self.request("GET", "reservations?colour=red"), 400, "known are q, session")

    def test_many_parties_are_counted_and_the_first_shown(self) -> None:
        """
        A row has ten of them.
        """
        self.reserve(parties=[f"runtime://x.example/{number}" for number in range(12)])

        [row] = self.get("reservations")["reservations"]

        self.assertEqual((10, 12), (len(row["parties"]), row["number_of_parties"]))


class NoBrokerTests(AdminCase):
    """
    A node without a broker of its own.
    """

    def test_there_are_none(self) -> None:
        """
        The list says so, and none can be taken back.
        """
        found = self.get("reservations")

        self.assertEqual((False, 0, []), (found["is_embedded"], found["total"], found["reservations"]))
        answer = self.request("POST", "reservations/msgnode-1/take-back", {"reason": REASON})
        self.assertRefused(answer, 404, "there is no reservation 'msgnode-1'")


class TakeBackTests(ReservationCase):
    """
    An operator takes one back.
    """

    def test_it_ends_at_the_relay_and_its_session_is_told(self) -> None:
        """
        A dry run changes nothing; the audit log has the reason and what it was; the capacity is free again.
        """
        made, other = self.reserve(), self.reserve(self.browser)
        self.use(made)
        path = f"reservations/{made['id']}/take-back"
        self.assertEqual([A], self.act(f"{path}?dry_run=1")["targets"])
        self.assertEqual((2, 1), (self.get("reservations")["total"], len(self.relay.held)))

        done = self.act(path)

        details = {"reservation": made["id"], "up": 100_000, "down": 250_000}
        self.assertEqual((1, [A], details), (done["done"], done["targets"], done["details"]))
        self.assertEqual([], self.relay.held)
        [told] = self.device.take()
        self.assertEqual(("update", A), (told["type"], told["to"]))
        self.assertEqual(f"/reservation/{made['id']}", told["body"]["resource"])
        value = told["body"]["value"]
        self.assertEqual((made["id"], "ended", "removed"), (value["id"], value["status"], value["reason"]))
        self.assertEqual([], self.browser.take())
        found = self.get("reservations")
        self.assertEqual([other["id"]], [row["id"] for row in found["reservations"]])
        self.assertEqual(900_000, found["left"]["up"])
        line = self.audit()[-1]
        self.assertEqual(
            ("take-back reservation", REASON, [A]), (line["action"], line["reason"], line["target"])
        )
        self.assertEqual({**details, "expires": made["expires"]}, line["before"])
        self.assertRefused(self.request("POST", path, {"reason": REASON}), 404, "there is no reservation")
        self.assertEqual(
            404, self.device.ask(type="read", to=QOS, body={"value": {"id": made["id"]}})["body"]["code"]
        )

    def test_a_relay_that_does_not_answer_is_named(self) -> None:
        """
        The reservation has ended for the node; the answer says that packets may pass still, and why.
        """
        made = self.reserve()
        self.relay.refuses = True

        done = self.act(f"reservations/{made['id']}/take-back")

        self.assertIn("Error contacting the TURN server", done["details"]["relay"])
        found = self.get("reservations")
        self.assertEqual((0, 1), (found["total"], found["relay_failures"]))
        texts = [each["text"] for each in self.get("node")["troubles"] if each["what"] == "relay"]
        self.assertEqual(1, len(texts))
        self.assertIn("command line does not answer", texts[0])

        self.relay.refuses = False
        self.net.advance(6)

        self.assertEqual(0, self.get("reservations")["relay_failures"])
        self.assertNotIn("relay", [each["what"] for each in self.get("node")["troubles"]])

    def test_it_wants_a_reason(self) -> None:
        """
        Without one nothing is done.
        """
        path = f"reservations/{self.reserve()['id']}/take-back"

        self.assertRefused(self.request("POST", path, {}), 400, "reason is missing")
        self.assertRefused(self.request("POST", path, {"reason": "x"}), 400, "3 to 200")

        self.assertEqual(1, self.get("reservations")["total"])


class CommandTests(ReservationCase, AdminCommandCase):
    """
    `msgnode admin reservations` and `take-back`.
    """

    def test_listed_and_taken_back(self) -> None:
        """
        Amounts have units; with --json the list is what the API answers.
        """
        made = self.reserve()
        self.assertShows(
            (
                made["id"],
                A,
                "100 kbit/s",
                "250 kbit/s",
                "left: 900 kbit/s of 1 Mbit/s up",
                "1 of 1 that match",
            ),
            "reservations",
        )
        self.assertEqual(self.get("reservations"), self.json_of("reservations"))
        self.assertNotIn(made["id"], self.shown("reservations", "nobody"))
        why = ("--reason", REASON)
        self.assertShows(("this would take back 1 session", A), "take-back", made["id"], "--dry-run", *why)
        self.assertEqual(1, self.get("reservations")["total"])

        self.assertShows(("take back: done", f"reservation: {made['id']}"), "take-back", made["id"], *why)

        self.assertEqual(0, self.get("reservations")["total"])
        self.assertIn("there is no reservation", self.run_("take-back", made["id"], *why, exit_code=1).stderr)


class PlainCommandTests(AdminCommandCase):
    """
    A node without a broker of its own.
    """

    def test_says_that_there_is_none(self) -> None:
        """
        And which key would make one.
        """
        self.assertShows(("no embedded QoS broker (qos.url)",), "reservations")


class PageTests(ReservationCase, DashboardCase):
    """
    The page on addresses, next to the pools.
    """

    def test_listed_and_taken_back(self) -> None:
        """
        It shows whom the action would hit, and does it when that is confirmed.
        """
        made = self.reserve(session="comm://example.org/<b>call")
        page = self.page("/addresses")
        for text in (made["id"], "100 kbit/s", "comm://example.org/&lt;b&gt;call, 2 parties", "Take it back"):
            self.assertIn(text, page)
        self.assertNotIn(made["iceServers"][0]["credential"], page)

        self.confirm(self.log_in(), "take-back-reservation", id=made["id"])

        self.assertNotIn(made["id"], self.page("/addresses"))
        self.assertEqual("page", self.audit()[-1]["via"])

    def test_a_viewer_sees_them_without_the_action(self) -> None:
        """
        A form of its own is refused, too.
        """
        made = self.reserve()
        browser = self.log_in(self.named("viewer"))

        page = self.page("/addresses", browser)

        self.assertIn(made["id"], page)
        self.assertNotIn("Take it back", page)
        self.assertEqual(403, self.submit(browser, "take-back-reservation", id=made["id"]).status)
        self.assertEqual(1, self.get("reservations")["total"])

    def test_pages_follow_each_other(self) -> None:
        """
        The page has a hundred; a link leads to the others.
        """
        for number in range(11):
            self.node.config.qos.max_reservations_per_session = 200
            for _ in range(10):
                self.reserve(up=1, down=number)

        page = self.page("/addresses")

        self.assertEqual(100, page.count("Take it back</summary>"))
        after = page.split("/addresses?reservation=")[1].split('"')[0]
        self.assertEqual(10, self.page(f"/addresses?reservation={after}").count("Take it back</summary>"))
