use crate::decode::{EncodedImage, Rect};
use crate::error::Result;
use crate::sampler::Rng;
use crate::transform::Plan;

/// One image of a sample, from its header to its place in the batch: an image, or one of several
/// images of an image.
pub(crate) struct Shot<'a> {
    /// The encoded image.
    pub(crate) bytes: &'a [u8],
    /// The image, until it is decoded. `None` for an image that another one is decoded with.
    pub(crate) opened: Option<EncodedImage<'a>>,
    /// Number of encoded bytes that are decoded for it.
    pub(crate) encoded: usize,
    /// The part of the image that is decoded: the plan's region, and those of the images that are
    /// decoded with this one.
    pub(crate) region: Rect,
    /// The image of the sample that this one is decoded with.
    pub(crate) with: Option<usize>,
    /// Whether it and the images that are decoded with it must be decoded one by one after all.
    pub(crate) apart: bool,
    /// Whether it is left to the device.
    pub(crate) left: bool,
    /// Its error, until the sample has it.
    pub(crate) result: Result<()>,
    /// Whether the decoder met damage.
    pub(crate) damaged: bool,
    /// Bytes of decoded pixels, and the time in ns if it was decoded alone, or left.
    pub(crate) pixels: usize,
    pub(crate) ns: Option<u64>,
    /// Number of the field among the images of a sample, and of the image in a mosaic.
    pub(crate) field: usize,
    pub(crate) tile: usize,
    /// Number of images of which the image consists.
    pub(crate) tiles: usize,
    /// Whether objects of the second image are pasted into the first.
    pub(crate) pastes: bool,
    pub(crate) plan: Plan,
    /// The generator after the plan took its numbers.
    pub(crate) rng: Rng,
}

impl<'a> Shot<'a> {
    pub(crate) fn new(encoded: EncodedImage<'a>, plan: Plan, rng: Rng) -> Self {
        let (bytes, region) = (encoded.bytes(), plan.region);
        Shot {
            bytes,
            opened: Some(encoded),
            encoded: bytes.len(),
            region,
            with: None,
            apart: false,
            left: false,
            result: Ok(()),
            damaged: false,
            pixels: 0,
            ns: None,
            field: 0,
            tile: 0,
            tiles: 1,
            pastes: false,
            plan,
            rng,
        }
    }

    /// Leaves the image out: nothing is decoded for it.
    pub(crate) fn skip(&mut self) {
        (self.opened, self.encoded) = (None, 0);
    }

    /// Whether the output shows it. It may show no part of an image of a mosaic.
    pub(crate) fn is_shown(&self) -> bool {
        self.plan.target.size().area() > 0
    }

    /// Whether it is the last image of its image.
    pub(crate) fn is_last(&self) -> bool {
        self.tile + 1 == self.tiles
    }

    /// Whether both are images of one image.
    pub(crate) fn shows_the_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.bytes, other.bytes)
    }
}

