use std::sync::atomic::{AtomicUsize, Ordering};

use turbidite::EngineKind;

use super::*;
use crate::setting::Engines;

fn setting(engine: EngineKind) -> Setting {
    Setting { engines: Engines::Only(engine), ..Setting::new(9, Layer::Mmap) }
}

fn sample(engine: EngineKind, state: State) -> Sample {
    Sample::new(setting(engine), state)
}

/// What comes of examining the undamaged sample as if it had to have these contents.
fn examined(sample: &Sample, contents: &Contents) -> Result<Verdict, String> {
    examine(&sample.fs, sample.setting.layer, contents, Opening::Writing)
}

#[test]
fn what_is_not_damaged_is_right() {
    for engine in choices::ENGINES {
        for state in State::ALL {
            let sample = sample(engine, state);
            assert_eq!(examined(&sample, &sample.contents), Ok(Verdict::Silent), "{engine}");
            assert_eq!(examine_undamaged(&sample, Opening::Writing), Ok(()), "{engine}");
        }
    }
}

#[test]
fn answers_that_are_not_those_of_the_model_are_wrong() {
    for engine in choices::ENGINES {
        let sample = sample(engine, State::Closed);
        for name in sample.contents.keys() {
            let wrong = |change: &dyn Fn(&mut Records)| {
                let mut contents = sample.contents.clone();
                change(contents.get_mut(name).unwrap());
                examined(&sample, &contents).unwrap_err()
            };
            let present = |records: &Records| {
                records.iter().rfind(|(_, value)| value.is_some()).unwrap().0.clone()
            };
            let another = wrong(&|records| _ = records.insert(present(records), Some(vec![1])));
            let deleted = wrong(&|records| _ = records.insert(present(records), None));
            let missing = wrong(&|records| _ = records.insert(b"no".into(), Some(vec![])));
            // Only iteration comes to a key that nobody asks for.
            let unknown = wrong(&|records| _ = records.remove(&present(records)));
            assert!(another.contains("bytes for 1 bytes"), "{another}");
            assert!(deleted.contains("bytes for nothing"), "{deleted}");
            assert!(missing.contains("nothing for 0 bytes"), "{missing}");
            assert!(unknown.contains("iteration"), "{unknown}");
        }
        let mut fewer = sample.contents.clone();
        fewer.pop_first();
        assert!(examined(&sample, &fewer).unwrap_err().contains("2 keyspaces of 1"));
    }
}

#[test]
fn what_is_not_noticed_is_a_violation_where_something_depends_on_it() {
    use Meaning::{Hint, Needed, Unused};
    use Verdict::{Dropped, Refused, Reported, Silent};
    let kept = [(Needed, Refused), (Needed, Reported), (Hint, Silent), (Hint, Dropped)];
    for (meaning, verdict) in kept.into_iter().chain([(Unused, Silent)]) {
        assert_eq!(judge(verdict, meaning), Ok(verdict));
    }
    let wrong = [(Needed, Silent), (Needed, Dropped), (Unused, Refused), (Unused, Dropped)];
    for (meaning, verdict) in wrong.into_iter().chain([(Unused, Reported)]) {
        assert!(judge(verdict, meaning).is_err());
    }
}

#[test]
fn a_page_at_the_place_of_another_one_counts_as_what_it_covers() {
    let sample = sample(EngineKind::Btree, State::Closed);
    let case = |name: &str, from: usize, to: usize| {
        let file = sample.find(name).unwrap();
        let (from, to) = (from as u64, to as u64);
        let damage = Damage::Misplaced { block: Block::Page, from, to };
        Case { sample: &sample, file, damage }
    };
    let (tree, log) = ("keyspaces/1/tree", "log/000001.log");
    let file = |name: &str| &sample.files[sample.find(name).unwrap()];
    assert_eq!(case(tree, 2 * PAGE, 3 * PAGE).meaning(), Meaning::Needed);
    // Free pages are as good as what is not there.
    let is_free = |page: usize| {
        (page..page + PAGE).all(|at| file(tree).places.meaning(at) == Meaning::Unused)
    };
    let free = (0..file(tree).used).step_by(PAGE).find(|&page| is_free(page)).unwrap();
    assert_eq!(case(tree, 3 * PAGE, free).meaning(), Meaning::Unused);
    // Records that belong elsewhere are looked at where the log has ended.
    let used = file(log).used;
    let behind = (used + PAGE).next_multiple_of(PAGE);
    assert_eq!(case(log, PAGE, 2 * PAGE).meaning(), Meaning::Needed);
    assert_eq!(case(log, PAGE, behind).meaning(), Meaning::Hint);
    // But the last mark is what a power cut may take.
    assert!(case(log, PAGE, behind).exists() && !case(log, PAGE, used / PAGE * PAGE).exists());
    assert_eq!(case(log, behind, behind + PAGE).meaning(), Meaning::Unused);
}

