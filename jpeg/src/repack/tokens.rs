//! Represents an image by its Huffman symbols, with their codes removed.
//!
//! Most files have a single sequential scan. Repacking such a file reuses the symbols of the scan,
//! except for the DC differences, and only replaces their codes. This takes half as long as
//! building coefficient planes. All other files are first decoded to planes ([`Coefficients`]).

use crate::bits::BitReader;
use crate::coefficients::{Coefficients, NO_EOI};
use crate::error::{Error, Result, reserve};
use crate::header::{Component, Frame, Header, NATURAL};
use crate::huffman::{HuffmanLookup, extend};
use crate::markers::is_followed_by_marker;
use crate::scan::{MAX_AC_BITS, MAX_DC_BITS};

/// Number of pairs of a DC and an AC table: one pair for the first component and black, and one for
/// the other components.
pub(super) const TABLE_GROUPS: usize = 2;

pub(super) fn table_group(index: usize) -> usize {
    usize::from(index == 1 || index == 2)
}

pub(super) const SYMBOL_COUNT: usize = 2 * TABLE_GROUPS * 256;

pub(super) fn table_start(is_ac: bool, group: usize) -> usize {
    (usize::from(is_ac) * TABLE_GROUPS + group) * 256
}

/// The symbols of an image in output order, split into restart segments.
pub(super) struct Tokens {
    /// The symbols. The upper 16 bits of an element are the symbol's index in `counts`, and the
    /// lower 16 bits are the symbol's extra bits. The lowest four bits of the index are the number
    /// of extra bits.
    symbols: Vec<u32>,
    /// For each restart segment, its end in `symbols`.
    segment_ends: Vec<usize>,
    pub(super) counts: Box<[u32; SYMBOL_COUNT]>,
    coefficients: Coefficients,
}

/// The MCUs of the rewritten file.
pub(super) struct McuGrid {
    pub(super) mcus_per_row: u32,
    pub(super) mcu_rows: u32,
    /// Number of MCUs per restart segment. A segment may extend past the end of a row.
    pub(super) restart_interval: u32,
}

impl Default for Tokens {
    fn default() -> Self {
        Tokens {
            symbols: Vec::new(),
            segment_ends: Vec::new(),
            counts: Box::new([0; SYMBOL_COUNT]),
            coefficients: Coefficients::default(),
        }
    }
}

impl Tokens {
    pub(super) fn segments(&self) -> impl Iterator<Item = &[u32]> {
        let starts = [0].into_iter().chain(self.segment_ends.iter().copied());
        starts.zip(&self.segment_ends).map(|(start, &end)| &self.symbols[start..end])
    }

    /// Frees the symbols, the coefficients, or both if they take more than 16 MiB.
    pub(super) fn trim(&mut self) {
        const MAX_BYTES: usize = 16 << 20;
        if self.symbols.capacity() * size_of::<u32>() > MAX_BYTES {
            self.symbols = Vec::new();
        }
        self.coefficients.trim_to(MAX_BYTES);
    }

    /// Reads the symbols of an image, and returns the quantization table of each component. Fails
    /// if the data violates T.81, even where decoders would continue.
    pub(super) fn read(&mut self, bytes: &[u8], header: &Header, grid: &McuGrid) -> Result<[[u16; 64]; 4]> {
        self.symbols.clear();
        self.segment_ends.clear();
        self.counts.fill(0);
        let is_in_order = header.scan.components().iter().enumerate().all(|(i, c)| usize::from(c.index) == i);
        let has_all_components = is_in_order && header.scan.components().len() == header.frame.components().len();
        let mut quant = [[0; 64]; 4];
        if has_all_components && header.frame.is_sequential() {
            for (out, component) in quant.iter_mut().zip(header.frame.components()) {
                let table = header.quant(bytes, component.quant_index);
                *out = table.ok_or_else(|| {
                    Error::new(format!("jpeg quantization table {} is not defined", component.quant_index))
                })?;
            }
            self.read_scan(bytes, header, grid)?;
        } else {
            let mut coefficients = std::mem::take(&mut self.coefficients);
            let read_result =
                coefficients.decode(bytes, header).and_then(|()| self.read_planes(&coefficients, &header.frame, grid));
            quant.iter_mut().zip(coefficients.planes()).for_each(|(out, plane)| *out = plane.quant);
            self.coefficients = coefficients;
            read_result?;
        }
        Ok(quant)
    }

