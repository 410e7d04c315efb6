//! `shard-queries-bench text`: a text as a file, for experiments that import it.
//!
//! The texts of `config.toml`, and TPC-H's lineitem at any length: it is generated line by line, so
//! neither its length nor this process's memory depends on the other.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use tpchgen::generators::LineItemGenerator;

use crate::config::Config;

/// Bytes of a lineitem table of scale 1, at least.
const BYTES_OF_SCALE_1: f64 = 7e8;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Arguments {
    /// The experiment's folder, with config.toml
    pub folder: PathBuf,
    /// The file to write
    #[arg(long)]
    pub out: PathBuf,
    /// Name of a text of config.toml
    #[arg(long, required_unless_present = "lineitem_bytes")]
    pub dataset: Option<String>,
    /// Instead: lines of TPC-H's lineitem, as many as fit into this number of bytes
    #[arg(long, conflicts_with = "dataset")]
    pub lineitem_bytes: Option<u64>,
}

/// Writes a text.
///
/// # Errors
/// If the text is unknown, or cannot be written.
pub fn write(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { folder, out, .. } = arguments;
    let file = File::create(out).with_context(|| format!("cannot write {}", out.display()))?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    match (&arguments.dataset, arguments.lineitem_bytes) {
        (_, Some(bytes)) => lineitem(bytes, &mut writer)?,
        (name, None) => {
            let config = Config::read(&folder.join("config.toml"))?;
            let wanted = config.dataset.iter().find(|dataset| Some(&dataset.name) == name.as_ref());
            let dataset = wanted.with_context(|| format!("config.toml has no dataset {name:?}"))?;
            writer.write_all(&dataset.load(&folder.join(&config.data))?)?;
        }
    }
    writer.flush().with_context(|| format!("cannot write {}", out.display()))
}

/// Lines of a table that is large enough, up to this number of bytes.
fn lineitem(bytes: u64, out: &mut impl Write) -> anyhow::Result<()> {
    use std::fmt::Write as _;
    // A hundredth more than it takes, and one of the smallest tables at least.
    let scale = bytes as f64 / BYTES_OF_SCALE_1 * 1.01 + 0.001;
    let (mut written, mut line) = (0, String::new());
    for item in LineItemGenerator::new(scale, 1, 1).iter() {
        line.clear();
        writeln!(line, "{item}")?;
        if written + line.len() as u64 > bytes {
            return Ok(());
        }
        written += line.len() as u64;
        out.write_all(line.as_bytes())?;
    }
    ensure!(bytes == written, "a table of scale {scale} has {written} bytes, not {bytes}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fills_the_bytes_by_whole_lines() {
        for bytes in [0, 100, 5000, 3_000_000] {
            let mut text = Vec::new();
            lineitem(bytes, &mut text).unwrap();
            let missing = bytes as usize - text.len();
            assert!(missing < 200 && (text.is_empty() || text.ends_with(b"|\n")), "{missing}");
        }
    }
}
