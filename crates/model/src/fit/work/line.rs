//! The times of a step in order, and the works that follow from them.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;

use crate::error::{Error, check};
use crate::queue::{Discipline, Slowdown};
use ground::window::{Operation, Outcome};

use super::clock::Clock;
use super::outside::Outside;
use super::partition::Partition;
use super::ticks::Ticks;
use super::times::{Request, Times};

/// A hypothesis but for the time outside: how servers are given to requests, and how many; `None`
/// without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub discipline: Discipline,
    pub servers: Option<u32>,
}

impl Kind {
    /// Separate lines; 0 of one line.
    pub fn lines(self) -> u32 {
        if self.discipline == Discipline::Lines { self.servers.unwrap_or(0) } else { 0 }
    }

    /// The part of a server that each request in service has, with so many present.
    pub fn share(self, present: u32) -> f64 {
        match (self.discipline, self.servers) {
            (Discipline::Shared, Some(m)) => (f64::from(m) / f64::from(present.max(1))).min(1.0),
            _ => 1.0,
        }
    }

    /// The line of each request; empty of one line.
    pub fn places(self, line: &Line) -> Cow<'_, [u32]> {
        if self.lines() > 0 { line.places(self.lines()) } else { Cow::Borrowed(&[]) }
    }
}

/// A step: the requests that used the servers, in the order of arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub arrivals: Vec<f64>,
    pub departures: Vec<f64>,
    /// Whether a request is judged.
    pub counted: Vec<bool>,
    /// What a request did, and the bytes of its object (0: unknown).
    pub what: Vec<What>,
    /// What decides in which line a request waits; 0: unknown.
    pub keys: Vec<u32>,
    /// The lines that keys may be in, for separate lines of these numbers.
    pub partitions: Arc<Vec<Partition>>,
    /// Indices in the order of departure.
    pub by_end: Vec<u32>,
    /// Responses of judged requests that passed the servers by.
    pub bypassed: Vec<f64>,
    /// Whether arrivals do not wait for replies.
    pub open: bool,
    /// Variance that the resolution adds to a work, s².
    pub blur: f64,
    /// The ticks of the clock that times were read from.
    pub ticks: Ticks,
    /// The speed of the servers by the number present, if that is part of the hypothesis.
    pub slowdown: Option<Slowdown>,
    /// The line of each request by each partition.
    places: Vec<Vec<u32>>,
    /// For each request a value of the standard normal law, drawn when it is first wanted.
    normals: OnceLock<Vec<f64>>,
}

/// Of how many times outside works have the variance after they were made alike, where processors are shared.
const EVEN: f64 = 1.25;

/// The seed of the draws of times within their ticks.
const DRAW: u64 = 0x7ac5;

/// What a request did, and the bytes of its object.
pub(super) type What = (Operation, u64);

/// Arrival and departure, whether it is judged, whether it is known to have been a hit, what it did, and
/// its key.
type Timed = (f64, f64, bool, bool, What, u32);

/// A recording that ends in the middle misses requests that came before its end: those that may
/// have met them are not judged.
fn unjudge_end(all: &mut [Timed]) {
    let mut responses: Vec<f64> = all.iter().map(|r| r.1 - r.0).collect();
    let middle = responses.len() / 2;
    if responses.is_empty() {
        return;
    }
    let median = *responses.select_nth_unstable_by(middle, f64::total_cmp).1;
    let end = all.iter().map(|r| r.1).fold(f64::NEG_INFINITY, f64::max) - 8.0 * median;
    all.iter_mut().filter(|r| r.1 > end).for_each(|r| r.2 = false);
}

