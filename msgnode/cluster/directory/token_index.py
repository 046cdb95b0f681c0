"""
The index of sessions by their tokens: which session of another member has a token.
"""

from collections.abc import Iterable

from msgnode.cluster.directory.wire import TOKEN_HASH_BYTES

INDEX_ENTRY_BYTES = 80  # of memory for a token, whose hash and name the address table has anyway
_NO_TOKEN = bytes(TOKEN_HASH_BYTES)


class TokenIndex:
    """
    The names of sessions by the start of their token's hash. Several dicts, for the same reason as in the
    address table.
    """

    def __init__(self) -> None:
        self._shards: list[dict[bytes, str]] = [{} for _ in range(256)]

    def name(self, token_hash: bytes) -> str:
        """
        The name of the session with this token; "" if there is none.
        """
        return self._shards[token_hash[0]].get(token_hash[:TOKEN_HASH_BYTES], "")

    def add(self, token_hash: bytes, name: str) -> None:
        if token_hash != _NO_TOKEN:
            self._shards[token_hash[0]][token_hash] = name

    def remove(self, token_hash: bytes, name: str, others: Iterable[bytes]) -> None:
        """
        Remove the token of a session, unless it is among `others`, which the same session has elsewhere.
        """
        shard = self._shards[token_hash[0]]
        if token_hash not in others and shard.get(token_hash) == name:
            del shard[token_hash]
