//! The visits of all classes to a station that has one law of service.

use crate::error::Error;

use super::class::Class;
use super::system::Network;

/// Largest relative difference of two classes' service times that counts as none.
const SAME_SERVICE: f64 = 1e-9;

/// The visits of all classes to a station.
pub(super) struct Visits {
    /// Visits a second.
    pub rate: f64,
    /// Mean service time of a visit in seconds, the same for each class.
    pub service_s: f64,
}

impl Network {
    /// The visits to station `k`; `None` if no class visits it. [`Error::Network`] if service times differ: `why` says what the
    /// station has only one for, and `remedy` what to do.
    pub(super) fn visits(
        &self,
        k: usize,
        why: &str,
        remedy: &str,
    ) -> Result<Option<Visits>, Error> {
        let service_s = |class: &Class| class.demands_s[k] / class.visits[k];
        let visitors: Vec<&Class> =
            self.classes.iter().filter(|class| class.demands_s[k] > 0.0).collect();
        let Some(first) = visitors.first() else { return Ok(None) };
        let service = service_s(first);
        for class in &visitors {
            if (service_s(class) / service - 1.0).abs() > SAME_SERVICE {
                let what = format!(
                    "has a service time of {} s at station {:?}, {why}, and class {:?} one of {service} s; {remedy}",
                    service_s(class),
                    self.stations[k].name(),
                    first.name(),
                );
                return Err(class.wrong(&what));
            }
        }
        let rate = visitors.iter().map(|class| class.rate() * class.visits[k]).sum();
        Ok(Some(Visits { rate, service_s: service }))
    }
}
