"""
Decisions: the result of a rule, a policy, a set and a program.
"""

from msgspec import Struct

from msgnode.policy.decision.obligations import Obligation

PERMIT, DENY, NOT_APPLICABLE, INDETERMINATE = "permit", "deny", "notApplicable", "indeterminate"


class Outcome(Struct, frozen=True, gc=False):
    """
    The outcome of a rule, policy or set. If it does not apply, there is None instead.
    """

    effect: str
    path: str
    obligations: tuple[Obligation, ...] = ()


class Decision(Struct, frozen=True, gc=False):
    """
    A decision about a message, with the rule that made it and its obligations.

    `remember`: the decision is the same for all messages with this from, to and type at the same enforcement
    point, and has no obligations. `unenforced` has the outcomes of rules with `"enforce": false`.
    """

    effect: str
    path: str = ""
    obligations: tuple[Obligation, ...] = ()
    remember: bool = False
    unenforced: tuple[Outcome, ...] = ()
