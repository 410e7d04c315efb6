//! The second short record, judged again.

use std::collections::BTreeMap;
use std::path::Path;

use concertina::survey::{ClientSearch, MeasuredPoint, Survey, judge};
use model::capacity::MixPart;
use serde_json::Value;

const RECORD: &str = "att/record/2026-11-24-intel-r--xeon-r--processor-2-cores-short-2";

fn read(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORD).join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A store of the record by the code of now, with the shares of the requests that were to be sent, or of those that were:
/// a mix was the first some hundred of requests that were drawn independently, the same in each repetition.
/// `sent.json` has them, drawn again with the record's seed.
fn again(store: &str, sent: Option<&[Vec<MixPart>]>) -> Survey {
    let survey = read(&format!("{store}.json"));
    let points: Vec<MeasuredPoint> = serde_json::from_value(survey["points"].clone()).unwrap();
    let judged = survey["judged"].as_array().unwrap();
    let mut mixes: Vec<MeasuredPoint> =
        judged.iter().map(|j| serde_json::from_value(j["measured"].clone()).unwrap()).collect();
    for (mix, sent) in mixes.iter_mut().zip(sent.into_iter().flatten()) {
        mix.parts.clone_from(sent);
    }
    judge(3, ClientSearch { clients: 32, saturated: true }, points, mixes, &[]).unwrap()
}

#[test]
fn the_record_is_within_its_intervals_with_the_error_of_the_law() {
    let sent: BTreeMap<String, Vec<Vec<MixPart>>> =
        serde_json::from_value(read("sent.json")).unwrap();
    let mut inside = 0;
    for (store, median_percent, worst_percent) in
        [("memcached", 4.5, 10.0), ("versitygw", 2.5, 5.5)]
    {
        for (shares, sent) in [("to be sent", None), ("sent", Some(&sent[store][..]))] {
            let survey = again(store, sent);
            let law: Vec<f64> = survey.judged.iter().map(|j| 100.0 * j.law_error.abs()).collect();
            let errors: Vec<f64> = survey.errors().iter().map(|e| 100.0 * e).collect();
            let held = survey.judged.iter().filter(|j| j.inside).count();
            let (worst, median) = (errors[errors.len() - 1], errors[errors.len() / 2]);
            println!(
                "{store}, shares {shares}: law alone {:.1} % at worst; with its error {median:.1} % in the median, {worst:.1} \
                 at worst, {held} of {} inside; {:?}",
                law.iter().copied().fold(0.0, f64::max),
                errors.len(),
                survey.mix_error
            );
            if sent.is_some() {
                assert!(median < median_percent && worst < worst_percent);
                inside += held;
            }
        }
    }
    // 90 to 100 % of 24 mixes, none of which was used for its own prediction.
    assert!(inside >= 22, "{inside}");
}
