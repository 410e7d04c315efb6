//! Alarms of the live model when a disk turns slow, a cache is flushed and other keys become popular, and
//! when nothing changes: in virtual time, because one false alarm in a day is promised.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Context as _;
use concertina::simulate::{self, LoadCourse, Messages, Plan};
use ground::window::Window;
use load::Popularity;
use model::fit::Watched;
use model::live::Live;
use model::statistics::quantile;
use record::RunFolder;
use serde::Serialize;

use super::super::lab;
use super::config::{AlarmSettings, Config};
use crate::claims::{Claim, Goal};
use crate::context::Context;

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Nothing,
    SlowDisks,
    Flush,
    Shift,
}

impl What {
    const ALL: [What; 4] = [What::Nothing, What::SlowDisks, What::Flush, What::Shift];

    fn fault(self, settings: &AlarmSettings) -> Option<String> {
        let at = settings.at_s;
        match self {
            What::Nothing => None,
            What::SlowDisks => Some(format!("slow={}:node@{at}s", settings.slow)),
            What::Flush => Some(format!("kill:node@{at}s+0.01s")),
            What::Shift => Some(format!("shift={}:keys@{at}s", settings.keys / 2)),
        }
    }

    /// Whether an alarm is of this change.
    fn is_told_by(self, parameter: &Watched) -> bool {
        match self {
            What::Nothing => false,
            What::SlowDisks => matches!(parameter, Watched::ServiceTime(_)),
            What::Flush | What::Shift => *parameter == Watched::HitRatio,
        }
    }
}

/// A watched run.
#[derive(Clone, Debug, Serialize)]
struct Watching {
    what: What,
    seed: u64,
    /// Seconds in which nothing had changed, and the alarms in them.
    quiet_s: f64,
    false_alarms: usize,
    /// Seconds from the change to the first alarm of the right parameter.
    told_after_s: Option<f64>,
    /// Every alarm: its second, and what it names.
    alarms: Vec<(f64, String)>,
}

/// Watches runs of each kind, and judges them.
pub(super) fn run(context: &Context, config: &Config, seeds: u64) -> anyhow::Result<Vec<Claim>> {
    let all: Vec<(What, u64)> =
        What::ALL.iter().flat_map(|what| (1..=seeds).map(move |seed| (*what, seed))).collect();
    let (next, watched) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let work = || -> anyhow::Result<()> {
            while let Some(&(what, seed)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                let out = context.scratch.join(format!("alarms-{what:?}-{seed}"));
                let found = watch(config, what, seed, &out)?;
                std::fs::remove_dir_all(&out).ok();
                let mut watched = watched.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                watched.push(found);
            }
            Ok(())
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a thread of the alarms ended early"))??;
        }
        Ok(())
    })?;
    let mut watched = watched.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    watched.sort_by_key(|w| (w.what as u8, w.seed));
    let path = context.out.join("alarms.json");
    std::fs::write(&path, serde_json::to_string_pretty(&watched)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(claims(&watched, &config.alarms))
}

fn watch(config: &Config, what: What, seed: u64, out: &Path) -> anyhow::Result<Watching> {
    let settings = &config.alarms;
    let service = lab::service("exponential", config.disk_per_s, 1.0)?;
    let each = config.object_bytes + lab::ENTRY_BYTES;
    let memory = settings.memory * f64::from(settings.keys) * each as f64;
    let disks = lab::disks(Path::new("/nowhere"), config.disks, Some(service));
    let server = lab::server(memory as u64, disks, Path::new("/nowhere"));
    let popularity = Popularity::Zipf(settings.zipf);
    let capacity = f64::from(config.disks) * config.disk_per_s;
    let misses = 1.0 - hit_ratio(settings.keys, settings.zipf, settings.memory);
    let fault = what.fault(settings).map(|text| text.parse().map_err(anyhow::Error::msg));
    let plan = Plan {
        config: server,
        rates: vec![settings.utilisation * capacity / misses],
        duration_s: settings.at_s + settings.watched_s,
        warmup_s: 5.0,
        keys: settings.keys,
        drawn: None,
        course: LoadCourse::default(),
        chance: None,
        // Alarms are about loads that the devices cannot serve, too.
        unstable: true,
        popularity,
        bytes: (config.object_bytes, config.object_bytes),
        read_share: 1.0,
        network_s: 1e-4,
        origin_s: 5e-3,
        seed: config.seed.wrapping_mul(1000).wrapping_add(seed),
        nodes: None,
        lost: Vec::new(),
        slow: Vec::new(),
        gateways: 1,
        messages: Messages::default(),
        faults: fault.transpose()?.into_iter().collect(),
        drift_ppm: 0,
        check: false,
        out: out.to_owned(),
    };
    simulate::run(&plan, &AtomicBool::new(false), &mut |_, _| ())?;
    let folder = RunFolder::read(out)?;
    let step = folder.steps.first().context("the simulation has no step")?;
    Ok(alarms(config, what, seed, step.start_unix_us, folder.windows))
}

