// What if: other loads, servers, memory, devices or mixes, answered by the server's model while a slider moves.

import type { Answers } from './answers';
import { type Answer, type Changes, type Knobs, type Question, Refusal } from './api';
import { Control, type Range } from './controls';
import { h, say, table } from './dom';
import { save } from './export';
import { type Figure, type Line, shareText } from './figure';
import { digits, exact, known, number, percent, span, words } from './format';
import { Plot } from './plot';
import { type Ranges, all, computed } from './ranges';
import { resource } from './words';

// How hits follow memory: hits ∝ memory^exponent.
const POPULARITY: [string, number][] = [
  ['all objects equally popular', 1],
  ['some objects more popular (Zipf 0.5)', 0.5],
  ['a few very popular objects (Zipf 0.8)', 0.2],
  ['memory does not matter', 0],
];

const UNCHANGED: Changes = { servers: 1, lost: 0, memory: 1, memory_exponent: 1, speed: 1, devices: {}, mix: [] };

export class WhatIf {
  private knobs: Knobs | null = null;
  private base: Answer | null = null;
  // The model and the objective of that.
  private baseOf = '';
  private controls = new Map<string, Control>();
  private readonly exponent = h('select', { id: 'exponent' }, ...POPULARITY.map(([text, value]) => h('option', { value: String(value) }, text)));
  private readonly law = new Plot('No answer at this load: it is past saturation.');
  private readonly loads = new Plot('Memory answers everything, at any load.');
  private readonly form = h('form', { class: 'controls', 'aria-label': 'What is different' });
  private readonly said = h('p', { role: 'status', id: 'what-if-said' });
  private readonly ofFiles = h('p', { role: 'status', id: 'what-if-file-said' });
  private readonly tiles = h('div', { class: 'tiles', id: 'answer' });
  private readonly beside = h('div', { class: 'scroll' });
  private readonly command = h('code', {});
  // What needs a model, and what needs an answer.
  private readonly asking: HTMLElement[];
  private readonly answered: HTMLElement[];
  // The text of a model file that was opened, in place of the server's model.
  private model: { name: string; text: string } | null = null;
  private isAsking = false;
  private isStale = false;
  private readonly times: number[] = [];

  constructor(
    private readonly answers: Answers,
    place: HTMLElement,
    private readonly failed: (error: unknown) => void,
  ) {
    this.form.addEventListener('submit', (event) => event.preventDefault());
    this.exponent.addEventListener('change', () => void this.ask());
    const reset = button('Reset', () => this.reset());
    const download = button('Download this model', () => void this.download());
    const file = h('input', { type: 'file', id: 'model-file', accept: '.toml' });
    file.addEventListener('change', () => void this.open(file.files?.[0]));
    this.answered = [
      h('section', {}, h('h2', {}, 'Response times'), this.law.element),
      h('section', {}, h('h2', {}, 'Within the objective, by load'), this.loads.element),
      this.beside,
      h('section', {}, h('h2', {}, 'The same on the command line'), h('p', { class: 'dim' }, 'With the model downloaded as model.toml:'), h('pre', {}, this.command)),
    ];
    const results = h('div', { class: 'results' }, this.tiles, this.said, ...this.answered);
    const other = h('p', {}, h('label', { for: 'model-file' }, 'Ask another model, from '), h('code', {}, 'concertina fit'), ': ', file);
    this.asking = [
      h('p', { class: 'dim' }, answers.stops ? 'The sliders stop where answers were computed.' : 'Change what you like; everything else stays as it is now.'),
      this.form,
      h('p', { class: 'buttons' }, reset, download),
    ];
    const side = h('div', { class: 'side' }, ...this.asking, ...(answers.stops ? [] : [other]), this.ofFiles);
    this.show(false);
    this.offer(false);
    place.append(h('div', { class: 'split' }, side, results));
  }

  // What an answer fills is hidden while there is none.
  private show(isAnswered: boolean): void {
    if (!isAnswered) this.tiles.replaceChildren();
    for (const element of [this.tiles, ...this.answered]) element.hidden = !isAnswered;
  }

  // Controls are hidden while there is no model.
  private offer(isOffered: boolean): void {
    for (const element of this.asking) element.hidden = !isOffered;
  }

