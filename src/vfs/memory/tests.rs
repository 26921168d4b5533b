use std::collections::BTreeSet;

use super::*;

fn path(name: &str) -> PathBuf {
    Path::new("/db").join(name)
}

/// A traced file system with the directory made and synced, and nothing pending.
fn traced() -> MemoryFs {
    let fs = MemoryFs::traced();
    fs.create_dir(Path::new("/db")).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    fs
}

fn create(fs: &MemoryFs, name: &str) -> Arc<dyn File> {
    fs.create(&path(name), Layer::default()).unwrap()
}

/// A file that is on the disk with its name and these bytes.
fn synced(fs: &MemoryFs, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    fs.write_file(&path(name), bytes).unwrap();
    fs.open(&path(name), Access::Write, Layer::default()).unwrap()
}

/// What is left after a cut now: names with content, as text.
fn left(fs: &MemoryFs, cut: PowerCut) -> Vec<String> {
    left_at(fs, fs.operations(), cut)
}

fn left_at(fs: &MemoryFs, at: usize, cut: PowerCut) -> Vec<String> {
    let files = fs.image(at, cut).files().into_iter();
    files
        .map(|(path, bytes)| {
            let name = path.strip_prefix("/db").unwrap().display().to_string();
            format!("{name}={}", bytes.escape_ascii())
        })
        .collect()
}

#[test]
fn a_name_and_its_data_are_synced_apart() {
    let fs = traced();
    let file = create(&fs, "a");
    file.write_at(0, b"data").unwrap();
    assert_eq!(left(&fs, PowerCut::KeepAll), ["a=data"]);
    assert!(left(&fs, PowerCut::DropUnsynced).is_empty());
    file.sync().unwrap();
    assert!(left(&fs, PowerCut::DropUnsynced).is_empty(), "the name was not synced");
    fs.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(left(&fs, PowerCut::DropUnsynced), ["a=data"]);

    let fs = traced();
    create(&fs, "a").write_at(0, b"data").unwrap();
    fs.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(left(&fs, PowerCut::DropUnsynced), ["a="], "the data was not synced");
}

#[test]
fn a_directory_is_lost_with_what_is_in_it() {
    let fs = traced();
    fs.create_dir(&path("sub")).unwrap();
    let file = create(&fs, "sub/a");
    file.write_at(0, b"x").unwrap();
    file.sync().unwrap();
    fs.sync_dir(&path("sub")).unwrap();
    assert!(left(&fs, PowerCut::DropUnsynced).is_empty());
    fs.sync_dir(&path("")).unwrap();
    assert_eq!(left(&fs, PowerCut::DropUnsynced), ["sub/a=x"]);
    fs.remove(&path("sub/a")).unwrap();
    fs.remove_dir(&path("sub")).unwrap();
    fs.create_dir(&path("sub")).unwrap();
    fs.sync_dir(&path("")).unwrap();
    assert!(left(&fs, PowerCut::DropUnsynced).is_empty(), "the new directory is another one");
}

#[test]
fn each_pending_write_is_on_the_disk_or_not() {
    let fs = traced();
    let file = synced(&fs, "a", b"....");
    file.write_at(0, b"A").unwrap();
    file.write_at(5, b"B").unwrap();
    file.truncate(8).unwrap();
    let at = fs.operations();
    assert_eq!(fs.unsynced(at), 3);
    assert_eq!(left(&fs, PowerCut::KeepAll), [r"a=A...\x00B\x00\x00"]);
    assert_eq!(left(&fs, PowerCut::DropUnsynced), ["a=...."]);
    assert_eq!(left(&fs, PowerCut::KeepOnly(0)), ["a=A..."]);
    assert_eq!(left(&fs, PowerCut::KeepOnly(1)), [r"a=....\x00B"]);
    assert_eq!(left(&fs, PowerCut::KeepOnly(2)), [r"a=....\x00\x00\x00\x00"]);
    assert_eq!(left(&fs, PowerCut::DropOnly(0)), [r"a=....\x00B\x00\x00"]);
    assert_eq!(left(&fs, PowerCut::DropOnly(1)), [r"a=A...\x00\x00\x00\x00"]);
    assert_eq!(left(&fs, PowerCut::DropOnly(2)), [r"a=A...\x00B"]);
    file.sync().unwrap();
    assert_eq!(fs.unsynced(fs.operations()), 0);
    assert_eq!(left(&fs, PowerCut::DropUnsynced), [r"a=A...\x00B\x00\x00"]);
    assert_eq!(fs.unsynced(at), 3, "the past stays as it was");
    assert_eq!(left_at(&fs, at, PowerCut::DropUnsynced), ["a=...."]);
}

