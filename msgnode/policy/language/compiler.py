"""
The compiler: it converts the JSON of a document to the nodes of a decision tree.
"""

from typing import Any

from msgnode.policy.decision.algorithms import ALGORITHMS, ALIASES
from msgnode.policy.decision.conditions import ALWAYS, Condition
from msgnode.policy.decision.decision import DENY, PERMIT
from msgnode.policy.decision.obligations import Obligation
from msgnode.policy.decision.operators import Groups
from msgnode.policy.decision.problems import InvalidValue, Place
from msgnode.policy.decision.tree import PolicyNode
from msgnode.policy.language import obligation_parser
from msgnode.policy.language.compile_cache import CompileCache, Diagnostics, content_of
from msgnode.policy.language.condition_parser import Reader
from msgnode.policy.language.document import OURS, POLICY, RULE, SET, Document
from msgnode.structures.error_words import near, shown

_OPTIONAL = ("version", "update", "obligations", "priority", *OURS)
MAX_UNFILED = 100  # nodes without an index entry before a warning
UNFILED = "{} of its {} have no target that an index could use; each is tested with every message"


class Compiler:
    """
    Compiles the policy sets of one document.
    """

    def __init__(
        self, document: Document, groups: Groups, index: bool, strict: bool, pieces: CompileCache
    ) -> None:
        self._document = document
        self._index = index
        self._strict = strict
        self._pieces = pieces
        self.notes = Diagnostics(())
        self._reader = Reader(groups, document.refuse, self.notes)

    def refuse_circle(self, path: str, way: str) -> None:
        """
        Report the redirection at that path as part of a cycle.
        """
        for redirecting, place in self.notes.redirects:
            if redirecting == path:
                self._document.refuse(place, f"redirects in a cycle: {way}")

    def sets(self, taken: set[str]) -> list[tuple[float, PolicyNode]]:
        """
        The nodes of all sets, with their priorities. `taken` has the names that are in use.
        """
        place, values = self._document.sets
        found = []
        for position, value in enumerate(values):
            under = (*place, position)
            node = self._set(value, under, taken)
            if node is not None:
                node.place = under
                found.append((self._priority(value, position), node))
        for under, text in self.notes.lints:
            self._document.advise(under, text)
        return found

    def _set(self, value: Any, place: Place, taken: set[str]) -> PolicyNode | None:
        if not self._has_keys(value, SET, place, "a policy set"):
            return None
        path = self._name(value.get("id"), place, taken)
        return self._group(value, place, path, "set", "policies", "policy")

    def _policy(self, value: Any, place: Place, above: str, taken: set[str]) -> PolicyNode | None:
        """
        A policy. An unchanged one is taken from the cache.
        """
        if not self._has_keys(value, POLICY, place, "a policy"):
            return None
        path = above + self._name(value.get("id"), place, taken)
        content = content_of(value)
        piece = self._pieces.find(path, content)
        if piece is not None:
            self.notes.add(piece.notes, place)
            return piece.again()
        around, own = self.notes, Diagnostics(place)
        self.notes = self._reader.notes = own
        node = self._group(value, place, path, "policy", "rules", "rule")
        self.notes = self._reader.notes = around
        around.add(own, place)
        if node is not None:
            self._pieces.remember(node, content, own)
        return node

    def _group(
        self, value: dict[str, Any], place: Place, path: str, kind: str, list_key: str, word: str
    ) -> PolicyNode | None:
        """
        A set or a policy.
        """
        node = self._node(kind, value, place, path)
        algorithm = self._algorithm(value, f"{word}CombiningAlgorithm", place)
        values = value.get(list_key)
        if not isinstance(values, list):
            if list_key in value:
                what = "policies" if kind == "set" else "rules"
                self._document.refuse((*place, list_key), f"expected a list of {what}, found {shown(values)}")
            return None
        names: set[str] = set()
        made = []
        for position, each in enumerate(values):
            under = (*place, list_key, position)
            read = self._policy if kind == "set" else self._rule
            child = read(each, under, path + "/", names)
            if child is not None:
                child.place = (list_key, position)
                made.append((self._priority(each, position), child))
        node.combining(algorithm, [child for _, child in sorted(made, key=lambda pair: pair[0])], self._index)
        self._advise_below(node, (*place, list_key), list_key)
        return node

    def _advise_below(self, node: PolicyNode, place: Place, what: str) -> None:
        if self._index and node.below.unfiled > MAX_UNFILED:
            self.notes.advise(place, UNFILED.format(node.below.unfiled, what))
        if node.algorithm is not ALGORITHMS["firstApplicable"]:
            return
        for i, child in enumerate(node.below.nodes[:-1]):
            if child.is_final:
                lost = node.below.nodes[i + 1].path
                self.notes.advise(place, f"{lost} is never reached: {child.path} before it always decides")
                break

    def _rule(self, value: Any, place: Place, above: str, taken: set[str]) -> PolicyNode | None:
        if not self._has_keys(value, RULE, place, "a rule"):
            return None
        node = self._node("rule", value, place, above + self._name(value.get("id"), place, taken))
        condition = (
            self._reader.condition(value["condition"], (*place, "condition"))
            if "condition" in value
            else ALWAYS
        )
        effect = value.get("effect")
        if "effect" in value and effect not in (PERMIT, DENY):
            hint = near(effect, (PERMIT, DENY)) if isinstance(effect, str) else ""
            self._document.refuse((*place, "effect"), f"expected permit or deny, found {shown(effect)}{hint}")
        node.rule(condition, effect if isinstance(effect, str) else DENY)
        self.notes.rules.append(node.path)
        if effect == PERMIT and (node.target.is_negative or condition.is_negative):
            self._advise_negative(node, condition, place)
        return node

    def _advise_negative(self, node: PolicyNode, condition: Condition, place: Place) -> None:
        negative = [part for part in (node.target, condition) if part is not ALWAYS]
        if negative and all(part.is_negative for part in negative):
            text = 'permits whatever lacks the attribute, such as anonymous senders; add {"exists": true}'
            self.notes.advise((*place, "condition"), text)

    def _node(self, kind: str, value: dict[str, Any], place: Place, path: str) -> PolicyNode:
        target = self._reader.condition(value["target"], (*place, "target")) if "target" in value else ALWAYS
        enforce = value.get("enforce", True)
        if not isinstance(enforce, bool):
            self._document.refuse((*place, "enforce"), f"expected true or false, found {shown(enforce)}")
        duties = self._obligations(kind, value, place, path)
        return PolicyNode(kind, path, target, duties, enforce is not False)

    def _name(self, id: Any, place: Place, taken: set[str]) -> str:
        if isinstance(id, bool) or not isinstance(id, str | int) or id == "":
            if id is not None:
                self._document.refuse((*place, "id"), f"expected a number or a text, found {shown(id)}")
            return "?"
        name = str(id) if isinstance(id, str) or id.bit_length() < 1000 else "?"
        if name in taken:
            self.notes.advise((*place, "id"), f"a sibling has the id {shown(id)} too")
            number = 2
            while f"{name}~{number}" in taken:
                number += 1
            name = f"{name}~{number}"
        taken.add(name)
        return name

    def _has_keys(self, value: Any, keys: tuple[str, ...], place: Place, what: str) -> bool:
        if not isinstance(value, dict):
            self._document.refuse(place, f"expected {what} as an object, found {shown(value)}")
            return False
        known = (*keys, *OURS)
        strange = [key for key in value if key not in known]
        missing = [key for key in keys if key not in value and key not in _OPTIONAL]
        for key in strange:
            hint = near(key, [name for name in known if name not in value])
            if hint:
                self._document.refuse((*place, key), f"unknown key '{key[:100]}'{hint}")
            else:
                self.notes.advise((*place, key), f"unknown key '{key[:100]}', which has no effect here")
        for key in missing:
            self._document.refuse(place, f"'{key}' is missing: {what} has " + ", ".join(keys))
        return True

    def _algorithm(self, value: dict[str, Any], key: str, place: Place) -> Any:
        name = value.get(key) or "blockOverrides"
        found = ALGORITHMS.get(ALIASES.get(name, name)) if isinstance(name, str) else None
        if found is None:
            known = [*ALGORITHMS, *ALIASES]
            hint = near(name, known) or "; algorithms are " + ", ".join(ALGORITHMS)
            self._document.refuse((*place, key), f"unknown algorithm {shown(name)}{hint}")
            return ALGORITHMS["blockOverrides"]
        return found

    def _priority(self, value: Any, position: int) -> float:
        priority = value.get("priority", position)
        return priority if _is_number(priority) else position

    def _obligations(
        self, kind: str, value: dict[str, Any], place: Place, path: str
    ) -> dict[str, tuple[Obligation, ...]]:
        """
        The obligations by effect. A rule has them for its own effect; policies and sets have a key for each
        effect.
        """
        if "priority" in value and not _is_number(value["priority"]):
            self._document.refuse(
                (*place, "priority"), f"expected a number, found {shown(value['priority'])}"
            )
        place = (*place, "obligations")
        given = value.get("obligations") or {}
        if not isinstance(given, dict):
            self._document.refuse(place, f"expected an object, found {shown(given)}")
            return {}
        if kind == "rule":
            effect = value.get("effect")
            return {str(effect): self._duties(given, place, path, effect)} if given else {}
        found = {}
        for effect, named in given.items():
            if effect not in (PERMIT, DENY):
                hint = '; write {"permit": {...}, "deny": {...}}'
                self._document.refuse(
                    (*place, effect), f"expected permit or deny, found '{effect[:100]}'{hint}"
                )
            elif not isinstance(named, dict):
                self._document.refuse((*place, effect), f"expected an object, found {shown(named)}")
            else:
                found[effect] = self._duties(named, (*place, effect), path, effect)
        return found

    def _duties(self, named: dict[str, Any], place: Place, path: str, effect: Any) -> tuple[Obligation, ...]:
        made: list[Obligation] = []
        for name, value in named.items():
            under = (*place, name)
            if name not in obligation_parser.KINDS:
                text = obligation_parser.unknown(name)
                if self._strict:
                    self._document.refuse(under, text)
                else:
                    self.notes.advise(under, f"{text}; it is only logged")
            elif effect == DENY and name in obligation_parser.ON_PERMIT:
                self.notes.advise(under, f"'{name}' does nothing for a message that is denied")
            if name == "redirect":
                self.notes.redirect(path, under)
            try:
                made += obligation_parser.read(name, value, path, self._reader, under)
            except InvalidValue as why:
                self._document.refuse((*under, *why.under), str(why))
        self.notes.obliges = self.notes.obliges or bool(made)
        return tuple(made)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
