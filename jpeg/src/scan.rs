//! Decodes the blocks of a sequential or progressive scan, one symbol at a time (T.81, annexes F.2
//! and G.2).

use super::bits::BitReader;
use super::header::{Coding, NATURAL, Scan};
use super::huffman::HuffmanLookup;
use crate::error::{Error, Result};

/// Maximum size of a DC difference in 8-bit images, in bits (T.81, table F.1).
pub(crate) const MAX_DC_BITS: u8 = 11;
/// Maximum size of an AC coefficient in 8-bit images, in bits (T.81, table F.2).
pub(crate) const MAX_AC_BITS: u8 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Sequential,
    DcFirst,
    DcRefine,
    AcFirst,
    AcRefine,
}

impl Mode {
    pub(super) fn for_scan(coding: Coding, scan: &Scan) -> Result<Mode, String> {
        let Scan { start, end, high, low, .. } = *scan;
        if coding != Coding::Progressive {
            // Ignore the band: libjpeg only warns if a sequential scan declares one.
            return Ok(Mode::Sequential);
        }
        let is_valid_band =
            if start == 0 { end == 0 } else { start <= end && end < 64 && scan.components().len() == 1 };
        if !is_valid_band || low > 13 || (high != 0 && low + 1 != high) {
            return Err(format!("invalid progressive scan: coefficients {start} to {end}, bits {high} to {low}"));
        }
        Ok(match (start, high) {
            (0, 0) => Mode::DcFirst,
            (0, _) => Mode::DcRefine,
            (_, 0) => Mode::AcFirst,
            _ => Mode::AcRefine,
        })
    }

    pub(super) fn needs_dc(self) -> bool {
        matches!(self, Mode::Sequential | Mode::DcFirst)
    }

    pub(super) fn needs_ac(self) -> bool {
        matches!(self, Mode::Sequential | Mode::AcFirst | Mode::AcRefine)
    }
}

pub(super) struct ScanDecoder<'a> {
    pub(super) bits: BitReader<'a>,
    last_dc: [i32; 4],
    /// Number of following blocks without new coefficients in the band.
    eob_run: u32,
}

impl<'a> ScanDecoder<'a> {
    pub(super) fn new(bytes: &'a [u8], offset: usize) -> Self {
        ScanDecoder { bits: BitReader::new(bytes, offset), last_dc: [0; 4], eob_run: 0 }
    }

    pub(super) fn restart(&mut self, expected: u8) -> Result<()> {
        (self.last_dc, self.eob_run) = ([0; 4], 0);
        self.bits.restart(expected)
    }

    /// Decodes the next block of a component. `component` is an index in the scan.
    pub(super) fn decode_block(
        &mut self,
        mode: Mode,
        scan: &Scan,
        component: usize,
        dc: Option<&HuffmanLookup>,
        ac: Option<&HuffmanLookup>,
        block: &mut [i16; 64],
    ) -> Result<()> {
        match (mode, dc, ac) {
            (Mode::Sequential, Some(dc), Some(ac)) => {
                block[0] = self.decode_dc(component, dc, 0)? as i16;
                self.decode_ac(ac, block);
            }
            (Mode::DcFirst, Some(dc), _) => block[0] = (self.decode_dc(component, dc, scan.low)? << scan.low) as i16,
            (Mode::DcRefine, ..) => block[0] |= (self.bits.read_bits(1) << scan.low) as i16,
            (Mode::AcFirst, _, Some(ac)) => self.decode_first_ac(ac, scan, block),
            (Mode::AcRefine, _, Some(ac)) => self.refine_ac(ac, scan, block),
            _ => unreachable!("the tables match the scan's mode"),
        }
        Ok(())
    }

    /// Decodes a DC coefficient. The result lacks the lowest `low` bits, which later scans contain.
    fn decode_dc(&mut self, component: usize, table: &HuffmanLookup, low: u8) -> Result<i32> {
        let size = self.bits.read_symbol(table);
        let difference = self.bits.read_signed(size);
        let last_dc = &mut self.last_dc[component];
        *last_dc = last_dc.checked_add(difference).ok_or_else(|| Error::new("jpeg DC coefficient exceeds 32 bits"))?;
        self.bits.fault_count +=
            u32::from(size > MAX_DC_BITS || last_dc.unsigned_abs() >= 1 << (MAX_DC_BITS.max(low) - low));
        Ok(*last_dc)
    }

    fn decode_ac(&mut self, table: &HuffmanLookup, block: &mut [i16; 64]) {
        let mut k = 1;
        while k < 64 {
            let symbol = self.bits.read_symbol(table);
            let (run, size) = (usize::from(symbol >> 4), symbol & 15);
            if size == 0 && run != 15 {
                self.bits.fault_count += u32::from(run != 0);
                break;
            }
            k += run;
            self.bits.fault_count += u32::from(k > 63 || size > MAX_AC_BITS);
            if size > 0 {
                block[usize::from(NATURAL[k])] = self.bits.read_signed(size) as i16;
            }
            k += 1;
        }
    }

    fn decode_first_ac(&mut self, table: &HuffmanLookup, scan: &Scan, block: &mut [i16; 64]) {
        if self.eob_run > 0 {
            self.eob_run -= 1;
            return;
        }
        let mut k = usize::from(scan.start);
        while k <= usize::from(scan.end) {
            let symbol = self.bits.read_symbol(table);
            let (run, size) = (symbol >> 4, symbol & 15);
            if size == 0 && run != 15 {
                self.eob_run = (1 << run) - 1 + self.bits.read_bits(run);
                break;
            }
            k += usize::from(run);
            self.bits.fault_count += u32::from(k > usize::from(scan.end) || size + scan.low > MAX_AC_BITS);
            if size > 0 {
                block[usize::from(NATURAL[k])] = (self.bits.read_signed(size) << scan.low) as i16;
            }
            k += 1;
        }
    }

    fn refine_ac(&mut self, table: &HuffmanLookup, scan: &Scan, block: &mut [i16; 64]) {
        let end = usize::from(scan.end);
        let bit = 1i16 << scan.low;
        let mut k = usize::from(scan.start);
        while self.eob_run == 0 && k <= end {
            let symbol = self.bits.read_symbol(table);
            let (mut run, size) = (symbol >> 4, symbol & 15);
            let mut new_coefficient = 0;
            if size > 0 {
                self.bits.fault_count += u32::from(size != 1);
                new_coefficient = if self.bits.read_bits(1) == 1 { bit } else { -bit };
            } else if run != 15 {
                self.eob_run = (1 << run) + self.bits.read_bits(run);
                break;
            }
            while k <= end {
                let coefficient = &mut block[usize::from(NATURAL[k])];
                if *coefficient != 0 {
                    self.bits.refine(coefficient, bit);
                } else if run == 0 {
                    break;
                } else {
                    run -= 1;
                }
                k += 1;
            }
            self.bits.fault_count += u32::from(k > end);
            if new_coefficient != 0 {
                block[usize::from(NATURAL[k])] = new_coefficient;
            }
            k += 1;
        }
        if self.eob_run > 0 {
            while k <= end {
                let coefficient = &mut block[usize::from(NATURAL[k])];
                if *coefficient != 0 {
                    self.bits.refine(coefficient, bit);
                }
                k += 1;
            }
            self.eob_run -= 1;
        }
    }
}
