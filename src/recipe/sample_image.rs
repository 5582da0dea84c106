//! The images of a sample while a worker processes them. Several views of one source image may be
//! cropped from the same decoded pixels.

use std::sync::Arc;

use crate::decode::{Admission, EncodedImage, Pixels, Rect};
use crate::error::Result;
use crate::sampler::Rng;
use crate::source::Frames;
use crate::transform::Plan;

/// One image of a sample: a complete image, or a tile of a combined image. A mosaic has one tile
/// per source image. A copy-paste has two tiles: the image to paste into, and the image that
/// provides the objects.
pub(crate) struct SampleImage<'a> {
    /// The encoded image, or the first frame of a clip.
    pub(crate) bytes: &'a [u8],
    pub(crate) frames: Option<Frames<'a>>,
    pub(crate) damaged_frames: u32,
    /// The image with its parsed header. `None` in these cases:
    /// - Decoding has started.
    /// - The image is a clip, and `plan_clips` has computed its memory.
    /// - The image uses the pixels of `pixel_source` or of the cache.
    /// - The image is an invisible tile that is not checked for damage.
    pub(crate) encoded_image: Option<EncodedImage<'a>>,
    pub(crate) cached_pixels: Option<Arc<Pixels>>,
    pub(crate) admission: Option<Admission<'a>>,
    pub(crate) encoded_bytes: usize,
    /// Region to decode. It includes the regions of other images that use the pixels of this image.
    pub(crate) region: Rect,
    /// Index of the image of the sample that provides the pixels of this image, if this image is
    /// not decoded itself.
    pub(crate) pixel_source: Option<usize>,
    /// Whether to decode the plan's region again by itself, because decoding a larger region failed
    /// or found damage.
    pub(crate) must_decode_separately: bool,
    /// Whether the device should decode the image, if it can.
    pub(crate) prefers_device: bool,
    pub(crate) is_on_device: bool,
    /// Whether several workers may decode parts of the image.
    pub(crate) is_divided: bool,
    /// The error of this image, if any. The worker later returns it as the sample's error.
    pub(crate) result: Result<()>,
    pub(crate) is_damaged: bool,
    pub(crate) pixel_bytes: usize,
    /// Time in ns for decoding this image, or for copying its encoded data for the device. `None`
    /// if the time was not measured for this image alone. 0 for a clip, and for an image that uses
    /// the pixels of `pixel_source` or of the cache.
    pub(crate) decode_ns: Option<u64>,
    /// Index of the image's field among the sample's image fields.
    pub(crate) field: usize,
    pub(crate) tile: usize,
    pub(crate) tile_count: usize,
    /// Whether objects of the second tile are pasted into the first tile.
    pub(crate) has_pasted_objects: bool,
    pub(crate) plan: Plan,
    /// The state of the random number generator after planning.
    pub(crate) rng: Rng,
}

impl<'a> SampleImage<'a> {
    pub(crate) fn new(encoded: EncodedImage<'a>, plan: Plan, rng: Rng) -> Self {
        let (bytes, region) = (encoded.bytes(), plan.region);
        SampleImage {
            bytes,
            frames: None,
            damaged_frames: 0,
            encoded_image: Some(encoded),
            cached_pixels: None,
            admission: None,
            encoded_bytes: bytes.len(),
            region,
            pixel_source: None,
            must_decode_separately: false,
            prefers_device: false,
            is_on_device: false,
            is_divided: false,
            result: Ok(()),
            is_damaged: false,
            pixel_bytes: 0,
            decode_ns: None,
            field: 0,
            tile: 0,
            tile_count: 1,
            has_pasted_objects: false,
            plan,
            rng,
        }
    }

    pub(crate) fn skip_decoding(&mut self) {
        (self.encoded_image, self.encoded_bytes) = (None, 0);
    }

    pub(crate) fn use_cached(&mut self, cached: Arc<Pixels>) {
        self.skip_decoding();
        (self.pixel_bytes, self.decode_ns) = (self.region.size().area() as usize * 3, Some(0));
        self.cached_pixels = Some(cached);
    }

    /// Returns whether the image is visible. A tile of a mosaic may lie completely outside the
    /// output.
    pub(crate) fn is_visible(&self) -> bool {
        self.plan.target.size().area() > 0
    }

    pub(crate) fn coefficient_bytes(&self) -> usize {
        self.admission.as_ref().map_or(0, |admission| admission.max_coefficient_bytes)
    }

    pub(crate) fn is_last_tile(&self) -> bool {
        self.tile + 1 == self.tile_count
    }

