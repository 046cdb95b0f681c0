"""
Policies and messages for tests, in few words.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from msgnode.policy.decision.context import Context
from msgnode.policy.language.program import Program
from msgnode.protocol.message import Message, decode

HERE = Path(__file__).parents[1]
MESSAGE = {"id": 1, "type": "create", "from": "hyperty://a.com/h1", "to": "hyperty://b.com/h2", "body": {}}
CLOCK = "2026-11-18T10:00:00"  # a Wednesday
GROUPS = {"family": ["a@x", "b@x"]}
_EFFECTS = {"p": "permit", "d": "deny"}
_NEVER = {"actionType": {"equals": "nothing"}}


def rule(effect: str = "deny", condition: Any = None, id: Any = 1, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "target": {},
        "condition": {} if condition is None else condition,
        "effect": effect,
        **more,
    }


def policy(rules: list[Any], id: Any = 1, algorithm: Any = "blockOverrides", **more: Any) -> dict[str, Any]:
    return {"id": id, "target": {}, "rules": rules, "ruleCombiningAlgorithm": algorithm, **more}


def policy_set(
    policies: list[Any], id: Any = 1, algorithm: Any = "blockOverrides", **more: Any
) -> dict[str, Any]:
    return {"id": id, "target": {}, "policies": policies, "policyCombiningAlgorithm": algorithm, **more}


def rules_of(letters: str) -> list[dict[str, Any]]:
    """
    `pd` is a permit rule and a deny rule, `n` one that never applies; `d5 p0` gives priorities too.
    """
    words = letters.split() if " " in letters else list(letters)
    made = []
    for number, word in enumerate(words, 1):
        more = {"priority": int(word[1:])} if word[1:] else {}
        condition = _NEVER if word[0] == "n" else {}
        made.append(rule(_EFFECTS.get(word[0], "deny"), condition, number, **more))
    return made


def document(row: dict[str, Any]) -> Any:
    """
    The policy of one row of tests/policy/semantics.json.
    """
    algorithm = row.get("algorithm", "blockOverrides")
    if "document" in row:
        return row["document"]
    if "sets" in row:
        return [
            policy_set([policy(rules_of(each.pop("rules")))], number, **each)
            for number, each in enumerate(map(dict, row["sets"]), 1)
        ]
    if "policies" in row:
        policies = [policy(rules_of(letters), number) for number, letters in enumerate(row["policies"], 1)]
        return [policy_set(policies, 1, algorithm)]
    if "rules" in row:
        return [policy_set([policy(rules_of(row["rules"]), 1, algorithm)], 1)]
    made = rule(row.get("effect", "deny"), obligations=row.get("obligations", {}))
    made |= {"condition": row["condition"], "target": row.get("target", {})}
    of_one = policy([made], 1, algorithm)
    return [policy_set([of_one | {"target": row.get("policy_target", {})}], 1, algorithm)]


def program(sets: Any, **options: Any) -> Program:
    return Program([("policy.json", json.dumps(sets).encode())], **options)


def only(condition: Any, effect: str = "deny", **more: Any) -> list[Any]:
    """
    A document of one rule with that condition.
    """
    return [policy_set([policy([rule(effect, condition, **more)])])]


def message(**fields: Any) -> Message:
    return decode(json.dumps({**MESSAGE, **fields}).encode())


def context(case: dict[str, Any] | None = None, **options: Any) -> Context:
    """
    The context of one case of a row.
    """
    case = case or {}
    fields = {**MESSAGE, **case.get("message", {})}
    if "user" in case:
        identity = {"idp": "google.com", "userProfile": {"username": case["user"]}}
        fields["body"] = {**fields["body"], "identity": identity}
    for key in case.get("remove", ()):
        del fields[key]
    moment = datetime.fromisoformat(case.get("clock", CLOCK))
    return Context(
        decode(json.dumps(fields).encode()),
        "in",
        case.get("recipient"),
        trust=case.get("trust", "claimed"),
        now=lambda: moment,
        **options,
    )
