//! The first page of a TIFF: its tags, checked.

use super::directory::{Directory, File};

use crate::decode::Size;

/// Pages that are counted at most. A damaged file may have directories in a circle.
const MOST_PAGES: u32 = 100;

/// Meaning of the channels (PhotometricInterpretation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::decode) enum Meaning {
    /// Gray, of which 0 is white.
    Inverted,
    Gray,
    Rgb,
    Palette,
    Cmyk,
    YCbCr,
    /// CIELab and others, by its number.
    Other(u64),
}

/// Type of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::decode) enum Numbers {
    Unsigned,
    Signed,
    Float,
}

/// The meaning of the first channel after the color channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::decode) enum Extra {
    None,
    /// Alpha that the colors have been multiplied by.
    Associated,
    /// Alpha.
    Unassociated,
    Unspecified,
}

/// The first page of a file, after its tags have been read.
#[derive(Debug)]
pub(in crate::decode) struct Tiff<'a> {
    pub(super) file: File<'a>,
    pub(super) directory: Directory<'a>,
    /// Size of the stored image, not 0.
    pub(in crate::decode) size: Size,
    /// Number of channels, at least 1.
    pub(in crate::decode) channels: usize,
    /// Bits of each value.
    pub(in crate::decode) bits: u32,
    pub(in crate::decode) numbers: Numbers,
    pub(in crate::decode) meaning: Meaning,
    pub(in crate::decode) extra: Extra,
    /// The EXIF orientation. Numbers other than 1 to 8 mean upright.
    pub(in crate::decode) orientation: u8,
    pub(super) compression: u64,
    pub(super) predictor: u64,
    /// Whether each channel has parts of its own.
    pub(super) planar: bool,
    /// Whether the bits of each byte are in reverse order.
    pub(super) reversed: bool,
    /// Size of a strip or tile.
    pub(super) part: Size,
    pub(super) tiled: bool,
    pub(super) offsets: Vec<u64>,
    pub(super) lengths: Vec<u64>,
}

impl Meaning {
    /// The meaning with this number.
    fn of(number: u64) -> Self {
        match number {
            0 => Meaning::Inverted,
            1 => Meaning::Gray,
            2 => Meaning::Rgb,
            3 => Meaning::Palette,
            5 => Meaning::Cmyk,
            6 => Meaning::YCbCr,
            other => Meaning::Other(other),
        }
    }
}

impl Numbers {
    /// The type with this number.
    fn of(number: u64) -> Result<Self, String> {
        match number {
            1 | 4 => Ok(Numbers::Unsigned),
            2 => Ok(Numbers::Signed),
            3 => Ok(Numbers::Float),
            other => Err(format!("values of the unknown type {other}")),
        }
    }
}

impl Extra {
    /// The meaning with this number, if the file has one.
    fn of(number: Option<u64>, meaning: Meaning, channels: u16) -> Self {
        match (number, meaning, channels) {
            (Some(1), ..) => Extra::Associated,
            // 999 is Corel Draw's. Others omit the tag.
            (Some(2 | 999), ..) | (None, Meaning::Rgb, 4) => Extra::Unassociated,
            (Some(_), ..) => Extra::Unspecified,
            (None, ..) => Extra::None,
        }
    }
}

/// Refuses a file of several pages.
fn check_pages(directory: &Directory<'_>) -> Result<(), String> {
    let pages = pages(directory);
    if pages > 1 {
        let most = if pages == MOST_PAGES { "at least " } else { "" };
        return Err(format!(
            "{most}{pages} pages, but a sample has one: write each page to a file of its own (`tiffsplit`), or \
             stack them as channels of one page or of an .npy"
        ));
    }
    Ok(())
}

/// The value of `tag` that counts for all channels; 1 by default.
fn same(directory: &Directory<'_>, (tag, channels): (u16, u16), what: &str) -> Result<u64, String> {
    let values = directory.numbers(tag, channels.into())?.unwrap_or_default();
    let first = values.first().copied().unwrap_or(1);
    match values.iter().all(|&value| value == first) {
        true => Ok(first),
        false => Err(format!("channels of different {what}: {values:?}")),
    }
}

/// The values of `tag` of all `parts`.
fn all(directory: &Directory<'_>, tag: u16, parts: u64) -> Result<Vec<u64>, String> {
    match directory.numbers(tag, parts)? {
        Some(values) if values.len() as u64 == parts => Ok(values),
        found => Err(format!("tag {tag} has {} values for {parts} strips or tiles", found.map_or(0, |v| v.len()))),
    }
}

