//! [`Coefficients`] is the plain decoder. It decodes the scans of a Huffman-coded file one symbol
//! at a time into planes of quantized coefficients.
//!
//! It is slower than the lane decoder, but also decodes progressive, damaged and unusual files.
//! Damage has the same effect as in libjpeg: an invalid code counts as symbol 0, a segment that
//! ends early is padded with zero bits, and decoding resynchronizes at misplaced restart markers.
//! Unlike in libjpeg, decoding fails if the file is truncated or has more than 256 scans. libjpeg
//! does not limit the number of scans, and fills the rest of a truncated image with gray.

use super::header::{Coding, Frame, Header, unsupported};
use super::huffman::HuffmanLookup;
use super::markers::is_followed_by_marker;
use super::scan::{Mode, ScanDecoder};
use crate::error::{Error, Result, resize};
use crate::pixels::Size;

pub(crate) const NO_EOI: &str = "jpeg has the data of all pixels, but no EOI marker";

/// Maximum number of scans. Progressive encoders write about ten. Without a limit, many scans of a
/// few bytes could each take as long as a scan of the whole image.
const MAX_SCANS: u32 = 256;

#[derive(Debug, Default)]
pub(crate) struct Coefficients {
    planes: Vec<Plane>,
    plane_count: usize,
    fault: Option<ScanFault>,
    has_eoi: bool,
}

#[derive(Debug, Clone, Copy)]
struct ScanFault {
    scan: u32,
    mcu: u32,
    mcu_count: u32,
}

/// The blocks of one component, row by row, each with 64 coefficients in natural order.
#[derive(Debug)]
pub(crate) struct Plane {
    pub(crate) blocks_per_row: usize,
    pub(crate) block_rows: usize,
    pub(crate) coefficients: Vec<i16>,
    /// The quantization table of the component's first scan, in natural order.
    pub(crate) quant: [u16; 64],
    /// For each coefficient in zigzag order, how many of its low bits are still missing, or -1 if
    /// all bits are missing.
    missing_bits: [i8; 64],
}

impl Plane {
    fn new() -> Self {
        Plane { blocks_per_row: 0, block_rows: 0, coefficients: Vec::new(), quant: [0; 64], missing_bits: [-1; 64] }
    }

    pub(crate) fn block(&self, x: usize, y: usize) -> &[i16; 64] {
        let offset = (y * self.blocks_per_row + x) * 64;
        self.coefficients[offset..offset + 64].try_into().expect("a block has 64 coefficients")
    }
}

/// The DC and AC tables of each component. A table is `None` if the scan does not need it.
type ComponentTables = [(Option<HuffmanLookup>, Option<HuffmanLookup>); 4];

impl Coefficients {
    pub(crate) fn planes(&self) -> &[Plane] {
        &self.planes[..self.plane_count]
    }

    pub(crate) fn trim_to(&mut self, max_bytes: usize) {
        if self.memory() > max_bytes {
            self.planes.clear();
            self.plane_count = 0;
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.planes.iter().map(|plane| plane.coefficients.capacity() * 2).sum()
    }

    /// Returns whether bits of the low frequencies are missing, as in an incomplete progressive
    /// file. libjpeg smooths such an image before the inverse transform. This decoder does not.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.planes().iter().any(|plane| plane.missing_bits[..10].iter().any(|&bits| bits != 0))
    }

    /// Describes the first damage in the decoded file, if any. See [damaged
    /// files](crate#damaged-files) for what counts as damage.
    pub(crate) fn damage(&self) -> Option<String> {
        match self.fault {
            Some(ScanFault { scan: 1, mcu, mcu_count }) => {
                Some(format!("jpeg data is damaged in MCU {mcu} of {mcu_count}"))
            }
            Some(ScanFault { scan, mcu, mcu_count }) => {
                Some(format!("jpeg data is damaged in MCU {mcu} of {mcu_count}, scan {scan}"))
            }
            None if !self.has_eoi => Some(NO_EOI.to_owned()),
            None if self.is_unfinished() => {
                Some("jpeg is progressive and lacks scans; other decoders smooth such an image".to_owned())
            }
            None => None,
        }
    }

