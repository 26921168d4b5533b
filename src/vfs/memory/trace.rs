//! What a file system was told to do, step by step, and what of it a power loss may leave on the disk.
//!
//! The model of a disk:
//! - Each file has durable content and, since its last sync, pending changes of data and size. A sync
//!   makes all of them durable. Each of them can be on the disk without the others.
//! - Each directory has durable names and pending changes of names; `sync_dir` makes them durable. Some cuts
//!   have the pending changes of one directory reach the disk in the order they were made, as on file systems with
//!   a journal, and leave a prefix of them; others leave any of them, as POSIX allows. A move between two directories is in the order
//!   of both, where there is one, and is whole on the disk or not at all, so that a renamed file never loses both names.
//! - Names and data are independent: a name can be there without the file's data, which then reads as
//!   empty, and synced data without a name is lost with it.
//! - A sync that failed takes the file's pending changes for written: no later sync writes them. Some of them it has written, but not the last one.
//! - One of a directory, which is a block, has written none of them. When the names change again they are pending again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::PowerCut;
use super::content::{Content, pieces};
use super::names::{Entry, FIRST_NODE, NameChange, Names, NodeId};
use crate::base::rng::Rng;

/// What disks write whole or not at all: one kind sectors, the other one pages.
const ATOMS: [usize; 2] = [512, 4096];

/// A change of a file's data or size.
#[derive(Clone, Debug)]
pub(super) enum DataChange {
    Write { offset: u64, bytes: Arc<[u8]> },
    Truncate(u64),
    Allocate(u64),
}

/// One mutating operation.
#[derive(Debug)]
pub(super) enum Step {
    Data(NodeId, DataChange),
    Names(NameChange),
    Sync(NodeId),
    /// A sync that failed.
    SyncLost(NodeId),
    SyncDir(NodeId),
    /// A sync of a directory that failed.
    SyncDirLost(NodeId),
}

/// Everything on a disk at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) names: Names,
    pub(super) files: HashMap<NodeId, Content>,
}

impl Image {
    fn apply(&mut self, step: &Step) {
        match step {
            Step::Data(file, change) => {
                let content = self.files.entry(*file).or_default();
                match change {
                    DataChange::Write { offset, bytes } => content.write(*offset, bytes),
                    DataChange::Truncate(len) => content.truncate(*len),
                    DataChange::Allocate(len) => content.extend(*len),
                }
            }
            Step::Names(change) => self.names.apply(change),
            Step::Sync(_) | Step::SyncLost(_) | Step::SyncDir(_) | Step::SyncDirLost(_) => {}
        }
    }

    /// Applies a write piece by piece, each in another one of what the disk writes whole (`atom` bytes) or not at all: each one kept, or
    /// dropped with or without the length it gave the file. What was on the disk before is not harmed.
    fn apply_torn(
        &mut self,
        file: NodeId,
        (offset, bytes): (u64, &[u8]),
        atom: usize,
        rng: &mut Rng,
    ) {
        let content = self.files.entry(file).or_default();
        for (_, _, part) in pieces(offset, bytes.len(), atom) {
            let at = offset + part.start as u64;
            match rng.next() % 3 {
                0 => {}
                1 => content.write(at, &bytes[part]),
                _ => content.extend(at + part.len() as u64),
            }
        }
    }

    /// Drops what no path leads to, so that its numbers can be given to new files and directories, and gives
    /// each file that has a name a content.
    pub(super) fn forget_unreachable(&mut self) {
        self.names.forget_unreachable();
        let mut files = HashMap::new();
        for (_, entry) in self.names.walk() {
            if let Entry::File(id) = entry {
                files.insert(id, self.files.get(&id).cloned().unwrap_or_default());
            }
        }
        self.files = files;
    }
}

/// All steps since tracing began. Written bytes are held once.
#[derive(Debug)]
pub(super) struct Trace {
    /// The state when it began.
    base: Replay,
    steps: Vec<Arc<Step>>,
    /// Where the last image was made: images are mostly asked for from front to back.
    reached: Replay,
}

impl Trace {
    pub(super) fn new(base: Replay) -> Self {
        Self { reached: base.clone(), base, steps: Vec::new() }
    }

