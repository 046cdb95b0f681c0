"""
Answers that pages have in common: headers of the security policy, plain texts, redirects and assets.
"""

from twisted.web.resource import Resource
from twisted.web.server import Request

from msgnode.admin.pages.rendering import ASSETS, Renderer
from msgnode.connectors.http.requests import headers

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class AssetResource(Resource):
    """
    The assets; their URLs have a version, so that browsers keep them.
    """

    isLeaf = True

    def __init__(self, renderer: Renderer) -> None:
        super().__init__()
        self._renderer = renderer

    def render_GET(self, request: Request) -> bytes:
        name = b"/".join(request.postpath or []).decode("latin-1")
        data = self._renderer.assets.get(name)
        if data is None:
            return plain(request, 404, "there is no such asset")
        set_headers(request)
        request.setHeader(b"Content-Type", f"{ASSETS[name]}; charset=utf-8".encode())
        request.setHeader(b"Cache-Control", b"public, max-age=31536000, immutable")
        request.setHeader(b"Vary", b"Accept-Encoding")
        if "gzip" in ",".join(headers(request, b"Accept-Encoding")).lower():
            request.setHeader(b"Content-Encoding", b"gzip")
            return self._renderer.zipped[name]
        return data


def set_headers(request: Request) -> None:
    """
    Sets the headers of every answer.
    """
    for name, value in HEADERS.items():
        request.setHeader(name.encode(), value.encode())


def plain(request: Request, status: int, text: str) -> bytes:
    """
    Answers with a line of text.
    """
    request.setResponseCode(status)
    set_headers(request)
    request.setHeader(b"Content-Type", b"text/plain; charset=utf-8")
    return f"{text}\n".encode()


def redirect(request: Request, where: str) -> bytes:
    """
    Sends the browser to another page.
    """
    request.setResponseCode(303)
    set_headers(request)
    request.setHeader(b"Location", where.encode("ascii", "replace"))
    return b""
