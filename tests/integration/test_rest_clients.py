"""
`/resource` and `/events` with the programs that people use in a shell: curl and HTTPie.
"""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.integration.process import PATIENCE, Lines, NodeProcess

CURL = shutil.which("curl")
HTTPIE = shutil.which("http", path=str(Path(sys.executable).parent)) or shutil.which("http")
LAMP, NEWS = "runtime://localhost/lamp", "comm://localhost/news/changes"


class Lamp(Lines):
    """
    A device that has a version, and answers what it was asked.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port, LAMP)
        self._serving = Thread(target=self._serve, daemon=True)
        self._serving.start()

    def _serve(self) -> None:
        while (asked := self.receive()) is not None:
            body = {"code": 200, "type": asked["type"], "got": asked.get("body"), "version": 7}
            to = asked["from"]
            self.send({"id": asked["id"], "type": "response", "from": LAMP, "to": to, "body": body})

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self._serving.join(PATIENCE)
        super().close()


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    node = NodeProcess()
    lamp = Lamp(node.ports["line"])
    yield f"http://127.0.0.1:{node.ports['web']}"
    lamp.close()
    node.stop()


def curl(*arguments: str) -> tuple[int, Any]:
    """
    Status and JSON of the answer.
    """
    command = ["curl", "-s", "-m", str(PATIENCE), "-w", "\n%{http_code}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    body, _, status = done.rpartition("\n")
    return int(status), json.loads(body) if body else None


def httpie(method: str, url: str, *items: str) -> tuple[int, Any]:
    command = [str(HTTPIE), "--ignore-stdin", "--print=hb", "--pretty=none", method, url, *items]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    head, _, body = done.replace("\r\n", "\n").partition("\n\n")
    return int(head.split()[1]), json.loads(body) if body.strip() else None


@pytest.mark.skipif(CURL is None, reason="needs curl")
def test_curl(web: str) -> None:
    """
    Each method of curl is a type of message; a version is the ETag of conditional requests.
    """
    url, change = f"{web}/resource/{LAMP}", '{"attribute": "on", "value": true}'
    answers = [
        curl(f"{url}?room=2"),
        curl(url, "-d", change),
        curl("-X", "PUT", url, "-d", change),
        curl("-X", "PATCH", url, "-d", change),
        curl("-X", "DELETE", url),
    ]
    assert [status for status, _ in answers] == [200] * 5
    assert [body["type"] for _, body in answers] == ["read", "create", "update", "update", "delete"]
    assert [body["got"] for _, body in answers[:2]] == [{"room": "2"}, json.loads(change)]
    assert curl(url, "-H", 'If-None-Match: "7"') == (304, None)
    assert curl("-X", "PUT", url, "-d", change, "-H", 'If-Match: "6"')[0] == 412
    assert curl("-X", "PUT", url, "-d", change, "-H", 'If-Match: "7"')[0] == 200
    assert curl("-X", "PATCH", url, "-d", "{}")[0] == 400
    assert curl("-X", "PUT", f"{web}/resource/{NEWS}", "-d", change)[0] == 202
    assert curl(f"{web}/resource/hyperty://localhost/nobody")[0] == 404


@pytest.mark.skipif(HTTPIE is None, reason="pip install httpie")
def test_httpie(web: str) -> None:
    """
    HTTPie sends JSON by itself.
    """
    url = f"{web}/resource/{LAMP}"
    read, written = httpie("GET", url, "room==2"), httpie("PUT", url, "value=on")
    changed, gone = httpie("PATCH", url, "attribute=on", "value:=true"), httpie("DELETE", url)

    assert [read[1]["got"], written[1]["got"]] == [{"room": "2"}, {"value": "on"}]
    assert [each[1]["type"] for each in (changed, gone)] == ["update", "delete"]
    assert httpie("GET", url, 'If-None-Match:"7"')[0] == 304
    assert httpie("GET", url, "Prefer:wait=31")[0] == 200


class Stream:
    """
    The events that `curl -N` prints.
    """

    def __init__(self, web: str, *more: str) -> None:
        command = ["curl", "-sN", "-m", str(PATIENCE), f"{web}/events?resource={NEWS}", *more]
        self._curl = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def next(self) -> dict[str, str]:
        found: dict[str, str] = {}
        assert self._curl.stdout is not None
        for line in self._curl.stdout:
            if line == "\n" and "data" in found:
                break
            name, _, value = line.rstrip("\n").partition(": ")
            found[name] = value
        return found

    def stop(self) -> None:
        self._curl.kill()
        self._curl.communicate()


@pytest.mark.skipif(CURL is None, reason="needs curl")
def test_events_in_a_shell(web: str) -> None:
    """
    `curl -N` prints events as they come; with `Last-Event-ID` it gets what came while it was away, once.
    """
    stream = Stream(web)
    assert stream.next()["event"] == "session"
    for number in (1, 2):
        curl("-X", "PUT", f"{web}/resource/{NEWS}", "-d", json.dumps({"value": number}))
    heard = [stream.next(), stream.next()]
    stream.stop()
    curl("-X", "PUT", f"{web}/resource/{NEWS}", "-d", '{"value": 3}')

    again = Stream(web, "-H", f"Last-Event-ID: {heard[-1]['id']}")
    events = [again.next(), again.next()]
    again.stop()

    values = [json.loads(each["data"])["body"]["value"] for each in (*heard, events[-1])]
    assert values == [1, 2, 3]
