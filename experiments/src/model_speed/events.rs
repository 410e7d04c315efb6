//! A queue by a list of future events, as general simulators work: what ciw is compared with.
//!
//! Arrivals and departures lie in a heap by their times, and the earliest is always next. Who finds every server
//! busy waits in a line, first come, first served; of everybody who leaves there is a record. Nothing is used
//! that only holds for this queue: times are drawn when they are needed, from any laws. Cost: two passes
//! through the heap for each customer, O(log servers) each.
//!
//! Where only the waiting times of such a queue are asked for, the recursion of `queue_laws::simulate` has them
//! without a list, several times faster.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use rand_distr::Distribution;

use super::super::queue_laws::simulate::Random;

/// What happens to a customer.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival,
    Departure { server: usize },
}

/// An event in the list.
#[derive(Clone, Copy, Debug)]
struct Future {
    at: f64,
    event: Event,
}

impl Ord for Future {
    /// The earliest is the greatest, because that is what a heap gives first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at)
    }
}

impl PartialOrd for Future {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Future {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Future {}

/// A customer who was served; times from the start of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub arrived: f64,
    pub left: f64,
}

/// The first `customers` that leave `servers` servers (at least one) with one line before them, in the order in
/// which they leave.
pub fn simulate(
    customers: usize,
    servers: usize,
    gap: &impl Distribution<f64>,
    service: &impl Distribution<f64>,
    random: &mut Random,
) -> Vec<Record> {
    let mut records = Vec::with_capacity(customers);
    let mut serving: Vec<Option<Record>> = vec![None; servers.max(1)];
    let mut waiting = VecDeque::new();
    let mut list = BinaryHeap::new();
    list.push(Future { at: gap.sample(random), event: Event::Arrival });
    while records.len() < customers {
        // It is never empty: each arrival brings the next.
        let Some(Future { at: now, event }) = list.pop() else { break };
        let free = match event {
            Event::Arrival => {
                list.push(Future { at: now + gap.sample(random), event: Event::Arrival });
                waiting.push_back(now);
                serving.iter().position(Option::is_none)
            }
            Event::Departure { server } => {
                records.extend(serving[server].take());
                Some(server)
            }
        };
        if let Some(server) = free
            && let Some(arrived) = waiting.pop_front()
        {
            let left = now + service.sample(random);
            serving[server] = Some(Record { arrived, left });
            list.push(Future { at: left, event: Event::Departure { server } });
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;
    use rand::{Rng, SeedableRng as _};

    use super::super::super::queue_laws::simulate::Servers;
    use super::*;

    /// Times from a list, in its order; then one after which nothing of interest happens.
    struct Listed {
        times: Vec<f64>,
        next: Cell<usize>,
    }

    impl Distribution<f64> for Listed {
        fn sample<R: Rng + ?Sized>(&self, _: &mut R) -> f64 {
            let next = self.next.get();
            self.next.set(next + 1);
            self.times.get(next).copied().unwrap_or(1e9)
        }
    }

    fn listed(times: impl Iterator<Item = f64>) -> Listed {
        Listed { times: times.collect(), next: Cell::new(0) }
    }

    proptest! {
        /// Its twin is the recursion, given the same times.
        #[test]
        fn events_agree_with_the_recursion(
            servers in 1usize..6,
            customers in prop::collection::vec((0.01f64..2.0, 0.01f64..9.0), 1..200),
        ) {
            let gap = listed(customers.iter().map(|c| c.0));
            let service = listed(customers.iter().map(|c| c.1));
            let mut random = Random::seed_from_u64(1);
            let mut records = simulate(customers.len(), servers, &gap, &service, &mut random);
            prop_assert!(records.is_sorted_by(|a, b| a.left <= b.left));
            records.sort_by(|a, b| a.arrived.total_cmp(&b.arrived));
            let mut twin = Servers::new(servers);
            prop_assert_eq!(records.len(), customers.len());
            for (record, &(gap, service)) in records.iter().zip(&customers) {
                let response = twin.serve(gap, service) + service;
                prop_assert!((record.left - record.arrived - response).abs() < 1e-9, "{record:?}");
            }
        }
    }
}
