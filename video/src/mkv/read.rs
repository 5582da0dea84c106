//! Finds the packets of the video track.

use super::elements::{
    BLOCK, BLOCK_GROUP, CLUSTER, CLUSTER_TIMESTAMP, EBML, ENCRYPTED_BLOCK, INFO, REFERENCE_BLOCK, SEGMENT,
    SIMPLE_BLOCK, TIMESTAMP_SCALE, TRACKS, is_in_segment,
};
use super::track::VideoTrack;
use super::window::{Element, Window, parse_variable_length_number};
use crate::error::{Error, Result, reserve};
use crate::input::Input;
use crate::track::{Packet, Track};

/// Maximum size of the `Tracks` element in bytes.
const MAX_TRACKS_BYTES: usize = 16 << 20;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// Maximum length of the track number, the time and the flags of a block.
const MAX_BLOCK_HEADER_LEN: usize = 11;

/// Returns whether the file is a Matroska file. `bytes` must contain at least its first 4 bytes.
pub fn matches(bytes: &[u8]) -> bool {
    bytes.starts_with(&EBML.to_be_bytes())
}

/// Reads the positions and times of all packets of the first video track.
///
/// # Errors
/// If reading fails, if the file is damaged or has no video track, or if the track uses a feature
/// of the format that is not supported.
pub fn read(input: &dyn Input) -> Result<Track> {
    let mut window = Window::new(input);
    let len = window.len();
    let mut offset = 0;
    while offset < len {
        let element = window.read_element(offset, len)?;
        if element.id == SEGMENT {
            return Segment { window, track: None, tick_nanos: 1_000_000, packets: Vec::new() }.read(&element);
        }
        offset = element.known_end()?;
    }
    Err(Error::damaged(format!("the file of {len} bytes has no segment, which contains the packets")))
}

struct Segment<'a> {
    window: Window<'a>,
    track: Option<VideoTrack>,
    /// Number of nanoseconds per tick.
    tick_nanos: u64,
    packets: Vec<Packet>,
}

struct BlockHeader {
    /// Time relative to the cluster.
    time: i16,
    flags: u8,
    /// Offset of the packet in the file.
    packet_offset: u64,
}

