//! Tests clips: image fields with T frames, which are all cropped and augmented alike. Each frame
//! must be bit-identical to the image that a loader produces from that frame alone.

use crate::support::check_resume;
use jpeg_encoder::{ColorType, Encoder};
use warpfeed::decode::Size;
use warpfeed::field::{Image, Mask};
use warpfeed::sampler::Rng;
use warpfeed::source::{Frames, Memory, OwnedSample};
use warpfeed::transform::{ColorJitter, CopyPaste, ImageMut, Mix, Mosaic, RandomErasing};
use warpfeed::{Augment, Dtype, HostBatch, Layout, Loader, Normalize, OnError, Result};

use crate::reference_fields::npy;

const CLIPS: usize = 10;

fn pixels(clip: usize, frame: usize, size: Size) -> Vec<u8> {
    let mut rng = Rng::new(clip as u64, 7, frame as u64);
    let pixel = |x: u32, y: u32| [x * 3 + frame as u32 * 17, y * 2 + clip as u32 * 5, x ^ y].map(|v| v as u8);
    let pixels = (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x, y)));
    pixels.flat_map(|(x, y)| pixel(x, y).map(|v| v.wrapping_add(rng.below(9) as u8))).collect()
}

/// All frames of a clip have the same size. Some clips mix image formats.
fn encoded(clip: usize, frame: usize) -> Vec<u8> {
    let size = Size::new(40 + clip as u32 * 3, 50 - clip as u32);
    let rgb = pixels(clip, frame, size);
    if clip % 4 == 3 && frame % 2 == 1 {
        return npy("|u1", &format!("({}, {}, 3)", size.height, size.width), &rgb);
    }
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 80);
    encoder.set_progressive(frame % 5 == 4);
    encoder.encode(&rgb, size.width as u16, size.height as u16, ColorType::Rgb).unwrap();
    bytes
}

fn frames(clip: usize, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|frame| encoded(clip, frame)).collect()
}

fn options(loader: Loader) -> Loader {
    loader.batch_size(4).shuffle(3).seed(5).workers(1)
}

fn clips(count: usize) -> Loader {
    let sample = |clip: usize| {
        OwnedSample::new(clip.to_string()).field("top", Frames::encode(&frames(clip, count))).label(clip as i64)
    };
    let loader = Loader::source(Memory::new((0..CLIPS).map(sample).collect()));
    options(loader).field("image", Image::from_field("top").frames(count))
}

fn singles(frame: usize) -> Loader {
    let sample = |clip: usize| OwnedSample::new(clip.to_string()).field("jpg", encoded(clip, frame)).label(clip as i64);
    options(Loader::source(Memory::new((0..CLIPS).map(sample).collect())))
}

