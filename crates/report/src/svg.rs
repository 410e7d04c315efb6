//! Draws plots as SVG text.
//!
//! No plotting crate is used, because reports are read on paper, on phones and in dark mode:
//! colours are CSS classes defined by the page (or by [`standalone`]'s own style), lengths scale
//! with the page, and each mark carries its numbers as a title. Colours are those of Okabe and Ito,
//! which colour-blind readers can tell apart; lines also differ in their dashes, and points in
//! their shapes.

use std::fmt::Write;

use super::grid::escape;

pub use super::axis::{Axis, Scale};

/// The shape of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A ring: held-out measurements.
    Ring,
    /// A filled disc.
    Disc,
    /// A filled square: fitted measurements.
    Square,
    /// A filled triangle.
    Triangle,
}

/// A point with its error bar and tooltip.
#[derive(Clone, Debug)]
pub struct PlotPoint {
    /// Horizontal position.
    pub x: f64,
    /// Vertical position.
    pub y: f64,
    /// Half the height of its error bar; 0 draws none.
    pub half: f64,
    /// The tooltip.
    pub title: String,
}

/// An element of a plot.
#[derive(Clone, Debug)]
pub enum Mark {
    /// A line through points.
    Line {
        /// Its CSS class, one of those in `STYLE`.
        class: &'static str,
        /// Its name in the legend; not listed if empty.
        label: String,
        /// Its points.
        points: Vec<(f64, f64)>,
    },
    /// The region between a lower and an upper line: x, low, high.
    Band {
        /// Its class.
        class: &'static str,
        /// Its name in the legend; not listed if empty.
        label: String,
        /// Its points.
        points: Vec<(f64, f64, f64)>,
    },
    /// Points with error bars.
    Points {
        /// Their class.
        class: &'static str,
        /// Their shape.
        shape: Shape,
        /// Their name in the legend; not listed if empty.
        label: String,
        /// The points.
        points: Vec<PlotPoint>,
    },
    /// A vertical line with a label.
    Vertical {
        /// Its horizontal position.
        x: f64,
        /// The label.
        label: String,
    },
    /// A horizontal line.
    Horizontal {
        /// Its vertical position.
        y: f64,
        /// The label at its right end.
        label: String,
    },
    /// A shaded range of x.
    Shade {
        /// The CSS class: `shade` or `untrusted`.
        class: &'static str,
        /// Start of the range.
        from: f64,
        /// End of the range; infinity is the edge of the plot.
        to: f64,
    },
}

impl Mark {
    /// Its name in the legend, if it has one there.
    fn label(&self) -> Option<&str> {
        let label = match self {
            Mark::Line { label, .. } | Mark::Band { label, .. } => label,
            Mark::Points { label, points, .. } if !points.is_empty() => label,
            _ => return None,
        };
        (!label.is_empty()).then_some(label)
    }
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The marks, drawn in this order.
    pub marks: Vec<Mark>,
}

const WIDTH: f64 = 480.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const PLOT: f64 = 230.0;
const LEGEND_ROW: f64 = 18.0;

/// The CSS classes of marks. Custom properties hold the colours, so that a page can change them.
pub(crate) const STYLE: &str = "\
svg.plot{font:12.5px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;display:block}
svg.plot text{fill:var(--ink)}svg.plot .title{font-weight:600;font-size:13.5px}
svg.plot .grid{stroke:var(--grid);stroke-width:.7}svg.plot .frame{fill:none;stroke:var(--axis)}
svg.plot .minor{stroke:var(--axis);stroke-width:.7}
svg.plot .line{fill:none;stroke-width:2;stroke-linejoin:round}
svg.plot .band{opacity:.2;stroke:none}svg.plot .shade{fill:var(--shade)}svg.plot .untrusted{fill:var(--untrusted)}
svg.plot .rule{stroke:var(--limit);stroke-width:1.4;stroke-dasharray:2 3;fill:none}
svg.plot text.rule-label{fill:var(--limit);stroke:var(--paper);stroke-width:3px;paint-order:stroke;font-size:11.5px}
svg.plot .line.ours{stroke:var(--ours)}svg.plot .band.ours{fill:var(--ours)}
svg.plot .line.spotify{stroke:var(--spotify);stroke-dasharray:7 4}
svg.plot .line.measured{stroke:var(--measured);stroke-width:1.5}
svg.plot .line.third{stroke:var(--third);stroke-dasharray:2 2}
svg.plot .point{stroke-width:1.6;fill:var(--paper)}
svg.plot .point.measured{stroke:var(--measured)}svg.plot .point.fill.measured{fill:var(--measured)}
svg.plot .point.ours{stroke:var(--ours)}svg.plot .point.fill.ours{fill:var(--ours)}
svg.plot .point.spotify{stroke:var(--spotify)}svg.plot .point.fill.spotify{fill:var(--spotify)}
svg.plot .point.third{stroke:var(--third)}svg.plot .point.fill.third{fill:var(--third)}
svg.plot .bar{fill:none;stroke-width:1.4}
svg.plot .bar.measured{stroke:var(--measured)}svg.plot .bar.ours{stroke:var(--ours)}
svg.plot .bar.spotify{stroke:var(--spotify)}svg.plot .bar.third{stroke:var(--third)}
";

