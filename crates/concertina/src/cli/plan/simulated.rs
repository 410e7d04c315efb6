//! `concertina plan --simulate`: the candidates beside their simulation.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use ground::number::{digits, percent as percent_of};
use model::Model;
use model::plan::{Choices, Plan, server_of};
use report::Objective;
use report::grid::Grid;
use report::plan_basis::PlanBasis;
use report::svg::{Axis, Mark, Plot, PlotPoint, Shape, is_plot, standalone};
use report::table::{has_intervals, percent, tenths, with_interval};

use super::measured::{CandidateLoads, NearestStep};
use super::sources::Sources;
use super::text::PlanReport;
use crate::cli::load::watch_interrupts;
use crate::cli::load_values::seconds;
use crate::cli::study_parts::PartProgress;
use crate::simulate::{
    Assumption, CandidateQuestion, Chance, DonePart, Effect, Interval, Lives, SimulatedCandidate,
    SimulatedPlan, StudyPart, StudyPlace, join_candidates, simulate_candidate_part,
    simulate_candidates, span, study_id,
};

/// Candidates that are simulated unless another number is given.
const CANDIDATES: &str = "3";

/// Options of the simulation of a plan's candidates.
#[derive(clap::Args)]
pub(super) struct Options {
    /// Simulate this many of the best candidates, and say what the formula missed [without a number: 3]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = CANDIDATES,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    simulate: Option<u32>,
    /// With --simulate: mean time to failure of a server, like 90d
    #[arg(long, requires_all = ["simulate", "mttr"], value_parser = span, value_name = "TIME")]
    mttf: Option<f64>,
    /// Mean time to repair of a server
    #[arg(long, requires = "mttf", value_parser = span, value_name = "TIME")]
    mttr: Option<f64>,
    /// With --simulate: mean time to failure of a rack, all of whose servers fail together
    #[arg(long, requires_all = ["simulate", "rack_mttr", "racks"], value_parser = span, value_name = "TIME")]
    rack_mttf: Option<f64>,
    /// Mean time to repair of a rack
    #[arg(long, requires = "rack_mttf", value_parser = span, value_name = "TIME")]
    rack_mttr: Option<f64>,
    /// Number of racks, of neighbouring servers
    #[arg(long, requires = "rack_mttf", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    racks: Option<u32>,
    /// With --simulate: mean time to failure of a device
    #[arg(long, requires_all = ["simulate", "disk_mttr"], value_parser = span, value_name = "TIME")]
    disk_mttf: Option<f64>,
    /// Mean time until a device is replaced and filled
    #[arg(long, requires = "disk_mttf", value_parser = span, value_name = "TIME")]
    disk_mttr: Option<f64>,
    /// With --simulate: mean time of a read that only the origin can answer [default: it counts as late]
    #[arg(long, requires = "simulate", value_parser = seconds, value_name = "TIME")]
    origin: Option<f64>,
    /// With --simulate: runs over which intervals are taken, each with its own seed
    #[arg(long, requires = "simulate", default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: u32,
    /// With --simulate: requests of each run, at least
    #[arg(long, requires = "simulate", default_value_t = 300_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=10_000_000_000))]
    requests: u64,
    /// With --simulate: seed of the first run
    #[arg(long, requires = "simulate", default_value_t = 1, value_name = "N")]
    seed: u64,
    /// With --simulate: runs at once [default: one for each processor]
    #[arg(long, requires = "simulate", value_name = "N")]
    threads: Option<usize>,
    /// With --simulate: make a part of the runs alone, numbered from 0, and put their results into --out
    #[arg(long, value_name = "I/N", requires_all = ["simulate", "out"], conflicts_with_all = ["join", "picture"])]
    part: Option<StudyPart>,
    /// With --simulate: put the parts in --out together; the other options are those of the parts
    #[arg(long, requires_all = ["simulate", "out"])]
    join: bool,
    /// With --part and --join: the folder of the parts
    #[arg(long, requires = "simulate", value_name = "DIR")]
    out: Option<PathBuf>,
    /// With --simulate: draw formula and simulation of the best candidate into this SVG file
    #[arg(long, requires = "simulate", value_name = "FILE.svg", value_parser = crate::cli::simulate::svg_file)]
    picture: Option<PathBuf>,
    /// With --picture: draw what was measured, too: the step of this run folder, of the cluster or of one server, whose load is nearest
    #[arg(long, requires = "picture", value_name = "RUN")]
    measured: Option<PathBuf>,
    /// With --simulate: show no progress
    #[arg(long, short, requires = "simulate")]
    quiet: bool,
}

