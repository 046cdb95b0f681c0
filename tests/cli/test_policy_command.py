"""
`msgnode policy`, and the examples in etc/policies and docs/policy.md.
"""

# ruff: noqa: E501  what is printed stands whole

import gzip
import json
import re

import pytest
from click.testing import CliRunner

from msgnode.cli.main import main
from msgnode.policy.decision.algorithms import ALGORITHMS
from msgnode.policy.decision.attributes import TABLE
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.operators import OPERATORS
from msgnode.policy.decision.rates import RateLimits
from msgnode.policy.language.files import VECTORS
from msgnode.policy.language.formatter import lay_out
from msgnode.policy.language.obligation_parser import KINDS
from msgnode.policy.language.program import Program
from msgnode.policy.language.test_vectors import fails
from msgnode.policy.replay.replay import judge
from msgnode.structures.log_limits import MAX_LOGGED_ADDRESSES
from tests.support.examples import TOP, blocks
from tests.support.policy_case import message, only, program

EXAMPLES = sorted(path for path in (TOP / "etc/policies").glob("*.json") if not path.name.endswith(VECTORS))
CALL = '{"id":1,"type":"create","from":"hyperty://a.com/1","to":"hyperty://b.com/2","body":{}}'


def run(*words, text=None):
    return CliRunner().invoke(main, ["policy", *map(str, words)], input=text)


def wrote(tmp_path, document, name="policy.json"):
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


# -- the examples ------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path):
    """
    Each example passes its tests, has nothing odd, is laid out, and its tests know every rule.
    """
    vectors = json.loads(path.with_name(path.stem + VECTORS).read_text())
    made = Program([(str(path), path.read_bytes())])

    assert [] == [why for vector in vectors if (why := fails(made.decide, vector))]
    assert [] == made.lints
    assert path.read_text() == lay_out(json.loads(path.read_text()))
    known = {vector["path"] for vector in vectors if "path" in vector}
    assert {rule for rule in made.rules if rule not in known} <= {"services/allocation/too-often"}


def test_examples_together():
    """
    The examples can be loaded as one directory.
    """
    result = run("check", TOP / "etc/policies")

    assert (0, "") == (result.exit_code, result.stderr)
    assert "etc/policies: ok, 26 rules, 65 tests" in result.output


# -- check -------------------------------------------------------------------


def test_examples_all_named():
    """
    Whoever names every file, vectors and all, has each policy checked once.
    """
    result = run("check", *sorted((TOP / "etc/policies").glob("*.json")))

    assert (0, len(EXAMPLES)) == (result.exit_code, result.output.count(".json: ok, ")), result.output


def test_check_refused(tmp_path):
    """
    What is wrong is one line each with file, line and column; the exit code is 1.
    """
    path = wrote(tmp_path, only({"msgTo": {"lke": "*"}}))

    result = run("check", path)

    place = f"{path}:1:121: /0/policies/0/rules/0/condition/msgTo/lke"
    said = f"{place}: unknown operator 'lke', did you mean 'like'?\n{path}: refused, 1 problem\n"
    assert (1, said) == (result.exit_code, result.output)


def test_check_failed_vector(tmp_path):
    """
    A test beside the file that is not met is told; the exit code is 1.
    """
    path = wrote(tmp_path, only({}))
    vectors = [{"name": "open", "expect": "permit"}, {"expct": "deny"}]
    vectors += [{"topicOwner": "mien", "expect": "deny"}, {"topicOwnerUser": "ann@a.com", "expect": "deny"}]
    beside = wrote(tmp_path, vectors, "policy.vectors.json")

    result = run("check", path)

    assert f"{beside}: /0: open: expected permit, got deny by 1/1/1\n" in result.output
    assert f"{beside}: /1: unknown key 'expct', did you mean 'expect'?\n" in result.output
    assert "/2: expected one of mine, other, none; found 'mien', did you mean 'mine'?\n" in result.output
    assert "/3: expected 'topicOwner' too\n" in result.output
    assert 1 == result.exit_code


