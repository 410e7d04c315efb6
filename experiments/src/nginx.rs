//! `experiments/nginx`: the method of Yanggratoke et al. on a system that is not ours. nginx serves
//! files from slow disks; the page cache, bounded by a memory group, is its memory.
//!
//! The fit does not know the service times that were drawn: it sees the client's latencies and the
//! disks' counters only. The loads are found in the same way: mean service and reads per request
//! are measured first, and give the request rate of a utilisation.

mod counters;
pub(super) mod parts;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::accuracy::Accuracy;
use super::claims::{Claim, Goal};
use super::context::Context;
use super::lab;
use super::marks::{self, Mark, MarkedLoad};
use super::memory_group::MemoryGroup;
use super::provenance::Round;
use counters::Shares;
use parts::{Nginx, SlowDisk};
use record::RunFolder;
use report::{self, Comparison, Observed, Page, Selection};

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    objects: u64,
    object_bytes: u64,
    disks: u32,
    service_ms: f64,
    memory_share: f64,
    fit_utilisations: Vec<f64>,
    held_out_utilisations: Vec<f64>,
    fit_s: f64,
    half_width_points: f64,
    measure_s_min: f64,
    measure_s_max: f64,
    relaxation_times: f64,
    warmup_s_min: f64,
    profile: Vec<Profile>,
    short: Short,
}

/// What the disks' service times are drawn from.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    name: String,
    kind: String,
    scv: f64,
}

/// What `--short` measures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    profile: String,
    fit_utilisations: Vec<f64>,
    held_out_utilisations: Vec<f64>,
}

/// The paper's largest error of prediction, points (Section V.C).
const PUBLISHED_POINTS: f64 = 11.0;

/// Largest error that is claimed, points.
const GOAL_POINTS: f64 = 5.0;

/// The smallest response time that is judged, seconds.
const SMALLEST_S: f64 = 0.020;

/// A page of the cache: what it holds of a small file.
const PAGE_BYTES: u64 = 4096;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let version = parts::check()?;
    context.provenance.peer("nginx", &version)?;
    let config: Config = context.config()?;
    ensure!(
        config.object_bytes > 0 && config.object_bytes <= PAGE_BYTES,
        "object_bytes: a miss is one read only of files up to {PAGE_BYTES} bytes"
    );
    ensure!(config.objects >= 100, "objects: give at least 100");
    let share = config.memory_share;
    ensure!((0.05..=0.95).contains(&share), "memory_share: {share} is not in 0.05 … 0.95");
    let program = lab::helper("slowdisk")?;
    let every_object = context.scratch.join("every-object.csv");
    let mut text = String::from("time_ms,key,size,op\n");
    for object in 0..config.objects {
        text.push_str(&format!("0,k{object},{},get\n", config.object_bytes));
    }
    std::fs::write(&every_object, text).context("cannot write the catalogue")?;
    let chosen = |p: &&Profile| !context.short || p.name == config.short.profile;
    let profiles: Vec<&Profile> = config.profile.iter().filter(chosen).collect();
    ensure!(!profiles.is_empty(), "config.toml names no profile {}", config.short.profile);
    let mut claims = Vec::new();
    for profile in profiles {
        let case = Case { context, config: &config, profile, version: &version };
        claims.extend(case.run(&program, &every_object)?);
        // Recorded at once, in case a later case fails.
        context.record(&claims)?;
    }
    Ok(claims)
}

/// One kind of disks.
struct Case<'a> {
    context: &'a Context,
    config: &'a Config,
    profile: &'a Profile,
    version: &'a str,
}

/// nginx and what it stands on, in the order in which they are to end.
struct System {
    nginx: Nginx,
    disk: SlowDisk,
    group: MemoryGroup,
    /// Mean service time of a read by the disks' counters, seconds.
    service_s: f64,
    /// Reads for each request.
    reads: f64,
}

