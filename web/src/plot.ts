// A figure on a canvas, by uPlot, with buttons that save it and a table for those who do not see it.

import uPlot from 'uplot';
import { ink } from './colours';
import { byKind, save } from './export';
import { type Figure, columns, logTicks, shareText, shareTicks } from './figure';
import { h } from './dom';
import { percent } from './format';

const HEIGHT = 220;
// The least distance of two labels below the plot, in pixels: a time with seconds takes about 50.
const LABEL_SPACE = 72;
// Rows of the table: more of them are for the CSV file.
const ROWS_MAX = 60;

// A time of an axis whose labels are so many seconds apart.
function time(unixS: number, step: number): string {
  const seconds = step < 60 ? { second: '2-digit' as const } : {};
  return new Date(unixS * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false, ...seconds });
}

// The values of a figure as uPlot wants them: the ends of the intervals behind the lines.
function data(figure: Figure): uPlot.AlignedData {
  const bands = figure.lines.filter((line) => line.low && line.high);
  const ends = bands.flatMap((line) => [line.high ?? [], line.low ?? []]);
  return [figure.x, ...figure.lines.map((line) => line.values), ...ends] as uPlot.AlignedData;
}

function drawMarks(plot: uPlot, figure: Figure): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = ink('goal');
  ctx.fillStyle = ink('goal');
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  for (const mark of figure.marks) {
    const at = Math.round(plot.valToPos(mark.at, mark.axis, true));
    const inside = mark.axis === 'x' ? at >= bbox.left && at <= bbox.left + bbox.width : at >= bbox.top && at <= bbox.top + bbox.height;
    if (!inside) continue;
    ctx.beginPath();
    if (mark.axis === 'x') {
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      const right = at > bbox.left + bbox.width / 2;
      ctx.textAlign = right ? 'right' : 'left';
      ctx.fillText(mark.label, at + (right ? -5 : 5) * devicePixelRatio, bbox.top + bbox.height - 6 * devicePixelRatio);
    } else {
      ctx.moveTo(bbox.left, at);
      ctx.lineTo(bbox.left + bbox.width, at);
      ctx.textAlign = 'left';
      ctx.fillText(mark.label, bbox.left + 5 * devicePixelRatio, at + (at < bbox.top + 20 * devicePixelRatio ? 13 : -4) * devicePixelRatio);
    }
    ctx.stroke();
  }
  ctx.restore();
}

export class Plot {
  readonly element: HTMLElement;
  private readonly frame = h('div', { class: 'plot', role: 'img' });
  private readonly legend = h('div', { class: 'legend', 'aria-hidden': 'true' });
  private readonly table = h('div', { class: 'figures' });
  private readonly details = h('details', {}, h('summary', {}, 'As a table'), this.table);
  private plot: uPlot | null = null;
  private figure: Figure | null = null;
  private shape = '';

