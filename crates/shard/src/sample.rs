//! For tests: the start of a file in `../shared/data/text`.

use std::io::{BufReader, Read, Write};

/// The first lines of a file, at most `bytes_max`; `None`, with a message, if the file is missing.
/// In CI (`CI=true`) it must exist.
#[allow(clippy::disallowed_methods)] // A test may read what it checks against.
pub fn text(name: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let path = format!("{}/../../../shared/data/text/{name}.zst", env!("CARGO_MANIFEST_DIR"));
    let read = || {
        let mut text = Vec::new();
        let file =
            ruzstd::decoding::StreamingDecoder::new(BufReader::new(std::fs::File::open(&path)?))
                .map_err(std::io::Error::other)?;
        file.take(bytes_max as u64).read_to_end(&mut text)?;
        let whole_lines = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        text.truncate(whole_lines);
        Ok::<_, std::io::Error>(text)
    };
    match read() {
        Ok(text) => Some(text),
        Err(error) => {
            // Not `eprintln!`, whose output the test harness hides when the test passes.
            let _ = writeln!(std::io::stderr(), "left out: the check against {path}: {error}");
            assert!(std::env::var_os("CI").is_none(), "left out in CI: {path}: {error}");
            None
        }
    }
}
