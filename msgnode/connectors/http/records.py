"""
The public catalogue of records: those in the namespaces that `records.public` names.
"""

from twisted.web.resource import Resource
from twisted.web.server import Request

from msgnode.bus.records.known_records import KnownRecords
from msgnode.connectors.http.protostub import answer_file
from msgnode.transport.http_answers import answer_error

WHERE = ".well-known/records"
_JSON = "application/json"
_METHODS = (b"GET", b"HEAD")


class RecordsResource(Resource):
    """
    The resource of the catalogue: an index, `records.json` with the definitions, and `docs.html` for people.
    """

    isLeaf = True

    def __init__(self, known: KnownRecords) -> None:
        super().__init__()
        self._known = known

    def render(self, request: Request) -> bytes | int:
        request.setHeader(b"Access-Control-Allow-Origin", b"*")
        if request.method not in _METHODS:
            request.setHeader(b"Allow", b", ".join(_METHODS))
            return answer_error(request, 405, f"GET or HEAD, not {request.method.decode('latin-1')[:20]}")
        public = self._known.public
        files = {
            "": (_JSON, public.index),
            "records.json": (_JSON, public.definitions),
            "docs.html": ("text/html; charset=utf-8", public.page),
        }
        name = b"/".join(request.postpath or []).decode("latin-1")
        if name not in files:
            text = f"nothing at {name[:200]!r}; the catalogue has records.json and docs.html"
            return answer_error(request, 404, text)
        return answer_file(request, *files[name])
