//! The tables in the `stbl` box: the size, position and time of each packet, and whether the packet
//! is a key frame.

use super::atoms::{Atom, Fields, u32_at};
use super::read::MAX_UNLISTED_PACKETS;
use crate::error::{Error, Result, reserve};
use crate::track::Packet;

/// Returns the packets in decoding order. Their times are in ticks of the track, before the edit
/// list is applied.
pub(super) fn read_packets(stbl: Atom<'_>, file_len: u64) -> Result<Vec<Packet>> {
    let mut packets = read_sizes(stbl, file_len)?;
    if packets.is_empty() {
        return Ok(packets);
    }
    set_positions(stbl, &mut packets)?;
    set_times(stbl, &mut packets)?;
    mark_keys(stbl, &mut packets)?;
    Ok(packets)
}

fn packet_of_size(size: u32) -> Packet {
    Packet { offset: 0, pts: 0, size, is_key: false, is_shown: true }
}

fn read_sizes(stbl: Atom<'_>, file_len: u64) -> Result<Vec<Packet>> {
    let mut packets = Vec::new();
    if let Some(stz2) = stbl.child(b"stz2")? {
        let (mut fields, ..) = stz2.parse_full_box()?;
        let bits = fields.read_u32()? & 0xff;
        let count = fields.read_u32()?;
        let bytes = match bits {
            4 => fields.read_entries(count.div_ceil(2), 1)?,
            8 => fields.read_entries(count, 1)?,
            16 => fields.read_entries(count, 2)?,
            _ => return Err(Error::damaged(format!("box \"stz2\" has sizes of {bits} bits: expected 4, 8 or 16"))),
        };
        reserve(&mut packets, count as usize)?;
        for entry in bytes {
            match *entry {
                [pair] if bits == 4 => packets.extend([pair >> 4, pair & 15].map(|size| packet_of_size(size.into()))),
                [size] => packets.push(packet_of_size(size.into())),
                [high, low] => packets.push(packet_of_size(u16::from_be_bytes([high, low]).into())),
                _ => {}
            }
        }
        packets.truncate(count as usize);
        return Ok(packets);
    }
    let (mut fields, ..) = stbl.required_child(b"stsz")?.parse_full_box()?;
    let (size, count) = (fields.read_u32()?, fields.read_u32()?);
    if size == 0 {
        let entries = fields.read_entries(count, 4)?;
        reserve(&mut packets, count as usize)?;
        packets.extend(entries.map(|entry| packet_of_size(u32_at(entry, 0))));
    } else {
        check_unlisted(count.into(), u64::from(count) * u64::from(size), file_len)?;
        reserve(&mut packets, count as usize)?;
        packets.resize(count as usize, packet_of_size(size));
    }
    Ok(packets)
}

/// Checks the number of packets whose sizes the file does not list one by one, and their total
/// size. Nothing else bounds their number.
pub(super) fn check_unlisted(count: u64, bytes: u64, file_len: u64) -> Result<()> {
    if count > MAX_UNLISTED_PACKETS || bytes > file_len {
        return Err(Error::damaged(format!(
            "the file of {file_len} bytes claims {count} packets of {bytes} bytes in total, whose sizes it does not \
             list: expected at most {MAX_UNLISTED_PACKETS} packets, and no more bytes than the file has"
        )));
    }
    Ok(())
}

fn set_positions(stbl: Atom<'_>, packets: &mut [Packet]) -> Result<()> {
    let (atom, offset_bytes) = match stbl.child(b"co64")? {
        Some(co64) => (co64, 8),
        None => (stbl.required_child(b"stco")?, 4),
    };
    let (mut fields, ..) = atom.parse_full_box()?;
    let count = fields.read_u32()?;
    let chunks = fields.read_entries(count, offset_bytes)?;
    let mut runs = table_entries(stbl.required_child(b"stsc")?, 12)?.peekable();
    let (mut packets_per_chunk, mut next_packet) = (0, 0);
    for (chunk, entry) in (1_u32..).zip(chunks) {
        while let Some(run) = runs.next_if(|run| u32_at(run, 0) <= chunk) {
            if u32_at(run, 8) != 1 {
                return Err(Error::unsupported(
                    "the codec changes within the video: rewrite the file, for example with `ffmpeg -i in.mp4 out.mp4`",
                ));
            }
            packets_per_chunk = u32_at(run, 4);
        }
        let mut offset = match offset_bytes {
            8 => u64::from(u32_at(entry, 0)) << 32 | u64::from(u32_at(entry, 4)),
            _ => u32_at(entry, 0).into(),
        };
        let end = packets.len().min(usize::saturating_add(next_packet, packets_per_chunk as usize));
        for packet in &mut packets[next_packet..end] {
            packet.offset = offset;
            offset = offset.checked_add(packet.size.into()).ok_or_else(|| {
                Error::damaged(format!("the packets of chunk {chunk} at byte {offset} extend past byte 2^64"))
            })?;
        }
        next_packet = end;
    }
    if next_packet < packets.len() {
        return Err(Error::damaged(format!(
            "the chunks contain {next_packet} packets, but the table of sizes lists {}",
            packets.len()
        )));
    }
    Ok(())
}

fn set_times(stbl: Atom<'_>, packets: &mut [Packet]) -> Result<()> {
    let (mut time, mut next_packet) = (0_i64, 0);
    for run in table_entries(stbl.required_child(b"stts")?, 8)? {
        let end = packets.len().min(usize::saturating_add(next_packet, u32_at(run, 0) as usize));
        for packet in &mut packets[next_packet..end] {
            packet.pts = time;
            time = time
                .checked_add(u32_at(run, 4).into())
                .ok_or_else(|| Error::damaged("the times of the video are out of range"))?;
        }
        next_packet = end;
    }
    if next_packet < packets.len() {
        return Err(Error::damaged(format!(
            "the table of times lists {next_packet} packets, but the table of sizes lists {}",
            packets.len()
        )));
    }
    let Some(ctts) = stbl.child(b"ctts")? else { return Ok(()) };
    next_packet = 0;
    for run in table_entries(ctts, 8)? {
        let end = packets.len().min(usize::saturating_add(next_packet, u32_at(run, 0) as usize));
        for packet in &mut packets[next_packet..end] {
            // In version 0, the number is unsigned, but some writers still store negative numbers.
            packet.pts = packet.pts.saturating_add((u32_at(run, 4) as i32).into());
        }
        next_packet = end;
    }
    Ok(())
}

/// Marks the key frames. Without a table, all packets are key frames.
fn mark_keys(stbl: Atom<'_>, packets: &mut [Packet]) -> Result<()> {
    let Some(stss) = stbl.child(b"stss")? else {
        packets.iter_mut().for_each(|packet| packet.is_key = true);
        return Ok(());
    };
    for entry in table_entries(stss, 4)? {
        let number = u32_at(entry, 0);
        let len = packets.len();
        let packet = (number as usize).checked_sub(1).and_then(|index| packets.get_mut(index));
        packet
            .ok_or_else(|| {
                Error::damaged(format!("the table of key frames lists packet {number}: expected 1 to {len}"))
            })?
            .is_key = true;
    }
    Ok(())
}

fn table_entries<'a>(atom: Atom<'a>, entry_bytes: usize) -> Result<std::slice::ChunksExact<'a, u8>> {
    let (mut fields, ..): (Fields<'a>, _, _) = atom.parse_full_box()?;
    let count = fields.read_u32()?;
    fields.read_entries(count, entry_bytes)
}
