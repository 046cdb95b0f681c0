"""
The HTTP API of the domain registry, compatible with the reTHINK server including its oddities.

Paths are used undecoded, because each address is one segment. The address is the last segment, or the last
but one if a search follows; any further segment means that there is a search. Where the server fails with 500
over invalid input, the answer here may be 400 with a reason.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, unquote_plus

import msgspec

from msgnode.devregistry.fields import HYPERTY, OBJECT, InvalidField, Kind, clean, members
from msgnode.devregistry.quota import NoRoom
from msgnode.devregistry.records import DISCONNECTED, NoRecord, Records

JSON, HTML = "application/json", "text/html;charset=utf-8"
NOT_FOUND = {"message": "Not Found"}
LISTS = ("resources", "dataSchemes")
MAX_URL_BYTES = 8192  # bytes of a URL; the server's framework has that limit for a whole header
_NO_ENCODING = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Reply(NamedTuple):
    """
    A response: status, body, content type, and redirect location.
    """

    status: int
    body: bytes
    kind: str = JSON
    location: str = ""


def reply(status: int, value: Any) -> Reply:
    return Reply(status, msgspec.json.encode(value))


NOWHERE = Reply(404, b"<html><body><h2>404 Not found</h2></body></html>", HTML)
# The content type stays that of the route.
BROKEN = Reply(500, b"<html><body><h2>500 Internal Error</h2></body></html>")
MISSING = Reply(400, b"")
FOUND = Reply(200, b"", HTML)  # the response to HEAD, if GET has a route
TOO_LONG = reply(414, {"message": f"A URL has at most {MAX_URL_BYTES} bytes."})


class DomainApi:
    """
    Answers requests with the records of the domain registry.
    """

    def __init__(self, records: Records) -> None:
        self._records = records

    def answer(self, method: str, uri: str, body: bytes) -> Reply:
        if len(uri) > MAX_URL_BYTES:
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
            return reply(why.status, {"message": str(why)})
        except InvalidField as why:
            return reply(400, {"message": str(why)})
        except (ValueError, KeyError, TypeError, RecursionError):  # invalid input
            return BROKEN

    def _route(
        self, method: str, pieces: list[str], bare: bool, query: str, body: bytes
    ) -> Callable[[], Reply] | None:
        """
        The function for a route, or None. `bare`: the path has no slash at its end.
        """
        match method, pieces:
            case "GET", ["error"] if bare:
                return lambda: reply(401, {"message": "Unauthorized."})
            case "GET", []:
                return lambda: Reply(302, b"", location="/live")
            case "GET", ["live"] if bare:
                return self._live
            case "GET", ["registry", "updated"] if bare:
                return lambda: reply(200, self._records.take_updated())
            case "GET", ["hyperty", "dataobject", "url" | "name" | "reporter" as by, _, *more]:
                return partial(self._object, by, pieces, more, query)
            case "GET", ["hyperty", "url", _, *_]:
                return partial(self._hyperty, last(pieces))
            case "GET", ["hyperty", "user" | "email" as by, _, _, *_]:
                return lambda: hyperties(matching(self._records.find(HYPERTY, by, last(pieces, 2)), query))
            case "GET", ["hyperty", "user" | "email" | "guid" as by, _, *_]:
                return lambda: hyperties(self._records.find(HYPERTY, by, last(pieces)))
            case "PUT", ["hyperty", "user", _, *_]:
                user = last(pieces, 2)  # of a path with one segment it is the word "user"
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
        return reply(200, {"status": "up", "Storage_type": "SQLite", "Hyperties_stored": stored})

    def _hyperty(self, url: str) -> Reply:
        record = self._records.get(HYPERTY, url)
        if record is None:
            return reply(404, NOT_FOUND)
        return reply(408 if record["status"] == DISCONNECTED else 200, record)

    def _object(self, by: str, pieces: list[str], more: list[str], query: str) -> Reply:
        value = last(pieces, 2 if more else 1)
        if by != "url":
            found = self._records.find(OBJECT, by, value)
            found = matching(found, query) if more else found
            return reply(200, found) if found else reply(404, NOT_FOUND)
        if more and not searched(query):
            return reply(404, NOT_FOUND)
        record = self._records.get(OBJECT, value)
        if not more:
            return reply(200, record) if record else reply(404, NOT_FOUND)
        if record is None:
            return BROKEN
        found = matching({value: record}, query)
        return reply(200, found) if found else reply(404, NOT_FOUND)

    # -- writing -------------------------------------------------------------

    def _create(self, kind: Kind, id: str, body: bytes, done: str, user: str | None = None) -> Reply:
        self._records.check(len(body))
        fields = members(body)
        if not kind.required <= fields.keys():
            return MISSING
        known = clean(kind, fields)
        if "status" not in known:  # without it, no reader could tell whether the entry is live
            raise InvalidField("'status' is a text, not null")
        if "expires" not in known:
            return BROKEN
        created = self._records.create(kind, id, known, user)
        return reply(200, {"message": done}) if created else reply(404, NOT_FOUND)

    def _update(self, kind: Kind, id: str, body: bytes, done: str) -> Reply:
        self._records.check(len(body))
        try:
            if body == b"{}":
                done = "Keep alive"
                changed = self._records.keep_alive(kind, id)
            else:
                changed = self._records.update(kind, id, clean(kind, members(body)))
        except NoRecord:
            return reply(404, NOT_FOUND)
        if kind is OBJECT:
            return reply(200, {"message": done})
        return reply(200, {"statusChanged": "true" if changed else "false", "message": done})

    def _delete(self, user: str, id: str) -> Reply:
        gone = self._records.delete(user, id)
        return reply(200, {"message": "Hyperty deleted"}) if gone else reply(404, NOT_FOUND)


def resolved(path: str) -> list[str] | None:
    """
    The segments of a path, with `.` and `..` resolved. None if the path leads outside.

    Only whole segments count; encoded dots inside an address do not.
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
    A response with the found hyperties; 408 if all of them are disconnected.
    """
    if not found:
        return reply(404, NOT_FOUND)
    away = all(record["status"] == DISCONNECTED for record in found.values())
    return reply(408 if away else 200, found)


def searched(query: str) -> dict[str, set[str]]:
    """
    The wanted values in a query, by list; {} if the query is empty or has other keys.

    If a list occurs twice, the first one counts. Commas at the end are ignored.
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
    The records that have all wanted values; {} if the query is empty or has other keys.
    """
    wanted = searched(query)
    if not wanted:
        return {}

    def fits(record: dict[str, Any]) -> bool:
        return all(values <= set(record.get(name, ())) for name, values in wanted.items())

    return {url: record for url, record in found.items() if fits(record)}


Answering = Callable[[str, str, bytes], Reply]
