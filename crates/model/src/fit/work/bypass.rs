//! Requests that pass the servers by: hits of a cache that the source does not name.
//!
//! At light load a response is nearly a work, so the law of responses then shows a mixture: two
//! humps of log response with a valley between. What is answered faster than the valley is taken
//! out of the queue, and the hypotheses are judged with and without that.
//!
//! A request with little work that met no other is answered as fast. Of servers in line the works of those that waited for longer than the
//! valley say how many works are as short, whatever the law of work; so many of the fast replies, by chance, are put back. Of other
//! disciplines the law of works of those that waited is continued to 0.
//!
//! A hit is shown by a clock as one tick more than it took, if a tick ends meanwhile, and may be drawn as two: where the valley is within
//! two ticks, it is taken to be there. Cut at one tick, each tenth hit of 0.1 ms by a clock of 1 ms was taken for a work that overtakes.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::queue::Discipline;

use super::super::valley::is_crowded_within;
use super::judge::{LEVEL, excess};
use super::line::{Kind, Line};
use super::outside::Outside;
use super::score::bins;
use super::search::Search;

/// The share of the requests that used the servers from which on those that were taken for hits are put back.
const RETURNED: f64 = 0.002;
/// The fewest fast requests that tell who overtakes.
const OVERTAKERS: f64 = 40.0;
/// Requests before one that are asked whether they left after it.
const LOOKED_BACK: usize = 1_000;
/// The fewest requests that waited that tell how many works are short.
const WAITED_MIN: f64 = 300.0;
/// How often works are computed with the requests back that the works before tell.
const RETURNS: usize = 3;
/// The largest share of short works that is believed.
const SHORT_MAX: f64 = 0.9;
/// Responses up to the valley that are told apart.
const PARTS: usize = 8;
/// Ticks that a hit is drawn within.
const TICKS: f64 = 2.0;
/// A time outside of so many valleys may be made by the cut, whatever came between the two.
const LONGER: f64 = 1.2;
/// Beyond, it is made by the cut if between the two requests that met no other are at least so many times as frequent as in the time after it.
const BETWEEN: f64 = 0.5;
/// By how much more the statistic must be without hits than with them, where both fit: hits are one assumption more, and with valleys
/// between works of two kinds they fitted better by chance (of works of 2 and 50 ms, 5 to 7 % were taken for hits in two logs of five).
const BETTER: f64 = 10.0;

/// The steps as they are, and without requests that may have passed the servers by, with the longest response of
/// those.
pub(super) fn candidates(lines: &[Line]) -> Vec<(f64, Vec<Line>)> {
    let mut all = vec![(0.0, lines.to_vec())];
    let rate = |line: &&Line| {
        let (from, to) = line.span();
        line.counted() as f64 / (to - from).max(1e-9)
    };
    let lightest = lines.iter().min_by(|a, b| rate(a).total_cmp(&rate(b)));
    let raised = |line: &Line| {
        let taken = line.departures.iter().zip(&line.arrivals).map(|(end, from)| end - from);
        let mean = taken.sum::<f64>() / line.arrivals.len().max(1) as f64;
        let least = TICKS * line.ticks.coarsest();
        // Of a clock whose ticks are about a response that would be every other request.
        let is_fine = least < 0.5 * mean;
        match valley(line) {
            Some(valley) => Some(if is_fine { valley.max(least) } else { valley }),
            None => Some(least).filter(|_| is_fine && is_crowded_within(judged(line), least)),
        }
    };
    if let Some(valley) = lightest.and_then(raised) {
        all.push((valley, lines.iter().map(|line| line.without(valley, |_| false)).collect()));
    }
    all
}

/// The likelier of the searches with and without requests that may have passed the servers by. Where servers in line fit, and requests
/// were fast although all were busy, these have passed them by, however little the rest fits without the short works that were cut
/// with them: one server in any order fits too if works are exponential, because hits divide them into works that are as well. Else there
/// are hits only where they make the fit better beyond chance.
pub(super) fn likeliest(lines: &[Line], candidates: Vec<(f64, Search)>) -> Option<(f64, Search)> {
    if let [(_, with), (valley, _)] = &candidates[..]
        && with.best.score.p_value() >= LEVEL
        && overtake(lines, with, *valley)
    {
        return candidates.into_iter().next_back();
    }
    if let [(_, without), (_, with)] = &candidates[..]
        && without.best.score.p_value() >= LEVEL
        && excess(&without.best.score) < excess(&with.best.score) + BETTER
    {
        return candidates.into_iter().next();
    }
    candidates.into_iter().min_by(|a, b| a.1.excess().total_cmp(&b.1.excess()))
}