    /// Decodes the file in `bytes`: all scans of a progressive file, and the scans of a sequential
    /// file until each component has been decoded.
    pub(crate) fn decode(&mut self, bytes: &[u8], header: &Header) -> Result<()> {
        let frame = &header.frame;
        if let Some(kind) = frame.unsupported_kind() {
            return Err(unsupported(&kind));
        }
        check_length(bytes, header)?;
        self.allocate_planes(frame)?;
        let mut header = header.clone();
        for scan_number in 1.. {
            if scan_number > MAX_SCANS {
                return Err(Error::new(format!("jpeg has more than {MAX_SCANS} scans")));
            }
            let offset = self.decode_scan(bytes, &header, scan_number)?;
            if frame.coding != Coding::Progressive && self.planes().iter().all(|plane| plane.missing_bits[0] == 0) {
                self.has_eoi = is_followed_by_marker(bytes, offset);
                return Ok(());
            }
            // Files without EOI are common. Accept them unless bits of the coefficients are
            // missing.
            match header.next_scan(bytes, offset) {
                Ok(true) => {}
                Ok(false) => {
                    self.has_eoi = true;
                    break;
                }
                Err(e) if self.planes().iter().any(|plane| plane.missing_bits.iter().any(|&bits| bits != 0)) => {
                    return Err(e);
                }
                Err(_) => break,
            }
        }
        match self.planes().iter().position(|plane| plane.missing_bits[0] < 0) {
            Some(i) => Err(Error::new(format!("jpeg has no scan of component {}", frame.components()[i].id))),
            None => Ok(()),
        }
    }

    fn allocate_planes(&mut self, frame: &Frame) -> Result<()> {
        let (mcus_per_row, mcu_rows) = frame.mcus();
        let size_in_blocks = |c: &super::header::Component| {
            ((mcus_per_row * u32::from(c.h)) as usize, (mcu_rows * u32::from(c.v)) as usize)
        };
        let largest = frame
            .components()
            .iter()
            .map(size_in_blocks)
            .map(|(width_in_blocks, height_in_blocks)| width_in_blocks * height_in_blocks * 64)
            .max();
        if largest.is_some_and(|coefficients| coefficients > u32::MAX as usize) {
            let Size { width, height } = frame.size;
            return Err(Error::new(format!("a JPEG with {width}x{height} pixels is too large to decode")));
        }
        (self.fault, self.has_eoi) = (None, false);
        self.plane_count = frame.components().len();
        self.planes.resize_with(self.plane_count.max(self.planes.len()), Plane::new);
        for (plane, component) in self.planes.iter_mut().zip(frame.components()) {
            (plane.blocks_per_row, plane.block_rows) = size_in_blocks(component);
            let coefficients = plane.blocks_per_row * plane.block_rows * 64;
            plane.coefficients.clear();
            if plane.coefficients.capacity() < coefficients {
                plane.coefficients = Vec::new();
            }
            resize(&mut plane.coefficients, coefficients, 0);
            plane.missing_bits = [-1; 64];
        }
        Ok(())
    }

