//! Data of a [`Machine`](super::Machine) that the backends access.

/// Maximum number of lanes of any backend.
pub(super) const LANES: usize = 16;
/// Bytes after the stream that a window may reach.
pub(super) const SLACK_BYTES: usize = 320;
/// Maximum number of links: one for each block of the MCU patterns in use.
pub(super) const LINKS: usize = 32;

/// Positions of the lanes.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Lanes {
    /// Next bit in the stream.
    pub(super) bit: [u32; LANES],
    /// Next coefficient.
    pub(super) at: [u32; LANES],
    /// Coefficient to stop at.
    pub(super) end: [u32; LANES],
    /// Table for the next symbol, as an offset.
    pub(super) table: [u32; LANES],
    /// Current block of the MCU.
    pub(super) link: [u32; LANES],
}

/// One block of an MCU in the order of a scan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Link {
    /// AC table of this block, and DC table of the next block.
    pub(super) ac: u32,
    pub(super) next_dc: u32,
    /// Link of the next block.
    pub(super) next: u32,
}

/// Pointers that the backends access.
pub(super) struct Pointers {
    pub(super) stream: *const u8,
    /// Last bit at which a lane may be.
    pub(super) limit: u64,
    pub(super) coefficients: *mut i16,
    pub(super) tables: *const u32,
    pub(super) links: *const Link,
}
