//! [`FrameDecoder`] decodes the frames of [records](crate::record) with the decoder of their codec.

use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::frame::Planes;
use crate::record::{Record, unsupported_message};

/// Decodes the frames of records. If a record continues the group of pictures of the previous
/// record, only its new packets are decoded.
///
/// AV1 needs the `av1` Cargo feature. H.264, HEVC and VP9 need the `nvdec` Cargo feature and an
/// NVIDIA GPU.
pub struct FrameDecoder {
    #[cfg(feature = "av1")]
    av1: crate::av1::FrameDecoder,
    #[cfg(feature = "nvdec")]
    nvdec: crate::nvdec::FrameDecoder,
}

/// Checks that this build has a decoder for a codec and, for a codec that is decoded on a GPU, that
/// the driver is installed. The driver is not called. AV1 passes even without the feature `av1`. In
/// that case, decoding fails.
///
/// # Errors
/// If this build has no decoder for a codec other than AV1, or if the driver is missing or too old.
/// The message names the codec and says what to do.
pub fn check(codec: Codec) -> Result<()> {
    match codec {
        Codec::Av1 => Ok(()),
        #[cfg(feature = "nvdec")]
        Codec::H264 | Codec::Hevc | Codec::Vp9 => crate::nvdec::check(codec),
        codec => Err(Error::unsupported(unsupported_message(codec))),
    }
}

impl FrameDecoder {
    /// Creates a decoder. AV1 frames may have at most `max_pixels` pixels. Other codecs are decoded
    /// on the GPU with index `gpu`. This GPU determines their maximum frame size.
    #[cfg_attr(not(all(feature = "av1", feature = "nvdec")), allow(unused_variables))]
    pub fn new(max_pixels: u32, gpu: usize) -> Self {
        FrameDecoder {
            #[cfg(feature = "av1")]
            av1: crate::av1::FrameDecoder::new(max_pixels),
            #[cfg(feature = "nvdec")]
            nvdec: crate::nvdec::FrameDecoder::new(gpu),
        }
    }

    /// Returns the number of packets that this decoder has decoded so far.
    pub fn decoded_packets(&self) -> u64 {
        let packet_count = 0;
        #[cfg(feature = "av1")]
        let packet_count = packet_count + self.av1.decoded_packets();
        #[cfg(feature = "nvdec")]
        let packet_count = packet_count + self.nvdec.decoded_packets();
        packet_count
    }

    /// Lets other threads use the GPU decoder until this frame decoder decodes its next GPU frame.
    /// Do not call this method between the frames of a clip: if a different thread takes the GPU
    /// decoder, the state that makes the next frame fast to decode is lost.
    pub fn release_gpu_decoder(&mut self) {
        #[cfg(feature = "nvdec")]
        self.nvdec.release();
    }

    /// Estimates the host memory that is needed to decode a frame of this size, in bytes.
    pub fn estimate_memory(codec: Codec, width: u32, height: u32) -> u64 {
        let per_pixel = if codec == Codec::Av1 { 64 } else { 4 };
        (u64::from(width) * u64::from(height)).saturating_mul(per_pixel).saturating_add(4 << 20)
    }

    /// Decodes the frame of a record, and passes it to `show`.
    ///
    /// `later` contains the records that the caller will decode next. It may be empty. While `show`
    /// runs, a GPU may already decode the first two of these records, provided that their packets
    /// begin with the packets of `record`. AV1 ignores `later`.
    ///
    /// # Errors
    /// If no decoder for the codec is available, if a packet is damaged or not supported, if the
    /// frame does not have the size in the record, if an allocation or the GPU driver fails, if the
    /// process was forked after the GPU was opened, or if `show` fails. The message starts with the
    /// record's label.
    #[cfg_attr(not(all(feature = "av1", feature = "nvdec")), allow(unused_variables))]
    pub fn decode<T>(
        &mut self,
        record: &Record<'_>,
        later: &[Record<'_>],
        show: impl FnOnce(&Planes<'_>) -> Result<T>,
    ) -> Result<T> {
        match record.codec {
            #[cfg(feature = "av1")]
            Codec::Av1 => self.av1.decode(record, show),
            #[cfg(feature = "nvdec")]
            Codec::H264 | Codec::Hevc | Codec::Vp9 => self.nvdec.decode(record, later, show),
            codec => {
                let text = unsupported_message(codec);
                Err(Error::unsupported(if record.label.is_empty() {
                    text
                } else {
                    format!("{}: {text}", record.label)
                }))
            }
        }
    }
}