/// What comes of going on with the undamaged sample, that is opened again as it was in the file system that `changed` gives.
fn gone_on(
    sample: &Sample,
    wanted: &Contents,
    changed: impl FnOnce(&MemoryFs) -> MemoryFs,
) -> Result<Vec<Told>, String> {
    let Sample { fs, setting, contents, .. } = sample;
    let undamaged = [examine::wanted(contents)];
    let examined = examine_any(fs, setting.layer, &undamaged, Opening::Writing)?;
    let (db, fs) = examined.opened.expect("it opens");
    let changed = changed(&fs);
    onward::go_on(db, &changed, setting.layer, examine::wanted(wanted), setting.seed)
}

#[test]
fn what_is_lost_on_the_way_is_wrong() {
    for engine in choices::ENGINES {
        let sample = sample(engine, State::Closed);
        let contents = &sample.contents;
        assert!(gone_on(&sample, contents, MemoryFs::clone).unwrap().is_empty(), "{engine}");
        // All that was written is missing when it is opened again.
        let lost = gone_on(&sample, contents, MemoryFs::fork).unwrap_err();
        assert!(lost.contains("opened again after writing"), "{engine}: {lost}");
        for name in contents.keys() {
            let mut wanted = contents.clone();
            wanted.get_mut(name).unwrap().values_mut().for_each(|value| *value = Some(vec![1]));
            let wrong = gone_on(&sample, &wanted, MemoryFs::clone).unwrap_err();
            assert!(wrong.starts_with(&format!("after writing: {name}")), "{wrong}");
        }
    }
}

#[test]
fn going_on_fails_because_of_damage_that_was_told_of() {
    let sample = sample(EngineKind::Lsm, State::Closed);
    let file = sample.files.iter().position(|file| file.name.starts_with("keyspaces/1/")).unwrap();
    let case = Case { sample: &sample, file, damage: Damage::Byte(0) };
    let corruption = || Error::Corruption { file: "file".into(), offset: 0, what: "it".into() };
    let poisoned = |cause: &str| Error::Poisoned { cause: cause.into() };
    let judged = |verdict, error| case.judge_onward(verdict, &[Told::of("lsm", error)]).is_ok();
    assert!(case.judge_onward(Verdict::Silent, &[]).is_ok());
    for error in [corruption(), poisoned("damage")] {
        assert!(judged(Verdict::Reported, error.clone()));
        assert!(!judged(Verdict::Silent, error));
    }
    assert!(!judged(Verdict::Reported, poisoned("a panic")));
    assert!(!judged(Verdict::Reported, Error::Closed));
    let of_another = [Told::of("lsm-unlogged", corruption())];
    assert!(case.judge_onward(Verdict::Reported, &of_another).is_err());
}

#[test]
fn all_is_damaged_as_the_case_says() {
    let sample = sample(EngineKind::Lsm, State::Unclosed);
    let is_long = |file: &Sampled| file.kind() == ".table" && file.bytes.len() > SECTOR;
    let file = sample.files.iter().position(is_long).unwrap();
    let before = &sample.files[file].bytes;
    let damaged = |damage| {
        let case = Case { sample: &sample, file, damage };
        assert!(case.exists());
        let files = case.damaged().unwrap().files();
        let path = &sample.files[file].path;
        files.into_iter().find(|(name, _)| name == path).map(|(_, bytes)| bytes)
    };
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = before.clone();
        change(&mut bytes);
        Some(bytes)
    };
    assert_eq!(damaged(Damage::Bit(35)), with(&|bytes| bytes[4] ^= 8));
    assert_eq!(damaged(Damage::Byte(5)), with(&|bytes| bytes[5] ^= 0xff));
    assert_eq!(damaged(Damage::Cut(5)), with(&|bytes| bytes.truncate(5)));
    assert_eq!(damaged(Damage::Missing), None);
    assert_eq!(
        damaged(Damage::Sector(0, Filling::Zeros)),
        with(&|bytes| bytes.iter_mut().take(SECTOR).for_each(|byte| *byte = 0))
    );
    let misplaced = |block, from, to| damaged(Damage::Misplaced { block, from, to });
    // The last sector of the file is not a whole one.
    let last = (before.len() - 1) / SECTOR * SECTOR;
    assert_eq!(
        misplaced(Block::Sector, 0, last as u64),
        with(&|bytes| bytes.copy_within(..before.len() - last, last))
    );
    assert_eq!(
        misplaced(Block::Sector, last as u64, 0),
        with(&|bytes| bytes.copy_within(last.., 0))
    );
    let garbage = damaged(Damage::Sector(0, Filling::Garbage)).unwrap();
    assert!(
        garbage.len() == before.len()
            && garbage[..SECTOR.min(before.len())] != before[..SECTOR.min(before.len())]
    );
    assert_eq!(damaged(Damage::Foreign), sample.files[file].foreign);
    let tables = sample.files.iter().filter(|other| other.kind() == ".table");
    let other = tables.map(|other| &other.name).rfind(|name| **name != sample.files[file].name);
    let other = other.unwrap();
    let planted = &sample.files[sample.find(other).unwrap()].bytes;
    assert_eq!(damaged(Damage::Swapped(other.clone())).as_ref(), Some(planted));
}

