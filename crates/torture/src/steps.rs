//! Which steps of a workload are done, so that one that fails can be made shorter.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Instant;

/// The steps of a workload that are done, of which there are at most 128. The text has a bit for each, in hexadecimal digits, the first
/// step being the lowest bit; that of all is `all`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steps(u128);

impl Steps {
    /// All there are.
    pub const ALL: Self = Self(u128::MAX);

    /// Whether the step of this number is done, counted from 0.
    #[must_use]
    pub fn has(self, number: usize) -> bool {
        u32::try_from(number).is_ok_and(|number| self.0.checked_shr(number).unwrap_or(0) & 1 > 0)
    }

    fn without(self, numbers: Range<usize>) -> Self {
        let out: u128 = numbers.filter(|&number| number < 128).map(|number| 1 << number).sum();
        Self(self.0 & !out)
    }

    /// Those of `all` that are done.
    pub(crate) fn of<T: Copy>(self, all: &[T]) -> Vec<T> {
        let done = all.iter().enumerate().filter(|(number, _)| self.has(*number));
        done.map(|(_, &step)| step).collect()
    }

    /// What the name of a case ends with, if it is not of all steps.
    pub(crate) fn suffix(self) -> String {
        if self == Self::ALL { String::new() } else { format!("/steps:{self}") }
    }

    /// The parts of the name of a case without that, and the steps.
    pub(crate) fn split(text: &str) -> Option<(Vec<&str>, Self)> {
        let (parts, steps) = match text.split_once("/steps:") {
            Some((parts, steps)) => (parts, steps.parse().ok()?),
            None => (text, Self::ALL),
        };
        Some((parts.split('/').collect(), steps))
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL { f.write_str("all") } else { write!(f, "{:x}", self.0) }
    }
}

impl FromStr for Steps {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" { Ok(Self::ALL) } else { u128::from_str_radix(text, 16).map(Self) }
    }
}

/// Leaves out steps for as long as the others still fail, and there is time: half of them at once, then smaller parts, at last single ones, until all
/// that is left is needed (after Zeller and Hildebrandt, 2002). The steps have these `numbers`. `None` if none can go.
pub(crate) fn shorten<T>(
    numbers: Range<usize>,
    until: Instant,
    failing: impl Fn(Steps) -> Option<T>,
) -> Option<(Steps, T)> {
    let Range { start, end } = numbers;
    // There are none behind the last one.
    let mut steps = Steps::ALL.without(end..128);
    let mut found = None;
    let mut part = numbers.len().div_ceil(2).max(1);
    loop {
        let mut is_shorter = false;
        let mut behind = end;
        while behind > start {
            let first = behind.saturating_sub(part).max(start);
            let fewer = steps.without(first..behind);
            behind = first;
            if fewer == steps {
                continue;
            }
            if Instant::now() >= until {
                return found;
            }
            if let Some(failure) = failing(fewer) {
                (steps, found, is_shorter) = (fewer, Some((fewer, failure)), true);
            }
        }
        if part == 1 && !is_shorter {
            return found;
        }
        part = part.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn what_is_needed_stays() {
        let failing = |steps: Steps| (steps.has(3) && steps.has(40) && steps.has(41)).then_some(7);
        let (steps, found) = shorten(0..70, soon(), failing).unwrap();
        assert_eq!((steps.of(&[(); 70]).len(), found), (3, 7));
        assert!(steps.has(3) && steps.has(40) && steps.has(41) && !steps.has(99));
        let (steps, _) = shorten(2..70, soon(), failing).unwrap();
        assert!(steps.has(0) && steps.has(1) && !steps.has(2));
        assert!(shorten(0..70, soon(), |_| None::<()>).is_none());
        assert!(shorten(0..70, Instant::now(), |_| Some(())).is_none());
    }

    #[test]
    fn few_attempts_are_needed_if_one_step_fails() {
        let attempts = Cell::new(0);
        let failing = |steps: Steps| {
            attempts.set(attempts.get() + 1);
            steps.has(57).then_some(())
        };
        assert_eq!(shorten(0..128, soon(), failing).unwrap().0.of(&[(); 128]).len(), 1);
        assert!(attempts.get() < 40, "{}", attempts.get());
    }

    #[test]
    fn steps_are_read_again() {
        for steps in [Steps::ALL, Steps(0), Steps(0xf00d), Steps::ALL.without(3..4)] {
            assert_eq!(steps.to_string().parse(), Ok(steps));
            let text = format!("crash/7{}", steps.suffix());
            assert_eq!(Steps::split(&text), Some((vec!["crash", "7"], steps)));
        }
        assert_eq!(Steps::split("crash/7/steps:none"), None);
        assert!(Steps::ALL.has(127) && !Steps::ALL.has(128) && !Steps::ALL.has(1 << 40));
    }
}
