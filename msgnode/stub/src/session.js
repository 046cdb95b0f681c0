/**
 * The runtime's session at the node: it is counted, acknowledged and resumed over any number of links.
 *
 * It is the client's half of "Acknowledged resume" in the node's protocol.md.  A
 * node that knows no resume is spoken to as well; there nothing is sent twice,
 * and what was on its way when the link broke is lost.
 */

import { backOff, wait } from './closing.js';
import { survivePages } from './page_state.js';
import { Outbox } from './outbox.js';
import { PollingLink, pollURL } from './polling.js';
import { WebSocketLink, webSocketURL } from './websocket.js';

const NODE = 'mn:/session';
const ACK_AFTER = 64; // messages
const ACK_EVERY = 400; // milliseconds; the protocol says half a second
const PATIENCE = 10000; // for an identity token, an answer to `open`, and to a ping
const NOBODY = 'no identity token';
const QUIET = 20000; // after so long without a word the node is pinged
const FIRST_PROBE = 1000; // is there a WebSocket again?  Then after four times as long, up to an hour
const STEADY = 10000; // a link that lived so long was a good one: the next attempt is soon

export class Session {
  /**
   * `on.live(news)`, `on.away(why, isFinal, code)`, `on.message(message)`, and `on.refuse(data, code, why)` for what is
   * given up.  If they are there: `on.renewal()` has the JSON of messages that a new session needs before all others,
   * and `on.acknowledged()` is called when the node has more of ours.
   */
  constructor(world, config, on) {
    this._world = world;
    this._config = config;
    this._on = on;
    this._url = webSocketURL(config.url);
    this._ids = this._attempt = 0;
    this._polls = !world.WebSocket; // by which link the next attempt is made
    this._why = ''; // it ended, and nobody is to come back
    this._outbox = new Outbox(config.maxBuffer, on.refuse);
    this._forget();
    if (config.persist !== false) survivePages(world, `msgnode ${config.runtimeURL} ${config.url}`, this);
    world.addEventListener?.('online', () => this._online());
  }

  _forget() {
    this.token = this._epoch = '';
    this._entered = false; // the node has once let it in
    this.received = this._told = 0; // messages of the node; how many of them it knows we have
  }

  /** What a page leaves for its next life; null if there is nothing to go on with. */
  get state() {
    const { acknowledged, entries } = this._outbox;
    return this.token && !this._why ? [this.token, this._epoch, this.received, acknowledged, entries] : null;
  }

  set state([token, epoch, received, acknowledged, entries]) {
    [this.token, this._epoch, this.received] = [token, epoch, received];
    this._entered = true;
    this._outbox.acknowledged = acknowledged;
    this._outbox.restore(entries);
    this._outbox.total = entries.length;
  }

  /** How many messages were ever sent, and how many of them the node has, or nobody can have any more. */
  get total() {
    return this._outbox.total;
  }

  get gone() {
    return this._outbox.total - this._outbox.entries.length;
  }

  /** Be connected, from now on. */
  open() {
    this._why = '';
    if (!this._link && !this._timer) this._connect();
  }

  /** End the session, at the node too unless it is to stay there; fulfilled when the link is closed. */
  async close(stays) {
    if (this._live && this._counted && this.received > this._told) this._acknowledge();
    const told = this._live && !stays && this._link.tell(this._message('close'));
    const dropped = this._stop('closed', 1000);
    if (!stays) this._forget();
    await told;
    await dropped;
  }

  /** Send, now or when there is a link, but not after `ttl` seconds; false if there is no room. */
  send(data, ttl) {
    if (this._why || !this._outbox.hasRoom(data)) return false;
    if (this._live && !this._counted) this._put(data);
    else {
      const number = this._outbox.add(data, ttl > 0 ? this._world.Date.now() + 1000 * ttl : 0);
      if (this._live) this._put(data, number);
    }
    return true;
  }

  /** Why there is no room, in words. */
  get trouble() {
    return this._why ? `the node ended it: ${this._why}` : 'too much waits for the node';
  }

  // -- who it is -------------------------------------------------------------

