"""
Pages of the dashboard: what an operator reads on them.
"""

from html.parser import HTMLParser
from typing import Any
from unittest import TestCase
from urllib.parse import quote

from msgnode.admin.pages.rendering import clock, duration, number, short_time, size, spark, thinned
from tests.support.admin_case import A, B
from tests.support.dashboard_case import DashboardCase
from tests.support.runtimes import TCPRuntime, dumps

PAGES = (
    "/",
    "/sessions",
    "/refusals",
    "/addresses",
    "/trace",
    "/nodes",
    "/bans",
    "/audit",
    "/policies",
    "/top",
    "/memory",
    "/config",
    f"/session?name={quote(A)}",
)
HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(1)>{{7*7}}"


class Elements(HTMLParser):
    """
    The elements of a page, with their attributes; and its text.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.text += data


class PageTests(DashboardCase):
    """
    The pages, read without a script.
    """

    def test_overview_has_figures_listeners_and_last_events(self) -> None:
        """
        Is it up, how many sessions, what happened last?
        """
        self.net.operations.live.look()
        self.browser.drop()

        text = Elements(self.page("/")).text

        self.assertIn("All is well", text)
        self.assertIn("1 away", text)
        self.assertIn(f"{B} detached", " ".join(text.split()))

    def test_delivery_times_of_the_overview_are_those_of_now(self) -> None:
        """
        A node that sends nothing shows none, not those of the last message that it had.
        """
        history = self.net.operations.history
        history.sample()
        self.device.send(dumps({"id": 1, "type": "update", "from": A, "to": B}))
        for shown in (r"half within [\d.]+ [µm]s", "half within –"):
            self.net.advance(5)
            history.sample()
            self.assertRegex(Elements(self.page("/")).text, shown)

    def test_troubles_come_first_with_a_link_to_their_page(self) -> None:
        """
        A client that does not read is a sentence that leads to the list of slow sessions.
        """
        self.browser.stop_reading()
        for n in range(200):
            self.device.send(
                dumps({"id": n, "type": "update", "from": A, "to": B, "body": {"value": "x" * 20000}})
            )

        page = self.page("/")

        self.assertIn("1 client does not read", page)
        self.assertIn('href="/sessions?state=slow', page)
        self.assertIn(B, self.page("/sessions?state=slow"))

    def test_sessions_are_listed_with_peer_and_counters(self) -> None:
        """
        Who is connected, from where, since when?
        """
        text = Elements(self.page("/sessions")).text

        self.assertIn(A, text)
        self.assertIn("line 192.0.2.1:", text)
        self.assertIn("2 of 2 sessions match", text)

    def test_sessions_are_filtered_and_sorted_by_links(self) -> None:
        """
        The headings sort, the filters are in the URL.
        """
        page = self.page("/sessions?q=org/a&sort=-waiting_bytes")

        self.assertIn("1 of 2 sessions match", page)
        self.assertIn('aria-sort="descending"', page)
        self.assertIn('href="/sessions?q=org%2Fa&amp;sort=-in_messages"', page)

    def test_long_lists_have_a_next_page(self) -> None:
        """
        Fifty sessions at a time.
        """
        for n in range(60):
            TCPRuntime(self.net, f"runtime://example.org/many-{n:02}").open()

        first = Elements(self.page("/sessions?q=many"))
        [following] = [each["href"] for tag, each in first.found if "cursor=" in str(each.get("href"))]
        second = Elements(self.page(following))

        self.assertIn("many-49", first.text)
        self.assertNotIn("many-50", first.text)
        self.assertIn("many-50", second.text)

    def test_session_page_has_connection_refusals_and_events(self) -> None:
        """
        One session: who it is, and why its message was refused.
        """
        self.device.send(dumps({"id": 9, "type": "read", "from": "mn:/session", "to": B}))

        text = Elements(self.page(f"/session?name={quote(A)}")).text

        self.assertIn("192.0.2.1:", text)
        self.assertIn("reserved-address", text)
        self.assertIn("send from one of your own", text)

    def test_unknown_session_is_said_to_be_unknown(self) -> None:
        """
        A session that has ended has no page.
        """
        found = self.fetch("GET", "/session?name=runtime://no/one", Authorization=f"Bearer {self.token}")

        self.assertEqual(404, found.status)
        self.assertIn(b"runtime://no/one", found.body)

    def test_refusals_are_grouped_and_say_what_would_change_them(self) -> None:
        """
        Why was this message refused?
        """
        for n in range(3):
            self.device.send(dumps({"id": n, "type": "read", "from": "mn:/session", "to": B}))

        page = Elements(self.page("/refusals?group=session"))

        self.assertIn("By session", page.text)
        self.assertIn("reserved-address", page.text)
        self.assertIn("only the node itself may use this address", page.text)

    def test_address_page_says_who_hears_it(self) -> None:
        """
        Who hears an address, and why?
        """
        page = self.page(f"/addresses?address={quote(A)}/x")

        self.assertIn(f"name={quote(A, safe='')}", page)
        self.assertIn("runtime", page)
        self.assertIn(
            "No session hears this address", self.page("/addresses?address=comm://example.org/nobody")
        )

    def test_every_page_names_its_call_and_its_command(self) -> None:
        """
        The same in a terminal.
        """
        for path in PAGES:
            page = self.page(path)
            self.assertRegex(page, "GET /(api/v1|live)", path)
            self.assertRegex(page, "<code>msgnode (admin|link|policy) ", path)

    def test_pages_have_no_script_or_style_of_their_own(self) -> None:
        """
        The Content-Security-Policy allows files of this listener only.
        """
        for path in (*PAGES, "/login"):
            found = self.fetch("GET", path, Authorization=f"Bearer {self.token}")
            policy = found.headers["Content-Security-Policy"]
            self.assertIn("default-src 'none'; script-src 'self'; style-src 'self'", policy)
            self.assertNotIn("unsafe", policy)
            for tag, attributes in Elements(found.body.decode()).found:
                self.assertNotIn("style", attributes, path)
                self.assertFalse([name for name in attributes if name.startswith("on")], path)
                if tag == "script":
                    self.assertTrue(attributes["src"].startswith("/assets/"), path)

    def test_texts_of_clients_are_escaped(self) -> None:
        """
        Names, addresses, types and users that a client chose make no element.
        """
        name = f"runtime://example.org/{HOSTILE}"
        hostile = TCPRuntime(self.net, name).open()
        self.node.sessions.get(name).identity = HOSTILE
        hostile.send(
            dumps({"id": HOSTILE, "type": "read", "from": f"mn:/{HOSTILE}", "to": f"comm://{HOSTILE}"})
        )
        hostile.send(dumps({"id": 4, "type": HOSTILE, "from": name, "to": f"comm://x/{HOSTILE}"}))
        self.net.operations.live.look()

        shown = 0
        for path in (
            *PAGES,
            f"/session?name={quote(name)}",
            f"/sessions?q={quote(HOSTILE)}",
            f"/refusals?session={quote(name)}&group=to",
            f"/addresses?address={quote(name)}",
            f"/addresses?prefix={quote(HOSTILE)}",
            f"/trace?key=session&value={quote(HOSTILE)}",
            f"/login?back={quote('/' + HOSTILE)}",
        ):
            found = self.fetch("GET", path, Authorization=f"Bearer {self.token}")
            page = Elements(found.body.decode())
            scripts = [attributes for tag, attributes in page.found if tag == "script"]
            self.assertTrue(all(each.get("src") for each in scripts), path)
            self.assertNotIn("x", [each.get("src") for tag, each in page.found if tag == "img"], path)
            self.assertNotIn(
                "runtime://example.org/<script>alert(1)</script>'\"><img src=x onerror=alert(1)>49", page.text
            )
            shown += HOSTILE in page.text
        self.assertGreater(shown, 3)

    def test_control_characters_are_replaced(self) -> None:
        """
        A name may not turn the text around it.
        """
        self.node.sessions.get(A).identity = "user://example.org/\u202eannaoj"

        page = self.page("/sessions")

        self.assertIn("user://example.org/\ufffdannaoj", page)

    def test_pages_are_not_kept_and_assets_are(self) -> None:
        """
        A browser asks again for pages; assets have a version in their URL.
        """
        page = self.fetch("GET", "/sessions", Authorization=f"Bearer {self.token}")
        [script] = [
            each["src"] for _, each in Elements(page.body.decode()).found if "htmx" in str(each.get("src"))
        ]
        asset = self.fetch("GET", script, Accept_Encoding="gzip")

        self.assertEqual("no-store", page.headers["Cache-Control"])
        self.assertIn("immutable", asset.headers["Cache-Control"])
        self.assertEqual("gzip", asset.headers["Content-Encoding"])
        self.assertEqual(404, self.fetch("GET", "/assets/../site.py").status)

    def test_assets_weigh_less_than_100_kilobytes(self) -> None:
        """
        What a phone loads the first time.
        """
        page = self.fetch("GET", "/login").body.decode()
        urls = {each.get("src") or each.get("href") for _, each in Elements(page).found}
        total = sum(
            len(self.fetch("GET", url, Accept_Encoding="gzip").body)
            for url in urls
            if url is not None and url.startswith("/assets/")
        )

        self.assertLess(total, 100_000)

    def test_unknown_paths_are_answered_with_those_there_are(self) -> None:
        """
        The admin listener has no words for clients.
        """
        found = self.fetch("GET", "/nowhere")

        self.assertEqual(404, found.status)
        self.assertIn("the dashboard is at /", found.json()["description"])


class RenderingTests(TestCase):
    """
    Texts for numbers and times.
    """

    def test_numbers_sizes_and_durations_are_short(self) -> None:
        """
        As people read them.
        """
        self.assertEqual(["1,234,567", "0.20", "–"], [number(1234567), number(0.2), number(None)])
        self.assertEqual(["0 B", "1.5 KiB", "64.0 GiB"], [size(0), size(1536), size(64 * 1024**3)])
        self.assertEqual(["3 d 4 h", "59 s", "20 ms"], [duration(273700), duration(59), duration(0.02)])
        self.assertEqual(
            ["512 µs", "8.19 ms", "–"], [short_time(512e-6), short_time(0.008192), short_time(None)]
        )
        self.assertEqual("2026-11-24 02:41:07", clock(1795488067))

    def test_a_thinned_line_keeps_its_peaks(self) -> None:
        """
        A spike of five seconds is seen in an hour.
        """
        values = [0.0] * 300 + [9.0] + [0.0] * 400 + [None] * 19

        found = thinned(values)

        self.assertLessEqual(len(found), 120)
        self.assertIn(9.0, found)
        self.assertEqual(None, found[-1])
        self.assertEqual("0.0,1.0", spark([5.0]))
