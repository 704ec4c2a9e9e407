//! What the screen of `top` shows and what each key does to it. Nothing here reads or writes anything.

use elasti_view::view::View;

use super::keys::Key;
use crate::choice::Chosen;
use crate::list::Order;

/// The keys, in the last line.
const HELP: &str = "q quit  s sort  / filter  ↑↓ select  enter why  w wake  z sleep";

/// What a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    Wake(Chosen),
    Sleep(Chosen),
    /// Show why it is so; again and again, until Escape.
    Explain(Chosen),
}

/// The state of the screen.
#[derive(Clone, Debug)]
pub(super) struct Screen {
    pub(super) sort: Order,
    filter: String,
    /// Keys are part of the filter.
    typing: bool,
    /// The selected service: rows change their places at any moment, and a key is for the row that is shown.
    selected: Option<Chosen>,
    /// Where it was last shown.
    row: usize,
    /// The service that is explained.
    pub(super) explained: Option<Chosen>,
    /// What became of the last request.
    pub(super) message: String,
}

impl Screen {
    pub(super) fn new(sort: Order) -> Self {
        Self {
            sort,
            filter: String::new(),
            typing: false,
            selected: None,
            row: 0,
            explained: None,
            message: String::new(),
        }
    }

    /// Those that the filter leaves, in order.
    pub(super) fn chosen(&self, mut views: Vec<View>) -> Vec<View> {
        let filter = self.filter.to_lowercase();
        views.retain(|view| {
            let text = format!(
                "{}/{} {:?} {}",
                view.namespace, view.name, view.phase, view.reason
            );
            text.to_lowercase().contains(&filter)
        });
        self.sort.sort(&mut views);
        views
    }

    /// These rows are shown now; where the selected one is gone, the one in its place is selected.
    pub(super) fn show(&mut self, views: &[View]) {
        self.select(self.selected(views), views);
    }

    /// The index of the selected row.
    pub(super) fn selected(&self, views: &[View]) -> usize {
        let is = |view: &View| self.selected.as_ref() == Some(&named(view));
        let found = views.iter().position(is);
        found.unwrap_or(self.row.min(views.len().saturating_sub(1)))
    }

    /// The first row that is shown where there is room for so many.
    pub(super) fn first(&self, views: &[View], room: usize) -> usize {
        (self.selected(views) + 1).saturating_sub(room.max(1))
    }

    fn select(&mut self, row: usize, views: &[View]) {
        let row = row.min(views.len().saturating_sub(1));
        (self.row, self.selected) = (row, views.get(row).map(named));
    }

    pub(super) fn footer(&self) -> String {
        let sort = format!("{:?}", self.sort).to_lowercase();
        match (self.typing, self.filter.is_empty(), &self.explained) {
            (true, ..) => format!("filter: {}_  (enter keeps it, esc removes it)", self.filter),
            (_, _, Some(_)) => "esc back  w wake  z sleep  q quit".to_owned(),
            (false, true, None) => format!("[{sort}]  {HELP}"),
            (false, false, None) => format!("[{sort}, filter {:?}]  {HELP}", self.filter),
        }
    }

    /// Takes a key while these rows are shown.
    pub(super) fn press(&mut self, key: Key, views: &[View]) -> Action {
        if self.typing {
            self.type_filter(key);
            return Action::Nothing;
        }
        let one = { self.explained.clone() }.or_else(|| self.selected.clone());
        match (key, one) {
            (Key::Char('q'), _) => return Action::Quit,
            (Key::Char('w'), Some(one)) => return Action::Wake(one),
            (Key::Char('z'), Some(one)) => return Action::Sleep(one),
            (Key::Enter, Some(one)) => {
                self.explained = Some(one.clone());
                return Action::Explain(one);
            }
            (Key::Escape, _) => {
                if self.explained.take().is_none() {
                    self.filter.clear();
                }
                self.message.clear();
            }
            (Key::Char('s'), _) => self.sort = self.sort.next(),
            (Key::Char('/'), _) => self.typing = true,
            (Key::Down | Key::Char('j'), _) => self.select(self.selected(views) + 1, views),
            (Key::Up | Key::Char('k'), _) => {
                self.select(self.selected(views).saturating_sub(1), views);
            }
            _ => {}
        }
        Action::Nothing
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(letter) => self.filter.push(letter),
            Key::Backspace => drop(self.filter.pop()),
            Key::Enter => self.typing = false,
            Key::Escape => {
                self.filter.clear();
                self.typing = false;
            }
            Key::Up | Key::Down => {}
        }
        (self.selected, self.row) = (None, 0);
    }
}

