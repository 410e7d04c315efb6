// A day of the page's history at speed, and what is drawn of it: nothing grows, and no point is lost or twice.
//
// usage: node --test
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

// Modules as the page has them, together.
async function module(...names) {
  const resolveDir = fileURLToPath(new URL('./src', import.meta.url));
  const contents = names.map((name) => `export * from './${name}';`).join('\n');
  const built = await build({ absWorkingDir: resolveDir, stdin: { contents, resolveDir }, bundle: true, format: 'esm', write: false });
  return import(`data:text/javascript,${encodeURIComponent(built.outputFiles[0].text)}`);
}

// As much of a document as controls and what-if questions use: elements with children, attributes, and listeners that `fire` calls.
class Element {
  constructor(name) {
    Object.assign(this, { name, children: [], attributes: {}, listeners: {}, classes: new Set(), value: '', hidden: false, disabled: false, clientWidth: 600 });
    const { classes } = this;
    this.classList = { add: (of) => classes.add(of), remove: (of) => classes.delete(of), toggle: (of, is) => (is ? classes.add(of) : classes.delete(of)) };
  }
  setAttribute(key, value) {
    this.attributes[key] = value;
    if (key === 'hidden') this.hidden = true;
    if (key === 'value') this.value = value;
  }
  removeAttribute(key) {
    delete this.attributes[key];
  }
  append(...children) {
    for (const child of children) if (child instanceof Element) child.parentElement = this;
    this.children.push(...children);
  }
  after(...others) {
    const { children } = this.parentElement;
    children.splice(children.indexOf(this) + 1, 0, ...others);
  }
  replaceChildren(...children) {
    this.children = [];
    this.append(...children);
  }
  addEventListener(kind, run) {
    this.listeners[kind] = run;
  }
  fire(kind) {
    this.listeners[kind]?.({ preventDefault() {} });
  }
  get textContent() {
    return this.children.map((child) => (typeof child === 'string' ? child : child.textContent)).join('');
  }
  set textContent(text) {
    this.children = [text];
  }
  // What a person sees of it.
  get text() {
    return this.hidden ? '' : this.children.map((child) => (typeof child === 'string' ? child : child.text)).join(' ');
  }
  find(is) {
    if (is(this)) return this;
    for (const child of this.children) {
      const found = child instanceof Element ? child.find(is) : null;
      if (found) return found;
    }
    return null;
  }
  id(id) {
    return this.find((element) => element.attributes.id === id);
  }
}

globalThis.document = { createElement: (name) => new Element(name), createElementNS: (_, name) => new Element(name), body: { dataset: {} } };
globalThis.ResizeObserver = class {
  observe() {}
};
globalThis.matchMedia = () => ({ addEventListener() {} });

// Types a text into the field of a control.
function type(place, id, text) {
  const field = place.id(`${id}-field`);
  field.value = text;
  field.fire('input');
  return field;
}

// Until what was asked for is there.
async function settled() {
  for (let turn = 0; turn < 20; turn += 1) await null;
}

const KNOBS = {
  at_unix_us: 1, rate: 6.08, objective_s: 0.05, share: 0.95, laboratory: null,
  classes: [{ name: 'bulk_device', count: 4, share: 1 }],
  kinds: [{ operation: 'get', bytes: [1, 4096], share: 0.75, title: 'GET' }, { operation: 'put', bytes: [1, 4096], share: 0.25, title: 'PUT' }],
};

