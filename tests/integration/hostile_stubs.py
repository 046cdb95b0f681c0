"""
Hostile stubs: the code of each, by what it does.
"""

from tests.integration.sandboxed import SAY_LIVE, activating

STATUS = "bus.postMessage({type: 'update', from: url, to: url + '/status', body: {value}});"
STATES = ("", "created", "in-progress", "live", "disconnected")
GAMES = """
Object.prototype.toJSON = function () { return {k: 'status', value: 'failed', own: `${Object.keys(this)}`} };
Object.defineProperty(Object.prototype, 'via', {get() { return url }, configurable: true});
JSON.parse = JSON.stringify = Array.prototype.push = Function.prototype.call = () => 'forged';
Array.prototype[Symbol.iterator] = function* () { yield 'forged' };
for (let i = 0; i < TIMES; i++) bus.postMessage({id: 1, to: 'x', body: {}});
"""
MESSAGE = "{id: i, type: 'update', from: 'hyperty://NAME/1', to: 'runtime://a.example/bob', body: {i}}"
NAMED = f"for (let i = 0; i < TIMES; i++) bus.postMessage({MESSAGE});"
# Says what it got to a client, if it is done once.
REACHING = """again
(async () => {
  let value;
  try { value = 'got ' + await (ATTEMPT) } catch (e) { value = 'refused: ' + (e.message || e) }
  if (TIMES === 1) {
    const to = 'runtime://a.example/bob';
    bus.postMessage({id: 1, type: 'update', from: 'hyperty://OWN/1', to, body: {value}});
  }
})()
"""
FILE = "fetch('file:///etc/passwd').then((r) => r.text()).catch(() => import('node:fs'))"
HOST = """new Promise((got, no) => {
  const s = new WebSocket('ws://127.0.0.2:9/'); s.onopen = got; s.onclose = no;
}).catch(() => fetch('http://127.0.0.2:9/'))"""


def reaching(attempt: str) -> str:
    return REACHING.replace("ATTEMPT", attempt)


def crash(state: str) -> str:
    """
    Says where it is, up to this state, and then crashes.
    """
    if not state:
        return "throw new Error('no stub today');"
    said = list(STATES[1 : STATES.index(state) + 1])
    grow = "setTimeout(() => { for (const a = [];;) a.push({a}) }, 100);"
    return f"for (const value of {said}) {STATUS} {grow}"


# The kinds that a node is to bear, but for crashes: what each does as soon as it is live.
HOSTILE = {
    "an endless loop": "for (;;);",
    "memory without end": "for (const all = [];;) all.push({all});",
    "1 GB of output": "const m = {to: 'x'.repeat(1e6)}; for (let i = 0; i < 1000; i++) bus.postMessage(m);",
    "reading files": reaching(FILE),
    "other hosts": reaching(HOST),
    "the environment": reaching(
        "Promise.resolve().then(() => Deno.env.get('HOME')).catch(() => import('node:process'))"
    ),
    "other processes": reaching(
        "Promise.resolve().then(() => new Deno.Command('sh')).catch(() => import('node:child_process'))"
    ),
    "games with prototypes": GAMES,
    "messages in another name": NAMED.replace("NAME", "bank.example"),
    "silence": "silent",
}
# More of what a node has to do with, all the time.
FLOODS = {
    "messages in its own name": NAMED.replace("NAME", "OWN").replace("/bob", "/nobody"),
    "small messages": "for (;;) bus.postMessage({});",
    "lines of its console": "for (;;) console.log('x');",
    "refused connections": "const c = () => (new WebSocket('ws://127.0.0.1:9/').onclose = c); c(); c(); c();",
    "connections": "again const s = new WebSocket('ws://127.0.0.1:PORT/'); setTimeout(() => s.close())",
    "requests": "again fetch('http://127.0.0.1:9/').catch(() => 0)",
    "changes of its status": f"again for (const value of ['live', 'disconnected']) {STATUS}",
    "timers": "const more = () => setTimeout(more); for (let i = 0; i < 1000; i++) more();",
}


def code_of(body: str, domain: str, port: int = 9, is_endless: bool = False) -> str:
    """
    A stub of the domain that says it is live, and does this from then on, endlessly or once. What begins with
    `again` is done again and again.
    """
    if body == "silent":
        return activating("")
    if body.startswith(("throw", "for (const value of ['cr")):
        return activating(body)
    body = body.replace("OWN", domain).replace("PORT", str(port))
    body = body.replace("TIMES", "1e9" if is_endless else "1")
    once = body.removeprefix("again")
    if body != once:
        loop = f"const again = () => {{ {once}; setTimeout(again) }}; for (let i = 0; i < 20; i++) again();"
        body = loop if is_endless else once
    return activating(f"{SAY_LIVE} setTimeout(() => {{ {body} }})")
