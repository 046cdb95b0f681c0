"""
The relay of a node in a cluster: the requests and the superseded connections of clients whose session is at
another member.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from msgspec import structs

from msgnode.cluster.channels import Channels
from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.relay.connections import ConnectionRelay
from msgnode.cluster.relay.holders import SessionNames, SidTags, TokenHolders
from msgnode.cluster.relay.member_relay import MemberRelay
from msgnode.cluster.relay.relay import Relay, RelayLimits
from msgnode.node import Node
from msgnode.protocol.close_codes import Closing
from msgnode.sessions.session import Connection, Session

RELAYED_BYTES = 8 * 1024 * 1024  # of the longest response that is relayed, without its last message
WINDOW_BYTES = 1024 * 1024  # of relayed requests and responses on their way to one member


class SessionHolders(Protocol):
    """
    The directory, as relays use it.
    """

    def session_holder(self, name: str) -> str:
        """
        The other member that holds the session; "" if none does.
        """

    def token_holder(self, token_hash: bytes) -> str:
        """
        The other member that holds the session with a token of this hash; "" if none is known to.
        """


class ClusterRelay:
    """
    The relay of requests and that of connections, each with a channel of its own. `up` has the members that
    are reached, `away` those that are not, and may soon be back.
    """

    def __init__(
        self,
        node: Node,
        channels: Channels,
        requests: MemberRequests,
        up: Callable[[], Iterable[str]],
        away: Callable[[], Iterable[str]],
        directory: SessionHolders,
        clock: Any,
    ) -> None:
        config, sessions = node.config, node.sessions
        channel = channels.make(b"h")
        body_bytes = RELAYED_BYTES + 4 * config.limits.message_bytes  # escaped twice, at worst
        window_bytes = min(WINDOW_BYTES, config.cluster.link_queue_bytes // 4)
        limits = RelayLimits(config.cluster.relayed_requests, body_bytes, window_bytes)
        self._requests = channel.listener = Relay(channel, clock, limits)
        self._requests.serve = lambda member, request: node.serve_relayed(member, request)
        known = TokenHolders(
            requests,
            lambda token_hash: sessions.by_token_hash(token_hash) is not None,
            directory.token_holder,
            up,
            away,
            clock.seconds,
        )
        sids = SidTags(channel.node, channel.epoch)
        self._requests.on_up.append(sids.member_up)
        names = SessionNames(requests, lambda token_hash: name_of(sessions.by_token_hash(token_hash)))
        node.member_relay = MemberRelay(self._requests, known, sids, names)
        channel = channels.make(b"s")
        self._connections = channel.listener = ConnectionRelay(
            channel,
            RelayedSessions(node),
            directory.session_holder,
            clock,
            lambda: config.limits.message_bytes,
        )
        sessions.relay_connection = self._connections.keep
        sessions.is_relayed = self._connections.__contains__
        sessions.connections.left = self._connections.left
        node.ingress.relay = self._connections.relay

    def stop(self) -> None:
        self._requests.stop()

    def counts(self) -> dict[str, int]:
        """
        The counts of requests and connections, by event.
        """
        return {**structs.asdict(self._requests.counts), **structs.asdict(self._connections.counts)}

    @property
    def requests_now(self) -> int:
        return self._requests.under_way

    @property
    def connections_now(self) -> int:
        return len(self._connections)


def name_of(session: Session | None) -> str:
    return session.runtime if session is not None else ""


class RelayedSessions:
    """
    The sessions and connections of a node, as the relay of connections sees them (SessionsHere).
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._sessions, self._connections = node.sessions, node.sessions.connections

    def find(self, runtime: str, generation: int) -> Session | None:
        session = self._sessions.get(runtime)
        return session if session is not None and session.generation >= generation else None

    def supersede(self, connection: Connection, session: Session) -> None:
        self._sessions.supersede(connection, session)

    def lost(self, connection: Connection) -> None:
        self._connections.lost(connection)

    def begin(self, connection: Connection) -> None:
        self._connections.made(connection)

    def close(self, connection: Connection, why: Closing) -> None:
        self._connections.close(connection, why)

    def answer(self, connection: Connection, data: bytes) -> None:
        self._connections.send_or_close(connection, data)

    def resumed(self, connection: Connection) -> None:
        self._connections.write_resumed(connection)

    def receive(self, data: bytes, connection: Connection) -> None:
        with self._node.ingress.together:
            self._node.receive(data, connection)

    def settle(self) -> None:
        self._node.settle()
