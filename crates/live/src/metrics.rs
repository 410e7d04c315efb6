//! The live model as Prometheus metrics. Unknown values are `NaN`. A process without a live model exports
//! the metrics, too, so that the set of metrics does not depend on the configuration.

use engine::act::{Knob, Status};
use model::live::State;

use super::{LiveModel, lock};
use wire::exposition::{Exposition, Kind};

impl LiveModel {
    /// Adds the metrics of the loop.
    pub fn add_metrics(&self, page: &mut Exposition) {
        let shown = self.report();
        let state = &shown.model;
        add_model(page, state);
        let help = "Processor time of the live model.";
        page.single("concertina_model_cost_seconds_total", Kind::Counter, help, shown.cost_s);
        let help = "Intervals that the live model dropped because it fell behind.";
        page.single("concertina_model_dropped_total", Kind::Counter, help, shown.dropped as f64);
        let acting = lock(&self.acting);
        let name = "concertina_actions_total";
        page.family(name, Kind::Counter, "Changes made by the process itself, by knob.");
        for knob in Knob::ALL {
            page.sample(name, &[("knob", knob.as_str())], acting.governor.made(knob) as f64);
        }
        let advised = acting.governor.entries().filter(|e| e.status == Status::Advised).count();
        let help = "Entries of the journal in memory that are only advice.";
        page.single("concertina_actions_advised", Kind::Gauge, help, advised as f64);
        let held = f64::from(u8::from(acting.governor.is_held()));
        page.single("concertina_actions_held", Kind::Gauge, "1 while all changes are held.", held);
    }
}

fn add_model(page: &mut Exposition, state: &State) {
    let or_nan = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let within =
        |i: usize| or_nan(state.loads.get(i).and_then(|at| Some(at.within.as_ref()?.value)));
    let name = "concertina_model_within_ratio";
    page.family(name, Kind::Gauge, "Predicted share of requests within the objective, by load.");
    for (i, load) in ["1", "1.5", "2"].iter().enumerate() {
        page.sample(name, &[("load", load)], within(i));
    }
    let name = "concertina_model_response_seconds";
    page.family(name, Kind::Gauge, "Predicted quantiles of the response time, by load.");
    for (i, load) in ["1", "1.5", "2"].iter().enumerate() {
        let at = state.loads.get(i);
        for (quantile, value) in
            [("0.5", at.and_then(|a| a.p50_s)), ("0.99", at.and_then(|a| a.p99_s))]
        {
            page.sample(name, &[("load", load), ("quantile", quantile)], or_nan(value));
        }
    }
    add_outlook(page, state);
    let withheld = f64::from(u8::from(state.withheld.is_some()));
    let help = "1 while the model's advice is not followed.";
    page.single("concertina_model_withheld", Kind::Gauge, help, withheld);
    let help = "Fits of the live model.";
    page.single("concertina_model_fits_total", Kind::Counter, help, state.fits as f64);
}

/// Adds the single figures: what was measured, what is expected of the objective, and how far past predictions were off.
fn add_outlook(page: &mut Exposition, state: &State) {
    let headroom = state.headroom.as_ref();
    let errors = &state.errors;
    for (name, help, value) in [
        ("measured_within_ratio", "Measured share within the objective.", state.measured.within),
        (
            "ahead_within_ratio",
            "Share within the objective that is predicted for model.ahead_s later.",
            state.ahead.as_ref().map(|ahead| ahead.within.value),
        ),
        (
            "ahead_within_low_ratio",
            "The lower end of its 95 % interval.",
            state.ahead.as_ref().map(|ahead| ahead.within.low),
        ),
        (
            "ahead_rate",
            "Arrivals per second that are expected for model.ahead_s later.",
            state.ahead.as_ref().map(|ahead| ahead.rate),
        ),
        (
            "ahead_may_saturate",
            "1 if the upper end of their 95 % interval saturates something.",
            state.ahead.as_ref().map(|ahead| f64::from(u8::from(ahead.may_saturate))),
        ),
        ("rate", "Arrivals per second.", (state.window_s > 0.0).then_some(state.rate)),
        (
            "headroom_ratio",
            "The largest load that holds the objective, over the present one.",
            headroom.map(|h| h.times.value),
        ),
        (
            "headroom_low_ratio",
            "The lower end of its 95 % interval: scale by this.",
            headroom.map(|h| h.times.low),
        ),
        (
            "confidence_limit",
            "The confidence limit, requests/s: past it queues are long.",
            headroom.map(|h| h.confidence_limit),
        ),
        ("error_points", "Median error of past predictions, points.", errors.median_points),
        ("error_points_worst", "Largest error of past predictions, points.", errors.worst_points),
        (
            "error_unchanged_points",
            "Median error of predicting that nothing changes.",
            errors.median_unchanged_points,
        ),
        ("coverage_ratio", "Share of past predictions whose interval held.", errors.coverage),
    ] {
        page.single(
            &format!("concertina_model_{name}"),
            Kind::Gauge,
            help,
            value.unwrap_or(f64::NAN),
        );
    }
}
