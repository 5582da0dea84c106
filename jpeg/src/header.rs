//! Reads and validates the marker segments before the entropy-coded data (ITU T.81, annex B).
//!
//! Reading a valid header does not allocate. [`Header`] is cheap to copy, because it contains the
//! offsets of the tables in the file instead of the tables.

use arrayvec::ArrayVec;

use super::huffman::HuffmanSpec;
use super::lengths::Lengths;
use super::markers::{Segment, marker_name, next_marker};
use crate::error::{Error, Result};
use crate::orientation::segment_orientation;
use crate::pixels::Size;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// SOF0: sequential, Huffman-coded, 8 bits, up to two tables of each class.
    Baseline,
    /// SOF1: sequential, Huffman-coded, 8 or 12 bits, up to four tables of each class.
    Extended,
    /// SOF2: progressive, Huffman-coded.
    Progressive,
    /// Lossless, hierarchical or arithmetic coding. Contains the second byte of the marker.
    Other(u8),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Component {
    pub(crate) id: u8,
    pub(crate) h: u8,
    pub(crate) v: u8,
    pub(crate) quant_index: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) coding: Coding,
    pub(crate) precision: u8,
    /// Size in pixels before the EXIF orientation is applied. Not empty.
    pub(crate) size: Size,
    components: [Component; 4],
    component_count: u8,
}

impl Frame {
    pub(crate) fn components(&self) -> &[Component] {
        &self.components[..usize::from(self.component_count)]
    }

    /// Returns whether each scan contains all coefficients of its blocks, as in baseline and
    /// extended files.
    pub(crate) fn is_sequential(&self) -> bool {
        matches!(self.coding, Coding::Baseline | Coding::Extended)
    }

    pub(crate) fn unsupported_kind(&self) -> Option<String> {
        let kind = match self.coding {
            Coding::Other(0xc3) => "a lossless JPEG",
            Coding::Other(0xc5..=0xc7) => "a hierarchical JPEG",
            Coding::Other(0xc9 | 0xca) => "an arithmetic-coded JPEG",
            Coding::Other(0xcb) => "an arithmetic-coded, lossless JPEG",
            Coding::Other(0xcd..=0xcf) => "an arithmetic-coded, hierarchical JPEG",
            Coding::Other(marker) => return Some(format!("a JPEG with the coding {}", marker_name(marker))),
            _ if self.precision != 8 => return Some(format!("a {}-bit JPEG", self.precision)),
            _ => return None,
        };
        Some(kind.to_owned())
    }

