// node node.mjs http://HOST:PORT runtime://other.example/bridge
// Without a global WebSocket, before Node.js 22, the protostub uses long-polling.
import { createInterface } from 'node:readline';
import { run } from './bridge.mjs';

// Made when the first line is asked for: an interface that nothing iterates yet drops its lines.
async function* lines() {
  yield* createInterface({ input: process.stdin });
}

await run(process.argv.slice(2), lines(), console.log);
