//! Token buckets, which limit retries and hedges to a share of requests, and when a read is hedged.

use ground::window::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

/// A token bucket. Each request adds `share` of a token, up to `burst` tokens; each further attempt
/// takes one. So n requests cause at most `burst` + `share`·n further attempts: retries cannot
/// multiply a load under which nodes already fail.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    tokens: f64,
    share: f64,
    burst: f64,
}

impl Budget {
    /// A full bucket.
    pub(crate) fn new(share: f64, burst: u32) -> Budget {
        let burst = f64::from(burst);
        Budget { tokens: burst, share: share.clamp(0.0, 1.0), burst }
    }

    /// Adds the tokens of one request.
    pub(crate) fn earn(&mut self) {
        self.tokens = (self.tokens + self.share).min(self.burst);
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self) -> bool {
        let there = self.tokens >= 1.0;
        if there {
            self.tokens -= 1.0;
        }
        there
    }

    /// Whole tokens left.
    pub(crate) fn left(&self) -> u32 {
        self.tokens as u32
    }
}

/// When a slow read is also sent to a second node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hedge {
    /// The quantile of the node's recent responses after which a read is hedged.
    pub quantile: f64,
    /// Minimum time before a hedge: below it a second attempt costs more than it saves.
    pub after_min: Nanos,
    /// Maximum number of hedges, as a share of reads.
    pub share: f64,
    /// Maximum burst of hedges after a quiet time.
    pub burst: u32,
}

impl Default for Hedge {
    fn default() -> Self {
        Hedge { quantile: 0.95, after_min: SECOND / 500, share: 0.05, burst: 20 }
    }
}