    pub(crate) fn chroma(&self) -> &'static str {
        let factors: ArrayVec<(u8, u8), 4> = self.components().iter().map(|c| (c.h, c.v)).collect();
        match factors[..] {
            [_] => "gray",
            [_, _, _, _] => "cmyk",
            [y, cb, cr] if y == cb && y == cr => "4:4:4",
            [(2, 1), (1, 1), (1, 1)] | [(2, 2), (1, 2), (1, 2)] => "4:2:2",
            [(1, 2), (1, 1), (1, 1)] | [(2, 2), (2, 1), (2, 1)] => "4:4:0",
            [(2, 2), (1, 1), (1, 1)] => "4:2:0",
            [(4, 1), (1, 1), (1, 1)] => "4:1:1",
            _ => "other",
        }
    }

    pub(crate) fn max_sampling(&self) -> (u32, u32) {
        let largest =
            |factor_of: fn(&Component) -> u8| self.components().iter().map(factor_of).max().unwrap_or(1).into();
        (largest(|c| c.h), largest(|c| c.v))
    }

    /// Returns the number of MCUs per row, and the number of MCU rows, in a scan that interleaves
    /// all components.
    pub(crate) fn mcus(&self) -> (u32, u32) {
        let (h, v) = self.max_sampling();
        (self.size.width.div_ceil(8 * h), self.size.height.div_ceil(8 * v))
    }

    /// Returns how many blocks per row, and how many block rows, cover the image in component
    /// `index`. A scan of only this component contains exactly these blocks, whereas an interleaved
    /// scan pads them to whole MCUs.
    pub(crate) fn blocks(&self, index: usize) -> (u32, u32) {
        let (h, v) = self.max_sampling();
        let c = self.components()[index];
        let blocks =
            |pixels: u32, factor: u8, max: u32| (u64::from(pixels) * u64::from(factor)).div_ceil(8 * u64::from(max));
        (blocks(self.size.width, c.h, h) as u32, blocks(self.size.height, c.v, v) as u32)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ScanComponent {
    pub(crate) index: u8,
    pub(crate) dc_table: u8,
    pub(crate) ac_table: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scan {
    components: [ScanComponent; 4],
    component_count: u8,
    /// First coefficient in zigzag order (Ss).
    pub(crate) start: u8,
    /// Last coefficient in zigzag order (Se).
    pub(crate) end: u8,
    /// Index of the lowest bit that earlier scans contain, or 0 in the first scan (Ah).
    pub(crate) high: u8,
    /// Index of the lowest bit that this scan contains (Al).
    pub(crate) low: u8,
    /// File offset of the SOS segment.
    pub(crate) offset: usize,
    /// File offset of the entropy-coded data.
    pub(crate) data_offset: usize,
}

impl Scan {
    pub(crate) fn components(&self) -> &[ScanComponent] {
        &self.components[..usize::from(self.component_count)]
    }
}

/// The content of the marker segments before the entropy-coded data of a scan.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) frame: Frame,
    pub(crate) scan: Scan,
    /// For each index, the file offset of the most recent quantization table, which starts with its
    /// index byte.
    quant_offsets: [Option<usize>; 4],
    /// The file offset of the most recent Huffman table of each index, for DC and then for AC.
    huffman_offsets: [[Option<usize>; 4]; 2],
    /// Number of MCUs between restart markers, or 0 if there are none.
    pub(crate) restart_interval: u32,
    /// File offset and number of bytes of the [`Lengths`].
    lengths: Option<(usize, u16)>,
    pub(crate) is_jfif: bool,
    /// The color transform in Adobe's APP14 segment: 0 for none, 1 for YCbCr, 2 for YCCK.
    pub(crate) adobe_transform: Option<u8>,
    /// EXIF orientation, 1 (upright) to 8.
    pub(crate) orientation: u8,
}

/// Maps a zigzag index to the natural index, 8 * row + column. In damaged data, a run of zeros can
/// end up to 16 coefficients past the block. The padding replaces a bounds check.
pub(crate) const NATURAL: [u8; 80] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
];

