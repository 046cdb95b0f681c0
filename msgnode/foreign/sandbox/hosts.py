"""
Starting stubs in Deno.

Deno has no permission at all: its network is the node's, which checks each host and address (`proxy`). Below
it, `jail.py` takes from the process what the kernel can take: network, files, other processes, and memory.
"""

import shutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from msgnode.config.sections import BackEndOptions
from msgnode.foreign.lifecycle.stub_host import StubEvents, StubHost, StubStart
from msgnode.foreign.proxy.guard import AddressGuard
from msgnode.foreign.proxy.http import StubRequests
from msgnode.foreign.sandbox.lines import encoded
from msgnode.foreign.sandbox.network import Egress, StubNetwork
from msgnode.foreign.sandbox.process import StubProcess
from msgnode.transport.endpoints import TLSTrust

HERE = Path(__file__).parent
# V8 without its compilers: a stub does little but JSON, and most vulnerabilities of V8 are in them. Memory
# that is reserved for machine code would also count as data.
V8_FLAGS = ("--jitless", "--single-threaded")
DENO_OPTIONS = (
    "--no-prompt",
    "--no-config",
    "--no-lock",
    "--no-remote",
    "--no-npm",
    "--no-code-cache",
    "--cached-only",
    "--quiet",
    "--import-map=imports.json",
)
MAX_FILES = 64
MAX_PROCESSES = 64  # threads; counted by user, so only in a user namespace
MAX_BUFFER_BYTES = 1_000_000  # of the descriptor's `maxBuffer`; deployed stubs send nothing without it
MODULES = {"socket.io-client": "socket.io-client.js"}


class DenoMissing(Exception):
    """
    There is no Deno. The text says how to install it.
    """


def find_deno() -> str:
    """
    The path of Deno: that of the Python package, else one on PATH. DenoMissing if there is none.
    """
    beside = Path(sys.executable).with_name("deno")
    found = str(beside) if beside.exists() else shutil.which("deno")
    if found is None:
        raise DenoMissing("foreign stubs need Deno: pip install 'msgnode[foreign]'")
    return str(Path(found).resolve())


class DenoHosts:
    """
    A starter of stubs, each in a process of Deno; the StubHosts of the node.

    `ca` is a file with the authorities that are trusted in place of the system's.
    """

    def __init__(self, reactor: Any, guard: AddressGuard, deno: str | None = None, ca: str = "") -> None:
        trust = TLSTrust(BackEndOptions(ca=ca))
        self._reactor = reactor
        self._egress = Egress(reactor, guard, trust, StubRequests(reactor, guard, trust))
        self._deno = deno or find_deno()

    def start(self, start: StubStart, events: StubEvents) -> StubHost:
        def network(write: Callable[[bytes], None]) -> StubNetwork:
            return StubNetwork(self._egress, start.hosts, start.limits, write, events.limited)

        process = StubProcess(self._reactor, start, first_line(start), events, network)
        arguments = jail_arguments(self._deno, start.limits.memory_bytes)
        command = [sys.executable, "-I", "-S", str(HERE / "jail.py"), *arguments]
        # Without another directory, Twisted uses posix_spawn: a fork of the node copies its page tables.
        self._reactor.spawnProcess(process, sys.executable, command, env={})
        return process


def jail_arguments(deno: str, memory_bytes: int) -> list[str]:
    limits = {"DATA": memory_bytes, "CORE": 0, "NOFILE": MAX_FILES, "NPROC": MAX_PROCESSES, "FSIZE": 0}
    heap = (memory_bytes >> 20) // 2
    flags = ",".join([*V8_FLAGS, f"--max-heap-size={heap}"])
    text = msgspec.json.encode(limits).decode()
    return [text, deno, str(HERE), "run", f"--v8-flags={flags}", *DENO_OPTIONS, "host.js"]


def first_line(start: StubStart) -> bytes:
    """
    The line with all that the host script needs to run the stub.
    """
    modules = {name: _asset(file) for name, file in MODULES.items() if name.encode() in start.code}
    return encoded(
        "start",
        url=start.url,
        limit=start.limits.message_bytes,
        config=configuration(start),
        code=start.code.decode("utf-8", "replace"),
        modules=modules,
    )


def configuration(start: StubStart) -> dict[str, Any]:
    """
    The configuration of the descriptor, which may be a text, with the node's name at the other.
    """
    try:
        descriptor = msgspec.json.decode(start.descriptor)
    except (msgspec.DecodeError, RecursionError):
        descriptor = {}
    found = descriptor.get("configuration") if isinstance(descriptor, dict) else None
    if isinstance(found, str):
        try:
            found = msgspec.json.decode(found)
        except (msgspec.DecodeError, RecursionError):
            found = None
    own: Mapping[str, Any] = found if isinstance(found, dict) else {}
    return {"maxBuffer": MAX_BUFFER_BYTES, **own, "runtimeURL": start.runtime_url}


@cache
def _asset(name: str) -> str:
    return (files("msgnode.foreign.sandbox") / "assets" / name).read_text()
