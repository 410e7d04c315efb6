//! The section of datasets.

use std::path::PathBuf;

use model::window::Nanos;

use super::Size;
use super::field::Visitor;

/// `[datasets]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Datasets {
    /// Folder of the copies of shards; no datasets are served without one.
    pub path: Option<PathBuf>,
    /// How often the origin is looked at for what others changed.
    pub refresh_s: f64,
    /// Longest queue of a part.
    pub queue_length_max: u32,
    /// Bytes that the layers of all shards may take.
    pub layers_bytes: Size,
    /// Time between two looks at the queues.
    pub layers_interval_s: f64,
    /// Weight of the newest length in the average.
    pub layers_smoothing: f64,
    /// Average length above which a shard gets a layer.
    pub layers_high: f64,
    /// Average length below which a shard gives one back.
    pub layers_low: f64,
}

impl Default for Datasets {
    fn default() -> Self {
        let layers = engine::layers::Settings::default();
        Datasets {
            path: None,
            refresh_s: 2.0,
            queue_length_max: 1000,
            layers_bytes: Size(256 << 20),
            layers_interval_s: layers.interval as f64 / 1e9,
            layers_smoothing: layers.smoothing,
            layers_high: layers.high,
            layers_low: layers.low,
        }
    }
}

impl Datasets {
    pub(super) fn visit(&mut self, v: &mut dyn Visitor) {
        v.field(
            "path",
            "Folder for copies of the shards that this node serves; made if it is not there, and of no \
            value: what is missing is copied from the origin again. Unset: a node serves no datasets.",
            &mut self.path,
        );
        v.field(
            "refresh_s",
            "How often the origin is looked at for datasets and for what other processes appended: \
            after so long every process knows of it.",
            &mut self.refresh_s,
        );
        v.field(
            "queue_length_max",
            "Requests waiting and in service at one shard; past it they are answered 503.",
            &mut self.queue_length_max,
        );
        v.field(
            "layers_bytes",
            "Memory for the layers of all shards together: what a shard that is asked much is made \
            faster with. 0: none.",
            &mut self.layers_bytes,
        );
        v.field(
            "layers_interval_s",
            "Time between two looks at the lengths of the queues.",
            &mut self.layers_interval_s,
        );
        v.field(
            "layers_smoothing",
            "Weight of the newest length in the average of a queue's length.",
            &mut self.layers_smoothing,
        );
        v.field(
            "layers_high",
            "Average length above which a shard gets its next layers.",
            &mut self.layers_high,
        );
        v.field(
            "layers_low",
            "Average length below which a shard gives its lowest layers back.",
            &mut self.layers_low,
        );
    }

    /// What the manager of layers goes by.
    pub fn layers(&self) -> engine::layers::Settings {
        engine::layers::Settings {
            interval: (self.layers_interval_s * 1e9) as Nanos,
            smoothing: self.layers_smoothing,
            high: self.layers_high,
            low: self.layers_low,
            budget_bytes: self.layers_bytes.0,
            ..Default::default()
        }
    }

    pub(super) fn check(&self, must: &mut dyn FnMut(bool, &str, String)) {
        for (place, value, low) in [
            ("datasets.refresh_s", self.refresh_s, 0.05),
            ("datasets.layers_interval_s", self.layers_interval_s, 0.001),
        ] {
            must(
                (low..=1e6).contains(&value),
                place,
                format!("must be between {low} and 1000000 seconds, not {value}"),
            );
        }
        must(
            self.queue_length_max > 0,
            "datasets.queue_length_max",
            "must be at least 1".to_owned(),
        );
        if let Err(error) = engine::layers::Manager::new(self.layers()) {
            must(false, "datasets", format!("the settings of layers cannot hold: {error}"));
        }
    }
}
