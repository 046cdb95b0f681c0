"""
Policies as they were compiled once, to be taken again while nothing in them has changed.

A piece is found by its path, and holds if its text is the same and so are the
groups it names.  It knows no place in its document: others may come and go
before it.
"""

import json
from collections.abc import Mapping
from copy import copy
from hashlib import sha256
from typing import Any

from msgspec import Struct

from msgnode.policy.decision.operators import Groups
from msgnode.policy.decision.problems import Place
from msgnode.policy.decision.tree import PolicyNode


class Diagnostics:
    """
    The diagnostics collected while one part of a document is compiled; paths are relative to `at`.
    """

    def __init__(self, at: Place) -> None:
        self.at = at
        self.rules: list[str] = []
        self.attributes: set[str] = set()
        self.groups: set[str] = set()
        self.redirects: list[tuple[str, Place]] = []  # the path of what redirects, and where it says so
        self.lints: list[tuple[Place, str]] = []
        self.obliges = False

    def advise(self, place: Place, text: str) -> None:
        self.lints.append((place[len(self.at) :], text))

    def redirect(self, path: str, place: Place) -> None:
        self.redirects.append((path, place[len(self.at) :]))

    def add(self, other: "Diagnostics", place: Place) -> None:
        """
        What a part within has brought to light, which stands at that place now.
        """
        self.rules += other.rules
        self.attributes |= other.attributes
        self.groups |= other.groups
        self.obliges = self.obliges or other.obliges
        for path, under in other.redirects:
            self.redirect(path, (*place, *under))
        for under, text in other.lints:
            self.advise((*place, *under), text)


class CompiledPolicy(Struct, frozen=True):
    """
    A policy's node, and what it was made of.
    """

    content: bytes
    members: dict[str, frozenset[str]]
    node: PolicyNode
    notes: Diagnostics

    def again(self) -> PolicyNode:
        """
        A node for one more tree.  The old tree is still asked: nothing in it may change.
        """
        return copy(self.node)


class CompileCache:
    """
    The pieces of one document, in `made`; `taken` counts those that are as before.
    """

    def __init__(self, before: Mapping[str, CompiledPolicy], groups: Groups) -> None:
        self.made: dict[str, CompiledPolicy] = {}
        self.taken = 0
        self._before = before
        self._groups = groups

    def find(self, path: str, content: bytes) -> CompiledPolicy | None:
        """
        The policy at that path, if it still is as it was.
        """
        piece = self._before.get(path)
        if piece is None or not content or piece.content != content:
            return None
        if any(self._groups.get(name) != members for name, members in piece.members.items()):
            return None
        self.made[path] = piece
        self.taken += 1
        return piece

    def keep(self, node: PolicyNode, content: bytes, notes: Diagnostics) -> None:
        members = {name: self._groups[name] for name in notes.groups if name in self._groups}
        self.made[node.path] = CompiledPolicy(content, members, node, notes)


def content_of(policy: Any) -> bytes:
    """
    A digest of what it says, in the order it says it; empty for what is nested too deeply.
    """
    try:
        return sha256(json.dumps(policy).encode()).digest()
    except RecursionError:
        return b""
