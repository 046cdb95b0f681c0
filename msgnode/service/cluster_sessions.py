"""
The sessions of a node in a cluster: how they move from one member to another.
"""

from collections.abc import Callable
from typing import Any

from msgspec import structs
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from msgnode.cluster.channels import Channel
from msgnode.cluster.directory.directory import ReplicatedDirectory
from msgnode.cluster.exchange.member_exchange import MemberExchange
from msgnode.cluster.joining import MOST_SECONDS, Joining
from msgnode.cluster.moves.drain import Drain
from msgnode.cluster.moves.flushing import Acknowledgements, Flushing
from msgnode.cluster.moves.local_sessions import LocalSessions
from msgnode.cluster.moves.moves import Moves
from msgnode.cluster.moves.read_gate import HeldInput, ReadGate
from msgnode.cluster.moves.session_taking import SessionTaking
from msgnode.cluster.moves.wire import Introduction
from msgnode.links.stream.node_streams import NodeStreams
from msgnode.node import Node
from msgnode.protocol.close_codes import STOPPING

AGAIN_SECONDS = 0.25  # until members are asked again what they hold
SETTLE_TRIES = 4
CATCH_UP_SECONDS = 5.0  # for which clients wait for what members had sent to this node
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
        is_connected: Callable[[], bool],
        reactor: Any,
    ) -> None:
        self._node = node
        self._directory = directory
        self._channel = channel
        self._reactor = reactor
        self._members = members
        self._missing = missing
        self._is_connected = is_connected
        self._comparing: Joining | None = None
        self._started_at = 0.0
        self.local = LocalSessions(node, reactor, self._refused, members.copy_id)
        options = node.config.cluster
        self.local.most_late, self.local.copies.most = options.moving_sessions, options.moving_copies
        self._acknowledgements = Acknowledgements(streams, reactor, node.fanout.decided)
        acknowledged, owes = self._acknowledgements.wait, self._acknowledgements.is_owed
        flushing = Flushing(channel, reactor, acknowledged, self._expected, missing, owes)
        self.moves = Moves(
            channel,
            self.local,
            HeldSessions(node, directory),
            reactor,
            flushing=flushing,
            settled=self._settled,
            most=options.moving_sessions,
        )
        channel.listener = self.moves
        self.moves.is_gone = lambda node: node not in {*missing(), *channel.up()}
        self.local.more = self.moves.more
        self.local.requests = members.outgoing
        self.local.has_others = lambda name: bool(directory.sessions(name))
        self.local.away, self.local.late_members = missing, flushing.late_members
        self.local.absent.up(channel.node, channel.epoch[0])
        node.sessions.copy_id = members.copy_id
        self.local.own_flushed, self.local.flushed = flushing.own, flushing.flush
        self.local.copy_marks = members.copy_marks.all
        self.local.arrived = lambda: flushing.flush(channel.node)
        directory.session_added, directory.session_shared = self.moves.heard_of, self.moves.compare
        directory.session_absent = self.moves.newer_holder_is_absent
        directory.last_copy = lambda: members.ids.last
        directory.acknowledged, self.local.has_heard = self.local.beginnings.heard, directory.has
        held = HeldInput(
            node.sessions.connections, node.sessions, node.input_order, node.slices, self.local.flush
        )
        self.gate = ReadGate(reactor, self._compare, held.hold, held.release)
        node.call_before_reads(self.gate.check)
        directory.heard_again = lambda: self.gate.close("no other member was heard for a while")
        self.taking = SessionTaking(
            self.moves,
            self.local,
            directory,
            node.open_checks,
            node.input_order,
            self._is_open_to_all,
            held.ready,
        )
        node.handshake.others = self.taking
        self.moves.introduction = Introduction(node.config.cluster.client_url, True)
        self._drain = Drain(self.moves, self._held, self._takers, self._give, reactor)
        if node.config.cluster.handover_seconds:
            node.sessions.hand_over = self.drain
            node.sessions.stop_seconds = node.config.cluster.handover_seconds

    def start(self) -> None:
        """
        Begin, when the sessions of before a restart are there.
        """
        self._started_at = self._reactor.seconds()
        self.local.restore()
        self.moves.start()
        self.gate.start()

    def stop(self) -> None:
        self.gate.stop()
        if self._comparing is not None:
            self._comparing.stop()
        self._drain.stop()
        self._acknowledgements.stop()
        self.local.beginnings.stop()
        self.moves.stop()

    def figures(self) -> dict[str, int]:
        """
        The counts of moves, by event.
        """
        found: dict[str, int] = structs.asdict(self.moves.counts)
        return found | {
            "unflushed": self.moves.flushing.timeouts,
            "put_off": self.moves.put_off,
            "unsaid": self.moves.unsaid,
            "given_up": self.local.given_up,
            "forgotten": self.local.copies.forgotten,
            "standstills": self.gate.times_closed,
        }

    def under_way(self) -> dict[str, int]:
        """
        The moves under way, by direction.
        """
        found = dict(zip(("asked", "arriving", "leaving"), self.moves.under_way, strict=True))
        return found | {"late": self.local.late}

    # -- after a standstill -----------------------------------------------------------

    def _compare(self) -> Deferred[None]:
        """
        Fires when the members are reached again and have said what they hold, as at a start. A link that
        ended meanwhile may still seem to be up: then they are asked again.
        """
        done: Deferred[None] = Deferred()
        until = self._reactor.seconds() + MOST_SECONDS

        def compare() -> Deferred[None]:
            return self._directory.compare().addCallback(compared)

        def compared(result: None) -> Deferred[None] | None:
            if self._reactor.seconds() >= until:
                return None
            if not (self._directory.is_unanswered or self._unreached()):
                return self.catch_up()
            return deferLater(self._reactor, AGAIN_SECONDS).addCallback(lambda done: compare())

        if self._comparing is not None:
            self._comparing.stop()
        self._comparing = Joining(
            self._is_connected,
            lambda: True,
            self._unreached,
            compare,
            lambda: done.callback(None),
            self._reactor,
        )
        self._comparing.start()
        return done

    def catch_up(self) -> Deferred[None]:
        """
        Fires when all has arrived that members had sent while this node was not reached, or after
        CATCH_UP_SECONDS. A session that comes here has had that at its earlier node.
        """
        until = self._reactor.seconds() + CATCH_UP_SECONDS

        def arrived(is_late: bool) -> Deferred[None] | None:
            is_over = self._reactor.seconds() >= until
            return None if is_over or not self.moves.flushing.is_slow else flush()

        def flush() -> Deferred[None]:
            return self.moves.flushing.flush(self._channel.node).addCallback(arrived)

        return flush()

    # -- draining ---------------------------------------------------------------------

    def drain(self) -> Deferred[None]:
        """
        Hand all sessions over to other members; fires when they have them, after `handover_seconds` at most.
        New clients should be turned away before.
        """
        self.moves.introduction = Introduction("", False)
        for node in self._channel.up():
            self.moves.introduce(node)
        return self._drain.begin(self._node.config.cluster.handover_seconds)

    def take_again(self) -> None:
        """
        This node takes sessions of others again, after a drain.
        """
        self._drain.stop()
        self.moves.introduction = Introduction(self._node.config.cluster.client_url, True)
        for node in self._channel.up():
            self.moves.introduce(node)

    def _held(self) -> list[str]:
        return [session.runtime for session in self._node.sessions if not session.is_node]

    def _takers(self) -> list[str]:
        """
        The members that take sessions.
        """
        known = self.moves.introductions
        return [
            node
            for node in sorted(self._channel.up())
            if node in known and known[node].takes_sessions and not self._directory.is_suspected(node)
        ]

    def _give(self, name: str, node: str) -> bool:
        """
        Hand a session over; its client gets to know where it is.
        """
        self.local.closings[name] = STOPPING.at(self.moves.introductions[node].url)
        is_given = self.moves.hand_over(name, node)
        self.local.closings.pop(name, None)
        return is_given

    # -- the parts --------------------------------------------------------------------

    def _expected(self) -> set[str]:
        """
        The members that have no link, but are not suspected; at the start all that this node has known.
        """
        missing = self._missing()
        if self._reactor.seconds() - self._started_at < START_SECONDS:
            return missing
        return self._unreached()

    def _unreached(self) -> set[str]:
        """
        The members that have no link, but are not suspected.
        """
        return {node for node in self._missing() if not self._directory.is_suspected(node)}

    def _refused(self, session: Any, claim: bytes) -> Any:
        return self.taking.refused(session, claim)

    def _is_open_to_all(self) -> bool:
        """
        May any client open any session?
        """
        return self._node.authenticator.is_open and self._node.config.session.takeover != "token"

    def _settled(self, tries: int = SETTLE_TRIES) -> Deferred[None]:
        """
        Fires when all members know what this node holds. A slow one is waited for four times as long as an
        answer to a client is, because what it sends to the earlier holder would come too late.
        """
        late = self._directory.counts.unsettled

        def again(done: None) -> Deferred[None] | None:
            if tries == 1 or self._directory.counts.unsettled == late or self._missing():
                return None
            return self._settled(tries - 1)

        return self._members.settled().addCallback(again)


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
