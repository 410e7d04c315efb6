// The part of the page that shows what the server does at the moment.

import { type Actions, type Member, type ModelReport, type State, type Status, type Tiers, get, post } from './api';
import { byId, h, say, table } from './dom';
import { faults } from './faults';
import { type Figure, shareText } from './figure';
import { bytes, clock, known, number, percent, span, words } from './format';
import { gauge } from './gauge';
import { Past } from './history';
import { Journal } from './journal';
import { Plot } from './plot';
import { changed, headline, isEarly, resource, trust, whyNoModel } from './words';

export class Now {
  private readonly past = new Past();
  private readonly journal: Journal;
  private readonly within = new Plot('No requests yet. The plot begins with the first.');
  private readonly law = new Plot('No requests yet.');
  private report: ModelReport | null = null;
  private length = 600;

  constructor(private readonly failed: (error: unknown) => void) {
    this.journal = new Journal(failed);
    byId('within').append(this.within.element);
    byId('law').append(this.law.element);
    for (const button of document.querySelectorAll<HTMLButtonElement>('[data-span]')) {
      button.addEventListener('click', () => {
        this.length = Number(button.dataset['span']);
        for (const other of document.querySelectorAll('[data-span]')) other.setAttribute('aria-pressed', String(other === button));
        if (this.report) this.within.update(this.past.figure(this.report.model, this.length));
      });
    }
  }

  // What changes every second or so.
  async refresh(): Promise<void> {
    const [report, actions] = await Promise.all([get<ModelReport>('/model'), get<Actions>('/actions'), this.past.refresh()]);
    this.report = report;
    const { model } = report;
    say(byId('headline'), headline(model));
    const note = trust(model);
    byId('trust').hidden = note === null;
    byId('trust').classList.toggle('warning', note?.isWarning ?? false);
    say(byId('trust'), note?.text ?? '');
    this.drawIdle(model);
    this.drawTiles(model);
    this.within.update(this.past.figure(model, this.length));
    this.drawHeadroom(model);
    this.law.update(lawFigure(model));
    this.drawTables(report);
    this.journal.update(actions);
    document.body.dataset['drawn'] = String(model.at_unix_us);
  }

  // What an operator changes.
  async refreshStatus(): Promise<void> {
    const [status, tiers] = await Promise.all([get<Status>('/admin/status'), get<Tiers>('/admin/tiers').catch(() => null)]);
    say(byId('role'), `${status.role === 'all' ? 'server' : status.role} ${status.version}`);
    byId('laboratory').hidden = !status.laboratory;
    say(byId('laboratory'), status.laboratory ? `Emulated: ${status.laboratory}` : '');
    const { memory } = status;
    say(
      byId('memory-use'),
      memory ? `Of ${bytes(memory.bytes_max)} of memory, objects hold ${bytes(memory.objects_bytes)}, layers of datasets ${bytes(memory.layers_bytes)}.` : '',
    );
    this.drawHot(tiers);
    const wrong = faults(status, tiers);
    byId('faults').hidden = wrong.length === 0;
    byId('faults').replaceChildren(...(wrong.length === 1 ? wrong : [h('ul', {}, ...wrong.map((text) => h('li', {}, text)))]));
    const membership = status.cluster ?? (status.members ? { membership: status.membership ?? '', members: status.members } : null);
    byId('members-part').hidden = !membership;
    if (membership) this.drawMembers(membership.members, membership.membership === 'etcd');
  }

