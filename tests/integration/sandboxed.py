"""
Stubs in their real sandbox, as a test drives them.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from tests.integration.process import PATIENCE

TOP = Path(__file__).parents[2]
STUBS = TOP / "tests" / "fixtures" / "stubs"
OWN = "runtime://a.example/protostub"
SAY_LIVE = "bus.postMessage({type: 'update', from: url, to: url + '/status', body: {value: 'live'}});"
numbers = count(1)
DRIVER = (str(TOP / "tests" / "integration" / "stub_driver.py"),)
LIMITS = {
    "memory_bytes": 128 * 1024 * 1024,
    "message_bytes": 1024 * 1024,
    "output_bytes_per_second": 4 * 1024 * 1024,
    "messages_per_second": 1000,
    "live_seconds": 15.0,
}


class Sandboxes:
    """
    A process with stubs, each known by a name.
    """

    def __init__(self, *options: str, program: tuple[str, ...] = DRIVER) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *program, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TOP)},
        )
        self._events: dict[str, queue.Queue[Any]] = defaultdict(queue.Queue)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            name, *event = json.loads(line)
            self._events[name].put(event)

    def command(self, *parts: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(parts) + "\n")
        self.process.stdin.flush()

    def start(
        self, name: str, code: str, configuration: Any = None, hosts: Any = (), **limits: Any
    ) -> "Sandboxed":
        self.command("start", name, code, configuration or {}, list(hosts), {**LIMITS, **limits})
        return Sandboxed(self, name)

    def next(self, name: str) -> list[Any]:
        event: list[Any] = self._events[name].get(timeout=PATIENCE)
        return event

    def wait_until(self, true: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            assert self.process.poll() is None and time.monotonic() < end
            time.sleep(0.02)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE)


class Sandboxed:
    """
    A stub in its sandbox.
    """

    def __init__(self, sandboxes: Sandboxes, name: str) -> None:
        self._sandboxes = sandboxes
        self.name = name
        self.url = f"{OWN}/{name}"
        self.runtime = f"runtime://a.example/{name}"
        self.seen: list[list[Any]] = []
        self.pid = self.wait("pid")[0]

    def wait(self, kind: str, *start: Any) -> list[Any]:
        """
        The rest of the next event of this kind that begins so.
        """
        while True:
            found, *rest = self._next()
            if found == kind and rest[: len(start)] == list(start):
                return rest
            assert found != "ended" or kind == "ended", self.seen

    def logged(self, level: str = "info") -> str:
        """
        The next line of its console.
        """
        text: str = self.wait("log", level)[1]
        return text

    def _next(self) -> list[Any]:
        try:
            event = self._sandboxes.next(self.name)
        except queue.Empty:
            raise AssertionError(f"it only told {self.seen}") from None
        self.seen.append(event)
        return event

    def live(self) -> None:
        self.wait("status", "live")

    def post(self, message: dict[str, Any]) -> None:
        while not self.try_post(message):
            self.wait("ready")

    def try_post(self, message: dict[str, Any], times: int = 1) -> int:
        """
        How many of them the stub's process took.
        """
        self._sandboxes.command("post", self.name, message, times)
        taken: int = self.wait("taken")[0]
        return taken

    def posted(self) -> Any:
        return self.wait("posted")[0]

    def ended(self) -> str:
        why: str = self.wait("ended")[0]
        return why

    def stop(self) -> str:
        self._sandboxes.command("stop", self.name)
        why = self.ended()
        self.wait_stopped()
        return why

    def wait_stopped(self) -> None:
        assert self._next() == ["stopped"]


def is_gone(pid: int) -> bool:
    """
    There is no such process, after a while; not even a zombie.
    """
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.02)
    return False


def activating(body: str) -> str:
    """
    A stub of which this is the function `activate`.
    """
    return f"function activate(url, bus, config) {{ {body}; return {{name: 'x', instance: {{}}}}; }}"


def started(sandboxes: Sandboxes, body: str, hosts: Any = (), **limits: Any) -> Sandboxed:
    return sandboxes.start(f"hostile-{next(numbers)}", activating(body), {}, hosts, **limits)
