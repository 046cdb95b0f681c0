"""
The sessions of a node in a cluster: how they move from one member to another.
"""

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred, succeed

from msgnode.cluster.channels import Channel
from msgnode.cluster.directory.directory import ReplicatedDirectory
from msgnode.cluster.exchange.member_exchange import MemberExchange
from msgnode.cluster.moves.flushing import Flushing
from msgnode.cluster.moves.local_sessions import LocalSessions
from msgnode.cluster.moves.moves import Moves
from msgnode.cluster.moves.session_taking import SessionTaking
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.node import Node

LOOK_SECONDS = 0.002  # between two looks whether all is acknowledged
MAX_LOOK_SECONDS = 0.05
START_SECONDS = 10.0  # for which members that this node has known are expected


class ClusterSessions:
    """
    The parts by which sessions move. They have a channel of their own between members.
    """

    def __init__(
        self,
        node: Node,
        channel: Channel,
        directory: ReplicatedDirectory,
        streams: NodeStreams,
        members: MemberExchange,
        missing: Callable[[], set[str]],
        reactor: Any,
    ) -> None:
        self._node = node
        self._directory = directory
        self._streams = streams
        self._reactor = reactor
        self._missing = missing
        self._started_at = 0.0
        self.local = LocalSessions(node, reactor, self._refused, members.copy_id)
        flushing = Flushing(channel, reactor, self._acknowledged, self._expected)
        self.moves = Moves(
            channel,
            self.local,
            HeldSessions(node, directory),
            reactor,
            flushing=flushing,
            settled=members.settled,
        )
        channel.listener = self.moves
        self.local.more = self.moves.more
        self.local.own_flushed, self.local.flushed = flushing.own, flushing.flush
        directory.session_shared = self.moves.compare
        self.taking = SessionTaking(
            self.moves,
            self.local,
            directory,
            node.open_checks,
            node.input_order,
            self._is_open_to_all,
            lambda: None,
        )
        node.handshake.others = self.taking

    def start(self) -> None:
        """
        Begin, when the sessions of before a restart are there.
        """
        self._started_at = self._reactor.seconds()
        self.local.restore()
        self.moves.start()

    def stop(self) -> None:
        self.moves.stop()

    def _expected(self) -> set[str]:
        """
        The members that have no link, but are not suspected; at the start all that this node has known.
        """
        missing = self._missing()
        if self._reactor.seconds() - self._started_at < START_SECONDS:
            return missing
        return {node for node in missing if not self._directory.is_suspected(node)}

    def _refused(self, session: Any, claim: bytes) -> Any:
        return self.taking.refused(session, claim)

    def _is_open_to_all(self) -> bool:
        """
        May any client open any session?
        """
        return self._node.authenticator.is_open and self._node.config.session.takeover != "token"

    def _acknowledged(self, nodes: Iterable[str]) -> Deferred[None]:
        """
        Fires when these members have acknowledged all that is sent to them until now.
        """
        waits = [self._streams.unacknowledged(node) for node in nodes]
        done: Deferred[None] = Deferred()

        def look(seconds: float) -> None:
            waits[:] = [wait for wait in waits if wait()]
            if waits:
                self._reactor.callLater(seconds, look, min(2 * seconds, MAX_LOOK_SECONDS))
            else:
                done.callback(None)

        waits[:] = [wait for wait in waits if wait()]
        if not waits:
            return succeed(None)
        look(LOOK_SECONDS)
        return done


class HeldSessions:
    """
    The directory, as moves use it (SessionDirectory).
    """

    def __init__(self, node: Node, directory: ReplicatedDirectory) -> None:
        self._node = node
        self._directory = directory

    def other_holders(self, name: str) -> list[tuple[int, str]]:
        return [(entry.generation, node) for node, entry in self._directory.sessions(name)]

    def held(self, name: str, generation: int) -> None:
        held = self._node.routes.held
        if held is not None:
            held.opened(name)

    def let_go(self, name: str) -> None:
        self._directory.session_unbound(name)
