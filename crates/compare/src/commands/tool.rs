//! `tool`: what a system that is a program of its own is started through.

use std::ffi::OsString;

use clap::Args;

use crate::failure::Result;
use crate::run::process;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The program
    program: OsString,
    /// What it is given
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        process::become_tool(&self.program, &self.arguments)
    }
}