// A server's answers: the newest model, and the questions that it was asked.
function server() {
  const parameter = (value) => ({ value, low: value, high: value });
  const asked = [];
  const of = {
    asked, knobsNow: KNOBS, refusal: null, why: '',
    answers: {
      stops: null,
      objectiveS: null,
      modelText: async () => '',
      whyNone: async () => of.why,
      knobs: async () => (of.refusal?.status === 409 ? null : of.knobsNow),
      ask: async (question) => {
        asked.push(question);
        if (of.refusal) throw of.refusal;
        const { rate, changes } = question;
        const answer = {
          rate, servers: changes.servers - changes.lost, cost: null, prediction: null, response_p99: null, statement: 'It is saturated.', busiest: null,
          limits: { mg1: parameter(1), saturation: parameter(2), breaks_first: null }, largest_rate: parameter(1), headroom: null, trust_limit: null, law: [], loads: [],
        };
        return { knobs: of.knobsNow, answer };
      },
    },
  };
  return of;
}

// The part of the page that asks a server, and how the server refuses from then on.
async function whatIf(of, status) {
  const { Refusal, WhatIf } = await module('what-if', 'api');
  const refuse = (code, text) => {
    of.refusal = code ? new Refusal(code, text) : null;
  };
  if (status) refuse(status, 'no model');
  const place = new Element('div');
  const part = new WhatIf(of.answers, place, (error) => {
    throw error;
  });
  await part.refresh();
  await settled();
  return { part, place, refuse };
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
  const { bytes, exact, number, percent, span } = await module('format');
  assert.deepEqual([0.0123, 0.5, 75, null, Infinity].map(span), ['12.3 ms', '500 ms', '1.25 min', '–', '–']);
  assert.deepEqual([0.5, 0.9912, 1, null].map(percent), ['50.0 %', '99.12 %', '100.0 %', '–']);
  assert.deepEqual([0, 12.345, 99.96, 1234.4, 639364, 2.5e6, NaN].map(number), ['0', '12.3', '100', '1,234', '639,364', '2,500,000', '–']);
  // The examples of `ground::number::digits`, which the commands print with.
  assert.deepEqual([0.1 + 0.2, -1234.4, 12_345_678, 1e300, 1e-6].map(number), ['0.3', '−1,234', '12.3 M', '1e300', '0.000001']);
  assert.deepEqual([99.999, 1e6, 0.001].map(exact), ['99.999', '1,000,000', '0.001']);
  assert.deepEqual([12, 2048, 3.5 * 2 ** 20].map(bytes), ['12 B', '2 KiB', '3.5 MiB']);
});

// A histogram of times in nanoseconds, as run folders hold it: buckets of 1/128 of an octave.
function stored(times) {
  const counts = new Map();
  for (const time of times) {
    let width = 1;
    let octave = 0;
    while (time / width >= 256) [width, octave] = [width * 2, octave + 1];
    const bucket = time < 128 ? time : (octave + 1) * 128 + Math.floor(time / width) - 128;
    counts.set(bucket, (counts.get(bucket) ?? 0) + 1);
  }
  const buckets = [...counts].sort((a, b) => a[0] - b[0]).flat();
  return { n: times.length, sum_ns: times.reduce((a, b) => a + b, 0), max_ns: Math.max(...times), buckets };
}

test('a histogram agrees with the times that it counts', async () => {
  const { Histogram } = await module('histogram');
  const times = Array.from({ length: 5000 }, (_, at) => Math.floor(10 ** (3 + ((at * 7919) % 5000) / 1000)));
  const histogram = new Histogram();
  histogram.add(stored(times.slice(0, 2000)));
  histogram.add(stored(times.slice(2000)));
  const sorted = [...times].sort((a, b) => a - b);
  assert.ok(Math.abs(histogram.meanS / (times.reduce((a, b) => a + b, 0) * 1e-9 / 5000) - 1) < 1e-12);
  for (const p of [0.001, 0.1, 0.5, 0.99, 1]) {
    const exact = sorted[Math.ceil(p * 5000) - 1] * 1e-9;
    assert.ok(Math.abs(histogram.quantile(p) / exact - 1) < 1 / 64, `${p}: ${histogram.quantile(p)} and ${exact}`);
  }
  for (const t of [1e-6, 1e-4, 3e-3, 1]) {
    const exact = sorted.filter((time) => time * 1e-9 <= t).length;
    assert.ok(Math.abs(histogram.within(t) - exact) <= 20, `${t}: ${histogram.within(t)} and ${exact}`);
  }
  assert.throws(() => histogram.add({ n: 2, sum_ns: 1, max_ns: 1, buckets: [5, 1] }), /has 1 in its buckets/);
  assert.throws(() => histogram.add({ n: 1, sum_ns: 1, max_ns: 1, buckets: [9999, 1] }), /no bucket 9999/);
});

