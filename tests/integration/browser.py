"""
Chromium without a screen, driven by its DevTools protocol.
"""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.integration.process import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """
    One process with a profile of its own, and any number of pages.
    """

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self.profile = tempfile.mkdtemp(prefix="msgnode-browser-")
        # Root may only run it without its sandbox, and /dev/shm is small in containers.
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--mute-audio",
        ]
        # A page that was left is gone, with its connections.
        options += ["--disable-features=BackForwardCache"]
        options += ["--no-first-run", "--disable-extensions", "--disable-background-networking"]
        options += [f"--user-data-dir={self.profile}", "--remote-debugging-port=0", "about:blank"]
        said = Path(self.profile, "said")
        with said.open("w") as output:
            self.process = subprocess.Popen([CHROMIUM, *options], stdout=output, stderr=subprocess.STDOUT)
        self._opened = ExitStack()
        devtools = connect(self._where(said), max_size=None, compression=None)
        self._socket = self._opened.enter_context(devtools)
        self._id = 0

    def _where(self, said: Path) -> str:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = re.search(r"DevTools listening on (\S+)", said.read_text())
            if found:
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"Chromium did not start: {said.read_text()}")

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """
        A command of the DevTools protocol; its result.  Events are not listened to.
        """
        self._id += 1
        command = {"id": self._id, "method": method, "params": parameters}
        self._socket.send(json.dumps(command if session is None else {**command, "sessionId": session}))
        while True:
            answer = json.loads(self._socket.recv(PATIENCE * 3))
            if answer.get("id") == self._id:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def page(self, url: str, apart: bool = False) -> "Page":
        """
        A new page; `apart`: it shares no cookies with the others.
        """
        return Page(self, url, apart)

    def stop(self) -> None:
        self.process.kill()  # first: it may not answer the end of the connection for ten seconds
        self.process.wait(PATIENCE)
        self._opened.close()
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    """
    A tab.
    """

    def __init__(self, browser: Browser, url: str, apart: bool = False) -> None:
        self._browser = browser
        context = browser.ask("Target.createBrowserContext") if apart else {}
        self._target = browser.ask("Target.createTarget", url="about:blank", **context)["targetId"]
        attached = browser.ask("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        self.ask("Page.enable")
        self.ask("Network.enable")
        self.go(url)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **parameters)

    def go(self, url: str) -> None:
        self.ask("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """
        The value of an expression, or what its promise brings.
        """
        done = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description") or details["text"])
        return done["result"].get("value")

    def until(self, condition: str, patience: float = PATIENCE) -> Any:
        """
        Wait until an expression is true; its value.
        """
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            # A page that is being loaded has no context, or not yet what is asked for.
            try:
                value = self.run(condition)
            except AssertionError:
                value = None
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError(f"never: {condition}")

    def screenshot(self, path: str | Path, width: int = 800, height: int = 600) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        Path(path).write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        self._browser.ask("Target.closeTarget", targetId=self._target)