/// The share of requests for the most popular keys that memory holds: a first guess that fixes the load.
fn hit_ratio(keys: u32, zipf: f64, memory: f64) -> f64 {
    let weight = |rank: u32| f64::from(rank).powf(-zipf);
    let held = (f64::from(keys) * memory) as u32;
    (1..=held).map(weight).sum::<f64>() / (1..=keys).map(weight).sum::<f64>()
}

/// Feeds a live model with the windows of a run.
fn alarms(
    config: &Config,
    what: What,
    seed: u64,
    start_us: u64,
    mut windows: Vec<Window>,
) -> Watching {
    let settings = &config.alarms;
    windows.retain(|w| w.queue != "load" && w.start_unix_us + 1000 >= start_us);
    windows.sort_by_key(|w| w.start_unix_us);
    let live_settings = model::live::Settings {
        objective_s: config.objective_ms * 1e-3,
        refit_s: settings.refit_s,
        ..model::live::Settings::default()
    };
    let change_us = start_us + (settings.at_s * 1e6) as u64;
    let mut found = Watching {
        what,
        seed,
        quiet_s: if what == What::Nothing {
            settings.at_s + settings.watched_s
        } else {
            settings.at_s
        },
        false_alarms: 0,
        told_after_s: None,
        alarms: Vec::new(),
    };
    let Ok(mut live) = Live::new(live_settings) else { return found };
    for interval in windows.chunk_by(|a, b| b.start_unix_us < a.start_unix_us + 1000) {
        for change in live.push(interval.to_vec()) {
            let at_s = change.certain_unix_us.saturating_sub(start_us) as f64 * 1e-6;
            found.alarms.push((at_s, change.parameter.to_string()));
            if what == What::Nothing || change.certain_unix_us < change_us {
                found.false_alarms += 1;
            } else if what.is_told_by(&change.parameter) && found.told_after_s.is_none() {
                found.told_after_s = Some(at_s - settings.at_s);
            }
        }
        if live.is_due() {
            live.refit();
        }
    }
    found
}

fn claims(watched: &[Watching], settings: &AlarmSettings) -> Vec<Claim> {
    let hours = watched.iter().map(|w| w.quiet_s).sum::<f64>() / 3600.0;
    let alarms: usize = watched.iter().map(|w| w.false_alarms).sum();
    let name = "false alarms in an hour without a change (virtual time)";
    let mut claims = vec![
        Claim::counted(name, alarms as f64 / hours, "1/h", (hours * 3600.0) as u64)
            .with_goal(Goal::AtMost(0.5)),
    ];
    for (what, name) in [
        (What::SlowDisks, "disks that turn slow"),
        (What::Flush, "flushed caches"),
        (What::Shift, "shifts of popularity"),
    ] {
        let of: Vec<&Watching> = watched.iter().filter(|w| w.what == what).collect();
        let count = of.len() as u64;
        let told: Vec<f64> =
            of.iter().filter_map(|w| w.told_after_s).filter(|s| *s <= settings.within_s).collect();
        let missed = 100.0 * (of.len() - told.len()) as f64 / of.len().max(1) as f64;
        claims.push(
            Claim::counted(format!("missed alarms: {name} (virtual time)"), missed, "%", count)
                .with_goal(Goal::AtMost(0.0)),
        );
        let after = quantile(&told, 0.5).unwrap_or(f64::NAN);
        let name = format!("median time to the alarm: {name} (virtual time)");
        claims.push(Claim::counted(name, after, "s", told.len() as u64));
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_a_fault_that_the_simulator_knows() {
        let text = "keys = 1000\nzipf = 0.9\nmemory = 0.1\nutilisation = 0.4\nat_s = 300.0\n\
                    watched_s = 90.0\nwithin_s = 60.0\nslow = 1.5\nrefit_s = 30.0";
        let settings: AlarmSettings = toml::from_str(text).unwrap();
        for what in What::ALL {
            let fault = what.fault(&settings);
            assert_eq!(fault.is_none(), what == What::Nothing);
            assert!(fault.is_none_or(|text| text.parse::<simulate::AskedFault>().is_ok()));
        }
        let ratio = hit_ratio(1000, 0.9, 0.1);
        assert!((0.4..0.7).contains(&ratio), "{ratio}");
        assert!(What::Shift.is_told_by(&Watched::HitRatio));
        assert!(!What::Flush.is_told_by(&Watched::Dispersion));
    }
}
