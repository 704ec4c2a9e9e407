//! How many waiters may leave at once: by answers, and by time, so that slow answers do not hold up what waits behind them.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::Ticket;

/// How many waiters to release at once, so that they do not overload the first pod.
///
/// Each released request takes a slot. It starts with [`ReleasePace::START`] slots per ready pod. A slot is given back
/// at the head of the answer, or a [`ReleasePace::STEP`] after the request was written: long polls and subscriptions are
/// answered late by design. A slot is for what loads a pod: a request that has begun to try none a [`ReleasePace::STEP`]
/// after its release, because its client has not sent it yet, loses its slot, and takes one again when it begins. So
/// eight clients that send nothing delay those behind them by one step. Of a connection that is only relayed no answer is known: its slot is given back by time. The
/// slots double with each whole batch that was answered, and with each step in which something was written and no
/// connection failed, up to [`ReleasePace::MOST`]; a failure halves them.
///
/// 10,000 waiters at one pod need 8 + 16 + ... + 512 = 1,016 in 7 rounds, then 9 rounds of 1,024: 16 round trips if it
/// answers at once, 16 steps = 4 s if it never does, and no single burst.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReleasePace {
    per_pod: usize,
    /// Since the pace last changed.
    answered: usize,
    /// The released requests that take a slot.
    slots: BTreeMap<Ticket, Slot>,
    /// All that were released, in the order of time; one that has begun, ended or was released again leaves its entry
    /// behind, which then means nothing.
    released: VecDeque<(Timestamp, Ticket)>,
    /// Those that were written, in the order of time; an answer, or another try, leaves its entry behind, which then
    /// means nothing.
    written: VecDeque<(Timestamp, Ticket)>,
    /// The first write since the pace last changed.
    step_began: Option<Timestamp>,
}

/// What the request of a slot does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    /// It was released then, and has tried no pod yet.
    Waits(Timestamp),
    /// It tries a pod, or one has it since then.
    LoadsPod(Option<Timestamp>),
}

impl ReleasePace {
    /// Slots per ready pod at first.
    pub const START: usize = 8;
    /// Slots per ready pod at most.
    pub const MOST: usize = 1024;
    /// A pod that is quick has answered by then; one that is not gets the next ones all the same.
    pub const STEP: SignedDuration = SignedDuration::from_millis(250);

    /// The pace for a service that has just woken.
    #[must_use]
    pub fn new() -> Self {
        Self {
            per_pod: Self::START,
            answered: 0,
            slots: BTreeMap::new(),
            released: VecDeque::new(),
            written: VecDeque::new(),
            step_began: None,
        }
    }

    /// How many more may be released now; none without a ready pod.
    #[must_use]
    pub fn allowance(&self, ready_pods: usize) -> usize {
        self.batch(ready_pods).saturating_sub(self.slots.len())
    }

