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
    selected: usize,
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
            selected: 0,
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

    /// The index of the selected row among so many.
    pub(super) fn selected(&self, rows: usize) -> usize {
        self.selected.min(rows.saturating_sub(1))
    }

    /// The first row that is shown where there is room for so many.
    pub(super) fn first(&self, rows: usize, room: usize) -> usize {
        (self.selected(rows) + 1).saturating_sub(room.max(1))
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
        let row = views.get(self.selected(views.len()));
        let one = self.explained.clone().or_else(|| {
            row.map(|view| Chosen {
                namespace: view.namespace.clone(),
                name: view.name.clone(),
            })
        });
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
            (Key::Down | Key::Char('j'), _) => {
                self.selected = (self.selected(views.len()) + 1).min(views.len().saturating_sub(1));
            }
            (Key::Up | Key::Char('k'), _) => {
                self.selected = self.selected(views.len()).saturating_sub(1);
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
        self.selected = 0;
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
        assert_eq!(screen.first(3, 2), 1, "the selected row is in sight");
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
