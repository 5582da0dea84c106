//! Panics of the user's code, reported once for each place.
//!
//! A source that panics for a hundred samples gives an error for each. Without this module the
//! panic hook would also print a hundred reports. The loader puts a hook of its own in front of the
//! existing one, once in a process. It passes on every panic except one kind: a guarded panic of
//! the user's code at a place that the same loader has reported before.

use std::cell::{Cell, RefCell};
use std::panic::{Location, PanicHookInfo};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};

/// Places that are remembered. Panics at any further place are all reported.
const MOST_PLACES: usize = 256;

thread_local! {
    /// How many guards the thread is in.
    static GUARDS: Cell<usize> = const { Cell::new(0) };
    /// The reports of the loader that the thread works for.
    static REPORTS: RefCell<Option<Arc<Reports>>> = const { RefCell::new(None) };
}

/// The panics that a loader has reported.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    places: Mutex<Vec<(String, u32, u32)>>,
    left_out: AtomicU64,
}

impl Reports {
    /// Reports of a new loader. The hook is in place from now on.
    pub(crate) fn new() -> Arc<Self> {
        static HOOK: Once = Once::new();
        // A hook cannot be changed by a thread that is panicking.
        if !std::thread::panicking() {
            HOOK.call_once(|| {
                let found = std::panic::take_hook();
                std::panic::set_hook(Box::new(move |info| {
                    if is_news(info) {
                        found(info);
                    }
                }));
            });
        }
        Arc::default()
    }

    /// The calling thread works for this loader.
    pub(crate) fn serve(self: &Arc<Self>) {
        REPORTS.set(Some(self.clone()));
    }

    /// Number of panics that were not reported.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Whether nothing was reported at `place` before.
    fn is_first(&self, place: &Location<'_>) -> bool {
        let place = (place.file().to_owned(), place.line(), place.column());
        let Ok(mut places) = self.places.lock() else { return true };
        let known = places.contains(&place);
        if known {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        } else if places.len() < MOST_PLACES {
            places.push(place);
        }
        !known
    }
}

fn is_news(info: &PanicHookInfo<'_>) -> bool {
    let guarded = GUARDS.try_with(|guards| guards.get() > 0).unwrap_or(false);
    let Some(place) = info.location().filter(|_| guarded) else { return true };
    REPORTS.try_with(|reports| reports.borrow().as_ref().is_none_or(|reports| reports.is_first(place))).unwrap_or(true)
}

/// While it lives, the loader catches a panic of the thread and turns it into an error.
pub(super) struct Guard(());

impl Guard {
    pub(super) fn new() -> Self {
        GUARDS.set(GUARDS.get() + 1);
        Guard(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        GUARDS.set(GUARDS.get() - 1);
    }
}
