//! Compares cropping, resizing and random crops with torchvision and Pillow, and resizing with
//! `fast_image_resize`. `tests/fixtures/parity/make.py` generated the images of the first two.

use warpfeed::decode::{Pixels, Rect, Size};
use warpfeed::sampler::Rng;
use warpfeed::transform::{Augment, Border, Interpolation, Plan, Resizer, Window};

use fast_image_resize as fir;
use fir::images::{TypedCroppedImage, TypedImage, TypedImageRef};

const SOURCE: Size = Size { width: 233, height: 177 };

fn source() -> Pixels {
    let mut pixels = Pixels::new();
    let data = pixels.reset(SOURCE);
    let places = (0..SOURCE.height).flat_map(|y| (0..SOURCE.width).flat_map(move |x| (0..3).map(move |c| (x, y, c))));
    for (value, (x, y, c)) in data.iter_mut().zip(places) {
        let ramp = (x * (3 + c) + y * (2 + 2 * c) + 40 * c) % 512;
        let wave = if ramp < 256 { ramp } else { 511 - ramp };
        let hash = x.wrapping_mul(73_856_093) ^ y.wrapping_mul(19_349_663) ^ c.wrapping_mul(83_492_791);
        let edge = ((x / 24 + y / 18) & 1) * 40;
        *value = (wave * 3 / 4 + (hash >> 8 & 31) + edge).min(255) as u8;
    }
    pixels
}

fn fixture(name: &str) -> (Size, Vec<u8>) {
    let path = format!("{}/tests/fixtures/parity/{name}.png", env!("CARGO_MANIFEST_DIR"));
    let image = image::open(path).unwrap().into_rgb8();
    (Size::new(image.width(), image.height()), image.into_raw())
}

fn difference(a: &[u8], b: &[u8]) -> (f64, u8) {
    assert_eq!(a.len(), b.len());
    let sum: u64 = a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    (sum as f64 / a.len() as f64, a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0))
}

fn run(pixels: &Pixels, plan: &Plan) -> Vec<u8> {
    let mut out = vec![0; plan.output.area() as usize * 3];
    Resizer::new().run(pixels, plan, &mut out).unwrap();
    out
}

fn crop(rect: Rect, output: Size) -> Plan {
    let mut plan = Augment::resize(output.width, output.height).plan(SOURCE, &mut Rng::new(0, 0, 0)).unwrap();
    (plan.region, plan.window) = (rect, rect.into());
    plan
}

fn assert_near(name: &str, ours: &[u8], theirs: &[u8]) {
    let (mean, largest) = difference(ours, theirs);
    println!("{name}: mean difference {mean:.4} levels, largest {largest}");
    assert!(mean < 0.5 && largest <= 2, "{name}: mean difference {mean:.3} of 255, largest {largest}");
}

#[test]
fn a_resized_crop_is_near_that_of_torchvision_and_pillow() {
    let pixels = source();
    for (name, rect) in [
        ("shrink", Rect::new(0, 0, 233, 177)),
        ("mild", Rect::new(17, 9, 100, 91)),
        ("grow", Rect::new(60, 50, 31, 40)),
        ("mixed", Rect::new(5, 100, 210, 20)),
        ("same", Rect::new(33, 21, 40, 30)),
    ] {
        for library in ["tensor", "pillow"] {
            let name = format!("{name}.{library}");
            let (size, theirs) = fixture(&name);
            assert_near(&name, &run(&pixels, &crop(rect, size)), &theirs);
        }
    }
}

#[test]
fn evaluation_matches_torchvision_and_pillow() {
    let plan = Augment::eval(64, 56).plan(SOURCE, &mut Rng::new(0, 0, 0)).unwrap();
    let ours = run(&source(), &plan);
    for library in ["tensor", "pillow"] {
        assert_near(&format!("eval.{library}"), &ours, &fixture(&format!("eval.{library}")).1);
    }
}

