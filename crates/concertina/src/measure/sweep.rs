//! Measures each point as often as requested, then those with wide intervals again and again.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use super::budget::Budget;
use super::point::Repeated;
use super::settings::Settings;
use load::{Progress, Session};
use record::clock;

/// Why the measurement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The intervals of all steady points are narrow enough.
    Narrow,
    /// No point was steady, and only steady points have intervals.
    Unsteady,
    /// The prediction is known as well as was wanted.
    Known,
    /// The budget was spent.
    Budget,
    /// The user interrupted it; the measurements so far are kept.
    Interrupted,
    /// Every reply to the search was 404.
    Missing,
}

/// Measures every point as often as requested, then those with wide intervals again and again.
pub(super) fn sweep(
    settings: &Settings,
    session: &mut Session,
    points: &mut [Repeated],
    budget: &mut Budget,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<Ended> {
    let mut turn = 0;
    loop {
        let next = if turn < points.len() * settings.repeat {
            Some(turn % points.len())
        } else {
            next_wide(settings, points)
        };
        let Some(next) = next else {
            let steady = points.iter().any(|repeated| repeated.point(settings).steady);
            return Ok(if steady { Ended::Narrow } else { Ended::Unsteady });
        };
        // The first round was planned to fit the budget, but its steps may have taken longer.
        if turn >= points.len() && !budget.allows() || budget.spent() >= 1.0 {
            return Ok(Ended::Budget);
        }
        turn += 1;
        measure_once(settings, session, points, next, budget, progress)?;
        if stop.load(Ordering::Relaxed) {
            return Ok(Ended::Interrupted);
        }
    }
}

/// Measures one point once more.
pub(super) fn measure_once(
    settings: &Settings,
    session: &mut Session,
    points: &mut [Repeated],
    number: usize,
    budget: &mut Budget,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<()> {
    let Some(point) = points.get_mut(number) else { return Ok(()) };
    let stage = format!("{}, repetition {}", point.at, point.repetitions() + 1);
    let (begun, before) = (clock::now(), session.summary().steps.len());
    session.load(&settings.load(point.at), &mut |p: &Progress| {
        progress(&Progress { stage: stage.clone(), done: budget.spent(), ..p.clone() });
    })?;
    budget.took(begun);
    let windows = session.take_windows();
    if let Some(step) = session.summary().steps.get(before) {
        point.add(step, windows);
    }
    Ok(())
}

/// The next point to repeat: the least often measured one that is steady and not narrow enough, so
/// that a point that never becomes narrow does not use the whole budget.
fn next_wide(settings: &Settings, points: &[Repeated]) -> Option<usize> {
    let wide = points.iter().enumerate().filter(|(_, repeated)| {
        let point = repeated.point(settings);
        point.steady && !point.narrow
    });
    wide.min_by_key(|(_, repeated)| repeated.repetitions()).map(|(i, _)| i)
}
