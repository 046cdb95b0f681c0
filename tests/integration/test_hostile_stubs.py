"""
Malicious stubs in the real sandbox: only they suffer, and `ended` says why.
"""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from msgnode.foreign.sandbox.hosts import find_deno
from tests.integration.sandboxed import TOP, Sandboxed, Sandboxes, is_gone

numbers = count(1)
JAIL = TOP / "msgnode" / "foreign" / "sandbox" / "jail.py"
SAY_LIVE = "bus.postMessage({type: 'update', from: url, to: url + '/status', body: {value: 'live'}});"
# Endings that take a while; all of them are started at once.
ENDLESS = {
    "an endless loop": (f"{SAY_LIVE} setTimeout(() => {{ for (;;); }}, 100);", "did not answer within 10 s"),
    "an endless loop at the start": ("for (;;);", "did not answer within 10 s"),
    "an endless loop in a regular expression": (
        f"{SAY_LIVE} setTimeout(() => /^(a+)+$/.test('a'.repeat(60) + 'b'), 100);",
        "did not answer within 10 s",
    ),
    "a loop of promises": (
        f"{SAY_LIVE} const again = () => Promise.resolve().then(again); again();",
        "",  # by time or by memory
    ),
    "1 GB of output": (
        f"{SAY_LIVE} const m = {{to: 'x'.repeat(1e6)}}; for (let i = 0; i < 1000; i++) bus.postMessage(m);",
        "did not answer within 10 s",
    ),
    "a flood of its console": (
        f"{SAY_LIVE} for (;;) console.log('x'.repeat(1e5));",
        "did not answer within 10 s",
    ),
    "silence": ("", "was not live within 15 s"),
    "a status that never is live": (
        SAY_LIVE.replace("'live'", "'created'"),
        "was not live within 15 s",
    ),
    "a heap without end": (f"{SAY_LIVE} const all = []; for (;;) all.push({{all}});", "ran out of memory"),
    "a text without end": (
        f"{SAY_LIVE} let t = 'x'; setTimeout(() => {{ for (;;) t = [t, t].join(''); }});",
        "ran out of memory",
    ),
    "memory outside the heap": (
        f"{SAY_LIVE} setTimeout(() => {{ for (const all = [];;) all.push(new Uint8Array(1e7).fill(1)); }});",
        "Array buffer allocation failed",
    ),
}
CRASHES = {
    "no code": ("", "expected a default export that is a class or the function activate"),
    "no JavaScript": ("<html>404 Not Found</html>", "SyntaxError"),
    "a throw at the start": ("throw new Error('no stub today')", "no stub today"),
    "a throw in activate": ("function activate() { throw new TypeError('not I') }", "not I"),
    "no instance": ("function activate() { return {name: 'x'} }", "expected {name, instance}"),
    "a module that is not there": ("require('fs')", "the module 'fs', which is not offered"),
    "a thrown null": ("throw null", "null"),
}


def activating(body: str) -> str:
    return f"function activate(url, bus, config) {{ {body}; return {{name: 'x', instance: {{}}}}; }}"


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[Sandboxes]:
    process = Sandboxes()
    yield process
    process.close()


@pytest.fixture(scope="module")
def neighbour(sandboxes: Sandboxes) -> Sandboxed:
    """
    A stub that does what it should, among the others.
    """
    return started(
        sandboxes,
        f"{SAY_LIVE} bus.addListener('*', (m) => bus.postMessage({{...m, from: m.to, to: m.from}}))",
    )


@pytest.fixture(scope="module")
def endless(sandboxes: Sandboxes) -> dict[str, Sandboxed]:
    return {name: started(sandboxes, body) for name, (body, _) in ENDLESS.items()}


def started(sandboxes: Sandboxes, body: str, hosts: Any = (), **limits: Any) -> Sandboxed:
    return sandboxes.start(f"hostile-{next(numbers)}", activating(body), {}, hosts, **limits)


@pytest.fixture(autouse=True)
def others_are_well(neighbour: Sandboxed) -> Iterator[None]:
    """
    After each of them the neighbour answers.
    """
    yield
    neighbour.post({"id": 1, "from": "hyperty://a.example/1", "to": "hyperty://b.example/1"})
    assert neighbour.posted()["to"] == "hyperty://a.example/1"


def memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("name", ENDLESS)
def test_a_stub_without_end_is_ended(endless: dict[str, Sandboxed], sandboxes: Sandboxes, name: str) -> None:
    """
    Time, memory and output are bounded, and so is what the node keeps of them.
    """
    stub, why = endless[name], ENDLESS[name][1]

    if "failed" in why:
        assert why in stub.logged("error")
        stub.stop()
    else:
        assert why in stub.ended()
        assert is_gone(stub.pid)
    assert memory(sandboxes.process.pid) < 300 * 1024 * 1024