/// Asserts that two resized images agree. This library and PyTorch round filter weights to 16 bits,
/// so the values equal torchvision's. Pillow rounds them to 22 bits, so a few values differ by one,
/// or by up to two with Lanczos.
fn assert_filtered(name: &str, ours: &[u8], theirs: &[u8]) {
    let (mean, largest) = difference(ours, theirs);
    println!("{name}: mean difference {mean:.4} levels, largest {largest}");
    let tolerance = if name.ends_with(".tensor") { 0 } else { 1 + u8::from(name.contains("lanczos")) };
    assert!(mean < 0.02 && largest <= tolerance, "{name}: mean difference {mean:.4} of 255, largest {largest}");
}

#[test]
fn each_filter_has_the_pixels_of_torchvision_and_pillow() {
    let pixels = source();
    for (crop_name, rect) in [
        ("shrink", Rect::new(0, 0, 233, 177)),
        ("mild", Rect::new(17, 9, 100, 91)),
        ("grow", Rect::new(60, 50, 31, 40)),
    ] {
        for (filter, name) in [
            (Interpolation::BilinearExact, "pillow"),
            (Interpolation::BilinearExact, "tensor"),
            (Interpolation::Bicubic, "bicubic.pillow"),
            (Interpolation::Bicubic, "bicubic.tensor"),
            (Interpolation::Lanczos, "lanczos.pillow"),
            (Interpolation::Nearest, "nearest.tensor"),
        ] {
            let name = format!("{crop_name}.{name}");
            let (size, theirs) = fixture(&name);
            let mut plan = crop(rect, size);
            (plan.crop, plan.interpolation) = (rect, filter);
            assert_filtered(&name, &run(&pixels, &plan), &theirs);
        }
    }
}

/// Without antialiasing, `BilinearExact` and `Bicubic` round weights like the vectorized code of
/// PyTorch.
#[test]
fn without_antialiasing_pixels_equal_torchvision() {
    let pixels = source();
    for (name, rect) in [
        ("shrink", Some(Rect::new(0, 0, 233, 177))),
        ("mild", Some(Rect::new(17, 9, 100, 91))),
        ("grow", Some(Rect::new(60, 50, 31, 40))),
        ("eval", None),
    ] {
        for (filter, name_of_data, tolerance) in [
            (Interpolation::Bilinear, "bilinear", 1),
            (Interpolation::BilinearExact, "bilinear", 0),
            (Interpolation::Bicubic, "bicubic", 0),
        ] {
            let name = format!("{name}.{name_of_data}.aliased");
            let (size, theirs) = fixture(&name);
            let ours = if let Some(rect) = rect {
                let mut plan = crop(rect, size);
                (plan.interpolation, plan.antialias) = (filter, false);
                run(&pixels, &plan)
            } else {
                let augment = Augment::eval(64, 56).interpolation(filter).antialias(false);
                let plan = augment.plan(SOURCE, &mut Rng::new(0, 0, 0)).unwrap();
                let ours = run(&pixels, &plan);
                assert!(
                    plan.region != Rect::full(SOURCE) && run(&cropped(&pixels, plan.region), &plan) == ours,
                    "{name}"
                );
                ours
            };
            let (mean, largest) = difference(&ours, &theirs);
            println!("{name} by {filter:?}: mean difference {mean:.4} levels, largest {largest}");
            assert!(largest <= tolerance, "{name} by {filter:?}: mean difference {mean:.4} of 255, largest {largest}");
        }
    }
}

fn cropped(image: &Pixels, rect: Rect) -> Pixels {
    let (mut part, Rect { x, y, width, .. }) = (Pixels::new(), rect);
    for (row, out) in part.reset(rect.size()).chunks_exact_mut(width as usize * 3).enumerate() {
        let offset = ((y as usize + row) * image.size().width as usize + x as usize) * 3;
        out.copy_from_slice(&image.data()[offset..offset + out.len()]);
    }
    part.set_origin(x, y);
    part
}