impl Line {
    /// The first `most` requests of a step.
    pub fn new(times: &Times, most: usize) -> Result<Line, Error> {
        let (clock, coarse) = (times.clock_s, times.resolution_s);
        for (what, value) in [("the clock's resolution", clock), ("the resolution", coarse)] {
            check(what, value, 0.0..=1e6, "0 to a million seconds")?;
        }
        let ticks =
            Ticks { clock_s: clock, resolution_s: coarse, is_timed_apart: times.is_timed_apart };
        // Failures do no work, and most refusals never reach a server.
        let mut answered: Vec<&Request> =
            times.requests.iter().filter(|r| r.outcome != Outcome::Error).collect();
        for r in &answered {
            check("a recorded time", r.arrival_s, -1e12..=1e12, "a finite number of seconds")?;
            check("a recorded time", r.departure_s, r.arrival_s..=1e12, "not before its arrival")?;
        }
        // By all that is known of a request, so that lines of a log give the same in any order.
        answered.sort_by(|a, b| {
            let by_time = a.departure_s.total_cmp(&b.departure_s);
            let by_time = by_time.then(a.arrival_s.total_cmp(&b.arrival_s));
            let rest = |r: &Request| (r.key, r.bytes, r.operation.as_str(), r.outcome.as_str());
            by_time.then_with(|| rest(a).cmp(&rest(b))).then(a.counted.cmp(&b.counted))
        });
        let read: Vec<(f64, f64)> = answered.iter().map(|r| (r.arrival_s, r.departure_s)).collect();
        let drawn = ticks.draw(&read, DRAW).into_iter().zip(answered);
        let timed = |((arrival, departure), r): ((f64, f64), &Request)| {
            let hit = r.outcome == Outcome::Memory;
            (arrival, departure, r.counted, hit, (r.operation, r.bytes), r.key)
        };
        let mut all: Vec<Timed> = drawn.map(timed).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        if all.len() > most {
            // What comes later is not known, so those that met it are not judged.
            let cut = all[most].0;
            all.truncate(most);
            all.iter_mut().filter(|r| r.1 > cut).for_each(|r| r.2 = false);
        }
        unjudge_end(&mut all);
        let mut line = Line { open: times.open, blur: ticks.blur(), ticks, ..Line::default() };
        for (arrival, departure, counted, hit, what, key) in all {
            if hit {
                line.bypassed.extend(counted.then_some(departure - arrival));
                continue;
            }
            line.arrivals.push(arrival);
            line.departures.push(departure);
            line.counted.push(counted);
            line.what.push(what);
            line.keys.push(key);
        }
        line.order();
        Ok(line)
    }

    /// Requests in the order of arrival, all of them judged.
    #[cfg(test)]
    pub fn from_times(arrivals: Vec<f64>, departures: Vec<f64>) -> Line {
        let counted = vec![true; arrivals.len()];
        let what = vec![(Operation::Get, 0); arrivals.len()];
        let keys = vec![0; arrivals.len()];
        let mut line =
            Line { arrivals, departures, counted, what, keys, open: true, ..Line::default() };
        line.order();
        line
    }

    fn order(&mut self) {
        let mut order: Vec<u32> = (0..self.departures.len() as u32).collect();
        order.sort_by(|a, b| self.departures[*a as usize].total_cmp(&self.departures[*b as usize]));
        self.by_end = order;
        self.place();
    }

    /// Sets the lines that keys may be in.
    pub fn set_partitions(&mut self, partitions: Arc<Vec<Partition>>) {
        self.partitions = partitions;
        self.place();
    }

    fn place(&mut self) {
        let of = |p: &Partition| self.keys.iter().map(|key| p.line(*key)).collect();
        self.places = self.partitions.iter().map(of).collect();
    }

    fn normals(&self) -> &[f64] {
        self.normals.get_or_init(|| {
            let mut random = StdRng::seed_from_u64(0x0075_1de0);
            self.departures.iter().map(|_| random.sample(StandardNormal)).collect()
        })
    }

    /// Without the requests that were answered within a time: they passed the servers by, but for those for which
    /// `stays` says that they did not.
    pub fn without(&self, within_s: f64, mut stays: impl FnMut(usize) -> bool) -> Line {
        let (open, blur, ticks) = (self.open, self.blur, self.ticks);
        let mut line = Line { open, blur, ticks, ..Line::default() };
        line.partitions = Arc::clone(&self.partitions);
        line.bypassed.clone_from(&self.bypassed);
        for i in 0..self.arrivals.len() {
            let response = self.departures[i] - self.arrivals[i];
            if response <= within_s && !stays(i) {
                line.bypassed.extend(self.counted[i].then_some(response));
                continue;
            }
            line.arrivals.push(self.arrivals[i]);
            line.departures.push(self.departures[i]);
            line.counted.push(self.counted[i]);
            line.what.push(self.what[i]);
            line.keys.push(self.keys[i]);
        }
        line.order();
        line
    }

