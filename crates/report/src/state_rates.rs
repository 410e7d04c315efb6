//! The plot of departures by the number of requests inside: why a hypothesis was chosen.

use model::{Model, StateRates};

use super::objective::digits;
use super::svg::{Axis, Mark, Plot, PlotPoint, Shape};

/// Colours of hypotheses, the chosen one first.
const CLASSES: [&str; 2] = ["ours", "spotify"];

/// The plot; `None` of a model that was not fitted to arrivals and departures.
pub(super) fn plot(model: &Model) -> Option<Plot> {
    let StateRates { hypotheses, states } = model.rates.as_ref()?;
    let last = states.last()?;
    let highest = states.iter().map(|s| s.rate + s.half_width).fold(0.0, f64::max);
    let mut marks = Vec::new();
    for (number, (title, class)) in hypotheses.iter().zip(CLASSES).enumerate() {
        let at = |state: &model::StateRate| {
            let rate = *state.expected.get(number)?;
            (rate > 0.0).then_some((f64::from(state.inside), rate))
        };
        let points = states.iter().filter_map(at).collect();
        let label = format!("{title}{}", if number == 0 { " (chosen)" } else { "" });
        marks.push(Mark::Line { class, label, points });
    }
    let point = |state: &model::StateRate| PlotPoint {
        x: f64::from(state.inside),
        y: state.rate,
        half: state.half_width,
        title: format!(
            "{} inside: {} ± {} departures/s",
            state.inside,
            digits(state.rate, 4),
            digits(state.half_width, 2)
        ),
    };
    marks.push(Mark::Points {
        class: "measured",
        shape: Shape::Square,
        label: "measured".to_owned(),
        points: states.iter().map(point).collect(),
    });
    Some(Plot {
        title: "Departures per second, by the number inside".to_owned(),
        x: Axis::linear("requests at the servers", 0.0, f64::from(last.inside) + 1.0),
        y: Axis::linear("departures/s", 0.0, 1.1 * highest),
        marks,
    })
}
