/**
 * What the stub finds in a browser, in memory: WebSockets, storage, and a clock that moves when it is told to.
 */

export class World {
  constructor() {
    this.now = 1e12;
    this.timers = [];
    this.sockets = [];
    this.requests = [];
    this.listeners = {};
    this.stored = new Map();
    this.blocked = false; // no WebSocket can be made
    const world = this;
    this.Date = { now: () => world.now };
    this.Math = { random: () => 0, min: Math.min };
    this.AbortController = AbortController;
    this.console = console;
    this.setTimeout = (act, time = 0) => {
      const timer = { act, at: world.now + time };
      world.timers.push(timer);
      return timer;
    };
    this.clearTimeout = (timer) => {
      world.timers = world.timers.filter((other) => other !== timer);
    };
    this.addEventListener = (name, act) => (world.listeners[name] ??= []).push(act);
    this.sessionStorage = {
      getItem: (key) => world.stored.get(key) ?? null,
      setItem: (key, value) => world.stored.set(key, value),
      removeItem: (key) => world.stored.delete(key),
    };
    this.WebSocket = class extends Socket {
      constructor(url) {
        super(world, url);
      }
    };
    this.fetch = (url, asked) =>
      new Promise((resolve, reject) => {
        const answer = (status, body, headers = {}) =>
          resolve({
            status,
            ok: status < 300,
            json: async () => body,
            headers: { get: (name) => headers[name] ?? null },
          });
        asked.signal?.addEventListener('abort', () => reject(new Error('aborted')));
        world.requests.push({ url, ...asked, answer, fail: () => reject(new TypeError('network')) });
      });
  }

  /** The connection the stub made last. */
  get socket() {
    return this.sockets.at(-1);
  }

  happen(event) {
    (this.listeners[event] ?? []).forEach((act) => act({}));
  }

  /** Let time pass; what is due happens in its order. */
  advance(milliseconds) {
    const end = this.now + milliseconds;
    for (;;) {
      const due = this.timers.filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at)[0];
      if (!due) break;
      this.clearTimeout(due);
      this.now = Math.max(this.now, due.at);
      due.act();
    }
    this.now = end;
  }

  /** Let promises go on that have what they wait for. */
  settle() {
    return new Promise((resolve) => setImmediate(resolve));
  }

  /** A page that is loaded in the same tab. */
  reloaded() {
    this.happen('pagehide');
    const next = new World();
    next.stored = this.stored;
    return next;
  }
}

/** A WebSocket, and the node at its other end: `take` what was sent, `say`, `close`. */
class Socket {
  constructor(world, url) {
    this.url = url;
    this.sent = [];
    this.isClosed = false;
    world.sockets.push(this);
    if (world.blocked) world.setTimeout(() => (this.onerror?.(), this.close(1006)));
    else world.setTimeout(() => this.onopen?.());
  }

  send(data) {
    this.sent.push(JSON.parse(data));
  }

  take() {
    return this.sent.splice(0);
  }

  say(...messages) {
    messages.forEach((message) => this.onmessage?.({ data: JSON.stringify(message) }));
  }

  /** By the stub, or with a code by the node. */
  close(code, reason = '') {
    this.isClosed = true;
    if (code) this.onclose?.({ code, reason });
  }
}
