//! The thread of low priority that builds layers, and makes marked ones whole where a processor is idle
//! ([`engine::layers::fill`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use engine::layers::ShardId;
use record::clock;
use shard::Error;
use shard::layers::{Completion, Rates, TextBuild, TextOptions};
use tracing::{info, warn};

use super::steps::{Order, Regional, Step};
use super::{Candidate, Filling, Layers, State};
use configuration::Fill;
use dataset::part::Part;

/// Segments of a sweep, and blocks of a text layer, that are processed between two checks for
/// cancellation.
const SEGMENTS: usize = 16;
const BLOCKS: usize = 256;

/// The samples that tokens are chosen from, and the most tokens. Choosing them is what comes before the first block, when a queue is
/// too long already: for 50 MB of package records it takes 8 of 11 CPU s with the 32 MiB and 100,000 of [`TextOptions`], whose layer
/// takes 0.278 of the text; with these all takes 3.4, and the layer 0.301 of the text (`examples/text_layer.rs`).
const SAMPLE_BYTES: usize = 4 << 20;
const TOKENS_MAX: usize = 50_000;

/// Nanoseconds between two parts of a text layer that is being built. Each is a copy of what was finished since, a few
/// milliseconds; a read looks for its part among all, so that there should not be thousands.
const PART_AFTER: u64 = 1_000_000_000;

/// Nanoseconds of filling marked layers between two looks at what is to be done.
const SLICE: u64 = 2_000_000;

/// How far the marked layers of shards are filled, with the number of their last mark.
pub(super) type Completions = HashMap<ShardId, (u64, Completion)>;

impl Layers {
    /// Builds what is ordered and fills what is marked, until nothing can be ordered any more.
    pub(super) fn work(&self, orders: &Receiver<Order>) {
        let mut completions = Completions::new();
        loop {
            let order = if self.fill_some(&mut completions) {
                orders.try_recv().map_err(|error| error == TryRecvError::Disconnected)
            } else {
                let disconnected = |error| error == RecvTimeoutError::Disconnected;
                orders.recv_timeout(self.interval).map_err(disconnected)
            };
            match order {
                Ok(order) => self.make(&order, &mut completions),
                Err(true) => return,
                Err(false) => {}
            }
        }
    }

    /// Fills marked layers for a moment, those of the hottest shard; false if there are none.
    fn fill_some(&self, completions: &mut Completions) -> bool {
        if self.stopping.load(Ordering::Relaxed) {
            return false;
        }
        let Some((id, mark, part, share)) = self.lock().next_marked() else {
            completions.clear();
            return false;
        };
        let found = completions.entry(id).or_default();
        if found.0 != mark {
            *found = (mark, Completion::default());
        }
        let index = part.shard().index();
        let (begun, used_s) = (clock::now(), clock::thread_s());
        let mut finished = false;
        while !finished && clock::now() < begun + SLICE {
            finished = found.1.step(index.layers(), index, SEGMENTS).is_finished();
        }
        if finished {
            completions.remove(&id);
            match index.layers().pack() {
                Ok(0) => {}
                Ok(count) => info!("{}: {count} marked layers are whole", part.entry().file),
                Err(error) => warn!("{}: cannot pack a layer: {error}", part.entry().file),
            }
        }
        let took = clock::now() - begun;
        let mut state = self.lock();
        state.worked_s += clock::thread_s() - used_s;
        if finished {
            state.completed(id, mark);
        }
        drop(state);
        // What is left of the processors is for others.
        let pause = Duration::from_nanos((took as f64 * (1.0 / share - 1.0)) as u64);
        if !pause.is_zero() {
            std::thread::sleep(pause.min(self.interval));
        }
        true
    }

    /// Builds the step of an order and publishes it.
    fn make(&self, order: &Order, completions: &mut Completions) {
        let made = match &order.step {
            Step::Arrays(rates) => self.sweep(order, rates),
            Step::Text(regional) => self.compress(order, regional, completions),
        };
        match made {
            Ok(Some(what)) => info!("{}: added {what}", order.name),
            Ok(None) => {}
            Err(error) => warn!("{}: cannot add a layer: {error}", order.name),
        }
        self.lock().end_filling(order);
    }

    /// Publishes what was built, unless it was cancelled; returns whether it did. Both the layer and what was granted for it
    /// count as held, and a fold cancels the build. So the layer appears and the grant ends under the lock under which others
    /// look and fold: between the two, the bytes would count twice, and a build that was cancelled would add its layer after
    /// its bytes were given to others.
    fn publish(
        &self,
        order: &Order,
        publish: impl FnOnce() -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let mut state = self.lock();
        if self.is_off(order) {
            return Ok(false);
        }
        publish()?;
        state.end_filling(order);
        Ok(true)
    }

