//! What changes during a run: layers, replicas, lost nodes.

use std::collections::BTreeMap;

use engine::layers::replicas::{Replicated, Resize};
use engine::layers::{Change, Shard};

use super::{DETECTED_S, Event, Fill, Layer, Replica, World, nanos};

impl World {
    pub(super) fn bytes(&self, step: usize) -> f64 {
        let step = self.setting.curve.steps.get(step).or(self.setting.curve.steps.last());
        step.map_or(0.0, |step| step.footprint * self.setting.shard_bytes)
    }

    /// Bytes of a layer that is not whole over those of a whole one: four for each value, in place of the bits of a row.
    fn marked_excess(&self) -> f64 {
        32.0 / (self.setting.shard_bytes.max(2.0).log2().floor() + 1.0)
    }

    /// Bytes of a replica with its layers.
    pub(super) fn bytes_of(&self, index: usize) -> f64 {
        let Some(replica) = self.replicas.get(index) else { return 0.0 };
        let excess = self.marked_excess() - 1.0;
        let of = |(at, layer): (usize, &Layer)| match layer {
            Layer::Whole => 0.0,
            Layer::Learns(..) => {
                let step = replica.base + at;
                excess * (self.bytes(step + 1) - self.bytes(step))
            }
        };
        let more: f64 = replica.layers.iter().enumerate().map(of).sum();
        self.bytes(replica.steps_held()) + more
    }

    fn observed(&self, index: usize, replica: &Replica, queue_length: f64) -> Shard {
        let held = replica.steps_held();
        let between = |less: usize, more: usize| self.bytes(more) - self.bytes(less);
        let excess = |marked: bool| if marked { self.marked_excess() } else { 1.0 };
        let next = excess(self.setting.fill.learning().is_some());
        let lowest = excess(matches!(replica.layers.last(), Some(Layer::Learns(..))));
        let filler = self.fillers.get(replica.node);
        Shard {
            id: index as u64,
            queue_length,
            held_bytes: (self.bytes_of(index) - self.bytes(replica.base)) as u64,
            next_bytes: (held < replica.step_max).then(|| (next * between(held, held + 1)) as u64),
            lowest_bytes: (held > replica.base).then(|| (lowest * between(held - 1, held)) as u64),
            growing: replica.sweeping || filler.is_some_and(|f| f.fills(index as u64)),
        }
    }

    pub(super) fn decide(&mut self) {
        let now = self.now;
        self.schedule(now + self.setting.layers.interval, Event::Decide);
        let lengths: Vec<f64> = self.replicas.iter_mut().map(|r| r.length(now)).collect();
        self.fill();
        let mut of_node: BTreeMap<usize, Vec<Shard>> = BTreeMap::new();
        for (index, (replica, length)) in self.replicas.iter().zip(&lengths).enumerate() {
            if replica.there() && replica.ready {
                let observed = self.observed(index, replica, *length);
                of_node.entry(replica.node).or_default().push(observed);
            }
        }
        for (node, shards) in of_node {
            let Some(manager) = self.managers.get_mut(node) else { continue };
            for shard in &shards {
                let Some(replica) = self.replicas.get_mut(shard.id as usize) else { continue };
                let (count, busy_s) =
                    (std::mem::take(&mut replica.served), std::mem::take(&mut replica.busy_s));
                if !shard.growing {
                    manager.served(now, shard.id, shard.held_bytes, count, busy_s);
                }
            }
            for change in manager.observe(now, &shards) {
                self.change(&change);
            }
        }
        self.resize(&lengths);
    }