    pub(crate) fn has_same_source(&self, other: &Self) -> bool {
        std::ptr::eq(self.bytes, other.bytes)
    }
}

/// Decides which images of a sample are decoded together. A visible view of a source image joins an
/// earlier visible view of the same source image that is decoded itself, if two conditions hold.
/// First, the estimated cost of decoding the bounding rectangle of both regions does not exceed the
/// cost of decoding both regions separately. Second, the memory for decoding all images of the
/// sample then fits in `max_memory` bytes, or does not grow. If a view can join several earlier
/// views, it joins the view for which the cost grows least.
pub(crate) fn share_decoding(images: &mut [SampleImage<'_>], max_memory: u64) {
    if images.len() < 2 {
        return;
    }
    let memory =
        |image: &SampleImage<'_>| image.encoded_image.as_ref().map_or(0, |encoded| encoded.decode_memory(image.region));
    let mut total_memory = images.iter().map(memory).fold(0, u64::saturating_add);
    for number in 1..images.len() {
        let (earlier_images, later_images) = images.split_at_mut(number);
        let image = &mut later_images[0];
        let Some(encoded) = image.encoded_image.as_ref().filter(|_| image.is_visible()) else { continue };
        let single_cost = encoded.decode_cost(image.region);
        let candidates = earlier_images.iter().enumerate();
        let candidates = candidates.filter(|(_, other)| other.has_same_source(image) && other.is_visible());
        let candidates = candidates.filter_map(|(source, other)| {
            let (encoded, joint_region) = (other.encoded_image.as_ref()?, other.region.union(image.region));
            let extra_cost = encoded.decode_cost(joint_region).saturating_sub(encoded.decode_cost(other.region));
            let separate_memory = memory(other).saturating_add(memory(image));
            let joint_total =
                total_memory.saturating_sub(separate_memory).saturating_add(encoded.decode_memory(joint_region));
            (extra_cost <= single_cost && joint_total <= total_memory.max(max_memory)).then_some((
                extra_cost,
                source,
                joint_region,
                joint_total,
            ))
        });
        if let Some((_, source, joint_region, joint_total)) = candidates.min_by_key(|(extra_cost, ..)| *extra_cost) {
            earlier_images[source].region = joint_region;
            image.skip_decoding();
            (image.pixel_source, image.decode_ns, total_memory) = (Some(source), Some(0), joint_total);
        }
    }
}

/// Returns the number of damaged frames. The frames of a clip with several views count once.
pub(crate) fn count_damaged_frames(images: &[SampleImage<'_>]) -> u32 {
    let clips = || images.iter().filter(|image| image.damaged_frames > 0);
    let is_first = |(number, image): (usize, &SampleImage<'_>)| {
        !clips().take(number).any(|earlier| earlier.has_same_source(image))
    };
    clips()
        .enumerate()
        .filter(|&(number, image)| is_first((number, image)))
        .map(|(_, image)| image.damaged_frames)
        .sum()
}

/// Returns the number of damaged images. An image with several views counts once.
pub(crate) fn count_damaged_images(images: &[SampleImage<'_>]) -> u32 {
    let damaged_images = || images.iter().filter(|image| image.is_damaged);
    let is_first = |(number, image): (usize, &SampleImage<'_>)| {
        !damaged_images().take(number).any(|earlier| earlier.has_same_source(image))
    };
    damaged_images().enumerate().filter(|&(number, image)| is_first((number, image))).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Codecs, Size};
    use crate::libjpeg::{Options, encode};
    use crate::transform::Augment;

    /// Calls `share_decoding` with one view per region of the same source image. Returns the
    /// `pixel_source` and the `region` of each view.
    fn shared(file: &[u8], regions: &[Rect], max_memory: u64) -> Vec<(Option<usize>, Rect)> {
        let codecs = Codecs::new();
        let sample_image = |&region: &Rect| {
            let encoded = codecs.open(file).unwrap();
            let plan = Plan::resized_crop(encoded.size(), region, Size::new(8, 8), Rect::new(0, 0, 8, 8));
            SampleImage::new(encoded, plan, Rng::new(0, 0, 0))
        };
        let mut images: Vec<_> = regions.iter().map(sample_image).collect();
        share_decoding(&mut images, max_memory);
        for image in &images {
            assert_eq!(image.encoded_image.is_some(), image.pixel_source.is_none());
            let decoded = image.pixel_source.map_or(image.region, |source| images[source].region);
            assert!(decoded.union(image.plan.region) == decoded, "the decoded region contains the image's region");
        }
        images.iter().map(|image| (image.pixel_source, image.region)).collect()
    }

    #[test]
    fn views_share_a_decoding_if_it_costs_no_more() {
        let pixels: Vec<u8> = (0..160 * 160 * 3).map(|i: u32| (i.wrapping_mul(i) / 7) as u8).collect();
        let plain = encode(&pixels, 160, 160, 3, &Options::new(90, 2, 2));
        let with_restarts = encode(&pixels, 160, 160, 3, &Options { restart: 1, ..Options::new(90, 2, 2) });
        let (left, right) = (Rect::new(0, 64, 48, 48), Rect::new(112, 100, 48, 60));
        let (full_area, inside) = (Rect::new(0, 0, 160, 160), Rect::new(40, 40, 64, 64));
        // Without restart markers, the decoder must entropy-decode everything above the lower edge
        // of a view, so decoding the joint region costs no more than decoding both regions.
        let shared = |file: &[u8], regions: &[Rect]| shared(file, regions, u64::MAX);
        assert_eq!(shared(&plain, &[left, right]), [(None, Rect::new(0, 64, 160, 96)), (Some(0), right)]);
        assert_eq!(shared(&with_restarts, &[left, right]), [(None, left), (None, right)]);
        for file in [&plain, &with_restarts] {
            assert_eq!(
                shared(file, &[full_area, inside, left]),
                [(None, full_area), (Some(0), inside), (Some(0), left)]
            );
        }
        // A view joins the region whose decoding cost grows least.
        let near = Rect::new(104, 96, 56, 56);
        assert_eq!(shared(&with_restarts, &[left, right, near])[2].0, Some(1));
    }

    #[test]
    fn views_do_not_share_a_decoding_beyond_the_memory_limit() {
        let mut large = encode(&[7; 160 * 160 * 3], 160, 160, 3, &Options::new(90, 2, 2));
        let sof = large.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
        large[sof + 5..sof + 9].copy_from_slice(&[16000u16.to_be_bytes(); 2].concat());
        let codecs = Codecs::new();
        let encoded = codecs.open(&large).unwrap();
        let (left, right) = (Rect::new(0, 15000, 400, 400), Rect::new(15600, 15600, 400, 400));
        let joint_region = left.union(right);
        let [separate, together] =
            [encoded.decode_memory(left) + encoded.decode_memory(right), encoded.decode_memory(joint_region)];
        assert!(together > 5 * separate, "{together} bytes together, {separate} bytes separately");
        assert_eq!(shared(&large, &[left, right], together), [(None, joint_region), (Some(0), right)]);
        assert_eq!(shared(&large, &[left, right], together - 1), [(None, left), (None, right)]);
        let (full_area, inside) = (Rect::new(0, 0, 16000, 16000), Rect::new(40, 40, 15000, 15000));
        assert_eq!(shared(&large, &[full_area, inside], 0), [(None, full_area), (Some(0), inside)]);
        // The limit applies to all images of the sample.
        let top = Rect::new(8000, 0, 400, 400);
        let second = |max_memory| shared(&large, &[left, right, top], max_memory)[1].0;
        assert_eq!(
            [0, encoded.decode_memory(top)].map(|extra_memory| second(together + extra_memory)),
            [None, Some(0)]
        );
    }

    #[test]
    fn a_damaged_image_counts_once() {
        let (codecs, npy) = (Codecs::new(), crate::decode::raw::npy_header(Size::new(2, 2)));
        let files = [[&npy[..], &[7; 12]].concat(), [&npy[..], &[7; 12]].concat()];
        let sample_image = |file: usize, is_damaged| {
            let encoded = codecs.open(&files[file]).unwrap();
            let plan = Augment::pass_through(2, 2).plan(encoded.size(), &mut Rng::new(0, 0, 0)).unwrap();
            SampleImage { is_damaged, ..SampleImage::new(encoded, plan, Rng::new(0, 0, 0)) }
        };
        let count = |images: &[(usize, bool)]| {
            super::count_damaged_images(
                &images.iter().map(|&(file, damaged)| sample_image(file, damaged)).collect::<Vec<_>>(),
            )
        };
        assert_eq!(count(&[(0, true), (0, false), (0, true), (0, true)]), 1);
        assert_eq!(count(&[(1, false), (0, true), (1, true), (0, true)]), 2);
        assert_eq!(count(&[(0, false), (1, false)]), 0);
    }
}
