// What a plot shows, apart from how it is drawn: on a canvas, as SVG, as CSV or as a table.

export type Ink = 'measured' | 'predicted' | 'published' | 'before';

export interface Line {
  label: string;
  ink: Ink;
  dashed?: boolean;
  // Measured points, drawn as such and joined over gaps.
  dots?: boolean;
  values: (number | null)[];
  // The 95 % interval, drawn as a band.
  low?: (number | null)[];
  high?: (number | null)[];
}

export interface Mark {
  axis: 'x' | 'y';
  at: number;
  label: string;
}

export interface Figure {
  // Says what the plot shows, for those who do not see it.
  title: string;
  name: string;
  xLabel: string;
  yLabel: string;
  xKind: 'time' | 'log' | 'linear';
  xText: (value: number) => string;
  x: number[];
  // The lower end of the axis of shares; the upper end is 1.
  yLow: number;
  lines: Line[];
  marks: Mark[];
}

// The columns of a figure, with the ends of its intervals.
export function columns(figure: Figure): { head: string[]; values: (number | null)[][] } {
  const head = [figure.xLabel];
  const values: (number | null)[][] = [figure.x];
  for (const line of figure.lines) {
    head.push(line.label);
    values.push(line.values);
    if (line.low && line.high) {
      head.push(`${line.label}, low`, `${line.label}, high`);
      values.push(line.low, line.high);
    }
  }
  return { head, values };
}

export function csv(figure: Figure): string {
  const { head, values } = columns(figure);
  const quoted = head.map((name) => `"${name.replaceAll('"', '""')}"`).join(',');
  const rows = figure.x.map((_, row) => values.map((column) => column[row] ?? '').join(','));
  return [quoted, ...rows, ''].join('\n');
}

// Round steps for an axis of shares.
export function shareTicks(low: number): number[] {
  const step = [0.5, 0.25, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005].find((size) => (1 - low) / size >= 3) ?? 0.002;
  const ticks: number[] = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= 1 + 1e-9; at += step) ticks.push(Number(at.toFixed(6)));
  return ticks;
}

export function shareText(share: number): string {
  return `${Number((100 * share).toFixed(2))} %`;
}

// The powers of ten between two numbers, with 2 and 5 between them where there is room.
export function logTicks(low: number, high: number): number[] {
  const factors = Math.log10(high / low) > 4 ? [1] : [1, 2, 5];
  const ticks: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of factors) {
      const at = factor * 10 ** power;
      if (at >= low * 0.999 && at <= high * 1.001) ticks.push(at);
    }
  }
  return ticks;
}
