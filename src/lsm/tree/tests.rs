//! Trees by themselves, without a database around them.

use super::*;
use crate::base::Kind;
use crate::contract::testing::{Log, context};
use crate::lsm::table::TableBuilder;
use crate::lsm::version::TableMeta;
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

/// Nothing that is written is so: a file that somebody has made.
#[test]
fn an_entry_that_leads_to_no_value_file_is_damage_to_all_who_read_it() {
    let fs = MemoryFs::new();
    let (context, tree) = with_a_move(&fs);
    let id = tree.take_id();
    let (home, options) = (tree.home(), tree.table_options(0));
    let file = home.create(id).unwrap();
    let mut table = TableBuilder::new(file, home.identity_of(id), &options).unwrap();
    let reference = [7, 100, 5];
    table.add(b"forged", Trailer::new(1, Kind::Put).apart(), &reference).unwrap();
    let table = TableFile::new(TableMeta::new(id, table.finish().unwrap()), Arc::clone(home));
    let edit = Edit { persisted: 0, removed: vec![], added: vec![(Place::merged(4), table)] };
    assert!(tree.install(&tree.state().basis(), edit, |_, _| {}).unwrap());
    let latest = ReadPoint::Latest(&context.visibility);
    let is_damage = |read: Result<()>| read.unwrap_err().kind() == ErrorKind::Corruption;
    assert!(is_damage(tree.get(b"forged", latest).map(drop)));
    assert!(is_damage(tree.multi_get(&[b"forged"], latest).map(drop)));
    let mut cursor = tree.cursor(latest).unwrap();
    assert!(is_damage(cursor.seek(b"forged")) && is_damage(cursor.seek_to_first()));
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.key(), b"key");
    assert!(is_damage(cursor.prev()));
    tree.stop();
    context.background.flush.stop();
    context.background.compaction.stop();
}
