//! [`Movie`] parses the `moov` box.

use super::atoms::{Atom, Atoms, Fields};
use super::entry::parse_sample_entry;
use super::fragments::PacketDefaults;
use super::tables::read_packets;
use crate::codec::CodecConfig;
use crate::error::{Error, Result, reserve};
use crate::track::{Packet, Track};

pub(super) struct Movie {
    pub(super) track_id: u32,
    config: CodecConfig,
    orientation: u8,
    movie_ticks_per_second: u32,
    track_ticks_per_second: u32,
    edit: Edit,
    /// Packets in decoding order. Times are in the track's ticks, before the edit list is applied.
    pub(super) packets: Vec<Packet>,
    /// Default values for fragments, with the identifier of their track.
    pub(super) defaults: Vec<(u32, PacketDefaults)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Edit {
    is_in_edit_list: bool,
    /// Time before the first frame, in ticks of the movie.
    delay: u64,
    /// Media time at which the edit starts, in ticks of the track.
    start: i64,
    /// Duration in ticks of the movie, or 0 if the edit does not end.
    duration: u64,
}

impl Movie {
    pub(super) fn parse(bytes: &[u8], file_len: u64) -> Result<Self> {
        let moov = Atom { kind: *b"moov", content: bytes };
        let mut track_count = 0;
        for atom in Atoms(bytes) {
            let trak = atom?;
            if trak.kind != *b"trak" {
                continue;
            }
            track_count += 1;
            let mdia = trak.required_child(b"mdia")?;
            let mut handler = mdia.required_child(b"hdlr")?.parse_full_box()?.0;
            handler.read_u32()?;
            if handler.read_kind()? == *b"vide" {
                return Movie::from_track(moov, trak, mdia, file_len);
            }
        }
        Err(Error::unsupported(format!("none of the {track_count} tracks of the file is a video")))
    }

    fn from_track(moov: Atom<'_>, trak: Atom<'_>, mdia: Atom<'_>, file_len: u64) -> Result<Self> {
        let movie_ticks_per_second = ticks_per_second(moov.required_child(b"mvhd")?)?;
        let track_ticks_per_second = ticks_per_second(mdia.required_child(b"mdhd")?)?;
        let (track_id, orientation) = parse_tkhd(trak.required_child(b"tkhd")?)?;
        let minf = mdia.required_child(b"minf")?;
        check_data_is_in_this_file(minf)?;
        let stbl = minf.required_child(b"stbl")?;
        let config = parse_sample_entry(stbl.required_child(b"stsd")?)?;
        let edit = match trak.child(b"edts")? {
            Some(edts) => edts.child(b"elst")?.map_or(Ok(Edit::default()), parse_edit_list)?,
            None => Edit::default(),
        };
        let mut defaults = Vec::new();
        if let Some(mvex) = moov.child(b"mvex")? {
            for atom in Atoms(mvex.content) {
                let atom = atom?;
                if atom.kind == *b"trex" {
                    reserve(&mut defaults, 1)?;
                    defaults.push(PacketDefaults::parse(atom)?);
                }
            }
            // An empty `mvex` box also marks a fragmented file.
            if defaults.is_empty() {
                defaults.push((track_id, PacketDefaults::default()));
            }
        }
        let packets = read_packets(stbl, file_len)?;
        Ok(Movie {
            track_id,
            config,
            orientation,
            movie_ticks_per_second,
            track_ticks_per_second,
            edit,
            packets,
            defaults,
        })
    }

    pub(super) fn is_fragmented(&self) -> bool {
        !self.defaults.is_empty()
    }