    fn read_scan(&mut self, bytes: &[u8], header: &Header, grid: &McuGrid) -> Result<()> {
        let tables = scan_tables(bytes, header)?;
        let blocks: Vec<usize> = mcu_blocks(&header.frame).flat_map(|(i, (h, v))| [i].repeat(h * v)).collect();
        let mut bits = BitReader::new(bytes, header.scan.data_offset);
        let (mut last_read, mut last_written) = ([0i32; 4], [0i32; 4]);
        let mut restarts = 0;
        for mcu in 0..grid.mcus_per_row * grid.mcu_rows {
            if header.restart_interval > 0 && mcu > 0 && mcu % header.restart_interval == 0 {
                bits.restart((restarts & 7) as u8)?;
                restarts += 1;
                last_read = [0; 4];
            }
            if mcu > 0 && mcu % grid.restart_interval == 0 {
                self.segment_ends.push(self.symbols.len());
                last_written = [0; 4];
            }
            for &component in &blocks {
                let (dc, ac) = &tables[component];
                let (size, difference) = bits.read_symbol_and_bits(dc);
                let value = last_read[component].wrapping_add(extend(difference, size.into()));
                last_read[component] = value;
                bits.fault_count += u32::from(size > MAX_DC_BITS || value.unsigned_abs() >= 1 << MAX_DC_BITS);
                self.push_dc(component, value, &mut last_written[component])?;
                if let Err(cause) = self.read_ac(&mut bits, ac, component) {
                    return Err(Error::new(format!("jpeg MCU {mcu} has {cause}")));
                }
            }
            if mcu + 1 == grid.mcus_per_row * grid.mcu_rows {
                bits.end_segment();
            }
            if bits.fault_count > 0 {
                let cause = format!("jpeg data is damaged in MCU {mcu} of {}", grid.mcus_per_row * grid.mcu_rows);
                return Err(Error::new(cause));
            }
        }
        self.segment_ends.push(self.symbols.len());
        if !is_followed_by_marker(bytes, bits.position) {
            return Err(Error::new(NO_EOI));
        }
        Ok(())
    }

    #[inline]
    fn read_ac(
        &mut self,
        bits: &mut BitReader<'_>,
        ac: &HuffmanLookup,
        component: usize,
    ) -> std::result::Result<(), String> {
        let table = table_start(true, table_group(component));
        let (mut block, mut count) = ([0; 64], 0);
        let mut k = 1;
        while k < 64 {
            let (symbol, value) = bits.read_symbol_and_bits(ac);
            self.counts[table + usize::from(symbol)] += 1;
            block[count & 63] = ((table + usize::from(symbol)) as u32) << 16 | value;
            count += 1;
            let (run, size) = (usize::from(symbol >> 4), symbol & 15);
            k += run + 1;
            if size == 0 && run != 15 {
                if run != 0 {
                    return Err(format!("the invalid AC symbol {symbol:#04x}"));
                }
                break;
            }
            if k > 64 || size > MAX_AC_BITS {
                return Err(format!("the invalid AC coefficient {} with {size} bits", k - 1));
            }
        }
        self.symbols.extend_from_slice(&block[..count]);
        Ok(())
    }

    fn read_planes(&mut self, coefficients: &Coefficients, frame: &Frame, grid: &McuGrid) -> Result<()> {
        if let Some(damage) = coefficients.damage() {
            return Err(Error::new(damage));
        }
        let mut last_dc = [0; 4];
        for mcu in 0..grid.mcus_per_row * grid.mcu_rows {
            if mcu > 0 && mcu % grid.restart_interval == 0 {
                self.segment_ends.push(self.symbols.len());
                last_dc = [0; 4];
            }
            let (x, y) = ((mcu % grid.mcus_per_row) as usize, (mcu / grid.mcus_per_row) as usize);
            for (component, (h, v)) in mcu_blocks(frame) {
                let plane = &coefficients.planes()[component];
                let (columns, rows) = frame.blocks(component);
                for (y, x) in (y * v..).take(v).flat_map(|y| (x * h..).take(h).map(move |x| (y, x))) {
                    if x < columns as usize && y < rows as usize {
                        let block = plane.block(x, y);
                        self.push_dc(component, block[0].into(), &mut last_dc[component])?;
                        self.push_ac(component, block)?;
                    } else {
                        // Scans of a single component omit the blocks that only pad an MCU. Insert
                        // padding as in jpegtran: repeating the previous DC coefficient costs the
                        // fewest bits.
                        let previous = last_dc[component];
                        self.push_dc(component, previous, &mut last_dc[component])?;
                        self.push(table_start(true, table_group(component)), 0);
                    }
                }
            }
        }
        self.segment_ends.push(self.symbols.len());
        Ok(())
    }