impl Segment<'_> {
    fn read(mut self, segment: &Element) -> Result<Track> {
        let len = self.window.len();
        let end = segment.content_end.unwrap_or(len);
        let mut offset = segment.content_start;
        while offset < end {
            let element = self.window.read_element(offset, end)?;
            offset = match element.id {
                CLUSTER => self.add_cluster(&element, end)?,
                // Stop here, because a second file may follow a file of unknown size.
                EBML | SEGMENT if segment.content_end.is_none() => break,
                id => {
                    match id {
                        INFO => self.read_info(&element)?,
                        TRACKS if self.track.is_none() => {
                            let content = self.window.read_content(&element, MAX_TRACKS_BYTES)?;
                            self.track = Some(VideoTrack::find(&content)?);
                        }
                        _ => {}
                    }
                    element.known_end()?
                }
            };
        }
        let track = self
            .track
            .ok_or_else(|| Error::damaged(format!("the file of {len} bytes does not describe its tracks")))?;
        // If a second is a whole number of the file's ticks, times are counted in these ticks.
        let (factor, ticks_per_second) = match self.tick_nanos {
            0 => return Err(Error::damaged("the file has 0 nanoseconds per unit of time: expected a positive number")),
            tick_nanos if NANOS_PER_SECOND.is_multiple_of(tick_nanos) => (1, NANOS_PER_SECOND / tick_nanos),
            tick_nanos => (tick_nanos, NANOS_PER_SECOND),
        };
        let out_of_range_error = || Error::damaged("the times of the video are out of range");
        for packet in &mut self.packets {
            let time = i128::from(packet.pts) * i128::from(factor);
            packet.pts = i64::try_from(time).map_err(|_| out_of_range_error())?;
        }
        Track::new(track.config, ticks_per_second, self.packets)
    }

    fn read_info(&mut self, info: &Element) -> Result<()> {
        let (mut offset, end) = (info.content_start, info.known_end()?);
        while offset < end {
            let element = self.window.read_element(offset, end)?;
            if element.id == TIMESTAMP_SCALE {
                self.tick_nanos = self.window.read_integer(&element)?;
            }
            offset = element.known_end()?;
        }
        Ok(())
    }

    /// Adds the packets of a cluster, and returns the end of the cluster. `segment_end` is the end
    /// of the segment.
    fn add_cluster(&mut self, cluster: &Element, segment_end: u64) -> Result<u64> {
        let (mut offset, cluster_end) = (cluster.content_start, cluster.content_end.unwrap_or(segment_end));
        let mut cluster_time = None;
        while offset < cluster_end {
            let element = self.window.read_element(offset, cluster_end)?;
            let ends_cluster = is_in_segment(element.id) || [EBML, SEGMENT].contains(&element.id);
            if cluster.content_end.is_none() && ends_cluster {
                return Ok(offset);
            }
            match element.id {
                CLUSTER_TIMESTAMP => cluster_time = Some(self.window.read_integer(&element)?),
                SIMPLE_BLOCK => {
                    if let Some(header) = self.parse_block(&element)? {
                        self.add_packet(&element, &header, cluster_time, header.flags & 0x80 != 0)?;
                    }
                }
                BLOCK_GROUP => self.add_group(&element, cluster_time)?,
                ENCRYPTED_BLOCK => return Err(Error::unsupported("the blocks of the file are encrypted")),
                _ => {}
            }
            offset = element.known_end()?;
        }
        Ok(cluster_end)
    }

    fn add_group(&mut self, group: &Element, time: Option<u64>) -> Result<()> {
        let (mut offset, end) = (group.content_start, group.known_end()?);
        let (mut block, mut is_key) = (None, true);
        while offset < end {
            let element = self.window.read_element(offset, end)?;
            match element.id {
                BLOCK => block = self.parse_block(&element)?.map(|header| (element, header)),
                REFERENCE_BLOCK => is_key = false,
                _ => {}
            }
            offset = element.known_end()?;
        }
        match block {
            Some((element, header)) => self.add_packet(&element, &header, time, is_key),
            None => Ok(()),
        }
    }

    fn parse_block(&mut self, block: &Element) -> Result<Option<BlockHeader>> {
        let Some(track) = &self.track else {
            return Err(Error::unsupported(
                "the file describes its tracks after its packets: rewrite it, for example with `ffmpeg -i in.mkv -c \
                 copy out.mp4`",
            ));
        };
        let end = block.known_end()?;
        let damaged_error = || Error::damaged(format!("the block at byte {} ends before its header", block.offset));
        let bytes = self.window.read(block.content_start, end, MAX_BLOCK_HEADER_LEN)?;
        let (_, number, number_len) = parse_variable_length_number(bytes, 8).ok_or_else(damaged_error)?;
        let &[high, low, flags] = bytes.get(number_len..number_len + 3).ok_or_else(damaged_error)? else {
            return Err(damaged_error());
        };
        if number != track.number {
            return Ok(None);
        }
        if flags & 0x06 != 0 {
            return Err(Error::unsupported(format!(
                "the block at byte {} contains several packets of the video (lacing): rewrite the file, for example \
                 with `ffmpeg -i in.mkv -c copy out.mp4`",
                block.offset
            )));
        }
        let packet_offset = block.content_start + number_len as u64 + 3;
        Ok(Some(BlockHeader { time: i16::from_be_bytes([high, low]), flags, packet_offset }))
    }

    fn add_packet(
        &mut self,
        block: &Element,
        header: &BlockHeader,
        cluster_time: Option<u64>,
        is_key: bool,
    ) -> Result<()> {
        let offset = block.offset;
        let time = cluster_time
            .ok_or_else(|| Error::damaged(format!("the cluster of the block at byte {offset} has no time")))?;
        let time = i64::try_from(time).ok().and_then(|time| time.checked_add(header.time.into()));
        let time =
            time.ok_or_else(|| Error::damaged(format!("the time of the block at byte {offset} is out of range")))?;
        let size = block.known_end()? - header.packet_offset;
        let size = u32::try_from(size).map_err(|_| {
            Error::unsupported(format!("the packet at byte {offset} has {size} bytes: expected fewer than 2^32"))
        })?;
        if self.packets.len() == self.packets.capacity() {
            let additional_capacity = self.packets.len().max(256);
            reserve(&mut self.packets, additional_capacity)?;
        }
        let is_shown = header.flags & 0x08 == 0;
        self.packets.push(Packet { offset: header.packet_offset, pts: time, size, is_key, is_shown });
        Ok(())
    }
}