/// Whether requests that met as many others as there are servers in line, or more, were answered within `valley` at
/// least half as often as the rest, and most of these while all servers still worked for others that had come before. Of two kinds of works the
/// shorter were fast nearly as often after a short wait, and a twentieth of them was taken for hits.
fn overtake(lines: &[Line], found: &Search, valley: f64) -> bool {
    let (kind, outside) = (found.best.kind, found.best.outside.mean);
    let Some(servers) = kind.servers.filter(|_| kind.discipline == Discipline::Fifo) else {
        return false;
    };
    let mut counts = [(0.0, 0.0); 2];
    let mut passed = 0.0;
    for line in lines {
        let met = line.met(outside);
        let is_without_server = |i: usize| {
            let before = (i.saturating_sub(LOOKED_BACK)..i).rev();
            let later = before.filter(|j| line.departures[*j] > line.departures[i]);
            later.take(servers as usize).count() >= servers as usize
        };
        for i in (0..met.len()).filter(|i| line.counted[*i]) {
            let is_busy = met[i] >= servers;
            let (fast, all) = &mut counts[usize::from(is_busy)];
            *all += 1.0;
            if line.departures[i] - line.arrivals[i] <= valley {
                *fast += 1.0;
                passed += f64::from(u8::from(is_busy && is_without_server(i)));
            }
        }
    }
    let [(free, all_free), (busy, all_busy)] = counts;
    busy >= OVERTAKERS
        && busy / all_busy > 0.5 * free / f64::max(all_free, 1.0)
        && passed > 0.5 * busy
}

/// Why some requests are taken for hits: a sentence. `lines` are the steps with all requests.
pub(super) fn evidence(lines: &[Line], found: &Search, valley: f64) -> Option<String> {
    let passed: usize = found.lines.iter().map(|line| line.bypassed.len()).sum();
    let (mut fast, mut between) = (0usize, 0usize);
    let mut busy_fast = 0usize;
    let servers = found.best.kind.servers.unwrap_or(u32::MAX);
    for line in lines {
        let met = line.met(found.best.outside.mean);
        for i in (0..met.len()).filter(|i| line.counted[*i]) {
            let response = line.departures[i] - line.arrivals[i];
            let is_fast = response <= valley;
            fast += usize::from(is_fast);
            between += usize::from(!is_fast && response <= 2.0 * valley);
            busy_fast += usize::from(is_fast && met[i] >= servers);
        }
    }
    (passed > 0 && fast > 0).then(|| {
        let while_busy = if busy_fast > 0 {
            format!(", {busy_fast} of them although all servers were busy")
        } else {
            String::new()
        };
        format!(
            "{passed} requests are taken for hits that pass the servers by: {fast} were answered within {:.3} ms{while_busy}, and {between} in the time from there to twice as long. If no cache answers in front of the servers, fit with --no-hits.",
            1e3 * valley
        )
    })
}