  private drawIdle(model: State): void {
    const idle = byId('idle');
    const isIdle = model.measured.within === null;
    if (idle.hidden === !isIdle) return;
    idle.hidden = !isIdle;
    if (!isIdle) return;
    const at = location.origin;
    const step = (text: string, command: string) => h('li', {}, text, h('pre', {}, h('code', {}, command)));
    idle.replaceChildren(
      h('h2', { id: 'idle-title' }, 'Nothing is asked of this server at the moment. What you can do next:'),
      h(
        'ol',
        {},
        step('Store an object and read it:', `curl -T FILE ${at}/objects/hello\ncurl ${at}/objects/hello`),
        step('Put a load on it and watch this page fill (20,000 objects of 4 KiB, then 500 reads a second for two minutes):', `concertina load ${at} --fill --count 20000 --size 4096 --out runs/fill\nconcertina load ${at} --rate 500 --count 20000 --duration 2m --out runs/load`),
        step('Serve what a bucket or a folder already has: set the origin and start again.', 'concertina serve --set origin.path=/srv/objects'),
      ),
      h('p', { class: 'dim' }, 'After some 200 requests a model is fitted, and headroom, response times and what-if questions have answers.'),
    );
  }

  private drawTiles(model: State): void {
    const { headroom, errors } = model;
    const within = model.measured.within;
    const good = known(within) ? (within >= model.share ? 'good' : 'bad') : '';
    const times = headroom?.times;
    const room = times && known(times.value) ? (times.value < 1 ? 'bad' : times.value < 1.3 ? 'warn' : 'good') : '';
    const tile = (label: string, value: string, more: string, kind: string) =>
      h('div', { class: `tile ${kind}` }, h('span', { class: 'dim' }, label), h('strong', {}, value), h('span', { class: 'dim' }, more));
    byId('tiles').replaceChildren(
      tile('Load', known(within) ? `${number(model.rate)}/s` : 'idle', `requests over ${number(model.window_s)} s`, ''),
      tile(`Within ${span(model.objective_s)}`, percent(within), `objective ${shareText(model.share)}`, good),
      tile('Headroom', times ? `${number(times.value)} ×` : '–', times ? `95 %: ${number(times.low)} to ${number(times.high)} times this load` : isEarly(model) ? 'no model yet' : 'no model: why is below', room),
      tile('Response p99', span(model.measured.p99_s), `median ${span(model.measured.p50_s)}`, ''),
      tile('Predictions off by', known(errors.median_points) ? `${errors.median_points.toFixed(1)} points` : '–', `median of ${number(errors.count)} checked`, ''),
    );
  }

  private drawHeadroom(model: State): void {
    const { headroom } = model;
    byId('gauge').replaceChildren(...[gauge(model)].filter((made) => made !== null));
    if (!headroom) {
      say(byId('headroom'), whyNoModel(model));
      byId('loads').replaceChildren();
      return;
    }
    const first = headroom.breaks_first === null ? 'Nothing saturates' : `${resource(headroom.breaks_first)} saturates first, at ${number(headroom.saturation)} requests/s`;
    const extrapolated = headroom.beyond_limit ? ' That is past the load at which queues get long, so it is extrapolated.' : '';
    say(byId('headroom'), `The objective (${shareText(model.share)} within ${span(model.objective_s)}) holds up to ${number(headroom.rate.value)} requests/s. ${first}.${extrapolated}`);
    const rows = model.loads.map((at) => [
      `${number(at.times)} ×`,
      number(at.rate) + (at.beyond_limit ? ' *' : ''),
      at.within ? percent(at.within.value) : 'saturated',
      at.within ? `${percent(at.within.low)} to ${percent(at.within.high)}` : '–',
      span(at.p50_s),
      span(at.p99_s),
    ]);
    byId('loads').replaceChildren(table(['load', 'requests/s', 'within', '95 % interval', 'median', 'p99'], rows, `Predicted at multiples of this load${model.loads.some((at) => at.beyond_limit) ? '; * extrapolated: queues are long there' : ''}`));
  }

