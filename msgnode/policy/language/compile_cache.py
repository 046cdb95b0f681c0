"""
The compile cache: compiled policies are reused while nothing in them has changed.

A policy is found by its path. It is reused if its text and the groups it names are unchanged. It does not
know its place in the document, since other policies may be added or removed before it.
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
        self.redirects: list[
            tuple[str, Place]
        ] = []  # the path of the node that redirects, and the place of the redirection
        self.lints: list[tuple[Place, str]] = []
        self.obliges = False

    def advise(self, place: Place, text: str) -> None:
        self.lints.append((place[len(self.at) :], text))

    def redirect(self, path: str, place: Place) -> None:
        self.redirects.append((path, place[len(self.at) :]))

    def add(self, other: "Diagnostics", place: Place) -> None:
        """
        Add the diagnostics of a part that is now at `place`.
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
    A compiled policy, with the text and the groups it was compiled from.
    """

    content: bytes
    members: dict[str, frozenset[str]]
    node: PolicyNode
    notes: Diagnostics

    def again(self) -> PolicyNode:
        """
        A node for one more tree. The old tree may still be in use, so nothing in it may change.
        """
        return copy(self.node)


class CompileCache:
    """
    The compiled policies of one document, in `made`. `taken` counts those that were reused.
    """

    def __init__(self, before: Mapping[str, CompiledPolicy], groups: Groups) -> None:
        self.made: dict[str, CompiledPolicy] = {}
        self.taken = 0
        self._before = before
        self._groups = groups

    def find(self, path: str, content: bytes) -> CompiledPolicy | None:
        """
        The policy at that path, if it has not changed.
        """
        piece = self._before.get(path)
        if piece is None or not content or piece.content != content:
            return None
        if any(self._groups.get(name) != members for name, members in piece.members.items()):
            return None
        self.made[path] = piece
        self.taken += 1
        return piece

    def remember(self, node: PolicyNode, content: bytes, notes: Diagnostics) -> None:
        members = {name: self._groups[name] for name in notes.groups if name in self._groups}
        self.made[node.path] = CompiledPolicy(content, members, node, notes)


def content_of(policy: Any) -> bytes:
    """
    A digest of a policy's JSON, keys in their order; b"" if it is nested too deeply.
    """
    try:
        return sha256(json.dumps(policy).encode()).digest()
    except RecursionError:
        return b""
