//! Tests that a batch contains the patches of its images, packed without padding, and their grids
//! and cumulative lengths. The patches are in the order of the image processors of
//! `transformers`.

use crate::support::check_resume;
use jpeg_encoder::{ColorType, Encoder};
use warpfeed::decode::{Codecs, EncodedImage, Pixels, Rect, Size};
use warpfeed::field::{Image, Patches};
use warpfeed::source::{Frames, Memory, OwnedSample};
use warpfeed::transform::{Interpolation, Mix, Mosaic, Plan, Resizer};
use warpfeed::{Augment, Dtype, HostBatch, LastBatch, Loader, Normalize, OnError, Result};

const EXTREME: [(u32, u32); 8] = [(1, 1), (1, 200), (200, 1), (3, 500), (900, 5), (2, 2), (1, 9), (201, 1)];

/// Encodes an image of a size that depends on `number`. From 1000, `number - 1000` selects a size
/// from `EXTREME`.
fn jpeg(number: usize) -> Vec<u8> {
    let usual = (20 + number as u32 * 37 % 90, 15 + number as u32 * 23 % 70);
    let (width, height) = if number < 1000 { usual } else { EXTREME[number - 1000] };
    let size = Size::new(width, height);
    let pixel = |x: u32, y: u32| [x * 5 + number as u32 * 11, y * 4 + x, (x ^ y) * 3].map(|v| v as u8);
    let rgb: Vec<u8> = (0..size.height).flat_map(|y| (0..size.width).flat_map(move |x| pixel(x, y))).collect();
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes, 90).encode(&rgb, size.width as u16, size.height as u16, ColorType::Rgb).unwrap();
    bytes
}

fn resized(bytes: &[u8], size: Size, filter: Interpolation) -> Vec<u8> {
    let codecs = Codecs::new();
    let (mut image, mut pixels) = (codecs.open(bytes).unwrap(), Pixels::new());
    let original = image.size();
    image.decode(Rect::full(original), &mut pixels).unwrap();
    let mut plan = Plan::resized_crop(original, Rect::full(original), size, Rect::full(size));
    plan.interpolation = filter;
    let mut rgb = vec![0; size.area() as usize * 3];
    Resizer::new().run(&pixels, &plan, &mut rgb).unwrap();
    rgb
}

/// Computes patches in the order of Qwen2-VL's processor: blocks of `merge` by `merge` patches,
/// then (channel, time, row, column).
fn qwen(rgb: &[u8], (height, width): (usize, usize), (patch, merge, temporal): (usize, usize, usize)) -> Vec<u8> {
    let mut values = Vec::new();
    for (block_row, block_column) in pairs(height / patch / merge, width / patch / merge) {
        for (inner_row, inner_column) in pairs(merge, merge) {
            for channel in 0..3 {
                for _ in 0..temporal {
                    for (row, column) in pairs(patch, patch) {
                        let y = (block_row * merge + inner_row) * patch + row;
                        let x = (block_column * merge + inner_column) * patch + column;
                        values.push(rgb[(y * width + x) * 3 + channel]);
                    }
                }
            }
        }
    }
    values
}

/// Computes patches in the order of SigLIP 2's processor: row-major, then (row, column, channel).
fn naflex(rgb: &[u8], (height, width): (usize, usize), patch: usize) -> Vec<u8> {
    let mut values = Vec::new();
    for (patch_row, patch_column) in pairs(height / patch, width / patch) {
        for (row, column) in pairs(patch, patch) {
            let index = (patch_row * patch + row) * width + patch_column * patch + column;
            values.extend(&rgb[index * 3..index * 3 + 3]);
        }
    }
    values
}

fn pairs(rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)))
}

