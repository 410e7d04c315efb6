//! A model that fits nothing: every output says what is not known.

use super::*;
use crate::fork_join::{FanOut, Hedge};

fn fits_nothing() -> Model {
    let model = model();
    Model { unknown_beyond: Some(300.0), held_out: Vec::new(), ..model }
}

fn is_anything(share: &Parameter) -> bool {
    (share.low, share.high) == (0.0, 1.0)
}

#[test]
fn requests_of_several_parts_and_hedged_ones_have_rows_at_unknown_loads() {
    let model = fits_nothing();
    let saturation = model.limits().unwrap().saturation.value;
    for rate in [400.0, 3.0 * saturation] {
        let single = model.predict(rate, &[0.02]).unwrap();
        let all = model.predict_fan_out(&single, FanOut::new(4, 4).unwrap()).unwrap();
        assert!(is_anything(&all.request.within[0].share), "{all:?}");
        assert!(all.request.response_p99.high.is_infinite(), "{all:?}");
    }
    let hedge = Hedge::new(0.03).unwrap();
    let hedged =
        |rate: f64| model.predict_hedged(&model.predict(rate, &[0.02]).unwrap(), hedge).unwrap();
    let known = hedged(200.0);
    assert!(known.hedged.within[0].share.low > 0.5 && known.offered_rate.high < 400.0, "{known:?}");
    let unknown = hedged(400.0);
    assert!(is_anything(&unknown.hedged.within[0].share), "{unknown:?}");
    assert!(unknown.hedged.response_p50.high.is_infinite());
    assert_eq!((unknown.offered_rate.low, unknown.offered_rate.high), (400.0, 800.0));
}

#[test]
fn the_largest_load_of_an_objective_ends_where_knowledge_does() {
    let model = fits_nothing();
    let fitted = Model { unknown_beyond: None, ..model.clone() };
    let of = |model: &Model, share| model.largest_rate_with_interval(0.05, share).unwrap();
    let (found, by_law) = (of(&model, 0.9), of(&fitted, 0.9));
    assert!(by_law.value > 300.0 && by_law.high.is_finite());
    assert_eq!((found.value, found.low, found.high), (by_law.value, 300.0, f64::INFINITY));
    assert_eq!((fitted.known_to(), model.known_to()), (f64::INFINITY, 300.0));
}

#[test]
fn a_node_that_fits_nothing_widens_its_share_of_a_cluster() {
    let both = cluster(&[(fits_nothing(), 0.5), (Model { unknown_beyond: None, ..model() }, 0.5)]);
    let share = |rate: f64| both.predict(rate, &[0.02]).unwrap().points[0].concertina.clone();
    let (known, unknown) = (share(500.0), share(700.0));
    assert!(known.high - known.low < 0.2, "{known:?}");
    assert!(unknown.high - unknown.value >= 0.49_f64.min(1.0 - unknown.value), "{unknown:?}");
    assert!(unknown.value - unknown.low >= 0.49, "{unknown:?}");
    assert!(both.quantile_with_interval(700.0, 0.99).unwrap().high.is_infinite());
    assert!(both.quantile_with_interval(500.0, 0.99).unwrap().high.is_finite());
    assert!(both.largest_rate(0.05, 0.9).unwrap().high.is_infinite());
}

/// The law of a constant jumps past every share, and its interval was from 0.
#[test]
fn a_time_that_does_not_vary_has_no_interval() {
    let mut model = model();
    model.replicates = Replicates::default();
    let node = model.predict(100.0, &[0.02]).unwrap();
    assert_eq!(node.points[0].concertina.low, node.points[0].concertina.high);
    for p in [0.5, 0.99] {
        let time = model.quantile_with_interval(100.0, p).unwrap();
        assert_eq!((time.low, time.high), (time.value, time.value));
    }
}
