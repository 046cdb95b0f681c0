// Types are inferred from generated records; tests/integration/test_clients.py lets tsc look at it, nobody runs it.

import { Client, NOT_HANDLED, type Message } from 'msgnode-client';
import { GetTemperature, NotifyRemoteNodeAdded, Position } from './records.js';

const LAMP = 'hyperty://example.org/lamp';
const client = new Client('wss://mn.example.org/ws');

const reply = await client.request(LAMP, GetTemperature, { room: 'hall', big: 2n ** 60n }, { timeout: 3 });
const temperature: number = reply.record.temperature;
const serial: bigint | null | undefined = reply.record.serial;
const moved: Position = (await client.request(LAMP, Position, { latitude: 1, longitude: 2 })).record;
const nothing: undefined = (await client.request(LAMP, NotifyRemoteNodeAdded, { remoteNode: 'mn://b/n', type: 'x' })).record;
const untyped: undefined = (await client.request(LAMP, { any: 'body' }, { priority: 9 })).record;
client.publish([LAMP], Position, { latitude: 1, longitude: 2 }, { from: LAMP });
await client.deliver(LAMP, Position, { latitude: 1, longitude: 2 }, { waiting: ({ isFinal }) => console.log(isFinal) });
console.log(temperature, serial, moved, nothing, untyped);

client.handle(GetTemperature, ({ record }) => (record.room ? { temperature: 21.5, serial: 5n } : NOT_HANDLED));
client.handle(GetTemperature, async (message) => {
  message.reply.temperature = message.record.room.length;
}, { serial: true });
client.handle(Position, (message) => {
  message.record.latitude += 1;
  message.hold(3).answer({ latitude: 1, longitude: 2 });
});
client.handle(GetTemperature, (message) => message.forward(LAMP));
client.handle(NotifyRemoteNodeAdded, ({ record }) => console.log(record.remoteNode));
client.handle('*', (message: Message) => message.body);

// @ts-expect-error: a room is a text
await client.request(LAMP, GetTemperature, { room: 5 });
// @ts-expect-error: a room is missing
client.publish(LAMP, GetTemperature, { unit: 'KELVIN' });
// @ts-expect-error: a temperature is a number
client.handle(GetTemperature, () => ({ temperature: 'warm' }));
// @ts-expect-error: there is no such slot
client.handle(GetTemperature, ({ record }) => console.log(record.rom));
// @ts-expect-error: a LONG is a bigint
client.handle(GetTemperature, (message) => message.answer({ temperature: 1, serial: 5 }));
