//! Every scan of a Huffman-coded file, sequential or progressive, into planes of quantised coefficients: one symbol after another, as
//! T.81 annexes F.2 and G.2 describe it.
//!
//! It follows libjpeg where a file is damaged: a wrong code counts as the symbol 0, a segment that ends early is filled with zero bits,
//! restart markers that are out of step are resynchronised. [`Coefficients::faults`] counts these. Only the end of the file is an
//! error, where libjpeg goes on with grey.

use super::header::{Coding, Frame, Header, NATURAL, Scan, next_marker};
use super::huffman::{Lookup, Spec};
use crate::error::{Error, Result};

/// More scans than this are refused: a scan of a few bytes may take as long as one of the whole picture. Encoders write about ten.
const MAX_SCANS: u32 = 256;

/// The coefficients of a picture. Its memory is kept from one file to the next.
#[derive(Debug, Default)]
pub(crate) struct Coefficients {
    planes: Vec<Plane>,
    count: usize,
    /// How many times the data made no sense and was read as libjpeg reads it.
    pub(crate) faults: u32,
}

/// The blocks of one component, row after row, each 64 coefficients in natural order.
#[derive(Debug)]
pub(crate) struct Plane {
    /// Blocks in a row, a multiple of the component's horizontal sampling factor.
    pub(crate) wide: usize,
    /// Rows of blocks, a multiple of the vertical sampling factor.
    pub(crate) high: usize,
    /// `high * wide * 64` coefficients.
    pub(crate) data: Vec<i16>,
    /// The quantisation table that was defined when the component's first scan began, in natural order.
    pub(crate) quant: [u16; 64],
    /// Bits of each coefficient, in zigzag order, that no scan delivered; -1 before the first.
    missing: [i8; 64],
}

impl Plane {
    fn new() -> Self {
        Plane { wide: 0, high: 0, data: Vec::new(), quant: [0; 64], missing: [-1; 64] }
    }

    /// Block `x` of row `y`.
    pub(crate) fn block(&self, x: usize, y: usize) -> &[i16; 64] {
        let at = (y * self.wide + x) * 64;
        self.data[at..at + 64].try_into().expect("a block has 64 coefficients")
    }
}

impl Coefficients {
    /// One plane for each component of the frame.
    pub(crate) fn planes(&self) -> &[Plane] {
        &self.planes[..self.count]
    }

    /// Gives back memory beyond `limit` bytes.
    pub(crate) fn shrink(&mut self, limit: usize) {
        if self.planes.iter().map(|plane| plane.data.capacity() * 2).sum::<usize>() > limit {
            self.planes.clear();
            self.count = 0;
        }
    }

