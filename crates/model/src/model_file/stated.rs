//! A model from numbers that somebody states: a data sheet's, a paper's, a guess to compare with.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use statrs::distribution::{ContinuousCDF, Normal};

use crate::distribution::{AnyLaw, Atom, Empirical, Piece, ServiceTime};
use crate::error::{Error, check, positive};
use crate::queue::Discipline;

use super::model::{FORMAT, Model};
use super::parts::{About, ClassParameters, Devices, Law, Parameter, Requests, SpotifyParameters};
use super::replicates::Replicates;

/// Replicates of a model with stated intervals: the 2.5 and 97.5 % ranks of 199 are whole.
const REPLICATES: usize = 199;
/// The seed of the order in which the replicates combine the parameters.
const SEED: u64 = 0x5e7;
/// The largest fitted load of a model that no load saturates and that states none, requests/s.
const RATE_OF_MEMORY: f64 = 1e9;

/// A number that somebody states, with a 95 % interval if they know one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatedNumber {
    /// The number.
    pub value: f64,
    /// The ends of its 95 % interval; both `value` for a number that is taken as known.
    pub low: f64,
    /// See `low`.
    pub high: f64,
}

impl StatedNumber {
    /// A number that is taken as known.
    pub fn exact(value: f64) -> Self {
        StatedNumber { value, low: value, high: value }
    }

    /// An interval about its middle.
    pub fn between(low: f64, high: f64) -> Self {
        StatedNumber { value: 0.5 * (low + high), low, high }
    }

    fn is_exact(&self) -> bool {
        self.low == self.high
    }

    fn parameter(&self, unit: &str) -> Parameter {
        Parameter { low: self.low, high: self.high, ..Parameter::exact(self.value, unit) }
    }

    /// Values as if drawn from the normal law with this 95 % interval: its quantiles, in a random order.
    fn draws(&self, random: &mut StdRng) -> Vec<f64> {
        let normal = Normal::standard();
        let deviation = (self.high - self.low) / 2.0 / normal.inverse_cdf(0.975);
        let at = |i: usize| normal.inverse_cdf(i as f64 / (REPLICATES + 1) as f64);
        let mut all: Vec<f64> = (1..=REPLICATES).map(|i| self.value + deviation * at(i)).collect();
        all.shuffle(random);
        all
    }
}

/// A node in numbers, for [`Model::stated`].
///
/// ```
/// use std::sync::Arc;
/// use model::{Model, StatedNode, distribution::Exponential};
/// // Table II's Spotify server.
/// let disk = StatedNode::new(Arc::new(Exponential::new(1.0 / 150.0)?));
/// let node = StatedNode { devices: 6, ..disk.with_memory(0.815, 0.000501) };
/// let model = Model::stated(&node)?;
/// assert!((model.limits()?.spotify_single.value - 780.922).abs() < 1e-3);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone)]
pub struct StatedNode {
    /// A title.
    pub title: String,
    /// The law of a device's service time.
    pub service: AnyLaw,
    /// The mean of `service`, seconds, with its interval.
    pub service_mean_s: StatedNumber,
    /// Devices that share the reads equally, each with a queue of its own.
    pub devices: u32,
    /// Requests that a device serves at once, from one queue.
    pub servers: u32,
    /// First come, first served, or shared equally.
    pub discipline: Discipline,
    /// q₀ of the share that memory answers, q₀ − αλ.
    pub q0: StatedNumber,
    /// α of it, seconds; λ is the load on this node in requests/s.
    pub alpha: f64,
    /// The law of memory's responses; `None` for 0.
    pub memory: Option<AnyLaw>,
    /// The law of the time that network and gateway add to a device's response; `None` for 0.
    pub outside: Option<AnyLaw>,
    /// Share of the requests that the origin answers (neither memory nor a device), and the law of its responses.
    pub origin: Option<(f64, AnyLaw)>,
    /// The loads at which the numbers were found, requests/s; `None`: from 0 to saturation, or to the confidence limit
    /// if the share of memory depends on the load.
    pub loads: Option<(f64, f64)>,
}

