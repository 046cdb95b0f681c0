"""
The questions of an operator that pages answer: each test makes the trouble, and reads the page.
"""

import time
from types import SimpleNamespace

from cryptography import x509

from tests.admin.pages.test_pages import Elements
from tests.support import certificate
from tests.support.admin_case import A, B, C
from tests.support.dashboard_case import DashboardCase
from tests.support.runtimes import TCPRuntime, dumps


class QuestionTests(DashboardCase):
    """
    Load, certificate, version.
    """

    sections = {"session": {"queue_messages": 3}}

    def tell(self, number: int, size: int = 1) -> None:
        body = {"value": "v" * size}
        for id in range(number):
            message = {"id": id, "type": "update", "from": f"{A}/x", "to": f"{B}/y", "body": body}
            self.device.send(dumps(message))

    def first(self, path: str) -> str:
        """
        The name in the first row of a list.
        """
        page = self.page(path)
        body = page[page.index("<tbody") :]
        return next(name for name in (A, B, C) if name in Elements(body[: body.index("</tr>")]).text)

    def test_which_session_holds_the_memory(self) -> None:
        """
        One that is away, with messages that wait.
        """
        TCPRuntime(self.net, C).open()
        self.browser.drop()
        self.tell(2, 1000)

        self.assertEqual(B, self.first("/sessions?sort=-waiting_bytes"))

    def test_who_sends_most(self) -> None:
        """
        The heading of received messages sorts by them.
        """
        TCPRuntime(self.net, C).open()
        self.tell(5)

        self.assertEqual(A, self.first("/sessions?sort=-in_messages"))

    def test_whose_queue_is_full(self) -> None:
        """
        What was dropped from it is on its page and among the refusals, with the bound to change.
        """
        self.browser.drop()
        self.tell(5)

        for path in (f"/session?name={B}", "/refusals?reason=overflow"):
            text = Elements(self.page(path)).text
            self.assertIn("overflow", text)
            self.assertIn("2 times", text)
            self.assertIn("session.queue_messages", text)

    def test_when_does_a_certificate_end(self) -> None:
        """
        A warning on the first page two weeks before.
        """
        made = x509.load_pem_x509_certificate(certificate.PEM)
        tls = SimpleNamespace(certificate=made)
        listener = SimpleNamespace(kind="web", where="tcp:443", tls=tls)
        self.net.facts.listening = [listener]  # type: ignore[list-item]
        self.net.facts.wall = time.time

        text = " ".join(Elements(self.page("/")).text.split())
        self.assertIn("the certificate of the web listener tcp:443 ends in 1 day", text)

    def test_which_version_and_configuration_run(self) -> None:
        """
        With the revision that the API names.
        """
        found = self.get("node")

        text = Elements(self.page("/")).text
        self.assertIn(found["version"], text)
        self.assertIn(found["config_revision"], text)
