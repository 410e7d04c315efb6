// What the server says, in words for people who do not know the model.

import type { Change, Entry, State } from './api';
import { shareText } from './figure';
import { known, number, percent, span, words } from './format';

// Predictions that are compared before the server acts on a model.
const COMPARED_MIN = 3;

// A sentence about the model, and whether it is a warning.
export interface Note {
  text: string;
  isWarning: boolean;
}

export function trust(state: State): Note | null {
  if (!state.withheld || state.measured.within === null) return null;
  const { count } = state.errors;
  if (count < COMPARED_MIN) {
    const text = `Getting to know this load: ${count} of the first ${COMPARED_MIN} predictions have been checked against what happened. Until then the server changes nothing because of a prediction.`;
    return { text, isWarning: false };
  }
  const text = 'The last ten predictions were off by more than this server accepts (model.error_points_max), so it does not act on them at the moment.';
  return { text, isWarning: true };
}

// Whether a model lacks nothing but requests.
export function isEarly(state: State): boolean {
  const why = state.why_not_fitted;
  return !why || why.startsWith('fewer than');
}

export function whyNoModel(state: State): string {
  const why = state.why_not_fitted;
  if (!why) return 'No model yet: it is fitted to the requests of the last minute.';
  if (isEarly(state)) return 'Not enough requests for a model yet: it takes some 200 within a minute.';
  if (why.includes('misses the present share')) {
    return 'No model describes the present load. That is so where clients wait for each reply before they send the next request: they slow down with the server.';
  }
  return `No model at the moment: ${why}.`;
}

export function headline(state: State): string {
  const { within } = state.measured;
  if (!known(within)) return 'No requests at the moment.';
  const holds = within >= state.share;
  const now = `${number(state.rate)} requests/s; ${percent(within)} answered within ${span(state.objective_s)}. The objective, ${shareText(state.share)}, is ${holds ? 'met' : 'missed'}.`;
  const { ahead } = state;
  if (!ahead || !ahead.misses) return now;
  const saturates = ahead.may_saturate ? ', and a queue may grow without end' : '';
  const later = span((ahead.at_unix_us - state.at_unix_us) / 1e6);
  return `${now} In ${later}, ${percent(ahead.within.value)} are expected${saturates}.`;
}

// What saturates first, as a person calls it.
export function resource(name: string | null): string {
  if (name === null) return 'nothing that the model knows of';
  if (name === 'devices') return 'the devices';
  if (name === 'link') return 'the network link';
  if (name === 'workers') return 'the workers';
  return words(name);
}

export function changed(change: Change): string {
  const { parameter } = change;
  if (typeof parameter !== 'string') {
    return `Since then a read of ${words(parameter.service_time)} takes ${span(change.now.value)} instead of ${span(change.fitted)}.`;
  }
  if (parameter === 'hit_ratio') return `Since then memory answers ${percent(change.now.value)} instead of ${percent(change.fitted)}.`;
  return `Since then arrivals are ${(change.now.value ?? 0) > change.fitted ? 'more' : 'less'} bursty.`;
}

const STATUS: Record<Entry['status'], string> = {
  made: 'Made',
  advised: 'Advised, not made',
  held: 'Not made: all changes are held',
  too_many: 'Not made: too many changes in a minute',
  approved: 'Approved: made when the server proposes it again',
  applied: 'Approved, and made',
  dismissed: 'Dismissed',
  lapsed: 'Approved, but not proposed again in time',
};

export function status(entry: Entry): string {
  const text = STATUS[entry.status] ?? entry.status;
  return entry.cause === 'operator' ? `${text} by an operator` : text;
}

// Whether an operator may still decide on an entry.
export function isOpen(entry: Entry): boolean {
  return ['advised', 'held', 'too_many', 'lapsed'].includes(entry.status);
}

// What a change was to bring and what it brought.
export function effect(entry: Entry): string {
  const { quantity, before, after } = entry.expected;
  const expected = `${quantity}: ${number(before)} before, ${number(after)} expected`;
  if (known(entry.realised)) return `${expected}, ${number(entry.realised)} measured`;
  return entry.status === 'made' ? `${expected}, not measured yet` : expected;
}