    pub(super) fn record(&mut self, step: Step) {
        self.steps.push(Arc::new(step));
    }

    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// The state just after `at` steps. Panics if there are not so many.
    pub(super) fn replay(&mut self, at: usize) -> &Replay {
        if at < self.reached.at {
            self.reached = self.base.clone();
        }
        for step in &self.steps[self.reached.at..at] {
            self.reached.advance(step);
        }
        &self.reached
    }
}

/// The state after some steps.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    at: usize,
    /// What readers saw.
    visible: Image,
    /// What is on the disk for certain.
    durable: Image,
    /// What may be there as well, in order.
    pending: Vec<Arc<Step>>,
    /// Changes of names that a failed sync has taken for written.
    lost: Vec<Arc<Step>>,
}

impl Replay {
    /// A disk with nothing but that, all of it for certain.
    pub(super) fn of(image: &Image) -> Self {
        let (visible, durable) = (image.clone(), image.clone());
        Self { at: 0, visible, durable, pending: Vec::new(), lost: Vec::new() }
    }

    /// The state in which the next steps find the disk after a kill, which changes nothing, or a power cut.
    pub(super) fn after(&self, cut: PowerCut) -> Self {
        match cut {
            PowerCut::KeepAll => Self { at: 0, ..self.clone() },
            _ => Self::of(&self.image(cut)),
        }
    }

    /// The first number that nothing has which may be on the disk.
    pub(super) fn free_number(&self) -> NodeId {
        let pending = self.pending.iter().chain(&self.lost).filter_map(|step| match &**step {
            Step::Data(file, _) => Some(*file),
            Step::Names(NameChange::Link { entry, .. } | NameChange::Move { entry, .. }) => {
                Some(entry.number())
            }
            _ => None,
        });
        let images = [&self.visible, &self.durable];
        let there = images
            .into_iter()
            .flat_map(|image| image.files.keys().copied().chain(image.names.numbers()));
        there.chain(pending).max().map_or(FIRST_NODE, |number| FIRST_NODE.max(number + 1))
    }

    /// What readers see.
    pub(super) fn visible(&self) -> &Image {
        &self.visible
    }

    fn advance(&mut self, step: &Arc<Step>) {
        self.at += 1;
        self.visible.apply(step);
        match &**step {
            Step::Data(..) => self.pending.push(Arc::clone(step)),
            Step::Names(_) => {
                if !self.lost.is_empty() {
                    let again = needed_names(&self.lost, touched(step).collect());
                    self.pending.splice(0..0, take(&mut self.lost, &again));
                }
                self.pending.push(Arc::clone(step));
            }
            Step::Sync(file) => self.settle(|_, step| is_data_of(step, *file), |_| true),
            Step::SyncLost(file) => {
                let is_meant = |step: &Step| is_data_of(step, *file);
                let last = self.pending.iter().rposition(|step| is_meant(step));
                let mut rng = Rng::new(self.at as u64);
                let is_written = |index| rng.next().is_multiple_of(2) && Some(index) != last;
                let written: Vec<_> = (0..self.pending.len()).map(is_written).collect();
                self.settle(|_, step| is_meant(step), |index| written[index]);
            }
            Step::SyncDir(dir) => {
                let needed = needed_names(&self.pending, HashSet::from([*dir]));
                self.settle(|index, _| needed[index], |_| true);
            }
            Step::SyncDirLost(dir) => {
                let meant = needed_names(&self.pending, HashSet::from([*dir]));
                self.lost.extend(take(&mut self.pending, &meant));
            }
        }
    }

    /// Takes the chosen steps off the pending ones, onto the disk those that are `written`.
    fn settle(&mut self, chosen: impl Fn(usize, &Step) -> bool, written: impl Fn(usize) -> bool) {
        let mut index = 0;
        let durable = &mut self.durable;
        self.pending.retain(|step| {
            let settled = chosen(index, step);
            if settled && written(index) {
                durable.apply(step);
            }
            index += 1;
            !settled
        });
    }

    pub(super) fn unsynced(&self) -> usize {
        self.pending.len()
    }

    /// Whether a pending step is a change of names.
    pub(super) fn is_name(&self, index: usize) -> bool {
        self.pending.get(index).is_some_and(|step| matches!(**step, Step::Names(_)))
    }