    /// The first requests, whole but fewer.
    pub fn first(&self, most: usize) -> Line {
        if self.arrivals.len() <= most {
            return self.clone();
        }
        let cut = self.arrivals[most];
        let departures = self.departures[..most].to_vec();
        let judged = |(counted, end): (&bool, &f64)| *counted && *end <= cut;
        let mut line = Line {
            arrivals: self.arrivals[..most].to_vec(),
            counted: self.counted.iter().zip(&departures).map(judged).collect(),
            what: self.what[..most].to_vec(),
            keys: self.keys[..most].to_vec(),
            partitions: Arc::clone(&self.partitions),
            departures,
            open: self.open,
            blur: self.blur,
            ticks: self.ticks,
            slowdown: self.slowdown.clone(),
            ..Line::default()
        };
        line.order();
        line
    }

    /// The same requests with other arrivals and departures.
    pub fn retimed(&self, times: &[(f64, f64)]) -> Line {
        let mut order: Vec<usize> = (0..times.len()).collect();
        order.sort_by(|a, b| times[*a].0.total_cmp(&times[*b].0));
        let mut line = Line {
            arrivals: order.iter().map(|i| times[*i].0).collect(),
            departures: order.iter().map(|i| times[*i].1).collect(),
            counted: order.iter().map(|i| self.counted[*i]).collect(),
            what: order.iter().map(|i| self.what[*i]).collect(),
            keys: order.iter().map(|i| self.keys[*i]).collect(),
            partitions: Arc::clone(&self.partitions),
            open: self.open,
            blur: self.blur,
            ticks: self.ticks,
            slowdown: self.slowdown.clone(),
            ..Line::default()
        };
        line.order();
        line
    }

    /// Judged requests.
    pub fn counted(&self) -> usize {
        self.counted.iter().filter(|c| **c).count()
    }

    /// Seconds from the first judged arrival to the last.
    pub fn span(&self) -> (f64, f64) {
        let judged = || self.arrivals.iter().zip(&self.counted).filter(|r| *r.1).map(|r| *r.0);
        (judged().next().unwrap_or(0.0), judged().next_back().unwrap_or(0.0))
    }

    /// When the k-th departure from the servers was, if `outside` is spent after it.
    pub fn end(&self, k: usize, outside: f64) -> f64 {
        self.departures[self.by_end[k] as usize] - outside
    }

    /// How many requests each met at the servers.
    pub fn met(&self, outside: f64) -> Vec<u32> {
        let mut left = 0;
        let of = |(i, arrival): (usize, &f64)| {
            while left < i && self.end(left, outside) <= *arrival {
                left += 1;
            }
            (i - left) as u32
        };
        self.arrivals.iter().enumerate().map(of).collect()
    }

    /// How many came within a time after each.
    pub fn followers(&self, within_s: f64) -> Vec<u32> {
        let mut next = 0;
        let of = |(i, arrival): (usize, &f64)| {
            next = next.max(i + 1);
            while next < self.arrivals.len() && self.arrivals[next] <= arrival + within_s {
                next += 1;
            }
            (next - i - 1) as u32
        };
        self.arrivals.iter().enumerate().map(of).collect()
    }

    /// The work of each request. 0 where a reply was faster than a constant time outside.
    pub fn works(&self, kind: Kind, outside: Outside) -> Vec<f64> {
        if let Some(slowdown) = &self.slowdown {
            return self.slowed(kind, outside.mean, slowdown);
        }
        match (kind.servers, kind.discipline) {
            (Some(m), Discipline::Shared) => self.shared(f64::from(m), outside).0,
            _ => self.since(&self.starts(kind, outside), outside),
        }
    }

    /// When each request left the servers, in the order of arrival.
    pub fn ends(&self, outside: f64) -> Vec<f64> {
        let each = self.departures.iter().zip(&self.arrivals);
        each.map(|(departure, arrival)| (departure - outside).max(*arrival)).collect()
    }

