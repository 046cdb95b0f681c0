"""
What holds for any policy and any message.
"""

import json
import pickle
import string
from datetime import datetime

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from msgnode.policy.decision.algorithms import ALGORITHMS
from msgnode.policy.decision.attributes import TABLE
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.operators import OPERATORS
from msgnode.policy.decision.problems import PolicyRefused
from msgnode.policy.language.formatter import lay_out
from msgnode.policy.language.program import Program
from msgnode.policy.replay.replay import UNDECIDABLE, judge
from msgnode.protocol.message import decode
from tests.support.fuzz import TIMES
from tests.support.policy_case import GROUPS, only, program

QUICK = settings(max_examples=10 * TIMES, deadline=None, suppress_health_check=list(HealthCheck))

ADDRESSES = st.sampled_from(
    [
        "hyperty://a.com/h1",
        "hyperty://B.com:8080/h2",
        "user://ann@b.com/x",
        "domain://registry.a.com/",
        "domain://msg-node.a.com/sm",
        "mn:/session",
        "alice",
        "",
    ]
)
TYPES = st.sampled_from(["create", "READ", "update", "response", "open"])
SCALARS = st.one_of(
    st.sampled_from(
        ["create", "read", "a.com", "b.com", "hyperty", "1", "*", "a,b", "ann@a.com", "registration"]
    ),
    st.integers(-3, 12),
    st.booleans(),
)
JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(string.ascii_letters, max_size=6), inner, max_size=3),
    ),
    max_leaves=8,
)
NAMES = ["actionType", "msgFrom", "msgTo", "srcSPDomain", "dstDomain", "dstScheme", "msgId"]
NAMES += ["srcUsername", "resource", "body.a.b", "msgSize", "scopes"]


def parameter(operator):
    if operator == "exists":
        return st.booleans()
    if operator in ("moreThan", "lessThan"):
        return st.integers(-3, 12)
    if operator == "between":
        return st.tuples(st.integers(-2, 9), st.integers(-2, 9)).map(lambda pair: f"{pair[0]} {pair[1]}")
    if operator == "like":
        return st.sampled_from(["*", "*a.com*", "hyperty://b.com:8080/*", "create", "*/h1", "a*m"])
    if operator == "in":
        return st.one_of(st.lists(SCALARS, max_size=3), st.just("family"))
    return st.one_of(SCALARS, st.lists(SCALARS, min_size=1, max_size=3))


TESTS = st.sampled_from(list(OPERATORS)).flatmap(lambda op: st.fixed_dictionaries({op: parameter(op)}))
EXPRESSIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=2),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
    ),
    max_leaves=3,
)
FLAGS = st.sampled_from(["interDomain", "fromOwned", "identityVerified"])
CONDITIONS = st.recursive(
    st.one_of(
        st.dictionaries(st.sampled_from(NAMES), EXPRESSIONS, max_size=2),
        st.fixed_dictionaries(
            {"msgType": st.sampled_from([{"equals": "registration"}, {"in": ["dataSync"]}])}
        ),
        st.dictionaries(FLAGS, st.sampled_from([{"equals": True}, {"in": [False]}]), max_size=2),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=2),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}),
    ),
    max_leaves=3,
)
ENFORCED = st.sampled_from([{}, {}, {}, {"enforce": False}])
ALGORITHM = st.sampled_from(list(ALGORITHMS))


def numbered(nodes, most):
    return st.lists(nodes, max_size=most).map(
        lambda found: [{"id": i, **each} for i, each in enumerate(found)]
    )


RULES = st.builds(
    lambda target, condition, effect, priority, log, enforced: {
        "target": target,
        "condition": condition,
        "effect": effect,
        "priority": priority,
        "obligations": {"log": log} if log else {},
        **enforced,
    },
    CONDITIONS,
    CONDITIONS,
    st.sampled_from(["permit", "deny"]),
    st.integers(0, 3),
    st.sampled_from(["", "", "seen"]),
    ENFORCED,
)


def policies(rules):
    return st.builds(
        lambda target, rules, algorithm, enforced: {
            "target": target,
            "rules": rules,
            "ruleCombiningAlgorithm": algorithm,
            **enforced,
        },
        CONDITIONS,
        numbered(RULES, rules),
        ALGORITHM,
        ENFORCED,
    )


