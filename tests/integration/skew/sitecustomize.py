"""
Another release of the node, for the process that has this directory on its PYTHONPATH: MSGNODE_SKEW is
`newer`, which sends what this release does not know, or `older`, which does not know what came with it.
"""

import os
from typing import Any

import msgspec

from msgnode.cluster import channels, member_requests
from msgnode.cluster.carrier import packets
from msgnode.cluster.directory import wire
from msgnode.cluster.moves import wire as moves_wire

LATER = {"of": "a later release", "list": [1, 2.5, None]}
NEW_CHANNELS = (b"l",)
NEW_SUBJECTS = ("operator.", "registration.")


class Appending:
    """
    An encoder that appends an item to each statement, as a later release may.
    """

    def encode(self, statement: Any) -> bytes:
        items = msgspec.msgpack.decode(msgspec.msgpack.encode(statement))
        return msgspec.msgpack.encode([*items, LATER])


def be_newer() -> None:
    """
    Entries of an unknown kind in each packet, payloads of an unknown channel, and appended items.
    """
    plain, entry = packets.packet, msgspec.msgpack.encode(["later", 7, LATER])

    def packet(head: bytes, entries: Any) -> bytes:
        return plain(head, [entry, *entries][: packets.MAX_ENTRIES])

    def send(self: channels.Channel, node: str, payload: bytes) -> bool:
        self._members.send(node, b"z" + payload[:100])
        return self._members.send(node, self.mark + payload)

    packets.packet = packet
    channels.Channel.send = send  # type: ignore[method-assign]
    wire._encoder = moves_wire._encoder = Appending()  # type: ignore[assignment]
    member_requests._encode = Appending().encode  # type: ignore[assignment]


def be_older() -> None:
    """
    No channels and no subjects of requests that came with this release.
    """
    make, offer = channels.Channels.make, member_requests.MemberRequests.offer

    def make_known(self: channels.Channels, mark: bytes) -> channels.Channel:
        made = make(self, mark)
        if mark in NEW_CHANNELS:
            del self._channels[mark]
        return made

    def offer_known(self: Any, subject: str, handler: Any) -> None:
        if not subject.startswith(NEW_SUBJECTS):
            offer(self, subject, handler)

    channels.Channels.make = make_known  # type: ignore[method-assign]
    member_requests.MemberRequests.offer = offer_known  # type: ignore[method-assign]


{"newer": be_newer, "older": be_older}[os.environ["MSGNODE_SKEW"]]()