    /// Whether a progressive file left out bits of the low frequencies, which libjpeg then smoothes over instead of transforming
    /// what it has.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.planes().iter().any(|plane| plane.missing[..10].iter().any(|&bits| bits != 0))
    }

    /// Decodes all scans of `bytes`, of which `header` was [read](Header::read). Baseline, extended and progressive frames of 8 bits.
    ///
    /// # Errors
    /// If the file ends early, if scan headers or tables contradict the frame, or if the coding is another one.
    pub(crate) fn decode(&mut self, bytes: &[u8], header: &Header) -> Result<()> {
        let frame = &header.frame;
        if matches!(frame.coding, Coding::Other(_)) || frame.precision != 8 {
            return Err(Error::decode(format!(
                "jpeg coding {:?} of {} bits is not supported",
                frame.coding, frame.precision
            )));
        }
        self.lay_out(frame, bytes.len() - header.scan.data)?;
        let mut header = header.clone();
        for scans in 1.. {
            let at = self.scan(bytes, &header)?;
            if scans == MAX_SCANS {
                return Err(Error::decode(format!("jpeg has more than {MAX_SCANS} scans")));
            }
            if frame.coding != Coding::Progressive && self.planes().iter().all(|plane| plane.missing[0] == 0) {
                return Ok(());
            }
            // Files without EOI are common enough; their pixels are complete when no low frequency is missing.
            match header.next_scan(bytes, at) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) if self.is_unfinished() => return Err(e),
                Err(_) => break,
            }
        }
        match self.planes().iter().position(|plane| plane.missing[0] < 0) {
            Some(i) => Err(Error::decode(format!("jpeg has no scan of component {}", frame.components()[i].id))),
            None => Ok(()),
        }
    }

    /// Makes room for `frame`, if `left` bytes of data can describe it at all.
    fn lay_out(&mut self, frame: &Frame, left: usize) -> Result<()> {
        let (across, down) = frame.mcus();
        let extent =
            |c: &super::header::Component| ((across * u32::from(c.h)) as usize, (down * u32::from(c.v)) as usize);
        // Every block costs at least one bit of a DC code, so memory stays in proportion to the file.
        let least: usize =
            (0..frame.components().len()).map(|i| frame.blocks(i)).map(|(w, h)| w as usize * h as usize).sum();
        if left < least / 8 {
            let cause = format!("jpeg has {left} bytes of data, {least} blocks need at least {}", least / 8);
            return Err(Error::decode(cause));
        }
        self.faults = 0;
        self.count = frame.components().len();
        self.planes.resize_with(self.count.max(self.planes.len()), Plane::new);
        for (plane, component) in self.planes.iter_mut().zip(frame.components()) {
            (plane.wide, plane.high) = extent(component);
            plane.data.clear();
            plane.data.resize(plane.wide * plane.high * 64, 0);
            plane.missing = [-1; 64];
        }
        Ok(())
    }

    /// Decodes the scan that `header` has come to; returns where it ends.
    fn scan(&mut self, bytes: &[u8], header: &Header) -> Result<usize> {
        let (frame, scan) = (&header.frame, &header.scan);
        let named = |cause: String| Error::decode(format!("jpeg SOS at byte {}: {cause}", scan.at));
        let mode = Mode::of(frame.coding, scan).map_err(named)?;
        let mut tables = [const { (None, None) }; 4];
        for (slot, component) in tables.iter_mut().zip(scan.components()) {
            let plane = &mut self.planes[usize::from(component.index)];
            if plane.missing[0] < 0 {
                let quant = frame.components()[usize::from(component.index)].quant;
                let table = header.quant[usize::from(quant)];
                plane.quant = table.ok_or_else(|| named(format!("quantisation table {quant} is not defined")))?;
            }
            match mode {
                Mode::Sequential => plane.missing = [0; 64],
                _ => plane.missing[scan.start.into()..=usize::from(scan.end)].fill(scan.low as i8),
            }
            if mode.needs_dc() {
                let spec = table(&header.dc, component.dc, false).map_err(named)?;
                slot.0 = Some(Lookup::new(&spec, false).map_err(|e| named(e.cause().into()))?);
            }
            if mode.needs_ac() {
                let spec = table(&header.ac, component.ac, true).map_err(named)?;
                slot.1 = Some(Lookup::new(&spec, true).map_err(|e| named(e.cause().into()))?);
            }
        }

        // A scan of one component has one block in an MCU and leaves out those that only pad the frame's MCUs.
        let single = scan.components().len() == 1;
        let (across, down) = if single { frame.blocks(scan.components()[0].index.into()) } else { frame.mcus() };
        let blocks: u32 = scan
            .components()
            .iter()
            .map(|c| frame.components()[usize::from(c.index)])
            .map(|c| u32::from(c.h * c.v))
            .sum();
        if !single && blocks > 10 {
            return Err(named(format!("{blocks} blocks in an MCU, the limit is 10")));
        }
        let mut state = State { bits: Bits::new(bytes, scan.data), last_dc: [0; 4], eob_run: 0 };
        let mut restart = 0;
        for mcu in 0..across * down {
            if header.restart_interval > 0 && mcu > 0 && mcu % header.restart_interval == 0 {
                state.restart(restart)?;
                restart = (restart + 1) & 7;
            }
            if state.bits.starved {
                if header.restart_interval == 0 {
                    break;
                }
                continue;
            }
            let (x, y) = ((mcu % across) as usize, (mcu / across) as usize);
            for (i, (component, (dc, ac))) in scan.components().iter().zip(&tables).enumerate() {
                let plane = &mut self.planes[usize::from(component.index)];
                let shape = frame.components()[usize::from(component.index)];
                let (h, v) = if single { (1, 1) } else { (usize::from(shape.h), usize::from(shape.v)) };
                for (row, column) in (0..v).flat_map(|row| (0..h).map(move |column| (row, column))) {
                    let at = ((y * v + row) * plane.wide + x * h + column) * 64;
                    let block = (&mut plane.data[at..at + 64]).try_into().expect("a block has 64 coefficients");
                    state.block(mode, scan, i, (dc.as_ref(), ac.as_ref()), block)?;
                }
            }
            if state.bits.ended {
                return Err(Error::decode(format!(
                    "jpeg ends at byte {} in MCU {mcu} of {}",
                    bytes.len(),
                    across * down
                )));
            }
        }
        self.faults = self.faults.saturating_add(state.bits.faults);
        Ok(state.bits.at)
    }
}

