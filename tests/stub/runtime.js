/**
 * A runtime with a small bus and the stub, in a world of memory; and the node's half of a handshake.
 */

import Protostub from '../../msgnode/stub/src/protostub.js';
import { World } from './world.js';

export const RT = 'runtime://example.org/1';
export const P = 'runtime://example.org/protostub/1';
export const URL_ = 'wss://mn.example.org/ws';
export const TOKEN = `mns_${'t'.repeat(43)}`;

export class Runtime {
  constructor({ world = new World(), ...config } = {}) {
    this.world = world;
    this.statuses = [];
    this.heard = [];
    this.stub = new Protostub(world);
    const bus = {
      addListener: (address, listener) => (this.post = listener),
      postMessage: (message) => {
        if (message.to === `${P}/status`) this.statuses.push(message.body);
        else this.heard.push(message);
      },
    };
    this.stub._start(P, bus, { url: URL_, runtimeURL: RT, ...config });
  }

  get socket() {
    return this.world.socket;
  }

  get status() {
    return this.statuses.at(-1).value;
  }

  /** The node answers what opens the session, and it is the only thing it was sent. */
  accept(body) {
    this.world.advance(0);
    const [opening, ...others] = this.socket.take();
    if (others.length) throw new Error(`sent before the answer: ${JSON.stringify(others)}`);
    this.answer(opening, body);
    return opening;
  }

  answer(opening, { token = TOKEN, epoch = 'e1', received = 0, missed = 0, resume } = {}) {
    const told = resume ?? { epoch, received, recovered: missed === 0, missed };
    const body = { code: 200, ...(token && { runtimeToken: token }), ...(told && { resume: told }) };
    this.socket.say({ id: opening.id, type: 'response', from: 'mn:/session', to: opening.from, body });
  }

  /** What the node was sent, without what is not counted. */
  sent() {
    return this.socket.take().filter((message) => message.to !== 'mn:/session');
  }

  acks() {
    return this.socket.take().filter((message) => message.type === 'ack');
  }
}

/** A message to somebody else, and one from there. */
export const out = (id, more) => ({
  id, type: 'update', from: 'hyperty://example.org/a', to: 'hyperty://example.org/b', body: { value: id }, ...more,
});
export const comes = (id, more) => out(id, { body: { value: id, via: 'another' }, ...more });
export const ids = (messages) => messages.map(({ id }) => id);
