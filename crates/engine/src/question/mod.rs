//! A question to a dataset: which of its parts are asked when, what happens if a part does not answer or has another
//! version of the dataset, and when the answer is whole.
//!
//! A dataset is cut into parts (shards, and the log of what is not in a shard yet), and its answer is that of all parts in their
//! order. Here is decided, for one question:
//!
//! - *Order.* A page is often filled by the first part. So that one is asked alone, and the others after it, at most
//!   [`Settings::at_once`] at a time. A question that needs every part ([`Kind::All`]: a count, a text) asks all at once.
//! - *End.* A page ends at the first part, in order, with which it is full. What is asked beyond it is dropped.
//! - *Failure.* A part that does not answer fails the question, unless the parts before it fill the page; with
//!   [`Kind::Page`]`{ partial: true }` the part is listed as missing instead. A part that finds the question itself wrong
//!   fails it at once.
//! - *Views.* All answers are of one view of the dataset (its manifest and log). A part that has another one ends what is under way:
//!   the driver refreshes its view, and the question begins again, [`Settings::tries`] times at most. No answer
//!   of an earlier view is kept.
//! - *Deadline.* After it the question ends, whatever is under way.
//!
//! Which replica of a part is asked, when it is hedged or sent again, is the business of
//! [`crate::gateway`], to which a part is a key like any other. This module's simulation runs both together.
//!
//! There is no clock here. Cost: an event costs as much as the parts whose answers became usable with it.

#[cfg(test)]
mod tests;

use ground::window::Nanos;

use crate::mutant::{Mutant, is};

/// What a question needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first records that match, in the order of the parts.
    Page {
        /// Records of a full page.
        limit: usize,
        /// Whether a part that does not answer is listed as missing instead of failing the question.
        partial: bool,
    },
    /// The answers of every part.
    All,
}

/// Bounds of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Parts that are asked for a page at a time, and so the most answers that are held.
    pub at_once: usize,
    /// Bytes of records with which a page is full.
    pub page_bytes_max: usize,
    /// Views of the dataset that are tried.
    pub tries: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { at_once: 16, page_bytes_max: 16 << 20, tries: 4 }
    }
}

/// What a part answered, as far as decisions need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartAnswer {
    /// Records of its page.
    pub records: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Whether its page ended early at a limit of bytes, so that nothing of later parts may follow.
    pub broke_off: bool,
}

/// Why a part did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// No replica answered.
    Unavailable,
    /// The question is wrong: every part would say so.
    Question,
    /// It has another view of the dataset.
    View,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The question begins, or begins again with another view, which has so many parts.
    View {
        /// The parts that this question needs, by number from 0.
        parts: usize,
    },
    /// A part answered.
    Answered {
        /// The part.
        part: usize,
        /// What it answered.
        answer: PartAnswer,
    },
    /// A part did not answer.
    Failed {
        /// The part.
        part: usize,
        /// The reason.
        why: Failed,
    },
    /// The driver could not refresh its view.
    NoView,
    /// Time has passed.
    Tick,
}

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask a part. Ends with [`Event::Answered`] or [`Event::Failed`], unless it is dropped.
    Ask {
        /// The part.
        part: usize,
    },
    /// The answer of a part is not needed any more.
    Drop {
        /// The part.
        part: usize,
    },
    /// Refresh the view, then send [`Event::View`] or [`Event::NoView`]. Earlier answers are to be forgotten.
    Refresh,
    /// The answer is whole: the answers of the first `parts` parts, without the missing ones.
    Done {
        /// Number of parts that it consists of.
        parts: usize,
        /// Those of them that did not answer, ascending.
        missing: Vec<usize>,
        /// Whether parts were left out that may have more records.
        more: bool,
    },
    /// The question fails with the reason of this part.
    Fail {
        /// The part.
        part: usize,
    },
    /// The deadline passed: before the view was refreshed, or before this part answered.
    TooLate {
        /// The first part without an answer.
        part: Option<usize>,
    },
    /// The view could not be refreshed.
    NoView,
}

/// The state of a part.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Waiting,
    Asked,
    Answered(PartAnswer),
    Failed(Failed),
}

/// One question.
///
/// ```
/// use engine::question::{Action, Event, Kind, PartAnswer, Question, Settings};
///
/// let kind = Kind::Page { limit: 10, partial: false };
/// let mut question = Question::new(kind, Settings::default(), u64::MAX);
/// let mut actions = Vec::new();
/// question.handle(0, Event::View { parts: 3 }, &mut actions);
/// assert_eq!(actions, [Action::Ask { part: 0 }], "the first part alone");
/// actions.clear();
/// let answer = PartAnswer { records: 10, bytes: 500, broke_off: false };
/// question.handle(1, Event::Answered { part: 0, answer }, &mut actions);
/// assert_eq!(actions, [Action::Done { parts: 1, missing: vec![], more: true }]);
/// ```
#[derive(Clone, Debug)]
pub struct Question {
    kind: Kind,
    settings: Settings,
    deadline: Nanos,
    tries_left: u32,
    parts: Vec<Part>,
    /// Parts before this one are used or missing.
    used: usize,
    /// Parts before this one were asked.
    asked: usize,
    records: usize,
    bytes: usize,
    missing: Vec<usize>,
    refreshing: bool,
    over: bool,
}

impl Question {
    /// A question without a view yet. After `deadline` nobody waits for the answer.
    pub fn new(kind: Kind, settings: Settings, deadline: Nanos) -> Question {
        Question {
            kind,
            settings,
            deadline,
            tries_left: settings.tries.max(1),
            parts: Vec::new(),
            used: 0,
            asked: 0,
            records: 0,
            bytes: 0,
            missing: Vec::new(),
            refreshing: true,
            over: false,
        }
    }

