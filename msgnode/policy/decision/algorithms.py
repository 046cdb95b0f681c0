"""
Combining algorithms: they combine the outcomes of several rules, policies or sets into one.

Each is implemented twice. The loop decides, and stops as early as possible. `step` combines two effects, for
a replay that must consider several possible outcomes.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from msgspec import Struct

from msgnode.policy.decision.context import Context
from msgnode.policy.decision.decision import DENY, PERMIT, Outcome

T = TypeVar("T")
Decide = Callable[[T, Context], Outcome | None]


class Combine(Protocol):
    """
    A combining algorithm. `decide` returns the outcome of a node.
    """

    def __call__(self, nodes: Iterable[T], decide: Decide[T], context: Context, /) -> Outcome | None: ...


def _overriding(effect: str) -> Combine:
    """
    An algorithm in which the first outcome of `effect` wins. Without one, the first other outcome, with all
    obligations.
    """

    def combine(nodes: Iterable[T], decide: Decide[T], context: Context) -> Outcome | None:
        found: Outcome | None = None
        for node in nodes:
            outcome = decide(node, context)
            if outcome is None:
                continue
            if outcome.effect == effect:
                return outcome
            if found is None:
                found = outcome
            elif outcome.obligations:
                found = Outcome(found.effect, found.path, found.obligations + outcome.obligations)
        return found

    return combine


def first_applicable(nodes: Iterable[T], decide: Decide[T], context: Context) -> Outcome | None:
    """
    The first outcome of the nodes.
    """
    for node in nodes:
        outcome = decide(node, context)
        if outcome is not None:
            return outcome
    return None


class Algorithm(Struct, frozen=True):
    """
    A combining algorithm. `otherwise` is the effect if nothing applies; `strongest` is the effect that
    overrides.
    """

    name: str
    combine: Combine
    strongest: str | None = None
    otherwise: str | None = None
    about: str = ""

    def step(self, before: str | None, effect: str | None) -> str | None:
        """
        The combination of two effects.
        """
        if before is None or effect is None:
            return before or effect
        return effect if effect == self.strongest else before


_block, _allow = _overriding(DENY), _overriding(PERMIT)
ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("blockOverrides", _block, DENY, about="any deny denies; else any permit permits"),
        Algorithm("allowOverrides", _allow, PERMIT, about="any permit permits; else any deny denies"),
        Algorithm("firstApplicable", first_applicable, about="the first that applies, by priority"),
        Algorithm("denyUnlessPermit", _allow, PERMIT, DENY, "any permit permits; else it is denied"),
        Algorithm("permitUnlessDeny", _block, DENY, PERMIT, "any deny denies; else it is permitted"),
    )
}
ALIASES = {"denyOverrides": "blockOverrides", "permitOverrides": "allowOverrides"}
