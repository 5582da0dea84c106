//! Tests masks, which are cropped, resized, flipped and padded together with their image. Resizing
//! must select the nearest value and never interpolate. The tests cover palettes, gray values of 1
//! to 16 bits, interlaced PNGs, and arrays of all integer types except `uint64`.

use std::io::Cursor;

use crate::reference_fields::{PlanRecord, Plane, augments, image, npy};
use crate::support::exit_on_hang;
use warpfeed::batch::Element;
use warpfeed::decode::Size;
use warpfeed::field::{AnyFieldType, Boxes, DenseMap, Geometry, Mask};
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::transform::{ImageMut, Mix, RandomErasing};
use warpfeed::{Augment, Dtype, ErrorKind, HostBatch, Loader, Normalize, OnError, Result};

#[derive(Debug, Clone, Copy)]
struct Stored {
    depth: u8,
    palette: bool,
    interlaced: bool,
}

fn values(size: Size, depth: u8, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed, 7, 7);
    let levels = 1_u64 << depth;
    let step = 1 + rng.below(9) as u32;
    (0..size.height)
        .flat_map(|y| (0..size.width).map(move |x| (x, y)))
        .map(|(x, y)| if rng.chance(0.2) { rng.below(levels) as u32 } else { (x / step + y / 3) % levels as u32 })
        .collect()
}

fn packed(values: &[u32], size: Size, depth: u8, (x0, y0, dx, dy): (u32, u32, u32, u32)) -> Vec<Vec<u8>> {
    let row = |y: u32| {
        let mut bits = Vec::new();
        for x in (x0..size.width).step_by(dx as usize) {
            let value = values[(y * size.width + x) as usize];
            bits.extend((0..depth).rev().map(|bit| (value >> bit & 1) as u8));
        }
        bits.chunks(8).map(|bits| bits.iter().enumerate().map(|(i, bit)| bit << (7 - i)).sum::<u8>()).collect()
    };
    (y0..size.height).step_by(dy as usize).map(row).filter(|row: &Vec<u8>| !row.is_empty()).collect()
}

const ADAM7: [(u32, u32, u32, u32); 7] =
    [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)];

/// Each row has a random filter, and the data is split into chunks of random lengths.
fn png(values: &[u32], size: Size, stored: Stored, seed: u64) -> Vec<u8> {
    let Stored { depth, palette, interlaced } = stored;
    let mut rng = Rng::new(seed, 1, 1);
    let bytes = usize::from(depth / 8).max(1);
    let mut raw = Vec::new();
    let passes = if interlaced { &ADAM7[..] } else { &[(0, 0, 1, 1)] };
    for pass in passes {
        let mut above = Vec::new();
        for row in packed(values, size, depth, *pass) {
            above.resize(row.len(), 0);
            let filter = rng.below(5) as u8;
            raw.push(filter);
            for (i, &byte) in row.iter().enumerate() {
                let (left, corner) = if i < bytes { (0, 0) } else { (row[i - bytes], above[i - bytes]) };
                let (a, b, c) = (i32::from(left), i32::from(above[i]), i32::from(corner));
                let paeth = *[(a, 0), (b, 1), (c, 2)].iter().min_by_key(|(v, i)| ((a + b - c - v).abs(), *i)).unwrap();
                let guess = [0, a, b, (a + b) / 2, paeth.0][usize::from(filter)] as u8;
                raw.push(byte.wrapping_sub(guess));
            }
            above = row;
        }
    }
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&raw, rng.below(10) as u8);
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8; 4], content: &[u8]| {
        out.extend((content.len() as u32).to_be_bytes());
        let covered = [&kind[..], content].concat();
        out.extend(&covered);
        out.extend(crc32fast::hash(&covered).to_be_bytes());
    };
    let color = if palette { 3 } else { 0 };
    let sizes = [size.width.to_be_bytes(), size.height.to_be_bytes()].concat();
    chunk(b"IHDR", &[&sizes[..], &[depth, color, 0, 0, u8::from(interlaced)]].concat());
    if palette {
        // The colors are unrelated to the indices.
        chunk(b"PLTE", &(0..3 << depth.min(8)).map(|i| (i * 37) as u8).collect::<Vec<_>>());
    }
    chunk(b"tEXt", b"Comment\0of no matter");
    let mut rest = &packed[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(rng.below(700) as usize));
        chunk(b"IDAT", now);
        rest = later;
    }
    chunk(b"IEND", b"");
    out
}