def test_check_json(tmp_path):
    """
    Programs get what `policy check` found as JSON.
    """
    bad, odd = (
        wrote(tmp_path, '[{"id":', "bad.json"),
        wrote(tmp_path, only({"msgTo": {"like": "x"}}), "odd.json"),
    )

    said = json.loads(run("check", bad, odd, "--json").output)

    assert [False, False, True] == [said["ok"], *(each["ok"] for each in said["policies"])]
    assert 8 == said["policies"][0]["problems"][0]["column"]
    assert said["policies"][1]["lints"][0]["pointer"].endswith("/condition/msgTo/like")


def test_file_that_is_not_there_is_exit_code_2(tmp_path):
    """
    A file that is not there is exit code 2.
    """
    for words in (["check"], ["fmt"], ["import"], ["explain"], ["replay"]):
        result = run(*words, tmp_path / "none.json", *([CALL] if words[0] in ("explain", "replay") else []))
        assert (2, f"msgnode: {tmp_path}/none.json: cannot be read: No such file or directory\n") == (
            result.exit_code,
            result.output,
        )
    assert 2 == run("check", tmp_path).exit_code
    assert 2 == run("check").exit_code


# -- explain -----------------------------------------------------------------


def test_explain(tmp_path):
    """
    Each test is shown with what was found; a message may come on standard input.
    """
    path = wrote(tmp_path, only({"dstSPDomain": {"equals": "b.com"}, "srcUsername": {"exists": False}}))

    result = run("explain", path, "-", text=CALL)

    assert (1, "deny by 1/1/1") == (result.exit_code, result.output.splitlines()[0])
    assert 'dstSPDomain equals "b.com": yes, the value is "b.com"' in result.output
    assert "srcUsername exists false: yes, the value is missing" in result.output


def test_explain_options(tmp_path):
    """
    Time, identity and direction can be given.
    """
    condition = {
        "weekday": {"equals": "Saturday"},
        "sessionUser": {"equals": "ann"},
        "direction": {"equals": "out"},
    }
    path = wrote(tmp_path, only(condition, "permit"))
    options = ["--clock", "2026-11-21T10:00:00", "--user", "ann", "--direction", "out", "--json"]

    said = json.loads(run("explain", path, CALL, *options).output)

    assert ("permit", "1/1/1", "ann") == (said["effect"], said["path"], said["attributes"]["sessionUser"])


def test_explain_bad(tmp_path):
    """
    A message that is none, or a time that is none, is exit code 2.
    """
    path = wrote(tmp_path, [])

    for words, text in (
        (['{"id":1}'], "message: 'type' is missing"),
        (["{"], "message:1:2: /: not JSON: the file ends in the middle"),
        ([CALL, "--clock", "noon"], "expected a local time such as '2026-11-18T10:00:00', found 'noon'"),
    ):
        result = run("explain", path, *words)
        assert 2 == result.exit_code
        assert text in result.output


# -- replay ------------------------------------------------------------------


def line(**more):
    """
    A line of the traffic log.
    """
    made = {
        "v": 1,
        "kind": "message",
        "time": 1785508496630641869,
        "node": "mn1",
        "session": "runtime://a.com/1",
    }
    made |= {
        "connector": "line",
        "peer": "192.0.2.7:1",
        "type": "create",
        "id": 1,
        "from": "hyperty://a.com/1",
    }
    made |= {"to": "hyperty://b.com/2", "bytes": 83, "outcome": "delivered", "recipients": 1, "waiting": 0}
    return made | {"micros": 9} | more


def verdict(condition, effect="deny", obligations=None, **more):
    made = program(only(condition, effect, obligations=obligations or {}))
    found = judge(made, line(**more), "a.com")
    return found.effect, found.path, found.missing


