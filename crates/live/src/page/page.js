'use strict';
// Reads /model and /actions every two seconds and draws them. Text goes into the page as text only.
const SVG = 'http://www.w3.org/2000/svg', W = 560, H = 190, L = 44, B = 24, R = 8, T = 8;
const byId = (id) => document.getElementById(id);
const STATUS = { held: 'not made: all changes are held', too_many: 'not made: too many changes in a minute' };
let token = '';

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const percent = (value) => known(value) ? (100 * value).toFixed(value > 0.99 ? 2 : 1) + ' %' : '–';
const digits = (value) => value >= 100 ? value.toFixed(0) : value.toPrecision(3);
const span = (s) => !known(s) ? '–' : s >= 1 ? digits(s) + ' s' : s >= 1e-3 ? digits(s * 1e3) + ' ms' : digits(s * 1e6) + ' µs';
const number = (value) => known(value) ? digits(value) : '–';
const words = (name) => name.replaceAll('_', ' ');
const time = (us) => new Date(us / 1000).toLocaleTimeString();
const bytes = (n) => n >= 1048576 ? (n / 1048576).toFixed(1) + ' MiB' : (n / 1024).toFixed(0) + ' KiB';

function rows(id, all, classes) {
  const body = byId(id).tBodies[0];
  body.replaceChildren(...all.map((cells, i) => {
    const row = document.createElement('tr');
    if (classes && classes[i]) row.className = classes[i];
    for (const cell of cells) row.appendChild(document.createElement('td')).textContent = cell;
    return row;
  }));
}

// A plot: axes with three labels each, and lines of [class, label, points].
function plot(id, lines, x, y, xText, yText, goal) {
  const svg = element('svg', { viewBox: `0 0 ${W} ${H}`, role: 'img' });
  const at = ([a, b]) => [L + (W - L - R) * x(a), H - B - (H - B - T) * y(b)];
  svg.append(element('path', { class: 'axis', d: `M${L},${T}V${H - B}H${W - R}` }));
  xText.forEach(([value, text], i) => svg.append(element('text', { x: at([value, 0])[0], y: H - 8, 'text-anchor': i === xText.length - 1 ? 'end' : 'middle' }, text)));
  for (const [value, text] of yText) svg.append(element('text', { x: L - 5, y: H - B - (H - B - T) * y(value) + 4, 'text-anchor': 'end' }, text));
  svg.append(element('path', { class: 'goal', d: goal(at) }));
  const labels = [['goal', 'objective']];
  for (const [kind, label, points] of lines) {
    const shown = points.filter(([a, b]) => known(a) && known(b)).map((p) => at(p).map((v) => v.toFixed(1)).join(','));
    if (!shown.length) continue;
    svg.append(element('polyline', { class: kind, points: shown.join(' ') }));
    labels.push([kind, label]);
  }
  // Above the lines, which may pass below them.
  labels.forEach(([kind, label], i) => svg.append(element('text', { class: kind, x: W - R - 4, y: H - B - 8 - 14 * i, 'text-anchor': 'end' }, label)));
  byId(id).replaceChildren(svg);
}

function drawWithin(model) {
  const scored = model.scored;
  if (!scored.length) { byId('within').textContent = 'No prediction has been compared with what happened yet.'; return; }
  const first = scored[0].at_unix_us, last = Math.max(scored[scored.length - 1].at_unix_us, first + 1);
  const least = Math.min(model.share, ...scored.map((s) => Math.min(s.measured, s.predicted.value)));
  const low = Math.max(0, least - 0.05);
  plot('within',
    [['measured', 'measured', scored.map((s) => [s.at_unix_us, s.measured])],
     ['predicted', 'predicted before', scored.map((s) => [s.at_unix_us, s.predicted.value])]],
    (t) => (t - first) / (last - first), (p) => (p - low) / (1 - low),
    [[first, time(first)], [last, time(last)]], [[low, percent(low)], [1, '100 %']],
    (at) => `M${at([first, model.share]).join(',')}L${at([last, model.share]).join(',')}`);
}

function drawCurve(model) {
  const points = model.curve.filter((p) => p.t_s > 0);
  if (points.length < 2) { byId('curve').textContent = 'No requests yet.'; return; }
  const low = Math.log(points[0].t_s), high = Math.log(Math.max(points[points.length - 1].t_s, model.objective_s * 1.1));
  const middle = Math.exp((low + high) / 2);
  plot('curve',
    [['measured', 'measured', points.map((p) => [p.t_s, p.measured])],
     ['predicted', 'model', points.map((p) => [p.t_s, p.predicted])]],
    (t) => (Math.log(t) - low) / (high - low), (p) => p,
    [Math.exp(low), middle, Math.exp(high)].map((t) => [t, span(t)]), [[0, '0'], [0.5, '50 %'], [1, '100 %']],
    (at) => `M${at([model.objective_s, 0]).join(',')}L${at([model.objective_s, 1]).join(',')}`);
}

