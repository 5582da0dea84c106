//! [`Track`] is the sample table of a video.

use crate::codec::CodecConfig;
use crate::error::{Error, Result};

/// An encoded frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Presentation timestamp, in ticks of [`Track::ticks_per_second`]. The time 0 is the start of
    /// the presentation.
    pub pts: i64,
    /// Number of bytes.
    pub size: u32,
    /// True if decoding can start at this packet.
    pub is_key: bool,
    /// True if the frame is shown. In an MP4 file, frames outside the edit, and frames with a
    /// negative time, are decoded but not shown. In a Matroska file, a flag of the block hides a
    /// frame.
    pub is_shown: bool,
}

/// An exact time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// Number of ticks.
    pub ticks: i64,
    /// Number of ticks per second.
    pub ticks_per_second: u64,
}

impl Time {
    /// Returns the nearest double-precision number of seconds.
    pub fn seconds(self) -> f64 {
        self.ticks as f64 / self.ticks_per_second as f64
    }
}

/// The sample table of a video track: all packets, and the frames that they show.
///
/// Frames are indexed in presentation order, and packets in decoding order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    config: CodecConfig,
    ticks_per_second: u64,
    packets: Vec<Packet>,
    /// Indices of the shown packets, in presentation order.
    shown_packets: Vec<u32>,
    orientation: u8,
}

impl Track {
    /// Creates the table. `packets` must be in decoding order. Fails if the frames have no pixels,
    /// if there are 2^32 or more packets, if two shown frames have the same presentation time, or
    /// if an allocation fails.
    pub(crate) fn new(config: CodecConfig, ticks_per_second: u64, packets: Vec<Packet>) -> Result<Self> {
        let (width, height) = (config.width, config.height);
        if width == 0 || height == 0 {
            return Err(Error::damaged(format!(
                "the size of the video is {width}x{height}: expected a width and a height of at least 1"
            )));
        }
        if u32::try_from(packets.len()).is_err() {
            return Err(Error::unsupported(format!(
                "the video has {} packets: expected fewer than 2^32",
                packets.len()
            )));
        }
        let mut shown_packets = Vec::new();
        crate::error::reserve(&mut shown_packets, packets.len())?;
        shown_packets.extend((0..packets.len() as u32).filter(|&packet| packets[packet as usize].is_shown));
        shown_packets.sort_by_key(|&packet| packets[packet as usize].pts);
        let time = |packet: u32| packets[packet as usize].pts;
        if let Some(index) = shown_packets.windows(2).position(|pair| time(pair[0]) == time(pair[1])) {
            return Err(Error::damaged(format!("frames {index} and {} have the same presentation time", index + 1)));
        }
        Ok(Track { config, ticks_per_second, packets, shown_packets, orientation: 1 })
    }

    pub(crate) fn with_orientation(mut self, exif: u8) -> Self {
        self.orientation = exif;
        self
    }

    /// Returns the codec and its configuration.
    pub fn config(&self) -> &CodecConfig {
        &self.config
    }

    /// Returns how frames are rotated or mirrored for display, as an EXIF orientation from 1 to 8.
    pub fn orientation(&self) -> u8 {
        self.orientation
    }

    /// Returns the number of ticks per second.
    pub fn ticks_per_second(&self) -> u64 {
        self.ticks_per_second
    }

    /// Returns all packets in decoding order.
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// Returns the number of frames that are shown.
    pub fn len(&self) -> usize {
        self.shown_packets.len()
    }

    /// Returns whether no frame is shown.
    pub fn is_empty(&self) -> bool {
        self.shown_packets.is_empty()
    }

    /// Returns the index of the packet that contains a frame.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn packet_index(&self, frame: usize) -> usize {
        self.shown_packets[frame] as usize
    }

    /// Returns the presentation time of a frame.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn time(&self, frame: usize) -> Time {
        Time { ticks: self.packets[self.packet_index(frame)].pts, ticks_per_second: self.ticks_per_second }
    }

    /// Returns the frame nearest to `seconds`, if its presentation time is within `tolerance`. If
    /// two frames are equally near, returns the first.
    pub fn frame_at(&self, seconds: f64, tolerance: f64) -> Option<usize> {
        let frame = self.nearest(seconds)?;
        ((self.time(frame).seconds() - seconds).abs() <= tolerance).then_some(frame)
    }

    /// Returns the frame nearest to `seconds`, or `None` if no frame is shown. If two frames are
    /// equally near, returns the first.
    pub fn nearest(&self, seconds: f64) -> Option<usize> {
        let last_frame = self.shown_packets.len().checked_sub(1)?;
        let distance = |frame: usize| (self.time(frame).seconds() - seconds).abs();
        let next_frame = self
            .shown_packets
            .partition_point(|&packet| {
                let ticks = self.packets[packet as usize].pts;
                Time { ticks, ticks_per_second: self.ticks_per_second }.seconds() < seconds
            })
            .min(last_frame);
        match next_frame.checked_sub(1) {
            Some(previous_frame) if distance(previous_frame) <= distance(next_frame) => Some(previous_frame),
            _ => Some(next_frame),
        }
    }

    /// Returns the index of the packet at which to start decoding a frame. This is the last key
    /// frame at or before the frame in both decoding order and presentation order, or the first
    /// packet if there is no such key frame.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn start_packet(&self, frame: usize) -> usize {
        let packet = self.packet_index(frame);
        let time = self.packets[packet].pts;
        let is_start = |packet: &Packet| packet.is_key && packet.pts <= time;
        self.packets[..=packet].iter().rposition(is_start).unwrap_or(0)
    }

    /// Returns the packets that must be decoded to show a frame, in decoding order: from the packet
    /// at [`start_packet`](Self::start_packet) to the packet of the frame.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn packets_for(&self, frame: usize) -> &[Packet] {
        &self.packets[self.start_packet(frame)..=self.packet_index(frame)]
    }
}
