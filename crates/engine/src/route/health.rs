//! Whether a node gets requests: it is suspected at its first failure and taken back gradually.
//!
//! A node is suspected at its first failure (no connection, a broken connection, an unanswered
//! ping), because another node can serve instead and a false suspicion costs little. It is taken
//! back when it answers a ping: over [`Settings::recovery`] its share of its normal load grows from
//! [`Settings::share_first`] to 1, because its memory is cold and its failure may not be over. A
//! node that keeps failing rests for longer each time.

use ground::window::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

/// How failed nodes are taken back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Time over which a returning node's share grows to 1.
    pub recovery: Nanos,
    /// The share of its normal load that a returning node starts with.
    pub share_first: f64,
    /// How long a node that failed a second time gets no requests although it answers pings;
    /// doubles with each further failure.
    pub rest: Nanos,
    /// The longest rest.
    pub rest_max: Nanos,
    /// A failure this long after the node came back counts as a first failure.
    pub calm: Nanos,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            recovery: 2 * SECOND,
            share_first: 0.05,
            rest: SECOND / 2,
            rest_max: 10 * SECOND,
            calm: 20 * SECOND,
        }
    }
}

/// The assumed state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No failure is known.
    Healthy,
    /// The node came back; its share grows.
    Recovering,
    /// The node failed and has not answered since, or it rests.
    Suspect,
    /// Its configuration or version differs from the gateway's: it gets no requests.
    Unfit,
}

impl State {
    /// Every state.
    pub const ALL: [State; 4] = [State::Healthy, State::Recovering, State::Suspect, State::Unfit];

    /// The name of the state, as in metrics and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Healthy => "healthy",
            State::Recovering => "recovering",
            State::Suspect => "suspect",
            State::Unfit => "unfit",
        }
    }
}

/// Whether a node or a server is out of reach, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Whether it gets requests.
    pub is_up: bool,
    /// How often it failed since the start.
    pub failures: u64,
}

/// A node's health.
#[derive(Clone, Debug)]
pub struct Health {
    state: State,
    /// When the node entered the state.
    since: Nanos,
    /// When the first failure since the node's last answer was learnt; `None`: nothing has failed since.
    silent_since: Option<Nanos>,
    /// Number of failures soon after the node was taken back.
    relapses: u32,
    /// When the node was last taken back.
    back_at: Option<Nanos>,
    rests_until: Nanos,
}

impl Health {
    /// A node without history. It counts as healthy, so that a gateway can serve as soon as it
    /// starts.
    pub fn new(now: Nanos) -> Health {
        Health {
            state: State::Healthy,
            since: now,
            silent_since: None,
            relapses: 0,
            back_at: None,
            rests_until: now,
        }
    }

    /// The state at `now`.
    pub fn state(&self, now: Nanos, settings: &Settings) -> State {
        match self.state {
            State::Recovering if now >= self.since.saturating_add(settings.recovery) => {
                State::Healthy
            }
            state => state,
        }
    }

    /// The share of its normal load that the node gets, 0 to 1.
    pub fn share(&self, now: Nanos, settings: &Settings) -> f64 {
        match self.state(now, settings) {
            State::Healthy => 1.0,
            State::Suspect | State::Unfit => 0.0,
            State::Recovering => {
                let grown = now.saturating_sub(self.since) as f64 / settings.recovery.max(1) as f64;
                (settings.share_first + (1.0 - settings.share_first) * grown).clamp(0.0, 1.0)
            }
        }
    }

    /// Whether the node answers pings. A resting node that answers is used if there is no other.
    pub fn answers(&self) -> bool {
        self.silent_since.is_none() && self.state != State::Unfit
    }

    /// Whether the node fell silent less than `patience` ago: a ping that is late, a restart. One that is
    /// silent for longer has failed as far as anybody can tell.
    pub fn may_answer_soon(&self, now: Nanos, patience: Nanos) -> bool {
        let lately = |since: Nanos| now < since.saturating_add(patience);
        self.state != State::Unfit && self.silent_since.is_none_or(lately)
    }

