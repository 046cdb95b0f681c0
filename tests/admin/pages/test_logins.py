"""
Logins of browsers at the dashboard, and who may act by a cookie.
"""

from typing import Any
from urllib.parse import urlencode

from twisted.internet.address import IPv4Address
from twisted.web.test.requesthelper import DummyRequest

from msgnode.admin.pages.logins import Logins
from tests.support.admin_case import A
from tests.support.dashboard_case import OWN, DashboardCase

ELSEWHERE = {"Sec_Fetch_Site": "cross-site", "Origin": "https://evil.example"}


class LoginTests(DashboardCase):
    """
    `/login`, `/logout`, and the cookie between them.
    """

    def test_pages_lead_to_the_login_and_back(self) -> None:
        """
        Without a cookie a page is a redirect, which remembers where it came from.
        """
        found = self.fetch("GET", "/refusals?code=403")
        self.assertEqual(
            (303, "/login?back=%2Frefusals%3Fcode%3D403"), (found.status, found.headers["Location"])
        )

        done = self.fetch("POST", found.headers["Location"], {"token": self.token}, **OWN)

        self.assertEqual((303, "/refusals?code=403"), (done.status, done.headers["Location"]))

    def test_login_leads_to_no_other_site(self) -> None:
        """
        A link with a foreign address after the login goes to the overview.
        """
        for back in (
            "https://evil.example/",
            "//evil.example/",
            "/\\evil.example",
            "javascript:x",
            "/\r\nX: y",
        ):
            done = self.fetch("POST", f"/login?{urlencode({'back': back})}", {"token": self.token}, **OWN)
            self.assertEqual("/", done.headers["Location"], back)

    def test_cookie_is_for_this_site_and_its_server_only(self) -> None:
        """
        No script reads it, no other site sends it, and it is not the token.
        """
        found = self.fetch("POST", "/login", {"token": self.token}, **OWN)

        cookie = found.headers["Set-Cookie"]
        for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=28800"):
            self.assertIn(part, cookie)
        self.assertNotIn(self.token, cookie)

    def test_a_wrong_token_is_no_login(self) -> None:
        """
        The page says so, and gives no cookie.
        """
        found = self.fetch("POST", "/login", {"token": "mna_wrong"}, **OWN)

        self.assertEqual(401, found.status)
        self.assertIn(b"this token is not valid here", found.body)
        self.assertIsNone(found.headers["Set-Cookie"])

    def test_failures_are_throttled_and_a_valid_token_is_not(self) -> None:
        """
        The sixth wrong token within a minute waits.
        """
        codes = [self.fetch("POST", "/login", {"token": "mna_wrong"}, **OWN).status for _ in range(6)]

        self.assertEqual([401] * 5 + [429], codes)
        self.log_in()

    def test_a_login_ends_when_its_user_ends_it(self) -> None:
        """
        The cookie of before is worth nothing.
        """
        browser = self.log_in()
        self.page("/", browser)

        self.assertEqual(303, self.fetch("POST", "/logout", {}, **browser).status)

        self.assertEqual(303, self.fetch("GET", "/", **browser).status)

    def test_a_login_ends_after_eight_hours(self) -> None:
        """
        Nobody is logged in for ever.
        """
        browser = self.log_in()

        self.net.advance(8 * 3600 + 1)

        self.assertEqual(303, self.fetch("GET", "/", **browser).status)

    def test_a_clock_that_is_set_back_makes_nothing_last_longer(self) -> None:
        """
        Not a login, and not the minute of the throttle: both go by a clock that is never set.
        """
        browser = self.log_in()
        wrong = {"token": "mna_wrong"}
        for _ in range(6):
            self.fetch("POST", "/login", wrong, **OWN)
        wall = self.net.wall
        self.net.facts.wall = lambda: wall() - 86400

        self.net.advance(61)
        self.assertEqual(401, self.fetch("POST", "/login", wrong, **OWN).status)
        self.net.advance(8 * 3600)
        self.assertEqual(303, self.fetch("GET", "/", **browser).status)

    def test_a_revoked_token_ends_its_logins_at_once(self) -> None:
        """
        The cookie stands for the token, and ends with it.
        """
        browser = self.log_in(self.named("viewer"))
        self.page("/", browser)

        self.act("tokens/viewer", "DELETE")

        self.assertEqual(303, self.fetch("GET", "/", **browser).status)

    def test_a_cookie_that_comes_from_another_peer_is_in_the_audit_log(self) -> None:
        """
        As its token would be.
        """
        browser = self.log_in(self.named("viewer"))
        self.page("/", browser)
        moved = IPv4Address("TCP", "203.0.113.9", 4000)

        self.assertEqual(200, self.fetch("GET", "/", peer=moved, **browser).status)

        found = [line for line in self.net.operations.audit.recent if line["action"] == "token use"]
        self.assertEqual(
            [("viewer", "203.0.113.9", "127.0.0.1")],
            [(line["who"], line["peer"], line["before"]) for line in found],
        )

    def test_a_bearer_token_opens_pages(self) -> None:
        """
        A program may read them without a login.
        """
        self.assertIn("Sessions", self.page("/sessions"))
        for token, code in (("mna_wrong", 303), (self.named("metrics"), 403)):
            found = self.fetch("GET", "/", Authorization=f"Bearer {token}")
            self.assertEqual(code, found.status)

    def test_over_tls_the_cookie_is_bound_to_the_host(self) -> None:
        """
        __Host- and Secure: no other port or subdomain can set or see it.
        """
        request: Any = DummyRequest([])
        request.isSecure = lambda: True

        Logins(self.net.tokens, self.net.clock.seconds).end(request)

        [cookie] = request.responseHeaders.getRawHeaders(b"Set-Cookie")
        self.assertTrue(cookie.startswith(b"__Host-msgnode-admin-80="), cookie)
        self.assertIn(b"; Secure", cookie)