    fn push(&mut self, code: usize, bits: u32) {
        self.counts[code] += 1;
        self.symbols.push((code as u32) << 16 | bits);
    }

    fn push_dc(&mut self, component: usize, value: i32, last: &mut i32) -> Result<()> {
        let (size, bits) = size_and_bits(value.wrapping_sub(*last));
        if size > MAX_DC_BITS {
            return Err(Error::new(format!(
                "jpeg DC coefficient {value} follows {last}: the difference has more than {MAX_DC_BITS} bits"
            )));
        }
        *last = value;
        reserve(&mut self.symbols, 1 + 64)?;
        self.push(table_start(false, table_group(component)) + usize::from(size), bits);
        Ok(())
    }

    /// Appends the symbols of a block's AC coefficients (T.81, F.1.2.2).
    fn push_ac(&mut self, component: usize, block: &[i16; 64]) -> Result<()> {
        let table = table_start(true, table_group(component));
        let mut run = 0;
        for value in NATURAL[1..64].iter().map(|&position| block[usize::from(position)]) {
            if value == 0 {
                run += 1;
                continue;
            }
            while run > 15 {
                self.push(table + 0xf0, 0);
                run -= 16;
            }
            let (size, bits) = size_and_bits(value.into());
            if size > MAX_AC_BITS {
                return Err(Error::new(format!("jpeg AC coefficient {value} has more than {MAX_AC_BITS} bits")));
            }
            self.push(table + (run << 4 | usize::from(size)), bits);
            run = 0;
        }
        if run > 0 {
            self.push(table, 0);
        }
        Ok(())
    }
}

fn scan_tables(bytes: &[u8], header: &Header) -> Result<Vec<(HuffmanLookup, HuffmanLookup)>> {
    let error = |cause: &str| Error::new(format!("jpeg SOS at byte {}: {cause}", header.scan.offset));
    let mut tables = Vec::new();
    reserve(&mut tables, 4)?;
    for c in header.scan.components() {
        let dc = header.huffman(bytes, false, c.dc_table).map_err(|e| error(&e))?;
        let ac = header.huffman(bytes, true, c.ac_table).map_err(|e| error(&e))?;
        let lookups = HuffmanLookup::new(&dc, false).and_then(|dc| Ok((dc, HuffmanLookup::new(&ac, true)?)));
        tables.push(lookups.map_err(|e| error(&e.to_string()))?);
    }
    Ok(tables)
}

/// Returns the components of an MCU, each with the columns and rows of its blocks. If there is only
/// one component, an MCU is one block, regardless of the sampling factors (T.81, A.2.2).
fn mcu_blocks(frame: &Frame) -> impl Iterator<Item = (usize, (usize, usize))> + '_ {
    let is_single_component = frame.components().len() == 1;
    let extent = move |c: &Component| if is_single_component { (1, 1) } else { (c.h.into(), c.v.into()) };
    frame.components().iter().map(extent).enumerate()
}

/// Returns the size in bits of `value`, and its extra bits (T.81, F.1.2.1.1).
fn size_and_bits(value: i32) -> (u8, u32) {
    let size = 32 - value.unsigned_abs().leading_zeros();
    let bits = if value < 0 { value.wrapping_sub(1) } else { value } as u32;
    (size as u8, bits & (1u64 << size).wrapping_sub(1) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libjpeg::{Options, encode};

    #[test]
    fn planes_of_large_images_are_freed() {
        let (width, height) = (3200, 3200);
        let options = Options { progressive: true, ..Options::new(50, 1, 1) };
        let jpeg = encode(&vec![99; (width * height) as usize], width, height, 1, &options);
        let damaged = &jpeg[..jpeg.len() - 200];
        for (bytes, is_damaged) in [(&jpeg[..], false), (damaged, true)] {
            let header = Header::read(bytes).unwrap();
            let (across, down) = header.frame.blocks(0);
            let mut tokens = Tokens::default();
            let result = tokens.read(
                bytes,
                &header,
                &McuGrid { mcus_per_row: across, mcu_rows: down, restart_interval: across },
            );
            assert_eq!(result.is_err(), is_damaged);
            assert!(tokens.coefficients.memory() >= (width * height * 2) as usize);
            tokens.trim();
            assert_eq!(tokens.coefficients.memory(), 0, "damaged: {is_damaged}");
        }
    }
}
