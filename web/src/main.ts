// The page: its two parts, the token, and when they are drawn again.

import 'uplot/dist/uPlot.min.css';
import './page.css';
import './parts.css';
import { server } from './answers';
import { Refusal, TokenMissing, setToken } from './api';
import { byId, say } from './dom';
import { Now } from './now';
import { open, opener } from './opener';
import { Runs } from './runs';
import { WhatIf } from './what-if';

const EVERY_MS = 2000;
// The status changes when an operator changes something.
const STATUS_EVERY = 5;

const PARTS = ['now', 'what-if', 'runs'] as const;
type Part = (typeof PARTS)[number];

let shown: Part = 'now';

// Not the name of an element, which the browser would put the focus on.
function hashOf(part: Part): string {
  return `#/${part}`;
}

function failed(error: unknown): void {
  const isToken = error instanceof TokenMissing;
  byId('asked').hidden = !isToken;
  if (isToken && document.activeElement === document.body) byId('token').focus();
  const text = error instanceof Error ? error.message : String(error);
  const what = error instanceof Refusal || isToken ? text : `the server does not answer (${text})`;
  say(byId('headline'), `No figures: ${what}.`);
}

const now = new Now(failed);
const whatIf = new WhatIf(server, byId('what-if'), failed);
const rateOf = async (model: string) => (await server.ask({ model })).knobs.rate;
const refuse = (text: string) => runs.refuse(text);
const runs: Runs = new Runs(
  server,
  // A wrong token is asked for again.
  opener('the server is asked about a model.', (found) => void open(found, rateOf, (source) => runs.add(source), refuse).catch(failed), refuse),
);
byId('runs').append(runs.element);

function show(part: Part, isFocused: boolean): void {
  shown = part;
  for (const other of PARTS) {
    const tab = byId(`tab-${other}`);
    tab.setAttribute('aria-selected', String(other === part));
    tab.tabIndex = other === part ? 0 : -1;
    byId(other).hidden = other !== part;
  }
  if (isFocused) byId(`tab-${part}`).focus();
  history.replaceState(null, '', hashOf(part));
  if (part === 'what-if') whatIf.refresh().catch(failed);
}

for (const [at, part] of PARTS.entries()) {
  const tab = byId(`tab-${part}`);
  tab.addEventListener('click', () => show(part, false));
  tab.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = PARTS[(at + (step ?? 0) + PARTS.length) % PARTS.length];
    if (step !== undefined && next) show(next, true);
  });
}

let round = 0;

async function refresh(): Promise<void> {
  // A page that nobody sees asks for nothing.
  if (!document.hidden) {
    try {
      await now.refresh();
      if (round % STATUS_EVERY === 0) await now.refreshStatus();
      if (shown === 'what-if') await whatIf.refresh();
      byId('asked').hidden = true;
      round += 1;
    } catch (error) {
      failed(error);
    }
  }
  setTimeout(() => void refresh(), EVERY_MS);
}

byId('asked').addEventListener('submit', (event) => {
  event.preventDefault();
  setToken(byId<HTMLInputElement>('token').value);
  round = 0;
});
const asked = PARTS.find((part) => location.hash === hashOf(part));
if (asked && asked !== 'now') show(asked, false);
void refresh();
