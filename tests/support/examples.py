"""
The examples in the documentation: how they are found, and how they are played.

docs/protocol.md says in its introduction how a conversation is written.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from twisted.internet.protocol import Protocol

from tests.support.network import Network
from tests.support.registry import RegistryNode
from tests.support.runtimes import WebSocketRuntime
from tests.support.world import World

TOP = Path(__file__).parents[2]
_STEP = re.compile(r"(?:(\w+) )?(->|<-|--) (.*)")
_PLACEHOLDER = re.compile(r"<([a-z][a-z ]*)>")


class Block(NamedTuple):
    """
    A fenced block: the heading it stands under, what follows the fence, its text.
    """

    section: str
    info: str
    text: str
    line: int


def blocks(path: str) -> list[Block]:
    """
    Every fenced block of a Markdown file.
    """
    found: list[Block] = []
    section, info, begun = "", None, []
    for number, line in enumerate((TOP / path).read_text("utf-8").splitlines(), 1):
        if line.startswith("```"):
            if info is None:
                info, begun = line[3:], []
            else:
                found.append(Block(section, info, "\n".join(begun), number - len(begun)))
                info = None
        elif info is not None:
            begun.append(line)
        elif line.startswith("## "):
            section = line[3:]
    return found


def sections(path: str) -> dict[str, list[Block]]:
    """
    The blocks of a file by the heading they stand under.
    """
    found: dict[str, list[Block]] = {}
    for block in blocks(path):
        found.setdefault(block.section, []).append(block)
    return found


def requests(block: Block) -> Iterator[tuple[str, str, str, str]]:
    """
    Of a block of packets: method, query and body of each request, and the body of its answer.
    """
    lines = iter(block.text.splitlines())
    for line in lines:
        method, query, *body = line.removeprefix("-> ").split(" ", 2)
        yield method, query, "".join(body), next(lines).removeprefix("<- ")


class Bound:
    """
    What the words in angle brackets stand for.
    """

    def __init__(self) -> None:
        self._words: dict[str, str] = {}

    def know(self, **words: str) -> None:
        """
        What these words stand for from the start; `_` is a space.
        """
        self._words.update({name.replace("_", " "): value for name, value in words.items()})

    def fill(self, text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: self._words.get(match[1], match[0]), text)

    def reads(self, expected: str, found: str) -> bool:
        """
        Is it the same text, where a word not heard before fits anything?
        """
        pattern = _PLACEHOLDER.sub(r"(?P<\1>.+?)", re.escape(self.fill(expected)).replace(r"\<", "<"))
        match = re.fullmatch(pattern, found)
        self._words.update(match.groupdict() if match else {})
        return match is not None

    def matches(self, expected: Any, found: Any) -> bool:
        """
        Is it the same, where a word not heard before fits anything?
        """
        if isinstance(expected, dict) and isinstance(found, dict):
            same = expected.keys() == found.keys()
            return same and all(self.matches(expected[key], found[key]) for key in expected)
        if isinstance(expected, list) and isinstance(found, list):
            return len(expected) == len(found) and all(map(self.matches, expected, found))
        if not isinstance(expected, str) or not isinstance(found, str):
            return type(expected) is type(found) and expected == found
        names = _PLACEHOLDER.findall(expected)
        parts = _PLACEHOLDER.split(self.fill(expected))
        unknown = [name for name in names if name not in self._words]
        pattern = "(.+)".join(re.escape(part) for part in parts[::2])
        match = re.fullmatch(pattern, found)
        if match is None:
            return False
        self._words.update(zip(unknown, match.groups(), strict=True))
        return True


class Line(Protocol):
    """
    A client of the line listener that shows everything that comes.
    """

    code = None

    def __init__(self, network: Network) -> None:
        self.raw: list[bytes] = []
        self._rest = b""
        network.link("line", self)

    def put(self, data: bytes) -> None:
        self.transport.write(data + b"\n")

    def dataReceived(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.raw += lines


class Play:
    """
    The conversations of one section, played against a node in memory.
    """

    def __init__(self, domain: str = "example.org") -> None:
        self._domain = domain
        self._network: Network | None = None
        self._settings: dict[str, Any] = {}
        self._clients: dict[str, Any] = {}
        self._bound = Bound()

    def configure(self, block: Block) -> None:
        """
        A block of TOML: what follows is said to a node of its own.
        """
        self._settings, self._network, self._clients = tomllib.loads(block.text), None, {}

    def converse(self, block: Block) -> None:
        """
        Say what clients say, and see that exactly the rest comes.
        """
        for line, who, arrow, text in _steps(block):
            where = f"line {line}: {who} {arrow} {text}"
            if arrow == "--":
                self._happen(text, who, block, where)
            elif arrow == "->":
                self._client(who, block).put(self._bound.fill(text).encode())
                self.network.pump()
            else:
                self._expect(who, text, block, where)
        for who, client in self._clients.items():
            assert client.raw == [], f"after line {block.line}: {who} was also sent {client.raw}"
            assert client.code is None, f"after line {block.line}: {who} was closed with {client.code}"

    @property
    def network(self) -> Network:
        if self._network is None:
            self._network = Network(RegistryNode(domain=self._domain, world=World, **self._settings))
            openid = self._network.node.world.openid
            later = {"iat": int(openid.wall()) + 540, "exp": int(openid.wall()) + 1140}
            self._bound.know(anns_token=openid.token(nonce="her key"), anns_newer_token=openid.token(**later))
            self._bound.know(challenge="E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM")
        return self._network

    def _client(self, who: str, block: Block, path: str | None = None) -> Any:
        """
        The client of that name; with its session open, unless it is being connected now.
        """
        client = self._clients.get(who)
        if client is None or path is not None:
            if block.info == "messages lines":
                client = Line(self.network)
            else:
                client = WebSocketRuntime(self.network, f"runtime://{self._domain}/{who}", path=path or "/ws")
            self._clients[who] = client
            if path is None and not _opens_itself(who, block):
                opening = {"id": 1, "type": "open", "from": f"runtime://{self._domain}/{who}"}
                client.put(json.dumps({**opening, "to": "mn:/session"}).encode())
                self.network.pump()
                assert json.loads(client.raw.pop())["body"]["code"] == 200
        return client

    def _happen(self, text: str, who: str, block: Block, where: str) -> None:
        if match := re.fullmatch(r"a client connects as (\w+)(?: to (\S+))?", text):
            self._client(match[1], block, match[2] or "/ws")
        elif match := re.fullmatch(r"(\d+) seconds pass", text):
            self.network.advance(int(match[1]))
        elif text == "is there":
            self._client(who, block)
        elif text == "is cut off":
            self._client(who, block).drop()
            self._clients[who].code = None
        elif text == "connects again":
            self._clients[who].connect()
            self.network.pump()
        elif match := re.fullmatch(r"is closed: (\d+) (.*)", text):
            client = self._clients.pop(who)
            assert (int(match[1]), match[2]) == (client.code, client.reason), where
        else:
            raise AssertionError(f"nobody knows what happens in {where}")

    def _expect(self, who: str, text: str, block: Block, where: str) -> None:
        client = self._client(who, block)
        assert client.raw, f"{where}: nothing came"
        found = json.loads(client.raw.pop(0))
        assert self._bound.matches(json.loads(text), found), f"{where}: but {found}"


def _opens_itself(who: str, block: Block) -> bool:
    """
    Is the first thing that client says an `open`?
    """
    arrow, text = next(step[2:] for step in _steps(block) if step[1] == who)
    return arrow == "->" and '"type":"open"' in text


def _steps(block: Block) -> Iterator[tuple[int, str, str, str]]:
    """
    Line number, client, arrow and text of each step; indented lines belong to the one before.
    """
    steps: list[list[Any]] = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        match = _STEP.fullmatch(line)
        if match:
            steps.append([number, match[1] or "ann", match[2], match[3]])
        else:
            assert line.startswith(" ") and steps, f"line {number}: {line}"
            steps[-1][3] += line.strip()
    return (tuple(step) for step in steps)  # type: ignore[misc]
