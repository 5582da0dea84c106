//! Prints the warnings and errors of the library and of the tool to stderr.

use std::fmt;

use crate::option_names::in_flags;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

pub(crate) fn start() {
    // A closed stderr must not stop the tool.
    let log = tracing_subscriber::fmt().with_max_level(Level::WARN).log_internal_errors(false);
    let _ = log.with_writer(std::io::stderr).event_format(WarningFormat).try_init();
}

/// Prints a line to stderr. Unlike `eprintln!`, this function does not panic if stderr is closed.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
}

/// Prints a warning to stderr in the format of the tool, with the options in `message` as
/// command-line flags. The Python package, which has its own log subscriber, calls this function.
pub fn warn(message: &str) {
    say(format_args!("warpfeed: warning: {}", in_flags(message)));
}

struct WarningFormat;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N>
    for WarningFormat
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        write!(out, "warpfeed: warning: ")?;
        let mut message = String::new();
        context.format_fields(Writer::new(&mut message), event)?;
        out.write_str(&in_flags(&message))?;
        writeln!(out)
    }
}