/// The colours for light and dark display.
pub(crate) const COLOURS: &str = "\
:root{--paper:#fff;--ink:#1b1f24;--soft:#57606a;--grid:#e3e6ea;--axis:#8c959f;--panel:#f5f7f9;\
--measured:#1b1f24;--ours:#0072b2;--spotify:#d55e00;--third:#117a5a;--limit:#8a3b7d;--shade:#cc79a71f;--untrusted:#e69f0026;\
--warn:#8a4b00;--warnbg:#fff4e0;--lab:#5b2a86;--labbg:#f4ecfb}
@media screen and (prefers-color-scheme:dark){:root{--paper:#12161b;--ink:#e6e9ed;--soft:#9aa4af;\
--grid:#2a313a;--axis:#66707c;--panel:#1a2027;--measured:#f0f3f6;--ours:#56b4e9;--spotify:#f0a13c;\
--third:#2ec495;--limit:#dd9bce;--shade:#cc79a72b;--untrusted:#e69f0033;--warn:#ffcf8a;--warnbg:#33270f;--lab:#dcc3f5;--labbg:#2b1f38}}
";

impl Plot {
    /// Renders the plot as an `svg` element, for a page that includes [`STYLE`] and [`COLOURS`].
    pub(crate) fn svg(&self) -> String {
        let (body, height) = self.body();
        format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"100%\" role=\"img\" \
             aria-label=\"{}\">\n{body}</svg>\n",
            escape(&self.title)
        )
    }

    /// The plot in words: its title, its axes, and what it shows.
    fn described(&self) -> String {
        let labels = self.marks.iter().filter_map(Mark::label).collect::<Vec<_>>();
        let shows =
            if labels.is_empty() { String::new() } else { format!(": {}", labels.join("; ")) };
        format!("{}, {} by {}{shows}.", self.title, self.y.label, self.x.label)
    }

    fn x_at(&self, x: f64) -> Option<f64> {
        self.x.place(x).map(|p| LEFT + p * (WIDTH - LEFT - RIGHT))
    }

    fn y_at(&self, y: f64) -> Option<f64> {
        self.y.place(y).map(|p| TOP + (1.0 - p) * PLOT)
    }

    /// The drawing position of a point. Points far outside are moved near the edge, where they are
    /// still clipped, so that coordinates stay small.
    fn position(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let near = |v: f64| v.clamp(-2000.0, 3000.0);
        Some((near(self.x_at(x)?), near(self.y_at(y)?)))
    }

    fn shows(&self, x: f64, y: f64) -> bool {
        let inside = |p: Option<f64>| p.is_some_and(|p| (-1e-6..=1.0 + 1e-6).contains(&p));
        inside(self.x.place(x)) && inside(self.y.place(y))
    }

    fn body(&self) -> (String, f64) {
        let mut out = String::new();
        let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT);
        let _ = writeln!(out, "<title>{}</title>", escape(&self.title));
        let _ = writeln!(
            out,
            "<text class=\"title\" x=\"{LEFT}\" y=\"18\">{}</text>",
            escape(&self.title)
        );
        for mark in &self.marks {
            if let Mark::Shade { .. } = mark {
                self.draw(mark, &mut out);
            }
        }
        self.axes(&mut out);
        // A nested svg element clips to its box without an id, which a second plot on the page
        // could share.
        let _ = writeln!(
            out,
            "<svg x=\"{LEFT}\" y=\"{TOP}\" width=\"{0}\" height=\"{PLOT}\" viewBox=\"{LEFT} {TOP} {0} \
             {PLOT}\">",
            right - LEFT
        );
        for mark in &self.marks {
            if matches!(mark, Mark::Line { .. } | Mark::Band { .. }) {
                self.draw(mark, &mut out);
            }
        }
        out.push_str("</svg>\n");
        let _ = writeln!(
            out,
            "<rect class=\"frame\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{PLOT}\"/>",
            right - LEFT
        );
        let mut row = 0;
        for mark in &self.marks {
            if let Mark::Vertical { x, label } = mark {
                self.vertical(*x, label, row, &mut out);
                row += 1;
            }
        }
        for mark in &self.marks {
            if matches!(mark, Mark::Points { .. } | Mark::Horizontal { .. }) {
                self.draw(mark, &mut out);
            }
        }
        let height = self.legend(bottom + 46.0, &mut out);
        (out, height)
    }

    fn axes(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT);
        for (value, label) in self.x.ticks() {
            let Some(x) = self.x_at(value) else { continue };
            if label.is_empty() {
                let _ = writeln!(out, "<path class=\"minor\" d=\"M{x:.1} {bottom}v-4\"/>");
                continue;
            }
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom}\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{label}</text>",
                bottom + 16.0
            );
        }
        for (value, label) in self.y.ticks() {
            let Some(y) = self.y_at(value) else { continue };
            if label.is_empty() {
                let _ = writeln!(out, "<path class=\"minor\" d=\"M{LEFT} {y:.1}h4\"/>");
                continue;
            }
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let middle = (LEFT + right) / 2.0;
        let _ = writeln!(
            out,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 34.0,
            escape(&self.x.label)
        );
        let middle = TOP + PLOT / 2.0;
        let _ = writeln!(
            out,
            "<text transform=\"translate(14 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escape(&self.y.label)
        );
    }

    fn draw(&self, mark: &Mark, out: &mut String) {
        match mark {
            Mark::Line { class, points, .. } => {
                let path = self.path(points.iter().copied());
                if !path.is_empty() {
                    let _ = writeln!(out, "<path class=\"line {class}\" d=\"M{path}\"/>");
                }
            }
            Mark::Band { class, points, .. } => {
                let up = points.iter().map(|p| (p.0, p.2));
                let down = points.iter().rev().map(|p| (p.0, p.1));
                let path = self.path(up.chain(down));
                if !path.is_empty() {
                    let _ = writeln!(out, "<path class=\"band {class}\" d=\"M{path}Z\"/>");
                }
            }
            Mark::Points { class, shape, points, .. } => {
                for point in points {
                    self.point(class, *shape, point, out);
                }
            }
            Mark::Vertical { .. } => {}
            Mark::Horizontal { y, label } => {
                let Some(at) = self.y_at(*y).filter(|_| self.shows(self.x.low, *y)) else { return };
                let right = WIDTH - RIGHT;
                let _ = writeln!(
                    out,
                    "<path class=\"rule\" d=\"M{LEFT} {at:.1}H{right}\"/><text class=\"rule-label\" \
                     x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                    right - 4.0,
                    at - 4.0,
                    escape(label)
                );
            }
            Mark::Shade { class, from, to } => {
                let low = self.x_at(*from).unwrap_or(LEFT).clamp(LEFT, WIDTH - RIGHT);
                let high = self.x_at(*to).unwrap_or(WIDTH - RIGHT).clamp(LEFT, WIDTH - RIGHT);
                if high > low {
                    let _ = writeln!(
                        out,
                        "<rect class=\"{class}\" x=\"{low:.1}\" y=\"{TOP}\" width=\"{:.1}\" \
                         height=\"{PLOT}\"/>",
                        high - low
                    );
                }
            }
        }
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for (x, y) in points.filter_map(|(x, y)| self.position(x, y)) {
            let gap = if path.is_empty() { "" } else { "L" };
            let _ = write!(path, "{gap}{x:.1} {y:.1}");
        }
        path
    }

    /// Draws a vertical line with its label on the side that has room, each label on its own row.
    fn vertical(&self, x: f64, label: &str, row: usize, out: &mut String) {
        let Some(at) = self.x_at(x).filter(|_| self.shows(x, self.y.low)) else { return };
        let left = at > (LEFT + WIDTH - RIGHT) / 2.0;
        let (anchor, shift) = if left { ("end", -4.0) } else { ("start", 4.0) };
        let bottom = TOP + PLOT;
        let _ = writeln!(
            out,
            "<path class=\"rule\" d=\"M{at:.1} {TOP}V{bottom}\"/><text class=\"rule-label\" x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            at + shift,
            bottom - 8.0 - 15.0 * (row % 8) as f64,
            escape(label)
        );
    }

    fn point(&self, class: &str, shape: Shape, point: &PlotPoint, out: &mut String) {
        if !self.shows(point.x, point.y) {
            return;
        }
        let Some((x, y)) = self.position(point.x, point.y) else { return };
        out.push_str("<g>");
        let _ = write!(out, "<title>{}</title>", escape(&point.title));
        if point.half > 0.0 {
            let end = |y: f64| self.y_at(y).map_or(TOP + PLOT, |v| v.clamp(TOP, TOP + PLOT));
            let (high, low) = (end(point.y + point.half), end(point.y - point.half));
            let _ = write!(
                out,
                "<path class=\"bar {class}\" d=\"M{0:.1} {high:.1}h7m-3.5 0V{low:.1}m-3.5 0h7\"/>",
                x - 3.5
            );
        }
        out.push_str(&symbol(class, shape, x, y));
        out.push_str("</g>\n");
    }

    /// Draws the legend below the plot, with line wrapping; returns the total height.
    fn legend(&self, top: f64, out: &mut String) -> f64 {
        let (mut x, mut y) = (LEFT, top + 12.0);
        let mut any = false;
        for mark in &self.marks {
            let Some(label) = mark.label() else { continue };
            let width = 32.0 + 6.9 * label.chars().count() as f64 + 14.0;
            if any && x + width > WIDTH {
                (x, y) = (LEFT, y + LEGEND_ROW);
            }
            any = true;
            let _ = writeln!(
                out,
                "{}<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                sample(mark, x, y - 4.0),
                x + 30.0,
                y,
                escape(label)
            );
            x += width;
        }
        if any { y + 8.0 } else { top }
    }
}

