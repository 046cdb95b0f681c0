"""
What becomes of a registered address, told to whoever subscribed `<address>/registration`.

It is told when the status changes.  The registry does not always say whether it
did, so what was told to be disconnected is remembered, and which writes were
not answered: of their repetition the registry says that nothing changed.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import count

from msgnode.protocol.message import Message, compose

LIVE, DISCONNECTED = "live", "disconnected"
STATUSES = (LIVE, DISCONNECTED)  # runtimes fail over any other in a notification
MOST_GONE = 100_000  # addresses remembered as disconnected
MOST_IN_DOUBT = 1000  # addresses whose last write was not answered; the breaker keeps them few


class Announcements:
    """
    They come from `address`; `publish` sends a message of the node's own to whoever listens.
    """

    def __init__(self, address: str, publish: Callable[[Message], int]) -> None:
        self._address = address
        self._publish = publish
        self._ids = count(1)
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._in_doubt: OrderedDict[str, object] = OrderedDict()  # the status that was written, perhaps

    def is_gone(self, url: str) -> bool:
        return url in self._gone

    def doubt(self, url: str, status: object) -> None:
        """
        Nobody can say whether it has this status now; None: nor whether anything else of it changed.
        """
        if status is None:
            return
        self._in_doubt[url] = status
        if len(self._in_doubt) > MOST_IN_DOUBT:
            self._in_doubt.popitem(last=False)

    def settle(self, url: str, status: object) -> bool:
        """
        It has this status now.  Had it perhaps before, by a write that was not answered?
        """
        return self._in_doubt.pop(url, None) == status

    def announce(self, url: str, status: object) -> None:
        if status not in STATUSES:
            return
        self._gone.pop(url, None)
        if status == DISCONNECTED:
            self._gone[url] = None
            if len(self._gone) > MOST_GONE:
                self._gone.popitem(last=False)
        body = {"value": status, "attribute": "status"}
        self._publish(compose(next(self._ids), "update", self._address, f"{url}/registration", body))
