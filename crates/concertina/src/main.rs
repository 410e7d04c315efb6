//! The entry point of the `concertina` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    concertina::cli::main()
}
