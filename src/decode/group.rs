use super::Job;

/// Maximum number of images that are decoded together. With larger groups, a batch would be divided
/// less evenly among the workers.
pub(crate) const MAX_GROUP: usize = 8;

/// Maximum number of images per sample. For example, two global and eight local views need ten.
pub(crate) const MAX_IMAGES_PER_SAMPLE: usize = 16;

/// Maximum number of images of the samples that a worker processes together. If each sample has ten
/// views, a worker processes three samples together.
pub(crate) const MAX_PLANNED_IMAGES: usize = 32;

/// Decodes all jobs, and stores the outcome of each job in [`Job::result`].
///
/// Up to eight consecutive jobs with the same codec are passed to
/// [`Codec::decode_group`](super::Codec::decode_group) together. The JPEG codec interleaves the
/// streams of such a group, which is faster than decoding the images one after another.
pub fn decode_group(jobs: &mut [Job<'_>]) {
    let is_same_codec = |a: &Job<'_>, b: &Job<'_>| match (a.image.codec, b.image.codec) {
        _ if a.is_divided || b.is_divided => false,
        (Some(a), Some(b)) => std::ptr::addr_eq(a, b),
        _ => false,
    };
    for jobs in jobs.chunk_by_mut(is_same_codec).flat_map(|jobs| jobs.chunks_mut(MAX_GROUP)) {
        match jobs[0].image.codec {
            Some(codec) => codec.decode_group(jobs),
            None => jobs.iter_mut().for_each(Job::run),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Condition, Pixels, Rect, standard};
    use crate::libjpeg::{Options, encode};
    use warpfeed_jpeg::internal::headers_read;

    /// Progressive files, damaged files and files without EOI fall back from the interleaved to the
    /// plain decoder, which must not read the header again.
    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "builds with debug assertions count headers")]
    fn jpeg_headers_are_read_once_per_image() {
        let pixels: Vec<u8> = (0..90 * 70 * 3).map(|i| (i * i / 7) as u8).collect();
        let file = |options| encode(&pixels, 90, 70, 3, &options);
        let plain = file(Options::new(90, 2, 2));
        let mut damaged = plain.clone();
        let middle = damaged.len() * 2 / 3;
        damaged.splice(middle..middle, [0xff, 0xd0]);
        let files = [
            plain[..plain.len() - 2].to_vec(),
            plain,
            file(Options { restart: 3, ..Options::new(90, 1, 1) }),
            file(Options { progressive: true, ..Options::new(90, 2, 1) }),
            damaged,
        ];
        let region = Rect::new(10, 10, 40, 30);
        let before = headers_read();
        for bytes in &files {
            let mut image = standard().open(bytes).unwrap();
            assert!(image.decode_memory(region) > 0 && image.info().jpeg.is_some());
            image.is_plain_jpeg();
            assert!(!matches!(image.check().unwrap(), Condition::Damaged(_)));
            image.decode(region, &mut Pixels::new()).unwrap();
        }
        assert_eq!(headers_read() - before, files.len() as u64);

        let mut outs = vec![Pixels::new(); files.len()];
        let jobs = files.iter().zip(&mut outs);
        let mut jobs: Vec<_> =
            jobs.map(|(bytes, out)| Job::new(standard().open(bytes).unwrap(), region, out)).collect();
        decode_group(&mut jobs);
        assert!(jobs.iter().all(|job| job.result.is_ok()));
        assert_eq!(headers_read() - before, 2 * files.len() as u64);
    }
}