def documents(sets, of_policies, rules):
    """
    Documents of at most so many sets, policies in each, rules in each.
    """
    made = st.builds(
        lambda target, policies, algorithm, priority, duties: {
            "target": target,
            "policies": policies,
            "policyCombiningAlgorithm": algorithm,
            "priority": priority,
            "obligations": duties,
        },
        CONDITIONS,
        numbered(policies(rules), of_policies),
        ALGORITHM,
        st.integers(0, 3),
        st.sampled_from([{}, {"permit": {"log": "set"}}]),
    )
    return numbered(made, sets)


# The index is there for more than four; each level has its turn.
DOCUMENTS = st.one_of(documents(1, 1, 7), documents(1, 7, 1), documents(7, 1, 1), documents(2, 2, 2))
BODIES = st.one_of(
    JUNK.map(lambda junk: {"resource": junk, "a": {"b": junk}}),
    st.sampled_from(
        [{}, {"identity": {"userProfile": {"username": "a@x"}}}, {"resource": ["a", "b"], "auth": True}]
    ),
)
MESSAGES = st.fixed_dictionaries(
    {
        "id": st.one_of(st.integers(0, 9), st.sampled_from(["1", "x"])),
        "type": TYPES,
        "from": ADDRESSES,
        "to": ADDRESSES,
        "body": BODIES,
    }
)


def asked(message, **more):
    return Context(
        decode(json.dumps(message).encode()), domain="a.com", now=lambda: datetime(2026, 11, 18, 10), **more
    )


@QUICK
@given(DOCUMENTS, st.lists(MESSAGES, min_size=1, max_size=4))
def test_index_changes_no_decision(document, messages):
    """
    The index changes no decision, and explaining explains what is decided.
    """
    indexed, plain = (program(document, groups=GROUPS, index=index) for index in (True, False))

    for message in messages:
        decision = indexed.decide(asked(message))
        without = plain.decide(asked(message))
        explained = indexed.explain(asked(message)).decision
        assert (without.effect, without.path, without.obligations) == (
            decision.effect,
            decision.path,
            decision.obligations,
        )
        assert decision == explained


@QUICK
@given(DOCUMENTS, MESSAGES, st.integers(), BODIES)
def test_remember(document, message, id, body):
    """
    A decision that may be remembered is the same for each message with that from, to and type.
    """
    made = program(document, groups=GROUPS)
    decision = made.decide(asked(message))

    other = made.decide(asked({**message, "id": id, "body": body}, identity="ann@a.com", owned=lambda: True))

    if decision.remember:
        assert decision == other


@QUICK
@given(DOCUMENTS, MESSAGES)
def test_document_read_again_decides_the_same(document, message):
    """
    The same document, read again, laid out or sent to another process, decides the same.
    """
    made = program(document, groups=GROUPS)
    again = [
        program(document, groups=GROUPS),
        pickle.loads(pickle.dumps(made)),
        program(json.loads(lay_out(document)), groups=GROUPS),
    ]

    for other in again:
        assert made.rules == other.rules
        assert made.decide(asked(message)) == other.decide(asked(message))
    assert made.revision == again[0].revision == again[1].revision
    assert lay_out(document) == lay_out(json.loads(lay_out(document)))


@QUICK
@given(DOCUMENTS, DOCUMENTS, st.randoms(use_true_random=False), MESSAGES)
def test_edited_document_says_the_same_with_cache(document, other, chance, message):
    """
    An edited document says the same, whether its unchanged policies are taken from before or not.
    """
    before = program(document, groups=GROUPS)
    groups = {**GROUPS, "family": ["a@x"]} if chance.random() < 0.3 else GROUPS
    strange = [policy for each in other for policy in each["policies"]]
    for each in document:
        chance.shuffle(each["policies"])
        each["policies"][: chance.randint(0, 2)] = chance.sample(strange, min(len(strange), 2))

    kept, fresh = (program(document, groups=groups, before=old) for old in (before, None))

    assert (fresh.rules, fresh.attributes, fresh.obliges) == (kept.rules, kept.attributes, kept.obliges)
    assert fresh.lints == kept.lints
    assert fresh.decide(asked(message)) == kept.decide(asked(message))
    assert str(fresh.explain(asked(message))) == str(kept.explain(asked(message)))
    assert fresh.explain(asked(message)).tree == kept.explain(asked(message)).tree


