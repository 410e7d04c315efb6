//! Works at full load, from the throughput of a closed loop.
//!
//! A closed loop of enough clients keeps the servers always busy, so its throughput X tells the mean work there, m/X
//! for m servers, without the times of its requests. Where this differs from the mean work at the fitted loads by more than works differ
//! from run to run, works change with the load, and the loads between are interpolated ([`ByLoad`]). A straight line
//! through light loads does not tell it: what is done for many requests at once shows when many wait.
//!
//! # Works that depend on how many requests are inside
//!
//! Where no hypothesis fits, or a closed loop carries less with more clients, the speed s(n) with n requests present becomes part of the
//! hypothesis ([`Slowdown`]): the work of a request is the integral of s(n(t)) over its service. s is linear between some
//! numbers nₖ in their logarithm, so a work is a sum Σ sₖ·Tₖ of the times that its service spent at each number. Requests that *began* with
//! another number have another work only by chance, because that number was known before the work was. So the equations
//!
//! Σᵢ φₖ(number at the begin of i)·(Σₗ sₗ·Tₗᵢ − 1) = 0 for each k
//!
//! (φ: the hats that make up the line) give the speeds, whatever the law of work: a method of moments with the number at the
//! begin as the instrument (L. Hansen, Econometrica 50, 1982). The rate of departures with n inside would do so for exponential works
//! alone.
//!
//! | what | by |
//! |---|---|
//! | whether the speed is all that is the matter | the test of independence ([`super::score`]), on these works |
//! | whether the number causes it, or slow spells gather requests | a virtual queue of the same arrivals ([`super::instrument`]) |
//! | speeds beyond the numbers met | closed loops: n clients keep nearly n requests inside, and the throughput is what leaves |
//! | speeds beyond these | not known: replicates have all from "they stay" to "they fall on as over the last numbers" |
//!
//! Cost: some tens of milliseconds for each kind of servers and time outside that is looked at.

use crate::queue::{Discipline, Slowdown};
use crate::storage::ByLoad;

use super::between::Between;
use super::clock::Clock;
use super::instrument::{CausalShare, causal_share};
use super::judge::{Judge, Point, block_of, excess};
use super::line::{Kind, Line};
use super::moments::{moments, rate, sum};
use super::reach::Reach;
use super::search::{Among, Search, search};
use super::speeds::{Beyond, Congestion, Equations, Speeds, hats};
use crate::fit::input::{ClosedAt, ClosedLoop, Options};

/// The smallest difference that counts, and the least that a closed loop is uncertain by, as shares.
const BEYOND: f64 = 0.03;
const LEAST: f64 = 0.01;
/// The standard deviation of the work between the two loads, as a part of the difference: the form of the
/// interpolation is not known, and the work of full load may be reached soon after the heaviest fitted load.
const FORM: f64 = 0.25;
/// A closed loop that carries less than this over the heaviest fitted load was not at full load.
const ABOVE: f64 = 1.05;
/// The most servers that a closed loop tells.
const SERVERS_MAX: f64 = 5_000.0;

/// Times outside of less weight than this in all agree with a closed loop by chance.
const AGREEING_MIN: f64 = 0.02;
/// What a hypothesis with the limit of a closed loop may be less likely by than none, in units of the overdispersion:
/// its servers were hardly ever all busy at the fitted loads.
const WORSE: f64 = 10.0;

/// As many servers as a closed loop keeps busy, where the fitted loads show no limit; `None` if these show that so many
/// servers would have been too few, or the closed loop was not at full load.
pub(super) fn limited(found: &Search, closed: ClosedLoop, options: &Options) -> Option<Search> {
    let (mean, _) = moments(sum(found.best.blocks.iter().flatten()), 0.0);
    let heaviest = found.lines.iter().map(rate).fold(0.0, f64::max);
    let servers = closed.throughput * mean;
    if closed.throughput < ABOVE * heaviest || !(servers > 0.0 && servers < SERVERS_MAX) {
        return None;
    }
    let among = Among::Servers(servers.round().max(1.0) as u32);
    let again = search(found.lines.clone(), among, options);
    let worse = excess(&again.best.score) - excess(&found.best.score);
    let same = worse <= WORSE * found.best.score.ratio().max(1.0);
    same.then(|| {
        agreeing(
            Search { limited: true, guesses_hits: found.guesses_hits, ..again },
            closed,
            options,
        )
    })
}

