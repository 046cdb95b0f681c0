"""
Redirection: followed once, and checked for cycles.

Cycles are searched when a policy is loaded. At that time, only the new address of a redirected message is
known; every condition on anything else may be true or false.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from msgnode.policy.decision import addresses
from msgnode.policy.decision.conditions import AttributeTest, Condition, Needs, holds
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.decision import PERMIT, Decision
from msgnode.policy.decision.obligations import Obligation, Redirect
from msgnode.policy.decision.tree import Children, PolicyNode

# The attributes that depend on the address alone.
_OF_ADDRESS: dict[str, Callable[[str], str]] = {
    "msgTo": addresses.folded,
    "dstSPDomain": lambda to: addresses.split(to)[1],
    "dstDomain": lambda to: addresses.domain(addresses.split(to)[1]),
    "dstScheme": lambda to: addresses.split(to)[0],
}


def redirect_of(obligations: tuple[Obligation, ...], context: Context) -> Redirect | None:
    """
    The redirection among the obligations, unless it leads to the present address.
    """
    for each in obligations:
        if each.__class__ is Redirect and each.to != context.to:  # type: ignore[attr-defined]
            return each  # type: ignore[return-value]
    return None


def follow(
    decide: Callable[[Context], Decision], context: Context, decision: Decision
) -> tuple[Decision, Context]:
    """
    The decision after a redirection, and its context.

    A second redirection is not followed: the decision is `indeterminate`.
    """
    if decision.effect != PERMIT:
        return decision, context
    redirect = redirect_of(decision.obligations, context)
    if redirect is None:
        return decision, context
    moved = context.redirected(redirect.to)
    second = decide(moved)
    kept = tuple(each for each in decision.obligations if each.__class__ is not Redirect)
    effect, path = second.effect, second.path
    if effect == PERMIT and redirect_of(second.obligations, moved) is not None:
        effect = "indeterminate"
    merged = kept + tuple(each for each in second.obligations if each.__class__ is not Redirect)
    return type(decision)(effect, path, merged, False, decision.unenforced + second.unenforced), moved


# -- cycles --------------------------------------------------------------------


class _Hop(Struct):
    """
    A redirection, with the set, policy and rule that have it.
    """

    redirect: Redirect
    chain: tuple[PolicyNode, ...]
    needs: list[Needs]

    def may_follow(self, other: "_Hop") -> bool:
        """
        Can this redirection apply to a message that the other one redirected?
        """
        to = other.redirect.to
        conditions = [condition for node in self.chain for condition in (node.target, node.condition)]
        if to == self.redirect.to or any(_holds(condition, to) is False for condition in conditions):
            return False
        return not any(_disjoint(mine, theirs) for mine in self.needs for theirs in other.needs)


def redirect_targets(sets: Children) -> frozenset[str]:
    """
    The addresses to which any rule redirects.
    """
    return frozenset(
        each.to
        for chain in _chains(sets, ())
        for each in chain[-1].obligations.get(PERMIT, ())
        if isinstance(each, Redirect)
    )


def find_cycle(sets: Children) -> tuple[str, str] | None:
    """
    The path of a redirection that is part of a cycle, and the cycle's addresses; or None.
    """
    hops = [
        _Hop(each, chain, [condition.needs for node in chain for condition in (node.target, node.condition)])
        for chain in _chains(sets, ())
        for each in chain[-1].obligations.get(PERMIT, ())
        if isinstance(each, Redirect)
    ]
    filed = _filed(hops)
    after = {
        i: [j for j in _at(filed, hop.redirect.to) if hops[j].may_follow(hop)] for i, hop in enumerate(hops)
    }
    for start in after:
        way = _cycle_from(start, after)
        if way:
            return hops[start].redirect.path, " to ".join(hops[i].redirect.to for i in way)
    return None


def _filed(hops: list[_Hop]) -> dict[tuple[str, str], list[int]]:
    """
    The indexes of hops by the value they need in an address; under ("", "") those that need none.
    """
    filed: dict[tuple[str, str], list[int]] = {}
    for number, hop in enumerate(hops):
        needed = ((name, needs[name]) for name in _OF_ADDRESS for needs in hop.needs if name in needs)
        name, keys = next(needed, ("", frozenset({""})))
        for key in keys:
            filed.setdefault((name, key), []).append(number)
    return filed


def _at(filed: dict[tuple[str, str], list[int]], to: str) -> list[int]:
    """
    The hops that may apply to a message to this address.
    """
    found = list(filed.get(("", ""), ()))
    for name, of in _OF_ADDRESS.items():
        found += filed.get((name, of(to)), ())
    return sorted(found)


def _chains(below: Children, above: tuple[PolicyNode, ...]) -> Iterator[tuple[PolicyNode, ...]]:
    for node in below.nodes:
        yield (*above, node)
        yield from _chains(node.below, (*above, node))


def _cycle_from(start: int, after: dict[int, list[int]]) -> list[int]:
    """
    A cycle from a hop back to itself; [] if there is none.
    """
    ways, seen = [[start]], set()
    while ways:
        way = ways.pop()
        for hop in after[way[-1]]:
            if hop == start:
                return [*way, start]
            if hop not in seen:
                seen.add(hop)
                ways.append([*way, hop])
    return []


def _holds(condition: Condition, to: str) -> bool | None:
    """
    The value of a condition for a message of which only the address is known.
    """

    def test(one: AttributeTest) -> bool | None:
        name = one.attribute.name
        if name not in _OF_ADDRESS:
            return None
        context = Context.__new__(Context)  # with no other value
        context.values = {name: _OF_ADDRESS[name](to) or None}
        return one.test(context)

    return holds(condition, test)


def _disjoint(mine: Needs, theirs: Needs) -> bool:
    return any(
        name in theirs and name not in _OF_ADDRESS and name != "msgType" and keys.isdisjoint(theirs[name])
        for name, keys in mine.items()
    )
