//! Predictions from made-up parameters whose results are known, and tables and claims from made-up
//! measurements.

use super::config::{CurvePoints, Links, Settings};
use super::findings::{claims, design};
use super::measured::{MeasuredRow, Repetition};
use super::parameters::{Bandwidths, Curve, Light, Parameters};
use super::predict::{Limit, predict};
use super::rows::tests::few;
use super::rows::{Levels, Row, System, Work};
use super::{plots, tables};
use crate::claims::Verdict;

fn settings() -> Settings {
    Settings {
        seed: 1,
        repetitions: 3,
        value_bytes: 4096,
        keys: 100,
        filled_share: 1.0,
        think_ms: 4.0,
        distance_ms: 16.0,
        links: Links {
            server: 50.0,
            client: 100.0,
            middleware: 400.0,
            burst_bytes: 2900,
            middleware_burst_bytes: 16_000,
        },
        curve: CurvePoints { clients: vec![2], machine: vec![2] },
    }
}

const SERVER: f64 = 6.25e6;
const CLIENT: f64 = 12.5e6;

/// Links of 5 and 10 MB/s, 4,300 bytes for a value on the wire, 16 ms of distance.
fn parameters() -> Parameters {
    let mut light = Vec::new();
    let mut curves = Vec::new();
    for (middlewares, servers, limited) in
        [(0, 1, true), (1, 1, true), (1, 3, true), (0, 1, false), (1, 1, false)]
    {
        let system = System { middlewares, servers, workers: 128, sharded: false, limited };
        for work in [Work::Reads(1), Work::Writes] {
            let write = work == Work::Writes;
            let link_s = if write { 4300.0 / CLIENT } else { 4300.0 / SERVER };
            let response_s = if limited { 0.0162 + link_s } else { 0.0001 };
            let own_s = if write { 0.0 } else { link_s };
            light.push(Light {
                system,
                work,
                response_s,
                inside_s: if middlewares > 0 { 0.016 + own_s } else { 0.0 },
                client_bytes: if write { 4300.0 } else { 100.0 },
                middleware_bytes: if write { 4300.0 * f64::from(servers) } else { 4300.0 },
                server_bytes: if write { 70.0 } else { 4300.0 },
                processor_s: [10e-6, 10e-6 * f64::from(middlewares), 5e-6],
            });
            let most = if limited { f64::from(servers) / link_s } else { 50_000.0 };
            let slow = if limited { response_s } else { 0.0001 };
            let points = [1, 8, 16, 24, 32, 64, 96, 128];
            let curve = points.map(|n| (n, (f64::from(n) / slow).min(most)));
            curves.push(Curve { system, work, points: curve.to_vec() });
        }
    }
    let machine = light.split_off(6);
    let each = vec![CLIENT, 50e6, 50e6, SERVER, SERVER, SERVER];
    let bandwidths = Bandwidths { server: SERVER, client: CLIENT, middleware: 50e6, each };
    Parameters { bandwidths, light, machine, curves, batch_keys: Some(24.0) }
}

fn row(middlewares: u8, servers: u8, workers: u32, work: Work, clients: u32) -> Row {
    let system = System { middlewares, servers, workers, sharded: false, limited: true };
    Row { parts: [].into(), system, work, clients }
}

fn close(a: f64, b: f64, percent: f64) {
    assert!((a / b - 1.0).abs() * 100.0 < percent, "{a} is not {b} within {percent} %");
}

#[test]
fn saturated_systems_are_as_fast_as_their_narrowest_part() {
    let (with, own) = (parameters(), settings());
    let of = |row: &Row| predict(row, &with, &own).unwrap();
    let link = SERVER / 4300.0;
    let reads = Work::Reads(1);
    let many = [
        (row(0, 1, 0, reads, 192), link, Limit::ServerLink),
        (row(0, 2, 0, reads, 192), 2.0 * link, Limit::ServerLink),
        (row(0, 1, 0, Work::Writes, 192), CLIENT / 4300.0, Limit::ClientLink),
        (row(0, 2, 0, Work::Writes, 192), CLIENT / 4300.0, Limit::ClientLink),
        (row(1, 1, 64, reads, 192), link, Limit::ServerLink),
        (row(2, 3, 64, reads, 192), 3.0 * link, Limit::ServerLink),
        // A worker is taken for 16 ms, and for the link.
        (row(1, 1, 8, reads, 192), 8.0 / (0.016 + 1.0 / link), Limit::Workers),
        (row(2, 3, 8, Work::Writes, 192), 16.0 / 0.016, Limit::Workers),
    ];
    for (row, expected, limit) in many {
        let found = of(&row);
        assert_eq!(found.limit, limit, "{}", row.name());
        // With the most clients the links' queues are never empty, nor are workers idle.
        close(found.network, expected, 2.0);
    }
    // Few clients meet nobody: N/(Z + R).
    let few = of(&row(1, 1, 64, reads, 2));
    close(few.network, 2.0 / (0.004 + 0.0162 + 1.0 / link), 1.0);
    assert_eq!(few.limit, Limit::Clients);
    close(few.flow.unwrap(), few.network, 2.0);
    // The flow-equivalent station has the curve's ceiling, and with workers that of as many clients.
    close(of(&row(0, 1, 0, reads, 192)).flow.unwrap(), link, 0.1);
    close(of(&row(0, 2, 0, reads, 192)).flow.unwrap(), 2.0 * link, 0.1);
    close(of(&row(2, 1, 8, reads, 192)).flow.unwrap(), 16.0 / (0.0162 + 1.0 / link), 0.1);
}

