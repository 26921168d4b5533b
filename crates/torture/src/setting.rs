//! What a case is tried with.

use std::fmt;
use std::str::FromStr;

use turbidite::{Database, EngineKind, Keyspace, KeyspaceOptions, Layer, Result};

use crate::choices::{self, ENGINES, mix};

/// The layers of files that there are, with page caches that fit the smallest budget.
#[must_use]
pub fn layers() -> Vec<Layer> {
    let small = |layer: Layer| layer.with_page_cache_pages(64).unwrap_or(layer);
    Layer::ALL.into_iter().map(small).collect()
}

/// The engines that the keyspaces of a workload are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engines {
    /// Each is on its usual one: there are some on every engine.
    #[default]
    All,
    /// All are on this one.
    Only(EngineKind),
}

impl Engines {
    /// Every engine by itself.
    #[must_use]
    pub fn each() -> Vec<Self> {
        ENGINES.map(Self::Only).to_vec()
    }

    /// The engine of a keyspace that is on `usual` where there is a choice.
    #[must_use]
    pub fn or(self, usual: EngineKind) -> EngineKind {
        match self {
            Self::All => usual,
            Self::Only(engine) => engine,
        }
    }
}

impl fmt::Display for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Only(engine) => engine.fmt(f),
        }
    }
}

/// A seed, engines and a layer of files. The text is `SEED/ENGINES/LAYER`, as in `7/all/mmap`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// What decides workload, options, and the order of threads.
    pub seed: u64,
    /// The engines of keyspaces.
    pub engines: Engines,
    /// The layer of all files.
    pub layer: Layer,
}

impl Setting {
    /// With keyspaces on all engines.
    #[must_use]
    pub fn new(seed: u64, layer: Layer) -> Self {
        Self { seed, engines: Engines::All, layer }
    }

    /// The engines of two keyspaces: all pairs of those that there are, in time.
    #[must_use]
    pub fn pair(self) -> [EngineKind; 2] {
        let at = self.seed as usize;
        let count = ENGINES.len();
        [at, at / count + at + 1].map(|at| self.engines.or(ENGINES[at % count]))
    }

    /// Opens two keyspaces for the `opening`th time, on [those engines](Self::pair): other options are drawn for each, and become what `fitting` makes of them with the engine and the seed of the keyspace.
    ///
    /// # Errors
    /// Those of [`Database::keyspace`].
    pub fn open_pair(
        self,
        db: &Database,
        opening: u64,
        fitting: impl Fn(KeyspaceOptions, EngineKind, u64) -> KeyspaceOptions,
    ) -> Result<[Keyspace; 2]> {
        let [one, two] = self.pair();
        let open = |name: &str, engine| {
            let seed = mix(self.seed, name);
            let options = choices::options(engine, seed, opening).layer(self.layer);
            db.keyspace(name, fitting(options, engine, seed))
        };
        Ok([open("one", one)?, open("two", two)?])
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, engines, layer } = self;
        write!(f, "{seed}/{engines}/{layer}")
    }
}

/// The text does not name what there is.
#[derive(Clone, Debug)]
pub struct Unknown {
    what: &'static str,
    text: String,
    known: String,
}

impl Unknown {
    /// `text` is no `what`; `known` says what would be one.
    pub(crate) fn new(what: &'static str, text: &str, known: impl Into<String>) -> Self {
        Self { what, text: text.into(), known: known.into() }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, text, known } = self;
        write!(f, "unknown {what} {text:?}: {known}")
    }
}

impl std::error::Error for Unknown {}

fn names<T: fmt::Display>(all: &[T]) -> String {
    let names = all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("one of {names}")
}

impl FromStr for Engines {
    type Err = Unknown;

    fn from_str(text: &str) -> std::result::Result<Self, Unknown> {
        let all = [vec![Self::All], Self::each()].concat();
        let known = all.iter().copied().find(|known| known.to_string() == text);
        known.ok_or_else(|| Unknown::new("engine", text, names(&all)))
    }
}

/// The [layer](layers) of this name.
///
/// # Errors
/// If there is none.
pub fn layer(text: &str) -> std::result::Result<Layer, Unknown> {
    let all = layers();
    let known = all.iter().copied().find(|known| known.to_string() == text);
    known.ok_or_else(|| Unknown::new("file layer", text, names(&all)))
}

impl FromStr for Setting {
    type Err = Unknown;

    fn from_str(text: &str) -> std::result::Result<Self, Unknown> {
        let parts: Vec<_> = text.split('/').collect();
        let &[seed, engines, of_layer] = &parts[..] else {
            return Err(Unknown::new(
                "setting",
                text,
                "seed, engines and file layer, as in 7/all/mmap",
            ));
        };
        let seed = seed.parse().map_err(|_| Unknown::new("seed", seed, "a whole number"))?;
        Ok(Self { seed, engines: engines.parse()?, layer: layer(of_layer)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_again() {
        for engines in [vec![Engines::All], Engines::each()].concat() {
            for layer in layers() {
                let setting = Setting { seed: u64::MAX, engines, layer };
                assert_eq!(setting.to_string().parse::<Setting>().unwrap(), setting);
            }
        }
        for text in ["", "7/all", "x/all/mmap", "7/none/mmap", "7/all/tape", "7/all/mmap/1"] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
        let error = layer("tape").unwrap_err().to_string();
        assert!(error.contains("tape") && error.contains("pos-direct-cache"), "{error}");
    }
}
