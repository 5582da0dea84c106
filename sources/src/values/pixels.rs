//! Converts pixel arrays to images.
//!
//! Images have the format [`NPY`](crate::format::NPY) and the shape (height, width, 3). Gray images
//! are expanded to three channels, and alpha is dropped, as for encoded images.

use crate::error::{Error, Result};
use crate::model::Numbers;
use crate::model::value::Element;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channels {
    /// The array is a gray image of shape (height, width).
    Gray,
    /// The array has the shape (height, width, channels).
    Last,
    /// The array has the shape (channels, height, width).
    First,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Colors {
    #[default]
    Rgb,
    Bgr,
}

/// Returns the position of the channel axis, or `None` if the array cannot be an image. Fails if
/// both the first and the last axis could be the channel axis.
pub(crate) fn channels(shape: &[usize]) -> Result<Option<Channels>> {
    let fits = |len: usize| matches!(len, 1 | 3 | 4);
    match *shape {
        [_, _] => Ok(Some(Channels::Gray)),
        [first, _, last] => match (fits(first), fits(last)) {
            (true, true) => Err(Error::in_source(format!(
                "an array of shape {shape:?} may have its channels in the first or in the last axis; store such images \
                 as PNG files"
            ))),
            (true, false) => Ok(Some(Channels::First)),
            (false, true) => Ok(Some(Channels::Last)),
            (false, false) => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Common names of image columns, in order of preference.
const IMAGE_NAMES: [&str; 11] =
    ["image", "images", "img", "imgs", "picture", "pictures", "photo", "x", "data", "pixels", "samples"];

#[cfg(feature = "arrays")]
pub(crate) fn is_image_name(name: &str) -> bool {
    IMAGE_NAMES.iter().any(|image_name| name.eq_ignore_ascii_case(image_name))
}

/// A column of arrays, which may be the image column if its elements are `u8`.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) column: usize,
    pub(crate) name: String,
    pub(crate) element: Element,
    /// Shape of the array in the first sample.
    pub(crate) shape: Vec<usize>,
}

impl Candidate {
    fn rank(&self) -> usize {
        IMAGE_NAMES.iter().position(|name| self.name.eq_ignore_ascii_case(name)).unwrap_or(IMAGE_NAMES.len())
    }

    fn is_image_name(&self) -> bool {
        self.rank() < IMAGE_NAMES.len()
    }

    /// Returns whether the arrays have a channel axis, even if its position is ambiguous.
    fn is_colored(&self) -> bool {
        self.shape.len() == 3 && !matches!(channels(&self.shape), Ok(None))
    }

    /// Returns whether the arrays may be gray images. A very narrow array is more likely to be a
    /// single row of pixels, of shape (width, channels).
    fn is_gray(&self) -> bool {
        matches!(self.shape[..], [_, width] if width > 4)
    }
}

/// Selects the image column among columns of arrays. Only columns of `u8` arrays with at least two
/// axes are suitable.
/// - If a column is `requested`, selects this column, or returns `None` if it is not suitable.
/// - Otherwise, selects a column of arrays with a channel axis, preferably one with a common name.
/// - If there is no such column, selects a column of arrays that may be [gray
///   images](Candidate::is_gray), if the column has a common name or is the only suitable column.
///
/// Fails if the position of the channel axis is ambiguous, if the requested column contains `u8`
/// arrays that are not images, or if a different column is at least as likely to be the image, such
/// as a column of floating-point pixels.
pub(crate) fn choose_image(arrays: &[Candidate], requested: Option<&str>) -> Result<Option<(usize, Channels)>> {
    let with_channels = |candidate: &Candidate| {
        let named = |e: Error| Error::config(format!("column {:?}: {}", candidate.name, e.cause()));
        Ok::<_, Error>(channels(&candidate.shape).map_err(named)?.map(|channels| (candidate.column, channels)))
    };
    let suitable: Vec<_> =
        arrays.iter().filter(|array| array.element == Element::U8 && array.shape.len() >= 2).collect();
    if let Some(requested) = requested {
        let Some(candidate) = suitable.iter().find(|candidate| candidate.name == requested) else { return Ok(None) };
        let cause = || {
            Error::config(format!(
                "{requested:?} does not contain images: its arrays have the shape {:?}; expected (height, width), or a \
                 first or last axis of 1, 3 or 4 channels",
                candidate.shape
            ))
        };
        return with_channels(candidate)?.ok_or_else(cause).map(Some);
    }
    let colored = suitable.iter().filter(|candidate| candidate.is_colored());
    let gray =
        suitable.iter().filter(|candidate| candidate.is_gray() && (candidate.is_image_name() || suitable.len() == 1));
    let by_rank = |candidate: &&&Candidate| candidate.rank();
    let Some(chosen) = colored.min_by_key(by_rank).or_else(|| gray.min_by_key(by_rank)) else { return Ok(None) };
    let rival = arrays.iter().find(|other| {
        let may_be_image = other.is_colored() || other.is_image_name() && other.shape.len() >= 2;
        other.column != chosen.column && may_be_image && other.rank() <= chosen.rank()
    });
    if let Some(rival) = rival {
        let shown = |array: &Candidate| {
            let element = format!("{:?}", array.element).to_lowercase();
            format!("{:?} (arrays of {element}, shape {:?})", array.name, array.shape)
        };
        return Err(Error::config(format!(
            "the images may be in {} or in {}; image arrays have the type u8: select the column with \
             TableOptions::image",
            shown(rival),
            shown(chosen)
        )));
    }
    with_channels(chosen)
}

/// Appends an image as an `.npy` file.
pub(crate) fn append(
    out: &mut Vec<u8>,
    pixels: &[u8],
    shape: &[usize],
    channels: Channels,
    colors: Colors,
) -> Result<()> {
    let sides = match (shape, channels) {
        (&[height, width], Channels::Gray) => Some((height, width, 1)),
        (&[height, width, depth @ (1 | 3 | 4)], Channels::Last) => Some((height, width, depth)),
        (&[depth @ (1 | 3 | 4), height, width], Channels::First) => Some((height, width, depth)),
        _ => None,
    };
    let Some((height, width, depth)) = sides else {
        let axes = match channels {
            Channels::Gray => "(height, width)",
            Channels::Last => "(height, width, channels)",
            Channels::First => "(channels, height, width)",
        };
        let cause = format!("the pixels have the shape {shape:?}; expected {axes} with 1, 3 or 4 channels");
        return Err(Error::in_source(cause));
    };
    let area = height.checked_mul(width);
    let Some(area) = area.filter(|area| area.checked_mul(depth) == Some(pixels.len())) else {
        return Err(Error::in_source(format!("{} bytes do not match the shape {shape:?} of the pixels", pixels.len())));
    };
    out.try_reserve(3 * area + 192)
        .map_err(|_| Error::in_source(format!("cannot allocate pixels of shape {shape:?}")))?;
    Numbers::npy_header::<u8>(&[height, width, 3], out);
    let start = out.len();
    match (channels, depth) {
        (Channels::Last, 3) => out.extend_from_slice(pixels),
        (Channels::Last, 4) => pixels.as_chunks::<4>().0.iter().for_each(|pixel| out.extend_from_slice(&pixel[..3])),
        (Channels::First, 3 | 4) => {
            let (red, rest) = pixels.split_at(area);
            let (green, blue) = rest.split_at(area);
            let colors = red.iter().zip(green).zip(blue);
            out.extend(colors.flat_map(|((&red, &green), &blue)| [red, green, blue]));
        }
        _ => out.extend(pixels.iter().flat_map(|&gray| [gray; 3])),
    }
    if colors == Colors::Bgr {
        out[start..].as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| pixel.swap(0, 2));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_determines_the_channel_axis() {
        assert_eq!(channels(&[28, 28]).unwrap(), Some(Channels::Gray));
        assert_eq!(channels(&[32, 30, 3]).unwrap(), Some(Channels::Last));
        assert_eq!(channels(&[1, 30, 32]).unwrap(), Some(Channels::First));
        assert_eq!((channels(&[5, 6, 7]).unwrap(), channels(&[9]).unwrap()), (None, None));
        let e = channels(&[3, 30, 3]).unwrap_err();
        assert!(e.cause().contains("[3, 30, 3] may have its channels"), "{e}");
    }

    #[test]
    fn an_ambiguous_image_column_is_refused() {
        let candidates = |list: &[(&str, Element, &[usize])]| -> Vec<Candidate> {
            let candidate = |(column, (name, element, shape)): (usize, &(&str, Element, &[usize]))| Candidate {
                column,
                name: (*name).to_owned(),
                element: *element,
                shape: shape.to_vec(),
            };
            list.iter().enumerate().map(candidate).collect()
        };
        let (bytes, floats) = (Element::U8, Element::F32);
        let chosen = |list: &[(&str, Element, &[usize])]| {
            choose_image(&candidates(list), None).unwrap().map(|(column, _)| list[column].0.to_owned())
        };
        for (list, expected) in [
            (&[("masks", bytes, &[8, 9][..]), ("Image", bytes, &[8, 9, 3])][..], Some("Image")),
            (&[("image", bytes, &[8, 9, 3]), ("x", floats, &[3, 8, 9])], Some("image")),
            (&[("a", bytes, &[8, 9, 3]), ("boxes", floats, &[5, 4]), ("scores", floats, &[5])], Some("a")),
            (&[("a", bytes, &[28, 28]), ("data", floats, &[16])], Some("a")),
            (&[("a", bytes, &[8, 9]), ("b", bytes, &[8, 9])], None),
            (&[("images", floats, &[3, 8, 9])], None),
        ] {
            assert_eq!(chosen(list).as_deref(), expected, "{list:?}");
        }
        for list in [
            [("images", floats, &[3, 8, 9][..]), ("masks", bytes, &[8, 9][..])],
            [("Images", floats, &[3, 8, 9]), ("Masks", bytes, &[1, 8, 9])],
            [("masks", bytes, &[8, 9, 1]), ("x", floats, &[8, 9])],
            [("left", bytes, &[8, 9, 3]), ("right", bytes, &[8, 9, 3])],
            [("depth", floats, &[8, 9, 1]), ("frame", bytes, &[8, 9, 3])],
        ] {
            let e = choose_image(&candidates(&list), None).unwrap_err();
            assert!(list.iter().all(|(name, ..)| e.cause().contains(&format!("{name:?}"))), "{e}");
            assert!(e.cause().contains("TableOptions::image"), "{e}");
            let named = |name| choose_image(&candidates(&list), Some(name)).unwrap().map(|(column, _)| list[column].0);
            let expected = list.iter().find(|(_, element, _)| *element == bytes).unwrap().0;
            assert_eq!((named(expected), named("other")), (Some(expected), None));
        }
    }

    #[test]
    fn pixels_do_not_depend_on_the_layout() {
        let (height, width) = (5, 7);
        let value = |y: usize, x: usize, c: usize| (y * 50 + x * 7 + c) as u8;
        for depth in [1, 3, 4] {
            for channels in [Channels::Last, Channels::First] {
                let first = channels == Channels::First;
                let shape = if first { [depth, height, width] } else { [height, width, depth] };
                let mut pixels = Vec::new();
                for a in 0..shape[0] {
                    for b in 0..shape[1] {
                        for c in 0..shape[2] {
                            pixels.push(if first { value(b, c, a) } else { value(a, b, c) });
                        }
                    }
                }
                let mut out = b"before".to_vec();
                append(&mut out, &pixels, &shape, channels, Colors::Rgb).unwrap();
                let mut swapped = Vec::new();
                append(&mut swapped, &pixels, &shape, channels, Colors::Bgr).unwrap();
                let restored = swapped[128..].as_chunks::<3>().0.iter().flat_map(|&[a, b, c]| [c, b, a]);
                assert!(restored.eq(out[6 + 128..].iter().copied()));
                let file = &out[6..];
                assert!(file.starts_with(b"\x93NUMPY") && file[..128].ends_with(b"\n"));
                for (index, pixel) in file[128..].as_chunks::<3>().0.iter().enumerate() {
                    let (y, x) = (index / width, index % width);
                    assert_eq!(*pixel, [0, 1, 2].map(|c| value(y, x, if depth == 1 { 0 } else { c })));
                }
                assert_eq!(file.len(), 128 + 3 * height * width);
                assert!(append(&mut out, &pixels[1..], &shape, channels, Colors::Rgb).is_err());
                assert!(append(&mut out, &pixels, &[9, 9, 9], channels, Colors::Rgb).is_err());
            }
        }
    }
}
