"""
The claim of a node to its name, so that two processes with one name do not take each other's messages.

A process asks on a subject that only those of its name listen to. One that has the name already keeps it; of
two that ask at once, and of two that got it while NATS was divided, that with the smaller start keeps it.
"""

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from msgnode.cluster.carrier import packets
from msgnode.cluster.carrier.packets import Claim, PacketError

CLAIM_SECONDS = 1.0  # without an objection


class NameClaim:
    """
    The claim of one start of a process. `granted` is called when the name is this one's, `lost` when it is
    another's.
    """

    def __init__(
        self,
        start: bytes,
        publish: Callable[[bytes], None],
        granted: Callable[[], None],
        lost: Callable[[], None],
        refuse: Callable[[str], None],
        clock: IReactorTime,
    ) -> None:
        self.is_granted = self.is_lost = False
        self._start = start
        self._publish = publish
        self._granted = granted
        self._lost = lost
        self._refuse = refuse
        self._clock = clock
        self._timer: IDelayedCall | None = None

    def ask(self) -> None:
        """
        Ask; call it with each new connection.
        """
        if self.is_lost:
            return
        self._say()
        if not self.is_granted and self._timer is None:
            self._timer = self._clock.callLater(CLAIM_SECONDS, self._grant)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def received(self, data: bytes) -> None:
        """
        Another process with this name has said so.
        """
        try:
            claim = packets.decode_claim(data)
        except PacketError as why:
            self._refuse(str(why))
            return
        if claim.start == self._start or self.is_lost:
            return
        if (not self.is_granted, self._start) < (claim.is_asking, claim.start):
            self._say()
            return
        self.is_lost = True
        self.is_granted = False
        self.stop()
        self._lost()

    def _say(self) -> None:
        self._publish(packets.encode(Claim(self._start, not self.is_granted)))

    def _grant(self) -> None:
        self._timer = None
        self.is_granted = True
        self._granted()
