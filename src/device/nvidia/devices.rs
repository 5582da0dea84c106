#![allow(unsafe_code)]
//! Records marks after the work of all devices that the program may be using.
//!
//! Every device can read page-locked memory, and a slice of such memory does not reveal which
//! stream reads it. Released memory therefore counts as in use until every device has completed the
//! work submitted before the release. The devices of a program are the ones with an active primary
//! context. cudarc's usual contexts, candle, burn, libtorch and the runtime API use primary
//! contexts. Contexts that a program creates itself are not watched.
//!
//! **Invariants**
//! 1. A context is entered before any call that makes the driver wait for it.

use std::sync::Mutex;

use cudarc::driver::result;

use super::capture;
use super::driver::{Context, Doing, device_count};
use super::event::Event;
use super::stream::Stream;
use crate::device::gpu::Recorded;
use crate::device::handoff::Marked;
use crate::error::Result;

/// The watched contexts, and spare events for new marks.
pub(crate) struct Devices {
    contexts: Mutex<Vec<Option<Context>>>,
    spare: Mutex<Vec<Event>>,
}

/// A snapshot of the work submitted to a set of streams or contexts: events recorded after it.
#[derive(Default)]
pub(crate) struct Mark(Vec<Event>);

impl Devices {
    pub(crate) fn new() -> Self {
        let contexts = Mutex::new((0..device_count()).map(|_| None).collect());
        Devices { contexts, spare: Mutex::default() }
    }

    /// Marks all work submitted to the devices so far. Drivers before CUDA 12.5 do not support
    /// this; with such a driver, the host waits for the work if `block` is set.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
    pub(crate) fn mark_all(&self, block: bool) -> Result<Marked<Mark>> {
        let mut mark = Mark::default();
        for context in self.active()? {
            let event = self.event(&context)?;
            let recorded = event.record_all()?;
            mark.0.push(event);
            let refused = match recorded {
                Recorded::Yes => None,
                Recorded::NotNow => Some(Marked::Capturing),
                // An event that was never recorded counts as done.
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

    /// Returns the active contexts. Does not hold a lock on return, because the caller may wait for
    /// the contexts' work.
    fn active(&self) -> Result<Vec<Context>> {
        let mut contexts = self.contexts.lock().expect("nothing panics while holding it");
        for (ordinal, place) in contexts.iter_mut().enumerate() {
            if place.is_none() {
                *place = Context::if_active(ordinal)?;
            }
        }
        Ok(contexts.iter().flatten().cloned().collect())
    }

    /// Marks all work submitted to `stream` so far.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails.
    pub(crate) fn mark(&self, stream: &Stream) -> Result<Mark> {
        let event = self.event(stream.context())?;
        event.record(stream)?;
        Ok(Mark(vec![event]))
    }

    /// Returns whether the marked work is done.
    ///
    /// # Errors
    /// [`ErrorKind::Cuda`](crate::ErrorKind::Cuda) if a driver call fails, or if the work failed.
    pub(crate) fn is_done(&self, mark: &Mark) -> Result<bool> {
        for event in &mark.0 {
            if !event.is_done()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stores the events of a mark for reuse.
    pub(crate) fn recycle(&self, mark: Mark) {
        self.spare.lock().expect("nothing panics while holding it").extend(mark.0);
    }

    fn event(&self, context: &Context) -> Result<Event> {
        let mut spare = self.spare.lock().expect("nothing panics while holding it");
        match spare.iter().position(|event| event.context() == context) {
            Some(at) => Ok(spare.swap_remove(at)),
            None => Event::new(context),
        }
    }
}

/// Waits for all work of a context. Returns `false` if one of its streams is being captured.
fn finish(context: &Context) -> Result<bool> {
    let _here = context.enter()?;
    if capture::any_capture(context) {
        return Ok(false);
    }
    result::ctx::synchronize().doing(|| "waiting for the work of a context").map(|()| true)
}
