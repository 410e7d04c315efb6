// Bundles the page: one script and one style, without source maps, in the folder that the crate `live` embeds (or another).
//
// usage: node build.mjs [FOLDER]
import { build } from 'esbuild';
import { copyFile, mkdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';

const here = fileURLToPath(new URL('.', import.meta.url));
const out = process.argv[2] ?? join(here, '../crates/live/src/page');
// uPlot's licence has to stay with its code.
const licence = await readFile(join(here, 'node_modules/uplot/LICENSE'), 'utf8');
await mkdir(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { page: 'src/main.ts' },
  outdir: out,
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  charset: 'utf8',
  footer: { js: `/* uPlot:\n${licence.trim()}\n*/` },
  logLevel: 'warning',
});
await copyFile(join(here, 'src/page.html'), join(out, 'page.html'));
