//! Requests of several parts in `concertina predict`.

use model::fork_join::FanOut;
use model::{FanOutPrediction, Parameter, ResponseTimes};
use report::grid::Grid;
use report::objective::{digits, time};
use report::table::percent;

/// The number of other parts at a part's device from which the text warns: waits that are not predicted are then of the
/// order of a tenth of a service time.
const OTHERS_NOTED: f64 = 0.1;

/// Formats the predictions, the whole request beside one part, with what they assume.
pub fn text(fan_out: FanOut, within_s: &[f64], predictions: &[&FanOutPrediction]) -> String {
    let mut head = vec!["rate/s".to_owned(), "requests/s".to_owned(), "answers".to_owned()];
    head.extend(within_s.iter().map(|&t| format!("≤ {} % [95 %]", time(t))));
    head.extend(["p50 [95 %]", "p99 [95 %]"].map(String::from));
    let mut grid = Grid { head, align: "rrl", rows: Vec::new() };
    for prediction in predictions {
        let (rate, whole) = (digits(prediction.rate, 4), digits(prediction.requests_per_s, 4));
        grid.row(row([rate, String::new(), "one part".to_owned()], &prediction.part));
        grid.row(row([String::new(), whole, fan_out.to_string()], &prediction.request));
    }
    let mut out = format!(
        "Requests of several parts: {fan_out} must answer. Loads count parts; requests/s if all parts belong to such \
         requests.\n\n{}",
        grid.text()
    );
    out += "Parts are taken as independent, each answered as a single request, whose intervals carry over.";
    if fan_out.needed() == fan_out.parts() && fan_out.parts() > 1 {
        out += " Where each part goes to another queue at the same moment, they wait alike, and requests are faster than \
                this, but not faster than one part.";
    }
    out += "\n";
    let others = predictions.iter().map(|p| p.others_at_device).fold(0.0, f64::max);
    if others >= OTHERS_NOTED {
        out += &format!(
            "! If all parts are sent to these servers at once, a part meets up to {} others of its request at its device: \
             they wait for each other, which is not in these figures.\n",
            digits(others, 2)
        );
    }
    out
}

fn row(first: [String; 3], times: &ResponseTimes) -> Vec<String> {
    let with_interval = |p: &Parameter, show: &dyn Fn(f64) -> String| {
        format!("{} [{}, {}]", show(p.value), show(p.low), show(p.high))
    };
    let mut cells = first.to_vec();
    cells.extend(times.within.iter().map(|w| with_interval(&w.share, &percent)));
    for quantile in [&times.response_p50, &times.response_p99] {
        cells.push(with_interval(quantile, &time));
    }
    cells
}