TOPICS = {"type": "subscribe", "to": "domain://msg-node.a.com/sm"}
REPLAYED = [
    ({"dstSPDomain": {"equals": "b.com"}}, {}, ("deny", "1/1/1", "")),
    ({"dstSPDomain": {"equals": "c.com"}}, {}, ("notApplicable", "", "")),
    ({"resource": {"exists": True}}, {}, ("undecidable", "1/1/1", "resource")),
    ({"srcUsername": {"in": ["ann"]}}, {}, ("undecidable", "1/1/1", "srcUsername")),
    ({"srcUsername": {"in": ["ann"]}, "actionType": {"equals": "read"}}, {}, ("notApplicable", "", "")),
    ({"anyOf": [{"resource": {"exists": True}}, {"msgSize": {"lessThan": 100}}]}, {}, ("deny", "1/1/1", "")),
    ({"connector": {"equals": "line"}, "session": {"like": "*/1"}}, {}, ("deny", "1/1/1", "")),
    ({"fromOwned": {"equals": True}}, {}, ("undecidable", "1/1/1", "fromOwned")),
    ({"topic.owner": {"equals": "other"}}, {**TOPICS, "resources": ["x://a.com/1"]}, ("undecidable", "1/1/1", "topic.owner")),
    ({"link": {"exists": True}}, {}, ("notApplicable", "", "")),
    ({"interDomain": {"equals": True}}, {}, ("deny", "1/1/1", "")),
    ({"date": {"like": "2026-0*"}}, {}, ("deny", "1/1/1", "")),
    ({"msgTo": {"like": "*/2"}}, {"to": "hyperty://b.com/xyz…"}, ("undecidable", "1/1/1", "msgTo")),
    ({"msgTo": {"like": "*"}}, {"to": "hyperty://b.com/1 and 2 more"}, ("undecidable", "1/1/1", "msgTo")),
    ({"direction": {"equals": "out"}}, {}, ("deny", "1/1/1", "")),
    ({"direction": {"equals": "out"}}, {"to": "domain://a.com/"}, ("notApplicable", "", "")),
    ({"direction": {"equals": "out"}}, {"outcome": "no-route"}, ("notApplicable", "", "")),
    ({"direction": {"equals": "out"}, "session": {"like": "*/1"}}, {}, ("undecidable", "1/1/1", "session")),
    ({"direction": {"equals": "in"}, "session": {"like": "*/1"}}, {}, ("deny", "1/1/1", "")),
    ({}, {"outcome": "refused", "code": 400}, ("notApplicable", "", "")),
    ({}, {"outcome": "refused", "code": [403]}, ("deny", "1/1/1", "")),
    ({"date": {"like": "*"}}, {"time": 10**30}, ("undecidable", "1/1/1", "date")),
    ({"date": {"like": "*"}}, {"time": "now"}, ("undecidable", "1/1/1", "date")),
    ({"msgSize": {"moreThan": 1}}, {"bytes": "83"}, ("undecidable", "1/1/1", "msgSize")),
    ({}, {"to": "mn:/session", "type": "close"}, ("notApplicable", "", "")),
    ({"direction": {"equals": "in"}}, {"to": "mn:/session", "type": "open"}, ("notApplicable", "", "")),
    ({"direction": {"equals": "connect"}}, {"to": "mn:/session", "type": "open"}, ("deny", "1/1/1", "")),
    ({"session": {"exists": True}}, {"to": "mn:/session", "type": "open"}, ("undecidable", "1/1/1", "session")),
    ({"msgTo": {"like": "comm://*"}}, {**TOPICS, "resources": ["comm://a.com/1"]}, ("deny", "1/1/1", "")),
    ({"msgTo": {"like": "comm://*"}}, {**TOPICS, "resources": ["x://a.com/1"]}, ("notApplicable", "", "")),
    ({"msgTo": {"like": "comm://*"}}, TOPICS, ("undecidable", "1/1/1", "msgTo")),
    ({"msgTo": {"like": "comm://*"}}, {**TOPICS, "resources": ["x"] * MAX_LOGGED_ADDRESSES}, ("undecidable", "1/1/1", "msgTo")),
    ({"msgTo": {"like": "comm://*"}}, {**TOPICS, "resources": ["x"], "resources_count": 2}, ("undecidable", "1/1/1", "msgTo")),
    ({"msgTo": {"like": "*y"}}, {**TOPICS, "resources": ["x" * 512 + "…"]}, ("undecidable", "1/1/1", "msgTo")),
    ({"session": {"like": "*y"}}, {"session": "x" * 512 + "…"}, ("undecidable", "1/1/1", "session")),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "more", "expected"), REPLAYED, ids=range(len(REPLAYED)))
