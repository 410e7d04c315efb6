//! The runs of all candidates, on threads.
//!
//! What is shown does not depend on the number of threads: each run has its own seed, and runs are put together in the order of
//! the candidates and seeds. A candidate counts once all of its runs ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use engine::route::{Member, Ring};
use engine::sim::drawn::DrawnCluster;
use ground::window::{Histogram, Nanos, Outcome, Window};
use model::plan::{Planned, server_of};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};

use super::super::parts::{StudyPart, StudyPlace, is_done, on_threads, read_parts, write_part};
use super::super::server::Server;
use super::super::study::DonePart;
use super::failures::{Parts, State};
use super::run::Run;
use super::{Assumed, CandidateQuestion, Shares, SimulatedCandidate, SimulatedPlan};

/// An interrupt is looked for this many times in a run.
const LOOKS: Nanos = 200;
/// Points of a law of responses.
const LAW_POINTS: usize = 60;
/// The times of a law's first and last point, as parts of the objective's time.
const LAW_FROM: f64 = 1.0 / 50.0;
const LAW_TO: f64 = 4.0;
/// Random numbers of failures must not be those of the load.
const FAILURES: u64 = 0xfa17;

/// A candidate that is simulated.
struct Candidate {
    servers: usize,
    ring: Arc<Ring>,
    alone: Arc<Ring>,
    /// The server by the number of lost ones, as they are needed.
    by_lost: Vec<Server>,
    parts: Parts,
}

/// One run to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Task {
    candidate: usize,
    /// 0: equal shares, 1: placed, 2: failing.
    way: usize,
    seed: u64,
}

const WAYS: [Assumed; 3] = [Assumed::Equal, Assumed::Placed, Assumed::Failing];

/// The result of one run.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ended {
    share: f64,
    requests: u64,
    responses: Histogram,
}

fn ring(nodes: usize, replicas: usize) -> anyhow::Result<Arc<Ring>> {
    let members = (0..nodes).map(|at| Member::new(format!("node-{at:04}"), 1.0)).collect();
    let ring = Ring::new(members, replicas.min(nodes));
    Ok(Arc::new(ring.context("cannot simulate a candidate")?))
}

impl Candidate {
    fn new(question: &CandidateQuestion, planned: &Planned) -> anyhow::Result<Candidate> {
        let configuration = &planned.configuration;
        let servers = configuration.servers as usize;
        let mut by_lost = Vec::new();
        for lost in 0..configuration.servers.min(1 + LOST_MAX) {
            let model = server_of(question.model, question.choices, configuration, lost)?;
            by_lost.push(Server::new(
                &model,
                question.rate / f64::from(configuration.servers - lost),
            )?);
        }
        let devices = by_lost.first().map_or(0, |server| server.devices.len());
        Ok(Candidate {
            servers,
            ring: ring(servers, configuration.replicas as usize)?,
            alone: ring(1, 1)?,
            by_lost,
            parts: Parts::new(&question.chance, servers, devices),
        })
    }

    fn run(&self, question: &CandidateQuestion, task: Task, stop: &AtomicBool) -> Option<Ended> {
        let assumed = WAYS[task.way];
        let state = match assumed {
            Assumed::Failing => {
                let mut random = SmallRng::seed_from_u64(task.seed ^ FAILURES);
                self.parts.draw(&mut random)
            }
            Assumed::Equal | Assumed::Placed => State::default(),
        };
        // The hit ratios are computed up to a number of lost servers. With more lost, those of the largest number stand in.
        let server = &self.by_lost[state.nodes.len().min(self.by_lost.len() - 1)];
        let alone = assumed == Assumed::Equal;
        let run = Run {
            ring: if alone { self.alone.clone() } else { self.ring.clone() },
            rate: if alone { question.rate / self.servers as f64 } else { question.rate },
            within_s: question.within_s,
            origin_s: question.origin_s,
            requests: question.requests,
            seed: task.seed,
            state,
        };
        simulate(&run, server, stop)
    }
}

/// The servers of a candidate are modelled for up to this many lost ones.
const LOST_MAX: u32 = 8;

/// Runs a cluster; `None` if it was interrupted.
fn simulate(run: &Run, server: &Server, stop: &AtomicBool) -> Option<Ended> {
    let (warm, end) = run.times(server);
    let mut cluster = DrawnCluster::new(run.settings(server));
    let step = (end / LOOKS).max(1);
    let mut at = 0;
    let mut go = |cluster: &mut DrawnCluster, to: Nanos| -> Option<()> {
        while at < to {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            at = to.min(at + step);
            cluster.run_to(at);
        }
        Some(())
    };
    go(&mut cluster, warm)?;
    cluster.windows(true);
    go(&mut cluster, end)?;
    let windows = cluster.windows(true).swap_remove(0);
    let (mut within, mut all, mut responses) = (0, 0, Histogram::default());
    for Window { times, completions, .. } in &windows {
        all += completions;
        for times in times.iter().filter(|times| times.outcome != Outcome::Error) {
            within += times.within.first().copied().unwrap_or(0);
            responses.merge(&times.response);
        }
    }
    let share = within as f64 / all.max(1) as f64;
    Some(Ended { share, requests: cluster.counts().requests, responses })
}

/// The candidates of a plan, and their runs.
struct CandidateStudy<'a> {
    question: &'a CandidateQuestion<'a>,
    candidates: Vec<Candidate>,
    /// In the order in which runs are put together.
    tasks: Vec<Task>,
}