impl Options {
    /// Whether only a part of the runs is made here, or all were made elsewhere.
    pub(super) fn in_parts(&self) -> bool {
        self.part.is_some() || self.join
    }

    fn chance(&self) -> Chance {
        let lives = |mttf: Option<f64>, mttr: Option<f64>| {
            mttf.zip(mttr).map(|(mttf_s, mttr_s)| Lives { mttf_s, mttr_s })
        };
        Chance {
            node: lives(self.mttf, self.mttr),
            rack: lives(self.rack_mttf, self.rack_mttr),
            device: lives(self.disk_mttf, self.disk_mttr),
            racks: self.racks.unwrap_or(0) as usize,
        }
    }
}

/// What came of a simulation.
pub(super) enum Simulated {
    /// The candidates beside it.
    Candidates(SimulatedPlan),
    /// A part of its runs; `None` if it was interrupted.
    Part(Option<DonePart>),
}

/// What is needed to simulate a plan.
pub(super) struct Simulation<'a> {
    /// Everything that decides on the formula's answer: the parts of a study must agree on it.
    pub sources: Option<Sources>,
    pub basis: &'a PlanBasis,
    pub choices: &'a Choices,
    pub objective: Objective,
    pub options: &'a Options,
}

impl Simulation<'_> {
    /// Simulates the best candidates; `None` if that was not asked for, or there are none.
    pub fn run(&self, plan: &Plan) -> anyhow::Result<Option<Simulated>> {
        use std::io::IsTerminal;
        let Some(count) = self.options.simulate else { return Ok(None) };
        if plan.ranked.is_empty() {
            return Ok(None);
        }
        let chance = self.options.chance();
        for lives in [chance.node, chance.rack, chance.device].into_iter().flatten() {
            ensure!(
                lives.mttf_s > 0.0 && lives.mttr_s > 0.0,
                "times to failure and repair must be more than 0"
            );
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let question = CandidateQuestion {
            model: &self.basis.model,
            choices: self.choices,
            planned: &plan.ranked[..plan.ranked.len().min(count as usize)],
            rate: plan.design_rate,
            within_s: self.objective.within_s - self.basis.delay_s,
            chance,
            origin_s: self.options.origin,
            runs: self.options.runs as usize,
            requests: self.options.requests as f64,
            seed: self.options.seed,
            threads: self.options.threads.unwrap_or(threads),
        };
        if let (Some(folder), true) = (&self.options.out, self.options.join) {
            let id = self.study(&question);
            let found = join_candidates(&question, &StudyPlace { folder, id: &id })?;
            return self.finish(plan, found).map(Some);
        }
        let stop = Arc::new(AtomicBool::new(false));
        watch_interrupts(&stop)?;
        let progress = PartProgress::new(self.options.quiet || !std::io::stderr().is_terminal());
        let show = |done, all| progress.show(done, all);
        if let (Some(folder), Some(part)) = (&self.options.out, self.options.part) {
            let id = self.study(&question);
            let place = StudyPlace { folder, id: &id };
            let done = simulate_candidate_part(&question, &place, part, &stop, &show);
            progress.end();
            return Ok(Some(Simulated::Part(done?)));
        }
        let found = simulate_candidates(&question, &stop, &show);
        progress.end();
        self.finish(plan, found?).map(Some)
    }

    /// The name of the study that parts are of.
    fn study(&self, question: &CandidateQuestion) -> String {
        let CandidateQuestion { planned, rate, within_s, chance, origin_s, .. } = question;
        let CandidateQuestion { runs, requests, seed, .. } = question;
        let asked = (planned, rate, within_s, chance, origin_s, runs, requests, seed);
        study_id(&("plan", &self.sources, asked))
    }

    fn finish(&self, plan: &Plan, found: SimulatedPlan) -> anyhow::Result<Simulated> {
        if let (Some(path), Some(best)) = (&self.options.picture, found.candidates.first()) {
            self.draw(path, plan, best)?;
        }
        Ok(Simulated::Candidates(found))
    }

    /// Draws the formula's law of responses beside the simulated one.
    fn draw(&self, path: &Path, plan: &Plan, best: &SimulatedCandidate) -> anyhow::Result<()> {
        let configuration = &plan.ranked[best.candidate].configuration;
        let model = server_of(&self.basis.model, self.choices, configuration, 0)?;
        let rate = plan.design_rate / f64::from(configuration.servers);
        let loads = CandidateLoads { cluster: plan.design_rate, server: rate };
        let measured = self.options.measured.as_deref();
        let measured = measured.map(|run| NearestStep::read(run, loads)).transpose()?;
        let plots = [picture(&model, rate, self, best, measured.as_ref())?];
        let mut notes = vec![format!(
            "{} servers at {} requests/s; {}.",
            configuration.servers,
            digits(plan.design_rate, 6),
            missed(best)
        )];
        notes.extend(measured.map(|step| format!("{}.", step.note())));
        let text = standalone(&plots, &notes);
        Ok(report::write_whole(path, &text, is_plot)?)
    }
}

