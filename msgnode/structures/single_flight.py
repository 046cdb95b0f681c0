"""
Single flight: concurrent calls with the same key share one call and its result.
"""

from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    """
    The calls in progress, by key.
    """

    def __init__(self) -> None:
        self._waiting: dict[K, list[Deferred[T]]] = {}

    def call(self, key: K, ask: Callable[[], Coroutine[Any, Any, T]]) -> Deferred[T]:
        """
        The result for `key`. `ask` is called unless a call with the same key is in progress; then its result
        is shared.
        """
        mine: Deferred[T] = Deferred()
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(mine)
        else:
            self._waiting[key] = [mine]
            Deferred.fromCoroutine(ask()).addBoth(self._answered, key)
        return mine

    def _answered(self, answer: T | Failure, key: K) -> None:
        for waiter in self._waiting.pop(key):
            if isinstance(answer, Failure):
                waiter.errback(answer)
            else:
                waiter.callback(answer)
