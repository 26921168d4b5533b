//! Runs the models of the memtable: its own sources, with atomics that try the orders in which threads may see them.

macro_rules! rooms {
    ($($path:literal $room:ident),* $(,)?) => {
        $(
            #[allow(dead_code, unused_imports, reason = "the models need a part of each room")]
            #[path = $path]
            mod $room;
        )*
    };
}

rooms! {
    "../../src/base/mod.rs" base,
    "../../src/budget.rs" budget,
    "../../src/codec/mod.rs" codec,
    "../../src/error.rs" error,
    "../../src/iter/mod.rs" iter,
    "../../src/memtable/mod.rs" memtable,
    "../../src/options/lsm.rs" options,
    "../../src/planted.rs" planted,
    "../../src/sync/mod.rs" sync,
}

fn main() {
    for (name, model) in memtable::models::ALL {
        let start = std::time::Instant::now();
        let runs = model();
        println!("{name}: {runs} runs, {:.1} s", start.elapsed().as_secs_f64());
    }
}
