//! Requests that consist of several in `concertina predict`: of several parts, and hedged.

use model::fork_join::{FanOut, Hedge};
use model::{FanOutPrediction, HedgedPrediction, ResponseTimes};
use report::grid::Grid;
use report::objective::{self, digits, time};
use report::table::{percent, with_interval};

/// The number of other parts at a part's device from which the text warns: waits that are not predicted are then of the
/// order of a tenth of a service time.
const OTHERS_NOTED: f64 = 0.1;

/// Options for requests that consist of several.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// Requests that consist of N parts, of which K (all, if not given) must answer: their responses beside those of one
    /// part. Loads count parts
    #[arg(long, value_name = "N[:K]")]
    fan_out: Option<FanOut>,
    /// Requests that are sent a second time, to another server, if they have no reply after this time: their responses
    /// beside those without, at the load that second requests add
    #[arg(long, value_name = "TIME", value_parser = hedge, conflicts_with = "fan_out")]
    hedge: Option<Hedge>,
}

fn hedge(text: &str) -> Result<Hedge, String> {
    Hedge::new(objective::seconds(text)?).map_err(|error| error.to_string())
}

/// The predictions at one load.
#[derive(Default)]
pub struct Several {
    fan_out: Option<FanOutPrediction>,
    /// Or why there is none: second requests saturate the servers.
    hedged: Option<Result<HedgedPrediction, String>>,
}

impl Args {
    /// The predictions that are asked for, by a model's two functions ([`model::Model::predict_fan_out`],
    /// [`model::Model::predict_hedged`]; a cluster's are alike).
    pub fn predict(
        &self,
        fan_out: impl FnOnce(FanOut) -> Result<FanOutPrediction, model::Error>,
        hedged: impl FnOnce(Hedge) -> Result<HedgedPrediction, model::Error>,
    ) -> anyhow::Result<Several> {
        let fan_out = match self.fan_out.map(fan_out) {
            // Past the saturation of a hypothesis that does not fit, of which the row of single requests says that nothing is known.
            Some(Err(model::Error::Unstable { .. })) => None,
            found => found.transpose()?,
        };
        let hedged = match self.hedge.map(hedged) {
            Some(Err(error @ model::Error::Unstable { .. })) => Some(Err(error.to_string())),
            found => found.transpose()?.map(Ok),
        };
        Ok(Several { fan_out, hedged })
    }

    /// Formats the predictions at all loads; empty if none is asked for.
    pub fn text(&self, within_s: &[f64], all: &[&Several]) -> String {
        let mut out = String::new();
        if let Some(fan_out) = self.fan_out {
            let all: Vec<_> = all.iter().filter_map(|several| several.fan_out.as_ref()).collect();
            out += &format!("\n{}", fan_out_text(fan_out, within_s, &all));
        }
        if let Some(hedge) = self.hedge {
            let all: Vec<_> = all.iter().filter_map(|several| several.hedged.as_ref()).collect();
            out += &format!("\n{}", hedge_text(hedge, within_s, &all));
        }
        out
    }
}

impl Several {
    /// Adds the predictions to the JSON of the single request's.
    pub fn add_to(&self, value: &mut serde_json::Value) -> anyhow::Result<()> {
        if let Some(fan_out) = &self.fan_out {
            value["fan_out"] = serde_json::to_value(fan_out)?;
        }
        match &self.hedged {
            Some(Ok(hedged)) => {
                value["hedged"] = serde_json::to_value(hedged)?;
                value["hedged"]["stable"] = true.into();
                value["hedged"]["may_tip_over"] = hedged.may_tip_over().into();
            }
            Some(Err(why)) => {
                value["hedged"] = serde_json::json!({ "stable": false, "statement": why })
            }
            None => {}
        }
        Ok(())
    }
}

fn head(first: [&str; 3], within_s: &[f64]) -> Vec<String> {
    let mut head: Vec<String> = first.map(String::from).to_vec();
    head.extend(within_s.iter().map(|&t| format!("≤ {} % [95 %]", time(t))));
    head.extend(["p50 [95 %]", "p99 [95 %]"].map(String::from));
    head
}

/// Formats hedged requests beside those without.
fn hedge_text(hedge: Hedge, within_s: &[f64], all: &[&Result<HedgedPrediction, String>]) -> String {
    let head = head(["rate/s", "sent twice %", "request"], within_s);
    let mut grid = Grid { head, align: "rrl", rows: Vec::new() };
    let (mut notes, mut lasting) = (String::new(), None);
    for found in all {
        match found {
            Ok(found) => {
                let (rate, offered) = (digits(found.rate, 4), digits(found.offered_rate.value, 4));
                let twice = percent(found.share_hedged.value);
                grid.row(row([rate, String::new(), "single".to_owned()], &found.single));
                let tips = found.may_tip_over();
                let hedged = if tips { "hedged !" } else { "hedged" };
                grid.row(row([offered, twice, hedged.to_owned()], &found.hedged));
                if tips {
                    lasting = found.rate_lasting;
                }
            }
            Err(why) => notes += &format!("With second requests: {}\n", why.trim_end()),
        }
    }
    if let Some(rate) = lasting {
        notes += &format!(
            "! Past {} requests/s the servers do not carry all requests twice. Chance, a pause or a restart brings them there; then \
             every request is late, is sent twice, and it stays so. These figures hold until then. Bound the share that is sent \
             twice (`gateway.hedge_share`), or hedge below that load.\n",
            digits(rate, 4)
        );
    }
    format!(
        "Hedged requests: a second one to another server after {}; rate/s with the second requests.\n\n{}{notes}\
         Both requests are taken as independent, and no request as cancelled.\n",
        time(hedge.delay_s()),
        grid.text()
    )
}

/// Formats the predictions, the whole request beside one part, with what they assume.
fn fan_out_text(fan_out: FanOut, within_s: &[f64], predictions: &[&FanOutPrediction]) -> String {
    let head = head(["rate/s", "requests/s", "answers"], within_s);
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
    let mut cells = first.to_vec();
    cells.extend(times.within.iter().map(|w| with_interval(&w.share, percent)));
    for quantile in [&times.response_p50, &times.response_p99] {
        cells.push(with_interval(quantile, time));
    }
    cells
}
