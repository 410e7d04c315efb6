//! The sections of the live model, and of the changes that a process makes by itself.

use std::path::PathBuf;

use engine::act;
use ground::window::Nanos;
use model::live;
use origin::{Checks, section};

section! {
    /// The live model: predictions of this process's own responses, from its own requests.
    pub struct Model {
        /// Whether the process fits a model to its own requests. Its cost is below 2 % of a processor.
        pub live: bool = true,
        /// Response time of the objective, milliseconds. Counts are exact if it is one of
        /// observe.objectives_ms.
        pub objective_ms: f64 = 50.0,
        /// Share of requests that should be answered within objective_ms.
        pub share: f64 = 0.95,
        /// Length of the window of requests to which the model is fitted, seconds.
        pub window_s: f64 = 60.0,
        /// Seconds between two fits.
        pub refit_s: f64 = 10.0,
        /// Maximum share of a processor for fits: an expensive fit delays the next one.
        pub cost_max: f64 = 0.015,
        /// How far ahead predictions are made, seconds.
        pub ahead_s: f64 = 60.0,
        /// Each prediction is compared with the requests of this many seconds before the predicted time.
        pub scored_s: f64 = 10.0,
        /// Advice is withheld while the median error of the last ten predictions is above this many
        /// points (of 100).
        pub error_points_max: f64 = 5.0,
    }
}

section! {
    /// What the process changes by itself. Modes of each knob: "auto" (changes are made), "advise" (changes
    /// are only written to the journal: `concertina why`), "off".
    pub struct Act {
        /// Layers of shards of datasets. In any mode, layers beyond datasets.layers_bytes are dropped.
        pub layers: act::Mode = act::Mode::Auto,
        /// Bounds of the devices' queues: a read that would wait longer than model.objective_ms is refused
        /// instead of answered late.
        pub bounds: act::Mode = act::Mode::Advise,
        /// Bounds of requests in progress at gateways with gateway.concurrency = "auto". Between half and twice
        /// the bound of the last change, a bound moves in any mode except "off".
        pub concurrency: act::Mode = act::Mode::Auto,
        /// The division of node.memory_shared_bytes between objects and layers.
        pub memory: act::Mode = act::Mode::Auto,
        /// Copies of frequently read objects on hot devices. Filling the hot devices is an entry of the journal; copies
        /// that follow slow changes of popularity have no entries, and are made only in "auto".
        pub hot: act::Mode = act::Mode::Auto,
        /// Weights of a cluster's members, by how busy their devices are; changed by gateways. "auto" requires members in
        /// etcd: one weight at a time, to at least half its value (docs/cluster.md).
        pub weights: act::Mode = act::Mode::Advise,
        /// A weight is changed only if nothing that the cluster's processes share through etcd has changed for this
        /// many seconds, by hand or by itself.
        pub weights_every_s: f64 = 300.0,
        /// Additional replicas of shards of datasets whose queues stay long on all their nodes, and to which no node can add a
        /// layer: a gateway asks a less loaded node to hold a copy while it is needed, within that node's budget for layers.
        pub replicas: act::Mode = act::Mode::Advise,
        /// Maximum number of changes of each knob in a minute.
        pub per_minute: u32 = 60,
        /// Seconds between a change and the measurement of its effect.
        pub judged_after_s: f64 = 30.0,
        /// File for the journal of changes, one JSON object a line; created if missing, otherwise appended to.
        /// Another kind of file is refused. The last 256 entries are kept in memory in any case.
        pub journal: Option<PathBuf> = None,
        /// Maximum size of the journal's file. A full file is renamed to NAME.old, replacing an earlier
        /// NAME.old.
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

    pub(crate) fn check(&self, mut checks: Checks<'_>) {
        checks.between("cost_max", self.cost_max, 1e-4, 100.0);
        // The ranges of `live::Settings::check`, by the names and in the units of the file.
        checks.between("objective_ms", self.objective_ms, 1e-3, 1e7);
        checks.between("share", self.share, 1e-3, 0.99999);
        checks.between("window_s", self.window_s, 0.1, 86_400.0);
        checks.between("refit_s", self.refit_s, 0.1, 86_400.0);
        checks.between("ahead_s", self.ahead_s, 0.1, 3600.0);
        checks.between("scored_s", self.scored_s, 0.1, 3600.0);
        checks.between("error_points_max", self.error_points_max, 0.0, 100.0);
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

    pub(crate) fn check(&self, in_etcd: bool, mut checks: Checks<'_>) {
        checks.must(
            self.weights != act::Mode::Auto || in_etcd,
            "weights",
            "must be advise or off unless the members are in etcd; write an advised weight into the members' configuration by hand",
        );
        checks.between("weights_every_s", self.weights_every_s, 1.0, 1e7);
        checks.between("per_minute", self.per_minute, 1, 1_000_000);
        checks.between("judged_after_s", self.judged_after_s, 0.01, 1e6);
        checks.at_least("journal_bytes_max", self.journal_bytes_max, origin::Size(64 << 10));
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    /// What the live model refuses is refused here, by the name of the key.
    #[test]
    fn settings_of_the_model_are_refused_by_their_names() {
        let keys = [
            ("objective_ms", "-1"),
            ("objective_ms", "0.0009"),
            ("objective_ms", "10000001"),
            ("share", "0"),
            ("share", "1"),
            ("window_s", "0"),
            ("window_s", "86401"),
            ("refit_s", "0.05"),
            ("ahead_s", "3601"),
            ("scored_s", "nan"),
            ("error_points_max", "101"),
        ];
        for (key, value) in keys {
            let text = format!("[model]\n{key} = {value}");
            let error = Config::parse(&text, "", &[]).unwrap_err().to_string();
            assert!(error.contains(&format!("model.{key}: must be between")), "{error}");
        }
        for text in
            ["objective_ms = 0.001", "objective_ms = 1e7", "share = 0.001", "window_s = 86400"]
        {
            let config = Config::parse(&format!("[model]\n{text}"), "", &[]).unwrap();
            assert!(config.model.settings().check().is_ok(), "{text}");
        }
    }
}