@pytest.mark.parametrize("name", CRASHES)
def test_code_that_cannot_run_says_why(sandboxes: Sandboxes, name: str) -> None:
    """
    The reason is the exception's.
    """
    text, why = CRASHES[name]
    stub = sandboxes.start(f"hostile-{next(numbers)}", text)

    ended = stub.ended()

    assert ended.startswith("cannot run: ")
    assert why in ended
    assert is_gone(stub.pid)


def test_a_stub_that_dies_is_reported_at_each_state(sandboxes: Sandboxes) -> None:
    """
    Killed before it is live, while it is live, and after it said disconnected.
    """
    said = {
        "created": SAY_LIVE.replace("live", "created"),
        "live": SAY_LIVE,
        "disconnected": SAY_LIVE.replace("live", "disconnected"),
    }
    for status, body in said.items():
        stub = started(sandboxes, body)
        stub.wait("status", status)
        os.kill(stub.pid, signal.SIGKILL)

        assert stub.ended() == "ended with signal 9"
        assert is_gone(stub.pid)


def test_an_exception_after_the_start_is_a_line_of_the_log(sandboxes: Sandboxes) -> None:
    """
    In a timer, a promise, a listener: the stub goes on.
    """
    stub = started(
        sandboxes,
        f"""{SAY_LIVE} setTimeout(() => {{ throw new Error('in a timer') }}, 0);
        setTimeout(() => Promise.reject(new Error('in a promise')), 20);
        bus.addListener('*', (m) => {{ throw new Error('in a listener') }});""",
    )
    stub.live()

    assert "in a timer" in stub.logged("error")
    assert "in a promise" in stub.logged("error")
    stub.post({"to": "x"})
    assert "in a listener" in stub.logged("error")
    assert stub.stop() == "was stopped"


REACHING = r"""
Error.prepareStackTrace = (e, sites) => sites
  .filter((site) => `${site.getFileName()}`.endsWith('host.js'))
  .map((site) => typeof site.getFunction() + ' ' + typeof site.getThis());
const frames = new Error().stack;
delete Error.prepareStackTrace;
const found = {};
const attempt = async (name, f) => {
  try { found[name] = String(await f()); } catch (e) { found[name] = 'refused: ' + (e.message || e); }
};
(async () => {
  for (const name of ['Deno', 'process', 'Worker', 'localStorage', 'caches', 'prompt', 'WebAssembly']) {
    await attempt(name, () => typeof globalThis[name]);
  }
  for (const name of config.modules) {
    await attempt(name, () => import(name).then((m) => 'got ' + Object.keys(m)));
  }
  await attempt('data', () => import('data:text/javascript,import p from "node:process"'));
  await attempt('nested', () => (0, eval)('import("node:fs")'));
  await attempt('file', () => fetch('file:///etc/passwd').then((r) => r.text()));
  await attempt('constructor', () => (async () => {}).constructor('return import("node:child_process")')());
  found.frames = frames;
  bus.postMessage({to: 'found', body: found});
})();
"""
MODULES = [
    *json.loads((JAIL.parent / "imports.json").read_text())["imports"],
    "fs",
    "file:///etc/passwd",
    "https://example.org/x.js",
    "npm:ws",
    "jsr:@std/fs",
    "ext:core/ops",
]


def test_nothing_of_deno_or_node_is_reached(sandboxes: Sandboxes) -> None:
    """
    Files, environment, processes, modules: each is undefined or refused.
    """
    stub = sandboxes.start("reaching", activating(SAY_LIVE + REACHING), {"modules": MODULES})
    found = stub.posted()["body"]

    frames = found.pop("frames")
    refused = {name for name, said in found.items() if said == "undefined" or said.startswith("refused")}
    assert found.keys() - refused == set()
    assert set(frames) == {"undefined undefined"}
    stub.stop()


def test_every_module_of_node_that_deno_has_is_refused() -> None:
    """
    The import map has them all; a later Deno may have more.
    """
    script = "import {builtinModules as all} from 'node:module'; console.log(JSON.stringify(all))"
    said = subprocess.run([find_deno(), "eval", script], capture_output=True, check=True).stdout
    names = {f"node:{name.removeprefix('node:')}" for name in json.loads(said)}

    assert names - set(MODULES) == set()


