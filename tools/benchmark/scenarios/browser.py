"""
The protostub in Chromium: page to page through the node, beside a raw WebSocket echo on the sender's page.

The pages report by HTTP, so that nothing looks on while they measure.
"""

import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import urlencode

from benchmark.peers.install import CHECKOUT, Venvs
from benchmark.peers.processes import family
from benchmark.peers.servers import Server, free_port

COUNT, WINDOW = 10_000, 256  # messages in a run, and under way
PATIENCE = 120.0  # seconds for one round
PAGE = Path(__file__).with_name("browser.html")
OPTIONS = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run"]
# The page that is not in front counts as much as the other.
OPTIONS += ["--disable-background-timer-throttling", "--disable-renderer-backgrounding"]
OPTIONS += ["--disable-backgrounding-occluded-windows", "--disable-background-networking"]
OPTIONS += ["--disable-popup-blocking"]  # the sender opens the receiver


class Pages(ThreadingHTTPServer):
    """
    Serves the page; `results` has what it reports.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.results: Queue[dict[str, float]] = Queue()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Request(BaseHTTPRequestHandler):
    server: Pages

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(PAGE.read_bytes())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.results.put(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *what: Any) -> None:
        pass


def measure(venvs: Venvs, rounds: int) -> dict[str, Any]:
    """
    Messages per second of each round, by the stub and by the socket; and the stub's size.
    """
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("needs chromium: apt-get install chromium")
    port = free_port()
    node, pages = Server("msgnode", venvs), Pages()
    echo = subprocess.Popen(
        [
            str(venvs.node / "bin" / "python"),
            str(Path(__file__).parents[1] / "peers" / "echo_server.py"),
            str(port),
        ]
    )
    asked: dict[str, Any] = {"role": "sender", "node": f"http://127.0.0.1:{node.ports['websocket']}"}
    asked |= {"echo": f"ws://127.0.0.1:{port}", "count": COUNT, "window": WINDOW, "rounds": rounds}
    url = f"http://127.0.0.1:{pages.server_address[1]}/?{urlencode(asked)}"
    profile = tempfile.mkdtemp(prefix="bench-browser-")
    browser = subprocess.Popen(
        [chromium, *OPTIONS, f"--user-data-dir={profile}", url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        runs = [pages.results.get(timeout=PATIENCE) for _ in range(rounds)]
    finally:
        for process in (browser, echo):
            _end(process)
        node.stop()
        pages.shutdown()
        shutil.rmtree(profile, ignore_errors=True)
    return {"runs": runs, "bytes": _size(), "load_average": os.getloadavg()[0]}


def _end(process: subprocess.Popen[bytes]) -> None:
    for pid in family(process.pid)[1:]:
        try:
            os.kill(pid, 15)
        except ProcessLookupError:
            continue
    process.kill()
    process.wait()


def _size() -> dict[str, int]:
    stub = (CHECKOUT / "msgnode" / "stub" / "default.ps.js").read_bytes()
    return {"plain": len(stub), "gzip": len(gzip.compress(stub, mtime=0))}


def told(result: dict[str, Any]) -> str:
    """
    The result in words: medians, and the ratio with its spread over the rounds.
    """
    runs, size = result["runs"], result["bytes"]
    stub, socket = (statistics.median(run[key] for run in runs) for key in ("stub", "socket"))
    ratios = sorted(run["stub"] / run["socket"] for run in runs)
    return "\n".join(
        [
            f"stub, page to page     {stub:8,.0f} messages/s",
            f"raw WebSocket echo     {socket:8,.0f} messages/s",
            f"ratio                  {statistics.median(ratios):8.2f}  ({ratios[0]:.2f} to {ratios[-1]:.2f})",
            f"default.ps.js          {size['plain']:8,} bytes, {size['gzip']:,} gzipped",
            f"load average           {result['load_average']:8.1f}",
        ]
    )


def main(venvs: Venvs, rounds: int) -> int:
    venvs.make({"msgnode"})
    print(f"{COUNT:,} messages of 100 B, {WINDOW} under way, {rounds} rounds", file=sys.stderr)
    print(told(measure(venvs, rounds)))
    return 0
