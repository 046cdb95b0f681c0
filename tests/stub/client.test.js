/**
 * The TypeScript client as it is built, in a world of memory; what it does at a real node is in
 * tests/integration/test_clients.py.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client, Closed, Full, NOT_HANDLED, Refused, TimedOut } from '../../msgnode/stub/client.mjs';
import { World } from './world.js';

const RT = 'runtime://localhost/1';
const SM = 'domain://msg-node.localhost/sm';
const NEWS = 'comm://localhost/o/changes';

/** A client, and the node at the other end of its connection. */
class Fixture {
  constructor(options = {}) {
    this.world = new World();
    this.reported = [];
    this.world.console = { error: (error) => this.reported.push(error) };
    this.client = new Client('ws://localhost/ws', { runtime: RT, ...options }, this.world);
    this.states = [];
    this.client.on('state', (state) => this.states.push(state));
  }

  /** Connect, and let the node answer; what the client sent to open. */
  accept({ epoch = 'e1', received = 0, missed = 0, token = 'mns_1', to = RT } = {}) {
    this.connecting = this.client.connect();
    return this.answer({ epoch, received, missed, token, to });
  }

  answer({ epoch = 'e1', received = 0, missed = 0, token = 'mns_1', to = RT } = {}) {
    this.world.advance(0);
    const [opening] = this.world.socket.take();
    const body = { code: 200, ...(token && { runtimeToken: token }), resume: { epoch, received, missed } };
    this.world.socket.say({ id: opening.id, type: 'response', from: 'mn:/session', to, body });
    return opening;
  }

  lose() {
    this.world.socket.close(1006);
    this.world.advance(1000);
  }

  ack(received) {
    this.say({ id: 0, type: 'ack', from: 'mn:/session', to: RT, body: { received } });
  }

  say(...messages) {
    this.world.socket.say(...messages);
  }

