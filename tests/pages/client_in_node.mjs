/**
 * A driver in Node.js: commands as JSON lines, and their results.  Arguments: the client's module, that of
 * generated records, and that of `ws` or nothing, for a client that polls.
 */

import { createInterface } from 'node:readline';
import { Driver } from './client_driver.js';

const [client, records, sockets] = process.argv.slice(2);
const library = await import(client);
const { WebSocket } = sockets ? await import(sockets) : {};
const driver = new Driver(library, await import(records), { WebSocket });

for await (const line of createInterface({ input: process.stdin })) {
  const { id, ...command } = JSON.parse(line);
  driver.perform(command).then((result) => console.log(JSON.stringify({ id, ...result })));
}
process.exit(0);
