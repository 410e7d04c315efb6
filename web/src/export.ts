// Figures as files.

import { ink } from './colours';
import { type Figure, csv, logTicks, shareText, shareTicks } from './figure';
import { svg } from './dom';

const WIDTH = 720;
const HEIGHT = 360;
const LEFT = 60;
const RIGHT = 16;
const TOP = 34;
const BOTTOM = 40;

// Offers a file to the user.
export function save(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  document.body.dataset['saved'] = name;
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export async function byKind(kind: 'PNG' | 'SVG' | 'CSV', figure: Figure, canvas: HTMLCanvasElement): Promise<Blob | null> {
  if (kind === 'CSV') return new Blob([csv(figure)], { type: 'text/csv' });
  if (kind === 'SVG') return new Blob([drawing(figure)], { type: 'image/svg+xml' });
  return new Promise((done) => opaque(canvas).toBlob(done, 'image/png'));
}

// The canvas of a plot has no background.
function opaque(canvas: HTMLCanvasElement): HTMLCanvasElement {
  const copy = document.createElement('canvas');
  copy.width = canvas.width;
  copy.height = canvas.height;
  const context = copy.getContext('2d');
  if (context) {
    context.fillStyle = ink('back');
    context.fillRect(0, 0, copy.width, copy.height);
    context.drawImage(canvas, 0, 0);
  }
  return copy;
}

// The figure as SVG with attributes in place of a style sheet, so that any program shows it.
export function drawing(figure: Figure): string {
  const low = figure.x[0] ?? 0;
  const high = figure.x[figure.x.length - 1] ?? 1;
  const scale = figure.xKind === 'log' ? Math.log : (value: number) => value;
  const x = (value: number) => LEFT + ((WIDTH - LEFT - RIGHT) * (scale(value) - scale(low))) / (scale(high) - scale(low) || 1);
  const y = (share: number) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * (Math.max(share, figure.yLow) - figure.yLow)) / (1 - figure.yLow);
  const text = (at: [number, number], anchor: string, content: string, fill = '#444444') =>
    svg('text', { x: at[0].toFixed(1), y: at[1].toFixed(1), 'text-anchor': anchor, 'font-family': 'sans-serif', 'font-size': 12, fill }, content);
  const root = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT });
  root.append(svg('title', {}, figure.title), svg('rect', { width: WIDTH, height: HEIGHT, fill: '#ffffff' }));
  for (const at of shareTicks(figure.yLow)) {
    root.append(svg('path', { d: `M${LEFT},${y(at).toFixed(1)}H${WIDTH - RIGHT}`, stroke: '#dddddd' }), text([LEFT - 6, y(at) + 4], 'end', shareText(at)));
  }
  const ticks = figure.xKind === 'log' ? logTicks(low, high) : [0, 0.25, 0.5, 0.75, 1].map((part) => low + part * (high - low));
  for (const at of ticks) root.append(text([x(at), HEIGHT - BOTTOM + 18], 'middle', figure.xText(at)));
  root.append(text([(LEFT + WIDTH) / 2, HEIGHT - 6], 'middle', figure.xLabel));
  figure.lines.forEach((line, position) => {
    const colour = { measured: '#1768ac', predicted: '#c4500b', published: '#4d7a1f', before: '#888888' }[line.ink];
    const path = (values: (number | null)[]) =>
      values.flatMap((value, index) => (value === null ? [] : [`${x(figure.x[index] ?? 0).toFixed(1)},${y(value).toFixed(1)}`]));
    if (line.low && line.high) {
      const points = [...path(line.high), ...path(line.low).reverse()].join(' ');
      root.append(svg('polygon', { points, fill: colour, opacity: 0.18 }));
    }
    const dash = line.dashed ? { 'stroke-dasharray': '6 4' } : {};
    root.append(svg('polyline', { points: path(line.values).join(' '), fill: 'none', stroke: colour, 'stroke-width': 2, ...dash }));
    if (line.dots) for (const point of path(line.values)) root.append(svg('circle', { cx: point.split(',')[0] ?? 0, cy: point.split(',')[1] ?? 0, r: 3.5, fill: colour }));
    root.append(text([LEFT + ((WIDTH - LEFT) / figure.lines.length) * position, 20], 'start', line.label, colour));
  });
  for (const mark of figure.marks) {
    const d = mark.axis === 'x' ? `M${x(mark.at).toFixed(1)},${TOP}V${HEIGHT - BOTTOM}` : `M${LEFT},${y(mark.at).toFixed(1)}H${WIDTH - RIGHT}`;
    root.append(svg('path', { d, stroke: '#a8123a', 'stroke-dasharray': '4 3' }));
  }
  return new XMLSerializer().serializeToString(root);
}
