//! The data of a [`Machine`](super::Machine) that the backends access.

/// Maximum number of lanes in any backend.
pub(super) const LANES: usize = 16;
/// Number of bytes after the stream that a lane may read.
pub(super) const SLACK_BYTES: usize = 320;
/// Maximum number of links. Each block of an MCU pattern in use has one link.
pub(super) const LINKS: usize = 32;

/// The state of the lanes. Element `i` of each array belongs to lane `i`.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Lanes {
    /// Offset of the next bit in the stream.
    pub(super) bit: [u32; LANES],
    /// Index of the next coefficient.
    pub(super) next: [u32; LANES],
    /// Index of the coefficient at which the lane stops.
    pub(super) end: [u32; LANES],
    /// Offset of the table for the next symbol.
    pub(super) table: [u32; LANES],
    /// Index of the link of the current block.
    pub(super) link: [u32; LANES],
}

/// One block of an MCU, linked to the next block in scan order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Link {
    /// Offset of the AC table of this block.
    pub(super) ac: u32,
    /// Offset of the DC table of the next block.
    pub(super) next_dc: u32,
    /// Index of the link of the next block.
    pub(super) next: u32,
}

/// Pointers to the memory that the backends access.
pub(super) struct Pointers {
    pub(super) stream: *const u8,
    /// Maximum bit offset of a lane.
    pub(super) limit: u64,
    pub(super) coefficients: *mut i16,
    pub(super) tables: *const u32,
    pub(super) links: *const Link,
}
