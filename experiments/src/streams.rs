//! `experiments/streams`: streams at a bit rate from real processes: how many one emulated disk carries without a stall, how many beside a
//! hot device, and thousands of connections to one server.
//!
//! The disk reads a piece of a track in the time to position and the piece's bytes over its rate; both devices
//! hold real reads of real segments for that long. Real time passes here, so a busy machine makes stalls of its own.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use configuration::{Class, Config, Device, Kind, Service, Size};
use serde::{Deserialize, Serialize};

use super::claims::{Claim, Goal};
use super::context::Context;
use super::lab;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    tracks: u64,
    track_bytes: u64,
    kbit_per_s: u64,
    zipf: f64,
    hot_share: f64,
    bulk_position_ms: f64,
    bulk_mb_per_s: f64,
    hot_position_ms: f64,
    hot_mb_per_s: f64,
    /// Pieces as small as a kernel's read-ahead.
    small_piece_bytes: u64,
    seconds: f64,
    warm_streams: usize,
    warm_s: f64,
    /// Numbers of streams that are tried, ascending.
    small_pieces: Vec<usize>,
    bulk: Vec<usize>,
    hot: Vec<usize>,
    /// Connections of which one server plays all from memory.
    connections: usize,
}

/// Last.fm: streams from one device, before and after.
const PUBLISHED: [f64; 2] = [300.0, 7000.0];
/// Streams without a stall, of those that began, so that a level counts as played.
const SOUND: f64 = 0.999;

/// What `concertina load --streams --json` prints, as far as it is used here.
#[derive(Debug, Deserialize, Serialize)]
struct Stalls {
    streams: u64,
    without_stall: u64,
    stalls: u64,
    stalled_s: f64,
    played_s: f64,
    failed: u64,
    error: Option<String>,
    bytes: u64,
    first_byte_max_s: f64,
}

/// A server of one bulk device, and perhaps a hot one.
struct World<'a> {
    settings: &'a Settings,
    server: lab::Server,
    name: &'static str,
}

impl<'a> World<'a> {
    fn start(
        settings: &'a Settings,
        folder: &Path,
        name: &'static str,
        piece_bytes: u64,
        hot: bool,
        memory_bytes: u64,
    ) -> anyhow::Result<World<'a>> {
        let folder = folder.join(name.replace(' ', "-"));
        std::fs::create_dir_all(&folder)?;
        let total = settings.tracks * (settings.track_bytes + 4096);
        let device = |class: Class, position_ms: f64, mb_per_s: f64, bytes: u64| Device {
            path: folder.join(if class == Class::Hot { "hot" } else { "bulk" }),
            class,
            bytes: Size(bytes),
            segment_bytes: Size((bytes / 32).max(4 * settings.track_bytes)),
            piece_bytes: Size(piece_bytes),
            queue_length_max: 100_000,
            service: Some(Service {
                kind: Kind::Gamma,
                mean_ms: position_ms,
                scv: 0.3,
                bytes_per_s: Size((mb_per_s * 1e6) as u64),
                ..Service::default()
            }),
            ..Device::default()
        };
        let bulk =
            device(Class::Bulk, settings.bulk_position_ms, settings.bulk_mb_per_s, 2 * total);
        let mut devices = vec![bulk];
        if hot {
            let bytes = (total as f64 * settings.hot_share) as u64;
            devices.push(device(
                Class::Hot,
                settings.hot_position_ms,
                settings.hot_mb_per_s,
                bytes,
            ));
        }
        let mut config: Config = lab::server(memory_bytes, devices, &folder.join("origin"));
        config.serve.connections_max = 40_000;
        let path = folder.join("server.toml");
        lab::write_config(&path, &config)?;
        let server = lab::Server::start(&path, &folder.join("server.log"))?;
        let world = World { settings, server, name };
        // Stores all tracks, and reads each once or so.
        let filled = world.play(8, 2.0, &["--fill"])?;
        ensure!(filled.failed == 0, "{}: {:?}", world.name, filled.error);
        Ok(world)
    }

    fn play(&self, streams: usize, seconds: f64, more: &[&str]) -> anyhow::Result<Stalls> {
        let settings = self.settings;
        let output = Command::new(lab::program()?)
            .args(["load", self.server.url(), "--json", "--quiet"])
            .arg(format!("--streams={streams}"))
            .arg(format!("--bitrate={}kbit/s", settings.kbit_per_s))
            .arg(format!("--duration={seconds}s"))
            .arg(format!("--count={}", settings.tracks))
            .arg(format!("--size={}", settings.track_bytes))
            .arg(format!("--keys=zipf:{}", settings.zipf))
            // Other keys at each level.
            .arg(format!("--seed={}", streams + 1))
            .args(more)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start the streams")?;
        let told = serde_json::from_slice(&output.stdout);
        match told {
            Ok(stalls) => Ok(stalls),
            Err(_) => bail!("{}: the streams ended with {}", self.name, output.status),
        }
    }

    /// The most streams of a list that play without a stall; 0 if the fewest stall.
    fn most(
        &self,
        context: &Context,
        levels: &[usize],
        report: &mut String,
    ) -> anyhow::Result<usize> {
        let mut most = 0;
        for &level in levels {
            let stalls = self.play(level, self.settings.seconds, &[])?;
            context.say(format!(
                "{}: {level} streams, {} without a stall",
                self.name, stalls.without_stall
            ));
            report.push_str(&format!(
                "{}: {level} streams: {}\n",
                self.name,
                serde_json::to_string(&stalls)?
            ));
            if (stalls.without_stall as f64) < SOUND * level as f64 {
                break;
            }
            most = level;
        }
        Ok(most)
    }

    /// The share of the devices' reads that the hot device served.
    fn share_hot(&self) -> anyhow::Result<f64> {
        let hot = self.server.tiers()?.hot.context("the node has no hot device")?;
        let (hot, bulk) = (hot.bought.hot_reads as f64, hot.bought.bulk_reads as f64);
        Ok(hot / (hot + bulk).max(1.0))
    }
}

