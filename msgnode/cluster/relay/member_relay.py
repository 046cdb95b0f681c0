"""
The relay as the HTTP connectors use it.
"""

from typing import NamedTuple

from msgnode.cluster.relay.holders import SidTags, TokenHolders
from msgnode.cluster.relay.relay import Relay


class MemberRelay(NamedTuple):
    """
    The relay to other members, and which of them holds a session.
    """

    relay: Relay
    holders: TokenHolders
    sids: SidTags
