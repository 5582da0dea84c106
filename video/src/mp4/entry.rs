//! Parses the sample entry (`stsd`) of a video track: codec, size, configuration record and color.

use super::atoms::{Atom, Atoms, Fields};
use crate::codec::{Codec, CodecConfig};
use crate::error::{Error, Result};

pub(super) fn parse_sample_entry(stsd: Atom<'_>) -> Result<CodecConfig> {
    let (mut fields, ..) = stsd.parse_full_box()?;
    let entry_count = fields.read_u32()?;
    let entry = Atoms(fields.remaining).next().transpose()?;
    let entry =
        entry.filter(|_| entry_count > 0).ok_or_else(|| Error::damaged("box \"stsd\" does not name a codec"))?;
    let mut fields = entry.fields();
    // Skip six reserved bytes, the index of the data reference, and 16 bytes for the version and
    // reserved fields.
    fields.read_bytes(24)?;
    let (width, height) = (fields.read_u16()?.into(), fields.read_u16()?.into());
    // Skip the resolution in pixels per inch, the number of frames per sample, the name of the
    // compressor, the bit depth, and reserved fields.
    fields.read_bytes(50)?;
    let mut config =
        CodecConfig { codec: Codec::from_mp4_code(entry.kind), width, height, record: Vec::new(), color: None };
    for atom in Atoms(fields.remaining) {
        let atom = atom?;
        match &atom.kind {
            b"av1C" | b"avcC" | b"hvcC" | b"vpcC" => {
                crate::error::reserve(&mut config.record, atom.content.len())?;
                config.record.clear();
                config.record.extend_from_slice(atom.content);
            }
            b"colr" => config.color = parse_color(atom.fields()).or(config.color),
            _ => {}
        }
    }
    Ok(config)
}

/// Returns the color description, or `None` for an ICC profile.
fn parse_color(mut fields: Fields<'_>) -> Option<(u16, u16, u16, bool)> {
    let kind = fields.read_kind().ok()?;
    let mut number = || fields.read_u16().ok();
    let (primaries, transfer, matrix) = (number()?, number()?, number()?);
    match &kind {
        b"nclx" => Some((primaries, transfer, matrix, fields.read_u8().ok()? & 0x80 != 0)),
        // QuickTime's variant does not store the range.
        b"nclc" => Some((primaries, transfer, matrix, false)),
        _ => None,
    }
}