  // Called while the part is shown: the server fits a newer model every few seconds.
  async refresh(): Promise<void> {
    // A model from a file stays as it is.
    if (this.model) return;
    const knobs = await this.answers.knobs();
    if (knobs) {
      if (!this.model && this.take(knobs)) void this.ask();
      return;
    }
    const why = await this.answers.whyNone();
    // A model file was opened meanwhile.
    if (this.model) return;
    // A server that was started again has no model any more.
    this.knobs = null;
    this.show(false);
    this.offer(false);
    say(this.said, `${why} Until there is one, a model file can be asked.`);
    document.body.dataset['whatIf'] = 'none';
  }

  // The knobs of the newest model; what was asked for stays. Whether they are other ones.
  private take(knobs: Knobs): boolean {
    const before = this.knobs;
    if (JSON.stringify(knobs) === JSON.stringify(before)) return false;
    this.knobs = knobs;
    this.offer(true);
    const { shown, folded } = this.ranges(knobs);
    const isSame = [...shown, ...folded].map((range) => range.id).join() === [...this.controls.keys()].join();
    if (!isSame) this.build(knobs, this.controls);
    else for (const range of [...shown, ...folded]) this.controls.get(range.id)?.renew(range);
    return true;
  }

  private ranges(knobs: Knobs): Ranges {
    const { stops } = this.answers;
    return stops ? computed(knobs, stops) : all(knobs);
  }

  // The controls of a model, with what was asked for before.
  private build(knobs: Knobs, before: Map<string, Control>): void {
    const { stops } = this.answers;
    const { shown, folded } = this.ranges(knobs);
    const changed = () => {
      this.bound();
      void this.ask();
    };
    const control = (range: Range): [string, Control] => {
      // A report has other elements with the names of the controls.
      const made = new Control(range, changed, stops ? 'what-if-' : '');
      made.follow(before.get(range.id));
      return [range.id, made];
    };
    this.controls = new Map([...shown, ...folded].map(control));
    const elements = (ranges: Range[]) => ranges.flatMap(({ id }) => this.controls.get(id)?.element ?? []);
    this.form.replaceChildren(...elements(shown));
    if (folded.length > 0) this.form.append(h('details', {}, h('summary', {}, 'Objective and prices'), ...elements(folded)));
    if (!stops) this.controls.get('memory')?.element.after(h('div', { class: 'control' }, h('label', { for: 'exponent' }, 'How hits follow memory'), this.exponent));
    this.bound();
  }

  // Everything as the newest model has it.
  private reset(): void {
    if (!this.knobs) return;
    this.offer(true);
    this.exponent.value = '1';
    this.build(this.knobs, new Map());
    void this.ask();
  }

  // Of all servers together some are left.
  private bound(): void {
    const servers = this.value('servers', 1);
    const text = servers === 1 ? 'The only server cannot fail: none would answer.' : `Of ${exact(servers)} servers at most ${exact(servers - 1)} can fail.`;
    this.controls.get('lost')?.limit(servers - 1, text);
  }

  private value(id: string, otherwise = 0): number {
    return this.controls.get(id)?.value ?? otherwise;
  }

  private question(): Question {
    const knobs = this.knobs;
    const devices: Record<string, number> = {};
    const prices: Record<string, number> = {};
    for (const of of knobs?.classes ?? []) {
      const count = this.value(`devices-${of.name}`, of.count);
      if (count !== of.count) devices[of.name] = count;
      prices[of.name] = this.value(`price-${of.name}`);
    }
    const shares = (knobs?.kinds ?? []).map((kind, at) => this.value(`kind-${at}`, 100 * kind.share) / 100);
    const isMixed = (knobs?.kinds ?? []).some((kind, at) => Math.abs((shares[at] ?? 0) - kind.share) > 1e-4);
    const changes: Changes = {
      servers: this.value('servers', 1),
      lost: this.value('lost'),
      memory: this.value('memory', 1),
      memory_exponent: Number(this.exponent.value),
      speed: this.value('speed', 1),
      devices,
      mix: isMixed ? (knobs?.kinds ?? []).map((kind, at) => ({ operation: kind.operation, bytes: kind.bytes[1] || null, share: shares[at] ?? 0 })) : [],
    };
    const [server, memory] = [this.value('price-server'), this.value('price-memory')];
    if (server + memory + Object.values(prices).reduce((sum, price) => sum + price, 0) > 0) changes.prices = { server, memory, devices: prices };
    const objective = { objective_s: this.value('objective-ms', 1000 * (knobs?.objective_s ?? 0)) / 1000, share: this.value('share', 100 * (knobs?.share ?? 0)) / 100 };
    const question: Question = { rate: this.value('rate', knobs?.rate), ...objective, changes };
    return this.model ? { ...question, model: this.model.text } : question;
  }