test('a run is read in pieces, each window to its step', async () => {
  const { readRun } = await module('run');
  const times = (outcome, list) => ({ operation: 'get', outcome, response: stored(list), within: [list.filter((time) => time <= 2e6).length] });
  const window = (second, queue, of) => JSON.stringify({ queue, start_unix_us: second * 1e6, length_s: 1, arrivals: 4, completions: 3, errors: 1, refusals: 0, objectives_ms: [2], times: of });
  const good = [times('memory', [1e6, 1e6]), times('error', [1e3])];
  const lines = [window(10, 'load', good), window(11, 'load', good), window(11, 'device/0', good), window(20, 'load', [times('bulk_device', [9e6, 9e6, 9e6])]), window(12, 'load', good)];
  // The last line broke off.
  const text = `${lines.join('\n')}\n${window(21, 'load', good).slice(0, 40)}`;
  const steps = [10, 20].map((second, index) => JSON.stringify({ index, rate: 4, start_unix_us: second * 1e6, end_unix_us: (second + 2) * 1e6 })).join('\n');
  const description = 'format = 1\nkind = "load"\nstart_unix_us = 1796064928964111\nlaboratory = "disks \\"of 4 ms\\""\n[machine]\nlaboratory = "x"\nkind = "y"\n';
  const pieces = text.match(/[^]{1,17}/g);
  const run = await readRun('a', { description, steps, windows: pieces });
  assert.equal(run.laboratory, 'disks "of 4 ms"');
  assert.deepEqual([run.command, run.startUnixUs], ['load', 1796064928964111]);
  assert.deepEqual(run.steps.map((step) => step.name), ['step 0, 4/s', 'step 1, 4/s']);
  const [first, second] = run.steps.map((step) => step.reads);
  // Two windows of the first step: an error and what was not answered are late.
  assert.deepEqual([first.seconds, first.arrivals, first.all.count, first.hits], [2, 8, 6, 4 / 6]);
  assert.equal(first.within(2e-3), 4 / 8);
  assert.equal(second.within(2e-3), 0);
  assert.ok(Math.abs(second.within(10e-3) - 3 / 4) < 1e-9);
  const whole = await readRun('a', { description, steps: '', windows: [text] });
  assert.deepEqual(whole.steps.map((step) => [step.name, step.reads.seconds]), [['all of it', 4]]);
  await assert.rejects(readRun('a', { description, steps, windows: ['{\n{}\n'] }), /line 1 of `windows`/);
  await assert.rejects(readRun('a', { description: 'format = 2', steps, windows: [text] }), /format 2/);
});

test('runs and models that were opened have names of their own', async () => {
  const { ownName } = await module('runs');
  const names = [];
  for (const name of ['run', 'run', 'model.toml', 'run', 'model.toml', 'run 2']) names.push(ownName(name, names));
  assert.deepEqual(names, ['run', 'run 2', 'model.toml', 'run 3', 'model.toml 2', 'run 2 2']);
});

