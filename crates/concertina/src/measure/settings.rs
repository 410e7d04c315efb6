//! What is measured: the loads of a sweep, or a goal that loads are chosen for, and the precision and the time for them.

use std::str::FromStr;

use anyhow::{bail, ensure};

use super::offered::OfferedLoad;
use load::{Arrivals, Length, Load, Plan, Think};

/// The loads of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub enum Sweep {
    /// Open loops of these rates (requests/s).
    Rates(Vec<f64>),
    /// Closed loops of these numbers of clients.
    Clients(Vec<usize>),
    /// Open loops at these shares of the saturation, which is searched for with at most this many
    /// clients.
    Shares(Vec<f64>, usize),
}

/// The loads to measure, and the required precision.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The parameters that all steps share: the service, the keys, the warm-up, the length of a
    /// repetition, the run folder. The load comes from the sweep.
    pub plan: Plan,
    /// The loads.
    pub sweep: Sweep,
    /// The distribution of gaps between arrivals of open loops.
    pub arrivals: Arrivals,
    /// Mean think time of closed loops, and the distribution of think times.
    pub think_ms: f64,
    /// The distribution of think times.
    pub think: Think,
    /// The smallest number of repetitions of every point.
    pub repeat: usize,
    /// Target half width of the 95 % interval of mean and quantile, relative to the value.
    pub half_width: f64,
    /// The quantile, 0 to 1.
    pub quantile: f64,
    /// The largest time for measuring, seconds, without the fill.
    pub budget_s: f64,
    /// How well a prediction is to be known, instead of the points: loads are then chosen for it.
    pub until: Option<Until>,
}

impl Settings {
    pub(super) fn load(&self, at: OfferedLoad) -> Load {
        match at {
            OfferedLoad::Rate(rate) => Load::Open { rates: vec![rate], arrivals: self.arrivals },
            OfferedLoad::Clients(clients) => {
                Load::Closed { clients: vec![clients], think_ms: self.think_ms, think: self.think }
            }
        }
    }

    /// Planned length of a step, including its warm-up, seconds.
    pub(super) fn step_s(&self) -> f64 {
        let seconds = |length: Option<Length>| match length {
            Some(Length::Seconds(s)) => s,
            _ => 0.0,
        };
        seconds(self.plan.warmup) + seconds(self.plan.length)
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        let share = |x: f64| x > 0.0 && x < 1.0;
        ensure!(self.repeat >= 1, "--repeat 0: measure every point at least once");
        ensure!(share(self.half_width), "invalid half width {}: 0 to 1 expected", self.half_width);
        ensure!(share(self.quantile), "invalid quantile {}: 0 to 1 expected", self.quantile);
        ensure!(
            self.budget_s.is_finite() && self.budget_s > 0.0,
            "invalid budget {} s: above 0 expected",
            self.budget_s
        );
        let points = match &self.sweep {
            Sweep::Rates(rates) => rates.len(),
            Sweep::Clients(clients) => clients.len(),
            Sweep::Shares(shares, _) => {
                let fine = |x: &&f64| !(x.is_finite() && **x > 0.0 && **x <= 2.0);
                if let Some(wrong) = shares.iter().find(fine) {
                    bail!(
                        "invalid share {wrong} of the saturation: above 0 and at most 2 expected"
                    );
                }
                shares.len()
            }
        };
        ensure!(points > 0, "no load given");
        let (step_s, points) = (self.step_s(), points as f64);
        ensure!(
            points * step_s <= self.budget_s,
            "{points} points of {step_s} s each (warm-up included) take longer than the budget of {} s: give \
             a larger --budget, fewer points, or a shorter --duration",
            self.budget_s
        );
        let taken = self.plan.out.join("run.toml").exists();
        ensure!(!taken, "{} already contains a run; name another folder", self.plan.out.display());
        Ok(())
    }
}

/// How well the shares of responses within some times are to be known at a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Until {
    /// Half the width of their 95 % intervals, points.
    pub points: f64,
    /// The load.
    pub at: Place,
    /// The times, seconds. Without any: half a mean work to eight.
    pub within_s: Vec<f64>,
}

/// A load to know about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// A share of the saturation, 0 to 1.
    Share(f64),
    /// Requests/s.
    Rate(f64),
}

impl FromStr for Until {
    type Err = String;

    /// Reads `±2 points at 90 %` or `2 points at 150/s`.
    fn from_str(text: &str) -> Result<Until, String> {
        let wrong = || {
            format!(
                "invalid goal `{text}`: write `±2 points at 90 %` (of the saturation) or `±2 points at 150/s`"
            )
        };
        let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let plain =
            ["±", "+-", "+/-"].iter().find_map(|sign| plain.strip_prefix(sign)).unwrap_or(&plain);
        let (points, place) = plain.split_once("at").ok_or_else(wrong)?;
        let points =
            points.strip_suffix("points").or(points.strip_suffix("point")).ok_or_else(wrong)?;
        let number = |text: &str, most: f64| {
            text.parse::<f64>().ok().filter(|n| *n > 0.0 && *n < most).ok_or_else(wrong)
        };
        let points = number(points, 50.0)?;
        let at = match (place.strip_suffix('%'), place.strip_suffix("/s")) {
            (Some(percent), _) => Place::Share(number(percent, 100.0)? / 100.0),
            (_, Some(rate)) => Place::Rate(number(rate, 1e12)?),
            _ => return Err(wrong()),
        };
        Ok(Until { points, at, within_s: Vec::new() })
    }
}
