//! The work of every request, exactly, from when each arrived and was answered.
//!
//! Under a hypothesis on how a service works, the work of each request follows from the times of
//! all. With m servers, first come, first served, the i-th arrival starts when it has come and i −
//! m + 1 requests have left. With m processors shared equally, its work is the integral of min(1,
//! m/n) from its arrival to its departure, n the number present. Of m separate lines by key each is one
//! server, whose requests are those of its keys. What is spent outside of the
//! servers (network, opening a file) is part of the hypothesis: a constant or a gamma law, which decides the mean.
//!
//! Under the right hypothesis the law of work depends neither on how many others a request met nor
//! on how many came after it; under a wrong one it does, strongly. So a hypothesis is judged by a
//! rank test of independence (`score`), whose statistic is χ² distributed if it is true. The
//! hypotheses that the times do not exclude are all kept, with weights exp(−Δ/2φ), Δ the difference
//! of the statistics and φ ≥ 1 the statistic of the best over its degrees of freedom (as for
//! overdispersed likelihoods: K. Burnham, D. Anderson, "Model Selection and Multimodel Inference",
//! 2002). The replicates of the model are drawn from all of them, so that a prediction's interval
//! holds what is not known of the service, not only of its parameters.
//!
//! | module | what |
//! |---|---|
//! | `line` | the times of a step, in order; works under a hypothesis |
//! | `lines` | which keys wait in one line |
//! | `score` | the test of independence, and what depends on what |
//! | `search` | the hypotheses, the likeliest first |
//! | `between` | how works differ from run to run and with the load |
//! | `full` | works at full load, from closed loops; works that depend on how many requests are inside |
//! | `speeds`, `clock` | works that depend on how many requests are inside |
//! | `instrument` | whether that number causes it |
//! | `bypass` | requests that pass the servers by: a mixture found at light load |
//! | `outside` | the time outside: its law, and which laws the times do not exclude |
//! | `kinds` | works by what was done and how large the object is |
//! | `doubts` | what speaks against a fit, and how much wider it makes predictions |
//! | `slices` | replies that leave in slices of a quota |
//! | `spells` | works that come in spells: whether those explain what speaks against a fit |
//! | `replay`, `rates` | departures by the number inside, measured and by hypotheses |
//! | `ticks` | times within the ticks of a clock |
//! | `correction` | what a coarse clock does to works |
//! | `likeness` | hypotheses by how like their replays are, where ticks are long |
//! | `too_coarse` | what the times of a coarser clock tell |
//! | `prospect` | which load narrows a prediction most |
//! | `draws` | the replicates |
//! | `write` | the model |
//!
//! Limitations: all requests of the servers must be recorded (others count as outside). A time outside that varies
//! is found well for one server in line and for separate lines; the more servers or processors are shared, the more it is
//! taken for work. Cost: O(n log n) for a hypothesis, at most [`REQUESTS_MAX`] requests; a second or two for 10,000.

mod between;
mod bypass;
mod clock;
mod correction;
mod doubts;
mod draws;
mod full;
mod instrument;
mod judge;
mod jumps;
mod kinds;
mod likeness;
mod line;
mod lines;
mod moments;
mod outside;
mod partition;
mod prospect;
mod rates;
mod reach;
mod replay;
mod score;
mod search;
mod slices;
mod speeds;
mod spells;
mod ticks;
pub(super) mod times;
mod too_coarse;
pub(super) mod worked;
mod write;

pub use prospect::{Goal, Prospect, half_width_points, prospects};
pub use too_coarse::too_coarse;

use crate::error::{Error, check};
use crate::model_file::Hypothesis;
use crate::queue::Discipline;

use super::input::{Options, Step};
use judge::LEVEL;
use line::{Kind, Line};
use search::Among;
use times::{COARSEST, REQUESTS_MAX, REQUESTS_MIN, Times};
use worked::Worked;

/// Numbers of servers beside the likeliest by which short works are put back among those that were taken for hits.
const OTHERS: usize = 3;

