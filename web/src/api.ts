// The server's replies, as far as the page reads them, and requests with the token.

export interface Parameter {
  value: number | null;
  low: number | null;
  high: number | null;
}

export interface AtLoad {
  times: number;
  rate: number;
  within: Parameter | null;
  p50_s: number | null;
  p99_s: number | null;
  beyond_limit: boolean;
}

export interface Station {
  queue: string;
  servers: number;
  rate: number;
  service_mean_s: number;
  utilisation: number;
  length: number;
  length_ahead: number | null;
}

export interface Change {
  parameter: string | { service_time: string };
  now: Parameter;
  fitted: number;
  certain_unix_us: number;
}

export interface State {
  objective_s: number;
  share: number;
  at_unix_us: number;
  window_s: number;
  method: 'none' | 'recent' | 'fitted';
  why_not_fitted: string | null;
  fitted_unix_us: number | null;
  rate: number;
  measured: {
    requests: number;
    within: number | null;
    p50_s: number | null;
    p99_s: number | null;
    hit_ratio: number | null;
    outcomes: [string, number][];
  };
  loads: AtLoad[];
  ahead: {
    at_unix_us: number;
    rate: number;
    rate_low: number;
    rate_high: number;
    within: Parameter;
    misses: boolean;
    may_saturate: boolean;
  } | null;
  headroom: {
    times: Parameter;
    rate: Parameter;
    confidence_limit: number | null;
    beyond_limit: boolean;
    saturation: number | null;
    breaks_first: string | null;
  } | null;
  changes: Change[];
  stations: Station[];
  curve: { t_s: number; measured: number; predicted: number | null; published: number | null }[];
  errors: { count: number; median_points: number | null; worst_points: number | null };
  withheld: string | null;
  warnings: string[];
}

export interface ModelReport {
  model: State;
  footprints: Record<string, number>;
}

export interface Entry {
  id: number;
  at_unix_us: number;
  target: string;
  change: string;
  reason: string;
  status: 'made' | 'advised' | 'held' | 'too_many' | 'approved' | 'applied' | 'dismissed' | 'lapsed';
  cause?: 'process' | 'operator';
  expected: { quantity: string; before: number | null; after: number | null };
  realised: number | null;
}

export interface Actions {
  held: boolean;
  actions: Entry[];
}

// Columns of equal length, oldest first.
export interface Series {
  seconds: number;
  unix_s: number[];
  arrivals: number[];
  requests: number[];
  within: number[];
  predicted: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
}

export interface History {
  objective_s: number;
  share: number;
  fine: Series;
  coarse: Series;
}

export interface Member {
  name: string;
  address: string;
  weight: number;
  state: string;
  live: boolean;
  share: number | null;
}

interface Membership {
  membership: string;
  // Why etcd does not confirm it.
  problem?: string;
  members: Member[];
}

export interface Status extends Partial<Membership> {
  role: string;
  version: string;
  laboratory?: string;
  origin?: { lost?: string; failing?: string; read_only?: string };
  mismatches?: { peer?: string; name?: string; what?: string; why?: string }[];
  cluster?: Membership;
  memory?: { bytes_max: number; objects_bytes: number; layers_bytes: number; free_bytes: number };
}

export interface Tiers {
  devices?: { name: string; state: 'in' | 'out'; out_for_s?: number; write_failed?: boolean; damaged: number }[];
  hot: {
    objects: number;
    bytes: number;
    hottest: { key: string; bytes: number; reads_per_s: number; saved_s: number; pinned: boolean }[];
  } | null;
}

// What can be changed in a what-if question: the reply of GET /what-if.
export interface Knobs {
  at_unix_us: number | null;
  rate: number;
  objective_s: number;
  share: number;
  classes: { name: string; count: number; share: number }[];
  kinds: { operation: string; bytes: [number, number]; share: number; title: string }[];
  laboratory: string | null;
}

export interface Changes {
  servers: number;
  lost: number;
  memory: number;
  memory_exponent: number;
  speed: number;
  devices: Record<string, number>;
  mix: { operation: string; bytes: number | null; share: number }[];
  prices?: { server: number; memory: number; devices: Record<string, number> };
}

export interface Question {
  rate: number;
  objective_s: number;
  share: number;
  changes: Changes;
  model?: string;
}

export interface Answer {
  rate: number;
  servers: number;
  cost: number | null;
  prediction: {
    hit_ratio: Parameter;
    utilisation_max: Parameter;
    response_mean: Parameter;
    confidence_limit: number | null;
    beyond_limit: boolean;
    beyond_trust: boolean;
    points: { t_s: number; concertina: Parameter; spotify: Parameter | null }[];
  } | null;
  response_p99: Parameter | null;
  statement: string | null;
  limits: { mg1: Parameter; saturation: Parameter; breaks_first: string | null };
  busiest: string | null;
  largest_rate: Parameter;
  headroom: Parameter | null;
  trust_limit: number | null;
  law: { t_s: number; predicted: number; published: number | null }[];
  loads: { rate: number; within: number }[];
}

// The reply of POST /what-if.
export interface Answered {
  knobs: Knobs;
  answer: Answer;
}

// The server wants its token, or another one.
export class TokenMissing extends Error {}

// A refusal of the server with its words.
export class Refusal extends Error {
  constructor(readonly status: number, text: string) {
    super(text);
  }
}

let token = '';

export function setToken(given: string): void {
  token = given;
}

async function send(path: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set('authorization', `Bearer ${token}`);
  const reply = await fetch(path, { ...init, headers, cache: 'no-store', signal: AbortSignal.timeout(15_000) });
  if (reply.status === 401) throw new TokenMissing('the token is missing or wrong');
  if (!reply.ok) {
    const said: unknown = await reply.json().catch(() => null);
    const text = said && typeof said === 'object' && 'error' in said ? String(said.error) : `${path} answered ${reply.status}`;
    throw new Refusal(reply.status, text);
  }
  return reply;
}

export async function get<T>(path: string): Promise<T> {
  return (await send(path, {})).json() as Promise<T>;
}

// The same, or null where the server has nothing yet (204).
export async function getIfAny<T>(path: string): Promise<T | null> {
  const reply = await send(path, {});
  return reply.status === 204 ? null : ((await reply.json()) as T);
}

export async function getText(path: string): Promise<string> {
  return (await send(path, {})).text();
}

export async function post<T>(path: string, body?: unknown): Promise<T> {
  const text = body === undefined ? '' : JSON.stringify(body);
  return (await send(path, { method: 'POST', body: text })).json() as Promise<T>;
}
