//! The integration tests of the process, in one binary: each would be a link of its own otherwise.

mod load;
mod load_bench;
mod report;
mod tidy;
