//! [`FrameDecoder`] decodes the frames of [records](crate::record) on an NVIDIA GPU.

use std::sync::Arc;

use super::device::check_process;
use super::pool::{Pool, Session};
use crate::error::{Error, Result};
use crate::frame::Planes;
use crate::record::Record;

/// Maximum number of frames that are decoded ahead. If more frames were decoded ahead, the decoder
/// could overwrite the current frame in GPU memory before the frame is copied.
const MAX_AHEAD: usize = 2;

/// Decodes the frames of records on a GPU, and copies them to host memory. All threads share the
/// GPU's decoders. To decode the packets of a clip only once, a frame decoder keeps a GPU decoder
/// until [`release`](Self::release) is called or a record does not continue the previous record.
pub struct FrameDecoder {
    gpu: usize,
    pool: Option<Arc<Pool>>,
    session: Option<Session>,
    decoded_packets: u64,
}

impl FrameDecoder {
    /// Creates a decoder that uses the GPU with index `gpu`.
    pub fn new(gpu: usize) -> Self {
        FrameDecoder { gpu, pool: None, session: None, decoded_packets: 0 }
    }

    #[cfg(test)]
    pub(super) fn with_pool(pool: &Arc<Pool>) -> Self {
        let mut decoder = Self::new(0);
        decoder.pool = Some(pool.clone());
        decoder
    }

    /// Returns the number of packets that this frame decoder has decoded so far.
    pub fn decoded_packets(&self) -> u64 {
        self.decoded_packets
    }

    /// Returns the decoder to the pool for other threads.
    pub fn release(&mut self) {
        let Some(session) = self.session.take() else { return };
        match (&self.pool, check_process()) {
            (Some(pool), Ok(())) => pool.release(session),
            // In a forked child, a thread that no longer exists may have locked the pool.
            _ => std::mem::forget(session),
        }
    }

    /// Decodes the frame of a record, and passes it to `show`. Waits while other threads use all
    /// decoders. Of the `later` records, the first two are decoded ahead if their packets begin
    /// with the packets of `record`. If decoding ahead fails, the frame is decoded again without
    /// the `later` records.
    ///
    /// # Errors
    /// If the GPU cannot decode the video, if a packet is damaged, if the frame does not have the
    /// size in the record, if an allocation or a function of the driver fails, if the process was
    /// forked after the GPU was opened, or if `show` fails. The message starts with the record's
    /// label.
    pub fn decode<T>(
        &mut self,
        record: &Record<'_>,
        later: &[Record<'_>],
        show: impl FnOnce(&Planes<'_>) -> Result<T>,
    ) -> Result<T> {
        let result = self.try_decode(record, later).and_then(|planes| show(&planes));
        result.map_err(|e| match record.label {
            "" => e,
            label => Error::new(e.kind(), format!("{label}: {e}")),
        })
    }

    fn try_decode(&mut self, record: &Record<'_>, later: &[Record<'_>]) -> Result<Planes<'_>> {
        check_process()?;
        let pool = match &self.pool {
            Some(pool) => pool.clone(),
            None => {
                super::check(record.codec)?;
                self.pool.insert(Pool::for_gpu(self.gpu)?).clone()
            }
        };
        if self.session.as_mut().is_some_and(|session| !session.can_continue_with(record)) {
            self.release();
        }
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(pool.acquire(record)?),
        };
        self.decoded_packets += session.decode(record, &later[..later.len().min(MAX_AHEAD)])? as u64;
        Ok(session.planes())
    }
}

impl Drop for FrameDecoder {
    fn drop(&mut self) {
        self.release();
    }
}
