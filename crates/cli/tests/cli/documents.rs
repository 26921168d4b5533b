//! Help, manual pages, completions.

use super::*;

const COMMANDS: [&str; 18] = [
    "put",
    "get",
    "nth",
    "rank",
    "delete",
    "clear",
    "scan",
    "count",
    "import",
    "export",
    "keyspaces",
    "stats",
    "verify",
    "compact",
    "watch",
    "bench",
    "completions",
    "man",
];

#[test]
fn help_tells_commands_and_exit_codes() {
    let place = Place::new();
    let help = place.run(&["--help"]).text();
    assert!(COMMANDS.iter().all(|name| help.contains(&format!("\n  {name} "))), "{help}");
    assert!(help.contains("Exit codes:") && help.contains("  4  the database is in use"), "{help}");
    for name in COMMANDS {
        let help = place.run(&[name, "--help"]).text();
        assert!(help.contains("Example") && help.contains(&format!("turbidite {name}")), "{help}");
    }
    for name in COMMANDS.iter().filter(|name| !["bench", "completions", "man"].contains(name)) {
        let help = place.run(&[name, "--help"]).text();
        assert!(help.contains("--recovery") && help.contains("are dropped"), "{help}");
    }
    let version = place.run(&["--version"]).text();
    assert_eq!(version, format!("turbidite {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn manual_pages() {
    let place = Place::new();
    let page = place.run(&["man"]).text();
    assert!(page.contains(".TH TURBIDITE 1") && page.contains("EXIT CODES"), "{page}");
    let dir = place.path("man/man1");
    place.run(&["man", dir.to_str().unwrap()]).good();
    assert_eq!(fs::read_to_string(dir.join("turbidite.1")).unwrap(), page);
    for name in COMMANDS {
        let page = fs::read_to_string(dir.join(format!("turbidite-{name}.1"))).unwrap();
        assert!(page.contains("EXAMPLE") && page.contains("EXIT CODES"), "{page}");
    }
    let torture = usize::from(cfg!(feature = "torture"));
    assert_eq!(fs::read_dir(dir).unwrap().count(), 1 + COMMANDS.len() + torture);
    let file = place.file("file", b"");
    place.run(&["man", &file]).bad(5);
}

#[test]
fn completions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completions", shell]).text();
        assert!(COMMANDS.iter().all(|name| script.contains(name)), "{shell}");
    }
    assert_eq!(place.run(&["completions", "abacus"]).code, Some(2));
}
