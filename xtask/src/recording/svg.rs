//! A recording of a terminal as an animated SVG: text that can be selected, in the colours of the reader's system.
//! Every line is visible by itself and only hidden until its time, so that a viewer without animation shows the end.

use std::fmt::Write as _;
use std::time::Duration;

/// A line, and when it was printed.
pub(super) struct Line {
    pub(super) at: Duration,
    pub(super) text: String,
}

const PADDING: usize = 16;
const ROW_HEIGHT: usize = 20;
/// Of the first row's letters, from its top.
const BASELINE: usize = 14;
/// The widest of the fonts below, in hundredths: a column is 0.602 of 14 pixels.
const COLUMN_WIDTH_HUNDREDTHS: usize = 843;

const STYLE: &str = r#"<style>
:root { --paper: #f6f8fa; --edge: #d1d9e0; --ink: #1f2328; --calm: #0550ae; --alert: #9a6700 }
@media (prefers-color-scheme: dark) { :root { --paper: #151b23; --edge: #3d444d; --ink: #f0f6fc; --calm: #79c0ff; --alert: #e3b341 } }
rect { fill: var(--paper); stroke: var(--edge) }
text { fill: var(--ink); font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace; white-space: pre }
.strong { font-weight: bold }
.calm { fill: var(--calm) }
.alert { fill: var(--alert); font-weight: bold }
.later { animation: hidden linear }
@keyframes hidden { from, to { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { .later { animation: none } }
</style>"#;

/// The picture: the command at once, each line at its time, and the last state for good.
pub(super) fn draw(command: &str, lines: &[Line]) -> String {
    let texts = lines.iter().map(|line| line.text.as_str());
    let columns = texts.chain([command]).map(|text| text.chars().count());
    let columns = columns.max().unwrap_or_default();
    let width = (columns * COLUMN_WIDTH_HUNDREDTHS).div_ceil(100) + 2 * PADDING;
    let height = (1 + lines.len()) * ROW_HEIGHT + 2 * PADDING;
    let baseline = |row: usize| PADDING + row * ROW_HEIGHT + BASELINE;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" xml:space="preserve">
<title>{title}</title>
{STYLE}
<rect x="0.5" y="0.5" width="{inner_width}" height="{inner_height}" rx="8"/>
<text x="{PADDING}" y="{y}">{command}</text>
"#,
        title = escape(command.trim_start_matches("$ ")),
        inner_width = width - 1,
        inner_height = height - 1,
        y = baseline(0),
        command = escape(command),
    );
    for (row, line) in (1..).zip(lines) {
        if line.text.is_empty() {
            continue;
        }
        let seconds = line.at.as_secs_f64();
        let (y, text) = (baseline(row), paint(&line.text));
        let _ = writeln!(
            svg,
            r#"<text x="{PADDING}" y="{y}" class="later" style="animation-duration:{seconds:.2}s">{text}</text>"#
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// A line with the word of its step painted, as the demo does it on a terminal.
fn paint(line: &str) -> String {
    let step = || {
        let (time, rest) = line.split_once(" s  ")?;
        time.trim_start().parse::<f64>().ok()?;
        let (word, sentence) = rest.split_once(' ')?;
        Some((time, word, sentence))
    };
    let Some((time, word, sentence)) = step() else {
        return escape(line);
    };
    let tone = match word {
        "asleep" => "calm",
        "held" => "alert",
        _ => "strong",
    };
    format!(
        r#"{time} s  <tspan class="{tone}">{}</tspan> {}"#,
        escape(word),
        escape(sentence)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Line, draw, paint};

    #[test]
    fn the_word_of_a_step_is_painted_and_nothing_else() {
        assert_eq!(
            paint("   1.2 s  asleep    web at 0 replicas"),
            r#"   1.2 s  <tspan class="calm">asleep</tspan>    web at 0 replicas"#
        );
        assert_eq!(paint("Watch: a <b> s  c"), "Watch: a &lt;b&gt; s  c");
    }

    #[test]
    fn each_line_is_hidden_until_its_time_and_stays() {
        let line = |millis, text: &str| Line {
            at: Duration::from_millis(millis),
            text: text.to_owned(),
        };
        let svg = draw(
            "$ demo",
            &[line(100, "one"), line(200, ""), line(1500, "two")],
        );
        let rows: Vec<&str> = svg.lines().filter(|row| row.starts_with("<text")).collect();
        assert_eq!(
            rows,
            [
                r#"<text x="16" y="30">$ demo</text>"#,
                r#"<text x="16" y="50" class="later" style="animation-duration:0.10s">one</text>"#,
                r#"<text x="16" y="90" class="later" style="animation-duration:1.50s">two</text>"#,
            ]
        );
    }
}
