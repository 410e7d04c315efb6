//! Runs a plan: the fill, then one pass after another. Merges the windows of the threads as they
//! arrive and writes the run folder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use ground::window::{Nanos, QueueName, SECOND, Settings, Window};

use super::arrivals::{Pace, Part, Phase};
use super::error::Error;
use super::generator::{Generator, Shared};
use super::keys::KeySource;
use super::phase::{Account, Message};
use super::plan::{Arrivals, Length, Load, Plan, Think};
use super::reach::check_reachable;
use super::source::{Pass, Share};
use super::summary::{Fill, Summary, fill_hint, generator, join, step_summary};
use record::clock;
use record::{self, Awake, HostSampler, Machine, Run, RunWriter, Step};

/// The progress of a run, reported several times a second.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The current stage: `fill`, `warm-up`, `step 1 of 5: 1000/s` …
    pub stage: String,
    /// The completed share of the stage, 0 to 1.
    pub done: f64,
    /// Replies for each second, in the last window.
    pub rate: f64,
    /// The 99th percentile of response times in the last window, ms.
    pub p99_ms: f64,
    /// Errors so far.
    pub errors: u64,
}

/// The time between the creation of a pass and its start, for the threads to get ready.
const LEAD: Nanos = SECOND / 50;
/// Capacity of the channel from the threads to the writer. A thread that finds it full blocks and
/// sends late, so it is large: each thread sends a few messages per window.
const MESSAGES: usize = 1 << 16;