    /// What the threads that make marked layers whole did since the last decision.
    fn fill(&mut self) {
        let Fill::Both(_, processors) = self.setting.fill else { return };
        let interval_s = self.setting.layers.interval as f64 * 1e-9;
        let scale = self.setting.shard_bytes / self.setting.curve.bytes;
        for (node, (filler, manager)) in self.fillers.iter_mut().zip(&self.managers).enumerate() {
            let next = filler.next(|id| manager.average(id).unwrap_or(0.0));
            let worked = next.map_or(0.0, |(_, share)| share);
            if let Some((id, share)) = next
                && let Some(replica) = self.replicas.get_mut(id as usize)
            {
                let is_whole = |layer: &Layer| matches!(layer, Layer::Whole);
                let first = replica.layers.iter().take_while(|layer| is_whole(layer)).count();
                let step = self.setting.curve.steps.get(replica.base + first + 1);
                let pass_s = step.map_or(0.0, |step| step.sweep_s) * scale;
                replica.passed += share * interval_s / pass_s.max(1e-9);
                for layer in &mut replica.layers {
                    if let Layer::Learns(_, filled) = layer {
                        *filled = filled.max(replica.passed);
                        if replica.passed >= 1.0 {
                            *layer = Layer::Whole;
                        }
                    }
                }
                if replica.layers.iter().all(is_whole) {
                    filler.end(id);
                }
            }
            let of_node = self.replicas.iter().filter(|replica| replica.node == node);
            let busy_s: f64 = of_node.map(|replica| replica.busy_s).sum();
            filler.look(Some(processors - busy_s / interval_s - worked), worked);
        }
    }

    fn change(&mut self, change: &Change) {
        let index = change.shard() as usize;
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(index) else { return };
        let grows = matches!(change, Change::Grow { .. });
        match (grows, &self.setting.fill) {
            (true, Fill::Queries(_) | Fill::Both(..)) => {
                replica.layers.push(Layer::Learns(0.0, 0.0));
                replica.passed = 0.0;
                if let (Fill::Both(..), Some(filler)) =
                    (&self.setting.fill, self.fillers.get_mut(replica.node))
                {
                    filler.mark(change.shard());
                }
            }
            (true, Fill::Sweep) => {
                replica.sweeping = true;
                let step = self.setting.curve.steps.get(replica.steps_held());
                let scale = self.setting.shard_bytes / self.setting.curve.bytes;
                let sweep = nanos(step.map_or(0.0, |step| step.sweep_s) * scale);
                let node = replica.node;
                let free = self.sweeper_free.get(node).copied().unwrap_or(0);
                let done = now.max(free) + sweep;
                if let Some(free) = self.sweeper_free.get_mut(node) {
                    *free = done;
                }
                // A layer that is folded while it is swept is known by its number.
                let version = replica.layers.len() as u64;
                self.schedule(done, Event::Swept { replica: index, version });
            }
            (false, _) if replica.sweeping => replica.sweeping = false,
            (false, _) => {
                replica.layers.pop();
            }
        }
        self.changes.push((now as f64 * 1e-9, index, grows));
    }

    pub(super) fn swept(&mut self, index: usize, version: u64) {
        let Some(replica) = self.replicas.get_mut(index) else { return };
        if replica.sweeping && replica.layers.len() as u64 == version {
            replica.sweeping = false;
            replica.layers.push(Layer::Whole);
        }
    }

    /// Adds and removes replicas, by the mean length of each replica's queue.
    fn resize(&mut self, lengths: &[f64]) {
        let Some(replicator) = &mut self.replicator else { return };
        let mut seen = Vec::new();
        for (shard, all) in self.of_shard.iter().enumerate() {
            let mut one = Replicated {
                id: shard as u64,
                replicas: 0,
                queue_length: 0.0,
                can_grow: false,
                growing: false,
            };
            for &index in all {
                let Some(replica) = self.replicas.get(index) else { continue };
                one.replicas += 1;
                one.queue_length += lengths.get(index).copied().unwrap_or(0.0);
                one.growing |= !replica.ready || replica.sweeping;
                one.can_grow |= replica.steps_held() < replica.step_max;
            }
            seen.push(one);
        }
        let resizes = replicator.observe(self.now, &seen);
        for resize in resizes {
            match resize {
                Resize::Add { shard, .. } => self.add_replica(shard as usize),
                Resize::Remove { shard, .. } => self.remove_replica(shard as usize),
            }
        }
    }