#[test]
fn a_sync_is_of_one_file() {
    let fs = traced();
    let (a, b) = (synced(&fs, "a", b""), synced(&fs, "b", b""));
    a.write_at(0, b"1").unwrap();
    b.write_at(0, b"2").unwrap();
    b.sync().unwrap();
    assert_eq!(left(&fs, PowerCut::DropUnsynced), ["a=", "b=2"]);
    assert_eq!(fs.unsynced(fs.operations()), 1);
}

#[test]
fn a_rename_is_done_or_undone() {
    let fs = traced();
    synced(&fs, "new", b"new");
    synced(&fs, "current", b"old");
    fs.rename(&path("new"), &path("current")).unwrap();
    assert_eq!(left(&fs, PowerCut::KeepAll), ["current=new"]);
    assert_eq!(left(&fs, PowerCut::DropUnsynced), ["current=old", "new=new"]);
    for seed in 0..100 {
        let found = left(&fs, PowerCut::Random(seed));
        assert!(found == ["current=new"] || found == ["current=old", "new=new"], "{found:?}");
    }
    fs.sync_dir(&path("")).unwrap();
    assert_eq!(left(&fs, PowerCut::DropUnsynced), ["current=new"]);
}

#[test]
fn a_move_between_directories_never_loses_both_names() {
    let fs = traced();
    fs.create_dir(&path("sub")).unwrap();
    fs.sync_dir(&path("")).unwrap();
    synced(&fs, "a", b"a");
    create(&fs, "first");
    fs.rename(&path("a"), &path("sub/a")).unwrap();
    create(&fs, "sub/behind");
    let at = fs.operations();
    for index in 0..fs.unsynced(at) {
        for cut in [PowerCut::KeepOnly(index), PowerCut::DropOnly(index)] {
            let names: Vec<_> = left(&fs, cut).into_iter().filter(|f| f.ends_with("a=a")).collect();
            assert_eq!(names.len(), 1, "{cut:?}");
        }
    }
    assert_eq!(left(&fs, PowerCut::DropOnly(0)), ["a=a"], "names reach the disk in order");
    assert_eq!(left(&fs, PowerCut::KeepOnly(2)), ["first=", "sub/a=a", "sub/behind="]);
    fs.sync_dir(&path("sub")).unwrap();
    assert_eq!(left(&fs, PowerCut::DropUnsynced), ["first=", "sub/a=a", "sub/behind="]);
}

#[test]
fn names_need_not_reach_the_disk_in_order() {
    let fs = traced();
    create(&fs, "first");
    let file = create(&fs, "second");
    file.write_at(0, b"data").unwrap();
    file.sync().unwrap();
    fs.rename(&path("second"), &path("third")).unwrap();
    let at = fs.operations();
    let names: Vec<_> = (0..fs.unsynced(at)).filter(|&index| fs.is_name(at, index)).collect();
    let [first, second, third] = names[..] else { panic!("{names:?}") };
    assert_eq!(left(&fs, PowerCut::KeepAlone(third)), ["third=data"]);
    assert_eq!(left(&fs, PowerCut::DropAlone(first)), ["third=data"]);
    assert_eq!(left(&fs, PowerCut::DropAlone(second)), ["first=", "third=data"]);
    assert_eq!(left(&fs, PowerCut::DropAlone(third)), ["first=", "second=data"]);
    let random: BTreeSet<_> = (0..1000).map(|seed| left(&fs, PowerCut::Random(seed))).collect();
    // The first is there or not, and the other one has no name, either, but not both.
    assert_eq!(random.len(), 6, "{random:?}");
}

#[test]
fn a_file_that_is_moved_twice_has_one_name() {
    let fs = traced();
    synced(&fs, "first", b"data");
    fs.rename(&path("first"), &path("second")).unwrap();
    fs.rename(&path("second"), &path("third")).unwrap();
    assert_eq!(left(&fs, PowerCut::KeepAlone(1)), ["third=data"]);
    assert_eq!(left(&fs, PowerCut::DropAlone(1)), ["second=data"]);
    for seed in 0..100 {
        assert_eq!(left(&fs, PowerCut::Random(seed)).len(), 1);
    }
}

