"""
Requests that connectors send outside of all sessions, as REST's, to clients of another member.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from msgnode.links.stream.streams import Outcome
from msgnode.protocol.errors import NoRoute
from msgnode.protocol.message import Message, decode
from msgnode.sessions.session import Session
from tests.support.cluster_nodes import DOMAIN, MemoryCluster
from tests.support.runtimes import dumps

VISITOR = f"runtime://{DOMAIN}/public/rest/1"


class Visitor:
    """
    A request of a visitor at the first of two nodes, and the responses to it.
    """

    def __init__(self, cluster: MemoryCluster, to: str) -> None:
        node, carrier = cluster["n1"].node, cluster["n1"].bare("carrier")
        self.got: list[Message] = []
        request = decode(dumps({"id": 7, "type": "read", "from": VISITOR, "to": to}), carrier)
        session = Session(VISITOR, node.sessions)
        self.forget: Callable[[], object] = node.expected_responses.expect(request, session, self.got.append)
        self.reply = node.router.route(request, session)


def settle(cluster: MemoryCluster) -> None:
    for _ in range(10):
        cluster.clock.turn()
        cluster.flow()


def test_response_of_another_member() -> None:
    """
    The response comes back to the node that waits for it, as long as it does.
    """
    cluster = MemoryCluster(2)
    ann = cluster["n2"].client("ann")
    visitor = Visitor(cluster, ann.hyperty)
    settle(cluster)
    [request] = ann.take()
    answer = {"id": 7, "type": "response", "from": request["to"], "to": VISITOR, "body": {"code": 200}}

    ann.tell(answer)
    settle(cluster)

    assert [200] == [response.field("code") for response in visitor.got]
    assert cluster["n1"].members.is_held(VISITOR)
    visitor.forget()
    assert not cluster["n1"].members.is_held(VISITOR)


def test_nobody_at_any_member() -> None:
    """
    If no member has the address, the node that waits for the response is told.
    """
    cluster = MemoryCluster(2)

    visitor = Visitor(cluster, f"hyperty://{DOMAIN}/nobody")

    assert isinstance(visitor.reply, Deferred)
    refused: list[Failure] = []
    visitor.reply.addErrback(refused.append)
    assert [NoRoute] == [why.type for why in refused]


def test_other_domain_is_away() -> None:
    """
    A request that never reached another domain is answered with the code of that, not with none.
    """
    cluster = MemoryCluster(1, foreign="b.example")
    cluster["n1"].streams.losing = Outcome(408, "stale")

    visitor = Visitor(cluster, "hyperty://b.example/lamp")
    settle(cluster)

    assert [(404, "stale")] == [(each.field("code"), each.field("reason")) for each in visitor.got]
