//! Plans of a model that fits nothing: what is not known is not recommended.

use super::*;
use crate::model_file::FittedStep;

/// An objective that every configuration meets that carries the load.
fn question(rate: f64) -> Question {
    Question::new(objective(0.5, 1.0), rate)
}

fn unknown_beyond(rate: f64) -> Model {
    Model { unknown_beyond: Some(rate), ..with_replicates(model(0.3, 1e-5), 0.02) }
}

#[test]
fn servers_of_which_nothing_is_known_are_not_recommended() {
    let model = unknown_beyond(100.0);
    let known = plan(&unknown_beyond(1e9), &question(450.0), &choices()).unwrap();
    assert!(known.ranked.iter().any(|found| found.configuration.servers < 5));
    let found = plan(&model, &question(450.0), &choices()).unwrap();
    assert!(!found.ranked.is_empty());
    for planned in &found.ranked {
        assert_eq!(planned.configuration.servers, 5);
        assert!(!planned.forecast.is_unknown && planned.forecast.within.low > 0.1);
        assert_eq!(
            (planned.breaks_first.cause, planned.breaks_first.rate),
            (Cause::Unknown, 500.0)
        );
        // The load of the lost server brings the others past what is known.
        let lost = planned.one_lost.forecast.as_ref();
        if planned.configuration.replicas > 1 {
            assert!(lost.is_some_and(|lost| lost.is_unknown) && !planned.one_lost.holds);
        }
    }
}

#[test]
fn what_is_not_known_is_said_of_the_nearest_configuration() {
    let model = unknown_beyond(100.0);
    let found = plan(&model, &question(2_000.0), &choices()).unwrap();
    assert!(found.ranked.is_empty());
    let near = found.nearest.unwrap();
    assert_eq!((near.configuration.servers, near.is_unknown), (5, true));
    assert_eq!((near.breaks_first.cause, near.breaks_first.rate), (Cause::Unknown, 500.0));
    // Without replicas a fifth of the requests is late after a loss; with them the others have more load.
    let objective = objective(0.9, 1.0);
    let lost = Question { with_one_lost: true, objective, ..question(450.0) };
    let found = plan(&model, &lost, &choices()).unwrap();
    assert!(found.ranked.is_empty());
    let held_out = |error_points| HeldOut {
        name: "r#0".to_owned(),
        rate: 400.0,
        within_s: 0.05,
        error_points,
        half_width_points: Some(1.0),
    };
    // A load that was held out is known as well as its error says.
    let judged = Model { held_out: vec![held_out(3.0)], ..model.clone() };
    assert_eq!(judged.known_to(), 400.0);
    assert!(!plan(&judged, &question(2_000.0), &choices()).unwrap().ranked.is_empty());
    let missed = Model { held_out: vec![held_out(100.0)], ..model };
    assert_eq!(missed.known_to(), 100.0);
    assert!(plan(&missed, &question(2_000.0), &choices()).unwrap().ranked.is_empty());
}

/// Servers with fewer devices are busier at the same load, so that less is known of them.
#[test]
fn smaller_servers_are_not_recommended_at_the_load_that_the_fitted_one_carried() {
    let mut model = unknown_beyond(100.0);
    let utilisation = model.node().unwrap().operating(100.0).unwrap().utilisation_mean;
    model.fitted = vec![FittedStep {
        name: "100/s".to_owned(),
        rate: 100.0,
        seconds: 60.0,
        requests: 6_000,
        hit_ratio: 0.3,
        dispersion: 1.0,
        utilisation,
        utilisation_predicted: utilisation,
        queue_length: 1.0,
        queue_length_predicted: 1.0,
        response_mean: 0.01,
        response_mean_predicted: 0.01,
        ks_distance: 0.01,
        points: Vec::new(),
    }];
    let mut choices = choices();
    choices.servers = vec![5];
    choices.memory.sizes = vec![64.0];
    choices.devices[0].counts = vec![2];
    choices.devices[1].counts = vec![2, 4];
    let found = |rate: f64| plan(&model, &question(rate), &choices).unwrap();
    let bulk = |planned: &Planned| planned.configuration.devices[1].count;
    assert!(found(100.0).ranked.iter().any(|planned| bulk(planned) == 2));
    let near = found(480.0);
    assert!(!near.ranked.is_empty());
    for planned in &near.ranked {
        assert!(bulk(planned) == 4 && planned.forecast.within.low > 0.1, "{planned:?}");
    }
}