#[test]
fn a_remove_can_be_undone() {
    let fs = traced();
    let file = synced(&fs, "a", b"old");
    file.write_at(0, b"new").unwrap();
    fs.remove(&path("a")).unwrap();
    assert!(left(&fs, PowerCut::KeepAll).is_empty());
    assert_eq!(left(&fs, PowerCut::DropUnsynced), ["a=old"]);
    assert_eq!(left(&fs, PowerCut::DropOnly(1)), ["a=new"]);
    fs.sync_dir(&path("")).unwrap();
    assert!(left(&fs, PowerCut::DropUnsynced).is_empty());
}

#[test]
fn random_cuts_tear_at_sectors_and_spare_what_was_synced() {
    let fs = traced();
    let file = synced(&fs, "a", &[1; 700]);
    file.write_at(700, &[2; 2000]).unwrap();
    let (mut kept, mut dropped, mut zeroed) = (0, 0, 0);
    for seed in 0..200 {
        let image = fs.image(fs.operations(), PowerCut::Random(seed));
        assert_eq!(image.files(), fs.image(fs.operations(), PowerCut::Random(seed)).files());
        let bytes = &image.files()[0].1;
        assert_eq!(bytes[..700], [1; 700]);
        let mut sectors = bytes[700..].chunks(512);
        if bytes.len() > 1024 {
            let (first, rest) = bytes[700..].split_at(1024 - 700);
            assert!(first.iter().all(|byte| *byte == first[0]), "a sector is whole");
            sectors = rest.chunks(512);
        }
        for sector in sectors {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
            match sector[0] {
                2 => kept += 1,
                0 => zeroed += 1,
                other => panic!("{other} was never written"),
            }
        }
        dropped += usize::from(bytes.len() < 2700);
    }
    assert!(kept > 50 && dropped > 20 && zeroed > 50, "{kept} {dropped} {zeroed}");
}

#[test]
fn a_failed_sync_is_lost_for_good() {
    let fs = traced();
    let file = synced(&fs, "log", b"");
    file.write_at(0, b"lost").unwrap();
    fs.lose_sync("log", crate::vfs::Errno::Raw(28));
    let error = file.sync().unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::NoSpace);
    file.sync().unwrap();
    assert_eq!(left(&fs, PowerCut::KeepAll), ["log=lost"]);
    assert_eq!(left(&fs, PowerCut::DropUnsynced), ["log="]);
    file.write_at(4, b"!").unwrap();
    file.sync().unwrap();
    assert_eq!(left(&fs, PowerCut::DropUnsynced), [r"log=\x00\x00\x00\x00!"]);
}

#[test]
fn a_failed_sync_may_have_written_a_part() {
    let fs = traced();
    let file = synced(&fs, "log", &[b'.'; 40]);
    for at in 0..40 {
        file.write_at(at, b"x").unwrap();
    }
    fs.lose_sync("log", Errno::Raw(5));
    file.sync().unwrap_err();
    let at = fs.operations();
    let image = left_at(&fs, at, PowerCut::DropUnsynced);
    let written = image[0].matches('x').count();
    assert!((5..35).contains(&written) && image[0].ends_with('.'), "{image:?}");
    // It is the same part whenever one asks, and nothing writes the rest.
    file.sync().unwrap();
    assert_eq!(left(&fs, PowerCut::DropUnsynced), image);
    assert_eq!(left_at(&fs, at, PowerCut::Random(1)), image);
}

#[test]
fn a_failed_sync_of_a_directory_loses_names_until_they_change_again() {
    let fs = traced();
    let (dir, other) = (path(""), path("dir"));
    create(&fs, "old");
    fs.create_dir(&other).unwrap();
    fs.lose_dir_sync_after(1, Errno::Raw(5));
    fs.sync_dir(&dir).unwrap();
    create(&fs, "new");
    fs.remove(&path("old")).unwrap();
    fs.rename(&path("new"), &path("dir/moved")).unwrap();
    assert_eq!(fs.sync_dir(&dir).unwrap_err().kind(), crate::ErrorKind::Io);
    assert_eq!((fs.lost_syncs(), fs.unsynced(fs.operations())), (1, 0));
    for synced in [&dir, &other] {
        fs.sync_dir(synced).unwrap();
        assert_eq!(left(&fs, PowerCut::DropUnsynced), ["old="]);
        assert_eq!(left(&fs, PowerCut::Random(1)), ["old="]);
        assert_eq!(left(&fs, PowerCut::KeepAll), ["dir/moved="]);
    }
    // A kill does not write them either.
    let killed = fs.image_traced(fs.operations(), PowerCut::KeepAll);
    create(&killed, "dir/late");
    assert_eq!(killed.unsynced(killed.operations()), 4);
    killed.sync_dir(&dir).unwrap();
    assert_eq!(left(&killed, PowerCut::DropUnsynced), ["dir/moved="]);
    killed.sync_dir(&other).unwrap();
    assert_eq!(left(&killed, PowerCut::DropUnsynced), ["dir/late=", "dir/moved="]);
}

