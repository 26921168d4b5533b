//! How claims are judged: by the least and the most of the runs that are compared.

use super::numbers::{short, times};
use super::summary::Spread;

/// The rule, in words.
pub(crate) const RULE: &str = "A claim holds here if it does whichever of the runs that it compares are taken, from the least to the \
most, which are in brackets; it does not hold if it does with none of them; and if that depends on which runs are taken, it cannot \
be told here. A factor that a study gives counts as found from two thirds to three halves of it, a range of factors if it is \
met when rounded, and what differs by less than 5 % counts as the same, unless another band is named.";

/// Whether something is so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Truth {
    No,
    /// It depends on which runs are taken.
    Open,
    Yes,
}

impl Truth {
    pub(crate) fn and(self, other: Self) -> Self {
        self.min(other)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        self.max(other)
    }

    fn in_a_word(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Open => "cannot be told",
            Self::Yes => "yes",
        }
    }
}

/// What a figure or a ratio has to be for a claim to hold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Band {
    from: f64,
    to: f64,
}

impl Band {
    /// Less by more than runs of one row differ anyway.
    pub(crate) const LESS: Self = Self::at_most(0.95);
    /// More by as much.
    pub(crate) const MORE: Self = Self::at_least(1.0 / 0.95);
    /// Not more.
    pub(crate) const NOT_MORE: Self = Self::at_most(1.0 / 0.95);
    /// Not less.
    pub(crate) const NOT_LESS: Self = Self::at_least(0.95);

    pub(crate) const fn at_least(least: f64) -> Self {
        Self::between(least, f64::INFINITY)
    }

    pub(crate) const fn at_most(most: f64) -> Self {
        Self::between(0.0, most)
    }

    pub(crate) const fn between(from: f64, to: f64) -> Self {
        Self { from, to }
    }

    /// A factor that a study gives.
    pub(crate) const fn about(factor: f64) -> Self {
        Self::between(factor * 2.0 / 3.0, factor * 3.0 / 2.0)
    }

    /// A range of whole factors that a study gives: what rounds to it.
    pub(crate) const fn rounded(from: f64, to: f64) -> Self {
        Self::between(from - 0.5, to + 0.5)
    }

    /// Whether a figure is in it whichever run is taken.
    pub(crate) fn has(self, figure: Spread) -> Truth {
        let Self { from, to } = self;
        if from <= figure.least && figure.most <= to {
            Truth::Yes
        } else if figure.most < from || to < figure.least {
            Truth::No
        } else {
            Truth::Open
        }
    }

    /// In words, for ratios.
    pub(crate) fn in_words(self) -> String {
        match self {
            Self { from, to: f64::INFINITY } => format!("at least {}", times(from)),
            Self { from: 0.0, to } => format!("at most {}", times(to)),
            Self { from, to } => format!("{} to {}", short(from), times(to)),
        }
    }
}

/// The least and the most, if there is more than one run.
fn range(spread: Spread) -> String {
    match spread.runs {
        ..=1 => String::new(),
        _ => format!(" ({}–{})", short(spread.least), short(spread.most)),
    }
}

/// A rate with its runs: `190k/s (180k–200k)`.
pub(crate) fn rate(spread: Spread) -> String {
    amount(spread, "/s")
}

/// A figure with its unit and its runs: `190 MiB/s (180–200)`.
pub(crate) fn amount(spread: Spread, unit: &str) -> String {
    format!("{}{unit}{}", short(spread.median), range(spread))
}

/// A ratio, or what else is counted in times, with its runs: `3.40 × (3.10–3.80)`.
pub(crate) fn ratio(spread: Spread) -> String {
    format!("{}{}", times(spread.median), range(spread))
}

/// Two rates and their ratio in words, and whether the ratio is in the band that the claim asks for.
pub(crate) fn compare(a: (&str, Spread), b: (&str, Spread), band: Band) -> (Truth, String) {
    let (times, text) = side_by_side(a, b);
    (band.has(times), format!("{text}, asked for {}", band.in_words()))
}