const STORED: [Stored; 12] = {
    const fn stored(depth: u8, palette: bool, interlaced: bool) -> Stored {
        Stored { depth, palette, interlaced }
    }
    [
        stored(8, false, false),
        stored(8, true, false),
        stored(8, false, true),
        stored(8, true, true),
        stored(1, true, false),
        stored(1, false, true),
        stored(2, true, true),
        stored(2, false, false),
        stored(4, true, false),
        stored(4, false, true),
        stored(16, false, false),
        stored(16, false, true),
    ]
};

fn as_integers<T: Element + Into<i64>>(batch: &HostBatch) -> Vec<i64> {
    batch.field("mask").unwrap().elements::<T>().unwrap().iter().map(|&v| v.into()).collect()
}

fn check(batch: &HostBatch, sizes: &[Size], planes: &[Plane], output: Size, fill: i64) {
    let mask = batch.field("mask").unwrap();
    assert_eq!(mask.shape(), [batch.len(), output.height as usize, output.width as usize]);
    let actual = match mask.dtype() {
        Dtype::U8 => as_integers::<u8>(batch),
        Dtype::U16 => as_integers::<u16>(batch),
        Dtype::I16 => as_integers::<i16>(batch),
        Dtype::I32 => as_integers::<i32>(batch),
        _ => as_integers::<i64>(batch),
    };
    let plans = batch.field("plan").unwrap().as_i64().unwrap();
    for (place, id) in batch.ids().enumerate() {
        let plan = &plans[place * 14..][..14];
        let expected = planes[id as usize].apply_plan(plan, output, fill).values;
        let area = output.area() as usize;
        assert_eq!(actual[place * area..][..area], expected, "sample {id} of {:?} by {plan:?}", sizes[id as usize]);
    }
}

#[test]
fn masks_of_every_encoding_use_the_nearest_pixel() {
    exit_on_hang(|| {
        let sizes: Vec<Size> = (0..36).map(|i| Size::new(20 + (i * 17 + i * i) % 90, 19 + (i * 23) % 70)).collect();
        for dtype in [Dtype::U16, Dtype::I32, Dtype::I64] {
            let values: Vec<_> = (0..36).map(|i| values(sizes[i], STORED[i % 12].depth, i as u64)).collect();
            let planes: Vec<_> = (0..36)
                .map(|i| {
                    let (width, height) = (sizes[i].width as usize, sizes[i].height as usize);
                    Plane::from_fn(width, height, |x, y| values[i][y * width + x].into())
                })
                .collect();
            let sample = |i: usize| {
                OwnedSample::new(format!("{i}"))
                    .field("rgb.npy", image(sizes[i]))
                    .field("mask.png", png(&values[i], sizes[i], STORED[i % 12], i as u64))
            };
            let source = Memory::new((0..36).map(sample).collect());
            for augment in augments() {
                let output = augment.output_size();
                for workers in [1, 3] {
                    let loader = Loader::source(source.clone()).augment(augment.clone()).batch_size(8).workers(workers);
                    let loader = loader.field("mask", Mask::new(dtype).fill(9)).field("plan", PlanRecord).shuffle(3);
                    for batch in loader.drop_field("label") {
                        check(&batch.unwrap(), &sizes, &planes, output, 9);
                    }
                }
            }
        }
    });
}

#[test]
fn a_mask_larger_than_a_decompression_step_is_complete() {
    exit_on_hang(|| {
        let cases = [(1300, 700, 0), (901, 1100, 3), (700, 600, 10), (65_535, 9, 11)];
        let samples = cases.iter().enumerate().map(|(seed, &(width, height, stored))| {
            let size = Size::new(width, height);
            let values = values(size, STORED[stored].depth, seed as u64);
            let mask = png(&values, size, STORED[stored], seed as u64);
            let sample = OwnedSample::new("a").field("rgb.npy", image(size)).field("mask.png", mask);
            (size, values, sample)
        });
        for (size, values, sample) in samples {
            let loader = Loader::source(Memory::new(vec![sample])).drop_field("label").workers(1);
            let loader = loader.augment(Augment::pass_through(size.width, size.height));
            let batch = loader.field("mask", Mask::new(Dtype::U16)).into_iter().next().unwrap().unwrap();
            let mask = batch.field("mask").unwrap().elements::<u16>().unwrap();
            assert!(mask.iter().map(|&value| u32::from(value)).eq(values), "{size:?}");
        }
    });
}

