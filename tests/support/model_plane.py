"""
The model of a data plane: it keeps flows as long as the node lets it, and carries nothing.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from twisted.trial.unittest import SynchronousTestCase

from msgnode.transport.data_plane import PLAIN, DataPlane, FlowTerms
from tests.support.fakes import Client, MemoryNode

NAMES = [f"runtime://example.org/{name}" for name in "abcdef"]


class Flow(NamedTuple):
    """
    A decision that would be repeated.
    """

    port: int
    from_: str
    to: str
    type: str
    recipients: tuple[int, ...]
    terms: FlowTerms = PLAIN


class ModelPlane(DataPlane):
    """
    A data plane that keeps flows, readiness and what is blocked, and carries nothing.
    """

    is_native = True

    def __init__(self) -> None:
        super().__init__()
        self.connections: list[Any] = []  # that have a port, from port 1 on
        self.flows_kept: set[Flow] = set()
        self.ready: set[int] = set()
        self.room: dict[int, tuple[int, int]] = {}  # by port that is ready, of clients that acknowledge
        self.blocked: set[int] = set()
        self.awaited: set[tuple[str, int | str]] = set()
        self.buckets = self.tallies = 0
        self.share = 0.0  # of permits that are logged
        self.idle: set[int] = set()  # buckets
        self.counted: list[tuple[int, int, int]] = []  # what `take_tallies` returns next

    def port(self, connection: Any) -> int:
        return self.connections.index(connection) + 1 if connection in self.connections else 0

    def ready_changed(self, connection: Any, is_ready: bool, room: tuple[int, int] | None) -> None:
        port = self.port(connection)
        self.ready -= {port}
        self.room.pop(port, None)
        if is_ready and port:
            self.ready.add(port)
            if room is not None:
                self.room[port] = room

    def room_changed(self, connection: Any, room: tuple[int, int]) -> None:
        if self.port(connection) in self.room:
            self.room[self.port(connection)] = room

    def session_changed(self, connection: Any) -> None:
        port = self.port(connection)
        self.flows_kept = {f for f in self.flows_kept if port != f.port and port not in f.recipients}

    def block(self, connection: Any) -> None:
        assert connection not in self.blocked
        self.blocked.add(self.port(connection))

    def unblock(self, connection: Any) -> None:
        self.blocked.remove(self.port(connection))

    def install(
        self,
        port: int,
        from_: str,
        to: str,
        type_: str,
        recipients: Sequence[int],
        line: Any,
        terms: FlowTerms = PLAIN,
    ) -> None:
        self.flows_kept -= {f for f in self.flows_kept if f[:4] == (port, from_, to, type_)}
        self.flows_kept.add(Flow(port, from_, to, type_, tuple(recipients), terms))

    def has_flow(self, port: int, from_: str, to: str, type_: str) -> bool:
        return any(
            flow[:4] == (port, from_, to, type_) and self.ready.issuperset(flow.recipients)
            for flow in self.flows_kept
        )

    def change(self, address: str) -> None:
        self.flows_kept = {flow for flow in self.flows_kept if address not in (flow.from_, flow.to)}

    def change_name(self, name: str) -> None:
        self.change(name)
        self.flows_kept = {flow for flow in self.flows_kept if not flow.to.startswith(f"{name}/")}

    def change_all(self) -> None:
        self.flows_kept.clear()

    def expect_response(self, address: str, id: int | str) -> None:
        self.awaited.add((address, id))

    def forget_response(self, address: str, id: int | str) -> None:
        self.awaited.remove((address, id))

    def add_bucket(self, messages: int, size: int) -> int:
        self.buckets += 1
        return self.buckets

    def remove_bucket(self, bucket: int) -> None:
        self.flows_kept = {flow for flow in self.flows_kept if bucket not in flow.terms.buckets}

    def is_bucket_idle(self, bucket: int, seconds: float) -> bool:
        return bucket in self.idle

    def set_sample_share(self, share: float) -> None:
        self.share = share

    def is_sample_due(self) -> bool:
        return self.share == 1.0

    def add_tally(self) -> int:
        self.tallies += 1
        return self.tallies - 1

    def take_tallies(self) -> list[tuple[int, int, int]]:
        counted, self.counted = self.counted, []
        return counted

    def forget_tallies(self) -> None:
        self.tallies = 0
        self.flows_kept.clear()

    def repeated(self) -> list[Flow]:
        """
        The flows by which a message would be carried now.
        """
        return [
            flow
            for flow in self.flows_kept
            if flow.port not in self.blocked and self.ready.issuperset(flow.recipients)
        ]


class FlowCase(SynchronousTestCase):
    """
    A node with the model of a data plane.
    """

    def setUp(self) -> None:
        self.plane = ModelPlane()
        self.node = MemoryNode(data_plane=self.plane, session={"expiry_seconds": 30})

    def connect(self, name: str) -> Client:
        client = Client(self.node)
        self.plane.connections.append(client)
        client.open(name)
        return client

    def send(self, client: Client, from_: str, to: str, **more: Any) -> None:
        client.tell({"id": 1, "type": "update", "from": from_, "to": to, **more})