fn samples(lists: &[Vec<usize>]) -> Loader {
    let sample = |(n, list): (usize, &Vec<usize>)| {
        let images: Vec<_> = list.iter().map(|number| jpeg(*number)).collect();
        let bytes = if images.len() == 1 { images[0].clone() } else { Frames::encode(&images) };
        OwnedSample::new(n.to_string()).field("jpg", bytes).label(0)
    };
    Loader::source(Memory::new(lists.iter().enumerate().map(sample).collect())).drop_field("image").drop_field("label")
}

fn i64s<'a>(batch: &'a HostBatch, name: &str) -> &'a [i64] {
    batch.field(name).unwrap().as_i64().unwrap()
}

fn check_p(batch: &HostBatch, lists: &[Vec<usize>], is_qwen: bool, filter: Interpolation) {
    check_field("p", batch, lists, is_qwen, filter);
}

fn check_field(name: &str, batch: &HostBatch, lists: &[Vec<usize>], is_qwen: bool, filter: Interpolation) {
    let array = |end: &str| format!("{name}.{end}");
    let (grids, mut expected, mut ends) = (i64s(batch, &array("grid_thw")), Vec::new(), vec![0_i32]);
    let mut grids = grids.chunks(3);
    for (row, id) in batch.ids().enumerate() {
        let list = &lists[id as usize];
        assert_eq!(i64s(batch, &array("images"))[row], list.len() as i64);
        let before = ends[ends.len() - 1];
        for number in list {
            let grid = grids.next().unwrap();
            assert_eq!(grid[0], 1);
            let (height, width) = (grid[1] as usize * 8, grid[2] as usize * 8);
            let rgb = resized(&jpeg(*number), Size::new(width as u32, height as u32), filter);
            expected.extend(if is_qwen {
                qwen(&rgb, (height, width), (8, 2, 2))
            } else {
                naflex(&rgb, (height, width), 8)
            });
            ends.push(ends[ends.len() - 1] + (grid[1] * grid[2]) as i32);
        }
        assert_eq!(batch.counts(name).unwrap()[row], i64::from(ends[ends.len() - 1] - before));
    }
    assert!(grids.next().is_none(), "there are more grids than images");
    let patches = batch.field(name).unwrap();
    let values = 8 * 8 * 3 * if is_qwen { 2 } else { 1 };
    assert_eq!(patches.shape(), [ends[ends.len() - 1] as usize, values]);
    assert!(patches.as_u8().unwrap() == expected);
    let longest = ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    assert_eq!(batch.field(&array("cu_seqlens")).unwrap().elements::<i32>().unwrap(), ends);
    assert_eq!(batch.cu_seqlens(name).unwrap(), (ends, longest));
}

fn small(is_qwen: bool) -> Patches {
    let patches = match is_qwen {
        true => Patches::qwen2_vl().min_pixels(1024).max_pixels(4096),
        false => Patches::naflex().max_patches(40),
    };
    patches.patch(8).dtype(Dtype::U8)
}

#[test]
fn patches_equal_the_naive_division() -> Result<()> {
    let lists: Vec<Vec<usize>> = (0..13).map(|n| vec![n]).collect();
    for (is_qwen, filter) in [(true, Interpolation::Bicubic), (false, Interpolation::BilinearExact)] {
        for workers in [1, 2] {
            let loader = samples(&lists).batch_size(4).shuffle(3).workers(workers).field("p", small(is_qwen));
            let mut batches = loader.host()?;
            let mut seen = 0;
            for batch in batches.epoch(1) {
                let batch = batch?;
                check_p(&batch, &lists, is_qwen, filter);
                seen += batch.len();
            }
            assert_eq!(seen, 13);
        }
    }
    Ok(())
}

#[test]
fn a_sample_may_have_several_images_of_different_sizes() -> Result<()> {
    let lists: Vec<Vec<usize>> = [&[0, 1, 2][..], &[], &[3], &[4, 5], &[], &[6, 7, 8], &[9]].map(Vec::from).to_vec();
    for is_qwen in [true, false] {
        let filter = if is_qwen { Interpolation::Nearest } else { Interpolation::Lanczos };
        let patches = small(is_qwen).images(3).interpolation(filter);
        for batch in samples(&lists).batch_size(3).field("p", patches).host()?.epoch(0) {
            check_p(&batch?, &lists, is_qwen, filter);
        }
    }
    Ok(())
}