def test_logged_message_is_decided_as_far_as_the_log_goes(condition, more, expected):
    """
    A logged message is decided as far as the log goes, and not further.
    """
    assert expected == verdict(condition, **more)


@pytest.mark.parametrize(
    ("code", "happened"),
    [
        (400, "unasked"),
        (401, "unasked"),
        (404, "carried"),
        *((c, "blocked") for c in (403, 413, 429, 500, 503)),
    ],
)
def test_happened(code, happened):
    """
    What a policy may have answered counts as blocked by one.
    """
    made = program(only({}, "permit"))

    assert happened == judge(made, line(outcome="refused", code=code)).happened


def test_judge_obliged():
    """
    What a permit obliges to may stop the message after all, or leave it open.
    """
    assert ("deny", "1/1/1", "") == verdict({}, "permit", {"maxBytes": 82})
    assert ("permit", "1/1/1", "") == verdict({}, "permit", {"maxBytes": 83})
    assert ("undecidable", "1/1/1", "what came before") == verdict({}, "permit", {"rateLimit": {"rate": 1}})


def test_policy_test_believes_claims_only_where_told():
    """
    A test of a policy believes a claim only where it says so, as a node does.
    """
    claims = {"body": {"identity": {"userProfile": {"username": "ann@example.org"}}}}
    made = program(only({"srcUsername": {"equals": "ann@example.org"}}, "permit"))

    assert not fails(made.decide, {"message": claims, "expect": "notApplicable"})
    assert not fails(made.decide, {"message": claims, "trust": "claimed", "expect": "permit"})


def test_judge_nodes_own():
    """
    About what the node publishes itself policies are asked on its way out only.
    """
    always, out = program(only({}, "deny")), program(only({"direction": {"equals": "out"}}, "deny"))

    assert judge(always, line(connector="line")) is not None
    assert judge(always, line(connector="node")) is None
    assert "deny" == judge(out, line(connector="node")).effect


def test_judge_default():
    """
    Where what no rule speaks of is denied, one place of several at which none speaks is enough.
    """
    made = program(only({"direction": {"equals": "in"}}, "permit"))

    assert "permit" == judge(made, line()).effect
    assert "notApplicable" == judge(made, line(), default="deny").effect


def test_judge_charged_once():
    """
    A limit counts a message once, as the node does, though it is asked at two places.
    """
    duty = {"rateLimit": {"key": "srcDomain", "rate": 2, "per": 60}}
    made = program(only({"direction": {"in": ["in", "out"]}}, "permit", obligations=duty))
    limits = RateLimits(lambda: 0.0)

    assert ["permit", "permit", "deny"] == [judge(made, line(), limits=limits).effect for _ in range(3)]


def test_judge_nothing():
    """
    Events of sessions, and messages that could not be read, are no messages to decide on.
    """
    assert judge(program([]), {"kind": "session", "event": "opened"}) is None
    assert judge(program([]), {"kind": "message", "to": "x"}) is None


def test_replay_of_a_log_shows_what_would_change(tmp_path):
    """
    A log is replayed, compressed or not, torn lines and all; what would change is shown, and is exit code 1.
    """
    path = wrote(tmp_path, only({"dstSPDomain": {"equals": "b.com"}, "resource": {"not": {"equals": "x"}}}))
    first = wrote(
        tmp_path,
        "\n".join([json.dumps(line()), '{"torn', json.dumps(line(to="hyperty://c.com/1"))]),
        "a.jsonl",
    )
    second = tmp_path / "b.jsonl.gz"
    second.write_bytes(gzip.compress(json.dumps(line()).encode()))

    undecided = run("replay", path, first, second, "--json")
    path.write_text(json.dumps(only({"dstSPDomain": {"equals": "b.com"}})))
    decided = run("replay", path, first, second)

    said = json.loads(undecided.output)
    assert (0, 3) == (undecided.exit_code, said["messages"])
    assert {"path": "1/1/1", "effect": "undecidable", "missing": "resource", "messages": 2} in said["rules"]
    assert 1 == decided.exit_code
    assert "        2  deny           carried\n" in decided.output
    assert "create hyperty://a.com/1 to hyperty://b.com/2\n" in decided.output


