/**
 * Builds the protostub's three forms and the TypeScript client from their sources in msgnode/stub, into msgnode/stub
 * or the directory given.
 */

import { execFileSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rollup } from 'rollup';
import { dts } from 'rollup-plugin-dts';
import { minify } from 'terser';

const stub = fileURLToPath(new URL('../../msgnode/stub', import.meta.url));
const tsc = fileURLToPath(new URL('node_modules/.bin/tsc', import.meta.url));
const target = process.argv[2] ?? stub;

const banner = (what, where) => `/* msgnode ${what}, Apache-2.0; the source is in msgnode/stub/${where} */\n`;

async function bundle(input, output, plugins = []) {
  const whole = await rollup({ input, plugins });
  return (await whole.generate({ ...output, exports: output.name && 'default' })).output[0].code;
}

async function script(file, input, output, head) {
  const mangle = { properties: { regex: /^_(?!start$)/ } };
  const small = await minify(await bundle(input, output), { ecma: 2020, module: output.format === 'es', mangle });
  await writeFile(`${target}/${file}`, head + small.code + '\n');
}

const forms = [
  ['default.ps.js', 'protostub.js', { format: 'system' }],
  ['default.mjs', 'protostub.js', { format: 'es' }],
  // What runtimes before 0.18 evaluate sets a global `activate`.
  ['activate.js', 'activate.js', { format: 'umd', name: 'activate' }],
];
for (const [file, entry, output] of forms) {
  await script(file, `${stub}/src/${entry}`, output, banner('protostub', 'src'));
}

const compiled = await mkdtemp(join(tmpdir(), 'msgnode-client-'));
try {
  execFileSync(tsc, ['-p', `${stub}/client`, '--outDir', compiled], { stdio: 'inherit' });
  const head = banner('client', 'client');
  await script('client.mjs', `${compiled}/client/index.js`, { format: 'es' }, head);
  const types = await bundle(`${compiled}/client/index.d.ts`, { format: 'es' }, [dts()]);
  await writeFile(`${target}/client.d.mts`, head + types);
} finally {
  await rm(compiled, { recursive: true });
}
