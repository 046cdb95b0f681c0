/**
 * A link to the node by long-polling, where something on the way lets no WebSocket through.
 *
 * One GET waits for messages, one POST at a time sends some; both are counted, so
 * what is repeated after a loss is not doubled.  The node's protocol.md has the rules.
 */

const HOLD = 25; // seconds that a GET waits at the node
const PATIENCE = 15000; // milliseconds for an answer, beside
const MOST = 262144; // characters in one POST, if it is more than one message

export class PollingLink {
  constructor(world, url, opening, on) {
    this.batched = true;
    this._world = world;
    this._url = url;
    this._on = on;
    this._waiting = [];
    this._single = false; // something in a list was refused: one at a time
    this._requests = new Set();
    this._run(this._open(opening));
  }

  send(data, number) {
    this._waiting.push([data, number]);
    if (!this._posting) this._run((this._posting = this._post()));
  }

  /** The GETs acknowledge by themselves, and are their own sign of life. */
  tell(message) {
    if (message.type !== 'close' && message.type !== 'update') return;
    const headers = { Authorization: `Bearer ${this._on.token}` };
    // `keepalive`: the page may be about to go.
    const asked = { method: 'POST', body: JSON.stringify(message), headers, keepalive: true };
    return this._world.fetch(this._url, asked).catch(() => {});
  }

  drop() {
    this._on = null;
    this._requests.forEach((request) => request.abort());
  }

  async _run(work) {
    try {
      await work;
    } catch (why) {
      const on = this._on;
      this.drop();
      if (on) on.lost(why.code || 1006, why.reason || '');
    }
  }

  async _open(opening) {
    const answer = await this._ask('POST', '', JSON.stringify(opening), '');
    if (this._on) this._on.heard(answer.messages[0]);
    while (this._on) {
      const got = await this._ask('GET', `?wait=${HOLD}&after=${this._on.received}`);
      if (!this._on) return;
      if (!got) continue;
      got.messages.forEach((message) => this._on && this._on.heard(message));
      if (this._on) this._on.received = got.cursor;
    }
  }

  async _post() {
    await null; // whatever is sent in the same turn goes in one request
    while (this._on && this._waiting.length) {
      const some = this._batch();
      const first = some[0][1];
      try {
        const answer = await this._ask('POST', `?seq=${first}`, `[${some.map(([data]) => data)}]`);
        if (this._on) this._on.acknowledged(answer.received);
        this._waiting.splice(0, some.length);
      } catch (why) {
        if (why.status !== 400 && why.status !== 413) throw why;
        if (!this._single) this._single = true;
        else this._refused(why);
      }
    }
    this._posting = null;
  }

  _batch() {
    let size = 0;
    const end = this._waiting.findIndex(([data]) => (size += data.length) > MOST);
    return this._waiting.slice(0, this._single ? 1 : end < 0 ? undefined : Math.max(end, 1));
  }

  /** The others move up: the node never had this one. */
  _refused(why) {
    this._waiting.shift();
    this._waiting.forEach((waiting) => waiting[1]--);
    if (this._on) this._on.refused(why.status, why.reason);
  }

  async _ask(method, query, body, token = this._on.token) {
    const request = new this._world.AbortController();
    this._requests.add(request);
    const timer = this._world.setTimeout(() => request.abort(), PATIENCE + (body ? 0 : HOLD * 1000));
    try {
      const headers = token ? { Authorization: `Bearer ${token}` } : {};
      const asked = { method, body, headers, signal: request.signal, cache: 'no-store' };
      const answer = await this._world.fetch(this._url + query, asked);
      if (answer.status === 204) return null;
      const told = await answer.json();
      if (!answer.ok) throw failure(answer, told.desc, token);
      return told;
    } finally {
      this._world.clearTimeout(timer);
      this._requests.delete(request);
    }
  }
}

/**
 * A status as the close code that means the same.  401 alone has none: the token is void, and a new session is due.
 */
function failure(answer, desc, token) {
  const { status } = answer;
  const after = status !== 409 && answer.headers.get('Retry-After');
  const code = status === 401 && token ? 401 : { 401: 4401, 403: 4403, 409: 4409, 410: 4410 }[status] || 1013;
  return { status, code, reason: after ? `${desc}; retry_after=${after}` : desc };
}

/** Where the node polls, beside the address of its WebSocket. */
export const pollURL = (url) => url.replace(/^ws/, 'http').replace(/(\/ws)?\/?(\?.*)?$/, '/poll');