/// The steps with the requests back that were at the servers although they were answered within `valley`; `None` if
/// they are few, or the time outside is longer and not made by the cut. Under the best hypothesis, works between half the valley and all of it
/// are a share of the requests that waited; twice that is the share of all works up to the valley. A time outside
/// of about the valley is taken for none: it is what the cut left of the shortest works.
///
/// Of separate lines each gets back its own: hits have few keys, as popular ones, and would else all be taken for work of the
/// lines of those keys.
pub(super) fn returned(lines: &[Line], found: &Search, valley: f64) -> Option<Vec<Line>> {
    if let Some(lines) = returned_by_waiting(lines, found, valley) {
        return Some(lines).filter(|lines| !lines.is_empty());
    }
    let (kind, outside) = (found.best.kind, found.best.outside);
    let servers = kind.servers.filter(|_| is_made_by_cut(found, valley))?;
    let queue = if kind.lines() > 0 { 1 } else { servers };
    let (mut waited, mut small) = (0.0, 0.0);
    let mut alone = vec![0.0; kind.lines().max(1) as usize];
    for line in &found.lines {
        let (met, places) = (line.met_own(kind, outside.mean), kind.places(line));
        let works = line.works(kind, outside);
        for (i, work) in works.iter().enumerate().filter(|r| line.counted[r.0]) {
            if met[i] >= queue {
                waited += 1.0;
                small += f64::from(u8::from(*work > 0.5 * valley && *work <= valley));
            } else {
                alone[places.get(i).map_or(0, |place| *place as usize)] += 1.0;
            }
        }
    }
    let share: f64 = 2.0 * small / f64::max(waited, 1.0);
    let back: Vec<f64> = alone.iter().map(|n| n * share / (1.0 - share).max(0.5)).collect();
    let partition = found.lines.first().and_then(|line| line.partition(kind.lines()));
    let place = |key: u32| partition.map_or(0, |p| p.line(key) as usize);
    let mut passed = vec![0.0; back.len()];
    for line in lines {
        let fast = |i: &usize| line.departures[*i] - line.arrivals[*i] <= valley;
        let judged = (0..line.arrivals.len()).filter(|i| line.counted[*i]);
        judged.filter(fast).for_each(|i| passed[place(line.keys[i])] += 1.0);
    }
    let all: f64 = alone.iter().sum::<f64>() + waited;
    if back.iter().sum::<f64>() < RETURNED * all || passed.iter().sum::<f64>() <= 0.0 {
        return None;
    }
    let mut random = StdRng::seed_from_u64(0xb1a5);
    let each: Vec<f64> = back.iter().zip(&passed).map(|(back, of)| back / of.max(1.0)).collect();
    let without =
        |line: &Line| line.without(valley, |i| random.random::<f64>() < each[place(line.keys[i])]);
    Some(lines.iter().map(without).collect())
}

/// Whether the time outside is what the cut left of the shortest works. A time that all requests spend outside of the servers is shorter than
/// every response of those that used them, but for what a clock blurs. One that the cut made is of some length by chance, up to the 5 % quantile
/// of the responses that were left, and these are as frequent before it as after it. (By its length alone, times outside of 1.3 valleys were taken
/// for true in a fifth of logs of 3,000 requests with 35 % hits by a clock of 1 ms, and a third of the short works for hits.)
fn is_made_by_cut(found: &Search, valley: f64) -> bool {
    let outside = found.best.outside.mean;
    if outside < LONGER * valley {
        return true;
    }
    let (mut before, mut after) = (0.0, 0.0);
    for line in &found.lines {
        let met = line.met(0.0);
        for i in (0..met.len()).filter(|i| line.counted[*i] && met[*i] == 0) {
            let response = line.departures[i] - line.arrivals[i];
            before += f64::from(u8::from(response > valley && response <= outside));
            after += f64::from(u8::from(response > outside && response <= outside + valley));
        }
    }
    before / (outside - valley) >= BETWEEN * after / valley
}

/// How many slow requests were present when each came, slow or fast.
fn met_slow(line: &Line, valley: f64) -> Vec<u32> {
    let is_slow = |i: usize| line.departures[i] - line.arrivals[i] > valley;
    let mut ends = line.by_end.iter().map(|i| *i as usize).filter(|i| is_slow(*i)).peekable();
    let mut inside = 0;
    let of = |i: usize| {
        while ends.next_if(|end| line.departures[*end] <= line.arrivals[i]).is_some() {
            inside -= 1;
        }
        let met = inside;
        inside += u32::from(is_slow(i));
        met
    };
    (0..line.arrivals.len()).map(of).collect()
}