  get _renews() {
    return typeof this._config.identity === 'function';
  }

  async _login(use, fail) {
    try {
      const token = await this._config.identity();
      if (typeof token !== 'string' || !token) throw new Error('expected a string');
      use(token);
    } catch (why) {
      fail(why);
    }
  }

  // -- links -----------------------------------------------------------------

  _connect() {
    this._timer = null;
    const { identity } = this._config;
    if (!this._renews) return this._begin(identity);
    this._heard = true; // what goes wrong now says nothing about this kind of link
    this._deadline(PATIENCE, `${NOBODY}: none came within ${PATIENCE / 1000} s`);
    const turn = (this._link = { drop() {} }); // there is no link before there is a token
    this._login(
      (token) => this._link === turn && this._begin(token),
      (why) => this._link === turn && this.lost(1006, `${NOBODY}: ${why?.message || why}`),
    );
  }

  /** Make the link, and open the session with the identity token, if there is one. */
  _begin(token) {
    this._heard = false;
    this._deadline(PATIENCE, 'no answer');
    const kind = this._polls ? PollingLink : WebSocketLink;
    const url = this._polls ? this._config.poll || pollURL(this._config.url) : this._url;
    const opening = this._message(this.token ? 're-open' : 'open', {
      ...(this._config.resume !== false && {
        resume: this._epoch ? { epoch: this._epoch, received: this.received } : true,
      }),
      ...(token && { token }),
    });
    this._asked = opening.id;
    try {
      this._link = new kind(this._world, url, opening, this);
    } catch (why) {
      this.lost(1006, why.message);
    }
  }

  _message(type, body) {
    const { runtimeURL } = this._config;
    const from = runtimeURL + (type === 're-open' ? `/${this.token}` : '');
    // Who has no name yet is given one by the node.
    return { id: ++this._ids, type, ...(runtimeURL && { from }), to: NODE, body };
  }

  /** The link of this session is over. */
  lost(code, reason) {
    const { setTimeout, Date, Math } = this._world;
    const was = this._live;
    // Who was let in has a token that ended; the next may do, if not the first that is given.
    const stale = code === 4401 && this._entered && this._renews;
    if (stale) reason = `the identity token is no longer taken (${reason}); trying again`;
    const ended = code === 401 || stale;
    const asked = wait(code, reason) ?? (ended ? 0 : null);
    this._end();
    if (code === 401) this.token = this._epoch = '';
    if (code === 1009) this._outbox.dropLongest(413, 'too long for the node');
    if (asked === null) return void this._stop(reason || `${code}`, code);
    if (was) this._attempt = Date.now() - was > STEADY ? 0 : Math.min(this._attempt, 2);
    // Where one kind of link brings nothing at all, the other may.
    if (!was && !this._heard && !stale) this._polls = !this._polls || !this._world.WebSocket;
    this._timer = setTimeout(() => this._connect(), backOff(this._attempt++, asked, Math.random()));
    this._on.away(reason, false, code);
  }

  _end() {
    this._world.clearTimeout(this._watch);
    this._world.clearTimeout(this._acking);
    this._acking = null;
    const dropped = this._link?.drop();
    this._link = this._live = null;
    return dropped;
  }

  _stop(why, code) {
    const dropped = this._end();
    this._world.clearTimeout(this._timer);
    this._timer = null;
    this._why = why;
    this._on.away(why, true, code);
    this._outbox.dropAll(503, this.trouble);
    return dropped;
  }

  _online() {
    if (this._live) {
      if (!this._polls) this._ping();
    } else if (!this._why) {
      this._world.clearTimeout(this._timer);
      this._end();
      this._polls = !this._world.WebSocket;
      this._connect();
    }
  }

  // -- what comes ------------------------------------------------------------

  heard(message) {
    this._heard = true;
    if (message.from !== NODE) {
      this._on.message(message);
      if (this._counted) this._count();
    } else if (message.type === 'ack') {
      this.acknowledged(message.body.received);
    } else if (!this._live && message.id === this._asked) {
      this._config.runtimeURL = this._config.runtimeURL || message.to;
      this._answered(message.body || {});
    } else if (message.body?.attribute === 'token') {
      this._renew();
    }
  }