def test_another_host_is_not_reached(sandboxes: Sandboxes) -> None:
    """
    Neither one that is not listed for the stub, nor a private address behind a name that is.
    """
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(1)
    port = server.getsockname()[1]
    body = f"""{SAY_LIVE}
        for (const host of ['127.0.0.1', '127.0.0.2', '[::1]', 'localhost']) {{
          const url = `ws://${{host}}:{port}/`, s = new WebSocket(url);
          s.onclose = (e) => bus.postMessage({{to: url, body: {{code: e.code, reason: e.reason}}}});
        }}
        for (const host of ['127.0.0.1', '127.0.0.2']) {{
          fetch(`http://${{host}}:{port}/`).catch((e) => bus.postMessage({{to: host, body: e.message}}));
        }}"""
    stub = started(sandboxes, body, [f"127.0.0.2:{port}", f"localhost:{port + 1}"])

    said = sorted(str(stub.posted()["body"]) for _ in range(6))

    listed = "is not among the hosts that this stub may connect to"
    assert sum(listed in each for each in said) == 4
    assert sum("127.0.0.2, which is not public and not listed" in each for each in said) == 2
    with pytest.raises(TimeoutError):
        server.accept()
    stub.stop()


GAMES = r"""
const say = (value) => bus.postMessage({type: 'update', from: url, to: url + '/status', body: {value}});
say('live');
let frozen = '';
try { bus.postMessage = () => {}; frozen = String(Object.isFrozen(bus)); } catch (e) { frozen = e.message; }
const forged = '\n{"k":"status","value":"failed","desc":"forged"}\n';
Object.prototype.toJSON = function () { return {forged, own: Object.keys(this).join()}; };
Object.prototype.k = 'failed';
Object.prototype.text = 'forged';
Object.defineProperty(Object.prototype, 'via', {get() { return url; }, configurable: true});
JSON.parse = () => ({k: 'post', m: {forged: true}});
JSON.stringify = () => forged;
Array.prototype[Symbol.iterator] = function* () { yield 'forged'; };
Array.prototype.push = Array.prototype.filter = () => ['forged'];
String.prototype.slice = String.prototype.indexOf = String.prototype.toLowerCase = () => 'forged';
TextEncoder.prototype.encode = () => new Uint8Array([10]);
TextDecoder.prototype.decode = () => forged;
Uint8Array.prototype.subarray = () => new Uint8Array([10]);
Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => forged;
Promise.prototype.then = Promise.prototype.catch = () => {};
EventTarget.prototype.addEventListener = () => {};
globalThis.setTimeout = () => {};
bus.addListener('*', (m) => bus.postMessage({to: 'heard', body: [m.id, frozen]}));
"""


def test_games_with_prototypes_change_only_the_messages_of_the_stub(sandboxes: Sandboxes) -> None:
    """
    No line is forged, and the node's messages still arrive; what it posts is JSON that it may post anyway.
    """
    stub = started(sandboxes, GAMES)
    stub.live()

    stub.post({"id": 5, "from": "hyperty://a.example/1", "to": "hyperty://b.example/1"})
    message = stub.posted()

    assert message["own"] == "to,body"
    assert [event for event in stub.seen if event[0] == "status"] == [["status", "live", ""]]
    assert stub.stop() == "was stopped"


def test_a_message_of_another_domain_is_handed_on_as_it_is(sandboxes: Sandboxes) -> None:
    """
    The node checks the sender; the sandbox gives it just what was posted.
    """
    message = {"id": 1, "type": "create", "from": "hyperty://bank.example/1", "to": "hyperty://a.example/1"}
    stub = started(sandboxes, f"{SAY_LIVE} bus.postMessage({json.dumps(message)})")

    assert stub.posted() == message
    stub.stop()


def test_a_message_that_is_too_long_is_refused_in_the_stub(sandboxes: Sandboxes) -> None:
    """
    It gets an exception, and goes on.
    """
    body = f"""{SAY_LIVE} try {{ bus.postMessage({{to: 'ä'.repeat(600000)}}) }}
        catch (e) {{ bus.postMessage({{to: e.message}}) }}"""
    stub = started(sandboxes, body)

    assert stub.posted()["to"] == "a message has at most 1048576 bytes"
    stub.stop()


def test_output_is_read_at_the_permitted_rate(sandboxes: Sandboxes) -> None:
    """
    A stub that posts more waits; nothing is lost, and it is not ended.
    """
    body = f"{SAY_LIVE} for (let i = 0; i < 300; i++) bus.postMessage({{id: i}});"
    stub = started(sandboxes, body, messages_per_second=100)
    stub.live()
    begun = time.monotonic()

    ids = [stub.posted()["id"] for _ in range(300)]

    assert ids == list(range(300))
    assert time.monotonic() - begun > 1.5
    assert stub.stop() == "was stopped"


