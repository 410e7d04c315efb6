//! Experiments from the outside: each starts, measures and writes its claims.

mod experiment;
#[path = "../../../crates/concertina/tests/it/left_out.rs"]
mod left_out;
#[path = "../../../crates/concertina/tests/it/steady.rs"]
mod steady;
