//! What becomes of claims.

/// What became of a claim.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Verdict {
    Holds(String),
    DoesNotHold(String),
    /// It depends on which of the runs are taken.
    CannotBeTold(String),
    /// It would have to be run at the size of the study, and was run with so many records.
    Smaller(String),
    /// The tables that it compares were run on different machines.
    OtherMachines,
    /// What would have to be run.
    NotRun,
}

impl Verdict {
    /// How it is called.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Holds(_) => "Holds here",
            Self::DoesNotHold(_) => "Does not hold here",
            Self::CannotBeTold(_) => "Cannot be told here",
            Self::Smaller(_) => "Not run at the study's size",
            Self::OtherMachines => "Measured on different machines",
            Self::NotRun => "Not measured",
        }
    }

    /// What it rests on.
    pub(crate) fn figures(&self) -> &str {
        match self {
            Self::Holds(figures)
            | Self::DoesNotHold(figures)
            | Self::CannotBeTold(figures)
            | Self::Smaller(figures) => figures,
            Self::OtherMachines => {
                "it compares figures of two tables, which were run on different machines"
            }
            Self::NotRun => {
                "its rows were not run, or to no more than smoke, or a system is missing"
            }
        }
    }
}
