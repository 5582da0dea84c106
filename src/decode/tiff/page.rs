use super::directory::{Directory, TiffFile};

use crate::decode::Size;

/// Maximum number of directories that are read. In a damaged file, the directories may form a
/// cycle.
const MAX_PAGES: u32 = 100;

/// The meaning of the channels (tag PhotometricInterpretation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::decode) enum Photometric {
    Inverted,
    Gray,
    Rgb,
    Palette,
    Cmyk,
    YCbCr,
    /// Any other meaning, such as CIELab.
    Other(u64),
}

/// The type of the values (tag SampleFormat).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::decode) enum SampleFormat {
    Unsigned,
    Signed,
    Float,
}

/// The meaning of the first channel after the color channels (tag ExtraSamples).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::decode) enum ExtraSamples {
    None,
    /// Premultiplied alpha.
    Associated,
    /// Alpha that is not premultiplied.
    Unassociated,
    Unspecified,
}

#[derive(Debug)]
pub(in crate::decode) struct Tiff<'a> {
    pub(super) file: TiffFile<'a>,
    pub(super) directory: Directory<'a>,
    /// Size of the stored image, at least 1 by 1.
    pub(in crate::decode) size: Size,
    pub(in crate::decode) channels: usize,
    /// Bits per value.
    pub(in crate::decode) bits: u32,
    pub(in crate::decode) sample_format: SampleFormat,
    pub(in crate::decode) photometric: Photometric,
    pub(in crate::decode) extra_samples: ExtraSamples,
    /// EXIF orientation. Values other than 1 to 8 mean 1 (upright).
    pub(in crate::decode) orientation: u8,
    pub(super) compression: u64,
    pub(super) predictor: u64,
    /// Whether each channel has its own strips or tiles.
    pub(super) is_planar: bool,
    /// Whether the bits of each byte are in reverse order (tag FillOrder).
    pub(super) has_reversed_bits: bool,
    /// Size of a strip or tile.
    pub(super) chunk_size: Size,
    pub(super) is_tiled: bool,
    pub(super) offsets: Vec<u64>,
    pub(super) lengths: Vec<u64>,
}

impl Photometric {
    fn from_number(number: u64) -> Self {
        match number {
            0 => Photometric::Inverted,
            1 => Photometric::Gray,
            2 => Photometric::Rgb,
            3 => Photometric::Palette,
            5 => Photometric::Cmyk,
            6 => Photometric::YCbCr,
            other => Photometric::Other(other),
        }
    }
}

impl SampleFormat {
    fn from_number(number: u64) -> Result<Self, String> {
        match number {
            1 | 4 => Ok(SampleFormat::Unsigned),
            2 => Ok(SampleFormat::Signed),
            3 => Ok(SampleFormat::Float),
            other => Err(format!("the sample format {other} (tag 339) is unknown")),
        }
    }
}

impl ExtraSamples {
    fn from_number(number: Option<u64>, photometric: Photometric, channels: u16) -> Self {
        match (number, photometric, channels) {
            (Some(1), ..) => ExtraSamples::Associated,
            // Corel Draw writes 999 for unassociated alpha. Other programs omit the tag in RGB
            // images with alpha.
            (Some(2 | 999), ..) | (None, Photometric::Rgb, 4) => ExtraSamples::Unassociated,
            (Some(_), ..) => ExtraSamples::Unspecified,
            (None, ..) => ExtraSamples::None,
        }
    }
}

fn check_pages(directory: &Directory<'_>) -> Result<(), String> {
    let pages = count_pages(directory);
    if pages > 1 {
        let qualifier = if pages == MAX_PAGES { "at least " } else { "" };
        return Err(format!(
            "{qualifier}{pages} pages, but a sample has one: write each page to a file of its own (`tiffsplit`), or \
             stack them as channels of one page"
        ));
    }
    Ok(())
}

/// Returns the value of a tag that has a value for each of the `channels` channels. Different
/// values are an error, in which `what` names the values. A missing tag means 1.
fn common_value(directory: &Directory<'_>, (tag, channels): (u16, u16), what: &str) -> Result<u64, String> {
    let values = directory.numbers(tag, channels.into())?.unwrap_or_default();
    let first = values.first().copied().unwrap_or(1);
    match values.iter().all(|&value| value == first) {
        true => Ok(first),
        false => Err(format!("channels have different {what}: {values:?}")),
    }
}

fn read_numbers(directory: &Directory<'_>, tag: u16, chunk_count: u64) -> Result<Vec<u64>, String> {
    match directory.numbers(tag, chunk_count)? {
        Some(values) if values.len() as u64 == chunk_count => Ok(values),
        values => {
            Err(format!("tag {tag} has {} values for {chunk_count} strips or tiles", values.map_or(0, |v| v.len())))
        }
    }
}