function drawHeadroom(model) {
  const head = model.headroom;
  byId('bar').replaceChildren();
  if (!head) { byId('headroom').textContent = 'Not known: ' + (model.why_not_fitted || 'no model yet') + '.'; return; }
  const times = head.times;
  byId('headroom').textContent = `The objective (${percent(model.share)} within ${span(model.objective_s)}) holds up to ${number(head.rate.value)} requests/s, ` +
    `${number(times.value)} times the present load (95 %: ${number(times.low)} to ${number(times.high)}). ` +
    `${head.breaks_first || 'Nothing'} saturates first, at ${number(head.saturation)} requests/s. ` +
    `Confidence limit: ${number(head.confidence_limit)} requests/s` + (head.beyond_limit ? '; past it queues are long.' : '.');
  const most = Math.max(2, known(times.high) ? times.high : times.value) * 1.1, x = (v) => L + (W - L - R) * Math.min(v, most) / most;
  const svg = element('svg', { viewBox: `0 0 ${W} 46`, role: 'img' });
  svg.append(element('rect', { class: 'fill', x: L, y: 8, width: x(1) - L, height: 14 }));
  svg.append(element('rect', { class: 'band', x: x(times.low), y: 8, width: Math.max(2, x(times.high) - x(times.low)), height: 14 }));
  svg.append(element('path', { class: 'predicted', d: `M${x(times.value)},4V26` }));
  svg.append(element('text', { x: x(1), y: 40, 'text-anchor': 'middle' }, 'now'), element('text', { x: x(times.value), y: 40, 'text-anchor': 'middle' }, number(times.value) + ' ×'));
  byId('bar').append(svg);
}

// A parameter that no longer has its fitted value, as the command line shows it.
function changed(change) {
  const parameter = change.parameter, share = parameter === 'hit_ratio';
  const text = parameter.service_time ? span : share ? percent : number;
  const name = parameter.service_time ? 'service time of ' + words(parameter.service_time) : share ? 'hit ratio' : 'dispersion of arrivals';
  return `${name}: ${text(change.now.value)} instead of ${text(change.fitted)}`;
}

function draw(shown, actions) {
  const model = shown.model, errors = model.errors;
  byId('told').textContent = !known(model.measured.within) ? 'No requests to predict from yet.' : `${number(model.rate)} requests/s; ${percent(model.measured.within)} within ${span(model.objective_s)} (objective ${percent(model.share)}), measured over ${number(model.window_s)} s. ` +
    (model.ahead ? `Expected at ${time(model.ahead.at_unix_us)}: ${percent(model.ahead.within.value)} at ${number(model.ahead.rate)} requests/s (${number(model.ahead.rate_low)} to ${number(model.ahead.rate_high)}${model.ahead.may_saturate ? ', which may saturate it' : ''}). ` : '') +
    (errors.count ? `Error of ${errors.count} predictions: median ${number(errors.median_points)}, worst ${number(errors.worst_points)} points.` : '');
  byId('doubt').hidden = !model.withheld;
  byId('doubt').textContent = model.withheld ? 'Advice is not followed: ' + model.withheld + '.' : '';
  drawWithin(model); drawHeadroom(model); drawCurve(model);
  rows('loads', model.loads.map((at) => [number(at.times) + ' ×', number(at.rate) + (at.beyond_limit ? ' (extrapolated)' : ''), at.within ? percent(at.within.value) : 'saturated',
    at.within ? percent(at.within.low) + ' to ' + percent(at.within.high) : '–', span(at.p50_s), span(at.p99_s)]));
  rows('tiers', model.measured.outcomes.map(([part, share]) => [words(part), percent(share)]));
  rows('queues', model.stations.map((s) => [s.queue, number(s.rate), span(s.service_mean_s), s.servers ? percent(s.utilisation) : '–', number(s.length),
    s.length_ahead === null ? 'grows without bound' : number(s.length_ahead), s.queue in shown.footprints ? bytes(shown.footprints[s.queue]) : '–']));
  byId('changes').textContent = model.changes.map((c) => `${time(c.certain_unix_us)} ${changed(c)}`).reverse().join('; ');
  byId('held').textContent = (actions.held ? 'All changes are held until `concertina resume`. ' : '') + (actions.actions.length ? '' : 'Nothing was changed or advised yet.');
  rows('journal', actions.actions.slice(0, 50).map((a) => [time(a.at_unix_us), a.target, a.change, a.reason, STATUS[a.status] || a.status,
    `${a.expected.quantity}: ${number(a.expected.before)}, ${number(a.expected.after)}, ${number(a.realised)}`]), actions.actions.map((a) => a.status === 'made' ? '' : 'dim'));
  document.body.dataset.drawn = String(model.at_unix_us);
}

async function read(path) {
  const reply = await fetch(path, { headers: token ? { authorization: 'Bearer ' + token } : {}, cache: 'no-store' });
  if (reply.status === 401) { byId('asked').hidden = false; throw new Error('the token is missing or wrong'); }
  if (!reply.ok) throw new Error(path + ' answered ' + reply.status);
  return reply.json();
}

async function refresh() {
  try {
    const [shown, actions] = await Promise.all([read('/model'), read('/actions')]);
    byId('asked').hidden = true;
    draw(shown, actions);
  } catch (error) {
    byId('told').textContent = 'No figures: ' + error.message + '.';
  }
  setTimeout(refresh, 2000);
}
byId('asked').addEventListener('submit', (event) => { event.preventDefault(); token = byId('token').value; });
refresh();
