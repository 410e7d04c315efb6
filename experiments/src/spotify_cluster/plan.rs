//! The loads of a cluster: where the ring puts the keys, the rate at which the busiest disks have a
//! given utilisation, and how long that has to be measured.

use anyhow::Context as _;
use engine::route::{Member, Ring};

use super::config::{Config, Scenario};
use crate::lab::Catalogue;

/// A node that serves, and what the ring gives it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// Its name.
    pub name: String,
    /// Keys that it is the first node of.
    pub keys: usize,
    /// Its disks' speed over the scenario's.
    pub speed: f64,
}

/// The cluster in one state: whole, with a node lost, with a slow one.
#[derive(Clone, Debug)]
pub(super) struct Plan<'a> {
    pub config: &'a Config,
    pub scenario: &'a Scenario,
    pub places: Vec<Place>,
}

/// The nodes' names, in the order of the ring.
fn names(scenario: &Scenario) -> Vec<String> {
    (0..scenario.nodes).map(|i| format!("node-{i:02}")).collect()
}

impl<'a> Plan<'a> {
    /// Places the catalogue. Uniform allocation: every node has the same weight. `lost` is no
    /// member any more: each of its keys is where its next node is.
    pub fn new(
        config: &'a Config,
        scenario: &'a Scenario,
        catalogue: &Catalogue,
        lost: Option<&str>,
    ) -> anyhow::Result<Plan<'a>> {
        let names = names(scenario);
        let members = names.iter().map(|name| Member::new(name.clone(), 1.0));
        let ring = Ring::new(members.collect(), config.replicas)?;
        let mut keys = vec![0; names.len()];
        for key in catalogue.keys() {
            let there = |node: &usize| Some(ring.name(*node)) != lost;
            let node = ring.replicas(key.as_bytes()).iter().find(there);
            let node = node.context("all nodes of a key are lost: use more replicas")?;
            keys[node] += 1;
        }
        let places = ring
            .members()
            .iter()
            .zip(keys)
            .filter(|(member, _)| Some(member.name.as_str()) != lost)
            .map(|(member, keys)| Place { name: member.name.clone(), keys, speed: 1.0 });
        Ok(Plan { config, scenario, places: places.collect() })
    }

    /// The same with one node's disks at another speed.
    pub fn with_speed(&self, name: &str, speed: f64) -> Plan<'a> {
        let mut plan = self.clone();
        for place in plan.places.iter_mut().filter(|place| place.name == name) {
            place.speed = speed;
        }
        plan
    }

    /// Share of the requests of each node: of the keys, which are equally popular.
    pub fn shares(&self) -> Vec<f64> {
        let all: usize = self.places.iter().map(|place| place.keys).sum();
        self.places.iter().map(|place| place.keys as f64 / all as f64).collect()
    }

    /// Objects that the memory of each node holds: the stated share of an equal part of the
    /// catalogue.
    pub fn memory_objects(&self) -> f64 {
        let part = self.config.objects as f64 / f64::from(self.scenario.nodes);
        part * self.scenario.hit_ratio
    }

    /// Of each node: its share of the requests, its share of misses, the reads/s that a disk of it
    /// serves.
    fn nodes(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let shares = self.shares().into_iter().zip(&self.places);
        shares.map(|(share, place)| {
            let hit = (self.memory_objects() / place.keys.max(1) as f64).min(1.0);
            (share, 1.0 - hit, self.scenario.mu_per_s * place.speed)
        })
    }

    /// Requests/s on the cluster at which the busiest node's disks have this utilisation.
    pub fn rate(&self, utilisation: f64) -> f64 {
        let disks = f64::from(self.scenario.disks);
        let rates = self.nodes().map(|(share, misses, mu)| mu * disks / (share * misses));
        (utilisation * rates.fold(f64::INFINITY, f64::min)).round()
    }

    /// Seconds of warm-up and of measurement at `rate` requests/s.
    ///
    /// As for a single server: the relaxation time of M/M/1 is 1/(µ (1 − √ρ)²), (1 + scv)/2 times
    /// that with other service. The variance of the time average of an indicator at a node is taken
    /// as twice p(1 − p) τ/T with τ = (1 + ρ)/((1 − ρ)² µ)/2; that of the cluster is the sum over
    /// nodes, each with the square of its share.
    pub fn lengths(&self, rate: f64) -> (f64, f64) {
        let config = self.config;
        let spread = f64::midpoint(1.0, self.scenario.scv).max(0.5);
        let disks = f64::from(self.scenario.disks);
        let (mut relaxation, mut variance, mut highest) = (0.0f64, 0.0, 0.0f64);
        for (share, misses, mu) in self.nodes() {
            let rho = (rate * share * misses / (mu * disks)).min(0.95);
            highest = highest.max(rho);
            relaxation = relaxation.max(spread / (mu * (1.0 - rho.sqrt()).powi(2)));
            let tau = spread * (1.0 + rho) / ((1.0 - rho).powi(2) * mu) / 2.0;
            variance += share.powi(2) * 2.0 * tau * 0.25 * misses.powi(2) / disks;
        }
        // Past half utilisation the larger goal holds, so that a wider interval is narrow enough.
        let half_width = match highest > 0.5 {
            true => config.half_width_points_high,
            false => config.half_width_points,
        } / 100.0;
        let measure = variance * (1.96 / half_width).powi(2);
        (
            (config.relaxation_times * relaxation).max(config.warmup_s_min),
            measure.clamp(config.measure_s_min, config.measure_s_max),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_node_is_as_busy_as_asked() {
        let text = std::fs::read_to_string(
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("spotify-cluster/config.toml"),
        );
        let config: Config = toml::from_str(&text.unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::write(dir.path(), config.objects, 10).unwrap();
        for scenario in &config.cluster {
            let whole = Plan::new(&config, scenario, &catalogue, None).unwrap();
            assert_eq!(whole.places.len(), scenario.nodes as usize);
            assert!((whole.shares().iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let first = whole.places[0].name.clone();
            let lost = Plan::new(&config, scenario, &catalogue, Some(&first)).unwrap();
            assert_eq!(lost.places.len() + 1, whole.places.len());
            let keys = |plan: &Plan| plan.places.iter().map(|p| p.keys).sum::<usize>();
            assert_eq!(
                (keys(&lost), keys(&whole)),
                (config.objects as usize, config.objects as usize)
            );
            let slow = whole.with_speed(&first, 0.5);
            assert!(slow.rate(0.9) < 0.65 * whole.rate(0.9));
            for plan in [&whole, &lost, &slow] {
                let disks = f64::from(scenario.disks);
                let rate = plan.rate(0.8);
                let busy =
                    plan.nodes().map(|(share, misses, mu)| rate * share * misses / mu / disks);
                assert!((busy.fold(0.0, f64::max) - 0.8).abs() < 1e-3);
                let (warmup, measure) = plan.lengths(rate);
                assert!(warmup >= config.warmup_s_min && measure <= config.measure_s_max);
            }
        }
    }
}