  /** The identity token is about to end: show a newer one, if there is a way to have one. */
  _renew() {
    const link = this._link;
    if (!this._renews) return;
    // Without one the node ends the connection, and the next attempt says why.
    this._login((token) => this._live && this._link === link && link.tell(this._message('update', { token })), () => {});
  }

  _count() {
    this.received++;
    if (this.received - this._told >= ACK_AFTER) this._acknowledge();
    else if (!this._acking) this._acking = this._world.setTimeout(() => this._acknowledge(), ACK_EVERY);
  }

  _acknowledge() {
    this._world.clearTimeout(this._acking);
    this._acking = null;
    this._told = this.received;
    this._link?.tell({ ...this._message('ack', { received: this.received }), id: 0 });
  }

  /** The node has that many of our messages. */
  acknowledged(number) {
    this._outbox.forget(number);
    this._on.acknowledged?.();
  }

  /** The first message that is not acknowledged was refused as it stands. */
  refused(code, why) {
    this._outbox.dropFirst(code, why);
  }

  // -- the answer to open ----------------------------------------------------

  _answered({ code, desc, runtimeToken, resume }) {
    if (code !== 200) {
      this.token = this._epoch = '';
      return this.lost(1006, desc || `${code}`);
    }
    const known = this.token && !runtimeToken;
    const first = (this._entered && !known && this._on.renewal?.()) || [];
    this.token = runtimeToken || this.token;
    this._entered = true;
    this._counted = !!resume;
    if (resume && resume.epoch === this._epoch) {
      this.received += resume.missed;
      this._outbox.forget(resume.received);
    } else {
      this._epoch = resume ? resume.epoch : '';
      this.received = this._outbox.acknowledged = 0;
    }
    this._told = this.received;
    this._outbox.prepend(first);
    this._outbox.dropStale(this._world.Date.now(), 504, 'it waited longer than its ttl');
    if (!this._link) return; // whoever was told of it wanted no more
    this._live = this._world.Date.now();
    this._outbox.each((data, number) => this._put(data, number));
    if (!resume) this._outbox.restore([]);
    this._on.live({ resumed: !!known, missed: resume ? resume.missed : null });
    if (!this._live) return;
    this._on.acknowledged?.();
    if (this._polls && this._world.WebSocket) this._probe(FIRST_PROBE);
    this._listen();
  }

  _put(data, number) {
    this._link.send(this._dressed(data), number);
  }

  /** The message, with the session's token in its header where the node wants it there; it goes no further. */
  _dressed(data) {
    return this._config.token ? `${data.slice(0, -1)},"token":"${this.token}"}` : data;
  }

  // -- is the node still there? ----------------------------------------------

  /** Look again after a while whether something was heard. */
  _listen() {
    const { setTimeout, clearTimeout } = this._world;
    clearTimeout(this._watch);
    this._heard = false;
    // A poll is its own sign of life, and other nodes know no ping.
    if (!this._counted || this._polls) return;
    this._watch = setTimeout(() => (this._heard ? this._listen() : this._ping()), QUIET);
  }

  _ping() {
    this._link.tell(this._message('ping'));
    this._heard = false;
    this._deadline(PATIENCE, 'no sign of life');
  }

  _deadline(time, why) {
    const { setTimeout, clearTimeout } = this._world;
    clearTimeout(this._watch);
    this._watch = setTimeout(() => {
      if (this._live && this._heard) this._listen();
      else this.lost(1006, why);
    }, time);
  }

  /** Go back from polling to WebSocket as soon as it can be had; the counts go on. */
  _probe(time) {
    const { setTimeout, WebSocket } = this._world;
    const link = this._link;
    setTimeout(() => {
      if (this._link !== link) return;
      const socket = new WebSocket(this._url);
      socket.onerror = () => this._probe(Math.min(4 * time, 3600000));
      socket.onopen = () => {
        socket.close();
        if (this._link !== link) return;
        this._polls = false;
        this._end();
        this._connect();
      };
    }, time);
  }
}
