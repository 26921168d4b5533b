//! The names of files and directories, and the ways they change.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Component, Path, PathBuf};

/// A file or a directory, whatever it is called.
pub(super) type NodeId = u64;

/// Where relative paths start.
const CURRENT: NodeId = 0;
/// Where absolute paths start.
const ROOT: NodeId = 1;
/// The first number free for files and directories.
pub(super) const FIRST_NODE: NodeId = 2;

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    File(NodeId),
    Dir(NodeId),
}

impl Entry {
    pub(super) fn number(self) -> NodeId {
        let (Self::File(number) | Self::Dir(number)) = self;
        number
    }
}

/// A change of one name, or of two at once.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Link {
        dir: NodeId,
        name: String,
        entry: Entry,
    },
    Unlink {
        dir: NodeId,
        name: String,
    },
    /// The entry too, which the name need not be on the disk for.
    Move {
        from: (NodeId, String),
        to: (NodeId, String),
        entry: Entry,
    },
}

impl NameChange {
    /// The directories whose names change.
    pub(super) fn dirs(&self) -> [NodeId; 2] {
        match self {
            Self::Link { dir, .. } | Self::Unlink { dir, .. } => [*dir, *dir],
            Self::Move { from, to, .. } => [from.0, to.0],
        }
    }
}

/// All directories with their entries.
#[derive(Clone, Debug)]
pub(super) struct Names(HashMap<NodeId, BTreeMap<String, Entry>>);

impl Default for Names {
    fn default() -> Self {
        Self(HashMap::from([(CURRENT, BTreeMap::new()), (ROOT, BTreeMap::new())]))
    }
}

impl Names {
    pub(super) fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::Link { dir, name, entry } => {
                // What is in a directory can be on the disk before its own name is.
                if let Entry::Dir(id) = entry {
                    self.0.entry(*id).or_default();
                }
                self.entries_mut(*dir).insert(name.clone(), *entry);
            }
            NameChange::Unlink { dir, name } => {
                self.entries_mut(*dir).remove(name);
            }
            NameChange::Move { to, entry, .. } => {
                // Moves that reach the disk in another order than they were made leave it one name all the same.
                self.0.values_mut().for_each(|names| names.retain(|_, named| named != entry));
                self.entries_mut(to.0).insert(to.1.clone(), *entry);
            }
        }
    }

    fn entries_mut(&mut self, dir: NodeId) -> &mut BTreeMap<String, Entry> {
        self.0.entry(dir).or_default()
    }

    /// The entries of a directory, by name.
    pub(super) fn entries(&self, dir: NodeId) -> impl Iterator<Item = (&String, Entry)> {
        self.0.get(&dir).into_iter().flatten().map(|(name, entry)| (name, *entry))
    }

    /// All files that have a name, and all directories.
    pub(super) fn numbers(&self) -> impl Iterator<Item = NodeId> {
        let named = self.0.values().flat_map(BTreeMap::values).map(|entry| entry.number());
        self.0.keys().copied().chain(named)
    }

    pub(super) fn get(&self, dir: NodeId, name: &str) -> Option<Entry> {
        self.0.get(&dir)?.get(name).copied()
    }

    /// What a path leads to; `NotFound`, or `NotADirectory` if a file is in the way.
    pub(super) fn find(&self, path: &Path) -> io::Result<Entry> {
        let mut found = Entry::Dir(if path.has_root() { ROOT } else { CURRENT });
        for name in plain(path) {
            let Entry::Dir(dir) = found else { return Err(io::ErrorKind::NotADirectory.into()) };
            found = self.get(dir, &name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(found)
    }

    pub(super) fn find_dir(&self, path: &Path) -> io::Result<NodeId> {
        match self.find(path)? {
            Entry::Dir(dir) => Ok(dir),
            Entry::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// The directory a path's last name is in, and that name.
    pub(super) fn find_parent(&self, path: &Path) -> io::Result<(NodeId, String)> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok((self.find_dir(parent)?, name.to_string_lossy().into_owned()))
    }

    /// Drops the directories that no path leads to.
    pub(super) fn forget_unreachable(&mut self) {
        let reached: HashSet<NodeId> = self
            .walk()
            .into_iter()
            .filter_map(|(_, entry)| match entry {
                Entry::Dir(id) => Some(id),
                Entry::File(_) => None,
            })
            .chain([CURRENT, ROOT])
            .collect();
        self.0.retain(|id, _| reached.contains(id));
    }

    /// Every path that can be reached, with what it leads to; a directory before what is in it.
    pub(super) fn walk(&self) -> Vec<(PathBuf, Entry)> {
        let mut found = Vec::new();
        let mut ahead = vec![(PathBuf::from("/"), ROOT), (PathBuf::new(), CURRENT)];
        while let Some((path, dir)) = ahead.pop() {
            for (name, entry) in self.entries(dir) {
                let path = path.join(name);
                if let Entry::Dir(id) = entry {
                    ahead.push((path.clone(), id));
                }
                found.push((path, entry));
            }
        }
        found
    }
}

/// The names along a path, with "." and ".." resolved.
fn plain(path: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => {
                names.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    names
}
