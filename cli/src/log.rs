//! Warnings and errors on stderr: the library's, and the program's own.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// Prints warnings and errors from here on.
pub(crate) fn start() {
    // It fails only if there is a subscriber already, and there is none before `main`.
    let _ = tracing::subscriber::set_global_default(Stderr);
}

/// Writes a line to stderr. Unlike `eprintln!` it does not panic when nobody reads there any more,
/// which must not end the work.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
}

struct Stderr;

impl Subscriber for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        say(format_args!("warpfeed: warning: {}{}", text.message, text.fields));
    }

    // Spans are not enabled.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " ({name} {value:?})"),
        };
    }
}
