//! One run: a seed, one step for each load, and a run folder.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use configuration::Config;
use engine::sim::drawn::DrawnCluster;
use engine::sim::{Law, Simulation};
use ground::number::time;
use ground::window::{self, Nanos, Window};
use load::{Summary, simulated_step};
use record::clock;
use record::{self, Generator, Machine, Run, RunWriter, Step};
use serde::Serialize;

use super::drawn::{settings as drawn_settings, window_s};
use super::keyed::{laws, settings as keyed_settings};
use super::limits::{Runs, check};
use super::picture::StepCourse;
use super::plan::{Plan, members, parameters_table};
use super::time::nanos;

/// The result of a simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The summary, as the load generator prints it for a real server.
    #[serde(flatten)]
    pub summary: Summary,
    /// Simulated requests, including warm-ups.
    pub simulated_requests: u64,
    /// Real time that the simulation took, seconds.
    pub seconds: f64,
    /// Descriptions of consistency violations; `None` if the history was not checked.
    pub violations: Option<Vec<String>>,
    /// How each step went on.
    #[serde(skip)]
    pub courses: Vec<StepCourse>,
}

impl Outcome {
    /// The speed of the simulation, requests per second of real time.
    pub fn speed(&self) -> f64 {
        self.simulated_requests as f64 / self.seconds.max(1e-9)
    }
}

/// Runs a simulation. `progress` receives the current stage and its completed share, 0 to 1; `stop`
/// ends the run early.
///
/// # Errors
/// If the plan is invalid, or the run folder cannot be written.
pub fn run(
    plan: &Plan,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, f64),
) -> anyhow::Result<Outcome> {
    let config = members(plan)?;
    let laws = laws(plan, &config)?;
    check(plan, &config, &laws, Runs::ONE)?;
    let unix = clock::unix_offset_ns() + i128::from(clock::now());
    let description = Run {
        format: record::FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kind: "simulate".to_owned(),
        start_unix_us: (unix / 1000).max(0) as u64,
        laboratory: Some("a simulation in virtual time: nothing was measured".to_owned()),
        machine: Machine::describe(),
        asked: parameters_table(plan, &config),
    };
    let mut writer = RunWriter::create(&plan.out, &description)?;
    let mut outcome = Outcome {
        summary: Summary { dir: plan.out.clone(), ..Summary::default() },
        simulated_requests: 0,
        seconds: 0.0,
        violations: plan.check.then(Vec::new),
        courses: Vec::new(),
    };
    let fill_part = fill_part(plan);
    let begun = Instant::now();
    let mut offset = unix;
    for (index, &rate) in plan.rates.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (mut world, names) = World::new(plan, &config, &laws, rate, offset)?;
        let stage = format!("step {} of {}: {rate}/s", index + 1, plan.rates.len());
        let window_s = window_s(plan, &config);
        let course = StepCourse::new(rate);
        let mut run =
            StepRun { plan, names, window_s, total: None, course, rate, index, offset, reached: 0 };
        let steps = plan.rates.len() as f64;
        let all = |done: f64| (index as f64 + done) / steps;
        let filling = format!("step {} of {}: objects are placed", index + 1, plan.rates.len());
        if !world.preload(stop, &mut |done| progress(&filling, all(done * fill_part))) {
            break;
        }
        let rest = |done: f64| all(fill_part + (1.0 - fill_part) * done);
        run.go(&mut world, &mut writer, stop, &mut |done| progress(&stage, rest(done)))?;
        outcome.simulated_requests += world.requests();
        if let (Some(violations), World::Keyed(simulation)) = (&mut outcome.violations, &mut world)
        {
            simulation.check_at_the_end();
            let left = VIOLATIONS_MAX.saturating_sub(violations.len());
            let found = simulation.violations().iter().take(left);
            violations.extend(found.map(|v| format!("at {rate} requests/s: {v}")));
        }
        offset += i128::from(world.now());
        // An interrupted step counts as far as it came, and says so.
        if let Some(total) = run.total.take() {
            let step = run.step();
            writer.step(&step)?;
            outcome.summary.steps.push(simulated_step(step, &total));
            outcome.courses.push(run.course);
        }
    }
    writer.flush()?;
    outcome.seconds = begun.elapsed().as_secs_f64();
    outcome.summary.interrupted = stop.load(Ordering::Relaxed);
    Ok(outcome)
}

/// The part of a step's time that it takes to place its objects, about: each costs as much as six requests.
fn fill_part(plan: &Plan) -> f64 {
    let objects = if plan.drawn.is_some() { 0.0 } else { 6.0 * f64::from(plan.keys) };
    let steps = plan.rates.len().max(1) as f64;
    let requests = plan.rates.iter().sum::<f64>() / steps * (plan.warmup_s + plan.duration_s);
    objects / (objects + requests).max(1.0)
}

/// The largest number of violations that are listed.
pub(super) const VIOLATIONS_MAX: usize = 100;

/// A simulated cluster.
enum World {
    Keyed(Box<Simulation>),
    Drawn(Box<DrawnCluster>),
}

/// An interrupt is looked for so often in virtual time, where windows are long,
const LOOK: Nanos = window::SECOND;
/// and at least once in so many requests, which take a second or two.
const LOOK_REQUESTS: f64 = 200_000.0;

