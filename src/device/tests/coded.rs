//! Batches for testing the decode kernels and the model of them. They contain images of the kinds
//! that a device decodes, with the pixels that the host produces.

#[cfg(feature = "video")]
use crate::batch::YuvRegion;
use crate::batch::{DecodeOps, EncodedLocation};
use crate::decode::{Bitstream, EncodedImage, Pixels, Rect, Size, standard};
use crate::libjpeg::{Options, encode, with_bytes_after_segment};
use crate::sampler::Rng;
use crate::transform::{Augment, Plan, Resizer};

#[derive(Default)]
pub(in crate::device) struct Coded {
    /// Height and width of the output.
    pub(in crate::device) size: (usize, usize),
    pub(in crate::device) records: Vec<u8>,
    pub(in crate::device) arena: Vec<u8>,
    /// For each sample, the pixels that the host decodes, or `None` if it does not decode the
    /// sample.
    pub(in crate::device) expected: Vec<Option<Vec<u8>>>,
    pub(in crate::device) blocks: usize,
    /// Maximum number of segments per sample.
    pub(in crate::device) segments: usize,
    /// Ranges of the arena with entropy-coded bytes.
    pub(in crate::device) data: Vec<std::ops::Range<usize>>,
}

impl Coded {
    pub(in crate::device) fn new(size: (usize, usize)) -> Self {
        Coded { size, ..Coded::default() }
    }

    pub(in crate::device) fn count(&self) -> usize {
        self.expected.len()
    }

    pub(in crate::device) fn sample_bytes(&self) -> usize {
        self.size.0 * self.size.1 * 3
    }

    /// Adds an image, unless the device cannot decode it. With `compare`, the host decodes the
    /// image as well. Returns whether the image was added.
    pub(in crate::device) fn add(&mut self, jpeg: &[u8], plan: &Plan, compare: bool) -> bool {
        let Ok(image) = standard().open(jpeg) else { return false };
        let mut stream = Bitstream::default();
        let Some(grid) = image.bitstream(plan.region, usize::MAX, &mut stream).filter(|_| DecodeOps::supports(plan))
        else {
            return false;
        };
        let offset = self.arena.len();
        let bytes = stream.len();
        self.arena.resize((offset + bytes + DecodeOps::SLACK).next_multiple_of(16), 0xff);
        stream.write(&mut self.arena[offset..offset + bytes]);
        let heads = grid.components().len() * 128 + (grid.huffman_table_count * 272 + grid.segment_count * 16) as usize;
        self.data.push(offset + heads..offset + bytes);
        let encoded = EncodedLocation { image_index: self.count(), offset, bytes, block: self.blocks };
        let ops = DecodeOps::new(&grid, plan, encoded).expect("the batch is small enough");
        self.segments = self.segments.max(grid.segment_count as usize);
        self.push(ops, grid.needed_blocks(), plan, compare.then_some(image));
        true
    }

    fn push(&mut self, ops: DecodeOps, blocks: usize, plan: &Plan, image: Option<EncodedImage<'_>>) {
        let mut record = [0; DecodeOps::BYTES];
        ops.write(&mut record);
        self.records.extend(record);
        self.blocks += blocks;
        let (mut pixels, mut out) = (Pixels::new(), vec![0; self.sample_bytes()]);
        let decoded = image.is_some_and(|mut image| image.decode(plan.region, &mut pixels).is_ok());
        self.expected.push(decoded.then(|| {
            Resizer::new().run(&pixels, plan, &mut out).expect("the plan is valid");
            out
        }));
    }

