//! What `concertina capacity` says first of a table, in plain words: the answer, what limits, what was checked, and what to do next.

use ground::number::difference;
use model::capacity::{IoCapacity, IoThroughput, Scalability, ScalablePoint};
use model::regression::Estimated;
use report::objective::digits;

/// Errors of the law below which it describes what was measured.
const CLOSE: f64 = 0.05;

type Lines = Vec<(&'static str, String)>;

/// Of reads and writes of several sizes.
pub(super) fn of_storage(system: &IoCapacity, answers: &[(String, IoThroughput)]) -> Lines {
    let mut lines: Lines = Vec::new();
    let asked = match answers {
        [] => "What throughput does each size carry?".to_owned(),
        all => {
            let all: Vec<&str> = all.iter().map(|(asked, _)| asked.as_str()).collect();
            format!("What throughput do {} have?", all.join("; "))
        }
    };
    lines.push(("Asked", asked));
    for (asked, found) in answers {
        let mark = if found.extrapolated.is_empty() { "" } else { " (extrapolated)" };
        lines.push(("Answer", format!("{asked}: {} I/Os per s{mark}.", interval(found.total))));
    }
    if answers.is_empty() {
        for size in system.sizes() {
            let (bytes, reads) = (digits(size.size_bytes, 15), interval(size.capacity));
            let writes = interval(size.write_throughput);
            lines
                .push(("Answer", format!("{bytes} bytes: {reads} reads/s, or {writes} writes/s.")));
        }
    }
    let dearest =
        system.sizes().iter().max_by(|a, b| a.write_cost.value.total_cmp(&b.write_cost.value));
    if let Some(size) = dearest {
        let cost = digits(size.write_cost.value, 3);
        lines.push((
            "More load",
            format!(
                "A write costs as much as {cost} reads at {} bytes, where it costs most.",
                digits(size.size_bytes, 15)
            ),
        ));
    }
    let errors = system.sizes().iter().flat_map(|size| size.residuals.iter());
    let worst = errors.fold(0.0f64, |worst, e| if e.abs() > worst.abs() { *e } else { worst });
    lines.push((
        "Checked",
        format!("The law is at most {} % off the measured points.", error_percent(worst)),
    ));
    let is_far = answers.iter().any(|(_, found)| !found.extrapolated.is_empty());
    let next = if is_far {
        "Measure closer to the sizes and mixes asked for: part of the answer is extrapolated."
    } else if worst.abs() > CLOSE {
        "Measure a third share of reads for each size: the law is far off a point."
    } else if answers.iter().any(|(_, found)| found.total.low.is_none()) {
        "Measure more than two shares of reads for each size: two leave no interval."
    } else {
        "Nothing is missing within the measured sizes and shares."
    };
    lines.push(("Next", next.to_owned()));
    lines
}

/// Of throughput against concurrency.
pub(super) fn of_scaling(points: &[ScalablePoint], law: &Scalability) -> Lines {
    let largest = points.iter().map(|point| point.concurrency).fold(0.0, f64::max);
    let answer = match (law.peak(), law.ceiling()) {
        (Some(peak), _) => {
            let (most, n) = (digits(peak.throughput, 4), interval(peak.concurrency));
            let mark = if peak.extrapolated { " (extrapolated)" } else { "" };
            format!(
                "At most {most} per s, at a concurrency of {n}{mark}; more than that is slower."
            )
        }
        (None, Some(level)) => {
            format!("It levels off at {} per s and does not fall.", digits(level, 4))
        }
        (None, None) => "It grows in proportion over the measured range.".to_owned(),
    };
    let (alpha, beta) = (law.contention().value, law.coherency().value);
    // What each takes away of the throughput at the largest measured concurrency.
    let (waits, agrees) = (alpha * (largest - 1.0), beta * largest * (largest - 1.0));
    let breaks_first = match () {
        () if waits.max(agrees) < 0.01 => "Nothing that was measured.",
        () if waits >= agrees => "What only one can use at a time (contention, α).",
        () => {
            "What all have to agree on (coherency, β): it grows with the square of the concurrency."
        }
    };
    let mut lines = vec![
        ("Asked", "How does throughput grow with concurrency?".to_owned()),
        ("Answer", answer),
        ("Breaks first", breaks_first.to_owned()),
    ];
    let more = largest * 2.0;
    if let (Ok(now), Ok(then)) = (law.throughput(largest), law.throughput(more)) {
        lines.push((
            "More load",
            format!(
                "Twice the largest measured concurrency ({} → {}): {} → {} per s (extrapolated).",
                digits(largest, 6),
                digits(more, 6),
                digits(now.throughput.value, 4),
                digits(then.throughput.value, 4)
            ),
        ));
    }
    let error = |(point, residual): (&ScalablePoint, &f64)| -residual / point.throughput;
    let errors = points.iter().zip(law.residuals()).map(error);
    let worst = errors.fold(0.0f64, |worst, e| if e.abs() > worst.abs() { e } else { worst });
    lines.push((
        "Checked",
        format!(
            "Up to a concurrency of {}; the law is at most {} % off the measured points.",
            digits(largest, 6),
            error_percent(worst)
        ),
    ));
    let next = match law.peak() {
        Some(peak) if peak.extrapolated => format!(
            "Measure a concurrency of about {}, to see the peak itself.",
            digits(peak.concurrency.value, 2)
        ),
        _ if worst.abs() > CLOSE => {
            "Measure each concurrency again: the law is far off a point, or does not hold."
                .to_owned()
        }
        _ => "Nothing is missing up to the largest measured concurrency.".to_owned(),
    };
    lines.push(("Next", next));
    lines
}

/// Formats a number with its interval.
pub(super) fn interval(e: Estimated) -> String {
    let bound = |b: Option<f64>| b.map_or("?".to_owned(), |b| digits(b, 4));
    match (e.low, e.high) {
        (None, None) => digits(e.value, 4),
        (low, high) => format!("{} [{}, {}]", digits(e.value, 4), bound(low), bound(high)),
    }
}

/// Formats a signed error in percent.
pub(super) fn error_percent(error: f64) -> String {
    difference(100.0 * error, 1)
}