/// Whether hits depend on the number of requests that they met: Pearson's χ² less its degrees of freedom, summed over the steps. A cache
/// answers whatever the servers do. `kept` are the steps without the hits.
///
/// Works that are put back make works independent under any number of servers, so that their test hardly excludes a wrong number. Of four
/// servers taken for five it finds nothing, but requests that met four others were answered fast less often than those that met three.
pub(super) fn unevenness(lines: &[Line], kept: &[Line], valley: f64) -> f64 {
    let mut found = 0.0;
    for (line, kept) in lines.iter().zip(kept) {
        let mut judged = Vec::new();
        let mut next = 0;
        for (i, met) in met_slow(line, valley).into_iter().enumerate() {
            let is_kept = kept.arrivals.get(next) == Some(&line.arrivals[i])
                && kept.departures[next] == line.departures[i];
            next += usize::from(is_kept);
            if line.counted[i] {
                judged.push((met, !is_kept));
            }
        }
        found += frequencies(&judged);
    }
    found
}

/// [`unevenness`] of the requests of a step: the number that each met, and whether it is a hit.
fn frequencies(judged: &[(u32, bool)]) -> f64 {
    let edges = bins(&judged.iter().map(|each| each.0).collect::<Vec<u32>>());
    let mut counts = vec![[0.0; 2]; edges.len()];
    for (met, is_hit) in judged {
        counts[edges.partition_point(|edge| edge <= met) - 1][usize::from(*is_hit)] += 1.0;
    }
    let hits: f64 = counts.iter().map(|count| count[1]).sum();
    let share = hits / judged.len().max(1) as f64;
    let variance = share * (1.0 - share);
    if variance <= 0.0 {
        return 0.0;
    }
    let squares = counts.iter().map(|[others, hits]| {
        let all = others + hits;
        (hits - share * all).powi(2) / (all * variance).max(f64::MIN_POSITIVE)
    });
    squares.sum::<f64>() - (edges.len() - 1) as f64
}

/// Works up to the valley of requests that surely waited, by [`PARTS`] of it, as shares of these requests; `None` of too few. Which of
/// these requests are known does not depend on their works, because they waited for longer than the valley.
fn short_works(lines: &[Line], kind: Kind, valley: f64) -> Option<[f64; PARTS]> {
    let (mut waited, mut short) = (0.0, [0.0; PARTS]);
    for line in lines {
        let starts = line.starts(kind, Outside::default());
        for (i, start) in starts.iter().enumerate().filter(|r| line.counted[r.0]) {
            if start - line.arrivals[i] <= valley {
                continue;
            }
            waited += 1.0;
            let work = (line.departures[i] - start).max(0.0);
            if work <= valley {
                short[part_of(work, valley)] += 1.0;
            }
        }
    }
    (waited >= WAITED_MIN).then(|| short.map(|count| count / waited))
}

fn part_of(time: f64, valley: f64) -> usize {
    ((time / valley * PARTS as f64) as usize).min(PARTS - 1)
}

/// Counts by whether a server was free for a request, or none was, and by its response.
type Fast = [[f64; PARTS]; 2];

/// How many requests that were at the servers are expected to have been fast, from the slow ones that began within the valley: of
/// works as long as any, so many are short. `known`: the steps with most of those that were at the servers.
fn fast_at_servers(known: &[Line], kind: Kind, valley: f64, short: &[f64; PARTS]) -> Fast {
    let below: Vec<f64> =
        (0..=PARTS).map(|k| short[..k].iter().sum::<f64>().min(SHORT_MAX)).collect();
    let mut expected = [[0.0; PARTS]; 2];
    for line in known {
        let starts = line.starts(kind, Outside::default());
        for (i, start) in starts.iter().enumerate().filter(|r| line.counted[r.0]) {
            let (arrival, wait) = (line.arrivals[i], start - line.arrivals[i]);
            if wait > valley || line.departures[i] - arrival <= valley {
                continue;
            }
            if wait <= 0.0 {
                let all = 1.0 / (1.0 - below[PARTS]);
                expected[0].iter_mut().zip(short).for_each(|(sum, share)| *sum += all * share);
                continue;
            }
            let waited = part_of(wait, valley);
            let all = 1.0 / (1.0 - below[PARTS - waited]);
            // The sum of two times within their parts is in one or the next.
            for (work, share) in short.iter().enumerate().take(PARTS - waited) {
                expected[1][waited + work] += 0.5 * all * share;
                if let Some(next) = expected[1].get_mut(waited + work + 1) {
                    *next += 0.5 * all * share;
                }
            }
        }
    }
    expected
}

