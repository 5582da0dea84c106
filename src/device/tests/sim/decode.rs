//! A model of the kernels in `device/nvidia/kernels/jpeg.cu`, in plain Rust: it reads only the
//! records and the arena, and decodes symbol by symbol and pixel by pixel. `jpeg_follow` decides
//! which samples the host must decode because their codes do not synchronize.
//!
//! The model uses the host's inverse transform and resize, which other tests compare with
//! references.

use warpfeed_jpeg::bitstream::CUT;
use warpfeed_jpeg::internal::{HuffmanLookup, HuffmanSpec, inverse_transform};

use super::jpeg_follow::Sample;
use crate::decode::{Pixels, Rect, Size};
use crate::transform::{Plan, Resizer, Window};

const RECORD: usize = 256;
/// Row-major index of each zigzag position in a block.
const NATURAL: [usize; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// Decodes a batch of records into `out`, u8 (N, H, W, 3). Skips samples with all-zero records.
/// Returns, for each sample, whether the host must decode it.
pub(in crate::device) fn decode(
    records: &[u8],
    arena: &[u8],
    (height, width): (usize, usize),
    out: &mut [u8],
) -> Vec<bool> {
    let samples = out.chunks_exact_mut(height * width * 3);
    let decode_one = |(record, out): (&[u8], &mut [u8])| {
        let record = Record(std::array::from_fn(|i| u32_at(record, i * 4)));
        record.word(0) != 0 && sample(&record, arena, Size::new(width as u32, height as u32), out).is_none()
    };
    records.chunks_exact(RECORD).zip(samples).map(decode_one).collect()
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

struct Record([u32; RECORD / 4]);

impl Record {
    fn word(&self, i: usize) -> usize {
        self.0[i] as usize
    }

    fn rect(&self, i: usize) -> Rect {
        Rect::new(self.0[i], self.0[i + 1], self.0[i + 2], self.0[i + 3])
    }

    fn double(&self, i: usize) -> f64 {
        f64::from_bits(u64::from(self.0[i]) | u64::from(self.0[i + 1]) << 32)
    }

    fn parts(&self) -> Vec<Component> {
        let part = |i: usize| {
            let word = |j: usize| self.word(16 + 8 * i + j);
            let choice = self.word(40 + i);
            Component {
                h: word(0),
                v: word(1),
                first: word(2),
                across: word(3),
                down: word(4),
                upsampling: word(5),
                size: (word(6), word(7)),
                tables: (choice & 255, choice >> 8),
            }
        };
        (0..self.word(12)).map(part).collect()
    }
}

struct Component {
    h: usize,
    v: usize,
    first: usize,
    across: usize,
    down: usize,
    upsampling: usize,
    size: (usize, usize),
    tables: (usize, usize),
}

struct Plane {
    samples: Vec<u8>,
    stride: usize,
    left: usize,
    top: usize,
}

impl Plane {
    fn at(&self, x: usize, y: usize) -> usize {
        self.samples[(y - self.top) * self.stride + x - self.left].into()
    }
}

/// The head of a sample: its tables and the list of its segments. The sample's data follows the
/// head.
struct Head<'a> {
    bytes: &'a [u8],
    quant: &'a [u8],
    tables: Vec<HuffmanLookup>,
    segments: Vec<&'a [u8]>,
}

impl<'a> Head<'a> {
    fn new(record: &Record, parts: &[Component], arena: &'a [u8]) -> Self {
        let bytes = &arena[record.word(2)..][..record.word(3)];
        let (quant, rest) = bytes.split_at(parts.len() * 128);
        let (specs, rest) = rest.split_at(record.word(13) * 272);
        // With `true`, DC tables are read like AC tables, without a check of their symbols. The
        // host has already checked these.
        let tables = specs.chunks_exact(272).map(|spec| HuffmanLookup::new(&HuffmanSpec::read(spec)?, true).ok());
        let tables = tables.collect::<Option<_>>().expect("the host has checked the tables");
        Head { bytes, quant, tables, segments: rest.chunks_exact(16).take(record.word(1)).collect() }
    }

    fn tables_of(&self, part: &Component) -> (&HuffmanLookup, &HuffmanLookup) {
        (&self.tables[part.tables.0], &self.tables[part.tables.1])
    }

    fn synchronizes(&self, record: &Record, parts: &[Component], arena: &[u8]) -> bool {
        let tables = parts.iter().flat_map(|part| std::iter::repeat_n(self.tables_of(part), part.h * part.v));
        let sample = Sample {
            bytes: &arena[record.word(2)..],
            len: self.bytes.len(),
            head: self.quant.len() + record.word(13) * 272 + record.word(1) * 16,
            segments: self
                .segments
                .iter()
                .map(|segment| (u32_at(segment, 0) as usize, u32_at(segment, 4) as usize))
                .collect(),
            longest: record.word(43),
            tables: tables.collect(),
        };
        sample.synchronizes()
    }

    /// Returns the coefficients of the window's blocks, in MCU order, or `None` if the data is
    /// invalid.
    fn coefficients(&self, record: &Record, parts: &[Component]) -> Option<Vec<[i16; 64]>> {
        let [column, columns, row, rows, blocks] = [6, 7, 8, 9, 10].map(|i| record.word(i));
        let mut coefficients = vec![[0i16; 64]; columns * rows * blocks];
        for segment in &self.segments {
            let [byte, bytes, first] = [0, 4, 8].map(|offset| u32_at(segment, offset) as usize);
            let (count, cut) = ((u32_at(segment, 12) & !CUT) as usize, u32_at(segment, 12) & CUT != 0);
            let mut bits = Bits { bytes: &self.bytes[byte..byte + bytes], position: 0 };
            let mut dc = [0i32; 3];
            for mcu in first..first + count {
                let (x, y) = (mcu % record.word(5), mcu / record.word(5));
                let inside = (column..column + columns).contains(&x) && (row..row + rows).contains(&y);
                for (i, part) in parts.iter().enumerate() {
                    for b in part.first..part.first + part.h * part.v {
                        let block = bits.block(self.tables_of(part), &mut dc[i])?;
                        if inside {
                            coefficients[((y - row) * columns + x - column) * blocks + b] = block;
                        }
                    }
                }
            }
            let remaining_bits = (bytes * 8).checked_sub(bits.position)?;
            if remaining_bits >= 8 && !cut {
                return None;
            }
        }
        Some(coefficients)
    }

    fn plane(&self, record: &Record, (i, part): (usize, &Component), coefficients: &[[i16; 64]]) -> Plane {
        let [column, columns, row, rows, blocks] = [6, 7, 8, 9, 10].map(|i| record.word(i));
        let (wide, high) = (columns * part.h, rows * part.v);
        let quant = &self.quant[i * 128..];
        let table = std::array::from_fn(|k| u16::from_le_bytes([quant[2 * k], quant[2 * k + 1]]));
        let mut samples = vec![0; wide * high * 64];
        for (y, x) in (0..high).flat_map(|y| (0..wide).map(move |x| (y, x))) {
            let mcu = (y / part.v) * columns + x / part.h;
            let block = &coefficients[mcu * blocks + part.first + y % part.v * part.h + x % part.h];
            for (i, line) in inverse_transform(block, &table).chunks_exact(8).enumerate() {
                samples[((y * 8 + i) * wide + x) * 8..][..8].copy_from_slice(line);
            }
        }
        Plane { samples, stride: wide * 8, left: column * part.h * 8, top: row * part.v * 8 }
    }
}

fn sample(record: &Record, arena: &[u8], output: Size, out: &mut [u8]) -> Option<()> {
    if record.word(0) == 2 {
        let frame = &arena[record.word(2)..][..record.word(3)];
        let pixels = oriented_pixels(record, |x, y| video_pixel(frame, x, y));
        Resizer::new().run(&pixels, &plan(record, output), out).expect("the plan is valid");
        return Some(());
    }
    let parts = record.parts();
    let head = Head::new(record, &parts, arena);
    if !head.synchronizes(record, &parts, arena) {
        return None;
    }
    let coefficients = head.coefficients(record, &parts)?;
    let planes: Vec<Plane> = parts.iter().enumerate().map(|part| head.plane(record, part, &coefficients)).collect();
    let pixels = oriented_pixels(record, |x, y| {
        let values: Vec<u8> = parts.iter().zip(&planes).map(|(part, plane)| upsampled(part, plane, x, y)).collect();
        match (record.word(11), &values[..]) {
            (0, &[gray]) => [gray; 3],
            (1, &[y, cb, cr]) => color(y, cb, cr),
            (2, &[r, g, b]) => [r, g, b],
            (kind, values) => panic!("unsupported color {kind} with {} components", values.len()),
        }
    });
    Resizer::new().run(&pixels, &plan(record, output), out).expect("the plan is valid");
    Some(())
}

/// Converts a pixel of a video frame to RGB. `frame` starts with the head.
fn video_pixel(frame: &[u8], x: usize, y: usize) -> [u8; 3] {
    let word = |i: usize| u32_at(frame, i * 4);
    let sample = |offset: usize| match word(7) {
        1 => i64::from(frame[offset]),
        _ => i64::from(u16::from_le_bytes([frame[offset], frame[offset + 1]])),
    };
    let [luma_weight, rounding, center, red_cr, green_cr, green_cb, blue_cb] =
        std::array::from_fn(|i| i64::from(word(i) as i32));
    let [bytes, luma_stride, luma, cb, cr, stride, step] = std::array::from_fn(|i| word(7 + i) as usize);
    let chroma = (y >> word(15)) * stride + (x >> word(14)) * step;
    let luma = sample(luma + y * luma_stride + x * bytes) * luma_weight + rounding;
    let (cb, cr) = (sample(cb + chroma) - center, sample(cr + chroma) - center);
    [cr * red_cr, cr * green_cr + cb * green_cb, cb * blue_cb].map(|term| ((luma + term) >> 20).clamp(0, 255) as u8)
}

/// Returns the pixels of the record's region, with the orientation applied. `pixel_at` returns a
/// pixel of the stored image.
fn oriented_pixels(record: &Record, pixel_at: impl Fn(usize, usize) -> [u8; 3]) -> Pixels {
    let (region, turned) = (record.rect(44), record.word(55));
    let (width, height) = (region.width as usize, region.height as usize);
    let mut pixels = Pixels::new();
    let rgb = pixels.reset(region.size());
    for (i, pixel) in rgb.as_chunks_mut::<3>().0.iter_mut().enumerate() {
        let (mut x, mut y) = (i % width, i / width);
        if turned & 4 != 0 {
            y = height - 1 - y;
        }
        if turned & 2 != 0 {
            x = width - 1 - x;
        }
        if turned & 1 != 0 {
            (x, y) = (y, x);
        }
        let (x, y) = (region.x as usize + x, region.y as usize + y);
        *pixel = pixel_at(x, y);
    }
    pixels
}

fn plan(record: &Record, output: Size) -> Plan {
    let [left, right, top, bottom] = [56, 58, 60, 62].map(|i| record.double(i));
    let (region, shown) = (record.rect(44), record.rect(48));
    let mut plan = Plan::resized_crop(region.size(), Rect::full(region.size()), output, shown);
    plan.window = Window { x: left, y: top, width: right - left, height: bottom - top };
    (plan.flip, plan.vertical_flip) = (record.word(52) != 0, record.word(53) != 0);
    // A record contains the position after flips, and a plan the position before flips.
    if plan.flip {
        plan.target.x = output.width - shown.x - shown.width;
    }
    if plan.vertical_flip {
        plan.target.y = output.height - shown.y - shown.height;
    }
    plan.fill = [0, 8, 16].map(|shift| (record.0[54] >> shift) as u8);
    plan
}

/// Returns the value of a component at a pixel, with libjpeg-turbo's "fancy" upsampling.
fn upsampled(part: &Component, plane: &Plane, x: usize, y: usize) -> u8 {
    let (across, down) = (x / part.across, y / part.down);
    let beside =
        |index: usize, odd: bool, end: usize| if odd { (index + 1).min(end - 1) } else { index.saturating_sub(1) };
    let (side, far) = (beside(across, x % 2 == 1, part.size.0), beside(down, y % 2 == 1, part.size.1));
    let tall = |x: usize| 3 * plane.at(x, down) + plane.at(x, far);
    let value = match part.upsampling {
        1 => (3 * plane.at(across, down) + plane.at(side, down) + 1 + x % 2) >> 2,
        2 => (tall(across) + 1 + y % 2) >> 2,
        3 => (3 * tall(across) + tall(side) + 8 - x % 2) >> 4,
        _ => plane.at(across, down),
    };
    value as u8
}

/// Converts YCbCr to RGB (JFIF 1.02), with 16-bit fixed-point factors.
fn color(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let rgb = [91881 * cr, -22554 * cb - 46802 * cr, 116130 * cb];
    rgb.map(|sum| (y + ((sum + 32768) >> 16)).clamp(0, 255) as u8)
}

/// Reads a segment bit by bit. The bits after its end are zeros.
struct Bits<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Bits<'_> {
    fn peek(&self, count: usize) -> u32 {
        let byte_at = |i: usize| u32::from(self.bytes.get(self.position / 8 + i).copied().unwrap_or(0));
        let three = byte_at(0) << 16 | byte_at(1) << 8 | byte_at(2);
        three << (8 + self.position % 8) >> (32 - 16) >> (16 - count)
    }

    fn symbol(&mut self, table: &HuffmanLookup) -> Option<usize> {
        let (symbol, length) = table.find(self.peek(16) as u16)?;
        self.position += usize::from(length);
        Some(symbol.into())
    }

    /// Reads a value of `size` bits (EXTEND in T.81 F.2.2.1).
    fn value(&mut self, size: usize) -> i32 {
        let bits = self.peek(size) as i32;
        self.position += size;
        if size > 0 && bits >> (size - 1) == 0 { bits - (1 << size) + 1 } else { bits }
    }

    fn block(&mut self, (dc_table, ac_table): (&HuffmanLookup, &HuffmanLookup), dc: &mut i32) -> Option<[i16; 64]> {
        let mut block = [0; 64];
        let size = self.symbol(dc_table)? & 15;
        *dc = dc.wrapping_add(self.value(size));
        block[0] = *dc as i16;
        let mut k = 0;
        while k < 63 {
            let symbol = self.symbol(ac_table)?;
            let (run, size) = (symbol >> 4, symbol & 15);
            if size == 0 && run < 15 {
                break;
            }
            k += run + 1;
            *block.get_mut(*NATURAL.get(k)?)? = self.value(size) as i16;
        }
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::coded;
    use crate::sampler::Rng;

    #[test]
    fn the_model_of_the_kernels_gives_the_pixels_of_the_host() {
        for (seed, size) in [(1, (32, 40)), (2, (33, 17)), (3, (1, 1)), (4, (64, 64))] {
            let batch = coded::random_batch(seed, size, 60, 200);
            let mut out = vec![0xa5; batch.count() * batch.sample_bytes()];
            let faults = decode(&batch.records, &batch.arena, size, &mut out);
            // Some generated images are regular patterns, which do not synchronize.
            assert!(faults.iter().filter(|&&fault| fault).count() <= 2, "intact images have no faults");
            for (i, (actual, expected)) in out.chunks(batch.sample_bytes()).zip(&batch.expected).enumerate() {
                let untouched = vec![0xa5; batch.sample_bytes()];
                assert!(faults[i] || actual == expected.as_ref().unwrap_or(&untouched), "sample {i} of seed {seed}");
            }
        }
    }

    #[test]
    fn codes_that_never_synchronize_are_left_to_the_host() {
        let size = (24, 24);
        let mut batch = coded::Coded::new(size);
        let kinds = [coded::pattern(700, None), coded::pattern(700, Some(4)), coded::noise(700)];
        for jpeg in &kinds {
            assert!(batch.add(jpeg, &coded::corner(700, size), true));
        }
        let mut out = vec![0xa5; batch.count() * batch.sample_bytes()];
        let faults = decode(&batch.records, &batch.arena, size, &mut out);
        // Short segments need no synchronization, and noise synchronizes.
        assert_eq!(faults, [true, false, false]);
        for (i, (actual, expected)) in out.chunks(batch.sample_bytes()).zip(&batch.expected).enumerate() {
            assert!(faults[i] || Some(actual) == expected.as_deref(), "sample {i}");
        }
    }

    #[test]
    fn crops_from_12_megapixels_and_16_bit_tables_match_the_host() {
        let mut batch = coded::Coded::new((60, 80));
        let regions = [Rect::new(3200, 2400, 800, 600), Rect::new(1001, 777, 300, 200)];
        coded::add_large(&mut batch, Size::new(4000, 3000), (2, 2), &regions);
        let mut out = vec![0xa5; batch.count() * batch.sample_bytes()];
        let faults = decode(&batch.records, &batch.arena, batch.size, &mut out);
        assert_eq!(faults, [false; 4]);
        let actual = out.chunks(batch.sample_bytes()).map(|pixels| Some(pixels.to_vec()));
        assert!(actual.eq(batch.expected.iter().cloned()));
        assert!(batch.expected[0] != batch.expected[2], "different tables give different pixels");
    }

    #[test]
    fn large_images_without_restart_markers_match_the_host() {
        let (size, output) = (Size::new(2500, 1900), Size::new(100, 80));
        let mut batch = coded::Coded::new((80, 100));
        // Covers more than 2^16 blocks, and a resize with up to 51 taps.
        let jpeg = coded::large(size, (2, 2), 0);
        for region in [Rect::full(size), Rect::new(1700, 1500, 800, 400)] {
            let plan = Plan::resized_crop(size, region, output, Rect::full(output));
            assert!(batch.add(&jpeg, &plan, true), "{region:?}");
        }
        let mut out = vec![0xa5; batch.count() * batch.sample_bytes()];
        assert_eq!(decode(&batch.records, &batch.arena, batch.size, &mut out), [false; 2]);
        let actual = out.chunks(batch.sample_bytes()).map(|pixels| Some(pixels.to_vec()));
        assert!(actual.eq(batch.expected.iter().cloned()));
    }

    #[test]
    fn bits_after_the_last_mcu_of_a_complete_segment_are_a_fault() {
        let (batch, expected) = coded::with_rests((48, 48));
        let mut out = vec![0xa5; batch.count() * batch.sample_bytes()];
        let faults = decode(&batch.records, &batch.arena, batch.size, &mut out);
        assert_eq!(faults, expected);
        for (i, (actual, expected)) in out.chunks(batch.sample_bytes()).zip(&batch.expected).enumerate() {
            assert!(faults[i] || Some(actual) == expected.as_deref(), "sample {i}");
        }
    }

    #[test]
    fn damaged_data_is_a_fault_or_gives_the_pixels_of_the_host() {
        let (mut rng, kinds, size) = (Rng::new(5, 0, 0), coded::kinds(), (24, 24));
        let mut batch = coded::Coded::new(size);
        for i in 0..300 {
            let (mut jpeg, image) = coded::random_jpeg(&mut rng, &kinds[i % kinds.len()], 100);
            let start = jpeg.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap() + 10;
            for _ in 0..1 + rng.below(3) {
                let offset = start + rng.below((jpeg.len() - start - 2) as u64) as usize;
                jpeg[offset] = rng.below(256) as u8;
            }
            let plan = coded::random_plan(&mut rng, image, size);
            batch.add(&jpeg, &plan, true);
        }
        let mut out = vec![0xa5; batch.count() * batch.sample_bytes()];
        let faults = decode(&batch.records, &batch.arena, size, &mut out);
        let faulty = faults.iter().filter(|&&fault| fault).count();
        assert!(faulty > 20 && faulty + 20 < batch.count(), "{faulty} of {}", batch.count());
        for (i, (actual, expected)) in out.chunks(batch.sample_bytes()).zip(&batch.expected).enumerate() {
            assert!(faults[i] || Some(actual) == expected.as_deref(), "sample {i}");
        }
    }
}
