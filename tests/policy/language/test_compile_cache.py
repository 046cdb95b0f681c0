"""
What is compiled again, and what is not, when a document takes the place of another.
"""

import json
from typing import Any

import pytest

from msgnode.policy.decision.problems import PolicyRefused
from msgnode.policy.language.program import Program
from tests.support.policy_case import context, policy, policy_set, rule

DENY_CREATE = rule("deny", {"actionType": {"equals": "create"}})


def programs(*documents: Any) -> list[Program]:
    """
    Each document's program, made with the one before in hand.
    """
    made: list[Program] = []
    for document in documents:
        data = json.dumps(document).encode()
        made.append(Program([("x.json", data)], before=made[-1] if made else None))
    return made


def effects(*made: Program) -> list[str]:
    return [each.decide(context()).effect for each in made]


def test_only_the_changed_policy_is_compiled():
    """
    Of a hundred policies the one that was changed is compiled, and decides as it says now.
    """
    many = [policy([rule("permit", {"actionType": {"equals": "none"}})], id=number) for number in range(99)]

    old, new = programs(
        [policy_set([*many, policy([rule("permit")], id="last")])],
        [policy_set([*many, policy([rule("deny")], id="last")])],
    )

    assert (0, 99) == (old.reused, new.reused)
    assert ["permit", "deny"] == effects(old, new)
    assert old.rules == new.rules


def test_moved_policy_has_its_new_place():
    """
    A policy that another now stands before has its new turn and its new place; in the old set it keeps both.
    """
    moved, first = policy([rule("deny")], id="a"), policy([rule("permit")], id="b")

    old, new = programs(
        [policy_set([moved, first], algorithm="firstApplicable")],
        [policy_set([first, moved], algorithm="firstApplicable")],
    )

    assert 2 == new.reused
    assert ["deny", "permit"] == effects(old, new)
    for made, name in ((old, "1/a"), (new, "1/b")):
        first, second = made.explain(context()).tree[0]["below"]
        assert (name, "/0/policies/0", "/0/policies/0/rules/0") == (
            first["policy"],
            first["at"],
            first["below"][0]["at"],
        )
        assert "not reached" == second["outcome"]


def test_policies_that_name_a_group_know_new_members():
    """
    Who comes into a group is known to the policies that name it, though their text is as it was.
    """
    sets = [
        policy_set(
            [
                policy([rule("deny", {"dstDomain": {"in": "blocked"}})], id="named"),
                policy([DENY_CREATE | {"condition": {"actionType": {"equals": "none"}}}], id="other"),
            ]
        )
    ]

    old, new, same = programs(
        *(
            {"groups": {"blocked": members}, "policySets": sets}
            for members in (["c.com"], ["b.com"], ["b.com"])
        )
    )

    assert ["notApplicable", "deny", "deny"] == effects(old, new, same)
    assert (1, 2) == (new.reused, same.reused)


def test_facts_of_an_unchanged_policy_are_kept():
    """
    What an unchanged policy asks for, obliges to, and is odd about is still known, with its new place.
    """
    odd = policy(
        [rule("permit", {"body.value": {"in": []}}, obligations={"log": "seen"}, strange=1)], id="odd"
    )

    old, new = programs([policy_set([odd])], [policy_set([policy([rule()], id="before"), odd])])

    assert 1 == new.reused
    assert new.obliges
    assert {"body.value"} == old.attributes == new.attributes
    assert [(lint.pointer.replace("/0/rules", "/1/rules"), lint.text) for lint in old.lints] == [
        (lint.pointer, lint.text) for lint in new.lints
    ]
    assert old.lints


def test_circle_closed_by_a_new_policy_is_refused():
    """
    A circle that a new policy closes is refused at both places, one of which was read before.
    """

    def redirect(id: str, from_: str, to: str) -> Any:
        condition = {"msgTo": {"equals": f"hyperty://{from_}.com/x"}}
        duty = {"redirect": f"hyperty://{to}.com/x"}
        return policy([rule("permit", condition, obligations=duty)], id=id)

    there, back = redirect("there", "a", "b"), redirect("back", "b", "a")

    with pytest.raises(PolicyRefused) as caught:
        programs([policy_set([there])], [policy_set([back, there])])

    pointers = {problem.pointer for problem in caught.value.problems}
    assert pointers & {f"/0/policies/{at}/rules/0/obligations/redirect" for at in (0, 1)}


def test_strictly():
    """
    A document is read anew where unknown obligations are to be refused from now on.
    """
    data = json.dumps([policy_set([policy([rule("permit", obligations={"sing": True})])])]).encode()
    before = Program([("x.json", data)])

    with pytest.raises(PolicyRefused, match="sing"):
        Program([("x.json", data)], strict=True, before=before)
