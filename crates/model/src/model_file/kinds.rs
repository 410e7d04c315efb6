//! The kinds of requests that a fit of recorded times finds, and parts of mixes that are asked for.

use serde::{Deserialize, Serialize};

use super::parts::Law;
use crate::error::{Error, check};
use ground::window::Operation;

/// The work of the requests of one operation and class of sizes, as a fit of recorded times finds it
/// ([`crate::fit::work()`]). [`Model::with_mix`](crate::Model::with_mix) mixes them anew.
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

    pub(super) fn is(&self, asked: &MixShare) -> bool {
        let of_size = |bytes: u64| {
            let [low, high] = self.bytes;
            (low..=high).contains(&bytes) || size_class(low) == size_class(bytes)
        };
        self.operation == asked.operation && asked.bytes.is_none_or(of_size)
    }
}

/// Sizes of a class differ by less than this factor.
const SIZE_FACTOR: f64 = 4.0;

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