impl StatedNode {
    /// One device with one server and this law of service, without memory.
    pub fn new(service: AnyLaw) -> Self {
        StatedNode {
            title: "Stated numbers".to_owned(),
            service_mean_s: StatedNumber::exact(service.mean()),
            service,
            devices: 1,
            servers: 1,
            discipline: Discipline::Fifo,
            q0: StatedNumber::exact(0.0),
            alpha: 0.0,
            memory: None,
            outside: None,
            origin: None,
            loads: None,
        }
    }

    /// The same with a memory that answers the share q₀ − αλ.
    pub fn with_memory(self, q0: f64, alpha: f64) -> Self {
        StatedNode { q0: StatedNumber::exact(q0), alpha, ..self }
    }

    fn has_interval(&self) -> bool {
        !(self.service_mean_s.is_exact() && self.q0.is_exact())
    }

    fn requests(&self) -> Requests {
        let exact = Parameter::exact;
        let outside = self.outside.as_ref();
        let scv = outside.map(|law| exact(law.scv(), "1"));
        Requests {
            q0: self.q0.parameter("1"),
            alpha: exact(self.alpha, "s"),
            other_share: exact(self.origin.as_ref().map_or(0.0, |origin| origin.0), "1"),
            front_delay: exact(outside.map_or(0.0, |law| law.mean()), "s"),
            front_delay_scv: scv.filter(|scv| scv.value > 0.0),
            joining: exact(0.0, "1"),
            joining_knee: exact(1e9, "reads"),
            rate_low: self.loads.map_or(0.0, |loads| loads.0),
            rate_high: self.loads.map_or(RATE_OF_MEMORY, |loads| loads.1),
        }
    }

    /// The published model with the same numbers.
    fn published(&self) -> SpotifyParameters {
        let mean = self.service_mean_s;
        let rate =
            StatedNumber { value: 1.0 / mean.value, low: 1.0 / mean.high, high: 1.0 / mean.low };
        SpotifyParameters {
            q0: self.q0.parameter("1"),
            alpha: Parameter::exact(self.alpha, "s"),
            mu_d: rate.parameter("1/s"),
            n_d: self.devices.saturating_mul(self.servers),
        }
    }

    /// Rows as a fit's resampled windows give them, from the stated intervals.
    fn replicates(&self, model: &Model) -> Replicates {
        if !self.has_interval() {
            return Replicates::default();
        }
        let mut random = StdRng::seed_from_u64(SEED);
        let means = self.service_mean_s.draws(&mut random);
        let hits = self.q0.draws(&mut random);
        let class = &model.classes[0];
        let columns = Replicates::COLUMNS.map(String::from).into_iter();
        let columns =
            columns.chain([format!("mean_s.{}", class.name), format!("scv.{}", class.name)]);
        let r = &model.requests;
        let row = |(&mean_s, &q0): (&f64, &f64)| {
            let mean_s = mean_s.max(1e-3 * self.service_mean_s.value);
            let before = [q0, self.alpha, r.other_share.value, r.front_delay.value, 0.0, 1e9];
            let published = [q0, self.alpha, 1.0 / mean_s, mean_s, class.service.scv.value];
            before.into_iter().chain(published).collect()
        };
        Replicates { columns: columns.collect(), rows: means.iter().zip(&hits).map(row).collect() }
    }
}

/// A law as pieces: exactly if it is constant, else from its CDF.
fn pieces_of(law: &AnyLaw) -> Result<Empirical, Error> {
    let atoms = law.atoms();
    match atoms[..] {
        [Atom { at, share }] if share >= 1.0 => {
            Empirical::from_pieces(vec![Piece { centre: at, half_width: 0.0, share: 1.0 }])
        }
        _ => Empirical::from_cdf(law.mean(), &atoms, |t| law.cdf(t)),
    }
}