/// With times outside under which the servers are as busy as the closed loop keeps them: the number of servers was taken from that. Light loads leave
/// times outside below zero open, and replicates with them were past saturation at loads that the closed loop had carried.
fn agreeing(mut found: Search, closed: ClosedLoop, options: &Options) -> Search {
    let own = |point: &Point| {
        let mean = moments(sum(point.blocks.iter().flatten()), 0.0).0;
        let servers = point.kind.servers.map_or(0.0, f64::from);
        let apart = (servers / (closed.throughput * mean)).ln();
        let apart = apart / closed.deviation.max(LEAST).hypot(BEYOND);
        if apart.is_finite() { point.weight * (-0.5 * apart * apart).exp() } else { 0.0 }
    };
    let weights: Vec<f64> = found.points.iter().map(own).collect();
    let all: f64 = weights.iter().sum();
    let first = found.best.kind;
    let of_first = |points: &[Point]| {
        let own = points.iter().filter(|p| p.kind == first);
        own.fold((0.0, 0.0), |s, p| (s.0 + p.weight, s.1 + p.weight * p.outside.mean))
    };
    if all < AGREEING_MIN || found.best.outside.cv > 0.0 {
        return found;
    }
    found.points.iter_mut().zip(weights).for_each(|(point, weight)| point.weight = weight / all);
    for kind in &mut found.kinds {
        let own = found.points.iter().filter(|p| p.kind == kind.kind);
        kind.weight = own.map(|p| p.weight).sum();
    }
    let (weight, outside) = of_first(&found.points);
    if weight > 0.0 {
        let median = Reach::new(&found.lines).median();
        let judge = Judge::of_lines(found.lines.clone(), median, options);
        let correction = found.best.correction.take();
        let best = judge.point(first, (outside / weight).into());
        found.best = Point { correction, ..best };
    }
    found
}

/// What a closed loop says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    /// How works change; `None` where they do not, beyond chance.
    pub by_load: Option<ByLoad>,
    /// Servers over the throughput is known to this share.
    pub deviation: f64,
}

impl Full {
    /// Of a fit with a mean work. `None` without a closed loop, or a limit of servers, or if it was not at full
    /// load.
    pub fn from_fit(
        found: &Search,
        closed: Option<ClosedLoop>,
        mean: f64,
        between: Between,
        bypass: f64,
    ) -> Option<Full> {
        let closed = closed?;
        if found.best.kind.lines() > 0 {
            // A closed loop waits for the fullest line, and leaves the others idle.
            return None;
        }
        let servers = f64::from(found.best.kind.servers?);
        let to = closed.throughput * (1.0 - bypass);
        let from = found.lines.iter().map(rate).fold(0.0, f64::max);
        let by_load = ByLoad { from, to, factor: servers / (to * mean) };
        if to < ABOVE * from || by_load.check().is_err() {
            return None;
        }
        let deviation = closed.deviation.max(LEAST);
        // Disturbances slow a run and never speed it up. So if the closed loop carried more than the fitted works allow,
        // the variation between runs does not explain the difference.
        let of_runs = if by_load.factor < 1.0 { 0.0 } else { between.deviation };
        let chance = (1.96 * deviation.hypot(of_runs)).max(BEYOND);
        let changes = by_load.factor.ln().abs() > chance;
        Some(Full { by_load: changes.then_some(by_load), deviation })
    }

    /// What the form of the interpolation makes uncertain.
    pub fn form(self) -> f64 {
        self.by_load.map_or(0.0, |by_load| FORM * by_load.factor.ln().abs())
    }

