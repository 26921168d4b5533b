//! The names of cases: what was damaged, and how.

use std::fmt;
use std::str::FromStr;

use super::{PAGE, SECTOR};
use crate::setting::{Setting, Unknown};

/// How the database was left before it was damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It was closed.
    Closed,
    /// Its files are as they were while it was open, and synced.
    Unclosed,
    /// The same with some commits more, which were acknowledged and not synced. Only the log is damaged.
    Unsynced,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Unclosed, Self::Unsynced];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "closed",
            Self::Unclosed => "unclosed",
            Self::Unsynced => "unsynced",
        })
    }
}

/// What a sector has in the place of what was written to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filling {
    /// Zeros, as where a write was lost.
    Zeros,
    /// Random bytes.
    Garbage,
}

impl Filling {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Zeros, Self::Garbage];
}

impl fmt::Display for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zeros => "zeros",
            Self::Garbage => "garbage",
        })
    }
}

/// What a disk may put in the wrong place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    /// 4096 bytes.
    Page,
    /// 512 bytes.
    Sector,
}

impl Block {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Page, Self::Sector];

    /// How many bytes it has.
    pub(super) fn len(self) -> usize {
        match self {
            Self::Page => PAGE,
            Self::Sector => SECTOR,
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Page => "page",
            Self::Sector => "sector",
        })
    }
}

/// What is done to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Damage {
    /// One bit is flipped: the lowest one of the first byte is bit 0.
    Bit(u64),
    /// All bits of the byte at this offset are flipped.
    Byte(u64),
    /// The file is cut off at this length.
    Cut(u64),
    /// The file is removed.
    Missing,
    /// The 512 bytes at this offset have something else.
    Sector(u64, Filling),
    /// The 4096 bytes at this offset are as they were before they were last written.
    Stale(u64),
    /// A block has the bytes of another one of the same file.
    Misplaced {
        /// What it is.
        block: Block,
        /// Where the bytes belong,
        from: u64,
        /// and where they are, too.
        to: u64,
    },
    /// The file and this other one have each other's bytes.
    Swapped(String),
    /// The file has the bytes of the one at its place in another database with the same history.
    Foreign,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bit(bit) => write!(f, "bit:{bit}"),
            Self::Byte(offset) => write!(f, "byte:{offset}"),
            Self::Cut(len) => write!(f, "cut:{len}"),
            Self::Missing => f.write_str("missing"),
            Self::Sector(offset, filling) => write!(f, "sector:{offset}:{filling}"),
            Self::Stale(offset) => write!(f, "stale:{offset}"),
            Self::Misplaced { block, from, to } => write!(f, "misplaced:{block}:{from}:{to}"),
            Self::Swapped(other) => write!(f, "swapped:{}", flat(other)),
            Self::Foreign => f.write_str("foreign"),
        }
    }
}

impl Damage {
    /// What kind of damage it is.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Bit(_) => "bit",
            Self::Byte(_) => "byte",
            Self::Cut(_) => "cut",
            Self::Missing => "missing",
            Self::Sector(..) => "sector",
            Self::Stale(_) => "stale",
            Self::Misplaced { .. } => "misplaced",
            Self::Swapped(_) => "swapped",
            Self::Foreign => "foreign",
        }
    }

    /// Damage to less of the same: each byte of what is in the place of other bytes, or each bit of a byte.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let bytes = |from: u64, len| (from..from + len as u64).map(Self::Byte).collect();
        match *self {
            Self::Byte(at) => (8 * at..8 * at + 8).map(Self::Bit).collect(),
            Self::Sector(from, _) => bytes(from, SECTOR),
            Self::Stale(from) => bytes(from, PAGE),
            Self::Misplaced { block, to, .. } => bytes(to, block.len()),
            Self::Bit(_) | Self::Cut(_) | Self::Missing | Self::Swapped(_) | Self::Foreign => {
                vec![]
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, what) = text.split_once(':').unwrap_or((text, ""));
        Some(match kind {
            "bit" => Self::Bit(what.parse().ok()?),
            "byte" => Self::Byte(what.parse().ok()?),
            "cut" => Self::Cut(what.parse().ok()?),
            "missing" if text == kind => Self::Missing,
            "sector" => {
                let (offset, filling) = what.split_once(':')?;
                Self::Sector(offset.parse().ok()?, named(Filling::ALL, filling)?)
            }
            "stale" => Self::Stale(what.parse().ok()?),
            "misplaced" => {
                let (block, offsets) = what.split_once(':')?;
                let (from, to) = offsets.split_once(':')?;
                let block = named(Block::ALL, block)?;
                Self::Misplaced { block, from: from.parse().ok()?, to: to.parse().ok()? }
            }
            "swapped" if !what.is_empty() => Self::Swapped(nested(what)),
            "foreign" if text == kind => Self::Foreign,
            _ => return None,
        })
    }
}

/// The one of `all` with this name.
fn named<T: fmt::Display>(all: impl IntoIterator<Item = T>, name: &str) -> Option<T> {
    all.into_iter().find(|one| one.to_string() == name)
}

