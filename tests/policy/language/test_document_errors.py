"""
What is wrong with a policy is said with its place, in words that help.
"""

# ruff: noqa: E501  the sentences stand whole
import cProfile
import json

import pytest

from msgnode.policy.decision.problems import PolicyRefused
from msgnode.policy.language.program import Program, read
from tests.support.policy_case import GROUPS, only, policy, policy_set, program, rule


def refusal(data):
    """
    What is said of a file.
    """
    with pytest.raises(PolicyRefused) as caught:
        read(data if isinstance(data, bytes) else json.dumps(data).encode(), "office.json")
    return str(caught.value)


TEXTS = [
    (b"", "1:1: /: the file is empty; a policy without rules is []"),
    (b"hello", "1:1: /: not JSON: expecting value"),
    (
        b'[{"id": 1,',
        "1:11: /: not JSON: the file ends in the middle; expecting property name enclosed in double quotes",
    ),
    (b'[{"id": "par', "1:9: /: not JSON: the file ends in the middle; unterminated string starting at"),
    (b"<html><body>502</body></html>", "1:1: /: not JSON: this looks like HTML"),
    (b'[\n  {"id": 1 "target": {}}]', "2:12: /: not JSON: expecting ',' delimiter"),
    (b'[{"id":\n "caf\xe9"}]', "2:6: /: is not UTF-8 here"),
    (b'[{"id": NaN}]', "1:1: /: not JSON: NaN is not a number in JSON"),
    (b'[{"id": 1,\n "id": 2}]', "2:2: /0/id: 'id' occurs twice in one object"),
    (b'"permit"', "1:1: /: expected a list of policy sets, found 'permit'"),
    (b"{}x", "1:3: /: not JSON: extra data"),
]


@pytest.mark.parametrize(("data", "said"), TEXTS, ids=range(len(TEXTS)))
def test_not_a_document(data, said):
    """
    What is no JSON, or half of it, is refused with line and column.
    """
    assert f"office.json:{said}" == refusal(data)


def one(**more: object):
    """
    A document whose only rule has this.
    """
    made = rule() | more
    if "taget" in made:
        del made["target"]
    return [policy_set([policy([made])])]


def obliged(name, value, effect="permit"):
    return [policy_set([policy([rule(effect, obligations={name: value})])])]