    /// When the number of requests at the servers changes.
    pub fn clock(&self, outside: f64) -> Clock {
        let mut ends = self.ends(outside);
        ends.sort_by(f64::total_cmp);
        Clock::new(&self.arrivals, &ends)
    }

    /// The works where the speed depends on the number present, in seconds of the first speed.
    fn slowed(&self, kind: Kind, outside: f64, slowdown: &Slowdown) -> Vec<f64> {
        let clock = self.clock(outside);
        let speed = |n: u32| slowdown.speed(f64::from(n.max(1))) * kind.share(n);
        let done = clock.integral(speed);
        let at = |time: f64| clock.value(&done, clock.place(time), time);
        let starts = self.starts(kind, outside.into());
        let each = self.ends(outside).into_iter().zip(starts);
        each.map(|(end, start)| (at(end) - at(start)).max(0.0)).collect()
    }

    /// The works of requests that began at these times.
    fn since(&self, starts: &[f64], outside: Outside) -> Vec<f64> {
        let least = if outside.cv > 0.0 { f64::NEG_INFINITY } else { 0.0 };
        let each = self.departures.iter().zip(starts);
        each.map(|(departure, from)| (departure - outside.mean - from).max(least)).collect()
    }

    /// The work of each request, all with one law: those that did not wait vary by the time outside once, those
    /// that waited twice, because when they began is known from another's departure. So a further time outside is
    /// drawn for each that did not wait. Where processors are shared each gets what it lacks of [`EVEN`] variances.
    pub fn evened(&self, kind: Kind, outside: Outside) -> Vec<f64> {
        if outside.cv <= 0.0 {
            return self.works(kind, outside);
        }
        match (kind.servers, kind.discipline) {
            (None, _) => return self.works(kind, outside),
            (Some(m), Discipline::Shared) => {
                let (mut works, shaken) = self.shared(f64::from(m), outside);
                for ((work, shaken), normal) in works.iter_mut().zip(shaken).zip(self.normals()) {
                    *work -= (EVEN - shaken).max(0.0).sqrt() * outside.beyond(*normal);
                }
                return works;
            }
            _ => {}
        }
        let starts = self.starts(kind, outside);
        let mut works = self.since(&starts, outside);
        let normals = self.normals();
        for (i, work) in
            works.iter_mut().enumerate().filter(|(i, _)| starts[*i] <= self.arrivals[*i])
        {
            *work -= outside.beyond(normals[i]);
        }
        works
    }

    /// Of how many times outside works have the variance, summed over the judged requests.
    pub fn shaken(&self, kind: Kind, outside: Outside) -> f64 {
        let judged = (0..self.arrivals.len()).filter(|i| self.counted[*i]);
        if let (Some(m), Discipline::Shared) = (kind.servers, kind.discipline) {
            let shaken = self.shared(f64::from(m), outside).1;
            return judged.map(|i| shaken[i]).sum();
        }
        let starts = self.starts(kind, outside);
        judged.map(|i| if starts[i] > self.arrivals[i] { 2.0 } else { 1.0 }).sum()
    }

    /// When the work on each request began, of servers that take one at a time.
    pub fn starts(&self, kind: Kind, outside: Outside) -> Vec<f64> {
        let free = match (kind.servers, kind.discipline) {
            (None, _) | (_, Discipline::Shared) => return self.arrivals.clone(),
            (Some(m), Discipline::Lines) => {
                self.free_by_place(&self.places(m), m as usize, outside)
            }
            (Some(1), _) => self.free_by_place(&[], 1, outside),
            (Some(m), _) => {
                let before = |i: usize| i.checked_sub(m as usize);
                let free = |k| self.end(k, outside.mean);
                (0..self.arrivals.len())
                    .map(|i| before(i).map_or(f64::NEG_INFINITY, free))
                    .collect()
            }
        };
        free.iter().zip(&self.arrivals).map(|(free, arrival)| free.max(*arrival)).collect()
    }

