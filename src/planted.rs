//! Planted bugs: mistakes that could be made here, each of which breaks a promise, for trying whether what tries the promises would
//! notice.
//!
//! They are compiled with `--cfg turbidite_planted_bugs` only, which no feature of any crate can switch on. Then there is none until
//! [`plant`] is called. Otherwise `planted` is a constant, and nothing is left of it.
//!
//! A bug is a line or two where it is made, and lowers no defence elsewhere. Each says by what it should be seen:
//!
//! | | |
//! |---|---|
//! | crash | power cuts and kills between any two calls to the file system |
//! | model | histories beside a sorted map |
//! | faults | calls to the file system that fail, once or for good |
//! | flip | damage to files: bits, and parts that change places |
//! | linear | several threads |
//! | kill | processes that are killed on a real file system |
//!
//! Thread safety: the planted bug is an atomic.

#![cfg_attr(
    not(turbidite_planted_bugs),
    allow(unreachable_pub, reason = "it is public only where bugs can be planted")
)]

#[cfg(turbidite_planted_bugs)]
pub use planting::{UnknownBug, plant};

macro_rules! bugs {
    ($($(#[$text:meta])* $name:ident,)*) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Bug {
            $($(#[$text])* $name,)*
        }

        #[cfg(turbidite_planted_bugs)]
        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

bugs! {
    // ---- the log and edit logs ----

    /// A sync of the log returns without having synced anything. Seen by: crash.
    SkipLogSync,
    /// A sync of the log leaves out the segments that the pen has left since the last one. Seen by: crash.
    SkipLeftSegmentSync,
    /// A sync of the log leaves out the directory, and so the names of new segments. Seen by: crash.
    SkipLogNamesSync,
    /// The checksums of records, in the log and in edit logs, are not compared, so that damaged and torn ones count. Seen by: flip, crash.
    IgnoreRecordChecksum,
    /// Damage to a part of the log that had been synced is taken for a torn tail, and cut off with all that follows. Seen by: flip.
    CutOffDamagedLog,
    /// A damaged edit is taken for the end of a manifest or of the catalog. Seen by: flip.
    EndEditsAtDamage,
    /// An edit of a manifest or of the catalog is not synced. Seen by: crash.
    SkipEditSync,
    /// A new file of an edit log gets its name without having been synced. Seen by: crash.
    SkipSyncBeforeRename,
    /// The directory is not synced when a new file of an edit log has got its name. Seen by: crash.
    SkipSyncAfterRename,
    /// What a refused edit has left behind the end of a file is cut off, but that is not synced. Seen by: faults, with the power cut then.
    SkipUndoSync,
    /// A new file of an edit log that has got its name, though the call found no space for it, is thought not to have it. Seen by: faults, with a kill then.
    BelieveFailedRename,
    /// What recovery has read from the log is not synced before it is shown and the tail is removed. Seen by: crash, with mapped files.
    SkipRecoverySync,
    /// Recovery leaves no word in the log of what it has made safe. Seen by: flip.
    SaySafeNowhere,
    /// What recovery reads of the log once more is written over what is there, however it was read. Seen by: faults, over positional files.
    RewriteUnchecked,
    /// Who opens a database does not look again at what follows the end of the log, of a manifest or of the catalog. Seen by: faults, over positional files.
    TrustFirstLook,
    /// What is read of a manifest or of the catalog is not synced before anything is built on it. Seen by: faults.
    SkipEditsRecoverySync,
    /// Writes that come while the log is synced count as synced, too. Seen by: crash.
    SyncCoversLaterWrites,
    /// Segments of the log are let go before all keyspaces have persisted past them. Seen by: crash, model, kill.
    ReuseLogTooSoon,
    /// Segments that are filled while keyspaces are asked what they have persisted are let go if those that are asked last have persisted
    /// them. Seen by: model.
    PassCurrentSegment,
    /// Replaying the log leaves out the first write behind what a keyspace has persisted. Seen by: crash, model, kill.
    ReplayTooLate,
    /// Replaying the log begins with the last write that a keyspace has persisted. Seen by: crash, model.
    ReplayTooEarly,
    /// Engines persist writes without the log having been synced that far. Seen by: crash.
    FlushAheadOfLog,

    // ---- committing ----

    /// A write with the durability `Os` stays in the log's buffer. Seen by: crash, model, kill.
    BufferOsWrites,
    /// Writes are published when they are in the log, and applied after that, so that a snapshot may see a part of a batch.
    /// Seen by: linear.
    PublishBeforeApply,
    /// A write is applied and published before the log has taken it, and stays so if that finds no space for it. Seen by: faults, on a disk
    /// that stays full.
    PublishBeforeLog,
    /// A batch is two records in the log. Seen by: crash.
    SplitBatch,
    /// A write for which the log found no space is applied and acknowledged. Seen by: faults, on a disk that stays full.
    AcknowledgeNoSpace,
    /// A sync of the log that fails counts as done. Seen by: faults, if what was to be synced is lost.
    IgnoreFailedSync,
    /// A poisoned database takes writes. Seen by: faults.
    WriteWhenPoisoned,
    /// What a leader commits for others is in the log, but is not applied. Seen by: linear.
    ForgetQueuedWrite,
    /// What a leader writes for others is acknowledged to them, though it could not be written. Seen by: faults.
    AcknowledgeForLeader,
    /// The lock of the database is not taken. Seen by: kill, with a second opener.
    SkipLock,
    /// A database that is closed goes on changing its files when what was left of it is dropped. Seen by: model.
    KeepRights,

    // ---- the catalog and keyspaces ----

    /// The catalog does not record that a keyspace was created. Seen by: crash, model.
    ForgetKeyspace,
    /// The directories above that of a new keyspace are not synced. Seen by: crash.
    SkipKeyspaceNamesSync,
    /// A sorted load returns before it is durable. Seen by: model.
    LoadReturnsEarly,
    /// A range ends without an error where reading fails. Seen by: faults, flip.
    EndRangeAtError,
    /// A get that fails says that there is no such key. Seen by: faults, flip.
    GetTakesErrorForAbsence,
    /// What is verified of a database is catalog and log, and not the files of its keyspaces. Seen by: flip.
    VerifyPassesOverKeyspaces,

    // ---- snapshots and checksums, for all engines ----

    /// Snapshots and ranges do not hold what they see. Seen by: model, linear.
    ForgetSnapshot,
    /// Checksums are not bound to the offset, so that parts of a file may change places. It must be planted when the files are
    /// written, too. Seen by: crash, flip.
    UnboundChecksum,
    /// The checksums of nodes and blocks are not compared where a mapped file lends them. Seen by: flip, with mapped files.
    TrustLentBytes,

    // ---- memtables and merging ----

    /// A get takes the newest version in a memtable, whatever its snapshot sees. Seen by: model, linear.
    MemtableIgnoresSnapshot,
    /// A get ignores the range tombstones in memtables. Seen by: model.
    MemtableIgnoresRanges,
    /// Of the versions of a key in several places a merge takes the oldest first. Seen by: model, crash.
    OlderVersionFirst,

    // ---- LSM-trees ----

    /// The directory is not synced before a manifest names new tables. Seen by: crash.
    SkipTableNamesSync,
    /// Of several memtables that are flushed together only the newest is written. Seen by: faults.
    FlushNewestAlone,
    /// Tables that were moved are left out of the next edit of the manifest. Seen by: crash, model, as tables that are missing.
    ForgetMovedTables,
    /// The checksums of blocks and other parts of tables are not compared. Seen by: flip.
    IgnoreBlockChecksum,
    /// The checksums of values that are kept apart are not compared. Seen by: flip.
    IgnoreValueChecksum,
    /// A filter denies one in sixteen of the keys that it was made of. Seen by: model.
    FilterDeniesKey,
    /// A cursor that goes back into a block of a table passes over its last entry. Seen by: model, crash.
    SkipLastOfBlock,
    /// A seek in a block of a table lands one entry behind the right one. Seen by: model.
    SeekOnePast,
    /// A get ignores the range tombstones in tables. Seen by: model.
    GetIgnoresRanges,
    /// A scan ignores range tombstones. Seen by: model, crash.
    ScanIgnoresRanges,
    /// Flushes and compactions drop tombstones although there is something older below. Seen by: model, crash.
    DropTombstoneEarly,
    /// The same for range tombstones. Seen by: model, crash.
    DropRangeTombstoneEarly,
    /// Flushes and compactions drop versions that only snapshots see. Seen by: model.
    DropSnapshotVersion,
    /// A compaction claims nothing, so that another one may work on the same tables. Seen by: model, with several background threads.
    ForgetClaim,
    /// A compaction takes damage for the end of its inputs. Seen by: flip, when it goes on with what is damaged.
    EndMergeAtDamage,
    /// Tables that overlap are moved into one run as they are, which that refuses. Seen by: model, as an error of settling.
    MoveOverlapping,
    /// A sorted load gets a place below tables that have older values of its keys. Seen by: model.
    LoadBelowOlder,
    /// The inputs of a compaction are removed before the manifest names its outputs. Seen by: crash.
    RemoveInputsEarly,
    /// A table that goes counts for two of those that refer to its value files, which may be removed although one still does.
    /// Seen by: crash, model.
    RemoveValuesEarly,
    /// The manifest goes on naming the tables that a clear took away. Seen by: model.
    KeepCleared,
    /// Persisting returns before anything is flushed. Seen by: crash, model.
    PersistEarly,
    /// A FIFO tree keeps nothing for snapshots when it drops tables. Seen by: model.
    DropIgnoresSnapshots,

    // ---- hash keyspaces ----

    /// The checksums of records are not compared. Seen by: flip.
    IgnoreHashChecksum,
    /// The index loses an entry when a bucket is split. Seen by: kill, whose keyspaces have enough keys.
    SplitLosesEntry,
    /// A checkpoint has one entry less than the index. Seen by: crash, model.
    CheckpointLosesEntry,
    /// Of two versions of a key resolving forgets the newer one, so that what was deleted is there again. Seen by: crash, model.
    ResolveKeepsOlder,
    /// A segment goes before what was moved out of it is in a file. Seen by: crash.
    ReclaimEarly,

    // ---- B+ trees ----

    /// The checksums of nodes are not compared. Seen by: flip.
    IgnoreNodeChecksum,
    /// The generation of a page is not compared, so that one that was not written counts as it was before. Seen by: flip and faults, as older bytes.
    IgnoreGeneration,
    /// Nobody notices that a newer meta page was there. Seen by: flip.
    IgnoreConfirmation,
    /// A leaf that is split loses the first record of its right half. Seen by: model, crash.
    SplitLosesRecord,
    /// Pages of the last checkpoint are written again by the next one before that is safe. Seen by: crash, model.
    ReusePagesEarly,
    /// The meta page is written before the pages that it leads to are synced. Seen by: crash.
    MetaBeforePages,
    /// The first step of a checkpoint counts for all of it. Seen by: crash.
    StepCountsForAll,
    /// The last checkpoint, which may be in memory only after a kill, is not written again before anything is built on it. Seen by: faults.
    SkipTreeMakeSafe,
    /// Nodes stay in the cache when their pages are written again. Seen by: model.
    StaleNodes,
    /// A checkpoint keeps no trees for snapshots. Seen by: model.
    TreeIgnoresSnapshots,
    /// Whoever is lent bytes of a mapped file does not keep the lock, so that the next owner writes over them. Seen by: model, with mapped
    /// files.
    LendWithoutLock,

    // ---- skip keyspaces ----

    /// The checksums of blocks of sorted files are not compared. Seen by: flip.
    IgnoreSortedChecksum,
    /// Runs lose their tombstones when they are written or merged. Seen by: model, crash.
    RunLosesDeletes,
    /// Links lead to the block behind the right one. Seen by: model.
    LinksOffByOne,
    /// A merge keeps no files for snapshots. Seen by: model.
    MergeIgnoresSnapshots,

    // ---- several engines ----

    /// Keys of one length count as the same that begin with the same sixteen bytes. Seen by: model.
    CompareSixteenBytes,

    // ---- file layers ----

    /// Files that a crash has left and nothing names are kept. Seen by: crash, faults and kill, as bytes that nobody knows of.
    KeepLeftovers,
    /// Tables, value files, segments, checkpoints and sorted files are not synced when they are complete. Seen by: crash.
    SkipFileSync,
    /// An appender drops a buffer that is exactly full in place of writing it. Seen by: model, crash.
    LoseFullBuffer,
    /// A page cache takes the frame of a page that was not written back. Seen by: model and kill, with page caches.
    LoseDirtyPage,
    /// A page cache keeps the page of a read that failed, as far as it was read. Seen by: faults, with page caches.
    KeepFailedRead,
    /// A write into the middle of a block leaves zeros in front of it. Seen by: crash, model and kill, with layers of blocks.
    LoseFrontOfBlock,
}

/// Whether this bug is planted: never.
#[cfg(not(turbidite_planted_bugs))]
#[inline(always)]
pub(crate) const fn planted(_bug: Bug) -> bool {
    false
}

#[cfg(turbidite_planted_bugs)]
pub(crate) use planting::planted;

#[cfg(turbidite_planted_bugs)]
mod planting {
    use std::fmt;
    use std::str::FromStr;
    use std::sync::atomic::{AtomicU8, Ordering};

    use crate::planted::Bug;

    /// The bug that is planted, counted from 1; 0 if there is none.
    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Plants a bug in all databases of the process, in place of the one that was planted before; or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(0, |bug| bug as u8 + 1), Ordering::Relaxed);
    }

    /// Whether this bug is planted.
    #[inline]
    pub(crate) fn planted(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8 + 1
    }

    /// Its name, as in `skip-log-sync`.
    impl fmt::Display for Bug {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let mut name = String::new();
            for letter in format!("{self:?}").chars() {
                if letter.is_ascii_uppercase() && !name.is_empty() {
                    name.push('-');
                }
                name.push(letter.to_ascii_lowercase());
            }
            f.pad(&name)
        }
    }

    impl FromStr for Bug {
        type Err = UnknownBug;

        fn from_str(name: &str) -> Result<Self, UnknownBug> {
            let known = Self::ALL.iter().copied().find(|bug| bug.to_string() == name);
            known.ok_or_else(|| UnknownBug(name.to_owned()))
        }
    }

    /// There is no bug of this name.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct UnknownBug(String);

    impl fmt::Display for UnknownBug {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "there is no bug called {:?} to plant", self.0)
        }
    }

    impl std::error::Error for UnknownBug {}

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_bug_has_a_name_of_its_own() {
            assert_eq!(Bug::SkipLogSync.to_string(), "skip-log-sync");
            for &bug in Bug::ALL {
                assert_eq!(bug.to_string().parse(), Ok(bug));
            }
            assert!("none-such".parse::<Bug>().is_err());
        }
    }
}
