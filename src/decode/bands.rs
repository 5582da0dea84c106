//! Decodes one large image on several threads.
//!
//! A batch waits for its slowest image, and a 24-megapixel photograph takes as long as a hundred
//! typical ones. The image is divided into bands, which idle threads of the pool decode. Without
//! idle threads, the calling thread decodes all bands.

use super::{Pixels, Rect};

/// Maximum height of an undivided region, in pixels. Bands with fewer rows would cost more time,
/// because upsampling requires decoding one or two rows of MCUs around each band a second time.
const MAX_BAND_ROWS: u32 = 512;
/// Each band after the first begins at a multiple of this number of rows, so that two bands rarely
/// share a row of MCUs.
const ROW_ALIGN: u32 = 32;

/// Decodes `region` of an image into `out`. `decode_band` decodes a band into its rows of `out`,
/// and returns whether it succeeded. The result is true if `decode_band` succeeded for every band.
/// Otherwise, the caller must decode the whole region in one pass, because damage in one band may
/// change the pixels of other bands.
pub(super) fn decode(region: Rect, out: &mut Pixels, decode_band: &(impl Fn(Rect, &mut [u8]) -> bool + Sync)) -> bool {
    #[cfg(test)]
    BANDED_REGIONS.lock().unwrap().push(region);
    let is_sound = decode_halves(region, out.reset(region.size()), decode_band);
    out.set_origin(region.x, region.y);
    is_sound
}

/// All regions that this process has passed to [`decode`].
#[cfg(test)]
pub(crate) static BANDED_REGIONS: std::sync::Mutex<Vec<Rect>> = std::sync::Mutex::new(Vec::new());

fn decode_halves(region: Rect, out: &mut [u8], decode_band: &(impl Fn(Rect, &mut [u8]) -> bool + Sync)) -> bool {
    if region.height <= MAX_BAND_ROWS {
        return decode_band(region, out);
    }
    let middle = (region.y + region.height / 2).next_multiple_of(ROW_ALIGN);
    let top = Rect { height: middle - region.y, ..region };
    let bottom = Rect { y: middle, height: region.height - top.height, ..region };
    let (top_rows, bottom_rows) = out.split_at_mut(top.size().area() as usize * 3);
    let (is_top_sound, is_bottom_sound) =
        rayon::join(|| decode_halves(top, top_rows, decode_band), || decode_halves(bottom, bottom_rows, decode_band));
    is_top_sound && is_bottom_sound
}

#[cfg(test)]
mod tests {
    use warpfeed_jpeg::{Decoder, Jpeg};

    use super::*;
    use crate::decode::{Size, standard};
    use crate::libjpeg::{Options, encode};
    use crate::sampler::Rng;

    fn photo(size: Size, options: &Options) -> Vec<u8> {
        let value = |x: u32, y: u32, c: u32| {
            let (edge, noise) =
                ((x / 11 + y / 17) % 2 * 60, (x * 31 + y * 57 + c * 7).wrapping_mul(2_654_435_761) >> 20);
            ((x * (c + 1) + y * 2) / 8 % 128 + edge + noise % 24) as u8
        };
        let pixels = |y| (0..size.width).flat_map(move |x| [0, 1, 2].map(|c| value(x, y, c)));
        let pixels: Vec<u8> = (0..size.height).flat_map(pixels).collect();
        encode(&pixels, size.width, size.height, 3, options)
    }

    fn oriented(jpeg: &[u8], exif: u8) -> Vec<u8> {
        let entry = [0x12, 0x01, 3, 0, 1, 0, 0, 0, exif, 0, 0, 0];
        let body = [&b"Exif\0\0II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat();
        [&jpeg[..2], &[0xff, 0xe1], &(body.len() as u16 + 2).to_be_bytes(), &body, &jpeg[2..]].concat()
    }

    fn banded(jpeg: &Jpeg<'_>, region: Rect, out: &mut Pixels) -> bool {
        decode(region, out, &|region, rows| Decoder::new().decode_rows(jpeg, region, rows))
    }

    fn decode_both_ways(bytes: &[u8], region: Rect) -> (bool, Pixels, Pixels) {
        let (jpeg, mut banded_pixels, mut whole_image) = (Jpeg::open(bytes).unwrap(), Pixels::new(), Pixels::new());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
        let is_sound = pool.install(|| banded(&jpeg, region, &mut banded_pixels));
        standard().open(bytes).unwrap().decode(region, &mut whole_image).unwrap();
        (is_sound, banded_pixels, whole_image)
    }

    #[test]
    fn bands_have_the_pixels_of_the_whole_image() {
        let size = Size::new(430, 1501);
        for (h, v) in [(1, 1), (2, 1), (2, 2), (1, 2), (4, 1), (1, 4)] {
            for restart in [1, 4, 7] {
                let jpeg = photo(size, &Options { restart, ..Options::new(85, h, v) });
                for exif in [1, 2, 3, 6, 8] {
                    let (jpeg, is_turned) = (oriented(&jpeg, exif), exif > 4);
                    let size = if is_turned { Size::new(size.height, size.width) } else { size };
                    let inner = Rect::new(33, 17, size.width - 50, size.height - 19);
                    for region in [Rect::full(size), inner] {
                        let (is_sound, banded_pixels, whole_image) = decode_both_ways(&jpeg, region);
                        let what = format!("{h}x{v}, {restart} MCUs, orientation {exif}, {region:?}");
                        assert!(
                            is_sound
                                && (banded_pixels.size(), banded_pixels.origin())
                                    == (region.size(), (region.x, region.y))
                        );
                        assert!(
                            banded_pixels.data() == whole_image.data()
                                && whole_image.origin() == banded_pixels.origin(),
                            "{what}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn damage_anywhere_in_the_region_is_detected() {
        let (size, mut rng) = (Size::new(300, 1400), Rng::new(4, 0, 0));
        let jpeg = photo(size, &Options { restart: 3, ..Options::new(85, 2, 2) });
        let start = jpeg.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap() + 14;
        let mut damaged_files = 0;
        for _ in 0..60 {
            let mut jpeg = jpeg.clone();
            let offset = start + rng.below((jpeg.len() - start - 2) as u64) as usize;
            if rng.chance(0.5) {
                jpeg.splice(offset..offset + 2, [0xff, 0xd0 + rng.below(8) as u8]);
            } else {
                jpeg[offset] = rng.below(256) as u8;
            }
            let (jpeg, region) = (&jpeg[..], Rect::new(40, 100, 200, 1200));
            let Ok(mut image) = standard().open(jpeg) else { continue };
            let mut whole_image = Pixels::new();
            let decoded = image.decode(region, &mut whole_image);
            let mut banded_pixels = Pixels::new();
            let is_sound = banded(&Jpeg::open(jpeg).unwrap(), region, &mut banded_pixels);
            damaged_files += u32::from(!is_sound);
            assert!(!is_sound || decoded.is_ok() && banded_pixels.data() == whole_image.data(), "byte {offset}");
            assert!(!is_sound || whole_image.damage().is_none(), "byte {offset}");
        }
        assert!(damaged_files > 20, "only {damaged_files} of 60 files are damaged");
    }
}
