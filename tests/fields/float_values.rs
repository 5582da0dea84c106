//! Tests images that are not 8-bit RGB. A dense map must deliver the stored values of a PNG or TIFF
//! and transform them like an array. An 8-bit image field must never silently reduce the bit depth
//! of a file. A one-channel image field must deliver the luma of the RGB image.

use std::io::Cursor;

use crate::reference_fields::{augments, npy};
use warpfeed::decode::{AnnotationFrame, Condition, Info, Size, check};
use warpfeed::field::{AnyFieldType, DenseMap, Image, Mask};
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::transform::{ColorJitter, ImageMut, Mix, RandomErasing};
use warpfeed::{Augment, Dtype, HostBatch, Layout, Loader, Normalize, Result};

const SIZE: Size = Size { width: 37, height: 29 };

fn png(image: impl Into<image::DynamicImage>) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    image.into().write_to(&mut out, image::ImageFormat::Png).unwrap();
    out.into_inner()
}

fn random(count: u32, max: u64) -> Vec<u16> {
    let mut rng = Rng::new(7, 0, u64::from(count));
    (0..SIZE.area() * u64::from(count)).map(|_| rng.below(max + 1) as u16).collect()
}

fn tiff(data: &[u8], channels: u16, stored: (u16, u16), planes: u16, orientation: u16) -> Vec<u8> {
    crate::tiff::tiff((SIZE, SIZE.height), data, channels, stored, planes, orientation)
}