fn rows(loader: Loader, epoch: u64, name: &str) -> Vec<Vec<u8>> {
    let mut batches = loader.host().unwrap();
    let rows = |batch: Result<HostBatch>| {
        let batch = batch.unwrap();
        let bytes = batch.field(name).expect(name).bytes().to_vec();
        bytes.chunks(bytes.len() / batch.len()).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    batches.epoch(epoch).flat_map(rows).collect()
}

fn open_error(loader: Loader) -> String {
    loader.host().expect_err("opening fails").to_string()
}

fn failed(loader: Loader) -> String {
    loader.host().unwrap().epoch(0).next().unwrap().unwrap_err().to_string()
}

fn noise(image: &mut ImageMut<'_>, rng: &mut Rng) -> Result<()> {
    image.data_mut().iter_mut().for_each(|v| *v = v.wrapping_add(rng.below(4) as u8));
    Ok(())
}

#[test]
fn each_frame_is_the_image_that_the_plan_makes_of_it() {
    let jitter = ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1);
    let augments = [
        Augment::train(24).jitter(jitter).erase(RandomErasing::new(0.7)),
        Augment::eval(40, 32),
        Augment::letterbox(30, 20).fill([9, 8, 7]).flip(0.5),
        Augment::random_crop(36).padding(6).pad_if_needed().vertical_flip(0.5).rotate(20.0),
        Augment::train(24).rand_augment(2, 9),
    ];
    let formats = [
        (Dtype::U8, Layout::Nhwc),
        (Dtype::F16, Layout::Nchw),
        (Dtype::U8, Layout::Nchw),
        (Dtype::F32, Layout::Nhwc),
        (Dtype::Bf16, Layout::Nchw),
    ];
    for (number, (augment, (dtype, layout))) in augments.into_iter().zip(formats).enumerate() {
        let read_all = |loader: Loader| {
            let loader = loader.augment(augment.clone()).dtype(dtype).layout(layout);
            let loader = if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) };
            if number % 2 == 0 { loader } else { loader.transform(noise) }
        };
        // Eleven frames are decoded in two groups.
        for count in [1, 3, 11] {
            let actual = rows(read_all(clips(count)), 1, "image");
            assert!(actual == rows(read_all(clips(count)).workers(3).prefetch(3), 1, "image"), "{count} {augment:?}");
            for frame in 0..count {
                let expected = rows(read_all(singles(frame)), 1, "image");
                let each = expected[0].len();
                let frames: Vec<_> = actual.iter().map(|row| row[frame * each..][..each].to_vec()).collect();
                assert!(frames == expected, "frame {frame} of {count}, {dtype:?} {layout:?} {augment:?}");
                assert_eq!(actual[0].len(), count * each);
            }
        }
    }
}

#[test]
fn the_frames_are_an_axis_of_the_batch() {
    for (layout, shape) in [(Layout::Nhwc, [4, 3, 20, 24, 3]), (Layout::Nchw, [4, 3, 3, 20, 24])] {
        let mut batches = clips(3).augment(Augment::resize(24, 20)).layout(layout).host().unwrap();
        let batch = batches.epoch(0).next().unwrap().unwrap();
        assert_eq!(batch.images().shape(), shape);
        let field = batch.fields().find(|field| field.name == "image").unwrap();
        assert_eq!(field.shape, shape[1..]);
    }
    let gray = rows(clips(3).channels(1).augment(Augment::train(16)), 0, "image");
    let expected = rows(singles(2).channels(1).augment(Augment::train(16)), 0, "image");
    assert!(gray.iter().zip(&expected).all(|(clip, frame)| clip[2 * 256..] == frame[..]));
}

#[test]
fn cameras_and_masks_of_a_sample_share_its_crop() {
    let size = Size::new(24, 20);
    let sample = |clip: usize| {
        let level = |n: usize| pixels(clip, n, size).chunks(3).map(|rgb| rgb[0]).collect::<Vec<u8>>();
        let gray = |levels: &[u8]| {
            npy("|u1", "(20, 24, 3)", &levels.iter().flat_map(|&level| [level; 3]).collect::<Vec<u8>>())
        };
        OwnedSample::new(clip.to_string())
            .field("top", Frames::encode(&[gray(&level(0)), gray(&level(1))]))
            .field("wrist", Frames::encode(&[gray(&level(2)), gray(&level(0)), gray(&level(1))]))
            .field("side", gray(&level(0)))
            .field("mask.npy", npy("|u1", "(20, 24)", &level(1)))
            .label(0)
    };
    // The center crop does not interpolate, so each mask pixel equals the same pixel of frame 1 of
    // `top`.
    let augment = Augment::center_crop(10).flip(0.5).vertical_flip(0.5);
    let loader = Loader::source(Memory::new((0..12).map(sample).collect()));
    let small = Augment::resize(5, 4).flip(0.5);
    let loader = options(loader)
        .augment(augment)
        .field("image", Image::from_field("top").frames(2))
        .field("wrist", Image::from_field("wrist").frames(3))
        .field("side", Image::from_field("side"))
        .field("small", Image::from_field("top").frames(2).augment(small))
        .field("mask", Mask::new(Dtype::U8));
    for workers in [1, 3] {
        let rows_of = |name: &str| rows(loader.clone().workers(workers), 0, name);
        let (top, wrist, side, mask, small) =
            (rows_of("image"), rows_of("wrist"), rows_of("side"), rows_of("mask"), rows_of("small"));
        let each = 300;
        for sample in 0..12 {
            assert!(top[sample][each..].chunks(3).map(|pixel| pixel[0]).eq(mask[sample].iter().copied()));
            assert_eq!(top[sample][..each], side[sample]);
            assert_eq!(top[sample], wrist[sample][each..]);
            assert_eq!(small[sample].len(), 2 * 4 * 5 * 3);
        }
    }
}