    /// Publishes the regions of a text layer that are finished. What was granted for the layer is less by their bytes, which count
    /// as the shard's from now on: under the lock under which others look, as in [`publish`](Layers::publish).
    fn publish_part(&self, order: &Order, build: &mut TextBuild) -> Result<(), Error> {
        let mut state = self.lock();
        if self.is_off(order) {
            return Ok(());
        }
        let layers = order.part.shard().index().layers();
        let before = layers.footprint().text_bytes;
        if layers.publish_text_so_far(build)? {
            let more = layers.footprint().text_bytes.saturating_sub(before) as u64;
            if let Some(filling) = state.filling.get_mut(&order.id) {
                filling.bytes = filling.bytes.saturating_sub(more);
            }
        }
        Ok(())
    }

    fn is_off(&self, order: &Order) -> bool {
        order.cancelled.load(Ordering::Relaxed) || self.stopping.load(Ordering::Relaxed)
    }

    /// Builds and publishes layers of the arrays; returns its description, or `None` if cancelled.
    fn sweep(&self, order: &Order, rates: &Rates) -> Result<Option<String>, Error> {
        let index = order.part.shard().index();
        let mut sweep = index.layers().sweep(rates)?;
        while !self.is_off(order) {
            if sweep.step(index, SEGMENTS).is_finished() {
                let is_there = self.publish(order, || index.layers().publish(sweep))?;
                let what = format!("layers with rates {:?} and {:?}", rates.sa, rates.isa);
                return Ok(is_there.then_some(what));
            }
        }
        Ok(None)
    }

    /// Builds and publishes a text layer; returns its description, or `None` if cancelled. It takes long, so marked layers
    /// are filled in between, and regions serve as soon as they are finished, those that are read most first. Not where there is a
    /// layer already: its beginning would replace more than it holds.
    fn compress(
        &self,
        order: &Order,
        regional: &Regional,
        completions: &mut Completions,
    ) -> Result<Option<String>, Error> {
        let index = order.part.shard().index();
        let bytes_max = usize::try_from(regional.bytes_max).unwrap_or(usize::MAX);
        let options = TextOptions {
            bytes_max,
            sample_bytes: SAMPLE_BYTES,
            tokens_max: TOKENS_MAX,
            ..TextOptions::default()
        };
        let mut build = TextBuild::of_regions(index, options, regional.order.clone())?;
        let in_parts = index.layers().footprint().text_bytes == 0;
        let mut published = clock::now();
        while !self.is_off(order) {
            let progress = build.step(index, BLOCKS)?;
            if in_parts && clock::now() >= published + PART_AFTER {
                self.publish_part(order, &mut build)?;
                published = clock::now();
            }
            if progress.is_finished() {
                let is_there = self.publish(order, || index.layers().publish_text(build))?;
                let bytes = index.layers().footprint().text_bytes;
                return Ok(is_there.then(|| format!("a text layer of {bytes} bytes")));
            }
            self.fill_some(completions);
        }
        Ok(None)
    }
}

impl State {
    /// What was granted for an order is not held any more, unless it is another's.
    fn end_filling(&mut self, order: &Order) {
        let same = |filling: &Filling| Arc::ptr_eq(&filling.cancelled, &order.cancelled);
        if self.filling.get(&order.id).is_some_and(same) {
            self.filling.remove(&order.id);
        }
    }

    /// Marks layers of the arrays, which are there at once, and has them made whole if that is how they are filled.
    pub(super) fn mark(&mut self, candidate: &Candidate, rates: &Rates) {
        if let Err(error) = candidate.part.shard().index().layers().mark(rates) {
            warn!("{}: cannot mark a layer: {error}", candidate.station.name());
        } else if self.fill == Fill::Both {
            self.filler.mark(candidate.id);
            self.marked.insert(candidate.id, candidate.part.clone());
        }
    }

    /// The shard whose marked layers are filled next, with the number of its last mark, and the part of a processor for it.
    fn next_marked(&self) -> Option<(ShardId, u64, Arc<Part>, f64)> {
        let heat = |id| self.manager.average(id).unwrap_or(0.0);
        let (id, share) = self.filler.next(heat)?;
        Some((id, self.filler.mark_of(id)?, self.marked.get(&id)?.clone(), share))
    }

    /// The layers that a shard had when it was marked are whole, or gone.
    fn completed(&mut self, id: ShardId, mark: u64) {
        if self.filler.mark_of(id) == Some(mark) {
            self.filler.end(id);
            self.marked.remove(&id);
        }
    }
}
