"""
A browser in memory at the dashboard of a node in memory.
"""

import re
from typing import Any
from urllib.parse import urlencode

from tests.support.admin_case import AdminCase
from tests.support.http_client import HTTPClient, Response

OWN = {"Sec_Fetch_Site": "same-origin"}
CSRF = re.compile(r"&#34;X-CSRF&#34;: &#34;|\"X-CSRF\": \"([^\"]+)\"")


class DashboardCase(AdminCase):
    """
    A node with two clients; `log_in` gives what a browser sends from then on.
    """

    def fetch(self, method: str, path: str, form: Any = None, **headers: str) -> Response:
        """
        A request of a browser, with as much time as it needs.
        """
        peer = headers.pop("peer", None)
        data = b"" if form is None else urlencode(form).encode()
        if form is not None:
            headers["Content_Type"] = "application/x-www-form-urlencoded"
        http = HTTPClient(self.net, "admin", peer)
        http.start(method, path, data, **headers)
        self.net.pump()
        for _ in range(20):
            if http.response is not None:
                return http.response
            self.net.advance(0.5)
        raise AssertionError(f"no response to {method} {path}")

    def log_in(self, token: str | None = None, **headers: str) -> dict[str, str]:
        """
        The headers of a browser that is logged in.
        """
        found = self.fetch("POST", "/login", {"token": token or self.token}, **{**OWN, **headers})
        self.assertEqual(303, found.status, found.body)
        cookie = found.headers["Set-Cookie"].partition(";")[0]
        return {"Cookie": cookie, **OWN}

    def page(self, path: str, browser: dict[str, str] | None = None) -> str:
        """
        The text of a page, as an admin sees it.
        """
        found = self.fetch("GET", path, **(browser or {"Authorization": f"Bearer {self.token}"}))
        self.assertEqual(200, found.status, found.body)
        return found.body.decode()

    def csrf(self, browser: dict[str, str]) -> str:
        found = CSRF.search(self.page(self.fetch("GET", "/", **browser).headers["Location"] or "/", browser))
        assert found is not None
        return found[1]

    def submit(self, browser: dict[str, str], action: str, **fields: Any) -> Response:
        """
        A form of a page, sent as its script sends it.
        """
        form = {"action": action, "reason": "it is a test", **fields}
        return self.fetch("POST", "/act", form, X_CSRF=self.csrf(browser), HX_Request="true", **browser)

    def confirm(self, browser: dict[str, str], action: str, **fields: Any) -> Response:
        """
        A form that is sent, and confirmed when the page says whom it concerns.
        """
        asked = self.submit(browser, action, **fields)
        self.assertEqual(200, asked.status, asked.body)
        again = dict(re.findall(r'name="(\w+)" value="([^"]*)"', asked.body.decode()))
        self.assertIn("check", again, asked.body)
        return self.submit(browser, **again)
