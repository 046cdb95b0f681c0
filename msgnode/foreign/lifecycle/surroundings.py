"""
The parts of a node that a lifecycle uses, and the traffic of the domain, to which it reports.
"""

from collections.abc import Callable
from typing import Protocol

from msgnode.foreign.fetch.supply import Sources
from msgnode.foreign.lifecycle.stub_host import StubHosts
from msgnode.foreign.lifecycle.stub_instance import StubInstance
from msgnode.protocol.errors import Rejected


class Surroundings(Sources, Protocol):
    """
    The parts that the lifecycles of all stubs share.
    """

    hosts: StubHosts
    chance: Callable[[], float]
    own: str
    node: str

    def may_start(self, domain: str) -> bool:
        """
        May one more stub run?
        """


class Traffic(Protocol):
    """
    The messages of the domain, to which the lifecycle reports.
    """

    def is_needed(self) -> bool:
        """
        Is there something to send, or a subscription of a client here?
        """

    def became_live(self) -> None: ...
    def was_lost(self) -> None:
        """
        The stub is not live any more.
        """

    def may_send(self) -> None: ...
    def received(self, message: bytes, process: StubInstance) -> int:
        """
        Receives a message of the stub; returns as how many it counts.
        """

    def gave_up(self, why: Rejected) -> None:
        """
        No stub can be run for now.
        """

    def prod(self) -> None:
        """
        Posts something harmless: some stubs connect only when they are to send.
        """
