"""
Allocation keys: the names that a session gives to its allocations, to release them by, and the objects by
which it subscribed their children.

An address is stored with its key only until it is released, so a session that allocates and releases
repeatedly stores no more than it has allocated.
"""

from collections.abc import Iterable

from msgnode.sessions.limits.memory_budget import KEY, KEYED, Account, text_size


class Keys:
    """
    The keys of one session, charged to its account.
    """

    __slots__ = ("_account", "_addresses", "_keys")

    def __init__(self, account: Account) -> None:
        self._account = account
        self._addresses: dict[str, dict[str, None]] = {}  # by key, in order
        self._keys: dict[str, str] = {}  # by address

    def __contains__(self, key: str) -> bool:
        return key in self._addresses

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str, addresses: Iterable[str]) -> None:
        held = self._addresses.get(key)
        if held is None:
            held = self._addresses[key] = {}
            self._account.charge(key_size(key))
        for address in addresses:
            if address not in self._keys:
                self._account.charge(KEYED)
            held[address] = None
            self._keys[address] = key

    def pop(self, key: str) -> list[str]:
        """
        Removes the key. Returns the addresses that it still had.
        """
        addresses = list(self._addresses.pop(key))
        for address in addresses:
            del self._keys[address]
        self._account.charge(-key_size(key, len(addresses)))
        return addresses

    def find(self, key: str) -> list[str]:
        """
        The addresses of the key.
        """
        return list(self._addresses.get(key, ()))

    def of(self, address: str) -> str | None:
        """
        The key of the address.
        """
        return self._keys.get(address)

    def forget(self, address: str) -> None:
        """
        Removes an address that was released.
        """
        key = self._keys.pop(address, None)
        if key is not None:
            held = self._addresses[key]
            del held[address]
            self._account.charge(-KEYED)
            if not held:
                del self._addresses[key]
                self._account.charge(-key_size(key))


def key_size(key: str, addresses: int = 0) -> int:
    """
    The bytes charged for a key with this number of addresses.
    """
    return KEY + text_size(key) + KEYED * addresses
