//! Figures that a command computes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use report::svg::{Axis, Mark, Plot, PlotPoint, Shape, standalone};
use serde_json::Value;

use super::catalogue::{CurveEntry, NumberEntry};

/// The program that computes, and what its commands have answered: rows of one table share a command.
pub struct Program {
    path: PathBuf,
    answers: RefCell<BTreeMap<String, Value>>,
}

/// A printed number beside the computed one.
pub struct Row<'a> {
    /// The printed one.
    pub computed: &'a NumberEntry,
    /// The computed one.
    pub ours: f64,
}

impl Row<'_> {
    /// Whether the computed number is the printed one, as far as that is printed.
    pub fn is_same(&self) -> bool {
        (self.ours - self.computed.theirs).abs() <= self.computed.rounding * (1.0 + 1e-12)
    }
}

/// A computed curve.
pub struct Curve<'a> {
    /// What was asked for.
    pub curve: &'a CurveEntry,
    /// The plot as an SVG file.
    pub svg: String,
}

impl Program {
    /// # Errors
    /// If there is no such program.
    pub fn new(path: &Path) -> anyhow::Result<Program> {
        ensure!(
            path.is_file(),
            "there is no program {}; build it: cargo build --release -p concertina",
            path.display()
        );
        Ok(Program { path: path.to_owned(), answers: RefCell::default() })
    }

    fn answer(&self, arguments: &str) -> anyhow::Result<Value> {
        if let Some(known) = self.answers.borrow().get(arguments) {
            return Ok(known.clone());
        }
        let output = Command::new(&self.path)
            .args(arguments.split_whitespace())
            .output()
            .with_context(|| format!("cannot start {}", self.path.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("concertina {arguments}: {}", said.trim());
        }
        let value: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("concertina {arguments}: its answer is not JSON (--json)"))?;
        self.answers.borrow_mut().insert(arguments.to_owned(), value.clone());
        Ok(value)
    }

    /// Computes the number beside a printed one.
    ///
    /// # Errors
    /// If the command fails, or its answer has no number there.
    pub fn row<'a>(&self, computed: &'a NumberEntry) -> anyhow::Result<Row<'a>> {
        let answer = self.answer(&computed.command)?;
        let ours = number(&answer, &computed.at)
            .with_context(|| format!("concertina {}", computed.command))?;
        Ok(Row { computed, ours: ours * computed.scale })
    }

    /// Computes a curve.
    ///
    /// # Errors
    /// As [`row`](Program::row).
    pub fn curve<'a>(&self, curve: &'a CurveEntry) -> anyhow::Result<Curve<'a>> {
        // Classes of the plots' style: colours that colour-blind readers can tell apart.
        const CLASSES: [&str; 4] = ["ours", "third", "measured", "spotify"];
        let answer = self.answer(&curve.command)?;
        let rows = answer.pointer(&curve.rows).and_then(Value::as_array);
        let rows = rows.with_context(|| {
            format!("concertina {}: its answer has no list {}", curve.command, curve.rows)
        })?;
        let mut marks = Vec::new();
        let (mut x_max, mut y_max) = (0.0_f64, 0.0_f64);
        let mut x_min = f64::INFINITY;
        for (line, class) in curve.lines.iter().zip(CLASSES) {
            let mut points = Vec::new();
            for row in rows {
                // Beyond saturation a prediction has no points: the line ends there.
                let Ok(y) = number(row, &line.y) else { continue };
                let x = number(row, &curve.x)?;
                (x_min, x_max, y_max) = (x_min.min(x), x_max.max(x), y_max.max(y));
                points.push((x, y));
            }
            ensure!(!points.is_empty(), "concertina {}: nothing at {}", curve.command, line.y);
            marks.push(Mark::Line { class, label: line.label.clone(), points });
        }
        if !curve.theirs.is_empty() {
            let point = |point: &super::catalogue::Point| PlotPoint {
                x: point.x,
                y: point.y,
                half: 0.0,
                title: format!("printed: {} at {}", point.y, point.x),
            };
            y_max = curve.theirs.iter().map(|point| point.y).fold(y_max, f64::max);
            let points = curve.theirs.iter().map(point).collect();
            let label = "printed".to_owned();
            marks.push(Mark::Points { class: "spotify", shape: Shape::Ring, label, points });
        }
        let plot = Plot {
            title: curve.title.clone(),
            x: Axis::linear(&curve.x_label, x_min.min(x_max), x_max),
            y: Axis::linear(&curve.y_label, 0.0, y_max * 1.05),
            marks,
        };
        Ok(Curve { curve, svg: standalone(&[plot], &[]) })
    }
}

fn number(answer: &Value, at: &str) -> anyhow::Result<f64> {
    answer
        .pointer(at)
        .and_then(Value::as_f64)
        .with_context(|| format!("the answer has no number {at}"))
}
