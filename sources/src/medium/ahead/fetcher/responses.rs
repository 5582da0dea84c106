//! Handles the outcomes of requests: bytes, an error, or no response.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Fetcher, LOOK, State};
use crate::error::{Error, Result};
use crate::medium::ahead::piece::{Flight, LOST, Outcome};
use crate::medium::ahead::request::{ATTEMPTS, TOLD, given_up, pause, repeats};

impl Fetcher {
    /// Handles the response to the request `flight`. `at_once` is true if the store responded
    /// before its `fetch` returned.
    pub(super) fn answered(self: &Arc<Self>, flight: u64, bytes: Result<Vec<u8>>, at_once: bool) {
        let now = Instant::now();
        let mut guard = self.lock();
        let state = &mut *guard;
        state.blocks |= at_once;
        let flying = state.weight;
        let Some(Flight { piece: number, begun, cancel, .. }) = state.land(flight) else { return };
        let took = now.saturating_duration_since(begun);
        let size = bytes.as_ref().map_or(0, Vec::len) as u64;
        self.counts.bytes.fetch_add(size, Ordering::Relaxed);
        let Some(piece) = state.pieces.get_mut(&number) else { return };
        piece.flying -= 1;
        let len = piece.range.end - piece.range.start;
        let bytes = bytes.and_then(|bytes| match bytes.len() as u64 {
            came if came == len => Ok(bytes),
            came => Err(Error::in_source(format!("the store returned {came} bytes instead of {len}")).transient()),
        });
        let done = piece.answered || piece.left == 0;
        let mut outage = None;
        match bytes {
            Ok(bytes) => {
                state.told = false;
                piece.answered = true;
                piece.answer.set(Outcome::Bytes(Arc::new(bytes)));
                let others = state.flights.values().filter(|other| other.piece == number);
                others.for_each(|other| other.cancel.cancel());
                let full = !state.queue.is_empty();
                self.counts.answered(took, cancel.first_byte().unwrap_or(took), size as usize);
                state.pace.answered(took, size, flying, full);
            }
            // The piece is complete, or another request for the same bytes is in flight and may
            // succeed.
            Err(_) if done || piece.flying > 0 => {}
            Err(e) => outage = self.failed(state, number, e, now),
        }
        state.release(number);
        self.go_on(guard);
        // Log only after the lock is released, because the user's logger may call back into the
        // fetcher on this thread.
        if let Some((attempt, e)) = outage {
            repeats(attempt, &e);
        }
    }

    /// Handles a failed attempt for piece `number`, and schedules a retry if the error is
    /// transient. Returns the number of the attempt and the error if they should be logged.
    fn failed(&self, state: &mut State, number: u64, e: Error, now: Instant) -> Option<(u32, Error)> {
        let piece = state.pieces.get_mut(&number)?;
        let object = self.parts.object(piece.object);
        if e.is_throttled() {
            self.counts.refusals.fetch_add(1, Ordering::Relaxed);
            state.pace.refused(now.saturating_duration_since(self.opened));
        }
        if !e.is_transient() || piece.attempts >= ATTEMPTS {
            piece.answered = true;
            piece.answer.set(Outcome::Failed(given_up(e, object, piece.range.clone(), piece.attempts)));
            return None;
        }
        self.counts.retries.fetch_add(1, Ordering::Relaxed);
        state.later.insert((now + pause(piece.attempts, number), number));
        let is_told = piece.attempts >= TOLD && std::mem::replace(&mut state.told, true);
        (!is_told).then(|| (piece.attempts.min(TOLD), e.at_path(&object.url)))
    }

    /// Retries requests to which the store never responded.
    pub(super) fn look_for_lost(&self, state: &mut State, now: Instant) {
        if now < state.looked + LOOK {
            return;
        }
        state.looked = now;
        let lost: Vec<u64> =
            state.flights.iter().filter_map(|(number, flight)| flight.is_lost(now).then_some(*number)).collect();
        for flight in lost {
            let Some(Flight { piece: number, cancel, .. }) = state.land(flight) else { continue };
            cancel.cancel();
            let Some(piece) = state.pieces.get_mut(&number) else { continue };
            piece.flying -= 1;
            if piece.answered || piece.flying > 0 || piece.left == 0 {
                state.release(number);
                continue;
            }
            if piece.attempts < ATTEMPTS {
                state.later.insert((now, number));
            } else {
                let e = Error::in_source(format!("the store did not answer within {} s", LOST.as_secs()));
                let e = given_up(e, self.parts.object(piece.object), piece.range.clone(), piece.attempts);
                piece.answered = true;
                piece.answer.set(Outcome::Failed(e));
            }
        }
    }
}
