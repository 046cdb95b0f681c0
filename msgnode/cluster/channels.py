"""
Channels: several users of the links to members, told apart by the first byte of a payload.
"""

from collections.abc import Iterable

from msgnode.cluster.membership import Members, MembersListener


class Channel:
    """
    One user's part of the links (Members). `listener` hears what other members send on the same channel.
    """

    def __init__(self, members: Members, mark: bytes, listener: MembersListener | None = None) -> None:
        self.listener = listener
        self.mark = mark
        self.max_payload = members.max_payload - len(mark)
        self._members = members

    @property
    def node(self) -> str:
        return self._members.node

    @property
    def epoch(self) -> tuple[bytes, int]:
        return self._members.epoch

    def up(self) -> Iterable[str]:
        return self._members.up()

    def send(self, node: str, payload: bytes) -> bool:
        return self._members.send(node, self.mark + payload)


class Channels:
    """
    The listener to members that serves several channels; each has a mark of one byte.
    """

    def __init__(self, members: Members) -> None:
        self.unknown = 0  # payloads of no channel: of a later version
        self._members = members
        self._channels: dict[bytes, Channel] = {}

    def make(self, mark: bytes) -> Channel:
        """
        A new channel; set its listener before the first link is up.
        """
        channel = self._channels[mark] = Channel(self._members, mark)
        return channel

    def _listeners(self) -> list[MembersListener]:
        return [each.listener for each in self._channels.values() if each.listener is not None]

    def member_up(self, node: str, epoch: tuple[bytes, int]) -> None:
        for listener in self._listeners():
            listener.member_up(node, epoch)

    def member_down(self, node: str) -> None:
        for listener in self._listeners():
            listener.member_down(node)

    def member_heard(self, node: str, payload: bytes) -> None:
        channel = self._channels.get(payload[:1])
        if channel is None or channel.listener is None:
            self.unknown += 1
        else:
            channel.listener.member_heard(node, payload[1:])

    def has_room(self, node: str) -> None:
        for listener in self._listeners():
            listener.has_room(node)
