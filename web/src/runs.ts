// Runs: measurements and models from files, two of them laid over each other.

import { type Answer, Refusal } from './api';
import type { Answers } from './answers';
import { refusal } from './controls';
import { h, say, table } from './dom';
import type { Figure, Line } from './figure';
import { digits, exact, number, percent, span } from './format';
import { Plot } from './plot';
import type { Reads, Run } from './run';

export interface ModelFile {
  kind: 'model';
  name: string;
  text: string;
  // The largest load to which it was fitted, requests/s.
  rate: number;
}

export type Source = Run | ModelFile;

const SOURCES_MAX = 16;
const POINTS = 160;
const INKS = ['measured', 'predicted'] as const;

// One of the two that are laid over each other.
interface Side {
  source: Source | null;
  step: number;
  // The load of a model, requests/s.
  rate: number;
  select: HTMLSelectElement;
  field: HTMLInputElement;
  row: HTMLElement;
}

// What is drawn of a side.
interface Shown {
  source: Source;
  label: string;
  reads: Reads | null;
  answer: Answer | null;
  points: { rate: number; within: number | null }[];
}

export class Runs {
  readonly element: HTMLElement;
  private readonly sources: Source[] = [];
  private readonly sides: Side[];
  private readonly said = h('p', { role: 'status', class: 'runs-said' });
  private readonly opened = h('ul', { class: 'opened' });
  private readonly form = h('form', { class: 'buttons', 'aria-label': 'What is laid over each other' });
  private readonly beside = h('div', { class: 'scroll' });
  private readonly law = new Plot('Open a run folder or a model: its response times are drawn here.');
  private readonly loads = new Plot('Measurements of one load are one point: a model, or a run with several steps, has a line.');
  private readonly objective = h('input', { type: 'number', class: 'objective-ms', min: 0.001, step: 'any', value: 50, 'aria-label': 'Time of the objective, ms' });
  private asked = 0;

  constructor(private readonly answers: Answers, opener: HTMLElement | null) {
    this.sides = ['First', 'Second'].map((label, at) => this.side(label, at));
    this.form.append(...this.sides.map((side) => side.row), h('label', {}, 'Objective ', this.objective, ' ms'));
    this.form.addEventListener('submit', (event) => event.preventDefault());
    this.objective.addEventListener('change', () => void this.draw());
    if (answers.objectiveS !== null) {
      this.objective.value = String(Number((1000 * answers.objectiveS).toPrecision(6)));
      this.objective.readOnly = true;
    }
    const tables = h('section', {}, h('h2', {}, 'Beside each other'), this.beside);
    const law = h('section', { class: 'runs-law' }, h('h2', {}, 'Response times'), this.law.element);
    const loads = h('section', { class: 'runs-loads' }, h('h2', {}, 'Within the objective, by load'), this.loads.element);
    this.element = h('div', { class: 'runs' }, ...(opener ? [opener] : []), this.opened, this.form, this.said, h('div', { class: 'two' }, law, loads), tables);
    this.fill();
  }

  private side(label: string, at: number): Side {
    const select = h('select', { 'aria-label': `${label} run or model` });
    const field = h('input', { type: 'number', min: 0, step: 'any', 'aria-label': `Load of the ${label.toLowerCase()}, requests/s` });
    const unit = h('label', { hidden: true }, ' at ', field, ' requests/s');
    const side: Side = { source: null, step: 0, rate: 0, select, field, row: h('span', { class: `key ${INKS[at] ?? ''}` }, `${label} `, select, unit) };
    select.addEventListener('change', () => {
      this.choose(side, select.value);
      void this.draw();
    });
    field.addEventListener('change', () => {
      const why = refusal(field.value, { least: 0, most: 1e12, isWhole: false });
      if (why === null) side.rate = Number(field.value);
      field.value = String(side.rate);
      if (why === null) void this.draw();
      else say(this.said, `The load of a model: ${why} The answer is for ${exact(side.rate)}.`);
    });
    return side;
  }

  // Takes what was opened, and lays it over what was there.
  add(found: Source): void {
    if (this.sources.length >= SOURCES_MAX) throw new Error(`this page holds ${SOURCES_MAX} runs and models: remove one first`);
    const source = { ...found, name: ownName(found.name, this.sources.map((other) => other.name)) };
    this.sources.push(source);
    const at = this.sources.length - 1;
    const free = this.sides.find((side) => side.source === null) ?? this.sides[1];
    const [objective] = source.kind === 'run' ? source.objectivesMs : [];
    if (at === 0 && objective !== undefined && !this.objective.readOnly) this.objective.value = String(objective);
    this.fill();
    if (free) this.choose(free, `${at}/0`);
    void this.draw();
  }