    /// No slot is taken.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.slots.is_empty()
    }

    /// A request was released and takes a slot.
    pub fn released(&mut self, ticket: Ticket, now: Timestamp) {
        self.slots.insert(ticket, Slot::Waits(now));
        self.released.push_back((now, ticket));
    }

    /// A released request begins to try a pod: it takes a slot even if time has given its own back.
    pub fn begun(&mut self, ticket: Ticket) {
        self.slots.insert(ticket, Slot::LoadsPod(None));
    }

    /// A released request waits until a pod can take it, and loads none meanwhile.
    pub fn stood_aside(&mut self, ticket: Ticket) {
        self.slots.remove(&ticket);
    }

    /// A pod is connected and gets the request now.
    pub fn written(&mut self, ticket: Ticket, now: Timestamp) {
        if let Some(slot) = self.slots.get_mut(&ticket) {
            *slot = Slot::LoadsPod(Some(now));
            self.written.push_back((now, ticket));
            self.step_began.get_or_insert(now);
        }
    }

    /// A released request was answered by a pod (`Some(true)`), could not be delivered to one (`Some(false)`), or its
    /// client has disconnected.
    pub fn ended(&mut self, ticket: Ticket, ready_pods: usize, answered: Option<bool>) {
        let had_slot = self.slots.remove(&ticket).is_some();
        match answered {
            Some(false) => self.change(self.per_pod / 2),
            // A slot that time gave back has counted already.
            Some(true) if had_slot => {
                self.answered = self.answered.saturating_add(1);
                if self.answered >= self.batch(ready_pods.max(1)) {
                    self.change(self.per_pod.saturating_mul(2));
                }
            }
            Some(true) | None => {}
        }
    }

    /// Time has passed: gives slots back, and opens more.
    pub fn pass(&mut self, now: Timestamp) {
        while let Some((at, ticket)) = self.released.front().copied()
            && due(at) <= now
        {
            self.released.pop_front();
            self.give_back(ticket, Slot::Waits(at));
        }
        while let Some((at, ticket)) = self.written.front().copied()
            && due(at) <= now
        {
            self.written.pop_front();
            self.give_back(ticket, Slot::LoadsPod(Some(at)));
        }
        if self.step_began.is_some_and(|began| due(began) <= now) {
            self.change(self.per_pod.saturating_mul(2));
        }
    }

    /// When [`ReleasePace::pass`] next changes something; `None`: not before another request is released or written.
    #[must_use]
    pub fn next_change(&self) -> Option<Timestamp> {
        let fronts = [self.released.front(), self.written.front()];
        let slots = fronts.into_iter().flatten().map(|(at, _)| *at);
        let first = slots.chain(self.step_began).min();
        first.map(due)
    }

    /// Unless the request has gone on since: a pod that failed may have sent it back, and another one may have it.
    fn give_back(&mut self, ticket: Ticket, slot: Slot) {
        if self.slots.get(&ticket) == Some(&slot) {
            self.slots.remove(&ticket);
        }
    }

    fn change(&mut self, per_pod: usize) {
        self.per_pod = per_pod.clamp(1, Self::MOST);
        self.answered = 0;
        self.step_began = None;
    }

    fn batch(&self, ready_pods: usize) -> usize {
        self.per_pod.saturating_mul(ready_pods)
    }
}

fn due(since: Timestamp) -> Timestamp {
    since
        .checked_add(ReleasePace::STEP)
        .unwrap_or(Timestamp::MAX)
}

