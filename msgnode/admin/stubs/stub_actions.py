"""
The foreign stubs of a node: listed, started, stopped and started again.
"""

from functools import partial
from typing import Any

import msgspec

from msgnode.admin.actions.audited import Audited, Plan
from msgnode.admin.api.endpoint import Call
from msgnode.admin.reads.inspector import Inspector
from msgnode.protocol.errors import Rejected

ACTIONS = ("start", "stop", "restart")


class StubRow(msgspec.Struct):
    """
    A stub: its domain, its state and since when, its version and where that came from, its figures, and how
    often it has reached which of its limits.

    `addresses` are those of the connectors in whose place it is, `subscribed` is the number of addresses at
    the foreign node, `waiting` that of messages.
    """

    name: str
    kind: str
    state: str
    since: float
    addresses: list[str]
    version: str
    digest: str
    source: str
    hosts: list[str]
    waiting: int
    subscribed: int
    failures: int
    last_error: str
    figures: dict[str, int]
    limits: dict[str, int]


class StubList(msgspec.Struct):
    """
    The stubs that the node runs, or has run.
    """

    stubs: list[StubRow]


class StubActions:
    """
    The actions on stubs.
    """

    def __init__(self, inspector: Inspector, audited: Audited) -> None:
        self._node = inspector.node
        self._audited = audited

    def stubs(self, call: Call) -> StubList:
        found = self._node.stubs.to_builtins() if self._node.stubs is not None else []
        return StubList(msgspec.convert(found, list[StubRow]))

    def act(self, what: str, call: Call) -> Any:
        """
        Starts, stops or restarts the stub of a domain; the answer has its entry.
        """
        stubs, domain = self._node.stubs, call.path["domain"]
        if stubs is None:
            raise Rejected("this node runs no stubs", 409)
        stubs.check(domain, what)
        plan = Plan(f"{what} stub", [domain], partial(stubs.act, domain, what))
        return self._audited.run(call, plan, call.body.reason)
