//! The codec for video frames, which are stored as [records](warpfeed_video::record) of packets.
//!
//! Each thread has one decoder. If the next requested frame follows the last decoded frame in the
//! same group of pictures, the decoder continues from there. A thread that reads a clip in order on
//! the CPU therefore decodes each packet only once.
//!
//! A GPU has only a few decoders, which all threads share. A thread reserves a GPU decoder for a
//! whole group of images, because a different thread would discard the decoder's state.

use std::cell::{Cell, RefCell};

use warpfeed_jpeg::Orientation;
use warpfeed_sources::format::{self, Format};
use warpfeed_video::record::Record;
use warpfeed_video::rgb::{self, to_rgb};
use warpfeed_video::{Codec as VideoCodec, ErrorKind as VideoErrorKind, FrameDecoder, Planes};

use crate::decode::encoded::ParsedHeader;
use crate::decode::{Codec, EncodedImage, Job, Options, Pixels, Rect, Size};
use crate::error::{Error, ErrorKind, Result, guarded, reserve};

#[derive(Debug, Clone, Copy)]
pub(super) struct VideoFrameCodec(pub(super) Options);

struct ThreadDecoder {
    decoder: FrameDecoder,
    max_pixels: u32,
    gpu: usize,
    /// Estimated memory of the decoder in bytes: the maximum over all decoded frames.
    bytes: u64,
    buffers: Buffers,
}

#[derive(Default)]
struct Buffers {
    conversion_scratch: rgb::Scratch,
    /// Pixels before the EXIF orientation is applied.
    stored: Vec<u8>,
}

thread_local! {
    static DECODER: RefCell<Option<ThreadDecoder>> = const { RefCell::new(None) };
    static IN_GROUP: Cell<bool> = const { Cell::new(false) };
}

/// Reserves the GPU decoder for this thread. On drop, releases the decoder for other threads,
/// unless the thread is still decoding a group.
struct DecoderLease {
    was_in_group: bool,
}

impl DecoderLease {
    fn begin(is_group: bool) -> Self {
        let was_in_group = IN_GROUP.get();
        IN_GROUP.set(was_in_group || is_group);
        DecoderLease { was_in_group }
    }
}

impl Drop for DecoderLease {
    fn drop(&mut self) {
        IN_GROUP.set(self.was_in_group);
        if !self.was_in_group {
            DECODER.with_borrow_mut(|thread_decoder| {
                thread_decoder.iter_mut().for_each(|d| d.decoder.release_gpu_decoder())
            });
        }
    }
}

fn convert_error(e: warpfeed_video::Error) -> Error {
    match e.kind() {
        VideoErrorKind::Memory => Error::new(ErrorKind::Memory, e.to_string()),
        _ => Error::decode(e.to_string()),
    }
}

impl Codec for VideoFrameCodec {
    fn format(&self) -> Format {
        format::VIDEO
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        let record = Record::parse(bytes).map_err(convert_error)?;
        let size = Orientation::new(record.orientation).size(Size::new(record.width, record.height));
        Ok(EncodedImage::from_header(bytes, size, ParsedHeader::Video(self.0)).with_orientation(record.orientation))
    }

    fn decode_memory(&self, image: &EncodedImage<'_>, region: Rect) -> u64 {
        let Size { width, height } = image.size();
        let codec = Record::parse(image.bytes()).map_or(VideoCodec::Av1, |record| record.codec);
        FrameDecoder::estimate_memory(codec, width, height).saturating_add(region.size().area().saturating_mul(6))
    }

    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        self.decode_region(image, region, out, &[])
    }

    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        let _lease = DecoderLease::begin(true);
        let records: Vec<_> = jobs.iter().map_while(|job| Record::parse(job.image.bytes()).ok()).collect();
        for (index, job) in jobs.iter_mut().enumerate() {
            let later_records = records.get(index + 1..).unwrap_or_default();
            job.run_with(|image, region, out| self.decode_region(image, region, out, later_records));
        }
    }

    fn damage(&self, image: &mut EncodedImage<'_>) -> Result<Option<String>> {
        let area = Rect::full(image.size());
        self.decode(image, area, &mut Pixels::new()).map(|()| None)
    }
}

