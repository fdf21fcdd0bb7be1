//! Just enough SVG for charts: text, boxes and lines, in colours that follow the reader's light or dark scheme.

use std::fmt::Write;

/// A picture in the making.
#[derive(Debug)]
pub struct Svg {
    body: String,
    width: f64,
    height: f64,
}

/// Where a text hangs.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    /// Begins there.
    Start,
    /// Is centred there.
    Middle,
    /// Ends there.
    End,
}

/// Classes: `bg`, `grid`, `mark` (the spread), `dim` (lesser text), `head`, and the colours `grey amber blue teal red`, each as `f-…` to fill
/// and `s-…` to stroke. An image can't know the page around it, hence a background of its own.
const STYLE: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
.head{font-weight:600;font-size:14px}.title{font-weight:600;font-size:17px}.dim{fill:#59636e}\
.bg{fill:#fff}.grid{stroke:#d1d9e0}.mark{stroke:#1f2328;stroke-width:1.5}.rim{stroke:#d1d9e0;fill:none}\
.dash{stroke-dasharray:4 4}.line{fill:none;stroke-width:1.5;stroke-opacity:.55}.bold{stroke-width:2.5}\
.f-grey{fill:#8c959f}.f-amber{fill:#d4a72c}.f-blue{fill:#2f6feb}.f-teal{fill:#1f9e8f}.f-red{fill:#d1453b}\
.s-grey{stroke:#8c959f}.s-amber{stroke:#d4a72c}.s-blue{stroke:#2f6feb}.s-teal{stroke:#1f9e8f}.s-red{stroke:#d1453b}\
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#9198a1}.bg{fill:#0d1117}.grid,.rim{stroke:#343b44}.mark{stroke:#e6edf3}\
.f-blue{fill:#4d8dff}.s-blue{stroke:#4d8dff}.f-teal{fill:#2fbfae}.s-teal{stroke:#2fbfae}.f-red{fill:#f0665c}.s-red{stroke:#f0665c}}";

// === impl Svg ===

impl Svg {
    /// An empty picture of so many pixels.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Self {
        let mut svg = Self { body: String::new(), width, height };
        svg.rect("bg", 0.0, 0.0, width, height);
        svg
    }

    /// A filled box.
    pub fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let _ = writeln!(
            self.body,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        );
    }

    /// A line.
    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.body,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    /// A line through several points.
    pub fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.body, r#"<polyline class="{class}" points="{}"/>"#, points.join(" "));
    }

    /// A dot.
    pub fn dot(&mut self, class: &str, (x, y): (f64, f64)) {
        let _ = writeln!(self.body, r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="4"/>"#);
    }

    /// A range: a line with short ends across it, upright or lying.
    pub fn range(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        const HALF: f64 = 4.0;
        let (dx, dy) = if x1 == x2 { (HALF, 0.0) } else { (0.0, HALF) };
        self.line(class, (x1, y1), (x2, y2));
        for (x, y) in [(x1, y1), (x2, y2)] {
            self.line(class, (x - dx, y - dy), (x + dx, y + dy));
        }
    }

    /// A text on its base line.
    pub fn text(&mut self, class: &str, anchor: Anchor, (x, y): (f64, f64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" text-anchor="{anchor}" x="{x:.1}" y="{y:.1}">{text}</text>"#
        );
    }

    /// The whole document.
    #[must_use]
    pub fn finish(self, title: &str) -> String {
        let Self { body, width, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n{body}</svg>\n"
        )
    }
}
