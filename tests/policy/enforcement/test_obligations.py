"""
What a decision obliges to, and what comes of it.
"""

# ruff: noqa: E501  a row on one line

import json

import pytest
from twisted.internet.task import Clock

from msgnode.policy.decision.context import Context
from msgnode.policy.decision.obligations import Advice, Log, Notify, edited, too_large
from msgnode.policy.decision.rates import RateCounters, RateLimits
from msgnode.policy.decision.redirects import follow
from msgnode.protocol.errors import Malformed
from msgnode.protocol.message import Message, decode
from tests.support.policy_case import message, only, policy, policy_set, program, rule


def obligations(name, value, **fields):
    """
    What a permit with that obligation obliges to.
    """
    made = program(only({}, "permit", obligations={name: value}))
    decision = made.decide(Context(message(**fields)))
    assert not decision.remember
    return decision.obligations


def changed(name, value, body):
    """
    The body after an obligation; None if it stays as it is.
    """
    data = edited(obligations(name, value), message(body=body))
    return None if data is None else json.loads(data)["body"]


class TestRateLimit:
    """
    `rateLimit`: token buckets.
    """

    def setup_method(self):
        self.clock = Clock()
        self.limits = RateLimits(self.clock.seconds, most=3)

    def take(self, duties, **fields):
        return self.limits.take_all(duties, Context(message(**fields)))

    def test_rate_limit_refuses_the_third_of_two_a_minute(self):
        """
        Two in a minute pass, the third is one too many, with the seconds to wait.
        """
        duties = obligations("rateLimit", {"rate": 2, "per": 60})

        found = [self.take(duties) for _ in range(3)]

        assert [(None, 0), (None, 0), (duties[0], 30)] == found
        self.clock.advance(30)
        assert (None, 0) == self.take(duties)
        assert (duties[0], 30) == self.take(duties)

    def test_each_rate_limit_key_has_its_own_bucket(self):
        """
        Each value of the key has a bucket of its own.
        """
        duties = obligations("rateLimit", {"key": ["srcSPDomain", "actionType"], "rate": 1, "per": 60})

        assert (None, 0) == self.take(duties)
        assert (None, 0) == self.take(duties, type="read")
        assert self.take(duties, **{"from": "hyperty://A.com/other"})[0]

    def test_no_more_buckets_are_kept_than_there_may(self):
        """
        No more buckets are kept than there may be; the one used longest ago goes.
        """
        duties = obligations("rateLimit", {"rate": 1, "per": 60})

        for number in range(10):
            self.take(duties, **{"from": f"hyperty://a.com/{number}"})

        assert 3 == len(self.limits)
        assert self.take(duties, **{"from": "hyperty://a.com/9"})[0]
        assert (None, 0) == self.take(duties, **{"from": "hyperty://a.com/0"})

    def test_message_that_one_limit_stops_costs_nothing(self):
        """
        A message that one limit stops costs nothing of another; one that only logs stops nothing.
        """
        rules = [
            rule("permit", id=1, obligations={"rateLimit": {"rate": 5, "per": 60}}),
            rule("permit", id=2, obligations={"rateLimit": {"rate": 1, "per": 60, "onExceed": "deny"}}),
            rule("permit", id=3, obligations={"rateLimit": {"rate": 1, "per": 600, "onExceed": "log"}}),
        ]
        duties = program([policy_set([policy(rules)])]).decide(Context(message())).obligations

        stopped = [self.take(duties)[0] for _ in range(5)]

        assert [None] + [duties[1]] * 4 == stopped
        assert [(None, 0)] * 4 == [self.take(duties[:1]) for _ in range(4)]
        assert "log" == self.take(duties[2:])[0].on_exceed

    def test_clock_steps_back(self):
        """
        A clock that steps back takes nothing away.
        """
        duties = obligations("rateLimit", {"rate": 2, "per": 60})
        self.clock.advance(100)
        self.take(duties)

        self.clock.rightNow = 0

        assert (None, 0) == self.take(duties)


def test_max_bytes():
    """
    A message may have as many bytes as `maxBytes` says, and not one more.
    """
    duties = obligations("maxBytes", 100)

    assert too_large(duties, 100) is None
    assert duties[0] == too_large(duties, 101)


