//! The state of a generator during one pass: its source of requests and the records of the phases.

use crossbeam_channel::Sender;
use ground::window::Nanos;

use crate::phase::{Message, PhaseRecord};
use crate::source::{Pass, Source};

/// The state of a generator during one pass.
pub(super) struct Course<'a> {
    pub pass: &'a Pass,
    pub source: Source,
    pub records: Vec<State>,
    pub out: &'a Sender<Message>,
    /// If the run was interrupted: the time up to which all arrivals were sent. Phases that end
    /// later are marked as cut.
    pub stopped_at: Nanos,
}

/// The state of a phase.
pub(super) enum State {
    NotStarted,
    Open(Box<PhaseRecord>),
    Over,
}

impl Course<'_> {
    /// The record of an open phase.
    ///
    /// Passes on the phase's end as soon as it is known (in an open loop, from the start), so that
    /// a late event does not open a window past the end.
    pub fn record(&mut self, phase: usize) -> Option<&mut PhaseRecord> {
        match self.records.get_mut(phase) {
            Some(State::Open(record)) => {
                record.bound(self.pass.bounds(phase).1);
                Some(record)
            }
            _ => None,
        }
    }

    /// Ends the phases under way at the interrupt, unless they end before.
    pub fn interrupt(&mut self) {
        let stopped_at = self.stopped_at;
        for phase in 0..self.records.len() {
            if let Some(record) = self.record(phase) {
                record.interrupt(stopped_at);
            }
        }
    }

    pub fn is_over(&self) -> bool {
        self.records.iter().all(|state| matches!(state, State::Over))
    }
}
