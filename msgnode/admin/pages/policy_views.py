"""
The page on policies: versions, how often each rule decided, the last refusals, and what a message would meet.
"""

from typing import Any

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred

from msgnode.admin.access.named_tokens import POLICY_MANAGER
from msgnode.admin.admin_tokens import with_role
from msgnode.admin.pages.views import Shown, Visit, first_failure
from msgnode.policy.administration.commands import PolicyCommands
from msgnode.policy.enforcement.points import POINTS
from msgnode.protocol.errors import Rejected

FIELDS = ("from", "to", "type", "point", "identity", "session")
SHOWN_DECISIONS = 20


class PolicyViews:
    """
    The page `policies`, for the role policy-manager.
    """

    def __init__(self, commands: PolicyCommands) -> None:
        self._commands = commands
        self.pages = {"policies": self.policies}

    def policies(self, visit: Visit) -> Deferred[Shown]:
        """
        The live version, its rules, and the explanation of a message that the form describes.
        """
        with_role(visit.operator, POLICY_MANAGER)
        asked = {name: visit.query[name] for name in FIELDS if visit.query.get(name)}
        found = gatherResults(
            [
                *(self._commands.ask(method, {}, "") for method in ("stats", "versions", "decisions")),
                maybeDeferred(self._explained, asked),
            ],
            consumeErrors=True,
        )
        found.addErrback(first_failure)

        def shown(results: list[Any]) -> Shown:
            stats, versions, decisions, explained = results
            return "policies.html", {
                "stats": stats,
                "versions": versions[::-1],
                "decisions": decisions[:SHOWN_DECISIONS],
                "asked": asked,
                "explained": explained,
                "points": POINTS,
            }

        return found.addCallback(shown)

    def _explained(self, asked: dict[str, str]) -> Any:
        """
        The explanation, or `{"problem": ...}`; None if the form asks nothing.
        """
        if "from" not in asked or "to" not in asked:
            return None
        message = {"id": 1, "type": asked.get("type", "create"), "from": asked["from"], "to": asked["to"]}
        params: dict[str, Any] = {"message": message, "point": asked.get("point", "in")}
        params |= {name: asked[name] for name in ("identity", "session") if name in asked}
        return self._commands.ask("explain", params, "").addErrback(_problem)


def _problem(why: Any) -> dict[str, str]:
    why.trap(Rejected)
    return {"problem": str(why.value)}
