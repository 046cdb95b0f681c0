/**
 * The runtime of docs/examples: what becomes of requests that its listeners get.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KEEP, NOT_HANDLED, Runtime } from '../../docs/examples/runtime.js';

const HERE = 'hyperty://example.org/lamp';
const asked = { id: 7, type: 'read', from: 'hyperty://example.org/ann', to: HERE, body: { value: 1 }, transaction: 't' };

/** What leaves when a request comes for a listener. */
async function left(listener, request = asked) {
  const out = [];
  const stub = { _start: (url, bus) => ((stub.bus = bus), bus.addListener('*', (message) => out.push(message))) };
  const runtime = new Runtime(stub, 'runtime://example.org/me', {});
  runtime.connect(() => {});
  runtime.subscribe(HERE, (message) => listener(message, runtime)).catch(() => {});
  out.length = 0; // the subscription itself
  stub.bus.postMessage(request);
  await new Promise((resolve) => setImmediate(resolve));
  return out;
}

const answer = (body) => ({ id: 7, type: 'response', from: HERE, to: asked.from, body, transaction: 't' });

test('what a listener returns or promises is the answer', async () => {
  assert.deepEqual(await left(() => ({ state: 'on' })), [answer({ code: 200, state: 'on' })]);
  assert.deepEqual(await left(async () => {}), [answer({ code: 200 })]);
});

test('a listener may change the body it got, and return it', async () => {
  const doubled = ({ body }) => ((body.value *= 2), body);

  assert.deepEqual(await left(doubled, structuredClone(asked)), [answer({ code: 200, value: 2 })]);
});

test('what is not handled is answered 501, and what is kept not at all', async () => {
  assert.deepEqual(await left(() => NOT_HANDLED), [answer({ code: 501, desc: 'not processed', reason: 'not-handled' })]);
  assert.deepEqual(await left(() => KEEP), []);
});

test('a request that may be passed on is passed on as it is', async () => {
  const request = { ...asked, forward: true };

  const out = await left((message, runtime) => runtime.forward(message, 'hyperty://example.org/other'), request);

  assert.deepEqual(out, [{ ...request, to: 'hyperty://example.org/other' }]);
});

test('news is never answered', async () => {
  assert.deepEqual(await left(() => ({ state: 'on' }), { ...asked, type: 'update' }), []);
});

test('a listener that throws answers 500', async (context) => {
  context.mock.method(console, 'error', () => {});
  const broken = () => {
    throw new Error('broken');
  };

  const [{ body }] = await left(broken);

  assert.equal(body.code, 500);
});
