/**
 * Builds the protostub's three forms from msgnode/stub/src, into msgnode/stub or the directory given.
 */

import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { rollup } from 'rollup';
import { minify } from 'terser';

const stub = fileURLToPath(new URL('../../msgnode/stub', import.meta.url));
const target = process.argv[2] ?? stub;
const banner = '/* msgnode protostub, Apache-2.0; the source is in msgnode/stub/src */\n';

const forms = [
  ['default.ps.js', 'protostub.js', { format: 'system' }],
  ['default.mjs', 'protostub.js', { format: 'es' }],
  // What runtimes before 0.18 evaluate sets a global `activate`.
  ['activate.js', 'activate.js', { format: 'umd', name: 'activate' }],
];

for (const [file, entry, output] of forms) {
  const bundle = await rollup({ input: `${stub}/src/${entry}` });
  const { code } = (await bundle.generate({ ...output, exports: output.name && 'default' })).output[0];
  const mangle = { properties: { regex: /^_(?!start$)/ } };
  const small = await minify(code, { ecma: 2020, module: output.format === 'es', mangle });
  await writeFile(`${target}/${file}`, banner + small.code + '\n');
}