/// Table `index`, or the standard one that Motion-JPEG files leave out.
pub(crate) fn table(tables: &[Option<Spec>; 4], index: u8, ac: bool) -> Result<Spec, String> {
    match &tables[usize::from(index)] {
        Some(spec) => Ok(spec.clone()),
        None if index < 2 => Ok(Spec::standard(ac, index == 1)),
        None => Err(format!("{} Huffman table {index} is not defined", if ac { "AC" } else { "DC" })),
    }
}

/// What a scan does with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Sequential,
    DcFirst,
    DcRefine,
    AcFirst,
    AcRefine,
}

impl Mode {
    fn of(coding: Coding, scan: &Scan) -> Result<Mode, String> {
        let Scan { start, end, high, low, .. } = *scan;
        if coding != Coding::Progressive {
            // libjpeg decodes all 64 coefficients whatever a sequential scan says here, and only warns.
            return Ok(Mode::Sequential);
        }
        let band = if start == 0 { end == 0 } else { start <= end && end < 64 && scan.components().len() == 1 };
        if !band || low > 13 || (high != 0 && low + 1 != high) {
            return Err(format!("a progressive scan of coefficients {start} to {end}, bits {high} to {low}"));
        }
        Ok(match (start, high) {
            (0, 0) => Mode::DcFirst,
            (0, _) => Mode::DcRefine,
            (_, 0) => Mode::AcFirst,
            _ => Mode::AcRefine,
        })
    }

    fn needs_dc(self) -> bool {
        matches!(self, Mode::Sequential | Mode::DcFirst)
    }

    fn needs_ac(self) -> bool {
        matches!(self, Mode::Sequential | Mode::AcFirst | Mode::AcRefine)
    }
}

/// What a scan carries from block to block.
struct State<'a> {
    bits: Bits<'a>,
    last_dc: [i32; 4],
    /// Blocks still to come whose band is all zero (or only refined).
    eob_run: u32,
}

impl State<'_> {
    fn restart(&mut self, expected: u8) -> Result<()> {
        (self.last_dc, self.eob_run) = ([0; 4], 0);
        self.bits.restart(expected)
    }

    fn block(
        &mut self,
        mode: Mode,
        scan: &Scan,
        component: usize,
        (dc, ac): (Option<&Lookup>, Option<&Lookup>),
        block: &mut [i16; 64],
    ) -> Result<()> {
        match (mode, dc, ac) {
            (Mode::Sequential, Some(dc), Some(ac)) => {
                block[0] = self.dc(component, dc)? as i16;
                self.ac_sequential(ac, block);
            }
            (Mode::DcFirst, Some(dc), _) => block[0] = (self.dc(component, dc)? << scan.low) as i16,
            (Mode::DcRefine, ..) => block[0] |= (self.bits.take(1) << scan.low) as i16,
            (Mode::AcFirst, _, Some(ac)) => self.ac_first(ac, scan, block),
            (Mode::AcRefine, _, Some(ac)) => self.ac_refine(ac, scan, block),
            _ => unreachable!("tables were made for the scan's mode"),
        }
        Ok(())
    }

    fn dc(&mut self, component: usize, table: &Lookup) -> Result<i32> {
        let size = self.bits.symbol(table);
        let difference = self.bits.signed(size);
        let last = &mut self.last_dc[component];
        *last = last.checked_add(difference).ok_or_else(|| Error::decode("jpeg DC coefficient exceeds 32 bits"))?;
        Ok(*last)
    }

    fn ac_sequential(&mut self, table: &Lookup, block: &mut [i16; 64]) {
        let mut k = 1;
        while k < 64 {
            let symbol = self.bits.symbol(table);
            let (run, size) = (usize::from(symbol >> 4), symbol & 15);
            if size == 0 && run != 15 {
                break;
            }
            k += run;
            if size > 0 {
                block[usize::from(NATURAL[k])] = self.bits.signed(size) as i16;
            }
            k += 1;
        }
    }

    fn ac_first(&mut self, table: &Lookup, scan: &Scan, block: &mut [i16; 64]) {
        if self.eob_run > 0 {
            self.eob_run -= 1;
            return;
        }
        let mut k = usize::from(scan.start);
        while k <= usize::from(scan.end) {
            let symbol = self.bits.symbol(table);
            let (run, size) = (symbol >> 4, symbol & 15);
            if size == 0 && run != 15 {
                self.eob_run = (1 << run) - 1 + self.bits.take(run);
                break;
            }
            k += usize::from(run);
            if size > 0 {
                block[usize::from(NATURAL[k])] = (self.bits.signed(size) << scan.low) as i16;
            }
            k += 1;
        }
    }

    fn ac_refine(&mut self, table: &Lookup, scan: &Scan, block: &mut [i16; 64]) {
        let end = usize::from(scan.end);
        let one = 1i16 << scan.low;
        let mut k = usize::from(scan.start);
        while self.eob_run == 0 && k <= end {
            let symbol = self.bits.symbol(table);
            let (mut run, size) = (symbol >> 4, symbol & 15);
            let mut fresh = 0;
            if size > 0 {
                self.bits.faults += u32::from(size != 1);
                fresh = if self.bits.take(1) == 1 { one } else { -one };
            } else if run != 15 {
                self.eob_run = (1 << run) + self.bits.take(run);
                break;
            }
            // Passes over `run` coefficients that are still zero, refining the others on the way.
            while k <= end {
                let coefficient = &mut block[usize::from(NATURAL[k])];
                if *coefficient != 0 {
                    self.bits.refine(coefficient, one);
                } else if run == 0 {
                    break;
                } else {
                    run -= 1;
                }
                k += 1;
            }
            if fresh != 0 {
                block[usize::from(NATURAL[k])] = fresh;
            }
            k += 1;
        }
        if self.eob_run > 0 {
            while k <= end {
                let coefficient = &mut block[usize::from(NATURAL[k])];
                if *coefficient != 0 {
                    self.bits.refine(coefficient, one);
                }
                k += 1;
            }
            self.eob_run -= 1;
        }
    }
}

