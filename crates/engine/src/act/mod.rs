//! Decides which changes the system makes by itself and which it only advises, and keeps the journal of
//! both.
//!
//! A part of the system that wants a change (the layer manager, the live model) makes a [`Proposal`]:
//! the knob, its target, the reason, the expected effect. A [`Governor`] decides whether the change is
//! made, and writes the proposal into the journal. Its rules, in this order:
//!
//! 1. A knob that is [`Mode::Off`] changes nothing and writes nothing.
//! 2. A proposal equal to one of the last [`Settings::repeat`] that was only advised or refused is not
//!    written again.
//! 3. A change that a bound requires ([`Proposal::must`]: layers exceed their budget) is always made.
//! 4. While the kill switch is on ([`Governor::hold`]), nothing else is made.
//! 5. A knob of mode [`Mode::Advise`] is not changed.
//! 6. Each knob changes at most [`Settings::per_minute`] times a minute, with bursts of that number: a
//!    defect in what proposes does damage at a bounded rate.
//!
//! An operator may have a change made once that is none of these ([`operator`]), or have it left alone for a while: this is looked at
//! between rules 3 and 4, and a change that an operator approved is made.
//!
//! [`Settings::judged_after`] after a change, [`Governor::due`] asks for its realised effect, which is
//! written beside the expected one.
//!
//! The journal holds the last [`Settings::entries_max`] entries in memory; the driver appends each
//! [`Line`] to a file. The governor has no clock; callers pass the time. Cost: a scan of the entries of
//! the last minutes for each proposal.
//!
//! Another knob is a variant of [`Knob`] with its mode in [`Modes`]; the governor treats all alike.

pub mod concurrency;
pub mod copies;
mod decide;
pub mod operator;
pub mod replicas;
#[cfg(test)]
mod tests;
pub mod weights;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use ground::window::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use operator::Order;
pub use operator::{Cause, NotDecided, Verdict};

/// What can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// The layers of shards of datasets.
    Layers,
    /// The bounds of queues.
    Bounds,
    /// The bounds of requests in progress at a gateway.
    Concurrency,
    /// The bytes of memory that objects and layers have.
    Memory,
    /// Copies of what is read often on hot devices.
    Hot,
    /// The weights of a cluster's members.
    Weights,
    /// Further replicas of hot shards of datasets.
    Replicas,
}

impl Knob {
    /// All of them.
    pub const ALL: [Knob; 7] = [
        Knob::Layers,
        Knob::Bounds,
        Knob::Concurrency,
        Knob::Memory,
        Knob::Hot,
        Knob::Weights,
        Knob::Replicas,
    ];
}

impl Knob {
    /// Its name in the configuration and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Knob::Layers => "layers",
            Knob::Bounds => "bounds",
            Knob::Concurrency => "concurrency",
            Knob::Memory => "memory",
            Knob::Hot => "hot",
            Knob::Weights => "weights",
            Knob::Replicas => "replicas",
        }
    }
}

/// Whether the changes of a knob are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Changes are made.
    #[default]
    Auto,
    /// Changes are only written into the journal.
    Advise,
    /// Changes are neither made nor written.
    Off,
}

/// The mode of each knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modes {
    /// Of [`Knob::Layers`].
    pub layers: Mode,
    /// Of [`Knob::Bounds`].
    pub bounds: Mode,
    /// Of [`Knob::Concurrency`].
    pub concurrency: Mode,
    /// Of [`Knob::Memory`].
    pub memory: Mode,
    /// Of [`Knob::Hot`].
    pub hot: Mode,
    /// Of [`Knob::Weights`].
    pub weights: Mode,
    /// Of [`Knob::Replicas`].
    pub replicas: Mode,
}

impl Modes {
    /// The mode of a knob.
    pub fn mode_of(&self, knob: Knob) -> Mode {
        match knob {
            Knob::Layers => self.layers,
            Knob::Bounds => self.bounds,
            Knob::Concurrency => self.concurrency,
            Knob::Memory => self.memory,
            Knob::Hot => self.hot,
            Knob::Weights => self.weights,
            Knob::Replicas => self.replicas,
        }
    }
}

/// The settings of a [`Governor`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The mode of each knob.
    pub modes: Modes,
    /// Largest number of changes of one knob in a minute.
    pub per_minute: u32,
    /// Time after a change at which its effect is judged.
    pub judged_after: Nanos,
    /// Time in which the same advice is not repeated.
    pub repeat: Nanos,
    /// Entries that are remembered.
    pub entries_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            modes: Modes {
                layers: Mode::Auto,
                bounds: Mode::Advise,
                concurrency: Mode::Auto,
                memory: Mode::Auto,
                hot: Mode::Auto,
                weights: Mode::Advise,
                replicas: Mode::Advise,
            },
            per_minute: 60,
            judged_after: 30 * SECOND,
            repeat: 300 * SECOND,
            entries_max: 256,
        }
    }
}

/// The effect of a change on one quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// What it is, with its unit: "mean queue length".
    pub quantity: String,
    /// Its value before.
    pub before: f64,
    /// Its expected value after.
    pub after: f64,
}