    /// Updates the planes' quantization tables and missing bits. Returns the scan's Huffman tables,
    /// and whether the scan contains bits in an order that T.81 forbids (G.1.1.1).
    fn prepare_tables(&mut self, bytes: &[u8], header: &Header, mode: Mode) -> Result<(ComponentTables, bool)> {
        let (frame, scan) = (&header.frame, &header.scan);
        let sos_error = |cause: String| Error::new(format!("jpeg SOS at byte {}: {cause}", scan.offset));
        let mut tables = [const { (None, None) }; 4];
        let mut is_disordered = false;
        for (slot, component) in tables.iter_mut().zip(scan.components()) {
            let plane = &mut self.planes[usize::from(component.index)];
            if plane.missing_bits[0] < 0 {
                let quant_index = frame.components()[usize::from(component.index)].quant_index;
                let table = header.quant(bytes, quant_index);
                plane.quant =
                    table.ok_or_else(|| sos_error(format!("quantization table {quant_index} is not defined")))?;
            }
            match mode {
                Mode::Sequential => plane.missing_bits = [0; 64],
                _ => {
                    is_disordered |= scan.start > 0 && plane.missing_bits[0] < 0;
                    for bits in &mut plane.missing_bits[scan.start.into()..=usize::from(scan.end)] {
                        is_disordered |= (*bits).max(0) != scan.high as i8;
                        *bits = scan.low as i8;
                    }
                }
            }
            if mode.needs_dc() {
                let spec = header.huffman(bytes, false, component.dc_table).map_err(sos_error)?;
                slot.0 = Some(HuffmanLookup::new(&spec, false).map_err(|e| sos_error(e.to_string()))?);
            }
            if mode.needs_ac() {
                let spec = header.huffman(bytes, true, component.ac_table).map_err(sos_error)?;
                slot.1 = Some(HuffmanLookup::new(&spec, true).map_err(|e| sos_error(e.to_string()))?);
            }
        }
        Ok((tables, is_disordered))
    }

    /// Decodes scan `number` (from 1) of the file. Returns the offset at which the scan ends.
    fn decode_scan(&mut self, bytes: &[u8], header: &Header, number: u32) -> Result<usize> {
        let (frame, scan) = (&header.frame, &header.scan);
        let sos_error = |cause: String| Error::new(format!("jpeg SOS at byte {}: {cause}", scan.offset));
        let mode = Mode::for_scan(frame.coding, scan).map_err(sos_error)?;
        let (tables, is_disordered) = self.prepare_tables(bytes, header, mode)?;
        // In a scan of a single component, an MCU is one block, and the frame's padding blocks are
        // absent.
        let is_single_component = scan.components().len() == 1;
        let (mcus_per_row, mcu_rows) =
            if is_single_component { frame.blocks(scan.components()[0].index.into()) } else { frame.mcus() };
        let blocks: u32 = scan
            .components()
            .iter()
            .map(|c| frame.components()[usize::from(c.index)])
            .map(|c| u32::from(c.h * c.v))
            .sum();
        if !is_single_component && blocks > 10 {
            return Err(sos_error(format!("{blocks} blocks in an MCU; the limit is 10")));
        }
        let mut decoder = ScanDecoder::new(bytes, scan.data_offset);
        decoder.bits.fault_count += u32::from(is_disordered);
        let mut restart = 0;
        for mcu in 0..mcus_per_row * mcu_rows {
            if header.restart_interval > 0 && mcu > 0 && mcu % header.restart_interval == 0 {
                decoder.restart(restart)?;
                restart = (restart + 1) & 7;
            }
            if decoder.bits.is_starved {
                if header.restart_interval == 0 {
                    break;
                }
                continue;
            }
            let (x, y) = ((mcu % mcus_per_row) as usize, (mcu / mcus_per_row) as usize);
            for (i, (component, (dc, ac))) in scan.components().iter().zip(&tables).enumerate() {
                let plane = &mut self.planes[usize::from(component.index)];
                let frame_component = frame.components()[usize::from(component.index)];
                let (h, v) = if is_single_component {
                    (1, 1)
                } else {
                    (usize::from(frame_component.h), usize::from(frame_component.v))
                };
                for (row, column) in (0..v).flat_map(|row| (0..h).map(move |column| (row, column))) {
                    let offset = ((y * v + row) * plane.blocks_per_row + x * h + column) * 64;
                    let block =
                        (&mut plane.coefficients[offset..offset + 64]).try_into().expect("a block has 64 coefficients");
                    decoder.decode_block(mode, scan, i, dc.as_ref(), ac.as_ref(), block)?;
                }
            }
            if mcu + 1 == mcus_per_row * mcu_rows {
                decoder.bits.end_segment();
            }
            if decoder.bits.fault_count > 0 && self.fault.is_none() {
                self.fault = Some(ScanFault { scan: number, mcu, mcu_count: mcus_per_row * mcu_rows });
            }
            if decoder.bits.is_past_end {
                return Err(Error::new(format!(
                    "jpeg ends at byte {} in MCU {mcu} of {}",
                    bytes.len(),
                    mcus_per_row * mcu_rows
                )));
            }
        }
        Ok(decoder.bits.position)
    }
}

