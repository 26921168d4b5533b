//! Trees by themselves, without a database around them.

use super::*;
use crate::base::Kind;
use crate::contract::testing::{Log, context};
use crate::options::KeyspaceOptions;
use crate::vfs::MemoryFs;

/// A tree whose only table has moved, which the manifest does not say yet.
fn with_a_move(fs: &MemoryFs) -> (Context, Arc<Tree>) {
    let context = context(Arc::new(fs.clone()), Arc::<Log>::default());
    let tree = Tree::create(context.clone(), KeyspaceOptions::lsm().lsm).unwrap();
    tree.apply(&Write { seqno: 1, kind: Kind::Put, key: b"key", value: b"value" });
    context.visibility.publish(1);
    tree.cut(1);
    tree.persist().unwrap();
    let state = tree.state();
    let table = Arc::clone(state.version.tables().next().unwrap());
    let (removed, place) = (vec![table.meta.id], Place::merged(3));
    let moved = Edit { persisted: 0, removed, added: vec![(place, table)] };
    assert!(tree.install(&state.basis(), moved, |_, _| {}).unwrap());
    (context, tree)
}

fn manifest(fs: &MemoryFs) -> Vec<u8> {
    let is_manifest = |path: &PathBuf| path.to_string_lossy().contains("manifest");
    let mut files = fs.files().into_iter().filter(|(path, _)| is_manifest(path));
    files.next().unwrap().1
}

/// The lock of the database is gone then, and the manifest is the next owner's.
#[test]
fn nothing_is_written_to_the_manifest_of_a_tree_that_has_stopped() {
    for stops in [true, false] {
        let fs = MemoryFs::new();
        let (context, tree) = with_a_move(&fs);
        let before = manifest(&fs);
        if stops {
            tree.stop();
        }
        let settled = tree.settle().map_err(|error| error.kind());
        assert_eq!(settled, if stops { Err(ErrorKind::Closed) } else { Ok(()) });
        assert_eq!(manifest(&fs) == before, stops);
        tree.stop();
        context.background.flush.stop();
        context.background.compaction.stop();
    }
}
