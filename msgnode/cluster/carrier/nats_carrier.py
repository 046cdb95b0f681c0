"""
The service that carries links over NATS: the connection, this node's claim to its name, and the members.
"""

import random
from collections.abc import Callable
from typing import Any, Protocol

from twisted.application.internet import TimerService
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.cluster.carrier import packets
from msgnode.cluster.carrier.member_table import STRANGER, MemberTable
from msgnode.cluster.carrier.name_claim import NameClaim
from msgnode.cluster.carrier.packets import MAX_PACKET_BYTES, MIN_PACKET_BYTES, Greeting
from msgnode.cluster.membership import Members, MembersListener
from msgnode.config.cluster import ClusterOptions
from msgnode.links.carrier.link import LinkListener
from msgnode.links.wire.node_name import NodeName
from msgnode.nats.errors import BufferFull, Closed, NatsError, PayloadTooLarge
from msgnode.nats.options import Listener
from msgnode.nats.wire.commands import ServerInfo
from msgnode.nats.wire.message import Message
from msgnode.structures.log_limits import printable

ANNOUNCE_SECONDS = 5.0

log = Logger()


class Client(Protocol):
    """
    The NATS client, as the carrier needs it.
    """

    def connect(self, retry: bool = False) -> Deferred[ServerInfo]: ...

    def close(self) -> Deferred[None]: ...

    def subscribe(self, subject: str, callback: Callable[[Message], object]) -> object: ...

    def publish(self, subject: str, payload: bytes = b"") -> None: ...


class NatsCarrier(MultiService):
    """
    The links of this node to the other members (Listener of the NATS client).

    `connect` makes the client, which is given its listener. `conflict` is called with a sentence when another
    process has the name of this node, which then has to stop. `start` tells this process from all others.
    """

    def __init__(
        self,
        name: NodeName,
        options: ClusterOptions,
        version: str,
        epoch: tuple[bytes, int],
        key: bytes,
        start: bytes,
        connect: Callable[[Listener], Client],
        listener: LinkListener,
        members: Callable[[Members], MembersListener],
        conflict: Callable[[str], None],
        clock: IReactorTime,
        chance: random.Random | None = None,
    ) -> None:
        super().__init__()
        self._name = name
        self._conflict = conflict
        self._client = connect(self)
        self.is_connected = self._is_subscribed = False
        self._failure = "no server has answered yet"
        greeting = Greeting(version, epoch, key, MAX_PACKET_BYTES, [])
        self.table = MemberTable(
            name,
            greeting,
            self,
            listener,
            members,
            options.members,
            lambda: options.link_queue_bytes,
            clock,
            chance or random.Random(),
        )
        self.claim = NameClaim(start, self._say, self._granted, self._lost, self._refuse, clock)
        announcing = TimerService(ANNOUNCE_SECONDS, self._look)
        announcing.clock = clock
        announcing.setServiceParent(self)

    @property
    def why_degraded(self) -> str:
        """
        The reason why members are not reached; empty if there is none.
        """
        if not self.is_connected:
            return f"no connection to NATS: {self._failure}"
        return "" if self.claim.is_granted else "the name of this node is not claimed yet"

    def startService(self) -> None:
        super().startService()
        self._client.connect(retry=True).addErrback(lambda failed: failed.trap(NatsError))

    def stopService(self) -> Deferred[Any]:
        """
        Tell the members, and end the connection.
        """
        self.claim.stop()
        self.table.end_all("the node is stopping")
        stopped: Deferred[Any] = super().stopService()
        return DeferredList([stopped, self._client.close()])

    def _look(self) -> None:
        if self.claim.is_granted:
            self.table.announce()
        self.table.forget_old()

    # -- the claim -------------------------------------------------------------------

    def _say(self, data: bytes) -> None:
        self._publish(packets.claims(self._name), data)

    def _granted(self) -> None:
        for subject in (packets.inbound(self._name), packets.presence(self._name.domain)):
            self._client.subscribe(subject, self._received)
        self._begin()

    def _lost(self) -> None:
        self.table.end_all("another process has the name of this node")
        self._conflict(
            f"another process is {self._name} in this cluster already; give each node a name of its own "
            "(key 'node'), or stop that one"
        )

    def _refuse(self, why: str) -> None:
        self.table.refuse(STRANGER, "malformed", why)

    def _received(self, message: Message) -> None:
        if self.claim.is_granted:
            self.table.received(message.payload)

    # -- Publisher -------------------------------------------------------------------

    def publish(self, subject: str, data: bytes) -> bool:
        return self.claim.is_granted and self._publish(subject, data)

    def _publish(self, subject: str, data: bytes) -> bool:
        if not self.is_connected:
            return False
        try:
            self._client.publish(subject, data)
        except PayloadTooLarge as why:
            self.table.refuse(STRANGER, "too-big", str(why))  # the server has another configuration
        except (BufferFull, Closed):
            return False
        return True

    def _begin(self) -> None:
        self.table.announce()
        self.table.go_on()

    # -- Listener of the NATS client ----------------------------------------------------

    def connected(self, info: ServerInfo) -> None:
        if info.max_payload < MIN_PACKET_BYTES:
            self._failure = (
                f"the server takes messages of {info.max_payload} bytes (max_payload), expected "
                f"{MIN_PACKET_BYTES} or more"
            )
            log.error("the cluster is not joined: {why}", why=self._failure)
            return
        self.is_connected, self._failure = True, ""
        self.table.max_packet = min(MAX_PACKET_BYTES, info.max_payload)
        log.info("connected to the NATS server {name}", name=printable(info.server_name))
        if not self._is_subscribed:
            self._is_subscribed = True
            self._client.subscribe(packets.claims(self._name), lambda it: self.claim.received(it.payload))
        self.claim.ask()
        if self.claim.is_granted:
            self._begin()

    def disconnected(self, reason: Exception) -> None:
        if self.is_connected and self.running:
            log.warn("the connection to NATS is lost: {why}", why=printable(str(reason)))
        self.is_connected = False
        self._note(reason)

    def failed(self, error: Exception) -> None:
        before = self._failure
        self._note(error)
        if self._failure != before:
            log.warn("NATS: {why}", why=self._failure)

    def _note(self, error: Exception) -> None:
        self._failure = printable(str(error)[:300]) or type(error).__name__

    def lame_duck(self, info: ServerInfo) -> None:
        """
        Does nothing: the client moves to another server.
        """

    def full(self) -> None:
        """
        Does nothing: the links wait until there is room.
        """

    def has_room(self) -> None:
        self.table.go_on()
