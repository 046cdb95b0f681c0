/**
 * A small runtime for a page of your own: a bus of listeners by address, with the node's protostub behind it.
 */

/** What a listener returns for a request that is none of its business, which is answered 501; and to answer nothing. */
export const NOT_HANDLED = Symbol('not handled');
export const KEEP = Symbol('keep');

const NEWS = /^(update|response|receipt|event|ack)$/i; // nobody awaits an answer to these
const MULTICAST = /\/(changes|registration|status)$|\/children\//;

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

  /** Send, and wait for the response. */
  request(type, from, to, body) {
    return new Promise((resolve, reject) => {
      const answered = ({ body }) => (body.code < 300 ? resolve(body) : reject(new Error(body.desc)));
      this._requests.set(this.send(type, from, to, body), answered);
    });
  }

  /** Let another address, none of the node, answer a request whose sender allows it: `forward: true` in its header. */
  forward(message, to) {
    this._leave({ ...message, to });
    return KEEP;
  }

  /**
   * Hear what is sent to an address.  What a listener returns, or promises, for a request is the answer's body: perhaps the
   * one it got, changed.
   */
  async subscribe(address, listener) {
    this._listeners.set(address, listener);
    await this.request('subscribe', `${this.url}/sm`, this.sm, { resources: [address] });
  }

  /** Be told what became of messages that were sent with `receipt`. */
  receipts(listener) {
    this._receipts = listener;
  }

  _arrive(message) {
    if (message.type === 'receipt') return this._receipts?.(message);
    const waiting = message.type === 'response' && this._requests.get(message.id);
    if (waiting) {
      this._requests.delete(message.id);
      return waiting(message);
    }
    const listener = this._listeners.get(message.to);
    if (listener) this._handle(message, listener);
  }

  async _handle(message, listener) {
    let answer;
    try {
      answer = await listener(message);
    } catch (why) {
      answer = { code: 500, desc: 'the recipient failed over this message' };
      console.error(why);
    }
    if (answer === KEEP || NEWS.test(message.type) || MULTICAST.test(message.to)) return;
    if (answer === NOT_HANDLED) answer = { code: 501, desc: 'not processed', reason: 'not-handled' };
    const { id, from, to, transaction } = message;
    const body = { code: 200, ...answer };
    this._leave({ id, type: 'response', from: to, to: from, body, ...(transaction !== undefined && { transaction }) });
  }
}
