//! Records events after the queued work of every device that the program may be using.
//!
//! Any device can read page-locked memory, and the loader cannot know which stream is reading it.
//! So released memory is reused only once every device has finished the work that was submitted
//! before the release.
//!
//! The module considers devices with an active primary context. The runtime API, libtorch, candle,
//! burn and cudarc use primary contexts. Contexts that a program creates itself are not tracked.
//!
//! **Invariants**
//! 1. A context is made current before any driver call that blocks on it.

#![allow(unsafe_code)]

use std::sync::Mutex;

use cudarc::driver::result;

use super::capture;
use super::driver::{Context, Doing, device_count};
use super::event::Event;
use super::stream::Stream;
use crate::device::gpu::Recorded;
use crate::device::handoff::Marked;
use crate::error::Result;

pub(crate) struct Devices {
    contexts: Mutex<Vec<Option<Context>>>,
    spare: Mutex<Vec<Event>>,
}

#[derive(Default)]
pub(crate) struct Mark(Vec<Event>);

impl Devices {
    pub(crate) fn new() -> Self {
        let contexts = Mutex::new((0..device_count()).map(|_| None).collect());
        Devices { contexts, spare: Mutex::default() }
    }

    /// Marks all work that has been submitted to the devices. Drivers before CUDA 12.5 cannot do
    /// this. With them, the host waits for the work if `block` is true.
    pub(crate) fn mark_all(&self, block: bool) -> Result<Marked<Mark>> {
        let mut mark = Mark::default();
        for context in self.active()? {
            let event = self.event(&context)?;
            let recorded = event.record_all()?;
            mark.0.push(event);
            let refused = match recorded {
                Recorded::Yes => None,
                Recorded::NotNow => Some(Marked::Capturing),
                // This driver cannot record the event, so wait here. The event in `mark` then has
                // no pending recording, which counts as done.
                Recorded::Never if block => (!finish(&context)?).then_some(Marked::Capturing),
                Recorded::Never => Some(Marked::Unable),
            };
            if let Some(refused) = refused {
                self.recycle(mark);
                return Ok(refused);
            }
        }
        Ok(Marked::At(mark))
    }

    /// Returns the contexts of the devices that the program uses. They are clones, so that the
    /// caller can wait without holding the lock.
    fn active(&self) -> Result<Vec<Context>> {
        let mut contexts = self.contexts.lock().expect("no code panics while holding this lock");
        for (ordinal, context) in contexts.iter_mut().enumerate() {
            if context.is_none() {
                *context = Context::if_active(ordinal)?;
            }
        }
        Ok(contexts.iter().flatten().cloned().collect())
    }

    pub(crate) fn mark(&self, stream: &Stream) -> Result<Mark> {
        let event = self.event(stream.context())?;
        event.record(stream)?;
        Ok(Mark(vec![event]))
    }

    /// Returns whether the marked work is done. Fails if the work failed.
    pub(crate) fn is_done(&self, mark: &Mark) -> Result<bool> {
        for event in &mark.0 {
            if !event.is_done()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn recycle(&self, mark: Mark) {
        self.spare.lock().expect("no code panics while holding this lock").extend(mark.0);
    }

    fn event(&self, context: &Context) -> Result<Event> {
        let mut spare = self.spare.lock().expect("no code panics while holding this lock");
        match spare.iter().position(|event| event.context() == context) {
            Some(index) => Ok(spare.swap_remove(index)),
            None => Event::new(context),
        }
    }
}

/// Waits for all work of a context. Returns `false` immediately if one of its known streams is
/// being captured (see `capture`).
pub(super) fn finish(context: &Context) -> Result<bool> {
    let _entered = context.enter()?;
    if capture::any_capture(context) {
        return Ok(false);
    }
    result::ctx::synchronize().doing(|| "synchronizing the CUDA context").map(|()| true)
}