    /// How often the node failed again soon after it was taken back.
    pub fn relapses(&self) -> u32 {
        self.relapses
    }

    /// Records that an attempt or ping sent at `sent` failed. One sent before the node was taken
    /// back says nothing about its present state.
    pub fn fail(&mut self, now: Nanos, sent: Nanos, settings: &Settings) {
        if self.state == State::Recovering && sent < self.since {
            return;
        }
        self.silent_since.get_or_insert(now);
        if matches!(self.state, State::Suspect | State::Unfit) {
            return;
        }
        let soon = |back: Nanos| now < back.saturating_add(settings.calm);
        self.relapses = if self.back_at.is_some_and(soon) { self.relapses + 1 } else { 0 };
        self.rests_until = match self.relapses {
            0 => now,
            n => {
                let rest = settings.rest.saturating_mul(1 << (n - 1).min(20));
                now.saturating_add(rest.min(settings.rest_max))
            }
        };
        self.state = State::Suspect;
        self.since = now;
    }

    /// Records that the node answered a ping.
    pub fn answer(&mut self, now: Nanos, fits: bool) {
        self.silent_since = None;
        match (self.state, fits) {
            (State::Unfit, false) => {}
            (_, false) => {
                self.state = State::Unfit;
                self.since = now;
            }
            (State::Suspect | State::Unfit, true) if now >= self.rests_until => {
                self.state = State::Recovering;
                self.since = now;
                self.back_at = Some(now);
            }
            (State::Unfit, true) => self.state = State::Suspect,
            (_, true) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_taken_back_by_and_by() {
        let settings = Settings::default();
        let mut health = Health::new(0);
        assert_eq!(health.share(0, &settings), 1.0);
        health.fail(SECOND, SECOND, &settings);
        assert_eq!(health.state(SECOND, &settings), State::Suspect);
        assert!(!health.answers());
        // Its silence begins with the first of several failures.
        health.fail(SECOND + 1, SECOND + 1, &settings);
        assert!(health.may_answer_soon(SECOND + 1, 2) && !health.may_answer_soon(SECOND + 2, 2));
        health.answer(2 * SECOND, true);
        assert_eq!(health.share(2 * SECOND, &settings), 0.05);
        assert!((health.share(3 * SECOND, &settings) - 0.525).abs() < 1e-9);
        assert_eq!(health.state(4 * SECOND, &settings), State::Healthy);
        assert_eq!(health.share(4 * SECOND, &settings), 1.0);
    }

    #[test]
    fn a_flapping_node_rests_for_longer_each_time() {
        let settings = Settings::default();
        let mut health = Health::new(0);
        let mut now = 0;
        let mut rests = Vec::new();
        for _ in 0..8 {
            health.fail(now, now, &settings);
            let from = now;
            while health.state(now, &settings) == State::Suspect {
                now += SECOND / 10;
                health.answer(now, true);
                assert!(health.answers());
            }
            rests.push((now - from) / (SECOND / 10));
        }
        assert_eq!(rests, [1, 5, 10, 20, 40, 80, 100, 100]);
        now += settings.calm;
        health.fail(now, now, &settings);
        assert_eq!(health.relapses(), 0);
    }

    #[test]
    fn what_was_sent_before_it_came_back_says_nothing() {
        let settings = Settings::default();
        let mut health = Health::new(0);
        health.fail(10, 5, &settings);
        health.answer(20, true);
        health.fail(21, 6, &settings);
        assert_eq!(health.state(21, &settings), State::Recovering);
        health.fail(22, 21, &settings);
        assert_eq!(health.state(22, &settings), State::Suspect);
    }

    #[test]
    fn a_node_that_does_not_fit_is_its_own_state() {
        let settings = Settings::default();
        let mut health = Health::new(0);
        health.answer(1, false);
        assert_eq!(health.state(1, &settings), State::Unfit);
        assert!(!health.answers());
        health.fail(2, 2, &settings);
        assert_eq!(health.state(2, &settings), State::Unfit);
        health.answer(3, true);
        assert_eq!(health.state(3, &settings), State::Recovering);
    }
}
