//! Separate lines by key.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp};

use super::times::REQUESTS_MAX;
use crate::Model;
use crate::queue::Discipline;

use super::line::{Kind, Line};
use super::lines::partitions;
use super::tests::{exponential, in_line, step};
use super::*;

const MEAN: f64 = 0.008;

/// A request: when it came and left, its key, and its work.
type Served = (f64, f64, u32, f64);

/// Keys of which the popularity falls as rank^−`skew`, and the line of each.
#[derive(Clone, Copy)]
struct Keys {
    keys: u32,
    lines: u32,
    skew: f64,
}

impl Keys {
    fn line(self, key: u32) -> usize {
        ((key.wrapping_mul(2_654_435_761) >> 8) % self.lines) as usize
    }

    fn draw(self, random: &mut StdRng) -> u32 {
        if self.skew == 0.0 {
            return random.random_range(1..=self.keys);
        }
        let weight = |key: u32| f64::from(key).powf(-self.skew);
        let all: f64 = (1..=self.keys).map(weight).sum();
        let mut left = random.random::<f64>() * all;
        for key in 1..self.keys {
            left -= weight(key);
            if left <= 0.0 {
                return key;
            }
        }
        self.keys
    }

    /// Exponential works of [`MEAN`], and so much outside.
    fn run(self, rate: f64, n: usize, outside: f64, seed: u64) -> Vec<Served> {
        let mut random = StdRng::seed_from_u64(seed);
        let (gaps, mut law) = (Exp::new(rate).unwrap(), exponential(MEAN));
        let (mut now, mut free) = (0.0, vec![0.0f64; self.lines as usize]);
        let each = (0..n).map(|_| {
            now += gaps.sample(&mut random);
            let (key, work) = (self.draw(&mut random), law(&mut random));
            let free = &mut free[self.line(key)];
            *free = free.max(now) + work;
            (now, *free + outside, key, work)
        });
        each.collect()
    }
}

/// A step in which keys are known, as `of` says.
fn keyed(all: &[Served], of: impl Fn(u32) -> u32) -> Step {
    let times: Vec<(f64, f64)> = all.iter().map(|r| (r.0, r.1)).collect();
    let mut step = step("", &times);
    let requests = &mut step.times.as_mut().unwrap().requests;
    requests.iter_mut().zip(all).for_each(|(request, served)| request.key = of(served.2));
    step
}

fn share(all: &[Served], t: f64) -> f64 {
    all.iter().filter(|r| r.1 - r.0 <= t).count() as f64 / all.len() as f64
}

/// Which keys wait in one line is found, whatever their lines are called, and the works are the drawn ones.
#[test]
fn keys_of_a_line_are_found_and_works_are_the_drawn_ones() {
    for (lines, keys) in [(2, 40), (3, 60), (5, 200)] {
        let keys = Keys { keys, lines, skew: 0.0 };
        let rate = 0.5 * f64::from(lines) / MEAN;
        let run = keys.run(rate, 20_000, 0.002, 3);
        let times = keyed(&run, |key| key).times.unwrap();
        let mut line = Line::new(&times, REQUESTS_MAX).unwrap();
        let found = partitions(std::slice::from_ref(&line));
        let counts: Vec<u32> = found.iter().map(|p| p.lines).collect();
        assert!(counts.contains(&lines) && !counts.contains(&(lines - 1)), "{lines}: {counts:?}");
        line.set_partitions(std::sync::Arc::new(found));
        let kind = Kind { discipline: Discipline::Lines, servers: Some(lines) };
        let works = line.works(kind, 0.002.into());
        let off = works.iter().zip(&run).filter(|(work, served)| (*work - served.3).abs() > 1e-9);
        assert_eq!(off.count(), 0, "{lines}");
        // The naive twin counts those of the same line that have not left; some replies are faster than the longest
        // time outside.
        for outside in [-0.001, 0.002, 0.006] {
            let met = line.met_in_line(lines, outside);
            for i in (0..run.len()).step_by(53) {
                let same = |r: &&Served| keys.line(r.2) == keys.line(run[i].2);
                let inside = |r: &&Served| r.1 - outside > run[i].0;
                let naive = run[..i].iter().filter(same).filter(inside).count();
                assert_eq!(met[i] as usize, naive, "{outside} {i}");
            }
        }
    }
}