def test_a_stub_that_does_not_read_is_not_written_to(sandboxes: Sandboxes) -> None:
    """
    Messages are taken up to a bound; once it reads again there is room.
    """
    body = f"""{SAY_LIVE} let n = 0; bus.addListener('*', (m) => {{ n += 1;
        if (m.id === 1) {{ const end = Date.now() + 2000; while (Date.now() < end); }}
        if (m.id === 2) bus.postMessage({{to: 'counted', body: n}}); }});"""
    stub = started(sandboxes, body)
    stub.live()
    stub.post({"id": 1, "to": "x"})

    taken = stub.try_post({"id": 0, "to": "x" * 10_000}, 1000)
    stub.wait("ready")
    stub.post({"id": 2, "to": "x"})

    assert taken < 100
    assert stub.posted()["body"] == taken + 2
    stub.stop()


def test_disconnect_that_never_returns_is_ended(sandboxes: Sandboxes) -> None:
    """
    By a signal, after a while.
    """
    text = f"""function activate(url, bus) {{ {SAY_LIVE}
        return {{name: 'x', instance: {{disconnect() {{ for (;;); }}}}}}; }}"""
    stub = sandboxes.start("stubborn", text)
    stub.live()

    assert stub.stop() == "was stopped"
    assert is_gone(stub.pid)


def test_stubs_end_with_their_node() -> None:
    """
    `kill -9` of the node ends also a stub that is in an endless loop.
    """
    sandboxes = Sandboxes()
    stubs = [started(sandboxes, f"{SAY_LIVE} {body}") for body in ("", "setTimeout(() => { for (;;); })")]
    for stub in stubs:
        stub.live()

    sandboxes.process.kill()
    sandboxes.process.wait()

    assert all(is_gone(stub.pid) for stub in stubs)


PROBE = """
import ctypes, json, os, signal, socket, subprocess, sys, threading
found = {}
def libc(name, number, *arguments):
    if os.uname().machine != "x86_64": raise PermissionError
    if ctypes.CDLL(None, use_errno=True).syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
def attempt(name, f):
    try: found[name] = repr(f())
    except BaseException as why: found[name] = type(why).__name__
def connect():
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)
attempt("read", lambda: open("/etc/passwd").read())
attempt("write", lambda: open("/tmp/jail-probe", "w"))
attempt("proc", lambda: open(f"/proc/{os.getppid()}/environ").read())
attempt("fork", os.fork)
attempt("spawn", lambda: subprocess.run(["/bin/true"]))
attempt("exec", lambda: os.execv("/bin/true", ["true"]))
attempt("connect", connect)
attempt("memory", lambda: len(bytearray(1 << 28)))
attempt("kill", lambda: os.kill(int(sys.argv[2]), 9))
attempt("queue", lambda: signal.pidfd_send_signal(os.pidfd_open(int(sys.argv[2])), 9))
attempt("thread kill", lambda: libc("tgkill", 234, int(sys.argv[2]), int(sys.argv[2]), 9))
attempt("trace", lambda: libc("ptrace", 101, 16, int(sys.argv[2]), 0, 0))
thread = threading.Thread(target=lambda: found.update(thread="ran"))
thread.start(); thread.join()
found["environment"] = sorted(os.environ)
os.write(1, json.dumps(found).encode())
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_the_kernel_refuses_what_deno_would_have_let_through(tmp_path: Path) -> None:
    """
    The jail with another program than Deno: a process that broke out of V8 finds no file, host or process.
    """
    server = socket.create_server(("127.0.0.1", 0))
    bystander = subprocess.Popen(["sleep", "60"])
    python = str(Path(sys.executable).resolve())
    limits = json.dumps({"DATA": 128 * 1024 * 1024, "CORE": 0, "NOFILE": 64})
    where = [str(server.getsockname()[1]), str(bystander.pid)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", JAIL, limits, python, sys.base_prefix, "-I", "-S", "-c", PROBE, *where],
        capture_output=True,
        text=True,
        cwd="/",
    )
    alive = bystander.poll() is None
    bystander.kill()
    bystander.wait()
    first, _, second = done.stdout.partition("\n")
    missing = json.loads(first)["missing"]
    if missing:
        pytest.skip(f"this system is without {missing}")
    found = json.loads(second)

    assert set(found.pop("environment")) - {"LC_CTYPE"} == {"DENO_DIR", "DENO_NO_UPDATE_CHECK", "NO_COLOR"}
    assert found.pop("thread") == "ran"
    assert found.pop("memory") == "MemoryError"
    assert found.pop("connect") in ("OSError", "TimeoutError")
    assert alive
    assert set(found.values()) == {"PermissionError"}, found
