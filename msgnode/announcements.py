"""
What becomes of a registered address, told to whoever subscribed `<address>/registration`.

It is told when the status changes.  The registry does not always say whether it
did, so what was told to be disconnected is remembered.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import count

from msgnode.message import Message, compose

LIVE, DISCONNECTED = "live", "disconnected"
STATUSES = (LIVE, DISCONNECTED)  # runtimes fail over any other in a notification
MOST_GONE = 100_000  # addresses remembered as disconnected


class Announcements:
    """
    They come from `address`; `publish` sends a message of the node's own to whoever listens.
    """

    def __init__(self, address: str, publish: Callable[[Message], int]) -> None:
        self._address = address
        self._publish = publish
        self._ids = count(1)
        self._gone: OrderedDict[str, None] = OrderedDict()

    def is_gone(self, url: str) -> bool:
        return url in self._gone

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
