// Elements. Text goes into the page as text only: keys and names may contain anything.

type Child = Node | string;
type Attributes = Record<string, string | number | boolean>;

const SVG = 'http://www.w3.org/2000/svg';

function fill<E extends Element>(made: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, '');
    else if (value !== false) made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

export function h<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  return fill(document.createElementNS(SVG, name) as SVGElement, attributes, children);
}

// An element that page.html has.
export function byId<E extends HTMLElement = HTMLElement>(id: string): E {
  const found = document.getElementById(id);
  if (!found) throw new Error(`page.html has no element ${id}`);
  return found as E;
}

// Replaces the text only where it differs, so that screen readers do not read the same again.
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function table(head: string[], rows: Child[][], caption: string): HTMLTableElement {
  const cells = (row: Child[]) => h('tr', {}, ...row.map((cell) => h('td', {}, cell)));
  return h(
    'table',
    {},
    h('caption', {}, caption),
    h('thead', {}, h('tr', {}, ...head.map((name) => h('th', { scope: 'col' }, name)))),
    h('tbody', {}, ...rows.map(cells)),
  );
}