#[test]
fn gets_of_several_keys_take_the_links_times_as_long() {
    let (with, own) = (parameters(), settings());
    let of = |keys: Work, sharded: bool, clients: u32| {
        let mut row = row(2, 3, 64, keys, clients);
        row.system.sharded = sharded;
        predict(&row, &with, &own).unwrap()
    };
    let link = SERVER / 4300.0;
    for sharded in [false, true] {
        // Saturated, it does not matter how they are split.
        let found = of(Work::Reads(9), sharded, 192);
        close(found.network, 3.0 * link / 9.0, 1.5);
        assert_eq!(found.flow, None);
        close(of(Work::Batches, sharded, 192).network, 3.0 * link / 24.0, 1.5);
    }
    // With few clients a shared get is faster by two thirds of its link time.
    let (whole, sharded) = (of(Work::Reads(81), false, 2), of(Work::Reads(81), true, 2));
    close(whole.network, 2.0 / (0.0202 + 81.0 / link), 3.0);
    assert!(sharded.network > 1.5 * whole.network, "{sharded:?} {whole:?}");
    // Ten keys are four, three and three.
    let ten = of(Work::Reads(10), true, 192);
    close(ten.network, link / 4.0, 1.5);
}

#[test]
fn the_machine_is_one_station() {
    let (with, own) = (parameters(), settings());
    let mut busy = row(1, 1, 256, Work::Writes, 2000);
    busy.system.limited = false;
    let found = predict(&busy, &with, &own).unwrap();
    // 25 µs of processor time on two processors, or one of 10 µs on one thread.
    let processors = std::thread::available_parallelism().unwrap().get() as f64;
    close(found.network, (processors / 25e-6).min(1.0 / 10e-6), 2.0);
    assert_eq!(found.limit, Limit::Machine);
}

/// What would be measured if all went as predicted but for `factor`.
fn as_predicted(factor: f64) -> Vec<MeasuredRow> {
    let (with, own) = (parameters(), settings());
    let made = |row: Row| {
        let prediction = predict(&row, &with, &own).unwrap();
        let repetitions = [0.999, 1.0, 1.001].map(|noise| Repetition {
            throughput: prediction.network * factor * noise,
            keys_per_s: prediction.network * factor * noise * 24.0,
            response_s: 0.02,
            requests: 1000.0,
            interactive_percent: vec![0.1],
            missing_servers: Some(0.01),
            ..Repetition::default()
        });
        MeasuredRow { row, prediction, repetitions: repetitions.to_vec() }
    };
    few().into_iter().map(made).collect()
}

#[test]
fn claims_hold_where_predictions_do() {
    let verdicts = |factor: f64| -> Vec<(String, Option<Verdict>)> {
        let claims = claims(&as_predicted(factor), &parameters(), &settings());
        claims.into_iter().map(crate::claims::Claim::judged).map(|c| (c.name, c.verdict)).collect()
    };
    let of = |verdicts: &[(String, Option<Verdict>)], name: &str| {
        let found: Vec<_> = verdicts.iter().filter(|(own, _)| own.starts_with(name)).collect();
        assert!(!found.is_empty(), "{name}: {verdicts:?}");
        found.iter().filter_map(|(_, verdict)| *verdict).collect::<Vec<Verdict>>()
    };
    let good = verdicts(1.0);
    assert_eq!(of(&good, "network of queues"), [Verdict::Holds; 3]);
    assert_eq!(of(&good, "closed loops"), [Verdict::Holds]);
    assert_eq!(of(&good, "whole or sharded"), [Verdict::Holds]);
    // 1/0.93 is 7.5 % too much: past 5 %, and within 10 %.
    let bad = verdicts(0.93);
    let expected = [Verdict::Fails, Verdict::Fails, Verdict::Holds];
    assert_eq!(of(&bad, "network of queues"), expected);
}

#[test]
fn tables_and_plots_show_every_row_and_effect() {
    let measured = as_predicted(1.0);
    let levels = Levels { clients: 192, workers: [8, 32], servers: [1, 3] };
    let designs = design(&measured, &levels).unwrap();
    // Workers matter most, and predictions have the same effects.
    for design in &designs {
        let (of, predicted) = (&design.multiplicative, &design.predicted);
        for effect in &of.effects {
            let other = predicted.effect(effect.factors).unwrap();
            assert!((effect.effect.value - other.effect.value).abs() < 1e-9);
        }
    }
    let text = tables::text(&measured, &parameters(), &settings(), &designs);
    for words in ["2.1 Without", "gets of 9, sharded", "batches, whole", "ABC", "servers' links"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let svg = plots::svg(&measured, &settings());
    assert!(svg.contains("flow-equivalent") && svg.contains("keys of a get"));
    assert!(design(&measured[..5], &levels).is_err(), "cells are missing");
}

/// A row that the machine limits is marked where another process took part of it.
#[test]
fn a_disturbed_repetition_of_a_row_that_the_machine_limits_is_marked() {
    let mut one = row(1, 1, 256, Work::Writes, 2000);
    one.system.limited = false;
    let prediction = predict(&one, &parameters(), &settings()).unwrap();
    let repetition = |busy| Repetition { busy, ..Repetition::default() };
    let marks = |busy: [f64; 3]| {
        let repetitions = busy.map(repetition).to_vec();
        MeasuredRow { row: one.clone(), prediction: prediction.clone(), repetitions }.marks()
    };
    assert!(marks([0.90, 0.97, 0.99]).is_empty());
    let found = marks([0.97, 0.34, 0.40]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].detail.contains("97 % busy, in another repetition 34 %"), "{found:?}");
}