    fn add_replica(&mut self, shard: usize) {
        let all = self.of_shard.get(shard).map_or(&[][..], Vec::as_slice);
        let siblings = all.iter().filter_map(|index| self.replicas.get(*index));
        let least = siblings.map(|r| (r.base, r.steps_held(), r.step_max)).min_by_key(|r| r.1);
        let Some((base, held, step_max)) = least else { return };
        // Fixed footprints stay what they are; others begin below what was full.
        let step = if base == step_max { step_max } else { held.saturating_sub(1) };
        let Ok(node) = self.add_node() else { return };
        let replica = self.add(shard, node, step, step_max);
        self.copy(replica, node);
        self.resized.push((self.now as f64 * 1e-9, shard, true));
    }

    /// Copies a replica to its node; its layers are made by a sweep there.
    fn copy(&mut self, replica: usize, node: usize) {
        let held = self.replicas.get(replica).map_or((0, 0), |r| (r.base, r.steps_held()));
        let bytes = self.bytes(held.0);
        let step = self.setting.curve.steps.get(held.1).filter(|_| held.1 > held.0);
        let scale = self.setting.shard_bytes / self.setting.curve.bytes;
        let sweep_s = step.map_or(0.0, |step| step.sweep_s) * scale;
        let free = self.copier_free.get(node).copied().unwrap_or(0);
        let copied = self.now.max(free) + nanos(bytes / self.setting.copy_bytes_per_s);
        if let Some(free) = self.copier_free.get_mut(node) {
            *free = copied;
        }
        self.copied_bytes += bytes;
        self.schedule(copied + nanos(sweep_s), Event::Ready { replica });
    }

    fn remove_replica(&mut self, shard: usize) {
        let all = self.of_shard.get(shard).map_or(&[][..], Vec::as_slice);
        let smallest =
            |&index: &usize| self.replicas.get(index).map_or(0, |replica| replica.steps_held());
        let Some(index) = all.iter().copied().min_by_key(smallest) else { return };
        if let Some(replica) = self.replicas.get_mut(index) {
            replica.leaving = true;
        }
        if let Some(of) = self.of_shard.get_mut(shard) {
            of.retain(|other| *other != index);
        }
        self.resized.push((self.now as f64 * 1e-9, shard, false));
    }

    pub(super) fn fail(&mut self, node: usize) {
        let mut waiting = Vec::new();
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            if replica.node == node && replica.there() {
                replica.count(self.now);
                replica.lost = true;
                replica.version += 1;
                waiting.extend(replica.queue.drain(..));
                if let Some(of) = self.of_shard.get_mut(replica.shard) {
                    of.retain(|other| *other != index);
                }
            }
        }
        waiting.into_iter().for_each(|job| self.send(job));
        self.schedule(self.now + nanos(DETECTED_S), Event::Rebuild { node });
    }

    /// Copies each replica of a lost node to the node with the fewest that has none of that shard.
    pub(super) fn rebuild(&mut self, node: usize) {
        let lost: Vec<(usize, usize)> = self
            .replicas
            .iter()
            .filter(|replica| replica.node == node && replica.lost)
            .map(|replica| (replica.shard, replica.step_max))
            .collect();
        for (shard, step_max) in lost {
            let mut counts = vec![0usize; self.managers.len()];
            for replica in self.replicas.iter().filter(|replica| !replica.lost) {
                if let Some(count) = counts.get_mut(replica.node) {
                    *count += if replica.shard == shard { 1000 } else { 1 };
                }
            }
            let others = counts.iter().enumerate().filter(|(other, _)| *other != node);
            let Some((target, _)) = others.min_by_key(|(_, count)| **count) else { return };
            let replica = self.add(shard, target, 0, step_max);
            self.copy(replica, target);
        }
    }
}
