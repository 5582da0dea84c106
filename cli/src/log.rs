//! Warnings and errors on stderr: the library's, and the program's own.

use std::fmt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Prints warnings and errors from here on.
pub(crate) fn start() {
    // Whoever closes stderr does not want to hear of it, and must not end the work.
    let log = tracing_subscriber::fmt().with_max_level(Level::WARN).log_internal_errors(false);
    log.with_writer(std::io::stderr).event_format(Line).init();
}

/// Writes a line to stderr. Unlike `eprintln!` it does not panic when nobody reads there any more,
/// which must not end the work.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
}

/// What the library says looks like what the program says.
struct Line;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for Line {
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        write!(to, "warpfeed: warning: ")?;
        context.format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}
