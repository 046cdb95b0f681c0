/**
 * Makes the npm package of the TypeScript client from the tree; prints its path.  An argument is the directory for it.
 */

import { execFileSync } from 'node:child_process';
import { copyFile, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const top = fileURLToPath(new URL('../..', import.meta.url));
const target = resolve(process.argv[2] ?? '.');
const stub = join(top, 'msgnode', 'stub');
const files = ['client/package.json', 'client/README.md', 'client.mjs', 'client.d.mts'].map((name) => join(stub, name));

const packed = await mkdtemp(join(tmpdir(), 'msgnode-client-'));
try {
  for (const file of [...files, join(top, 'LICENSE')]) await copyFile(file, join(packed, file.split('/').at(-1)));
  const said = execFileSync('npm', ['pack', '--json', '--pack-destination', target], { cwd: packed, stdio: ['ignore', 'pipe', 'inherit'] });
  console.log(join(target, JSON.parse(said)[0].filename));
} finally {
  await rm(packed, { recursive: true });
}