    /// That works change.
    pub fn warning(self) -> Option<String> {
        self.by_load.map(|ByLoad { from, to, factor }| {
            format!(
                "The mean work at full load, by a closed loop of {to:.4} requests/s, is {:.1} % {} than at the heaviest fitted \
                 load of {from:.4} requests/s. The model interpolates between them.",
                100.0 * (factor - 1.0).abs(),
                if factor > 1.0 { "more" } else { "less" }
            )
        })
    }
}

/// Numbers at which speeds are estimated, where enough requests began with so many inside.
const NUMBERS: [f64; 20] = [
    1.0, 2.0, 3.0, 4.0, 6.0, 9.0, 13.0, 19.0, 28.0, 41.0, 60.0, 90.0, 130.0, 190.0, 280.0, 410.0,
    600.0, 1e3, 2e3, 5e3,
];
/// The fewest requests of a number, and the smallest share of all.
const BEGUN_MIN: f64 = 100.0;
const BEGUN_SHARE: f64 = 0.002;
/// Kinds of servers that are looked at with a speed, and times outside of each.
const SLOWED_KINDS: usize = 3;
const OUTSIDES: usize = 7;
/// Works by their number explain what is the matter if at most this part of it is left.
const LEFT: f64 = 0.5;
/// Speeds that differ by less are one.
const DIFFERENT: f64 = 1.1;
/// Throughputs that are less than this part of the most, with more clients or more inside, fall.
const FALLS: f64 = 0.9;
/// A closed loop tells the speed beyond the numbers that were met by more than this.
const MET_BEYOND: f64 = 1.15;
/// Weights below this are left out.
const NEGLIGIBLE: f64 = 0.01;

/// The numbers with enough requests: of each that has too few the requests count for the next smaller one.
fn numbers_of(begun: &[u32]) -> Vec<f64> {
    let enough = BEGUN_MIN.max(BEGUN_SHARE * begun.len() as f64);
    let most = f64::from(begun.iter().copied().max().unwrap_or(1));
    let mut numbers: Vec<f64> = NUMBERS.into_iter().filter(|n| *n <= most).collect();
    loop {
        let mut weights = vec![0.0; numbers.len()];
        for number in begun {
            hats(&numbers, f64::from(*number)).iter().for_each(|(k, part)| weights[*k] += part);
        }
        match weights.iter().rposition(|weight| *weight < enough) {
            Some(few) if few > 0 => _ = numbers.remove(few),
            _ => return numbers,
        }
    }
}

/// A step under a kind and a time outside: when services began and ended.
struct Services<'a> {
    line: &'a Line,
    clock: Clock,
    starts: Vec<f64>,
    ends: Vec<f64>,
}