class OtherOriginTests(DashboardCase):
    """
    Pages of other origins can neither read nor act, even if a browser sent the cookie with their requests.
    """

    def setUp(self) -> None:
        super().setUp()
        self.browser_headers = self.log_in()
        self.cookie = {"Cookie": self.browser_headers["Cookie"]}

    def test_they_cannot_read(self) -> None:
        """
        No page, no events, no traces, and no header that would let a script read the answer.
        """
        for path in ("/", "/sessions", "/api/v1/events", "/api/v1/traces"):
            found = self.fetch("GET", path, **self.cookie, **ELSEWHERE)
            self.assertIn(found.status, (303, 401), path)
            self.assertIsNone(found.headers["Access-Control-Allow-Origin"], path)

    def test_they_cannot_act(self) -> None:
        """
        Without the number of the login, or from another origin, nothing is done.
        """
        csrf = self.csrf(self.browser_headers)
        form = {"action": "kick", "runtime": A, "reason": "it is a test", "confirm": "1"}
        for headers in (
            ELSEWHERE,
            {**ELSEWHERE, "X_CSRF": csrf},
            {"Origin": "https://evil.example", "X_CSRF": csrf},
            OWN,
            {**OWN, "X_CSRF": "x" * 32},
            {"X_CSRF": csrf},
        ):
            found = self.fetch("POST", "/act", form, **self.cookie, **headers)
            self.assertEqual(403, found.status, headers)
        self.assertIsNotNone(self.node.sessions.get(A).connection)
        found = self.fetch("POST", "/api/v1/traces", {"session": A}, **self.cookie, **ELSEWHERE)
        self.assertEqual(401, found.status)

    def test_they_cannot_log_in_or_out(self) -> None:
        """
        A page may not make a browser work under another name.
        """
        for path in ("/login", "/logout"):
            found = self.fetch("POST", path, {"token": self.token}, **self.cookie, **ELSEWHERE)
            self.assertEqual(403, found.status)
        self.page("/", self.browser_headers)

    def test_an_old_browser_says_its_origin(self) -> None:
        """
        Without Sec-Fetch-Site, the Origin must be this host.
        """
        csrf = self.csrf(self.browser_headers)
        form = {"action": "kick", "runtime": A, "reason": "it is a test"}

        found = self.fetch("POST", "/act", form, **self.cookie, X_CSRF=csrf, Origin="http://example.org")

        self.assertEqual(200, found.status)

    def test_a_host_that_is_not_the_nodes_is_refused(self) -> None:
        """
        A name that resolves to this machine opens no page.
        """
        self.assertEqual(421, self.fetch("GET", "/", **self.browser_headers, Host="evil.example").status)