  private drawTables(report: ModelReport): void {
    const { model, footprints } = report;
    const outcomes = model.measured.outcomes.map(([part, share]) => [words(part), h('meter', { min: 0, max: 1, value: share, 'aria-label': words(part) }), percent(share)]);
    byId('outcomes').replaceChildren(outcomes.length ? table(['part', '', 'share'], outcomes, 'Share of the requests') : h('p', { class: 'dim' }, 'No requests yet.'));
    const queues = model.stations.map((station) => [
      station.queue,
      number(station.rate),
      span(station.service_mean_s),
      station.servers ? percent(station.utilisation) : '–',
      number(station.length),
      station.length_ahead === null ? 'grows without end' : number(station.length_ahead),
      station.queue in footprints ? bytes(footprints[station.queue]) : '–',
    ]);
    const head = ['queue', 'requests/s', 'mean service', 'busy', 'length', 'length expected', 'layers'];
    byId('queues').replaceChildren(queues.length ? table(head, queues, 'Waiting and in service') : h('p', { class: 'dim' }, noQueues(model)));
    const sentences = [...model.changes.map((change) => `${clock(change.certain_unix_us)}: ${changed(change)}`).reverse(), ...model.warnings];
    byId('about-model').hidden = sentences.length === 0;
    byId('about-model-text').replaceChildren(h('ul', {}, ...sentences.map((text) => h('li', {}, text))));
  }

  private drawHot(tiers: Tiers | null): void {
    const hot = tiers?.hot;
    byId('hot-part').hidden = !hot;
    if (!hot) return;
    say(byId('hot-text'), `${number(hot.objects)} objects (${bytes(hot.bytes)}) have copies on hot devices.`);
    const rows = hot.hottest.map((key) => [key.key + (key.pinned ? ' (pinned)' : ''), number(key.reads_per_s), span(key.saved_s), bytes(key.bytes)]);
    byId('hot').replaceChildren(rows.length ? table(['key', 'reads/s', 'saved by a read', 'size'], rows, 'The most useful of them') : h('p', { class: 'dim' }, 'None yet.'));
  }

  private drawMembers(members: Member[], canDrain: boolean): void {
    const rows = members.map((member) => {
      const draining = member.state === 'draining';
      const button = h('button', { type: 'button' }, draining ? 'Resume' : 'Drain');
      button.setAttribute('aria-label', `${draining ? 'Resume' : 'Drain'} ${member.name}`);
      button.addEventListener('click', () => void this.drain(member.name, !draining));
      return [member.name, member.address, known(member.share) ? percent(member.share) : '–', member.live ? 'lives' : 'silent', member.state, canDrain ? button : '–'];
    });
    byId('members').replaceChildren(table(['member', 'address', 'keys', '', 'state', 'action'], rows, 'Processes of the cluster'));
  }

  private async drain(name: string, drains: boolean): Promise<void> {
    try {
      await post(`/admin/members/${encodeURIComponent(name)}/${drains ? 'drain' : 'resume'}`);
      say(byId('members-said'), drains ? `${name} gives its keys away.` : `${name} takes its keys back.`);
      await this.refreshStatus();
    } catch (error) {
      this.failed(error);
    }
  }
}

// Requests that memory answers wait in no queue.
function noQueues(model: State): string {
  return known(model.measured.within) ? 'No request went to a queue. “Answered from” has what answered.' : 'Queues appear with the first request that goes to one.';
}

function lawFigure(model: State): Figure {
  const points = model.curve.filter((point) => point.t_s > 0);
  const line = (label: string, ink: 'measured' | 'predicted' | 'published', values: (number | null)[], dashed: boolean) => ({ label, ink, values, dashed });
  const lines = [line('measured', 'measured', points.map((point) => point.measured), false)];
  if (points.some((point) => known(point.predicted))) lines.push(line('model', 'predicted', points.map((point) => point.predicted), true));
  if (points.some((point) => known(point.published))) lines.push(line('published model', 'published', points.map((point) => point.published), true));
  return {
    title: 'Share of requests answered within each time, measured and by the models.',
    name: 'response-times',
    xLabel: 'response time',
    yLabel: 'share within',
    xKind: 'log',
    xText: span,
    x: points.map((point) => point.t_s),
    yLow: 0,
    lines,
    marks: [{ axis: 'x', at: model.objective_s, label: `objective ${span(model.objective_s)}` }],
  };
}
