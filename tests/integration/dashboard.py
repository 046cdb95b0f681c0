"""
The dashboard in Chromium: a browser that is logged in, and a node with every trouble that its pages show.
"""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from tests.integration.browser import Browser, Page
from tests.integration.clustered import until
from tests.integration.process import PATIENCE, Lines, NodeProcess
from tests.support.certificate import PATH as CERTIFICATE

MODULES = Path(os.environ.get("MSGNODE_NODE", Path(__file__).parents[2] / ".node")) / "node_modules"
AXE = MODULES / "axe-core" / "axe.min.js"
NAME = "runtime://example.org/"
ANN, BOB, SLOW, AWAY, FLOOD = (NAME + each for each in ("ann", "bob", "slow", "away", "flood"))
ROOM = "comm://example.org/room/changes"
CONFIG = """
domain = "example.org"
web = ["ssl:0:privateKey={certificate}:certKey={certificate}:interface=127.0.0.1"]
lines = ["tcp:0:interface=127.0.0.1"]

[admin]
listen = "tcp:0:interface=127.0.0.1"

[limits]
session_rate_messages = 350

[session]
from_check = "refuse"
unused_expiry_seconds = 3600
queue_messages = 100
"""
# Violations of the Content-Security-Policy, and errors of scripts, are kept from the beginning of each page.
WATCH = """
window.wrong = [];
document.addEventListener("securitypolicyviolation",
  (e) => wrong.push(`${e.violatedDirective} ${e.blockedURI}`));
addEventListener("error", (e) => wrong.push(String(e.message)));
addEventListener("unhandledrejection", (e) => wrong.push(String(e.reason)));
"""


def update(id: int, sender: str, to: str, length: int = 10) -> dict[str, Any]:
    return {"id": id, "type": "update", "from": sender, "to": to, "body": {"value": "x" * length}}


class Troubles:
    """
    A node with a client that does not read, one that sends too much, one that is refused, one that is away
    with a full queue, and a certificate that ends soon.
    """

    def __init__(self, directory: Path) -> None:
        config = directory / "msgnode.toml"
        config.write_text(CONFIG.format(certificate=CERTIFICATE))
        self.node = NodeProcess("--config", str(config))
        self.url = f"http://127.0.0.1:{self.node.ports['admin']}"
        self.node.read_until("registry: embedded")  # its services have started, that of tokens too
        self.token = (self.node.state / "admin-token").read_text().strip()
        port = self.node.ports["line"]
        self.ann, self.bob, self.away, self.flood = (Lines(port, name) for name in (ANN, BOB, AWAY, FLOOD))
        self.bob.ask({"id": 2, "type": "subscribe", "from": BOB, "to": "domain://msg-node.example.org/sm",
                      "body": {"resources": [ROOM]}})  # fmt: skip
        self.away.close()
        until(lambda: self._live()["sessions"]["away"] > 0)  # before, messages go into the closed connection
        for n in range(130):
            self.ann.send(update(100 + n, ANN, AWAY))
        self.ann.send(update(7, BOB, BOB))
        self.slow = Lines(port)
        self.slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.slow.ask({"id": 1, "type": "open", "from": SLOW, "to": "mn:/session"})
        for n in range(300):
            self.ann.send(update(200 + n, ANN, SLOW, 30_000))
            if n % 4 == 3 and self._is_slow():
                break
        for n in range(400):
            self.flood.send(update(n, FLOOD, BOB))

    def _live(self) -> Any:
        with urlopen(f"{self.url}/live", timeout=PATIENCE) as answer:
            return json.load(answer)

    def _is_slow(self) -> bool:
        """
        Is there a client that does not read, and not only because the system is busy?
        """
        for _ in range(5):
            if not self.api("node")["slow"]:
                return False
            time.sleep(0.1)
        return True

    def api(self, path: str) -> Any:
        """
        What the admin API answers.
        """
        headers = {"Authorization": f"Bearer {self.token}"}
        with urlopen(Request(f"{self.url}/api/v1/{path}", headers=headers), timeout=PATIENCE) as answer:
            return json.load(answer)

    def stop(self) -> None:
        for client in (self.ann, self.bob, self.slow, self.flood):
            client.close()
        self.node.stop()


class Visitor:
    """
    A browser of an operator, logged in with a token.
    """

    def __init__(self, browser: Browser, url: str, token: str) -> None:
        self.url = url
        self.page: Page = browser.page("about:blank")
        self.page.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        self.go("/")
        self.page.until("document.querySelector('[name=token]') !== null")
        self.page.run(f"document.querySelector('[name=token]').value = {json.dumps(token)}")
        self.page.run("document.querySelector('.login button').click()")
        self.page.until("document.querySelector('header nav') !== null")

    def go(self, path: str) -> None:
        self.page.run("window.isOld = true")
        self.page.go(self.url + path)
        self.page.until("window.isOld !== true && document.readyState === 'complete'")

    def session(self, runtime: str) -> None:
        self.go(f"/session?name={quote(runtime, safe='')}")

    def text(self) -> str:
        found: str = self.page.run("document.querySelector('main').innerText")
        return found

    def until(self, text: str, patience: float = PATIENCE) -> None:
        """
        Wait until the page shows this.
        """
        self.page.until(f"document.querySelector('main').innerText.includes({json.dumps(text)})", patience)

    def act(self, action: str, **fields: str) -> None:
        """
        Open an action of the page, fill its form, and confirm it.
        """
        form = f"document.querySelector('.action form:has([name=action][value=\"{action}\"])')"
        self.page.run(f"{form}.closest('details').open = true")
        for name, value in {"reason": "it is a test", **fields}.items():
            self.page.run(f"{form}.querySelector('[name={name}]').value = {json.dumps(value)}")
        self.page.run(f"{form}.querySelector('button').click()")
        result = f"{form}.nextElementSibling"
        self.page.until(f"{result}.querySelector('button.danger') !== null")
        self.page.run(f"{result}.querySelector('button.danger').click()")
        self.page.until(f"{result}.innerText.includes('Audit')")

    def colours(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.page.ask("Emulation.setEmulatedMedia", features=features)

    def wide(self, width: int, height: int = 900) -> None:
        self.page.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def press(self, key: str) -> None:
        for type in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and type == "keyDown" else {}
            self.page.ask("Input.dispatchKeyEvent", type=type, key=key, **text)

    def wrong(self) -> list[str]:
        """
        What the page did that its policy forbids, and the errors of its scripts.
        """
        found: list[str] = self.page.run("window.wrong")
        return found
