"""
Test vectors of policies: a vector that is none is refused in words, and a failed one says what was decided.
"""

from types import SimpleNamespace

import pytest

from msgnode.policy.decision.problems import InvalidValue
from msgnode.policy.language.test_vectors import fails

TOKEN_STATE = (
    "expected one of none, valid, invalid, unknown, or an object with state, user, idp, expires; found "
)
REFUSED = [
    (1, "expected an object with name, message, expect, found 1"),
    ({"expct": 1}, "unknown key 'expct', did you mean 'expect'?"),
    ({"expect": "permt"}, "found 'permt', did you mean 'permit'?"),
    ({"expect": []}, "expected one of permit, deny, notApplicable, indeterminate; found []"),
    ({"message": []}, "expected a message as an object, found []"),
    ({"message": {"id": {}}}, "'id' must be an integer or a string, not an object"),
    ({"direction": "inn"}, "found 'inn', did you mean 'in'?"),
    ({"to": 1}, "expected a text, found 1"),
    ({"identity": 1}, 'expected a user name, or {"user", "provider", "scopes", "account"}, found 1'),
    ({"identity": {"user": "ann", "scopes": [1]}}, "expected a user name, or "),
    ({"trust": {}}, "expected one of claimed, verified; found {}"),
    ({"messageIdentity": []}, TOKEN_STATE + "[]"),
    ({"messageIdentity": {"state": "valid", "expires": True}}, TOKEN_STATE + "an object"),
    ({"topicOwnerUser": "ann"}, "expected 'topicOwner' too"),
    ({"clock": 1}, "expected a local time such as '2026-11-18T10:00:00', found 1"),
]


def decision(effect, path=""):
    return lambda context: SimpleNamespace(effect=effect, path=path)


@pytest.mark.parametrize(("vector", "text"), REFUSED, ids=range(len(REFUSED)))
def test_vector_that_is_none_is_refused_in_words(vector, text):
    """
    A vector with an unknown key or a value of the wrong type is refused, and the text says what was expected.
    """
    with pytest.raises(InvalidValue) as caught:
        fails(decision("permit"), vector)

    assert text in str(caught.value)


def test_failed_vector_says_what_was_decided_and_by_which_rule():
    """
    A vector fails with the decision and its rule, also if only the rule is another one.
    """
    vector = {"name": "office", "expect": "permit", "path": "set/1"}

    assert "office: expected permit, got deny by set/2" == fails(decision("deny", "set/2"), vector)
    assert "office: expected permit by set/1, got it by set/2" == fails(decision("permit", "set/2"), vector)
    assert "" == fails(decision("permit", "set/1"), vector)


def test_identity_may_have_a_provider_and_scopes():
    """
    The identity of a vector is a user name, or an object with its provider and scopes.
    """
    seen = []
    identity = {"user": "ann", "provider": "example.org", "scopes": ["chat"]}

    fails(
        lambda context: seen.append(context.identity) or SimpleNamespace(effect="permit", path=""),
        {"expect": "permit", "identity": identity},
    )

    assert [("ann", "example.org", ("chat",))] == [(who.user, who.provider, who.scopes) for who in seen]
