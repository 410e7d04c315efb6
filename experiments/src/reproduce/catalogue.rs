//! The catalogue of what is reproduced: `experiments/reproduce.toml`.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// All chapters, one for each source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// In the order of the page.
    #[serde(rename = "chapter")]
    pub chapters: Vec<Chapter>,
}

/// What one source shows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chapter {
    /// As it is chosen by.
    pub name: String,
    /// As it is shown.
    pub title: String,
    /// Authors, title, where published.
    pub source: String,
    /// Its figures and tables.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
}

/// A figure or a table of a source, or several that show one thing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// As the source numbers it.
    pub name: String,
    /// What it shows.
    pub shows: String,
    /// Why ours differs, or what is not as theirs was. Numbers that are computed may do without.
    pub note: Option<String>,
    /// Numbers that follow from the source's own parameters.
    #[serde(default)]
    pub computed: Vec<NumberEntry>,
    /// Figures that an experiment measures.
    #[serde(default)]
    pub measured: Vec<MeasurementEntry>,
    /// Curves that a command computes.
    #[serde(default, rename = "curve")]
    pub curves: Vec<CurveEntry>,
    /// Why there is nothing of ours.
    pub absent: Option<String>,
}

/// A printed number, and the command that computes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumberEntry {
    /// What the number is, with its unit.
    pub what: String,
    /// The printed number.
    pub theirs: f64,
    /// How far ours may be from it and be the same: half a unit of the last printed digit, or what "about" says.
    pub rounding: f64,
    /// Arguments of `concertina`, which must ask for JSON.
    pub command: String,
    /// Where the number stands in the JSON: a pointer of RFC 6901.
    pub at: String,
    /// What the number in the JSON is multiplied by, to be in the printed unit.
    #[serde(default = "unit_scale")]
    pub scale: f64,
}

fn unit_scale() -> f64 {
    1.0
}

/// What an experiment measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasurementEntry {
    /// Name of its folder.
    pub experiment: String,
    /// The beginnings of the claims' names; all claims if empty.
    #[serde(default)]
    pub claims: Vec<String>,
    /// What the source says of it.
    pub theirs: String,
    /// Plots of the record to show, by the names of their files.
    #[serde(default)]
    pub plots: Vec<String>,
}

/// A curve of a figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurveEntry {
    /// The plot's title.
    pub title: String,
    /// Arguments of `concertina`, which must ask for JSON.
    pub command: String,
    /// Where the list of rows stands in the JSON.
    pub rows: String,
    /// Where the horizontal position stands in a row.
    pub x: String,
    /// Label of the horizontal axis, with its unit.
    pub x_label: String,
    /// Label of the vertical axis, with its unit.
    pub y_label: String,
    /// The lines: at most four.
    pub lines: Vec<Line>,
    /// Points that the source prints.
    #[serde(default)]
    pub theirs: Vec<Point>,
}

/// One line of a plot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Its name in the legend.
    pub label: String,
    /// Where its vertical position stands in a row.
    pub y: String,
}

/// A printed point.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Horizontal position.
    pub x: f64,
    /// Vertical position.
    pub y: f64,
}

impl Catalogue {
    /// Reads and checks a catalogue.
    ///
    /// # Errors
    /// If it cannot be read; if a figure has neither something of ours nor a reason, or has both; if nothing tells why what is
    /// measured or drawn differs.
    pub fn read(path: &Path) -> anyhow::Result<Catalogue> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Catalogue::parse(&text).with_context(|| format!("{} is not a catalogue", path.display()))
    }

    /// Parses and checks a catalogue.
    ///
    /// # Errors
    /// As [`read`](Catalogue::read).
    pub fn parse(text: &str) -> anyhow::Result<Catalogue> {
        let catalogue: Catalogue = toml::from_str(text)?;
        for figure in catalogue.chapters.iter().flat_map(|chapter| &chapter.figures) {
            let name = &figure.name;
            let has_ours = !(figure.computed.is_empty()
                && figure.measured.is_empty()
                && figure.curves.is_empty());
            ensure!(
                has_ours != figure.absent.is_some(),
                "{name}: a figure has something of ours or the reason why not, and not both"
            );
            ensure!(
                figure.note.is_some() || figure.measured.is_empty() && figure.curves.is_empty(),
                "{name}: what is measured or drawn has a note: why it differs, or what is not as theirs was"
            );
            for computed in &figure.computed {
                let NumberEntry { what, theirs, rounding, .. } = computed;
                ensure!(
                    theirs.is_finite() && *rounding > 0.0,
                    "{name}, {what}: the rounding must be above 0"
                );
            }
            for curve in &figure.curves {
                ensure!(
                    (1..=4).contains(&curve.lines.len()),
                    "{name}, {}: a plot has one to four lines",
                    curve.title
                );
            }
        }
        Ok(catalogue)
    }
}
