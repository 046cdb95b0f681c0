"""
The name of a node: `mn://<domain>/<node>`.
"""

import re
from functools import lru_cache
from typing import NamedTuple

MAX_NODE_NAME_CHARS = 512
_NODE_NAME = re.compile(r"mn://([a-z0-9](?:[a-z0-9.-]{0,252}))/([A-Za-z0-9._~-]{1,128})")


class NodeName(NamedTuple):
    """
    The parts of a node's name. `str` gives the name, which is what is on the wire and the key in tables.
    """

    domain: str
    node: str

    def __str__(self) -> str:
        return f"mn://{self.domain}/{self.node}"


def parse(name: str) -> NodeName:
    """
    The parts of `mn://<domain>/<node>`; ValueError in words if it is no such name.
    """
    found = _NODE_NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"expected a node as mn://<domain>/<node>, found {name[:80]!r}")
    return NodeName(*found.groups())


def is_name(text: str) -> bool:
    return _NODE_NAME.fullmatch(text) is not None


@lru_cache(maxsize=1024)  # asked several times for each message
def domain_of(name: str) -> str:
    """
    The domain of a name that has been parsed before.
    """
    return name[5 : name.index("/", 5)]