#[test]
fn exact_bilinear_evaluation_has_the_bits_of_torchvision() {
    let augment = Augment::eval(64, 56).interpolation(Interpolation::BilinearExact);
    let ours = run(&source(), &augment.plan(SOURCE, &mut Rng::new(0, 0, 0)).unwrap());
    for library in ["tensor", "pillow"] {
        let name = format!("eval.{library}");
        assert_filtered(&name, &ours, &fixture(&name).1);
    }
}

#[test]
fn bicubic_evaluation_equals_that_of_torchvision_and_pillow() {
    let augment = Augment::eval(64, 56).interpolation(Interpolation::Bicubic);
    let plan = augment.plan(SOURCE, &mut Rng::new(0, 0, 0)).unwrap();
    assert!(plan.region.width < SOURCE.width && plan.region.height <= SOURCE.height);
    let image = source();
    let ours = run(&cropped(&image, plan.region), &plan);
    assert!(ours == run(&image, &plan));
    for library in ["tensor", "pillow"] {
        let name = format!("eval.bicubic.{library}");
        assert_filtered(&name, &ours, &fixture(&name).1);
    }
}

/// The reference resizes the whole image and crops the result.
#[test]
fn evaluation_is_the_center_of_the_resize_for_any_size() {
    let (mut rng, mut resizer, mut drawn) = (Rng::new(2, 7, 1), Resizer::new(), [0; 3]);
    for case in 0..400 {
        let crop = rng.below(40) as u32 + 1;
        let shorter = crop + rng.below(20) as u32;
        let side = if case % 3 == 0 { shorter } else { rng.below(90) as u32 + 1 };
        drawn[(side.cmp(&shorter) as i8 + 1) as usize] += 1;
        let longer = side + rng.below(2) as u32 * rng.below(50) as u32;
        let size = if rng.chance(0.5) { Size::new(side, longer) } else { Size::new(longer, side) };
        let mut pixels = Pixels::new();
        pixels.reset(size).iter_mut().for_each(|byte| *byte = [rng.next_u64() as u8, 0, 255][rng.below(3) as usize]);
        let filter =
            [Interpolation::BilinearExact, Interpolation::Bicubic, Interpolation::Lanczos, Interpolation::Bilinear]
                [case / 3 % 4];
        let antialias = case % 5 > 0;
        let with = |augment: Augment| augment.interpolation(filter).antialias(antialias);
        let plan = with(Augment::eval(shorter, crop)).plan(size, &mut rng).unwrap();
        let mut ours = vec![0; plan.output.area() as usize * 3];
        resizer.run(&cropped(&pixels, plan.region), &plan, &mut ours).unwrap();
        let (resized, (x, y)) = (plan.resized, plan.offset);
        let full_plan = with(Augment::resize(resized.width, resized.height)).plan(size, &mut rng).unwrap();
        let whole_image = run(&pixels, &full_plan);
        let row = |row: u32| ((y + row) * resized.width + x) as usize * 3;
        let theirs: Vec<u8> =
            (0..crop).flat_map(|y| whole_image[row(y)..][..crop as usize * 3].iter().copied()).collect();
        let (mean, largest) = difference(&ours, &theirs);
        let tolerance = if filter == Interpolation::Bilinear { 2 } else { 0 };
        assert!(
            largest <= tolerance,
            "{size:?} to {shorter} and {crop} by {filter:?}, {antialias}: {largest}, mean {mean}"
        );
    }
    assert!(drawn.iter().all(|&count| count > 60), "{drawn:?}");
}

