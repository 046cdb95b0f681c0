// A program with the TypeScript client, as docs/typescript.md shows it; tsc looks at it, nobody runs it.

import { Client, Message, NOT_HANDLED, Refused, type State } from '../../msgnode/stub/client.mjs';

const client = new Client('wss://mn.example.org/ws', { runtime: 'runtime://example.org/1', identity: async () => 'token' });
client.on('state', (state: State) => console.log(state.open, state.missed));
client.on('heard', (message: Message) => console.log(message.fields.transaction));
await client.connect({ retry: true, signal: AbortSignal.timeout(1000) });
await client.subscribe(['hyperty://example.org/lamp'], async (message) => {
  if (message.type !== 'read') throw new Refused(403, 'read only');
  return message.body.n ? { state: 'on' } : NOT_HANDLED;
}, { serial: true });
const [address] = await client.allocate(1, { scheme: 'comm' });
const receipt = await client.deliver(address!, { value: 1 }, { priority: 9, waiting: ({ isFinal }) => console.log(isFinal) });
const code: number = receipt.code;
const micros: number[] = receipt.path.map((hop) => hop.micros);
const registration = await client.register('hyperty://example.org/lamp', { user: 'user://example.org/ann' });
await registration.end();
console.log(code, micros, (await client.request('hyperty://example.org/lamp', null, { timeout: 3 })).body);
await client.close({ end: false });

// @ts-expect-error: there is no such event
client.on('opened', () => {});
// @ts-expect-error: a timeout is a number
await client.request('hyperty://example.org/lamp', null, { timeout: '3' });
