//! `experiments/spotify-single`: the single server of Yanggratoke et al. (Figures 6–8, Table II),
//! with emulated disks of three kinds and loads up to 90 % utilisation.
//!
//! Several servers run side by side in one node, each with its own disks, so that the measurement
//! at 90 % has a narrow interval within minutes. They get equal shares of a Poisson stream, so each
//! is the paper's server at its share of the load. Their number is fitted to the machine (see
//! [`crate::machine`]).

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

use super::accuracy::Accuracy;
use super::again::Again;
use super::claims::Claim;
use super::context::Context;
use super::lab::{self, Catalogue, Server};
use super::machine::{self, COST_RATE_MAX, Cost, Fit, Placement};
use super::marks::{Mark, MarkedLoad};
use super::provenance::Round;
use record::RunFolder;
use report::{self, Comparison, Observed, Page, Selection};

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    objects: u64,
    object_bytes: u64,
    fit_utilisations: Vec<f64>,
    held_out_utilisations: Vec<f64>,
    half_width_points: f64,
    half_width_points_high: f64,
    measure_s_min: f64,
    measure_s_max: f64,
    relaxation_times: f64,
    warmup_s_min: f64,
    fit_s: f64,
    scale_min: f64,
    again: Again,
    short: Short,
    server: Vec<Scenario>,
    profile: Vec<Profile>,
    case: Vec<Pair>,
}

/// A server under a profile, by their names.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    server: String,
    profile: String,
}

/// What `--short` measures: one server under one profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    server: String,
    profile: String,
    fit_utilisations: Vec<f64>,
    held_out_utilisations: Vec<f64>,
}

/// A server of the paper's Table II.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    name: String,
    mu_per_s: f64,
    disks: u32,
    servers: u32,
    hit_ratio: f64,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    name: String,
    kind: String,
    scv: f64,
}

/// The paper's largest error of prediction, points (Section V.C).
const PUBLISHED_POINTS: f64 = 11.0;

/// The smallest response time that is judged, seconds.
const SMALLEST_S: f64 = 0.020;

/// Above this utilisation the larger goal holds, so that a wider interval is narrow enough.
const HIGH_UTILISATION: f64 = 0.5;

/// The load at which the cost of a request is measured, and for how long, seconds.
const COST_UTILISATION: f64 = 0.3;
const COST_S: f64 = 5.0;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let data = Data::fill(context, &config)?;
    let short = Pair { server: config.short.server.clone(), profile: config.short.profile.clone() };
    let pairs = if context.short { vec![short] } else { config.case.clone() };
    let mut claims = Vec::new();
    for pair in &pairs {
        let scenario = config.server.iter().find(|s| s.name == pair.server);
        let scenario = scenario
            .with_context(|| format!("config.toml has no [[server]] named {}", pair.server))?;
        let profile = config.profile.iter().find(|p| p.name == pair.profile);
        let profile = profile
            .with_context(|| format!("config.toml has no [[profile]] named {}", pair.profile))?;
        let servers = scenario.servers;
        let placement = Placement::Shared;
        let case =
            Case { context, config: &config, data: &data, scenario, profile, servers, placement };
        let case = case.fitted()?;
        claims.extend(case.run()?);
        // Recorded at once, in case a later case fails.
        context.record(&claims)?;
    }
    Ok(claims)
}

/// The catalogue, on devices and in the origin; every case serves the same files.
struct Data {
    devices: PathBuf,
    origin: PathBuf,
    catalogue: Catalogue,
}

impl Data {
    /// Puts the catalogue, through a node whose devices are as fast as they are.
    fn fill(context: &Context, config: &Config) -> anyhow::Result<Data> {
        let scratch = &context.scratch;
        let catalogue = Catalogue::write(scratch, config.objects, config.object_bytes)?;
        let (devices, origin) = (scratch.join("device"), scratch.join("origin"));
        let data = Data { devices, origin, catalogue };
        let most = config.server.iter().map(|s| s.disks * s.servers).max().unwrap_or(1);
        context.say(format!("putting {} objects", config.objects));
        let server = lab::server(1 << 20, lab::disks(&data.devices, most, None), &data.origin);
        let path = scratch.join("fill.toml");
        lab::write_config(&path, &server)?;
        let server = Server::start(&path, &scratch.join("fill.log"))?;
        data.catalogue.put(server.url(), &scratch.join("fill"), context.quiet)?;
        server.stop()?;
        Ok(data)
    }
}

/// One server under one profile.
struct Case<'a> {
    context: &'a Context,
    config: &'a Config,
    data: &'a Data,
    scenario: &'a Scenario,
    profile: &'a Profile,
    /// Servers side by side: as many as this machine carries.
    servers: u32,
    placement: Placement,
}