/// The sample of a mark in the legend.
fn sample(mark: &Mark, x: f64, y: f64) -> String {
    match mark {
        Mark::Line { class, .. } => {
            format!("<path class=\"line {class}\" d=\"M{x:.1} {y:.1}h24\"/>")
        }
        Mark::Band { class, .. } => format!(
            "<rect class=\"band {class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"24\" height=\"10\"/>",
            y - 5.0
        ),
        Mark::Points { class, shape, .. } => symbol(class, *shape, x + 12.0, y),
        _ => String::new(),
    }
}

fn symbol(class: &str, shape: Shape, x: f64, y: f64) -> String {
    match shape {
        Shape::Ring => {
            format!("<circle class=\"point {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\"/>")
        }
        Shape::Disc => {
            format!("<circle class=\"point fill {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"/>")
        }
        Shape::Square => format!(
            "<rect class=\"point fill {class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"6.4\" height=\"6.4\"/>",
            x - 3.2,
            y - 3.2
        ),
        Shape::Triangle => format!(
            "<path class=\"point fill {class}\" d=\"M{x:.1} {:.1}l3.8 6.6h-7.6z\"/>",
            y - 4.2
        ),
    }
}

/// What a standalone plot begins with.
const HEAD: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 ";

/// Whether a text is a plot that [`standalone`] made.
pub fn is_plot(text: &str) -> bool {
    text.starts_with(HEAD)
}

/// Renders plots below each other as a standalone SVG file, followed by notes as lines of text.
pub fn standalone(plots: &[Plot], notes: &[String]) -> String {
    let mut y = 0.0;
    let mut body = String::new();
    for plot in plots {
        let (inner, height) = plot.body();
        let _ = writeln!(body, "<g transform=\"translate(0 {y:.1})\">\n{inner}</g>");
        y += height + 14.0;
    }
    for note in notes {
        for line in wrap(note, 74) {
            let _ = writeln!(
                body,
                "<text x=\"12\" y=\"{:.1}\" style=\"font-size:11px\">{}</text>",
                y + 8.0,
                escape(&line)
            );
            y += 15.0;
        }
    }
    let height = y + 10.0;
    let described: Vec<String> = plots.iter().map(Plot::described).chain(notes.to_vec()).collect();
    format!(
        "{HEAD}{WIDTH} {height:.0}\" \
         width=\"{:.0}\" height=\"{:.0}\" role=\"img\" aria-label=\"{}\">\n<style>{COLOURS}{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" style=\"fill:var(--paper)\"/>\n{body}</svg>\n",
        WIDTH * 1.5,
        height * 1.5,
        escape(&described.join(" "))
    )
}

/// Wraps words into lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |l| l.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let axes = [
            Axis::linear("", f64::NAN, f64::INFINITY),
            Axis::log("", 0.0, -1.0),
            Axis::linear("", 5.0, 5.0),
            Axis::log("", 1e-300, 1e300),
        ];
        for axis in axes {
            let point = |x, y| PlotPoint { x, y, half: 1.0, title: "<t>".into() };
            let marks = vec![
                Mark::Line {
                    class: "ours",
                    label: "<l>".into(),
                    points: vec![(0.0, f64::NAN), (1e300, 1.0)],
                },
                Mark::Points {
                    class: "ours",
                    shape: Shape::Ring,
                    label: "p".into(),
                    points: vec![point(f64::INFINITY, 0.0), point(0.5, 0.5)],
                },
                Mark::Shade { class: "shade", from: 0.5, to: f64::INFINITY },
                Mark::Vertical { x: f64::INFINITY, label: "v".into() },
            ];
            let svg = Plot { title: "<&>".into(), x: axis.clone(), y: axis, marks }.svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("<l>"), "{svg}");
        }
    }
}
