//! States of the tree that only snapshots see: as they were before tables were dropped, or all of them.
//!
//! Thread safety: never changed; a change of the tree's state makes a new one.

use std::fmt;
use std::sync::Arc;

use super::state::State;
use crate::base::{HeldStates, Seqno};

/// A state of before.
#[derive(Clone)]
struct Before {
    /// For readers from this number on
    from: Seqno,
    /// and before this one.
    to: Seqno,
    /// Whether `to` has still to be published: until then anybody may become such a reader.
    is_coming: bool,
    state: Arc<State>,
}

/// What is kept for snapshots.
#[derive(Clone, Default)]
pub(super) struct Earlier {
    /// Readers from this number on need none of it.
    until: Seqno,
    /// In their order.
    states: Vec<Before>,
}

impl Earlier {
    /// Readers below `to` see `state` from now on, unless one of before is for them.
    pub(super) fn push(&mut self, to: Seqno, is_coming: bool, state: &State) {
        let state = State { earlier: Self::default(), clearing: None, ..state.clone() };
        let state = Arc::new(state);
        self.states.push(Before { from: self.until, to, is_coming, state });
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

    /// Lets go of what no snapshot sees, and none will see, if it `may_go`. Until readers see this state, `held` must
    /// live: one that is taken of what is published now may look into the state before it.
    pub(super) fn forget(&mut self, held: &mut HeldStates<'_>, may_go: impl Fn(&State) -> bool) {
        let published = held.published();
        self.states.retain_mut(|before| {
            before.is_coming = before.is_coming && published < before.to;
            before.is_coming || held.awaits(before.from, before.to) || !may_go(&before.state)
        });
        if self.states.is_empty() {
            // Nobody reads below it.
            self.until = 0;
        }
    }
}

impl fmt::Debug for Earlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.states.iter().map(|before| before.from..before.to)).finish()
    }
}
