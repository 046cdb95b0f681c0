"""
Pages in Chromium, each of which is a runtime.
"""

import json
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.integration.browser import Browser
from tests.integration.process import PATIENCE

PAGES = Path(__file__).parents[1] / "pages"
SYSTEMJS = (
    Path(__file__).parents[2] / "tools" / "stub" / "node_modules" / "systemjs" / "dist" / "system.min.js"
)


class _Quiet(SimpleHTTPRequestHandler):
    def __init__(self, *given: Any, records: Path | None, **others: Any) -> None:
        self._records = records
        super().__init__(*given, **others)

    def translate_path(self, path: str) -> str:
        if path.startswith("/records/") and self._records is not None:
            return str(self._records / Path(path).name)
        return str(SYSTEMJS) if path.startswith("/system.js") else super().translate_path(path)

    def log_message(self, *what: Any) -> None:
        pass


class PageServer:
    """
    Serves tests/pages, SystemJS, and a directory of generated modules, from another origin than the node's.
    """

    def __init__(self, records: Path | None = None) -> None:
        handler = partial(_Quiet, directory=PAGES, records=records)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class PageRuntime:
    """
    A page with a bus, which loaded the node's stub as runtimes do.
    """

    def __init__(
        self, browser: Browser, pages: PageServer, node: int, url: str, form: str = "default.ps.js"
    ) -> None:
        self.url = url
        self._taken = 0
        asked = {"node": f"http://127.0.0.1:{node}", "runtime": url, "form": form}
        self.page = browser.page(f"http://127.0.0.1:{pages.port}/runtime.html?{urlencode(asked)}")
        self.until_live()

    def open(self) -> "PageRuntime":
        """
        The stub opens by itself.
        """
        return self

    def until_live(self) -> None:
        self.page.until("status() === 'live'")

    def reload(self) -> None:
        self.page.ask("Page.reload")
        self.until_live()

    def send(self, *messages: dict[str, Any]) -> None:
        self.page.run(f"send(...{json.dumps(messages)})")

    def pending(self) -> list[dict[str, Any]]:
        """
        What came and was not taken, without the stub's mark.
        """
        found = self.page.run(f"heard.slice({self._taken})")
        self._taken += len(found)
        return [_unmarked(message) for message in found]

    def take(self, number: int = 1) -> list[dict[str, Any]]:
        """
        Wait for so many messages; all that came.
        """
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < number and time.monotonic() < deadline:
            found += self.pending()
        return found


def _unmarked(message: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in message["body"].items() if key != "via"}
    rest = {key: value for key, value in message.items() if key != "body"}
    return {**rest, "body": body} if body else rest