test('a control says why it does not take a number', async () => {
  const { refusal } = await module('controls');
  const servers = { least: 1, most: 1e6, isWhole: true };
  const said = ['0', '-1', '2000000', '1.5', '', 'x', '1', '1000000'].map((typed) => refusal(typed, servers));
  assert.deepEqual(said, ['At least 1.', 'At least 1.', 'At most 1,000,000.', 'Whole numbers only.', 'This is no number.', 'This is no number.', null, null]);
  const { all } = await module('ranges');
  const { shown, folded } = all(KNOBS);
  for (const range of [...shown, ...folded]) {
    const { id, value, low, high, least, most } = range;
    assert.ok(least <= low && low <= value && value <= high && high <= most, id);
    assert.equal(refusal(String(value), range), null, id);
    for (const typed of [least - 1, most * 2]) assert.notEqual(refusal(String(typed), range), null, `${id} ${typed}`);
  }
  // What a server takes: crates/model/src/what_if.rs.
  const ends = Object.fromEntries([...shown, ...folded].map(({ id, least, most }) => [id, [least, most]]));
  for (const [id, of] of [['servers', [1, 1e6]], ['memory', [1e-3, 1e3]], ['speed', [1e-3, 1e3]], ['devices-bulk_device', [1, 1e4]], ['objective-ms', [1e-3, 1e7]], ['share', [0.1, 99.999]]]) {
    assert.deepEqual(ends[id], of, id);
  }
});

test('only so many servers fail as there are others', async () => {
  const of = server();
  const { place } = await whatIf(of);
  const last = () => of.asked[of.asked.length - 1].changes;
  const said = (id) => place.id(`${id}-wrong`).text;
  const field = type(place, 'servers', '0');
  await settled();
  assert.equal(said('servers'), 'At least 1. The answer is for 1.');
  assert.equal(field.attributes['aria-invalid'], 'true');
  assert.ok(of.asked.every(({ changes }) => changes.servers === 1 && changes.lost === 0), 'nothing was asked of 0 servers');
  // Who leaves the field finds the number of the answer, and why.
  field.fire('change');
  assert.deepEqual([field.value, said('servers')], ['1', 'At least 1. The answer is for 1.']);
  type(place, 'lost', '1');
  assert.equal(said('lost'), 'The only server cannot fail: none would answer. The answer is for 0.');
  type(place, 'servers', '12');
  assert.equal(said('servers'), '');
  type(place, 'lost', '3');
  await settled();
  assert.deepEqual([last().servers, last().lost, said('lost')], [12, 3, '']);
  // On the way to 10 there is 1, and then the three that fail are there again.
  type(place, 'servers', '1');
  await settled();
  assert.deepEqual([last().lost, place.id('lost-field').value, place.id('lost').disabled], [0, '0', true]);
  type(place, 'servers', '10');
  await settled();
  assert.deepEqual([last().lost, place.id('lost-field').value, place.id('lost').disabled], [3, '3', false]);
  type(place, 'servers', '3');
  await settled();
  assert.deepEqual([last().lost, said('lost'), place.id('lost-field').value], [2, 'Of 3 servers at most 2 can fail.', '2']);
  // An arrow key moves a slider by less than a server, and the next one goes on from there.
  const slider = place.id('servers');
  for (const kind of ['input', 'change']) {
    slider.value = '1';
    slider.fire(kind);
  }
  assert.deepEqual([slider.value, place.id('servers-field').value], ['1', '1']);
  for (const [id, typed, least] of [['rate', '0', '0.000001'], ['price-server', '-1', '0'], ['speed', '0', '0.001']]) {
    type(place, id, typed);
    assert.ok(said(id).startsWith(`At least ${least}. The answer is for `), `${id}: ${said(id)}`);
  }
});

