"""
The decision tree: sets, policies and rules as nodes, each with an index of its children.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from msgnode.policy.decision import attributes
from msgnode.policy.decision.algorithms import Algorithm
from msgnode.policy.decision.attribute import HEADER, Attribute
from msgnode.policy.decision.conditions import ALWAYS, Condition, Needs, either, noted
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.decision import Outcome
from msgnode.policy.decision.obligations import Obligation
from msgnode.policy.decision.problems import Place
from msgnode.policy.decision.values import text_of

SMALL = 4  # below this number of nodes an index is slower


class PolicyNode:
    """
    A set, a policy or a rule.

    A rule has an `outcome` and no children; policies and sets have an `algorithm`. `obligations` are by
    effect. `place` is the path from the parent in the document. With `enforce` false, the outcome is only
    noted.
    """

    __slots__ = (
        "algorithm",
        "applies",
        "below",
        "combine",
        "condition",
        "enforce",
        "kind",
        "obligations",
        "order",
        "otherwise",
        "outcome",
        "path",
        "place",
        "target",
    )

    def __init__(
        self,
        kind: str,
        path: str,
        target: Condition,
        obligations: dict[str, tuple[Obligation, ...]],
        enforce: bool,
    ) -> None:
        self.kind = kind
        self.path = path
        self.place: Place = ()
        self.target = target
        self.condition: Condition = ALWAYS
        self.applies = noted(target)
        self.obligations = obligations
        self.enforce = enforce
        self.order = 0
        self.algorithm: Algorithm | None = None
        self.combine = None
        self.below = Children([])
        self.outcome: Outcome | None = None
        self.otherwise: Outcome | None = None

    def rule(self, condition: Condition, effect: str) -> None:
        """
        Make this node a rule.
        """
        self.condition = condition
        if condition is not ALWAYS:
            target, test = self.applies, noted(condition)
            self.applies = (
                test if self.target is ALWAYS else (lambda context: target(context) and test(context))
            )
        self.outcome = Outcome(effect, self.path, self.obligations.get(effect, ()))

    def combining(self, algorithm: Algorithm, nodes: Sequence["PolicyNode"], index: bool) -> None:
        """
        Make this node a policy or a set with these children.
        """
        self.algorithm = algorithm
        self.combine = algorithm.combine  # type: ignore[assignment]
        self.below = Children(nodes, index)
        if algorithm.otherwise is not None:
            self.otherwise = Outcome(algorithm.otherwise, self.path)

    @property
    def needs(self) -> Needs:
        """
        The values that a message must have for this node to apply.
        """
        merged = dict(self.target.needs)
        more: Needs = self.condition.needs
        if self.algorithm is not None:
            more = {} if self.otherwise is not None else self.below.needs
        for name, keys in more.items():
            if name not in merged or len(keys) < len(merged[name]):
                merged[name] = keys
        return merged

    @property
    def is_final(self) -> bool:
        """
        Does this node decide about every message?
        """
        if not self.enforce or self.target is not ALWAYS:
            return False
        return self.otherwise is not None or (self.outcome is not None and self.condition is ALWAYS)

    def finish(self, outcome: Outcome | None) -> Outcome | None:
        """
        The outcome of a policy or set, from the combined outcome of its children.
        """
        if outcome is None:
            outcome = self.otherwise
            if outcome is None:
                return None
        own = self.obligations.get(outcome.effect)
        return Outcome(outcome.effect, outcome.path, outcome.obligations + own) if own else outcome


def decide(node: PolicyNode, context: Context) -> Outcome | None:
    """
    The outcome of a node for a message.
    """
    if not node.applies(context):
        return None
    if node.combine is None:
        outcome = node.outcome
    else:
        outcome = node.finish(node.combine(node.below.find(context), decide, context))
    if not node.enforce and outcome is not None:
        context.unenforced.append(outcome)
        return None
    return outcome


class Children:
    """
    The children of a node, in order, with an index of those that may apply to a message.

    Each node is indexed by one attribute that its target needs, the most selective one. Nodes without such an
    attribute are always found.
    """

    __slots__ = ("_always", "_buckets", "needs", "nodes")

    def __init__(self, nodes: Sequence[PolicyNode], index: bool = True) -> None:
        self.nodes = tuple(nodes)
        self._always: tuple[PolicyNode, ...] = self.nodes
        self._buckets: list[tuple[Attribute, dict[str, tuple[PolicyNode, ...]]]] = []
        needs = [node.needs for node in self.nodes]
        self.needs = either(needs)
        for order, node in enumerate(self.nodes):
            node.order = order
        if index and len(self.nodes) > SMALL:
            self._file(needs)

    def find(self, context: Context) -> Sequence[PolicyNode]:
        """
        The nodes that may apply to the message, in order.
        """
        if not self._buckets:
            return self.nodes
        found: Sequence[PolicyNode] = self._always
        sources = 1 if found else 0
        for attribute, buckets in self._buckets:
            value = context.get(attribute)
            if value is None:
                continue
            if value.__class__ is frozenset:
                hits: Iterable[tuple[PolicyNode, ...]] = [buckets[each] for each in value if each in buckets]
            else:
                hit = buckets.get(value if value.__class__ is str else text_of(value))  # type: ignore[arg-type]
                hits = (hit,) if hit is not None else ()
            for hit in hits:
                found = [*found, *hit] if sources else hit
                sources += 1
        if sources < 2:
            return found
        return sorted(set(found), key=_order)

    def _file(self, needs: list[Needs]) -> None:
        shared: dict[tuple[str, str], int] = {}
        for each in needs:
            for name, keys in each.items():
                for key in keys:
                    shared[name, key] = shared.get((name, key), 0) + 1
        always: list[PolicyNode] = []
        buckets: dict[str, dict[str, list[PolicyNode]]] = {}
        known: dict[str, Attribute] = {}
        for node, each in zip(self.nodes, needs, strict=True):
            if not each:
                always.append(node)
                continue
            for name in each:
                known.setdefault(name, attributes.find(name))
            best = min(
                each,
                key=lambda name: (known[name].source != HEADER, sum(shared[name, key] for key in each[name])),
            )
            for key in each[best]:
                buckets.setdefault(best, {}).setdefault(key, []).append(node)
        self._always = tuple(always)
        self._buckets = [
            (known[name], {key: tuple(nodes) for key, nodes in filed.items()})
            for name, filed in buckets.items()
        ]

    @property
    def unfiled(self) -> int:
        """
        The number of nodes that are not in the index.
        """
        return len(self._always)


_order = attrgetter("order")
