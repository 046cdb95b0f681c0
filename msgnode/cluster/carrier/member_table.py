"""
The table of members: who was heard, who has a link, and what is refused of them.

A link is up when both ends have each other's greeting and token. It is down when the member is silent, closes
it, or begins again: a restarted process takes the place of the one before at once.
"""

import os
import random
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from msgspec import structs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from msgnode.cluster.carrier import packets
from msgnode.cluster.carrier.member_link import MemberLink
from msgnode.cluster.carrier.packets import (
    MAX_PACKET_BYTES,
    MAX_PAYLOAD_BYTES,
    MIN_PACKET_BYTES,
    TOKEN_BYTES,
    AnyEntry,
    At,
    Greeting,
    Head,
    Lost,
    PacketError,
    Told,
)
from msgnode.cluster.carrier.told_order import ToldReceiver
from msgnode.cluster.membership import Members, MembersListener
from msgnode.links.carrier.link import LinkListener
from msgnode.links.overlay.refusals import Refusals
from msgnode.links.wire.entries import Close, Data, Digest, Ping, Pong, State, Summary
from msgnode.links.wire.node_name import NodeName, parse
from msgnode.structures.log_limits import printable

MAX_MEMBERS = 64
FORGET_SECONDS = 3600.0  # a member without a link
GREET_SECONDS = 1.0  # between two greetings to one member that are not answered
STRANGER = "stranger"  # in logs and counts, in place of a name that is not known

log = Logger()


class Publisher(Protocol):
    """
    The connection to NATS, as the table sees it.
    """

    def publish(self, subject: str, data: bytes) -> bool:
        """
        Publish; False if there is no room, or no connection: `MemberTable.go_on` is called when there is.
        """


class Member:
    """
    A member that was heard. `link` is None while its link is down.

    `token` is this end's for the link, `their_token` the other's, empty while it is not known.
    """

    def __init__(self, name: NodeName, now: float) -> None:
        self.node = str(name)
        self.subject = packets.inbound(name)
        self.greeting: Greeting | None = None
        self.token = os.urandom(TOKEN_BYTES)
        self.their_token = b""
        self.link: MemberLink | None = None
        self.received: ToldReceiver | None = None
        self.greeted = (b"", float("-inf"))  # the token that the last greeting repeated, and when
        self.heard_at = now

    @property
    def tokens(self) -> tuple[bytes, bytes]:
        """
        The tokens of what the member sends on this link.
        """
        return self.their_token, self.token


