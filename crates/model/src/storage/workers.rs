//! A limited number of workers before memory and devices: each request holds one from its start to its reply.
//!
//! The requests inside are a closed network of at most m (Chandy, Herzog and Woo, "Parametric analysis of queuing networks", IBM J. Res. Dev. 19,
//! 1975): with n of them inside it completes X(n) requests/s, so that the number present is a birth and death process with rates λ and
//! X(min(n, m)). With G(n) the probability that an open network without workers has n requests, but for a constant, X(n) = λG(n − 1)/G(n): the
//! number present has the weights G(n) up to m, and beyond these fall by the ratio G(m)/G(m − 1) for each request that waits.
//!
//! Such a process takes services as exponential. Where some requests pass at once and others hold their worker for long, workers come free in
//! clumps; by the two moments of the time that a worker is held, waits for a worker are (1 + SCV)/2 times as long, as in M/G/m. Waits for devices keep the
//! proportion of the measured law's to an exponential one's.
//!
//! A request that a device serves waits for a worker and then for its device, in the order of arrival at both: what it waits for the worker it
//! mostly would have waited in the device's queue. So its response is that without workers, and longer by what both waits are more than that
//! queue's. Requests of memory wait for the worker alone.

use super::class::Class;
use super::cosmetatos::waiting_mean;
use super::node::{DeviceGroup, Node, Operating};
use crate::distribution::ServiceTime;

/// With so many more workers than requests present none is ever missing: a share below 1e-8 of the requests would wait.
const FREE_FACTOR: f64 = 20.0;
const FREE_MORE: f64 = 50.0;

/// What workers add to responses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Workers {
    /// Busy share of the workers; 1 at saturation and past it.
    pub utilisation: f64,
    /// Share of the requests that wait for a worker.
    pub waits: f64,
    /// Mean wait for a worker, seconds.
    pub wait_mean: f64,
    /// What both waits are more than the device's queue would be without workers, in the mean, seconds.
    pub device_wait_mean: f64,
}

impl Workers {
    fn saturated() -> Workers {
        let forever = f64::INFINITY;
        Workers { utilisation: 1.0, waits: 1.0, wait_mean: forever, device_wait_mean: forever }
    }
}

/// Means over the device reads of requests, seconds and seconds².
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    service: f64,
    service_square: f64,
    /// Waits as measured, and with an exponential law.
    wait: f64,
    exponential_wait: f64,
}

impl Node {
    /// What `workers` add at a load, given the operating point without them, whose devices are below their saturation.
    pub(super) fn workers_at(&self, workers: u32, at: &Operating) -> Workers {
        let workers = workers.max(1);
        let present = at.rate * at.response_mean;
        if at.rate <= 0.0 || f64::from(workers) > FREE_FACTOR * present + FREE_MORE {
            let utilisation = present / f64::from(workers);
            return Workers { utilisation, ..Workers::default() };
        }
        let reads = self.reads(at);
        let held_besides = self.held_besides(at, reads.service);
        let weights = self.weights(workers, at, held_besides);
        let (Some(last), Some(before)) = (weights.last(), weights.iter().rev().nth(1)) else {
            return Workers::default();
        };
        let ratio = last / before;
        if *last <= 0.0 {
            let utilisation = present / f64::from(workers);
            return Workers { utilisation, ..Workers::default() };
        }
        if ratio.is_nan() || ratio >= 1.0 {
            return Workers::saturated();
        }
        let m = f64::from(workers);
        let waiting = last / (1.0 - ratio);
        let below = weights.split_last().map_or(&[][..], |(_, below)| below);
        let all = below.iter().sum::<f64>() + waiting;
        let number = |(n, weight): (usize, &f64)| n as f64 * weight;
        let inside = (below.iter().enumerate().map(number).sum::<f64>() + m * waiting) / all;
        let waits = waiting / all;
        let wait_mean =
            waits * ratio / (at.rate * (1.0 - ratio)) * self.clumps(at, &reads, held_besides);
        let read_share = at.device_rate / at.rate;
        let inner = if read_share > 0.0 {
            ((inside / at.rate - held_besides) / read_share - reads.service).max(0.0)
        } else {
            0.0
        };
        let scale =
            if reads.exponential_wait > 0.0 { reads.wait / reads.exponential_wait } else { 1.0 };
        let device_wait_mean = (wait_mean + inner * scale - reads.wait).max(0.0);
        Workers { utilisation: inside / m, waits, wait_mean, device_wait_mean }
    }