    /// Adds a video frame, which the device converts to RGB. With `interleave`, Cb and Cr of an
    /// 8-bit 4:2:0 frame alternate, as in the frames of a video engine. Returns whether the frame
    /// was added.
    #[cfg(feature = "video")]
    pub(in crate::device) fn add_video(&mut self, record: &[u8], plan: &Plan, interleave: bool) -> bool {
        use warpfeed_video::{Layout, Plane, Planes};
        let image = standard().open(record).expect("the record is valid");
        let mut added = false;
        crate::decode::decode_planes(std::slice::from_ref(&image), |_, planes, orientation| {
            let size = planes.size(1);
            let pairs = (0..size.1).flat_map(|y| (0..size.0).flat_map(move |x| [(1, x, y), (2, x, y)]));
            let interleaved: Vec<u8> = match (interleave, planes.layout, planes.planes[0]) {
                (true, Layout::Yuv420, Plane::Bits8(..)) => {
                    pairs.map(|(plane, x, y)| planes.sample(plane, x, y) as u8).collect()
                }
                _ => Vec::new(),
            };
            let nv12 = Planes {
                layout: Layout::Nv12,
                planes: [planes.planes[0], Plane::Bits8(&interleaved, 2 * size.0), Plane::Bits8(&[], 0)],
                ..*planes
            };
            let planes = if interleaved.is_empty() { planes } else { &nv12 };
            let yuv = YuvRegion::new(planes, orientation, plan.region).filter(|_| DecodeOps::supports(plan));
            let Some(yuv) = yuv else { return };
            let (offset, bytes, blocks) = (self.arena.len(), yuv.len(), DecodeOps::rgb_blocks(plan.region.size()));
            self.arena.resize((offset + bytes).next_multiple_of(16), 0xff);
            yuv.write(&mut self.arena[offset..offset + bytes]);
            self.data.push(0..0);
            let encoded = EncodedLocation { image_index: self.count(), offset, bytes, block: self.blocks };
            let ops = DecodeOps::for_yuv(&yuv, plan, encoded).expect("the batch is small enough");
            self.push(ops, blocks, plan, None);
            added = true;
        });
        if added {
            let (mut image, mut pixels, mut out) = (image, Pixels::new(), vec![0; self.sample_bytes()]);
            image.decode(plan.region, &mut pixels).expect("the frame was just decoded");
            Resizer::new().run(&pixels, plan, &mut out).expect("the plan is valid");
            *self.expected.last_mut().expect("the frame was added") = Some(out);
        }
        added
    }

    fn add_copy(&mut self, donor: usize) {
        self.records.extend_from_within(donor * DecodeOps::BYTES..(donor + 1) * DecodeOps::BYTES);
        self.expected.push(self.expected[donor].clone());
        self.data.push(0..0);
    }

    pub(in crate::device) fn drop_copies(&mut self) {
        for (place, record) in self.records.as_chunks_mut().0.iter_mut().enumerate() {
            if DecodeOps::read(record).image_index() != place {
                *record = [0; DecodeOps::BYTES];
                self.expected[place] = None;
            }
        }
    }

    /// Adds a sample with pixels that are already in place.
    pub(in crate::device) fn add_nothing(&mut self) {
        self.records.extend([0; DecodeOps::BYTES]);
        self.expected.push(None);
        self.data.push(0..0);
    }
}

/// Kinds of JPEGs that a device decodes: number of channels, and encoder options.
pub(in crate::device) fn kinds() -> Vec<(usize, Options)> {
    let options_for = |sampling: [(u8, u8); 3]| Options { sampling, ..Options::new(85, 1, 1) };
    let mut kinds = vec![
        (1, options_for([(1, 1); 3])),
        (1, options_for([(2, 2); 3])),
        (3, Options { rgb: true, ..options_for([(1, 1); 3]) }),
    ];
    for (h, v) in [(1, 1), (2, 1), (2, 2), (1, 2), (4, 1), (1, 4), (4, 2)] {
        kinds.push((3, Options::new(85, h, v)));
    }
    kinds.push((3, options_for([(2, 2), (2, 1), (1, 2)])));
    kinds.push((3, options_for([(1, 1), (2, 2), (2, 2)])));
    kinds.push((3, options_for([(1, 2), (2, 1), (1, 1)])));
    kinds
}

