//! A service by a hypothesis: when requests leave it, from when they come and their works.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::queue::Discipline;

use super::line::Kind;

/// A time of a request, the earliest first in a heap.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Due(f64, usize);

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// When each request leaves the servers. Arrivals ascend; `places` are the lines of separate ones. Cost: O(n log n).
pub(super) fn replay(kind: Kind, arrivals: &[f64], works: &[f64], places: &[u32]) -> Vec<f64> {
    match (kind.discipline, kind.servers) {
        (_, None) => arrivals.iter().zip(works).map(|(a, w)| a + w).collect(),
        (Discipline::Fifo, Some(m)) => in_line(m.max(1) as usize, arrivals, works),
        (Discipline::Shared, Some(m)) => shared(f64::from(m.max(1)), arrivals, works),
        (Discipline::Lines, Some(m)) => by_lines(m.max(1) as usize, arrivals, works, places),
    }
}

fn in_line(m: usize, arrivals: &[f64], works: &[f64]) -> Vec<f64> {
    let mut busy: BinaryHeap<Due> = BinaryHeap::with_capacity(m.min(arrivals.len()) + 1);
    let each = arrivals.iter().zip(works).enumerate().map(|(i, (arrival, work))| {
        let free = if busy.len() < m { None } else { busy.pop() };
        let end = free.map_or(*arrival, |due| due.0.max(*arrival)) + work;
        busy.push(Due(end, i));
        end
    });
    each.collect()
}

fn by_lines(lines: usize, arrivals: &[f64], works: &[f64], places: &[u32]) -> Vec<f64> {
    let mut free = vec![f64::NEG_INFINITY; lines];
    let each = arrivals.iter().zip(works).enumerate().map(|(i, (arrival, work))| {
        let place = places.get(i).map_or(i, |place| *place as usize) % lines;
        free[place] = free[place].max(*arrival) + work;
        free[place]
    });
    each.collect()
}

/// All present get work at the same rate, so each leaves when that has reached its own.
fn shared(m: f64, arrivals: &[f64], works: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; arrivals.len()];
    let mut present: BinaryHeap<Due> = BinaryHeap::new();
    let (mut now, mut given) = (0.0, 0.0);
    let speed = |n: usize| (m / n.max(1) as f64).min(1.0);
    for (i, (arrival, work)) in arrivals.iter().zip(works).enumerate() {
        while let Some(next) = present.peek().copied() {
            let end = now + (next.0 - given) / speed(present.len());
            if end > *arrival {
                given += (arrival - now) * speed(present.len());
                break;
            }
            (now, given) = (end, next.0);
            out[next.1] = end;
            present.pop();
        }
        now = *arrival;
        present.push(Due(given + work, i));
    }
    while let Some(next) = present.pop() {
        now += (next.0 - given) / speed(present.len() + 1);
        given = next.0;
        out[next.1] = now;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::line::Line;
    use super::*;

    /// What a replay gives has the works that it was made of, for every kind.
    #[test]
    fn works_come_back_from_a_replay() {
        let arrivals: Vec<f64> =
            (0..800).map(|i| f64::from(i) + f64::from(i * 7 % 11) * 0.09).collect();
        let works: Vec<f64> = (0..800).map(|i| 0.05 + f64::from(i * 37 % 101) * 0.02).collect();
        for discipline in [Discipline::Fifo, Discipline::Shared] {
            for servers in [Some(1), Some(2), Some(3), None] {
                let kind = Kind { discipline, servers };
                let works: Vec<f64> =
                    works.iter().map(|w| w * f64::from(servers.unwrap_or(2)) * 0.8).collect();
                let departures = replay(kind, &arrivals, &works, &[]);
                let line = Line::from_times(arrivals.clone(), departures);
                for (found, known) in line.works(kind, 0.0.into()).iter().zip(&works) {
                    assert!((found - known).abs() < 1e-9, "{kind:?}: {found} {known}");
                }
            }
        }
    }
}