    /// Means over the reads of devices at an operating point.
    fn reads(&self, at: &Operating) -> Reads {
        let mut reads = Reads::default();
        for group in self.groups.iter().filter(|group| group.share > 0.0) {
            let Some((class, mean)) = self.held_at(group, at) else { continue };
            let (rate, part) = (at.device_rate * group.share, f64::from(group.count) * group.share);
            reads.service += part * mean;
            reads.service_square += part * mean * mean * (1.0 + class.service.scv());
            reads.wait += part * class.waiting_mean(rate, group.factor * class.factor_at(rate));
            reads.exponential_wait += part * waiting_mean(rate, mean, 1.0, class.servers);
        }
        reads
    }

    /// The mean time that a read keeps a server of a group's devices busy, and their class.
    fn held_at(&self, group: &DeviceGroup, at: &Operating) -> Option<(&Class, f64)> {
        let (class, mean, servers) = self.service(group)?;
        let rate = at.device_rate * group.share;
        let busy = if rate > 0.0 { class.busy(rate, mean) / rate } else { mean };
        // Other work takes a part of the servers.
        let left = (1.0 - class.other_busy(group.factor) / servers).max(1e-9);
        Some((class, busy / left))
    }

    /// The mean time that a request holds its worker besides its device's queue and service, seconds.
    fn held_besides(&self, at: &Operating, service: f64) -> f64 {
        let mean = |law: &Option<_>| law.as_ref().map_or(0.0, ServiceTime::mean);
        let joined = at.joined_share * service;
        at.hit_ratio * mean(&self.memory)
            + self.other_share * mean(&self.other)
            + at.miss_ratio * self.delay.mean().max(0.0)
            + joined
    }

    /// How much longer waits for a worker are than those of exponential times: (1 + SCV)/2 of the time that a worker is held.
    fn clumps(&self, at: &Operating, reads: &Reads, held_besides: f64) -> f64 {
        let square = |law: &Option<crate::distribution::Empirical>| {
            law.as_ref().map_or(0.0, |law| law.mean().powi(2) * (1.0 + law.scv()))
        };
        let delay = self.delay.mean().max(0.0);
        let of_read = delay * delay * (1.0 + self.delay.scv())
            + 2.0 * delay * reads.service
            + reads.service_square;
        let second = at.hit_ratio * square(&self.memory)
            + self.other_share * square(&self.other)
            + at.miss_ratio * of_read;
        let first = held_besides + at.device_rate / at.rate * reads.service;
        if first > 0.0 { 0.5 * second / (first * first) } else { 1.0 }
    }

    /// G(0) to G(m), but for a constant.
    fn weights(&self, workers: u32, at: &Operating, held_besides: f64) -> Vec<f64> {
        let mut weights = busy_weights(workers, at.rate * held_besides, workers);
        for group in self.groups.iter().filter(|group| group.share > 0.0) {
            let Some((class, mean)) = self.held_at(group, at) else { continue };
            let offered = at.device_rate * group.share * mean;
            for _ in 0..group.count {
                weights = with_station(&weights, offered, class.servers.clamp(1, workers));
            }
        }
        weights
    }
}

/// Weights of 0 to `most` requests at servers that `offered` of them would keep busy: offeredⁿ/n! as far as all are served at once. The largest is 1.
fn busy_weights(most: u32, offered: f64, servers: u32) -> Vec<f64> {
    let mut logarithms = vec![0.0];
    let mut sum = 0.0;
    for n in 1..=most {
        sum += (offered / f64::from(n.min(servers))).ln();
        logarithms.push(sum);
    }
    let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    logarithms.into_iter().map(|x| (x - largest).exp()).collect()
}

/// Weights of a network with one station more. Beyond its servers the station's weights fall by the same factor for each request.
fn with_station(weights: &[f64], offered: f64, servers: u32) -> Vec<f64> {
    let c = servers as usize;
    let own = busy_weights(servers, offered, servers);
    let last = own.last().copied().unwrap_or(0.0);
    let (mut all, mut tail) = (Vec::with_capacity(weights.len()), 0.0);
    for n in 0..weights.len() {
        tail *= offered / f64::from(servers);
        if n >= c {
            tail += last * weights[n - c];
        }
        let few = own.iter().take(c.min(n + 1)).enumerate().map(|(k, own)| own * weights[n - k]);
        all.push(few.sum::<f64>() + tail);
    }
    let largest = all.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    all.iter_mut().for_each(|weight| *weight /= largest);
    all
}

#[cfg(test)]
mod tests;