impl Case<'_> {
    fn name(&self) -> String {
        format!("{}-{}", self.scenario.name, self.profile.name)
    }

    fn disks(&self) -> u32 {
        self.scenario.disks * self.servers
    }

    fn run(&self) -> anyhow::Result<Vec<Claim>> {
        let scratch = self.context.scratch.join(self.name());
        let server_run = scratch.join("server");
        let server = self.start(&scratch, Some(&server_run))?;
        let (fit, held_out) = self.utilisations();
        let (mut fit_runs, mut held_out_runs, mut loads) = (Vec::new(), Vec::new(), Vec::new());
        for &utilisation in fit {
            let (run, marks) = self.measure(&server, &scratch, "fit", utilisation)?;
            fit_runs.push(run);
            loads.push(MarkedLoad { rate: None, marks });
        }
        for &utilisation in held_out {
            let (run, marks) = self.measure(&server, &scratch, "held-out", utilisation)?;
            held_out_runs.push(run);
            loads.push(MarkedLoad { rate: Some(self.rate(utilisation)), marks });
        }
        server.stop()?;

        let server_run = RunFolder::read(&server_run)?;
        fit_runs.push(server_run.clone());
        held_out_runs.push(server_run);
        let observed = Observed::new(fit_runs, &Selection::default())?;
        let model = report::fit(&observed, &self.name())?;
        let observed = Observed::new(held_out_runs, &Selection::default())?;
        let comparison = Comparison::new(&observed, &model, &[], &[])?;
        self.record(&model, &comparison)?;
        let claims = self.claims(&model, &comparison, &loads)?;
        std::fs::remove_dir_all(&scratch).context("cannot remove run folders")?;
        Ok(claims)
    }

    /// Starts the server with its disks and asks for every object once, so that memory and devices
    /// hold what they can.
    fn start(&self, scratch: &Path, run_dir: Option<&Path>) -> anyhow::Result<Server> {
        std::fs::create_dir_all(scratch)?;
        let config = scratch.join("server.toml");
        let service = lab::service(&self.profile.kind, self.scenario.mu_per_s, self.profile.scv)?;
        let disks = lab::disks(&self.data.devices, self.disks(), Some(service));
        let mut server = lab::server(self.memory_bytes(), disks, &self.data.origin);
        server.observe.run_dir = run_dir.map(Path::to_owned);
        lab::write_config(&config, &server)?;
        let start = || Server::start(&config, &scratch.join("server.log"));
        let server = self.placement.of_servers(start)?;
        self.context.say(format!("{}: warming up", self.name()));
        let warmup = scratch.join("warmup");
        self.data.catalogue.ask_for_all(server.url(), &warmup, self.context.quiet)?;
        Ok(server)
    }

    /// The case with as many servers as this machine carries at its highest load.
    fn fitted(self) -> anyhow::Result<Self> {
        let scratch = self.context.scratch.join(format!("{}-cost", self.name()));
        let server = self.start(&scratch, None)?;
        let rate = self.rate(COST_UTILISATION).min(COST_RATE_MAX);
        let arguments = self.data.catalogue.uniform(rate, (0.0, COST_S), 1);
        let load =
            || lab::load(server.url(), &arguments, &scratch.join("load"), self.context.quiet);
        let cost = Cost::measure(&[server.pid()], load)?;
        server.stop()?;
        std::fs::remove_dir_all(&scratch).context("cannot remove run folders")?;
        let (fit, held_out) = self.utilisations();
        let highest = fit.iter().chain(held_out).copied().fold(0.0, f64::max);
        let processors = machine::processors()?;
        let rate = self.rate(highest);
        let smallest = self.config.scale_min.max(1.0 / f64::from(self.scenario.servers));
        let Fit { scale, placement } = machine::fit(cost, rate, smallest, &processors)?;
        // The share is at least one server, but for rounding.
        let servers = ((f64::from(self.scenario.servers) * scale + 1e-9) as u32).max(1);
        self.context.say(format!(
            "{}: a request costs {:.0} µs here: {servers} of {} servers; {placement}",
            self.name(),
            (cost.servers_s + cost.generator_s) * 1e6,
            self.scenario.servers
        ));
        let facts = [
            ("server_us_per_request", cost.servers_s * 1e6),
            ("generator_us_per_request", cost.generator_s * 1e6),
            ("servers_side_by_side", f64::from(servers)),
        ];
        let step = format!("{}, cost of a request", self.name());
        self.context.provenance.round(Round::new(&step, 1, true).with(facts))?;
        Ok(Case { servers, placement, ..self })
    }

    /// Utilisations that are fitted, and that are held out.
    fn utilisations(&self) -> (&[f64], &[f64]) {
        let (config, short) = (self.config, &self.config.short);
        match self.context.short {
            true => (&short.fit_utilisations, &short.held_out_utilisations),
            false => (&config.fit_utilisations, &config.held_out_utilisations),
        }
    }

    /// Measures one load in a run of its own.
    fn measure(
        &self,
        server: &Server,
        scratch: &Path,
        kind: &str,
        utilisation: f64,
    ) -> anyhow::Result<(RunFolder, Vec<Mark>)> {
        let rate = self.rate(utilisation);
        let (warmup_s, mut measure_s) = self.lengths(utilisation);
        if kind == "fit" {
            measure_s = self.config.fit_s;
        }
        self.context.say(format!(
            "{}: {kind}, utilisation {utilisation}, {rate:.0} requests/s, {warmup_s:.0} s + {measure_s:.0} s",
            self.name()
        ));
        let (seconds, seed) = ((warmup_s, measure_s), (utilisation * 1000.0) as u64);
        let arguments = self.data.catalogue.uniform(rate, seconds, seed);
        let out = scratch.join(format!("{kind}-{utilisation}"));
        let load = || {
            let again = &self.config.again;
            again.load(self.context, server.url(), &arguments, &out, SMALLEST_S)
        };
        self.placement.of_generator(load)
    }

    /// Requests/s on all servers that make the disks busy to this utilisation.
    fn rate(&self, utilisation: f64) -> f64 {
        let misses = utilisation * self.scenario.mu_per_s * f64::from(self.disks());
        (misses / (1.0 - self.scenario.hit_ratio)).round()
    }

    /// Seconds of warm-up and of measurement.
    ///
    /// The relaxation time of M/M/1 is 1/(µ (1 − √ρ)²), and about (1 + scv)/2 times that with other
    /// service. The variance of the time average of an indicator is taken as twice p(1 − p) τ/T
    /// with τ = (1 + ρ)/((1 − ρ)² µ)/2, half of what the queue length itself has.
    fn lengths(&self, utilisation: f64) -> (f64, f64) {
        let config = self.config;
        let mu = self.scenario.mu_per_s;
        let spread = f64::midpoint(1.0, self.profile.scv).max(0.5);
        let relaxation = spread / (mu * (1.0 - utilisation.sqrt()).powi(2));
        let tau = spread * (1.0 + utilisation) / ((1.0 - utilisation).powi(2) * mu) / 2.0;
        let misses = 1.0 - self.scenario.hit_ratio;
        let half_width = match utilisation > HIGH_UTILISATION {
            true => config.half_width_points_high,
            false => config.half_width_points,
        } / 100.0;
        let measure = 2.0 * tau * 0.25 * misses.powi(2) * (1.96 / half_width).powi(2)
            / f64::from(self.disks());
        (
            (config.relaxation_times * relaxation).max(config.warmup_s_min),
            measure.clamp(config.measure_s_min, config.measure_s_max),
        )
    }

    /// Memory that holds the stated share of the catalogue: with equally popular objects that is
    /// the hit ratio.
    fn memory_bytes(&self) -> u64 {
        let objects = self.config.objects as f64 * self.scenario.hit_ratio;
        self.data.catalogue.memory_bytes(objects)
    }

    fn record(&self, model: &model::Model, comparison: &Comparison) -> anyhow::Result<()> {
        let out = &self.context.out;
        // A record does not contain paths of the machine.
        let scratch = self.context.scratch.display().to_string();
        let write = |name: String, text: String| {
            let path = out.join(name);
            let text = text.replace(&scratch, "scratch");
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        let page = Page {
            embedded: None,
            title: format!("spotify-single: {}", self.name()),
            commands: vec!["experiments run experiments/spotify-single".to_owned()],
        };
        write(format!("{}.model.toml", self.name()), model.to_toml()?)?;
        write(format!("{}.json", self.name()), serde_json::to_string_pretty(comparison)?)?;
        write(format!("{}.html", self.name()), report::html(comparison, &page))?;
        self.context.say(report::table(comparison));
        Ok(())
    }

    /// The largest error up to the published confidence limit and up to 90 %, each with the
    /// interval of the measurement where it is.
    fn claims(
        &self,
        model: &model::Model,
        comparison: &Comparison,
        loads: &[MarkedLoad],
    ) -> anyhow::Result<Vec<Claim>> {
        let limit = model.limits()?.spotify_single.value;
        let measured = comparison.steps.iter().map(|step| &step.measured);
        let requests: Vec<(f64, u64)> = measured.map(|m| (m.rate, m.requests)).collect();
        let parts =
            [("up to the confidence limit", limit, 2.0), ("up to 90 %", f64::INFINITY, 5.0)];
        let claims = parts.into_iter().filter_map(|(part, rate_max, goal)| {
            let (of, published) = (&self.name(), Some(PUBLISHED_POINTS));
            Accuracy { of, part, rate_max, goal, published, loads }
                .claim(&comparison.rows, &requests)
        });
        Ok(claims.collect())
    }
}
