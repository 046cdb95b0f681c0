"""
The HTTP API of the global registry: one signed record for each GUID, compatible with the reTHINK server.
"""

import re
import time
from collections.abc import Callable
from sqlite3 import Connection
from typing import Any
from urllib.parse import unquote

from msgnode.backends.registry.global_record import WrongRecord, check_signature, check_time, read_record
from msgnode.devregistry.database import transaction
from msgnode.devregistry.domain_api import Reply, reply
from msgnode.devregistry.quota import NoRoom, Quota

REQUIRED = {
    "guid",
    "schemaVersion",
    "userIDs",
    "lastUpdate",
    "timeout",
    "publicKey",
    "salt",
    "revoked",
    "defaults",
}
DEFAULTS = {"voice", "chat", "video"}
_FORBIDDEN = re.compile(r"\\|%(?:2f|5c|00|(?![0-9a-f]{2}))", re.IGNORECASE)


class GlobalApi:
    """
    Answers requests with the records of the global registry.
    """

    def __init__(
        self, database: Connection, quota: Quota | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._quota = quota or Quota(database)
        self._wall = wall

    def answer(self, method: str, uri: str, body: bytes) -> Reply:
        path = uri.partition("?")[0]
        if method == "HEAD":
            return self.answer("GET", uri, body)._replace(body=b"")
        if _FORBIDDEN.search(path):  # Tomcat, the server's front end, refuses these in a segment
            return Reply(400, b"")
        match method, path.rstrip("/").split("/")[1:]:
            case "GET", []:
                version = {"date": "", "version": "0.3.4", "build": "msgnode"}
                info = {"Code": 200, "Description": "OK", "Value": ""}
                return reply(200, {**info, "version": version, "connectedNodes": []})
            case "GET", ["guid", guid]:
                return self._get(unquote(guid), path)
            case "PUT", ["guid", guid]:
                return self._put(unquote(guid), body, path)
        return spring(404, "Not Found", path)

    def _get(self, guid: str, path: str) -> Reply:
        row = self._database.execute("SELECT jwt FROM graph WHERE guid = ?", (guid,)).fetchone()
        if row is None:
            return refuse(404, "Not found", "There is no record for this GUID.")
        try:
            check_time(read_record(row[0]), self._wall())
        except WrongRecord:
            return spring(500, "Internal Server Error", path)
        return reply(200, {"Code": 200, "Description": "OK", "Value": row[0]})

    def _put(self, guid: str, body: bytes, path: str) -> Reply:
        if not body:
            return spring(400, "Bad Request", path)
        jwt = body.decode("utf-8", "replace")
        most = self._quota.limits.entry_bytes
        if len(body) > most:
            return refuse(413, "Payload Too Large", f"A record has at most {most} bytes.")
        if jwt.count(".") != 2:
            return spring(500, "Internal Server Error", path)
        try:
            record = read_record(jwt)
        except WrongRecord as why:
            return refuse(500, "Internal Server Error", str(why))
        try:
            check_shape(record.data)
            check_signature(record, record.data)
        except WrongRecord as why:
            return refuse(400, "Bad Request", str(why))
        try:
            check_time(record, self._wall())
        except WrongRecord:
            return spring(500, "Internal Server Error", path)
        row = self._database.execute("SELECT jwt FROM graph WHERE guid = ?", (guid,)).fetchone()
        if row is not None:
            stored = read_record(row[0]).data
            if record.data["guid"] != stored["guid"]:
                return refuse(400, "Bad Request", "The GUID is not that of the stored record.")
            try:
                check_signature(record, stored)
            except WrongRecord:
                return refuse(500, "Internal Server Error", "It is not signed with the stored key.")
        try:
            with transaction(self._database):
                self._quota.take("graph", guid, len(jwt), self._wall())
                self._database.execute("INSERT OR REPLACE INTO graph VALUES (?, ?)", (guid, jwt))
        except NoRoom as why:
            return refuse(why.status, "Not stored", str(why))
        self._quota.note(len(jwt))
        done = {"Code": 200, "Description": "OK", "Explanation": "Stored.", "Value": ""}
        return reply(200, done)


def check_shape(data: dict[str, Any]) -> None:
    missing = REQUIRED - data.keys()
    defaults = data.get("defaults")
    if not missing and not (isinstance(defaults, dict) and defaults.keys() >= DEFAULTS):
        missing = {"defaults.voice, .chat, .video"}
    if missing:
        raise WrongRecord(f"missing: {', '.join(sorted(missing))}")


def refuse(code: int, description: str, explanation: str) -> Reply:
    return reply(code, {"Code": code, "Description": description, "Explanation": explanation, "Value": ""})


def spring(status: int, error: str, path: str) -> Reply:
    """
    A response of the server's framework, Spring.
    """
    now = int(time.time() * 1000)
    return reply(status, {"timestamp": now, "status": status, "error": error, "message": error, "path": path})
