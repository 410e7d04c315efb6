// What each control of a what-if question may be: the ends are those that the server takes (crates/model/src/what_if.rs).

import type { Stops } from './answers';
import type { Knobs } from './api';
import type { Range } from './controls';
import { clock, digits, number, percent, span, words } from './format';

export interface Ranges {
  shown: Range[];
  // Those below a heading that opens.
  folded: Range[];
}

type More = { isLog?: boolean; isWhole?: boolean; least?: number; most?: number; unit?: string };

function range(id: string, label: string, hint: string, [low, high]: [number, number], value: number, more: More = {}): Range {
  return { id, label, hint, low, high, value, isLog: false, isWhole: false, least: low, most: high, unit: '', ...more };
}

// The load that a model was fitted at: a server's newest model, or one from a file.
function loadOf({ at_unix_us: at, rate }: Knobs): string {
  return at === null ? `fitted up to ${number(rate)} requests/s` : `${number(rate)} requests/s at ${clock(at)}`;
}

// Every control of a server, which answers any question.
export function all(knobs: Knobs): Ranges {
  const rate = Number(knobs.rate.toPrecision(4)) || 1;
  const per = { isLog: true, least: 1e-3, most: 1000, unit: '×' };
  const devices = ({ name, count, share }: Knobs['classes'][number]) => {
    const hint = name === 'hot_device' ? `now ${digits(count)}; more of them hold more of what is read often` : `now ${digits(count)}, sharing ${percent(share)} of the reads`;
    return range(`devices-${name}`, `${words(name)}s of a server`, hint, [1, Math.max(4, 4 * count)], count, { isWhole: true, most: 10_000 });
  };
  const kinds = knobs.kinds.length > 1 ? knobs.kinds : [];
  const price = { most: 1e9 };
  return {
    shown: [
      range('rate', 'Load', loadOf(knobs), [rate / 10, rate * 10], rate, { isLog: true, least: 1e-6, most: 1e12, unit: '/s' }),
      range('servers', 'Servers', 'like this one, sharing the load equally', [1, 50], 1, { isWhole: true, most: 1e6 }),
      range('lost', 'Failed servers', 'the others hold their replicas', [0, 5], 0, { isWhole: true, most: 1e6 }),
      range('memory', 'Memory of a server', 'times what it has', [1 / 8, 8], 1, per),
      ...knobs.classes.map(devices),
      range('speed', 'Speed of the devices', 'times their present speed', [1 / 8, 8], 1, per),
      ...kinds.map((kind, at) => range(`kind-${at}`, `Share of ${kind.title}`, `now ${percent(kind.share)}`, [0, 100], Number((100 * kind.share).toPrecision(4)), { unit: '%' })),
    ],
    folded: [
      range('objective-ms', 'Time of the objective', `now ${span(knobs.objective_s)}`, [1, 1000], Number((1000 * knobs.objective_s).toPrecision(4)), { isLog: true, least: 1e-3, most: 1e7, unit: 'ms' }),
      range('share', 'Share of the objective', `now ${percent(knobs.share)}`, [50, 99.9], Number((100 * knobs.share).toPrecision(5)), { least: 0.1, most: 99.999, unit: '%' }),
      range('price-server', 'Price of a server', 'without memory and devices', [0, 1000], 0, price),
      range('price-memory', 'Price of its memory', 'of what it has now', [0, 1000], 0, price),
      ...knobs.classes.map((of) => range(`price-${of.name}`, `Price of a ${words(of.name)}`, '', [0, 1000], 0, price)),
    ],
  };
}

// The controls of a report: those that have more than one computed answer. A report has other elements with their names.
export function computed(knobs: Knobs, stops: Stops): Ranges {
  const made = (id: keyof Stops, label: string, hint: string, value: number, unit: string) =>
    stops[id].length > 1 ? [{ ...range(id, label, hint, [0, 0], value, { most: 1e12, unit }), stops: stops[id] }] : [];
  const shown = [
    ...made('rate', 'Load', `fitted up to ${number(knobs.rate)} requests/s`, knobs.rate, '/s'),
    ...made('servers', 'Servers', 'like the fitted one, sharing the load equally', 1, ''),
    ...made('memory', 'Memory of a server', 'times what it had, if all objects are equally popular', 1, '×'),
    ...made('speed', 'Speed of the devices', 'times what it was', 1, '×'),
  ];
  return { shown, folded: [] };
}
