// Bundles the page for the crate `live`, and the parts of it that a report has for the crate `report`: one script and one style each,
// without source maps, in the folders that the crates embed (or in others).
//
// usage: node build.mjs [FOLDER_OF_PAGE FOLDER_OF_REPORT]
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';

const here = fileURLToPath(new URL('.', import.meta.url));
const page = process.argv[2] ?? join(here, '../crates/live/src/page');
const report = process.argv[3] ?? join(here, '../crates/report/src/page');
// uPlot's licence has to stay with its code.
const licence = await readFile(join(here, 'node_modules/uplot/LICENSE'), 'utf8');

async function bundle(entryPoints, outdir) {
  await mkdir(outdir, { recursive: true });
  await build({
    absWorkingDir: here,
    entryPoints,
    outdir,
    bundle: true,
    minify: true,
    format: 'iife',
    target: 'es2022',
    charset: 'utf8',
    footer: { js: `/* uPlot:\n${licence.trim()}\n*/` },
    logLevel: 'warning',
  });
}

await bundle({ page: 'src/main.ts' }, page);
await copyFile(join(here, 'src/page.html'), join(page, 'page.html'));
await bundle({ report: 'src/report.ts' }, report);
// A report allows this script by its hash. The newline at the script's end is part of the element's text.
const script = await readFile(join(report, 'report.js'), 'utf8');
await writeFile(join(report, 'report.js.sha256'), `${createHash('sha256').update(script).digest('base64')}\n`);