class MemberTable:
    """
    The members of this node's cluster (Members). `key` is the hash of the key by which this node signs.

    `allowed` are the names of nodes that may be members; all, if it is empty. `listener` hears of links, and
    what `members` makes hears of members. `keys_changed` is called when a member has another key.
    """

    max_payload = MAX_PAYLOAD_BYTES

    def __init__(
        self,
        name: NodeName,
        greeting: Greeting,
        publisher: Publisher,
        listener: LinkListener,
        members: Callable[[Members], MembersListener],
        allowed: Collection[str],
        link_queue_bytes: Callable[[], int],
        clock: IReactorTime,
        chance: random.Random,
    ) -> None:
        self._name = name
        self._node = str(name)
        self._greeting = greeting
        self._publisher = publisher
        self.listener = listener
        self._allowed = frozenset(allowed)
        self._link_queue_bytes = link_queue_bytes
        self._clock = clock
        self._chance = chance
        self.refusals = Refusals(clock.seconds)
        self.keys_changed: Callable[[], None] = lambda: None
        self.max_packet = MAX_PACKET_BYTES  # that the NATS server takes
        self._table: dict[str, Member] = {}
        self._blocked: dict[MemberLink, None] = {}  # links with a packet that there was no room for
        self.members = members(self)

    # -- Members -----------------------------------------------------------------------

    @property
    def node(self) -> str:
        return self._node

    @property
    def epoch(self) -> tuple[bytes, int]:
        return self._greeting.epoch

    def up(self) -> Iterable[str]:
        return [member.node for member in self._table.values() if member.link is not None]

    def send(self, node: str, payload: bytes) -> bool:
        link = self.link(node)
        return link is not None and link.tell(payload)

    # -- for others ----------------------------------------------------------------------

    def known(self) -> dict[str, bool]:
        """
        The members that were heard in the last hour, each with whether its link is up.
        """
        return {member.node: member.link is not None for member in self._table.values()}

    def link(self, node: str) -> MemberLink | None:
        member = self._table.get(node)
        return None if member is None else member.link

    def is_key(self, digest: bytes) -> bool:
        """
        Is it the hash of the key of this node, or of one that a member has announced?
        """
        if digest == self._greeting.key:
            return True
        known = (member.greeting for member in self._table.values())
        return any(greeting is not None and greeting.key == digest for greeting in known)

    def announce(self) -> None:
        """
        Tell all members that this node is there.
        """
        data = packets.packet(packets.encode(Head(self._node)), [packets.encode(self._greeting)])
        self._publisher.publish(packets.presence(self._name.domain), data)

    def renew(self, key: bytes) -> None:
        """
        This node signs by another key from now on.
        """
        if key == self._greeting.key:
            return
        self._greeting = structs.replace(self._greeting, key=key)
        for member in self._table.values():
            if member.link is not None:
                member.link.send_first(packets.encode(self._greeting))

    def go_on(self) -> None:
        """
        There is room, or a new connection.
        """
        blocked, self._blocked = self._blocked, {}
        for link in blocked:
            link.go_on()

    def forget_old(self) -> None:
        """
        Forget members that have had no link for long. Call it every few seconds.
        """
        before = self._clock.seconds() - FORGET_SECONDS
        for node, member in list(self._table.items()):
            if member.link is None and member.heard_at < before:
                del self._table[node]

    def end_all(self, reason: str) -> None:
        """
        End all links, and tell the members.
        """
        for member in list(self._table.values()):
            if member.link is not None:
                close = packets.encode(Close(0, reason, 0.0))
                head = packets.encode(Head(self._node, member.token, member.their_token))
                self._publisher.publish(member.subject, packets.packet(head, [close]))
                self._down(member, reason)

    # -- receiving -------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """
        A publication came: for this node, or for all members. Never raises for what is in it.
        """
        try:
            head, entries = packets.decode(data)
            name = parse(head.source)
        except PacketError as why:
            self.refusals.refuse(STRANGER, "malformed", str(why))
            return
        if name.domain != self._name.domain or head.source == self._node:
            self.refusals.refuse(STRANGER, "name", f"a packet of {printable(head.source[:200])}")
            return
        member = self._member(name)
        if member is None:
            return
        member.heard_at = self._clock.seconds()
        for entry in entries:
            if isinstance(entry, Greeting):
                is_by_link = member.link is not None and (head.link, head.to) == member.tokens
                self._greeted(member, entry, is_by_link)
        if member.greeting is None:
            self._greet(member)
        elif not head.link:
            if member.link is None:
                self._greet(member)
        elif self._is_this_link(member, head):
            self._take(member, entries)

    def _member(self, name: NodeName) -> Member | None:
        node = str(name)
        found = self._table.get(node)
        if found is None:
            if self._allowed and name.node not in self._allowed:
                self.refusals.refuse(node, "not-a-member", "it is not in cluster.members of this node")
                return None
            if len(self._table) >= MAX_MEMBERS:
                self.refusals.refuse(node, "limit", f"this node knows {MAX_MEMBERS} members")
                return None
            found = self._table[node] = Member(name, self._clock.seconds())
        return found

    def _greeted(self, member: Member, greeting: Greeting, is_by_link: bool) -> None:
        """
        The member said which start it is, or by its link that it signs by another key now.
        """
        before = member.greeting
        if greeting.max_bytes < MIN_PACKET_BYTES:
            self.refusals.refuse(member.node, "malformed", f"it takes packets of {greeting.max_bytes} bytes")
            return
        if before is not None and before.epoch == greeting.epoch:
            if before.key != greeting.key and is_by_link:
                member.greeting = greeting
                self.keys_changed()
            elif before.key != greeting.key:
                self.refusals.refuse(member.node, "key", "another key for the same start")
            return
        if before is not None and _is_older(greeting.epoch, before.epoch):
            self.refusals.count("old-start")
            return
        self._down(member, "the member was started again")
        member.greeting = greeting
        if before is None or before.key != greeting.key:
            self.keys_changed()

    def _is_this_link(self, member: Member, head: Head) -> bool:
        """
        Is the packet of the present life of the link? It is up from now on.
        """
        if head.link != member.their_token:
            self._down(member, "the member began the link again")
            member.their_token = head.link
        if head.to != member.token:
            self._greet(member)
            return False
        if member.link is None:
            self._up(member)
        return True

    def _greet(self, member: Member) -> None:
        """
        Send this node's greeting and token to the member, unless it has them and was only slow to answer.
        """
        now = self._clock.seconds()
        token, at = member.greeted
        if token == member.their_token and now < at + GREET_SECONDS:
            return
        member.greeted = (member.their_token, now)
        head = packets.encode(Head(self._node, member.token, member.their_token))
        self._publisher.publish(member.subject, packets.packet(head, [packets.encode(self._greeting)]))

    def _take(self, member: Member, entries: list[AnyEntry]) -> None:
        for entry in entries:
            link = member.link
            if link is None:
                return
            if isinstance(entry, Data | State | Digest | Summary):
                self.listener.received(link, entry)
            elif isinstance(entry, Ping):
                link.send_first(packets.encode(Pong(entry.number)))
            elif isinstance(entry, Pong):
                link.pings.pong(entry.number)
            elif isinstance(entry, Close):
                self._down(member, f"the member closed it: {printable(entry.reason)}")
            elif not isinstance(entry, Greeting):
                self._take_told(member, link, entry)

    def _take_told(self, member: Member, link: MemberLink, entry: Told | At | Lost) -> None:
        received = member.received
        assert received is not None
        if isinstance(entry, Told):
            if received.take(entry):
                self.members.member_heard(member.node, entry.payload)
        elif isinstance(entry, At):
            received.position(entry)
        elif link.told.lost(entry):
            self.refusals.count("told-lost")
            link.begin_run()
            self._begin_again(member, link)

    def _begin_again(self, member: Member, link: MemberLink) -> None:
        """
        Have both ends begin again, because an entry between them was lost.
        """
        self.members.member_down(member.node)
        self.members.member_up(member.node, link.epoch)

    # -- links -----------------------------------------------------------------------

    def _up(self, member: Member) -> None:
        assert member.greeting is not None
        link = member.link = MemberLink(
            self,
            member.node,
            self._node,
            (member.token, member.their_token),
            member.greeting,
            self._link_queue_bytes(),
            self._clock,
            self._chance,
        )
        member.received = ToldReceiver(
            lambda: self._begin_again(member, link), lambda lost: link.send_first(packets.encode(lost))
        )
        log.info("the link with {node} is up", node=member.node)
        self.listener.link_up(link)
        if member.link is link:
            self.members.member_up(member.node, link.epoch)
            link.pings.start()  # the first one shows the member that its token is known

    def _down(self, member: Member, reason: str) -> None:
        link, member.link = member.link, None
        if link is None:
            return
        link.stop()
        self._blocked.pop(link, None)
        member.received = None
        member.token = os.urandom(TOKEN_BYTES)
        member.their_token = b""
        log.info("the link with {node} is down: {reason}", node=member.node, reason=reason)
        self.listener.link_down(link, reason)
        self.members.member_down(member.node)

    # -- LinkOwner -------------------------------------------------------------------

    def publish(self, link: MemberLink, data: bytes) -> bool:
        if self._publisher.publish(self._table[link.node].subject, data):
            return True
        self._blocked[link] = None
        return False

    def left(self, link: MemberLink) -> None:
        half = link.queue.max_bytes // 2
        if link.wants_room and link.queue.bytes <= half:
            link.wants_room = False
            self.listener.has_room(link)
        if link.wants_told_room and link.told_bytes <= half:
            link.wants_told_room = False
            self.members.has_room(link.node)

    def refuse(self, node: str, reason: str, text: str) -> None:
        self.refusals.refuse(node, reason, text)

    def end_link(self, link: MemberLink, reason: str) -> None:
        member = self._table.get(link.node)
        if member is not None and member.link is link:
            self._down(member, reason)

    def silent(self, link: MemberLink) -> None:
        self.end_link(link, "no answer to pings")

    def measured(self, link: MemberLink) -> None:
        if link.is_up:
            self.listener.round_trip_changed(link)


def _is_older(epoch: tuple[bytes, int], other: tuple[bytes, int]) -> bool:
    """
    Is it an earlier start of the same state directory?
    """
    return epoch[0] == other[0] and epoch[1] < other[1]