#[test]
fn a_case_is_tried_again_by_its_name() {
    let id = |file: &str, damage| {
        let (setting, file) = (setting(EngineKind::Btree), file.to_owned());
        CaseId { setting, state: State::Closed, file, damage }
    };
    let misplaced = |from, to| Damage::Misplaced { block: Block::Page, from, to };
    for damage in [Damage::Bit(70_000), misplaced(8192, 12288)] {
        assert!(replay(id("keyspaces/1/tree", damage)).unwrap().violations.is_empty());
    }
    for (file, damage) in [
        ("keyspaces/3/tree", Damage::Missing),
        ("keyspaces/1/tree", Damage::Bit(u64::MAX)),
        ("keyspaces/1/tree", Damage::Sector(100, Filling::Zeros)),
        ("keyspaces/1/tree", Damage::Swapped("catalog-000001".into())),
        ("keyspaces/1/tree", misplaced(8192, 8192)),
        ("keyspaces/1/tree", misplaced(8192, 8704)),
        ("keyspaces/1/tree", misplaced(1 << 40, 8192)),
    ] {
        let report = replay(id(file, damage));
        let error = report.unwrap_err().to_string();
        assert!(error.contains("unknown case") && error.contains("nothing like it"), "{error}");
    }
}

#[test]
fn a_run_goes_on_for_as_long_as_it_is_to() {
    let asked = AtomicUsize::new(0);
    let go_on = |_: &dyn std::fmt::Display| asked.fetch_add(1, Ordering::Relaxed) < 300;
    let report = run(Setting::new(9, Layer::Mmap), Effort { every: 50 }, go_on);
    assert!((250..=301).contains(&report.cases), "{report:?}");
    let verdicts = ["refused", "found by verify", "harmless"].map(|verdict| report.counts[verdict]);
    let dropped = report.counts.get("dropped by recovery").copied().unwrap_or(0);
    let told = verdicts.iter().sum::<u64>() + dropped;
    assert_eq!(told, report.cases, "{:?}", report.violations);
    assert!(verdicts.iter().all(|&count| count > 0), "{verdicts:?}");
    assert!(report.counts["gone on with"] > 0 && report.fired["misplaced"] > 0, "{report:?}");
}

#[test]
fn what_was_not_synced_may_be_lost_and_not_without_a_word() {
    let sample = sample(EngineKind::Lsm, State::Unsynced);
    let find = |is: &dyn Fn(&Sampled) -> bool| sample.files.iter().position(is).unwrap();
    let segment = find(&|file| file.kind() == ".log" && !file.is_prepared);
    let tail = find(&|file| places::is_tail(&file.name));
    let lost_if = |damage, file: usize, lost, verdict| {
        Case { sample: &sample, file, damage }.judge_lost(lost, verdict).is_ok()
    };
    let lost = |file: usize, at: usize, lost, verdict| {
        lost_if(Damage::Byte(at as u64), file, lost, verdict)
    };
    let end = sample.files[segment].used - 1;
    assert!(lost(segment, end, 0, Verdict::Silent) && lost(segment, end, 5, Verdict::Dropped));
    // The last one may look like nothing.
    assert!(lost(segment, end, 1, Verdict::Silent) && !lost(segment, end, 2, Verdict::Silent));
    assert!(!lost(segment, 70, 1, Verdict::Reported));
    // A byte of the tail is one record: those behind it are seen. But what cannot be read is not known to be there.
    assert!(lost(tail, 70, 1, Verdict::Silent) && !lost(tail, 70, 2, Verdict::Silent));
    assert!(lost(tail, 70, 5, Verdict::Dropped));
    assert!(lost_if(Damage::Missing, tail, 5, Verdict::Silent));
}

/// Those of bugs that are mended.
#[test]
fn cases_that_have_given_wrong_answers() {
    // A page that had never been written gave an error once, and wrong answers from then on.
    let id = "flip/1/all/mmap/closed/keyspaces+3+tree/stale:32768".parse().unwrap();
    let report = replay(id).unwrap();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    assert_eq!(report.faults_fired(), 1);
}