fn law_of(law: &AnyLaw, mean: Parameter) -> Result<Law, Error> {
    let pieces = pieces_of(law)?;
    Ok(Law::new(&pieces, mean, Parameter::exact(law.scv(), "1")))
}

impl Model {
    /// A model from stated numbers. The published model beside it has the same numbers: disks of rate 1/mean, one for each
    /// server.
    ///
    /// # Errors
    /// [`Error::Invalid`] or [`Error::File`] for numbers that no model can have.
    pub fn stated(node: &StatedNode) -> Result<Model, Error> {
        check("the number of devices", f64::from(node.devices), 1.0..=1e6, "1 to 1,000,000")?;
        let mean = node.service_mean_s;
        positive("the lower end of the mean service time", mean.low)?;
        if let Some((origin, _)) = &node.origin
            && node.alpha == 0.0
        {
            // Memory's share at no load may be above 1 in the published model, where it falls with the load.
            let both = node.q0.value + origin;
            check(
                "the share of memory and of the origin together",
                both,
                0.0..=1.0 + 1e-9,
                "0 to 1",
            )?;
        }
        let whole = |law: &AnyLaw| law_of(law, Parameter::exact(law.mean(), "s"));
        let class = ClassParameters {
            name: "bulk_device".to_owned(),
            servers: node.servers,
            discipline: node.discipline,
            service: law_of(&node.service, mean.parameter("s"))?,
            background: None,
            in_order: None,
            by_load: None,
            by_number: None,
            solved: Default::default(),
        };
        let devices = Devices {
            class: class.name.clone(),
            count: node.devices,
            share: 1.0 / f64::from(node.devices),
            factor: 1.0,
        };
        let mut model = Model {
            format: FORMAT,
            warnings: vec![statement(node)],
            about: About { title: node.title.clone(), ..About::default() },
            requests: node.requests(),
            front: None,
            arrivals: None,
            assumed_arrivals: None,
            spotify: node.published(),
            memory: node.memory.as_ref().map(whole).transpose()?,
            other: node.origin.as_ref().map(|(_, law)| whole(law)).transpose()?,
            classes: vec![class],
            evidence: Vec::new(),
            devices: vec![devices],
            hypotheses: Vec::new(),
            kinds: Vec::new(),
            rates: None,
            fitted: Vec::new(),
            held_out: Vec::new(),
            unknown_beyond: None,
            replicates: Replicates::default(),
        };
        model.replicates = node.replicates(&model);
        model.check()?;
        if node.loads.is_none() {
            // Memory's line is known where it was measured, which the published model claims up to its confidence limit.
            let end = match node.alpha == 0.0 {
                true => model.node()?.saturation(),
                false => model.node()?.confidence_limit(),
            };
            model.requests.rate_high = if end.is_finite() { end } else { RATE_OF_MEMORY };
        }
        model.check()?;
        Ok(model)
    }
}

