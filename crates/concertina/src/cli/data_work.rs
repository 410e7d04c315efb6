//! What a query of `concertina data` on files may cost, its progress on a terminal, and what is said of its attributes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use configuration::Size;
use dataset::Dataset;
use dataset::part::Work;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use shard::query::{Limits, Query};

use crate::cli::output::errln;
use crate::remote::served::Served;

/// The time after which the progress of a query is shown: most end before.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// The work that a query may take.
#[derive(clap::Args)]
pub(super) struct WorkArgs {
    /// Read at most this much of each shard's records where no index helps (NOT, ranges of numbers) [default: no
    /// limit; Ctrl-C ends a query]
    #[arg(long, value_name = "SIZE", conflicts_with = "server")]
    read_max: Option<Size>,
}

impl WorkArgs {
    /// A dataset whose queries keep to the limit and show their progress; and the bar.
    pub(super) fn observe(&self, dataset: Dataset) -> (Dataset, ProgressBar) {
        let bar = ProgressBar::new(dataset.info().input_bytes);
        let template = "{elapsed_precise} {bytes} of {total_bytes} of records read {bar:30}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let (start, read, shown) = (Instant::now(), AtomicUsize::new(0), bar.clone());
        let watch = move |bytes: usize| {
            let read = read.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if start.elapsed() > SHOWN_AFTER {
                shown.set_position(read as u64);
            }
        };
        let bytes = self.read_max.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX));
        let read_bytes_max = bytes.unwrap_or(usize::MAX);
        let limits = Limits { read_bytes_max, ..Limits::NONE };
        (dataset.with_work(Work { limits, watch: Some(Arc::new(watch)) }), bar)
    }
}

/// Warns of what is valid in a query and was most likely meant otherwise.
pub(super) fn warn_of_query(query: &str) {
    for warning in Query::warnings(query) {
        errln!("concertina: warning: {warning}");
    }
}

/// Warns of attributes that no record has: most often they are typing errors, and find nothing or, after `NOT`,
/// everything.
pub(super) fn warn_of_unknown(dataset: &Dataset, query: &Query) -> anyhow::Result<()> {
    warn_of(&dataset.unknown_attributes(query)?, &dataset.schema().names);
    Ok(())
}

/// The same, of those that a server found.
pub(super) fn warn_of_unknown_on(served: &Served<'_>, unknown: &[String]) -> anyhow::Result<()> {
    if unknown.is_empty() {
        return Ok(());
    }
    let info = served.info()?;
    let known = info.get("attributes").and_then(Value::as_array).into_iter().flatten();
    let known: Vec<String> = known.filter_map(Value::as_str).map(str::to_owned).collect();
    warn_of(unknown, &known);
    Ok(())
}

fn warn_of(unknown: &[String], known: &[String]) {
    for name in unknown {
        let known = known.join(", ");
        errln!(
            "concertina: warning: no record has the attribute {name:?}; among the attributes are: {known}"
        );
    }
}