#[test]
fn a_run_with_clips_resumes_and_is_divided_among_ranks() {
    let loader = || clips(3).augment(Augment::train(16));
    check_resume(loader, |batch| batch.images().bytes().to_vec());
    let mut divided: Vec<_> = (0..2).flat_map(|rank| rows(loader().rank(rank, 2), 0, "image")).collect();
    let mut expected_rows = rows(loader(), 0, "image");
    divided.sort();
    expected_rows.sort();
    assert!(divided == expected_rows);
}

fn loader_of_one(name: &str, content: Vec<u8>) -> Loader {
    let sample = OwnedSample::new("episode").field(name, content).label(0);
    Loader::source(Memory::new(vec![sample])).augment(Augment::train(16)).batch_size(1)
}

#[test]
fn errors_name_the_field_and_the_frame() {
    let clip = |frames: &[Vec<u8>]| {
        loader_of_one("top", Frames::encode(frames)).field("image", Image::from_field("top").frames(10))
    };
    let good = frames(1, 10);
    assert_eq!(rows(clip(&good), 0, "image").len(), 1);
    for damaged in [0, 1, 6, 9] {
        let mut damaged_frames = good.clone();
        damaged_frames[damaged] = b"no image".to_vec();
        let text = failed(clip(&damaged_frames));
        assert!(text.contains("sample 0 (episode)"), "{text}");
        assert!(text.contains(&format!("frame {damaged} of field \"image\": ")), "{text}");
        damaged_frames[damaged] = good[damaged][..40].to_vec();
        let text = failed(clip(&damaged_frames));
        assert!(text.contains(&format!("frame {damaged} of field \"image\": ")), "{text}");
        damaged_frames[damaged] = encoded(2, 0);
        let text = failed(clip(&damaged_frames));
        let cause = if damaged == 0 { "frame 1 of field \"image\" has 43x49" } else { "has 46x48 pixels" };
        assert!(text.contains(cause) && text.contains("must have the same size"), "{text}");
    }
    for count in [0, 9, 11] {
        let text = failed(clip(&frames(1, count)));
        assert!(text.contains(&format!("field \"image\" has {count} frames: expected 10")), "{text}");
    }
    let cut = Frames::encode(&good);
    let text =
        failed(loader_of_one("top", cut[..cut.len() - 1].to_vec()).field("image", Image::from_field("top").frames(10)));
    assert!(text.contains("field \"image\": frame 9 claims bytes"), "{text}");
    let text = failed(loader_of_one("top", encoded(0, 0)).field("image", Image::from_field("top").frames(1)));
    assert!(text.contains("field \"image\": not a list of frames: it starts with \"\\xff\\xd8"), "{text}");
    let text = failed(loader_of_one("image", Frames::encode(&good)));
    assert!(text.contains("field \"image\" is a clip, not a single image: use Image::frames(10)"), "{text}");
}