  constructor(private readonly empty: string) {
    const saves = (['PNG', 'SVG', 'CSV'] as const).map((kind) => {
      const button = h('button', { type: 'button', class: 'quiet' }, kind);
      button.setAttribute('aria-label', `Save as ${kind}`);
      button.addEventListener('click', () => this.save(kind));
      return button;
    });
    this.details.addEventListener('toggle', () => this.fillTable());
    this.element = h('div', {}, this.frame, h('div', { class: 'under' }, this.legend, h('span', { class: 'saves' }, 'Save ', ...saves)), this.details);
    new ResizeObserver(() => this.resize()).observe(this.frame);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.rebuild());
    this.none();
  }

  // Without enough points there is nothing to draw.
  private none(): void {
    this.plot?.destroy();
    this.plot = null;
    this.shape = '';
    this.frame.replaceChildren(h('p', { class: 'dim' }, this.empty));
    this.frame.removeAttribute('aria-label');
    this.element.classList.add('empty');
  }

  update(figure: Figure): void {
    this.figure = figure;
    const points = figure.lines.reduce((most, line) => Math.max(most, line.values.filter((value) => value !== null).length), 0);
    if (points < 2) return this.none();
    this.element.classList.remove('empty');
    this.frame.setAttribute('aria-label', figure.title);
    const shape = figure.xKind + figure.lines.map((line) => line.label + Boolean(line.low) + Boolean(line.dots)).join();
    if (!this.plot || shape !== this.shape) {
      this.shape = shape;
      this.rebuild();
    } else {
      this.plot.setData(data(figure));
    }
    this.fillTable();
  }

  private rebuild(): void {
    const figure = this.figure;
    if (!figure || this.shape === '') return;
    this.plot?.destroy();
    this.frame.replaceChildren();
    this.plot = new uPlot(this.options(figure), data(figure), this.frame);
    const keys = figure.lines.map((line) => h('span', { class: line.dashed ? `key ${line.ink} dashed` : `key ${line.ink}` }, line.label));
    this.legend.replaceChildren(...keys);
  }

  private options(figure: Figure): uPlot.Options {
    const now = () => this.figure ?? figure;
    const bands = figure.lines.filter((line) => line.low && line.high);
    const first = 1 + figure.lines.length;
    const axis = { stroke: ink('dim'), grid: { stroke: ink('line'), width: 0.5 }, ticks: { stroke: ink('line') }, font: '11px system-ui, sans-serif' };
    return {
      width: Math.max(this.frame.clientWidth, 200),
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: true, y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: {
        x: { time: figure.xKind === 'time', distr: figure.xKind === 'log' ? 3 : 1, range: (_, low, high) => [low, high === low ? low + 1 : high] },
        y: { range: () => [now().yLow, 1] },
      },
      axes: [
        {
          ...axis,
          space: LABEL_SPACE,
          values: (_: uPlot, at: number[]) => at.map((value) => (figure.xKind === 'time' ? time(value, (at[1] ?? 60) - (at[0] ?? 0)) : now().xText(value))),
          // uPlot labels some of a logarithmic axis's ticks only.
          ...(figure.xKind === 'log' ? { filter: (_: uPlot, at: number[]) => at, splits: (plot: uPlot) => this.thin(logTicks(plot.scales['x']?.min ?? 1, plot.scales['x']?.max ?? 10)) } : {}),
        },
        { ...axis, size: 56, splits: () => shareTicks(now().yLow), values: (_, at) => at.map(shareText) },
      ],
      series: [
        {},
        ...figure.lines.map((line) => ({ stroke: ink(line.ink), width: 2, spanGaps: figure.xKind === 'linear', points: { show: Boolean(line.dots), size: 7, fill: ink(line.ink) }, ...(line.dashed ? { dash: [6, 4] } : {}) })),
        ...bands.flatMap(() => [{ width: 0, points: { show: false } }, { width: 0, points: { show: false } }]),
      ],
      bands: bands.map((line, index) => ({ series: [first + 2 * index, first + 2 * index + 1], fill: ink(line.ink, 0.18) })),
      hooks: { draw: [(plot) => drawMarks(plot, now())], setCursor: [(plot) => this.point(plot)] },
    };
  }

  // Labels of a narrow plot would cover each other.
  private thin(ticks: number[]): number[] {
    const every = Math.ceil(ticks.length / Math.max(2, Math.floor(this.frame.clientWidth / 62)));
    return ticks.filter((_, index) => index % every === 0);
  }

  // The values below the pointer, in the legend.
  private point(plot: uPlot): void {
    const { figure } = this;
    const index = plot.cursor.idx;
    if (!figure) return;
    const at = typeof index === 'number' ? figure.x[index] : undefined;
    figure.lines.forEach((line, position) => {
      const key = this.legend.children[position];
      const text = at === undefined || typeof index !== 'number' ? line.label : `${line.label} ${percent(line.values[index])} at ${figure.xText(at)}`;
      if (key) key.textContent = text;
    });
  }

  private resize(): void {
    const width = this.frame.clientWidth;
    if (this.plot && width > 0 && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: HEIGHT });
  }

  private fillTable(): void {
    const { figure } = this;
    if (!this.details.open || !figure) return;
    const { head, values } = columns(figure);
    const every = Math.ceil(figure.x.length / ROWS_MAX);
    const rows = figure.x.flatMap((at, row) =>
      row % every === 0 ? [h('tr', {}, h('td', {}, figure.xText(at)), ...values.slice(1).map((column) => h('td', {}, percent(column[row]))))] : [],
    );
    const heads = head.map((name) => h('th', { scope: 'col' }, name));
    this.table.replaceChildren(h('table', {}, h('caption', {}, figure.title), h('thead', {}, h('tr', {}, ...heads)), h('tbody', {}, ...rows)));
  }

  private save(kind: 'PNG' | 'SVG' | 'CSV'): void {
    if (!this.figure || !this.plot) return;
    void byKind(kind, this.figure, this.plot.ctx.canvas).then((blob) => {
      if (blob && this.figure) save(`${this.figure.name}.${kind.toLowerCase()}`, blob);
    });
  }
}
