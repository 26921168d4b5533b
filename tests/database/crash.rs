//! Power cuts and kills at every I/O boundary of a workload, and in the recoveries from them.

use turbidite::Layer;
use turbidite_torture::Setting;
use turbidite_torture::crash::{Effort, run};

use crate::choices;

/// How many random images there are at each boundary, and half of how many more boundaries there are than asked for.
fn randoms() -> usize {
    std::env::var("TURBIDITE_CRASH_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

/// Cuts the power at every `step`-th boundary of the workload, at more of them with more effort.
fn cut_everywhere(layer: Layer, step: usize) {
    let randoms = randoms();
    let effort = Effort { randoms, ..Effort::one_in((2 * step / randoms.max(1)).max(1)) };
    let report = run(Setting::new(choices::seed(), layer), effort, |_| true);
    println!("{layer}: {} images of {} operations", report.cases, report.operations);
    let told: Vec<_> = report.violations.iter().take(40).collect();
    // Where the layer has its usual sizes the name is one for `torture replay`, but here threads are in any order.
    let told = told.iter().map(|violation| format!("{}: {}", violation.case, violation.problem));
    assert!(
        report.violations.is_empty(),
        "{} images were not recovered:\n{}",
        report.violations.len(),
        told.collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn every_power_cut_leaves_a_prefix_with_all_that_was_promised() {
    cut_everywhere(Layer::Positional, 2);
    cut_everywhere(Layer::Mmap, 12);
}

#[test]
fn power_cuts_while_whole_blocks_are_written_leave_a_prefix() {
    cut_everywhere(Layer::Block { block_size: 4096 }, 12);
    cut_everywhere(Layer::Direct { block_size: 4096 }, 12);
}

#[test]
fn power_cuts_while_pages_are_written_back_leave_a_prefix() {
    cut_everywhere(Layer::BlockCache { block_size: 4096, pages: 16 }, 12);
    cut_everywhere(Layer::DirectCache { block_size: 512, pages: 64 }, 12);
}
