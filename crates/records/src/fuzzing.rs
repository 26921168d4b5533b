//! The entry point for the fuzz target `records`, which a test gives the inputs in `fuzz/corpus/records`, and these with changes.

use std::io::Cursor;
use std::path::Path;

use crate::{Format, Lines, Parser};

/// Reads a file behind a byte that says how.
///
/// # Panics
/// If the pieces are not the file.
pub fn records(bytes: &[u8]) {
    let Some((how, text)) = bytes.split_first() else { return };
    let format = [Format::Tsv, Format::Csv, Format::Jsonl][usize::from(how % 3)];
    let key = ["line", "1", "2", "id"][usize::from(how / 3 % 4)];
    let lines = Lines::new(Box::new(Cursor::new(text.to_vec())), Path::new("text"));
    let Ok((mut parser, front)) = Parser::new(lines, format, None, how / 12 % 2 == 1, key) else {
        return;
    };
    let (mut all, mut raw) = (front.concat(), Vec::new());
    while let Ok(Some(_)) = parser.next(&mut raw) {
        all.extend_from_slice(&raw);
    }
    assert!(all == text, "the pieces are not the file");
    assert_eq!(parser.bytes(), text.len() as u64);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn inputs() -> Vec<Vec<u8>> {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/records");
        let files = fs::read_dir(corpus).unwrap();
        files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
    }

    #[test]
    fn inputs_do_no_harm() {
        let inputs = inputs();
        assert!(inputs.len() > 10);
        inputs.iter().for_each(|input| records(input));
        let how = |input: &Vec<u8>| input.first().map(|how| how % 24);
        let ways: std::collections::BTreeSet<_> = inputs.iter().filter_map(how).collect();
        assert!(ways.len() > 10, "{ways:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

        #[test]
        fn changed_inputs_do_no_harm(
            which in any::<prop::sample::Index>(),
            changes in prop::collection::vec(
                (any::<prop::sample::Index>(), prop::sample::select(b"\0\t\n\r\"\\,:{}[]a1\xff\xef".to_vec()), 0..3),
                1..5,
            ),
        ) {
            let inputs = inputs();
            let mut input = which.get(&inputs).clone();
            for (at, byte, kind) in changes {
                let at = at.index(input.len() + 1);
                match kind {
                    0 => input.insert(at, byte),
                    _ if at == input.len() => input.push(byte),
                    1 => input[at] = byte,
                    _ => _ = input.remove(at),
                }
            }
            records(&input);
        }
    }
}
