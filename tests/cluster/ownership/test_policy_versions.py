"""
The policies of a domain: pushed to any node, they are live at all; the owner decides about each change.
"""

import json

import msgspec
import pytest

from msgnode.cluster.ownership.owners import owner
from msgnode.cluster.ownership.policy_versions import AGAIN_SECONDS, KEY, PART, Follow, Part
from msgnode.policy.administration.policy_store import PolicyRejected
from tests.support.cluster_members import MemoryCluster
from tests.support.cluster_policies import PolicyNode
from tests.support.made_policies import document, rule

NAMES = ("a", "b", "c")
NODES = tuple(f"mn://example.com/{name}" for name in NAMES)
OWNER = owner(KEY, NODES)
OTHER, THIRD = (node for node in NODES if node != OWNER)
PERMIT, DENY = (json.dumps(document(rule(effect))) for effect in ("permit", "deny"))


class Domain:
    """
    Three nodes that share policies.
    """

    def __init__(self, state, max_payload=1024 * 1024):
        self.state = state
        self.cluster = MemoryCluster(max_payload=max_payload)
        self.nodes = {node: PolicyNode(self.cluster, node, NAMES, state) for node in NODES}
        self.cluster.connect()
        self.cluster.run(0.5)

    def __getitem__(self, node):
        return self.nodes[node]

    def start(self, node, listed=NAMES):
        self.nodes[node] = PolicyNode(self.cluster, node, listed, self.state)
        self.cluster.connect()
        self.cluster.run(0.5)

    def done(self, asked):
        """
        The result, or why it was refused, when it is known.
        """
        got = []
        asked.addBoth(lambda result: got.append(getattr(result, "value", result)))
        self.cluster.run(1)
        return got[0]

    def live(self):
        return {node.live for node in self.nodes.values()}


@pytest.fixture
def domain(tmp_path):
    return Domain(tmp_path)


def test_parts_of_a_member_that_goes_away_are_dropped(domain):
    """
    What has come of a document whose last part is missing is forgotten when the link is down.
    """
    asked = domain[OTHER].requests.ask(OWNER, PART, msgspec.msgpack.encode(Part(1, 500, b"x" * 500)))
    domain.done(asked)
    owner_of = domain[OWNER].policies.domain
    before = owner_of.unfinished_bytes

    domain.cluster.cut(OWNER, OTHER)

    assert (500, 0) == (before, owner_of.unfinished_bytes)


@pytest.mark.parametrize("node", NODES)
def test_policies_that_are_pushed_to_any_node_are_live_at_all(domain, node):
    """
    The answer comes when they are, with the version of the node that was asked.
    """
    version = domain.done(domain[node].push(PERMIT))

    assert version.revision == domain[node].policies.live.revision
    assert domain.live() == {PERMIT}


def test_large_policies_come_in_parts(tmp_path):
    """
    A document that no payload has room for arrives whole.
    """
    domain = Domain(tmp_path, max_payload=1000)
    rules = (rule("permit", {"actionType": {"equals": f"type{n}"}}, id=f"r{n}") for n in range(200))
    large = json.dumps(document(*rules))

    domain.done(domain[OTHER].push(large))

    assert len(large) > 10_000
    assert domain.live() == {large}


def test_precondition_holds_for_the_domain(domain):
    """
    Of two operators who read the same version at two nodes the second is told so, and nothing of its is live.
    """
    first = domain.done(domain[OTHER].push(PERMIT))
    domain.done(domain[THIRD].push(DENY, first.revision))

    refused = domain.done(domain[OTHER].push(PERMIT, first.revision))

    assert isinstance(refused, PolicyRejected)
    assert refused.code == 412
    assert domain.live() == {DENY}


def test_document_with_mistakes_is_refused_with_all_of_them(domain):
    """
    The owner's problems come to the operator at another node, and the policies stay.
    """
    domain.done(domain[OWNER].push(PERMIT))

    refused = domain.done(domain[OTHER].push('[{"id": 1}]'))

    assert refused.code == 400
    assert refused.problems
    assert domain.live() == {PERMIT}


def test_edits_at_two_nodes_at_once_are_both_kept(domain):
    """
    The edit that comes second is made again on what the first left.
    """
    domain.done(domain[OWNER].push(PERMIT))

    def add_group(node, name):
        return domain[node].policies.edit(lambda content: content.groups.update({name: ["user://x"]}), "ann")

    edits = [add_group(OTHER, "one"), add_group(THIRD, "two"), add_group(OWNER, "three")]
    for edit in edits:
        assert domain.done(edit).revision

    assert {"one", "two", "three"} == set(json.loads(domain[OWNER].live)["groups"])
    assert len(domain.live()) == 1


def test_node_that_was_away_gets_the_policies_when_it_is_back(domain):
    """
    It is told when its link comes up, whether it was cut off or stopped.
    """
    domain.cluster.cut(OWNER, OTHER)
    domain.done(domain[OWNER].push(PERMIT))
    assert domain[OTHER].live == ""
    domain.cluster.restore(OWNER, OTHER)
    domain.cluster.run(1)
    assert domain[OTHER].live == PERMIT

    domain.cluster.kill(THIRD)
    domain.done(domain[OTHER].push(DENY))
    domain.start(THIRD)

    assert domain.live() == {DENY}


def test_node_that_could_not_write_the_policies_gets_them_again(domain):
    """
    As while its disk is full: its policies stay as they are until then.
    """
    versions = domain[OTHER].policies.versions
    write, versions.write = versions.write, full_disk
    domain.done(domain[OWNER].push(PERMIT))
    assert (domain[OTHER].live, domain[THIRD].live) == ("", PERMIT)

    versions.write = write
    domain.cluster.run(AGAIN_SECONDS + 1)

    assert domain.live() == {PERMIT}


def full_disk(version):
    raise OSError(28, "No space left on device")


def test_while_the_owner_is_away_nothing_changes(domain):
    """
    The operator is told which node decides, and the policies of all stay live.
    """
    domain.done(domain[OTHER].push(PERMIT))
    domain.cluster.kill(OWNER)
    domain.cluster.run(1)

    refused = domain.done(domain[OTHER].push(DENY))

    assert refused.code == 503
    assert str(refused).startswith(f"{OWNER} decides about the policies of the domain and cannot be asked")
    assert domain[OTHER].live == domain[THIRD].live == PERMIT


def test_with_different_lists_of_members_nothing_is_pushed(domain):
    """
    While two nodes might decide, none does.
    """
    domain.cluster.kill(OTHER)
    domain.start(OTHER, [name for name in NAMES if not OWNER.endswith(f"/{name}")])

    refused = domain.done(domain[THIRD].push(PERMIT))

    assert refused.code == 503
    assert "different lists" in str(refused)


def test_only_the_owner_is_followed(domain):
    """
    A member that does not decide cannot change the policies of another.
    """
    domain.done(domain[OWNER].push(PERMIT))
    version = msgspec.structs.replace(domain[THIRD].policies.live, files=(("document", DENY),))
    part = Part(1, 0, msgspec.msgpack.encode(Follow(version)))

    refused = domain.done(domain[THIRD].requests.ask(OTHER, PART, msgspec.msgpack.encode(part)))

    assert refused.code == 403
    assert domain[OTHER].live == PERMIT


def test_what_never_ends_is_bounded(domain):
    """
    Parts of more than a document may have are refused, and what came is forgotten.
    """
    part = Part(1, 2**40, b"x")

    refused = domain.done(domain[THIRD].requests.ask(OTHER, PART, msgspec.msgpack.encode(part)))

    assert refused.code == 413
