"""
The live services of a node: its events, their readers, and its traces.
"""

import time
from collections.abc import Callable
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime

from msgnode.admin.live.event_ring import EventRing
from msgnode.admin.live.event_sources import EventSources
from msgnode.admin.live.event_stream import EventStreams
from msgnode.admin.live.traces import Traces
from msgnode.admin.node_facts import NodeFacts
from msgnode.node import Node
from msgnode.storage.json_lines import cut


class Live(MultiService):
    """
    The service of events and traces.

    `run` calls a function, maybe in a thread; `wall` gives seconds since 1970.
    """

    def __init__(
        self,
        node: Node,
        facts: NodeFacts,
        clock: IReactorTime,
        run: Callable[..., Deferred[Any]] = maybeDeferred,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.ring = EventRing(wall)
        sources = EventSources(node, facts, self.ring)
        self.look = sources.look  # puts what has happened into the ring at once
        self.streams = EventStreams(node, sources, self.ring, clock)
        self.traces = Traces(node, clock, run, wall)
        self.streams.setServiceParent(self)
        self.traces.setServiceParent(self)

    def events_of(self, runtime: str, most: int) -> list[dict[str, Any]]:
        """
        The newest events of one session, also those of this moment.
        """
        self.look()
        return self.ring.of_session(cut(runtime), most)