/// The most streams that were played without a stall.
struct MostStreams {
    of_small: usize,
    of_bulk: usize,
    of_hot: usize,
    /// The share of the devices' reads that the hot device served.
    share_hot: f64,
}

fn claims(settings: &Settings, most: &MostStreams, stalls: &Stalls) -> Vec<Claim> {
    let begun = |levels: &[usize]| levels.last().copied().unwrap_or(0) as u64;
    let claim = |what: &str, count: usize, published: Option<f64>, levels: &[usize]| Claim {
        published,
        ..Claim::counted(
            format!("streams of {} kbit/s without a stall: {what}", settings.kbit_per_s),
            count as f64,
            "streams",
            begun(levels),
        )
    };
    let sound = stalls.without_stall as f64 / settings.connections.max(1) as f64;
    vec![
        claim(
            "one emulated disk read in small pieces",
            most.of_small,
            Some(PUBLISHED[0]),
            &settings.small_pieces,
        ),
        claim("one emulated disk that reads whole tracks", most.of_bulk, None, &settings.bulk),
        claim(
            &format!("with a hot device of {} % of the bytes", 100.0 * settings.hot_share),
            most.of_hot,
            Some(PUBLISHED[1]),
            &settings.hot,
        ),
        Claim::counted(
            "streams with a hot device / streams of the disk alone",
            most.of_hot as f64 / most.of_bulk.max(1) as f64,
            "",
            begun(&settings.hot),
        )
        .with_goal(Goal::AtLeast(1.5)),
        Claim::counted(
            "streams: share of reads of devices served hot",
            100.0 * most.share_hot,
            "%",
            stalls.streams,
        ),
        Claim {
            published: Some(30_000.0),
            ..Claim::counted(
                "streams: connections of one server",
                settings.connections as f64,
                "connections",
                stalls.streams,
            )
        },
        Claim::counted(
            "streams: of these connections, played from memory without a stall",
            100.0 * sound,
            "%",
            stalls.streams,
        )
        .with_goal(Goal::AtLeast(99.9)),
    ]
}

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let settings: &Settings = &context.config()?;
    let report = &mut String::new();
    let folder = context.scratch.join("streams");
    let small =
        World::start(settings, &folder, "small pieces", settings.small_piece_bytes, false, 0)?;
    let of_small = small.most(context, &settings.small_pieces, report)?;
    small.server.stop()?;
    let bulk = World::start(settings, &folder, "bulk", 0, false, 0)?;
    let of_bulk = bulk.most(context, &settings.bulk, report)?;
    bulk.server.stop()?;
    let hot = World::start(settings, &folder, "bulk and hot", 0, true, 0)?;
    // What is popular is copied before it counts.
    hot.play(settings.warm_streams, settings.warm_s, &[])?;
    let of_hot = hot.most(context, &settings.hot, report)?;
    let share = hot.share_hot()?;
    hot.server.stop()?;
    let memory = 2 * settings.tracks * (settings.track_bytes + 4096);
    let many = World::start(settings, &folder, "from memory", 0, false, memory)?;
    let stalls = many.play(settings.connections, settings.seconds, &[])?;
    context.say(format!(
        "{} connections, {} without a stall",
        settings.connections, stalls.without_stall
    ));
    report.push_str(&format!(
        "from memory: {} connections: {}\n",
        settings.connections,
        serde_json::to_string(&stalls)?
    ));
    many.server.stop()?;
    // Segments and objects are large.
    std::fs::remove_dir_all(&folder)?;
    let path = context.out.join("streams.txt");
    std::fs::write(&path, report.as_str())
        .with_context(|| format!("cannot write {}", path.display()))?;
    let most = MostStreams { of_small, of_bulk, of_hot, share_hot: share };
    Ok(claims(settings, &most, &stalls))
}
