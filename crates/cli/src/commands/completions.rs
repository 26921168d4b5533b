//! `turbidite completions`

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::failure::Result;
use crate::output;

/// Print the completions for a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite completions bash > ~/.local/share/bash-completion/completions/turbidite
  turbidite completions zsh > ~/.zfunc/_turbidite
  turbidite completions fish > ~/.config/fish/completions/turbidite.fish")]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let mut script = Vec::new();
        let mut command = super::Cli::command();
        clap_complete::generate(self.shell, &mut command, "turbidite", &mut script);
        let mut out = output::stdout();
        out.write_all(&script)?;
        Ok(out.flush()?)
    }
}
