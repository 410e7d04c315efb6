//! A node under each law of arrivals.

use crate::error::Error;
use crate::queue::ArrivalLaw;

use super::node::{Node, Operating};

impl Node {
    /// The operating point under the node's law of arrivals, given that of a Poisson stream of the same mean.
    /// [`Error::Unstable`] where the law overloads a node that would bear the Poisson stream.
    pub(super) fn under_arrivals(&self, poisson: Operating) -> Result<Operating, Error> {
        match self.arrivals {
            _ if poisson.rate <= 0.0 => Ok(poisson),
            ArrivalLaw::Poisson => Ok(poisson),
            ArrivalLaw::Bursts(bursts) => self.in_bursts(&poisson, bursts),
            ArrivalLaw::Renewal(renewal) => self.with_renewal(&poisson, renewal),
        }
    }
}
