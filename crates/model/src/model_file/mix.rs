//! The work of each kind of request, and the model of another mix of them.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

use crate::distribution::{Empirical, Piece};
use crate::error::{Error, check, positive};
use crate::window::Operation;

use super::{Law, Model, Parameter};

/// Sizes of a class differ by less than this factor.
pub(crate) const SIZE_FACTOR: f64 = 4.0;
/// A mean of a replicate is at least this part of the mean.
const LEAST: f64 = 0.05;

/// The work of the requests of one operation and class of sizes, as a fit of recorded times finds it
/// ([`crate::fit::work()`]). [`Model::with_mix`] mixes them anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestKind {
    /// What the requests do.
    pub operation: Operation,
    /// The smallest and the largest object, bytes; 0 and 0 if sizes are not known.
    pub bytes: [u64; 2],
    /// Their share of the requests at the servers.
    pub share: f64,
    /// Their work.
    pub work: Law,
}

impl RequestKind {
    /// In words: `get of 2048 to 8191 bytes`.
    pub fn title(&self) -> String {
        match self.bytes {
            [0, 0] => self.operation.as_str().to_owned(),
            [one, other] if one == other => format!("{} of {one} bytes", self.operation.as_str()),
            [low, high] => format!("{} of {low} to {high} bytes", self.operation.as_str()),
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        check("the share of a kind of request", self.share, 0.0..=1.0, "0 to 1")?;
        self.work.check()
    }

    fn is(&self, asked: &MixShare) -> bool {
        let of_size = |bytes: u64| {
            let [low, high] = self.bytes;
            (low..=high).contains(&bytes) || size_class(low) == size_class(bytes)
        };
        self.operation == asked.operation && asked.bytes.is_none_or(of_size)
    }
}

/// The class of a size: sizes of a class differ by less than [`SIZE_FACTOR`].
pub(crate) fn size_class(bytes: u64) -> u32 {
    ((bytes.max(1) as f64).ln() / SIZE_FACTOR.ln() + 1e-9).floor() as u32
}

/// A part of a mix that is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixShare {
    /// What its requests do.
    pub operation: Operation,
    /// The size of its objects; `None`: of all sizes that the operation had, in their proportion.
    pub bytes: Option<u64>,
    /// Its share of all requests. Shares are scaled to add to 1.
    pub share: f64,
}

/// The shares of a mix: of each kind among the requests at the servers, and of those that pass them by.
struct Shares {
    kinds: Vec<f64>,
    passing: f64,
}

fn reads(operation: Operation) -> bool {
    matches!(operation, Operation::Get | Operation::MultiGet | Operation::Head)
}