EDITS = [
    ("limitByNumberOfEntries", {"body.value": 2}, {"value": [1, 2, 3]}, {"value": [1, 2]}),
    ("limitByNumberOfEntries", {"bodyValue": 1}, {"value": {"a": 1, "b": 2}}, {"value": {"a": 1}}),
    ("limitByNumberOfEntries", {"valueAllocated": 1}, {"value": {"allocated": ["x", "y"]}}, {"value": {"allocated": ["x"]}}),
    ("limitByNumberOfEntries", {"body.value": 2}, {"value": "text"}, None),
    ("limitByNumberOfEntries", {"body.value": 2}, {}, None),
    (
        "limitByConditionOfEntries",
        {"bodyValue": {"descriptor": {"like": "*/Connector"}}},
        {"value": {"h1": {"descriptor": "x/Connector"}, "h2": {"descriptor": "x/Chat"}, "h3": 5}},
        {"value": {"h1": {"descriptor": "x/Connector"}}},
    ),
    (
        "limitByConditionOfEntries",
        {"body.value": {"user.name": {"in": ["ann"]}, "age": {"moreThan": 17}}},
        {"value": [{"user": {"name": "ann"}, "age": 30}, {"user": {"name": "ann"}, "age": 3}, {}]},
        {"value": [{"user": {"name": "ann"}, "age": 30}]},
    ),
    ("set", {"body.value.x": [1], "body.y": "z"}, {"value": {"k": 1}}, {"value": {"k": 1, "x": [1]}, "y": "z"}),
    ("set", {"body.a.b.c": 1}, {"a": "text"}, {"a": {"b": {"c": 1}}}),
    ("set", {"body.list.1": 9}, {"list": [1, 2]}, {"list": [1, 9]}),
    ("set", {"body.list.7": 9}, {"list": [1, 2]}, None),
    ("set", {"body.a": 1}, {"a": 1}, None),
    ("remove", ["body.identity", "body.a.b"], {"identity": {}, "a": {"b": 1, "c": 2}}, {"a": {"c": 2}}),
    ("remove", "body.list.0", {"list": [1, 2]}, {"list": [2]}),
    ("remove", "body.nothing", {"a": 1}, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "body", "expected"), EDITS, ids=range(len(EDITS)))
def test_body_is_edited_where_the_obligation_says(name, value, body, expected):
    """
    A body is changed where the obligation says, and nowhere else.
    """
    assert expected == changed(name, value, body)


def test_edit_keeps_the_rest():
    """
    Header fields keep their values and order, known or not, and half a character stays.
    """
    data = b'{"type":"create","id":1,"extra":{"a":[1.50]},"from":"a://b/c","to":"d://e/f","body":{"v":"\\ud83d"}}'

    made = edited(obligations("set", {"body.x": 1}), decode(data))

    assert json.loads(data) | {"body": {"v": "\ud83d", "x": 1}} == json.loads(made)
    assert list(json.loads(data)) == list(json.loads(made))
    assert decode(made).fields()["x"] == 1


def test_edit_without_a_body():
    """
    A body that is missing, or null, is made when something is set in it.
    """
    duties = obligations("set", {"body.x": 1})

    assert {"x": 1} == json.loads(edited(duties, message(body=None)))["body"]


@pytest.mark.parametrize("beside", ["1", '"\\ud83d"'])
@pytest.mark.parametrize(
    "number", ["1e400", "-1e999", "1.50", "0.10000000000000000001", "9" * 30, "9" * 5000]
)
def test_edit_keeps_numbers(number, beside):
    """
    A number stays as its sender wrote it, also in a list that is cut.
    """
    body = f'{{"n":{number},"value":[{number},{number},2],"beside":{beside}}}'
    whole = f'{{"id":1,"type":"t","from":"a","to":"b","body":{body}}}'.encode()

    made = edited(obligations("limitByNumberOfEntries", {"body.value": 2}), decode(whole))

    assert made == whole.replace(b",2]", b"]")


def test_edit_unreadable():
    """
    A body that cannot be read is not passed on unchanged.
    """
    deep = b"[" * 100_000 + b"]" * 100_000
    whole = b'{"id":1,"type":"t","from":"a","to":"b","body":{"n":' + deep + b"}}"
    kept = Message(1, "t", "b", "a", data=whole)

    with pytest.raises(Malformed):
        edited(obligations("set", {"body.x": 1}), kept)


def test_of_the_path():
    """
    What rule, policy and set ask for comes together, where their effect is the final one.
    """
    duties = {"permit": {"log": "set"}, "deny": {"log": "no"}}
    rules = [
        rule("permit", id=1, obligations={"log": "one"}),
        rule("permit", id=2, obligations={"log": "two"}),
    ]
    whole = [policy_set([policy(rules, obligations={"permit": {"notify": "ops"}})], obligations=duties)]

    decision = program(whole).decide(Context(message()))

    one, two, told, of_set = decision.obligations
    assert [Log("1/1/1", "one"), Log("1/1/2", "two")] == [one, two]
    assert [Notify("1/1", "ops"), Log("1", "set")] == [told, of_set]


def test_of_another_effect():
    """
    What a permit would oblige to is nothing when another rule denies.
    """
    rules = [rule("permit", id=1, obligations={"log": "one"}), rule("deny", id=2)]

    assert () == program([policy_set([policy(rules)])]).decide(Context(message())).obligations


def test_obligation_with_an_unknown_name_is_reported():
    """
    An obligation with an unknown name is reported as it is.
    """
    assert (Advice("1/1/1", "emailto", "carol"),) == obligations("emailto", "carol")