def test_replay_damaged(tmp_path):
    """
    A compressed log that is damaged is named, and what is wrong with it.
    """
    path, log = wrote(tmp_path, only({})), tmp_path / "a.jsonl.gz"
    whole = gzip.compress(b"\n".join(json.dumps(line(id=n)).encode() for n in range(999)))
    for data in (b"no gzip", whole[:-100], whole[:100] + b"\xff" * 9 + whole[109:]):
        log.write_bytes(data)

        result = run("replay", path, log)

        assert (2, 1) == (
            result.exit_code,
            result.output.count("a.jsonl.gz: cannot be read: not gzip as a whole: "),
        ), data[:9]


def test_replay_rate(tmp_path):
    """
    In a replay, a limit counts by the time in the log.
    """
    path = wrote(tmp_path, only({}, "permit", obligations={"rateLimit": {"rate": 2, "per": 60}}))
    times = [10**18, 10**18 + 1, 10**18 + 2, 10**18 + 40 * 10**9]
    log = wrote(tmp_path, "\n".join(json.dumps(line(time=time)) for time in times), "a.jsonl")

    said = json.loads(run("replay", path, log, "--json").output)

    assert {("permit", 3), ("deny", 1)} == {(each["effect"], each["messages"]) for each in said["effects"]}


# -- import and fmt ------------------------------------------------------------

POLITHINK = {
    "key": "office",
    "combiningAlgorithm": "firstApplicable",
    "actions": [],
    "rules": [
        {"decision": True, "condition": {"attribute": "domain", "operator": "in", "params": ["example.com"]}},
        {
            "decision": False,
            "scope": "global",
            "condition": [
                "or",
                {"attribute": "time", "operator": "between", "params": ["2200", "600"]},
                ["not", {"attribute": "source", "operator": "equals", "params": "ops@partner.example"}],
            ],
        },
        {"decision": False, "condition": {"attribute": "weekday", "operator": "equals", "params": "0"}},
        {"decision": False, "condition": {"attribute": "date", "operator": "equals", "params": "24/12/2026"}},
        {"decision": False, "condition": {"attribute": "scheme", "operator": "equals", "params": "comm"}},
    ],
}


def test_imported_polithink_policy_means_the_same(tmp_path):
    """
    A PoliTHINK policy is printed as one that means the same.
    """
    result = run("import", wrote(tmp_path, POLITHINK))

    (made,) = json.loads(result.output)[0]["policies"]
    assert ["permit", "deny", "deny", "deny", "deny"] == [each["effect"] for each in made["rules"]]
    conditions = [each["condition"] for each in made["rules"]]
    either = [
        {"time": {"between": "22:00 06:00"}},
        {"not": {"srcUsername": {"equals": "ops@partner.example"}}},
    ]
    assert [{"srcIDPDomain": {"in": ["example.com"]}}, {"anyOf": either}] == conditions[:2]
    assert [{"weekday": {"equals": "Sunday"}}, {"date": {"equals": "2026-12-24"}}] == conditions[2:4]
    assert 0 == result.exit_code
    assert lay_out(json.loads(result.output)) == result.output


