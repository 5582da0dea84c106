//! What the backends see of a [`Machine`](super::Machine).

/// The most lanes that a backend has.
pub(super) const LANES: usize = 16;
/// Bytes behind the stream that a window may reach.
pub(super) const SLACK_BYTES: usize = 320;
/// Links, and with them the blocks of all MCU patterns in use.
pub(super) const LINKS: usize = 32;

/// Where each lane is.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Lanes {
    /// The next bit in the stream.
    pub(super) bit: [u32; LANES],
    /// The next coefficient.
    pub(super) at: [u32; LANES],
    /// The coefficient to stop at.
    pub(super) end: [u32; LANES],
    /// The table for the next symbol, as an offset.
    pub(super) table: [u32; LANES],
    /// The block of the MCU it is in.
    pub(super) link: [u32; LANES],
}

/// One block of an MCU in the order of a scan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Link {
    /// Its AC table, and the DC table of the next block.
    pub(super) ac: u32,
    pub(super) next_dc: u32,
    /// The next block's link.
    pub(super) next: u32,
}

/// What the backends see.
pub(super) struct Memory {
    pub(super) stream: *const u8,
    /// The last bit that a lane may stand at.
    pub(super) limit: u64,
    pub(super) coefficients: *mut i16,
    pub(super) tables: *const u32,
    pub(super) links: *const Link,
}