#[test]
fn a_random_crop_is_a_part_of_torchvisions_padded_image() {
    let (left, top, size) = (33, 21, Size::new(40, 30));
    let image = source();
    let mut pixels = Pixels::new();
    for (row, out) in pixels.reset(size).chunks_exact_mut(size.width as usize * 3).enumerate() {
        let offset = ((top + row) * SOURCE.width as usize + left) * 3;
        out.copy_from_slice(&image.data()[offset..offset + out.len()]);
    }
    for (name, border) in [
        ("constant", Border::Constant),
        ("edge", Border::Edge),
        ("reflect", Border::Reflect),
        ("symmetric", Border::Symmetric),
    ] {
        let (padded_size, padded) = fixture(&format!("border.{name}"));
        assert_eq!(padded_size, Size::new(58, 48));
        let augment =
            Augment::random_crop(32).with_output_size(32, 28).padding(9).padding_mode(border).fill([7, 80, 200]);
        let augment = augment.flip(0.5).vertical_flip(0.5);
        let mut partly = 0;
        for sample in 0..120 {
            let plan = augment.plan(size, &mut Rng::new(5, 0, sample)).unwrap();
            let ours = run(&pixels, &plan);
            partly += u32::from(plan.target.size() != plan.output);
            let (from_x, from_y) = (plan.crop.x + 9 - plan.target.x, plan.crop.y + 9 - plan.target.y);
            for (place, ours) in ours.as_chunks::<3>().0.iter().enumerate() {
                let (x, y) = (place as u32 % 32, place as u32 / 32);
                let x = from_x + if plan.flip { 31 - x } else { x };
                let y = from_y + if plan.vertical_flip { 27 - y } else { y };
                let theirs = &padded[(y * 58 + x) as usize * 3..][..3];
                assert_eq!(ours, theirs, "{name}, sample {sample} at ({x}, {y})");
            }
        }
        assert!(partly > 60, "{partly}");
    }
}

#[test]
fn flips_only_mirror_the_image() {
    let pixels = source();
    let mut plan = crop(Rect::new(17, 9, 100, 91), Size::new(30, 21));
    let plain = run(&pixels, &plan);
    (plan.flip, plan.vertical_flip) = (true, true);
    let turned = run(&pixels, &plan);
    let mut expected = plain.as_chunks::<3>().0.to_vec();
    expected.reverse();
    assert_eq!(turned.as_chunks::<3>().0, expected);
}

#[test]
fn resizing_a_decoded_part_gives_the_pixels_of_the_whole() {
    let image = source();
    let plan = Augment::eval(64, 56).plan(SOURCE, &mut Rng::new(0, 0, 0)).unwrap();
    assert!(plan.region != Rect::full(SOURCE));
    assert_eq!(run(&cropped(&image, plan.region), &plan), run(&image, &plan));
}

fn with_fir(pixels: &Pixels, plan: &Plan) -> Vec<u8> {
    let (size, region, window) = (pixels.size(), plan.region, plan.window);
    let source = TypedImageRef::<fir::pixels::U8x3>::from_buffer(size.width, size.height, pixels.data()).unwrap();
    let source = TypedCroppedImage::from_ref(&source, region.x, region.y, region.width, region.height).unwrap();
    let mut bytes = vec![0; plan.output.area() as usize * 3];
    let mut out =
        TypedImage::<fir::pixels::U8x3>::from_buffer(plan.output.width, plan.output.height, &mut bytes).unwrap();
    let (x, y) = (window.x - f64::from(region.x), window.y - f64::from(region.y));
    let (width, height) =
        (window.width.min(f64::from(region.width) - x), window.height.min(f64::from(region.height) - y));
    let options = fir::ResizeOptions::new()
        .crop(x, y, width, height)
        .resize_alg(fir::ResizeAlg::Convolution(fir::FilterType::Bilinear));
    fir::Resizer::new().resize_typed(&source, &mut out, &options).unwrap();
    let mut rows: Vec<_> =
        bytes.chunks_exact(plan.output.width as usize * 3).map(|row| row.as_chunks::<3>().0.to_vec()).collect();
    if plan.flip {
        rows.iter_mut().for_each(|row| row.reverse());
    }
    if plan.vertical_flip {
        rows.reverse();
    }
    rows.concat().concat()
}