/// Whether all steps have recorded times, of enough requests and fine enough.
pub fn has_times(steps: &[Step]) -> bool {
    let counted = |s: &Step| {
        let times = s.times.as_ref()?;
        Some(times.requests.iter().filter(|r| r.counted).count())
    };
    let each: Option<Vec<usize>> = steps.iter().map(counted).collect();
    let Some(each) = each else { return false };
    each.iter().sum::<usize>() >= REQUESTS_MIN && check_resolution(steps).is_ok()
}

/// That the resolution is fine enough: the mean of responses counted in ticks is that of the responses, however coarse.
fn check_resolution(steps: &[Step]) -> Result<(), Error> {
    for times in steps.iter().filter_map(|s| s.times.as_ref()) {
        let all = times.requests.iter().map(|r| r.departure_s - r.arrival_s);
        let (sum, count) = all.fold((0.0, 0.0), |(sum, count), taken| (sum + taken, count + 1.0));
        if count <= 0.0 {
            continue;
        }
        let mean: f64 = sum / count;
        let coarse = times.clock_s.max(times.resolution_s);
        let must = "at most twice the mean response: log with a finer clock";
        let most = COARSEST * mean.max(1e-12);
        check("the resolution of the recorded times", coarse, 0.0..=most, must)?;
    }
    Ok(())
}

/// Fits a service to the recorded arrivals and departures of steady steps. `servers`: their
/// number, if known; the discipline is found.
///
/// # Errors
/// [`Error::NoSteps`], [`Error::NoTimes`] (a step without recorded times, or too few requests),
/// [`Error::Invalid`] (times that are not finite, or coarser than the responses), and those of a
/// fit.
pub fn work(steps: &[Step], servers: Option<u32>, options: &Options) -> Result<Worked, Error> {
    if steps.is_empty() {
        return Err(Error::NoSteps);
    }
    if let Some(servers) = servers {
        check("the number of servers", f64::from(servers), 1.0..=1e4, "1 to 10,000")?;
    }
    let most = REQUESTS_MAX / steps.len();
    let mut lines = Vec::new();
    for step in steps {
        let missing = || Error::NoTimes { step: step.name.clone() };
        lines.push(Line::new(step.times.as_ref().ok_or_else(missing)?, most)?);
    }
    check_resolution(steps)?;
    let counted: usize = lines.iter().map(Line::counted).sum();
    if counted < REQUESTS_MIN {
        return Err(Error::NoTimes { step: steps[0].name.clone() });
    }
    let among = servers.map_or(Among::All, Among::Servers);
    let (valley, mut found) = with_or_without_hits(&lines, among, options)?;
    if let Some(closed) = options.closed_loop
        && servers.is_none()
        && found.kinds.iter().any(|kind| kind.kind.servers.is_none() && kind.weight > 0.0)
    {
        found = full::limited(&found, closed, options).unwrap_or(found);
    }
    let found = slowed(found, options);
    let mut worked = write::worked(steps, &found, servers, options)?;
    if valley > 0.0 {
        worked.model.warnings.extend(bypass::evidence(&lines, &found, valley));
    }
    Ok(worked)
}

/// The likelier of the searches with and without hits, with the longest response of hits; 0 without.
fn with_or_without_hits(
    lines: &[Line],
    among: Among<'_>,
    options: &Options,
) -> Result<(f64, search::Search), Error> {
    let mut candidates = Vec::new();
    let all = bypass::candidates(lines)
        .into_iter()
        .filter(|(valley, _)| *valley <= 0.0 || !options.no_hits);
    for (valley, kept) in all {
        let mut found = search::search(kept, among, options);
        if valley > 0.0 {
            found = with_short_works(lines, found, valley, among, options);
            found.guesses_hits = true;
        }
        candidates.push((valley, found));
    }
    bypass::likeliest(lines, candidates).ok_or(Error::NoSteps)
}

