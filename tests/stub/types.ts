// A page of one's own in TypeScript, as docs/browser.md shows it; tsc looks at it, nobody runs it.

import Protostub, { type Bus, type Hop, type Message, type ReceiptBody, type StatusBody } from '../../msgnode/stub/default.mjs';

const listeners = new Map<string, (message: Message) => void>();
const bus: Bus = {
  addListener: (address, listener) => listeners.set(address, listener),
  postMessage(message) {
    if (message.type === 'receipt') {
      const receipt = message.body as unknown as ReceiptBody;
      const path: string[] = (receipt.path ?? []).map(({ node, micros }: Hop) => `${node}: ${micros} µs`);
      return console.log(receipt.final === false ? 'it waits' : receipt.code, path);
    }
    const status = message.body as unknown as StatusBody;
    console.log(status.value, message.to);
  },
};
const stub = new Protostub();
stub._start('runtime://example.org/protostub/1', bus, { url: 'wss://d/ws', runtimeURL: 'runtime://example.org/1' });
listeners.get('*')?.({ id: 1, type: 'update', from: 'a', to: ['b'], body: { value: 1 }, priority: 9, receipt: true });
stub.disconnect();

// @ts-expect-error: a configuration has a URL
stub._start('runtime://example.org/protostub/1', bus, { runtimeURL: 'runtime://example.org/1' });
