/**
 * The runtime of docs/examples: what becomes of requests that its listeners get.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KEEP, NOT_HANDLED, Runtime } from '../../docs/examples/runtime.js';

const HERE = 'hyperty://example.org/lamp';
const asked = { id: 7, type: 'read', from: 'hyperty://example.org/ann', to: HERE, body: { value: 1 }, transaction: 't' };

const ME = 'runtime://example.org/me';
const OTHER = 'hyperty://example.org/other';
const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A runtime that is connected, what leaves it, and how something comes. */
function connected() {
  const out = [];
  const stub = { _start: (url, bus) => ((stub.bus = bus), bus.addListener('*', (message) => out.push(message))) };
  const runtime = new Runtime(stub, ME, {});
  runtime.connect(() => {});
  return { runtime, out, come: (message) => stub.bus.postMessage(message) };
}

/** What leaves when a request comes for a listener, and an answer to what the listener asks, if there is one. */
async function left(listener, request = asked, reply) {
  const { runtime, out, come } = connected();
  runtime.subscribe(HERE, (message) => listener(message, runtime)).catch(() => {});
  out.length = 0; // the subscription itself
  come(request);
  await settled();
  if (reply) come({ type: 'response', id: out[0].id, from: out[0].to, to: out[0].from, body: reply });
  await settled();
  return out;
}

const answer = (body) => ({ id: 7, type: 'response', from: HERE, to: asked.from, body, transaction: 't' });
const refusal = (code, text, reason) => answer({ code, desc: text, description: text, ...(reason && { reason }) });

test('what a listener returns or promises is the answer', async () => {
  assert.deepEqual(await left(() => ({ state: 'on' })), [answer({ code: 200, state: 'on' })]);
  assert.deepEqual(await left(async () => {}), [answer({ code: 200 })]);
  for (const value of ['on', 21.5, false, [1]]) assert.deepEqual(await left(() => value), [answer({ code: 200, value })]);
});

test('a listener may change the body it got, and return it', async () => {
  const doubled = ({ body }) => ((body.value *= 2), body);

  assert.deepEqual(await left(doubled, structuredClone(asked)), [answer({ code: 200, value: 2 })]);
});

test('what is not handled is answered 501, and what is kept not at all', async () => {
  assert.deepEqual(await left(() => NOT_HANDLED), [refusal(501, 'not processed', 'not-handled')]);
  assert.deepEqual(await left(() => KEEP), []);
});

test('a request that may be passed on is passed on as it is', async () => {
  const request = { ...asked, forward: true };

  const out = await left((message, runtime) => runtime.forward(message, OTHER), request);

  assert.deepEqual(out, [{ ...request, to: OTHER }]);
});

test('a request that may not be passed on is asked from here, and answered with what comes', async () => {
  const forward = (message, runtime) => runtime.forward(message, OTHER);

  for (const body of [{ code: 200, state: 'on' }, { code: 403, desc: 'no', description: 'no' }]) {
    const [onward, back] = await left(forward, asked, body);

    assert.deepEqual(onward, { ...asked, id: onward.id, from: ME, to: OTHER });
    assert.deepEqual(back, answer(body));
  }
});

test('a request is answered by who was asked, or by the node, and by nobody else', async () => {
  for (const [from, isAnswer] of [[OTHER, true], ['mn:/validator', true], ['hyperty://evil.org/x', false]]) {
    const { runtime, out, come } = connected();
    const told = [];
    runtime.request('read', ME, OTHER, {}).then((body) => told.push(body));
    come({ id: out[0].id, type: 'response', from, to: ME, body: { code: 200 } });
    await settled();

    assert.equal(told.length, Number(isAnswer), from);
  }
});

test('a request that may be passed on is answered by whoever knows its transaction', async () => {
  const { runtime, out, come } = connected();
  const told = [];
  runtime.request('read', ME, OTHER, {}, { forward: true, priority: 7 }).then((body) => told.push(body.value));
  const [{ id, transaction, forward, priority }] = out;
  const respond = (value, more) =>
    come({ id, type: 'response', from: 'hyperty://example.org/third', to: ME, body: { code: 200, value }, ...more });
  respond('forged', { transaction: 'guessed' });
  respond('forged');
  respond('told', { transaction });
  await settled();

  assert.deepEqual([forward, priority, told], [true, 7, ['told']]);
});

test('who delivers is told that the message waits, and then by which nodes it went', async () => {
  const { runtime, out, come } = connected();
  const told = [];
  runtime.deliver('update', ME, OTHER, {}, (body) => told.push(body)).then((body) => told.push(body));
  const [{ id, receipt }] = out;
  const settle = (from, body) => come({ id, type: 'receipt', from, to: ME, body });
  const path = [{ node: 'mn://a.example/n1', micros: 40 }];
  settle('hyperty://example.org/forger', { code: 200, forged: true });
  settle('mn:/receipt', { code: 202, final: false });
  settle('mn:/receipt', { code: 200, path, final: true });
  settle('mn:/receipt', { code: 200, again: true });
  await settled();

  assert.deepEqual([receipt, told], [true, [{ code: 202, final: false }, { code: 200, path, final: true }]]);
});

test('receipts of messages that nobody waits for go to one listener', () => {
  const { runtime, come } = connected();
  const told = [];
  runtime.receipts(({ id }) => told.push(id));

  come({ id: 5, type: 'receipt', from: 'mn:/receipt', to: ME, body: { code: 200 } });

  assert.deepEqual(told, [5]);
});

test('news is never answered', async () => {
  assert.deepEqual(await left(() => ({ state: 'on' }), { ...asked, type: 'update' }), []);
});

test('a listener that throws answers 500', async (context) => {
  context.mock.method(console, 'error', () => {});
  const broken = () => {
    throw new Error('broken');
  };

  assert.deepEqual(await left(broken), [refusal(500, 'the recipient failed over this message')]);
});
