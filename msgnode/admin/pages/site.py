"""
The site of the dashboard: its pages, its assets, the login, and what an operator does on a page.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from msgnode.admin.access.named_tokens import POLICY_MANAGER, VIEWER
from msgnode.admin.access.request_peer import peer_of
from msgnode.admin.pages.answers import AssetResource, plain, redirect, set_headers
from msgnode.admin.pages.forms import FormActions
from msgnode.admin.pages.logins import Logins, may_log_in
from msgnode.admin.pages.rendering import Renderer
from msgnode.admin.pages.views import Visit
from msgnode.cluster.operator_requests import Operator
from msgnode.connectors.http.requests import parameters
from msgnode.connectors.http.site import Page
from msgnode.protocol.errors import FAILED, Rejected
from msgnode.transport.http_answers import answer_error

log = Logger()

PAGE_ROLES = {"policies": POLICY_MANAGER}  # of the pages that need another role than viewer to be shown
MAX_FORM_BYTES = 64 * 1024
Pages = Mapping[str, Callable[[Visit], Any]]  # a template with what it needs, or a Deferred of it, by path


class Dashboard(Page):
    """
    The root of the admin listener: the overview, with the other pages as children. `run` calls a function,
    perhaps in a thread.
    """

    def __init__(
        self,
        pages: Pages,
        forms: FormActions,
        logins: Logins,
        renderer: Renderer,
        run: Callable[..., Deferred[Any]] = maybeDeferred,
    ) -> None:
        super().__init__()
        self.pages, self.forms, self.logins, self.renderer = pages, forms, logins, renderer
        self.run = run
        for name in pages:
            if name:
                self.putChild(name.encode(), PageResource(self, name))
        self.putChild(b"login", LoginResource(self))
        self.putChild(b"logout", LogoutResource(self))
        self.putChild(b"act", ActionResource(self))
        self.putChild(b"assets", AssetResource(renderer))

    def getChild(self, path: bytes, request: Request) -> Resource:
        return self if path == b"" and not request.postpath else NoPage()

    def render(self, request: Request) -> Any:
        return PageResource(self, "").render(request)

    def send(self, request: Request, status: int, template: str, **context: Any) -> None:
        """
        Sends a page.
        """
        if request._disconnected:
            return
        data = self.renderer.render(template, **context)
        request.setResponseCode(status)
        set_headers(request)
        request.setHeader(b"Content-Type", b"text/html; charset=utf-8")
        request.setHeader(b"Cache-Control", b"no-store")
        request.setHeader(b"Content-Length", str(len(data)).encode())
        if request.method != b"HEAD":
            request.write(data)
        request.finish()

    def fail(self, request: Request, why: Failure, operator: Operator | None, csrf: str) -> None:
        """
        Sends a page that says what went wrong.
        """
        if why.check(CancelledError):
            return
        if isinstance(why.value, Rejected):
            code, text = why.value.code, str(why.value)
        else:
            log.failure("the page {path} failed", why, path=request.path)
            code, text = 500, FAILED.replace("message", "request")
        template = "result.html" if request.requestHeaders.hasHeader(b"HX-Request") else "error.html"
        self.send(
            request, code, template, text=text, code=code, ok=False, operator=operator, csrf=csrf, page=""
        )


class NoPage(Resource):
    """
    A 404 answer that says where pages and API are.
    """

    isLeaf = True

    def render(self, request: Request) -> bytes:
        path = request.path.decode("latin-1")[:200]
        return answer_error(request, 404, f"nothing at {path}; the dashboard is at /, the API at /api/v1")


class DashboardResource(Resource):
    """
    A resource of the dashboard.
    """

    isLeaf = True

    def __init__(self, dashboard: Dashboard) -> None:
        super().__init__()
        self.dashboard = dashboard


class PageResource(DashboardResource):
    """
    One page. Without a login, a browser is sent to the login page.
    """

    def __init__(self, dashboard: Dashboard, name: str) -> None:
        super().__init__(dashboard)
        self._name = name

    def render(self, request: Request) -> bytes | int:
        if request.method not in (b"GET", b"HEAD"):
            return plain(request, 405, "expected GET")
        if request.postpath and request.postpath != [b""]:
            return plain(request, 404, "there is no such page")
        found = self.dashboard.logins.find(request)
        csrf = found[0].csrf if found is not None else ""
        operator: Operator | None = None
        try:
            operator = self.dashboard.logins.admit(request, PAGE_ROLES.get(self._name, VIEWER))
        except Rejected as why:
            if why.code == 403 and not self._name and found is not None and found[1].has_role(POLICY_MANAGER):
                return redirect(request, "/policies")  # the one page that this operator may see
            if why.code != 401:
                return plain(request, why.code, str(why))
            request.responseHeaders.removeHeader(b"WWW-Authenticate")
            return self._to_login(request)
        visit = Visit(operator, peer_of(request), parameters(request), csrf)
        done: Deferred[Any] = maybeDeferred(self.dashboard.pages[self._name], visit)
        request.notifyFinish().addErrback(lambda gone: done.cancel())
        done.addCallback(self._load)
        done.addCallback(self._rendered, request, visit)
        done.addErrback(lambda why: self.dashboard.fail(request, why, operator, csrf))
        done.addErrback(lambda why: log.failure("a page could not be sent", why))
        return NOT_DONE_YET

    def _load(self, found: tuple[str, dict[str, Any]]) -> Any:
        """
        Compiles the template of a page when it is shown for the first time.
        """
        renderer = self.dashboard.renderer
        if renderer.is_loaded(found[0]):
            return found
        return self.dashboard.run(renderer.load, found[0]).addCallback(lambda loaded: found)

    def _rendered(self, found: tuple[str, dict[str, Any]], request: Request, visit: Visit) -> None:
        template, context = found
        context |= {"operator": visit.operator, "csrf": visit.csrf, "page": self._name}
        self.dashboard.send(request, 200, template, **context)

    @staticmethod
    def _to_login(request: Request) -> bytes:
        back = request.uri.decode("latin-1")
        where = f"/login?back={quote(back, safe='')}" if back != "/" else "/login"
        if request.requestHeaders.hasHeader(b"HX-Request"):
            request.setHeader(b"HX-Redirect", b"/login")
            return plain(request, 401, "log in again")
        return redirect(request, where)


class LoginResource(DashboardResource):
    """
    The login page: a token becomes a cookie.
    """

    def render_GET(self, request: Request) -> int:
        self._show(request, 200, "")
        return NOT_DONE_YET

    def render_POST(self, request: Request) -> bytes | int:
        if not may_log_in(request):
            return plain(request, 403, "a page of another origin may not log in here")
        logins = self.dashboard.logins
        try:
            logins.start(request, _form(request).get("token", "").strip())
        except Rejected as why:
            self._show(request, why.code, str(why))
            return NOT_DONE_YET
        back = parameters(request).get("back", "/")
        return redirect(request, back if is_local_path(back) else "/")

    def _show(self, request: Request, status: int, problem: str) -> None:
        back = parameters(request).get("back", "/")
        back = back if is_local_path(back) else "/"
        context = {"problem": problem, "back": back, "operator": None, "csrf": "", "page": "login"}
        self.dashboard.send(request, status, "login.html", **context)


class LogoutResource(DashboardResource):
    """
    The end of a login. It needs no X-CSRF, so that it works without JavaScript.
    """

    def render_POST(self, request: Request) -> bytes:
        if not may_log_in(request):
            return plain(request, 403, "a page of another origin may not log out here")
        self.dashboard.logins.end(request)
        return redirect(request, "/login")


class ActionResource(DashboardResource):
    """
    The actions of an operator on a page: forms, with the header X-CSRF of this login.
    """

    def render_POST(self, request: Request) -> int:
        done = maybeDeferred(self._act, request)
        done.addCallback(lambda text: self._tell(request, text))
        done.addErrback(lambda why: self.dashboard.fail(request, why, None, ""))
        done.addErrback(lambda why: log.failure("the result of an action could not be sent", why))
        request.notifyFinish().addErrback(lambda gone: None)
        return NOT_DONE_YET

    def _act(self, request: Request) -> Any:
        operator = self.dashboard.logins.check_action(request)
        peer = peer_of(request)
        return self.dashboard.forms.act(_form(request), operator, peer)

    def _tell(self, request: Request, found: tuple[str, dict[str, Any]]) -> None:
        text, context = found
        self.dashboard.send(request, 200, "result.html", text=text, ok=True, code=200, **context)


def is_local_path(path: str) -> bool:
    """
    Is it a path of this site, and no address of another one?
    """
    return path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()


def _form(request: Request) -> dict[str, str]:
    content: Any = request.content
    data: bytes = content.read(MAX_FORM_BYTES + 1)
    if len(data) > MAX_FORM_BYTES:
        raise Rejected(f"a form has at most {MAX_FORM_BYTES} bytes", 413, "too-long")
    return dict(parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50))
