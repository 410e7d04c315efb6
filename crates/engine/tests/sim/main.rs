//! The engine in virtual time, from seeds, with faults. A failing seed is printed; run it alone
//! with `SIM_SEED=n cargo test -p engine --test sim seeds -- --nocapture`, which prints what led to
//! it. `SIM_SEEDS=n` sets how many seeds are run, `SIM_SEEDS_FROM=m` the first.

mod breakages;
mod concurrency;
mod devices;
mod drawn;
mod plain;
mod queueing;
mod replay;
mod restarts;
mod seeds;
mod speed;
mod warming;
