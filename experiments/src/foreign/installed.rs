//! Whether the machine has a program or a library.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Whether a program is on the path.
pub(super) fn program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]).any(|f| f.join(name).is_file())
}

/// Whether Python finds a library of C.
pub(super) fn library(name: &str) -> bool {
    let status = Command::new("python3")
        .args(["-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