def test_import_refused(tmp_path):
    """
    What means nothing in a node is refused, all of it, with its place.
    """
    rules = []
    for scope, attribute, operator in (
        ("identity", "time", "in"),
        ("global", "subscription", "in"),
        ("global", "sorce", "x"),
    ):
        condition = {"attribute": attribute, "operator": operator, "params": ["1200"]}
        rules.append({"decision": True, "scope": scope, "condition": condition})
    policy = {
        "key": "x",
        "actions": [{"method": "forwardToID"}],
        "combiningAlgorithm": "allowOverride",
        "rules": rules,
    }

    result = run("import", wrote(tmp_path, policy))

    assert 1 == result.exit_code
    for said in (
        "/actions: actions never ran in a messaging node; remove them, or write an obligation by hand",
        "/combiningAlgorithm: unknown algorithm 'allowOverride', did you mean 'allowOverrides'?",
        "/rules/0/scope: a rule of scope 'identity' belongs to a runtime; a node knows only global ones",
        "/rules/1/condition/attribute: 'subscription' asks the runtime's registry, which a node does not have",
        "/rules/2/condition/attribute: unknown attribute 'sorce', did you mean 'source'?",
    ):
        assert said in result.output


def test_policy_fmt_lays_out_one_way(tmp_path):
    """
    A policy is laid out one way; --check says whether it is, --write makes it so.
    """
    path = wrote(tmp_path, [dict(reversed(only({})[0].items()))])

    assert 1 == run("fmt", path, "--check").exit_code
    printed = run("fmt", path).output
    assert 0 == run("fmt", path, "--write").exit_code
    assert printed == path.read_text()
    assert (0, f"{path}: ok\n") == (run("fmt", path, "--check").exit_code, run("fmt", path, "--check").output)
    assert {"ok": True, "changed": False} == json.loads(run("fmt", path, "--check", "--json").output)
    assert 2 == run("fmt", path, "--check", "--write").exit_code


# -- the index -----------------------------------------------------------------


def test_index_spares_policies_of_other_domains():
    """
    Of two thousand policies for other domains, the index gives a message not one.
    """
    policies = [
        {
            "id": n,
            "target": {"dstSPDomain": {"equals": f"d{n}.example"}},
            "ruleCombiningAlgorithm": "",
            "rules": [],
        }
        for n in range(2000)
    ]
    (made,) = program(
        [{"id": 1, "target": {}, "policyCombiningAlgorithm": "", "policies": policies}]
    ).sets.nodes

    hit, other = (Context(message(to=f"hyperty://{host}/1")) for host in ("D77.example:80", "a.com"))

    assert ["1/77"] == [node.path for node in made.below.find(hit)]
    assert [] == list(made.below.find(other))


# -- the documentation ---------------------------------------------------------

DOCS = "docs/policy.md"


@pytest.mark.parametrize(
    "block", [each for each in blocks(DOCS) if each.info == "json"], ids=lambda each: str(each.line)
)
def test_documented_policies(block):
    """
    Every policy in docs/policy.md loads, with nothing odd in it, and meets its own tests.
    """
    assert [] == Program([(DOCS, block.text.encode())]).lints


@pytest.mark.parametrize(
    "block", [each for each in blocks(DOCS) if each.info == "condition"], ids=lambda each: str(each.line)
)
def test_documented_conditions(block):
    """
    Every condition in docs/policy.md can be loaded.
    """
    for text in block.text.splitlines():
        assert program(only(json.loads(text)), groups={"family": ["ann@example.org"]})


def test_documented_command(tmp_path, monkeypatch):
    """
    What docs/policy.md shows of the command line is what it prints.
    """
    monkeypatch.chdir(tmp_path)
    shown = [each for each in blocks(DOCS) if each.info.startswith(("json ", "console"))]
    assert [each for each in shown if each.info == "console"]
    for block in shown:
        if block.info != "console":
            wrote(tmp_path, block.text + "\n", block.info.split()[1])
            continue
        said = re.split(r"^\$ msgnode policy (.*)\n", block.text + "\n", flags=re.MULTILINE)[1:]
        for command, expected in zip(said[::2], said[1::2], strict=True):
            words = [one or two for one, two in re.findall(r"'([^']*)'|(\S+)", command)]
            found = re.sub("revision [0-9a-f]{12}", "revision REVISION", run(*words).output)
            assert expected == found


def test_documented_names():
    """
    docs/policy.md names every attribute, operator, algorithm and obligation.
    """
    text = (TOP / DOCS).read_text("utf-8")

    for name in (*TABLE, *OPERATORS, *ALGORITHMS, *KINDS):
        assert f"| `{name}` |" in text, name
