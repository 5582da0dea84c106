//! [`FrameDecoder`] decodes the AV1 frames of [records](crate::record).
//!
//! A record contains the packets from a key frame to one frame. If a record starts with all packets
//! that were decoded since the last key frame, only its remaining packets are decoded. The decoder
//! compares the packets instead of a group identifier, because a wrong identifier would silently
//! produce the wrong frame. The last few pictures are kept, because frames are repeated at the ends
//! of an episode.
//!
//! Copying and comparing the packets takes about a thousandth of the decoding time.

use super::dav1d::{Decoder, Picture, max_frame_size};
use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::frame::Planes;
use crate::record::{Record, unsupported_message};

const MAX_RECENT_PICTURES: usize = 4;

/// Decodes the frames of records. If a record continues the group of pictures of the previous
/// record, only its new packets are decoded.
pub struct FrameDecoder {
    max_pixels: u32,
    decoder: Option<Decoder>,
    body: Vec<u8>,
    packet_count: usize,
    recent_pictures: Vec<RecentPicture>,
    decoded_packets: u64,
}

/// A shown picture of the current group of pictures.
struct RecentPicture {
    packet_index: usize,
    /// The end of the picture's packet in [`FrameDecoder::body`].
    body_end: usize,
    picture: Picture,
}

impl FrameDecoder {
    /// Creates a decoder for frames with at most `max_pixels` pixels.
    pub fn new(max_pixels: u32) -> Self {
        FrameDecoder {
            max_pixels,
            decoder: None,
            body: Vec::new(),
            packet_count: 0,
            recent_pictures: Vec::new(),
            decoded_packets: 0,
        }
    }

    /// Returns the number of packets that this frame decoder has decoded so far.
    pub fn decoded_packets(&self) -> u64 {
        self.decoded_packets
    }

    /// Drops the decoder and all frames, which frees their memory.
    pub fn release(&mut self) {
        *self = FrameDecoder { decoded_packets: self.decoded_packets, ..FrameDecoder::new(self.max_pixels) };
    }

    /// Decodes the frame of a record, and passes it to `show`.
    ///
    /// # Errors
    /// If the codec is not AV1, if a packet is damaged or not supported, if the last packet shows
    /// no frame, if the frame does not have the size in the record, if an allocation fails, or if
    /// `show` fails. The message starts with the record's label.
    pub fn decode<T>(&mut self, record: &Record<'_>, show: impl FnOnce(&Planes<'_>) -> Result<T>) -> Result<T> {
        let result = self.try_decode(record, show);
        if result.is_err() {
            self.release();
        }
        result.map_err(|e| match record.label {
            "" => e,
            label => Error::new(e.kind(), format!("{label}: {e}")),
        })
    }

    fn try_decode<T>(&mut self, record: &Record<'_>, show: impl FnOnce(&Planes<'_>) -> Result<T>) -> Result<T> {
        if record.codec != Codec::Av1 {
            return Err(Error::unsupported(unsupported_message(record.codec)));
        }
        let last_packet = record.packet_count() - 1;
        if !self.can_continue_with(record) {
            self.start(record)?;
        }
        let mut body_end = record.config.len();
        for (packet_index, packet) in record.packets().enumerate() {
            body_end += 4 + packet.len();
            if packet_index >= self.packet_count {
                self.decode_packet(record, packet_index, packet, body_end)?;
            }
        }
        let picture = self.recent_pictures.iter().find(|picture| picture.packet_index == last_packet);
        let picture = picture.ok_or_else(|| {
            Error::damaged(format!("packet {} of {} shows no frame", last_packet + 1, record.packet_count()))
        })?;
        let planes = picture.picture.planes()?;
        if (planes.width, planes.height) != (record.width as usize, record.height as usize) {
            return Err(Error::damaged(format!(
                "the frame has {}x{} pixels, but the file claims {}x{}",
                planes.width, planes.height, record.width, record.height
            )));
        }
        show(&planes)
    }

    /// Returns whether the decoded packets are the first packets of `record`, or whether the
    /// picture of `record` is still available.
    fn can_continue_with(&self, record: &Record<'_>) -> bool {
        if self.decoder.is_none() || self.packet_count == 0 {
            return false;
        }
        if record.packet_count() >= self.packet_count {
            return record.body().starts_with(&self.body);
        }
        let picture = self.recent_pictures.iter().find(|picture| picture.packet_index + 1 == record.packet_count());
        picture.is_some_and(|picture| self.body.get(..picture.body_end) == Some(record.body()))
    }

    fn start(&mut self, record: &Record<'_>) -> Result<()> {
        self.body.clear();
        self.recent_pictures.clear();
        self.packet_count = 0;
        match &mut self.decoder {
            Some(decoder) => decoder.flush(),
            None => self.decoder = Some(Decoder::new(self.max_pixels)?),
        }
        crate::error::reserve(&mut self.body, record.config.len())?;
        self.body.extend_from_slice(record.config);
        // The configuration consists of four bytes, and headers that packets may omit.
        if let Some(headers) = record.config.get(4..).filter(|headers| !headers.is_empty()) {
            check_size(headers, record)?;
            let decoder = self.decoder.as_mut().expect("created above");
            decoder.decode(headers, |_| {})?;
        }
        Ok(())
    }

    fn decode_packet(
        &mut self,
        record: &Record<'_>,
        packet_index: usize,
        packet: &[u8],
        body_end: usize,
    ) -> Result<()> {
        let decoder = self.decoder.as_mut().ok_or_else(|| Error::damaged("no decoder"))?;
        check_size(packet, record)?;
        let mut shown_picture = None;
        let result = decoder.decode(packet, |picture| shown_picture = Some(picture));
        result.map_err(|e| {
            Error::new(e.kind(), format!("packet {} of {}: {e}", packet_index + 1, record.packet_count()))
        })?;
        self.decoded_packets += 1;
        if let Some(picture) = shown_picture {
            if self.recent_pictures.len() == MAX_RECENT_PICTURES {
                self.recent_pictures.remove(0);
            }
            self.recent_pictures.push(RecentPicture { packet_index, body_end, picture });
        }
        let body_len = self.body.len();
        crate::error::reserve(&mut self.body, body_end - body_len)?;
        self.body.extend_from_slice(&record.body()[body_len..body_end]);
        self.packet_count = packet_index + 1;
        Ok(())
    }
}

/// Checks that a packet does not declare larger frames than the record. This check precedes the
/// allocation of frames.
fn check_size(packet: &[u8], record: &Record<'_>) -> Result<()> {
    match max_frame_size(packet) {
        Some((width, height)) if width > record.width || height > record.height => Err(Error::damaged(format!(
            "the frames have up to {width}x{height} pixels, but the file claims {}x{}",
            record.width, record.height
        ))),
        _ => Ok(()),
    }
}
