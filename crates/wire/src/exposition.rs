//! The text format of Prometheus: the one place that writes it.

use std::fmt::Write;

/// What a family of metrics is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative counts of buckets, with sum and count.
    Histogram,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A page of metrics under construction.
#[derive(Default)]
pub struct Exposition {
    text: String,
}

impl Exposition {
    /// Begins a family: its name, kind and explanation. Its samples follow.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str());
    }

    /// Adds a sample. `name` is the family's, or the family's with `_bucket`, `_sum` or `_count`.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"", if index == 0 { '{' } else { ',' });
            for c in text.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }

    /// The open connections of clients, and how many there may be.
    pub fn connections(&mut self, open: usize, max: usize) {
        self.single("concertina_connections", Kind::Gauge, "Open connections.", open as f64);
        let help =
            "Maximum open connections: as configured, or what the limit of open files leaves.";
        self.single("concertina_connections_max", Kind::Gauge, help, max as f64);
    }

    /// A family with one sample and no labels.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// The page.
    pub fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_families_explained() {
        let mut page = Exposition::default();
        page.single("a_total", Kind::Counter, "Things.", 3.0);
        page.family("b", Kind::Gauge, "Others.");
        page.sample("b", &[("node", "x\"y\\z\n"), ("state", "well")], 0.5);
        assert_eq!(
            page.finish(),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total 3\n\
             # HELP b Others.\n# TYPE b gauge\n\
             b{node=\"x\\\"y\\\\z\\n\",state=\"well\"} 0.5\n"
        );
    }
}
