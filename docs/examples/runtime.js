/**
 * A small runtime for a page of your own: a bus of listeners by address, with the node's protostub behind it.
 */

/** What a listener returns for a request that is none of its business, which is answered 501; and to answer nothing. */
export const NOT_HANDLED = Symbol('not handled');
export const KEEP = Symbol('keep');

const NEWS = /^(update|response|receipt|event|ack)$/i; // nobody awaits an answer to these
const NODE = /^(mn|domain):/i; // nothing is passed on to a node
const MULTICAST = /\/(changes|registration|status)$|\/children\//;

const refusal = (code, text, reason) => ({ code, desc: text, description: text, ...(reason && { reason }) });
const asBody = (answer) => (typeof answer === 'object' && !Array.isArray(answer) ? answer : { value: answer });
const traced = (transaction) => (transaction === undefined ? {} : { transaction });

/** Is it from who was asked, from the node, or from whom the request was passed on to, who knows its transaction? */
const answers = (asked, { from, transaction }) =>
  from === asked.to || `${from}`.startsWith('mn:') || (asked.transaction && transaction === asked.transaction);

export class Runtime {
  /** `node`: where the node is, such as https://mn.example.org; `url`: the name of this runtime. */
  static async at(node, url) {
    const where = `${node}/.well-known/protocolstub`;
    const { default: Protostub } = await import(`${where}/default.mjs`);
    const { configuration } = await (await fetch(`${where}/default.ps.json`)).json();
    return new Runtime(new Protostub(), url, configuration);
  }

  constructor(stub, url, configuration) {
    this.url = url;
    this.sm = `domain://msg-node.${new URL(url.replace(/^runtime/, 'http')).host}/sm`;
    this._listeners = new Map();
    this._requests = new Map();
    this._deliveries = new Map();
    this._id = Date.now(); // not that of a request from before a reload
    this._stub = stub;
    this._configuration = { ...configuration, runtimeURL: url };
  }

  /** `status` is told where the stub is: live, disconnected. */
  connect(status) {
    const bus = {
      addListener: (address, listener) => (this._leave = listener),
      postMessage: (message) => this._arrive(message),
    };
    const stubURL = `${this.url}/protostub`;
    this._listeners.set(`${stubURL}/status`, ({ body }) => status(body));
    this._stub._start(stubURL, bus, this._configuration);
  }

  /** Send, and forget.  What is in `more` goes into the header: priority, ttl, receipt. */
  send(type, from, to, body, more) {
    const id = this._id++;
    this._leave({ id, type, from, to, body, ...more });
    return id;
  }

  /** Send, and wait for the response.  With `forward: true` in `more` whoever gets it may have another answer. */
  request(type, from, to, body, more) {
    const transaction = more?.forward && (more.transaction ?? crypto.getRandomValues(new Uint32Array(4)).join('-'));
    return new Promise((resolve, reject) => {
      const refused = (body) => reject(Object.assign(new Error(body.desc), { body }));
      const answered = ({ body }) => (body.code < 300 ? resolve(body) : refused(body));
      const id = this.send(type, from, to, body, transaction ? { ...more, transaction } : more);
      this._requests.set(id, { to, transaction, answered });
    });
  }

  /**
   * Let another address answer.  Where the sender allows it (`forward: true`) that answers by itself; else, and at a
   * node, it is asked from here, and its answer passed on.
   */
  forward(message, to) {
    const { type, body, transaction } = message;
    if (message.forward !== true || NODE.test(to)) return this.request(type, this.url, to, body, traced(transaction));
    this._leave({ ...message, to });
    return KEEP;
  }

  /**
   * Hear what is sent to an address.  What a listener returns, or promises, for a request is the answer's body, perhaps the
   * one it got, changed; or its `value`, if it is no object.  With `since` in `more`, what a kept object published
   * after that version comes first.
   */
  async subscribe(address, listener, more) {
    this._listeners.set(address, listener);
    return this.request('subscribe', `${this.url}/sm`, this.sm, { resources: [address], ...more });
  }

  /**
   * Send, and wait for the receipt: its body, which has the `path` of a message to another domain.  `waiting` is told
   * that a message waits for a route; the receipt comes later.
   */
  deliver(type, from, to, body, waiting) {
    return new Promise((resolve) => {
      const id = this.send(type, from, to, body, { receipt: true });
      this._deliveries.set(id, { resolve, waiting });
    });
  }

  /** Be told what became of messages that were sent by `send` with `receipt`. */
  receipts(listener) {
    this._receipts = listener;
  }

  _arrive(message) {
    if (message.type === 'receipt') return this._settle(message);
    const asked = message.type === 'response' && this._requests.get(message.id);
    if (asked && answers(asked, message)) {
      this._requests.delete(message.id);
      return asked.answered(message);
    }
    const listener = this._listeners.get(message.to);
    if (listener) this._handle(message, listener);
  }

  _settle(message) {
    const sent = `${message.from}`.startsWith('mn:') && this._deliveries.get(message.id);
    if (!sent) return this._receipts?.(message);
    if (message.body.final === false) return sent.waiting?.(message.body);
    this._deliveries.delete(message.id);
    sent.resolve(message.body);
  }

  async _handle(message, listener) {
    let answer;
    try {
      answer = await listener(message);
    } catch (why) {
      answer = why?.body; // of who was asked for it, and refused
      if (!answer) console.error(why);
      answer ??= refusal(500, 'the recipient failed over this message');
    }
    if (answer === KEEP || NEWS.test(message.type) || MULTICAST.test(message.to)) return;
    if (answer === NOT_HANDLED) answer = refusal(501, 'not processed', 'not-handled');
    const { id, from, to, transaction } = message;
    const body = { code: 200, ...asBody(answer ?? {}) };
    this._leave({ id, type: 'response', from: to, to: from, body, ...traced(transaction) });
  }
}
