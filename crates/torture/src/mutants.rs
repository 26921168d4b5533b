//! Bugs that are planted, to see whether the torture notices them: one that survives is a hole in it.
//!
//! Only where the library is compiled with `--cfg turbidite_planted_bugs`, as its room `planted` says.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use turbidite::Layer;
use turbidite::planted::{Bug, plant};

use crate::choices::mix;
use crate::report::{Report, Violation};
use crate::setting::{Engines, Setting};
use crate::{crash, faults, flip, is_small, linear, model, workers};

/// A mode is left for the next one after so long, from its second case on, and `faults`, which has the most kinds of cases, after the second. What a bug
/// needs to be noticed is mostly a setting of some kind: many of them are seen for a short time each.
const SLICE: Duration = Duration::from_secs(1);
const SLICE_OF_FAULTS: Duration = Duration::from_secs(3);
/// How dense power cuts are, damage, and faults. A few images each at many boundaries, all over the workload however few there is the time for: most
/// bugs show in all images of few boundaries.
const CUTS: crash::Effort = crash::Effort { images: 2, passes: 16, ..crash::Effort::one_in(7) };
const FLIPS: flip::Effort = flip::Effort { every: 16 };
const FAULTS: faults::Effort = faults::Effort { every: 1 };

/// How a bug was noticed.
#[derive(Clone, Debug)]
pub struct Caught {
    /// By which mode.
    pub by: &'static str,
    /// In which case, and by what.
    pub violation: Violation,
    /// After so long.
    pub after: Duration,
    /// And what was tried until then, by all modes.
    pub tried: Tried,
}

/// How much was tried.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tried {
    /// Cases of all modes.
    pub cases: u64,
    /// What was done in them, as each mode counts it.
    pub operations: u64,
    /// How many faults had their effect.
    pub faults_fired: u64,
}

/// Tries settings, from a first one on, as long as it is to go on.
pub type Attempt<'a> = &'a dyn Fn(Setting, &(dyn Fn() -> bool + Sync)) -> Report;

/// Where a bug is looked for.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The first seed that may be tried.
    pub seed: u64,
    /// The engines of keyspaces; if it is all, each is also tried alone.
    pub engines: Engines,
    /// The layers of files, in turn.
    pub layers: Vec<Layer>,
}

/// Plants a bug, or none, and runs all modes in turn, with `kill` among them, until something is wrong or the time is over. The bug stays planted.
pub fn hunt(
    bug: Option<Bug>,
    ground: &Ground,
    time: Duration,
    kill: Attempt<'_>,
) -> Result<Tried, Caught> {
    plant(bug);
    let modes: [(&'static str, Attempt<'_>); 6] = [
        ("crash", &|setting, go_on| crash::run(setting, CUTS, |_| go_on())),
        ("model", &|setting, go_on| {
            while_going(setting, go_on, |setting| model::run(setting, None, 0))
        }),
        ("faults", &|setting, go_on| faults::run(setting, FAULTS, |_| go_on())),
        ("flip", &|setting, go_on| flip::run(setting, FLIPS, |_| go_on())),
        ("linear", &|setting, go_on| while_going(setting, go_on, linear::run)),
        ("kill", kill),
    ];
    let (begun, mut tried) = (Instant::now(), Tried::default());
    // On all engines at once, and on each alone.
    let each = match ground.engines {
        Engines::All => Engines::each().into_iter().flat_map(|one| [Engines::All, one]).collect(),
        only => vec![only],
    };
    let mut next = ground.seed;
    for round in 0.. {
        // Two of three have little do what takes much elsewhere, where more bugs show.
        let mut seeds = (0..64).map(|more| next.wrapping_add(more));
        let seed = seeds.find(|&seed| is_small(seed) == (round % 3 != 0)).unwrap_or(next);
        next = seed.wrapping_add(1);
        let engines = each[round % each.len()];
        let layer = ground.layers[mix(seed, "layer") as usize % ground.layers.len()];
        for (by, attempt) in modes {
            let is_faults = by == "faults";
            let slice = if is_faults { SLICE_OF_FAULTS } else { SLICE };
            let layer =
                if is_faults { layer_of_faults(seed, layer, &ground.layers) } else { layer };
            let report = for_about(slice, |go_on| attempt(Setting { seed, engines, layer }, go_on));
            tried.cases += report.cases;
            tried.operations += report.operations;
            tried.faults_fired += report.faults_fired();
            if let Some(violation) = report.violations.into_iter().next() {
                return Err(Caught { by, violation, after: begun.elapsed(), tried });
            }
            if begun.elapsed() >= time {
                return Ok(tried);
            }
        }
    }
    unreachable!("there are rounds enough")
}