/// Checks that the file has about one bit per block or more, for the block's DC code. This bounds
/// the memory for coefficients by a constant multiple of the file size.
pub(crate) fn check_length(bytes: &[u8], header: &Header) -> Result<()> {
    let (frame, available) = (&header.frame, bytes.len() - header.scan.data_offset);
    let blocks = (0..frame.components().len()).map(|i| frame.blocks(i));
    let min_blocks: usize = blocks.map(|(columns, rows)| columns as usize * rows as usize).sum();
    if available < min_blocks / 8 {
        let (end, needed) = (bytes.len(), min_blocks / 8);
        let cause = format!(
            "jpeg ends at byte {end}: {min_blocks} blocks need at least {needed} bytes of data, not {available}"
        );
        return Err(Error::new(cause));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::libjpeg::{self, Options};
    use super::*;

    fn compare(jpeg: &[u8]) {
        let expected = libjpeg::coefficients(jpeg).unwrap();
        let mut actual = Coefficients::default();
        actual.decode(jpeg, &Header::read(jpeg).unwrap()).unwrap();
        assert_eq!(actual.planes().len(), expected.len());
        for (actual, expected) in actual.planes().iter().zip(&expected) {
            for (y, row) in expected.data.chunks_exact(expected.width * 64).enumerate() {
                let start = y * actual.blocks_per_row * 64;
                assert!(actual.coefficients[start..start + row.len()] == *row, "block row {y} differs");
            }
        }
    }

    #[test]
    fn a_file_may_have_256_scans() {
        let options = Options { progressive: true, ..Options::new(50, 1, 1) };
        let jpeg = libjpeg::encode(&[128; 64], 8, 8, 1, &options);
        let scans: Vec<usize> = (0..jpeg.len()).filter(|&i| jpeg[i..].starts_with(&[0xff, 0xda])).collect();
        let (last, end) = (scans[scans.len() - 1], jpeg.len() - 2);
        let decode = |count: usize| {
            let repeated = jpeg[last..end].repeat(count - scans.len());
            let jpeg = [&jpeg[..end], &repeated, &jpeg[end..]].concat();
            Coefficients::default().decode(&jpeg, &Header::read(&jpeg).unwrap())
        };
        assert_eq!(decode(256), Ok(()));
        assert_eq!(decode(257).unwrap_err().to_string(), "jpeg has more than 256 scans");
    }

    #[test]
    fn coefficients_of_every_scan_type_match_libjpeg() {
        let (width, height) = (61, 45);
        let noise = |i: u32| (i.wrapping_mul(2654435761) >> 24) as u8 / 4 + (i % (3 * width)) as u8;
        let pixels: Vec<u8> = (0..width * height * 3).map(noise).collect();
        for (h, v) in [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)] {
            for (progressive, restart, optimize) in
                [(false, 0, false), (false, 3, true), (true, 0, true), (true, 5, true), (false, 1, false)]
            {
                let options = Options { progressive, restart, optimize, ..Options::new(92, h, v) };
                compare(&libjpeg::encode(&pixels, width, height, 3, &options));
                compare(&libjpeg::encode(&pixels[..(width * height) as usize], width, height, 1, &options));
            }
        }
    }
}