  // Asks for the newest position of the controls: while an answer is awaited, only the last change counts.
  private async ask(): Promise<void> {
    this.isStale = true;
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      while (this.isStale) {
        this.isStale = false;
        const question = this.question();
        const start = performance.now();
        const { knobs, answer } = await this.answers.ask(question);
        // Another model was opened meanwhile.
        if (question.model !== this.model?.text) continue;
        // The server has fitted another model: its question follows.
        if (this.take(knobs)) this.isStale = true;
        await this.askUnchanged(question, knobs);
        this.draw(question, answer);
        this.times.push(performance.now() - start);
        if (this.times.length > 1000) this.times.shift();
        document.body.dataset['whatIf'] = String(this.times.length);
        document.body.dataset['whatIfMs'] = this.times.map((time) => time.toFixed(1)).join();
      }
    } catch (error) {
      if (!(error instanceof Refusal)) return this.failed(error);
      say(this.said, error.message);
      // Others ask, too. What the server refuses for another reason has no answer, and that of the question before is not shown for it.
      if (error.status === 503) setTimeout(() => void this.ask(), 1000);
      else this.show(false);
    } finally {
      this.isAsking = false;
    }
  }

  // What the answers are compared with: no changes, by the same model. It is asked again when the server has fitted another.
  private async askUnchanged(question: Question, knobs: Knobs): Promise<void> {
    const { objective_s, share } = question;
    const of = JSON.stringify([knobs.at_unix_us, this.model?.name, objective_s, share]);
    if (of === this.baseOf) return;
    const { changes: _, rate: __, ...same } = question;
    this.base = (await this.answers.ask({ ...same, rate: knobs.rate, changes: UNCHANGED })).answer;
    this.baseOf = of;
  }

  private draw(question: Question, answer: Answer): void {
    this.show(true);
    const { prediction, headroom } = answer;
    const within = prediction?.points[0]?.concertina ?? null;
    const holds = known(within?.value) && within.value >= question.share;
    const tile = (label: string, value: string, more: string, kind = '') =>
      h('div', { class: `tile ${kind}` }, h('span', { class: 'dim' }, label), h('strong', {}, value), h('span', { class: 'dim' }, more));
    const interval = (low: string, high: string) => `95 %: ${low} to ${high}`;
    const p99 = answer.response_p99;
    const tiles = [
      tile(`Within ${span(question.objective_s)}`, within ? percent(within.value) : 'saturated', within ? interval(percent(within.low), percent(within.high)) : 'queues grow without end', holds ? 'good' : 'bad'),
      tile('Headroom', headroom ? `${number(headroom.value)} ×` : '–', `holds up to ${number(answer.largest_rate.value)} requests/s`, known(headroom?.value) && headroom.value >= 1 ? 'good' : 'bad'),
      tile('Response p99', p99 ? span(p99.value) : '–', p99 ? interval(span(p99.low), span(p99.high)) : ''),
      tile('Busiest device', prediction ? percent(prediction.utilisation_max.value) : '–', prediction ? `memory answers ${percent(prediction.hit_ratio.value)}` : ''),
      tile('Breaks first', breaks(answer), `saturated at ${number(answer.limits.saturation.value)} requests/s`),
    ];
    if (answer.cost !== null) tiles.push(tile('Cost', digits(answer.cost), `${digits(answer.servers)} servers answer`));
    this.tiles.replaceChildren(...tiles);
    const doubts: string[] = [];
    if (this.model) doubts.push(`Of the model ${this.model.name}.`);
    if (this.knobs?.laboratory) doubts.push(`Emulated: ${this.knobs.laboratory.replace(/\.$/, '')}.`);
    if (answer.statement) doubts.push(answer.statement);
    if (prediction?.beyond_trust) doubts.push(`The model was checked up to ${number(answer.trust_limit)} requests/s; at this load it is extrapolated.`);
    if (prediction?.beyond_limit) doubts.push(`Past ${number(answer.limits.mg1.value)} requests/s queues at the devices are long.`);
    say(this.said, doubts.join(' '));
    this.law.update(this.lawFigure(question, answer));
    this.loads.update(this.loadsFigure(question, answer));
    say(this.command, commandOf(question, this.exponent.value));
    this.beside.replaceChildren(this.compared(question, answer));
  }

  // What was, beside what would be.
  private compared(question: Question, answer: Answer): HTMLElement {
    const of = (found: Answer | null) => {
      const within = found?.prediction?.points[0]?.concertina.value;
      return [
        found ? number(found.rate) : '–',
        number(found?.servers),
        percent(within),
        span(found?.prediction?.response_mean.value),
        span(found?.response_p99?.value),
        number(found?.largest_rate.value),
      ];
    };
    const head = ['', 'requests/s', 'servers', `within ${span(question.objective_s)}`, 'mean', 'p99', 'holds up to, requests/s'];
    return table(head, [['as it is', ...of(this.base)], ['what if', ...of(answer)]], 'Beside each other');
  }

  private lawFigure(question: Question, answer: Answer): Figure {
    const points = answer.law;
    const lines: Line[] = [];
    const before = this.base?.law ?? [];
    const isSame = before.length === points.length && before.every((point, at) => point.t_s === points[at]?.t_s);
    if (isSame) lines.push({ label: 'as it is', ink: 'before', values: before.map((point) => point.predicted) });
    lines.push({ label: 'what if', ink: 'predicted', values: points.map((point) => point.predicted) });
    if (points.some((point) => point.published !== null)) lines.push({ label: 'published model', ink: 'published', dashed: true, values: points.map((point) => point.published) });
    return {
      title: 'Predicted share of requests answered within each time.',
      name: 'what-if-response-times',
      xLabel: 'response time',
      yLabel: 'share within',
      xKind: 'log',
      xText: span,
      x: points.map((point) => point.t_s),
      yLow: 0,
      lines,
      marks: [{ axis: 'x', at: question.objective_s, label: `objective ${span(question.objective_s)}` }],
    };
  }

  private loadsFigure(question: Question, answer: Answer): Figure {
    const points = answer.loads;
    return {
      title: `Predicted share of requests within ${span(question.objective_s)} at each load.`,
      name: 'what-if-loads',
      xLabel: 'requests/s',
      yLabel: 'share within the objective',
      xKind: 'linear',
      xText: digits,
      x: points.map((point) => point.rate),
      yLow: 0,
      lines: [{ label: 'what if', ink: 'predicted', values: points.map((point) => point.within) }],
      marks: [
        { axis: 'x', at: answer.rate, label: 'load' },
        { axis: 'y', at: question.share, label: `objective ${shareText(question.share)}` },
      ],
    };
  }

  private async download(): Promise<void> {
    try {
      const text = this.model?.text ?? (await this.answers.modelText());
      save('model.toml', new Blob([text], { type: 'application/toml' }));
    } catch (error) {
      if (error instanceof Refusal) say(this.ofFiles, error.message);
      else this.failed(error);
    }
  }

  // Asks a model file in place of the server's model.
  private async open(file: File | undefined): Promise<void> {
    if (!file) return;
    say(this.ofFiles, '');
    try {
      const text = await file.text();
      const { knobs } = await this.answers.ask({ model: text });
      this.model = { name: file.name, text };
      this.knobs = knobs;
      this.baseOf = '';
      this.reset();
    } catch (error) {
      if (error instanceof Refusal) say(this.ofFiles, error.message);
      else this.failed(error);
    }
  }
}

