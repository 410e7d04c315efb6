// The controls of a what-if question: a slider and a field for each number, which follow each other.

import { h, say } from './dom';
import { digits, exact } from './format';

export interface Range {
  id: string;
  label: string;
  // Said below the control.
  hint: string;
  low: number;
  high: number;
  // A slider of factors has equal steps of their logarithm.
  isLog: boolean;
  // Whole numbers only.
  isWhole: boolean;
  // What it is until another is asked for.
  value: number;
  // The ends of what the field takes, beside those of the slider.
  least: number;
  most: number;
  unit: string;
  // The only values that it takes, ascending; any value without them.
  stops?: number[] | undefined;
}

const STEPS = 200;

// Why a field does not take what was typed; `null` if it does.
export function refusal(typed: string, range: Pick<Range, 'least' | 'most' | 'isWhole'>, mostText?: string): string | null {
  const value = Number(typed);
  if (typed.trim() === '' || !Number.isFinite(value)) return 'This is no number.';
  if (value < range.least) return `At least ${exact(range.least)}.`;
  if (value > range.most) return mostText ?? `At most ${exact(range.most)}.`;
  return range.isWhole && !Number.isInteger(value) ? 'Whole numbers only.' : null;
}

export class Control {
  readonly element: HTMLElement;
  private readonly slider: HTMLInputElement;
  private readonly field: HTMLInputElement;
  private readonly hint: HTMLElement;
  private readonly wrong: HTMLElement;
  // What was asked for; `null` until then. It is kept while another control allows less.
  private wanted: number | null = null;
  // The most that another control allows, and why.
  private bound: { most: number; text: string } | null = null;

  // `prefix` goes before the names of the elements.
  constructor(private range: Range, private readonly changed: () => void, prefix = '') {
    const { label, hint, unit, stops } = range;
    const id = prefix + range.id;
    this.slider = h('input', { type: 'range', id, min: 0, max: stops ? stops.length - 1 : STEPS, step: 1, 'aria-describedby': `${id}-hint` });
    this.field = h('input', { type: 'number', id: `${id}-field`, step: 'any', 'aria-label': `${label}, number`, 'aria-describedby': `${id}-wrong`, readonly: Boolean(stops) });
    this.wrong = h('p', { class: 'hint wrong', id: `${id}-wrong`, role: 'status', hidden: true });
    this.hint = h('p', { class: 'hint', id: `${id}-hint` }, hint);
    this.slider.addEventListener('input', () => this.take(this.fromSlider(Number(this.slider.value)), true));
    this.field.addEventListener('input', () => this.typed(false));
    this.field.addEventListener('change', () => this.typed(true));
    this.element = h(
      'div',
      { class: 'control' },
      h('label', { for: id }, label),
      h('div', { class: 'inputs' }, this.slider, this.field, h('span', { class: 'unit' }, unit)),
      this.hint,
      this.wrong,
    );
    this.show();
  }

  get value(): number {
    return Math.min(this.wanted ?? this.range.value, this.most);
  }

  private get most(): number {
    return Math.min(this.range.most, this.bound?.most ?? Infinity);
  }

  private get high(): number {
    return Math.min(this.range.high, this.most);
  }

  // The range by a newer model. What was asked for stays, and so do its slider, which a key may be moving, and what is being written.
  renew(range: Range): void {
    const isWriting = document.activeElement === this.field && this.field.value !== String(this.value);
    const { low, high } = this.wanted === null ? range : this.range;
    this.range = { ...range, low, high };
    say(this.hint, range.hint);
    if (this.wanted === null && !isWriting) this.show();
  }

  // Takes over what was asked for of another control with this name.
  follow(other: Control | undefined): void {
    if (!other || other.wanted === null) return;
    const { low, high } = other.range;
    this.range = { ...this.range, low, high };
    this.wanted = other.wanted;
    this.show();
  }

  // The most that it may be beside the other controls: what was asked for comes back when they allow it.
  limit(most: number, text: string): void {
    if (most === this.bound?.most) return;
    this.bound = { most, text };
    this.complain(this.value < (this.wanted ?? 0) ? text : null);
    this.show();
  }

  private fromSlider(step: number): number {
    const { low, isLog, isWhole, stops } = this.range;
    const stop = stops?.[step];
    if (stop !== undefined) return stop;
    const part = step / STEPS;
    const value = isLog ? low * (this.high / low) ** part : low + (this.high - low) * part;
    return isWhole ? Math.round(value) : Number(value.toPrecision(3));
  }

  private toSlider(value: number): number {
    const { low, isLog, stops } = this.range;
    if (stops) return stops.reduce((best, stop, at) => (Math.abs(stop - value) < Math.abs((stops[best] ?? 0) - value) ? at : best), 0);
    if (this.high <= low) return 0;
    const part = isLog ? Math.log(value / low) / Math.log(this.high / low) : (value - low) / (this.high - low);
    return Math.round(STEPS * Math.min(1, Math.max(0, part)));
  }

  // What stands in the field: while it is written, an empty field is not wrong yet. One that is left has the number of the answer.
  private typed(isLeft: boolean): void {
    const text = this.field.value;
    const { least, isWhole } = this.range;
    const why = refusal(text, { least, most: this.most, isWhole }, this.bound?.text);
    if (why === null) {
      // Leaving the field changes nothing, and a reason that stands there is of another control.
      if (!isLeft || Number(text) !== this.value) this.take(Number(text), false);
    } else if (isLeft || text !== '') {
      this.complain(`${why} The answer is for ${exact(this.value)}.`);
    }
    if (isLeft) this.show();
  }

  private take(value: number, isSlider: boolean): void {
    this.wanted = value;
    this.complain(null);
    if (isSlider) this.field.value = String(value);
    else this.slider.value = String(this.toSlider(value));
    this.speak();
    this.changed();
  }

  private complain(text: string | null): void {
    this.wrong.hidden = text === null;
    this.wrong.textContent = text ?? '';
    this.field.setAttribute('aria-invalid', String(text !== null));
  }

  private show(): void {
    const { value } = this;
    this.slider.disabled = !this.range.stops && this.high <= this.range.low;
    this.slider.value = String(this.toSlider(value));
    this.field.value = String(value);
    this.field.setAttribute('aria-invalid', 'false');
    this.speak();
  }

  private speak(): void {
    this.slider.setAttribute('aria-valuetext', `${digits(this.value)} ${this.range.unit}`);
  }
}
