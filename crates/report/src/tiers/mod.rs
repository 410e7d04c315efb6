//! What memory and hot devices of given sizes would serve of recorded requests.
//!
//! The code that serves runs on a sample of the keys, with its bytes in proportion (Waldspurger et
//! al., *Cache modeling and optimization using miniature simulations*, USENIX ATC 2017): the way to a
//! curve for policies that, unlike LRU, have no reuse distances. The memory tier alone
//! ([`Sampled::shares`]) is the engine's, and the hot devices then serve what the best placement of
//! their bytes would; a whole node ([`Sampled::node_shares`]) promotes and demotes as the engine
//! does, which needs the times of the requests.
//!
//! A sample has too many or too few of the keys with many requests. But how many requests the keys
//! with one request have together, with two or three, with four to seven and so on, is known of the
//! whole stream. So the hit ratio of each such class is taken from the sample, and its weight from the
//! stream (*post-stratification*). A class without a key in the sample has the hit ratio of the next
//! smaller counts. What is left is the chance of the bytes, and that of the order of requests.

mod curves;
mod sample;
pub mod world;

pub use curves::CurvesFile;
pub use sample::{Node, Recorded, Sampled, Shares};
