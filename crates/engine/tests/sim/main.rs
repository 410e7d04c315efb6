//! The engine in virtual time, from a seed, with faults. A failing seed is printed; run it alone with
//! `SIM_SEED=n cargo test -p engine`. `SIM_SEEDS=n` sets how many seeds are run.

mod checker;
mod faults;
mod queueing;
mod world;
