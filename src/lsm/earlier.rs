//! States of the tree that only snapshots see: as they were before tables were dropped, or all of them.
//!
//! Thread safety: never changed; a change of the tree's state makes a new one.

use std::fmt;
use std::sync::Arc;

use super::state::State;
use crate::base::{HeldStates, Seqno};
use crate::planted::{Bug, planted};

/// A state of before.
#[derive(Clone)]
struct Before {
    /// For readers before this number who are not below that of an older one.
    to: Seqno,
    /// Whether `to` has still to be published: until then anybody may become such a reader.
    is_coming: bool,
    state: Arc<State>,
}

/// What is kept for snapshots. A reader sees the first of the states that is for numbers above its own, and the present one
/// if there is none: so one that goes leaves its readers to the next one, and may only go if it has none.
#[derive(Clone, Default)]
pub(super) struct Earlier {
    /// Readers from this number on need none of it: the last one's `to`, or 0.
    until: Seqno,
    /// In their order.
    states: Vec<Before>,
}

impl Earlier {
    /// Readers below `to` see `state` from now on, unless one of before is for them.
    pub(super) fn push(&mut self, to: Seqno, is_coming: bool, state: &State) {
        if planted(Bug::DropIgnoresSnapshots) && !is_coming {
            return;
        }
        let state = State { earlier: Self::default(), clearing: None, ..state.clone() };
        let state = Arc::new(state);
        self.states.push(Before { to, is_coming, state });
        self.until = to;
    }

    /// What a reader at `at` sees; `None` if that is the present state.
    #[inline]
    pub(super) fn at(&self, at: Seqno) -> Option<&State> {
        if at >= self.until { None } else { self.find(at) }
    }

