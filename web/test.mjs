// A day of the page's history at speed, and what is drawn of it: nothing grows, and no point is lost or twice.
//
// usage: node --test
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

// A module as the page has it.
async function module(name) {
  const here = fileURLToPath(new URL('.', import.meta.url));
  const built = await build({ absWorkingDir: here, entryPoints: [`src/${name}.ts`], bundle: true, format: 'esm', write: false });
  return import(`data:text/javascript,${encodeURIComponent(built.outputFiles[0].text)}`);
}

// What a server would answer at a time: every second has 100 requests, of which 90 are within the objective.
function series(seconds, first, end, most) {
  const from = Math.max(Math.ceil(first / seconds) * seconds, Math.floor(end / seconds) * seconds - seconds * (most - 1), 0);
  const unix_s = [];
  for (let at = from; at <= end; at += seconds) unix_s.push(at);
  const of = (value) => unix_s.map(() => value);
  const counts = { arrivals: of(100 * seconds), requests: of(100 * seconds), within: of(90 * seconds) };
  return { seconds, unix_s, ...counts, predicted: of(0.9), low: of(0.8), high: of(1) };
}

test('a day of refreshes keeps what the server keeps', async () => {
  const { Past } = await module('history');
  let now = 0;
  globalThis.fetch = async (path) => {
    const after = Number(new URL(path, 'http://x').searchParams.get('after'));
    const fine = series(1, after, now, 3600);
    return Response.json({ objective_s: 0.05, share: 0.95, fine, coarse: series(60, after, now, 1440) });
  };
  const past = new Past();
  const state = { objective_s: 0.05, share: 0.95, ahead: null };
  // Two days, a refresh each minute; the page asks each two seconds, of which a minute has the same steps.
  for (now = 0; now < 2 * 86_400; now += 60) await past.refresh();
  now -= 60;
  const { fine, coarse } = past;
  for (const [kept, most] of [[fine, 3600], [coarse, 1440]]) {
    for (const column of ['unix_s', 'arrivals', 'requests', 'within', 'predicted', 'low', 'high']) {
      assert.equal(kept[column].length, most, column);
    }
    assert.ok(kept.unix_s.every((at, index) => index === 0 || at === kept.unix_s[index - 1] + kept.seconds));
  }
  for (const length of [600, 3600, 86_400]) {
    const { x, lines } = past.figure(state, length);
    assert.ok(x.length > 60 && x.length <= 361, `${x.length} points of ${length} s`);
    for (const line of lines) assert.ok(line.values.every((value) => Math.abs(value - 0.9) < 1e-9));
  }
});

test('files have what is drawn', async () => {
  const { csv, logTicks, shareTicks } = await module('figure');
  const lines = [{ label: 'a "b"', ink: 'measured', values: [0.5, null], low: [0.4, null], high: [0.6, null] }];
  const figure = { xLabel: 'time', x: [1, 2], lines };
  assert.equal(csv(figure), '"time","a ""b""","a ""b"", low","a ""b"", high"\n1,0.5,0.4,0.6\n2,,,\n');
  assert.deepEqual(logTicks(0.001, 0.01), [0.001, 0.002, 0.005, 0.01]);
  assert.deepEqual(shareTicks(0.9), [0.9, 0.92, 0.94, 0.96, 0.98, 1]);
});

test('numbers are as people read them', async () => {
  const { bytes, number, percent, span } = await module('format');
  assert.deepEqual([0.0123, 0.5, 75, null, Infinity].map(span), ['12.3 ms', '500 ms', '1.25 min', '–', '–']);
  assert.deepEqual([0.5, 0.9912, 1, null].map(percent), ['50.0 %', '99.12 %', '100.0 %', '–']);
  assert.deepEqual([0, 12.345, 1234.5, 2.5e6, NaN].map(number), ['0', '12.3', '1235', '2.50 M', '–']);
  assert.deepEqual([12, 2048, 3.5 * 2 ** 20].map(bytes), ['12 B', '2 KiB', '3.5 MiB']);
});