impl<'a> CandidateStudy<'a> {
    fn new(question: &'a CandidateQuestion) -> anyhow::Result<CandidateStudy<'a>> {
        let candidates: Vec<Candidate> = question
            .planned
            .iter()
            .map(|planned| Candidate::new(question, planned))
            .collect::<anyhow::Result<_>>()?;
        let mut tasks = Vec::new();
        for (candidate, of) in candidates.iter().enumerate() {
            let ways = if of.parts.down() > 0.0 { 3 } else { 2 };
            let seeds = (0..question.runs as u64).map(|run| question.seed.wrapping_add(run));
            tasks.extend(
                (0..ways)
                    .flat_map(|way| seeds.clone().map(move |seed| Task { candidate, way, seed })),
            );
        }
        Ok(CandidateStudy { question, candidates, tasks })
    }

    /// Makes some of the runs, by their places among them.
    fn run(
        &self,
        tasks: &[Task],
        stop: &AtomicBool,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> anyhow::Result<BTreeMap<usize, Ended>> {
        let work =
            |task: &Task| Ok(self.candidates[task.candidate].run(self.question, *task, stop));
        on_threads(tasks, self.question.threads, stop, &work, progress)
    }

    /// The candidates from all runs that ended, up to the first of which one is missing.
    fn result(&self, mut ended: BTreeMap<usize, Ended>) -> SimulatedPlan {
        let mut found = Vec::new();
        for (at, candidate) in self.candidates.iter().enumerate() {
            let own = self.tasks.iter().enumerate().filter(|(_, task)| task.candidate == at);
            let done: Option<Vec<(Task, Ended)>> =
                own.map(|(place, task)| Some((*task, ended.remove(&place)?))).collect();
            let Some(done) = done else { break };
            found.push(summary(self.question, at, candidate, done));
        }
        SimulatedPlan {
            interrupted: found.len() < self.candidates.len(),
            candidates: found,
            runs: self.question.runs,
            requests: self.question.requests,
            seed: self.question.seed,
        }
    }
}

/// Simulates the candidates of a plan. `progress` receives the number of runs that ended and that of all.
///
/// # Errors
/// If a candidate's servers cannot be simulated.
pub fn simulate_candidates(
    question: &CandidateQuestion,
    stop: &AtomicBool,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> anyhow::Result<SimulatedPlan> {
    let study = CandidateStudy::new(question)?;
    let ended = study.run(&study.tasks, stop, progress)?;
    Ok(study.result(ended))
}

/// Simulates one part of the runs, and writes their results into a file. A part whose file is there is not simulated again; `None` if it was interrupted.
///
/// # Errors
/// As [`simulate_candidates`]; if the file cannot be written.
pub fn simulate_candidate_part(
    question: &CandidateQuestion,
    place: &StudyPlace<'_>,
    part: StudyPart,
    stop: &AtomicBool,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> anyhow::Result<Option<DonePart>> {
    let study = CandidateStudy::new(question)?;
    let units: Vec<usize> = part.units(study.tasks.len()).collect();
    let done = |was_done| Ok(Some(DonePart::new(part, units.len(), place.folder, was_done)));
    if is_done(place.folder, part, place.id) {
        return done(true);
    }
    let tasks: Vec<Task> = units.iter().filter_map(|at| study.tasks.get(*at).copied()).collect();
    let ended = study.run(&tasks, stop, progress)?;
    if ended.len() < units.len() {
        return Ok(None);
    }
    let results = ended.into_iter().filter_map(|(at, run)| Some((*units.get(at)?, run)));
    write_part(place.folder, part, place.id, results.collect())?;
    done(false)
}

/// Joins the parts that [`simulate_candidate_part`] wrote of the same question.
///
/// # Errors
/// If a part is missing, or of another question.
pub fn join_candidates(
    question: &CandidateQuestion,
    place: &StudyPlace<'_>,
) -> anyhow::Result<SimulatedPlan> {
    let study = CandidateStudy::new(question)?;
    let ended: Vec<Ended> = read_parts(place.folder, place.id, study.tasks.len())?;
    Ok(study.result(ended.into_iter().enumerate().collect()))
}

/// A candidate from all of its runs.
fn summary(
    question: &CandidateQuestion,
    at: usize,
    candidate: &Candidate,
    runs: Vec<(Task, Ended)>,
) -> SimulatedCandidate {
    let (mut shares, mut requests) = (Shares::default(), 0);
    let mut responses = Histogram::default();
    for (task, ended) in runs {
        requests += ended.requests;
        match WAYS[task.way] {
            Assumed::Equal => shares.equal.push(ended.share),
            Assumed::Placed => {
                responses.merge(&ended.responses);
                shares.placed.push(ended.share);
            }
            Assumed::Failing => shares.failing.push(ended.share),
        }
    }
    let formula = question.planned[at].forecast.within.value;
    let mut found = SimulatedCandidate::new(at, formula, &shares, candidate.parts.down());
    found.requests = requests;
    let ratio = (LAW_TO / LAW_FROM).powf(1.0 / (LAW_POINTS - 1) as f64);
    let times = (0..LAW_POINTS).map(|i| question.within_s * LAW_FROM * ratio.powi(i as i32));
    found.law = times.filter_map(|t| Some((t, responses.share_within(t)?))).collect();
    found
}