#[test]
fn tiny_and_long_images_have_the_size_of_their_budget() -> Result<()> {
    let lists: Vec<Vec<usize>> = (1000..1007).map(|n| vec![n]).collect();
    for (is_qwen, filter) in [(true, Interpolation::Bicubic), (false, Interpolation::BilinearExact)] {
        for batch in samples(&lists).batch_size(3).field("p", small(is_qwen)).host()?.epoch(0) {
            let batch = batch?;
            check_p(&batch, &lists, is_qwen, filter);
            for grid in i64s(&batch, "p.grid_thw").chunks(3) {
                let (patches, shorter) = (grid[1] * grid[2], grid[1].min(grid[2]));
                // The shorter side of a narrow image is rounded up to one block of 2x2 patches, so
                // the image may exceed `max_pixels`.
                let is_within_budget = match is_qwen {
                    true => (1024..=4096).contains(&(patches * 64)) || shorter == 2,
                    false => (36..=40).contains(&patches),
                };
                assert!(is_within_budget, "{grid:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_batch_may_have_no_patches() -> Result<()> {
    let lists = vec![vec![], vec![], vec![3]];
    for batch in samples(&lists).batch_size(1).field("p", small(true).images(1)).host()?.epoch(0) {
        check_p(&batch?, &lists, true, Interpolation::Bicubic);
    }
    Ok(())
}

#[test]
fn patches_do_not_depend_on_other_fields() -> Result<()> {
    let lists: Vec<Vec<usize>> = (0..10).map(|n| vec![n]).collect();
    let augment = Augment::train(32).from_epoch(1, Augment::train(48));
    let loader = samples(&lists).batch_size(4).shuffle(5).augment(augment).last_batch(LastBatch::Drop);
    let loader = loader.field("p", small(true)).field("image", Image::new()).field("q", small(false)).workers(2);
    let mut batches = loader.host()?;
    for epoch in 0..3 {
        let mut count = 0;
        for batch in batches.epoch(epoch) {
            let batch = batch?;
            check_field("p", &batch, &lists, true, Interpolation::Bicubic);
            check_field("q", &batch, &lists, false, Interpolation::BilinearExact);
            let side = if epoch == 0 { 32 } else { 48 };
            assert_eq!(batch.images().shape(), [4, side, side, 3]);
            count += 1;
        }
        assert_eq!(count, 2);
    }
    Ok(())
}

#[test]
fn damage_is_counted_or_refused() -> Result<()> {
    let damage = |n: usize| {
        let mut bytes = jpeg(n);
        let start = bytes.len() * 3 / 4;
        bytes[start..start + 20].fill(0);
        let (codecs, mut pixels) = (Codecs::new(), Pixels::new());
        let decode = |mut image: EncodedImage<'_>| image.decode(Rect::full(image.size()), &mut pixels);
        codecs.open(&bytes).and_then(decode).ok()?;
        pixels.damage().is_some().then_some(bytes)
    };
    let damaged = (0..100).find_map(damage).expect("damage that decoders tolerate");
    let sample = |(n, bytes): (usize, Vec<u8>)| OwnedSample::new(n.to_string()).field("jpg", bytes).label(0);
    let source = Memory::new([jpeg(4), damaged.clone()].into_iter().enumerate().map(sample).collect());
    let loader = Loader::source(source).drop_field("image").drop_field("label").batch_size(2).field("p", small(true));
    let mut batches = loader.clone().host()?;
    let batch = batches.epoch(0).next().unwrap()?;
    let rows = batch.counts("p").unwrap()[0] as usize * 384;
    let [_, height, width] = [0, 1, 2].map(|axis| i64s(&batch, "p.grid_thw")[3 + axis] as usize * 8);
    let pixels = resized(&damaged, Size::new(width as u32, height as u32), Interpolation::Bicubic);
    assert!(batch.field("p").unwrap().as_u8().unwrap()[rows..] == qwen(&pixels, (height, width), (8, 2, 2)));
    drop(batch);
    assert_eq!(batches.stats().damaged_images, 1);
    let e = loader.strict(true).host()?.epoch(0).next().unwrap().map(drop).unwrap_err().to_string();
    assert!(e.starts_with("sample 1 (1)") && e.contains("rejected, because strict is set"), "{e}");
    Ok(())
}

#[test]
fn values_are_normalized_and_cast_like_images() -> Result<()> {
    let normalize = Normalize { mean: [0.4, 0.5, 0.6], std: [0.2, 0.25, 0.3] };
    let lists: Vec<Vec<usize>> = (0..3).map(|n| vec![n]).collect();
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
        let floats = small(true).dtype(dtype).normalize(normalize);
        let load = |patches| samples(&lists).batch_size(3).field("p", patches).host()?.epoch(0).next().unwrap();
        let (levels, floats): (HostBatch, HostBatch) = (load(small(true))?, load(floats)?);
        let (scale, bias) = normalize.scale_bias();
        let levels = levels.field("p").unwrap().as_u8().unwrap().to_vec();
        let view = floats.field("p").unwrap();
        for (index, level) in levels.iter().enumerate() {
            let channel = index % 384 / 128;
            let expected = scale[channel].mul_add(f32::from(*level), bias[channel]);
            let actual = match dtype {
                Dtype::F32 => view.as_f32().unwrap()[index],
                Dtype::F16 => view.as_f16().unwrap()[index].to_f32(),
                _ => view.as_bf16().unwrap()[index].to_f32(),
            };
            let tolerance = if dtype == Dtype::F32 { 0.0 } else { 0.02 };
            assert!((actual - expected).abs() <= tolerance, "{dtype:?}: {actual} is not {expected}");
        }
    }
    Ok(())
}

#[test]
fn ranks_and_resumed_runs_give_the_patches_of_their_samples() -> Result<()> {
    let lists: Vec<Vec<usize>> = (0..14).map(|n| vec![n]).collect();
    let loader = || samples(&lists).batch_size(4).shuffle(3).field("p", small(true));
    let joined = |batches: Vec<Vec<u8>>| batches.concat();
    let bytes = |batch: Result<HostBatch>| -> Result<Vec<u8>> { Ok(batch?.field("p").unwrap().bytes().to_vec()) };
    let unbroken = loader().host()?.epoch(0).map(bytes).collect::<Result<Vec<_>>>()?;
    let mut ranks = Vec::new();
    for rank in 0..2 {
        let loader = samples(&lists).batch_size(2).shuffle(3).field("p", small(true)).rank(rank, 2);
        for batch in loader.host()?.epoch(0) {
            check_p(&batch?, &lists, true, Interpolation::Bicubic);
        }
        let loader = samples(&lists).batch_size(2).shuffle(3).field("p", small(true)).rank(rank, 2);
        ranks.push(loader.host()?.epoch(0).map(bytes).collect::<Result<Vec<_>>>()?);
    }
    let both = (0..3).map(|batch| [&ranks[0][batch][..], &ranks[1][batch]].concat()).collect();
    assert!(joined(both) == unbroken[..3].concat());
    check_resume(loader, |batch| batch.field("p").unwrap().bytes().to_vec());
    Ok(())
}

#[test]
fn replaced_samples_have_the_patches_of_their_replacements() -> Result<()> {
    let sample = |n: usize| {
        let mut bytes = jpeg(n);
        if n % 3 == 1 {
            bytes.truncate(bytes.len() / 2);
        }
        OwnedSample::new(n.to_string()).field("jpg", bytes).label(0)
    };
    let lists: Vec<Vec<usize>> = (0..12).map(|n| vec![n]).collect();
    let source = Memory::new((0..12).map(sample).collect());
    let loader = Loader::source(source).drop_field("image").drop_field("label").batch_size(4).field("p", small(true));
    for batch in loader.on_error(OnError::Skip { max_skipped: 10 }).host()?.epoch(0) {
        let batch = batch?;
        assert!(batch.valid().any(|valid| !valid));
        check_p(&batch, &lists, true, Interpolation::Bicubic);
    }
    Ok(())
}

#[test]
fn bad_options_and_images_are_rejected() {
    let lists = [vec![0], vec![1, 2]];
    let open = |patches: Patches| samples(&lists).batch_size(2).field("p", patches).host().map(drop);
    for (patches, text) in [
        (Patches::qwen2_vl().patch(0), "patch=0: expected 1 to 256"),
        (Patches::qwen2_vl().merge(17), "merge=17: expected 1 to 16"),
        (Patches::qwen2_vl().max_patches(9), "max_patches=9 is for naflex: use max_pixels"),
        (Patches::naflex().max_pixels(9), "max_pixels=9 is for qwen2_vl: use max_patches"),
        (Patches::naflex().max_patches(0), "max_patches=0: expected 1 to"),
        (Patches::naflex().merge(2), "merge=2, temporal=1: naflex requires merge=1 and temporal=1"),
        (Patches::qwen2_vl().max_pixels(100), "max_pixels=100: expected"),
        (Patches::qwen2_vl().min_pixels(2_000_000), "min_pixels=2000000, max_pixels=1003520: expected"),
        (Patches::qwen2_vl().dtype(Dtype::I64), "dtype int64: images support only"),
        (Patches::qwen2_vl().dtype(Dtype::U8).normalize(Normalize::IMAGENET), "normalize needs dtype f32"),
        (Patches::qwen2_vl().normalize(Normalize { mean: [128.0; 3], std: [64.0; 3] }), "scale of 0 to 255"),
        (Patches::qwen2_vl().images(0), "images=0: expected 1 to"),
    ] {
        let e = open(patches).unwrap_err().to_string();
        assert!(e.contains(text) && e.contains("\"p\""), "{e}");
    }
    let first = |loader: Loader| loader.host().unwrap().epoch(0).next().unwrap().map(drop).unwrap_err().to_string();
    let e = first(samples(&lists).batch_size(2).field("p", small(true)));
    assert!(e.contains("field \"p\" is a list of images, not a single image: use Patches::images(2)"), "{e}");
    let e = first(samples(&[vec![0, 1, 2]]).batch_size(1).field("p", small(true).images(2)));
    assert!(e.contains("has 3 images: Patches::images(2) allows at most 2"), "{e}");
    let refused = |loader: Loader| loader.host().map(drop).unwrap_err().to_string();
    let e = refused(samples(&lists).batch_size(2).field("p", small(true)).dtype(Dtype::F32));
    assert!(
        e.contains("dtype changes images, but the loader has only patches: use the options of field::Patches"),
        "{e}"
    );
    let e = refused(samples(&lists).batch_size(2).field("p", small(true)).augment(Augment::train(32)));
    assert!(e.contains("augment changes images, but the loader has only patches"), "{e}");
    let e = first(samples(&[vec![1007]]).batch_size(1).field("p", small(true)));
    assert!(e.contains("201x1 pixels: the longer side may be at most 200 times the shorter"), "{e}");
    let both = || samples(&lists).batch_size(2).field("p", small(true)).field("image", Image::new());
    for (augment, step) in [
        (Augment::train(32).mix(Mix::mixup(0.2)), "Augment::mix"),
        (Augment::train(32).mosaic(Mosaic::default()), "Augment::mosaic"),
    ] {
        let e = refused(both().augment(augment));
        assert!(e.contains("cannot be combined with other images") && e.contains(step), "{e}");
    }
}
