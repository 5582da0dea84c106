//! The data of a [`LaneDecoder`](super::LaneDecoder) that the backends access.

pub(super) const LANE_COUNT: usize = 16;
/// Number of bytes after the stream that a lane may read.
pub(super) const SLACK_BYTES: usize = 320;
/// Maximum number of links. Each block of an MCU pattern in use has one link.
pub(super) const MAX_LINKS: usize = 32;

/// The state of all lanes. Element `i` of each array belongs to lane `i`.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Lanes {
    pub(super) bit: [u32; LANE_COUNT],
    pub(super) next_coefficient: [u32; LANE_COUNT],
    pub(super) end_coefficient: [u32; LANE_COUNT],
    pub(super) table: [u32; LANE_COUNT],
    pub(super) link: [u32; LANE_COUNT],
}

/// One block of an MCU, linked to the next block in scan order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockLink {
    pub(super) ac: u32,
    pub(super) next_dc: u32,
    pub(super) next_link: u32,
}

pub(super) struct LaneMemory {
    pub(super) stream: *const u8,
    /// Maximum bit offset of a lane.
    pub(super) max_bit: u64,
    pub(super) coefficients: *mut i16,
    pub(super) tables: *const u32,
    pub(super) links: *const BlockLink,
}
