// The controls of a what-if question: a slider and a field for each number, which follow each other.

import { h } from './dom';
import { digits } from './format';

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
  value: number;
  // The largest number that the field takes, past the slider's end.
  most: number;
  unit: string;
  // The only values that it takes, ascending; any value without them.
  stops?: number[] | undefined;
}

const STEPS = 200;

export class Control {
  readonly element: HTMLElement;
  private readonly slider: HTMLInputElement;
  private readonly field: HTMLInputElement;
  private current: number;

  constructor(private range: Range, private readonly changed: () => void) {
    this.current = range.value;
    const { id, label, hint, most, unit, stops } = range;
    this.slider = h('input', { type: 'range', id, min: 0, max: stops ? stops.length - 1 : STEPS, step: 1, 'aria-describedby': `${id}-hint` });
    this.field = h('input', { type: 'number', id: `${id}-field`, min: 0, max: most, step: 'any', 'aria-label': `${label}, number`, readonly: Boolean(stops) });
    this.slider.addEventListener('input', () => this.take(this.fromSlider(Number(this.slider.value)), true));
    this.field.addEventListener('input', () => this.take(Number(this.field.value), false));
    this.field.addEventListener('change', () => this.show());
    this.element = h(
      'div',
      { class: 'control' },
      h('label', { for: id }, label),
      h('div', { class: 'inputs' }, this.slider, this.field, h('span', { class: 'unit' }, unit)),
      h('p', { class: 'hint', id: `${id}-hint` }, hint),
    );
    this.show();
  }

  get value(): number {
    return this.current;
  }

  // Another value, and another end of the slider, without a question.
  set(value: number, range: Partial<Range> = {}): void {
    this.range = { ...this.range, ...range };
    this.current = value;
    this.show();
  }

  private fromSlider(step: number): number {
    const { low, high, isLog, isWhole, stops } = this.range;
    const stop = stops?.[step];
    if (stop !== undefined) return stop;
    const part = step / STEPS;
    const value = isLog ? low * (high / low) ** part : low + (high - low) * part;
    return isWhole ? Math.round(value) : Number(value.toPrecision(3));
  }

  private toSlider(value: number): number {
    const { low, high, isLog, stops } = this.range;
    if (stops) return stops.reduce((best, stop, at) => (Math.abs(stop - value) < Math.abs((stops[best] ?? 0) - value) ? at : best), 0);
    const part = isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return Math.round(STEPS * Math.min(1, Math.max(0, part)));
  }

  private take(value: number, isSlider: boolean): void {
    const { most, isWhole } = this.range;
    const least = this.range.isLog ? 1e-6 : 0;
    if (!Number.isFinite(value) || value < least || value > most || (isWhole && !Number.isInteger(value))) return;
    this.current = value;
    if (isSlider) this.field.value = String(value);
    else this.slider.value = String(this.toSlider(value));
    this.speak();
    this.changed();
  }

  private show(): void {
    this.slider.value = String(this.toSlider(this.current));
    this.field.value = String(this.current);
    this.speak();
  }

  private speak(): void {
    this.slider.setAttribute('aria-valuetext', `${digits(this.current)} ${this.range.unit}`);
  }
}