    /// When the server of each request was free, one in each place. With a constant time outside it takes those that
    /// wait in any order: a request has begun when the one that left before it left. Real servers swap requests: new
    /// connections are polled after old ones, and replies are read in batches. If the time outside varies, the
    /// order in which replies come is not the server's, which is taken for that of arrival.
    fn free_by_place(&self, places: &[u32], count: usize, outside: Outside) -> Vec<f64> {
        let mut all = vec![f64::NEG_INFINITY; self.arrivals.len()];
        let mut free = vec![f64::NEG_INFINITY; count.max(1)];
        for k in 0..all.len() {
            let i = if outside.cv > 0.0 { k } else { self.by_end[k] as usize };
            let free = &mut free[places.get(i).map_or(0, |place| *place as usize)];
            all[i] = *free;
            *free = self.departures[i] - outside.mean;
        }
        all
    }

    /// Keys in this many lines.
    pub fn partition(&self, lines: u32) -> Option<&Partition> {
        self.partitions.iter().find(|p| p.lines == lines)
    }

    /// How many requests each met in the line in which it waits.
    pub fn met_own(&self, kind: Kind, outside: f64) -> Vec<u32> {
        match kind.lines() {
            0 => self.met(outside),
            lines => self.met_in_line(lines, outside),
        }
    }

    /// The line of each request, of this many.
    pub fn places(&self, lines: u32) -> Cow<'_, [u32]> {
        let known = self.partitions.iter().zip(&self.places).find(|(p, _)| p.lines == lines);
        match known {
            Some((_, places)) => Cow::Borrowed(places),
            None => Cow::Owned(self.keys.iter().map(|key| key % lines.max(1)).collect()),
        }
    }

    /// How many requests each met in its own line.
    pub fn met_in_line(&self, lines: u32, outside: f64) -> Vec<u32> {
        let places = self.places(lines);
        let mut inside = vec![0; lines.max(1) as usize];
        let mut left = 0;
        // A reply faster than the time outside was never at the servers.
        let stays = |i: usize| self.departures[i] - outside > self.arrivals[i];
        let of = |(i, arrival): (usize, &f64)| {
            while left < self.by_end.len() && self.end(left, outside) <= *arrival {
                let gone = self.by_end[left] as usize;
                inside[places[gone] as usize] -= u32::from(stays(gone));
                left += 1;
            }
            let inside = &mut inside[places[i] as usize];
            let met = *inside;
            *inside += u32::from(stays(i));
            met
        };
        self.arrivals.iter().enumerate().map(of).collect()
    }

    /// Works where m processors are shared, and of how many times outside each has the variance: of its own
    /// departure at the rate at which it was then served, and of those of others by what each changed that rate by.
    fn shared(&self, m: f64, outside: Outside) -> (Vec<f64>, Vec<f64>) {
        let n = self.arrivals.len();
        let (mut works, mut given) = (vec![0.0; n], vec![f64::NAN; n]);
        let (mut now, mut total, mut inside) = (f64::NEG_INFINITY, 0.0, 0.0f64);
        let (mut arrived, mut left) = (0, 0);
        let (mut shaken, mut changed) = (vec![1.0; n], 0.0);
        let rate = |inside: f64| (m / inside.max(1.0)).min(1.0);
        while left < n {
            let end = self.end(left, outside.mean);
            let comes = arrived < n && self.arrivals[arrived] < end;
            let at = if comes { self.arrivals[arrived] } else { end };
            if inside > 0.0 && at > now {
                total += (at - now) * (m / inside).min(1.0);
            }
            now = now.max(at);
            let i = if comes { arrived } else { self.by_end[left] as usize };
            // A reply faster than the time outside was never at the servers.
            match (comes, given[i].is_nan()) {
                (true, true) => {
                    (given[i], inside) = (total, inside + 1.0);
                    shaken[i] = -changed;
                }
                (false, false) => {
                    (works[i], inside) = (total - given[i], inside - 1.0);
                    let own = rate(inside + 1.0);
                    shaken[i] += changed + own * own;
                    changed += (rate(inside) - own).powi(2);
                }
                (false, true) => {
                    given[i] = f64::INFINITY;
                    if outside.cv > 0.0 {
                        works[i] = end - self.arrivals[i];
                    }
                }
                (true, false) => {}
            }
            if comes {
                arrived += 1;
            } else {
                left += 1;
            }
        }
        (works, shaken)
    }
}
