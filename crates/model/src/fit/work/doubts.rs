//! What speaks against a fit: works that depend on something, drift, come in spells, and requests that
//! are missing.

use crate::fit::input::Step;
use crate::model_file::Hypothesis;
use ground::window::Outcome;

use super::judge::{EFFECT, LEVEL, Sums};
use super::jumps::{Jump, jump};
use super::line::Line;
use super::moments::{moments, rate, sum};
use super::search::Search;
use super::slices::{Slices, slices};
use super::spells::{Spells, alike, spread_by_met};

/// A step's mean work that is off by more than this is worth saying.
const DRIFT: f64 = 0.05;
/// A hypothesis under which the mean work of a step is off by more than this does not fit.
const DRIFT_MAX: f64 = 0.2;
/// Replays by the same clock differ from the times by less than this, over what chance makes, under a hypothesis that fits (of constant works up
/// to 2.1 times was seen, of three servers with hits that ticks hide 14 to 46 times).
const UNLIKE: f64 = 4.0;
/// A pause between arrivals that chance makes with a probability below this.
const PAUSE: f64 = 1e-6;

/// That hardly any request met all servers busy: a sentence. `saturation`: that of the model, requests/s.
pub(super) fn hardly_waited(found: &Search, saturation: f64) -> Option<String> {
    let (servers, share) = (found.best.kind.servers?, found.hardly_waited()?);
    Some(format!(
        "Only {:.1} % of the requests met all {servers} servers busy. So the number of servers is hardly known, nor the \
             saturation of {saturation:.4} requests/s that follows from it; there may be no limit. A heavier load or a closed loop \
             tells.",
        100.0 * share
    ))
}

/// A larger share of requests that were answered by errors is worth saying.
const ERRORS: f64 = 0.01;

/// That many requests were answered by errors: a sentence.
pub(super) fn errors(steps: &[Step]) -> Option<String> {
    let times = steps.iter().filter_map(|step| step.times.as_ref());
    let (mut all, mut wrong) = (0u64, 0u64);
    for request in times.flat_map(|times| &times.requests).filter(|r| r.counted) {
        all += 1;
        wrong += u64::from(request.outcome == Outcome::Error);
    }
    let share = wrong as f64 / all.max(1) as f64;
    (share > ERRORS).then(|| {
        format!(
            "{:.1} % of the requests were answered by errors. They are taken to have had no work; if they had, it counts as \
             that of the requests beside them, and the saturation is predicted too low.",
            100.0 * share
        )
    })
}

/// Pauses that no chance makes: sentences.
pub(super) fn pauses(found: &Search) -> Vec<String> {
    let mut texts = Vec::new();
    for line in found.lines.iter().filter(|line| line.open) {
        let (from, to) = line.span();
        let (rate, n) = (rate(line), line.counted() as f64);
        let judged = line.arrivals.iter().zip(&line.counted).filter(|r| *r.1).map(|r| *r.0);
        let next = judged.clone().skip(1);
        let pause = judged.zip(next).map(|(a, b)| (b - a, a)).max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((pause, at)) = pause else { continue };
        // Without the pause, the rest came at this rate.
        let busy = rate * (to - from) / (to - from - pause).max(1e-9);
        if n * (-busy * pause).exp() < PAUSE && pause < 0.5 * (to - from) {
            texts.push(format!(
                "Nothing came for {pause:.3} s, {:.1} s after the begin of the step of {rate:.4} requests/s: \
                 lines of the log are missing, or the clients paused. Requests that are missing make the \
                 works of others too large.",
                at - from
            ));
        }
    }
    texts
}

/// The changes of works within steps, under the best hypothesis.
pub(super) fn jumps(found: &Search) -> Vec<Jump> {
    let of_line = |line: &Line| {
        let all = line.works(found.best.kind, found.best.outside);
        let counted = || (0..all.len()).filter(|i| line.counted[*i]);
        let works: Vec<f64> = counted().map(|i| all[i]).collect();
        let begin = line.span().0;
        let arrivals_s: Vec<f64> = counted().map(|i| line.arrivals[i] - begin).collect();
        jump(rate(line), &works, &arrivals_s)
    };
    found.lines.iter().filter_map(of_line).collect()
}

/// Works in spells: a sentence.
pub(super) fn in_spells(found: &Search, spells: Option<&Spells>) -> Option<String> {
    let correlation = spells.map_or_else(|| alike(found), |s| Some(s.correlation))?;
    let seen = format!(
        "Requests that are served soon after each other have alike works (correlation {correlation:.2}): \
         slow spells, as of background work, a collector of garbage or a throttle, or requests of a kind that \
         come together."
    );
    Some(match spells.filter(|s| s.explain()) {
        Some(spells) => format!(
            "{seen} The model does the works in the order in which they were done. So done again, they explain \
             why works differ by {:.0} % with the number of others that a request meets, but for {:.0} %.",
            100.0 * spells.spread,
            100.0 * spells.left
        ),
        None => format!(
            "{seen} A spell lets more wait than predicted, where works are taken for independent."
        ),
    })
}