/// A proposed change.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// What is to change.
    pub knob: Knob,
    /// Of which queue.
    pub target: String,
    /// What tells it from other changes of the same target, whatever its size: "grow", "lower", "replica on n3".
    pub kind: String,
    /// The change: "grows by 1024 bytes".
    pub change: String,
    /// The reason.
    pub reason: String,
    /// The effect that is expected.
    pub expected: Effect,
    /// Whether a bound requires it, so that neither mode nor hold nor rate prevents it.
    pub must: bool,
}

/// The decision on a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The change was made.
    Made,
    /// The knob's mode is to advise.
    Advised,
    /// The kill switch was on.
    Held,
    /// Too many changes within a minute.
    TooMany,
    /// An operator approved it: it is made when it is proposed again.
    Approved,
    /// An operator approved it, and a later entry is the change as it was made.
    Applied,
    /// An operator dismissed it.
    Dismissed,
    /// An operator approved it, and it was not proposed again in time.
    Lapsed,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Made => "made",
            Status::Advised => "advised",
            Status::Held => "not made: all changes are held",
            Status::TooMany => "not made: too many changes in a minute",
            Status::Approved => "approved by an operator: made when it is proposed again",
            Status::Applied => "approved by an operator, and made",
            Status::Dismissed => "dismissed by an operator",
            Status::Lapsed => "not made: approved by an operator, but not proposed again in time",
        })
    }
}

/// An entry of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Ascending from 1.
    pub id: u64,
    /// Microseconds since 1970-01-01 UTC.
    pub at_unix_us: u64,
    /// What is to change.
    pub knob: Knob,
    /// Of which queue.
    pub target: String,
    /// The change.
    pub change: String,
    /// The reason.
    pub reason: String,
    /// The decision.
    pub status: Status,
    /// The effect that was expected.
    pub expected: Effect,
    /// The value of the quantity some time after; `None` before, and for changes that were not made.
    pub realised: Option<f64>,
    /// [`Proposal::kind`]; empty in journals of version 1.0.
    #[serde(default)]
    pub kind: String,
    /// Who caused it.
    #[serde(default)]
    pub cause: Cause,
    /// The entry that an operator approved, if this is the change that was made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<u64>,
}

/// A line of the journal's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A proposal and the decision on it.
    Entry(Entry),
    /// The realised effect of an earlier entry.
    Realised {
        /// The entry.
        id: u64,
        /// The value of its quantity.
        value: f64,
    },
    /// An operator's decision on an earlier entry, or what became of it.
    Decided {
        /// The entry.
        id: u64,
        /// Microseconds since 1970-01-01 UTC.
        at_unix_us: u64,
        /// The status of the entry from now on.
        status: Status,
    },
    /// The kill switch.
    Hold {
        /// Whether it was switched on.
        on: bool,
        /// Microseconds since 1970-01-01 UTC.
        at_unix_us: u64,
    },
}

/// A change whose effect is to be judged.
#[derive(Clone, Debug)]
struct Judged {
    at: Nanos,
    id: u64,
    knob: Knob,
    target: String,
}

/// Decides which proposals are carried out.
///
/// ```
/// use engine::act::{Effect, Governor, Knob, Proposal, Settings, Status};
/// let mut governor = Governor::new(Settings::default());
/// let proposal = Proposal {
///     knob: Knob::Bounds,
///     target: "device/0".to_owned(),
///     kind: "lower".to_owned(),
///     change: "bound of 16 instead of 1024".to_owned(),
///     reason: "past 16 no reply is within 50 ms".to_owned(),
///     expected: Effect { quantity: "bound".to_owned(), before: 1024.0, after: 16.0 },
///     must: false,
/// };
/// assert_eq!(governor.propose(0, 0, &proposal), Some(Status::Advised));
/// assert_eq!(governor.propose(1, 0, &proposal), None, "it was advised a moment ago");
/// assert_eq!(governor.entries().count(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Governor {
    settings: Settings,
    held: bool,
    entries: VecDeque<(Nanos, Entry)>,
    next_id: u64,
    /// Changes that each knob may still make, and when that was counted.
    allowance: BTreeMap<Knob, (f64, Nanos)>,
    judged: VecDeque<Judged>,
    lines: Vec<Line>,
    made: BTreeMap<Knob, u64>,
    /// What an operator decided, oldest first.
    orders: Vec<Order>,
}