#[test]
fn integer_arrays_of_any_size_and_byte_order_can_be_masks() {
    exit_on_hang(|| {
        let size = Size::new(33, 27);
        let planes: Vec<Plane> =
            (0..8).map(|k| Plane::from_fn(33, 27, |x, y| ((x * 5 + y * 3 + k) % 100) as i64)).collect();
        let types: [(&str, usize, bool); 8] = [
            ("|u1", 1, false),
            ("|i1", 1, false),
            ("<u2", 2, false),
            (">i2", 2, true),
            ("<i4", 4, false),
            (">u4", 4, true),
            ("<i8", 8, false),
            (">i8", 8, true),
        ];
        let sample = |(i, (descr, bytes, big)): (usize, &(&str, usize, bool))| {
            let data = planes[i].values.iter().flat_map(|value| {
                let mut element = value.to_le_bytes()[..*bytes].to_vec();
                if *big {
                    element.reverse();
                }
                element
            });
            let array = npy(descr, "(27, 33)", &data.collect::<Vec<_>>());
            OwnedSample::new(format!("{i}")).field("rgb.npy", image(size)).field("mask.npy", array)
        };
        let source = Memory::new(types.iter().enumerate().map(sample).collect());
        for dtype in [Dtype::U8, Dtype::U16, Dtype::I16, Dtype::I32, Dtype::I64] {
            for augment in augments() {
                let output = augment.output_size();
                let loader = Loader::source(source.clone()).augment(augment).batch_size(8).drop_field("label");
                for batch in loader.field("mask", Mask::new(dtype).fill(100)).field("plan", PlanRecord) {
                    check(&batch.unwrap(), &[size; 8], &planes, output, 100);
                }
            }
        }
    });
}

#[test]
fn a_float_map_can_use_nearest_pixels() {
    exit_on_hang(|| {
        let size = Size::new(33, 27);
        let plane = Plane::from_fn(33, 27, |x, y| ((x * 5 + y * 3) % 100) as i64);
        let data: Vec<u8> = plane.values.iter().flat_map(|&v| (v as f64).to_be_bytes()).collect();
        let sample =
            OwnedSample::new("a").field("rgb.npy", image(size)).field("depth.npy", npy(">f8", "(27, 33)", &data));
        let source = Memory::new(vec![sample; 20]);
        for augment in augments() {
            let output = augment.output_size();
            let loader = Loader::source(source.clone()).augment(augment).drop_field("label").field("plan", PlanRecord);
            for batch in loader.field("depth", DenseMap::new().nearest().fill(9.0)) {
                let batch = batch.unwrap();
                let depth = batch.field("depth").unwrap().as_f32().unwrap();
                let plans = batch.field("plan").unwrap().as_i64().unwrap();
                let area = output.area() as usize;
                for (depth, plan) in depth.chunks(area).zip(plans.chunks(14)) {
                    let expected = plane.apply_plan(plan, output, 9).values;
                    assert!(depth.iter().zip(expected).all(|(a, b)| *a == b as f32), "{plan:?}");
                }
            }
        }
        let small = OwnedSample::new("a")
            .field("rgb.npy", image(size))
            .field("depth.npy", npy("<f4", "(27, 32)", &[0; 27 * 32 * 4]));
        let loader = Loader::source(Memory::new(vec![small])).augment(Augment::resize(8, 8)).drop_field("label");
        let e = loader.clone().field("depth", DenseMap::new()).into_iter().find_map(Result::err).unwrap();
        assert_eq!(e.cause(), "field \"depth.npy\": annotations are for 32x27 pixels, but the image has 33x27");
        let e = loader.field("depth", DenseMap::flow()).into_iter().find_map(Result::err).unwrap();
        assert_eq!(e.cause(), "field \"depth.npy\" has the shape [27, 32]: expected (height, width, 2)");
    });
}

