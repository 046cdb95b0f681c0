"""
The rotation of this node's keys while it runs: new ones each day, and an RSA key once the configuration wants
one.
"""

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.links.overlay.network import NodeKeys
from msgnode.links.stream.safety.node_keys import KeyRing

ROTATE_SECONDS = 86_400.0

log = Logger()


class KeyRotation:
    """
    The rotation. `wants_rsa`: may a peer encrypt by RSA? `make_rsa` makes a key, which takes long.

    `advertise` tells other nodes the public keys.
    """

    def __init__(
        self,
        ring: KeyRing,
        clock: IReactorTime,
        wants_rsa: Callable[[], bool],
        make_rsa: Callable[[], Deferred[RSAPrivateKey]],
        advertise: Callable[[NodeKeys], None],
    ) -> None:
        self._ring = ring
        self._clock = clock
        self._wants_rsa = wants_rsa
        self._make_rsa = make_rsa
        self._advertise = advertise
        self._timer: IDelayedCall | None = None
        self._is_making = False

    def start(self) -> None:
        self._timer = self._clock.callLater(ROTATE_SECONDS, self._rotate)

    def stop(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def apply(self) -> None:
        """
        Offers an RSA key if the configuration wants one now.
        """
        if self._ring.current.rsa is None and self._wants_rsa() and not self._is_making:
            self._is_making = True
            self._make_rsa().addCallback(self._offer).addErrback(self._failed)

    def _offer(self, key: RSAPrivateKey) -> None:
        self._is_making = False
        if self._timer is None:
            return  # the node has stopped meanwhile
        self._ring.current = self._ring.current.with_rsa(key)
        self._advertise(self._ring.current.public)
        log.info("this node offers an RSA key of {bits} bits", bits=key.key_size)

    def _failed(self, why: Failure) -> None:
        self._is_making = False
        log.failure("an RSA key could not be made", why)

    def _rotate(self) -> None:
        self._timer = self._clock.callLater(ROTATE_SECONDS, self._rotate)
        self._ring.rotate(self._ring.current.renewed())
        self._advertise(self._ring.current.public)
