/**
 * Long-polling, where WebSocket is blocked.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pollURL } from '../../msgnode/stub/src/polling.js';
import { RT, Runtime, TOKEN, comes, ids, out } from './runtime.js';
import { World } from './world.js';

/** A runtime that polls; its opening was answered. */
async function polling(config) {
  const world = new World();
  world.blocked = true;
  const runtime = new Runtime({ world, ...config });
  world.advance(1000);
  await open(runtime);
  return runtime;
}

async function open(runtime, more = { runtimeToken: TOKEN }) {
  const [request] = runtime.world.requests.splice(0);
  const opening = JSON.parse(request.body);
  const body = { code: 200, resume: { epoch: 'e1', received: 0, recovered: true, missed: 0 }, ...more };
  const reply = { id: opening.id, type: 'response', from: 'mn:/session', to: opening.from, body };
  request.answer(200, { messages: [reply], cursor: 0 });
  await runtime.world.settle();
  return opening;
}

const requests = (runtime, method) => runtime.world.requests.filter((request) => request.method === method);

test('the address is found beside that of the WebSocket', () => {
  assert.equal(pollURL('wss://d/ws'), 'https://d/poll');
  assert.equal(pollURL('ws://d:9090/msgnode/ws?a=1'), 'http://d:9090/msgnode/poll');
  assert.equal(pollURL('https://d/'), 'https://d/poll');
});

test('a GET waits, brings messages in order, and acknowledges them by the next', async () => {
  const runtime = await polling();
  const [first] = requests(runtime, 'GET');
  assert.equal(first.url, 'https://mn.example.org/poll?wait=25&after=0');
  assert.equal(first.headers.Authorization, `Bearer ${TOKEN}`);

  first.answer(200, { cursor: 2, messages: [comes(1), comes(2)] });
  await runtime.world.settle();

  assert.deepEqual(ids(runtime.heard), [1, 2]);
  assert.equal(requests(runtime, 'GET').at(-1).url, 'https://mn.example.org/poll?wait=25&after=2');
  assert.equal(runtime.status, 'live');
});

test('what is handed out beside the rest is heard, and not counted', async () => {
  const runtime = await polling();

  requests(runtime, 'GET')[0].answer(200, { cursor: 1, messages: [comes(7), comes(1)] });
  await runtime.world.settle();

  assert.deepEqual(ids(runtime.heard), [7, 1]);
  assert.match(requests(runtime, 'GET').at(-1).url, /after=1$/);
});

test('what is sent in one turn goes in one POST, numbered, and the next waits for its answer', async () => {
  const runtime = await polling();
  runtime.post(out(1));
  runtime.post(out(2));
  await runtime.world.settle();
  const [post] = requests(runtime, 'POST');
  runtime.post(out(3));
  await runtime.world.settle();
  assert.equal(requests(runtime, 'POST').length, 1);

  post.answer(202, { accepted: 2, received: 2 });
  await runtime.world.settle();

  assert.equal(post.url, 'https://mn.example.org/poll?seq=1');
  assert.deepEqual(ids(JSON.parse(post.body)), [1, 2]);
  const next = requests(runtime, 'POST').at(-1);
  assert.equal(next.url, 'https://mn.example.org/poll?seq=3');
  assert.deepEqual(ids(JSON.parse(next.body)), [3]);
});

test('a POST whose answer is lost is repeated from where the node says it is', async () => {
  const runtime = await polling();
  for (const id of [1, 2, 3]) runtime.post(out(id));
  await runtime.world.settle();
  requests(runtime, 'POST')[0].fail();
  await runtime.world.settle();
  runtime.world.requests.length = 0;
  runtime.world.advance(1000);

  const opening = await open(runtime, { resume: { epoch: 'e1', received: 2, recovered: true, missed: 0 } });
  await runtime.world.settle();

  assert.equal(opening.type, 're-open');
  const [post] = requests(runtime, 'POST');
  assert.equal(post.url, 'https://mn.example.org/poll?seq=3');
  assert.deepEqual(ids(JSON.parse(post.body)), [3]);
});

test('one bad message among others is found and refused; the others go', async () => {
  const runtime = await polling();
  for (const id of [1, 2, 3]) runtime.post(out(id, { type: 'create' }));
  const wrong = { desc: "'type' is missing" };
  const answers = [[400, wrong], [202, { received: 1 }], [400, wrong], [202, { received: 2 }]];
  for (const [status, body] of answers) {
    await runtime.world.settle();
    requests(runtime, 'POST').at(-1).answer(status, body);
  }
  await runtime.world.settle();

  const posts = requests(runtime, 'POST').map(({ url, body }) => [url.split('=')[1], ids(JSON.parse(body))]);
  assert.deepEqual(posts, [['1', [1, 2, 3]], ['1', [1]], ['2', [2]], ['2', [3]]]);
  assert.deepEqual(runtime.heard.map(({ id, body }) => [id, body.code, body.desc]), [[2, 400, wrong.desc]]);
});

test('a token that the node does not know is given up, and a session opened anew', async () => {
  const runtime = await polling();

  requests(runtime, 'GET')[0].answer(401, { desc: 'the session ended' });
  await runtime.world.settle();
  runtime.world.requests.length = 0;
  runtime.world.advance(1000);

  assert.equal((await open(runtime)).type, 'open');
});

test('a node that is full is asked again when it says, and a newer page is given way', async () => {
  const full = await polling();
  requests(full, 'GET')[0].answer(503, { desc: 'full' }, { 'Retry-After': '30' });
  await full.world.settle();
  full.world.requests.length = 0;
  full.world.advance(30000);
  assert.equal(full.world.requests.length, 0);
  full.world.advance(1000);
  assert.equal(full.world.requests.length, 1);

  const superseded = await polling();
  requests(superseded, 'GET')[0].answer(409, { desc: 'a newer request took over' }, { 'Retry-After': '5' });
  await superseded.world.settle();
  superseded.world.requests.length = 0;
  superseded.world.advance(100000);
  assert.equal(superseded.world.requests.length, 0);
});

test('a GET that is never answered is given up', async () => {
  const runtime = await polling();
  runtime.world.advance(45000);
  await runtime.world.settle();

  assert.equal(runtime.status, 'disconnected');
});

test('as soon as a WebSocket can be had again it is used, and the counts go on', async () => {
  const runtime = await polling();
  const [get] = requests(runtime, 'GET');
  get.answer(200, { cursor: 1, messages: [comes(1)] });
  await runtime.world.settle();
  runtime.world.advance(1000);
  runtime.world.blocked = false;
  runtime.world.advance(4000);

  const opening = runtime.accept({ token: null });

  assert.deepEqual(opening.body.resume, { epoch: 'e1', received: 1 });
  assert.ok(requests(runtime, 'GET').at(-1).signal.aborted);
});

test('disconnect closes the session, though every request is dropped', async () => {
  const runtime = await polling();

  runtime.stub.disconnect();

  const closing = requests(runtime, 'POST').at(-1);
  assert.equal(JSON.parse(closing.body).type, 'close');
  assert.deepEqual([closing.keepalive, closing.headers.Authorization], [true, `Bearer ${TOKEN}`]);
  assert.equal(runtime.status, 'disconnected');
});