RULE = "/0/policies/0/rules/0"
OBLIGED = f"{RULE}/obligations"
SHAPES = [
    (one(effect="permitt"), f"{RULE}/effect: expected permit or deny, found 'permitt', did you mean 'permit'?"),
    (one(taget={}), f"{RULE}/taget: unknown key 'taget', did you mean 'target'?"),
    (one(target={"dstSPDomian": {}}), f"{RULE}/target/dstSPDomian: unknown attribute 'dstSPDomian', "
     "did you mean 'dstSPDomain'?"),
    (only({"msgTo": {"lke": "x*"}}), f"{RULE}/condition/msgTo/lke: unknown operator 'lke', did you mean 'like'?"),
    (only({"msgTo": {"noot": {}}}), f"{RULE}/condition/msgTo/noot: unknown operator 'noot', did you mean 'not'?"),
    (only({"anyof": [{}]}), f"{RULE}/condition/anyof: unknown attribute 'anyof', did you mean 'anyOf'?"),
    (only({"time": {"between": "8:00 25:00"}}), f"{RULE}/condition/time/between: expected a time such as '08:30' "
     "or '08:30:00', found '25:00'"),
    (only({"date": {"moreThan": "18.11.2026"}}), f"{RULE}/condition/date/moreThan: expected a date such as "
     "'2026-11-18', found '18.11.2026'"),
    (only({"weekday": {"in": ["Monday", "Wensday"]}}), f"{RULE}/condition/weekday/in/1: expected a day such as "
     "'Monday', found 'Wensday', did you mean 'Wednesday'?"),
    (only({"msgSize": {"moreThan": "big"}}), f"{RULE}/condition/msgSize/moreThan: expected a number, found 'big'"),
    (only({"msgTo": {"like": {"a": 1}}}), f"{RULE}/condition/msgTo/like: expected a pattern such as "
     "'hyperty://example.org/*', found an object"),
    (only({"msgTo": {"exists": "yes"}}), f"{RULE}/condition/msgTo/exists: expected true or false, found 'yes'"),
    (only({"msgTo": {"in": 5}}), f"{RULE}/condition/msgTo/in: expected a list or the name of a group, found 5"),
    (only({"msgTo": {"equals": None}}), f"{RULE}/condition/msgTo/equals: expected a text, a number, true or false, "
     "found null; to test whether it exists: {\"exists\": false}"),
    (only({"direction": {"equals": "inn"}}), f"{RULE}/condition/direction/equals: expected one of connect, in, "
     "out, subscribe; found 'inn', did you mean 'in'?"),
    (only({"direction": {"equals": "route"}}), f"{RULE}/condition/direction/equals: expected one of connect, in, "
     "out, subscribe; found 'route', did you mean 'in'?"),
    (only({"interDomain": {"equals": "maybe"}}), f"{RULE}/condition/interDomain/equals: expected true or false, "
     "found 'maybe'"),
    (only({"rate.alloc.lastMinit": {"moreThan": 1}}), f"{RULE}/condition/rate.alloc.lastMinit: 'rate.alloc.lastMinit' "
     "must be rate.COUNTER.lastSecond or .lastMinute or .lastHour, did you mean 'lastMinute'?"),
    (only({"bodyValue": {"equals": 1}}), f"{RULE}/condition/bodyValue: unknown attribute 'bodyValue', "
     "did you mean 'body.value'?"),
    ([policy_set([policy([], algorithm="denyOverride")])], "/0/policies/0/ruleCombiningAlgorithm: unknown algorithm "
     "'denyOverride', did you mean 'denyOverrides'?"),
    ([policy_set([], algorithm=7)], "/0/policyCombiningAlgorithm: unknown algorithm 7; algorithms are blockOverrides, "
     "allowOverrides, firstApplicable, denyUnlessPermit, permitUnlessDeny"),
    ([policy_set("none")], "/0/policies: expected a list of policies, found 'none'"),
    ([policy_set([5])], "/0/policies/0: expected a policy as an object, found 5"),
    (one(id=None), None),
    (one(enforce="no"), f"{RULE}/enforce: expected true or false, found 'no'"),
    (one(priority="high"), f"{RULE}/priority: expected a number, found 'high'"),
    ({"policies": []}, "/policies: unknown key 'policies'; policy sets stand in a list: [{...}]"),
    ({"groups": {"staff": "ann"}}, "/groups/staff: expected a list of texts, found 'ann'"),
    ({"version": "2"}, "/version: expected a number that grows with each change, found '2'"),
    ([policy_set([], obligations={"log": "x"})], "/0/obligations/log: expected permit or deny, found 'log'; write "
     "{\"permit\": {...}, \"deny\": {...}}"),
    (obliged("rateLimit", {"per": 60}), f"{OBLIGED}/rateLimit: 'rate' is missing: how many messages per 'per' seconds"),
    (obliged("rateLimit", {"rate": 5, "key": ["scrSPDomain"]}), f"{OBLIGED}/rateLimit/key/0: unknown attribute "
     "'scrSPDomain', did you mean 'srcSPDomain'?"),
    (obliged("rateLimit", {"rate": 5, "onExceed": "dely"}), f"{OBLIGED}/rateLimit/onExceed: expected deny, delay or "
     "log, found 'dely', did you mean 'delay'?"),
    (obliged("rateLimit", {"rate": 5, "shared": "yes"}), f"{OBLIGED}/rateLimit/shared: expected true or false, found "
     "'yes'"),
    (obliged("rateLimit", {"rate": 0}), f"{OBLIGED}/rateLimit/rate: expected a number above 0, found 0"),
    (obliged("maxBytes", "1k"), f"{OBLIGED}/maxBytes: expected a number of bytes from 1, found '1k'"),
    (obliged("limitByNumberOfEntries", {"value": 1}), f"{OBLIGED}/limitByNumberOfEntries/value: expected a path in the "
     "body such as body.value, found 'value'"),
    (obliged("limitByConditionOfEntries", {"body.value": {"descriptor": {"lik": "*"}}}),
     f"{OBLIGED}/limitByConditionOfEntries/body.value/descriptor/lik: unknown operator 'lik', did you mean 'like'?"),
    (obliged("remove", []), f"{OBLIGED}/remove: expected a path or a list of them, such as [\"body.identity\"], found []"),
    (obliged("redirect", 5), f"{OBLIGED}/redirect: expected an address such as 'hyperty://example.org/desk', found 5"),
    (obliged("notify", 5), f"{OBLIGED}/notify: expected whom to notify, as a text, found 5"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "said"), [pair for pair in SHAPES if pair[1]], ids=range(len(SHAPES) - 1)
)
def test_wrong_shape(document, said):
    """
    What is wrong in a document is said with its pointer, what was expected, what was found, and the near name.
    """
    assert said in refusal(document).partition("office.json:1:")[2].partition(" ")[2]


