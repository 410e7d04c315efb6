// A run folder as the page reads it: the requests of each step, as the clients saw them.

import { exact } from './format';
import { Histogram, type Stored } from './histogram';

const FORMAT = 1;
// Bounds of what is read: a line of `windows` has some kilobytes.
const LINE_MAX = 16e6;
const STEPS_MAX = 1000;
// Windows may begin and end this much outside of their step.
const SLACK_US = 500;

// The queues that see the clients' requests, nearest to the client first.
const SIDES = ['load', 'gateway', 'node'] as const;
type Side = (typeof SIDES)[number];

interface Window {
  queue: string;
  start_unix_us: number;
  length_s: number;
  arrivals: number;
  completions: number;
  errors: number;
  refusals: number;
  objectives_ms: number[];
  times: { operation: string; outcome: string; response: Stored; within: number[] }[];
}

interface Step {
  index: number;
  rate: number | null;
  start_unix_us: number;
  end_unix_us: number;
}

// The reads of one queue in one step.
export class Reads {
  seconds = 0;
  arrivals = 0;
  completions = 0;
  errors = 0;
  refusals = 0;
  readonly all = new Histogram();
  private readonly good = new Histogram();
  // Reads without an error within each objective of the run, by its milliseconds; only where all windows count at it.
  private readonly counted = new Map<number, number>();
  private windows = 0;
  private readonly windowsCounted = new Map<number, number>();
  readonly outcomes = new Map<string, number>();

  add(window: Window): void {
    this.windows += 1;
    this.seconds += window.length_s;
    this.arrivals += window.arrivals;
    this.completions += window.completions;
    this.errors += window.errors;
    this.refusals += window.refusals;
    for (const ms of window.objectives_ms) this.windowsCounted.set(ms, (this.windowsCounted.get(ms) ?? 0) + 1);
    for (const times of window.times) {
      if (times.operation !== 'get') continue;
      this.all.add(times.response);
      this.outcomes.set(times.outcome, (this.outcomes.get(times.outcome) ?? 0) + times.response.n);
      if (times.outcome === 'error') continue;
      this.good.add(times.response);
      window.objectives_ms.forEach((ms, at) => this.counted.set(ms, (this.counted.get(ms) ?? 0) + (times.within[at] ?? 0)));
    }
  }

  get rate(): number {
    return this.seconds > 0 ? this.arrivals / this.seconds : 0;
  }

  // The share of the reads that arrived which were answered within `tS` seconds without an error: those that were never answered are late.
  within(tS: number): number | null {
    const ofReads = this.completions > 0 ? this.all.count / this.completions : 1;
    const all = this.all.count + Math.max(0, this.arrivals - this.completions) * ofReads;
    if (all === 0) return null;
    const exact = [...this.windowsCounted].find(([ms, windows]) => windows === this.windows && Math.abs((ms * 1e-3) / tS - 1) < 1e-9);
    const good = exact ? (this.counted.get(exact[0]) ?? 0) : this.good.within(tS);
    return good / all;
  }

  get hits(): number | null {
    return this.all.count > 0 ? (this.outcomes.get('memory') ?? 0) / this.all.count : null;
  }

  get known(): number {
    return this.all.count - (this.outcomes.get('unknown') ?? 0);
  }
}

export interface MeasuredStep {
  name: string;
  reads: Reads;
}

export interface Run {
  kind: 'run';
  name: string;
  // The command that wrote it, and when that began, microseconds since 1970.
  command: string | null;
  startUnixUs: number | null;
  laboratory: string | null;
  objectivesMs: number[];
  steps: MeasuredStep[];
}

// The files of a run folder. Without `steps`, or with an empty one, the whole run is one step.
export interface RunFiles {
  description: string;
  steps: string;
  windows: AsyncIterable<string> | Iterable<string>;
}

