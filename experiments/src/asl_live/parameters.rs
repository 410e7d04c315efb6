//! What the predictions are made of, measured before anything that is predicted: bandwidths, what one
//! request costs at light load, and the systems' curves of throughput against clients that never
//! think.

use anyhow::{Context as _, ensure};
use ground::window::{Operation, Window};
use model::laws::Quantities;
use record::{RunFolder, Step};
use serde::Serialize;

use super::config::{Settings, Times};
use super::rows::{System, WORKERS_MANY, Work};
use super::system::{CLIENT, Lab, LoadPlan, MIDDLEWARES, SERVERS};
use crate::context::Context;

/// Bandwidths of what leaves a machine, bytes/s, by the counters of its link while large values
/// fill it.
#[derive(Clone, Debug, Serialize)]
pub struct Bandwidths {
    /// The slowest of the servers.
    pub server: f64,
    /// The clients' machine.
    pub client: f64,
    /// The slower of the middlewares.
    pub middleware: f64,
    /// All of them, in the order of the network's members.
    pub each: Vec<f64>,
}

/// One client at a system: what its requests cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Light {
    /// The system.
    pub system: System,
    /// What the client does.
    pub work: Work,
    /// Mean response time at the client, seconds.
    pub response_s: f64,
    /// Of it in the middleware, while a worker is taken; 0 without a middleware.
    pub inside_s: f64,
    /// Bytes that a request makes leave the clients' machine, the middleware, and all servers.
    pub client_bytes: f64,
    /// See `client_bytes`.
    pub middleware_bytes: f64,
    /// See `client_bytes`.
    pub server_bytes: f64,
    /// Processor time of a request, seconds: generator, middlewares, servers.
    pub processor_s: [f64; 3],
}

/// A system's throughput by the number of clients, which never think.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// The system.
    pub system: System,
    /// What the clients do.
    pub work: Work,
    /// Clients and requests/s, rising.
    pub points: Vec<(u32, f64)>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    /// Bandwidths.
    pub bandwidths: Bandwidths,
    /// Costs at light load.
    pub light: Vec<Light>,
    /// Costs where the machine is the limit, with `MACHINE_CLIENTS` clients.
    pub machine: Vec<Light>,
    /// Curves.
    pub curves: Vec<Curve>,
    /// Mean number of keys of a batch.
    pub batch_keys: Option<f64>,
}

/// Clients of the measurement of processor time where nothing else is a limit: with fewer, most of it
/// is falling asleep and waking.
const MACHINE_CLIENTS: u32 = 16;

/// Systems whose curves are measured, without a limit by workers.
fn systems() -> [System; 3] {
    let system = |middlewares, servers, workers| System {
        middlewares,
        servers,
        workers,
        sharded: false,
        limited: true,
    };
    [system(0, 1, 0), system(1, 1, 2 * WORKERS_MANY), system(2, 3, WORKERS_MANY)]
}

/// The same without limits.
fn machines() -> [System; 2] {
    let system = |middlewares, workers| System {
        middlewares,
        servers: 1,
        workers,
        sharded: false,
        limited: false,
    };
    [system(0, 0), system(1, 4 * WORKERS_MANY)]
}

const BOTH: [Work; 2] = [Work::Reads(1), Work::Writes];

impl Parameters {
    /// Measures all.
    pub fn measure(
        context: &Context,
        lab: &mut Lab,
        settings: &Settings,
        times: &Times,
        batch_keys: Option<f64>,
    ) -> anyhow::Result<Parameters> {
        context.say("bandwidths");
        let bandwidths = bandwidths(lab, times)?;
        let (mut light_loads, mut curves, mut machine) = (Vec::new(), Vec::new(), Vec::new());
        for system in systems() {
            context.say(format!("light load and curve: {}", system.name()));
            light_loads.extend(light(lab, system, 1, settings.think_ms, times)?);
            for work in BOTH {
                curves.push(curve(lab, system, work, &settings.curve.clients, times)?);
            }
        }
        for system in machines() {
            context.say(format!("light load and curve: {}", system.name()));
            machine.extend(light(lab, system, MACHINE_CLIENTS, 0.0, times)?);
            for work in BOTH {
                let longer = Times { curve: times.curve * 3.0, ..times.clone() };
                curves.push(curve(lab, system, work, &settings.curve.machine, &longer)?);
            }
        }
        Ok(Parameters { bandwidths, light: light_loads, machine, curves, batch_keys })
    }

