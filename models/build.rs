//! Has the sources take their atomics from loom.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom, fuzzing, turbidite_planted_bugs)");
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}