/// An attempt that goes on for so long once its first case is done: what all its cases begin with takes as long as it takes.
fn for_about(slice: Duration, attempt: impl Fn(&(dyn Fn() -> bool + Sync)) -> Report) -> Report {
    let begun = OnceLock::new();
    attempt(&|| begun.get_or_init(Instant::now).elapsed() < slice)
}

/// Over positional files for half of the seeds more than their turn, if they are among the layers: no other layer has reads that are damaged.
fn layer_of_faults(seed: u64, layer: Layer, layers: &[Layer]) -> Layer {
    let is_positional = mix(seed, "of faults").is_multiple_of(2);
    if is_positional && layers.contains(&Layer::Positional) { Layer::Positional } else { layer }
}

/// Settings that have a seed of their own each.
fn while_going(
    first: Setting,
    go_on: &(dyn Fn() -> bool + Sync),
    attempt: impl Fn(Setting) -> Report + Sync,
) -> Report {
    // Seeds that no other round begins with.
    let seeds = (0_u64..).map(|number| first.seed.wrapping_add(number << 32));
    workers::sum_until_wrong(seeds, |_| go_on(), |seed| attempt(Setting { seed, ..first }))
}

#[cfg(test)]
mod tests {
    use turbidite::{EngineKind, Layer};

    use super::*;
    use crate::steps::Steps;

    /// How many steps the workload of a case has; all count as many.
    fn steps_of(case: &str) -> usize {
        let (_, steps) = Steps::split(case).unwrap();
        steps.of(&[(); 128]).len()
    }

    /// Makes the workload of the first violation shorter, which is then to fail with the bug and only with it. However slow the machine is, there is one soon.
    fn made_shorter(
        bug: Bug,
        attempt: impl Fn(Setting, &(dyn Fn() -> bool + Sync)) -> Report,
        shorten: impl Fn(&Violation, Duration) -> Option<Violation>,
        replay: impl Fn(&str) -> Report,
    ) {
        plant(Some(bug));
        let mut settings = (1..100).map(|seed| Setting::new(seed, Layer::Positional));
        let first = settings.find_map(|setting| {
            let report = for_about(Duration::from_secs(2), |go_on| attempt(setting, go_on));
            report.violations.into_iter().next()
        });
        let first = first.expect("it is noticed");
        let shorter = shorten(&first, Duration::from_secs(600)).unwrap();
        assert!(steps_of(&shorter.case) < 20, "{shorter:?}");
        assert_eq!(replay(&shorter.case).violations.len(), 1);
        plant(None);
        assert_eq!(replay(&shorter.case).violations.len(), 0);
    }

    /// A planted bug is one of the whole process: this is the only test that plants any.
    #[test]
    fn what_fails_is_made_shorter() {
        let setting = Setting::new(1, Layer::Positional);
        made_shorter(
            Bug::SkipLogSync,
            |setting, go_on| crash::run(setting, CUTS, |_| go_on()),
            crash::shorten,
            |case| crash::replay(case.parse().unwrap()).unwrap(),
        );
        made_shorter(
            Bug::AcknowledgeNoSpace,
            |setting, go_on| faults::run(setting, FAULTS, |_| go_on()),
            faults::shorten,
            |case| faults::replay(case.parse().unwrap()).unwrap(),
        );
        // Of a sector that nobody looks at closely a bit is enough.
        plant(Some(Bug::IgnoreNodeChecksum));
        let trees = Setting { engines: Engines::Only(EngineKind::Btree), ..setting };
        let report = flip::run(trees, FLIPS, |_| true);
        let of_sector = report.violations.iter().find(|of| of.case.contains("/sector:")).unwrap();
        let smaller = flip::shorten(of_sector, Duration::from_secs(600)).unwrap();
        assert!(smaller.case.contains("/bit:"), "{smaller:?}");
        let replay = || flip::replay(smaller.case.parse().unwrap()).unwrap().violations.len();
        assert_eq!(replay(), 1);
        plant(None);
        assert_eq!(replay(), 0);
        // Of the many reads of a history one or two are needed to see half of a batch, seldom some more.
        plant(Some(Bug::PublishBeforeApply));
        let mut settings = (0..100).map(|seed| Setting { seed, ..setting });
        let violations = settings.find_map(|setting| linear::run(setting).violations.pop());
        plant(None);
        let problem = violations.unwrap().problem;
        assert!((1..10).contains(&problem.matches("reads").count()), "{problem}");
    }
}