def redirecting(to, effect="deny"):
    """
    What goes to h2 goes to `to` instead, where everything has that effect.
    """
    away = policy(
        [rule("permit", {"msgTo": {"equals": "hyperty://b.com/h2"}}, obligations={"redirect": to})], 1
    )
    there = policy([rule(effect, {"msgTo": {"equals": to}}, obligations={"log": "came"})], 2)
    return program([policy_set([away, there], algorithm="firstApplicable")])


def test_redirected_message_is_decided_again():
    """
    A redirected message is decided again where it goes.
    """
    for effect in ("permit", "deny"):
        made, context = redirecting("hyperty://b.com/desk", effect), Context(message())

        decision, moved = follow(made.decide, context, made.decide(context))

        assert ("hyperty://b.com/desk", effect, "1/2/1") == (moved.to, decision.effect, decision.path)
        assert (Log("1/2/1", "came"),) == decision.obligations


def test_redirect_once():
    """
    A second redirection is not followed; the message goes nowhere.
    """
    policies = [
        policy(
            [rule("permit", {"msgTo": {"like": f"*/{name}"}}, obligations={"redirect": f"a://b/{to}"})], name
        )
        for name, to in (("h2", "second"), ("second", "third"))
    ]
    made, context = program([policy_set(policies)]), Context(message())

    decision, _ = follow(made.decide, context, made.decide(context))

    assert ("indeterminate", "1/second/1") == (decision.effect, decision.path)


def test_redirect_to_itself():
    """
    A message that is where it is redirected to stays there.
    """
    made = program(only({}, "permit", obligations={"redirect": "hyperty://b.com/h2"}))
    context = Context(message())

    assert context is follow(made.decide, context, made.decide(context))[1]


def test_unenforced_obligations_do_nothing():
    """
    A policy that is not enforced says what it would do, and does nothing.
    """
    made = program([policy_set([policy([rule()], enforce=False), policy([rule("permit", id=9)], 2)])])

    decision = made.decide(Context(message()))

    assert ("permit", "1/2/9") == (decision.effect, decision.path)
    assert [("deny", "1/1/1")] == [(each.effect, each.path) for each in decision.unenforced]


class TestCounters:
    """
    `rate.COUNTER.WINDOW`: how often of late.
    """

    def setup_method(self):
        self.clock = Clock()
        self.counters = RateCounters(self.clock.seconds, most=2)

    def decide(self, condition, **fields):
        context = Context(message(**fields))
        self.counters.count(context)
        return program(only(condition)).decide(context).effect

    def test_fourth_message_within_a_minute_is_more_than_three(self):
        """
        The fourth message within a minute is more than three; after two minutes all is forgotten.
        """
        many = {"rate.messages.lastMinute": {"moreThan": 3}}

        assert ["notApplicable"] * 3 + ["deny"] == [self.decide(many) for _ in range(4)]
        self.clock.advance(120)
        assert "notApplicable" == self.decide(many)

    def test_long_types(self):
        """
        A type as long as any may be is counted as a message, and its name is not kept.
        """
        self.counters.count(Context(message(type="x" * 2048)))

        assert 3 == self.counters.windows
        assert "deny" == self.decide({"rate.messages.lastMinute": {"moreThan": 1}})

    def test_windows_together(self):
        """
        All senders together have so many windows; the one that was silent longest is forgotten.
        """
        counters = RateCounters(self.clock.seconds, windows=100)
        for sender in range(10):
            for kind in range(10):
                counters.count(Context(message(**{"from": f"hyperty://a.com/{sender}"}, type=f"t{kind}")))

        assert 100 >= counters.windows
        assert len(counters) < 10

    def test_window_slides(self):
        """
        Half a minute into the next, half of the last minute counts.
        """
        for _ in range(10):
            self.decide({})
        self.clock.advance(90)

        assert "deny" == self.decide({"rate.create.lastMinute": {"between": "5 7"}})

    def test_allocations(self):
        """
        Allocations count the addresses asked for, under the name of the language's papers too.
        """
        asking = {"to": "domain://msg-node.a.com/address-allocation", "body": {"value": {"number": 40}}}

        assert "notApplicable" == self.decide({"addrAllastMin": {"moreThan": 50}}, **asking)
        assert "deny" == self.decide({"rate.alloc.lastMinute": {"moreThan": 50}}, **asking)
        assert "notApplicable" == self.decide(
            {"rate.alloc.lastMinute": {"moreThan": 50}}, type="read", **asking | {"from": "x://y/z"}
        )

    def test_any_number_of_types(self):
        """
        A sender who thinks of ever new types is counted, but not remembered by each of them.
        """
        for number in range(1000):
            self.decide({}, type=f"kind{number}")

        assert "deny" == self.decide({"rate.messages.lastMinute": {"moreThan": 1000}})
        assert 400 > self.counters.windows

    def test_no_more_senders_are_kept_than_there_may(self):
        """
        No more senders are kept than there may be.
        """
        for number in range(5):
            self.decide({}, **{"from": f"hyperty://a.com/{number}"})

        assert 2 == len(self.counters)