fn bytes_of(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A field name, a file, the number of channels of the dense map (`None` for a map without a
/// channel axis), and the stored values.
type StoredFile = (&'static str, Vec<u8>, Option<usize>, Vec<f32>);

fn files() -> Vec<StoredFile> {
    let (w, h) = (SIZE.width, SIZE.height);
    let wide = |values: &[u16]| values.iter().map(|&value| f32::from(value)).collect::<Vec<_>>();
    let narrow = |values: &[u16]| values.iter().map(|&value| value as u8).collect::<Vec<_>>();
    let gray16 = random(1, 65_535);
    let (rgb16, rgba8, gray8, bands) = (random(3, 4095), random(4, 255), random(1, 255), random(6, 65_535));
    let signed: Vec<i16> = gray16.iter().map(|&value| value as i16).collect();
    let floats: Vec<f32> = random(3, 60_000).iter().map(|&value| f32::from(value) / 7.0 - 300.0).collect();
    let area = SIZE.area() as usize;
    let planar: Vec<u16> = (0..6).flat_map(|c| (0..area).map(move |i| (i, c))).map(|(i, c)| bands[i * 6 + c]).collect();
    vec![
        (
            "png",
            png(image::ImageBuffer::<image::Luma<u16>, _>::from_raw(w, h, gray16.clone()).unwrap()),
            None,
            wide(&gray16),
        ),
        (
            "png",
            png(image::ImageBuffer::<image::Luma<u16>, _>::from_raw(w, h, gray16.clone()).unwrap()),
            Some(1),
            wide(&gray16),
        ),
        (
            "png",
            png(image::ImageBuffer::<image::Rgb<u16>, _>::from_raw(w, h, rgb16.clone()).unwrap()),
            Some(3),
            wide(&rgb16),
        ),
        ("png", png(image::RgbaImage::from_raw(w, h, narrow(&rgba8)).unwrap()), Some(4), wide(&rgba8)),
        ("png", png(image::GrayImage::from_raw(w, h, narrow(&gray8)).unwrap()), None, wide(&gray8)),
        ("tif", tiff(&bytes_of(&gray16), 1, (16, 1), 1, 1), None, wide(&gray16)),
        (
            "tif",
            tiff(&bytes_of(&gray16), 1, (16, 2), 1, 1),
            None,
            signed.iter().map(|&value| f32::from(value)).collect(),
        ),
        ("tif", tiff(&floats_of(&floats[..area]), 1, (32, 3), 1, 1), None, floats[..area].to_vec()),
        ("tif", tiff(&floats_of(&floats), 3, (32, 3), 1, 1), Some(3), floats.clone()),
        ("tif", tiff(&bytes_of(&bands), 6, (16, 1), 1, 1), Some(6), wide(&bands)),
        ("tif", tiff(&bytes_of(&planar), 6, (16, 1), 6, 1), Some(6), wide(&bands)),
    ]
}

fn map(channels: Option<usize>) -> DenseMap {
    channels.map_or_else(DenseMap::new, DenseMap::with_channels)
}

fn array_of(channels: Option<usize>, values: &[f32]) -> Vec<u8> {
    let channels = channels.map_or(String::new(), |channels| format!(", {channels}"));
    npy("<f4", &format!("({}, {}{channels})", SIZE.height, SIZE.width), &floats_of(values))
}

fn sample(field: &str, file: &[u8], channels: Option<usize>, values: &[f32]) -> OwnedSample {
    OwnedSample::new("a").field(field, file.to_vec()).field("values.npy", array_of(channels, values))
}

fn first(loader: Loader) -> Result<HostBatch> {
    loader.drop_field("label").into_iter().next().expect("one batch")
}

fn open_error(loader: Loader) -> String {
    loader.host().expect_err("opening fails").to_string()
}

#[test]
fn a_dense_map_equals_its_values_for_every_crop_and_filter() {
    for (field, file, channels, values) in files() {
        assert!(matches!(check(&file), Condition::Sound), "{:?}", check(&file));
        assert_eq!(Info::read(&file).unwrap().size, SIZE);
        let source = Memory::new(vec![sample(field, &file, channels, &values); 6]);
        let rotated = Augment::train(16).rotate(40.0);
        for augment in augments().into_iter().chain([rotated, Augment::random_crop(20).padding(3)]) {
            let both = |map: DenseMap| [map.clone().image(), map.source_field("values.npy")];
            let [shown, array] = both(map(channels).fill(3.0));
            let [near, near_array] = both(map(channels).nearest());
            let loader = Loader::source(source.clone()).augment(augment.clone()).seed(3).batch_size(6);
            let fields = [("image", shown), ("array", array.clone()), ("near", near), ("near_array", near_array)];
            let loader = fields.into_iter().fold(loader, |loader, (name, map)| loader.field(name, map));
            let batch = first(loader).unwrap();
            let floats = |name: &str| batch.field(name).unwrap().bytes();
            assert!(floats("image") == floats("array"), "{field} of {channels:?}: {augment:?}");
            assert!(floats("near") == floats("near_array"), "{field} of {channels:?}: {augment:?}");
            let image = vec![OwnedSample::new("a").field("png", png(image::RgbImage::new(SIZE.width, SIZE.height))); 6];
            let image = image.into_iter().map(|plain| plain.field("values.npy", array_of(channels, &values)));
            let loader = Loader::source(Memory::new(image.collect())).augment(augment.clone()).seed(3).batch_size(6);
            let with_image = first(loader.field("array", array)).unwrap();
            assert!(with_image.field("array").unwrap().bytes() == floats("image"), "{augment:?}");
        }
    }
}

#[test]
fn the_whole_map_has_the_stored_values_in_either_layout() {
    for (field, file, channels, values) in files() {
        let source = Memory::new(vec![sample(field, &file, channels, &values)]);
        let loader = Loader::source(source).augment(Augment::pass_through(SIZE.width, SIZE.height));
        let (w, h) = (SIZE.width as usize, SIZE.height as usize);
        let batch = first(loader.clone().field("image", map(channels).image())).unwrap();
        let actual = batch.field("image").unwrap();
        assert_eq!(actual.shape(), [1, h, w].into_iter().chain(channels).collect::<Vec<_>>());
        assert!(actual.as_f32().unwrap() == values, "{field} of {channels:?}");
        let batch = first(loader.field("image", map(channels).image().layout(Layout::Nchw))).unwrap();
        let each = channels.unwrap_or(1);
        let planes: Vec<f32> = (0..each).flat_map(|c| values.iter().skip(c).step_by(each).copied()).collect();
        assert_eq!(
            batch.field("image").unwrap().shape(),
            [1].into_iter().chain(channels).chain([h, w]).collect::<Vec<_>>()
        );
        assert!(batch.field("image").unwrap().as_f32().unwrap() == planes);
    }
}

#[test]
fn a_dense_map_may_be_png_or_tiff_and_follows_exif() {
    let values = random(1, 65_535);
    let floats: Vec<f32> = values.iter().map(|&value| f32::from(value)).collect();
    let depth =
        png(image::ImageBuffer::<image::Luma<u16>, _>::from_raw(SIZE.width, SIZE.height, values.clone()).unwrap());
    let original = png(image::RgbImage::new(SIZE.width, SIZE.height));
    let augment = Augment::train(16);
    for (end, file) in [("png", depth), ("tif", tiff(&bytes_of(&values), 1, (16, 1), 1, 1))] {
        let array = sample("png", &original, None, &floats);
        let labeled = array.field(format!("depth.{end}"), file);
        let loader = Loader::source(Memory::new(vec![labeled])).augment(augment.clone());
        let batch = first(loader.field("depth", DenseMap::new()).field("values", DenseMap::new())).unwrap();
        assert!(batch.field("depth").unwrap().bytes() == batch.field("values").unwrap().bytes(), "{end}");
    }
    for orientation in 1..=8 {
        let file = tiff(&bytes_of(&values), 1, (16, 1), 1, orientation);
        let depth_sample = sample("tif", &file, None, &floats);
        let loader = Loader::source(Memory::new(vec![depth_sample])).augment(augment.clone());
        // The array has no orientation, so an option must say that it describes the stored image.
        let shown = first(loader.clone().field("image", DenseMap::new().image())).unwrap();
        let array =
            loader.annotations_follow(AnnotationFrame::Stored).convert_to_u8(true).field("values", DenseMap::new());
        let array = first(array).unwrap();
        assert!(
            shown.field("image").unwrap().bytes() == array.field("values").unwrap().bytes(),
            "orientation {orientation}"
        );
    }
}

#[test]
fn files_that_do_not_fit_a_map_fail_with_advice() {
    let (w, h) = (SIZE.width, SIZE.height);
    let cause = |field: &str, file: Vec<u8>, map: DenseMap| {
        let source = Memory::new(vec![OwnedSample::new("a").field(field, file)]);
        let loader = Loader::source(source).augment(Augment::resize(8, 8)).field("image", map.image());
        first(loader).unwrap_err().cause().to_owned()
    };
    let rgb = png(image::RgbImage::new(w, h));
    assert_eq!(
        cause("png", rgb.clone(), DenseMap::new()),
        "field \"png\": the file has 3 channels, but the map has 1: use DenseMap::with_channels(3)"
    );
    assert!(
        cause("png", rgb[..rgb.len() / 2].to_vec(), DenseMap::with_channels(3)).starts_with("field \"png\": png: ")
    );
    let mut jpeg = Vec::new();
    jpeg_encoder::Encoder::new(&mut jpeg, 90).encode(&[0; 8 * 8 * 3], 8, 8, jpeg_encoder::ColorType::Rgb).unwrap();
    assert_eq!(
        cause("jpg", jpeg, DenseMap::with_channels(3)),
        "field \"jpg\" is neither a PNG nor a TIFF, and a map cannot read other formats"
    );
    let mut damaged = tiff(&bytes_of(&random(1, 9)), 1, (16, 1), 1, 1);
    // Move the strip's start into the last bytes of the file.
    let strip = damaged.windows(8).position(|entry| entry == [17, 1, 4, 0, 1, 0, 0, 0]).unwrap() + 8;
    let late = damaged.len() as u32 - 100;
    damaged[strip..strip + 4].copy_from_slice(&late.to_le_bytes());
    assert!(cause("tif", damaged, DenseMap::new()).starts_with("field \"tif\": tiff: "));
}

#[test]
fn a_header_that_declares_terabytes_of_values_is_rejected() {
    let mut file = tiff(&[0; 64], 60_000, (16, 1), 1, 1);
    for (tag, side) in [(0, 16_000_u32), (1, 16_000), (22, 16_000)] {
        let entry = file.windows(8).position(|entry| entry == [tag, 1, 4, 0, 1, 0, 0, 0]).unwrap() + 8;
        file[entry..entry + 4].copy_from_slice(&side.to_le_bytes());
    }
    assert_eq!(Info::read(&file).unwrap().size, Size::new(16_000, 16_000));
    assert!(matches!(check(&file), Condition::Damaged(_)));
    let source = Memory::new(vec![OwnedSample::new("a").field("tif", file)]);
    let loader =
        Loader::source(source).augment(Augment::resize(8, 8)).field("image", DenseMap::with_channels(6).image());
    let e = first(loader).unwrap_err();
    assert_eq!(
        e.cause(),
        "field \"tif\": the file has 60000 channels, but the map has 6: use \
                           DenseMap::with_channels(60000)"
    );
}

#[test]
fn options_for_images_are_refused_for_stored_values() {
    let source = || Memory::new(vec![OwnedSample::new("a").field("png", png(image::RgbImage::new(8, 8)))]);
    let loader = |augment: Augment| {
        let map = AnyFieldType::from(DenseMap::with_channels(3).image());
        Loader::source(source()).drop_field("label").augment(augment).field("image", map)
    };
    let plain = Augment::train(8).rotate(9.0);
    assert!(loader(plain.clone()).host().is_ok());
    for (augment, step) in [
        (Augment::train(8).jitter(ColorJitter::new().brightness(0.2)), "jitter"),
        (Augment::train(8).erase(RandomErasing::new(1.0)), "erase"),
        (Augment::train(8).rand_augment(2, 9), "the policy"),
        (Augment::train(8).grayscale(0.1), "grayscale"),
    ] {
        let e = open_error(loader(augment.clone()));
        assert!(e.contains("field \"image\" contains the image as stored") && e.contains(step), "{e}");
        let with_image = loader(augment).field("image", Image::new()).field("map", DenseMap::with_channels(3).image());
        assert!(with_image.host().is_ok());
    }
    assert!(open_error(loader(plain.clone().mix(Mix::mixup(0.2)))).contains("cannot be mixed"));
    assert!(open_error(loader(plain.clone()).normalize(Normalize::IMAGENET)).contains("normalize changes images"));
    assert!(open_error(loader(plain.clone()).dtype(Dtype::F16)).contains("dtype changes images"));
    assert!(open_error(loader(plain.clone()).channels(1)).contains("channels changes images"));
    let transform = |_: &mut ImageMut<'_>, _: &mut Rng| Ok(());
    let e = open_error(loader(plain.clone()).transform(transform).transform_moves_pixels(false));
    assert!(e.contains("transform changes images"), "{e}");
    let mask = png(image::GrayImage::new(8, 8));
    let both = OwnedSample::new("a").field("png", png(image::RgbImage::new(8, 8))).field("mask.png", mask);
    let both =
        Loader::source(Memory::new(vec![both])).augment(plain).field("image", DenseMap::with_channels(3).image());
    assert_eq!(first(both.field("mask", Mask::new(Dtype::U8))).unwrap().field("mask").unwrap().shape(), [1, 8, 8]);
}

#[test]
fn a_deep_image_fails_unless_it_is_converted() {
    let (_, file, _, values) = files().remove(0);
    let source = Memory::new(vec![OwnedSample::new("a").field("png", file)]);
    let loader = Loader::source(source).augment(Augment::pass_through(SIZE.width, SIZE.height));
    let e = first(loader.clone()).unwrap_err();
    assert_eq!(
        e.cause(),
        "a 16-bit PNG is not converted to 8 bits by default: field::DenseMap reads its values unchanged, \
         convert_to_u8(true) keeps the upper 8 bits"
    );
    let upper: Vec<u8> = values.iter().flat_map(|&value| [(value as u16 >> 8) as u8; 3]).collect();
    assert!(first(loader.convert_to_u8(true)).unwrap().images().bytes() == upper);
    let (_, bands, ..) = files().remove(9);
    let loader = Loader::source(Memory::new(vec![OwnedSample::new("a").field("tif", bands)]));
    let e = first(loader.convert_to_u8(true)).unwrap_err();
    assert!(e.cause().starts_with("tiff of ") && e.cause().ends_with("; field::DenseMap reads its values"), "{e}");
}

#[test]
fn transparent_pixels_show_the_background_or_what_is_stored() {
    let rgba = image::RgbaImage::from_fn(8, 8, |x, _| image::Rgba([100, 50, 0, if x < 4 { 0 } else { 255 }]));
    let source = Memory::new(vec![OwnedSample::new("a").field("png", png(rgba))]);
    let loader = Loader::source(source).augment(Augment::pass_through(8, 8));
    assert!(first(loader.clone()).unwrap().images().bytes() == [100, 50, 0].repeat(64));
    let blended = first(loader.background([255, 255, 7])).unwrap();
    let row = [[255, 255, 7].repeat(4), [100, 50, 0].repeat(4)].concat();
    assert!(blended.images().bytes() == row.repeat(8));
}

fn luma(rgb: &[u8]) -> Vec<u8> {
    let gray =
        |p: &[u8; 3]| (u32::from(p[0]) * 19595 + u32::from(p[1]) * 38470 + u32::from(p[2]) * 7471 + 0x8000) >> 16;
    rgb.as_chunks().0.iter().map(|pixel| gray(pixel) as u8).collect()
}

#[test]
fn one_channel_is_the_brightness_of_the_finished_image() {
    let mini = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/mini");
    let loader = |augment: &Augment| Loader::new(&mini).augment(augment.clone()).batch_size(8).seed(4).workers(2);
    let colors = ColorJitter::new().brightness(0.4).hue(0.2);
    for augment in [
        Augment::eval(40, 32),
        Augment::train(32).jitter(colors).rotate(20.0),
        Augment::train(32).rand_augment(2, 9),
        Augment::random_resize(40, 20, 60),
    ] {
        let rgb = first(loader(&augment)).unwrap();
        let gray = first(loader(&augment).channels(1)).unwrap();
        let size = augment.output_size();
        let (w, h) = (size.width as usize, size.height as usize);
        assert_eq!(gray.images().shape(), [8, h, w, 1]);
        let expected = luma(rgb.images().bytes());
        assert!(gray.images().bytes() == expected, "{augment:?}");
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let normalize = Normalize { mean: [0.3, 0.9, 0.9], std: [0.5, 0.7, 0.7] };
            let floats = first(loader(&augment).channels(1).normalize(normalize).layout(layout)).unwrap();
            assert_eq!(floats.images().shape(), if layout == Layout::Nchw { [8, 1, h, w] } else { [8, h, w, 1] });
            let near = |(actual, &gray): (&f32, &u8)| (actual - (f32::from(gray) / 255.0 - 0.3) / 0.5).abs() < 1e-6;
            assert!(floats.images().as_f32().unwrap().iter().zip(&expected).all(near));
        }
    }
    let two = Loader::new(&mini).channels(2);
    assert!(open_error(two).contains("channels(2): expected 3 or 1"));
}

#[test]
fn one_channel_is_erased_and_mixed_like_the_first_of_three() {
    // In gray images, each RGB channel equals the luma.
    let (w, h) = (SIZE.width, SIZE.height);
    let sample = |seed: u8| {
        let gray = image::GrayImage::from_fn(w, h, |x, y| image::Luma([(x * 5 + y * 3) as u8 ^ seed]));
        OwnedSample::new("a").field("png", png(gray))
    };
    let source = Memory::new((0..6).map(sample).collect());
    let erase = RandomErasing::new(1.0);
    for augment in [
        Augment::train(24).erase(erase.clone().noise(1.0)),
        Augment::train(24).mix(Mix::mixup(0.4)),
        Augment::train(24).erase(erase.random_color(1.0)).mix(Mix::cutmix(1.0)),
        Augment::eval(28, 24),
    ] {
        for (dtype, bytes) in [(Dtype::U8, 1), (Dtype::F32, 4), (Dtype::F16, 2), (Dtype::Bf16, 2)] {
            let loader = Loader::source(source.clone()).augment(augment.clone()).batch_size(6).seed(9).dtype(dtype);
            let rgb = first(loader.clone()).unwrap();
            let gray = first(loader.channels(1)).unwrap();
            let of_three: Vec<u8> =
                rgb.images().bytes().chunks(3 * bytes).flat_map(|pixel| &pixel[..bytes]).copied().collect();
            assert!(gray.images().bytes() == of_three, "{augment:?} as {dtype:?}");
        }
    }
}