/// Fitted at up to 56 % of the saturation of the fullest line, judged beyond.
#[test]
fn separate_lines_are_found_and_loads_beyond_are_predicted() {
    // Equal lines; lines with unequal shares; and lines that the record names.
    let even = Keys { keys: 60, lines: 3, skew: 0.0 };
    let uneven = Keys { keys: 120, lines: 2, skew: 0.8 };
    let named = Keys { keys: 90, lines: 4, skew: 0.0 };
    let (mut rows, mut inside) = (0, 0);
    for (keys, names) in [(even, false), (uneven, false), (named, true)] {
        let run = keys.run(100.0, 200_000, 0.0, 1);
        let of = |line: u32| run.iter().filter(|r| keys.line(r.2) == line as usize).count();
        let fullest = (0..keys.lines).map(of).max().unwrap() as f64 / run.len() as f64;
        let saturation = 1.0 / (MEAN * fullest);
        let key = |key: u32| if names { 7 + keys.line(key) as u32 } else { key };
        let steps: Vec<Step> = [(0.24, 4), (0.4, 5), (0.56, 6)]
            .map(|(rho, seed)| keyed(&keys.run(rho * saturation, 9_000, 0.001, seed), key))
            .to_vec();
        let fitted = work(&steps, None, &Options::default()).unwrap();
        let first = &fitted.hypotheses[0];
        println!(
            "{:?} {:?}",
            fitted.hypotheses.iter().map(|h| (h.title(), h.score)).collect::<Vec<_>>(),
            fitted.known
        );
        assert_eq!((first.discipline, first.servers), (Discipline::Lines, Some(keys.lines)));
        assert!(fitted.misfit.is_none() && first.score < 3.0, "{first:?}");
        assert!((first.outside.value - 0.001).abs() < 3e-4, "{first:?}");
        assert!((first.work.value / MEAN - 1.0).abs() < 0.03, "{first:?}");
        let found = fitted.model.node().unwrap().saturation();
        assert!((found / saturation - 1.0).abs() < 0.04, "{found} {saturation}");
        let distinct = if names { keys.lines } else { keys.keys } as usize;
        assert_eq!(fitted.lines.len(), distinct);
        for rho in [0.68, 0.82] {
            let judged = keys.run(rho * saturation, 200_000, 0.001, 9);
            for t in [0.01, 0.02, 0.05] {
                let (measured, p) =
                    (share(&judged, t), fitted.model.within(rho * saturation, t).unwrap());
                println!(
                    "{} {rho} {t}: {measured:.3} {:.3} [{:.3}, {:.3}]",
                    keys.lines, p.value, p.low, p.high
                );
                assert!((p.value - measured).abs() < 0.03, "{rho} {t}: {measured} {p:?}");
                rows += 1;
                inside += u32::from((p.low - 0.003..=p.high + 0.003).contains(&measured));
            }
        }
        let text = fitted.model.to_toml().unwrap();
        let again = Model::from_toml(&text).unwrap();
        assert_eq!((again.devices, again.classes), (fitted.model.devices, fitted.model.classes));
        if !names {
            let goal = Goal { rate: 0.8 * saturation, within_s: vec![0.02] };
            let next = prospects(
                &steps,
                &work(&steps, None, &Options::default()).unwrap(),
                &[0.6 * saturation],
                60.0,
                &goal,
                &Options::default(),
            );
            let next = next.unwrap()[0].half_width_points;
            // Sixty more replicates than those of the model scatter by some tenths of a point.
            let now = half_width_points(&again_model(&text), &goal).unwrap();
            assert!(next < now + 0.5, "{next}, now {now}");
        }
    }
    println!("{inside} of {rows} inside");
    assert!(10 * inside >= 9 * rows, "{inside} of {rows}");
}

fn again_model(text: &str) -> Model {
    Model::from_toml(text).unwrap()
}

/// Services that have no lines by key are not taken for such, though keys are known.
#[test]
fn services_without_lines_are_not_taken_for_lines() {
    let mut random = StdRng::seed_from_u64(8);
    for (discipline, servers) in
        [(Discipline::Fifo, 1), (Discipline::Fifo, 2), (Discipline::Fifo, 4)]
    {
        let steps: Vec<Step> = [0.24, 0.4, 0.56]
            .map(|rho| {
                let rate = rho * f64::from(servers) / MEAN;
                let all =
                    in_line(servers as usize, rate, 8_000, &mut exponential(MEAN), &mut random);
                let all: Vec<Served> =
                    all.iter().map(|r| (r.0, r.1, random.random_range(1..50), 0.0)).collect();
                keyed(&all, |key| key)
            })
            .to_vec();
        let fitted = work(&steps, None, &Options::default()).unwrap();
        let first = &fitted.hypotheses[0];
        assert_eq!((first.discipline, first.servers), (discipline, Some(servers)), "{first:?}");
        assert!(fitted.hypotheses.iter().all(|h| h.discipline != Discipline::Lines));
        assert!(fitted.lines.is_empty());
    }
}