pub(in crate::device) fn draw(rng: &mut Rng, size: Size, channels: usize) -> Vec<u8> {
    let (noise, step) = ([1, 20, 256][rng.below(3) as usize], 3 + rng.below(40));
    let mut pixels = Vec::new();
    for y in 0..u64::from(size.height) {
        for x in 0..u64::from(size.width) {
            for c in 0..channels as u64 {
                let edge = if (x / step + y / step).is_multiple_of(2) { 90 } else { 0 };
                pixels.push(((x * (c + 1) + y * 2 + edge) % 256 / 2 + rng.below(noise) / 2) as u8);
            }
        }
    }
    pixels
}

pub(in crate::device) fn random_jpeg(
    rng: &mut Rng,
    (channels, options): &(usize, Options),
    largest: u64,
) -> (Vec<u8>, Size) {
    let side = |rng: &mut Rng| {
        let max_side = if rng.chance(0.3) { 20 } else { largest };
        1 + rng.below(max_side) as u32
    };
    let size = Size::new(side(rng), side(rng));
    let mut options = options.clone();
    options.quality = [10, 50, 85, 100][rng.below(4) as usize];
    options.optimize = rng.chance(0.5);
    options.restart = [0, 0, 1, 2, 3, 7, 16][rng.below(7) as usize];
    let jpeg = encode(&draw(rng, size, *channels), size.width, size.height, *channels, &options);
    let jpeg = if rng.chance(0.1) { extended(&jpeg) } else { jpeg };
    // With an EXIF orientation, a device writes the upright pixels over the coefficients, so they
    // must not take more memory than the coefficients.
    let sampling = if *channels == 1 { [(1, 1); 1].to_vec() } else { options.sampling.to_vec() };
    let max_factor = |factor_of: fn(&(u8, u8)) -> u8| u32::from(sampling.iter().map(factor_of).max().unwrap_or(1));
    let blocks: u32 = sampling.iter().map(|&(h, v)| u32::from(h) * u32::from(v)).sum();
    let fits = sampling.len() as u32 * max_factor(|s| s.0) * max_factor(|s| s.1) <= 2 * blocks;
    let exif = 1 + rng.below(8) as u8;
    if !fits || rng.chance(0.6) {
        return (jpeg, size);
    }
    (oriented(&jpeg, exif), if exif > 4 { Size::new(size.height, size.width) } else { size })
}

