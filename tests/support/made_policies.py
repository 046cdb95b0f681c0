"""
Policies for tests, and a node that has some.
"""

import json
from typing import Any

from msgnode.node import Node
from msgnode.policy.administration.document_edit import load


def rule(effect: str, condition: Any = None, id: Any = "r", **obligations: Any) -> dict[str, Any]:
    """
    One rule.
    """
    return {
        "id": id,
        "target": {},
        "condition": condition if condition is not None else {},
        "effect": effect,
        "obligations": obligations,
    }


def document(*rules: dict[str, Any], algorithm: str = "blockOverrides", **top: Any) -> Any:
    """
    One set with one policy that has these rules.
    """
    policy = {"id": "p", "target": {}, "ruleCombiningAlgorithm": algorithm, "rules": list(rules)}
    sets = [{"id": "s", "target": {}, "policyCombiningAlgorithm": algorithm, "policies": [policy]}]
    return {"policySets": sets, **top} if top else sets


def files(document: Any) -> tuple[tuple[str, str], ...]:
    return (("test.json", json.dumps(document)),)


def use(node: Node, *rules: dict[str, Any], algorithm: str = "blockOverrides") -> None:
    """
    Let these rules decide from now on.
    """
    node.enforcement.use(load(files(document(*rules, algorithm=algorithm))), 1)
