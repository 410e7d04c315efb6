// Predicted and measured shares over a day, as the server has kept them.

import { type History, type Series, type State, get } from './api';
import { type Figure, shareText } from './figure';
import { span } from './format';

// Points of a plot: a screen has no more pixels, and a second has few requests.
const POINTS_MAX = 360;

function none(seconds: number): Series {
  return { seconds, unix_s: [], arrivals: [], requests: [], within: [], predicted: [], low: [], high: [] };
}

// The newer points in place of those from their first on; no more than the server keeps.
export function joined(old: Series, news: Series, most: number): Series {
  const from = news.unix_s[0];
  const cut = from === undefined ? old.unix_s.length : old.unix_s.findIndex((at) => at >= from);
  const kept = cut < 0 ? old.unix_s.length : cut;
  const both = <T>(a: T[], b: T[]) => [...a.slice(0, kept), ...b].slice(-most);
  return {
    seconds: news.seconds,
    unix_s: both(old.unix_s, news.unix_s),
    arrivals: both(old.arrivals, news.arrivals),
    requests: both(old.requests, news.requests),
    within: both(old.within, news.within),
    predicted: both(old.predicted, news.predicted),
    low: both(old.low, news.low),
    high: both(old.high, news.high),
  };
}

export class Past {
  private fine = none(1);
  private coarse = none(60);

  async refresh(): Promise<void> {
    const last = this.fine.unix_s[this.fine.unix_s.length - 1];
    // The newest minute has grown since.
    const minute = this.coarse.unix_s[this.coarse.unix_s.length - 1];
    const after = last === undefined ? 0 : Math.min(last, minute ?? last);
    const news = await get<History>(`/history?after=${after}`);
    this.fine = joined(this.fine, news.fine, 3600);
    this.coarse = joined(this.coarse, news.coarse, 1440);
  }

  figure(state: State, length: number): Figure {
    const series = length > 3600 ? this.coarse : this.fine;
    const end = series.unix_s[series.unix_s.length - 1] ?? 0;
    const group = Math.max(1, Math.ceil(length / series.seconds / POINTS_MAX));
    const start = Math.max(0, series.unix_s.findIndex((at) => at > end - length));
    const figure: Figure = {
      title: `Share of requests within ${span(state.objective_s)}, measured and as predicted before.`,
      name: 'within-objective',
      xLabel: 'time',
      yLabel: 'share within the objective',
      xKind: 'time',
      xText: (at) => new Date(at * 1000).toLocaleTimeString(),
      x: [],
      yLow: 0,
      lines: [],
      marks: [{ axis: 'y', at: state.share, label: `objective ${shareText(state.share)}` }],
    };
    const measured: (number | null)[] = [];
    const predicted: (number | null)[] = [];
    const low: (number | null)[] = [];
    const high: (number | null)[] = [];
    for (let from = start; from < series.unix_s.length; from += group) {
      const to = Math.min(series.unix_s.length, from + group);
      let [requests, within] = [0, 0];
      for (let at = from; at < to; at += 1) {
        requests += series.requests[at] ?? 0;
        within += series.within[at] ?? 0;
      }
      figure.x.push(series.unix_s[to - 1] ?? 0);
      measured.push(requests > 0 ? within / requests : null);
      predicted.push(series.predicted[to - 1] ?? null);
      low.push(series.low[to - 1] ?? null);
      high.push(series.high[to - 1] ?? null);
    }
    const { ahead } = state;
    if (ahead && length <= 3600 && figure.x.length > 0) {
      figure.x.push(ahead.at_unix_us / 1e6);
      measured.push(null);
      predicted.push(ahead.within.value);
      low.push(ahead.within.low);
      high.push(ahead.within.high);
    }
    const least = Math.min(state.share, ...[...measured, ...predicted].filter((share) => share !== null));
    figure.yLow = Math.max(0, Math.floor((least - 0.02) * 20) / 20);
    figure.lines = [
      { label: 'predicted before', ink: 'predicted', dashed: true, values: predicted, low, high },
      { label: 'measured', ink: 'measured', values: measured },
    ];
    return figure;
  }
}