impl Default for ReleasePace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_000_000_000 + millis).unwrap()
    }

    /// A pace and its next ticket.
    #[derive(Default)]
    struct Line {
        pace: ReleasePace,
        next: u64,
    }

    impl Line {
        /// Releases at most this many, whose clients have not sent them yet; gives their tickets.
        fn release_unsent(&mut self, pods: usize, waiting: usize, now: Timestamp) -> Vec<Ticket> {
            let count = self.pace.allowance(pods).min(waiting);
            let tickets = (0..count).map(|_| {
                self.next += 1;
                Ticket(self.next)
            });
            let tickets: Vec<Ticket> = tickets.collect();
            for ticket in &tickets {
                self.pace.released(*ticket, now);
            }
            tickets
        }

        /// Releases and writes at most this many; gives their tickets.
        fn release(&mut self, pods: usize, waiting: usize, now: Timestamp) -> Vec<Ticket> {
            let tickets = self.release_unsent(pods, waiting, now);
            for ticket in &tickets {
                self.pace.begun(*ticket);
                self.pace.written(*ticket, now);
            }
            tickets
        }

        fn answer(&mut self, pods: usize, tickets: &[Ticket]) {
            for ticket in tickets {
                self.pace.ended(*ticket, pods, Some(true));
            }
        }
    }

    #[test]
    fn the_pace_doubles_with_each_answered_batch_and_halves_on_a_failure() {
        let mut line = Line::default();
        assert_eq!(line.pace.allowance(0), 0);
        assert_eq!(line.pace.allowance(1), 8);
        let first = line.release(3, 100, at(0));
        assert_eq!((first.len(), line.pace.allowance(3)), (24, 0));
        line.answer(3, &first[..23]);
        assert_eq!(line.pace.allowance(3), 23);
        line.answer(3, &first[23..]);
        assert_eq!(line.pace.allowance(3), 48);
        let second = line.release(3, 41, at(0));
        line.answer(3, &second[..40]);
        line.pace.ended(second[40], 3, Some(false));
        assert_eq!(
            line.pace.allowance(3),
            24,
            "answers before a failure do not count"
        );
        for ticket in line.release(3, 10, at(0)) {
            line.pace.ended(ticket, 3, Some(false));
        }
        assert_eq!(line.pace.allowance(3), 3, "one a pod at least");
    }

    #[test]
    fn ten_thousand_waiters_at_one_pod_need_sixteen_rounds() {
        let mut line = Line::default();
        let (mut waiting, mut rounds) = (10_000, 0);
        while waiting > 0 {
            let batch = line.release(1, waiting, at(0));
            waiting -= batch.len();
            rounds += 1;
            line.answer(1, &batch);
        }
        assert_eq!(rounds, 16);
    }

    #[test]
    fn slow_answers_do_not_hold_up_the_next_and_never_become_one_burst() {
        let mut line = Line::default();
        let mut bursts = Vec::new();
        let (mut waiting, mut now) = (10_000, 0);
        while waiting > 0 {
            let batch = line.release(1, waiting, at(now)).len();
            waiting -= batch;
            bursts.push(batch);
            assert_eq!(line.pace.next_change(), Some(at(now + 250)));
            line.pace.pass(at(now + 249));
            let early = line.release(1, waiting, at(now + 249));
            assert_eq!(early, [], "nothing before its time");
            now += 250;
            line.pace.pass(at(now));
        }
        assert_eq!(bursts[..4], [8, 16, 32, 64]);
        assert_eq!((bursts.len(), bursts.iter().max()), (16, Some(&1024)));
    }

    #[test]
    fn time_opens_nothing_while_no_pod_takes_a_connection() {
        let mut line = Line::default();
        for ticket in 0..8 {
            line.pace.released(Ticket(ticket), at(0));
            line.pace.begun(Ticket(ticket));
        }
        line.pace.pass(at(60_000));
        assert_eq!((line.pace.allowance(1), line.pace.next_change()), (0, None));
        line.pace.written(Ticket(0), at(60_000));
        line.pace.ended(Ticket(1), 1, Some(false));
        line.pace.pass(at(60_250));
        assert_eq!(
            line.pace.allowance(1),
            0,
            "a failure ends the step, and six slots of four are taken"
        );
    }

    #[test]
    fn those_that_try_no_pod_delay_no_other_and_make_nothing_faster() {
        let mut line = Line::default();
        for step in 0..20 {
            let silent = line.release_unsent(1, 100, at(250 * step));
            assert_eq!(silent.len(), 8);
            line.pace.pass(at(250 * step + 249));
            assert_eq!(line.pace.allowance(1), 0);
            line.pace.pass(at(250 * step + 250));
        }
        assert_eq!(line.pace.next_change(), None);
        line.release(1, 8, at(5_000));
        line.pace.begun(Ticket(1));
        line.pace.begun(Ticket(2));
        line.pace.pass(at(5_250));
        assert_eq!(
            line.pace.allowance(1),
            16 - 2,
            "what begins late loads a pod as well"
        );
    }

    #[test]
    fn one_that_waits_for_a_pods_room_takes_no_slot_until_it_tries_again() {
        let mut line = Line::default();
        let full = line.release_unsent(1, 8, at(0));
        for ticket in &full {
            line.pace.begun(*ticket);
        }
        assert_eq!(line.pace.allowance(1), 0);
        for ticket in &full {
            line.pace.stood_aside(*ticket);
        }
        assert_eq!(line.pace.allowance(1), 8);
        line.pace.begun(full[0]);
        assert_eq!(line.pace.allowance(1), 7);
    }

    #[test]
    fn one_that_queues_again_keeps_its_new_slot_for_a_whole_step() {
        let mut line = Line::default();
        let failed = line.release_unsent(1, 8, at(0));
        for ticket in &failed {
            line.pace.begun(*ticket);
            line.pace.written(*ticket, at(100));
            line.pace.ended(*ticket, 1, Some(false));
        }
        for ticket in &failed {
            line.pace.released(*ticket, at(120));
        }
        line.pace.pass(at(250));
        assert_eq!(line.pace.slots.len(), 8, "a step after the first release");
        for ticket in &failed {
            line.pace.begun(*ticket);
            line.pace.written(*ticket, at(260));
        }
        line.pace.pass(at(350));
        assert_eq!(line.pace.slots.len(), 8, "a step after the first write");
        line.pace.pass(at(509));
        assert_eq!((line.pace.slots.len(), line.pace.allowance(1)), (8, 0));
        line.pace.pass(at(510));
        assert_eq!((line.pace.slots.len(), line.pace.allowance(1)), (0, 2));
    }

    #[test]
    fn one_that_tries_another_pod_keeps_its_slot_until_a_step_after_that_one_has_it() {
        let mut line = Line::default();
        let lost = line.release(1, 8, at(0));
        for ticket in &lost {
            line.pace.begun(*ticket);
        }
        line.pace.pass(at(250));
        assert_eq!(
            line.pace.allowance(1),
            8,
            "the step doubles, eight are taken"
        );
        line.pace.pass(at(60_000));
        assert_eq!(line.pace.allowance(1), 8);
        line.pace.written(lost[0], at(60_000));
        line.pace.pass(at(60_250));
        assert_eq!(line.pace.allowance(1), 32 - 7);
    }

    #[test]
    fn an_answer_after_its_slot_was_given_back_counts_no_second_time() {
        let mut line = Line::default();
        let slow = line.release(1, 8, at(0));
        line.pace.pass(at(250));
        assert_eq!((line.pace.allowance(1), line.pace.is_idle()), (16, true));
        line.answer(1, &slow);
        line.answer(1, &slow);
        assert_eq!(line.pace.allowance(1), 16);
    }

    proptest! {
        #[test]
        fn the_pace_never_lets_more_go_than_its_pods_may_have(
            moves in prop::collection::vec((0u8..8, 0i64..300), 0..500),
            pods in 0usize..50,
        ) {
            let mut line = Line::default();
            let (mut now, mut open) = (0, Vec::new());
            for (what, millis) in moves {
                match what {
                    0 => open.extend(line.release(pods, 100, at(now))),
                    1 => line.answer(pods, &open.split_off(open.len() / 2)),
                    2 => if let Some(one) = open.pop() {
                        line.pace.ended(one, pods, Some(false));
                    },
                    3 => if let Some(one) = open.pop() {
                        line.pace.ended(one, pods, None);
                    },
                    4 => open.extend(line.release_unsent(pods, 100, at(now))),
                    5 => if let Some(one) = open.last() {
                        line.pace.begun(*one);
                    },
                    6 => if let Some(one) = open.first() {
                        line.pace.stood_aside(*one);
                    },
                    _ => {
                        now += millis;
                        line.pace.pass(at(now));
                        prop_assert!(line.pace.next_change().is_none_or(|next| next > at(now)));
                    }
                }
                prop_assert!(line.pace.allowance(pods) <= pods * ReleasePace::MOST);
            }
            for one in open {
                line.pace.ended(one, pods, None);
            }
            prop_assert!(line.pace.is_idle());
            prop_assert!(pods == 0 || line.pace.allowance(pods) >= 1);
        }
    }
}
