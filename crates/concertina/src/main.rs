//! The process: sockets, files, protocols, the load generator, experiments, reports and the command
//! line. All real input and output of the workspace is in this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    concertina::cli::main()
}
