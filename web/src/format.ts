// Numbers as people read them.

export type Maybe = number | null | undefined;

export function known(value: Maybe): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}

// With commas between the thousands, at most so many decimals and no zeros at their end.
function grouped(value: number, decimals: number): string {
  return value.toLocaleString('en-US', { maximumFractionDigits: Math.max(0, decimals) }).replace('-', '−');
}

// Three significant digits at least, as the commands print them (`ground::number::digits`).
export function digits(value: number): string {
  // As rounded, so that 9.999 is 10.
  const [mantissa, exponent] = value.toExponential(2).split('e').map(Number);
  const power = exponent ?? 0;
  if (value !== 0 && (power >= 15 || power < -12)) return `${mantissa}e${power}`.replace('-', '−');
  if (power >= 7) return `${grouped(value / 1e6, 8 - power)} M`;
  return grouped(value, 2 - power);
}

// A number as it was given, with all its digits.
export function exact(value: number): string {
  return value.toLocaleString('en-US', { maximumSignificantDigits: 12 });
}

export function number(value: Maybe): string {
  return known(value) ? digits(value) : '–';
}

// A share: one decimal, and two where the first would say too little.
export function percent(value: Maybe): string {
  if (!known(value)) return '–';
  return `${(100 * value).toFixed(value > 0.99 && value < 1 ? 2 : 1)} %`;
}

export function span(seconds: Maybe): string {
  if (!known(seconds)) return '–';
  if (seconds >= 60) return `${digits(seconds / 60)} min`;
  if (seconds >= 1) return `${digits(seconds)} s`;
  if (seconds >= 1e-3) return `${digits(seconds * 1e3)} ms`;
  return `${digits(seconds * 1e6)} µs`;
}

export function bytes(count: Maybe): string {
  if (!known(count)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value.toFixed(0) : digits(value)} ${units[unit] ?? ''}`;
}

export function clock(unixUs: number): string {
  return new Date(unixUs / 1000).toLocaleTimeString();
}

export function words(name: string): string {
  return name.replaceAll('_', ' ');
}
