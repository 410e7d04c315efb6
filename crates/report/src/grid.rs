//! Tables that print as text or as HTML from the same cells.

use std::fmt::Write;

/// A table. `align` holds one letter for each column: `l` (left, text) or `r` (right, numbers).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// Column headings.
    pub head: Vec<String>,
    /// `l` or `r` for each column.
    pub align: &'static str,
    /// The cells.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// An empty table.
    pub fn new(align: &'static str, head: &[&str]) -> Grid {
        Grid { head: head.iter().map(|h| (*h).to_owned()).collect(), align, rows: Vec::new() }
    }

    fn is_left(&self, column: usize) -> bool {
        self.align.as_bytes().get(column) == Some(&b'l')
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Renders the table as lines of text, with two spaces between columns.
    pub fn text(&self) -> String {
        let mut widths: Vec<usize> = self.head.iter().map(|h| width(h)).collect();
        for row in &self.rows {
            for (i, cell) in row.iter().enumerate() {
                match widths.get_mut(i) {
                    Some(w) => *w = (*w).max(width(cell)),
                    None => widths.push(width(cell)),
                }
            }
        }
        let mut out = String::new();
        let mut line = |cells: &[String]| {
            let mut text = String::new();
            for (i, cell) in cells.iter().enumerate() {
                let blank = " ".repeat(widths.get(i).map_or(0, |w| w.saturating_sub(width(cell))));
                let (before, after) = if self.is_left(i) { ("", &*blank) } else { (&*blank, "") };
                let gap = if i > 0 { "  " } else { "" };
                let _ = write!(text, "{gap}{before}{}{after}", printable(cell));
            }
            let _ = writeln!(out, "{}", text.trim_end());
        };
        line(&self.head);
        self.rows.iter().for_each(|row| line(row));
        out
    }

    /// Renders the table as HTML, in a box that scrolls horizontally if the page is too narrow.
    /// `class_of` gives the CSS class of each row.
    pub(crate) fn html(&self, class_of: impl Fn(usize) -> &'static str) -> String {
        let mut out = String::from("<div class=\"scroll\"><table>\n<thead><tr>");
        let align = |i: usize| if self.is_left(i) { "" } else { " class=\"n\"" };
        for (i, head) in self.head.iter().enumerate() {
            let _ = write!(out, "<th scope=\"col\"{}>{}</th>", align(i), escape(head));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for (index, row) in self.rows.iter().enumerate() {
            let _ = write!(out, "<tr class=\"{}\">", class_of(index));
            for (i, cell) in row.iter().enumerate() {
                let _ = write!(out, "<td{}>{}</td>", align(i), escape(cell));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
        out
    }
}

/// The number of terminal columns that a text occupies; combining marks occupy none.
fn width(text: &str) -> usize {
    text.chars().filter(|c| !matches!(c, '\u{300}'..='\u{36f}')).count()
}

/// Replaces control characters, which could drive a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// Escapes text for HTML and SVG, in elements and in quoted attributes. Characters that XML forbids
/// are replaced.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_files_cannot_leave_its_place() {
        assert_eq!(escape("<a href='x'>\"&\u{1}"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;\u{fffd}");
        assert_eq!(printable("a\u{1b}[2Jb"), "a\u{fffd}[2Jb");
    }

    #[test]
    fn columns_line_up() {
        let mut grid = Grid::new("lr", &["name", "n"]);
        grid.row(["a".to_owned(), "1".to_owned()]);
        grid.row(["long name".to_owned(), "1,000".to_owned()]);
        assert_eq!(grid.text(), "name           n\na              1\nlong name  1,000\n");
    }
}