#[test]
fn the_resize_equals_fast_image_resize_bit_for_bit() {
    let mut rng = Rng::new(9, 9, 9);
    let mut resizer = Resizer::new();
    for case in 0..2000 {
        let max_side = [6, 40, 130, 400][case % 4];
        let mut side = || rng.below(max_side) as u32 + 1;
        let (size, output) = (Size::new(side(), side()), Size::new(side(), side()));
        let mut pixels = Pixels::new();
        // Constant runs next to noise test clamping at black and white.
        let mut value = 0;
        for byte in pixels.reset(size) {
            let bits = rng.next_u64();
            value = [value, bits as u8, 0, 255][(bits >> 8 & 3) as usize];
            *byte = value;
        }
        let (w, h) = (rng.below(size.width.into()) as u32 + 1, rng.below(size.height.into()) as u32 + 1);
        let (x, y) =
            (rng.below(u64::from(size.width - w) + 1) as u32, rng.below(u64::from(size.height - h) + 1) as u32);
        let mut plan = crop(Rect::new(x, y, w, h), output);
        if case % 2 == 1 {
            let mut part = |start: u32, length: u32| {
                let from = rng.unit() * f64::from(length) * 0.7;
                (f64::from(start) + from, (f64::from(length) - from) * rng.range(0.2, 1.0))
            };
            let ((x, width), (y, height)) = (part(x, w), part(y, h));
            plan.window = Window { x, y, width, height };
        }
        (plan.flip, plan.vertical_flip) = (rng.chance(0.5), rng.chance(0.3));
        let mut ours = vec![0; output.area() as usize * 3];
        resizer.run(&pixels, &plan, &mut ours).unwrap();
        let theirs = with_fir(&pixels, &plan);
        let differing = ours.iter().zip(&theirs).position(|(a, b)| a != b);
        assert_eq!(differing, None, "byte {differing:?} of {size:?} by {plan:?}");
    }
}

#[test]
fn random_crops_have_the_moments_of_torchvision() {
    // Means and standard deviations of the area fraction, of ln(ratio), and of the center's
    // position, over 200,000 boxes from torchvision's RandomResizedCrop.get_params for images of
    // these sizes (`boxes.py`).
    for (width, height, expected) in TORCHVISION_BOXES {
        let size = Size::new(width, height);
        let augment = Augment::train(224);
        let n = 50_000;
        let mut columns = [const { Vec::new() }; 4];
        for sample in 0..n {
            let r = augment.plan(size, &mut Rng::new(3, 0, sample)).unwrap().region;
            columns[0].push(r.size().area() as f64 / size.area() as f64);
            columns[1].push((f64::from(r.width) / f64::from(r.height)).ln());
            columns[2].push((f64::from(r.x) + f64::from(r.width) / 2.0) / f64::from(width));
            columns[3].push((f64::from(r.y) + f64::from(r.height) / 2.0) / f64::from(height));
        }
        for (column, (mean, deviation)) in columns.iter().zip(expected) {
            let m = column.iter().sum::<f64>() / n as f64;
            let d = (column.iter().map(|v| (v - m).powi(2)).sum::<f64>() / n as f64).sqrt();
            // Allow five times the standard error for 50,000 boxes.
            assert!((m - mean).abs() < 5.0 * deviation / (n as f64).sqrt(), "{size:?}: mean {m}, not {mean}");
            assert!((d / deviation - 1.0).abs() < 0.02, "{size:?}: deviation {d}, not {deviation}");
        }
    }
}

type Moments = [(f64, f64); 4];
const TORCHVISION_BOXES: [(u32, u32, Moments); 3] = [
    (500, 375, [(0.43388, 0.21679), (0.03081, 0.16413), (0.49975, 0.13585), (0.50012, 0.09747)]),
    (375, 500, [(0.43275, 0.21652), (-0.03085, 0.16458), (0.50031, 0.09812), (0.50013, 0.13607)]),
    (640, 160, [(0.19183, 0.07596), (0.06955, 0.17242), (0.49946, 0.21444), (0.49987, 0.06576)]),
];