def test_all_at_once():
    """
    All mistakes are told together, in the order of the text.
    """
    rules = [rule("permit", id=1), rule("alow", id=2), rule("deny", {"bogus": {}}, id=3)]

    with pytest.raises(PolicyRefused) as caught:
        read(json.dumps([policy_set([policy(rules)])], indent=1).encode())

    pointers = [problem.pointer for problem in caught.value.problems]
    assert ["/0/policies/0/rules/1/effect", "/0/policies/0/rules/2/condition/bogus"] == pointers
    lines = [problem.line for problem in caught.value.problems]
    assert lines == sorted(lines) and lines[0] > 10


def test_one_in_a_thousand():
    """
    One bad rule in a thousand is found, with its line.
    """
    rules = [rule("deny", {"msgTo": {"equals": f"hyperty://a.com/{n}"}}, n) for n in range(1000)]
    rules[637]["condition"] = {"msgTo": {"equal": "x"}}
    text = "[" + json.dumps(policy_set([policy(rules)])).replace('{"id": ', '\n{"id": ') + "]"

    said = refusal(text.encode())

    line = text.split("\n").index(next(line for line in text.split("\n") if '"equal"' in line)) + 1
    where = f"office.json:{line}:51: /0/policies/0/rules/637/condition/msgTo/equal"
    assert f"{where}: unknown operator 'equal', did you mean 'equals'?" == said


def test_key_that_must_be_there_is_named():
    """
    A key that must be there is named.
    """
    said = refusal([{"id": 1, "target": {}, "policies": []}])

    keys = "id, version, update, target, policies, policyCombiningAlgorithm, obligations, priority"
    assert f"office.json:1:2: /0: 'policyCombiningAlgorithm' is missing: a policy set has {keys}" == said


def redirecting(frm, to, id, **more):
    return policy([rule("permit", {"msgTo": {"equals": frm}, **more}, obligations={"redirect": to})], id)


def test_redirect_circle():
    """
    Redirections that may lead in a circle are refused, with the way they go.
    """
    ann, bob = "hyperty://a.com/ann", "hyperty://a.com/bob"

    said = refusal([policy_set([redirecting(ann, bob, 1), redirecting(bob, ann, 2)])])

    place = "/0/policies/0/rules/0/obligations/redirect"
    assert said.endswith(f"{place}: redirects in a cycle: {bob} to {ann} to {bob}")


def test_redirect_no_circle():
    """
    Redirections that never concern the same message are no circle, nor is one to where the message goes already.
    """
    ann, bob = "hyperty://a.com/ann", "hyperty://a.com/bob"
    by_type = [
        redirecting(ann, bob, 1, actionType={"equals": "read"}),
        redirecting(bob, ann, 2, actionType={"equals": "create"}),
    ]

    assert program([policy_set(by_type)])
    assert program([policy_set([policy([rule("permit", obligations={"redirect": ann})])])])
    assert program([policy_set([redirecting(ann, bob, 1), redirecting("hyperty://a.com/cat", ann, 2)])])


def test_redirect_circle_of_many():
    """
    A circle is found among any number of redirections, however each says which addresses it is for.
    """
    ways = [
        {"msgTo": {"equals": "hyperty://A.com/ann"}},
        {"dstDomain": {"in": ["a.com", "c.com"]}},
        {"dstSPDomain": {"equals": "a.com"}},
        {"dstScheme": {"equals": "hyperty"}},
        {"msgTo": {"like": "hyperty://a.com/*"}},
        {"not": {"msgTo": {"equals": "x"}}},
    ]
    others = [redirecting(f"user://d.com/{n}", f"user://e.com/{n}", f"other{n}") for n in range(9)]
    back = {"redirect": "hyperty://a.com/ann"}
    for way in ways:
        there = policy([rule("permit", way, obligations={"redirect": "hyperty://b.com/bob"})], "there")
        last = policy(
            [rule("permit", {"msgTo": {"equals": "hyperty://b.com/bob"}}, obligations=back)], "back"
        )

        assert "redirects in a cycle" in refusal([policy_set([*others, there, last])]), way