/// The ratio of two rates, and all three in words.
pub(crate) fn side_by_side(a: (&str, Spread), b: (&str, Spread)) -> (Spread, String) {
    let times = a.1.over(b.1);
    let text = format!("{} {}, {} {}: {}", a.0, rate(a.1), b.0, rate(b.1), ratio(times));
    (times, text)
}

/// What is so of most of several cases, each with what it is called.
pub(crate) fn in_most(cases: &[(Truth, String)]) -> (Truth, String) {
    let count = |wanted| cases.iter().filter(|case| case.0 == wanted).count();
    let (holds, open) = (count(Truth::Yes), count(Truth::Open));
    let is_most = |count: usize| 2 * count > cases.len();
    let truth = match (is_most(holds), is_most(holds + open)) {
        (true, _) => Truth::Yes,
        (false, true) => Truth::Open,
        (false, false) => Truth::No,
    };
    let told = cases.iter().map(|(truth, text)| format!("{text}, {}", truth.in_a_word()));
    let told: Vec<_> = told.collect();
    let text = format!(
        "it holds in {holds} of {} cases and cannot be told in {open}; more than half are asked for: {}",
        cases.len(),
        told.join("; ")
    );
    (truth, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(least: f64, median: f64, most: f64) -> Spread {
        Spread { median, least, most, runs: 3 }
    }

    #[test]
    fn what_depends_on_the_run_that_is_taken_is_open() {
        let wanted = Band::between(2.0, 4.0);
        assert_eq!(wanted.has(spread(2.0, 3.0, 4.0)), Truth::Yes);
        assert_eq!(wanted.has(spread(1.9, 3.0, 3.5)), Truth::Open);
        assert_eq!(wanted.has(spread(3.0, 3.5, 4.1)), Truth::Open);
        assert_eq!(wanted.has(spread(1.0, 1.5, 1.9)), Truth::No);
        assert_eq!(wanted.has(spread(4.1, 5.0, 6.0)), Truth::No);
    }

    #[test]
    fn rates_whose_runs_overlap_cannot_be_told_apart() {
        let b = spread(95.0, 100.0, 105.0);
        let verdict = |a| compare(("one", a), ("another", b), Band::MORE);
        assert_eq!(verdict(spread(115.0, 120.0, 125.0)).0, Truth::Yes);
        assert_eq!(verdict(spread(90.0, 120.0, 125.0)).0, Truth::Open);
        assert_eq!(verdict(spread(80.0, 85.0, 90.0)).0, Truth::No);
        let (_, text) = verdict(spread(115.0, 120.0, 125.0));
        assert_eq!(
            text,
            "one 120/s (115–125), another 100/s (95.0–105): 1.20 × (1.10–1.32), asked for at least 1.05 ×"
        );
    }

    #[test]
    fn bands_are_those_that_claims_name() {
        let words = [Band::about(6.0), Band::rounded(3.0, 4.0), Band::LESS, Band::NOT_MORE];
        let expected = ["4.00 to 9.00 ×", "2.50 to 4.50 ×", "at most 0.950 ×", "at most 1.05 ×"];
        assert_eq!(words.map(Band::in_words), expected);
    }

    #[test]
    fn most_cases_decide() {
        let verdict = |truths: &[Truth]| {
            in_most(&truths.iter().map(|&truth| (truth, "x".to_owned())).collect::<Vec<_>>())
        };
        assert_eq!(verdict(&[Truth::Yes, Truth::Yes, Truth::No]).0, Truth::Yes);
        assert_eq!(verdict(&[Truth::Yes, Truth::Open, Truth::No]).0, Truth::Open);
        assert_eq!(verdict(&[Truth::Yes, Truth::Yes, Truth::No, Truth::No]).0, Truth::No);
        let (_, text) = verdict(&[Truth::Yes, Truth::Open, Truth::No]);
        assert!(text.starts_with("it holds in 1 of 3 cases and cannot be told in 1;"), "{text}");
        assert!(text.ends_with("x, yes; x, cannot be told; x, no"), "{text}");
    }
}