/// Decides which images of a sample are decoded together: views of one image, if decoding a
/// rectangle around both takes no longer than decoding each. All images of the sample then take at
/// most `room` bytes of memory to decode, or no more than if each is decoded on its own.
pub(crate) fn share(images: &mut [Shot<'_>], room: u64) {
    if images.len() < 2 {
        return;
    }
    let memory = |image: &Shot<'_>| image.opened.as_ref().map_or(0, |encoded| encoded.memory(image.region));
    let mut all = images.iter().map(memory).fold(0, u64::saturating_add);
    for number in 1..images.len() {
        let (before, rest) = images.split_at_mut(number);
        let image = &mut rest[0];
        let Some(encoded) = image.opened.as_ref().filter(|_| image.is_shown()) else { continue };
        let alone = encoded.cost(image.region);
        let joined = before.iter().enumerate();
        let joined = joined.filter(|(_, other)| other.shows_the_same(image) && other.is_shown());
        let joined = joined.filter_map(|(with, other)| {
            let (encoded, both) = (other.opened.as_ref()?, other.region.around(image.region));
            let more = encoded.cost(both).saturating_sub(encoded.cost(other.region));
            let apart = memory(other).saturating_add(memory(image));
            let then = all.saturating_sub(apart).saturating_add(encoded.memory(both));
            (more <= alone && then <= all.max(room)).then_some((more, with, both, then))
        });
        if let Some((_, with, both, then)) = joined.min_by_key(|(more, ..)| *more) {
            before[with].region = both;
            image.skip();
            (image.with, image.ns, all) = (Some(with), Some(0), then);
        }
    }
}

/// Number of different damaged images among the images of a sample.
pub(crate) fn damaged(images: &[Shot<'_>]) -> u32 {
    let damaged = || images.iter().filter(|image| image.damaged);
    let first =
        |(number, image): (usize, &Shot<'_>)| !damaged().take(number).any(|before| before.shows_the_same(image));
    damaged().enumerate().filter(|&(number, image)| first((number, image))).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Codecs, Size};
    use crate::libjpeg::{Options, encode};
    use crate::transform::Augment;

    /// Images of the regions of one image after `share`: those that they are decoded with, and
    /// the regions that are decoded.
    fn shared(file: &[u8], regions: &[Rect], room: u64) -> Vec<(Option<usize>, Rect)> {
        let codecs = Codecs::new();
        let shot = |&region: &Rect| {
            let encoded = codecs.open(file).unwrap();
            let plan = Plan::resized_crop(encoded.size(), region, Size::new(8, 8), Rect::new(0, 0, 8, 8));
            Shot::new(encoded, plan, Rng::new(0, 0, 0))
        };
        let mut images: Vec<_> = regions.iter().map(shot).collect();
        share(&mut images, room);
        for image in &images {
            assert_eq!(image.opened.is_some(), image.with.is_none());
            let with = image.with.map_or(image.region, |with| images[with].region);
            assert!(with.around(image.plan.region) == with, "all of an image is decoded");
        }
        images.iter().map(|image| (image.with, image.region)).collect()
    }

    #[test]
    fn views_are_decoded_together_where_that_takes_no_longer() {
        let pixels: Vec<u8> = (0..160 * 160 * 3).map(|i: u32| (i.wrapping_mul(i) / 7) as u8).collect();
        let plain = encode(&pixels, 160, 160, 3, &Options::new(90, 2, 2));
        let packed = encode(&pixels, 160, 160, 3, &Options { restart: 1, ..Options::new(90, 2, 2) });
        let (left, right) = (Rect::new(0, 64, 48, 48), Rect::new(112, 100, 48, 60));
        let (whole, inside) = (Rect::new(0, 0, 160, 160), Rect::new(40, 40, 64, 64));
        // Without restart markers all codes above the lower edge are read in any case.
        let shared = |file: &[u8], regions: &[Rect]| shared(file, regions, u64::MAX);
        assert_eq!(shared(&plain, &[left, right]), [(None, Rect::new(0, 64, 160, 96)), (Some(0), right)]);
        assert_eq!(shared(&packed, &[left, right]), [(None, left), (None, right)]);
        for file in [&plain, &packed] {
            assert_eq!(shared(file, &[whole, inside, left]), [(None, whole), (Some(0), inside), (Some(0), left)]);
        }
        // Each joins the one that grows least.
        let near = Rect::new(104, 96, 56, 56);
        assert_eq!(shared(&packed, &[left, right, near])[2].0, Some(1));
    }

    #[test]
    fn views_are_not_decoded_together_where_that_takes_more_memory_than_there_is() {
        let mut large = encode(&[7; 160 * 160 * 3], 160, 160, 3, &Options::new(90, 2, 2));
        let sof = large.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
        // Only the header is read here.
        large[sof + 5..sof + 9].copy_from_slice(&[16000u16.to_be_bytes(); 2].concat());
        let codecs = Codecs::new();
        let encoded = codecs.open(&large).unwrap();
        let (left, right) = (Rect::new(0, 15000, 400, 400), Rect::new(15600, 15600, 400, 400));
        let both = left.around(right);
        let [least, together] = [encoded.memory(left) + encoded.memory(right), encoded.memory(both)];
        assert!(together > 5 * least, "{together} bytes and {least}");
        assert_eq!(shared(&large, &[left, right], together), [(None, both), (Some(0), right)]);
        assert_eq!(shared(&large, &[left, right], together - 1), [(None, left), (None, right)]);
        // Views that overlap take less memory together.
        let (whole, inside) = (Rect::new(0, 0, 16000, 16000), Rect::new(40, 40, 15000, 15000));
        assert_eq!(shared(&large, &[whole, inside], 0), [(None, whole), (Some(0), inside)]);
        // All images of the sample count.
        let top = Rect::new(8000, 0, 400, 400);
        let second = |room| shared(&large, &[left, right, top], room)[1].0;
        assert_eq!([0, encoded.memory(top)].map(|more| second(together + more)), [None, Some(0)]);
    }

    #[test]
    fn a_damaged_image_counts_once() {
        let (codecs, npy) = (Codecs::new(), crate::decode::raw::npy_header(Size::new(2, 2)));
        let files = [[&npy[..], &[7; 12]].concat(), [&npy[..], &[7; 12]].concat()];
        let shot = |file: usize, damaged| {
            let encoded = codecs.open(&files[file]).unwrap();
            let plan = Augment::pass_through(2, 2).plan(encoded.size(), &mut Rng::new(0, 0, 0)).unwrap();
            Shot { damaged, ..Shot::new(encoded, plan, Rng::new(0, 0, 0)) }
        };
        let count = |images: &[(usize, bool)]| {
            super::damaged(&images.iter().map(|&(file, damaged)| shot(file, damaged)).collect::<Vec<_>>())
        };
        assert_eq!(count(&[(0, true), (0, false), (0, true), (0, true)]), 1);
        assert_eq!(count(&[(1, false), (0, true), (1, true), (0, true)]), 2);
        assert_eq!(count(&[(0, false), (1, false)]), 0);
    }
}
