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
    use Verdict::{Refused, Reported, Silent};
    let kept = [(Needed, Refused), (Needed, Reported), (Hint, Silent), (Hint, Reported)];
    for (meaning, verdict) in kept.into_iter().chain([(Unused, Silent)]) {
        assert_eq!(judge(verdict, meaning), Ok(verdict));
    }
    for (meaning, verdict) in [(Needed, Silent), (Unused, Refused), (Unused, Reported)] {
        assert!(judge(verdict, meaning).is_err());
    }
}

#[test]
fn all_is_damaged_as_the_case_says() {
    let sample = sample(EngineKind::Lsm, State::Unclosed);
    let file = sample.files.iter().position(|file| file.kind() == ".table").unwrap();
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
    assert!(replay(id("keyspaces/1/tree", Damage::Bit(70_000))).unwrap().violations.is_empty());
    for (file, damage) in [
        ("keyspaces/3/tree", Damage::Missing),
        ("keyspaces/1/tree", Damage::Bit(u64::MAX)),
        ("keyspaces/1/tree", Damage::Sector(100, Filling::Zeros)),
        ("keyspaces/1/tree", Damage::Swapped("catalog-000001".into())),
    ] {
        let report = replay(id(file, damage));
        let error = report.unwrap_err().to_string();
        assert!(error.contains("unknown case") && error.contains("nothing like it"), "{error}");
    }
}

#[test]
fn a_run_goes_on_for_as_long_as_it_is_to() {
    let asked = AtomicUsize::new(0);
    let go_on = || asked.fetch_add(1, Ordering::Relaxed) < 300;
    let report = run(Setting::new(9, Layer::Mmap), Effort { every: 50 }, go_on);
    assert!((250..=301).contains(&report.cases), "{report:?}");
    let verdicts = ["refused", "reported", "harmless"].map(|verdict| report.counts[verdict]);
    assert_eq!(verdicts.iter().sum::<u64>(), report.cases, "{:?}", report.violations);
    assert!(verdicts.iter().all(|&count| count > 0), "{verdicts:?}");
}