function button(text: string, click: () => void): HTMLButtonElement {
  const made = h('button', { type: 'button' }, text);
  made.addEventListener('click', click);
  return made;
}

function breaks(answer: Answer): string {
  const { breaks_first: first } = answer.limits;
  if (first === 'devices' && answer.busiest) return `${words(answer.busiest)}s`;
  return resource(first);
}

// The command that says the same.
function commandOf(question: Question, exponent: string): string {
  const { changes } = question;
  const parts = [`concertina predict model.toml --rate ${question.rate} --servers ${changes.servers}`];
  const isMoved = changes.memory !== 1 || changes.lost > 0 || Object.keys(changes.devices).length > 0;
  if (changes.lost > 0) parts.push(`--lost ${changes.lost}`);
  if (changes.memory !== 1) parts.push(`--memory ${changes.memory}`);
  if (isMoved && exponent !== '1') parts.push(`--memory-exponent ${exponent}`);
  if (changes.speed !== 1) parts.push(`--speed ${changes.speed}`);
  for (const [name, count] of Object.entries(changes.devices)) parts.push(`--devices ${name}=${count}`);
  if (changes.mix.length > 0) {
    const mix = changes.mix.map((part) => `${part.operation}${part.bytes === null ? '' : ` ${part.bytes}B`}=${part.share}`);
    parts.push(`--mix "${mix.join(', ')}"`);
  }
  const ms = Number((question.objective_s * 1000).toPrecision(6));
  parts.push(`--within ${ms}ms --objective "${Number((100 * question.share).toPrecision(6))}% within ${ms}ms"`);
  return parts.join(' \\\n    ');
}
