//! [`Fragments`] parses the `moof` boxes.

use super::atoms::{Atom, Atoms};
use super::movie::Movie;
use super::tables::check_unlisted;
use crate::error::{Error, Result, reserve};
use crate::track::Packet;

/// Default values of the fields that a fragment may omit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PacketDefaults {
    duration: u32,
    size: u32,
    flags: u32,
}

impl PacketDefaults {
    /// Parses the default values of a track. Returns the track identifier as well.
    pub(super) fn parse(trex: Atom<'_>) -> Result<(u32, Self)> {
        let (mut fields, ..) = trex.parse_full_box()?;
        let track_id = fields.read_u32()?;
        let _description = fields.read_u32()?;
        Ok((
            track_id,
            PacketDefaults { duration: fields.read_u32()?, size: fields.read_u32()?, flags: fields.read_u32()? },
        ))
    }
}

#[derive(Debug, Default)]
pub(super) struct Fragments {
    /// Decoding time of the next packet, in ticks of the track, if it is known.
    next_time: Option<i64>,
    /// Number of the video's packets that no table lists. The first packet of each `trun` box does
    /// not count, because the file size bounds the number of boxes.
    unlisted_packets: u64,
    /// Total size of the unlisted packets. A packet without data counts as one byte.
    unlisted_bytes: u64,
}

const NOT_KEY: u32 = 1 << 16;

impl Fragments {
    /// Adds the packets of a `moof` box. `moof_offset` is the offset of the box in the file.
    pub(super) fn add(&mut self, movie: &mut Movie, bytes: &[u8], moof_offset: u64, file_len: u64) -> Result<()> {
        // The data starts here if the track's header does not specify an offset.
        let mut base_offset = moof_offset;
        for atom in Atoms(bytes) {
            let traf = atom?;
            if traf.kind == *b"traf" {
                base_offset = self.add_track(movie, traf, (moof_offset, base_offset), file_len)?;
            }
        }
        Ok(())
    }

    /// Adds the packets of a `traf` box, if it belongs to the video. Returns the end of its data.
    fn add_track(
        &mut self,
        movie: &mut Movie,
        traf: Atom<'_>,
        (moof_offset, base_offset): (u64, u64),
        file_len: u64,
    ) -> Result<u64> {
        let (mut fields, _, flags) = traf.required_child(b"tfhd")?.parse_full_box()?;
        let track_id = fields.read_u32()?;
        let track_defaults = movie.defaults.iter().find(|(id, _)| *id == track_id);
        let mut defaults = track_defaults.map(|(_, defaults)| *defaults).unwrap_or_default();
        let base_offset = match flags & 1 {
            0 if flags & 0x2_0000 != 0 => moof_offset,
            0 => base_offset,
            _ => fields.read_u64()?,
        };
        let mut read_or_default =
            |flag: u32, default: u32| if flags & flag == 0 { Ok(default) } else { fields.read_u32() };
        if read_or_default(2, 1)? != 1 && track_id == movie.track_id {
            return Err(Error::unsupported(
                "the codec changes within the video: rewrite the file, for example with `ffmpeg -i in.mp4 out.mp4`",
            ));
        }
        defaults.duration = read_or_default(8, defaults.duration)?;
        defaults.size = read_or_default(0x10, defaults.size)?;
        defaults.flags = read_or_default(0x20, defaults.flags)?;
        let is_video = track_id == movie.track_id;
        if is_video && let Some(tfdt) = traf.child(b"tfdt")? {
            let (mut fields, version, _) = tfdt.parse_full_box()?;
            self.next_time =
                Some(i64::try_from(fields.read_u32_or_u64(version == 1)?).map_err(|_| out_of_range_error())?);
        }
        let mut end = base_offset;
        for atom in Atoms(traf.content) {
            let trun = atom?;
            if trun.kind == *b"trun" {
                end = self.add_run(movie, trun, &defaults, (base_offset, end), is_video, file_len)?;
            }
        }
        Ok(end)
    }

    /// Adds the packets of a `trun` box, if it belongs to the video. Returns the end of its data.
    fn add_run(
        &mut self,
        movie: &mut Movie,
        trun: Atom<'_>,
        defaults: &PacketDefaults,
        (base_offset, previous_end): (u64, u64),
        is_video: bool,
        file_len: u64,
    ) -> Result<u64> {
        let (mut fields, _, flags) = trun.parse_full_box()?;
        let count = fields.read_u32()?;
        let mut offset = previous_end;
        if flags & 1 != 0 {
            offset = base_offset.checked_add_signed(fields.read_i32()?.into()).ok_or_else(out_of_range_error)?;
        }
        let first_flags = if flags & 4 == 0 { None } else { Some(fields.read_u32()?) };
        let has_field = |flag: u32| flags & flag != 0;
        let listed_fields = [0x100, 0x200, 0x400, 0x800].into_iter().filter(|&flag| has_field(flag)).count();
        if listed_fields > 0 {
            // Check that the listed numbers fit in the box before memory is allocated.
            let _ = fields.clone().read_entries(count, listed_fields * 4)?;
        } else if is_video {
            let unlisted = u64::from(count.saturating_sub(1));
            self.unlisted_packets += unlisted;
            self.unlisted_bytes = self.unlisted_bytes.saturating_add(unlisted * u64::from(defaults.size.max(1)));
            check_unlisted(self.unlisted_packets, self.unlisted_bytes, file_len)?;
        } else {
            let bytes = u64::from(count) * u64::from(defaults.size);
            return offset.checked_add(bytes).ok_or_else(out_of_range_error);
        }
        if is_video {
            // Reserving the exact size would copy all packets for each fragment.
            let packets = &mut movie.packets;
            if packets.capacity() - packets.len() < count as usize {
                reserve(packets, packets.len().max(count as usize))?;
            }
        }
        for index in 0..count {
            let mut read_or_default =
                |flag: u32, default: u32| if has_field(flag) { fields.read_u32() } else { Ok(default) };
            let duration = read_or_default(0x100, defaults.duration)?;
            let size = read_or_default(0x200, defaults.size)?;
            let packet_flags = read_or_default(0x400, first_flags.filter(|_| index == 0).unwrap_or(defaults.flags))?;
            let time_offset = read_or_default(0x800, 0)? as i32;
            if is_video {
                let time = self.next_time.unwrap_or(0);
                let presentation_time = time.checked_add(time_offset.into()).ok_or_else(out_of_range_error)?;
                self.next_time = Some(time.checked_add(duration.into()).ok_or_else(out_of_range_error)?);
                let is_key = packet_flags & NOT_KEY == 0;
                movie.packets.push(Packet { offset, pts: presentation_time, size, is_key, is_shown: true });
            }
            offset = offset.checked_add(size.into()).ok_or_else(out_of_range_error)?;
        }
        Ok(offset)
    }
}

fn out_of_range_error() -> Error {
    Error::damaged("the times or positions of a fragment are out of range")
}
