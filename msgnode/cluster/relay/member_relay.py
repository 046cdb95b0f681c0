"""
The relay as the HTTP connectors use it.
"""

from typing import NamedTuple

from msgnode.cluster.relay.holders import SessionNames, SidTags, TokenHolders
from msgnode.cluster.relay.relay import Relay


class MemberRelay(NamedTuple):
    """
    The relay to other members; which of them holds a session, and what its name is.
    """

    relay: Relay
    holders: TokenHolders
    sids: SidTags
    names: SessionNames
