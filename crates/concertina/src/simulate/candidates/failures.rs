//! What is down at a moment.

use rand::RngExt;
use rand::rngs::SmallRng;

use super::super::chance::{Chance, Lives};

/// What can fail of a cluster, as independent parts that are up or down.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    parts: Vec<Part>,
    /// For each part, the probability that it and all after it are up.
    up_from: Vec<f64>,
    /// Nodes, and the racks that they are in: none if racks do not fail, and no more than nodes.
    nodes: usize,
    racks: usize,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    what: Down,
    /// Probability that it is down.
    down: f64,
}

/// Something that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Down {
    Node(usize),
    Rack(usize),
    Device { node: usize, device: usize },
}

/// What is down at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    /// Nodes, ascending.
    pub nodes: Vec<usize>,
    /// Devices of nodes that are up: node, place.
    pub devices: Vec<(usize, usize)>,
}

/// The rack of a node: neighbours share one.
pub(super) fn rack_of(node: usize, nodes: usize, racks: usize) -> usize {
    node * racks / nodes.max(1)
}

impl Parts {
    pub fn new(chance: &Chance, nodes: usize, devices: usize) -> Parts {
        let down = |lives: &Option<Lives>| lives.map_or(0.0, |lives| 1.0 - lives.availability());
        let racks = if chance.rack.is_some() { chance.racks.clamp(1, nodes.max(1)) } else { 0 };
        let each = |what: Down, lives: &Option<Lives>| Part { what, down: down(lives) };
        let mut parts = Vec::new();
        parts.extend((0..racks).map(|rack| each(Down::Rack(rack), &chance.rack)));
        parts.extend((0..nodes).map(|node| each(Down::Node(node), &chance.node)));
        for node in 0..nodes {
            let of = (0..devices).map(|device| Down::Device { node, device });
            parts.extend(of.map(|what| each(what, &chance.device)));
        }
        parts.retain(|part| part.down > 0.0);
        let mut up_from = vec![1.0; parts.len() + 1];
        for (at, part) in parts.iter().enumerate().rev() {
            up_from[at] = up_from[at + 1] * (1.0 - part.down);
        }
        Parts { parts, up_from, nodes, racks }
    }

    /// The part of the time in which something is down.
    pub fn down(&self) -> f64 {
        1.0 - self.up_from[0]
    }

    /// What is down at a moment at which something is. Each part is drawn under the condition that one of those that are not yet
    /// drawn is down, until one is.
    pub fn draw(&self, random: &mut SmallRng) -> State {
        let (nodes, racks) = (self.nodes, self.racks);
        let (mut any, mut found) = (false, Vec::new());
        for (at, part) in self.parts.iter().enumerate() {
            let left = 1.0 - self.up_from[at];
            let chance = if any { part.down } else { (part.down / left).min(1.0) };
            if random.random_bool(chance) {
                any = true;
                found.push(part.what);
            }
        }
        let is_down = |node: usize| {
            found.contains(&Down::Node(node))
                || racks > 0 && found.contains(&Down::Rack(rack_of(node, nodes, racks)))
        };
        let down: Vec<usize> = (0..nodes).filter(|node| is_down(*node)).collect();
        let devices = found.iter().filter_map(|what| match *what {
            Down::Device { node, device } if !down.contains(&node) => Some((node, device)),
            _ => None,
        });
        State { devices: devices.collect(), nodes: down }
    }
}
