//! Runs the command-line tool `warpfeed`.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpfeed_cli::run(std::env::args_os()).into()
}
