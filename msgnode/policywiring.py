"""
The policies' part of the wiring: where they come from, their door on the bus, the log of their decisions.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from treq.client import HTTPClient
from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.web.client import Agent

from msgnode.connectors.policysource import RepositorySource
from msgnode.node import Node
from msgnode.policy.administration.commands import PolicyDesk
from msgnode.policy.administration.policy_store import PUSH, Policies
from msgnode.policy.administration.responder import PolicyResponder
from msgnode.policy.administration.source import FileSource, Source
from msgnode.policy.enforcement.decision_log import DecisionLog
from msgnode.protocol.address import Domain
from msgnode.sessions.limits.disk_watermark import Watching, Watermark


def policies_of(node: Node, reactor: Any, run: Callable[..., Deferred[Any]] = maybeDeferred) -> Policies:
    """
    The node's policies, from where the configuration says, and their door on the bus.
    """
    config, options = node.config, node.config.policy
    source: Source | None = None
    if "://" in options.source:
        agent = Agent(reactor, connectTimeout=options.deadline)
        source = RepositorySource(options.source, options, HTTPClient(agent), reactor)
    elif options.source not in ("", PUSH):
        source = FileSource(options.source, run)
    state = None if config.state == "none" else Path(config.state)
    policies = Policies(options, node.enforcement, source, state, reactor, run)
    responder = PolicyResponder(
        Domain(config.domain), node.enforcement.senders.manager, PolicyDesk(policies, node.enforcement)
    )
    node.components.offer("policies", responder, [responder.address])
    return policies


def decision_logs(node: Node, reactor: Any, run: Callable[..., Deferred[Any]]) -> list[Service]:
    """
    The log of decisions, where there are policies and it is wanted.
    """
    config, options = node.config, node.config.policy
    if not options.source or options.decision_log == "none":
        return []
    storage = config.storage
    decisions = DecisionLog(
        options.decision_log, config.node, reactor, run, lambda: storage.max_traffic_bytes_per_hour
    )
    decisions.watermark = Watermark(Path(options.decision_log), lambda: storage.reserve_bytes, times=2)
    node.enforcement.decisions.log = decisions
    return [decisions, Watching([decisions.watermark], reactor)]
