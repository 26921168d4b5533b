//! What an LSM-tree is doing at a moment: its levels over the keys, what is claimed, and what waits.

use super::tree::Tree;
use super::version::Run;
use crate::status::{ClaimStatus, LevelStatus, LsmStatus, front, spans};

impl Tree {
    /// Cost: that of looking for what is due, and a few copies of short keys for each table.
    pub(super) fn status(&self) -> LsmStatus {
        let state = self.state();
        let frozen = &state.memtables.frozen;
        let frozen_bytes: usize = frozen.iter().map(|frozen| frozen.memtable.memory()).sum();
        let excess_runs = self.excess(&state.version);
        // Claims first: what is due is looked for beside them.
        let claims = self.claims().see(|held| {
            let parts = held.parts().map(|(claim, level, smallest, largest)| ClaimStatus {
                claim,
                level: level as u32,
                smallest: front(smallest),
                largest: front(largest),
            });
            parts.collect()
        });
        LsmStatus {
            frozen: frozen.len() as u64,
            frozen_bytes: frozen_bytes as u64,
            excess_runs,
            debt_bytes: (frozen_bytes as u64).saturating_add(self.debt(&state.version)),
            is_due: self.is_compaction_due(),
            levels: state.version.levels().map(level).collect(),
            claims,
        }
    }
}

fn level((level, runs): (usize, &[Run])) -> LevelStatus {
    let of_run = |run: &Run| {
        let bounds = run.tables().iter().map(|table| {
            let meta = &table.meta;
            (meta.len, &meta.smallest[..], &meta.largest[..])
        });
        spans(&bounds.collect::<Vec<_>>())
    };
    let spans = runs.iter().flat_map(of_run).collect();
    LevelStatus { level: level as u32, runs: runs.len() as u64, spans }
}
