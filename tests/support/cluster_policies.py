"""
Members in memory that share pushed policies: real stores, requests and owners.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred

from msgnode.cluster.member_requests import MemberRequests
from msgnode.cluster.ownership.owners import Owners
from msgnode.cluster.ownership.policy_versions import DomainPolicies
from msgnode.policy.administration.policy_store import PUSH
from msgnode.service.wiring import make_policy_store
from tests.support.cluster_members import MemoryCluster
from tests.support.fakes import MemoryNode


class PolicyNode:
    """
    One start of a node whose policies are pushed.
    """

    def __init__(self, cluster: MemoryCluster, name: str, listed: Iterable[str], state: Path) -> None:
        where = state / name.rpartition("/")[2]
        self.node = MemoryNode(state=str(where), policy={"source": PUSH})
        self.policies = make_policy_store(self.node, cluster.clock, maybeDeferred)
        self.policies.startService()
        members = cluster.start(name)
        self.requests = members.listener = MemberRequests(members, cluster.clock)
        self.policies.domain = DomainPolicies(
            name,
            Owners(members, self.requests, list(listed)),
            self.requests,
            members.up,
            members.max_payload,
            self.policies,
            cluster.clock,
        )

    @property
    def live(self) -> str:
        version = self.policies.live
        return "" if version is None else version.files[0][1]

    def push(self, text: str, if_match: str | None = None) -> Deferred[Any]:
        return self.policies.push((("document", text),), "ann", if_match)
