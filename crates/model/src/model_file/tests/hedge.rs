//! Hedged requests: the law of two at the load of both.

use super::*;
use crate::Error;
use crate::fork_join::Hedge;

#[test]
fn a_hedged_request_has_the_law_of_two_at_the_load_of_both() {
    let model = model();
    let single = model.predict(600.0, &[0.005, 0.02, 0.04]).unwrap();
    let delay = model.quantile(600.0, 0.95).unwrap();
    let found = model.predict_hedged(&single, Hedge::new(delay).unwrap()).unwrap();
    let load = found.offered_rate.value;
    // A twentieth and somewhat more, because the load rises.
    let share = found.share_hedged.value;
    assert!((0.05..0.08).contains(&share), "{share}");
    assert!((load - 600.0 * (1.0 + share)).abs() < 1e-6);
    assert!((1.0 - model.cdf(load, &[delay]).unwrap()[0] - share).abs() < 1e-9);
    for within in &found.hedged.within {
        let t = within.t_s;
        let late = |t: f64| if t < 0.0 { 1.0 } else { 1.0 - model.cdf(load, &[t]).unwrap()[0] };
        let naive = 1.0 - late(t) * late(t - delay);
        assert!((within.share.value - naive).abs() < 1e-9, "{within:?} {naive}");
        assert!(
            within.share.low <= naive
                && naive <= within.share.high
                && within.share.low < within.share.high
        );
    }
    let (before, after) = (&found.single.response_p99, &found.hedged.response_p99);
    assert!(after.value < before.value && after.low < after.high, "{before:?} {after:?}");
    assert!(found.share_hedged.low < share && share < found.share_hedged.high);
    // Three servers are three times one.
    let three = model.predict_cluster(1_800.0, 3, &[0.005, 0.02, 0.04]).unwrap();
    let three = model.predict_hedged(&three, Hedge::new(delay).unwrap()).unwrap();
    assert!((three.offered_rate.value / load - 3.0).abs() < 1e-9 && three.hedged == found.hedged);
}

#[test]
fn hedging_that_never_or_always_happens() {
    let model = model();
    let single = model.predict(300.0, &[0.02]).unwrap();
    let never = model.predict_hedged(&single, Hedge::new(5.0).unwrap()).unwrap();
    assert!((never.offered_rate.value - 300.0).abs() < 1e-3);
    assert!((never.hedged.within[0].share.value - single.points[0].concertina.value).abs() < 1e-5);
    // Both at once: twice the load, which may be too much.
    let always = model.predict_hedged(&single, Hedge::new(0.0).unwrap()).unwrap();
    assert!((always.offered_rate.value - 600.0).abs() < 60.0, "{:?}", always.offered_rate);
    let saturation = model.limits().unwrap().saturation.value;
    let busy = model.predict(0.9 * saturation, &[0.02]).unwrap();
    let error = model.predict_hedged(&busy, Hedge::new(0.0).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Unstable { .. }), "{error}");
    // The loads of an error are of all servers, as those of a prediction are.
    let four = model.predict_cluster(3.6 * saturation, 4, &[0.02]).unwrap();
    let error = model.predict_hedged(&four, Hedge::new(0.0).unwrap()).unwrap_err();
    let Error::Unstable { rate, saturation: all } = error else { panic!("{error}") };
    assert!(rate > 4.0 * saturation && (all / (4.0 * saturation) - 1.0).abs() < 1e-9);
}

#[test]
fn a_cluster_of_equal_nodes_hedges_as_one_does() {
    let model = model();
    let nodes = ["a", "b"].map(|name| ClusterNode {
        name: name.to_owned(),
        model: model.clone(),
        share: 0.5,
    });
    let equal = ClusterModel::new(&nodes, Parameter::exact(0.0, "s")).unwrap();
    let hedge = Hedge::new(0.03).unwrap();
    let both = equal.predict_hedged(&equal.predict(1_200.0, &[0.02]).unwrap(), hedge).unwrap();
    let one = model.predict_hedged(&model.predict(600.0, &[0.02]).unwrap(), hedge).unwrap();
    assert!((both.offered_rate.value / one.offered_rate.value - 2.0).abs() < 1e-9);
    let (a, b) = (&both.hedged.response_p99, &one.hedged.response_p99);
    assert!((a.value / b.value - 1.0).abs() < 1e-9, "{a:?} {b:?}");
}
