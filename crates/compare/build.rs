//! Tells the program with which flags it and the libraries in C and C++ are compiled: results are marked with them, because
//! they decide which instructions a library uses.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut flags = Vec::new();
    for (name, variable) in
        [("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"), ("CFLAGS", "CFLAGS"), ("CXXFLAGS", "CXXFLAGS")]
    {
        println!("cargo::rerun-if-env-changed={variable}");
        // Cargo has a separator between the flags of Rust that is no space.
        let text = std::env::var(variable).unwrap_or_default().replace('\x1f', " ");
        if !text.trim().is_empty() {
            flags.push(format!("{name}=\"{}\"", text.trim()));
        }
    }
    let compiled = if flags.is_empty() { "no flags".to_owned() } else { flags.join(" ") };
    println!("cargo::rustc-env=TURBIDITE_COMPARE_COMPILED={compiled}");
}
