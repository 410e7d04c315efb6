//! The texts: real records of `../shared/data`, and TPC-H's lineitem, generated.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use record::zst;
use tpchgen::generators::LineItemGenerator;

use crate::config::Dataset;

impl Dataset {
    /// All bytes of the dataset; `data` is the folder of its files.
    ///
    /// # Errors
    /// If a file is missing, or if a byte is 0: sdsl-lite keeps that one for itself.
    pub fn load(&self, data: &Path) -> anyhow::Result<Vec<u8>> {
        let mut text = Vec::new();
        for file in &self.files {
            let path = data.join(file);
            let compressed = std::fs::File::open(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            zst::Decoder::new(compressed)
                .read_to_end(&mut text)
                .with_context(|| format!("cannot decompress {}", path.display()))?;
        }
        if self.lineitem_scale > 0.0 {
            text.extend_from_slice(lineitem(self.lineitem_scale)?.as_bytes());
        }
        ensure!(!text.contains(&0), "dataset {}: sdsl-lite takes no text with a byte 0", self.name);
        ensure!(
            (4096..i32::MAX as usize).contains(&text.len()),
            "dataset {} has {} bytes; this measures 4 KiB to 2 GiB",
            self.name,
            text.len()
        );
        Ok(text)
    }
}

/// TPC-H's lineitem as `dbgen` writes it: 16 columns, each ended by `|`.
fn lineitem(scale: f64) -> anyhow::Result<String> {
    let mut text = String::new();
    for item in LineItemGenerator::new(scale, 1, 1).iter() {
        writeln!(text, "{item}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_item_has_sixteen_columns() {
        let text = lineitem(0.001).unwrap();
        assert!(text.lines().count() > 5000);
        for line in text.lines() {
            assert_eq!(line.matches('|').count(), 16, "{line}");
        }
    }

    #[test]
    fn texts_that_the_rivals_do_not_take_are_refused() {
        use ruzstd::encoding::{CompressionLevel, compress_to_vec};
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(
                dir.path().join(name),
                compress_to_vec(bytes, CompressionLevel::Fastest),
            )
            .unwrap();
        };
        write("good.zst", &[b'a'; 4096]);
        write("zero.zst", &[0; 4096]);
        let load = |names: &[&str]| {
            let files = names.iter().map(Into::into).collect();
            let name = "test".to_owned();
            Dataset { name, files, lineitem_scale: 0.0 }.load(dir.path())
        };
        assert_eq!(load(&["good.zst", "good.zst"]).unwrap(), [b'a'; 8192]);
        assert!(load(&["good.zst", "zero.zst"]).unwrap_err().to_string().contains("byte 0"));
        assert!(load(&[]).unwrap_err().to_string().contains("0 bytes"));
        assert!(load(&["none.zst"]).is_err());
    }
}
