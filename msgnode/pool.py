"""
A pool: a finite set of addresses that are leased one session at a time.

An address is free when no session was allocated it, so the routing table is
the only list of leases there is, and a session's end returns its own: it says
so (RoutingTable.released).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from msgnode.protocol.errors import Rejected
from msgnode.structures.time_slices import ADDRESSES


class Pool:
    """
    Goes round its addresses, so that one just returned is the last to be leased again.

    Those found leased are not looked at again until they are returned: what a
    request costs does not grow with the pool.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._queue = OrderedDict.fromkeys(addresses)
        self._leased: set[str] = set()  # those taken out of the queue

    def look(self, number: int, is_leased: Callable[[str], bool]) -> Iterator[None]:
        """
        Take what is leased out of the queue, in slices, until `free` finds that many at once or none is left.
        """
        while True:
            found = self._take(number, is_leased, number + ADDRESSES)
            is_over = len(found) == number or not self._queue
            self._put_back(found, last=False)
            if is_over:
                return
            yield

    def free(self, number: int, is_leased: Callable[[str], bool]) -> list[str]:
        """
        That many free addresses, or Rejected with 503 and none.
        """
        found = self._take(number, is_leased, len(self._queue))
        is_enough = len(found) == number
        self._put_back(found, last=is_enough)
        if not is_enough:
            raise Rejected(
                f"too few addresses of this pool are free: {len(found)}, not {number}", 503, "pool-empty"
            )
        return found

    def _take(self, number: int, is_leased: Callable[[str], bool], most: int) -> list[str]:
        """
        The next that are free, of the next `most`.
        """
        found: list[str] = []
        for _ in range(min(most, len(self._queue))):
            address, _none = self._queue.popitem(last=False)
            if is_leased(address):
                self._leased.add(address)
            else:
                found.append(address)
                if len(found) == number:
                    break
        return found

    def _put_back(self, found: list[str], last: bool) -> None:
        for address in found if last else reversed(found):
            self._queue[address] = None
            self._queue.move_to_end(address, last)

    def returned(self, address: str) -> None:
        """
        Whoever leased this address, if it is one of these, has it no more.
        """
        if address in self._leased:
            self._leased.remove(address)
            self._queue[address] = None
