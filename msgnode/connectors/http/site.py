"""
The paths of the web port: a resource for each, and a 404 answer with a hint for all others.
"""

from collections.abc import Mapping
from typing import Any

from autobahn.twisted.resource import WebSocketResource
from twisted.protocols.policies import ProtocolWrapper
from twisted.web.resource import IResource, Resource
from twisted.web.server import Request

from msgnode.connectors.http.server import DeadlineChannel
from msgnode.transport.http_answers import answer_error

PAGE = b"""<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>msgnode</title>
<style>body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem;
color-scheme:light dark}code{font-family:ui-monospace,monospace}</style>
<h1>msgnode</h1>
<p>A messaging node answers here. Runtimes connect to <code>/ws</code> (WebSocket),
<code>/stub/connect</code> or <code>/socket.io/</code>, clients without WebSocket to <code>/poll</code>.
Pages load the protostub from
<a href=".well-known/protocolstub/default.mjs">.well-known/protocolstub/default.mjs</a>, or the client
<a href=".well-known/protocolstub/client.mjs">.well-known/protocolstub/client.mjs</a>.
One message alone may be posted to <a href="message/openapi.json">/message</a>.
<a href="live">live</a> says how it is.</p>
</html>
"""


class Folder(Resource):
    """
    A path that only has children: 404 with a text for itself and for every unknown child.
    """

    def getChild(self, path: bytes, request: Request) -> Resource:
        return NotHere()

    def render(self, request: Request) -> Any:
        return NotHere().render(request)


class Page(Folder):
    """
    The root: a page for human readers.
    """

    def getChild(self, path: bytes, request: Request) -> Resource:
        return self if path == b"" and not request.postpath else NotHere()

    def render(self, request: Request) -> Any:
        return Resource.render(self, request)

    def render_GET(self, request: Request) -> bytes:
        request.setHeader(b"Content-Type", b"text/html; charset=utf-8")
        return PAGE


class NotHere(Resource):
    """
    A 404 answer that lists the paths for clients.
    """

    isLeaf = True

    def render(self, request: Request) -> bytes:
        path = request.path.decode("latin-1")[:200]
        text = f"nothing at {path}; clients connect to /ws, /stub/connect, /poll or /socket.io/"
        return answer_error(request, 404, text)


class Upgrade(WebSocketResource):
    """
    A WebSocket endpoint; a request that is no upgrade is answered 426.
    """

    def render(self, request: Request) -> Any:
        if request.postpath:
            return NotHere().render(request)
        upgrade = b",".join(request.requestHeaders.getRawHeaders(b"Upgrade", []))
        offered = [protocol.strip().lower() for protocol in upgrade.split(b",")]
        if b"websocket" not in offered or request.method != b"GET":
            request.setHeader(b"Upgrade", b"websocket")
            request.setHeader(b"Connection", b"Upgrade")
            return answer_error(request, 426, "this address speaks WebSocket only")
        if _has_body(request):
            # Autobahn would take it for frames.
            return answer_error(request, 400, "a request for a WebSocket has no body")
        channel: Any = request.channel
        if not isinstance(channel, DeadlineChannel):
            return super().render(request)
        channel.leave()
        transport = channel.transport
        rendered = super().render(request)
        if channel.transport is None:
            channel.give_way(_protocol_of(transport))
        return rendered


def _has_body(request: Request) -> bool:
    lengths = request.requestHeaders.getRawHeaders(b"Content-Length", [])
    return request.requestHeaders.hasHeader(b"Transfer-Encoding") or any(map(int, lengths))


def _protocol_of(transport: Any) -> Any:
    """
    Returns the protocol that gets the bytes of the transport, or of the TLS layer on it.
    """
    wrapper = transport if isinstance(transport, ProtocolWrapper) else transport.protocol
    return wrapper.wrappedProtocol if isinstance(wrapper, ProtocolWrapper) else wrapper


def tree(children: Mapping[str, IResource], prefix: str = "", root: Page | None = None) -> Resource:
    """
    The resources by path, at the root and again below the operator's prefix.
    """
    root = root or Page()
    tops: list[Resource] = [root]
    if prefix:
        tops.append(_below(root, prefix.strip("/").split("/"), Page()))
    for path, child in children.items():
        *folders, name = path.strip("/").split("/")
        for top in tops:
            _below(top, folders).putChild(name.encode(), child)
    return root


def _below(top: Resource, folders: list[str], last: Resource | None = None) -> Resource:
    for number, folder in enumerate(folders):
        child = top.children.get(folder.encode())
        if child is None:
            child = last if last is not None and number == len(folders) - 1 else Folder()
            top.putChild(folder.encode(), child)
        top = child
    return top
