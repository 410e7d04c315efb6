//! The nodes and gateways of a cluster whose hits are drawn.

use ground::window::{Nanos, Outcome, QueueName, Recorder, Window};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::settings::{DeviceSettings, Settings};
use crate::queue::Queue;
use crate::route::{Load, LoadReport, Speed};

/// Number of a request under way.
pub(super) type JobNumber = u64;

/// A node: its queues, and whether it works.
pub(super) struct Node {
    pub devices: Vec<Queue<JobNumber>>,
    pub origin: Queue<JobNumber>,
    pub recorder: Recorder,
    /// Of the reads of clients, as nodes report it to gateways.
    pub speed: Speed,
    /// Faults that keep it down.
    pub down: u32,
    /// Factor on the service times of its devices.
    pub slow: f64,
    /// For each device, faults that keep it out.
    pub lost: Vec<u32>,
    /// Requests that wait or are served at it.
    pub length: u32,
}

impl Node {
    pub fn new(settings: &Settings) -> Node {
        let windows = &settings.windows;
        let devices = settings.devices.iter().map(|device| {
            let (servers, most) = (device.servers, device.queue_length_max);
            Queue::new(&device.name, servers, most, windows.clone(), 0)
        });
        let origin = &settings.origin;
        Node {
            devices: devices.collect(),
            origin: Queue::new(
                &QueueName::Origin.to_string(),
                origin.servers,
                origin.queue_length_max,
                windows.clone(),
                0,
            ),
            recorder: Recorder::new(&QueueName::Node.to_string(), 0, windows.clone(), 0),
            speed: Speed::default(),
            down: 0,
            slow: 1.0,
            lost: vec![0; settings.devices.len()],
            length: 0,
        }
    }

    pub fn report(&self, now: Nanos) -> LoadReport {
        LoadReport { length: self.length, response_per_length: self.speed.response_per_length(now) }
    }

    pub fn windows(&mut self, now: Nanos, open: bool) -> Vec<Window> {
        let of = |queue: &mut Queue<JobNumber>| {
            if open { queue.flush(now) } else { queue.windows(now) }
        };
        let mut windows = if open { self.recorder.flush(now) } else { self.recorder.roll(now) };
        windows.extend(of(&mut self.origin));
        windows.extend(self.devices.iter_mut().flat_map(of));
        windows
    }
}

/// What a gateway knows of nodes.
pub(super) struct Gateway {
    pub loads: Vec<Load>,
}

impl Gateway {
    pub fn new(nodes: usize) -> Gateway {
        Gateway { loads: (0..nodes).map(|_| Load::new(0)).collect() }
    }
}

/// The devices of a class, from which that of a read is drawn.
pub(super) struct DeviceClass {
    /// The places of its devices, and the part of the reads that comes to each of them and those before it.
    devices: Vec<(usize, f64)>,
    /// Whether each has the same part.
    even: bool,
}

impl DeviceClass {
    pub fn new(devices: &[DeviceSettings], outcome: Outcome) -> DeviceClass {
        let of = || devices.iter().enumerate().filter(|(_, device)| device.outcome == outcome);
        let all: f64 = of().map(|(_, device)| device.weight).sum();
        let even = of().all(|(_, device)| device.weight * of().count() as f64 == all);
        let mut sum = 0.0;
        let cumulated = of().map(|(at, device)| {
            sum += device.weight / all;
            (at, sum)
        });
        DeviceClass { devices: cumulated.collect(), even }
    }

    /// The place of a device; `None` if there is none of this class.
    pub fn draw(&self, random: &mut SmallRng) -> Option<usize> {
        let last = self.devices.len().checked_sub(1)?;
        let at = match self.even {
            _ if last == 0 => 0,
            true => random.random_range(0..=last),
            false => {
                let drawn: f64 = random.random();
                self.devices.partition_point(|(_, sum)| *sum <= drawn).min(last)
            }
        };
        self.devices.get(at).map(|(place, _)| *place)
    }
}