  // Says what went wrong with files.
  refuse(text: string): void {
    say(this.said, text);
  }

  private remove(source: Source): void {
    this.sources.splice(this.sources.indexOf(source), 1);
    for (const side of this.sides) if (side.source === source) side.source = null;
    this.fill();
    void this.draw();
  }

  private choose(side: Side, value: string): void {
    const [at, step] = value.split('/').map(Number);
    side.source = value === '' ? null : (this.sources[at ?? 0] ?? null);
    side.step = step ?? 0;
    side.select.value = value;
    const isModel = side.source?.kind === 'model';
    const unit = side.field.parentElement;
    if (unit) unit.hidden = !isModel;
    // A model is asked about the load of the other, where that was measured.
    const other = this.sides.find((one) => one !== side);
    const measured = other?.source?.kind === 'run' ? other.source.steps[other.step]?.reads.rate : undefined;
    if (side.source?.kind === 'model') side.rate = Number((measured ?? side.source.rate).toPrecision(4));
    if (isModel) this.offer(side);
  }

  // Answers that were computed before are of some loads only.
  private offer(side: Side): void {
    const stops = this.answers.stops?.rate;
    if (stops) side.rate = stops.reduce((best, stop) => (Math.abs(stop - side.rate) < Math.abs(best - side.rate) ? stop : best), stops[0] ?? side.rate);
    side.field.value = String(side.rate);
    side.field.readOnly = Boolean(stops);
  }

  // The lists of what is open.
  private fill(): void {
    const items = this.sources.map((source) => {
      const remove = h('button', { type: 'button', class: 'quiet', 'aria-label': `Remove ${source.name}` }, 'Remove');
      remove.addEventListener('click', () => this.remove(source));
      return h('li', {}, h('strong', {}, source.name), ` (${source.kind === 'run' ? about(source) : 'a model'}) `, remove);
    });
    this.opened.replaceChildren(...items);
    this.form.hidden = this.sources.length === 0;
    for (const side of this.sides) {
      const option = (value: string, text: string) => h('option', { value }, text);
      const all = this.sources.flatMap((source, at) => (source.kind === 'model' ? [option(`${at}/0`, source.name)] : source.steps.map((step, index) => option(`${at}/${index}`, `${source.name}, ${step.name}`))));
      side.select.replaceChildren(option('', 'nothing'), ...all);
      const at = side.source ? this.sources.indexOf(side.source) : -1;
      side.select.value = at < 0 ? '' : `${at}/${side.step}`;
      if (at < 0 && side.field.parentElement) side.field.parentElement.hidden = true;
    }
  }

  private async show(side: Side, objectiveS: number): Promise<Shown | null> {
    const { source } = side;
    if (!source) return null;
    if (source.kind === 'run') {
      const step = source.steps[side.step];
      const points = source.steps.map(({ reads }) => ({ rate: reads.rate, within: reads.within(objectiveS) }));
      return { source, label: `${source.name}, ${step?.name ?? ''}`, reads: step?.reads ?? null, answer: null, points };
    }
    const changes = { servers: 1, lost: 0, memory: 1, memory_exponent: 1, speed: 1, devices: {}, mix: [] };
    const question = { rate: side.rate, objective_s: objectiveS, share: 0.99, changes };
    const { answer } = await this.answers.ask(source.text ? { ...question, model: source.text } : question);
    return { source, label: `${source.name} at ${digits(answer.rate)}/s`, reads: null, answer, points: answer.loads };
  }

  private async draw(): Promise<void> {
    this.asked += 1;
    const asked = this.asked;
    const objectiveS = this.answers.objectiveS ?? Number(this.objective.value) / 1000;
    try {
      if (!(objectiveS > 0)) throw new Error('the time of the objective is a number of milliseconds above 0');
      const shown = await Promise.all(this.sides.map((side) => this.show(side, objectiveS)));
      // A later change has been drawn already.
      if (asked !== this.asked) return;
      say(this.said, shown.flatMap((side) => side?.answer?.statement ?? []).join(' '));
      this.law.update(lawFigure(shown, objectiveS));
      this.loads.update(loadsFigure(shown, objectiveS));
      this.beside.replaceChildren(compared(shown, objectiveS));
      document.body.dataset['runs'] = String(asked);
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      say(this.said, error instanceof Refusal && error.status === 503 ? 'The server is answering others; change something to ask again.' : error.message);
    }
  }
}

