//! The run folder: the files that a run writes, and how to read them.
//!
//! `run.toml` describes the run: its configuration or load, the machine and the versions. It is
//! written before the first request. `windows`, `samples`, `times`, `host` and, for a load, `steps`
//! are JSON, one record per line, appended during the run and flushed every second, so that an
//! unfinished run is readable up to its last second. An incomplete last line is ignored; a
//! malformed line elsewhere is an error with its number. Everything that is shown or fitted is
//! derived from these files.

pub mod clock;
pub mod compressed;
mod error;
pub mod file;
mod host;
pub mod memory;
mod read;
mod roots;
mod run;
mod times;
pub mod trace;
mod writer;
pub mod zst;

pub use error::Error;
pub use host::{Awake, Host, HostSampler, IdleSampler, Machine};
pub use read::RunFolder;
pub use roots::{read_roots, system_roots};
pub use run::{FORMAT, Generator, Run, Step};
pub use times::{Times, short_key};
pub use writer::RunWriter;
