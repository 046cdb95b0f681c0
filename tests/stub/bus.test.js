/**
 * Between the runtime's bus and the session.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import activate from '../../msgnode/stub/src/activate.js';
import { P, RT, Runtime, URL_, comes, ids, out } from './runtime.js';

test('messages leave with the stub as via, and are otherwise what they were', () => {
  const runtime = new Runtime();
  runtime.accept();
  const message = out(0, { priority: 9, receipt: true, ttl: 5, extra: [1], body: { value: 1, via: 'x' } });

  runtime.post(message);
  runtime.post({ id: 1, type: 'ping', from: 'a', to: 'b' });
  runtime.post({ id: 2, type: 'ping', from: 'a', to: ['b', 'c'], body: null });

  const via = { via: P };
  assert.deepEqual(runtime.sent(), [
    { ...message, body: { value: 1, ...via } },
    { id: 1, type: 'ping', from: 'a', to: 'b', body: via },
    { id: 2, type: 'ping', from: 'a', to: ['b', 'c'], body: via },
  ]);
  assert.equal(message.body.via, 'x');
});

test('what came from outside does not go back, and an echo does not come in', () => {
  const runtime = new Runtime();
  runtime.accept();
  runtime.socket.say(comes(1), { id: 2, type: 'ping', from: 'a', to: 'b' }, comes(3, { body: { via: P } }));

  runtime.heard.forEach((message) => runtime.post(message));

  assert.deepEqual(runtime.heard.map(({ id, body }) => [id, body.via]), [[1, P], [2, P]]);
  assert.deepEqual(runtime.sent(), []);
});

test('receipts reach the bus; what mn:/session says does not', () => {
  const runtime = new Runtime();
  runtime.accept();
  const receipt = { id: 1, type: 'receipt', from: 'mn:/receipt', to: RT, body: { code: 200 } };

  runtime.socket.say(receipt, { id: 9, type: 'update', from: 'mn:/session', to: RT, body: {} });

  assert.deepEqual(runtime.heard, [{ ...receipt, body: { code: 200, via: P } }]);
});

test('the path of a message to another domain reaches the bus with its receipt', () => {
  const runtime = new Runtime();
  runtime.accept();
  const path = [{ node: 'mn://a.example/n1', micros: 40 }, { node: 'mn://b.example/n1', micros: 95 }];
  const receipt = (body) => ({ id: 1, type: 'receipt', from: 'mn:/receipt', to: RT, body: { code: 202, ...body } });

  runtime.socket.say(receipt({ final: false }), receipt({ path, final: true }));

  const bodies = runtime.heard.map(({ body: { code, path, final } }) => ({ code, path, final }));
  assert.deepEqual(bodies, [{ code: 202, path: undefined, final: false }, { code: 202, path, final: true }]);
});

test('its own statuses stay on the bus', () => {
  const runtime = new Runtime();
  runtime.accept();

  runtime.post({ type: 'update', from: P, to: `${P}/status`, body: { value: 'live' } });

  assert.deepEqual(runtime.sent(), []);
});

test('nobody is answered who does not wait for it', () => {
  const runtime = new Runtime({ maxBuffer: 1 });
  for (const type of ['response', 'UPDATE', 'event', 'create', 'read']) runtime.post(out(type, { type }));
  runtime.post(out('list', { type: 'read', to: ['a', 'b'] }));

  assert.deepEqual(ids(runtime.heard), ['create', 'read']);
});

test('a configuration may be JSON, and its address that of the HTTP side', () => {
  const runtime = new Runtime();
  const config = JSON.stringify({ url: 'https://d/ws', runtimeURL: RT });
  const stub = new runtime.stub.constructor(runtime.world);
  stub._start(P, { addListener() {}, postMessage() {} }, config);

  assert.equal(runtime.socket.url, 'wss://d/ws');
});

test('older runtimes call activate', () => {
  const runtime = new Runtime();
  Object.assign(globalThis, { WebSocket: runtime.world.WebSocket });
  const bus = { addListener() {}, postMessage() {} };

  const { name, instance } = activate(P, bus, { url: URL_, runtimeURL: RT });

  assert.equal(name, 'MsgnodeProtoStub');
  assert.equal(instance.status, 'in-progress');
  instance.disconnect();
});