    /// The curve of a system as a row has it, whatever its workers.
    pub fn curve(&self, system: System, work: Work) -> Option<&Curve> {
        let same = |curve: &&Curve| {
            let own = curve.system;
            let behind = own.servers == system.servers && own.limited == system.limited;
            behind && curve.work == work && (own.middlewares > 0) == (system.middlewares > 0)
        };
        self.curves.iter().find(same)
    }

    /// The costs of a system as a row has it, whatever its workers. Two servers without a
    /// middleware are as one.
    pub fn light(&self, system: System, work: Work) -> anyhow::Result<&Light> {
        let all = if system.limited { &self.light } else { &self.machine };
        let same = |light: &&Light| {
            let own = light.system;
            match (own.middlewares, system.middlewares) {
                (0, 0) => light.work == work,
                (0, _) | (_, 0) => false,
                _ => light.work == work && own.servers == system.servers,
            }
        };
        all.iter().find(same).with_context(|| format!("no costs of {}", system.name()))
    }
}

fn bandwidths(lab: &mut Lab, times: &Times) -> anyhow::Result<Bandwidths> {
    let all = System { middlewares: 0, servers: 3, workers: 0, sharded: false, limited: true };
    lab.become_system(all)?;
    let mut each = vec![lab.bandwidth(CLIENT, true, times.bandwidth)?];
    let servers: Vec<f64> = SERVERS
        .into_iter()
        .map(|member| lab.bandwidth(member, false, times.bandwidth))
        .collect::<Result<_, _>>()?;
    // The middlewares send thrice what they get: the clients' link is lifted for that.
    lab.become_system(System { middlewares: 2, workers: WORKERS_MANY, ..all })?;
    lab.network.limit(CLIENT, None)?;
    for member in MIDDLEWARES {
        each.push(lab.bandwidth(member, true, times.bandwidth)?);
    }
    // The limit is set again with the next system.
    lab.stop_middlewares()?;
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let (client, middleware, server) = (each[0], least(&each[1..]), least(&servers));
    each.extend(servers);
    Ok(Bandwidths { server, client, middleware, each })
}

/// Costs of reads and of writes with few clients.
fn light(
    lab: &mut Lab,
    system: System,
    clients: u32,
    think_ms: f64,
    times: &Times,
) -> anyhow::Result<Vec<Light>> {
    // One middleware alone: one client has no other.
    let system = System { middlewares: system.middlewares.min(1), ..system };
    let mut found = Vec::new();
    for work in BOTH {
        // A middleware of its own for each, so that its records are of one kind of request.
        lab.stop_middlewares()?;
        lab.become_system(system)?;
        let asked = LoadPlan {
            work,
            clients: vec![clients],
            think_ms,
            ramp_s: 0.1,
            measure_s: times.light,
            seed: 1,
            stored_only: true,
        };
        let sent = |lab: &Lab| -> anyhow::Result<[u64; 3]> {
            let of = |member| lab.network.sent_bytes(member);
            let servers: Vec<u64> = SERVERS.into_iter().map(of).collect::<Result<_, _>>()?;
            Ok([of(CLIENT)?, of(MIDDLEWARES[0])?, servers.iter().sum()])
        };
        let counted = lab.counts()?;
        let (before, busy) = (sent(lab)?, lab.processor_s()?);
        let runs = lab.load(&asked)?;
        let (after, busy_after) = (sent(lab)?, lab.processor_s()?);
        let counts = lab.counts()?;
        let run = runs.first().context("no generator ran")?;
        let step = run.steps.first().context("the generator completed no step")?;
        let total = total(&of_step(run, step));
        let windows = lab.stop_middlewares()?;
        let (response_s, generator_s) = (total.response_s / total.completions, cpu_s(run, &total));
        let inside_s = inside(&windows, work);
        // The ramp counts too in what was sent. A write is one of each replica.
        let requests = match work {
            Work::Writes => (counts.sets - counted.sets) as f64 / f64::from(system.servers),
            _ => (counts.hits + counts.misses - counted.hits - counted.misses) as f64,
        };
        ensure!(requests > 10.0, "{}: too few requests at light load", system.name());
        let per = |i: usize| (after[i] - before[i]) as f64 / requests;
        found.push(Light {
            system,
            work,
            response_s,
            inside_s,
            client_bytes: per(0),
            middleware_bytes: per(1),
            server_bytes: per(2),
            processor_s: [
                generator_s,
                (busy_after[0] - busy[0]) / requests,
                (busy_after[1] - busy[1]) / requests,
            ],
        });
    }
    Ok(found)
}