impl Model {
    /// The model of the same service for another mix of requests: each kind of request keeps the law of its work,
    /// and the kinds have other shares. Hits that pass the servers by are taken for reads, which pass with the measured
    /// probability.
    ///
    /// The service time is the mixture of the kinds' laws (elementary), with the replicates' means scaled by the ratio of the
    /// mixtures' means, each with its kinds' means drawn from their intervals. Loads that were fitted or held out are
    /// replaced by loads of the new mix with the same utilisation, so that the trusted load ([`Model::trust`])
    /// is that of the same utilisation. Works that come in spells are taken for independent, which a warning says.
    ///
    /// Limitation: that the work of a request does not depend on what other requests ask for. A cache that a new mix fills
    /// otherwise, or writes that slow reads, are not in it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for shares that are negative, not finite or all zero; [`Error::File`] if the model has no works by kind, or
    /// none of a kind that is asked for.
    ///
    /// Cost: the pieces of the kinds' laws, and a few operations for each replicate.
    ///
    /// ```
    /// use model::{MixShare, window::Operation};
    /// # fn of(model: &model::Model) -> Result<(), model::Error> {
    /// let get = MixShare { operation: Operation::Get, bytes: Some(4_096), share: 0.5 };
    /// let put = MixShare { operation: Operation::Put, ..get };
    /// let half = model.with_mix(&[get, put])?;
    /// println!("{:.0} requests/s", half.limits()?.saturation.value);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_mix(&self, mix: &[MixShare]) -> Result<Model, Error> {
        let [class] = &self.classes[..] else {
            return Err(Error::File("it has several kinds of servers; a mix is of one".into()));
        };
        if self.kinds.is_empty() {
            let what = "it has no works by kind of request; a fit of a service's recorded requests (`concertina measure`, or \
                        `concertina fit` of a run or log with their times) finds them if there are at least 50 requests of each \
                        of two operations, or of two sizes";
            return Err(Error::File(what.into()));
        }
        let q0 = self.requests.q0.value;
        let shares = self.shares(mix, q0)?;
        let (means, scvs): (Vec<f64>, Vec<f64>) =
            self.kinds.iter().map(|kind| (kind.work.mean.value, kind.work.scv.value)).unzip();
        let measured: Vec<f64> = self.kinds.iter().map(|kind| kind.share).collect();
        let (mean_before, scv_before) = mixed(&measured, &means, &scvs);
        let (mean, scv) = mixed(&shares.kinds, &means, &scvs);
        let factor = positive("the work of the mix", mean / mean_before)?;
        let mut model = self.clone();
        let mut random = StdRng::seed_from_u64(0);
        let mut factors = Vec::with_capacity(self.replicates.rows.len());
        for _ in &self.replicates.rows {
            let drawn: Vec<f64> = self
                .kinds
                .iter()
                .map(|kind| {
                    let Parameter { value, low, high, .. } = &kind.work.mean;
                    let normal: f64 = StandardNormal.sample(&mut random);
                    (value + normal * (high - low) / (2.0 * 1.96)).max(LEAST * value)
                })
                .collect();
            factors.push(mixed(&shares.kinds, &drawn, &scvs).0 / mixed(&measured, &drawn, &scvs).0);
        }
        let name = class.name.clone();
        let of = |i: usize| factors.get(i).copied().unwrap_or(factor);
        // The bypass of a replicate with the same mix.
        let bypass: Vec<f64> = self
            .replicates
            .draws()
            .map(|draw| self.shares(mix, draw.get("q0").unwrap_or(q0)).map(|s| s.passing))
            .collect::<Result<_, _>>()?;
        let passing = |i: usize| bypass.get(i).copied().unwrap_or(shares.passing);
        let replicates = &mut model.replicates;
        replicates.change(&format!("mean_s.{name}"), |i, mean| mean * of(i));
        replicates
            .change(&format!("scv.{name}"), |_, of| of * scv / scv_before.max(f64::MIN_POSITIVE));
        replicates.change("spotify_mu_d", |i, rate| rate / of(i));
        replicates.change("q0", |i, _| passing(i));
        replicates.change("spotify_q0", |i, _| passing(i));
        let column = |name: &str| -> Vec<f64> {
            model.replicates.draws().filter_map(|draw| draw.get(name)).collect()
        };
        let mean = class.service.mean.value * factor;
        let law = Law::new(
            &self.law_of(&shares.kinds)?,
            Parameter::from_replicates(mean, &column(&format!("mean_s.{name}")), "s"),
            Parameter::from_replicates(scv, &column(&format!("scv.{name}")), "1"),
        );
        let passed = Parameter::from_replicates(shares.passing, &column("q0"), "1");
        let rate = self.spotify.mu_d.value / factor;
        model.spotify.mu_d = Parameter::from_replicates(rate, &column("spotify_mu_d"), "1/s");
        model.spotify.q0 = passed.clone();
        model.requests.q0 = passed;
        let loads = (1.0 - q0) / ((1.0 - shares.passing) * factor).max(f64::MIN_POSITIVE);
        let of_reads = 1.0 / factor;
        let class = &mut model.classes[0];
        class.service = law;
        if let Some(by_load) = &mut class.by_load {
            (by_load.from, by_load.to) = (by_load.from * of_reads, by_load.to * of_reads);
        }
        let in_spells = class.in_order.take().is_some();
        model.requests.rate_low *= loads;
        model.requests.rate_high *= loads;
        model.fitted.iter_mut().for_each(|step| step.rate *= loads);
        model.held_out.iter_mut().for_each(|held| held.rate *= loads);
        model.rates = None;
        let kinds = model.kinds.iter_mut().zip(&shares.kinds);
        kinds.for_each(|(kind, share)| kind.share = *share);
        model.warnings.retain(|warning| !warning.contains(SAME_MIX));
        model.warnings.push(format!(
            "Of another mix than was measured: {}. Assumed is that a request's work does not depend on what others ask for.",
            self.kinds
                .iter()
                .zip(&shares.kinds)
                .map(|(kind, share)| format!("{} {:.1} % (measured: {:.1} %)", kind.title(), 100.0 * share, 100.0 * kind.share))
                .collect::<Vec<_>>()
                .join(", ")
        ));
        if in_spells {
            model.warnings.push(
                "Works came in spells when they were measured; those of another mix are taken for independent.".to_owned(),
            );
        }
        model.check()?;
        Ok(model)
    }

    /// The shares of a mix if a share `q0` of the measured requests passed by.
    fn shares(&self, mix: &[MixShare], q0: f64) -> Result<Shares, Error> {
        let mut total = 0.0;
        for part in mix {
            total += check("a share of a mix", part.share, 0.0..=1e12, "not negative")?;
        }
        positive("the sum of the shares of a mix", total)?;
        let measured: f64 = self.kinds.iter().map(|kind| kind.share).sum();
        let read: f64 = self.kinds.iter().filter(|k| reads(k.operation)).map(|k| k.share).sum();
        // Of all reads: those that passed by, and those at the servers.
        let read = (1.0 - q0) * read / measured.max(f64::MIN_POSITIVE);
        let passes = if q0 > 0.0 { q0 / (q0 + read) } else { 0.0 };
        let mut kinds = vec![0.0; self.kinds.len()];
        let mut passing = 0.0;
        for part in mix {
            let of_kinds: f64 =
                self.kinds.iter().filter(|kind| kind.is(part)).map(|k| k.share).sum();
            if of_kinds <= 0.0 {
                let all: Vec<String> = self.kinds.iter().map(RequestKind::title).collect();
                let size = part.bytes.map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
                return Err(Error::File(format!(
                    "nothing is known of {}{size}: measured were {}",
                    part.operation.as_str(),
                    all.join(", ")
                )));
            }
            let passed = if reads(part.operation) { passes } else { 0.0 };
            passing += passed * part.share / total;
            for (share, kind) in kinds.iter_mut().zip(&self.kinds).filter(|(_, kind)| kind.is(part))
            {
                *share += (1.0 - passed) * part.share / total * kind.share / of_kinds;
            }
        }
        let at_servers: f64 = kinds.iter().sum();
        positive("the share of the mix that is at the servers", at_servers)?;
        kinds.iter_mut().for_each(|share| *share /= at_servers);
        Ok(Shares { kinds, passing })
    }

    /// The mixture of the kinds' laws.
    fn law_of(&self, shares: &[f64]) -> Result<Empirical, Error> {
        let mut pieces = Vec::new();
        for (kind, share) in self.kinds.iter().zip(shares).filter(|(_, share)| **share > 0.0) {
            let law = kind.work.distribution(None)?;
            pieces.extend(law.pieces().iter().map(|p| Piece { share: p.share * share, ..*p }));
        }
        Empirical::from_pieces(pieces)
    }
}

/// The end of the warning that [`Model::with_mix`] makes untrue.
pub(crate) const SAME_MIX: &str = "Predictions are of the same mix";

/// Mean and SCV of a mixture.
fn mixed(shares: &[f64], means: &[f64], scvs: &[f64]) -> (f64, f64) {
    let total: f64 = shares.iter().sum();
    let of = |value: &dyn Fn(usize) -> f64| {
        shares.iter().enumerate().map(|(i, share)| share * value(i)).sum::<f64>() / total
    };
    let mean = of(&|i| means[i]);
    let square = of(&|i| means[i] * means[i] * (1.0 + scvs[i]));
    (mean, (square / (mean * mean) - 1.0).max(0.0))
}
