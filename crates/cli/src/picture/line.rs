//! A line of text of which parts may have colours.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

/// The colours of claims, one after the other.
const COLOURS: [AnsiColor; 5] =
    [AnsiColor::Yellow, AnsiColor::Cyan, AnsiColor::Magenta, AnsiColor::Green, AnsiColor::Red];

/// A line: characters, each with the number of a claim if it is to show one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Line(Vec<(char, Option<u64>)>);

impl Line {
    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        Self(text.as_ref().chars().map(|c| (c, None)).collect())
    }

    pub(super) fn push(&mut self, c: char, claim: Option<u64>) {
        self.0.push((c, claim));
    }

    /// Writes as many characters as fit, and no end of the line; colours end with it.
    pub(crate) fn write(&self, width: usize, out: &mut impl Write) -> io::Result<()> {
        let shown = &self.0[..self.0.len().min(width)];
        for part in shown.chunk_by(|(_, a), (_, b)| a == b) {
            let text: String = part.iter().map(|(c, _)| c).collect();
            match part[0].1 {
                Some(claim) => {
                    let colour = COLOURS[(claim % COLOURS.len() as u64) as usize];
                    let style = Style::new().fg_color(Some(colour.into())).invert();
                    write!(out, "{style}{text}{style:#}")?;
                }
                None => write!(out, "{text}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_and_colours_end() {
        let mut line = Line::text("ab");
        line.push('c', Some(0));
        line.push('d', Some(0));
        let write = |line: &Line, width| {
            let mut out = Vec::new();
            line.write(width, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(write(&line, 2), "ab");
        assert!(write(&line, 3).ends_with("c\x1b[0m"));
        assert!(write(&line, 80).contains("cd"));
    }
}