#[test]
fn erasing_and_normalizing_leave_the_mask_alone() {
    exit_on_hang(|| {
        let size = Size::new(40, 30);
        let mask = values(size, 8, 5);
        let stored = png(&mask, size, STORED[0], 5);
        let sample = OwnedSample::new("a").field("rgb.npy", image(size)).field("mask.png", stored);
        let open =
            |augment: Augment| Loader::source(Memory::new(vec![sample.clone()])).augment(augment).drop_field("label");
        let masks = |loader: Loader| {
            let batch = loader.field("mask", Mask::new(Dtype::U8)).into_iter().next().unwrap().unwrap();
            batch.field("mask").unwrap().bytes().to_vec()
        };
        let plain = masks(open(Augment::pass_through(40, 30)));
        assert_eq!(plain, mask.iter().map(|&v| v as u8).collect::<Vec<_>>());
        let erased = open(Augment::pass_through(40, 30).erase(RandomErasing::new(1.0).value([5.0; 3])));
        assert_eq!(masks(erased), plain);
        let normalized = open(Augment::pass_through(40, 30)).dtype(Dtype::F32).normalize(Normalize::IMAGENET);
        assert_eq!(masks(normalized), plain);
    });
}

fn fails(mask: (&str, Vec<u8>), kind: Mask) -> warpfeed::Error {
    let good = OwnedSample::new("good").field("rgb.npy", image(Size::new(16, 16)));
    let good = good.field("mask.png", png(&values(Size::new(16, 16), 2, 0), Size::new(16, 16), STORED[6], 0));
    let bad_sample = OwnedSample::new("bad").field("rgb.npy", image(Size::new(16, 16))).field(mask.0, mask.1);
    let open = || {
        let loader =
            Loader::source(Memory::new(vec![good.clone(), bad_sample.clone()])).drop_field("label").batch_size(2);
        loader.augment(Augment::resize(16, 16)).field("mask", kind.clone())
    };
    let error = open().into_iter().find_map(Result::err).expect("the sample fails");
    assert_eq!(error.sample(), Some(1));
    let mut batches = open().on_error(OnError::Skip { max_skipped: 1 }).host().unwrap();
    let batch = batches.epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.valid().collect::<Vec<_>>(), [true, false]);
    drop(batch);
    assert_eq!(batches.sample_errors().len(), 1);
    error
}

#[test]
fn a_bad_mask_fails_with_found_and_expected_values() {
    exit_on_hang(|| {
        let size = Size::new(16, 16);
        let kind = || Mask::new(Dtype::U8);
        let mask_of = |side: u32, stored: usize| {
            let size = Size::new(side, 16);
            png(&values(size, STORED[stored].depth, 1), size, STORED[stored], 1)
        };
        let cause = |mask, kind| fails(mask, kind).cause().to_owned();
        assert_eq!(
            cause(("mask.png", mask_of(17, 0)), kind()),
            "field \"mask.png\": annotations are for 17x16 pixels, but the image has 16x16"
        );
        let e = cause(("mask.npy", npy("|u1", "(15, 16)", &[0; 240])), kind());
        assert_eq!(e, "field \"mask.npy\": annotations are for 16x15 pixels, but the image has 16x16");
        // The first mask has a value that exceeds the type, and the second one that is no class.
        let wide = cause(("mask.png", mask_of(16, 10)), kind());
        assert!(wide.contains("expected 0 to 255") && wide.contains("the value "), "{wide}");
        let class = |fill| {
            let mut values = vec![0_u32; 256];
            values[16 * 3 + 5] = 21;
            values[16 * 9 + 5] = 255;
            let mask = png(&values, size, STORED[0], 1);
            cause(("mask.png", mask), kind().fill(fill).classes(21))
        };
        let expected = "field \"mask.png\": the value 21 at column 5, row 3: expected 0 to 20";
        assert_eq!(class(255), expected);
        let e = cause(("mask.npy", npy("|i1", "(16, 16)", &[255; 256])), kind());
        assert_eq!(e, "field \"mask.npy\": the value -1 at column 0, row 0: expected 0 to 255");
        let mut rgb = Cursor::new(Vec::new());
        image::RgbImage::new(16, 16).write_to(&mut rgb, image::ImageFormat::Png).unwrap();
        let e = fails(("mask.png", rgb.into_inner()), kind());
        assert!(e.cause().contains("this png is RGB, but a mask has one number per pixel"), "{e}");
        assert_eq!(e.kind(), ErrorKind::Decode);
        let e = cause(("mask", b"GIFxxx".to_vec()), kind());
        assert!(
            e.contains(
                "a mask of 6 bytes that begins with \"GIFxxx\" is not in a supported format: expected PNG, npy, TIFF"
            ),
            "{e}"
        );
        let e = cause(("mask.npy", npy("<f4", "(16, 16)", &[0; 1024])), kind());
        assert!(e.contains("expected booleans or integers"), "{e}");
        let e = cause(("other", Vec::new()), kind());
        assert!(
            e.starts_with("no mask \"mask\" among the fields [\"rgb.npy\", \"other\"]; supported suffixes are .png")
                && e.ends_with("in a separate folder, with the option masks, or in a column of a table"),
            "{e}"
        );
    });
}