// The text of a key before the first table of a TOML file.
function key(toml: string, name: string): string | null {
  const top = toml.split(/^\[/m)[0] ?? '';
  const found = new RegExp(`^${name}\\s*=\\s*"((?:[^"\\\\]|\\\\.)*)"`, 'm').exec(top)?.[1];
  return found?.replaceAll(/\\(.)/g, '$1') ?? null;
}

// A line as JSON. An incomplete last line is of a run that goes on, or was killed.
function parsed<T>(line: string, at: number, isLast: boolean, file: string): T | null {
  try {
    return JSON.parse(line) as T;
  } catch {
    if (isLast) return null;
    throw new Error(`line ${at} of \`${file}\` is not a record of a run`);
  }
}

function stepsOf(text: string): Step[] {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  if (lines.length > STEPS_MAX) throw new Error(`\`steps\` has ${exact(lines.length)} lines, and this page shows at most ${exact(STEPS_MAX)}`);
  return lines.flatMap((line, at) => parsed<Step>(line, at + 1, at === lines.length - 1, 'steps') ?? []);
}

type Sides = Record<Side, Reads>;

function sides(): Sides {
  return { load: new Reads(), gateway: new Reads(), node: new Reads() };
}

// The queue nearest to the client that says which component answered, else the nearest with requests: the rule of `concertina report`.
function clientSide(of: Sides): Reads {
  const all = SIDES.map((side) => of[side]);
  return all.find((reads) => reads.all.count > 0 && 2 * reads.known >= reads.all.count) ?? all.find((reads) => reads.all.count > 0) ?? of.load;
}

// The whole number of a key before the first table.
function wholeOf(toml: string, name: string): number | null {
  const top = toml.split(/^\[/m)[0] ?? '';
  const found = new RegExp(`^${name}\\s*=\\s*(\\d+)`, 'm').exec(top)?.[1];
  return found === undefined ? null : Number(found);
}

export async function readRun(name: string, files: RunFiles): Promise<Run> {
  const format = wholeOf(files.description, 'format');
  if (format !== FORMAT) throw new Error(`run.toml has format ${format ?? 'of no number'}, and this page reads format ${FORMAT}`);
  const steps = stepsOf(files.steps);
  const each = steps.map(() => sides());
  const whole = sides();
  const objectives = new Set<number>();
  const isSide = (queue: string): queue is Side => (SIDES as readonly string[]).includes(queue);
  let [at, held] = [0, ''];
  const take = (line: string, isLast: boolean) => {
    at += 1;
    if (line.trim() === '') return;
    const window = parsed<Window>(line, at, isLast, 'windows');
    if (!window || !isSide(window.queue)) return;
    window.objectives_ms.forEach((ms) => objectives.add(ms));
    const { queue, start_unix_us: start, length_s } = window;
    try {
      if (steps.length === 0) whole[queue].add(window);
      steps.forEach((step, index) => {
        const isInside = start + SLACK_US >= step.start_unix_us && start + length_s * 1e6 <= step.end_unix_us + SLACK_US;
        if (isInside) each[index]?.[queue].add(window);
      });
    } catch (error) {
      throw new Error(`line ${at} of \`windows\`: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
  for await (const piece of files.windows) {
    const lines = (held + piece).split('\n');
    held = lines.pop() ?? '';
    if (held.length > LINE_MAX) throw new Error(`\`windows\` has a line of more than ${LINE_MAX / 1e6} MB, so it is not a file of a run`);
    for (const line of lines) take(line, false);
  }
  take(held, true);
  const title = (step: Step) => `step ${step.index}${step.rate === null ? '' : `, ${exact(Number(step.rate.toPrecision(4)))}/s`}`;
  const measured = steps.length > 0 ? steps.map((step, index) => ({ name: title(step), reads: clientSide(each[index] ?? sides()) })) : [{ name: 'all of it', reads: clientSide(whole) }];
  const filled = measured.filter((step) => step.reads.all.count > 0);
  if (filled.length === 0) throw new Error('it has no reads of clients (queues `load`, `gateway`, `node`) within its steps');
  const [command, laboratory] = [key(files.description, 'kind'), key(files.description, 'laboratory')];
  const startUnixUs = wholeOf(files.description, 'start_unix_us');
  return { kind: 'run', name, command, startUnixUs, laboratory, objectivesMs: [...objectives].sort((a, b) => a - b), steps: filled };
}
