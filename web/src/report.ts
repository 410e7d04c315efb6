// The parts of a report that have controls: what-if questions whose answers the file carries, and its runs laid over each other.

import 'uplot/dist/uPlot.min.css';
import './parts.css';
import type { Answers, Stops } from './answers';
import type { Answer, Knobs, Question } from './api';
import { byId } from './dom';
import { open, opener } from './opener';
import { readRun } from './run';
import { Runs } from './runs';
import { WhatIf } from './what-if';

// An answer without what others share.
interface Short extends Omit<Answer, 'law' | 'loads'> {
  predicted: number[];
  published: number[] | null;
}

interface Computed {
  knobs: Knobs;
  stops: Stops;
  times_s: number[];
  // For each memory and speed: the share within the objective at each load of one server.
  loads: { rate: number; within: number }[][];
  // For each memory, speed, number of servers and load, the last of which changes first.
  answers: Short[];
}

interface Data {
  runs: { name: string; description: string; steps: string; windows: string }[];
  model: { name: string; text: string } | null;
  computed: Computed | null;
}

function indexOf(stops: number[], value: number, what: string): number {
  const index = stops.indexOf(value);
  if (index < 0) throw new Error(`this report has no answer for ${what} ${value}: ask a server's page or \`concertina predict\``);
  return index;
}

// The answers of a file. `Promise`s, since a server's are.
function answersOf(computed: Computed, modelText: string): Answers {
  const { knobs, stops, times_s: times } = computed;
  const ask = async (question: Partial<Question>) => {
    if (question.model !== undefined) throw new Error('a report has no server that it could ask about another model: open it in the page of a server');
    const { rate = knobs.rate, objective_s = knobs.objective_s, changes } = question;
    indexOf([knobs.objective_s], objective_s, 'an objective of, in seconds,');
    const servers = changes?.servers ?? 1;
    const cell = indexOf(stops.memory, changes?.memory ?? 1, 'the memory') * stops.speed.length + indexOf(stops.speed, changes?.speed ?? 1, 'the speed');
    const at = (cell * stops.servers.length + indexOf(stops.servers, servers, 'the number of servers')) * stops.rate.length + indexOf(stops.rate, rate, 'the load');
    const short = computed.answers[at];
    if (!short) throw new Error('this report is incomplete: an answer is missing');
    const law = short.predicted.map((predicted, index) => ({ t_s: times[index] ?? 0, predicted, published: short.published?.[index] ?? null }));
    const loads = (computed.loads[cell] ?? []).map((point) => ({ rate: point.rate * servers, within: point.within }));
    return { knobs, answer: { ...short, law, loads } };
  };
  return { knobs: async () => knobs, ask, whyNone: async () => '', modelText: async () => modelText, stops, objectiveS: knobs.objective_s };
}

const NONE: Answers = {
  knobs: () => Promise.reject(new Error('this report has no model')),
  ask: () => Promise.reject(new Error('this report has no model, and no server that it could ask: open the model in the page of a server')),
  whyNone: () => Promise.resolve('This report has no model.'),
  modelText: () => Promise.resolve(''),
  stops: null,
  objectiveS: null,
};

async function begin(): Promise<void> {
  const data = JSON.parse(byId('report-data').textContent ?? '') as Data;
  const { model, computed } = data;
  const answers = computed ? answersOf(computed, model?.text ?? '') : NONE;
  if (computed) {
    const whatIf = new WhatIf(answers, byId('what-if-here'), (error) => {
      throw error;
    });
    await whatIf.refresh();
  }
  const rateOf = (text: string) => answers.ask({ model: text }).then(({ knobs }) => knobs.rate);
  const refuse = (text: string) => runs.refuse(text);
  const runs: Runs = new Runs(
    answers,
    opener('for a model, open the page of a server.', (found) => void open(found, rateOf, (source) => runs.add(source), refuse), refuse),
  );
  byId('overlay-here').append(runs.element);
  for (const { name, description, steps, windows } of data.runs) runs.add(await readRun(name, { description, steps, windows: [windows] }));
  if (computed && model) runs.add({ kind: 'model', name: model.name, text: '', rate: computed.knobs.rate });
  document.body.dataset['drawn'] = 'report';
}

void begin();
