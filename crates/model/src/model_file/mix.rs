//! The work of each kind of request, and the model of another mix of them.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};

use crate::distribution::{Empirical, Piece};
use crate::error::{Error, check, positive};
use ground::window::Operation;

use super::kinds::{MixShare, RequestKind};
use super::model::Model;
use super::parts::{ClassParameters, Law, Parameter};
use super::replicates::Draw;

/// A mean of a replicate is at least this part of the mean.
const LEAST: f64 = 0.05;

/// The shares of a mix: of each kind among the requests at the servers, and of those that pass them by.
struct Shares {
    kinds: Vec<f64>,
    passing: f64,
}

/// How another mix changes the work of a request.
struct Change {
    /// Its mean work over that of the measured mix: the estimate, and of each replicate.
    factor: f64,
    factors: Vec<f64>,
    /// Its SCV, and that over the SCV of the measured mix.
    scv: f64,
    scv_factor: f64,
}

impl Change {
    /// Of a model to other shares of its kinds. Replicates have means of the kinds that are drawn from their intervals.
    fn to_shares(model: &Model, shares: &[f64]) -> Result<Change, Error> {
        let kinds = &model.kinds;
        let (means, scvs): (Vec<f64>, Vec<f64>) =
            kinds.iter().map(|kind| (kind.work.mean.value, kind.work.scv.value)).unzip();
        let measured: Vec<f64> = kinds.iter().map(|kind| kind.share).collect();
        let (mean_before, scv_before) = mixed(&measured, &means, &scvs);
        let (mean, scv) = mixed(shares, &means, &scvs);
        let mut random = StdRng::seed_from_u64(0);
        let mut drawn = |kind: &RequestKind| {
            let Parameter { value, low, high, .. } = &kind.work.mean;
            let normal: f64 = StandardNormal.sample(&mut random);
            (value + normal * (high - low) / (2.0 * 1.96)).max(LEAST * value)
        };
        let mut factor = || {
            let means: Vec<f64> = kinds.iter().map(&mut drawn).collect();
            mixed(shares, &means, &scvs).0 / mixed(&measured, &means, &scvs).0
        };
        Ok(Change {
            factor: positive("the work of the mix", mean / mean_before)?,
            factors: model.replicates.rows.iter().map(|_| factor()).collect(),
            scv,
            scv_factor: scv / scv_before.max(f64::MIN_POSITIVE),
        })
    }
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
    /// [`Error::Invalid`] for shares that are negative, not finite or all zero; [`Error::WhatIf`] if the model has no works by kind, or
    /// none of a kind that is asked for.
    ///
    /// Cost: the pieces of the kinds' laws, and a few operations for each replicate.
    ///
    /// ```
    /// use ground::window::Operation;
    /// use model::MixShare;
    /// # fn of(model: &model::Model) -> Result<(), model::Error> {
    /// let get = MixShare { operation: Operation::Get, bytes: Some(4_096), share: 0.5 };
    /// let put = MixShare { operation: Operation::Put, ..get };
    /// let half = model.with_mix(&[get, put])?;
    /// println!("{:.0} requests/s", half.limits()?.saturation.value);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_mix(&self, mix: &[MixShare]) -> Result<Model, Error> {
        let class = self.mixable()?;
        let shares = self.shares(mix, self.requests.q0.value)?;
        let change = Change::to_shares(self, &shares.kinds)?;
        let mut model = self.clone();
        model.change_replicates(&class.name, &change, &self.passing(mix)?);
        model.change_service(&class.name, &change, &self.law_of(&shares.kinds)?);
        model.change_requests(&change, shares.passing);
        let in_spells = model.classes[0].in_order.take().is_some();
        model.rates = None;
        let kinds = model.kinds.iter_mut().zip(&shares.kinds);
        kinds.for_each(|(kind, share)| kind.share = *share);
        model.warnings.retain(|warning| !warning.contains(SAME_MIX));
        model.warnings.push(self.other_mix(&shares.kinds));
        if in_spells {
            model.warnings.push(
                "Works came in spells when they were measured; those of another mix are taken for independent.".to_owned(),
            );
        }
        model.check()?;
        Ok(model)
    }

    /// The one class of servers of a model that has the works of kinds of requests.
    fn mixable(&self) -> Result<&ClassParameters, Error> {
        let [class] = &self.classes[..] else {
            let what = "the model has several kinds of servers, and a mix is of one";
            return Err(Error::WhatIf(what.into()));
        };
        if self.kinds.is_empty() {
            let what = "the model has no works by kind of request; a fit of a service's recorded requests (`concertina measure`, or \
                        `concertina fit` of a run or log with their times) finds them if there are at least 50 requests of each \
                        of two operations, or of two sizes";
            return Err(Error::WhatIf(what.into()));
        }
        Ok(class)
    }

    /// What passes the servers by in each replicate, with the same mix.
    fn passing(&self, mix: &[MixShare]) -> Result<Vec<f64>, Error> {
        let q0 = self.requests.q0.value;
        let of = |draw: Draw<'_>| self.shares(mix, draw.get("q0").unwrap_or(q0));
        self.replicates.draws().map(|draw| of(draw).map(|shares| shares.passing)).collect()
    }

    /// The works and bypass of the replicates.
    fn change_replicates(&mut self, class: &str, change: &Change, passing: &[f64]) {
        let of = |i: usize| change.factors.get(i).copied().unwrap_or(change.factor);
        let passes = |i: usize, before: f64| passing.get(i).copied().unwrap_or(before);
        let replicates = &mut self.replicates;
        replicates.change(&format!("mean_s.{class}"), |i, mean| mean * of(i));
        replicates.change(&format!("scv.{class}"), |_, scv| scv * change.scv_factor);
        replicates.change("spotify_mu_d", |i, rate| rate / of(i));
        replicates.change("q0", passes);
        replicates.change("spotify_q0", passes);
    }

    /// The values of a column of the replicates.
    fn column(&self, name: &str) -> Vec<f64> {
        self.replicates.draws().filter_map(|draw| draw.get(name)).collect()
    }

    /// The service of the class, from its law and the replicates.
    fn change_service(&mut self, name: &str, change: &Change, law: &Empirical) {
        let mean = self.classes[0].service.mean.value * change.factor;
        let means = self.column(&format!("mean_s.{name}"));
        let scvs = self.column(&format!("scv.{name}"));
        let class = &mut self.classes[0];
        class.service = Law::new(
            law,
            Parameter::from_replicates(mean, &means, "s"),
            Parameter::from_replicates(change.scv, &scvs, "1"),
        );
        if let Some(by_load) = &mut class.by_load {
            (by_load.from, by_load.to) = (by_load.from / change.factor, by_load.to / change.factor);
        }
    }

    /// What passes by, the published model, and the loads that were fitted and held out, as those of the same
    /// utilisation.
    fn change_requests(&mut self, change: &Change, passing: f64) {
        let at_servers = (1.0 - self.requests.q0.value) / change.factor;
        let loads = at_servers / (1.0 - passing).max(f64::MIN_POSITIVE);
        let passed = Parameter::from_replicates(passing, &self.column("q0"), "1");
        let rate = self.spotify.mu_d.value / change.factor;
        self.spotify.mu_d = Parameter::from_replicates(rate, &self.column("spotify_mu_d"), "1/s");
        self.spotify.q0 = passed.clone();
        self.requests.q0 = passed;
        self.requests.rate_low *= loads;
        self.requests.rate_high *= loads;
        self.fitted.iter_mut().for_each(|step| step.rate *= loads);
        // Where no hypothesis fits, less work does not make more loads known.
        let known = self.unknown_beyond.map_or(loads, |_| loads.min(1.0));
        self.held_out.iter_mut().for_each(|held| held.rate *= known);
        self.unknown_beyond = self.unknown_beyond.map(|rate| rate * known);
    }

    /// That predictions are of another mix: a sentence.
    fn other_mix(&self, shares: &[f64]) -> String {
        let each = self.kinds.iter().zip(shares).map(|(kind, share)| {
            let (now, measured) = (100.0 * share, 100.0 * kind.share);
            format!("{} {now:.1} % (measured: {measured:.1} %)", kind.title())
        });
        format!(
            "Of another mix than was measured: {}. Assumed is that a request's work does not depend on what others ask for.",
            each.collect::<Vec<_>>().join(", ")
        )
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
                return Err(Error::WhatIf(format!(
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
