/**
 * Who the user is: the stub shows an identity token, and a newer one before it ends.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RT, Runtime, TOKEN, comes } from './runtime.js';
import { World } from './world.js';

const warning = { id: 0, type: 'update', from: 'mn:/session', to: RT, body: { attribute: 'token', value: 60 } };

/** A runtime whose page gives a new token each time; `page.fails` says why it has none. */
function known(fails = '') {
  const page = { asked: 0, fails };
  const identity = async () => {
    if (page.fails) throw new Error(page.fails);
    return `token ${++page.asked}`;
  };
  return { page, runtime: new Runtime({ identity }) };
}

/** Let the page give its token, and the connection be there. */
async function pass(runtime, milliseconds = 0) {
  runtime.world.advance(milliseconds);
  await runtime.world.settle();
  runtime.world.advance(0);
}

test('a token in the configuration is shown in each opening', () => {
  const runtime = new Runtime({ identity: 'ann' });

  const opening = runtime.accept();
  runtime.socket.close(1006);
  runtime.world.advance(1000);
  const again = runtime.accept({ token: null });

  assert.deepEqual(opening.body, { resume: true, token: 'ann' });
  assert.deepEqual([again.type, again.body.token], ['re-open', 'ann']);
});

test('a function is asked for a token before each connection is made', async () => {
  const { runtime } = known();
  assert.equal(runtime.world.sockets.length, 0);

  await pass(runtime);
  const opening = runtime.accept();
  runtime.socket.close(1006);
  await pass(runtime, 1000);
  const again = runtime.accept({ token: null });

  assert.deepEqual([opening.body.token, again.body.token], ['token 1', 'token 2']);
});

test('a newer token is shown when the node says that the last one is about to end', async () => {
  const { runtime } = known();
  await pass(runtime);
  runtime.accept();

  runtime.socket.say(warning);
  await pass(runtime);

  const [update] = runtime.socket.take();
  assert.deepEqual({ ...update, id: 0 }, {
    id: 0, type: 'update', from: RT, to: 'mn:/session', body: { token: 'token 2' },
  });
  assert.equal(runtime.heard.length, 0);
});

test('without a way to another token the warning is passed over', () => {
  const runtime = new Runtime({ identity: 'ann' });
  runtime.accept();

  runtime.socket.say(warning);

  assert.deepEqual(runtime.socket.take(), []);
});

test('a session whose token ended is entered again with another', async () => {
  const { page, runtime } = known();
  await pass(runtime);
  runtime.accept();
  page.fails = 'nobody is logged in';
  runtime.socket.say(warning);
  await pass(runtime);
  runtime.socket.close(4401, 'token');
  await pass(runtime, 1000);
  assert.equal(runtime.statuses.at(-1).final, undefined);
  page.fails = '';

  await pass(runtime, 5000);
  const again = runtime.accept({ token: null });

  assert.deepEqual([again.from, again.body.token], [`${RT}/${TOKEN}`, 'token 2']);
});

test('who was let in once goes on, each time later, while the page still gives the old token', async () => {
  const { page, runtime } = known();
  await pass(runtime);
  runtime.accept();
  for (let n = 0; n < 5; n++) {
    runtime.socket.close(4401, 'token');
    await pass(runtime, 9000);
  }
  const { desc, final } = runtime.statuses.at(-1);

  const again = runtime.accept({ token: null });

  assert.deepEqual([desc, final], ['the identity token is no longer taken (token); trying again', undefined]);
  assert.deepEqual([again.from, again.body.token], [`${RT}/${TOKEN}`, 'token 6']);
  assert.deepEqual([page.asked, runtime.world.sockets.length, runtime.world.requests.length], [6, 6, 0]);
  assert.equal(runtime.status, 'live');
});

test('a token in the configuration that has ended ends the session', () => {
  const runtime = new Runtime({ identity: 'ann' });
  runtime.accept();

  runtime.socket.close(4401, 'token');
  runtime.world.advance(60000);

  assert.equal(runtime.statuses.at(-1).final, true);
  assert.equal(runtime.world.sockets.length, 1);
});

test('a token that is refused at the opening is not tried again', async () => {
  const { runtime } = known();
  await pass(runtime);

  runtime.socket.close(4401, 'token');
  await pass(runtime, 60000);

  assert.equal(runtime.statuses.at(-1).final, true);
  assert.equal(runtime.world.sockets.length, 1);
});

test('a token that comes when the stub was stopped opens nothing', async () => {
  const { runtime } = known();

  runtime.stub.disconnect();
  await pass(runtime, 60000);

  assert.equal(runtime.world.sockets.length, 0);
});

test('connecting twice asks for one token', async () => {
  const { page, runtime } = known();

  runtime.stub.connect();
  await pass(runtime);

  assert.deepEqual([page.asked, runtime.world.sockets.length], [1, 1]);
});

test('a page that has no token is told, and asked again later', async () => {
  const { page, runtime } = known('nobody is logged in');
  await pass(runtime);
  assert.deepEqual(runtime.statuses.at(-1), {
    value: 'disconnected', desc: 'no identity token: nobody is logged in',
  });
  page.fails = '';

  await pass(runtime, 1000);

  assert.equal(runtime.accept().body.token, 'token 1');
});

test('a page that takes long for its token is named, asked again, and stays with WebSocket', async () => {
  const later = [];
  const runtime = new Runtime({ identity: () => new Promise((resolve) => later.push(resolve)) });

  await pass(runtime, 10000);
  assert.equal(runtime.statuses.at(-1).desc, 'no identity token: none came within 10 s');
  later[0]('too late');
  await pass(runtime, 1000);
  assert.deepEqual([later.length, runtime.world.sockets.length], [2, 0]);
  later[1]('token');
  await pass(runtime);

  assert.equal(runtime.accept().body.token, 'token');
  assert.equal(runtime.world.requests.length, 0);
});

test('the node has ten seconds for its answer, however long the token took', async () => {
  let give;
  const runtime = new Runtime({ identity: () => new Promise((resolve) => (give = resolve)) });

  await pass(runtime, 9000);
  give('token');
  await pass(runtime);
  await pass(runtime, 9000);

  assert.equal(runtime.accept().body.token, 'token');
  assert.equal(runtime.status, 'live');
});

test('a client that polls shows its newer token by POST', async () => {
  const world = new World();
  world.blocked = true;
  let asked = 0;
  const runtime = new Runtime({ world, identity: () => `token ${++asked}` });
  await pass(runtime);
  await pass(runtime, 1000);
  const [opening] = world.requests.splice(0);
  const resume = { epoch: 'e1', received: 0, recovered: true, missed: 0 };
  const { id } = JSON.parse(opening.body);
  const body = { code: 200, runtimeToken: TOKEN, resume };
  opening.answer(200, { messages: [{ id, type: 'response', from: 'mn:/session', to: RT, body }], cursor: 0 });
  await pass(runtime);
  const [poll] = world.requests.splice(0);

  poll.answer(200, { messages: [warning, comes(1)], cursor: 2 });
  await pass(runtime);

  const post = world.requests.find(({ method }) => method === 'POST');
  assert.equal(post.headers.Authorization, `Bearer ${TOKEN}`);
  assert.deepEqual(JSON.parse(post.body).body, { token: `token ${asked}` });
  assert.equal(runtime.heard.length, 1);
});
