//! [`FrameDecoder`]: decodes the frames of records.
//!
//! **Idea.** If the packets of a record start with the packets that were already decoded, only the
//! new ones are decoded. The packets are compared, so that no identifier of a group can be wrong.
//! A frame that precedes the last packet is read again if its image is still in the memory of the
//! GPU, as for clips in presentation order.

use super::decoder::Decoder;
use super::device::Device;
use super::frame::Scratch;
use crate::codec::{Codec, CodecConfig};
use crate::error::{Error, Result, reserve};
use crate::frame::Planes;
use crate::record::Record;

/// Decodes the frames of records on [`Device::shared`].
#[derive(Default)]
pub struct FrameDecoder {
    decoder: Option<Decoder>,
    codec: Option<Codec>,
    /// The body of the record whose packets were decoded.
    body: Vec<u8>,
    /// Where each of these packets ends in `body`.
    ends: Vec<usize>,
    scratch: Scratch,
    /// Number of packets decoded so far.
    decoded: u64,
}

impl FrameDecoder {
    /// Creates a decoder. The GPU is opened for the first frame.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a decoder for a device.
    #[cfg(test)]
    pub(super) fn on(device: Device) -> Result<Self> {
        Ok(FrameDecoder { decoder: Some(Decoder::new(device)?), ..Self::default() })
    }

    /// Returns the number of packets that were decoded since the decoder was created.
    pub fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Decodes the frame of a record, and passes it to `show`.
    ///
    /// # Errors
    /// If the GPU cannot decode the video, if a packet is damaged, or if a function of the driver
    /// fails. The message names the file and the frame.
    pub fn decode<T>(&mut self, record: &Record<'_>, show: impl FnOnce(&Planes<'_>) -> Result<T>) -> Result<T> {
        let result = self.try_decode(record, show);
        if result.is_err() {
            self.ends.clear();
        }
        result.map_err(|e| match record.label {
            "" => e,
            label => Error::new(e.kind(), format!("{label}: {e}")),
        })
    }

    fn try_decode<T>(&mut self, record: &Record<'_>, show: impl FnOnce(&Planes<'_>) -> Result<T>) -> Result<T> {
        if self.decoder.is_none() {
            super::check(record.codec)?;
            self.decoder = Some(Decoder::new(Device::shared()?)?);
        }
        let decoder = self.decoder.as_mut().expect("created above");
        let wanted = record.count() - 1;
        let known = self.ends.len().min(record.count());
        let continues = known > 0
            && self.codec == Some(record.codec)
            && self.body.get(..self.ends[known - 1]).is_some_and(|body| record.body().starts_with(body));
        // An earlier frame may have left the memory of the GPU.
        let is_there = continues && (known < record.count() || decoder.has(wanted));
        if !is_there {
            self.ends.clear();
            self.body.clear();
            self.codec = Some(record.codec);
            decoder.start(&CodecConfig {
                codec: record.codec,
                width: record.width,
                height: record.height,
                record: record.config.to_vec(),
                color: None,
            })?;
            reserve(&mut self.body, record.config.len())?;
            self.body.extend_from_slice(record.config);
        }
        reserve(&mut self.ends, record.count())?;
        for packet in record.packets().skip(self.ends.len()) {
            decoder.push(packet)?;
            self.decoded += 1;
            let (start, end) = (self.body.len(), self.body.len() + 4 + packet.len());
            reserve(&mut self.body, end - start)?;
            self.body.extend_from_slice(&record.body()[start..end]);
            self.ends.push(end);
        }
        let frame = decoder.frame(wanted)?;
        let frame = frame.ok_or_else(|| Error::damaged("the frame was replaced before it was read"))?;
        if (frame.width, frame.height) != (record.width as usize, record.height as usize) {
            return Err(Error::damaged(format!(
                "the frame has {}x{} pixels, but the file says {}x{}",
                frame.width, frame.height, record.width, record.height
            )));
        }
        show(&frame.planes(&mut self.scratch)?)
    }
}
