//! What waits for one of a few places, by namespace. Namespaces take turns, and each may have half of the places that the
//! others do not use: however slow its own work is, some are left for the next namespace. Where there are many places, a
//! number bounds what one namespace may have.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What waits, and how many places each namespace has.
#[derive(Debug)]
pub struct Turns<T> {
    places: usize,
    most_of_each: usize,
    waiting: HashMap<Arc<str>, VecDeque<T>>,
    /// The namespaces that wait, the next first.
    order: VecDeque<Arc<str>>,
    taken: HashMap<Arc<str>, usize>,
    taken_in_all: usize,
}

impl<T> Turns<T> {
    /// So many places.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self::with_most(places, places)
    }

    /// No namespace gets more than `most_of_each`.
    #[must_use]
    pub fn with_most(places: usize, most_of_each: usize) -> Self {
        Self {
            places,
            most_of_each,
            waiting: HashMap::new(),
            order: VecDeque::new(),
            taken: HashMap::new(),
            taken_in_all: 0,
        }
    }

    /// After all others of its namespace.
    pub fn push(&mut self, namespace: &Arc<str>, one: T) {
        self.waiting_of(namespace).push_back(one);
    }

    /// Before all others of its namespace.
    pub fn push_first(&mut self, namespace: &Arc<str>, one: T) {
        self.waiting_of(namespace).push_front(one);
    }

    /// What waits in a namespace, to which one is about to be added.
    fn waiting_of(&mut self, namespace: &Arc<str>) -> &mut VecDeque<T> {
        let waiting = self.waiting.entry(namespace.clone()).or_default();
        if waiting.is_empty() {
            self.order.push_back(namespace.clone());
        }
        waiting
    }

    /// How many of a namespace wait.
    #[must_use]
    pub fn waiting(&self, namespace: &Arc<str>) -> usize {
        self.waiting.get(namespace).map_or(0, VecDeque::len)
    }

    /// How many wait in all.
    #[must_use]
    pub fn waiting_in_all(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// The last one of the namespace of which most wait, if those are more than `than`.
    pub fn take_from_longest(&mut self, than: usize) -> Option<T> {
        let (_, longest) = { self.waiting.iter_mut() }
            .max_by_key(|(_, waiting)| waiting.len())
            .filter(|(_, waiting)| waiting.len() > than.max(1))?;
        longest.pop_back()
    }

    /// The next one, which takes a place; give it back with `ended`.
    pub fn take_next(&mut self) -> Option<(Arc<str>, T)> {
        let namespace = self.order.remove(self.next_turn()?)?;
        let waiting = self.waiting.get_mut(&namespace)?;
        let one = waiting.pop_front()?;
        match waiting.is_empty() {
            true => drop(self.waiting.remove(&namespace)),
            false => self.order.push_back(namespace.clone()),
        }
        *self.taken.entry(namespace.clone()).or_default() += 1;
        self.taken_in_all += 1;
        Some((namespace, one))
    }

    /// One that waits could take a place.
    #[must_use]
    pub fn has_next(&self) -> bool {
        self.next_turn().is_some()
    }

    /// A place is free again.
    pub fn ended(&mut self, namespace: &Arc<str>) {
        if let Some(taken) = self.taken.get_mut(namespace) {
            *taken -= 1;
            self.taken_in_all -= 1;
            if *taken == 0 {
                self.taken.remove(namespace);
            }
        }
    }

    /// Nothing waits any more; the places that are taken stay so.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.order.clear();
    }

    /// The first namespace with a place left, as an index.
    fn next_turn(&self) -> Option<usize> {
        let has_place = |namespace: &Arc<str>| {
            let own = self.taken.get(namespace).copied().unwrap_or(0);
            let left = self.places.saturating_sub(self.taken_in_all - own);
            let most = left.div_ceil(2).min(self.most_of_each);
            own < most && self.taken_in_all < self.places
        };
        self.order.iter().position(has_place)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    fn take_all(turns: &mut Turns<usize>) -> Vec<Arc<str>> {
        std::iter::from_fn(|| turns.take_next().map(|(namespace, _)| namespace)).collect()
    }

    #[test]
    fn one_namespace_gets_half_and_eight_leave_a_place_for_the_ninth() {
        let mut turns = Turns::new(16);
        let hostile: Vec<Arc<str>> = (0..8).map(|n| format!("hostile-{n}").into()).collect();
        (0..100).for_each(|n| turns.push(&hostile[0], n));
        assert_eq!(take_all(&mut turns).len(), 8);
        for namespace in &hostile[1..] {
            (0..100).for_each(|n| turns.push(namespace, n));
        }
        let taken = 8 + take_all(&mut turns).len();
        assert!(taken < 16, "{taken} of 16 are taken");
        let shop: Arc<str> = "shop".into();
        turns.push(&shop, 0);
        assert_eq!(take_all(&mut turns), std::slice::from_ref(&shop));
        turns.ended(&shop);
        turns.ended(&hostile[7]);
        assert!(!take_all(&mut turns).is_empty(), "their turn comes too");
    }

    #[test]
    fn where_each_may_have_only_so_many_the_others_get_all_that_is_left() {
        let mut turns = Turns::with_most(100, 3);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        (0..9).for_each(|n| turns.push(&a, n));
        assert_eq!(take_all(&mut turns).len(), 3);
        turns.push(&b, 0);
        assert_eq!(take_all(&mut turns), std::slice::from_ref(&b));
        turns.ended(&a);
        assert_eq!(take_all(&mut turns), [a]);
    }

    #[test]
    fn namespaces_take_turns() {
        let mut turns = Turns::new(16);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        (0..3).for_each(|n| turns.push(&a, n));
        turns.push(&b, 0);
        assert_eq!(take_all(&mut turns), [&a, &b, &a, &a].map(Arc::clone));
    }

    /// What the queues, the workers and the permits would do without turns: the neighbour has those of the other one.
    #[test]
    fn in_one_queue_a_neighbour_waits_for_all_that_came_before_it() {
        let before = |neighbour: &str| {
            let mut turns = Turns::new(2);
            let (hostile, neighbour) = (Arc::<str>::from("hostile"), Arc::<str>::from(neighbour));
            (0..500).for_each(|n| turns.push(&hostile, n));
            turns.push(&neighbour, 500);
            let ended = std::iter::from_fn(|| {
                let (namespace, one) = turns.take_next()?;
                turns.ended(&namespace);
                Some(one)
            });
            ended.take_while(|one| *one != 500).count()
        };
        assert_eq!(before("shop"), 1);
        assert_eq!(before("hostile"), 500);
    }
}
