//! Independent times between arrivals, more regular or burstier than a Poisson stream's.

use crate::distribution::{Deterministic, Gamma, ServiceTime};
use crate::error::{Error, check};

use super::gim1::Gim1;
use super::measures::Queue;

/// The largest SCV of times between arrivals: with more, nearly all arrivals come in clumps at one instant.
const SCV_MAX: f64 = 1_000.0;
/// SCVs below it are those of a constant: the gamma law has no smaller one.
const SCV_MIN: f64 = 1e-6;

/// A renewal process: independent times between arrivals with a gamma law of a given squared coefficient of variation
/// (0: a constant, clients paced by one clock; 1: a Poisson stream; above 1: requests in clumps).
///
/// A queue that gets a random part p of the arrivals has independent times between its own, with the transform
/// pA/(1 − (1 − p)A) and the SCV 1 + p(SCV − 1): a small part is nearly a Poisson stream. With exponential service the
/// waits at utilisation ρ are exactly those of a Poisson stream at utilisation σ, the root of GI/M/1 ([`Gim1`]). With
/// another service law, of SCV c², they are taken as those of M/G/1 at the utilisation ρ′ with
///
/// ρ′/(1 − ρ′) = r·ρ/(1 − ρ), r = 1 + 2/(1 + c²)·(r₁ − 1), r₁ = σ/(1 − σ)·(1 − ρ)/ρ
///
/// which is exact for c² = 1 and for Poisson arrivals, and has the mean wait of heavy traffic, (SCV + c²)/(1 + c²) times
/// that of M/G/1 (J. Kingman, "On queues in heavy traffic", JRSS B 24 (1962)). Our own construction; r is at least 0.
/// Against simulation (`storage/renewal/tests.rs`: c² = 0.19, SCV 0 to 8, one and four devices at utilisations 0.3 to 0.7)
/// CDFs were off by at most 0.7 to 4.7 points, where a Poisson stream's were off by 10 to 45. Wrong if times between
/// arrivals depend on each other: a rate that changes is [`super::Bursts`]. Cost: 40 powers.
///
/// ```
/// use model::queue::Renewal;
/// // The only server of exponential services, four times as bursty as a Poisson stream: GI/M/1 at half load.
/// let sigma = Renewal::new(4.0)?.poisson_utilisation(1.0, 0.5, 1.0)?;
/// assert!(sigma > 0.6 && Renewal::new(0.0)?.poisson_utilisation(1.0, 0.5, 1.0)? < 0.5);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Renewal {
    scv: f64,
}

impl Renewal {
    /// Creates a process from the SCV of the times between arrivals. [`Error::Invalid`] unless 0 to 1,000.
    pub fn new(scv: f64) -> Result<Self, Error> {
        let scv = check("the SCV of times between arrivals", scv, 0.0..=SCV_MAX, "0 to 1,000")?;
        Ok(Renewal { scv })
    }

    /// SCV of the times between arrivals.
    pub fn scv(&self) -> f64 {
        self.scv
    }

    /// ρ′: the utilisation at which a queue with Poisson arrivals has the waits of a queue that gets a random share
    /// `share` of these arrivals, at `utilisation` and with service of SCV `service_scv`. [`Error::Unstable`] at
    /// utilisation 1.
    pub fn poisson_utilisation(
        &self,
        share: f64,
        utilisation: f64,
        service_scv: f64,
    ) -> Result<f64, Error> {
        if utilisation <= 0.0 || share <= 0.0 {
            return Ok(utilisation);
        }
        // Waits over the service time depend on the utilisation alone: the service time is the unit.
        let between = share / utilisation;
        let law: &dyn ServiceTime = match self.scv < SCV_MIN {
            true => &Deterministic::new(between)?,
            false => &Gamma::new(between, self.scv)?,
        };
        let exponential = Gim1::of_part(law, share, 1.0)?;
        let odds = utilisation / (1.0 - utilisation);
        let ratio = exponential.waiting_mean() / odds;
        let ratio = (1.0 + 2.0 / (1.0 + service_scv) * (ratio - 1.0)).max(0.0);
        Ok(ratio * odds / (1.0 + ratio * odds))
    }
}
