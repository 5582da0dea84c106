//! Tests annotations with a value for each frame of a clip. The values of a frame must equal the
//! values that a loader reads from this frame as a single image. Errors must name the frame.

use crate::support::check_resume;
use warpfeed::decode::Size;
use warpfeed::field::{Boxes, DenseMap, Image, Keypoints, Mask};
use warpfeed::source::{Frames, Memory, OwnedSample};
use warpfeed::transform::CopyPaste;
use warpfeed::{Augment, Dtype, HostBatch, Layout, Loader, OnError, Result};

use crate::reference_fields::{image, npy};

const CLIPS: usize = 10;

const ARRAYS: [&str; 9] =
    ["mask", "depth", "flow", "points", "boxes", "boxes.count", "boxes.class", "boxes.masks", "boxes.points"];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stored {
    List,
    Array,
}

fn size(clip: usize) -> Size {
    Size::new(40 + clip as u32 * 3, 50 - clip as u32)
}

fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

type Array = (&'static str, Vec<usize>, Vec<u8>);

/// Returns the array of a frame. The arguments are the numbers of the clip and of the frame.
type OfFrame = fn(usize, usize) -> Array;

fn of_array((descr, shape, data): &Array) -> Vec<u8> {
    let shape: Vec<_> = shape.iter().map(|side| format!("{side},")).collect();
    npy(descr, &format!("({})", shape.concat()), data)
}

fn mask(clip: usize, frame: usize) -> Array {
    let Size { width, height } = size(clip);
    let values = (0..width * height).map(|at| ((at * 7 + at / 11) as usize + frame * 31 + clip) as u8).collect();
    ("|u1", vec![height as usize, width as usize], values)
}

fn depth(clip: usize, frame: usize) -> Array {
    let Size { width, height } = size(clip);
    let values: Vec<f32> = (0..width * height).map(|at| (at % 97) as f32 + 100.0 * frame as f32).collect();
    ("<f4", vec![height as usize, width as usize], bytes(&values))
}

fn flow(clip: usize, frame: usize) -> Array {
    let Size { width, height } = size(clip);
    let values: Vec<f32> = (0..2 * width * height).map(|at| (at % 13) as f32 - frame as f32).collect();
    ("<f4", vec![height as usize, width as usize, 2], bytes(&values))
}

fn points(clip: usize, frame: usize) -> Array {
    let (clip, frame) = (clip as f32, frame as f32);
    ("<f4", vec![2, 2], bytes(&[3.5 + frame, 20.0 - clip, 31.0, 8.0 + frame]))
}

fn boxes(clip: usize, frame: usize) -> Vec<[u32; 4]> {
    let at = frame as u32 % 5;
    let all = [[at, 2, at + 20, 30], [5, 3 + at, 39, 41 - clip as u32], [12, 12, 20, 20 + at]];
    all[..(frame + clip) % 4].to_vec()
}

fn json(values: impl IntoIterator<Item = impl std::fmt::Debug>) -> String {
    format!("{:?}", values.into_iter().collect::<Vec<_>>())
}

fn polygons(boxes: &[[u32; 4]]) -> String {
    let polygon = |[x, y, right, bottom]: &[u32; 4]| vec![vec![*x, *y, *right, *y, *right, *bottom]];
    json(boxes.iter().map(polygon))
}

fn box_points(boxes: &[[u32; 4]]) -> String {
    json(boxes.iter().map(|[x, y, right, bottom]| [[*x, *y, 2], [*right, *bottom, 1]]))
}

fn box_fields(clip: usize, frame: usize) -> [(&'static str, String); 4] {
    let boxes = boxes(clip, frame);
    let classes = json((0..boxes.len()).map(|number| number + 10 * frame));
    [
        ("boxes.json", json(&boxes)),
        ("boxes.class.json", classes),
        ("boxes.masks.json", polygons(&boxes)),
        ("boxes.points.json", box_points(&boxes)),
    ]
}

fn annotated_fields(loader: Loader, frames: Option<usize>) -> Loader {
    let (mut mask, mut depth) = (Mask::new(Dtype::I32).fill(7), DenseMap::new().fill(-1.0));
    let mut flow = DenseMap::flow().layout(Layout::Nchw);
    let mut points = Keypoints::new(2).flip_pairs([(0, 1)]);
    let mut boxes = Boxes::new(4).column("class", Dtype::I64).masks().points(2).flip_pairs([(0, 1)]);
    if let Some(frames) = frames {
        (mask, depth, flow) = (mask.frames(frames), depth.frames(frames), flow.frames(frames));
        (points, boxes) = (points.frames(frames), boxes.frames(frames));
    }
    let loader = loader.field("mask", mask).field("depth", depth).field("flow", flow);
    loader.field("points", points).field("boxes", boxes).batch_size(4).shuffle(3).seed(5)
}

fn clip(clip: usize, count: usize, stored: Stored) -> OwnedSample {
    let frames: Vec<_> = (0..count).map(|_| image(size(clip))).collect();
    let mut sample = OwnedSample::new(clip.to_string()).field("top", Frames::encode(&frames)).label(0);
    let arrays: [(&str, OfFrame); 4] = [("mask", mask), ("depth", depth), ("flow", flow), ("points", points)];
    for (name, array) in arrays {
        let each: Vec<_> = (0..count).map(|frame| array(clip, frame)).collect();
        let content = match stored {
            Stored::List => Frames::encode(&each.iter().map(of_array).collect::<Vec<_>>()),
            Stored::Array => {
                let shape = [&[count], &each[0].1[..]].concat();
                of_array(&(each[0].0, shape, each.iter().flat_map(|array| array.2.clone()).collect()))
            }
        };
        sample = sample.field(name, content);
    }
    for number in 0..4 {
        let each: Vec<_> = (0..count).map(|frame| box_fields(clip, frame)[number].1.clone()).collect();
        let name = box_fields(clip, 0)[number].0;
        sample = match stored {
            Stored::List => sample.field(name, Frames::encode(&each)),
            Stored::Array => sample.field(name, format!("[{}]", each.join(", "))),
        };
    }
    sample
}

fn clips(count: usize, stored: Stored) -> Loader {
    let loader = Loader::source(Memory::new((0..CLIPS).map(|number| clip(number, count, stored)).collect()));
    annotated_fields(loader.field("image", Image::from_field("top").frames(count)), Some(count))
}

fn singles(frame: usize) -> Loader {
    let sample = |clip: usize| {
        let sample = OwnedSample::new(clip.to_string()).field("img", image(size(clip))).label(0);
        let arrays = [("mask", mask(clip, frame)), ("depth", depth(clip, frame)), ("flow", flow(clip, frame))];
        let sample = arrays.iter().fold(sample, |sample, (name, array)| sample.field(*name, of_array(array)));
        let sample = sample.field("points", of_array(&points(clip, frame)));
        box_fields(clip, frame).into_iter().fold(sample, |sample, (name, text)| sample.field(name, text))
    };
    annotated_fields(Loader::source(Memory::new((0..CLIPS).map(sample).collect())), None)
}

fn rows(batch: Result<HostBatch>) -> Vec<[Vec<u8>; ARRAYS.len()]> {
    let batch = batch.unwrap();
    let row = |row: usize| {
        ARRAYS.map(|name| {
            let bytes = batch.field(name).expect(name).bytes();
            let each = bytes.len() / batch.len();
            bytes[row * each..][..each].to_vec()
        })
    };
    (0..batch.len()).map(row).collect()
}

fn epoch(loader: Loader, epoch: u64) -> Vec<[Vec<u8>; ARRAYS.len()]> {
    loader.host().unwrap().epoch(epoch).flat_map(rows).collect()
}

#[test]
fn each_frame_has_the_annotations_of_a_loader_that_reads_it_alone() {
    for augment in [
        Augment::train(24),
        Augment::eval(40, 32),
        Augment::letterbox(30, 20).flip(0.5),
        Augment::random_crop(36).padding(6).pad_if_needed().flip(0.5).vertical_flip(0.5).rotate(20.0),
    ] {
        for count in [1, 3, 11] {
            let read = |stored| epoch(clips(count, stored).augment(augment.clone()).workers(3), 1);
            let found = read(Stored::Array);
            assert_eq!(found.len(), CLIPS);
            assert!(found == read(Stored::List), "{count} frames, {augment:?}");
            for frame in 0..count {
                let expected = epoch(singles(frame).augment(augment.clone()).workers(1), 1);
                for (row, (clip, single)) in found.iter().zip(expected).enumerate() {
                    for (array, single) in single.iter().enumerate() {
                        let each = clip[array].len() / count;
                        let of_frame = &clip[array][frame * each..][..each];
                        assert!(of_frame == single, "{} of frame {frame}, row {row}, {augment:?}", ARRAYS[array]);
                    }
                }
            }
        }
    }
}

#[test]
fn the_frames_are_an_axis_of_each_array() {
    let mut batches = clips(3, Stored::List).augment(Augment::resize(24, 20)).host().unwrap();
    let batch = batches.epoch(0).next().unwrap().unwrap();
    for (name, shape) in [
        ("mask", &[4, 3, 20, 24][..]),
        ("depth", &[4, 3, 20, 24]),
        ("flow", &[4, 3, 2, 20, 24]),
        ("points", &[4, 3, 2, 2]),
        ("boxes", &[4, 3, 4, 4]),
        ("boxes.count", &[4, 3]),
        ("boxes.class", &[4, 3, 4]),
        ("boxes.masks", &[4, 3, 4, 20, 24]),
        ("boxes.points", &[4, 3, 4, 2, 3]),
    ] {
        assert_eq!(batch.field(name).unwrap().shape(), shape, "{name}");
    }
    let counts: Vec<_> = batch
        .sample_keys()
        .flat_map(|key| (0..3).map(move |frame| (frame + key.parse::<i64>().unwrap()) % 4))
        .collect();
    assert_eq!(batch.counts("boxes").unwrap(), counts);
}

#[test]
fn annotations_of_frames_resume_and_are_divided_among_ranks() {
    let loader = || clips(3, Stored::List).augment(Augment::train(16));
    check_resume(loader, |batch| ARRAYS.map(|name| batch.field(name).expect(name).bytes().to_vec()));
    let mut divided: Vec<_> = (0..2).flat_map(|rank| epoch(loader().rank(rank, 2), 1)).collect();
    let mut expected = epoch(loader(), 1);
    divided.sort();
    expected.sort();
    assert!(divided == expected);
}

#[test]
fn a_sample_with_a_damaged_annotation_of_a_frame_is_replaced() {
    let damaged = |number: usize| {
        let sample = clip(number, 3, Stored::List);
        let masks: Vec<_> = (0..3).map(|frame| of_array(&mask(number, frame))).collect();
        let cut = [&masks[0][..], &masks[1][..200], &masks[2]];
        if number == 2 {
            sample.field("other", Frames::encode(&cut))
        } else {
            sample.field("other", Frames::encode(&masks))
        }
    };
    let loader = Loader::source(Memory::new((0..4).map(damaged).collect())).augment(Augment::train(16));
    let loader = annotated_fields(loader.field("image", Image::from_field("top").frames(3)), Some(3)).workers(2);
    let loader = loader.field("second", Mask::new(Dtype::I32).source_field("other").frames(3));
    let text = loader.clone().host().unwrap().epoch(0).next().unwrap().unwrap_err().to_string();
    assert!(text.contains("sample 2") && text.contains("frame 1: field \"other\""), "{text}");
    let mut batches = loader.on_error(OnError::Skip { max_skipped: 1 }).host().unwrap();
    let batch = batches.epoch(0).next().unwrap().unwrap();
    let ids: Vec<_> = batch.ids().collect();
    assert!(!ids.contains(&2), "{ids:?}");
    let rows = rows(Ok(batch));
    for (row, id) in ids.iter().enumerate() {
        let first = ids.iter().position(|other| other == id).unwrap();
        assert!(rows[row] == rows[first], "{ids:?}");
    }
}

#[test]
fn annotations_must_have_a_value_for_each_frame() {
    let load = |name: &'static str, content: Vec<u8>, with: fn(Loader) -> Loader| {
        let frames: Vec<_> = (0..3).map(|_| image(size(0))).collect();
        let sample = OwnedSample::new("a").field("top", Frames::encode(&frames)).field(name, content).label(0);
        let loader = Loader::source(Memory::new(vec![sample])).augment(Augment::resize(8, 8));
        let loader = with(loader.field("image", Image::from_field("top").frames(3)));
        loader.host().unwrap().epoch(0).next().unwrap().map(drop).map_err(|e| e.to_string())
    };
    let masks = |count: usize| Frames::encode(&(0..count).map(|frame| of_array(&mask(0, frame))).collect::<Vec<_>>());
    let of_frames: fn(Loader) -> Loader = |loader| loader.field("mask", Mask::new(Dtype::U8).frames(3));
    let one: fn(Loader) -> Loader = |loader| loader.field("mask", Mask::new(Dtype::U8));
    let boxes: fn(Loader) -> Loader = |loader| loader.field("boxes", Boxes::new(2).frames(3));
    let box_of_clip: fn(Loader) -> Loader = |loader| loader.field("boxes", Boxes::new(2));
    load("mask", masks(3), of_frames).unwrap();
    load("boxes.json", b"[[[1, 1, 2, 2]], [], []]".to_vec(), boxes).unwrap();
    let wrong_size = ("|u1", vec![4, 4], vec![0; 16]);
    let wrong = Frames::encode(&[of_array(&mask(0, 0)), of_array(&wrong_size), of_array(&mask(0, 2))]);
    let half = ("<f2", vec![3, 50, 40], vec![0; 2 * 3 * 50 * 40]);
    let single = "has a single value: expected 3, one for each frame";
    for (name, content, with, expected) in [
        (
            "mask",
            masks(2),
            of_frames,
            "field \"mask\" has values for 2 frames: expected 3, one for each frame of \"image\"",
        ),
        ("mask", masks(4), of_frames, "field \"mask\" has values for 4 frames: expected 3"),
        ("mask", of_array(&mask(0, 0)), of_frames, "field \"mask\" has values for 50 frames: expected 3"),
        ("mask.png", b"\x89PNG\r\n\x1a\n".to_vec(), of_frames, single),
        ("mask", wrong, of_frames, "frame 1: field \"mask\": annotations are for 4x4 pixels, but the image has 40x50"),
        ("mask", of_array(&half), of_frames, "frame 0: field \"mask\" is an .npy array of"),
        ("mask", masks(3), one, "is not in a supported format"),
        (
            "boxes.json",
            b"[[[1, 1, 2, 2]], [[0, 0, 50, 9]], []]".to_vec(),
            boxes,
            "frame 1: field \"boxes.json\": box 0: x ranges",
        ),
        ("boxes.json", b"[[1, 1, 2, 2]]".to_vec(), boxes, "field \"boxes.json\" has values for 1 frames: expected 3"),
        ("boxes.json", b"{".to_vec(), boxes, "field \"boxes.json\" is not a JSON list of frames"),
        ("boxes.txt", b"1 1 2 2".to_vec(), boxes, single),
        ("boxes", vec![0; 16], boxes, single),
        ("boxes", masks(3), box_of_clip, "field \"boxes\" has a value for each frame of a clip"),
        (
            "boxes.json",
            b"[[], [[1,1,2,2],[1,1,2,2],[1,1,2,2]], []]".to_vec(),
            boxes,
            "frame 1: field \"boxes\": 3 boxes remain",
        ),
    ] {
        let text = load(name, content, with).unwrap_err();
        assert!(text.contains(expected) && text.contains("sample 0"), "{expected}: {text}");
    }
}

#[test]
fn options_that_annotations_of_frames_do_not_support_are_refused() {
    let refused = |loader: Loader| loader.host().expect_err("opening fails").to_string();
    let text = refused(clips(3, Stored::List).field("mask", Mask::new(Dtype::U8).frames(2)));
    assert!(text.contains("field \"mask\" has annotations of 2 frames, but no image field has 2 frames"), "{text}");
    let view = Image::from_field("top").frames(2).augment(Augment::resize(8, 8));
    let text = refused(clips(3, Stored::List).field("mask", Mask::new(Dtype::U8).frames(2)).field("view", view));
    assert!(text.contains("no image field has 2 frames"), "{text}");
    let text = refused(clips(3, Stored::List).field("mask", Mask::new(Dtype::U8).frames(0)));
    assert!(text.contains("field \"mask\" has annotations of 0 frames: expected at least 1"), "{text}");
    let text = refused(clips(3, Stored::List).augment(Augment::iou_crop(16, 16)));
    assert!(
        text.contains("iou_crop needs the boxes of one image, but field \"boxes\" has boxes for each frame"),
        "{text}"
    );
    let pasted = Augment::scale_jitter(16, 0.6, 1.8).copy_paste(CopyPaste::new());
    let text = refused(clips(3, Stored::List).augment(pasted));
    assert!(text.contains("remove Augment::copy_paste"), "{text}");
    let text = refused(clips(3, Stored::List).field("depth", DenseMap::new().image().frames(3)));
    assert!(text.contains("DenseMap::image reads one image, but DenseMap::frames(3) needs 3 maps"), "{text}");
}

#[test]
fn the_memory_of_annotations_does_not_grow_with_the_number_of_frames() {
    let plan = |count: usize| {
        let mut batches = clips(count, Stored::List).augment(Augment::train(16)).prefetch(2).host().unwrap();
        let bytes: usize = batches
            .epoch(0)
            .next()
            .unwrap()
            .unwrap()
            .fields()
            .map(|field| field.shape.iter().product::<usize>() * field.dtype.bytes())
            .sum();
        let plan = batches.memory_plan();
        plan.host_bytes - plan.slots * 4 * bytes
    };
    assert!(plan(40) <= plan(8) + 16384, "{} and {}", plan(40), plan(8));
}
