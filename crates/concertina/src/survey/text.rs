//! The output for people.

use std::fmt::Write as _;

use ground::number::{difference, percent};
use model::capacity::MixPart;
use report::grid::Grid;
use report::objective::digits;

use super::results::Survey;

impl Survey {
    /// A table of the judged mixes, what was asked for, and three lines on what was learnt.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let head = [
            "mix (of the requests)",
            "measured/s",
            "predicted/s",
            "error %",
            "",
            "law/s",
            "arithmetic/s",
        ];
        let mut grid = Grid::new("lrrrlrr", &head);
        for judged in &self.judged {
            let half = judged.measured.half_width;
            let half = half.map_or(String::new(), |h| format!(" ± {}", digits(h, 2)));
            grid.row([
                words(&judged.measured.parts),
                format!("{}{half}", digits(judged.measured.throughput, 4)),
                interval([judged.predicted, judged.low, judged.high]),
                difference(100.0 * judged.error, 1),
                if judged.inside { "" } else { "outside" }.to_owned(),
                digits(judged.law, 4),
                digits(judged.arithmetic, 4),
            ]);
        }
        if !self.judged.is_empty() {
            out += &grid.text();
        }
        for (parts, wanted) in &self.wanted {
            let _ = writeln!(out, "{}: {} requests/s", words(parts), interval(*wanted));
        }
        let errors = self.errors();
        if let (Some(worst), Some(median)) = (errors.last(), median(&errors)) {
            let inside = self.judged.iter().filter(|j| j.inside).count();
            let _ = writeln!(
                out,
                "Judged on {} mixes, each predicted without itself: {} off in the median, {} at worst; \
                 {inside} within their intervals.",
                errors.len(),
                percent(median, 1),
                percent(*worst, 1)
            );
        }
        for warning in &self.warnings {
            let _ = writeln!(out, "Warning: {warning}");
        }
        out
    }
}

/// What was measured until an interruption: the mean of the repetitions of each point, requests/s.
pub(super) fn learnt(all: &[Vec<MixPart>], rates: &[Vec<f64>], clients: usize) -> String {
    let of = |(parts, rates): (&Vec<MixPart>, &Vec<f64>)| {
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        format!("{} {}/s", words(parts), digits(mean, 4))
    };
    let known = all.iter().zip(rates).filter(|(_, rates)| !rates.is_empty());
    let each: Vec<String> = known.map(of).collect();
    match each.len() {
        0 => "nothing was measured".to_owned(),
        _ => format!("measured with up to {clients} clients: {}", each.join("; ")),
    }
}

/// The median of ascending numbers: of an even number, the mean of the two in the middle.
fn median(ascending: &[f64]) -> Option<f64> {
    let upper = ascending.get(ascending.len() / 2)?;
    let lower = ascending.get((ascending.len() - 1) / 2)?;
    Some(0.5 * (lower + upper))
}

fn interval([value, low, high]: [f64; 3]) -> String {
    format!("{} [{}, {}]", digits(value, 4), digits(low, 4), digits(high, 4))
}

/// A mix as it is given to `--mix`, with one share of reads if it is the same for all sizes.
fn words(parts: &[MixPart]) -> String {
    let reads = |part: &MixPart| format!("{} % reads", digits(100.0 * part.read_share, 3));
    let size = |part: &MixPart| match part.size_bytes / 1024.0 {
        kib if kib >= 1024.0 => format!("{} MiB", digits(kib / 1024.0, 3)),
        kib if kib >= 1.0 => format!("{} KiB", digits(kib, 4)),
        _ => format!("{} B", digits(part.size_bytes, 4)),
    };
    let share = |part: &MixPart| format!("{} % {}", digits(100.0 * part.share, 3), size(part));
    match parts {
        [] => String::new(),
        [only] => format!("{} {}", size(only), reads(only)),
        [first, ..] if parts.iter().all(|p| p.read_share == first.read_share) => {
            let each: Vec<String> = parts.iter().map(share).collect();
            format!("{}, {}", each.join(" + "), reads(first))
        }
        _ => {
            let each = parts.iter().map(|p| format!("{}, {}", share(p), reads(p)));
            each.collect::<Vec<_>>().join(" + ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_two_is_their_mean() {
        assert_eq!(median(&[]), None);
        assert_eq!((median(&[0.5, 9.9]), median(&[1.0, 2.0, 9.0])), (Some(5.2), Some(2.0)));
    }
}
