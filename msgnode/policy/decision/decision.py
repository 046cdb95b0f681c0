"""
Decisions: what a rule, a policy and a program say of a message.
"""

from msgspec import Struct

from msgnode.policy.decision.obligations import Obligation

PERMIT, DENY, NOT_APPLICABLE, INDETERMINATE = "permit", "deny", "notApplicable", "indeterminate"


class Outcome(Struct, frozen=True, gc=False):
    """
    The outcome of a rule, policy or set; one that does not apply gives None.
    """

    effect: str
    path: str
    obligations: tuple[Obligation, ...] = ()


class Decision(Struct, frozen=True, gc=False):
    """
    A decision about a message, with the rule that made it and its obligations.

    `remember`: it is the same for every message with this from, to and type,
    at the same place in the node, and obliges to nothing.  `unenforced` is what rules
    with `"enforce": false` would have said.
    """

    effect: str
    path: str = ""
    obligations: tuple[Obligation, ...] = ()
    remember: bool = False
    unenforced: tuple[Outcome, ...] = ()
