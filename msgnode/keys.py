"""
Allocation keys: names a session gives to what it allocates, to free it by.

Each address is kept with its key only until it is freed, so that a session
which allocates and frees for ever keeps no more than it holds.
"""

from collections.abc import Iterable


class Keys:
    """
    The keys of one session.
    """

    __slots__ = ("_addresses", "_keys")

    def __init__(self) -> None:
        self._addresses: dict[str, dict[str, None]] = {}  # by key, in order
        self._keys: dict[str, str] = {}  # by address

    def __contains__(self, key: str) -> bool:
        return key in self._addresses

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str, addresses: Iterable[str]) -> None:
        held = self._addresses.setdefault(key, {})
        for address in addresses:
            held[address] = None
            self._keys[address] = key

    def take(self, key: str) -> list[str]:
        """
        What is left of the key, which is forgotten.
        """
        addresses = list(self._addresses.pop(key))
        for address in addresses:
            del self._keys[address]
        return addresses

    def forget(self, address: str) -> None:
        """
        The address is free.
        """
        key = self._keys.pop(address, None)
        if key is not None:
            held = self._addresses[key]
            del held[address]
            if not held:
                del self._addresses[key]
