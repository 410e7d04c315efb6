// The journal as a time line: what was changed or advised, why, what was expected of it and what came.

import { type Actions, type Entry, Refusal, post } from './api';
import { byId, h, say } from './dom';
import { clock } from './format';
import { effect, isOpen, status } from './words';

const SHOWN_MAX = 50;

type Shown = 'all' | 'made' | 'not-made';

export class Journal {
  private actions: Actions = { held: false, actions: [] };
  private shown: Shown = 'all';
  private drawn = '';

  constructor(private readonly failed: (error: unknown) => void) {
    byId('hold').addEventListener('click', () => void this.hold());
    for (const button of document.querySelectorAll<HTMLButtonElement>('[data-shown]')) {
      button.addEventListener('click', () => {
        this.shown = button.dataset['shown'] as Shown;
        for (const other of document.querySelectorAll('[data-shown]')) other.setAttribute('aria-pressed', String(other === button));
        this.draw();
      });
    }
  }

  update(actions: Actions): void {
    this.actions = actions;
    this.draw();
  }

  private async hold(): Promise<void> {
    try {
      const path = this.actions.held ? '/actions/resume' : '/actions/hold';
      this.actions = { ...this.actions, held: (await post<Actions>(path)).held };
      this.draw();
    } catch (error) {
      this.failed(error);
    }
  }

  // An operator's decision on one change. The server makes one that is applied when it proposes it again.
  private async decide(entry: Entry, verdict: 'apply' | 'dismiss'): Promise<void> {
    try {
      const { actions } = await post<Actions>(`/admin/actions/${entry.id}/${verdict}`);
      const decided = (other: Entry) => actions.find((it) => it.id === other.id) ?? other;
      this.actions = { ...this.actions, actions: this.actions.actions.map(decided) };
      this.draw();
    } catch (error) {
      // A refusal says why; it is shown beside the journal, which stays as it is.
      if (error instanceof Refusal) say(byId('decided'), `Entry ${entry.id}: ${error.message}`);
      else this.failed(error);
    }
  }

  private draw(): void {
    const { held, actions } = this.actions;
    const button = byId('hold');
    say(button, held ? 'Resume changes' : 'Hold all changes');
    button.classList.toggle('active', held);
    const none = actions.length === 0 ? 'Nothing has been changed or advised yet. The server writes here what it changes by itself, and why.' : '';
    say(byId('held'), held ? 'All changes are held: the server only writes down what it would do.' : none);
    const entries = actions.filter((entry) => this.shown === 'all' || (entry.status === 'made') === (this.shown === 'made')).slice(0, SHOWN_MAX);
    const drawn = JSON.stringify([this.shown, entries.map((entry) => [entry.id, entry.status, entry.realised])]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    // The button that was used may be there again: the keyboard stays where it was.
    const focused = document.activeElement?.id;
    byId('journal').replaceChildren(...entries.map((entry) => item(entry, (verdict) => void this.decide(entry, verdict))));
    if (focused) document.getElementById(focused)?.focus();
  }
}

function item(entry: Entry, decide: (verdict: 'apply' | 'dismiss') => void): HTMLElement {
  const made = entry.status === 'made';
  const button = (verdict: 'apply' | 'dismiss', text: string) => {
    const about = `${text}: ${entry.target} ${entry.change}`;
    const element = h('button', { type: 'button', id: `${verdict}-${entry.id}`, 'aria-label': about }, text);
    element.addEventListener('click', () => decide(verdict));
    return element;
  };
  const buttons = isOpen(entry) ? [h('p', { class: 'decide' }, button('apply', 'Apply once'), button('dismiss', 'Dismiss'))] : [];
  return h(
    'li',
    { class: made ? 'made' : 'not-made' },
    h('time', { datetime: new Date(entry.at_unix_us / 1000).toISOString() }, clock(entry.at_unix_us)),
    h(
      'div',
      {},
      h('p', {}, h('strong', {}, entry.target), ` ${entry.change} `, h('span', { class: made ? 'chip good' : 'chip' }, status(entry))),
      h('p', { class: 'dim' }, `Because ${entry.reason}.`),
      h('p', { class: 'dim' }, `${effect(entry)}.`),
      ...buttons,
    ),
  );
}