impl<'a> Services<'a> {
    fn new(line: &'a Line, kind: Kind, outside: f64) -> Services<'a> {
        let ends = line.ends(outside);
        let starts = line.starts(kind, outside.into());
        Services { clock: line.clock(outside), line, starts, ends }
    }

    /// The number present when each judged request began, in the order of arrival.
    fn numbers_at_begin(&self) -> impl Iterator<Item = u32> {
        let judged = self.starts.iter().zip(&self.line.counted).filter(|r| *r.1);
        judged.map(|(start, _)| self.clock.present(self.clock.place(*start)))
    }

    /// The equations of each block.
    fn equations(&self, kind: Kind, numbers: &[f64], blocks: usize) -> Vec<Equations> {
        let part = |present: u32, k: usize| {
            let hats = hats(numbers, f64::from(present.max(1)));
            hats.iter().filter(|hat| hat.0 == k).map(|hat| hat.1).sum::<f64>()
        };
        let integrals: Vec<_> = (0..numbers.len())
            .map(|k| self.clock.integral(|n| part(n, k) * kind.share(n)))
            .collect();
        let mut found = vec![Equations::new(numbers.len()); blocks];
        let span = self.line.span();
        for i in (0..self.starts.len()).filter(|i| self.line.counted[*i]) {
            let (from, to) = (self.starts[i], self.ends[i].max(self.starts[i]));
            let places = (self.clock.place(from), self.clock.place(to));
            let block = block_of(self.line.arrivals[i], span, blocks);
            let times = |integral| {
                let until = self.clock.value(integral, places.1, to);
                until - self.clock.value(integral, places.0, from)
            };
            let times: Vec<f64> = integrals.iter().map(times).collect();
            let began = f64::from(self.clock.present(places.0));
            for (k, part) in hats(numbers, began).into_iter().filter(|hat| hat.1 > 0.0) {
                found[block].begun[k] += part;
                let row = &mut found[block].times[k * numbers.len()..(k + 1) * numbers.len()];
                row.iter_mut().zip(&times).for_each(|(sum, time)| *sum += part * time);
            }
        }
        found
    }
}

/// What closed loops tell beyond the largest number met, ascending. `outside` seconds and `bypass` of the requests are not at the servers.
fn beyond(options: &Options, kind: Kind, outside: f64, bypass: f64, met: f64) -> Vec<Beyond> {
    let servers = f64::from(kind.servers.unwrap_or(u32::MAX));
    let mut all: Vec<Beyond> = Vec::new();
    let mut loops = options.closed_loops.clone();
    loops.sort_by_key(|at| at.clients);
    for at in loops.iter().filter(|at| at.throughput > 0.0) {
        let served = at.throughput * (1.0 - bypass);
        let away = at.throughput * (outside.max(0.0) + at.think_s);
        let number = (f64::from(at.clients) - away).max(1.0);
        let after = all.last().map_or(met, |last| last.number);
        if number > MET_BEYOND * after {
            all.push(Beyond { number, speed: served / number.min(servers) });
        }
    }
    all
}

/// Whether closed loops of more clients carry less.
pub(super) fn falls_with_clients(options: &Options) -> bool {
    let most = options.closed_loops.iter().max_by(|a, b| a.throughput.total_cmp(&b.throughput));
    let Some(most) = most else { return false };
    let less = |at: &ClosedAt| at.throughput < FALLS * most.throughput;
    options.closed_loops.iter().any(|at| at.clients > most.clients && less(at))
}

/// Whether the speeds are such that fewer requests leave while many are inside than at best.
pub(super) fn collapses(found: &Search) -> bool {
    let servers = found.best.kind.servers.unwrap_or(u32::MAX);
    found.congestion.as_ref().is_some_and(|congestion| {
        let slowdown = &congestion.slowdown;
        let best = slowdown.peak(servers);
        let most = f64::from(best.min(servers)) * slowdown.speed(f64::from(best));
        slowdown.least_departures(servers) < FALLS * most
    })
}

/// A kind and a time outside with the speeds that they have.
struct Candidate {
    point: Point,
    slowdown: Slowdown,
    falls: f64,
    numbers: Vec<f64>,
    beyond: Vec<Beyond>,
    equations: Vec<Vec<Equations>>,
}

/// The probability that servers of such speeds stay settled for as long as each load was seen: they did. `mean` and `scv`: of works.
fn chance_to_stay(
    lines: &[Line],
    slowdown: &Slowdown,
    servers: Option<u32>,
    mean: f64,
    scv: f64,
) -> f64 {
    let servers = servers.unwrap_or(u32::MAX);
    let escapes = |line: &Line| {
        let (from, to) = line.span();
        (to - from) / (mean * slowdown.escape_mean(rate(line) * mean, servers, scv))
    };
    (-lines.iter().filter(|line| line.open).map(escapes).sum::<f64>()).exp()
}

fn candidate(
    judge: &mut Judge,
    kind: Kind,
    outside: f64,
    bypass: f64,
    options: &Options,
) -> Option<Candidate> {
    judge.set_slowdown(None);
    let lines = judge.lines();
    let services: Vec<Services> =
        lines.iter().map(|line| Services::new(line, kind, outside)).collect();
    let begun: Vec<u32> = services.iter().flat_map(Services::numbers_at_begin).collect();
    let mut numbers = numbers_of(&begun);
    let (equations, speeds) = loop {
        let blocks = services.iter().zip(lines);
        let of = |(services, line): (&Services, &Line)| {
            services.equations(kind, &numbers, judge.blocks_of(line))
        };
        let found: Vec<Vec<Equations>> = blocks.map(of).collect();
        let mut all = Equations::new(numbers.len());
        found.iter().flatten().for_each(|block| all.add(block, 1.0));
        match all.speeds() {
            Some(speeds) => break (found, speeds),
            // Too few began with the largest.
            None if numbers.len() > 1 => _ = numbers.pop(),
            None => return None,
        }
    };
    drop(services);
    let met = numbers.last().copied().unwrap_or(1.0);
    let beyond = beyond(options, kind, outside, bypass, met);
    let mut speeds = speeds;
    speeds.extend(beyond.iter().map(|b| b.speed));
    numbers.extend(beyond.iter().map(|b| b.number));
    let speeds = Speeds::new(&numbers, speeds);
    let slowdown = speeds.slowdown(&numbers, 0.5 * speeds.falls)?;
    judge.set_slowdown(Some(slowdown.clone()));
    let point = judge.point(kind, outside.into());
    Some(Candidate { point, slowdown, falls: speeds.falls, numbers, beyond, equations })
}

/// How much speeds differ: the largest over the smallest.
fn spread(slowdown: &Slowdown, numbers: &[f64]) -> f64 {
    let speeds = || numbers.iter().map(|n| slowdown.speed(*n));
    speeds().fold(0.0, f64::max) / speeds().fold(f64::INFINITY, f64::min)
}

/// A search whose likeliest kind has a speed by the number inside; `None` if that does not explain what is the matter.
pub(super) fn search_with_speeds(plain: &Search, bypass: f64, options: &Options) -> Option<Search> {
    let reach = Reach::new(&plain.lines);
    let mut judge = Judge::of_lines(plain.lines.clone(), reach.median(), options);
    let kinds: Vec<Kind> = plain.kinds.iter().map(|p| p.kind).collect();
    let several = |kind: &Kind| kind.servers.is_some() && kind.discipline != Discipline::Lines;
    let kinds: Vec<Kind> = kinds.into_iter().filter(several).take(SLOWED_KINDS).collect();
    let mut best: Option<(Kind, Vec<Candidate>)> = None;
    let least = |all: &[Candidate]| {
        all.iter().map(|c| excess(&c.point.score)).fold(f64::INFINITY, f64::min)
    };
    for kind in kinds {
        let (low, high) = reach.range(kind, 0.0);
        let step = (high - low) / (OUTSIDES - 1) as f64;
        let own = plain.kinds.iter().find(|p| p.kind == kind).map(|p| p.outside.mean);
        let grid = (0..OUTSIDES).map(|i| low + step * i as f64).chain(own);
        let all: Vec<Candidate> = grid
            .filter_map(|outside| candidate(&mut judge, kind, outside, bypass, options))
            .collect();
        if !all.is_empty() && best.as_ref().is_none_or(|(_, known)| least(&all) < least(known)) {
            best = Some((kind, all));
        }
    }
    let (_, mut all) = best?;
    all.sort_by(|a, b| excess(&a.point.score).total_cmp(&excess(&b.point.score)));
    let (before, after) = (excess(&plain.best.score), excess(&all[0].point.score));
    let explains = after < LEFT * before || falls_with_clients(options);
    if !explains || spread(&all[0].slowdown, &all[0].numbers) < DIFFERENT {
        return None;
    }
    if !falls_with_clients(options) && !is_caused(plain, &all[0]) {
        return None;
    }
    // A server that is several times as fast with several inside is several servers.
    let fastest = all[0].numbers.iter().map(|n| all[0].slowdown.speed(*n)).fold(0.0, f64::max);
    if fastest > FASTER_MAX {
        return None;
    }
    all.retain(|Candidate { point, slowdown, .. }| {
        let (mean, scv) = moments(sum(point.blocks.iter().flatten()), 0.0);
        chance_to_stay(&plain.lines, slowdown, point.kind.servers, mean, scv) >= STAYED
    });
    // Replicates have the same numbers.
    let numbers = all.first()?.numbers.clone();
    all.retain(|c| c.equations[0].first().map(|e| e.begun.len()) == all_begun(&numbers, c));
    weigh(&mut all);
    Some(searched(plain, judge, all))
}

/// Whether the number inside causes what speeds by that number explain, as far as arrivals tell.
fn is_caused(plain: &Search, candidate: &Candidate) -> bool {
    let (kind, outside) = (candidate.point.kind, candidate.point.outside);
    let services = |line| Services::new(line, kind, outside.mean);
    let numbers: Vec<Vec<u32>> =
        plain.lines.iter().map(|line| services(line).numbers_at_begin().collect()).collect();
    let works: Vec<Vec<f64>> = plain.lines.iter().map(|line| line.works(kind, outside)).collect();
    let found = causal_share(&plain.lines, kind, &candidate.slowdown, &works, &numbers);
    !found.is_some_and(CausalShare::is_spurious)
}

/// A hypothesis by which a service stays settled at the loads that it carried with a smaller probability than this is none.
const STAYED: f64 = 0.01;

/// The most that company may speed a server up: batches and warm caches do by a tenth or a half, another server by one.
const FASTER_MAX: f64 = 1.6;

/// How many numbers of a candidate are those that requests began with, if it has as many in all as others.
fn all_begun(numbers: &[f64], candidate: &Candidate) -> Option<usize> {
    let same = candidate.numbers.len() == numbers.len();
    same.then(|| numbers.len() - candidate.beyond.len())
}

/// Gives candidates their weights, and leaves out those with hardly any.
fn weigh(all: &mut Vec<Candidate>) {
    let (least, phi) = (excess(&all[0].point.score), all[0].point.score.ratio().max(1.0));
    for candidate in all.iter_mut() {
        candidate.point.weight = (-(excess(&candidate.point.score) - least) / (2.0 * phi)).exp();
    }
    let sum: f64 = all.iter().map(|c| c.point.weight).sum();
    all.retain(|c| c.point.weight >= NEGLIGIBLE * sum);
    let sum: f64 = all.iter().map(|c| c.point.weight).sum();
    all.iter_mut().for_each(|c| c.point.weight /= sum);
}

/// The search with the candidates in the place of its likeliest kind.
fn searched(plain: &Search, mut judge: Judge, all: Vec<Candidate>) -> Search {
    let first = &all[0];
    judge.set_slowdown(Some(first.slowdown.clone()));
    let best = Point { weight: 1.0, ..first.point.clone() };
    let congestion = Congestion {
        slowdown: first.slowdown.clone(),
        falls: first.falls,
        numbers: first.numbers.clone(),
        beyond: first.beyond.clone(),
        points: all.iter().map(|c| c.equations.clone()).collect(),
    };
    let others = plain.kinds.iter().filter(|p| p.kind != best.kind);
    let others = others.map(|p| Point { weight: 0.0, ..p.clone() });
    Search {
        lines: judge.into_lines(),
        kinds: std::iter::once(best.clone()).chain(others).collect(),
        points: all.into_iter().map(|c| c.point).collect(),
        best,
        limited: plain.limited,
        replayed: plain.replayed,
        guesses_hits: plain.guesses_hits,
        congestion: Some(congestion),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 requests/s for 30 s, of works of 10 ms that take 1.6 times as long with ten inside, or longer and longer from two on.
    #[test]
    fn speeds_that_would_have_tipped_over_are_none() {
        let arrivals: Vec<f64> = (0..600).map(|i| 0.05 * f64::from(i)).collect();
        let departures = arrivals.iter().map(|at| at + 0.01).collect();
        let lines = [Line::from_times(arrivals, departures)];
        let chance = |numbers: Vec<f64>, speeds: Vec<f64>| {
            let slowdown = Slowdown::new(numbers, speeds, 0.0).unwrap();
            chance_to_stay(&lines, &slowdown, Some(1), 0.01, 1.0)
        };
        assert!(chance(vec![1.0, 10.0], vec![1.0, 0.6]) > 0.999);
        assert!(chance(vec![1.0, 2.0, 3.0], vec![1.0, 0.1, 0.05]) < STAYED);
    }
}
