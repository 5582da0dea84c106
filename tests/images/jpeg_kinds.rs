//! Tests unusual types of JPEG. Each must decode to Pillow's pixels or be rejected with an error
//! that names the type.
//!
//! `tests/fixtures/jpeg_kinds/make.py` generated the files and the expected pixels.

use std::fs;
use std::path::{Path, PathBuf};

use warpfeed::decode::{Codecs, Condition, Pixels, Rect, Size, check};
use warpfeed::pack::repack_jpeg;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{Augment, Loader, Result};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jpeg_kinds").join(name)
}

fn decode(bytes: &[u8], region: impl FnOnce(Size) -> Rect) -> Result<Pixels> {
    let (codecs, mut out) = (Codecs::new(), Pixels::new());
    let mut image = codecs.open(bytes)?;
    image.decode(region(image.size()), &mut out)?;
    Ok(out)
}

fn has_pillows_pixels(name: &str) {
    let bytes = fs::read(fixture(&format!("{name}.jpg"))).unwrap();
    let expected = image::open(fixture(&format!("{name}.png"))).unwrap().to_rgb8();
    let mut packed = Vec::new();
    repack_jpeg(&bytes, &mut packed).unwrap();
    for bytes in [&bytes, &packed] {
        assert!(matches!(check(bytes), Condition::Sound), "{name}: {:?}", check(bytes));
        let image = decode(bytes, Rect::full).unwrap();
        assert_eq!((image.size().width, image.size().height), expected.dimensions(), "{name}");
        assert!(image.data() == expected.as_raw(), "{name}: pixels differ");
        let part = decode(bytes, |_| Rect::new(17, 9, 30, 25)).unwrap();
        let (x, y) = part.origin();
        for (row, line) in part.data().chunks_exact(part.size().width as usize * 3).enumerate() {
            for (column, pixel) in line.chunks_exact(3).enumerate() {
                let expected = expected.get_pixel(x + column as u32, y + row as u32);
                assert_eq!(pixel, expected.0, "{name}: column {column}, row {row} of the crop");
            }
        }
    }
}

#[test]
fn cmyk_and_ycck_have_the_pixels_of_pillow() {
    for name in ["cmyk", "cmyk_progressive", "ycck"] {
        has_pillows_pixels(name);
    }
}

#[test]
fn four_components_without_adobe_marker_match_pillow() {
    for name in ["cmyk_without_adobe", "ycck_without_adobe"] {
        has_pillows_pixels(name);
    }
}

#[test]
fn odd_sampling_factors_have_the_pixels_of_pillow() {
    for name in ["sampling_3x1", "sampling_1x3", "sampling_3x2", "sampling_4x1", "sampling_chroma_larger"] {
        has_pillows_pixels(name);
    }
}

#[test]
fn an_unsupported_kind_of_jpeg_is_refused_by_name() {
    for (name, kind) in [
        ("arithmetic", "an arithmetic-coded JPEG"),
        ("arithmetic_progressive", "an arithmetic-coded JPEG"),
        ("lossless", "a lossless JPEG"),
        ("twelve_bits", "a 12-bit JPEG"),
        ("jpeg_ls", "a JPEG-LS file"),
    ] {
        let bytes = fs::read(fixture(&format!("{name}.jpg"))).unwrap();
        let cause = format!("{kind} is not supported");
        assert_eq!(Codecs::new().open(&bytes).unwrap_err().cause(), cause);
        assert!(matches!(check(&bytes), Condition::Damaged(e) if e.cause() == cause));
        assert_eq!(repack_jpeg(&bytes, &mut Vec::new()).unwrap_err().cause(), cause);
        let set = Memory::new(vec![OwnedSample::new("odd").field("jpg", bytes)]);
        let e = Loader::source(set).augment(Augment::resize(8, 8)).into_iter().find_map(Result::err).unwrap();
        assert_eq!(e.to_string(), format!("sample 0 (odd): decode: {cause}"));
    }
}