/// Why the best hypothesis does not fit, if it does not and spells do not explain it.
pub(super) fn misfit(found: &Search, spells: Option<&Spells>) -> Option<String> {
    if let Some(slices) = slices(found) {
        return Some(slices.why());
    }
    let score = &found.best.score;
    if score.p_value() >= LEVEL || spells.is_some_and(Spells::explain) {
        return None;
    }
    if let Some(apart) =
        score.apart.filter(|a| a.rank.abs() > EFFECT || (a.ratio - 1.0).abs() > 0.5)
    {
        return Some(apart.text());
    }
    if found.replayed && score.ratio() >= UNLIKE {
        return Some(format!(
            "works depend on what they must not depend on, {:.1} times as much as chance and the ticks of this clock make them: hits of a \
             cache that are shorter than a tick do that, and a finer clock tells",
            score.ratio()
        ));
    }
    if found.guesses_hits {
        return Some(
            "works depend on what they must not depend on, by little, but which requests were hits is a guess, and with another \
             guess another number of servers may fit"
                .to_owned(),
        );
    }
    let worst = drifts(found).into_iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
    (worst.1.abs() > DRIFT_MAX).then(|| {
        let (percent, which) = (100.0 * worst.1.abs(), if worst.1 > 0.0 { "more" } else { "less" });
        format!(
            "requests at {:.4} requests/s have {percent:.0} % {which} work than the rest",
            worst.0
        )
    })
}

/// The loads whose mean work differs from that of all by more than [`DRIFT`] and chance: each load,
/// requests/s, with the difference as a fraction.
fn drifts(found: &Search) -> Vec<(f64, f64)> {
    let (mean, scv) = moments(sum(found.best.blocks.iter().flatten()), 0.0);
    let off = |(i, blocks): (usize, &Vec<Sums>)| {
        let own = sum(blocks.iter());
        let off = own.1 / own.0.max(1.0) / mean - 1.0;
        let error = (scv / own.0.max(1.0)).sqrt();
        (off.abs() > DRIFT && off.abs() > 4.0 * error).then(|| (rate(&found.lines[i]), off))
    };
    found.best.blocks.iter().enumerate().filter_map(off).collect()
}

/// What users of the model should know.
pub(super) fn warnings(
    found: &Search,
    hypotheses: &[Hypothesis],
    misfit: &Option<String>,
    given: Option<u32>,
) -> Vec<String> {
    let mut texts = Vec::new();
    if let Some(why) = misfit {
        texts.push(format!(
            "No hypothesis fits the recorded times: even under the nearest ({}) {why}. Predictions \
             are those of the nearest, and their intervals have the {:.0} % by which works differ so.",
            hypotheses.first().map_or_else(String::new, Hypothesis::title),
            100.0 * spread_by_met(found)
        ));
    }
    texts.extend(slices(found).map(Slices::text));
    let kept: Vec<&Hypothesis> = hypotheses.iter().filter(|h| h.weight > 0.0).collect();
    if given.is_none() && kept.len() > 1 {
        let each = kept.iter().map(|h| format!("{} ({:.0} %)", h.title(), 100.0 * h.weight));
        texts.push(format!(
            "The times do not tell these apart: {}. Predictions are of the first, their intervals of \
             all: a load nearer to saturation tells most.",
            each.collect::<Vec<_>>().join("; ")
        ));
    }
    for (rate, off) in drifts(found) {
        texts.push(format!(
            "The mean work at {rate:.4} requests/s is {:.0} % {} than at all loads: it depends on the \
             load, or drifts in time.",
            100.0 * off.abs(),
            if off > 0.0 { "more" } else { "less" }
        ));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::super::line::{Kind, Line};
    use super::super::search::{Among, search};
    use super::super::tests::Service;
    use super::*;
    use crate::fit::input::Options;
    use crate::fit::work::times::REQUESTS_MAX;
    use crate::queue::Discipline;

    #[test]
    fn servers_that_are_hardly_ever_all_busy_are_said_to_be_hardly_known() {
        let service = |discipline, servers| Service {
            discipline,
            servers,
            heavy: false,
            mean: 0.010,
            outside: 0.002,
        };
        let said = |service: Service, utilisations: &[f64]| {
            let steps = service.steps(utilisations, 10_000, 3);
            let times = steps.iter().filter_map(|step| step.times.as_ref());
            let lines = times.map(|times| Line::new(times, REQUESTS_MAX).unwrap()).collect();
            let found = search(lines, Among::Servers(service.servers as u32), &Options::default());
            let Kind { servers, .. } = found.best.kind;
            assert_eq!(servers, Some(service.servers as u32));
            hardly_waited(&found, 123.0)
        };
        for discipline in [Discipline::Fifo, Discipline::Shared] {
            let rarely = said(service(discipline, 4), &[0.1, 0.15, 0.2]).unwrap();
            assert!(rarely.contains("all 4 servers busy") && rarely.contains("123"), "{rarely}");
            assert_eq!(said(service(discipline, 4), &[0.3, 0.45, 0.6]), None);
            assert_eq!(said(service(discipline, 1), &[0.1, 0.15, 0.2]), None);
        }
    }
}