/// A search among the requests that were not taken for hits, with the short works back that were cut with the hits, where it fits
/// better with them. They are back before it is compared with one in which all hits are works: heavy works, a quarter of which were
/// cut, fitted less without them.
///
/// How many works are back depends on the number of servers, so that those of each likely number are put back. Of these searches the likeliest
/// is taken, by the independence of its works and of its hits ([`bypass::unevenness`]).
fn with_short_works(
    lines: &[Line],
    cut: search::Search,
    valley: f64,
    among: Among<'_>,
    options: &Options,
) -> search::Search {
    let in_line = cut
        .kinds
        .iter()
        .filter(|kind| kind.kind.discipline == Discipline::Fifo && kind.kind.servers.is_some());
    let others = in_line.filter(|kind| kind.kind != cut.best.kind).take(OTHERS);
    let searches = std::iter::once(&cut.best).chain(others).filter_map(|kind| {
        let assumed = search::Search { best: kind.clone(), ..cut.clone() };
        let found = search::search(bypass::returned(lines, &assumed, valley)?, among, options);
        let counted: usize = found.lines.iter().map(Line::counted).sum();
        let uneven = bypass::unevenness(lines, &found.lines, valley) / counted.max(1) as f64;
        Some((found.excess() + uneven, found))
    });
    match searches.min_by(|a, b| a.0.total_cmp(&b.0)).map(|likeliest| likeliest.1) {
        // Hits that were put back speak against every hypothesis. Where the cut alone fits a little better that is its time outside.
        Some(again) if again.excess() <= cut.excess() || again.best.score.p_value() >= LEVEL => {
            again
        }
        _ => cut,
    }
}

/// With a speed by the number inside, where works depend on that number or closed loops carry less with more clients. Works that depend on
/// something by too little to matter at the fitted loads are such only if more inside are answered more slowly: that matters at
/// the next load.
fn slowed(found: search::Search, options: &Options) -> search::Search {
    if !full::falls_with_clients(options) && found.best.score.p_value() >= LEVEL {
        return found;
    }
    // A quota makes works depend on the number met, but not in a way that holds at other loads.
    if slices::slices(&found).is_some() {
        return found;
    }
    let bypass = moments::bypass_of(&found.lines, |_| 1.0);
    let Some(slowed) = full::search_with_speeds(&found, bypass, options) else {
        return found;
    };
    let spells = spells::spells(&found, options.seed);
    let matters = full::falls_with_clients(options)
        || doubts::misfit(&found, spells.as_ref()).is_some()
        || (spells.is_none() && full::collapses(&slowed));
    if matters { slowed } else { found }
}

/// The mean work of the judged requests of a step under a hypothesis, seconds. Beside that of a fit it
/// tells whether a load that was predicted wrongly met a service that had become slower or faster, or
/// another law. `None` where the speed depends on the number inside, where some requests pass the servers by, because which did is not known at one load, and for
/// separate lines, because one load does not tell which keys share a line.
///
/// # Errors
/// [`Error::Invalid`] for times that are not finite.
pub fn mean_work(times: &Times, hypothesis: &Hypothesis) -> Result<Option<f64>, Error> {
    let line = Line::new(times, REQUESTS_MAX)?;
    let lines = hypothesis.discipline == Discipline::Lines;
    if hypothesis.bypass > 0.0 || hypothesis.by_number || lines || line.counted() == 0 {
        return Ok(None);
    }
    let kind = Kind { discipline: hypothesis.discipline, servers: hypothesis.servers };
    let works = line.works(kind, hypothesis.outside.value.into());
    let judged = works.iter().zip(&line.counted).filter(|r| *r.1).map(|r| *r.0);
    Ok(Some(judged.sum::<f64>() / line.counted() as f64))
}

#[cfg(test)]
mod congestion_tests;
#[cfg(test)]
mod coverage_tests;
#[cfg(test)]
mod few_tests;
#[cfg(test)]
mod laws_tests;
#[cfg(test)]
mod lines_tests;
#[cfg(test)]
mod mix_tests;
#[cfg(test)]
mod more_tests;
#[cfg(test)]
mod resolution_tests;
#[cfg(test)]
mod tests;
