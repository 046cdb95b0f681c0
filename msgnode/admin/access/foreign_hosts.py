"""
Requests to the admin listener for a host that is not one of the node's.

A page that made its own name resolve to this machine (DNS rebinding) has no token, and no cookie for its
name: a request with a valid token does not come from one. A proxy may add a token to every request, so those
with a header that only browsers send are refused with one, too. Load balancers get the short `/live` by any
name.
"""

from twisted.web.resource import IResource
from twisted.web.server import Request

from msgnode.admin.access.named_tokens import ADMIN, METRICS, OPERATOR, POLICY_MANAGER, VIEWER
from msgnode.admin.admin_tokens import AdminTokens
from msgnode.admin.health import LivenessResource
from msgnode.connectors.http.requests import bearer
from msgnode.protocol.errors import Rejected
from msgnode.transport.allowed_hosts import Misdirected

OF_PAGES = (b"Origin", b"Sec-Fetch-Site")  # headers that browsers add
LIVE = (b"/live", b"/live/")


class ForeignHosts:
    """
    The exceptions from the check of the host: a valid bearer token, and `/live` in short.
    """

    def __init__(self, tokens: AdminTokens, live: LivenessResource) -> None:
        self._tokens = tokens
        self._live = live

    def resource(self, request: Request, refusal: Rejected) -> IResource | None:
        """
        The resource that the request gets in the place of the one that it names; None: it gets that one.
        """
        if refusal.code != 421:  # it has no host
            return Misdirected(refusal)
        if any(map(request.requestHeaders.hasHeader, OF_PAGES)):
            text = f"{refusal}; a request of a page needs it also with a token"
            refusal = Rejected(text, refusal.code, refusal.reason)
        elif bearer(request):
            try:
                self._tokens.admit(request, METRICS, VIEWER, OPERATOR, POLICY_MANAGER, ADMIN)
                return None
            except Rejected as why:
                request.responseHeaders.removeHeader(b"WWW-Authenticate")
                text = f"{refusal}; or the token of the request is not valid"
                refusal = why if why.code == 429 else Rejected(text, refusal.code, refusal.reason)
        if request.path in LIVE:
            request.responseHeaders.removeHeader(b"Retry-After")
            return self._live
        return Misdirected(refusal)
