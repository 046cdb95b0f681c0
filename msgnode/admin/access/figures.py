"""
Figures of the node for monitoring: programs on this machine may read them, others need a token.
"""

from twisted.web.resource import Resource
from twisted.web.server import Request

from msgnode.admin.access.named_tokens import METRICS, POLICY_MANAGER, VIEWER
from msgnode.admin.access.request_peer import is_local
from msgnode.admin.admin_tokens import AdminTokens
from msgnode.config.schema import Config
from msgnode.connectors.http.requests import bearer
from msgnode.protocol.errors import Rejected
from msgnode.transport.http_answers import answer_json


class Figures(Resource):
    """
    A resource that requests from other machines get with a token only, unless `admin.open_metrics` is true.

    `public` answers those without one; None: they are refused.
    """

    isLeaf = True

    def __init__(
        self, resource: Resource, tokens: AdminTokens, config: Config, public: Resource | None = None
    ) -> None:
        super().__init__()
        self._resource = resource
        self._tokens = tokens
        self._config = config
        self._public = public

    def render(self, request: Request) -> bytes | int:
        try:
            answer: bytes | int = self._for(request).render(request)
        except Rejected as why:
            return answer_json(request, why.code, why.body())
        return answer

    def _for(self, request: Request) -> Resource:
        """
        The resource that this request gets. Raises Rejected.
        """
        if self._config.admin.open_metrics or is_local(request):
            return self._resource
        if self._public is not None and bearer(request) is None:
            return self._public
        self._tokens.admit(request, METRICS, VIEWER, POLICY_MANAGER)
        return self._resource