    pub(super) fn into_track(self) -> Result<Track> {
        let Movie { config, orientation, movie_ticks_per_second, track_ticks_per_second, edit, mut packets, .. } = self;
        let out_of_range_error = || Error::damaged("the times of the video are out of range");
        // The delay may be a fraction of the track's ticks.
        let delay = u128::from(edit.delay) * u128::from(track_ticks_per_second);
        let factor = u128::from(movie_ticks_per_second)
            / gcd(delay % u128::from(movie_ticks_per_second), u128::from(movie_ticks_per_second));
        let delay =
            i128::try_from(delay * factor / u128::from(movie_ticks_per_second)).map_err(|_| out_of_range_error())?;
        let end = (edit.duration > 0).then(|| i128::from(edit.duration) * i128::from(track_ticks_per_second));
        let start = i128::from(edit.start);
        for packet in &mut packets {
            let time = i128::from(packet.pts) - start;
            packet.is_shown = time >= 0 && end.is_none_or(|end| time * i128::from(movie_ticks_per_second) < end);
        }
        // According to the standard, the frame before the start of the edit is shown until the next
        // frame. This code does the same as FFmpeg instead, and starts with the next frame.
        let first_time = packets.iter().filter(|packet| packet.is_shown).map(|packet| i128::from(packet.pts)).min();
        let start = first_time.filter(|_| edit.is_in_edit_list).map_or(start, |first_time| first_time.max(start));
        for packet in &mut packets {
            let time = i128::from(packet.pts) - start;
            let time = time.checked_mul(factor as i128).and_then(|time| time.checked_add(delay));
            packet.pts = time.and_then(|time| i64::try_from(time).ok()).ok_or_else(out_of_range_error)?;
        }
        let output_ticks_per_second =
            u64::from(track_ticks_per_second).checked_mul(factor as u64).ok_or_else(out_of_range_error)?;
        Ok(Track::new(config, output_ticks_per_second, packets)?.with_orientation(orientation))
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if a == 0 { b } else { gcd(b % a, a) }
}

fn ticks_per_second(atom: Atom<'_>) -> Result<u32> {
    let (mut fields, version, _) = atom.parse_full_box()?;
    // Skip the creation and modification times.
    fields.read_bytes(if version == 1 { 16 } else { 8 })?;
    match fields.read_u32()? {
        0 => Err(Error::damaged("the video has 0 ticks per second: expected a positive number")),
        ticks => Ok(ticks),
    }
}

/// Returns the track's identifier and its EXIF orientation. The orientation is 1 if the track's
/// matrix does not correspond to one.
fn parse_tkhd(tkhd: Atom<'_>) -> Result<(u32, u8)> {
    let (mut fields, version, _) = tkhd.parse_full_box()?;
    fields.read_bytes(if version == 1 { 16 } else { 8 })?;
    let track_id = fields.read_u32()?;
    // Skip a reserved field, the duration, and fields for audio and layers.
    fields.read_bytes(if version == 1 { 12 } else { 8 } + 16)?;
    Ok((track_id, parse_orientation(fields).unwrap_or(1)))
}

/// Returns the EXIF orientation, or `None` if the matrix is not a rotation by a multiple of 90
/// degrees, mirrored or not.
fn parse_orientation(mut fields: Fields<'_>) -> Option<u8> {
    let mut number = || fields.read_i32().ok();
    let (a, b, _, c, d) = (number()?, number()?, number()?, number()?, number()?);
    match (a.signum(), b.signum(), c.signum(), d.signum()) {
        (1, 0, 0, 1) => Some(1),
        (-1, 0, 0, 1) => Some(2),
        (-1, 0, 0, -1) => Some(3),
        (1, 0, 0, -1) => Some(4),
        (0, 1, 1, 0) => Some(5),
        (0, 1, -1, 0) => Some(6),
        (0, -1, -1, 0) => Some(7),
        (0, -1, 1, 0) => Some(8),
        _ => None,
    }
}

fn check_data_is_in_this_file(minf: Atom<'_>) -> Result<()> {
    let Some(dinf) = minf.child(b"dinf")? else { return Ok(()) };
    let Some(dref) = dinf.child(b"dref")? else { return Ok(()) };
    let (mut fields, ..) = dref.parse_full_box()?;
    fields.read_u32()?;
    for atom in Atoms(fields.remaining) {
        let atom = atom?;
        // QuickTime's aliases use the same flag.
        if atom.parse_full_box()?.2 & 1 == 0 {
            return Err(Error::unsupported("the packets are in a different file, to which the box \"dref\" refers"));
        }
    }
    Ok(())
}

fn parse_edit_list(elst: Atom<'_>) -> Result<Edit> {
    let (mut fields, version, _) = elst.parse_full_box()?;
    let count = fields.read_u32()?;
    let is_wide = version == 1;
    let mut edit = Edit { is_in_edit_list: true, ..Edit::default() };
    let mut has_media = false;
    let entries = fields.read_entries(count, if is_wide { 20 } else { 12 })?;
    for entry in entries {
        let mut fields = Atom { kind: *b"elst", content: entry }.fields();
        let duration = fields.read_u32_or_u64(is_wide)?;
        let start = match is_wide {
            true => fields.read_u64()? as i64,
            false => fields.read_i32()?.into(),
        };
        let rate = fields.read_i32()?;
        if start == -1 && !has_media {
            edit.delay = edit.delay.checked_add(duration).ok_or_else(|| Error::damaged("the edit list is too long"))?;
        } else if has_media || start < 0 || rate != 0x0001_0000 {
            return Err(Error::unsupported(format!(
                "the edit list has {count} {}: expected at most one entry that plays media, at normal speed, and no \
                 gap after it; rewrite the file, for example with `ffmpeg -i in.mp4 out.mp4`",
                if count == 1 { "entry" } else { "entries" }
            )));
        } else {
            has_media = true;
            (edit.start, edit.duration) = (start, duration);
        }
    }
    Ok(edit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_list_with_a_changed_speed_is_refused_with_its_number_of_entries() {
        let double_speed = [0, 0, 0, 5, 0, 0, 0, 0, 0, 2, 0, 0];
        for (count, entries) in [(1, "1 entry"), (2, "2 entries")] {
            let content = [&[0, 0, 0, 0, 0, 0, 0, count][..], &double_speed.repeat(count.into())].concat();
            let e = parse_edit_list(Atom { kind: *b"elst", content: &content }).err().unwrap().to_string();
            assert!(
                e.contains(&format!("the edit list has {entries}: expected at most one entry that plays media")),
                "{e}"
            );
        }
    }
}