/// Runs a load. Setting `stop` ends it early and cleanly; `progress` is called several times a
/// second.
pub fn run(
    plan: &Plan,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Summary, Error> {
    let mut session = Session::open(plan, stop)?;
    session.fill(progress)?;
    session.load(&plan.load, progress)?;
    session.close()
}

/// A run whose steps are chosen while it is under way, from the results of earlier steps. All go
/// into one run folder.
pub struct Session {
    plan: Plan,
    /// The passes of the plan's own load, until a load is run.
    planned: Option<Vec<Vec<Phase>>>,
    shared: Arc<Shared>,
    generators: Vec<Generator>,
    runner: Runner,
    _awake: Option<Awake>,
}

impl Session {
    /// Checks the plan and that the service accepts connections, reads the keys, makes the folder.
    pub fn open(plan: &Plan, stop: &Arc<AtomicBool>) -> Result<Session, Error> {
        let mistakes = plan.mistakes();
        if !mistakes.is_empty() {
            return Err(Error::Plan { mistakes });
        }
        let target = plan.target()?;
        let keys = KeySource::open(&plan.keys, plan.multi_get)?;
        // Invalid times in a trace are reported before anything is written.
        let planned = passes(plan, &plan.load, &keys, 0)?;
        check_reachable(&target)?;
        let awake = Awake::hold();
        let (connections, shortage) = raise_files(plan.connections);
        let settings = Settings {
            window_ns: (plan.window_s * SECOND as f64) as Nanos,
            objectives_ms: plan.objectives_ms.clone(),
            unix_offset_ns: clock::unix_offset_ns(),
        };
        let runner = Runner {
            writer: RunWriter::create(&plan.out, &description(plan, &settings)?)?,
            host: HostSampler::start(),
            host_at: clock::now() + SECOND,
            settings: settings.clone(),
            threads: plan.threads,
            seed: plan.seed,
            shortage,
            stop: stop.clone(),
            steps: planned.iter().flatten().filter(|phase| phase.step.is_some()).count(),
            begun: 0,
            trim: plan.trim,
            kept: Vec::new(),
            summary: Summary {
                dir: plan.out.clone(),
                broken_lines: keys.broken(),
                ..Summary::default()
            },
        };
        let shared = Arc::new(Shared {
            target,
            keys,
            settings,
            seed: plan.seed,
            verify: plan.verify,
            timeout_ns: (plan.timeout_s * SECOND as f64) as Nanos,
            sample_one_in: plan.sample_one_in,
            times: plan.times.div_ceil(plan.threads.max(1) as u64),
            stop: stop.clone(),
        });
        let mut generators = Vec::new();
        for thread in 0..plan.threads {
            let share = Share { thread: thread as u64, threads: plan.threads as u64 };
            let (most, backlog) = (connections / plan.threads, plan.backlog / plan.threads);
            let made = Generator::new(shared.clone(), share, most, backlog);
            generators.push(made.map_err(Error::Poll)?);
        }
        let (plan, planned) = (plan.clone(), Some(planned));
        Ok(Session { plan, planned, shared, generators, runner, _awake: awake })
    }

    /// Puts every distinct key once, if the plan has a fill.
    pub fn fill(&mut self, progress: &mut dyn FnMut(&Progress)) -> Result<(), Error> {
        let Some(clients) = self.plan.fill else { return Ok(()) };
        let (runner, distinct) = (&mut self.runner, self.shared.keys.distinct());
        let pace = Pace::Closed { clients, think_ns: 0.0, think: Think::Constant };
        let length = Length::Requests(distinct);
        let phase = Phase { pace, length, part: Part::Fill, purpose: 0, step: None };
        runner.pass(&mut self.generators, vec![phase], QueueName::Fill, progress)?;
        let fill = runner.summary.fill.get_or_insert_default();
        fill.keys = distinct;
        if fill.stored < distinct && !runner.stop.load(Ordering::Relaxed) {
            let (stored, faults) = (fill.stored, fill.faults.clone());
            runner.writer.flush()?;
            let reason = faults.first_key_value().map_or("unknown reason", |(reason, _)| reason);
            let (target, hint) = (self.shared.target.to_string(), fill_hint(reason));
            let reason = reason.to_owned();
            return Err(Error::Fill { stored, keys: distinct, target, reason, hint });
        }
        Ok(())
    }

    /// Runs the steps of a load and appends them to the run.
    pub fn load(&mut self, load: &Load, progress: &mut dyn FnMut(&Progress)) -> Result<(), Error> {
        let planned = self.planned.take().filter(|_| *load == self.plan.load);
        let passes = match planned {
            Some(planned) => planned,
            None => passes(&self.plan, load, &self.shared.keys, self.runner.begun)?,
        };
        for phases in passes {
            if self.runner.stop.load(Ordering::Relaxed) {
                break;
            }
            self.runner.begun += phases.iter().filter(|phase| phase.step.is_some()).count();
            self.runner.pass(&mut self.generators, phases, QueueName::Load, progress)?;
        }
        Ok(())
    }

    /// The results so far.
    pub fn summary(&self) -> &Summary {
        &self.runner.summary
    }

    /// Takes the windows of the last step, without its ramps. Empty unless the plan trims.
    pub fn take_windows(&mut self) -> Vec<Window> {
        std::mem::take(&mut self.runner.kept)
    }

    /// Writes what is buffered, so that the run folder can be read while it grows.
    pub fn flush(&mut self) -> Result<(), Error> {
        Ok(self.runner.writer.flush()?)
    }

    /// Flushes the run folder and returns the results.
    pub fn close(mut self) -> Result<Summary, Error> {
        self.runner.writer.flush()?;
        self.runner.summary.interrupted = self.runner.stop.load(Ordering::Relaxed);
        Ok(self.runner.summary)
    }
}

/// Returns the phases of each pass. The phases of a pass follow each other without a pause; between
/// passes all replies are awaited. `step` is the number of earlier steps.
fn passes(
    plan: &Plan,
    load: &Load,
    keys: &KeySource,
    mut step: usize,
) -> Result<Vec<Vec<Phase>>, Error> {
    let slice = keys.slice_len().map(Length::Requests);
    let length = plan.length.or(slice).unwrap_or(Length::Seconds(30.0));
    let mut measured = |pace: Pace, length: Length| {
        step += 1;
        let purpose = 2 * step as u64;
        Phase { pace, length, part: Part::Measured, purpose, step: Some(step - 1) }
    };
    let warm = |pace: Pace, purpose: u64| {
        let length = plan.warmup.filter(|&l| l != Length::Requests(0) && l != Length::Seconds(0.0));
        let phase = |length| Phase { pace, length, part: Part::Warmup, purpose, step: None };
        length.map(phase)
    };
    let pass = |warmup: Option<Phase>, phases: Vec<Phase>| -> Vec<Phase> {
        warmup.into_iter().chain(phases).collect()
    };
    let open = |arrivals: Arrivals, rate: f64| match arrivals {
        Arrivals::Poisson => Pace::Poisson(rate),
        Arrivals::Constant => Pace::Constant(rate),
    };
    let mut made = Vec::new();
    match load {
        Load::Nothing => {}
        Load::Open { rates, arrivals } => {
            for &rate in rates {
                let phase = measured(open(*arrivals, rate), length);
                let warmup_rate = plan.warmup_rate.unwrap_or(rate);
                let warmup = warm(open(*arrivals, warmup_rate), phase.purpose + 1);
                made.push(pass(warmup, vec![phase]));
            }
        }
        Load::Trace { speeds } => {
            for &speed in speeds {
                let (times, rate) = keys.times(speed, plan.seed)?;
                let whole = Length::Requests(times.len() as u64);
                let phase = measured(Pace::Times(times.into()), plan.length.unwrap_or(whole));
                let warmup_rate = plan.warmup_rate.unwrap_or(rate);
                let warmup = warm(Pace::Poisson(warmup_rate), phase.purpose + 1);
                made.push(pass(warmup, vec![phase]));
            }
        }
        Load::Schedule { segments, arrivals } => {
            let first = segments.first().map_or(1.0, |s| s.0);
            let phases: Vec<Phase> = segments
                .iter()
                .map(|&(rate, s)| measured(open(*arrivals, rate), Length::Seconds(s)))
                .collect();
            let warmup = warm(open(*arrivals, plan.warmup_rate.unwrap_or(first)), 1);
            made.push(pass(warmup, phases));
        }
        Load::Closed { clients, think_ms, think } => {
            for &clients in clients {
                let pace = Pace::Closed { clients, think_ns: think_ms * 1e6, think: *think };
                let phase = measured(pace.clone(), length);
                let warmup = warm(pace, phase.purpose + 1);
                made.push(pass(warmup, vec![phase]));
            }
        }
    }
    Ok(made)
}

/// The complaint about a step without a steady part.
pub const UNSETTLED: &str =
    "the step never became steady: its ramp, or a drift, reaches into its second half";

/// Cuts the ramp-up and cool-down off a step and returns the rest, and whether the step ever became
/// steady. `None` if there are no windows.
///
/// The first window lacks the replies to requests sent before the step, and the last holds replies
/// that came after it (and may be short). Both are removed if there are at least ten windows.
fn trimmed(mut windows: Vec<Window>) -> Option<(Vec<Window>, bool)> {
    windows.sort_by_key(|w| w.start_unix_us);
    if windows.is_empty() {
        return None;
    }
    if windows.len() >= 10 {
        windows.pop();
        windows.remove(0);
    }
    let lengths: Vec<f64> = windows.iter().map(Window::length_mean).collect();
    let rate = |w: &Window| w.completions as f64 / w.length_s.max(f64::MIN_POSITIVE);
    let rates: Vec<f64> = windows.iter().map(rate).collect();
    let steady = model::laws::steady(&[&lengths, &rates]);
    let kept = windows.drain(steady.kept).collect();
    Some((kept, steady.settled))
}

/// Merges consecutive windows into one.
fn merged(windows: &[Window]) -> Option<Window> {
    let mut rest = windows.iter();
    let mut sum = rest.next()?.clone();
    rest.for_each(|window| sum.merge(window, false));
    Some(sum)
}

/// Raises the limit of open files to what `connections` need. Returns the number of connections
/// that fit, and a complaint if that is less.
pub(crate) fn raise_files(connections: usize) -> (usize, Option<String>) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const OTHERS: u64 = 64;
    let wanted = connections as u64 + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return (connections, None);
    }
    let maximum = limit.maximum;
    let more = maximum.map_or(wanted, |most| most.min(wanted));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(more), maximum });
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if now >= wanted {
        return (connections, None);
    }
    let fit = now.saturating_sub(OTHERS).max(1) as usize;
    (
        fit,
        Some(format!(
            "only {fit} of {connections} connections possible: the limit of open files is {now}"
        )),
    )
}