/// A path as one part of a name.
fn flat(path: &str) -> String {
    path.replace('/', "+")
}

/// The path that such a part stands for.
fn nested(part: &str) -> String {
    part.replace('+', "/")
}

/// The name of a case. Its text is `flip/SEED/ENGINES/LAYER/STATE/FILE/DAMAGE`, as in
/// `flip/7/lsm/mmap/closed/keyspaces+1+000001.table/bit:12345`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaseId {
    /// Seed, engines and files of the database.
    pub setting: Setting,
    /// How the database was left.
    pub state: State,
    /// The file, as a path in the database's directory with `/` between its parts.
    pub file: String,
    /// What is done to it.
    pub damage: Damage,
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, state, file, damage } = self;
        write!(f, "flip/{setting}/{state}/{}/{damage}", flat(file))
    }
}

impl FromStr for CaseId {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let known = "as in flip/7/all/mmap/closed/catalog-000001/bit:12";
        Self::parse(text).ok_or_else(|| Unknown::new("case", text, known))
    }
}

impl CaseId {
    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split('/').collect();
        let &["flip", seed, engines, layer, state, file, damage] = &parts[..] else { return None };
        if file.is_empty() {
            return None;
        }
        Some(Self {
            setting: [seed, engines, layer].join("/").parse().ok()?,
            state: named(State::ALL, state)?,
            file: nested(file),
            damage: Damage::parse(damage)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use turbidite::{EngineKind, Layer};

    use super::*;
    use crate::setting::Engines;

    fn id(damage: Damage) -> CaseId {
        let file = "keyspaces/1/000001.table".to_owned();
        let engines = Engines::Only(EngineKind::Lsm);
        let setting = Setting { engines, ..Setting::new(7, Layer::Mmap) };
        CaseId { setting, state: State::Closed, file, damage }
    }

    #[test]
    fn the_name_of_a_case_is_read_again() {
        let damages = [
            Damage::Bit(12345),
            Damage::Byte(0),
            Damage::Cut(u64::MAX),
            Damage::Missing,
            Damage::Sector(512, Filling::Zeros),
            Damage::Sector(0, Filling::Garbage),
            Damage::Stale(4096),
            Damage::Misplaced { block: Block::Page, from: 8192, to: 4096 },
            Damage::Misplaced { block: Block::Sector, from: 0, to: 512 },
            Damage::Swapped("keyspaces/2/000001.table".into()),
            Damage::Foreign,
        ];
        for damage in damages {
            for state in State::ALL {
                let id = CaseId { state, ..id(damage.clone()) };
                assert_eq!(id.to_string().parse::<CaseId>().unwrap(), id);
            }
        }
        let text = "flip/7/lsm/mmap/closed/keyspaces+1+000001.table/bit:12345";
        assert_eq!(id(Damage::Bit(12345)).to_string(), text);
    }

    #[test]
    fn damage_is_made_smaller_until_it_is_a_bit() {
        let misplaced = Damage::Misplaced { block: Block::Sector, from: 0, to: 512 };
        let sector = Damage::Sector(512, Filling::Zeros);
        for damage in [misplaced, sector] {
            let smaller = damage.smaller();
            assert_eq!(smaller.len(), 512);
            assert_eq!((&smaller[0], &smaller[511]), (&Damage::Byte(512), &Damage::Byte(1023)));
        }
        assert_eq!(Damage::Stale(4096).smaller()[4095], Damage::Byte(8191));
        let bits = Damage::Byte(2).smaller();
        assert_eq!((bits.len(), &bits[0], &bits[7]), (8, &Damage::Bit(16), &Damage::Bit(23)));
        for damage in [Damage::Bit(1), Damage::Missing, Damage::Cut(1), Damage::Foreign] {
            assert!(damage.smaller().is_empty(), "{damage}");
        }
    }

    #[test]
    fn other_texts_are_no_names() {
        let before = "flip/7/lsm/mmap/closed/catalog-000001";
        for text in [
            "".to_owned(),
            before.to_owned(),
            format!("{before}/bit"),
            format!("{before}/bit:-1"),
            format!("{before}/missing:1"),
            format!("{before}/sector:512"),
            format!("{before}/sector:512:ones"),
            format!("{before}/misplaced:8192:4096"),
            format!("{before}/misplaced:page:8192"),
            format!("{before}/misplaced:byte:8192:4096"),
            format!("{before}/misplaced:page:8192:4096:0"),
            format!("{before}/swapped:"),
            format!("{before}/bit:1/"),
            "flip/7/lsm/mmap/closed//bit:1".to_owned(),
            "flip/7/heap/mmap/closed/catalog-000001/bit:1".to_owned(),
            "flip/x/lsm/mmap/closed/catalog-000001/bit:1".to_owned(),
            "crash/7/lsm/mmap/closed/catalog-000001/bit:1".to_owned(),
        ] {
            let error = text.parse::<CaseId>().unwrap_err().to_string();
            assert!(error.contains("flip/7/all/mmap/closed/catalog-000001/bit:12"), "{error}");
        }
    }
}
