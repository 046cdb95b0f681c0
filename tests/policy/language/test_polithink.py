"""
The importer of PoliTHINK policies: what has no equivalent is refused, each with its place.
"""

import json

import pytest

from msgnode.policy.decision.problems import PolicyRefused
from msgnode.policy.language.polithink import convert


def rule(**changed):
    return {"condition": {"attribute": "domain", "operator": "in", "params": []}, "decision": True} | changed


def one_test(**changed):
    """
    A document whose only rule has this test.
    """
    made = {"attribute": "domain", "operator": "in", "params": []} | changed
    return [{"key": "office", "rules": [rule(condition=made)]}]


CONDITION = "/0/rules/0/condition"
REFUSED = [
    ([1], "/0: expected a policy with 'key' and 'rules', found 1"),
    ([{"rules": 1}], "/0: expected a policy with 'key' and 'rules', found an object"),
    ([{"rules": ["x"]}], "/0/rules/0: expected a rule with 'condition' and 'decision', found 'x'"),
    ([{"rules": [rule(decision=1)]}], "/0/rules/0/decision: expected true or false, found 1"),
    ([{"rules": [rule(scope="user")]}], "/0/rules/0/scope: a rule of scope 'user' belongs to a runtime"),
    ([{"rules": [rule(condition=[])]}], f"{CONDITION}: expected a test or a list such as"),
    (
        [{"rules": [rule(condition=["not"])]}],
        f'{CONDITION}: expected ["and", a, b], ["or", a, b] or ["not", a]',
    ),
    ([{"combiningAlgorithm": "allowOverride", "rules": []}], "did you mean 'allowOverrides'?"),
    ([{"actions": [1], "rules": []}], "/0/actions: actions never ran in a messaging node"),
    (one_test(attribute="subscription"), "'subscription' asks the runtime's registry"),
    (
        one_test(attribute="domian"),
        f"{CONDITION}/attribute: unknown attribute 'domian', did you mean 'domain'?",
    ),
    (one_test(attribute=[]), f"{CONDITION}/attribute: unknown attribute []; attributes are "),
    (one_test(operator="lke"), f"{CONDITION}/operator: unknown operator 'lke', did you mean 'like'?"),
    (one_test(operator={}), f"{CONDITION}/operator: unknown operator {{}}; operators are "),
    (one_test(attribute="time", operator="between", params=["0800"]), "expected start and end, found a list"),
    (one_test(attribute="time", params="8 o'clock"), "expected HHmm, found"),
    (one_test(attribute="date", params="1/2/3/4"), "expected DD/MM/YYYY, found '1/2/3/4'"),
    (one_test(attribute="weekday", params=[None]), "expected a number from 0 (Sunday) to 6, found null"),
]


@pytest.mark.parametrize(("document", "text"), REFUSED, ids=range(len(REFUSED)))
def test_policy_without_an_equivalent_is_refused_with_its_place(document, text):
    """
    A policy that has no equivalent is refused with its place, whatever type a value has.
    """
    with pytest.raises(PolicyRefused) as caught:
        convert(json.dumps(document).encode(), "old.json")

    assert text in str(caught.value)


@pytest.mark.parametrize(
    "document", [{"a": {"rules": [rule()]}}, {"key": "a", "rules": [rule()]}, [{"rules": [rule()]}]]
)
def test_policies_come_alone_in_a_list_or_by_key(document):
    """
    A document is one policy, a list of policies, or an object with a policy for each key.
    """
    [imported] = json.loads(convert(json.dumps(document).encode()))

    assert [{"srcIDPDomain": {"in": []}}] == [each["rules"][0]["condition"] for each in imported["policies"]]
