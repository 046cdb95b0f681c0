"""
What an attack is, and what it is given: the node's ports, clients from its own host, and how to judge.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from attacking.load.clients import Answer, Closed, Connection, Http, Line, Message, WebSocket
from attacking.peers.node_process import Node

MIB = 1 << 20
C = TypeVar("C", bound=Connection)

NODE = "domain://msg-node.localhost"
SM = f"{NODE}/sm"
ALLOCATION = f"{NODE}/address-allocation"


class Broke(Exception):
    """
    What the node did not bear.
    """


class Ground:
    """
    Where one attack takes place.

    `full` is its whole size, else a small one; `host` the address that its
    clients come from, another than the canary's.
    """

    def __init__(self, node: Node, full: bool, host: str) -> None:
        self.node = node
        self.full = full
        self.host = host
        self.sent = 0
        self._name = host.replace(".", "-")
        self._open: list[Connection] = []

    def size(self, small: int, full: int) -> int:
        return full if self.full else small

    def name(self, word: str) -> str:
        """
        A runtimeURL of this attack's own.
        """
        return f"runtime://localhost/{word}-{self._name}"

    def topic(self, word: str) -> str:
        """
        An address of this attack's own, where anybody may publish.
        """
        return f"comm://localhost/{word}-{self._name}/changes"

    # -- clients -------------------------------------------------------------

    def line(self, word: str = "", host: str = "", window: int = 0) -> Line:
        """
        A client by lines; with a session of that name, if there is one.
        """
        return self._opened(Line(self.node.ports["line"], host or self.host, self.count, window), word)

    def websocket(self, word: str = "", deflate: bool = False, window: int = 0) -> WebSocket:
        return self._opened(WebSocket(self.node.ports["web"], self.host, self.count, deflate, window), word)

    def raw(self, port: str = "web", window: int = 0) -> Connection:
        return self._opened(Connection(self.node.ports[port], self.host, self.count, window), "")

    def http(self, port: str = "web") -> Http:
        return Http(self.node.ports[port], self.host, self.count)

    def count(self, number: int) -> None:
        self.sent += number

    def leave(self) -> None:
        for client in self._open:
            with suppress(OSError):
                client.close()

    def _opened(self, client: C, word: str) -> C:
        self._open.append(client)
        if word:
            client.open(self.name(word))
        return client

    # -- judging -------------------------------------------------------------

    def answered(self, found: Message | Closed | Answer, *codes: int) -> str:
        """
        One of these codes, and words with it; the words.
        """
        code, text = _code(found)
        if code not in codes:
            wanted = " or ".join(map(str, codes))
            raise Broke(f"expected {wanted}, got {code or 'no code'} {text[:120]}".strip())
        if code >= 300 and len(text) < 4:
            raise Broke(f"{code} without a word")
        return text

    def refused(self, client: Connection, message: Message | bytes, *codes: int, number: int = 0) -> None:
        """
        The message, whose number must be given if it is in bytes, is answered with one of these codes.
        """
        refusal = client.ask_for_refusal(message, number)
        if refusal is None:
            raise Broke("it was carried")
        self.answered(refusal, *codes)

    def check(self, holds: Any, otherwise: str) -> None:
        if not holds:
            raise Broke(otherwise)

    def bounded(self, what: str, found: int, most: int) -> None:
        if found > most:
            raise Broke(f"{what}: {found / 1e6:,.1f} MB, at most {most / 1e6:,.1f} MB wanted")


def _code(found: Message | Closed | Answer) -> tuple[int, str]:
    if isinstance(found, Closed):
        return found.code, found.reason
    if isinstance(found, Answer):
        return found.status, found.body.decode(errors="replace")
    body = found.get("body") or {}
    return body.get("code", 0), body.get("description", "")


class Attack(NamedTuple):
    """
    `memory` is how many bytes the node may grow by meanwhile.  `config` is what the node runs with; `newer`
    what an earlier version may not know, and runs without; `lowered` too, for a small one to meet a limit.
    """

    name: str
    does: str
    run: Callable[[Ground], object]
    memory: int
    config: str
    newer: str
    lowered: str


ATTACKS: list[Attack] = []


def attack(
    name: str, does: str, memory: int = 96 * MIB, config: str = "", newer: str = "", lowered: str = ""
) -> Callable[[Callable[[Ground], object]], Callable[[Ground], object]]:
    """
    Another one.
    """

    def add(run: Callable[[Ground], object]) -> Callable[[Ground], object]:
        ATTACKS.append(Attack(name, does, run, memory, config, newer, lowered))
        return run

    return add
