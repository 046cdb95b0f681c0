"""
Policies to measure with.

Of a corpus one policy concerns the messages of the bench; the others are about
other domains, and an index leaves them out.
"""

import json
from typing import Any


def corpus(number: int, body: bool) -> str:
    """
    So many policies, with two rules each; with `body` they look into it, and no outcome can be remembered.
    """
    policies = [
        _policy(at, "localhost" if at == number // 2 else f"d{at}.example", body) for at in range(number)
    ]
    return json.dumps(
        [
            {
                "id": "bench",
                "target": {},
                "policyCombiningAlgorithm": "blockOverrides",
                "policies": policies,
            }
        ]
    )


def _policy(number: int, domain: str, body: bool) -> dict[str, Any]:
    deny: dict[str, Any] = {"srcSPDomain": {"in": ["bad.example", "worse.example", "worst.example"]}}
    permit: dict[str, Any] = {"srcScheme": {"in": ["hyperty", "runtime"]}, "msgFrom": {"like": "*://*/*"}}
    if body:
        deny = {"srcIDPDomain": {"in": ["bad.example", "worse.example", "worst.example"]}}
        permit = {"body.value": {"exists": True}, "srcScheme": {"in": ["hyperty", "runtime"]}}
    rules = [
        {"id": 1, "target": {}, "condition": deny, "effect": "deny"},
        {"id": 2, "target": {}, "condition": permit, "effect": "permit"},
    ]
    kinds = ["create", "read", "update", "execute", "message", "open", "subscribe", "response"]
    return {
        "id": number,
        "target": {"dstSPDomain": {"equals": domain}, "actionType": {"in": kinds}},
        "ruleCombiningAlgorithm": "blockOverrides",
        "rules": rules,
    }
