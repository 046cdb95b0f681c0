/**
 * Connections that end, hang, or never come up.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { backOff, wait } from '../../msgnode/stub/src/closing.js';
import { RT, Runtime, URL_, comes, ids, out } from './runtime.js';
import { World } from './world.js';

test('after a loss the stub comes back, each time later, up to half a minute', () => {
  assert.deepEqual([0, 1, 2, 6, 50].map((n) => backOff(n, 0, 1)), [500, 1000, 2000, 30000, 30000]);
  assert.deepEqual([0, 1].map((n) => backOff(n, 0, 0)), [250, 500]);
});

test('it waits as long as the node asks, and stays away where coming back is useless', () => {
  assert.equal(wait(1013, 'full; retry_after=30'), 30000);
  assert.equal(wait(4408, 'no open; retry_after=1.5'), 1500);
  assert.equal(wait(1006, ''), 0);
  assert.equal(wait(1001, ''), 0);
  assert.equal(wait(1009, 'too long'), 0);
  for (const [code, reason] of [[1000, 'closed'], [1003, 'text only'], [4403, 'refused'], [4409, 'superseded'], [4410, 'removed']]) {
    assert.equal(wait(code, reason), null);
  }
});

test('a connection that was refused for a while is tried again then, and not before', () => {
  const runtime = new Runtime();
  runtime.accept();

  runtime.socket.close(1001, 'going away; retry_after=5');
  runtime.world.advance(5000);
  assert.equal(runtime.world.sockets.length, 1);
  runtime.world.advance(500);

  assert.equal(runtime.world.sockets.length, 2);
  assert.deepEqual(runtime.statuses.at(-1), { value: 'disconnected', desc: 'going away; retry_after=5' });
});

test('a session that was taken over stays away, and says so to who sends requests, until connect', () => {
  const runtime = new Runtime();
  runtime.accept();
  runtime.socket.close(4409, 'superseded');
  runtime.world.advance(100000);

  runtime.post(out(1, { type: 'read' }));
  runtime.post(out(2));

  assert.equal(runtime.world.sockets.length, 1);
  assert.deepEqual(runtime.statuses.at(-1), { value: 'disconnected', desc: 'superseded', final: true });
  const [answer, ...more] = runtime.heard;
  assert.deepEqual(more, []);
  assert.equal(answer.id, 1);
  assert.equal(answer.type, 'response');
  assert.equal(answer.from, 'hyperty://example.org/b');
  assert.equal(answer.body.code, 503);
  assert.match(answer.body.desc, /superseded/);
  runtime.stub.connect();
  assert.equal(runtime.accept({ token: null }).type, 're-open');
});

test('what waited longer than its ttl is not sent any more', () => {
  const runtime = new Runtime();
  runtime.accept();
  runtime.post(out(1, { ttl: 60 }));
  runtime.socket.close(1006);
  runtime.post(out(2, { ttl: 5 }));
  runtime.post(out(3, { ttl: 5, type: 'read', receipt: true }));
  runtime.post(out(4));
  runtime.world.blocked = true;
  runtime.world.advance(300);
  runtime.world.blocked = false;
  runtime.world.advance(20000);

  runtime.accept({ token: null });

  assert.deepEqual(ids(runtime.sent()), [1, 4]);
  const told = runtime.heard.map(({ id, type, body }) => [id, type, body.code]);
  assert.deepEqual(told, [[3, 'receipt', 504], [3, 'response', 504]]);
});

test('disconnect ends the session at the node; connect opens another', () => {
  const runtime = new Runtime();
  runtime.accept();

  runtime.stub.disconnect();

  const closing = runtime.socket.take().at(-1);
  assert.deepEqual([closing.type, closing.from, closing.to], ['close', RT, 'mn:/session']);
  assert.ok(runtime.socket.isClosed);
  runtime.world.advance(100000);
  assert.equal(runtime.world.sockets.length, 1);
  runtime.stub.connect();
  assert.equal(runtime.accept().type, 'open');
  assert.equal(runtime.status, 'live');
});

test('a node that is silent is pinged, and left when it does not answer', () => {
  const runtime = new Runtime();
  runtime.accept();

  runtime.world.advance(20000);
  const ping = runtime.socket.take().at(-1);
  assert.equal(ping.type, 'ping');
  runtime.socket.say({ id: ping.id, type: 'response', from: 'mn:/session', to: RT, body: { code: 200 } });
  runtime.world.advance(29000);
  assert.equal(runtime.status, 'live');
  runtime.world.advance(21000);

  assert.ok(runtime.world.sockets[0].isClosed);
  assert.deepEqual(runtime.statuses.at(-1), { value: 'disconnected', desc: 'no sign of life' });
});

test('a connection over which messages come is not pinged', () => {
  const runtime = new Runtime();
  runtime.accept();
  for (let id = 0; id < 10; id++) {
    runtime.socket.say(comes(id));
    runtime.world.advance(15000);
  }

  assert.deepEqual(runtime.socket.take().filter(({ type }) => type === 'ping'), []);
});

test('a link that never lives long is made again a little later each time, one that did at once', () => {
  const runtime = new Runtime();
  const delays = [];
  for (const life of [0, 0, 0, 0, 0, 11000, 0]) {
    runtime.accept();
    runtime.world.advance(life);
    runtime.socket.close(1006);
    const before = runtime.world.sockets.length;
    const lost = runtime.world.now;
    while (runtime.world.sockets.length === before) runtime.world.advance(50);
    delays.push(runtime.world.now - lost);
  }

  assert.deepEqual(delays, [250, 500, 1000, 1000, 1000, 250, 500]);
});

test('what a connection says that was given up touches nothing', () => {
  const runtime = new Runtime();
  runtime.accept();
  const [old] = runtime.world.sockets;
  runtime.world.advance(31000);
  runtime.accept({ token: null });

  old.say(comes(1));
  old.close(1006);

  assert.equal(runtime.status, 'live');
  assert.deepEqual(runtime.heard, []);
});

test('an open that is not answered is given up', () => {
  const runtime = new Runtime();
  runtime.world.advance(10000);

  assert.ok(runtime.world.sockets[0].isClosed);
  assert.equal(runtime.statuses.at(-1).desc, 'no answer');
});

test('a browser that is on line again lets the stub come back at once', () => {
  const runtime = new Runtime();
  runtime.accept();
  for (let n = 0; n < 8; n++) {
    runtime.world.blocked = true;
    runtime.socket.close(1006);
    runtime.world.advance(20000);
  }
  runtime.world.blocked = false;
  const before = runtime.world.sockets.length;

  runtime.world.happen('online');

  assert.equal(runtime.world.sockets.length, before + 1);
});

test('only so much waits; what is too much is refused to its sender, and nothing of the rest is lost', () => {
  const runtime = new Runtime({ maxBuffer: 1000 });
  for (let id = 0; id < 20; id++) runtime.post(out(id, { type: 'create' }));

  runtime.accept();
  const sent = ids(runtime.sent());

  assert.ok(sent.length > 2 && sent.length < 10);
  assert.deepEqual([...sent, ...ids(runtime.heard)], Array.from({ length: 20 }, (_, id) => id));
  assert.equal(runtime.heard[0].body.code, 503);
  runtime.socket.say({ id: 0, type: 'ack', from: 'mn:/session', to: RT, body: { received: sent.length } });
  runtime.post(out(99));
  assert.deepEqual(ids(runtime.sent()), [99]);
});

test('a message that is too long is refused before it is sent', () => {
  const runtime = new Runtime({ maxMessage: 1000 });
  runtime.accept();

  runtime.post(out(1, { type: 'create', body: { value: 'ä'.repeat(500) } }));
  runtime.post(out(2, { type: 'create', body: { value: 'a'.repeat(500) } }));

  assert.deepEqual(runtime.heard.map(({ id, body }) => [id, body.code]), [[1, 413]]);
  assert.deepEqual(ids(runtime.sent()), [2]);
});

test('a message that the node closes for is not sent again', () => {
  const runtime = new Runtime();
  runtime.accept();
  runtime.post(out(1));
  runtime.post(out(2, { type: 'create', body: { value: 'a'.repeat(5000) } }));
  runtime.post(out(3));

  runtime.socket.close(1009, 'message too long');
  runtime.world.advance(1000);
  runtime.accept({ token: null, received: 1 });

  assert.deepEqual(ids(runtime.sent()), [3]);
  assert.deepEqual(runtime.heard.map(({ id, body }) => [id, body.code]), [[2, 413]]);
});

test('a stub says what it needs', () => {
  assert.throws(() => new Runtime({ url: undefined }), /'url' and 'runtimeURL'/);
});

test('a loss is one change of status, however often coming back fails', () => {
  const runtime = new Runtime();
  runtime.accept();
  runtime.world.blocked = true;
  runtime.socket.close(1006);
  runtime.world.advance(200000);

  const said = runtime.statuses.map(({ value }) => value);
  assert.deepEqual(said, ['created', 'in-progress', 'live', 'disconnected']);
});

test('where WebSocket fails it polls, and the other way round', async () => {
  const world = new World();
  world.blocked = true;
  const runtime = new Runtime({ world });
  world.advance(1000);

  assert.equal(world.requests[0].url, 'https://mn.example.org/poll');
  world.requests[0].fail();
  await world.settle();
  world.advance(2000);

  assert.deepEqual(world.sockets.map(({ url }) => url), [URL_, URL_]);
  assert.equal(runtime.status, 'disconnected');
});
