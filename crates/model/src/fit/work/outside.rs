//! The time outside of the servers: its law, and which laws are compatible with the times.
//!
//! It is a gamma law by its mean and its coefficient of variation. Both are part of a hypothesis, because a law that
//! varies shows in works twice for a request that waited (when it began is known from the departure of another) and
//! once for others; [`super::line::Line::evened`] makes them alike, so that under the right law the test of
//! independence finds nothing. Taken for a constant, a time that varies makes the works of these two unlike, and the
//! constant under which they are least so is not the mean.
//!
//! Where processors are shared, departures that are seen early or late change the works of others too, by how much is known,
//! and works are made alike in the same way.

/// A law of the time outside of the servers: a gamma law, or a constant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outside {
    /// Its mean, seconds; below zero if a server is busy after its reply.
    pub mean: f64,
    /// Its standard deviation over its mean; 0 of a constant.
    pub cv: f64,
}

impl Outside {
    /// Its variance, s².
    pub fn variance(self) -> f64 {
        (self.cv * self.mean).powi(2)
    }

    /// How much longer than the mean it is for a value of the standard normal law (E. Wilson and M. Hilferty's
    /// approximation of the quantiles of a gamma law, 1931).
    pub fn beyond(self, normal: f64) -> f64 {
        let third = self.cv / 3.0;
        self.mean * ((1.0 - third * third + third * normal).max(0.0).powi(3) - 1.0)
    }
}

impl From<f64> for Outside {
    fn from(mean: f64) -> Outside {
        Outside { mean, cv: 0.0 }
    }
}