impl Governor {
    /// A governor with an empty journal.
    pub fn new(settings: Settings) -> Governor {
        Governor {
            settings,
            held: false,
            entries: VecDeque::new(),
            next_id: 1,
            allowance: BTreeMap::new(),
            judged: VecDeque::new(),
            lines: Vec::new(),
            made: BTreeMap::new(),
            orders: Vec::new(),
        }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes over the lines of an earlier process's journal. The kill switch keeps its position across a
    /// restart.
    pub fn restore(&mut self, lines: impl IntoIterator<Item = Line>) {
        for line in lines {
            match line {
                Line::Entry(entry) => {
                    self.next_id = self.next_id.max(entry.id.saturating_add(1));
                    self.remember(0, entry);
                }
                Line::Realised { id, value } => self.note(id, value),
                // Orders do not outlive their process.
                Line::Decided { id, status: Status::Approved, .. } => {
                    self.note_status(id, Status::Lapsed);
                }
                Line::Decided { id, status, .. } => self.note_status(id, status),
                Line::Hold { on, .. } => self.held = on,
            }
        }
    }

    /// Whether the kill switch is on.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Switches the kill switch.
    pub fn hold(&mut self, at_unix_us: u64, on: bool) {
        if self.held != on {
            self.held = on;
            self.lines.push(Line::Hold { on, at_unix_us });
        }
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// Changes made since the start, by knob.
    pub fn made(&self, knob: Knob) -> u64 {
        self.made.get(&knob).copied().unwrap_or(0)
    }

    /// The lines for the journal's file since the last call.
    pub fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }

    /// Decides on a proposal and writes it into the journal. The caller makes the change if the answer is
    /// [`Status::Made`]; `None` if nothing is to be done and nothing was written.
    pub fn propose(&mut self, now: Nanos, unix_us: u64, proposal: &Proposal) -> Option<Status> {
        let mode = self.settings.modes.mode_of(proposal.knob);
        if mode == Mode::Off && !proposal.must {
            return None;
        }
        self.expire(now, unix_us);
        let verdict = self.verdict_on(proposal).filter(|_| !proposal.must);
        if matches!(verdict, Some((Verdict::Dismiss, _))) {
            return None;
        }
        let approved = verdict.map(|(_, id)| id);
        let status = if proposal.must || approved.is_some() {
            Status::Made
        } else if self.held {
            Status::Held
        } else if mode == Mode::Advise {
            Status::Advised
        } else if !self.allows(now, proposal.knob) {
            Status::TooMany
        } else {
            Status::Made
        };
        if status != Status::Made && self.is_repeated(now, proposal) {
            return None;
        }
        if let Some(id) = approved {
            self.use_up(id, unix_us);
        }
        let id = self.next_id;
        self.next_id += 1;
        if status == Status::Made {
            *self.made.entry(proposal.knob).or_default() += 1;
            let at = now.saturating_add(self.settings.judged_after);
            if self.judged.len() < self.settings.entries_max {
                let (knob, target) = (proposal.knob, proposal.target.clone());
                self.judged.push_back(Judged { at, id, knob, target });
            }
        }
        let entry = Entry {
            id,
            at_unix_us: unix_us,
            knob: proposal.knob,
            target: proposal.target.clone(),
            change: proposal.change.clone(),
            reason: proposal.reason.clone(),
            status: status.clone(),
            expected: proposal.expected.clone(),
            realised: None,
            kind: proposal.kind.clone(),
            cause: if approved.is_some() { Cause::Operator } else { Cause::Process },
            approved,
        };
        self.lines.push(Line::Entry(entry.clone()));
        self.remember(now, entry);
        Some(status)
    }

    /// The next change whose effect is to be judged by now: its entry, knob and target. Answer with
    /// [`Governor::realise`].
    pub fn due(&mut self, now: Nanos) -> Option<(u64, Knob, String)> {
        if self.judged.front()?.at > now {
            return None;
        }
        self.judged.pop_front().map(|judged| (judged.id, judged.knob, judged.target))
    }

    /// Notes the realised effect of a change. A value that is not finite is left out.
    pub fn realise(&mut self, id: u64, value: f64) {
        if value.is_finite() {
            self.note(id, value);
            self.lines.push(Line::Realised { id, value });
        }
    }

    fn note(&mut self, id: u64, value: f64) {
        if let Some((_, entry)) = self.entries.iter_mut().rev().find(|(_, entry)| entry.id == id) {
            entry.realised = Some(value);
        }
    }

    fn remember(&mut self, now: Nanos, entry: Entry) {
        if self.entries.len() >= self.settings.entries_max {
            self.entries.pop_front();
        }
        self.entries.push_back((now, entry));
    }

    /// Whether the same was proposed a short time ago and not made.
    fn is_repeated(&self, now: Nanos, proposal: &Proposal) -> bool {
        let repeat = self.settings.repeat;
        let recent = self.entries.iter().rev();
        let recent = recent.take_while(|(at, _)| at.saturating_add(repeat) > now);
        let mut same = recent.filter(|(_, entry)| {
            let Entry { knob, target, change, .. } = entry;
            (*knob, target, change) == (proposal.knob, &proposal.target, &proposal.change)
        });
        same.next().is_some_and(|(_, entry)| entry.status != Status::Made)
    }

    /// Takes one change from a knob's allowance, which fills at the rate of a minute.
    fn allows(&mut self, now: Nanos, knob: Knob) -> bool {
        let most = f64::from(self.settings.per_minute);
        let (left, at) = self.allowance.entry(knob).or_insert((most, now));
        let minutes = now.saturating_sub(*at) as f64 / (60 * SECOND) as f64;
        *left = (*left + minutes * most).min(most);
        *at = now.max(*at);
        if *left < 1.0 {
            return false;
        }
        *left -= 1.0;
        true
    }
}
