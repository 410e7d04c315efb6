// Colours of the style sheet, for what is drawn on a canvas.

import type { Ink } from './figure';

// A colour of the style sheet, which has one for each theme.
export function ink(name: Ink | 'ink' | 'dim' | 'line' | 'goal' | 'back', alpha = 1): string {
  const found = getComputedStyle(document.querySelector('.page') ?? document.documentElement).getPropertyValue(`--${name}`).trim();
  if (alpha === 1) return found;
  const [r, g, b] = [1, 3, 5].map((at) => Number.parseInt(found.slice(at, at + 2), 16));
  return `rgba(${r}, ${g}, ${b}, ${alpha})`;
}