#[test]
fn damage_anywhere_in_a_png_mask_fails_every_crop() {
    exit_on_hang(|| {
        let size = Size::new(23, 19);
        let file = png(&values(size, 8, 3), size, STORED[0], 3);
        let image = image(size);
        let sample = |mask: Vec<u8>| OwnedSample::new("x").field("rgb.npy", image.clone()).field("mask.png", mask);
        let mut rng = Rng::new(8, 8, 8);
        let mut samples = vec![sample(file.clone())];
        for case in 0..300 {
            let mut bytes = file.clone();
            if case % 3 == 0 {
                bytes.truncate(rng.below(file.len() as u64 - 1) as usize);
            } else {
                let offset = rng.below(file.len() as u64) as usize;
                bytes[offset] ^= 1 << rng.below(8);
            }
            samples.push(sample(bytes));
        }
        let bad_index = samples.len() - 1;
        let loader = Loader::source(Memory::new(samples)).drop_field("label").batch_size(301);
        let loader = loader.augment(Augment::train(7)).field("mask", Mask::new(Dtype::U8));
        let mut batches = loader.on_error(OnError::Skip { max_skipped: bad_index as u64 }).host().unwrap();
        batches.epoch(0).for_each(|batch| _ = batch.unwrap());
        assert_eq!(batches.sample_errors().len(), bad_index, "every bad sample is listed");
    });
}

#[test]
fn annotation_fields_refuse_a_step_that_may_move_pixels() {
    let sample = OwnedSample::new("x").field("rgb.npy", image(Size::new(16, 16)));
    let source = || Memory::new(vec![sample.clone()]);
    let invert = |image: &mut ImageMut<'_>, _: &mut Rng| {
        image.data_mut().iter_mut().for_each(|value| *value = 255 - *value);
        Ok(())
    };
    let plain = || Loader::source(source()).drop_field("label").augment(Augment::resize(8, 8));
    let kinds = [
        AnyFieldType::from(Mask::new(Dtype::U8)),
        DenseMap::new().into(),
        Boxes::new(1).into(),
        Geometry::new().into(),
    ];
    for kind in kinds {
        let with = || plain().field("target", kind.clone()).transform(invert);
        for loader in [with(), with().transform_moves_pixels(true)] {
            let e = loader.host().unwrap_err().to_string();
            assert!(
                e.contains("\"target\" follows the image, but cannot follow pixels that Loader::transform moves")
                    && e.contains("(false)"),
                "{e}"
            );
        }
        assert!(with().transform_moves_pixels(false).host().is_ok());
    }
    assert!(plain().transform(invert).host().is_ok(), "a transform was refused, although no field follows the image");
}

#[test]
fn augmentations_that_masks_cannot_follow_fail_on_opening() {
    let source = || Memory::new(vec![OwnedSample::new("x").field("rgb.npy", image(Size::new(16, 16)))]);
    let refused = |loader: Loader| loader.host().unwrap_err().to_string();
    let loader = || Loader::source(source()).field("mask", Mask::new(Dtype::U8));
    let e = refused(loader().augment(Augment::resize(8, 8).mix(Mix::mixup(0.2))));
    assert!(e.contains("\"mask\" follows the image, but masks and boxes cannot be mixed"), "{e}");
    let e = refused(loader().drop_field("image"));
    assert!(e.contains("\"mask\" follows the image, but the loader has no image"), "{e}");
    let e = refused(Loader::source(source()).field("mask", Mask::new(Dtype::F32)));
    assert!(e.contains("masks cannot have the type float32: use an integer type"), "{e}");
    let e = refused(Loader::source(source()).field("mask", Mask::new(Dtype::U8).fill(-1)));
    assert!(e.contains("fill=-1 does not fit into uint8, which holds 0 to 255"), "{e}");
    let e = refused(loader().augment(Augment::iou_crop(8, 8)));
    assert!(e.contains("iou_crop needs a field with boxes"), "{e}");
}