fn named(view: &View) -> Chosen {
    Chosen {
        namespace: view.namespace.clone(),
        name: view.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use elasti_view::view::{Facts, Lookup, View, view};
    use serde_json::json;

    use super::{Action, Screen};
    use crate::choice::Chosen;
    use crate::list::Order;
    use crate::top::keys::Key;

    fn views() -> Vec<View> {
        let one = |name: &str| {
            let me = serde_json::from_value(json!({
                "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
                "metadata": {"name": name, "namespace": "shop"},
                "spec": {"service": name, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
            }))
            .unwrap();
            let (target, now) = (&Lookup::Unknown, jiff::Timestamp::UNIX_EPOCH);
            view(Facts {
                me: &me,
                target,
                held: None,
                now,
            })
        };
        ["api", "cart", "web"].map(one).into()
    }

    fn chosen(name: &str) -> Chosen {
        Chosen {
            namespace: "shop".into(),
            name: name.into(),
        }
    }

    #[test]
    fn keys_select_wake_sleep_explain_and_quit() {
        let mut screen = Screen::new(Order::Name);
        let rows = screen.chosen(views());
        screen.show(&rows);
        assert_eq!(screen.press(Key::Down, &rows), Action::Nothing);
        assert_eq!(
            screen.press(Key::Char('w'), &rows),
            Action::Wake(chosen("cart"))
        );
        for _ in 0..9 {
            screen.press(Key::Char('j'), &rows);
        }
        assert_eq!(
            screen.press(Key::Char('z'), &rows),
            Action::Sleep(chosen("web"))
        );
        assert_eq!(screen.first(&rows, 2), 1, "the selected row is in sight");
        assert_eq!(
            screen.press(Key::Enter, &rows),
            Action::Explain(chosen("web"))
        );
        screen.press(Key::Up, &rows);
        let still = Action::Wake(chosen("web"));
        assert_eq!(screen.press(Key::Char('w'), &rows), still);
        screen.press(Key::Escape, &rows);
        assert_eq!(screen.explained, None);
        assert_eq!(screen.press(Key::Char('q'), &rows), Action::Quit);
    }

    #[test]
    fn a_key_is_for_the_service_that_was_shown_as_selected_wherever_its_row_is_now() {
        let mut screen = Screen::new(Order::Name);
        let mut rows = screen.chosen(views());
        screen.show(&rows);
        screen.press(Key::Down, &rows);
        rows.reverse();
        rows.swap(0, 1);
        let cart = Action::Sleep(chosen("cart"));
        assert_eq!(screen.press(Key::Char('z'), &rows), cart);
        rows.retain(|view| view.name != "cart");
        assert_eq!(
            screen.press(Key::Char('z'), &rows),
            cart,
            "not another one before it is shown"
        );
        screen.show(&rows);
        let next = Action::Sleep(chosen(&rows[1].name));
        assert_eq!(screen.press(Key::Char('z'), &rows), next);
    }

    #[test]
    fn a_filter_is_typed_kept_and_removed() {
        let mut screen = Screen::new(Order::Name);
        let all = views();
        for key in [
            Key::Char('/'),
            Key::Char('q'),
            Key::Backspace,
            Key::Char('W'),
        ] {
            assert_eq!(
                screen.press(key, &all),
                Action::Nothing,
                "q is a letter here"
            );
        }
        let names = |screen: &Screen| -> Vec<String> {
            let rows = screen.chosen(views());
            rows.into_iter().map(|view| view.name).collect()
        };
        assert_eq!(names(&screen), ["web"]);
        screen.press(Key::Enter, &all);
        assert!(
            screen.footer().contains("filter \"W\""),
            "{}",
            screen.footer()
        );
        screen.press(Key::Escape, &all);
        assert_eq!(names(&screen).len(), 3);
    }

    #[test]
    fn s_goes_through_all_orders() {
        let mut screen = Screen::new(Order::Urgency);
        let mut seen = Vec::new();
        for _ in 0..6 {
            seen.push(format!("{:?}", screen.sort));
            screen.press(Key::Char('s'), &[]);
        }
        seen.dedup();
        assert_eq!(seen.len(), 6);
        assert_eq!(screen.sort, Order::Urgency);
    }
}