    /// Whether it has ended: with [`Action::Done`], [`Action::Fail`], [`Action::TooLate`] or [`Action::NoView`].
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// When to send [`Event::Tick`] if nothing else comes first.
    pub fn next_wake(&self) -> Option<Nanos> {
        (!self.over && self.deadline < Nanos::MAX).then_some(self.deadline)
    }

    /// Handles an event and appends the resulting actions. What is said of a part that is not being asked is ignored: it
    /// was dropped, or belongs to an earlier view.
    pub fn handle(&mut self, now: Nanos, event: Event, actions: &mut Vec<Action>) {
        if self.over {
            return;
        }
        match event {
            Event::View { parts } => self.begin(parts),
            Event::Answered { part, answer } => match self.parts.get_mut(part) {
                Some(state) if *state == Part::Asked => *state = Part::Answered(answer),
                _ => return,
            },
            Event::Failed { part, why } => match self.parts.get_mut(part) {
                Some(state) if *state == Part::Asked => {
                    *state = Part::Failed(why);
                    if self.failed(part, why, actions) {
                        return;
                    }
                }
                _ => return,
            },
            Event::NoView => {
                if self.refreshing {
                    self.end(Action::NoView, actions);
                }
                return;
            }
            Event::Tick => {}
        }
        if now >= self.deadline {
            return self.too_late(actions);
        }
        if !self.refreshing {
            self.go_on(actions);
        }
    }

    fn begin(&mut self, parts: usize) {
        self.tries_left = self.tries_left.saturating_sub(1);
        self.refreshing = false;
        let kept = |part: &Part| {
            matches!(part, Part::Answered(_)) && is(Mutant::QuestionKeepsEarlierAnswers)
        };
        self.parts.iter_mut().filter(|part| !kept(part)).for_each(|part| *part = Part::Waiting);
        self.parts.resize(parts, Part::Waiting);
        (self.used, self.asked, self.records, self.bytes) = (0, 0, 0, 0);
        self.missing.clear();
    }

    /// A part did not answer; whether nothing else is to be looked at.
    fn failed(&mut self, part: usize, why: Failed, actions: &mut Vec<Action>) -> bool {
        match (why, self.kind) {
            (Failed::View, _) if self.tries_left > 0 => {
                self.drop_all(actions);
                self.refreshing = true;
                actions.push(Action::Refresh);
                true
            }
            (Failed::Question, _) | (_, Kind::All) => {
                self.end(Action::Fail { part }, actions);
                true
            }
            _ => false,
        }
    }

    /// Takes what can be taken in order, ends the question or asks further parts.
    fn go_on(&mut self, actions: &mut Vec<Action>) {
        let (limit, partial) = match self.kind {
            Kind::Page { limit, partial } => (limit, partial),
            Kind::All => (usize::MAX, false),
        };
        let is_page = self.kind != Kind::All;
        while let Some(part) = self.parts.get(self.used) {
            match *part {
                Part::Answered(answer) => {
                    self.used += 1;
                    self.records = self.records.saturating_add(answer.records);
                    self.bytes = self.bytes.saturating_add(answer.bytes);
                    let full = self.records >= limit
                        || self.bytes > self.settings.page_bytes_max
                        || answer.broke_off;
                    if is_page && full {
                        return self.done(actions);
                    }
                }
                Part::Failed(_) if partial => {
                    if !is(Mutant::QuestionForgetsMissing) {
                        self.missing.push(self.used);
                    }
                    self.used += 1;
                }
                Part::Failed(_) => {
                    let part = self.used;
                    return self.end(Action::Fail { part }, actions);
                }
                Part::Asked | Part::Waiting => break,
            }
        }
        if self.used >= self.parts.len() {
            return self.done(actions);
        }
        let most = match self.kind {
            Kind::All => self.parts.len(),
            // The first alone.
            Kind::Page { .. } if self.used == 0 => 1,
            Kind::Page { .. } => self.used.saturating_add(self.settings.at_once.max(1)),
        };
        while self.asked < most.min(self.parts.len()) {
            if self.parts[self.asked] == Part::Waiting {
                self.parts[self.asked] = Part::Asked;
                actions.push(Action::Ask { part: self.asked });
            }
            self.asked += 1;
        }
    }

    fn done(&mut self, actions: &mut Vec<Action>) {
        let (parts, more) = (self.used, self.used < self.parts.len());
        let missing = std::mem::take(&mut self.missing);
        let more = more && !is(Mutant::QuestionForgetsMore);
        self.end(Action::Done { parts, missing, more }, actions);
    }

    fn too_late(&mut self, actions: &mut Vec<Action>) {
        let partial = matches!(self.kind, Kind::Page { partial: true, .. });
        if self.refreshing || !partial {
            let part = (!self.refreshing).then_some(self.used);
            return self.end(Action::TooLate { part }, actions);
        }
        // What did not answer until now is missing.
        self.drop_all(actions);
        for part in &mut self.parts {
            if matches!(part, Part::Asked | Part::Waiting) {
                *part = Part::Failed(Failed::Unavailable);
            }
        }
        self.go_on(actions);
    }

    fn drop_all(&mut self, actions: &mut Vec<Action>) {
        for (part, state) in self.parts.iter_mut().enumerate() {
            if *state == Part::Asked {
                *state = Part::Waiting;
                actions.push(Action::Drop { part });
            }
        }
    }

    fn end(&mut self, last: Action, actions: &mut Vec<Action>) {
        self.drop_all(actions);
        self.over = true;
        actions.push(last);
    }
}
