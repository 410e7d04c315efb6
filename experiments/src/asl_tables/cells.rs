//! Printed cells compared with computed values: the mark of each cell, and counts of marks.
//!
//! `=` as printed; `≈` explained by the rounding of what it is computed from; `~` a measured figure near the law
//! that it should obey; `!` none of these, and then named.

use std::collections::BTreeMap;

use super::csv::{digits, rounding};
use report::grid::Grid;

/// The expected value of a cell: from the inputs as printed, and the least and greatest within their rounding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub exact: f64,
    pub least: f64,
    pub most: f64,
}

impl Range {
    pub fn around(exact: f64, half: f64) -> Range {
        Range { exact, least: exact - half, most: exact + half }
    }

    /// n/x where x is known to within ± `half`.
    pub fn over(n: f64, x: f64, half: f64) -> Range {
        Range { exact: n / x, least: n / (x + half), most: n / (x - half) }
    }
}

/// How a printed cell compares with the computed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Equal as printed.
    Same,
    /// Explained by the rounding of the printed inputs.
    Inputs,
    /// Measured, and near the law.
    Near,
    /// The last digit was cut off, not rounded.
    Truncated,
    /// Not explained.
    Different,
}

const MARKS: [&str; 4] = ["=", "≈", "~", "!"];

impl Verdict {
    fn judge(printed: &str, is: Range) -> Verdict {
        let (half, slack) = (rounding(printed), 1e-9);
        let Ok(value) = printed.trim().parse::<f64>() else { return Verdict::Different };
        let within =
            |low: f64, high: f64| value >= low - half - slack && value <= high + half + slack;
        if within(is.exact, is.exact) {
            Verdict::Same
        } else if within(is.least, is.most) {
            Verdict::Inputs
        } else if value <= is.exact && is.exact < value + 2.0 * half {
            Verdict::Truncated
        } else {
            Verdict::Different
        }
    }

    /// Index of the mark in [`MARKS`].
    fn mark(self) -> usize {
        match self {
            Verdict::Same => 0,
            Verdict::Inputs => 1,
            Verdict::Near => 2,
            Verdict::Truncated | Verdict::Different => 3,
        }
    }
}

/// The result of comparing the cells of all tables.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    /// For each table, the number of cells with each of [`MARKS`].
    tables: BTreeMap<u32, [u64; 4]>,
    /// Computed cells that neither their own rounding nor that of their inputs explains.
    pub misprinted: Vec<String>,
    /// The cells among `misprinted` that truncation does not explain either.
    pub unexplained: usize,
    /// Measured figures that deviate from the law by more than is allowed.
    pub broken: Vec<String>,
}

impl Sheet {
    /// Compares a cell that can be computed from others. Returns its mark and the expected value as printed text.
    pub fn computed(&mut self, table: u32, name: &str, printed: &str, is: Range) -> String {
        let verdict = Verdict::judge(printed, is);
        if matches!(verdict, Verdict::Truncated | Verdict::Different) {
            let is = is.exact;
            self.misprinted.push(format!("Table {table}, {name}: printed {printed}, is {is:.5}"));
            self.unexplained += usize::from(verdict == Verdict::Different);
        }
        self.marked(table, verdict, printed, is)
    }

    /// Compares a measured figure with a named law, from which it may deviate by `within`. Returns its mark and the law's
    /// value.
    pub fn check_measured(
        &mut self,
        table: u32,
        name: &str,
        printed: &str,
        law: &str,
        is: Range,
        within: f64,
    ) -> String {
        let mut verdict = Verdict::judge(printed, is);
        if matches!(verdict, Verdict::Truncated | Verdict::Different) {
            let value = printed.trim().parse().unwrap_or(f64::NAN);
            if (value - is.exact).abs() <= within {
                verdict = Verdict::Near;
            } else {
                let (is, digits) = (is.exact, digits(printed) + 1);
                let given = format!("{law} gives {is:.digits$}");
                self.broken.push(format!("Table {table}, {name}: measured {printed}, {given}"));
            }
        }
        self.marked(table, verdict, printed, is)
    }

    fn marked(&mut self, table: u32, verdict: Verdict, printed: &str, is: Range) -> String {
        let mark = verdict.mark();
        self.tables.entry(table).or_default()[mark] += 1;
        let digits = digits(printed);
        format!("{} {:.digits$}", MARKS[mark], is.exact)
    }

    /// The number of cells compared.
    pub fn cells(&self) -> usize {
        self.tables.values().flatten().sum::<u64>() as usize
    }

    pub fn merge(&mut self, other: Sheet) {
        for (table, marks) in other.tables {
            let own = self.tables.entry(table).or_default();
            own.iter_mut().zip(marks).for_each(|(own, more)| *own += more);
        }
        self.misprinted.extend(other.misprinted);
        self.unexplained += other.unexplained;
        self.broken.extend(other.broken);
    }

    /// The cells that stand out, and the marks of every table.
    pub fn text(&self) -> String {
        let [same, inputs, near, none] = MARKS;
        let mut grid = Grid::new("rrrrrr", &["table", "cells", same, inputs, near, none]);
        for (table, marks) in &self.tables {
            let mut line = vec![table.to_string(), marks.iter().sum::<u64>().to_string()];
            line.extend(marks.iter().map(u64::to_string));
            grid.row(line);
        }
        format!(
            "Cells that rounding does not explain:\n{}\n\n\
             Measured figures that are not near the law:\n{}\n\n\
             Cells by table: {same} as printed, {inputs} within the rounding of what they are computed from, \
             {near} measured and near the law, {none} none of these\n{}\n",
            self.misprinted.join("\n"),
            self.broken.join("\n"),
            grid.text()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_marked_by_what_explains_them() {
        let mut sheet = Sheet::default();
        let is = Range::around(0.9848, 0.0008);
        assert_eq!(sheet.computed(1, "a", "0.985", is), "= 0.985");
        assert_eq!(sheet.computed(1, "b", "0.984", is), "≈ 0.985");
        assert_eq!(sheet.computed(1, "c", "0.979", Range::around(0.97979, 0.0)), "! 0.980");
        assert_eq!((sheet.misprinted.len(), sheet.unexplained), (1, 0), "cut off");
        assert_eq!(sheet.computed(1, "d", "0.99", Range::around(0.97, 0.0)), "! 0.97");
        assert_eq!(sheet.unexplained, 1);
        let is = Range::around(7.26, 0.0);
        assert_eq!(sheet.check_measured(2, "e", "7.5", "λ·W", is, 0.5), "~ 7.3");
        assert_eq!(sheet.check_measured(2, "f", "8.6", "λ·W", is, 0.5), "! 7.3");
        assert_eq!(sheet.broken, ["Table 2, f: measured 8.6, λ·W gives 7.26"]);
        assert_eq!(sheet.cells(), 6);
    }
}