test('what if begins with the newest model, and keeps what was asked for', async () => {
  const of = server();
  const { part, place } = await whatIf(of);
  const last = (at) => of.asked[of.asked.length - at];
  const rate = () => place.id('rate-field').value;
  // What is as it is follows the server, in the control and in both rows of the table.
  of.knobsNow = { ...KNOBS, at_unix_us: 2e15, rate: 20.31 };
  await part.refresh();
  await settled();
  assert.equal(rate(), '20.31');
  assert.ok(place.id('rate-hint').text.startsWith('20.3 requests/s at '), place.id('rate-hint').text);
  assert.deepEqual([last(2).rate, last(1).rate], [20.31, 20.31]);
  const asked = of.asked.length;
  await part.refresh();
  await settled();
  assert.equal(of.asked.length, asked, 'the same model is asked once');
  // An answer of a newer model counts at once.
  of.knobsNow = { ...KNOBS, at_unix_us: 3e15, rate: 30 };
  type(place, 'servers', '4');
  await settled();
  assert.deepEqual([rate(), last(1).rate, last(1).changes.servers], ['30', 30, 4]);
  // A slider stays where a key has moved it to.
  const slider = place.id('lost');
  slider.value = '1';
  slider.fire('input');
  of.knobsNow = { ...KNOBS, at_unix_us: 35e14, rate: 35 };
  await part.refresh();
  await settled();
  assert.deepEqual([slider.value, rate()], ['1', '35']);
  // What was moved stays, beside a model that knows other devices too.
  type(place, 'rate', '500');
  const classes = [...KNOBS.classes, { name: 'hot_device', count: 1, share: 0 }];
  of.knobsNow = { ...KNOBS, at_unix_us: 4e15, rate: 40, classes };
  await part.refresh();
  await settled();
  assert.deepEqual([rate(), last(1).rate, last(1).changes.servers], ['500', 40, 1], 'as it is, which is asked last');
  assert.deepEqual([last(2).rate, last(2).changes.servers], [500, 4]);
  assert.ok(place.id('devices-hot_device-field'), 'a control of the other devices');
  // Reset is to the newest.
  place.find((element) => element.name === 'button' && element.text === 'Reset').fire('click');
  await settled();
  assert.deepEqual([rate(), place.id('servers-field').value, last(1).rate], ['40', '1', 40]);
});

test('what if shows what there is an answer for, and says why there is none', async () => {
  const of = server();
  of.why = 'A device is always busy.';
  const { part, place, refuse } = await whatIf(of, 409);
  const RESULTS = ['Response times', 'Within the objective, by load', 'The same on the command line', 'Breaks first'];
  const shown = () => [...RESULTS, 'Reset', 'Load'].filter((part) => place.text.includes(part));
  assert.deepEqual(shown(), []);
  assert.ok(place.text.includes('A device is always busy. Until there is one, a model file can be asked.'), place.text);
  assert.ok(place.text.includes('Ask another model'), place.text);
  refuse(null);
  await part.refresh();
  await settled();
  assert.deepEqual(shown(), [...RESULTS, 'Reset', 'Load']);
  // A question that is refused has no answer; that of the one before is not shown for it.
  refuse(400, 'the sum of the shares');
  type(place, 'servers', '2');
  await settled();
  assert.deepEqual(shown(), ['Reset', 'Load']);
  assert.ok(place.text.includes('the sum of the shares'));
  // A server that was started again has no model, and then has the same one.
  refuse(409, 'no model');
  await part.refresh();
  assert.deepEqual(shown(), []);
  refuse(null);
  await part.refresh();
  await settled();
  assert.deepEqual(shown(), [...RESULTS, 'Reset', 'Load']);
});

test('why there is no model is what the server says', async () => {
  const { server: ofServer } = await module('answers');
  globalThis.fetch = async () => new Response(null, { status: 204 });
  assert.equal(await ofServer.knobs(), null);
  globalThis.fetch = async () => Response.json(KNOBS);
  assert.deepEqual(await ofServer.knobs(), KNOBS);
  const said = async (why) => {
    globalThis.fetch = async (path) => Response.json({ model: { why_not_fitted: why } }, { status: path === '/model' ? 200 : 404 });
    return ofServer.whyNone();
  };
  assert.equal(await said('a device is always busy'), 'No model at the moment: a device is always busy.');
  assert.ok((await said('fewer than 200 requests in the window')).startsWith('Not enough requests for a model yet'));
  assert.ok((await said(null)).startsWith('No model yet'));
});