    #[cold]
    fn find(&self, at: Seqno) -> Option<&State> {
        self.states.iter().find(|before| at < before.to).map(|before| &*before.state)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    pub(super) fn states(&self) -> impl Iterator<Item = &State> {
        self.states.iter().map(|before| &*before.state)
    }

    /// Lets go of what no snapshot sees, and none will see, if it `may_go`. Until readers see this state, `held` must
    /// live: one that is taken of what is published now may look into the state before it.
    pub(super) fn forget(&mut self, held: &mut HeldStates<'_>, may_go: impl Fn(&State) -> bool) {
        let published = held.published();
        // Those who see a state are above all that stay before it, whatever has gone in between.
        let mut from = 0;
        self.states.retain_mut(|before| {
            before.is_coming = before.is_coming && published < before.to;
            let stays = before.is_coming || held.awaits(from, before.to) || !may_go(&before.state);
            if stays {
                from = before.to;
            }
            stays
        });
        // Who comes after those that went sees the present state, and needs that when the next one takes its place.
        self.until = from;
    }
}

impl fmt::Debug for Earlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.states.iter().map(|before| ..before.to)).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::Visibility;
    use crate::budget::Budget;
    use crate::lsm::version::Version;
    use crate::memtable::Memtables;
    use crate::options::MemtableKind;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Write,
        Publish,
        Hold,
        Release(usize),
        Drop,
        /// The state before it has nothing but memory, or has tables.
        Clear(bool),
        /// Somebody changes something else, under the commit lock or not.
        Change(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            2 => Just(Step::Write),
            4 => Just(Step::Publish),
            4 => Just(Step::Hold),
            2 => any::<usize>().prop_map(Step::Release),
            4 => Just(Step::Drop),
            1 => any::<bool>().prop_map(Step::Clear),
            1 => any::<bool>().prop_map(Step::Change),
        ];
        proptest::collection::vec(step, 1..100)
    }

    /// A tree whose states have nothing but a number, that of the last clear.
    struct Model {
        visibility: Visibility,
        present: State,
        written: Seqno,
        /// The snapshots, and what they saw when they were taken.
        held: Vec<(Seqno, u64)>,
        /// Clears that are not published, and the first state without what they take away.
        clears: Vec<(Seqno, u64)>,
        /// What readers saw last who hold nothing.
        seen: u64,
    }

    impl Model {
        fn new() -> Self {
            let memtables =
                Memtables::new(MemtableKind::default(), &Arc::new(Budget::new(1 << 20)));
            let (visibility, present) =
                (Visibility::default(), State::new(memtables, Version::default()));
            Self { visibility, present, written: 0, held: vec![], clears: vec![], seen: 0 }
        }

        fn seen_at(&self, at: Seqno) -> u64 {
            self.present.at(at).cleared
        }

        /// Puts another state in the place of the present one, for readers from a number on; or lets go only.
        fn change(&mut self, next: Option<(Seqno, bool)>, may_go: bool) {
            let mut held = self.visibility.held();
            if let Some((to, is_coming)) = next {
                let before = self.present.clone();
                self.present.earlier.push(to, is_coming, &before);
                self.present.cleared += 1;
            }
            self.present.earlier.forget(&mut held, |_| may_go);
        }

        fn take(&mut self, step: Step) {
            match step {
                Step::Write => self.written += 1,
                Step::Publish => self.publish(),
                Step::Hold => {
                    let at = self.visibility.hold();
                    self.held.push((at, self.seen_at(at)));
                }
                Step::Release(_) if self.held.is_empty() => {}
                Step::Release(which) => {
                    let (at, _) = self.held.swap_remove(which % self.held.len());
                    if self.visibility.release(at) {
                        self.change(None, true);
                    }
                }
                // Until then there is nothing to be dropped.
                Step::Drop if !self.clears.is_empty() => {}
                Step::Drop => {
                    let to = self.visibility.published() + 1;
                    self.change(Some((to, false)), true);
                }
                Step::Clear(may_go) => {
                    self.written += 1;
                    self.change(Some((self.written, true)), may_go);
                    self.clears.push((self.written, self.present.cleared));
                }
                Step::Change(may_go) => self.change(None, may_go),
            }
            self.check();
        }

        fn publish(&mut self) {
            self.visibility.publish(self.written);
            let seen = self.seen_at(self.written);
            let cleared = self.clears.drain(..).map(|(_, first)| first).next_back();
            assert!(cleared.is_none_or(|first| first <= seen), "what was cleared is still seen");
        }

        fn check(&mut self) {
            for &(at, seen) in &self.held {
                assert_eq!(self.seen_at(at), seen, "{at} in {:?}", self.present.earlier);
            }
            let seen = self.seen_at(self.visibility.published());
            assert!(seen >= self.seen, "readers go back");
            let next = self.clears.first().map_or(u64::MAX, |(_, first)| *first);
            assert!(seen < next, "a clear is seen too early");
            self.seen = seen;
        }
    }

    proptest! {
        #[test]
        fn a_snapshot_sees_what_it_saw_when_it_was_taken(steps in steps()) {
            let mut model = Model::new();
            steps.into_iter().for_each(|step| model.take(step));
            model.publish();
            model.take(Step::Change(true));
            let kept = model.present.earlier.states.len();
            prop_assert!(kept <= model.held.len(), "{kept} states for {:?}", model.held);
            while !model.held.is_empty() {
                model.take(Step::Release(0));
            }
            model.take(Step::Change(true));
            prop_assert!(model.present.earlier.is_empty());
            prop_assert_eq!(model.seen, model.present.cleared);
        }
    }

    #[test]
    fn what_is_seen_after_a_state_has_gone_is_kept_when_the_next_one_comes() {
        for step in [Step::Drop, Step::Clear(false)] {
            let mut model = Model::new();
            for step in [
                Step::Hold,
                Step::Write,
                Step::Publish,
                Step::Drop,
                Step::Write,
                Step::Publish,
                // It goes at once. The one before stays.
                Step::Drop,
                Step::Hold,
                Step::Write,
                Step::Publish,
                step,
                Step::Publish,
                Step::Change(true),
            ] {
                model.take(step);
            }
            assert_eq!(model.held, [(0, 0), (2, 2)]);
            assert_eq!(model.present.earlier.states.len(), 2);
        }
    }
}