/// What a reader of any prediction must know of the model.
fn statement(node: &StatedNode) -> String {
    let interval = match node.has_interval() {
        true => "intervals are those of the stated numbers",
        false => "they have no interval",
    };
    format!(
        "the parameters were stated, not fitted: no measurement says how good predictions are, and {interval}"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::distribution::{Deterministic, Exponential, Gamma, Lognormal};
    use crate::queue::{Md1, Mgm, Mmm, Queue};

    fn any(law: impl ServiceTime + Send + Sync + 'static) -> AnyLaw {
        Arc::new(law)
    }

    /// Model and file of the same numbers: the text is read back as it was.
    fn stated(node: &StatedNode) -> Model {
        let model = Model::stated(node).unwrap();
        assert_eq!(Model::from_toml(&model.to_toml().unwrap()).unwrap(), model);
        model
    }

    #[test]
    fn single_queues_are_those_of_the_formulas() {
        let exponential = any(Exponential::new(0.0062).unwrap());
        let four = StatedNode { servers: 4, ..StatedNode::new(exponential.clone()) };
        let gamma = Gamma::new(0.01, 0.25).unwrap();
        let rows: [(StatedNode, Box<dyn Queue>, f64); 4] = [
            (
                StatedNode::new(exponential),
                Box::new(Mmm::new(110.0, 1.0 / 0.0062, 1).unwrap()),
                110.0,
            ),
            (four, Box::new(Mmm::new(500.0, 1.0 / 0.0062, 4).unwrap()), 500.0),
            (
                StatedNode::new(any(Deterministic::new(0.01).unwrap())),
                Box::new(Md1::new(80.0, 0.01).unwrap()),
                80.0,
            ),
            (
                StatedNode { servers: 3, ..StatedNode::new(any(gamma)) },
                Box::new(Mgm::new(240.0, 3, gamma).unwrap()),
                240.0,
            ),
        ];
        for (node, queue, rate) in rows {
            let model = stated(&node);
            for within in [0.25, 0.7, 1.3, 3.3, 8.3].map(|x| x * node.service.mean()) {
                let found = model.cdf(rate, &[within]).unwrap()[0];
                let expected = queue.response_cdf(within);
                assert!((found - expected).abs() < 2e-3, "{rate} {within}: {found} {expected}");
            }
        }
    }

    #[test]
    fn origin_memory_and_outside_are_added() {
        let node = StatedNode {
            devices: 2,
            memory: Some(any(Deterministic::new(0.0001).unwrap())),
            outside: Some(any(Exponential::new(0.001).unwrap())),
            origin: Some((0.1, any(Lognormal::new(0.03, 1.5).unwrap()))),
            ..StatedNode::new(any(Exponential::new(0.005).unwrap())).with_memory(0.6, 0.0)
        };
        let model = stated(&node);
        let found = model.predict(100.0, &[0.02]).unwrap();
        // 30 % of 100/s go to two disks: 15/s of 200/s each.
        let expected = 0.6 * 0.0001 + 0.1 * 0.03 + 0.3 * (0.001 + 1.0 / (200.0 - 15.0));
        assert!((found.response_mean.value / expected - 1.0).abs() < 1e-3, "{found:?}");
        assert!(!found.beyond_fitted);
    }

    #[test]
    fn stated_intervals_become_intervals_of_predictions() {
        let node = StatedNode::new(any(Exponential::new(0.01).unwrap()));
        let node = StatedNode { service_mean_s: StatedNumber::between(0.0095, 0.0105), ..node };
        let model = stated(&node);
        let found = model.predict(70.0, &[0.05]).unwrap().points[0].concertina.clone();
        let within = |mean: f64| 1.0 - (-(1.0 / mean - 70.0) * 0.05f64).exp();
        assert!((found.value - within(0.01)).abs() < 1e-3, "{found:?}");
        assert!((found.low - within(0.0105)).abs() < 5e-3, "{found:?}");
        assert!((found.high - within(0.0095)).abs() < 5e-3, "{found:?}");
        assert!(model.trust().unwrap().limit > 0.0);
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let node = || StatedNode::new(any(Exponential::new(0.01).unwrap()));
        for bad in [
            StatedNode { devices: 0, ..node() },
            StatedNode { servers: 0, ..node() },
            StatedNode { q0: StatedNumber::exact(f64::NAN), ..node() },
            StatedNode { service_mean_s: StatedNumber::between(-0.01, 0.03), ..node() },
            StatedNode { origin: Some((1.5, any(Exponential::new(0.01).unwrap()))), ..node() },
            StatedNode {
                origin: Some((0.5, any(Exponential::new(0.01).unwrap()))),
                ..node().with_memory(0.6, 0.0)
            },
            StatedNode { loads: Some((5.0, 1.0)), ..node() },
            StatedNode { loads: Some((0.0, f64::INFINITY)), ..node() },
        ] {
            assert!(Model::stated(&bad).is_err());
        }
    }
}
