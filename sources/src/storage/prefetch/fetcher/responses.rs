//! Handles responses, failed requests, and requests without a response.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Fetcher, LOST_CHECK_INTERVAL, State};
use crate::error::{Error, Result};
use crate::storage::prefetch::piece::{InFlightRequest, LOST_AFTER, Outcome};
use crate::storage::prefetch::request::{MAX_ATTEMPTS, WARN_AFTER, final_error, log_retry, retry_pause};

impl Fetcher {
    /// Handles the response of the request `request_id`. `is_blocking` is true if the response
    /// arrived before `fetch` returned.
    pub(super) fn handle_response(self: &Arc<Self>, request_id: u64, bytes: Result<Vec<u8>>, is_blocking: bool) {
        let now = Instant::now();
        let mut guard = self.lock();
        let state = &mut *guard;
        state.is_store_blocking |= is_blocking;
        let weight_in_flight = state.weight_in_flight;
        let Some(InFlightRequest { piece: id, sent_at, cancel, .. }) = state.remove_request(request_id) else { return };
        let latency = now.saturating_duration_since(sent_at);
        let bytes_received = bytes.as_ref().map_or(0, Vec::len) as u64;
        self.counts.bytes.fetch_add(bytes_received, Ordering::Relaxed);
        let Some(piece) = state.pieces.get_mut(&id) else { return };
        piece.in_flight -= 1;
        let len = piece.len();
        let bytes = bytes.and_then(|bytes| match bytes.len() as u64 {
            received if received == len => Ok(bytes),
            received => {
                Err(Error::in_source(format!("the store returned {received} bytes instead of {len}")).transient())
            }
        });
        let is_done = piece.is_complete || piece.unread_samples == 0;
        let mut outage = None;
        match bytes {
            Ok(bytes) => {
                state.has_logged_outage = false;
                piece.is_complete = true;
                piece.outcome.set(Outcome::Bytes(Arc::new(bytes)));
                let others = state.in_flight_requests.values().filter(|other| other.piece == id);
                others.for_each(|other| other.cancel.cancel());
                let is_saturated = !state.queue.is_empty();
                self.counts.record_response(latency, cancel.first_byte().unwrap_or(latency), bytes_received as usize);
                state.congestion.record_response(latency, bytes_received, weight_in_flight, is_saturated);
            }
            // Ignore the error: the piece is complete, or a different request for the same bytes
            // may still succeed.
            Err(_) if is_done || piece.in_flight > 0 => {}
            Err(e) => outage = self.handle_error(state, id, e, now),
        }
        state.release(id);
        self.resume(guard);
        // The user's logger may call the fetcher on this thread, so log without the lock.
        if let Some((attempt, e)) = outage {
            log_retry(attempt, &e);
        }
    }

    /// Schedules a retry if the error is transient and attempts remain. If not, the piece fails.
    /// Returns the number of attempts and the error if the failure should be logged.
    fn handle_error(&self, state: &mut State, id: u64, e: Error, now: Instant) -> Option<(u32, Error)> {
        let piece = state.pieces.get_mut(&id)?;
        let object = self.ranges.object(piece.object);
        if e.is_throttled() {
            self.counts.refusals.fetch_add(1, Ordering::Relaxed);
            state.congestion.record_refusal(now.saturating_duration_since(self.opened_at));
        }
        if !e.is_transient() || piece.attempts >= MAX_ATTEMPTS {
            piece.is_complete = true;
            piece.outcome.set(Outcome::Failed(final_error(e, object, piece.range.clone(), piece.attempts)));
            return None;
        }
        self.counts.retries.fetch_add(1, Ordering::Relaxed);
        state.retries.insert((now + retry_pause(piece.attempts), id));
        let is_logged = piece.attempts >= WARN_AFTER && std::mem::replace(&mut state.has_logged_outage, true);
        (!is_logged).then(|| (piece.attempts.min(WARN_AFTER), e.at_path(&object.url)))
    }

    /// Cancels requests that are [lost](InFlightRequest::is_lost), and retries them. Checks at most
    /// once per [`LOST_CHECK_INTERVAL`].
    pub(super) fn retry_lost(&self, state: &mut State, now: Instant) {
        if now < state.last_lost_check + LOST_CHECK_INTERVAL {
            return;
        }
        state.last_lost_check = now;
        let lost: Vec<u64> =
            state.in_flight_requests.iter().filter_map(|(id, request)| request.is_lost(now).then_some(*id)).collect();
        for request_id in lost {
            let Some(InFlightRequest { piece: id, cancel, .. }) = state.remove_request(request_id) else { continue };
            cancel.cancel();
            let Some(piece) = state.pieces.get_mut(&id) else { continue };
            piece.in_flight -= 1;
            if piece.is_complete || piece.in_flight > 0 || piece.unread_samples == 0 {
                state.release(id);
                continue;
            }
            if piece.attempts < MAX_ATTEMPTS {
                self.counts.retries.fetch_add(1, Ordering::Relaxed);
                state.retries.insert((now, id));
            } else {
                let e = Error::in_source(format!("the store did not respond within {} s", LOST_AFTER.as_secs()));
                let e = final_error(e, self.ranges.object(piece.object), piece.range.clone(), piece.attempts);
                piece.is_complete = true;
                piece.outcome.set(Outcome::Failed(e));
            }
        }
    }
}
