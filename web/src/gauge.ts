// Headroom as a bar with a scale: the load now, the largest that holds the objective with its interval, and the limits.

import type { State } from './api';
import { h, svg } from './dom';
import { digits, known, number } from './format';

const WIDTH = 560;
const LEFT = 8;
const RIGHT = 8;
const BAR = 26;

// Round steps of which about six fit below `most`.
function ticks(most: number): number[] {
  const power = 10 ** Math.floor(Math.log10(most / 6));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => most / size <= 7) ?? power * 10;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, index) => index * step);
}

export function gauge(state: State): HTMLElement | null {
  const { headroom } = state;
  if (!headroom || !known(headroom.rate.value)) return null;
  const { low, high } = headroom.rate;
  const saturation = known(headroom.saturation) ? headroom.saturation : null;
  const most = 1.08 * Math.max(state.rate, headroom.rate.value, known(high) ? high : 0, saturation ?? 0);
  const x = (rate: number) => LEFT + ((WIDTH - LEFT - RIGHT) * Math.min(rate, most)) / most;
  const title = `Load now ${number(state.rate)} requests/s, the objective holds up to ${number(headroom.rate.value)}.`;
  const bar = svg('svg', { viewBox: `0 0 ${WIDTH} 92`, role: 'img', 'aria-label': title });
  bar.append(svg('rect', { class: 'room', x: x(0), y: BAR, width: x(headroom.rate.value) - x(0), height: 18 }));
  bar.append(svg('rect', { class: state.rate > headroom.rate.value ? 'load bad' : 'load', x: x(0), y: BAR, width: Math.max(1, x(state.rate) - x(0)), height: 18 }));
  if (known(low) && known(high)) bar.append(svg('rect', { class: 'band', x: x(low), y: BAR - 3, width: Math.max(2, x(high) - x(low)), height: 24 }));
  const flag = (rate: number, label: string, kind: string, row: number) => {
    const at = x(rate);
    const anchor = at > WIDTH * 0.75 ? 'end' : at < WIDTH * 0.15 ? 'start' : 'middle';
    bar.append(svg('path', { class: kind, d: `M${at},${BAR - 4}V${BAR + 24}` }), svg('text', { class: kind, x: at, y: row, 'text-anchor': anchor }, label));
  };
  if (saturation !== null) flag(saturation, `saturated at ${digits(saturation)}`, 'goal', 18);
  for (const at of ticks(most)) {
    bar.append(svg('path', { class: 'axis', d: `M${x(at)},${BAR + 24}v5` }));
    bar.append(svg('text', { x: x(at), y: BAR + 42, 'text-anchor': at === 0 ? 'start' : x(at) > WIDTH - 24 ? 'end' : 'middle' }, digits(at)));
  }
  bar.append(svg('text', { x: WIDTH / 2, y: 89, 'text-anchor': 'middle' }, 'requests/s'));
  const keys = [
    h('span', { class: 'key load' }, 'load now'),
    h('span', { class: 'key room' }, 'room left'),
    h('span', { class: 'key band' }, 'largest load that holds the objective, 95 % interval'),
  ];
  return h('div', {}, bar as unknown as Node, h('div', { class: 'legend', 'aria-hidden': 'true' }, ...keys));
}