impl Case<'_> {
    fn run(&self, program: &Path, every_object: &Path) -> anyhow::Result<Vec<Claim>> {
        let name = &self.profile.name;
        let scratch = self.context.scratch.join(name);
        std::fs::create_dir_all(&scratch)?;
        let mut system = self.start(program, &scratch)?;
        let cold = self.warm_up(&mut system, &scratch, every_object)?;
        let fit = self.pick(&self.config.fit_utilisations, &self.config.short.fit_utilisations);
        let held_out =
            self.pick(&self.config.held_out_utilisations, &self.config.short.held_out_utilisations);
        let (mut fit_runs, mut held_out_runs, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        let mut loads = Vec::new();
        for &utilisation in fit {
            let (run, share) = self.measure(&mut system, &scratch, "fit", utilisation)?;
            loads.push(MarkedLoad { rate: None, marks: self.marks("fit", utilisation, &run)? });
            fit_runs.push(run);
            shares.push(share);
        }
        for &utilisation in held_out {
            let (run, share) = self.measure(&mut system, &scratch, "held-out", utilisation)?;
            let rate = Some(self.rate(utilisation, system.service_s, system.reads));
            let marks = self.marks("held-out", utilisation, &run)?;
            loads.push(MarkedLoad { rate, marks });
            held_out_runs.push(run);
            shares.push(share);
        }
        drop(system);
        let observed = Observed::new(fit_runs, &Selection::default())?;
        let model = report::fit(&observed, &format!("nginx: {name}"))?;
        let observed = Observed::new(held_out_runs, &Selection::default())?;
        let comparison = Comparison::new(&observed, &model, &[], &[])?;
        self.record(&model, &comparison)?;
        let limit = model.limits()?.spotify_single.value;
        let mut claims = vec![cold];
        let requests: Vec<(f64, u64)> = comparison
            .steps
            .iter()
            .map(|step| (step.measured.rate, step.measured.requests))
            .collect();
        for (part, rate_max) in
            [("up to the confidence limit", limit), ("up to 80 %", f64::INFINITY)]
        {
            let of = &self.profile.name;
            let published = Some(PUBLISHED_POINTS);
            let goal = GOAL_POINTS;
            let error = Accuracy { of, part, rate_max, goal, published, loads: &loads };
            claims.extend(error.claim(&comparison.rows, &requests));
        }
        claims.push(self.hit_ratios(&shares));
        std::fs::remove_dir_all(&scratch).context("cannot remove run folders")?;
        Ok(claims)
    }

    fn pick<'a>(&self, full: &'a [f64], short: &'a [f64]) -> &'a [f64] {
        if self.context.short { short } else { full }
    }

    /// Mounts the disks and starts nginx on them; its memory is not bounded yet.
    fn start(&self, program: &Path, scratch: &Path) -> anyhow::Result<System> {
        let config = self.config;
        let mount = scratch.join("mount");
        let arguments = [
            format!("--files={}", config.objects),
            format!("--bytes={}", config.object_bytes),
            format!("--disks={}", config.disks),
            format!("--service={}", self.profile.kind),
            format!("--mean-ms={}", config.service_ms),
            format!("--scv={}", self.profile.scv),
        ];
        let disk = SlowDisk::start(program, &mount, &scratch.join("slowdisk.log"), &arguments)?;
        let group = MemoryGroup::create("nginx")?;
        let nginx = Nginx::start(scratch, &mount, config.objects, &group)?;
        Ok(System { nginx, disk, group, service_s: 0.0, reads: 0.0 })
    }

    /// Asks for every object once, bounds the memory, and finds out how busy a request makes the
    /// disks. Claims that a miss is one read.
    fn warm_up(
        &self,
        system: &mut System,
        scratch: &Path,
        every_object: &Path,
    ) -> anyhow::Result<Claim> {
        let (config, name) = (self.config, &self.profile.name);
        self.context.say(format!("{name}: {}: asking for every object once", self.version));
        let arguments = [
            "--warmup=0s".to_owned(),
            "--clients=256".to_owned(),
            format!("--requests={}", config.objects),
            format!("--trace={}", every_object.display()),
        ];
        let cold = self.load(system, &arguments, &scratch.join("cold"))?;
        let windows = system.disk.windows();
        let (reads, service_s) = windows
            .iter()
            .flat_map(|w| &w.times)
            .fold((0, 0.0), |sum, t| (sum.0 + t.service.count(), sum.1 + t.service.sum_s()));
        ensure!(reads > 0, "the disks were not read: is the page cache of another run in the way?");
        system.service_s = service_s / reads as f64;
        let asked: u64 = cold.windows.iter().map(|w| w.completions - w.errors).sum();
        let difference = (reads as f64 / asked.max(1) as f64 - 1.0).abs() * 100.0;

        // All is in memory now; what is over the share is given up.
        let catalogue = config.objects * PAGE_BYTES;
        let missing = (catalogue as f64 * (1.0 - config.memory_share)) as u64;
        let charged = system.group.charged()?;
        ensure!(
            charged > catalogue,
            "of the catalogue's {catalogue} bytes only {charged} are charged to nginx's memory group"
        );
        system.group.limit(charged - missing)?;
        self.context.say(format!("{name}: memory bounded; finding out what a request reads"));
        let guess = self.rate(0.4, system.service_s, 1.0 - config.memory_share);
        let pilot = self.arguments(guess, config.warmup_s_min, config.measure_s_min.min(8.0), 1);
        let mut run = self.load(system, &pilot, &scratch.join("pilot"))?;
        system.reads = counters::join(&mut run, system.disk.windows()).reads;
        ensure!(system.reads > 0.0, "no request made a read: the memory group does not bind nginx");
        let what =
            format!("{name}: reads for a miss, every object asked for once: difference from 1");
        Ok(Claim::counted(what, difference, "%", asked).with_goal(Goal::AtMost(1.0)))
    }

    fn load(
        &self,
        system: &mut System,
        arguments: &[String],
        out: &Path,
    ) -> anyhow::Result<RunFolder> {
        let prefix = ["--prefix=/".to_owned()];
        let arguments: Vec<String> = prefix.iter().chain(arguments).cloned().collect();
        let mut run = lab::load(&system.nginx.url(), &arguments, out, self.context.quiet)?;
        system.nginx.check()?;
        system.disk.check()?;
        run.run.laboratory = Some(format!(
            "{} serves from {} emulated slow disks ({})",
            self.version, self.config.disks, self.profile.name
        ));
        Ok(run)
    }

    /// The arguments of a load at a rate.
    fn arguments(&self, rate: f64, warmup_s: f64, measure_s: f64, seed: u64) -> Vec<String> {
        vec![
            format!("--rate={rate:.1}"),
            format!("--warmup={warmup_s:.1}s"),
            format!("--duration={measure_s:.1}s"),
            "--keys=uniform".to_owned(),
            format!("--count={}", self.config.objects),
            format!("--size={}", self.config.object_bytes),
            "--key-format=k{i}".to_owned(),
            format!("--seed={seed}"),
        ]
    }

    /// Measures one load in a run of its own.
    fn measure(
        &self,
        system: &mut System,
        scratch: &Path,
        kind: &str,
        utilisation: f64,
    ) -> anyhow::Result<(RunFolder, Shares)> {
        let rate = self.rate(utilisation, system.service_s, system.reads);
        let (warmup_s, mut measure_s) = self.lengths(system, utilisation);
        if kind == "fit" {
            measure_s = self.config.fit_s;
        }
        self.context.say(format!(
            "{}: {kind}, utilisation {utilisation}, {rate:.0} requests/s, \
             {warmup_s:.0} s + {measure_s:.0} s",
            self.profile.name
        ));
        // Another stream of random numbers at each load.
        let seed = (utilisation * 1000.0) as u64;
        let arguments = self.arguments(rate, warmup_s, measure_s, seed);
        let mut run =
            self.load(system, &arguments, &scratch.join(format!("{kind}-{utilisation}")))?;
        let shares = counters::join(&mut run, system.disk.windows());
        ensure!(
            shares.failed < 1e-3,
            "{:.2} % of the requests at utilisation {utilisation} failed",
            shares.failed * 100.0
        );
        Ok((run, shares))
    }

    /// Records a load and gives the complaints about it.
    fn marks(&self, kind: &str, utilisation: f64, run: &RunFolder) -> anyhow::Result<Vec<Mark>> {
        let step = format!("{}/{kind}-{utilisation}", self.profile.name);
        let facts = [("stolen", marks::stolen(run)), ("processors_busy", marks::busy(run))];
        self.context.provenance.round(Round::new(&step, 1, true).with(facts))?;
        Ok(marks::of_run(&step, run, SMALLEST_S))
    }

    /// Requests/s that make the disks busy to this utilisation.
    fn rate(&self, utilisation: f64, service_s: f64, reads: f64) -> f64 {
        utilisation * f64::from(self.config.disks) / service_s / reads
    }

    /// Seconds of warm-up and of measurement, as in `experiments/spotify-single`: some relaxation
    /// times of M/M/1, and as long as its theory asks for the half-width.
    fn lengths(&self, system: &System, utilisation: f64) -> (f64, f64) {
        let config = self.config;
        let mu = 1.0 / system.service_s;
        let spread = f64::midpoint(1.0, self.profile.scv).max(0.5);
        let relaxation = spread / (mu * (1.0 - utilisation.sqrt()).powi(2));
        let tau = spread * (1.0 + utilisation) / ((1.0 - utilisation).powi(2) * mu) / 2.0;
        let half_width = config.half_width_points / 100.0;
        let measure = 2.0 * tau * 0.25 * system.reads.powi(2) * (1.96 / half_width).powi(2)
            / f64::from(config.disks);
        (
            (config.relaxation_times * relaxation).max(config.warmup_s_min),
            measure.clamp(config.measure_s_min, config.measure_s_max),
        )
    }

    fn record(&self, model: &model::Model, comparison: &Comparison) -> anyhow::Result<()> {
        let scratch = self.context.scratch.display().to_string();
        let name = &self.profile.name;
        let write = |name: String, text: String| {
            let path: PathBuf = self.context.out.join(name);
            // A record does not contain paths of the machine.
            let text = text.replace(&scratch, "scratch");
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        let page = Page {
            embedded: None,
            title: format!("nginx: {name}"),
            commands: vec!["experiments run experiments/nginx".to_owned()],
        };
        write(format!("{name}.model.toml"), model.to_toml()?)?;
        write(format!("{name}.json"), serde_json::to_string_pretty(comparison)?)?;
        write(format!("{name}.html"), report::html(comparison, &page))?;
        self.context.say(report::table(comparison));
        Ok(())
    }

    /// How far the paper's hit ratio is from that of the disks' counters: shown, not claimed.
    fn hit_ratios(&self, shares: &[Shares]) -> Claim {
        let points = |s: &Shares| (s.fast - (1.0 - s.reads)) * 100.0;
        let worst =
            shares.iter().map(points).fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
        let name = format!(
            "{}: hit ratio by responses under 1 ms, less that by the disks' reads: largest",
            self.profile.name
        );
        Claim::counted(name, worst, "points", shares.iter().map(|s| s.requests).sum())
    }
}
