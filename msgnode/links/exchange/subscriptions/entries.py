"""
Entries about subscriptions between nodes: the payload of a message of that kind.

`generation` rises with each entry of a node; an older one is ignored. `subscriber` names a session at the
node that asks; its user's identity is in the envelope.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

MAX_ADDRESSES = 500  # in one entry


class Entry(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """
    The base of these entries.
    """


class Ask(Entry, tag="ask"):
    """
    A subscriber, which sends from `from_`, asks for these addresses; again, to renew its lease.
    """

    generation: int
    subscriber: int
    from_: str
    addresses: list[str]


class Answer(Entry, tag="answer"):
    """
    The answer to the entry with that generation: a code for each of its addresses, with a text and a reason
    for those that are not 200. Those that are end after `lease_seconds`, unless they are asked for again.
    """

    generation: int
    codes: Annotated[list[int], Meta(max_length=MAX_ADDRESSES)]
    text: str
    reason: str
    lease_seconds: float = 0.0


class Release(Entry, tag="release"):
    """
    The subscriber no longer wants these addresses.
    """

    generation: int
    subscriber: int
    addresses: list[str]


class Begin(Entry, tag="begin"):
    """
    A snapshot begins: what is asked for between this and its end is all that the node wants.
    """

    generation: int


class End(Entry, tag="end"):
    """
    The end of the snapshot that began with that generation.
    """

    generation: int


class Revoke(Entry, tag="revoke"):
    """
    The policies no longer permit these addresses to the subscriber.
    """

    generation: int
    subscriber: int
    addresses: list[str]


class BeginDomain(Entry, tag="begin-domain"):
    """
    As Begin, from one node of a cluster to the one that is its gateway: for one domain.
    """

    generation: int
    domain: str


class EndDomain(Entry, tag="end-domain"):
    """
    As End, for one domain.
    """

    generation: int
    domain: str


class Permit(Entry, tag="permit"):
    """
    The home domain permits these addresses to the subscriber, and that was not answered before.
    """

    generation: int
    subscriber: int
    addresses: list[str]


class Missed(Entry, tag="missed"):
    """
    All who are subscribed in the domain by this gateway may have missed something.
    """

    generation: int
    domain: str


AnyEntry = Ask | Answer | Release | Begin | End | Revoke | BeginDomain | EndDomain | Permit | Missed
_decoder = msgspec.msgpack.Decoder(AnyEntry)


def decode(payload: bytes) -> AnyEntry:
    """
    The entry. Raises ValueError if it is none, or has too many addresses.
    """
    entry: AnyEntry = _decoder.decode(payload)  # msgspec.DecodeError is a ValueError
    if isinstance(entry, Ask | Release | Revoke | Permit) and len(entry.addresses) > MAX_ADDRESSES:
        raise ValueError(f"an entry has at most {MAX_ADDRESSES} addresses, not {len(entry.addresses)}")
    return entry


def in_parts(addresses: list[str]) -> list[list[str]]:
    """
    The addresses in as many lists as entries are needed.
    """
    return [addresses[at : at + MAX_ADDRESSES] for at in range(0, len(addresses), MAX_ADDRESSES)]
