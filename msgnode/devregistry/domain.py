"""
The domain registry's HTTP, as the reTHINK server answers it, whims included.

It looks at the path as it came, undecoded, because each address is one piece of it.
An address is the last piece; with a search it is the last but one, and
any further piece means that there is a search.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_plus

import msgspec

from msgnode.devregistry.quota import NoRoom
from msgnode.devregistry.records import DISCONNECTED, HYPERTY, OBJECT, Kind, Records, clean

JSON, HTML = "application/json", "text/html;charset=utf-8"
NOT_FOUND = {"message": "Not Found"}
LISTS = ("resources", "dataSchemes")


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
BROKEN = Reply(500, b"<html><body><h2>500 Internal Server Error</h2></body></html>")
MISSING = Reply(400, b"")


class Domain:
    """
    Answers requests from the records.
    """

    def __init__(self, records: Records) -> None:
        self._records = records

    def answer(self, method: str, uri: str, body: bytes) -> Reply:
        path, _, query = uri.partition("?")
        pieces = path.split("/")[1:]
        while pieces and not pieces[-1]:
            pieces.pop()
        try:
            return self._route(method, pieces, query, body)
        except NoRoom as why:
            return say(why.status, {"message": str(why)})
        except OverflowError:  # a number that no record can hold
            return MISSING
        except (ValueError, KeyError, TypeError, RecursionError):  # what the client sent makes no sense
            return BROKEN

    def _route(self, method: str, pieces: list[str], query: str, body: bytes) -> Reply:
        match method, pieces:
            case _, ["error"]:
                return say(401, {"message": "Unauthorized."})
            case "GET", []:
                return Reply(302, b"", location="/live")
            case "GET", ["live"]:
                stored = str(self._records.count())
                return say(200, {"status": "up", "Storage_type": "SQLite", "Hyperties_stored": stored})
            case "GET", ["registry", "updated"]:
                return say(200, self._records.take_updated())
            case "GET", ["hyperty", "dataobject", "url" | "name" | "reporter" as by, _, *more]:
                return self._object(by, pieces, more, query)
            case "GET", ["hyperty", "url", _, *_]:
                return self._hyperty(last(pieces))
            case "GET", ["hyperty", "user" | "email" as by, _, _, *_]:
                found = self._records.find(HYPERTY, by, last(pieces, 2))
                return hyperties(matching(found, query))
            case "GET", ["hyperty", "user" | "email" | "guid" as by, _, *_]:
                return hyperties(self._records.find(HYPERTY, by, last(pieces)))
            case "PUT", ["hyperty", "user", _, _, *_]:
                return self._create(HYPERTY, last(pieces), body, "Hyperty created", last(pieces, 2))
            case "PUT", ["hyperty", "dataobject", _, *_]:
                return self._create(OBJECT, last(pieces), body, "Data object created")
            case "PUT", ["hyperty", "url", _, *_]:
                return self._update(HYPERTY, last(pieces), body, "Hyperty updated")
            case "PUT", ["dataobject", "url", _, *_]:
                return self._update(OBJECT, last(pieces), body, "data object updated")
            case "DELETE", ["hyperty", "user", _, _, *_]:
                gone = self._records.delete(last(pieces, 2), last(pieces))
                return say(200, {"message": "Hyperty deleted"}) if gone else say(404, NOT_FOUND)
        return NOWHERE

    # -- reading -------------------------------------------------------------

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
        fields = msgspec.json.decode(body, type=dict[str, Any])
        if not kind.required <= fields.keys():
            return MISSING
        known = clean(kind, fields)
        if "status" not in known or "expires" not in known:
            return BROKEN
        created = self._records.create(kind, id, known, user)
        return say(200, {"message": done}) if created else say(404, NOT_FOUND)

    def _update(self, kind: Kind, id: str, body: bytes, done: str) -> Reply:
        self._records.check(len(body))
        if body == b"{}":
            done = "Keep alive"
            changed = self._records.keep_alive(kind, id)
        else:
            changed = self._records.update(
                kind, id, clean(kind, msgspec.json.decode(body, type=dict[str, Any]))
            )
        if changed is None:
            return say(404, NOT_FOUND)
        if kind is OBJECT:
            return say(200, {"message": done})
        return say(200, {"statusChanged": "true" if changed else "false", "message": done})


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


def matching(found: dict[str, dict[str, Any]], query: str) -> dict[str, dict[str, Any]]:
    """
    Those that have every value the query names; none, if it names nothing or something else.
    """
    wanted = parse_qsl(query, keep_blank_values=True)
    if not wanted or any(name not in LISTS for name, _ in wanted):
        return {}

    def fits(record: dict[str, Any]) -> bool:
        return all(set(values.split(",")) <= set(record.get(name, ())) for name, values in wanted)

    return {url: record for url, record in found.items() if fits(record)}


Answering = Callable[[str, str, bytes], Reply]
