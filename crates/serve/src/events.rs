//! The record of everything the engine was told and decided, and its replay.
//!
//! A file of JSON lines: the settings and the start, what was restored from the devices, then each event
//! with its time and the actions that followed, in the order in which the node handled them. Sizes stand
//! for bytes. Replayed through a node of [`Size`]s, the actions must come out the same: that is what
//! makes a simulation trustworthy.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use crossbeam_channel::{Sender, bounded};
use engine::Size;
use engine::node::{Action, DeviceId, Event, Node, Restored, Settings};
use model::window::Nanos;
use serde::{Deserialize, Serialize};
use tracing::warn;

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first: the node as it was made.
    Start {
        /// Its settings.
        settings: Settings,
        /// When.
        now: Nanos,
    },
    /// A segment that was found on a device.
    Restore {
        /// The device.
        device: DeviceId,
        /// The segment.
        segment: u64,
        /// Its records.
        records: Vec<Restored>,
    },
    /// An event and what followed.
    Handled {
        /// Its time.
        now: Nanos,
        /// What happened.
        event: Event<Size>,
        /// What was decided.
        actions: Vec<Action<Size>>,
    },
}

/// Lines on their way to the file; past it the node waits for the disk.
const LINES_MAX: usize = 1 << 16;

/// Writes the file on a thread of its own.
pub struct EventLog {
    lines: Sender<Line>,
    writer: JoinHandle<()>,
}

impl EventLog {
    /// Starts the file.
    pub fn create(path: &Path, settings: &Settings, now: Nanos) -> anyhow::Result<EventLog> {
        let shown = path.display().to_string();
        let mut file =
            BufWriter::new(File::create_new(path).with_context(|| format!("cannot make {shown}"))?);
        let (lines, queue) = bounded(LINES_MAX);
        let writer = std::thread::Builder::new().name("events".to_owned()).spawn(move || {
            let mut failed = false;
            for line in queue {
                let written = serde_json::to_writer(&mut file, &line)
                    .map_err(anyhow::Error::from)
                    .and_then(|()| Ok(file.write_all(b"\n")?));
                if let Err(error) = written
                    && !std::mem::replace(&mut failed, true)
                {
                    warn!("cannot write {shown}: {error}; the record of events is not whole");
                }
            }
            let _ = file.flush();
        })?;
        let log = EventLog { lines, writer };
        log.push(Line::Start { settings: settings.clone(), now });
        Ok(log)
    }

    fn push(&self, line: Line) {
        let _ = self.lines.send(line);
    }

    /// A segment was restored.
    pub fn restored(&mut self, device: DeviceId, segment: u64, records: &[Restored]) {
        self.push(Line::Restore { device, segment, records: records.to_vec() });
    }

    /// An event was handled.
    pub fn handled(&mut self, now: Nanos, event: Event<Size>, actions: Vec<Action<Size>>) {
        self.push(Line::Handled { now, event, actions });
    }

    /// Waits until all is in the file.
    pub fn close(self) {
        drop(self.lines);
        let _ = self.writer.join();
    }
}

/// What a replay went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Events.
    pub events: u64,
    /// Actions, all as recorded.
    pub actions: u64,
    /// Segments that were dropped.
    pub drops: u64,
}

/// Replays a recorded file; the error names the first event after which the engine decided otherwise.
pub fn replay(path: &Path) -> anyhow::Result<Replayed> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    let mut node: Option<Node<Size>> = None;
    let mut replayed = Replayed::default();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let number = number + 1;
        let line: Line = serde_json::from_str(&line?)
            .with_context(|| format!("{shown}, line {number} is not a recorded event"))?;
        match (line, &mut node) {
            (Line::Start { settings, now }, None) => node = Some(Node::new(settings, now)),
            (Line::Restore { device, segment, records }, Some(node)) => {
                node.restore(device, segment, records);
            }
            (Line::Handled { now, event, actions }, Some(node)) => {
                let mut decided = Vec::new();
                let told = format!("{event:?}");
                node.handle(now, event, &mut decided);
                if decided != actions {
                    bail!(
                        "{shown}, line {number}: after {told} the engine decided\n{decided:?}\n\
                         and when it was recorded\n{actions:?}"
                    );
                }
                replayed.events += 1;
                replayed.actions += actions.len() as u64;
                let dropped = |a: &&Action<Size>| matches!(a, Action::DropSegment { .. });
                replayed.drops += actions.iter().filter(dropped).count() as u64;
            }
            _ => bail!("{shown}, line {number}: the first line, and no other, is the start"),
        }
    }
    Ok(replayed)
}
