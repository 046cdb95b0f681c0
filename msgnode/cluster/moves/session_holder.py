"""
The port to the sessions of this node, as moves see them.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec
from twisted.internet.defer import Deferred

Claims = list[tuple[str, int]]  # the client has so many messages of that epoch


class Release(msgspec.Struct, frozen=True):
    """
    A session that this node has let go: it has a new holder, which gets its state and its messages.

    `id` is 8 random bytes. `generation` is that of the session at its new holder, `to`.
    """

    id: bytes
    name: str
    generation: int
    to: str


class SessionHolder(Protocol):
    """
    The sessions of this node. A Deferred fires when the change is on disk, and fails if it cannot be written.
    """

    def generation(self, name: str) -> int | None:
        """
        The generation of a session that is held here; None if it is not.
        """

    def refusal(self, name: str, claim: bytes) -> tuple[int, str] | None:
        """
        Why a client with that claim may not have the session: a close code and a reason.
        """

    def outrank(self, name: str, generation: int) -> int | None:
        """
        Give a session that has begun since this node started a higher generation than that, and return it.
        None if there is none. Another member has the session, too, and may hand something over later.
        """

    # -- of a session that leaves --

    def release(self, release: Release) -> Deferred[None]:
        """
        Let the session go: close its connections as superseded, deliver nothing more to them, and write the
        release to disk. From this call on the session is not held here; its messages are kept for `to`. If
        it cannot be written, the session is held here again.
        """

    def releases(self) -> Iterable[Release]:
        """
        The releases that are not finished, also those of before a restart.
        """

    def state(self, release: Release, claims: Claims) -> bytes:
        """
        The numbers and bindings of the session. Messages that the client has by its claims are dropped.
        """

    def messages(self, release: Release, after: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """
        The next messages with keys above `after`, together of about `most_bytes` but at least one if there is
        one; keys rise.
        """

    def handed_over(self, release: Release, key: int) -> None:
        """
        The new holder has the messages up to `key` on its disk.
        """

    def seal(self, release: Release) -> bool:
        """
        Accept no more messages for the session: from now on they are forwarded, and acknowledged when the new
        holder has acknowledged them. False if messages are left, or on their way from an earlier holder.
        """

    def is_late(self, release: Release) -> bool:
        """
        Is what is still on its way so late that the session's client must not wait for it any more?
        """

    def redirect(self, release: Release, other: Release) -> Deferred[None]:
        """
        Hand a session over to another member, by another release: that of the first is gone for good. If it
        cannot be written, the first release stays.
        """

    def take_back(self, release: Release) -> Deferred[None]:
        """
        Give what was for a member that is gone for good to the session of that name which is held here.
        """

    def discard(self, release: Release) -> None:
        """
        Forget the session: its new holder has everything.
        """

    # -- of a session that comes --

    def progress(self, of: str, id: bytes) -> tuple[int, bool] | None:
        """
        The key up to which the messages of that handover are on disk here, and whether it has ended; None if
        nothing is.
        """

    def claims(self, name: str) -> Claims:
        """
        The counts that the session's client gave when it opened the session here without its earlier holder.
        """

    def import_state(self, of: str, release: Release, state: bytes) -> Deferred[None]:
        """
        Hold the session from now on, with that generation; messages that others send to it wait until
        `finish`.

        If it is held here already, or has been let go with a higher generation, its bindings, and then its
        messages, are added there: before what waits. A session only ever comes from a lower generation, so no
        two handovers wait for each other.
        """

    def import_messages(self, of: str, id: bytes, key: int, messages: list[bytes]) -> Deferred[None]:
        """
        Deliver or keep the messages of a handover, up to `key`.
        """

    def wait_no_more(self, of: str, id: bytes) -> Deferred[None]:
        """
        Messages that others send to the session wait no longer; those that come by the handover are late.
        """

    def member_up(self, of: str, epoch: tuple[bytes, int]) -> None:
        """
        A member is reached.
        """

    def member_down(self, of: str) -> None:
        """
        A member is away: what others send to sessions that it hands over waits no longer.
        """

    def finish(self, of: str, id: bytes) -> Deferred[None]:
        """
        The handover has ended.
        """
