//! The formats of inputs.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// How an input is split into records, and how a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Format {
    /// One JSON object a line. Blank lines belong to the record before.
    JsonLines,
    /// Rows of fields. Blank lines belong to the record before.
    Csv {
        /// The byte between fields: `,`, a tab, `;`, `|`.
        delimiter: u8,
        /// Whether the first row names the columns, and is no record.
        header: bool,
    },
    /// `Name: value` lines, a blank line between records, lines that start with a blank go on with
    /// the value.
    Stanzas,
    /// Lines of text.
    Lines,
    /// Whole files, each with its path.
    Files,
}

impl Format {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::JsonLines => "json",
            Self::Csv { delimiter: b'\t', .. } => "tsv",
            Self::Csv { .. } => "csv",
            Self::Stanzas => "stanzas",
            Self::Lines => "lines",
            Self::Files => "files",
        }
    }
}

impl std::str::FromStr for Format {
    type Err = Error;

    /// The names of the command line: `json`, `csv` (comma, header), `tsv` (tab, header),
    /// `stanzas`, `lines`, `files`.
    fn from_str(name: &str) -> Result<Self, Error> {
        Ok(match name {
            "json" | "jsonl" => Self::JsonLines,
            "csv" => Self::Csv { delimiter: b',', header: true },
            "tsv" => Self::Csv { delimiter: b'\t', header: true },
            "stanzas" => Self::Stanzas,
            "lines" => Self::Lines,
            "files" => Self::Files,
            _ => {
                return Err(Error::Schema(format!(
                    "no format {name:?}: json, csv, tsv, stanzas, lines or files"
                )));
            }
        })
    }
}
