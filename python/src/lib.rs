//! The module `concertina` of Python: models, plans, networks, capacities, experiments and shards.
//!
//! Holds no logic: each function turns its arguments into those of the crate that answers, calls it on a thread that holds
//! no lock of the interpreter ([`work`]), and turns the result into arrays or dicts. The questions that a command answers are
//! answered by the function that the command calls, so that both print the same digits.

mod array;
mod capacity;
mod error;
mod factors;
mod fit;
mod interval;
mod model;
mod network;
mod predictions;
mod run;
mod shard;
mod table;
mod value;
mod work;

use pyo3::prelude::*;

/// Names and types are in `package/concertina/_concertina.pyi`.
#[pymodule]
fn _concertina(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<error::Error>())?;
    module.add("UnstableError", py.get_type::<error::UnstableError>())?;
    module.add_class::<interval::Interval>()?;
    module.add_class::<model::Model>()?;
    module.add_class::<predictions::Predictions>()?;
    module.add_class::<fit::Fit>()?;
    module.add_class::<run::Run>()?;
    module.add("TABLES", table::TABLES)?;
    module.add_class::<table::Table>()?;
    module.add_class::<shard::Shard>()?;
    module.add_class::<shard::Page>()?;
    module.add_function(wrap_pyfunction!(fit::fit_times, module)?)?;
    module.add_function(wrap_pyfunction!(fit::fit_runs, module)?)?;
    module.add_function(wrap_pyfunction!(network::network, module)?)?;
    module.add_function(wrap_pyfunction!(capacity::storage_capacity, module)?)?;
    module.add_function(wrap_pyfunction!(capacity::scaling_capacity, module)?)?;
    module.add_function(wrap_pyfunction!(factors::factors_table, module)?)?;
    Ok(())
}
