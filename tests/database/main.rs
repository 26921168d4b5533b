//! One binary for the tests of the whole database through its public interface.

mod crash;
mod faults;
mod flip;
mod history;
mod kill;
