//! [`Pool`] contains the decoders of one GPU, which all threads share.
//!
//! A decoder takes GPU memory, and a few decoders keep all video engines of the GPU busy. A process
//! has at most [`MAX_SESSIONS`] decoders per GPU. A thread uses one decoder while it decodes a
//! sequence of frames.
//!
//! A thread gets the first of these decoders that exists:
//! 1. An idle decoder that can decode the requested frame without starting again from the key
//!    frame.
//! 2. The least recently used idle decoder of the same codec and frame size.
//! 3. A new decoder, if there are fewer than the maximum.
//! 4. The least recently used idle decoder.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use super::decoder::Decoder;
use super::device::Device;
use crate::codec::{Codec, CodecConfig};
use crate::error::{Error, Result, reserve};
use crate::frame::Planes;
use crate::record::Record;

/// Maximum number of decoders per GPU. Threads wait until their frame is decoded, so the seven
/// engines of an H100 need more than seven decoders. Creating a decoder on an H100 takes 36 ms.
pub(super) const MAX_SESSIONS: usize = 24;

pub(super) struct Session {
    decoder: Decoder,
    format: Option<(Codec, u32, u32)>,
    /// The codec's configuration record, and the decoded packets with their lengths.
    body: Vec<u8>,
    packet_ends: Vec<usize>,
}

pub(super) struct Pool {
    device: Device,
    sessions: Mutex<PoolSessions>,
    session_released: Condvar,
}

struct PoolSessions {
    /// Decoders that no thread uses. The most recently used one is the last.
    idle: Vec<Session>,
    /// Number of decoders, idle or in use.
    total_count: usize,
}

impl Pool {
    /// Returns the pool of a GPU. The decoders are destroyed when the last user drops the pool.
    pub(super) fn for_gpu(gpu: usize) -> Result<Arc<Self>> {
        static POOLS: Mutex<Vec<(usize, Weak<Pool>)>> = Mutex::new(Vec::new());
        let device = Device::shared(gpu)?;
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.iter().filter(|(ordinal, _)| *ordinal == gpu).find_map(|(_, pool)| pool.upgrade()) {
            return Ok(pool);
        }
        let pool = Arc::new(Pool::new(device));
        pools.retain(|(_, pool)| pool.strong_count() > 0);
        pools.push((gpu, Arc::downgrade(&pool)));
        Ok(pool)
    }

    pub(super) fn new(device: Device) -> Self {
        Pool {
            device,
            sessions: Mutex::new(PoolSessions { idle: Vec::new(), total_count: 0 }),
            session_released: Condvar::new(),
        }
    }

    fn lock_sessions(&self) -> MutexGuard<'_, PoolSessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the most suitable decoder. Waits while other threads use all decoders.
    pub(super) fn acquire(&self, record: &Record<'_>) -> Result<Session> {
        let mut sessions = self.lock_sessions();
        loop {
            let best_index = sessions.idle.iter_mut().position(|session| session.can_continue_with(record));
            let best_index =
                best_index.or_else(|| sessions.idle.iter().position(|session| session.has_format_of(record)));
            if let Some(index) = best_index {
                return Ok(sessions.idle.remove(index));
            }
            if sessions.total_count < MAX_SESSIONS {
                sessions.total_count += 1;
                break;
            }
            if !sessions.idle.is_empty() {
                return Ok(sessions.idle.remove(0));
            }
            sessions = self.session_released.wait(sessions).unwrap_or_else(PoisonError::into_inner);
        }
        drop(sessions);
        let decoder = Decoder::new(self.device.clone()).inspect_err(|_| {
            self.lock_sessions().total_count -= 1;
            self.session_released.notify_one();
        })?;
        Ok(Session { decoder, format: None, body: Vec::new(), packet_ends: Vec::new() })
    }

    pub(super) fn release(&self, session: Session) {
        self.lock_sessions().idle.push(session);
        self.session_released.notify_one();
    }

    #[cfg(test)]
    pub(super) fn session_count(&self) -> usize {
        self.lock_sessions().total_count
    }

