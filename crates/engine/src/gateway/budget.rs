//! Token buckets, which limit retries and hedges to a share of requests.

/// A token bucket. Each request adds `share` of a token, up to `burst` tokens; each further attempt
/// takes one. So n requests cause at most `burst` + `share`·n further attempts: retries cannot
/// multiply a load under which nodes already fail.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    tokens: f64,
    share: f64,
    burst: f64,
}

impl Budget {
    /// A full bucket.
    pub(super) fn new(share: f64, burst: u32) -> Budget {
        let burst = f64::from(burst);
        Budget { tokens: burst, share: share.clamp(0.0, 1.0), burst }
    }

    /// Adds the tokens of one request.
    pub(super) fn earn(&mut self) {
        self.tokens = (self.tokens + self.share).min(self.burst);
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self) -> bool {
        let there = self.tokens >= 1.0;
        if there {
            self.tokens -= 1.0;
        }
        there
    }

    /// Whole tokens left.
    pub(super) fn left(&self) -> u32 {
        self.tokens as u32
    }
}
