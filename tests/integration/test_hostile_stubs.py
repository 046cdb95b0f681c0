"""
Malicious stubs in the real sandbox: only they suffer, and `ended` says why.
"""

import json
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.sandboxed import SAY_LIVE, Sandboxed, Sandboxes, is_gone, numbers, started

# Endings that take a while; all of them are started at once. Each has only the limit that it is to reach, for
# on a machine with much else to do the others may come first.
HANGS, NOT_LIVE = {"hang_seconds": 2.0}, {"live_seconds": 2.0}
SMALL: dict[str, float] = {"memory_bytes": 96 * 1024 * 1024}
HANG, LATE = "did not answer within 2 s", "was not live within 2 s"
ENDLESS: dict[str, tuple[str, str, dict[str, float]]] = {
    "an endless loop": (f"{SAY_LIVE} setTimeout(() => {{ for (;;); }}, 100);", HANG, HANGS),
    "an endless loop at the start": ("for (;;);", LATE, NOT_LIVE),
    "an endless loop in a regular expression": (
        f"{SAY_LIVE} setTimeout(() => /^(a+)+$/.test('a'.repeat(60) + 'b'), 100);",
        HANG,
        HANGS,
    ),
    "a loop of promises": (
        f"{SAY_LIVE} const again = () => Promise.resolve().then(again); again();",
        "",  # by time or by memory
        HANGS,
    ),
    "1 GB of output": (
        f"{SAY_LIVE} const m = {{to: 'x'.repeat(1e6)}}; for (let i = 0; i < 1000; i++) bus.postMessage(m);",
        HANG,
        HANGS,
    ),
    "a flood of its console": (f"{SAY_LIVE} for (;;) console.log('x'.repeat(1e5));", HANG, HANGS),
    "silence": ("", LATE, NOT_LIVE),
    "a status that never is live": (SAY_LIVE.replace("'live'", "'created'"), LATE, NOT_LIVE),
    "a heap without end": (
        f"{SAY_LIVE} const all = []; for (;;) all.push({{all}});",
        "ran out of memory",
        SMALL,
    ),
    "a text without end": (
        f"{SAY_LIVE} let t = 'x'; setTimeout(() => {{ for (;;) t = [t, t].join(''); }});",
        "ran out of memory",
        SMALL,
    ),
    "memory outside the heap": (
        f"{SAY_LIVE} setTimeout(() => {{ for (const all = [];;) all.push(new Uint8Array(1e7).fill(1)); }});",
        "Array buffer allocation failed",
        SMALL,
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
    without = {"live_seconds": 600.0, "hang_seconds": 600.0}
    return {name: started(sandboxes, body, **without | limits) for name, (body, _, limits) in ENDLESS.items()}


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
    body = f"{SAY_LIVE} for (let i = 0; i < 200; i++) bus.postMessage({{id: i}});"
    stub = started(sandboxes, body, messages_per_second=100)
    stub.live()

    ids = [stub.posted()["id"] for _ in range(200)]

    assert ids == list(range(200))
    assert stub.stop() == "was stopped"


def test_a_stub_that_does_not_read_is_not_written_to(sandboxes: Sandboxes) -> None:
    """
    Messages are taken up to a bound; once it reads again there is room.
    """
    body = f"""{SAY_LIVE} let n = 0; bus.addListener('*', (m) => {{ n += 1;
        if (m.id === 1) {{ const end = Date.now() + 1000; while (Date.now() < end); }}
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
