//! Renumbers classes in fields and masks.

use std::io::Cursor;

use crate::decode::{Png, PngScratch};
use crate::error::{Error, Result, append};
use crate::source::Npy;
use crate::source::Sample;

/// If the source renumbers the label of `sample`, renumbers the classes in the field `name` in the
/// same way. `bytes[start..]` is the content of the field. Fields contain classes if they are masks
/// of class indices, or if their names end in `.class`, optionally followed by the extension of the
/// encoding. Negative numbers in a `.class` field mean that there is no class, and do not change.
/// Nor do pixels of a mask that have the value 255 or a value below the first class.
///
/// Fails if a class has no new number, if a `.class` field is not a little-endian NumPy array of
/// `int64`, or if a mask is not a PNG of at most 8 bits or a new class does not fit into 8 bits.
pub(super) fn renumber(sample: &Sample<'_>, name: &str, bytes: &mut Vec<u8>, start: usize) -> Result<()> {
    if !sample.is_relabeled() {
        return Ok(());
    }
    let stem =
        [".npy", ".json", ".txt", ".png"].iter().find_map(|extension| name.strip_suffix(extension)).unwrap_or(name);
    if let Some(first_class) = sample.first_class_of_mask(stem)? {
        let renumbered = renumber_mask(sample, first_class, &bytes[start..])
            .map_err(|e| Error::new(e.kind(), format!("field {name:?}: {}", e.cause())))?;
        bytes.truncate(start);
        append(bytes, &renumbered)?;
        return Ok(());
    }
    if !stem.ends_with(".class") {
        return Ok(());
    }
    let bytes = &mut bytes[start..];
    let start = match Npy::read(bytes) {
        Ok(npy) if (npy.kind, npy.item_size, npy.big_endian) == (b'i', 8, false) && name.ends_with(".npy") => {
            npy.data_offset
        }
        _ => {
            let cause = format!("field {name:?}: classes can be renumbered only in npy arrays of int64");
            return Err(Error::in_source(cause));
        }
    };
    for number in bytes[start..].as_chunks_mut::<8>().0 {
        let old_class = i64::from_le_bytes(*number);
        let new_class = if old_class < 0 { old_class } else { sample.class(old_class)? };
        *number = new_class.to_le_bytes();
    }
    Ok(())
}

/// Renumbers the classes of a mask. `first_class` is the pixel value of the first class. If the
/// mask has a palette, every class that has a new number keeps its color.
fn renumber_mask(sample: &Sample<'_>, first_class: i64, bytes: &[u8]) -> Result<Vec<u8>> {
    if !Png::matches(bytes) {
        return Err(Error::in_source("the classes of a mask can be renumbered only if it is a PNG"));
    }
    let map_value = |old_value: u8| {
        let new = sample.mask_value(old_value.into(), first_class)?;
        u8::try_from(new).map_err(|_| Error::in_source(format!("class {new} does not fit into an 8-bit mask")))
    };
    let mut scratch = PngScratch::default();
    let mut png = Png::open(bytes, &mut scratch)?;
    if png.is_wide() {
        return Err(Error::in_source("the classes of a mask can be renumbered only if it has at most 8 bits"));
    }
    let size = png.size();
    let (width, mut values) = (size.width as usize, vec![0; size.area() as usize]);
    let mut mapping = [None; 256];
    for pass in png.passes() {
        png.begin_pass(pass);
        for row in 0..pass.rows(size) {
            png.read_rows(1)?;
            let y = (pass.y + row * pass.row_step) as usize;
            let out = values[y * width..][..width].iter_mut().skip(pass.x as usize).step_by(pass.column_step as usize);
            for (out, &old_value) in out.zip(png.values()) {
                let cached_value = &mut mapping[usize::from(old_value)];
                *out = match *cached_value {
                    Some(new) => new,
                    None => *cached_value.insert(map_value(old_value)?),
                };
            }
        }
    }
    let png_error = |e: png::EncodingError| Error::in_source(format!("png: {e}"));
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, size.width, size.height);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(png::ColorType::Grayscale);
    if let Some(old_palette) = read_palette(bytes)? {
        let mut palette = old_palette.clone();
        palette.resize(3 * 256, 0);
        for (value, color) in (0..=u8::MAX).zip(old_palette.as_chunks::<3>().0) {
            if let Ok(new) = map_value(value) {
                palette[3 * usize::from(new)..][..3].copy_from_slice(color);
            }
        }
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_palette(palette);
    }
    let mut writer = encoder.write_header().map_err(png_error)?;
    writer.write_image_data(&values).map_err(png_error)?;
    writer.finish().map_err(png_error)?;
    Ok(out)
}

fn read_palette(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let png_error = |e| Error::in_source(format!("png: {e}"));
    let reader = png::Decoder::new(Cursor::new(bytes)).read_info().map_err(png_error)?;
    Ok(reader.info().palette.as_deref().map(<[u8]>::to_vec))
}