fn description(plan: &Plan, settings: &Settings) -> Result<Run, Error> {
    Ok(Run {
        format: record::FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kind: "load".to_owned(),
        start_unix_us: unix_us(settings, clock::now()),
        laboratory: None,
        machine: Machine::describe(),
        asked: toml::Table::try_from(plan).map_err(Error::Description)?,
    })
}

fn unix_us(settings: &Settings, time: Nanos) -> u64 {
    ((i128::from(time) + settings.unix_offset_ns) / 1000).max(0) as u64
}

/// Writes the run folder and accumulates the summary.
struct Runner {
    writer: RunWriter,
    host: HostSampler,
    host_at: Nanos,
    settings: Settings,
    threads: usize,
    seed: u64,
    shortage: Option<String>,
    stop: Arc<AtomicBool>,
    /// The number of steps in the whole plan, and of those begun.
    steps: usize,
    begun: usize,
    /// Whether steps are trimmed, and the windows kept of the last one.
    trim: bool,
    kept: Vec<Window>,
    summary: Summary,
}

/// The records of a phase received so far.
#[derive(Default)]
struct Gathered {
    /// Windows that some threads have not sent yet, with the number of those that have.
    parts: BTreeMap<usize, (Window, usize)>,
    total: Option<Window>,
    /// All windows, if steps are trimmed.
    windows: Vec<Window>,
    accounts: Vec<Account>,
    begun: bool,
}