impl<'a> Tiff<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// If the header is damaged, or the file has several pages.
    pub(in crate::decode) fn open(bytes: &'a [u8]) -> Result<Self, String> {
        let (file, directory) = File::open(bytes)?;
        check_pages(&directory)?;
        let number = |tag, default| directory.number(tag).map(|value| value.unwrap_or(default));
        let side = |tag| match directory.number(tag)?.map(u32::try_from) {
            Some(Ok(side)) if side > 0 => Ok(side),
            Some(_) => Err(format!("tag {tag}, a side of the image, is 0 or too large")),
            None => Err(format!("no tag {tag}, a side of the image")),
        };
        let size = Size::new(side(256)?, side(257)?);
        let channels = number(277, 1)? as u16;
        if channels == 0 {
            return Err("0 channels".into());
        }
        let bits = same(&directory, (258, channels), "depths")?;
        if !(1..=64).contains(&bits) {
            return Err(format!("values of {bits} bits"));
        }
        let numbers = Numbers::of(same(&directory, (339, channels), "types")?)?;
        let meaning = Meaning::of(directory.number(262)?.ok_or("no tag 262, the meaning of the channels")?);
        let extra = directory.numbers(338, channels.into())?.unwrap_or_default();
        let extra = Extra::of(extra.first().copied(), meaning, channels);
        let planar = match number(284, 1)? {
            1 => false,
            2 => channels > 1,
            other => return Err(format!("the unknown arrangement {other} of channels")),
        };
        let tiled = directory.number(322)?.is_some();
        let part = match tiled {
            true => Size::new(side(322)?, side(323)?),
            false => Size::new(size.width, number(278, u64::MAX)?.min(size.height.into()) as u32),
        };
        if part.height == 0 {
            return Err("strips of 0 rows".into());
        }
        let planes = if planar { u64::from(channels) } else { 1 };
        let parts = u64::from(size.width.div_ceil(part.width)) * u64::from(size.height.div_ceil(part.height));
        let all = |tag| all(&directory, tag, parts.saturating_mul(planes));
        let [offsets, lengths] = if tiled { [324, 325] } else { [273, 279] };
        Ok(Tiff {
            size,
            channels: channels.into(),
            bits: bits as u32,
            numbers,
            meaning,
            extra,
            orientation: number(274, 1)?.try_into().unwrap_or(1),
            compression: number(259, 1)?,
            predictor: number(317, 1)?,
            planar,
            reversed: number(266, 1)? == 2,
            part,
            tiled,
            offsets: all(offsets)?,
            lengths: all(lengths)?,
            file,
            directory,
        })
    }

    /// The colors of the palette.
    pub(in crate::decode) fn palette(&self) -> Result<Vec<[u8; 3]>, String> {
        let colors = 1usize << self.bits.min(16);
        let values = self.directory.numbers(320, 3 * colors as u64)?.unwrap_or_default();
        if values.len() != 3 * colors {
            return Err(format!("a palette of {} values, want {}", values.len(), 3 * colors));
        }
        Ok((0..colors).map(|i| [i, i + colors, i + 2 * colors].map(|at| (values[at] >> 8) as u8)).collect())
    }

    /// The kind of image, for messages: `gray of 16-bit values`.
    pub(in crate::decode) fn kind(&self) -> String {
        let color = match self.meaning {
            Meaning::Inverted | Meaning::Gray if self.channels > 1 => format!("{} channels", self.channels),
            Meaning::Inverted | Meaning::Gray => "gray".into(),
            Meaning::Rgb if self.channels > 4 => format!("RGB and {} more channels", self.channels - 3),
            Meaning::Rgb => "RGB".into(),
            Meaning::Palette => "a palette".into(),
            Meaning::Cmyk => "CMYK".into(),
            Meaning::YCbCr => "YCbCr".into(),
            Meaning::Other(8..=10) => "CIELab".into(),
            Meaning::Other(number) => format!("the photometric interpretation {number}"),
        };
        let numbers = match self.numbers {
            Numbers::Unsigned => "",
            Numbers::Signed => "signed ",
            Numbers::Float => "floating-point ",
        };
        format!("{color} of {}-bit {numbers}values", self.bits)
    }
}

/// Number of pages. Smaller versions of a page and masks do not count.
fn pages(first: &Directory<'_>) -> u32 {
    let is_page = |directory: &Directory<'_>| {
        let flags = directory.number(254).ok().flatten().unwrap_or(0);
        let old = directory.number(255).ok().flatten().unwrap_or(0);
        flags & 0b101 == 0 && old != 2
    };
    let all = std::iter::successors(Some(*first), Directory::next).take(MOST_PAGES as usize);
    // The first directory is the image that is read, whatever it is.
    1 + all.skip(1).filter(is_page).count() as u32
}