pub(crate) fn oriented(jpeg: &[u8], exif: u8) -> Vec<u8> {
    let entry = [0x12, 0x01, 3, 0, 1, 0, 0, 0, exif, 0, 0, 0];
    let body = [&b"Exif\0\0II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat();
    [&jpeg[..2], &[0xff, 0xe1], &(body.len() as u16 + 2).to_be_bytes(), &body, &jpeg[2..]].concat()
}

/// Rewrites the file as extended sequential (SOF1), with 16-bit quantization values. Some of them
/// may not fit into a byte.
pub(in crate::device) fn extended(jpeg: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (jpeg[..2].to_vec(), &jpeg[2..]);
    while rest[1] != 0xda {
        let (segment, behind) = rest.split_at(2 + usize::from(u16::from_be_bytes([rest[2], rest[3]])));
        rest = behind;
        match segment[1] {
            0xc0 => out.extend([&[0xff, 0xc1], &segment[2..]].concat()),
            0xdb => {
                let tables = segment[4..].chunks(65).flat_map(|table| {
                    let value = |(i, &value): (usize, &u8)| (u16::from(value) * (1 + i as u16 / 8)).to_be_bytes();
                    std::iter::once(0x10 | table[0]).chain(table[1..].iter().enumerate().flat_map(value))
                });
                let tables: Vec<u8> = tables.collect();
                out.extend([&[0xff, 0xdb], &(tables.len() as u16 + 2).to_be_bytes()[..], &tables].concat());
            }
            _ => out.extend(segment),
        }
    }
    out.extend(rest);
    out
}

/// Encodes a square image of four-pixel boxes, with a restart marker every `restart` MCUs. The
/// codes of the image repeat, so decoding from a wrong position never synchronizes.
pub(in crate::device) fn pattern(side: u32, restart: Option<u32>) -> Vec<u8> {
    let pixel = |i: u32| if (i % side / 4 + i / side / 4).is_multiple_of(2) { [250, 240, 200] } else { [0; 3] };
    let pixels: Vec<u8> = (0..side * side).flat_map(pixel).collect();
    encode(&pixels, side, side, 3, &Options { restart: restart.unwrap_or(0), ..Options::new(75, 2, 2) })
}

pub(in crate::device) fn noise(side: u32) -> Vec<u8> {
    let mut rng = Rng::new(3, 1, 4);
    let pixels: Vec<u8> = (0..side * side * 3).map(|_| rng.next_u64() as u8).collect();
    encode(&pixels, side, side, 3, &Options::new(75, 2, 2))
}

/// Returns images with and without stray bytes after the last MCU of a segment, and whether the
/// host must decode each image.
pub(in crate::device) fn with_rests(size: (usize, usize)) -> (Coded, Vec<bool>) {
    let (mut rng, mut coded, mut faults) = (Rng::new(23, 0, 0), Coded::new(size), Vec::new());
    let output = Size::new(size.1 as u32, size.0 as u32);
    let noise: Vec<u8> = (0..9000).map(|_| rng.below(255) as u8).collect();
    for (side, restart) in [(40, 1), (40, 0), (200, 2), (200, 13), (200, 50), (200, 0), (700, 0)] {
        let pixels: Vec<u8> = (0..side * side * 3).map(|i| (i / 50 % 150) as u8 + rng.below(80) as u8).collect();
        let jpeg = encode(&pixels, side, side, 3, &Options { restart, ..Options::new(85, 2, 2) });
        let across = side.div_ceil(16);
        let (mcus, interval) = (across * across, if restart == 0 { across * across } else { restart });
        for shown in [side, side - 32] {
            let region = Rect::new(0, 0, shown, shown);
            let plan = Plan::resized_crop(Size::new(side, side), region, output, Rect::full(output));
            let grid = standard().open(&jpeg).unwrap().bitstream(region, usize::MAX, &mut Bitstream::default());
            let (wide, high) = grid.unwrap().needed_mcus;
            assert!(coded.add(&jpeg, &plan, true));
            faults.push(false);
            for number in [0, (mcus - 1) / interval] {
                let last = mcus.min((number + 1) * interval) - 1;
                for rest in [&[0x55][..], &[0xff, 0], &[0; 700], &noise] {
                    assert!(coded.add(&with_bytes_after_segment(&jpeg, number as usize, rest), &plan, true));
                    faults.push(last % across < wide && last / across < high);
                }
            }
        }
    }
    (coded, faults)
}

/// Returns a plan for the last pixels of a square image. Without restart markers, all earlier data
/// must be decoded first.
pub(in crate::device) fn corner(side: u32, (height, width): (usize, usize)) -> Plan {
    let output = Size::new(width as u32, height as u32);
    let region = Rect::new(side - output.width, side - output.height, output.width, output.height);
    Plan::resized_crop(Size::new(side, side), region, output, Rect::full(output))
}

/// Encodes an image with a restart marker every `restart` MCUs, or none if `restart` is 0.
pub(in crate::device) fn large(size: Size, (h, v): (u8, u8), restart: u32) -> Vec<u8> {
    let mut rng = Rng::new(size.area(), 0, 0);
    let options = Options { restart, ..Options::new(85, h, v) };
    encode(&draw(&mut rng, size, 3), size.width, size.height, 3, &options)
}

/// Adds an image with a restart marker after each row of MCUs, once per region, both as it is and
/// [`extended`].
pub(in crate::device) fn add_large(coded: &mut Coded, size: Size, (h, v): (u8, u8), regions: &[Rect]) {
    let jpeg = large(size, (h, v), size.width.div_ceil(8 * u32::from(h)));
    let output = Size::new(coded.size.1 as u32, coded.size.0 as u32);
    for jpeg in [&extended(&jpeg), &jpeg] {
        for &region in regions {
            let plan = Plan::resized_crop(size, region, output, Rect::full(output));
            assert!(coded.add(jpeg, &plan, true), "{region:?} of {size:?}");
            assert!(coded.expected.last().unwrap().is_some(), "the host decodes an intact image");
        }
    }
}

pub(in crate::device) fn random_plan(rng: &mut Rng, size: Size, (height, width): (usize, usize)) -> Plan {
    let (height, width) = (height as u32, width as u32);
    let augment = match rng.below(7) {
        0 => Augment::train(224).with_output_size(width, height),
        1 => Augment::resize(width, height),
        2 => Augment::letterbox(width, height),
        3 => Augment::scale_jitter(width, 0.3, 2.0).with_output_size(width, height),
        4 => Augment::random_crop(width).with_output_size(width, height).pad_if_needed(),
        5 => Augment::random_resize(width, 1, 2 * width).with_output_size(width, height),
        _ => Augment::eval(width.min(height) + 7, width.min(height)).with_output_size(width, height),
    };
    let augment = augment.flip(0.5).vertical_flip(0.5).fill([10, 200, 90]);
    let any = Augment::resize(width, height).flip(0.5);
    augment.plan(size, rng).or_else(|_| any.plan(size, rng)).expect("a resize supports any size")
}

/// Returns the records of the frames of a video, with an EXIF orientation.
#[cfg(feature = "video")]
pub(crate) fn video_records(file: &[u8], orientation: u8) -> Vec<Vec<u8>> {
    let track = warpfeed_video::open(&file.to_vec()).expect("the fixture is valid");
    let record = |frame| {
        let (needed, mut record) = (track.packets_for(frame), Vec::new());
        warpfeed_video::record::write_header(track.config(), orientation, "clip", needed.len() as u32, &mut record)
            .unwrap();
        for packet in needed {
            record.extend(packet.size.to_le_bytes());
            record.extend(&file[packet.offset as usize..][..packet.size as usize]);
        }
        record
    };
    (0..track.len()).map(record).collect()
}

/// Returns the record of a random video frame, with a random orientation, and its upright size. The
/// frames have each layout of chroma, 8 or 10 bits, and odd sizes.
#[cfg(feature = "video")]
fn random_video(rng: &mut Rng) -> (Vec<u8>, Size) {
    macro_rules! fixtures {
        ($($name:literal),*) => {
            [$(&include_bytes!(concat!("../../../video/tests/fixtures/", $name, ".mp4"))[..]),*]
        };
    }
    let files = fixtures!["g2", "odd", "odd422", "odd444", "gray", "ten", "ten444", "full", "bt709", "bt2020"];
    let file = files[rng.below(files.len() as u64) as usize];
    let record = video_records(file, 1 + rng.below(8) as u8).swap_remove(0);
    let size = standard().open(&record).expect("the record is valid").size();
    (record, size)
}

pub(in crate::device) fn random_batch(seed: u64, size: (usize, usize), count: usize, largest: u64) -> Coded {
    let (mut rng, mut coded, kinds) = (Rng::new(seed, 0, 0), Coded::new(size), kinds());
    for i in 0.. {
        if coded.count() == count {
            break;
        }
        if rng.chance(0.05) {
            coded.add_nothing();
            continue;
        }
        if coded.count() > 0 && rng.chance(0.05) {
            coded.add_copy(rng.below(coded.count() as u64) as usize);
            continue;
        }
        #[cfg(feature = "video")]
        if rng.chance(0.15) {
            let (record, image) = random_video(&mut rng);
            let (plan, interleave) = (random_plan(&mut rng, image, size), rng.chance(0.5));
            let added = coded.add_video(&record, &plan, interleave);
            assert!(added || !DecodeOps::supports(&plan), "the device converts an intact frame: {plan:?}");
            continue;
        }
        let (jpeg, image) = random_jpeg(&mut rng, &kinds[i % kinds.len()], largest);
        let plan = random_plan(&mut rng, image, size);
        let added = coded.add(&jpeg, &plan, true);
        assert!(added || !DecodeOps::supports(&plan), "the device decodes an intact image: {plan:?}");
    }
    coded
}