// A name that no other source has: two runs opened by their files are both called `run`.
export function ownName(name: string, taken: string[]): string {
  if (!taken.includes(name)) return name;
  let number = 2;
  while (taken.includes(`${name} ${number}`)) number += 1;
  return `${name} ${number}`;
}

// What the list says of a run beside its name.
function about(run: Run): string {
  const begun = run.startUnixUs === null ? [] : [new Date(run.startUnixUs / 1000).toLocaleString()];
  const steps = `${run.steps.length} ${run.steps.length === 1 ? 'step' : 'steps'}`;
  return [[...(run.command ? [run.command] : []), ...begun].join(', '), steps, ...(run.laboratory ? [`emulated: ${run.laboratory}`] : [])].filter((part) => part !== '').join('; ');
}

// The times at which laws are drawn: those of a model's answer, else those that the reads took.
function times(shown: (Shown | null)[]): number[] {
  const law = shown.find((side) => side?.answer && side.answer.law.length > 0)?.answer?.law;
  if (law) return law.map((point) => point.t_s);
  const reads = shown.flatMap((side) => side?.reads ?? []);
  const low = Math.min(...reads.map((of) => of.all.quantile(0.001) ?? Infinity));
  const high = Math.max(...reads.map((of) => of.all.quantile(1) ?? 0));
  if (!(low > 0 && high > low)) return [];
  return Array.from({ length: POINTS }, (_, at) => low * (high / low) ** (at / (POINTS - 1)));
}

function lawFigure(shown: (Shown | null)[], objectiveS: number): Figure {
  const x = times(shown);
  const lines = shown.flatMap((side, at): Line[] => {
    const { reads, answer, label } = side ?? {};
    // Two models that are asked about the same objective have answers at the same times.
    const values = reads ? x.map((t) => reads.within(t)) : answer && answer.law.length === x.length ? answer.law.map((point) => point.predicted) : null;
    return values ? [{ label: label ?? '', ink: INKS[at] ?? 'before', dashed: !reads, values }] : [];
  });
  return {
    title: 'Share of requests answered within each time, of two runs or models.',
    name: 'runs-response-times',
    xLabel: 'response time',
    yLabel: 'share within',
    xKind: 'log',
    xText: span,
    x,
    yLow: 0,
    lines,
    marks: [{ axis: 'x', at: objectiveS, label: `objective ${span(objectiveS)}` }],
  };
}

function loadsFigure(shown: (Shown | null)[], objectiveS: number): Figure {
  const x = [...new Set(shown.flatMap((side) => side?.points.map((point) => point.rate) ?? []))].sort((a, b) => a - b);
  const lines = shown.flatMap((side, at): Line[] => {
    // Two steps of one run are on the same line.
    if (!side || shown.findIndex((other) => other?.source === side.source) < at) return [];
    const found = new Map(side.points.map((point) => [point.rate, point.within]));
    return [{ label: side.source.name, ink: INKS[at] ?? 'before', dots: side.reads !== null, values: x.map((rate) => found.get(rate) ?? null) }];
  });
  return {
    title: `Share of requests within ${span(objectiveS)} at each load, of two runs or models.`,
    name: 'runs-loads',
    xLabel: 'requests/s',
    yLabel: 'share within the objective',
    xKind: 'linear',
    xText: digits,
    x,
    yLow: 0,
    lines,
    marks: [],
  };
}

function compared(shown: (Shown | null)[], objectiveS: number): HTMLElement {
  const rows = shown.flatMap((side): string[][] => {
    if (!side) return [];
    const { label, reads, answer } = side;
    if (reads) {
      const late = [reads.errors, reads.refusals].map((count) => digits(count));
      return [[label, number(reads.rate), digits(reads.all.count), percent(reads.within(objectiveS)), span(reads.all.meanS), span(reads.all.quantile(0.5)), span(reads.all.quantile(0.99)), percent(reads.hits), ...late]];
    }
    const prediction = answer?.prediction;
    return [[label, number(answer?.rate), 'predicted', percent(prediction?.points[0]?.concertina.value), span(prediction?.response_mean.value), '–', span(answer?.response_p99?.value), percent(prediction?.hit_ratio.value), '–', '–']];
  });
  const head = ['', 'requests/s', 'reads', `within ${span(objectiveS)}`, 'mean', 'median', 'p99', 'from memory', 'errors', 'refused'];
  return rows.length > 0 ? table(head, rows, 'Reads, as the clients saw them') : h('p', { class: 'dim' }, 'Nothing is chosen.');
}
