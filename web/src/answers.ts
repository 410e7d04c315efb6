// Where what-if questions are answered: by a server for any value, or from the answers that a report carries.

import { type Answered, type Knobs, type ModelReport, type Question, get, getIfAny, getText, post } from './api';
import { whyNoModel } from './words';

export interface Answers {
  // Null before there is a model.
  knobs(): Promise<Knobs | null>;
  // What is absent is as it is now.
  ask(question: Partial<Question>): Promise<Answered>;
  // Why there is no model to ask, in a sentence.
  whyNone(): Promise<string>;
  modelText(): Promise<string>;
  // The values that have answers, by control; null where any value has one.
  readonly stops: Stops | null;
  // The time of the objective that the answers are for, seconds; null where it may be any.
  readonly objectiveS: number | null;
}

export interface Stops {
  rate: number[];
  servers: number[];
  speed: number[];
  memory: number[];
}

export const server: Answers = {
  knobs: () => getIfAny<Knobs>('/what-if'),
  ask: (question) => post<Answered>('/what-if', question),
  whyNone: async () => whyNoModel((await get<ModelReport>('/model')).model),
  modelText: () => getText('/model/file'),
  stops: null,
  objectiveS: null,
};