#[test]
fn a_failed_clip_is_replaced_and_damage_is_counted() {
    let frame = |clip: usize, damaged: bool| {
        let mut bytes = encoded(clip, 0);
        let offset = bytes.len() / 2;
        bytes[offset..offset + if damaged { 100 } else { 0 }].fill(0);
        bytes
    };
    let sample = |clip: usize| {
        let list = [frame(clip, false), frame(clip, true), frame(clip, true)];
        let list = if clip == 3 { &list[..2] } else { &list[..] };
        OwnedSample::new(clip.to_string()).field("image", Frames::encode(list)).label(clip as i64)
    };
    let loader = Loader::source(Memory::new((0..8).map(sample).collect())).batch_size(8).augment(Augment::eval(40, 32));
    let loader = loader.field("image", Image::new().frames(3)).on_error(OnError::Skip { max_skipped: 1 });
    let mut batches = loader.clone().host().unwrap();
    let mut epoch = batches.epoch(0);
    let batch = epoch.next().unwrap().unwrap();
    assert!(epoch.next().is_none());
    drop(epoch);
    assert_eq!(batch.ids().collect::<Vec<_>>(), [0, 1, 2, 4, 4, 5, 6, 7]);
    let each = 3 * 32 * 32 * 3;
    let bytes = batch.images().bytes();
    assert!(bytes[3 * each..][..each] == bytes[4 * each..][..each]);
    // In each clip except clip 3, two frames have the same damage as the single image.
    let single = |clip: usize| OwnedSample::new(clip.to_string()).field("jpg", frame(clip, true)).label(0);
    let singles = Loader::source(Memory::new((0..8).filter(|clip| *clip != 3).map(single).collect()));
    let mut singles = singles.augment(Augment::eval(40, 32)).host().unwrap();
    assert_eq!(singles.epoch(0).filter(Result::is_ok).count(), 1);
    let expected = 2 * singles.stats().damaged_images;
    assert!(
        expected >= 6 && batches.stats().damaged_images == expected,
        "{} and {expected}",
        batches.stats().damaged_images
    );
    let text = failed(loader.strict(true).on_error(OnError::Stop));
    assert!(text.contains("frame 1 of field \"image\"") && text.contains("strict"), "{text}");
}

#[test]
fn options_that_clips_do_not_support_are_refused() {
    let with = |augment: Augment| clips(2).augment(augment).soft_labels(10, 0.0);
    for mix in [Mix::mixup(0.2), Mix::cutmix(1.0)] {
        let text = open_error(with(Augment::train(16).mix(mix)));
        assert!(text.contains("field \"image\" is a clip of 2 frames, and clips cannot be mixed"), "{text}");
    }
    let jitter = || Augment::scale_jitter(16, 0.6, 1.8);
    let text = open_error(clips(2).augment(jitter().mosaic(Mosaic::new())));
    assert!(text.contains("cannot show several samples: remove Augment::mosaic"), "{text}");
    let text = open_error(clips(2).augment(jitter().copy_paste(CopyPaste::new())));
    assert!(text.contains("cannot show several samples: remove Augment::copy_paste"), "{text}");
    let text = open_error(clips(2).field("empty", Image::from_field("top").frames(0)));
    assert!(text.contains("field \"empty\" is a clip of 0 frames: expected at least 1"), "{text}");
    let text = open_error(clips(2).field("long", Image::from_field("top").frames(usize::MAX / 4)));
    assert!(text.contains("larger than the address space"), "{text}");
}

#[test]
fn the_memory_of_a_clip_does_not_grow_with_its_length() {
    let plan = |count: usize| {
        let batches = clips(count).augment(Augment::train(16)).prefetch(2).host().unwrap();
        let plan = batches.memory_plan();
        plan.host_bytes - plan.slots * 4 * count * 16 * 16 * 3
    };
    assert!(plan(64) <= plan(8) + 4096, "{} and {}", plan(64), plan(8));
    let limit = |bytes: usize| clips(16).augment(Augment::train(16)).prefetch(1).memory_limit(bytes);
    let min_limit = (1..200).map(|n| n << 18).find(|&bytes| limit(bytes).host().is_ok()).unwrap();
    assert!(rows(limit(min_limit), 0, "image") == rows(clips(16).augment(Augment::train(16)), 0, "image"));
}