/// Entropy-coded bits up to the next marker.
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    /// The next byte to read, or the marker that ended the segment.
    at: usize,
    /// Bits read ahead, from the top.
    window: u64,
    held: u32,
    /// More bits were taken than the segment has; zeros were given instead.
    starved: bool,
    /// The same, at the end of the file.
    ended: bool,
    /// How many times the bits made no sense.
    pub(crate) faults: u32,
}

impl<'a> Bits<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Bits { bytes, at, window: 0, held: 0, starved: false, ended: false, faults: 0 }
    }

    /// Reads ahead to at least 32 bits, if the segment has them.
    #[inline(always)]
    fn fill(&mut self) {
        if self.held > 32 {
            return;
        }
        if let Some(&next) = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
            let word = u32::from_be_bytes(next);
            // No byte is ff: the usual test for a zero byte, of the complement.
            if (!word).wrapping_sub(0x0101_0101) & word & 0x8080_8080 == 0 {
                self.window |= u64::from(word) << (32 - self.held);
                self.held += 32;
                self.at += 4;
                return;
            }
        }
        self.fill_bytes();
    }

    /// [`fill`](Bits::fill) where a byte is stuffed or a marker, or the file ends.
    #[cold]
    fn fill_bytes(&mut self) {
        while self.held <= 56 {
            let Some(&byte) = self.bytes.get(self.at) else { return };
            let mut next = self.at + 1;
            if byte == 0xff {
                while self.bytes.get(next) == Some(&0xff) {
                    next += 1;
                }
                if self.bytes.get(next) != Some(&0) {
                    // The last `ff` of a run of them begins the marker.
                    self.at = next - 1;
                    return;
                }
                // T.81 has fill bytes before markers only; libjpeg-turbo's two readers differ on what these are.
                self.faults += u32::from(next > self.at + 1);
                next += 1;
            }
            self.at = next;
            self.window |= u64::from(byte) << (56 - self.held);
            self.held += 8;
        }
    }

    #[inline(always)]
    fn skip(&mut self, count: u32) {
        if count > self.held {
            self.starve();
        }
        self.window <<= count;
        self.held -= count;
    }

    #[cold]
    fn starve(&mut self) {
        self.faults += u32::from(!self.starved);
        self.starved = true;
        self.ended |= !self.bytes[self.at..].iter().any(|&b| b != 0xff);
        (self.window, self.held) = (0, 64);
    }

    /// The next symbol, and as many bits behind it as its lower half says.
    #[inline(always)]
    pub(crate) fn symbol_and_bits(&mut self, table: &Lookup) -> (u8, u32) {
        self.fill();
        let Some((symbol, length)) = table.find((self.window >> 48) as u16) else {
            self.faults += 1;
            self.skip(17);
            return (0, 0);
        };
        // A code and what follows it have at most 31 bits, as many as were read ahead.
        let (length, size) = (u32::from(length), u32::from(symbol & 15));
        let bits = ((self.window << length >> 32) >> (32 - size)) as u32;
        self.skip(length + size);
        (symbol, bits)
    }

    /// The next `count` bits, at most 16.
    pub(crate) fn take(&mut self, count: u8) -> u32 {
        self.fill();
        let value = ((self.window >> 32) >> (32 - u32::from(count))) as u32;
        self.skip(count.into());
        value
    }

    /// The next `size` bits as a coefficient's value (T.81, EXTEND in F.2.2.1).
    pub(crate) fn signed(&mut self, size: u8) -> i32 {
        let value = self.take(size) as i32;
        if size > 0 && value < 1 << (size - 1) { value - (1 << size) + 1 } else { value }
    }

    pub(crate) fn symbol(&mut self, table: &Lookup) -> u8 {
        self.fill();
        match table.find((self.window >> 48) as u16) {
            Some((symbol, length)) => {
                self.skip(length.into());
                symbol
            }
            None => {
                self.faults += 1;
                self.skip(17);
                0
            }
        }
    }

    /// One more bit for a coefficient that is not zero.
    fn refine(&mut self, coefficient: &mut i16, one: i16) {
        if self.take(1) == 1 && *coefficient & one == 0 {
            *coefficient = coefficient.wrapping_add(if *coefficient >= 0 { one } else { -one });
        }
    }

    /// Goes on behind the next restart marker, or as libjpeg's `jpeg_resync_to_restart` does if it is not the expected one: a marker
    /// of up to two segments ahead, or of another kind, leaves this segment empty; one of up to two behind is passed over.
    pub(crate) fn restart(&mut self, expected: u8) -> Result<()> {
        (self.window, self.held) = (0, 0);
        let mut from = self.at;
        loop {
            let (marker, place) = next_marker(self.bytes, from)?;
            self.at = place;
            if marker == 0xd0 + expected {
                (self.at, self.starved) = (place + 2, false);
                return Ok(());
            }
            self.faults += 1;
            let ahead = marker.wrapping_sub(0xd0 + expected) & 7;
            match marker {
                0xd0..=0xd7 if ahead == 1 || ahead == 2 => break,
                0xd0..=0xd7 if ahead == 6 || ahead == 7 => from = place + 2,
                0xd0..=0xd7 => {
                    (self.at, self.starved) = (place + 2, false);
                    return Ok(());
                }
                0xc0.. => break,
                _ => from = place + 2,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::libjpeg::{self, Options};
    use super::*;

    fn compare(jpeg: &[u8]) {
        let expected = libjpeg::coefficients(jpeg).unwrap();
        let mut found = Coefficients::default();
        found.decode(jpeg, &Header::read(jpeg).unwrap()).unwrap();
        assert_eq!(found.planes().len(), expected.len());
        for (found, expected) in found.planes().iter().zip(&expected) {
            for (y, row) in expected.data.chunks_exact(expected.wide * 64).enumerate() {
                let start = y * found.wide * 64;
                assert!(found.data[start..start + row.len()] == *row, "block row {y} differs");
            }
        }
    }

    #[test]
    fn every_scan_type_gives_the_coefficients_that_libjpeg_reads() {
        let (width, height) = (61, 45);
        let noise = |i: u32| (i.wrapping_mul(2654435761) >> 24) as u8 / 4 + (i % (3 * width)) as u8;
        let pixels: Vec<u8> = (0..width * height * 3).map(noise).collect();
        for (h, v) in [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)] {
            for (progressive, restart, optimise) in
                [(false, 0, false), (false, 3, true), (true, 0, true), (true, 5, true), (false, 1, false)]
            {
                let options = Options { progressive, restart, optimise, ..Options::new(92, h, v) };
                compare(&libjpeg::encode(&pixels, width, height, 3, &options));
                compare(&libjpeg::encode(&pixels[..(width * height) as usize], width, height, 1, &options));
            }
        }
    }
}