    /// What is on the disk if the power fails now.
    pub(super) fn image(&self, cut: PowerCut) -> Image {
        match cut {
            PowerCut::KeepAll => self.visible.clone(),
            PowerCut::DropUnsynced => self.durable.clone(),
            PowerCut::KeepOnly(kept) => {
                let Some(step) = self.pending.get(kept) else { return self.durable.clone() };
                let earlier = needed_names(&self.pending[..kept], touched(step).collect());
                self.keeping(|index| index == kept || earlier.get(index) == Some(&true))
            }
            PowerCut::DropOnly(dropped) => {
                let lost = lost_names(&self.pending, dropped);
                self.keeping(|index| index != dropped && !lost[index])
            }
            PowerCut::KeepAlone(kept) => self.keeping(|index| index == kept),
            PowerCut::DropAlone(dropped) => self.keeping(|index| index != dropped),
            PowerCut::Random(seed) => self.random(&mut Rng::new(seed)),
        }
    }

    fn keeping(&self, kept: impl Fn(usize) -> bool) -> Image {
        let mut image = self.durable.clone();
        for (index, step) in self.pending.iter().enumerate() {
            if kept(index) {
                image.apply(step);
            }
        }
        image
    }

    fn random(&self, rng: &mut Rng) -> Image {
        let mut image = self.durable.clone();
        // From a disk that loses half of everything to one that loses hardly anything.
        let odds = [2, 4, 16, 64][(rng.next() % 4) as usize];
        let is_in_order = rng.next().is_multiple_of(2);
        let atom = ATOMS[(rng.next() % 2) as usize];
        let is_write = |step: &Step| matches!(step, Step::Data(_, DataChange::Write { .. }));
        let last_write = self.pending.iter().rposition(|step| is_write(step));
        let mut stopped = HashSet::new();
        for (index, step) in self.pending.iter().enumerate() {
            let lost = rng.next().is_multiple_of(odds);
            let torn = rng.next().is_multiple_of(odds) || last_write == Some(index);
            match &**step {
                Step::Names(_) if lost || touched(step).any(|dir| stopped.contains(&dir)) => {
                    stopped.extend(touched(step).filter(|_| is_in_order));
                }
                Step::Data(file, DataChange::Write { offset, bytes }) if torn => {
                    image.apply_torn(*file, (*offset, bytes), atom, rng);
                }
                Step::Data(..) if lost => {}
                _ => image.apply(step),
            }
        }
        image
    }
}

/// Takes the chosen steps out.
fn take(steps: &mut Vec<Arc<Step>>, chosen: &[bool]) -> Vec<Arc<Step>> {
    let mut chosen = chosen.iter();
    steps.extract_if(.., |_| chosen.next() == Some(&true)).collect()
}

fn is_data_of(step: &Step, node: NodeId) -> bool {
    matches!(step, Step::Data(file, _) if *file == node)
}

/// The directories whose names a step changes.
fn touched(step: &Step) -> impl Iterator<Item = NodeId> {
    let dirs = match step {
        Step::Names(change) => Some(change.dirs()),
        _ => None,
    };
    dirs.into_iter().flatten()
}

/// Which steps must be on the disk before all names of `dirs` can be: their own, and those of other
/// directories that a move ties to them.
fn needed_names(steps: &[Arc<Step>], mut dirs: HashSet<NodeId>) -> Vec<bool> {
    let mut needed = vec![false; steps.len()];
    for (step, needed) in steps.iter().zip(&mut needed).rev() {
        if touched(step).any(|dir| dirs.contains(&dir)) {
            dirs.extend(touched(step));
            *needed = true;
        }
    }
    needed
}

/// Which steps cannot be on the disk because the one at `dropped` is not.
fn lost_names(steps: &[Arc<Step>], dropped: usize) -> Vec<bool> {
    let mut lost = vec![false; steps.len()];
    let mut dirs: HashSet<NodeId> =
        steps.get(dropped).into_iter().flat_map(|s| touched(s)).collect();
    for (step, lost) in steps.iter().zip(&mut lost).skip(dropped + 1) {
        if touched(step).any(|dir| dirs.contains(&dir)) {
            dirs.extend(touched(step));
            *lost = true;
        }
    }
    lost
}
