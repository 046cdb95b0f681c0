/**
 * The session of the stub: counted, acknowledged, resumed.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { P, RT, Runtime, TOKEN, comes, ids, out } from './runtime.js';

const range = (first, last) => Array.from({ length: last - first }, (_, index) => first + index);

test('a session is opened with resume, and what was posted before follows the answer', () => {
  const runtime = new Runtime();
  runtime.post(out(1));

  const opening = runtime.accept();

  assert.deepEqual(opening, { id: opening.id, type: 'open', from: RT, to: 'mn:/session', body: { resume: true } });
  assert.deepEqual(ids(runtime.sent()), [1]);
  assert.deepEqual(runtime.statuses.map(({ value }) => value), ['created', 'in-progress', 'live']);
});

test('what was not acknowledged is sent again when the connection is back, before what is new', () => {
  const runtime = new Runtime();
  runtime.accept();
  range(1, 6).forEach((id) => runtime.post(out(id)));
  runtime.socket.say({ id: 0, type: 'ack', from: 'mn:/session', to: RT, body: { received: 2 } });

  runtime.socket.close(1006);
  runtime.post(out(6));
  runtime.world.advance(1000);
  const opening = runtime.accept({ token: null, received: 3 });

  assert.equal(opening.type, 're-open');
  assert.equal(opening.from, `${RT}/${TOKEN}`);
  assert.deepEqual(opening.body.resume, { epoch: 'e1', received: 0 });
  assert.deepEqual(ids(runtime.sent()), [4, 5, 6]);
  assert.deepEqual(runtime.statuses.at(-1), { value: 'live', resumed: true, missed: 0 });
});

test('a new epoch gets everything that was not acknowledged, counted from the start', () => {
  const runtime = new Runtime();
  runtime.accept();
  range(1, 4).forEach((id) => runtime.post(out(id)));
  runtime.socket.say(comes(1));

  runtime.socket.close(1006);
  runtime.world.advance(1000);
  runtime.accept({ token: 'mns_other', epoch: 'e2' });
  assert.deepEqual(ids(runtime.sent()), [1, 2, 3]);
  assert.equal(runtime.statuses.at(-1).resumed, false);
  runtime.socket.say({ id: 0, type: 'ack', from: 'mn:/session', to: RT, body: { received: 3 } });
  runtime.socket.close(1006);
  runtime.world.advance(1000);

  const opening = runtime.accept({ token: null, epoch: 'e2', received: 3 });
  assert.deepEqual(opening.body.resume, { epoch: 'e2', received: 0 });
  assert.deepEqual(runtime.sent(), []);
});

test('what is received is acknowledged after 64 messages, or soon', () => {
  const runtime = new Runtime();
  runtime.accept();

  runtime.socket.say(...range(0, 64).map((id) => comes(id)));
  const [first] = runtime.acks();
  runtime.socket.say(comes(64));
  assert.deepEqual(runtime.acks(), []);
  runtime.world.advance(500);

  assert.deepEqual(first, { id: 0, type: 'ack', from: RT, to: 'mn:/session', body: { received: 64 } });
  assert.deepEqual(runtime.acks().map(({ body }) => body.received), [65]);
});

test('messages that are gone for good are counted as received, and told', () => {
  const runtime = new Runtime();
  runtime.accept();
  runtime.socket.say(comes(1), comes(2));
  runtime.socket.close(1006);
  runtime.world.advance(1000);

  runtime.accept({ token: null, missed: 7 });
  runtime.socket.say(comes(10));
  runtime.world.advance(500);

  assert.equal(runtime.statuses.at(-1).missed, 7);
  assert.equal(runtime.acks().at(-1).body.received, 10);
});

test('an application that throws stops nothing', () => {
  const runtime = new Runtime();
  runtime.accept();
  const { push } = runtime.heard;
  runtime.heard.push = () => {
    throw new Error('a mistake');
  };

  runtime.socket.say(comes(1));
  runtime.heard.push = push;
  runtime.socket.say(comes(2));

  assert.deepEqual(ids(runtime.heard), [2]);
  assert.throws(() => runtime.world.advance(500), /a mistake/);
});

test('a node without resume is sent everything once, and is neither pinged nor acknowledged', () => {
  const runtime = new Runtime();
  runtime.post(out(1));
  runtime.world.advance(0);
  const [opening] = runtime.socket.take();
  const body = { code: 200, runtimeToken: 'a-token' };
  runtime.socket.say({ id: opening.id, type: 'response', from: 'mn:/session', to: RT, body });
  runtime.post(out(2));
  runtime.socket.say(comes(1));

  assert.deepEqual(ids(runtime.sent()), [1, 2]);
  runtime.world.advance(60000);
  assert.deepEqual(runtime.socket.take(), []);
  runtime.socket.close(1006);
  runtime.world.advance(1000);
  runtime.world.advance(0);
  const [again] = runtime.socket.take();
  assert.equal(again.from, `${RT}/a-token`);
  assert.equal(again.body.resume, true);
});

test('an answer that is no 200 is no end: the session is opened anew', () => {
  const runtime = new Runtime();
  runtime.accept();
  runtime.socket.close(1006);
  runtime.world.advance(1000);
  const [opening] = runtime.socket.take();
  const body = { code: 500, desc: 'wrong token' };

  runtime.socket.say({ id: opening.id, type: 'response', from: 'mn:/session', to: RT, body });
  runtime.world.advance(2000);

  assert.equal(runtime.socket.take()[0].type, 'open');
  assert.deepEqual(runtime.statuses.filter(({ value }) => value === 'failed'), []);
});

test('a page that is reloaded goes on with its token, its counts and what was not acknowledged', () => {
  const before = new Runtime();
  before.accept();
  before.socket.say(comes(1), comes(2));
  before.post(out(7));

  const after = new Runtime({ world: before.world.reloaded() });
  const opening = after.accept({ token: null });

  assert.equal(opening.from, `${RT}/${TOKEN}`);
  assert.deepEqual(opening.body.resume, { epoch: 'e1', received: 2 });
  assert.deepEqual(ids(after.sent()), [7]);
  assert.equal(after.world.stored.size, 0);
});

test('a page may be told to keep nothing', () => {
  const before = new Runtime({ persist: false });
  before.accept();

  assert.equal(new Runtime({ world: before.world.reloaded() }).accept().type, 'open');
  assert.equal(before.world.stored.size, 0);
});

test('without storage a page begins anew', () => {
  const runtime = new Runtime();
  runtime.accept();
  const world = runtime.world.reloaded();
  Object.defineProperty(world, 'sessionStorage', {
    get() {
      throw new Error('SecurityError');
    },
  });

  assert.equal(new Runtime({ world }).accept().type, 'open');
});

test('the token is in no message but re-open, unless the node asks for it in the header', () => {
  const plain = new Runtime();
  plain.accept();
  plain.post(out(1));
  assert.ok(!JSON.stringify(plain.sent()).includes('mns_'));

  const strict = new Runtime({ token: true });
  strict.post(out(0));
  strict.accept();
  strict.post(out(1));
  const sent = strict.sent();
  assert.deepEqual(sent.map(({ token }) => token), [TOKEN, TOKEN]);
  assert.deepEqual(sent.map(({ body }) => body.via), [P, P]);
});