#[test]
fn images_and_forks_are_independent_and_can_be_traced_again() {
    let fs = traced();
    let file = synced(&fs, "a", b"one");
    let image = fs.image(fs.operations(), PowerCut::KeepAll);
    let recovery = image.fork_traced();
    file.write_at(0, b"two").unwrap();
    let second = recovery.open(&path("a"), Access::Write, Layer::default()).unwrap();
    second.write_at(3, b"!").unwrap();
    create(&recovery, "b");
    assert_eq!(recovery.operations(), 2);
    assert_eq!(left(&recovery, PowerCut::DropUnsynced), ["a=one"]);
    assert_eq!(left(&recovery, PowerCut::KeepAll), ["a=one!", "b="]);
    assert_eq!(image.files(), [(path("a"), b"one".to_vec())]);
    assert_eq!(fs.fork().files(), [(path("a"), b"two".to_vec())]);
    assert_eq!(image.operations(), 0);
}

#[test]
fn a_kill_syncs_nothing() {
    let fs = traced();
    let file = synced(&fs, "a", b"one");
    file.write_at(3, b" two").unwrap();
    let moved = create(&fs, "b");
    moved.write_at(0, b"synced").unwrap();
    moved.sync().unwrap();
    fs.lose_sync("a", Errno::Raw(5));
    file.sync().unwrap_err();
    file.write_at(7, b" three").unwrap();
    fs.remove(&path("b")).unwrap();
    let killed = fs.image_traced(fs.operations(), PowerCut::KeepAll);
    assert_eq!(killed.files(), [(path("a"), b"one two three".to_vec())]);
    // A new file is none of those that may be on the disk.
    create(&killed, "c").write_at(0, b"new").unwrap();
    assert_eq!(left(&killed, PowerCut::KeepAll), ["a=one two three", "c=new"]);
    assert_eq!(left(&killed, PowerCut::DropUnsynced), ["a=one"]);
    assert_eq!(killed.unsynced(0), fs.unsynced(fs.operations()));
    // The kernel takes for written what it lost, whoever syncs.
    let again = killed.open(&path("a"), Access::Write, Layer::default()).unwrap();
    again.sync().unwrap();
    killed.sync_dir(&path("")).unwrap();
    assert_eq!(left(&killed, PowerCut::DropUnsynced), [r"a=one\x00\x00\x00\x00 three", "c="]);

    let cut = fs.image_traced(fs.operations(), PowerCut::DropUnsynced);
    assert_eq!(cut.unsynced(0), 0);
    assert_eq!(left(&cut, PowerCut::DropUnsynced), ["a=one"]);
}

#[test]
fn a_sync_that_was_to_be_lost_is_lost_after_a_crash() {
    let fs = traced();
    let file = synced(&fs, "a", b"one");
    fs.lose_sync_after(1, Errno::Raw(5));
    file.sync().unwrap();
    let left = fs.image_traced(fs.operations(), PowerCut::DropUnsynced);
    left.lose_sync_of(&fs);
    file.sync().unwrap();
    let again = left.open(&path("a"), Access::Write, Layer::default()).unwrap();
    again.sync().unwrap_err();
    again.sync().unwrap();
    assert_eq!((fs.lost_syncs(), left.lost_syncs()), (0, 1));
}

#[test]
fn beyond_the_quota_nothing_changes() {
    let fs = MemoryFs::new();
    fs.write_file(&path("a"), &[1; 100]).unwrap();
    fs.quota(Some(150));
    let file = create(&fs, "b");
    file.write_at(0, &[2; 50]).unwrap();
    for result in [file.write_at(50, b"x"), file.truncate(51), file.allocate(51)] {
        assert_eq!(result.unwrap_err().kind(), crate::ErrorKind::NoSpace);
    }
    assert_eq!(file.len().unwrap(), 50);
    file.write_at(0, &[3; 50]).unwrap();
    let held = fs.open(&path("a"), Access::Read, Layer::default()).unwrap();
    fs.remove(&path("a")).unwrap();
    file.write_at(50, b"x").unwrap_err();
    drop(held);
    file.write_at(50, b"x").unwrap();
    fs.quota(None);
    file.write_at(5000, b"x").unwrap();
}