impl VideoFrameCodec {
    /// Decodes `region` of a frame. `later_records` are the frames that the caller decodes next.
    /// The GPU decoder may already start on the first of them.
    fn decode_region(
        &self,
        image: &EncodedImage<'_>,
        region: Rect,
        out: &mut Pixels,
        later_records: &[Record<'_>],
    ) -> Result<()> {
        let record = Record::parse(image.bytes()).map_err(convert_error)?;
        let orientation = Orientation::new(record.orientation);
        let area = orientation.stored_region(region, Size::new(record.width, record.height));
        let visible_area = (area.x as usize, area.y as usize, area.width as usize, area.height as usize);
        let pixels = out.reset(region.size());
        self.with_planes(&record, later_records, |planes, Buffers { conversion_scratch, stored }| {
            if orientation.is_upright() {
                return to_rgb(planes, visible_area, conversion_scratch, pixels).map_err(convert_error);
            }
            reserve(stored, pixels.len().saturating_sub(stored.len()))?;
            stored.resize(pixels.len(), 0);
            to_rgb(planes, visible_area, conversion_scratch, stored).map_err(convert_error)?;
            orientation.apply(stored, area.size(), pixels);
            Ok(())
        })?;
        out.set_origin(region.x, region.y);
        Ok(())
    }

    /// Decodes the frame of a record with the decoder of the calling thread, and passes the frame
    /// to `use_planes`.
    fn with_planes(
        &self,
        record: &Record<'_>,
        later_records: &[Record<'_>],
        use_planes: impl FnOnce(&Planes<'_>, &mut Buffers) -> Result<()>,
    ) -> Result<()> {
        let max_pixels = u32::try_from(self.0.max_pixels).unwrap_or(u32::MAX);
        let gpu = self.0.gpu;
        let _lease = DecoderLease::begin(false);
        DECODER.with_borrow_mut(|state| {
            if state.as_ref().is_none_or(|state| (state.max_pixels, state.gpu) != (max_pixels, gpu)) {
                *state = None;
            }
            let ThreadDecoder { decoder, bytes, buffers, .. } = state.get_or_insert_with(|| ThreadDecoder {
                decoder: FrameDecoder::new(max_pixels, gpu),
                max_pixels,
                gpu,
                bytes: 0,
                buffers: Buffers::default(),
            });
            *bytes = (*bytes).max(FrameDecoder::estimate_memory(record.codec, record.width, record.height));
            decoder.decode(record, later_records, |planes| Ok(use_planes(planes, buffers))).map_err(convert_error)?
        })
    }
}

/// Decodes video frames one after another. For each frame, calls `store` with the frame's index in
/// `images`, its samples and its EXIF orientation. Skips images that are not video frames, and
/// frames that cannot be decoded.
pub(crate) fn decode_planes(images: &[EncodedImage<'_>], mut store: impl FnMut(usize, &Planes<'_>, Orientation)) {
    let _lease = DecoderLease::begin(true);
    let frames = images.iter().enumerate().filter_map(|(index, image)| {
        let ParsedHeader::Video(options) = &image.header else { return None };
        Some(((index, VideoFrameCodec(*options)), Record::parse(image.bytes()).ok()?))
    });
    let (frames, records): (Vec<_>, Vec<_>) = frames.unzip();
    for (position, ((index, codec), record)) in frames.iter().zip(&records).enumerate() {
        let orientation = Orientation::new(record.orientation);
        let use_planes = |planes: &Planes<'_>, _: &mut Buffers| {
            store(*index, planes, orientation);
            Ok(())
        };
        // Ignore errors here: a worker retries each frame that failed, and reports the error.
        let _ = guarded(|| codec.with_planes(record, &records[position + 1..], use_planes));
    }
}

/// Frees the calling thread's decoder if its estimated memory exceeds `max_bytes` bytes. Returns
/// the estimated number of bytes that remain allocated.
pub(super) fn trim_to(max_bytes: usize) -> usize {
    DECODER.with_borrow_mut(|state| match state {
        Some(ThreadDecoder { bytes, .. }) if *bytes <= max_bytes as u64 => *bytes as usize,
        _ => {
            *state = None;
            0
        }
    })
}

pub(super) fn release() {
    DECODER.take();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{decode_group, standard};
    use crate::libjpeg::{Options, encode};

    /// Returns the records of a video in which every other frame is a key frame.
    fn records() -> Vec<Vec<u8>> {
        let file = include_bytes!("../../video/tests/fixtures/g2.mp4");
        let track = warpfeed_video::open(&file[..].to_vec()).unwrap();
        let record = |frame| {
            let (needed, mut record) = (track.packets_for(frame), Vec::new());
            warpfeed_video::record::write_header(track.config(), 1, "clip", needed.len() as u32, &mut record).unwrap();
            for packet in needed {
                record.extend(packet.size.to_le_bytes());
                record.extend(&file[packet.offset as usize..][..packet.size as usize]);
            }
            record
        };
        (0..track.len()).map(record).collect()
    }

    fn decoded() -> u64 {
        DECODER.with_borrow(|state| state.as_ref().map_or(0, |state| state.decoder.decoded_packets()))
    }

    #[test]
    fn each_packet_of_a_clip_is_decoded_once() {
        release();
        let records = records();
        let mut outs = vec![Pixels::new(); 8];
        let region = Rect::new(10, 5, 30, 20);
        let jobs = records.iter().zip(&mut outs);
        let mut jobs: Vec<_> =
            jobs.map(|(bytes, out)| Job::new(standard().open(bytes).unwrap(), region, out)).collect();
        decode_group(&mut jobs);
        assert!(jobs.iter().all(|job| job.result.is_ok()));
        drop(jobs);
        assert_eq!(decoded(), 8, "four groups with two frames each have eight packets");
        assert_eq!(outs[7].origin(), (10, 5));
    }

    #[test]
    fn planes_are_decoded_around_an_image_that_is_no_video_frame() {
        let jpeg = encode(&[0; 64], 8, 8, 1, &Options::new(90, 1, 1));
        let records = records();
        let bytes = [&records[0], &jpeg, &records[1]];
        let images = bytes.map(|bytes| standard().open(bytes).unwrap());
        let mut found = Vec::new();
        decode_planes(&images, |index, _, _| found.push(index));
        assert_eq!(found, [0, 2]);
    }

    #[test]
    fn regions_are_parts_of_the_upright_frame() {
        let mut record = records().remove(1);
        for orientation in 1..=8 {
            record[9] = orientation;
            let mut image = standard().open(&record).unwrap();
            let size = image.size();
            let turned = orientation > 4;
            assert_eq!((size.width, size.height), if turned { (64, 96) } else { (96, 64) });
            let (mut whole_frame, mut part) = (Pixels::new(), Pixels::new());
            image.decode(Rect::full(size), &mut whole_frame).unwrap();
            image.decode(Rect::new(7, 9, 25, 11), &mut part).unwrap();
            for (y, row) in part.data().chunks_exact(25 * 3).enumerate() {
                let offset = ((y + 9) * size.width as usize + 7) * 3;
                assert_eq!(row, &whole_frame.data()[offset..offset + 25 * 3], "{orientation} {y}");
            }
        }
    }

    #[test]
    fn memory_of_the_decoder_is_freed() {
        let record = records().remove(0);
        let mut image = standard().open(&record).unwrap();
        image.decode(Rect::full(image.size()), &mut Pixels::new()).unwrap();
        assert!(trim_to(1 << 30) > 0);
        assert_eq!(trim_to(1000), 0);
        assert_eq!(trim_to(1 << 30), 0);
    }

    #[test]
    fn the_codec_recognizes_the_signature_of_records() {
        assert!((format::VIDEO.matches)(warpfeed_video::record::MAGIC));
    }
}