    #[cfg(test)]
    pub(super) fn lock(&self) -> impl Sized {
        self.lock_sessions()
    }
}

impl Session {
    fn has_format_of(&self, record: &Record<'_>) -> bool {
        self.format == Some((record.codec, record.width, record.height))
    }

    /// Returns whether the decoder can decode `record` without starting again from the key frame.
    ///
    /// The decoded packets and the first packets of `record` must have equal bytes. If the
    /// requested frame has already been decoded, as happens in clips in presentation order, its
    /// image must still be in GPU memory.
    pub(super) fn can_continue_with(&mut self, record: &Record<'_>) -> bool {
        let pushed_count = self.packet_ends.len().min(record.packet_count());
        self.has_format_of(record)
            && pushed_count > 0
            && self.body.get(..self.packet_ends[pushed_count - 1]).is_some_and(|body| record.body().starts_with(body))
            && (pushed_count < record.packet_count() || self.decoder.has_frame(record.packet_count() - 1))
    }

    /// Decodes the frame of a record. Returns how many packets were decoded. After an error, the
    /// decoder starts again from a key frame with the next record.
    ///
    /// The packets of the `later_records` are queued before the frame is read, so that the engine
    /// continues while the caller converts the frame. The first record that does not start with the
    /// packets of `record`, and all records after it, are ignored.
    pub(super) fn decode(&mut self, record: &Record<'_>, later_records: &[Record<'_>]) -> Result<usize> {
        let mut result = self.try_decode(record, later_records);
        if result.is_err() && !later_records.is_empty() {
            // A later packet may be damaged, or may have replaced the frame.
            self.packet_ends.clear();
            result = self.try_decode(record, &[]);
        }
        if result.is_err() {
            self.packet_ends.clear();
        }
        result
    }

    pub(super) fn planes(&mut self) -> Planes<'_> {
        self.decoder.planes()
    }

    fn try_decode(&mut self, record: &Record<'_>, later_records: &[Record<'_>]) -> Result<usize> {
        if !self.can_continue_with(record) {
            self.start(record)?;
        }
        let pushed_count = self.packet_ends.len();
        self.push_packets(record)?;
        for later in later_records {
            if !later.body().starts_with(record.body()) {
                break;
            }
            self.push_packets(later)?;
        }
        if !self.decoder.frame(record.packet_count() - 1)? {
            let packet = record.packet_count() - 1;
            return Err(Error::damaged(format!("the frame of packet {packet} was overwritten before it was copied")));
        }
        let planes = self.decoder.planes();
        if (planes.width, planes.height) != (record.width as usize, record.height as usize) {
            return Err(Error::damaged(format!(
                "the frame has {}x{} pixels, but the file says {}x{}",
                planes.width, planes.height, record.width, record.height
            )));
        }
        Ok(self.packet_ends.len() - pushed_count)
    }

    fn start(&mut self, record: &Record<'_>) -> Result<()> {
        self.packet_ends.clear();
        self.body.clear();
        self.format = Some((record.codec, record.width, record.height));
        let mut config = Vec::new();
        reserve(&mut config, record.config.len())?;
        config.extend_from_slice(record.config);
        self.decoder.start(&CodecConfig {
            codec: record.codec,
            width: record.width,
            height: record.height,
            record: config,
            color: None,
        })?;
        reserve(&mut self.body, record.config.len())?;
        self.body.extend_from_slice(record.config);
        Ok(())
    }

    fn push_packets(&mut self, record: &Record<'_>) -> Result<()> {
        let pushed_count = self.packet_ends.len();
        reserve(&mut self.packet_ends, record.packet_count().saturating_sub(pushed_count))?;
        for packet in record.packets().skip(pushed_count) {
            self.decoder.push(packet)?;
            let (start, end) = (self.body.len(), self.body.len() + 4 + packet.len());
            reserve(&mut self.body, end - start)?;
            self.body.extend_from_slice(&record.body()[start..end]);
            self.packet_ends.push(end);
        }
        Ok(())
    }
}