impl Runner {
    /// Runs a pass to its end.
    fn pass(
        &mut self,
        generators: &mut [Generator],
        phases: Vec<Phase>,
        queue: QueueName<'static>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(), Error> {
        let retry_failed = queue == QueueName::Fill;
        let pass = Arc::new(Pass::new(phases, LEAD, queue, retry_failed, self.seed, &self.stop));
        let (sender, receiver) = bounded(MESSAGES);
        std::thread::scope(|scope| {
            let workers: Vec<_> = generators
                .iter_mut()
                .map(|generator| {
                    let (pass, sender) = (pass.clone(), sender.clone());
                    scope.spawn(move || generator.run(&pass, &sender))
                })
                .collect();
            drop(sender);
            let gathered = self.gather(&pass, &receiver, progress);
            if gathered.is_err() {
                // Without a record there is no point in going on.
                self.stop.store(true, Ordering::Relaxed);
            }
            drop(receiver);
            // All are joined, so that none still writes to what is dropped.
            let panicked = workers.into_iter().filter_map(|worker| worker.join().err()).count();
            if panicked > 0 { Err(Error::Panicked) } else { gathered }
        })
    }

    fn gather(
        &mut self,
        pass: &Pass,
        receiver: &Receiver<Message>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(), Error> {
        let mut phases: Vec<Gathered> = pass.phases.iter().map(|_| Gathered::default()).collect();
        let mut shown =
            Progress { stage: String::new(), done: 0.0, rate: 0.0, p99_ms: 0.0, errors: 0 };
        let mut show_at = 0;
        loop {
            match receiver.recv_timeout(Duration::from_millis(100)) {
                Ok(message) => self.take(pass, &mut phases, message, &mut shown)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = clock::now();
            if now >= self.host_at {
                self.writer.host(&self.host.sample())?;
                self.writer.flush()?;
                self.host_at = now + SECOND;
            }
            if now >= show_at {
                self.stage(pass, &phases, now, &mut shown);
                progress(&shown);
                show_at = now + SECOND / 5;
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        pass: &Pass,
        phases: &mut [Gathered],
        message: Message,
        shown: &mut Progress,
    ) -> Result<(), Error> {
        match message {
            Message::Samples(samples) => self.writer.samples(&samples)?,
            Message::Times(times) => self.writer.times(&times)?,
            Message::Window { phase, index, window } => {
                let gathered = &mut phases[phase];
                gathered.begun = true;
                match gathered.parts.get_mut(&index) {
                    Some((sum, count)) => {
                        sum.merge(&window, true);
                        *count += 1;
                    }
                    None => drop(gathered.parts.insert(index, (window, 1))),
                }
                let whole = gathered.parts.first_entry().filter(|e| e.get().1 == self.threads);
                if let Some(entry) = whole {
                    let (window, _) = entry.remove();
                    self.window(gathered, window, shown)?;
                }
            }
            Message::Over { phase, account } => {
                let gathered = &mut phases[phase];
                gathered.accounts.push(account);
                if gathered.accounts.len() == self.threads {
                    let rest = std::mem::take(&mut gathered.parts);
                    for (window, _) in rest.into_values() {
                        self.window(gathered, window, shown)?;
                    }
                    self.over(pass, phase, gathered)?;
                }
            }
        }
        Ok(())
    }

    fn window(
        &mut self,
        gathered: &mut Gathered,
        window: Window,
        shown: &mut Progress,
    ) -> Result<(), Error> {
        self.writer.windows(std::slice::from_ref(&window))?;
        let mut response = ground::window::Histogram::default();
        window.times.iter().for_each(|t| response.merge(&t.response));
        if window.length_s > 0.0 {
            shown.rate = window.completions as f64 / window.length_s;
        }
        shown.p99_ms = response.quantile_s(0.99).unwrap_or(0.0) * 1e3;
        shown.errors += window.errors;
        if self.trim {
            gathered.windows.push(window.clone());
        }
        match &mut gathered.total {
            Some(total) => total.merge(&window, false),
            None => gathered.total = Some(window),
        }
        Ok(())
    }

    /// Completes a phase that is over in all threads: summarises it and writes its step.
    fn over(&mut self, pass: &Pass, phase: usize, gathered: &mut Gathered) -> Result<(), Error> {
        let mut account = join(&gathered.accounts);
        let mut total = gathered.total.take().unwrap_or_else(|| {
            let start = unix_us(&self.settings, account.start);
            Window::new(&pass.queue.to_string(), start, 0, &self.settings.objectives_ms)
        });
        let Phase { pace, step, .. } = &pass.phases[phase];
        if pass.retry_failed {
            self.summary.fill = Some(Fill {
                keys: 0,
                stored: total.completions.saturating_sub(total.errors),
                seconds: account.end.saturating_sub(account.start) as f64 * 1e-9,
                faults: account.faults,
            });
            return Ok(self.writer.flush()?);
        }
        let Some(index) = *step else { return Ok(()) };
        let mut report = generator(&total, &account, self.threads);
        report.complaints.extend(self.shortage.clone());
        let seconds = account.end.saturating_sub(account.start).max(1) as f64 * 1e-9;
        let mut start_unix_us = unix_us(&self.settings, account.start);
        // In a closed loop, one thread may roll a window before the last request of another sets
        // the phase's end.
        let mut end_unix_us = unix_us(&self.settings, account.end).max(total.end_unix_us());
        if let Some((kept, settled)) = trimmed(std::mem::take(&mut gathered.windows)) {
            total = merged(&kept).unwrap_or(total);
            start_unix_us = total.start_unix_us;
            end_unix_us = kept.last().map_or(end_unix_us, Window::end_unix_us);
            account.cpu_ns = (account.cpu_ns as f64 * (total.length_s / seconds).min(1.0)) as Nanos;
            if !settled {
                report.complaints.push(UNSETTLED.to_owned());
            }
            self.kept = kept;
        }
        let step = Step {
            index,
            rate: match pace {
                Pace::Poisson(rate) | Pace::Constant(rate) => Some(*rate),
                Pace::Times(_) => Some(total.arrivals as f64 / seconds),
                Pace::Closed { .. } => None,
            },
            clients: match pace {
                Pace::Closed { clients, .. } => Some(*clients),
                _ => None,
            },
            start_unix_us,
            end_unix_us,
            generator: report,
        };
        // An interrupted step is not recorded as a step; its windows stay in the folder.
        if !account.cut {
            self.writer.step(&step)?;
            self.summary.steps.push(step_summary(step, &total, account));
        }
        Ok(self.writer.flush()?)
    }

    fn stage(&self, pass: &Pass, phases: &[Gathered], now: Nanos, shown: &mut Progress) {
        let at = phases.iter().position(|g| g.accounts.is_empty()).unwrap_or(0);
        let at = phases.iter().rposition(|g| g.begun).unwrap_or(at).max(at);
        let Some(phase) = pass.phases.get(at) else { return };
        shown.stage = match (&phase.pace, phase.step) {
            (_, None) if pass.retry_failed => pass.queue.to_string(),
            (_, None) => "warm-up".to_owned(),
            (Pace::Poisson(rate) | Pace::Constant(rate), Some(step)) => {
                format!("step {} of {}: {rate}/s", step + 1, self.steps)
            }
            (Pace::Times(_), Some(step)) => format!("step {} of {}: trace", step + 1, self.steps),
            (Pace::Closed { clients, .. }, Some(step)) => {
                format!("step {} of {}: {clients} clients", step + 1, self.steps)
            }
        };
        let total = phases[at].total.as_ref();
        let arrived = total.map_or(0, |w| w.completions - w.errors.min(w.completions));
        let (before, own) = (&pass.phases[..at], phase.length);
        let planned = before.iter().map(|p| match p.length {
            Length::Seconds(s) => s,
            Length::Requests(_) => 0.0,
        });
        let elapsed = now.saturating_sub(pass.start) as f64 * 1e-9 - planned.sum::<f64>();
        shown.done = match own {
            Length::Seconds(s) => (elapsed / s).clamp(0.0, 1.0),
            Length::Requests(n) => (arrived as f64 / n.max(1) as f64).clamp(0.0, 1.0),
        };
    }
}
