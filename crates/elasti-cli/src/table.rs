//! Rows in aligned columns, as kubectl shows them.
//! Lines do not wrap: on a narrow terminal the longest texts lose their middle.

use crate::terminal::{Terminal, Tone};

/// Spaces between columns, as kubectl has them.
const GAP: usize = 3;
/// No column is cut below this.
const NARROWEST: usize = 8;

/// One cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            tone: Tone::Plain,
        }
    }
}

impl Cell {
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// Rows in columns.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these headings.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let heading = |text: &&str| Cell::toned(*text, Tone::Strong);
        Self {
            rows: vec![headings.iter().map(heading).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The lines, each ended.
    pub(crate) fn lines(&self, terminal: Terminal) -> String {
        self.more_lines(&mut Columns::default(), terminal)
    }

    /// The rows below others in the same columns, each of which grows with a longer text; the headings only above the
    /// first rows.
    pub(crate) fn more_lines(&self, columns: &mut Columns, terminal: Terminal) -> String {
        let above = usize::from(!columns.0.is_empty());
        columns.grow(&self.rows);
        let widths = columns.within(terminal.columns);
        let mut text = String::new();
        for row in self.rows.iter().skip(above) {
            let mut line = String::new();
            let mut owed = 0;
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&" ".repeat(owed));
                let shown = cut(&cell.text, *width);
                owed = width.saturating_sub(shown.chars().count()) + GAP;
                line.push_str(&terminal.paint(cell.tone, &shown));
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// How wide the longest text of each column is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns(Vec<usize>);

impl Columns {
    fn grow(&mut self, rows: &[Vec<Cell>]) {
        for row in rows {
            self.0.resize(self.0.len().max(row.len()), 0);
            for (width, cell) in self.0.iter_mut().zip(row) {
                *width = cell.width().max(*width);
            }
        }
    }

    /// How wide each column may be: as wide as its content, or else the widest give way.
    fn within(&self, columns: Option<usize>) -> Vec<usize> {
        let mut widths = self.0.clone();
        let Some(columns) = columns else {
            return widths;
        };
        let gaps = GAP * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > columns {
            match widths.iter_mut().max() {
                Some(widest) if *widest > NARROWEST => *widest -= 1,
                _ => break,
            }
        }
        widths
    }
}

/// The text, without its middle if it is too long: names differ at their ends.
fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let tail = kept / 2;
    let head: String = text.chars().take(kept - tail).collect();
    let tail: String = text.chars().skip(length - tail).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::{Columns, Table, cut};
    use crate::terminal::Terminal;

    fn plain(columns: Option<usize>) -> Terminal {
        Terminal {
            colour: false,
            columns,
            rows: 24,
            live: false,
        }
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_end_of_spaces() {
        let mut table = Table::new(&["NAME", "PHASE"]);
        table.row(vec!["web".into(), "Asleep".into()]);
        table.row(vec!["a-longer-one".into(), "Serving".into()]);
        assert_eq!(
            table.lines(plain(None)),
            "NAME           PHASE\nweb            Asleep\na-longer-one   Serving\n"
        );
    }

    #[test]
    fn later_rows_are_in_the_columns_of_the_first_and_a_column_grows() {
        let mut columns = Columns::default();
        let mut lines = |name: &str| {
            let mut table = Table::new(&["NAME", "PHASE"]);
            table.row(vec![name.into(), "Asleep".into()]);
            table.more_lines(&mut columns, plain(None))
        };
        assert_eq!(lines("longer"), "NAME     PHASE\nlonger   Asleep\n");
        assert_eq!(lines("web"), "web      Asleep\n");
        assert_eq!(lines("the-longest"), "the-longest   Asleep\n");
        assert_eq!(lines("web"), "web           Asleep\n");
    }

    #[test]
    fn a_narrow_terminal_costs_the_longest_texts_their_middle() {
        let mut table = Table::new(&["NAME", "REASON"]);
        let long = "a-service-with-a-name-that-no-one-can-remember-v2";
        table.row(vec![long.into(), "CoolingDown".into()]);
        let text = table.lines(plain(Some(40)));
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
        assert!(
            text.contains("…") && text.contains("-v2") && text.contains("CoolingDown"),
            "{text}"
        );
    }

    #[test]
    fn a_text_that_fits_is_not_cut() {
        assert_eq!(cut("abcdefgh", 8), "abcdefgh");
        assert_eq!(cut("abcdefghi", 8), "abcd…ghi");
        assert_eq!(cut("äöüäöüäöü", 8), "äöüä…äöü");
    }
}