  sent() {
    return this.world.socket.take();
  }
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test('after a new session its addresses are bound before anything else is sent', async () => {
  const it = new Fixture();
  it.accept();
  const subscribing = it.client.subscribe([NEWS, 'hyperty://localhost/a'], () => {});
  const [{ id }] = it.sent();
  it.say({ id, type: 'response', from: SM, to: RT, body: { code: 200 } });
  await subscribing;

  it.ack(1);
  it.world.socket.close(1006);
  it.client.publish(NEWS, 1);
  const flushed = it.client.flushed();
  it.world.advance(1000);
  it.answer({ epoch: 'e2', token: 'mns_2' });
  const [first, second] = it.sent();

  assert.deepEqual([first.type, first.body.resources], ['subscribe', [NEWS, 'hyperty://localhost/a']]);
  assert.deepEqual([second.type, second.body], ['update', { value: 1 }]);
  let done = false;
  flushed.then(() => (done = true));
  it.ack(1);
  await settled();
  assert.equal(done, false);
  it.ack(2);
  await flushed;
});

test('all who wait for the session are told when it is open', { timeout: 5000 }, async () => {
  const fixture = new Fixture();
  const first = fixture.client.connect();

  fixture.accept();

  await Promise.all([first, fixture.connecting]);
  assert.deepEqual([true], fixture.states.map(({ open }) => open));
});

test('a session that is resumed binds nothing again', () => {
  const it = new Fixture();
  it.accept();
  it.lose();

  const opening = it.answer({ token: null });

  assert.equal(opening.type, 're-open');
  assert.deepEqual(it.sent(), []);
  assert.deepEqual(it.states.at(-1), { open: true, resumed: true, missed: 0 });
});

test('messages that are lost are counted', () => {
  const it = new Fixture();
  it.accept();
  it.lose();

  it.answer({ token: null, missed: 3 });

  assert.equal(it.client.missed, 3);
});

test('an asynchronous handler that is serial has one message at a time', async () => {
  const it = new Fixture();
  it.accept();
  const begun = [];
  const open = [];
  const handler = ({ body }) => new Promise((resolve) => (begun.push(body.n), open.push(resolve)));
  it.client.handle(`${RT}/serial`, handler, { serial: true });
  const request = (n) => ({ id: n, type: 'read', from: 'runtime://localhost/2', to: `${RT}/serial`, body: { n } });

  it.say(request(1), request(2));
  await settled();
  assert.deepEqual(begun, [1]);
  open[0]('first');
  await settled();
  open[1]('second');
  await settled();

  assert.deepEqual(begun, [1, 2]);
  assert.deepEqual(it.sent().map(({ body }) => body.value), ['first', 'second']);
});

test('the handler of everything is asked last, for what others do not handle', () => {
  const it = new Fixture();
  it.accept();
  it.client.handle(`${RT}/a`, () => NOT_HANDLED);
  it.client.handle('*', (message) => (message.body.mine ? 'mine' : NOT_HANDLED));
  const request = (id, to, body) => ({ id, type: 'read', from: 'runtime://localhost/2', to, body });

  it.say(request(1, `${RT}/a`, { mine: true }), request(2, `${RT}/b`, { mine: true }), request(3, `${RT}/a`, {}));

  assert.deepEqual(it.sent().map(({ body }) => body.value ?? body.code), ['mine', 'mine', 501]);
});

test('a request that is forwarded is treated by nodes as its sender asked, and so is the answer', async () => {
  const it = new Fixture();
  it.accept();
  const held = [];
  it.client.handle(`${RT}/a`, (message) => held.push(message.hold()));
  const treated = { priority: 8, bulk: true, log: false, compress: false, encrypt: true, traceparent: '00-1' };
  const request = { id: 1, type: 'read', from: 'runtime://localhost/2', to: `${RT}/a`, body: { n: 1 } };
  it.say({ ...request, transaction: 'T', ttl: 30, ...treated });

  it.world.advance(4000);
  held[0].forward('hyperty://localhost/b');
  const onward = it.sent().find(({ type }) => type === 'read');
  it.say({ id: onward.id, type: 'response', from: onward.to, to: RT, ...treated, body: { code: 200 } });
  await settled();

  const { id, type, from, to, body, ...header } = onward;
  assert.deepEqual([from, to, body, header], [RT, 'hyperty://localhost/b', { n: 1 }, { transaction: 'T', ttl: 26, ...treated }]);
  const [answer] = it.sent();
  const again = { id: 1, type: 'response', from: `${RT}/a`, to: 'runtime://localhost/2', transaction: 'T' };
  assert.deepEqual(answer, { ...again, ...treated, body: { code: 200 } });
});

for (const [what, result] of [
  ['a BigInt', () => ({ n: 1n })],
  ['a cycle', () => { const body = {}; body.body = body; return body; }],
  ['a promise of a BigInt', async () => 1n],
]) {
  test(`a handler that returns what JSON does not have, ${what}, answers 500`, async () => {
    const it = new Fixture();
    it.accept();
    it.client.handle(`${RT}/a`, (message) => (message.body.n ? result() : 'fine'));
    const request = (id, body) => ({ id, type: 'read', from: 'runtime://localhost/2', to: `${RT}/a`, body });

    it.say(request(1, { n: 1 }), request(2, {}));
    await settled();

    const codes = Object.fromEntries(it.sent().map(({ id, body }) => [id, body.code]));
    assert.deepEqual([codes, it.reported.map(({ name }) => name)], [{ 1: 500, 2: 200 }, ['TypeError']]);
  });
}

test('a refusal whose body JSON does not have is answered without it', () => {
  const it = new Fixture();
  it.accept();
  it.client.handle(`${RT}/a`, () => {
    throw new Refused(403, 'not yours', { n: 1n });
  });

  it.say({ id: 1, type: 'read', from: 'runtime://localhost/2', to: `${RT}/a` });

  const refused = { desc: 'not yours', description: 'not yours', code: 403 };
  assert.deepEqual([it.sent().map(({ body }) => body), it.reported.length], [[refused], 1]);
});

test('an answer that JSON does not have is refused where it is given, and another may follow', () => {
  const it = new Fixture();
  it.accept();
  const held = [];
  it.client.handle(`${RT}/a`, (message) => held.push(message.hold()));
  it.say({ id: 1, type: 'read', from: 'runtime://localhost/2', to: `${RT}/a` });

  assert.throws(() => held[0].answer(1n), TypeError);
  held[0].answer('1');

  assert.deepEqual(it.sent().map(({ body }) => body), [{ code: 200, value: '1' }]);
});

test('a handler may return anything that has a `then`', async () => {
  const it = new Fixture();
  it.accept();
  it.client.handle(`${RT}/a`, () => ({ then: (resolve) => setImmediate(resolve, { state: 'on' }) }));

  it.say({ id: 1, type: 'read', from: 'runtime://localhost/2', to: `${RT}/a` });
  assert.deepEqual(it.sent(), []);
  await settled();
  await settled();

  assert.deepEqual(it.sent().map(({ body }) => body), [{ code: 200, state: 'on' }]);
});

/** All that the client needs of generated code. */
const ASK = {
  id: '7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12',
  name: 'ASK',
  slots: [{ field: 'n' }, { field: 'both' }],
  hasSameAnswer: false,
  toBody: ({ n, both }) => ({ N: n, BOTH: both }),
  fromBody({ N, BOTH, ...extra }) {
    if (!Number.isInteger(N)) throw new Error(`N: expected INTEGER, found ${JSON.stringify(N)}`);
    return { n: N, both: BOTH, ...(Object.keys(extra).length && { extra }) };
  },
};
ASK.answer = { ...ASK, answer: undefined, slots: [{ field: 'm' }, { field: 'both' }] };
ASK.answer.toBody = ({ m, both, extra }) => ({ M: m, BOTH: both, ...extra });
ASK.answer.fromBody = ({ M, ...extra }) => ({ m: M, extra });

const asked = (body, header = {}) =>
  ({ id: 1, type: 'read', from: 'runtime://localhost/2', to: `${RT}/a`, record: ASK.id, body, ...header });

test('a record is read without what is the envelope\'s, and goes back with the slots of both directions', () => {
  const it = new Fixture();
  it.accept();
  const got = [];
  it.client.handle(ASK, (message) => {
    got.push(message.record);
    message.reply.m = message.record.n + 1;
  });

  it.say(asked({ N: 1, BOTH: 'b', LATER: 2, code: 200, identity: { sub: 'x' }, via: [] }));

  const [answer] = it.sent();
  assert.deepEqual(got, [{ n: 1, both: 'b', extra: { LATER: 2 } }]);
  assert.deepEqual([answer.record, answer.body], [ASK.id, { code: 200, M: 2, BOTH: 'b' }]);
});

test('a publication whose record does not fit is reported, and reaches no handler', () => {
  const it = new Fixture();
  it.accept();
  it.client.handle(ASK, () => assert.fail('it was handled'));

  it.say(asked({ N: 'x' }, { type: 'update' }));

  assert.deepEqual(it.sent(), []);
  assert.match(`${it.reported}`, /N: expected INTEGER, found "x"/);
});

test('a response that nobody waits for is no request with its record', () => {
  const it = new Fixture();
  it.accept();
  it.client.handle(ASK, () => assert.fail('it was handled'));
  const heard = [];
  it.client.on('heard', ({ type }) => heard.push(type));

  it.say(asked({ M: 1 }, { type: 'response' }));

  assert.deepEqual(heard, ['response']);
});

test('a message whose sender wants no answer gets none', () => {
  const it = new Fixture();
  it.accept();
  it.client.handle(`${RT}/a`, () => 'answer');

  it.say(asked({}, { answer: false }));

  assert.deepEqual(it.sent(), []);
});

test('a typed request that does not fit is not sent', async () => {
  const it = new Fixture();
  it.accept();
  const strict = { ...ASK, toBody: () => { throw new Error('N: expected INTEGER'); } };

  await assert.rejects(it.client.request(NEWS, strict, {}), /N: expected/);
  await assert.rejects(it.client.deliver(NEWS, strict, {}), /N: expected/);
  await assert.rejects(it.client.deliver(NEWS, { n: 1n }), TypeError);
  assert.throws(() => it.client.publish(NEWS, strict, {}), /N: expected/);
  assert.deepEqual(it.sent(), []);
});

test('one message too many for a serial handler is refused', async () => {
  const it = new Fixture();
  it.accept();
  const open = [];
  it.client.handle(`${RT}/a`, () => new Promise((resolve) => open.push(resolve)), { serial: true });

  for (let n = 0; n < 10002; n++) it.say(asked({}, { id: n }));
  await settled();

  assert.equal(open.length, 1);
  const refused = it.sent().filter(({ type }) => type === 'response');
  assert.deepEqual(refused.map(({ id, body }) => [id, body.code, body.reason]).slice(0, 1), [[10000, 503, 'overflow']]);
  assert.equal(refused.length, 2);
});

test('what has no handler is heard, and not answered', () => {
  const it = new Fixture();
  it.accept();
  const heard = [];
  const stop = it.client.on('heard', (message) => heard.push(message.id));
  const request = (id) => ({ id, type: 'read', from: 'runtime://localhost/2', to: `${RT}/x` });

  it.say(request(1));
  stop();
  it.say(request(2));

  assert.deepEqual(heard, [1]);
  assert.deepEqual(it.sent().map(({ id, body }) => [id, body.code]), [[2, 404]]);
});

test('an answer counts only from whom was asked, or from the node', async () => {
  const it = new Fixture();
  it.accept();
  const asking = it.client.request('hyperty://localhost/a');
  const [{ id, transaction }] = it.sent();

  it.say({ id, type: 'response', from: 'hyperty://localhost/evil', to: RT, transaction, body: { code: 200, value: 'no' } });
  it.say({ id, type: 'response', from: 'hyperty://localhost/a', to: RT, body: { code: 180 } });
  it.say({ id, type: 'response', from: 'hyperty://localhost/a', to: RT, body: { code: 200, value: 'yes' } });

  assert.equal((await asking).body.value, 'yes');
});

test('a receipt has the code and the path; one that is not final is told, and is the result if no other comes', async () => {
  const it = new Fixture();
  it.accept();
  const told = [];
  const first = it.client.deliver('hyperty://b.example/a', 1, { waiting: ({ code }) => told.push(code) });
  const second = it.client.deliver('hyperty://b.example/b', 1);
  const [{ id }, { id: other }] = it.sent();
  const receipt = (id, body) => it.say({ id, type: 'receipt', from: 'mn:/receipt', to: RT, body });

  receipt(id, { code: 202, reason: 'no-route', final: false });
  receipt(other, { code: 202, reason: 'no-route', final: false });
  receipt(id, { code: '200', description: 'delivered', path: [{ node: 'mn://localhost/n1', micros: 7 }, null, 'x'] });
  it.world.advance(20000);

  const delivery = await first;
  assert.deepEqual([delivery.code, delivery.text, delivery.isFinal], [200, 'delivered', true]);
  assert.deepEqual(delivery.path, [{ node: 'mn://localhost/n1', micros: 7 }]);
  assert.deepEqual(told, [202]);
  assert.deepEqual([(await second).reason, (await second).isFinal], ['no-route', false]);
});

test('a subscription that the other domain has not answered yet stands', async () => {
  const it = new Fixture();
  it.accept();
  const subscribing = it.client.subscribe('comm://b.example/o/changes', () => {});
  const [{ id }] = it.sent();
  it.say({ id, type: 'response', from: SM, to: RT, body: { code: 504 } });
  await assert.rejects(subscribing, /504/);

  it.lose();
  it.answer({ epoch: 'e2', token: 'mns_2' });

  assert.deepEqual(it.sent().map(({ type }) => type).at(0), 'subscribe');
});

test('a request is given up after its time, and at its signal', async () => {
  const it = new Fixture();
  it.accept();
  const control = new AbortController();
  const late = it.client.request('hyperty://localhost/a', null, { timeout: 3 });
  const aborted = it.client.request('hyperty://localhost/b', null, { signal: control.signal });

  control.abort(new Error('enough'));
  it.world.advance(3000);

  await assert.rejects(late, (error) => error instanceof TimedOut && /hyperty:\/\/localhost\/a within 3 s/.test(error.message));
  await assert.rejects(aborted, /enough/);
});

test('where too much waits, sending throws, and nothing that waits is lost', () => {
  const it = new Fixture({ maxBuffer: 200 });
  it.client.publish(NEWS, 'x'.repeat(50));

  assert.throws(() => it.client.publish(NEWS, 'y'.repeat(50)), Full);

  it.accept();
  assert.equal(it.sent().length, 1);
});

test('a message that is too long is refused at once', () => {
  const it = new Fixture({ maxMessage: 100 });

  assert.throws(() => it.client.publish(NEWS, 'x'.repeat(100)), (error) => error instanceof Refused && error.code === 413);
});

test('a client that was closed rejects what waits, and everything after', async () => {
  const it = new Fixture();
  it.accept();
  const asking = it.client.request('hyperty://localhost/a');
  it.sent();

  const closing = it.client.close();

  await assert.rejects(asking, Closed);
  await assert.rejects(it.client.request('hyperty://localhost/a'), Closed);
  assert.throws(() => it.client.publish(NEWS, 1), Closed);
  assert.deepEqual(it.sent().map(({ type }) => type), ['close']);
  it.world.socket.onclose?.({ code: 1000, reason: '' });
  await closing;
  assert.equal(it.states.at(-1).final, true);
});

test('a client without a name takes the one that the node gives', async () => {
  const it = new Fixture({ runtime: '' });

  const opening = it.accept({ to: 'runtime://localhost/anonymous-1' });
  await it.connecting;

  assert.equal('from' in opening, false);
  assert.equal(it.client.runtime, 'runtime://localhost/anonymous-1');
  assert.equal(it.client.domain, 'localhost');
});

test('a mistake of a listener or a handler is reported, and the session goes on', () => {
  const it = new Fixture();
  it.accept();
  it.client.on('heard', () => {
    throw new Error('a mistake');
  });
  it.client.handle(`${RT}/a`, () => {
    throw new Error('another');
  });

  it.say({ id: 1, type: 'update', from: 'x://y/z', to: `${RT}/b` }, { id: 2, type: 'read', from: 'x://y/z', to: `${RT}/a` });

  assert.deepEqual(it.reported.map(({ message }) => message), ['a mistake', 'another']);
  assert.deepEqual(it.sent().map(({ id, body }) => [id, body.code]), [[2, 500]]);
});

test('a wrong URL, an unknown event and a token without a name are told', () => {
  assert.throws(() => new Client('localhost'), /expected a URL such as wss/);
  assert.throws(() => new Client('ws://localhost/ws', { token: 'x' }), /need a 'runtime'/);
  assert.throws(() => new Fixture().client.on('nothing', () => {}), /no event 'nothing'/);
});
