//! The sections of the live model, and of what the process changes by itself.

use std::path::PathBuf;

use engine::act;
use model::live;
use model::window::Nanos;
use origin::{Checks, section};

section! {
    /// The live model: what this process predicts of itself from its own requests.
    pub struct Model {
        /// Whether a model is fitted continuously. It costs less than 2 % of a processor.
        pub live: bool = true,
        /// Response time of the objective, milliseconds. Counts are exact if it is one of
        /// observe.objectives_ms.
        pub objective_ms: f64 = 50.0,
        /// Share of requests that should be answered within objective_ms.
        pub share: f64 = 0.95,
        /// Seconds of requests that are fitted.
        pub window_s: f64 = 60.0,
        /// Seconds between two fits.
        pub refit_s: f64 = 10.0,
        /// Maximum share of a processor that fits take: after an expensive one the next is put off.
        pub cost_max: f64 = 0.015,
        /// How many seconds ahead responses are predicted.
        pub ahead_s: f64 = 60.0,
        /// Each prediction is compared with this many seconds of requests before its time.
        pub scored_s: f64 = 10.0,
        /// Advice is withheld while the median error of the last ten predictions is above this many
        /// points (of 100).
        pub error_points_max: f64 = 5.0,
    }
}

section! {
    /// What the process changes by itself: for each knob "auto", "advise" (only written into the
    /// journal, see `concertina why`) or "off".
    pub struct Act {
        /// Layers of shards of datasets. Layers beyond datasets.layers_bytes are dropped in any
        /// mode.
        pub layers: act::Mode = act::Mode::Auto,
        /// Bounds of the devices' queues: a read that finds too many others before it for
        /// model.objective_ms is refused instead of answered late.
        pub bounds: act::Mode = act::Mode::Advise,
        /// Bounds of requests in progress at gateways with gateway.concurrency = "auto". Within half and twice
        /// the bound of the last change it moves in any mode but "off".
        pub concurrency: act::Mode = act::Mode::Auto,
        /// The bytes of node.memory_shared_bytes that objects and layers have: moves from one to the other.
        pub memory: act::Mode = act::Mode::Auto,
        /// Copies of what is read often on hot devices. Those that follow slow changes are made in "auto" without an entry
        /// in the journal; filling hot devices is one.
        pub hot: act::Mode = act::Mode::Auto,
        /// Weights of a cluster's members, by how busy their devices are, at a gateway. "auto" is for members in etcd: one
        /// weight at a time is shared there, at least half of what it was (docs/cluster.md).
        pub weights: act::Mode = act::Mode::Advise,
        /// Seconds without a change of what the cluster's processes share, by hand or not, before a weight is changed by
        /// itself.
        pub weights_every_s: f64 = 300.0,
        /// Further replicas of shards of datasets whose queues stay long on all their nodes though no layer can be added: a gateway
        /// has a less loaded node hold a copy, within what its datasets' layers may take there, for as long as it is needed.
        pub replicas: act::Mode = act::Mode::Advise,
        /// Maximum changes of each knob in a minute.
        pub per_minute: u32 = 60,
        /// Seconds after a change at which its effect is measured.
        pub judged_after_s: f64 = 30.0,
        /// File for the journal of changes, one JSON object a line; created if missing, appended to.
        /// The last 256 entries are in memory in any case.
        pub journal: Option<PathBuf> = None,
        /// Maximum bytes of the journal's file. A full one is renamed to NAME.old, which replaces an
        /// earlier one.
        pub journal_bytes_max: origin::Size = origin::Size(16 << 20),
    }
}

impl Model {
    /// The live model's settings.
    pub fn settings(&self) -> live::Settings {
        live::Settings {
            objective_s: self.objective_ms * 1e-3,
            share: self.share,
            window_s: self.window_s,
            refit_s: self.refit_s,
            ahead_s: self.ahead_s,
            scored_s: self.scored_s,
            error_points_max: self.error_points_max,
            ..live::Settings::default()
        }
    }

    pub(super) fn check(&self, mut checks: Checks<'_>) {
        checks.between("cost_max", self.cost_max, 1e-4, 100.0);
        if let Err(error) = self.settings().check() {
            checks.must(false, "*", error.to_string());
        }
    }
}

impl Act {
    /// The governor's settings.
    pub fn settings(&self) -> act::Settings {
        act::Settings {
            modes: act::Modes {
                layers: self.layers,
                bounds: self.bounds,
                concurrency: self.concurrency,
                memory: self.memory,
                hot: self.hot,
                weights: self.weights,
                replicas: self.replicas,
            },
            per_minute: self.per_minute,
            judged_after: (self.judged_after_s * 1e9) as Nanos,
            ..act::Settings::default()
        }
    }

    pub(super) fn check(&self, in_etcd: bool, mut checks: Checks<'_>) {
        checks.must(
            self.weights != act::Mode::Auto || in_etcd,
            "weights",
            "must be advise or off unless the members are in etcd: write an advised weight into the members' configuration",
        );
        checks.between("weights_every_s", self.weights_every_s, 1.0, 1e7);
        checks.between("per_minute", self.per_minute, 1, 1_000_000);
        checks.between("judged_after_s", self.judged_after_s, 0.01, 1e6);
        checks.at_least("journal_bytes_max", self.journal_bytes_max, origin::Size(64 << 10));
    }
}
