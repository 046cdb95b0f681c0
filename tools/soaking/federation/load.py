"""
The members of all domains, who send as long as the load lasts.
"""

import random
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from soaking.load.member import Member
from soaking.load.member_load import MemberLoad
from soaking.load.transports import any_link


class Ports(Protocol):
    """
    The ports of the node of a domain.
    """

    @property
    def domain(self) -> str: ...
    @property
    def web_port(self) -> int: ...
    @property
    def line_port(self) -> int: ...


class Load(MemberLoad):
    """
    So many members in each domain, each of which sends `rate` messages a second to those of others.
    """

    def __init__(self, nodes: Mapping[str, Ports], members: int, rate: float, seed: int) -> None:
        chance = random.Random(seed)
        everyone: list[Member] = []
        everyone += [
            Member(
                node.domain,
                number,
                node.domain,
                partial(any_link, chance, node.web_port, node.line_port),
                everyone,
                chance,
            )
            for node in nodes.values()
            for number in range(members)
        ]
        super().__init__(everyone, rate, chance)