@QUICK
@given(DOCUMENTS, MESSAGES)
def test_replay_decides_as_the_node_or_cannot_tell(document, message):
    """
    A replay decides as the node would have where a message comes in, or says that it cannot tell.
    """
    assume(message["to"] != "mn:/session")  # which is asked about elsewhere, or not at all
    made = program(document, groups=GROUPS)
    data = json.dumps(message).encode()
    line = {key: message[key] for key in ("id", "type", "from", "to")}
    line |= {"kind": "message", "bytes": len(data), "outcome": "delivered", "time": 10**18}
    context = asked(message)

    verdict = judge(made, line, "a.com")

    if verdict.effect != UNDECIDABLE:
        assert made.decide(context).effect == verdict.effect
    else:
        assert verdict.missing


# Keys and names that mean something, with anything at all behind them.
WORDS = [
    "id",
    "target",
    "condition",
    "effect",
    "rules",
    "policies",
    "policySets",
    "groups",
    "tests",
    "permit",
]
WORDS += ["obligations", "priority", "ruleCombiningAlgorithm", "rateLimit", "redirect", "set", "not", "anyOf"]
WORDS += [*OPERATORS, *list(TABLE)[::4], "body.a", "rate.alloc.lastMinute"]
NONSENSE = st.recursive(
    st.one_of(JUNK, st.sampled_from(["permit", "deny", "blockOverrides", "10:00 12:00", {}, []])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
    ),
    max_leaves=25,
)


@settings(QUICK)
@given(NONSENSE, st.lists(NONSENSE, max_size=3), MESSAGES)
def test_document_of_any_shape_is_refused_with_places(condition, parts, message):
    """
    A document of any shape is refused with places, or decides without raising.
    """
    rule = {"id": 1, "target": condition, "condition": {}, "effect": "deny", "obligations": condition}
    policy = {"id": 1, "target": {}, "rules": [rule, *parts], "ruleCombiningAlgorithm": ""}
    whole = {"id": 1, "target": {}, "policies": [policy, *parts], "policyCombiningAlgorithm": ""}
    for document in (condition, parts, [whole], {"policySets": [whole], "tests": parts, "groups": condition}):
        try:
            made = Program([("x.json", json.dumps(document).encode())])
        except PolicyRefused as why:
            assert all(problem.line >= 1 and problem.column >= 1 for problem in why.problems)
        else:
            made.decide(asked(message))
            str(made.explain(asked(message)))


@QUICK
@given(st.binary(max_size=40))
def test_bytes_that_are_no_document_are_refused(data):
    """
    Bytes that are no document are refused.
    """
    try:
        Program([("x.json", data)])
    except PolicyRefused as why:
        assert why.problems


def test_too_deep_document_is_refused():
    """
    What is nested too deeply is refused.
    """
    for text in ("[" * 100_000, '[{"id":1,"target":' + '{"not":' * 3000 + "{}" + "}" * 3000 + "}]"):
        with pytest.raises(PolicyRefused, match="nested too deeply"):
            Program([("x.json", text.encode())])


def test_deep_body():
    """
    A body that is nested deeply, or holds very large numbers, raises nothing.
    """
    wanted = {"body.a": [{"equals": "x"}, {"contains": "x"}, {"like": "*x*"}, {"moreThan": 5}, {"in": ["x"]}]}
    made = program(only(wanted, "deny"))
    for value in (
        "[" * 900 + "]" * 900,
        "9" * 4000,
        "1e999",
        '{"a":' * 500 + "1" + "}" * 500,
        '"' + "9" * 5000 + '"',
    ):
        data = '{"id":1,"type":"t","from":"a://b/c","to":"d://e/f","body":{"a":' + value + "}}"
        context = Context(decode(data.encode()))
        assert made.decide(context).effect in ("deny", "notApplicable")
        str(made.explain(context))
