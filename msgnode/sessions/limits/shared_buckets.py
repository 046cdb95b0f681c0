"""
Token buckets that the data plane keeps: what it carries and what Python decides on draw from the same ones.
"""

from collections import OrderedDict

from msgnode.structures.token_bucket import BucketRates
from msgnode.transport.data_plane import DataPlane

IDLE_SECONDS = 60.0  # after which a full bucket is forgotten, and the flows that draw from it end
EXAMINED_PER_USE = 2  # old buckets examined for each one used


class SharedBuckets(BucketRates):
    """
    Numbers of the data plane's token buckets by name, the most recently used last.
    """

    def __init__(self, data_plane: DataPlane) -> None:
        super().__init__()
        self._data_plane = data_plane
        self._numbers: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._numbers)

    def clear(self) -> None:
        for number in self._numbers.values():
            self._data_plane.remove_bucket(number)
        self._numbers.clear()

    def number(self, name: str) -> int:
        """
        The number of the bucket of that name.
        """
        number = self._numbers.pop(name, None)
        if number is None:
            number = self._data_plane.add_bucket(self.messages, self.size)
        self._forget_idle()
        self._numbers[name] = number
        return number

    def wait(self, name: str, now: float) -> float:
        """
        Seconds until the bucket of that name is not empty any more. The plane knows what time it is, and does
        not ask for `now`.
        """
        number = self._numbers.get(name)
        return 0.0 if number is None else self._data_plane.bucket_wait(number)

    def _forget_idle(self) -> None:
        """
        Examines the buckets that Python used least recently.
        """
        for _ in range(min(EXAMINED_PER_USE, len(self._numbers))):
            name, number = self._numbers.popitem(last=False)
            if self._data_plane.is_bucket_idle(number, IDLE_SECONDS):
                self._data_plane.remove_bucket(number)
            else:
                self._numbers[name] = number