thread_local! {
    static HEADERS_READ: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns the number of headers that this thread has read, for tests. Counts only with debug
/// assertions.
pub fn headers_read() -> u64 {
    HEADERS_READ.get()
}

impl Header {
    /// Reads a file from SOI to the end of its first SOS segment.
    pub(crate) fn read(bytes: &[u8]) -> Result<Header> {
        if cfg!(debug_assertions) {
            HEADERS_READ.set(HEADERS_READ.get() + 1);
        }
        if bytes.get(..2) != Some(&[0xff, 0xd8]) {
            return Err(Error::new("jpeg does not start with the marker SOI (ff d8)"));
        }
        let empty = Frame {
            coding: Coding::Other(0),
            precision: 0,
            size: Size::new(0, 0),
            components: Default::default(),
            component_count: 0,
        };
        let mut header = Header {
            frame: empty,
            scan: Scan {
                components: Default::default(),
                component_count: 0,
                start: 0,
                end: 0,
                high: 0,
                low: 0,
                offset: 0,
                data_offset: 0,
            },
            quant_offsets: [None; 4],
            huffman_offsets: [[None; 4]; 2],
            restart_interval: 0,
            lengths: None,
            is_jfif: false,
            adobe_transform: None,
            orientation: 1,
        };
        if header.read_segments(bytes, 2)? {
            return Ok(header);
        }
        Err(Error::new("jpeg has no scan before the marker EOI"))
    }

    /// Reads from byte `offset`, where the data of a scan ends, to the end of the next SOS segment.
    /// Returns `false` if the file has no more scans.
    pub(crate) fn next_scan(&mut self, bytes: &[u8], offset: usize) -> Result<bool> {
        self.read_segments(bytes, offset)
    }

    /// Returns a quantization table in natural order.
    pub(crate) fn quant(&self, bytes: &[u8], index: u8) -> Option<[u16; 64]> {
        let (&precision_and_index, values) = bytes.get(self.quant_offsets[usize::from(index)]?..)?.split_first()?;
        let mut table = [0; 64];
        for (i, &natural) in NATURAL[..64].iter().enumerate() {
            table[usize::from(natural)] = if precision_and_index >> 4 == 1 {
                u16::from_be_bytes([*values.get(2 * i)?, *values.get(2 * i + 1)?])
            } else {
                u16::from(*values.get(i)?)
            };
        }
        Some(table)
    }

    /// Returns a Huffman table. If the file does not define table 0 or 1, which is common in
    /// Motion-JPEG, returns the standard table.
    pub(crate) fn huffman(&self, bytes: &[u8], is_ac: bool, index: u8) -> Result<HuffmanSpec, String> {
        let class = if is_ac { "AC" } else { "DC" };
        match self.huffman_offsets[usize::from(is_ac)][usize::from(index)] {
            Some(offset) => HuffmanSpec::read(&bytes[offset + 1..])
                .ok_or_else(|| format!("{class} Huffman table {index} is truncated")),
            None if index < 2 => Ok(HuffmanSpec::standard(is_ac, index == 1)),
            None => Err(format!("{class} Huffman table {index} is not defined")),
        }
    }

    /// Returns the lengths of the restart segments. The result is empty if the file contains no
    /// lengths, or lengths for a different number of MCUs than `mcus`.
    pub(crate) fn lengths<'a>(&self, bytes: &'a [u8], mcus: u32) -> Lengths<'a> {
        self.lengths
            .and_then(|(offset, count)| bytes.get(offset..offset + usize::from(count)))
            .map(Lengths::new)
            .filter(|lengths| {
                self.restart_interval > 0 && lengths.len() + 1 == mcus.div_ceil(self.restart_interval) as usize
            })
            .unwrap_or_default()
    }

    fn read_segments(&mut self, bytes: &[u8], start: usize) -> Result<bool> {
        let mut next = start;
        loop {
            let (marker, offset) = next_marker(bytes, next)?;
            next = offset + 2;
            match marker {
                0x01 | 0xd0..=0xd7 => continue,
                0xd8 => return Err(Error::new(format!("jpeg SOI at byte {offset}: expected only one SOI"))),
                0xd9 => return Ok(false),
                _ => {}
            }
            let segment = Segment::new(bytes, marker, offset)?;
            next = offset + 2 + segment.length;
            match marker {
                0xc4 => self.read_huffman(segment)?,
                0xdb => self.read_quant(segment)?,
                0xc0..=0xcf if marker != 0xc8 && marker != 0xcc => self.read_frame(segment)?,
                0xde => return Err(unsupported("a hierarchical JPEG")),
                0xf7 => return Err(unsupported("a JPEG-LS file")),
                0xdd => self.restart_interval = segment.expect_unread(2)?.read_u16()?.into(),
                0xda => {
                    self.read_scan(segment, next)?;
                    return Ok(true);
                }
                0xe0 => self.is_jfif |= segment.body.len() >= 14 && segment.body.starts_with(b"JFIF\0"),
                0xe1 if self.orientation == 1 => self.orientation = segment_orientation(segment.body).unwrap_or(1),
                Lengths::MARKER if segment.body.starts_with(Lengths::ID) => {
                    let lengths = &segment.body[Lengths::ID.len()..];
                    self.lengths = Some((next - lengths.len(), lengths.len() as u16));
                }
                0xee if segment.body.len() >= 12 && segment.body.starts_with(b"Adobe") => {
                    self.adobe_transform = Some(segment.body[11]);
                }
                _ => {}
            }
        }
    }

    fn read_frame(&mut self, mut segment: Segment<'_>) -> Result<()> {
        if self.frame.component_count != 0 {
            return Err(segment.error("the file has a second frame header: expected one"));
        }
        let coding = match segment.marker {
            0xc0 => Coding::Baseline,
            0xc1 => Coding::Extended,
            0xc2 => Coding::Progressive,
            other => Coding::Other(other),
        };
        let (precision, height, width, count) =
            (segment.read_u8()?, segment.read_u16()?, segment.read_u16()?, segment.read_u8()?);
        let size = Size::new(width.into(), height.into());
        if size.area() == 0 {
            return Err(segment.error(format!("the frame is empty: {width}x{height} pixels")));
        }
        if !(1..=4).contains(&count) {
            return Err(segment.error(format!("the frame has {count} components: expected 1 to 4")));
        }
        let mut segment = segment.expect_unread(3 * usize::from(count))?;
        let mut components = [Component::default(); 4];
        for i in 0..usize::from(count) {
            let (id, sampling, quant_index) = (segment.read_u8()?, segment.read_u8()?, segment.read_u8()?);
            let (h, v) = (sampling >> 4, sampling & 15);
            if !(1..=4).contains(&h) || !(1..=4).contains(&v) {
                return Err(segment.error(format!("component {id} has sampling factors {h}x{v}: expected 1 to 4")));
            }
            if quant_index > 3 {
                return Err(
                    segment.error(format!("component {id} uses quantization table {quant_index}: expected 0 to 3"))
                );
            }
            if components[..i].iter().any(|c| c.id == id) {
                return Err(segment.error(format!("component {id} occurs twice")));
            }
            components[i] = Component { id, h, v, quant_index };
        }
        self.frame = Frame { coding, precision, size, components, component_count: count };
        Ok(())
    }

    fn read_scan(&mut self, mut segment: Segment<'_>, data_offset: usize) -> Result<()> {
        if self.frame.component_count == 0 {
            return Err(segment.error("the scan precedes the frame header"));
        }
        let count = segment.read_u8()?;
        if !(1..=4).contains(&count) {
            return Err(segment.error(format!("the scan has {count} components: expected 1 to 4")));
        }
        let mut segment = segment.expect_unread(2 * usize::from(count) + 3)?;
        let mut components = [ScanComponent::default(); 4];
        for i in 0..usize::from(count) {
            let (id, tables) = (segment.read_u8()?, segment.read_u8()?);
            let Some(index) = self.frame.components().iter().position(|c| c.id == id) else {
                return Err(segment.error(format!("component {id} is not in the frame")));
            };
            if components[..i].iter().any(|c| usize::from(c.index) == index) {
                return Err(segment.error(format!("component {id} occurs twice")));
            }
            let (dc_table, ac_table) = (tables >> 4, tables & 15);
            if dc_table > 3 || ac_table > 3 {
                return Err(segment
                    .error(format!("component {id} uses Huffman tables {dc_table} and {ac_table}: expected 0 to 3")));
            }
            components[i] = ScanComponent { index: index as u8, dc_table, ac_table };
        }
        let (start, end, approximation) = (segment.read_u8()?, segment.read_u8()?, segment.read_u8()?);
        let (high, low) = (approximation >> 4, approximation & 15);
        self.scan =
            Scan { components, component_count: count, start, end, high, low, offset: segment.offset, data_offset };
        Ok(())
    }

    fn read_quant(&mut self, mut segment: Segment<'_>) -> Result<()> {
        while !segment.body.is_empty() {
            let (position, precision_and_index) = (segment.position(), segment.read_u8()?);
            let (precision, index) = (precision_and_index >> 4, usize::from(precision_and_index & 15));
            if index > 3 || precision > 1 {
                return Err(segment.error(format!(
                    "the table has index {index} and precision {precision}: expected 0 to 3 and 0 or 1"
                )));
            }
            segment.read(if precision == 1 { 128 } else { 64 })?;
            self.quant_offsets[index] = Some(position);
        }
        Ok(())
    }

    fn read_huffman(&mut self, mut segment: Segment<'_>) -> Result<()> {
        while !segment.body.is_empty() {
            let (position, class_and_index) = (segment.position(), segment.read_u8()?);
            let (class, index) = (class_and_index >> 4, usize::from(class_and_index & 15));
            if index > 3 || class > 1 {
                return Err(
                    segment.error(format!("the table has index {index} and class {class}: expected 0 to 3 and 0 or 1"))
                );
            }
            let bits: [u8; 16] = segment.read(16)?.try_into().expect("16 bytes were read");
            let count = bits.iter().map(|&n| usize::from(n)).sum();
            if count > 256 {
                return Err(segment.error(format!("table {index} has {count} codes; the limit is 256")));
            }
            segment.read(count)?;
            self.huffman_offsets[usize::from(class)][index] = Some(position);
        }
        Ok(())
    }
}

pub(crate) fn unsupported(kind: &str) -> Error {
    Error::new(format!("{kind} is not supported"))
}