def test_redirects_many():
    """
    Twice as many redirections cost about twice as much to look through.
    """

    def calls(number):
        many = [redirecting(f"hyperty://a.com/{n}", f"hyperty://b.com/{n}", n) for n in range(number)]
        with cProfile.Profile() as profile:
            program([policy_set(many)])
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(200) < 3 * calls(100)


def test_own_tests():
    """
    A document that fails a test of its own is refused.
    """
    tests = [{"expect": "deny"}, {"name": "reading", "message": {"type": "read"}, "expect": "permit"}]
    document = {"policySets": only({}), "tests": tests}

    said = refusal(document)

    assert "/tests/1: this test fails: reading: expected permit, got deny by 1/1/1" in said
    assert "did you mean 'message'?" in refusal(document | {"tests": [{"mesage": {}}]})
    assert program(document | {"tests": tests[:1]}).tests == tests[:1]


def test_several_files():
    """
    Files read together share their groups, which must not contradict each other.
    """
    one = ("a.json", json.dumps({"groups": {"staff": ["ann"]}, "policySets": []}).encode())
    two = ("b.json", json.dumps(only({"srcUsername": {"in": "staff"}})).encode())
    three = ("c.json", json.dumps({"groups": {"staff": ["bob"]}}).encode())

    assert ["1/1/1"] == Program([one, two]).rules
    with pytest.raises(PolicyRefused) as caught:
        Program([one, two, three])
    said = "c.json:1:13: /groups/staff: group 'staff' is defined elsewhere with other members"
    assert said == str(caught.value)


def test_several_files_wrong():
    """
    Each file's mistakes are told with its name, and the sets of one with the same id as another's are noted.
    """
    with pytest.raises(PolicyRefused) as caught:
        Program([("a.json", b"["), ("b.json", b"5"), ("c.json", b"[")])
    made = Program([("a.json", json.dumps(only({})).encode()), ("b.json", json.dumps(only({})).encode())])

    assert ["a.json", "c.json"] == [problem.where for problem in caught.value.problems]
    assert ["1/1/1", "1~2/1/1"] == made.rules
    assert ["b.json"] == [lint.where for lint in made.lints]


def test_unknown_obligation_is_refused_if_strict():
    """
    An unknown obligation is noted, and refused only where strictness is asked for.
    """
    document = json.dumps(obliged("emailto", "carol")).encode()

    lints = read(document).lints

    assert ["unknown obligation 'emailto'; it is only logged"] == [lint.text for lint in lints]
    with pytest.raises(PolicyRefused, match="unknown obligation 'emailto'"):
        Program([("", document)], strict=True)


LINTS = [
    (only({"msgTo": {"like": "b.com"}}), "'b.com' has no '*'"),
    (only({"srcUsername": {"not": {"in": "family"}}}, "permit"), "permits whatever lacks the attribute"),
    (only({"resource": {"exists": False}}, "permit"), "permits whatever lacks the attribute"),
    (only({"msgSize": {"between": "5 1"}}), "nothing lies between its bounds"),
    ([policy_set([]), policy_set([])], "a sibling has the id 1 too"),
    ([policy_set([], owner="ops")], "unknown key 'owner', which has no effect here"),
    (obliged("maxBytes", 5, "deny"), "'maxBytes' does nothing for a message that is denied"),
    (
        [policy_set([policy([rule(id=1), rule("permit", id=2)], algorithm="firstApplicable")])],
        "is never reached",
    ),
]


@pytest.mark.parametrize(("document", "said"), LINTS, ids=range(len(LINTS)))
def test_odd_policies_are_noted(document, said):
    """
    What is odd but means something is noted.
    """
    (lint,) = program(document, groups=GROUPS).lints

    assert said in lint.text


def test_lint_unindexed():
    """
    A policy that the index cannot help is noted when there are many.
    """
    rules = [rule("deny", {"msgTo": {"like": f"*/{n}"}}, n) for n in range(101)]

    (lint,) = program([policy_set([policy(rules)])]).lints

    assert "101 of its rules have no target that an index could use" in lint.text
