//! Answers to requests: bytes, errors, or none.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Fetcher, LOOK, State};
use crate::error::{Error, Result};
use crate::medium::ahead::piece::{Flight, LOST, Outcome};
use crate::medium::ahead::request::{ATTEMPTS, TOLD, given_up, pause, repeats};

impl Fetcher {
    /// Takes the answer to a request.
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
            came => Err(Error::in_source(format!("{came} bytes came instead of {len}")).transient()),
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
            // The other request for the same bytes may succeed.
            Err(_) if done || piece.flying > 0 => {}
            Err(e) => outage = self.failed(state, number, e, now),
        }
        state.release(number);
        self.go_on(guard);
        // The user's logger must not wait for the lock's owner, which may be this thread.
        if let Some((attempt, e)) = outage {
            repeats(attempt, &e);
        }
    }

    /// Takes an error in place of the bytes of piece `number`, which are asked for again if that may
    /// help. Returns the attempt and the error if they are to be told.
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

    /// Repeats requests that were never answered.
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