/// The steps with the requests back that were at servers in line: none where these are few; `None` where too few waited to tell.
///
/// Before, fast replies while all servers were busy gave the share of hits: some hundred of them, which left it off by up to 2 points, and
/// the load of the servers with it.
fn returned_by_waiting(lines: &[Line], found: &Search, valley: f64) -> Option<Vec<Line>> {
    let kind = found.best.kind;
    let servers = kind
        .servers
        .filter(|_| kind.discipline == Discipline::Fifo && is_made_by_cut(found, valley))?;
    let met: Vec<Vec<u32>> = lines.iter().map(|line| met_slow(line, valley)).collect();
    let mut fast: Fast = [[0.0; PARTS]; 2];
    for (line, met) in lines.iter().zip(&met) {
        for i in (0..met.len()).filter(|i| line.counted[*i]) {
            let response = line.departures[i] - line.arrivals[i];
            if response <= valley {
                fast[usize::from(met[i] >= servers)][part_of(response, valley)] += 1.0;
            }
        }
    }
    let all: usize = found.lines.iter().map(Line::counted).sum();
    let mut returned = Vec::new();
    for _ in 0..RETURNS {
        let known = if returned.is_empty() { &found.lines } else { &returned };
        let short = short_works(known, kind, valley)?;
        let expected = fast_at_servers(known, kind, valley, &short);
        let chance = |class: usize, part: usize| expected[class][part] / fast[class][part].max(1.0);
        let back: f64 =
            expected.iter().flatten().zip(fast.iter().flatten()).map(|e| e.0.min(*e.1)).sum();
        if back < RETURNED * all as f64 {
            return Some(Vec::new());
        }
        let mut random = StdRng::seed_from_u64(0xb1a5);
        let each = lines.iter().zip(&met).map(|(line, met)| {
            line.without(valley, |i| {
                let part = part_of(line.departures[i] - line.arrivals[i], valley);
                random.random::<f64>() < chance(usize::from(met[i] >= servers), part)
            })
        });
        returned = each.collect();
    }
    Some(returned)
}

/// The responses of the judged requests, each once.
fn judged(line: &Line) -> impl Iterator<Item = (f64, f64)> + '_ {
    let each = line.arrivals.iter().zip(&line.departures).zip(&line.counted);
    each.filter(|r| *r.1).map(|((arrival, departure), _)| (departure - arrival, 1.0))
}

/// The deepest valley between two humps of the logarithm of the response.
fn valley(line: &Line) -> Option<f64> {
    // What a tick holds is not told apart.
    super::super::valley::valley(&judged(line).collect::<Vec<_>>())
        .filter(|valley| *valley > line.ticks.coarsest())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of the requests that meet no, one or two others are hits: hits are even if half of those that meet three others are hits too.
    #[test]
    fn hits_that_depend_on_the_number_met_are_uneven() {
        let judged = |hits_of_last: u32| -> Vec<(u32, bool)> {
            (0..2_000)
                .map(|i| (i % 4, i / 4 % 10 < if i % 4 == 3 { hits_of_last } else { 5 }))
                .collect()
        };
        assert!(frequencies(&judged(5)) < 0.0);
        assert!(frequencies(&judged(3)) > 20.0);
        assert_eq!(frequencies(&[]), 0.0);
        assert_eq!(frequencies(&[(0, true); 50]), 0.0);
    }

    /// A request whose work was put back counts as one that the servers answered.
    #[test]
    fn requests_that_are_back_are_no_hits() {
        let (from, taken): (Vec<f64>, Vec<f64>) = (0..4_000)
            .map(|i| (0.01 * f64::from(i), if i % 2 == 0 { 0.015 } else { 0.001 }))
            .unzip();
        let ends = from.iter().zip(&taken).map(|(from, taken)| from + taken).collect();
        // Each fast one meets a slow one, each slow one meets none.
        let lines = [Line::from_times(from, ends)];
        let all_hits = [lines[0].without(0.002, |_| false)];
        let none = [lines[0].without(0.002, |_| true)];
        assert!(unevenness(&lines, &all_hits, 0.002) > 1_000.0);
        assert_eq!(unevenness(&lines, &none, 0.002), 0.0);
    }
}