impl World {
    /// The cluster of one step, and the names of its nodes.
    fn new(
        plan: &Plan,
        config: &Config,
        laws: &[Law],
        rate: f64,
        offset: i128,
    ) -> anyhow::Result<(World, Vec<String>)> {
        let windows = window::Settings {
            window_ns: nanos(window_s(plan, config)),
            objectives_ms: config.observe.objectives_ms.clone(),
            unix_offset_ns: offset,
        };
        let ring = config.ring().context("cannot make a ring of these members")?;
        let names = ring.members().iter().map(|member| member.name.clone()).collect();
        if plan.drawn.is_some() {
            let settings = drawn_settings(plan, config, &ring, laws, rate, windows)?;
            return Ok((World::Drawn(Box::new(DrawnCluster::new(settings))), names));
        }
        let settings = keyed_settings(plan, config, laws, rate, windows)?;
        Ok((World::Keyed(Box::new(Simulation::new(settings))), names))
    }

    /// Puts objects in their places before time 0; `false` if it was interrupted before all were. `progress` receives the part that is
    /// done.
    fn preload(&mut self, stop: &AtomicBool, progress: &mut dyn FnMut(f64)) -> bool {
        let World::Keyed(simulation) = self else { return true };
        simulation.preload_while(false, &mut |done| {
            progress(done);
            !stop.load(Ordering::Relaxed)
        })
    }

    /// Runs until a virtual time; `false` if it was interrupted before, which it looks for after each `look`.
    fn run_to(&mut self, end: Nanos, look: Nanos, stop: &AtomicBool) -> bool {
        let mut at = self.now();
        while at < end {
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            at = end.min(at + look);
            match self {
                World::Keyed(simulation) => simulation.run_to(at),
                World::Drawn(drawn) => drawn.run_to(at),
            }
        }
        true
    }

    fn windows(&mut self, open: bool) -> Vec<Vec<Window>> {
        match self {
            World::Keyed(simulation) => simulation.windows(open),
            World::Drawn(drawn) => drawn.windows(open),
        }
    }

    fn now(&self) -> Nanos {
        match self {
            World::Keyed(simulation) => simulation.now(),
            World::Drawn(drawn) => drawn.now(),
        }
    }

    fn requests(&self) -> u64 {
        match self {
            World::Keyed(simulation) => simulation.counts().requests,
            World::Drawn(drawn) => drawn.counts().requests,
        }
    }
}

/// A step while it runs.
struct StepRun<'a> {
    plan: &'a Plan,
    names: Vec<String>,
    /// Length of the windows, seconds.
    window_s: f64,
    /// The clients' windows that are counted, together and in turn.
    total: Option<Window>,
    course: StepCourse,
    rate: f64,
    index: usize,
    /// The start of virtual time, nanoseconds since 1970.
    offset: i128,
    /// How far it came.
    reached: Nanos,
}

impl StepRun<'_> {
    fn go(
        &mut self,
        world: &mut World,
        writer: &mut RunWriter,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(f64),
    ) -> anyhow::Result<()> {
        let warmup = nanos(self.plan.warmup_s);
        let end = warmup + nanos(self.plan.duration_s);
        let most = self.rate * self.plan.course.most(self.plan.span());
        let look = LOOK.min(nanos(LOOK_REQUESTS / most)).max(1);
        // End a window together with the warm-up, so that no window contains a part of both.
        let mut at = 0;
        while at < end && !stop.load(Ordering::Relaxed) {
            let border = if at < warmup { warmup } else { end };
            at = (at + nanos(self.window_s).max(1)).min(border);
            if !world.run_to(at, look, stop) {
                break;
            }
            self.reached = at;
            self.record(world.windows(at == border), at > warmup, writer)?;
            progress(at as f64 / end as f64);
        }
        Ok(())
    }

    fn record(
        &mut self,
        windows: Vec<Vec<Window>>,
        counts: bool,
        writer: &mut RunWriter,
    ) -> anyhow::Result<()> {
        let gateways = windows.len() - 1 - self.names.len();
        for (who, mut windows) in windows.into_iter().enumerate() {
            if let (Some(node), true) = (who.checked_sub(1 + gateways), self.names.len() > 1) {
                let name = &self.names[node];
                windows.iter_mut().for_each(|w| w.queue = format!("{name}/{}", w.queue));
            }
            writer.windows(&windows)?;
            if who == 0 && counts {
                for window in windows {
                    self.course.push(&window);
                    match &mut self.total {
                        Some(total) => total.merge(&window, false),
                        None => self.total = Some(window),
                    }
                }
            }
        }
        Ok(writer.flush()?)
    }

    fn step(&self) -> Step {
        let unix_us = |at: Nanos| ((self.offset + i128::from(at)) / 1000).max(0) as u64;
        let warmup = nanos(self.plan.warmup_s);
        let end = nanos(self.plan.warmup_s + self.plan.duration_s);
        let mut generator = Generator::default();
        if self.reached < end {
            generator.complaints.push(format!(
                "interrupted: {} of {} simulated",
                time((self.reached - warmup) as f64 * 1e-9),
                time(self.plan.duration_s)
            ));
        }
        Step {
            index: self.index,
            rate: Some(self.rate),
            clients: None,
            start_unix_us: unix_us(warmup),
            end_unix_us: unix_us(self.reached),
            generator,
        }
    }
}
