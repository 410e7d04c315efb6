// What a process does without, in sentences: devices, its origin, other members.

import type { Status, Tiers } from './api';
import { known, span } from './format';

export function faults(status: Status, tiers: Tiers | null): string[] {
  const found: string[] = [];
  const { origin, mismatches } = status;
  if (origin?.lost) found.push(`Nothing is served from the origin: ${origin.lost}.`);
  else if (origin?.failing) found.push(`The origin does not answer: ${origin.failing}.`);
  if (origin?.read_only) found.push(`The origin takes no writes: ${origin.read_only}.`);
  for (const { name, state, out_for_s: outForS, write_failed: writeFailed } of tiers?.devices ?? []) {
    if (state === 'out') found.push(`${name} failed${known(outForS) ? ` ${span(outForS)} ago` : ''} and is not used; its objects are read from elsewhere.`);
    else if (writeFailed) found.push(`${name} takes no writes: the last one failed, and the log has the reason. What it holds is read.`);
  }
  const membership = status.cluster ?? status;
  if (membership.problem) found.push(`etcd does not confirm the members: ${membership.problem}.`);
  const silent = (membership.members ?? []).filter((member) => !member.live).map((member) => member.name);
  if (silent.length > 0) found.push(`${silent.join(', ')} ${silent.length === 1 ? 'does' : 'do'} not answer; other members answer for ${silent.length === 1 ? 'its' : 'their'} keys.`);
  for (const { peer, name, what, why } of mismatches ?? []) found.push(`${peer ?? name ?? 'A process'}: ${what ?? why ?? 'it differs'}.`);
  // Sentences of the server may end with their own full stop.
  return found.map((text) => text.replace(/\.\.$/, '.'));
}