#[test]
fn a_read_only_file_system_refuses_changes() {
    let fs = MemoryFs::new();
    let file = create_in_new_dir(&fs);
    fs.set_read_only(true);
    let before = fs.files();
    for result in [
        file.write_at(0, b"x"),
        file.truncate(0),
        file.allocate(10),
        fs.create(&path("b"), Layer::default()).map(drop),
        fs.open(&path("a"), Access::Write, Layer::default()).map(drop),
        fs.remove(&path("a")),
        fs.rename(&path("a"), &path("b")),
        fs.create_dir(&path("sub")),
        fs.lock(&path("lock"), Access::Write).map(drop),
    ] {
        match result {
            Err(Error::Io { source, .. }) => {
                assert_eq!(source.kind(), io::ErrorKind::ReadOnlyFilesystem);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fs.files(), before);
    fs.open(&path("a"), Access::Read, Layer::default()).unwrap();
    fs.set_read_only(false);
    file.write_at(0, b"x").unwrap();
}

fn create_in_new_dir(fs: &MemoryFs) -> Arc<dyn File> {
    fs.create_dir(Path::new("/db")).unwrap();
    let file = create(fs, "a");
    file.write_at(0, b"kept").unwrap();
    file
}

#[test]
fn corruption_changes_one_byte() {
    let fs = MemoryFs::new();
    create_in_new_dir(&fs);
    fs.corrupt(&path("a"), 1, 0x80).unwrap();
    assert_eq!(fs.files(), [(path("a"), b"k\xe5pt".to_vec())]);
    fs.corrupt(&path("a"), 4, 1).unwrap_err();
    fs.corrupt(&path("none"), 0, 1).unwrap_err();
}

#[test]
fn planted_files_are_safe() {
    let fs = MemoryFs::traced();
    fs.write_file(Path::new("x/y/z"), b"long").unwrap();
    fs.write_file(Path::new("x/y/z"), b"new").unwrap();
    let image = fs.image(fs.operations(), PowerCut::DropUnsynced);
    assert_eq!(image.files(), [(PathBuf::from("x/y/z"), b"new".to_vec())]);
    assert_eq!(fs.unsynced(fs.operations()), 0);
}

/// Every cut at every boundary keeps what was synced before it.
#[test]
fn synced_records_survive_every_cut() {
    let fs = traced();
    let file = synced(&fs, "log", b"");
    file.allocate(4096).unwrap();
    let mut safe = Vec::new();
    for record in 0..12_u64 {
        file.write_at(record * 300, &[record as u8 + 1; 300]).unwrap();
        if record % 3 == 2 {
            file.sync().unwrap();
            safe.push((fs.operations(), (record + 1) * 300));
        }
    }
    for at in 0..=fs.operations() {
        let synced = safe.iter().filter(|(when, _)| *when <= at).map(|(_, end)| *end).max();
        let mut cuts = vec![PowerCut::KeepAll, PowerCut::DropUnsynced];
        for k in 0..fs.unsynced(at) {
            cuts.extend([PowerCut::KeepOnly(k), PowerCut::DropOnly(k)]);
        }
        cuts.extend((0..8).map(PowerCut::Random));
        for cut in cuts {
            let files = fs.image(at, cut).files();
            let bytes = files.first().map_or(&[][..], |(_, bytes)| bytes);
            for at in 0..synced.unwrap_or(0) {
                assert_eq!(bytes[at as usize], (at / 300) as u8 + 1, "{cut:?}");
            }
        }
    }
}

#[test]
fn a_directory_whose_name_was_lost_leaves_nothing_to_the_next_one() {
    let fs = MemoryFs::traced();
    fs.create_dir(Path::new("/db")).unwrap();
    create(&fs, "a");
    // The name of the directory is lost, the one in it is not.
    let image = fs.image(fs.operations(), PowerCut::DropOnly(0));
    image.create_dir(Path::new("/db")).unwrap();
    assert!(image.list(Path::new("/db")).unwrap().is_empty());
}
