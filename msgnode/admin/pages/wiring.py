"""
The dashboard put together, from the operations of a node.
"""

from twisted.internet.interfaces import IReactorTime

from msgnode.admin.admin_tokens import AdminTokens
from msgnode.admin.api.resource import AdminAPI
from msgnode.admin.operations import Operations
from msgnode.admin.pages.forms import FormActions
from msgnode.admin.pages.logins import Logins
from msgnode.admin.pages.network_views import NetworkViews
from msgnode.admin.pages.node_views import NodeViews
from msgnode.admin.pages.page_calls import PageCalls
from msgnode.admin.pages.policy_views import PolicyViews
from msgnode.admin.pages.rendering import Renderer
from msgnode.admin.pages.site import Dashboard
from msgnode.admin.pages.topology import Topology
from msgnode.admin.pages.trace_views import TraceViews
from msgnode.admin.pages.views import Views
from msgnode.node import Node


def make_dashboard(
    node: Node, operations: Operations, api: AdminAPI, tokens: AdminTokens, clock: IReactorTime
) -> Dashboard:
    """
    The root of the admin listener.
    """
    live, calls, topology = operations.live, PageCalls(api.endpoints, api.reach), Topology(node)
    wall = operations.inspector.facts.wall
    pages = {
        **Views(calls, live.ring, live.look, topology, wall).pages,
        **NodeViews(calls, wall).pages,
        **TraceViews(live.traces).pages,
        **NetworkViews(calls, topology).pages,
        **PolicyViews(operations.policies).pages,
    }
    forms = FormActions(calls, operations.trail, operations.policies)
    return Dashboard(pages, forms, Logins(tokens, clock.seconds), Renderer(), operations.run)
