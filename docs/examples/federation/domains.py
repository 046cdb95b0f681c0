"""
Three domains on this machine, each with a certificate authority, a node and two links; what the page asks.

The page never gets a token of an operator: it asks here, and this program asks the nodes' admin listeners.
"""

import json
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

from node_pki.authority import DirectoryAuthority

A, B, C = "a.example", "b.example", "c.example"
# The way over B is longer, and cheaper.
COSTS = {(A, B): 10, (B, C): 10, (A, C): 30}
ORDERS = {"cut": "pause", "join": "resume"}
DAYS = 7
ANSWER_SECONDS = 5
MOST_BYTES = 1000  # of a request of the page


class NotAnswered(Exception):
    """
    A node did not answer; the text says which and why.
    """


class Domains:
    """
    The nodes of the three domains; `ports` has those of each, by kind.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._http = build_opener(ProxyHandler({}))
        self._asking = ThreadPoolExecutor(3)
        self.names = [A, B, C]
        self.links = {name: _free_port() for name in self.names}
        self.ports: dict[str, dict[str, int]] = {}

    def start(self, start_node: Callable[..., dict[str, int]]) -> None:
        """
        Start the nodes. `start_node` is called with a directory and options of twistd; it returns the ports.
        """
        for name in self.names:
            (self._directory / name).mkdir()
            (self._directory / name / "msgnode.toml").write_text(self._configuration(name))
        for name in self.names:
            directory = self._directory / name
            self.ports[name] = start_node(str(directory), "--config", "msgnode.toml", "--state", "state")

    def _configuration(self, name: str) -> str:
        """
        What docs/federation.md tells an owner to write, with a cost for each link.
        """
        cert, key = DirectoryAuthority(self._directory / "pki" / name).issue(name, DAYS)
        anywhere = "tcp:0:interface=127.0.0.1"
        lines = [
            f'domain = "{name}"\nnode = "n1"\nweb = ["{anywhere}"]\nlines = []',
            f'[admin]\nlisten = "{anywhere}"',
            f'[federation]\nlisten = "tcp:{self.links[name]}:interface=127.0.0.1"',
            f'cert = "{cert}"\nkey = "{key}"',
        ]
        for ends, cost in COSTS.items():
            if name in ends:
                other = ends[1] if ends[0] == name else ends[0]
                ca = self._directory / "pki" / other / "ca.pem"
                DirectoryAuthority(ca.parent)  # makes it, if it is not there
                lines.append(
                    f'[[peer]]\ndomain = "{other}"\nurl = "wss://127.0.0.1:{self.links[other]}/link"\n'
                    f'ca = "{ca}"\ncost = {cost}\ntransit = true'
                )
        return "\n".join(lines) + "\n"

    def map(self) -> dict[str, Any]:
        """
        The nodes, the links with their costs and states, and the route from the first domain to the last.
        """
        explained, *seen = self._asking.map(
            self._ask,
            (A, A, B, A, B),
            (f"routes/explain?address={C}", "links", "links", "routes", "routes"),
        )
        listings, maps = dict(zip((A, B), seen[:2], strict=True)), dict(zip((A, B), seen[2:], strict=True))
        links = []
        for (one, other), cost in COSTS.items():
            is_used = _is_used(maps[one], {one, other})
            links.append({"ends": [one, other], "cost": cost, "state": _state(listings[one], other, is_used)})
        path = explained["path"]
        return {
            "nodes": [
                {"domain": name, "web": f"http://127.0.0.1:{self.ports[name]['web']}"} for name in self.names
            ],
            "links": links,
            "route": path
            and {
                "domains": [
                    _domain(node) for node in (explained["node"], *(hop["node"] for hop in path["hops"]))
                ],
                "cost": path["cost"],
            },
        }

    def order(self, verb: str, one: str, other: str) -> None:
        """
        Cut a link, or join its ends again: both nodes get the order of an operator.
        """
        if verb not in ORDERS or (one, other) not in COSTS:
            raise ValueError(f"there is no link between {one} and {other} to {verb}")
        self._ask(one, f"links/{other}/{ORDERS[verb]}", "POST")
        self._ask(other, f"links/{one}/{ORDERS[verb]}", "POST")

    def _ask(self, name: str, path: str, method: str = "GET") -> Any:
        """
        The answer of a node's admin API. Raises NotAnswered.
        """
        url = f"http://127.0.0.1:{self.ports[name]['admin']}/api/v1/{path}"
        try:
            token = (self._directory / name / "state" / "admin-token").read_text().split()[0]
            headers = {"Authorization": f"Bearer {token}", "X-Reason": "asked for on the page of the example"}
            request = Request(url, method=method, headers=headers)
            with self._http.open(request, timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)
        except HTTPError as why:
            raise NotAnswered(f"the node of {name}: {json.load(why)['description']}") from None
        except (OSError, ValueError, IndexError) as why:
            raise NotAnswered(f"the node of {name} does not answer: {why}") from None


def _is_used(map_: dict[str, Any], ends: set[str]) -> bool:
    """
    Do both ends of a link advertise it?
    """
    found = [each for each in map_["links"] if {_domain(each["one"]), _domain(each["other"])} == ends]
    return any(each["cost"] is not None for each in found)


def _state(listing: dict[str, Any], domain: str, is_used: bool) -> str:
    """
    `up`, `cut`, `settling` while a link is up and not used yet, or `connecting`.
    """
    found = next((each for each in listing["domains"] if each["domain"] == domain), None)
    if found is not None and found["admin_state"] != "enabled":
        return "cut"
    states = {link["state"] for link in found["links"]} if found is not None else set()
    if "up" in states and is_used:
        return "up"
    return "settling" if states & {"up", "synchronising"} else "connecting"


def _domain(node: str) -> str:
    """
    The domain of mn://<domain>/<node>.
    """
    return urlsplit(node).netloc


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def handler_of(domains: Domains, pages: type[SimpleHTTPRequestHandler]) -> type[Any]:
    """
    The handler that serves the pages, and the page's questions: GET map, POST cut and join.
    """

    class Handler(pages):  # type: ignore[misc, valid-type]
        def do_GET(self) -> None:
            if self.path == "/federation/map":
                self._answer(domains.map)
            else:
                super().do_GET()

        def do_POST(self) -> None:
            verb = self.path.removeprefix("/federation/")
            # A form of another site cannot send JSON without asking first, and nobody answers that it may.
            if self.headers.get("Content-Type") != "application/json":
                self._json(415, {"error": "expected JSON"})
                return
            self._answer(lambda: domains.order(verb, *self._ends()))

        def _ends(self) -> tuple[str, str]:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 < length <= MOST_BYTES:
                raise ValueError(f"expected 1 to {MOST_BYTES} bytes of JSON")
            one, other = json.loads(self.rfile.read(length))["ends"]
            return str(one), str(other)

        def _answer(self, question: Callable[[], Any]) -> None:
            host, port = self.server.server_address[:2]
            if self.headers.get("Host") not in (f"{host}:{port}", f"localhost:{port}"):
                self._json(421, {"error": "this is another host"})
                return
            try:
                self._json(200, question() or {})
            except NotAnswered as why:
                self._json(503, {"error": str(why)})
            except (ValueError, KeyError, TypeError) as why:
                self._json(400, {"error": str(why)})

        def _json(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

    return Handler