fn picture(
    model: &Model,
    rate: f64,
    asked: &Simulation,
    best: &SimulatedCandidate,
    measured: Option<&NearestStep>,
) -> anyhow::Result<Plot> {
    let delay_ms = 1e3 * asked.basis.delay_s;
    let times: Vec<f64> = best.law.iter().map(|(t, _)| *t).collect();
    let shares = model.cdf(rate, &times)?;
    let ms = |t: f64| t * 1e3 + delay_ms;
    let formula = times.iter().zip(&shares).map(|(t, share)| (ms(*t), 100.0 * share));
    let point = |x: f64, share: f64, half: f64, what: &str| PlotPoint {
        x,
        y: 100.0 * share,
        half: 100.0 * half,
        title: format!("{what}: {} % within {} ms", percent(share), digits(x, 3)),
    };
    // Rings side by side would cover the lines.
    let simulated =
        best.law.iter().step_by(4).map(|(t, share)| point(ms(*t), *share, 0.0, "simulated"));
    let objective_ms = 1e3 * asked.objective.within_s;
    let all = best.simulated;
    let failing = point(objective_ms, all.value, all.half, "simulated with failures");
    let mut marks = vec![
        Mark::Vertical { x: objective_ms, label: format!("{}", asked.objective) },
        Mark::Line { class: "ours", label: "formula".to_owned(), points: formula.collect() },
        Mark::Points {
            class: "third",
            shape: Shape::Ring,
            label: "simulation, nothing down".to_owned(),
            points: simulated.collect(),
        },
    ];
    if let Some(step) = measured {
        // A measured time has all that comes before the servers, which the formula adds.
        let seen: Vec<f64> = times.iter().map(|t| t + asked.basis.delay_s).collect();
        let points = seen.iter().zip(step.shares(&seen)).map(|(t, share)| (1e3 * t, 100.0 * share));
        marks.push(Mark::Line {
            class: "measured",
            label: format!("measurement, {} requests/s", digits(step.rate, 4)),
            points: points.collect(),
        });
    }
    if best.while_down.is_some() {
        marks.push(Mark::Points {
            class: "third",
            shape: Shape::Square,
            label: "simulation with failures".to_owned(),
            points: vec![failing],
        });
    }
    let low = ms(times.first().copied().unwrap_or(1e-3)).max(1e-3);
    let high = ms(times.last().copied().unwrap_or(1.0));
    Ok(Plot {
        title: "responses of the best candidate".to_owned(),
        x: Axis::log("response time, ms", low, high),
        y: Axis::linear("share within, %", 0.0, 100.0),
        marks,
    })
}

/// What an assumption is called in a sentence.
fn name(of: Assumption) -> &'static str {
    match of {
        Assumption::Queues => "the laws of its queues",
        Assumption::EqualShares => "equal shares of the load",
        Assumption::NoFailures => "nothing fails",
    }
}

fn points(of: Interval) -> String {
    let sign = if of.value >= 0.0 { "+" } else { "−" };
    let half = match of.half.is_finite() {
        true => format!(" ± {:.2}", 100.0 * of.half),
        false => String::new(),
    };
    format!("{sign}{:.2}{half}", 100.0 * of.value.abs())
}

