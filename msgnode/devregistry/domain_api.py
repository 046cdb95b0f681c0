"""
The domain registry's HTTP, as the reTHINK server answers it, whims included.

It looks at the path as it came, undecoded, because each address is one piece of it.
An address is the last piece; with a search it is the last but one, and
any further piece means that there is a search.  Where the server fails over
what a client wrote, and says 500, the answer here may be 400 and say why.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, unquote_plus

import msgspec

from msgnode.devregistry.fields import HYPERTY, OBJECT, Kind, Misfit, clean, members
from msgnode.devregistry.quota import NoRoom
from msgnode.devregistry.records import DISCONNECTED, Records

JSON, HTML = "application/json", "text/html;charset=utf-8"
NOT_FOUND = {"message": "Not Found"}
LISTS = ("resources", "dataSchemes")
MAX_URL = 8192  # bytes of a URL; the server's framework has them for all of a header
_NO_ENCODING = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Reply(NamedTuple):
    """
    A response: status, body, Content-Type, and where it leads to.
    """

    status: int
    body: bytes
    kind: str = JSON
    location: str = ""


def say(status: int, value: Any) -> Reply:
    return Reply(status, msgspec.json.encode(value))


NOWHERE = Reply(404, b"<html><body><h2>404 Not found</h2></body></html>", HTML)
# The type stays that of the route that failed.
BROKEN = Reply(500, b"<html><body><h2>500 Internal Error</h2></body></html>")
MISSING = Reply(400, b"")
FOUND = Reply(200, b"", HTML)  # what HEAD says of whatever GET could be asked
TOO_LONG = say(414, {"message": f"A URL has at most {MAX_URL} bytes."})


class Domain:
    """
    Answers requests from the records.
    """

    def __init__(self, records: Records) -> None:
        self._records = records

    def answer(self, method: str, uri: str, body: bytes) -> Reply:
        if len(uri) > MAX_URL:
            return TOO_LONG
        path, _, query = uri.partition("?")
        pieces = resolved(path)
        if pieces is None or _NO_ENCODING.search(path):
            return MISSING
        bare = not pieces or bool(pieces[-1])
        while pieces and not pieces[-1]:
            pieces.pop()
        if method == "HEAD":
            there = self._route("GET", pieces, bare, query, body)
            return (NOWHERE if there is None else FOUND)._replace(body=b"")
        route = self._route(method, pieces, bare, query, body)
        if route is None:
            return NOWHERE
        try:
            return route()
        except NoRoom as why:
            return say(why.status, {"message": str(why)})
        except Misfit as why:
            return say(400, {"message": str(why)})
        except (ValueError, KeyError, TypeError, RecursionError):  # what the client sent makes no sense
            return BROKEN

    def _route(
        self, method: str, pieces: list[str], bare: bool, query: str, body: bytes
    ) -> Callable[[], Reply] | None:
        """
        What is to be done, if anything; `bare`: no slash stands behind the last piece.
        """
        match method, pieces:
            case "GET", ["error"] if bare:
                return lambda: say(401, {"message": "Unauthorized."})
            case "GET", []:
                return lambda: Reply(302, b"", location="/live")
            case "GET", ["live"] if bare:
                return self._live
            case "GET", ["registry", "updated"] if bare:
                return lambda: say(200, self._records.take_updated())
            case "GET", ["hyperty", "dataobject", "url" | "name" | "reporter" as by, _, *more]:
                return partial(self._object, by, pieces, more, query)
            case "GET", ["hyperty", "url", _, *_]:
                return partial(self._hyperty, last(pieces))
            case "GET", ["hyperty", "user" | "email" as by, _, _, *_]:
                return lambda: hyperties(matching(self._records.find(HYPERTY, by, last(pieces, 2)), query))
            case "GET", ["hyperty", "user" | "email" | "guid" as by, _, *_]:
                return lambda: hyperties(self._records.find(HYPERTY, by, last(pieces)))
            case "PUT", ["hyperty", "user", _, *_]:
                user = last(pieces, 2)  # of a path with one piece the word "user"
                return partial(self._create, HYPERTY, last(pieces), body, "Hyperty created", user)
            case "PUT", ["hyperty", "dataobject", _, *_]:
                return partial(self._create, OBJECT, last(pieces), body, "Data object created")
            case "PUT", ["hyperty", "url", _, *_]:
                return partial(self._update, HYPERTY, last(pieces), body, "Hyperty updated")
            case "PUT", ["dataobject", "url", _, *_]:
                return partial(self._update, OBJECT, last(pieces), body, "data object updated")
            case "DELETE", ["hyperty", "user", _, *_]:
                return partial(self._delete, last(pieces, 2), last(pieces))
        return None

    # -- reading -------------------------------------------------------------

    def _live(self) -> Reply:
        stored = str(self._records.count())
        return say(200, {"status": "up", "Storage_type": "SQLite", "Hyperties_stored": stored})

    def _hyperty(self, url: str) -> Reply:
        record = self._records.get(HYPERTY, url)
        if record is None:
            return say(404, NOT_FOUND)
        return say(408 if record["status"] == DISCONNECTED else 200, record)

    def _object(self, by: str, pieces: list[str], more: list[str], query: str) -> Reply:
        value = last(pieces, 2 if more else 1)
        if by != "url":
            found = self._records.find(OBJECT, by, value)
            found = matching(found, query) if more else found
            return say(200, found) if found else say(404, NOT_FOUND)
        if more and not searched(query):
            return say(404, NOT_FOUND)
        record = self._records.get(OBJECT, value)
        if not more:
            return say(200, record) if record else say(404, NOT_FOUND)
        if record is None:
            return BROKEN
        found = matching({value: record}, query)
        return say(200, found) if found else say(404, NOT_FOUND)

    # -- writing -------------------------------------------------------------

    def _create(self, kind: Kind, id: str, body: bytes, done: str, user: str | None = None) -> Reply:
        self._records.check(len(body))
        fields = members(body)
        if not kind.required <= fields.keys():
            return MISSING
        known = clean(kind, fields)
        if "status" not in known:  # no reader could tell whether it is there
            raise Misfit("'status' is a text, not null")
        if "expires" not in known:
            return BROKEN
        created = self._records.create(kind, id, known, user)
        return say(200, {"message": done}) if created else say(404, NOT_FOUND)

    def _update(self, kind: Kind, id: str, body: bytes, done: str) -> Reply:
        self._records.check(len(body))
        if body == b"{}":
            done = "Keep alive"
            changed = self._records.keep_alive(kind, id)
        else:
            changed = self._records.update(kind, id, clean(kind, members(body)))
        if changed is None:
            return say(404, NOT_FOUND)
        if kind is OBJECT:
            return say(200, {"message": done})
        return say(200, {"statusChanged": "true" if changed else "false", "message": done})

    def _delete(self, user: str, id: str) -> Reply:
        gone = self._records.delete(user, id)
        return say(200, {"message": "Hyperty deleted"}) if gone else say(404, NOT_FOUND)


def resolved(path: str) -> list[str] | None:
    """
    The pieces of a path, `.` and `..` followed.  None: it leads outside.

    Only whole pieces are: what is encoded within an address leads nowhere.
    """
    if "/." not in path and "/%2" not in path:
        return path.split("/")[1:]
    pieces: list[str] = []
    for piece in path.split("/")[1:]:
        plain = unquote(piece)
        if plain not in (".", ".."):
            pieces.append(piece)
        elif plain == "..":
            if not pieces:
                return None
            pieces.pop()
    if path.endswith(("/.", "/..")):
        pieces.append("")
    return pieces


def last(pieces: list[str], from_end: int = 1) -> str:
    return unquote_plus(pieces[-from_end])


def hyperties(found: dict[str, dict[str, Any]]) -> Reply:
    """
    408 if there is nobody home at any of them.
    """
    if not found:
        return say(404, NOT_FOUND)
    away = all(record["status"] == DISCONNECTED for record in found.values())
    return say(408 if away else 200, found)


def searched(query: str) -> dict[str, set[str]]:
    """
    The values that a query names, by their list; none, if it names nothing or something else.

    Of a list that stands twice the first counts, and no comma at the end counts.
    """
    wanted: dict[str, set[str]] = {}
    for name, values in parse_qsl(query, keep_blank_values=True):
        if name not in LISTS:
            return {}
        named = values.rstrip(",")
        wanted.setdefault(name, set(named.split(",")) if named or not values else set())
    return wanted


def matching(found: dict[str, dict[str, Any]], query: str) -> dict[str, dict[str, Any]]:
    """
    Those that have every value the query names; none, if it names nothing or something else.
    """
    wanted = searched(query)
    if not wanted:
        return {}

    def fits(record: dict[str, Any]) -> bool:
        return all(values <= set(record.get(name, ())) for name, values in wanted.items())

    return {url: record for url, record in found.items() if fits(record)}


Answering = Callable[[str, str, bytes], Reply]