/// The generator's processor time of a request.
fn cpu_s(run: &RunFolder, total: &Quantities) -> f64 {
    let share = run.steps.first().map_or(0.0, |step| step.generator.cpu);
    share * total.seconds / total.completions
}

/// Mean time in service, seconds, by the middlewares' own windows; 0 without requests.
fn inside(windows: &[Window], work: Work) -> f64 {
    let wanted = if work == Work::Writes { Operation::Put } else { Operation::Get };
    let own = windows.iter().filter(|w| w.queue == POOL);
    let times = own.flat_map(|w| &w.times).filter(|t| t.operation == wanted);
    let (sum, count) = times.fold((0.0, 0.0), |(sum, count), t| {
        (sum + t.service.sum_s(), count + t.service.count() as f64)
    });
    if count > 0.0 { sum / count } else { 0.0 }
}

/// The queue of a middleware's workers.
pub(super) const POOL: &str = "pool/main";

/// The sums of the generator's windows in a step, without what was cut off.
pub(super) fn of_step(run: &RunFolder, step: &Step) -> Vec<Quantities> {
    let own = |w: &&Window| {
        let middle = w.start_unix_us + (w.length_s * 5e5) as u64;
        w.queue == "load" && (step.start_unix_us..step.end_unix_us).contains(&middle)
    };
    run.windows.iter().filter(own).map(Quantities::of_window).collect()
}

/// Seconds, completions and response times of all windows.
pub(super) fn total(windows: &[Quantities]) -> Quantities {
    windows.iter().fold(Quantities::default(), |sum, w| Quantities {
        seconds: sum.seconds + w.seconds,
        completions: sum.completions + w.completions,
        response_s: sum.response_s + w.response_s,
        ..sum
    })
}

fn curve(
    lab: &mut Lab,
    system: System,
    work: Work,
    clients: &[u32],
    times: &Times,
) -> anyhow::Result<Curve> {
    lab.become_system(system)?;
    let asked = LoadPlan {
        work,
        clients: clients.to_vec(),
        think_ms: 0.0,
        ramp_s: times.curve_ramp,
        measure_s: times.curve,
        seed: 2,
        stored_only: false,
    };
    let runs = lab.load(&asked)?;
    let mut points: Vec<(u32, f64)> = clients.iter().map(|&n| (n, 0.0)).collect();
    for run in &runs {
        ensure!(run.steps.len() == clients.len(), "a curve lacks points");
        for (point, step) in points.iter_mut().zip(&run.steps) {
            let total = total(&of_step(run, step));
            ensure!(total.response_s > 0.0, "a point of a curve has no requests");
            // N/R, as nobody thinks: clients that start together stay together, and how many of
            // their rounds end within a step is chance.
            let own = f64::from(point.0) / runs.len() as f64;
            point.1 += own * total.completions / total.response_s;
        }
    }
    Ok(Curve { system, work, points })
}