/// What the formula missed, in a sentence.
fn missed(found: &SimulatedCandidate) -> String {
    match found.broke {
        None => "the formula misses nothing that differs from chance".to_owned(),
        Some(of) => format!(
            "the simulation differs by {} points, most by the assumption: {}",
            points(found.difference),
            name(of)
        ),
    }
}

impl PlanReport<'_> {
    /// The candidates beside their simulation.
    pub(super) fn simulated(&self, found: &SimulatedPlan) -> String {
        let failing = found.candidates.iter().any(|candidate| candidate.while_down.is_some());
        let mut head = ["cost", "servers", "memory"].map(String::from).to_vec();
        head.extend(self.choices.devices.iter().map(|device| device.class.clone()));
        let shares = found.candidates.iter().map(|it| &self.plan.ranked[it.candidate]);
        let formula = match has_intervals(shares.map(|planned| &planned.forecast.within)) {
            true => "formula % [95 %]",
            false => "formula %",
        };
        head.extend(["replicas", formula, "simulated %", "difference"].map(String::from));
        head.extend(["queues", "shares"].map(String::from));
        if failing {
            head.extend(["failures", "while down %"].map(String::from));
        }
        head.push("objective".to_owned());
        let mut grid = Grid { head, align: "", rows: Vec::new() };
        let mut notes = String::new();
        for candidate in &found.candidates {
            grid.row(self.simulated_row(candidate, failing));
            let configuration = &self.plan.ranked[candidate.candidate].configuration;
            let _ = writeln!(
                notes,
                "  {}, {} servers: {}.",
                self.price(configuration.cost),
                configuration.servers,
                missed(candidate)
            );
        }
        let mut out = format!(
            "\nSimulated, {} runs of {} requests or more (± 95 %, over runs; differences in points):\n{}{notes}",
            found.runs,
            digits(found.requests, 4),
            grid.text()
        );
        if let Some(first) = found.candidates.first().filter(|first| first.while_down.is_some()) {
            let _ = writeln!(
                out,
                "Something is down {} of the time ({} servers).",
                percent_of(first.down, 3),
                self.plan.ranked[first.candidate].configuration.servers
            );
        }
        out += &self.verdict(found);
        if found.interrupted {
            out += "Interrupted: candidates whose runs did not all end are left out.\n";
        }
        out
    }

    fn simulated_row(&self, found: &SimulatedCandidate, failing: bool) -> Vec<String> {
        let planned = &self.plan.ranked[found.candidate];
        let c = &planned.configuration;
        let mut cells = vec![self.price(c.cost), c.servers.to_string(), self.memory(c)];
        cells.extend(c.devices.iter().map(|device| device.count.to_string()));
        cells.push(c.replicas.to_string());
        cells.push(with_interval(&planned.forecast.within, percent));
        let share = |of: Interval| format!("{} ± {:.2}", percent(of.value), 100.0 * of.half);
        cells.extend([share(found.simulated), points(found.difference)]);
        let effect = |of: Assumption| {
            let found = found.effects.iter().find(|effect| effect.of == of);
            found.map_or("–".to_owned(), |Effect { share, .. }| points(*share))
        };
        cells.extend([effect(Assumption::Queues), effect(Assumption::EqualShares)]);
        if failing {
            let down = found.while_down.map_or("–".to_owned(), |of| tenths(of.value));
            cells.extend([effect(Assumption::NoFailures), down]);
        }
        let verdict = match found.holds(self.objective.share) {
            Some(true) => "holds",
            Some(false) => "MISSED",
            None => "not shown",
        };
        cells.push(verdict.to_owned());
        cells
    }

    /// The cheapest candidate that the simulation finds to hold the objective.
    fn verdict(&self, found: &SimulatedPlan) -> String {
        let share = self.objective.share;
        let holds = found.candidates.iter().find(|of| of.holds(share) == Some(true));
        match holds {
            None if found.candidates.is_empty() => String::new(),
            None => "No simulated candidate is shown to hold the objective: simulate more of them (--simulate N), or add --runs.\n"
                .to_owned(),
            Some(best) => {
                let configuration = &self.plan.ranked[best.candidate].configuration;
                format!(
                    "The cheapest that holds {} in the simulation: {} servers at {}.\n",
                    self.objective,
                    configuration.servers,
                    self.price(configuration.cost)
                )
            }
        }
    }
}
