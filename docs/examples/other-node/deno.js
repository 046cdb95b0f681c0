// deno run --allow-net=HOST:PORT deno.js http://HOST:PORT runtime://other.example/bridge
import { run } from './bridge.mjs';

async function* lines() {
  let rest = '';
  for await (const text of Deno.stdin.readable.pipeThrough(new TextDecoderStream())) {
    const whole = (rest + text).split('\n');
    rest = whole.pop();
    yield* whole;
  }
}

await run(Deno.args, lines(), console.log);