impl<'a> Tiff<'a> {
    pub(in crate::decode) fn open(bytes: &'a [u8]) -> Result<Self, String> {
        let (file, directory) = TiffFile::open(bytes)?;
        check_pages(&directory)?;
        let number = |tag, default| directory.number(tag).map(|value| value.unwrap_or(default));
        let side = |tag| match directory.number(tag)?.map(u32::try_from) {
            Some(Ok(side)) if side > 0 => Ok(side),
            Some(_) => Err(format!("tag {tag} (a width or height) is 0 or too large")),
            None => Err(format!("tag {tag} (a width or height) is missing")),
        };
        let size = Size::new(side(256)?, side(257)?);
        let channels = match number(277, 1)? {
            0 => return Err("tag 277 (number of channels) is 0".into()),
            channels => u16::try_from(channels)
                .map_err(|_| format!("tag 277 (number of channels) is {channels}: expected at most 65535"))?,
        };
        let bits = common_value(&directory, (258, channels), "depths")?;
        if !(1..=64).contains(&bits) {
            return Err(format!("values of {bits} bits: expected 1 to 64"));
        }
        let sample_format = SampleFormat::from_number(common_value(&directory, (339, channels), "types")?)?;
        let photometric =
            Photometric::from_number(directory.number(262)?.ok_or("tag 262 (meaning of the channels) is missing")?);
        let extra = directory.numbers(338, channels.into())?.unwrap_or_default();
        let extra_samples = ExtraSamples::from_number(extra.first().copied(), photometric, channels);
        let is_planar = match number(284, 1)? {
            1 => false,
            2 => channels > 1,
            other => return Err(format!("unknown planar configuration {other}")),
        };
        let is_tiled = directory.number(322)?.is_some();
        let chunk_size = match is_tiled {
            true => Size::new(side(322)?, side(323)?),
            false => Size::new(size.width, number(278, u64::MAX)?.min(size.height.into()) as u32),
        };
        if chunk_size.height == 0 {
            return Err("the strips have 0 rows".into());
        }
        let planes = if is_planar { u64::from(channels) } else { 1 };
        let chunk_count =
            u64::from(size.width.div_ceil(chunk_size.width)) * u64::from(size.height.div_ceil(chunk_size.height));
        let read_chunk_numbers = |tag| read_numbers(&directory, tag, chunk_count.saturating_mul(planes));
        let [offsets, lengths] = if is_tiled { [324, 325] } else { [273, 279] };
        Ok(Tiff {
            size,
            channels: channels.into(),
            bits: bits as u32,
            sample_format,
            photometric,
            extra_samples,
            orientation: number(274, 1)?.try_into().unwrap_or(1),
            compression: number(259, 1)?,
            predictor: number(317, 1)?,
            is_planar,
            has_reversed_bits: number(266, 1)? == 2,
            chunk_size,
            is_tiled,
            offsets: read_chunk_numbers(offsets)?,
            lengths: read_chunk_numbers(lengths)?,
            file,
            directory,
        })
    }

    pub(in crate::decode) fn palette(&self) -> Result<Vec<[u8; 3]>, String> {
        let colors = 1usize << self.bits.min(16);
        let values = self.directory.numbers(320, 3 * colors as u64)?.unwrap_or_default();
        if values.len() != 3 * colors {
            return Err(format!("the palette has {} values: expected {}", values.len(), 3 * colors));
        }
        Ok((0..colors).map(|i| [i, i + colors, i + 2 * colors].map(|index| (values[index] >> 8) as u8)).collect())
    }

    pub(in crate::decode) fn description(&self) -> String {
        let color = match self.photometric {
            Photometric::Inverted | Photometric::Gray if self.channels > 1 => {
                format!("values in {} channels", self.channels)
            }
            Photometric::Inverted | Photometric::Gray => "gray values".into(),
            Photometric::Rgb if self.channels > 4 => format!("RGB values with {} more channels", self.channels - 3),
            Photometric::Rgb => "RGB values".into(),
            Photometric::Palette => "palette values".into(),
            Photometric::Cmyk => "CMYK values".into(),
            Photometric::YCbCr => "YCbCr values".into(),
            Photometric::Other(8..=10) => "CIELab values".into(),
            Photometric::Other(number) => format!("values with photometric interpretation {number}"),
        };
        let numbers = match self.sample_format {
            SampleFormat::Unsigned => "",
            SampleFormat::Signed => "signed ",
            SampleFormat::Float => "floating-point ",
        };
        format!("{}-bit {numbers}{color}", self.bits)
    }
}

/// Counts the pages. The first directory always counts. Later directories of thumbnails and masks
/// do not.
fn count_pages(first: &Directory<'_>) -> u32 {
    let is_page = |directory: &Directory<'_>| {
        let subfile_flags = directory.number(254).ok().flatten().unwrap_or(0);
        let subfile_type = directory.number(255).ok().flatten().unwrap_or(0);
        subfile_flags & 0b101 == 0 && subfile_type != 2
    };
    let pages = std::iter::successors(Some(*first), Directory::next).take(MAX_PAGES as usize);
    1 + pages.skip(1).filter(is_page).count() as u32
}
