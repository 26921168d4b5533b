//! One colour for each system, throughout: for light and for dark pages, as CSS variables.

/// The colours of a system: on light pages and on dark ones.
const COLOURS: [(&str, &str, &str); 14] = [
    ("turbidite-lsm", "#0d9488", "#2dd4bf"),
    ("turbidite-hash", "#2563eb", "#60a5fa"),
    ("turbidite-btree", "#4d9a0c", "#a3e635"),
    ("turbidite-skip", "#7c3aed", "#a78bfa"),
    ("rocksdb", "#d97706", "#fbbf24"),
    ("fjall", "#db2777", "#f472b6"),
    ("redb", "#b91c1c", "#f87171"),
    ("lmdb", "#8a5a2b", "#d6a77a"),
    ("tkrzw", "#a21caf", "#e879f9"),
    ("vec-log", "#6b7280", "#9ca3af"),
    ("skipmap-log", "#374151", "#d1d5db"),
    ("vec", "#94a3b8", "#64748b"),
    ("skipmap", "#52525b", "#a1a1aa"),
    ("file", "#78716c", "#a8a29e"),
];

/// The variable with the colour of a system.
pub(crate) fn of(system: &str) -> String {
    format!("var(--{system})")
}

/// The variables of plots, for light and dark pages.
pub(crate) fn css() -> String {
    let pick = |dark: bool| -> String {
        COLOURS
            .iter()
            .map(|(name, light, night)| format!("--{name}:{};", if dark { night } else { light }))
            .collect()
    };
    format!(
        ":root{{--ink:#1f2933;--soft:#5b6770;--grid:#dde3e8;--paper:#ffffff;--raised:#f6f8f9;{}}}\n\
         @media (prefers-color-scheme: dark){{:root{{--ink:#e6eaed;--soft:#9aa5ad;--grid:#323b42;--paper:#14181b;\
         --raised:#1c2125;{}}}}}\n\
         @media print{{:root{{--ink:#000000;--soft:#444444;--grid:#cccccc;--paper:#ffffff;--raised:#ffffff;{}}}}}\n",
        pick(false),
        pick(true),
        pick(false),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems;

    #[test]
    fn every_system_has_a_colour() {
        for kind in systems::kinds() {
            assert!(COLOURS.iter().any(|(name, ..)| *name == kind.name), "{}", kind.name);
        }
    }
}
