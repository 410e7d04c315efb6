//! The log of a node's events and decisions, and its replay.
//!
//! The log is a file of JSON lines: the settings and the start time, the segments restored from the
//! devices, then each event with its time and the resulting actions, in the order in which the node
//! handled them. Objects are recorded by their sizes, without their bytes. A replay through a node
//! of [`Size`]s must give the same actions; so a simulation makes the decisions that the real node
//! makes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::thread::JoinHandle;

use crossbeam_channel::{Sender, bounded};
use engine::Size;
use engine::node::{Action, DeviceId, Event, Node, Restored, RestoredSegment, Settings};
use ground::window::Nanos;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::error::Error;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first line: the node as created.
    Start {
        /// Its settings.
        settings: Settings,
        /// The start time.
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
    /// A device that cannot be used.
    Unusable {
        /// The device.
        device: DeviceId,
    },
    /// An event and the resulting actions.
    Handled {
        /// Its time.
        now: Nanos,
        /// What happened.
        event: Event<Size>,
        /// The resulting actions.
        actions: Vec<Action<Size>>,
    },
}

/// Maximum number of lines queued for the file; when the queue is full, the node waits for the
/// disk.
const LINES_MAX: usize = 1 << 16;

/// Writes the log on a thread of its own.
pub struct EventLog {
    lines: Sender<Line>,
    writer: JoinHandle<()>,
}

impl EventLog {
    /// Creates the file and starts its writer.
    pub fn create(path: &Path, settings: &Settings, now: Nanos) -> Result<EventLog, Error> {
        let shown = path.display().to_string();
        let file = File::create_new(path);
        let file = file.map_err(|source| Error::Create { path: path.to_owned(), source })?;
        let mut file = BufWriter::new(file);
        let (lines, queue) = bounded(LINES_MAX);
        let writer = std::thread::Builder::new().name("events".to_owned());
        let writer = writer.spawn(move || {
            let mut failed = false;
            for line in queue {
                let written = serde_json::to_writer(&mut file, &line)
                    .map_err(io::Error::from)
                    .and_then(|()| file.write_all(b"\n"));
                if let Err(error) = written
                    && !std::mem::replace(&mut failed, true)
                {
                    warn!("cannot write {shown}: {error}; the event log is incomplete");
                }
            }
            let _ = file.flush();
        });
        let writer = writer.map_err(|source| Error::Thread { name: "events", source })?;
        let log = EventLog { lines, writer };
        log.push(Line::Start { settings: settings.clone(), now });
        Ok(log)
    }

    fn push(&self, line: Line) {
        let _ = self.lines.send(line);
    }

    /// Records that a segment was restored.
    pub fn restored(&mut self, device: DeviceId, segment: u64, records: &[Restored]) {
        self.push(Line::Restore { device, segment, records: records.to_vec() });
    }

    /// Records that a device cannot be used.
    pub fn unusable(&mut self, device: DeviceId) {
        self.push(Line::Unusable { device });
    }

    /// Records that an event was handled.
    pub fn handled(&mut self, now: Nanos, event: Event<Size>, actions: Vec<Action<Size>>) {
        self.push(Line::Handled { now, event, actions });
    }

    /// Waits until all lines are in the file.
    pub fn close(self) {
        drop(self.lines);
        let _ = self.writer.join();
    }
}

/// Adds the segments that were found at the start.
fn restore(node: &mut Node<Size>, restored: &[(DeviceId, u64, Vec<Restored>)]) {
    let found: Vec<RestoredSegment<'_>> = restored
        .iter()
        .map(|(device, segment, records)| RestoredSegment {
            device: *device,
            segment: *segment,
            records,
        })
        .collect();
    node.restore(&found, |work| work.into_iter().for_each(|work| work()));
}

/// Counts of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Events.
    pub events: u64,
    /// Actions, all equal to the recorded ones.
    pub actions: u64,
    /// Segments that were dropped.
    pub drops: u64,
}

/// Replays a log.
///
/// # Errors
/// If the file is unreadable or malformed, or if the engine's actions differ from the recorded
/// ones; the error names the first line that differs.
pub fn replay(path: &Path) -> Result<Replayed, Error> {
    let unread = |source| Error::Read { path: path.to_owned(), source };
    let file = record::file::open(path).map_err(unread)?;
    let mut node: Option<Node<Size>> = None;
    let mut replayed = Replayed::default();
    let mut restored = Vec::new();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let (path, number) = (path.to_owned(), number + 1);
        let read: Result<Line, _> = serde_json::from_str(&line.map_err(unread)?);
        let event = match read {
            Ok(event) => event,
            Err(source) => return Err(Error::Malformed { path, line: number, source }),
        };
        match (event, &mut node) {
            (Line::Start { settings, now }, None) => node = Some(Node::new(settings, now)),
            (Line::Restore { device, segment, records }, Some(_)) => {
                restored.push((device, segment, records));
            }
            (Line::Unusable { device }, Some(node)) => node.unusable(device),
            (Line::Handled { now, event, actions }, Some(node)) => {
                if !restored.is_empty() {
                    restore(node, &std::mem::take(&mut restored));
                }
                let mut decided = Vec::new();
                let told = format!("{event:?}");
                node.handle(now, event, &mut decided);
                if decided != actions {
                    return Err(Error::Differs {
                        path,
                        line: number,
                        event: told,
                        decided: format!("{decided:?}"),
                        recorded: format!("{actions:?}"),
                    });
                }
                replayed.events += 1;
                replayed.actions += actions.len() as u64;
                let dropped = |a: &&Action<Size>| matches!(a, Action::DropSegment { .. });
                replayed.drops += actions.iter().filter(dropped).count() as u64;
            }
            _ => return Err(Error::Start { path, line: number }),
        }
    }
    Ok(replayed)
}
