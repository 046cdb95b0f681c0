/**
 * The protostub: between a runtime's bus and the session at the node.
 */

import { Session } from './session.js';

const MAX_MESSAGE = 8388608; // bytes; the node's default

/** Types whose sender waits for an answer, and is given one when the message cannot be carried. */
const SILENT = ['response', 'update', 'event', 'receipt', 'ack'];

export default class Protostub {
  /** `world` has what a browser offers; tests bring their own. */
  constructor(world = globalThis) {
    this._world = world;
    this.status = '';
  }

  get name() {
    return 'MsgnodeProtoStub';
  }

  /** Called by the runtime: `url` is the stub's own address on `bus`. */
  _start(url, bus, config) {
    const given = typeof config === 'string' ? JSON.parse(config) : config;
    if (!url || !bus || !given?.url || !given.runtimeURL) {
      throw new Error("a protostub needs its address, a bus, and 'url' and 'runtimeURL' in its configuration");
    }
    this._url = url;
    this._bus = bus;
    this._config = { maxBuffer: 2 * MAX_MESSAGE, maxMessage: MAX_MESSAGE, ...given };
    this._session = new Session(this._world, this._config, {
      live: (news) => this._say('live', news),
      away: (why, isFinal) => {
        const more = { ...(why && { desc: why }), ...(isFinal && { final: true }) };
        if (isFinal || this.status !== 'disconnected') this._say('disconnected', more);
      },
      message: (message) => this._deliver(message),
      refuse: (data, code, why) => this._refuse(JSON.parse(data), code, why),
    });
    this._say('created');
    bus.addListener('*', (message) => this._take(message));
    this.connect();
  }

  /** Open the session; the stub does so by itself at the start, and comes back by itself. */
  connect() {
    if (this.status !== 'live') {
      if (this.status === 'created') this._say('in-progress');
      this._session.open();
    }
  }

  /** End the session, with every address it holds. */
  disconnect() {
    this._session.close();
  }

  _take(message) {
    const { body } = message;
    // What this stub put on the bus itself does not go back.
    if (message.from === this._url || body?.via === this._url) return;
    const markable = body === undefined || (typeof body === 'object' && !Array.isArray(body));
    const marked = markable ? { ...body, via: this._url } : body;
    const data = JSON.stringify({ ...message, body: marked });
    if (this._isTooLong(data)) {
      this._refuse(message, 413, `a message has at most ${this._config.maxMessage} bytes`);
    } else if (!this._session.send(data, message.ttl)) {
      this._refuse(message, 503, this._session.trouble);
    }
  }

  _isTooLong(data) {
    const most = this._config.maxMessage;
    return data.length * 3 > most && new TextEncoder().encode(data).length > most;
  }

  _deliver(message) {
    if (message.body?.via === this._url) return;
    try {
      this._bus.postMessage({ ...message, body: { ...message.body, via: this._url } });
    } catch (why) {
      // A mistake of the application: it is shown there, and the session goes on.
      this._world.setTimeout(() => {
        throw why;
      });
    }
  }

  /** Tell the sender, as the node would. */
  _refuse({ id, type, from, to, receipt }, code, desc) {
    if (receipt === true) {
      const body = { code, description: desc, to, recipients: 0, via: this._url };
      this._bus.postMessage({ id, type: 'receipt', from: 'mn:/receipt', to: from, body });
    }
    if (SILENT.includes(`${type}`.toLowerCase()) || typeof to !== 'string') return;
    const body = { code, desc, description: desc, via: this._url };
    this._bus.postMessage({ id, type: 'response', from: to, to: from, body });
  }

  _say(value, more) {
    this.status = value;
    const body = { value, ...more };
    this._bus.postMessage({ type: 'update', from: this._url, to: `${this._url}/status`, body });
  }
}
