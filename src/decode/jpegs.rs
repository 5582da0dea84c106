use std::cell::RefCell;
use std::time::Instant;

use arrayvec::ArrayVec;
use warpfeed_jpeg::{self as jpeg, Decoder, Jpeg};
use warpfeed_sources::format::{self, Format};

use crate::decode::encoded::ParsedHeader;
use crate::decode::group::MAX_GROUP;
use crate::decode::{Codec, EncodedImage, Job, Pixels, Rect, bands};
use crate::error::{Result, from_jpeg};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JpegCodec;

impl Codec for JpegCodec {
    fn format(&self) -> Format {
        format::JPEG
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        let jpeg = Jpeg::open(bytes).map_err(from_jpeg)?;
        Ok(EncodedImage::from_header(bytes, jpeg.size(), ParsedHeader::Jpeg(jpeg)))
    }

    fn decode_memory(&self, image: &EncodedImage<'_>, region: Rect) -> u64 {
        jpeg_header(image).memory(region)
    }

    fn decode(&self, image: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        decode(jpeg_header(image), region, out)
    }

    fn decode_group(&self, jobs: &mut [Job<'_>]) {
        if let [job] = jobs
            && job.is_divided
        {
            let start_time = Instant::now();
            let jpeg = jpeg_header(&job.image);
            if !bands::decode(job.region, job.out, &|region, rows| decode_rows(jpeg, region, rows)) {
                job.result = decode(jpeg, job.region, job.out);
            }
            job.time = Some(start_time.elapsed());
            return;
        }
        for jobs in jobs.chunks_mut(MAX_GROUP) {
            let mut group = ArrayVec::<_, MAX_GROUP>::new();
            for Job { image, region, out, max_coefficient_bytes, .. } in &mut *jobs {
                group.push(jpeg::Job::new(jpeg_header(image), *region, out).keep_coefficients(*max_coefficient_bytes));
            }
            DECODER.with_borrow_mut(|decoder| decoder.decode_group(&mut group));
            let results: ArrayVec<_, MAX_GROUP> = group.into_iter().map(|job| (job.result, job.coefficients)).collect();
            for (job, (result, coefficients)) in jobs.iter_mut().zip(results) {
                (job.result, job.coefficients) = (result.map_err(from_jpeg), coefficients);
            }
        }
    }

    fn damage(&self, image: &mut EncodedImage<'_>) -> Result<Option<String>> {
        DECODER.with_borrow_mut(|decoder| decoder.damage(jpeg_header(image))).map_err(from_jpeg)
    }
}

pub(super) fn decode(jpeg: &Jpeg<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
    DECODER.with_borrow_mut(|decoder| decoder.decode(jpeg, region, out)).map_err(from_jpeg)
}

fn decode_rows(jpeg: &Jpeg<'_>, region: Rect, rows: &mut [u8]) -> bool {
    DECODER.with_borrow_mut(|decoder| decoder.decode_rows(jpeg, region, rows))
}

fn jpeg_header<'p, 'a>(image: &'p EncodedImage<'a>) -> &'p Jpeg<'a> {
    match &image.header {
        ParsedHeader::Jpeg(jpeg) => jpeg,
        _ => unreachable!("a registry always passes an image to the codec that opened it"),
    }
}

/// Calls [`Decoder::trim_to`] on the decoder of the calling thread.
pub(super) fn trim_to(max_bytes: usize) -> usize {
    DECODER.with_borrow_mut(|decoder| decoder.trim_to(max_bytes))
}

pub(super) fn release() {
    DECODER.take();
}

thread_local! {
    static DECODER: RefCell<Decoder> = RefCell::default();
}
