"""
What code of a stub can reach, in Deno and below it.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from msgnode.foreign.sandbox.hosts import find_deno
from tests.integration.sandboxed import SAY_LIVE, TOP, Sandboxes, activating, started

JAIL = TOP / "msgnode" / "foreign" / "sandbox" / "jail.py"


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
