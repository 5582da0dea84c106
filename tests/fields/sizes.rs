//! Tests image sizes that change between epochs, for example for progressive resizing. An epoch
//! must have the same batches as in a loader with that fixed size. Slots must be large enough for
//! the largest size.

use std::sync::Arc;

use crate::reference_fields::npy;
use crate::support::exit_on_hang;
use warpfeed::batch::Field;
use warpfeed::decode::{Rect, Size};
use warpfeed::field::{DenseMap, FieldType, Input, Mask, RowMut};
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::transform::{Border, ImageMut, Mix};
use warpfeed::{Augment, Dtype, ErrorKind, HostBatch, Layout, Loader, Normalize, OnError, Result};

const SAMPLES: usize = 50;
const EPOCHS: u64 = 6;

fn size_of(n: usize) -> Size {
    Size::new(20 + n as u32 * 7 % 40, 20 + n as u32 * 11 % 30)
}

fn noise(n: usize, channels: usize) -> Vec<u8> {
    (0..size_of(n).area() as usize * channels).map(|i| (i * (n + 3) % 251) as u8 ^ (i >> 5) as u8).collect()
}

fn samples() -> Arc<Memory> {
    let sample = |n: usize| {
        let Size { width, height } = size_of(n);
        let (wide, narrow) = (format!("({height}, {width}, 3)"), format!("({height}, {width})"));
        let map: Vec<u8> = noise(n, 1).into_iter().flat_map(|v| f32::from(v).to_le_bytes()).collect();
        let sample = OwnedSample::new(n.to_string()).field("rgb.npy", npy("|u1", &wide, &noise(n, 3)));
        let mask = npy("|u1", &narrow, &noise(n, 1));
        let sample = sample.field("mask.npy", mask).field("map.npy", npy("<f4", &narrow, &map));
        sample.label(n as i64 % 5)
    };
    Arc::new(Memory::new((0..SAMPLES).map(sample).collect()))
}

fn loader(samples: &Arc<Memory>) -> Loader {
    Loader::source(samples.clone()).shuffle(4).batch_size(8)
}

fn with_fields(samples: &Arc<Memory>) -> Loader {
    loader(samples).field("mask", Mask::new(Dtype::I64)).field("map", DenseMap::new()).prefetch(3)
}

fn sized() -> Vec<Augment> {
    let wide = || Augment::resize(31, 9).flip(0.5);
    vec![Augment::train(12), Augment::train(24), Augment::train(24).flip(0.0), wide(), Augment::train(12), wide()]
}

fn growing(sized: Vec<Augment>) -> Augment {
    let mut sized = sized.into_iter();
    let first = sized.next().unwrap();
    sized.zip(1..).fold(first, |sum, (augment, epoch)| sum.from_epoch(epoch, augment))
}

type Content = (Vec<u64>, Vec<(String, Vec<usize>, Vec<u8>)>);

fn content(batch: Result<HostBatch>) -> Content {
    let batch = batch.unwrap();
    let array = |field: &Field| {
        let view = batch.field(&field.name).unwrap();
        assert_eq!(view.shape()[1..], field.shape);
        (field.name.clone(), view.shape().to_vec(), view.bytes().to_vec())
    };
    (batch.ids().collect(), batch.fields().map(array).collect())
}

fn expected(open: impl Fn(Augment) -> Loader, augments: Vec<Augment>) -> Vec<Vec<Content>> {
    let epoch = |(augment, epoch)| open(augment).host().unwrap().epoch(epoch).map(content).collect();
    augments.into_iter().zip(0..).map(epoch).collect()
}

#[test]
fn batches_of_an_epoch_equal_those_of_a_loader_with_its_size() {
    exit_on_hang(|| {
        let samples = samples();
        let plain = |augment| with_fields(&samples).augment(augment);
        let converted = |augment: Augment| {
            let loader = plain(augment).dtype(Dtype::F16).layout(Layout::Nchw).normalize(Normalize::IMAGENET);
            loader.transform(|image: &mut ImageMut<'_>, _: &mut Rng| {
                image.data_mut().iter_mut().for_each(|v| *v = v.wrapping_add(1));
                Ok(())
            })
        };
        let moved = |augment| converted(augment).transform_moves_pixels(false);
        let opens: [&dyn Fn(Augment) -> Loader; 2] = [&plain, &moved];
        for open in opens {
            let expected = expected(open, sized());
            let shapes: Vec<_> = expected.iter().map(|epoch| epoch[0].1[0].1.clone()).collect();
            let nchw = shapes[0][1] == 3;
            assert_eq!(shapes[3], if nchw { [8, 3, 9, 31] } else { [8, 9, 31, 3] });
            for (workers, prefetch) in [(1, 1), (3, 9)] {
                let mut batches = open(growing(sized())).workers(workers).prefetch(prefetch).host().unwrap();
                for epoch in [0, 1, 2, 3, 4, 5, 5, 1, 4, 2, 3] {
                    let actual: Vec<_> = batches.epoch(epoch).map(content).collect();
                    assert!(actual == expected[epoch as usize], "epoch {epoch}, {workers} workers");
                }
            }
        }
    });
}

#[test]
fn mixed_images_and_views_have_the_size_of_their_epoch() {
    exit_on_hang(|| {
        let samples = samples();
        let mixed =
            || -> Vec<Augment> { sized().into_iter().map(|augment| augment.mix(Mix::either(0.2, 1.0))).collect() };
        let open = |augment| loader(&samples).augment(augment).soft_labels(5, 0.1).dtype(Dtype::F32);
        let mut batches = open(growing(mixed())).workers(2).host().unwrap();
        for (epoch, expected) in (0..).zip(expected(open, mixed())) {
            assert!(batches.epoch(epoch).map(content).collect::<Vec<_>>() == expected, "epoch {epoch}");
        }
        let reversed = || -> Vec<Augment> { sized().into_iter().rev().collect() };
        let views = |views: [Augment; 3]| loader(&samples).views(views);
        let still = || Augment::resize(7, 7);
        let mut batches = views([growing(sized()), growing(reversed()), still()]).workers(2).host().unwrap();
        for (epoch, (first, second)) in (0..).zip(sized().into_iter().zip(reversed())) {
            let alone = views([first, second, still()]).host().unwrap().epoch(epoch).map(content).collect::<Vec<_>>();
            assert!(batches.epoch(epoch).map(content).collect::<Vec<_>>() == alone, "epoch {epoch}");
        }
    });
}

#[test]
fn ranks_and_a_resumed_run_have_the_size_of_the_epoch() {
    exit_on_hang(|| {
        let samples = samples();
        for world in [1, 3] {
            for rank in 0..world {
                let open = |augment| with_fields(&samples).augment(augment).rank(rank, world);
                let unbroken = expected(open, sized());
                for (epoch, count) in [(0, 1), (2, unbroken[2].len()), (3, 1)] {
                    let mut batches = open(growing(sized())).workers(2).host().unwrap();
                    for number in 0..epoch {
                        assert_eq!(batches.epoch(number).count(), unbroken[number as usize].len());
                    }
                    assert_eq!(batches.epoch(epoch).take(count).count(), count);
                    let state = batches.checkpoint();
                    let mut again = open(growing(sized())).workers(1).resume(state).host().unwrap();
                    for number in again.first_epoch()..EPOCHS {
                        let skipped = if number == epoch { count } else { 0 };
                        let actual: Vec<_> = again.epoch(number).map(content).collect();
                        assert!(actual == unbroken[number as usize][skipped..], "epoch {number} of rank {rank}");
                    }
                }
            }
        }
    });
}

#[test]
fn slots_have_room_for_the_largest_size() {
    let samples = samples();
    let plan = |augment: Augment| with_fields(&samples).augment(augment).host().unwrap().memory_plan();
    let largest = sized().into_iter().map(|augment| plan(augment).slot_bytes).max().unwrap();
    let grown = plan(growing(sized()));
    assert_eq!(grown.slot_bytes, largest);
    assert_eq!(grown.host_bytes, plan(Augment::train(24)).host_bytes);
    let limited = |augment, bytes| with_fields(&samples).augment(augment).workers(1).memory_limit(bytes).host();
    let min_limit = grown.host_bytes + grown.worker_scratch_bytes;
    assert!(limited(Augment::train(12).from_epoch(90, Augment::train(12)), min_limit).is_ok());
    let e = limited(Augment::train(12).from_epoch(90, Augment::train(2000)), min_limit).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Memory);
    // A slot holds 8 images, masks of i64 and maps of f32.
    let bytes = 8 * 2000 * 2000 * (3 + 8 + 4) + 256;
    assert!(e.to_string().contains(&format!("{:.1} MiB", f64::from(bytes) / f64::from(1 << 20))), "{e}");
}

#[test]
fn images_in_their_original_sizes_are_unchanged() {
    exit_on_hang(|| {
        let samples = samples();
        let area = Rect::full(Size::new(60, 50));
        let open = |augment: Augment| with_fields(&samples).augment(augment.fill([1, 2, 3])).on_error(OnError::Stop);
        for (workers, flip) in [(1, 0.0), (3, 1.0)] {
            let mut batches = open(Augment::pad_to(60, 50).flip(flip)).workers(workers).host().unwrap();
            for batch in batches.epoch(1) {
                let batch = batch.unwrap();
                let images = batch.images().as_u8().unwrap();
                let masks = batch.field("mask").unwrap();
                let masks = masks.as_i64().unwrap();
                for ((place, id), shown) in batch.ids().enumerate().zip(batch.image_areas()) {
                    let size = size_of(id as usize);
                    assert_eq!(shown, Rect::new(0, 0, size.width, size.height));
                    let (pixels, mask) = (noise(id as usize, 3), noise(id as usize, 1));
                    for (x, y) in (0..area.height).flat_map(|y| (0..area.width).map(move |x| (x, y))) {
                        let index = ((place as u32 * 50 + y) * 60 + x) as usize;
                        let inside = x < size.width && y < size.height;
                        let from = if flip > 0.0 { size.width.wrapping_sub(1).wrapping_sub(x) } else { x };
                        let from = (y * size.width).wrapping_add(from) as usize;
                        let pixel = if inside { &pixels[from * 3..][..3] } else { &[1, 2, 3] };
                        assert_eq!(&images[index * 3..][..3], pixel, "sample {id} at ({x}, {y})");
                        assert_eq!(masks[index], if inside { i64::from(mask[from]) } else { 0 });
                    }
                }
            }
        }
        let small = || Augment::pad_to(40, 40);
        let e = open(small()).into_iter().find_map(Result::err).unwrap();
        let named =
            samples_larger_than(40).map(|n| format!("sample {n} ({n})")).find(|name| e.to_string().contains(name));
        assert!(named.is_some() && e.to_string().contains("but Augment::pad_to allows at most 40x40"), "{e}");
        let mut skipped = 0;
        for batch in open(small()).batch_size(25).on_error(OnError::Skip { max_skipped: 50 }) {
            let batch = batch.unwrap();
            let valid: Vec<bool> = batch.valid().collect();
            for (place, (id, shown)) in batch.ids().zip(batch.image_areas()).enumerate() {
                // The next valid sample replaces one that is too large.
                let donor = (0..batch.len()).map(|d| (place + d) % batch.len()).find(|&place| valid[place]).unwrap();
                let donor = batch.ids().nth(donor).unwrap();
                assert!(donor == id && shown.size() == size_of(donor as usize), "{id} {shown:?}");
            }
            skipped += valid.iter().filter(|valid| !**valid).count();
        }
        assert_eq!(skipped, samples_larger_than(40).count());
        for batch in open(small().shrink_larger()) {
            let batch = batch.unwrap();
            for (id, shown) in batch.ids().zip(batch.image_areas()) {
                let size = size_of(id as usize);
                let fits = size.width <= 40 && size.height <= 40;
                assert!(if fits { shown.size() == size } else { shown.width == 40 || shown.height == 40 }, "{id}");
            }
        }
    });
}

fn samples_larger_than(side: u32) -> impl Iterator<Item = usize> {
    (0..SAMPLES).filter(move |&n| size_of(n).width > side || size_of(n).height > side)
}

#[derive(Debug)]
struct Odd(fn(Size) -> Vec<(Dtype, Vec<usize>)>);

impl FieldType for Odd {
    fn describe_arrays(&self, name: &str, output_size: Size) -> Result<Vec<Field>> {
        let named = |(number, (dtype, shape))| Field { name: format!("{name}.{number}"), dtype, shape };
        Ok((self.0)(output_size).into_iter().enumerate().map(named).collect())
    }

    fn write(&self, _: &Input<'_>, place: &mut RowMut<'_>) -> Result<()> {
        place.bytes(0).fill(7);
        Ok(())
    }
}

#[test]
fn only_axis_lengths_may_depend_on_the_image_size() {
    let samples = samples();
    let open = |odd: fn(Size) -> Vec<(Dtype, Vec<usize>)>| {
        let augment = Augment::train(12).from_epoch(2, Augment::train(16));
        loader(&samples).augment(augment).field("odd", Odd(odd)).host()
    };
    let mut batches = open(|size| vec![(Dtype::U8, vec![size.width as usize])]).unwrap();
    let shapes =
        [0, 2].map(|epoch| batches.epoch(epoch).next().unwrap().unwrap().field("odd.0").unwrap().shape().to_vec());
    assert_eq!(shapes, [[8, 12], [8, 16]]);
    let refused = |odd| {
        let e = open(odd).map(drop).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Config);
        e.cause().to_owned()
    };
    let dtype = refused(|size| vec![(if size.width > 12 { Dtype::F32 } else { Dtype::U8 }, vec![3])]);
    assert!(dtype.contains("field \"odd.0\" is uint8 [3]") && dtype.contains("is float32 [3]"), "{dtype}");
    let axes = refused(|size| vec![(Dtype::U8, vec![3; 1 + usize::from(size.width > 12)])]);
    assert!(
        axes.contains("\"odd.0\" is uint8 [3, 3] for a different one: only the lengths of axes may differ"),
        "{axes}"
    );
    let number = refused(|size| vec![(Dtype::U8, vec![3]); 1 + usize::from(size.width > 12)]);
    assert!(number.contains("the fields have 3 arrays for one image size and 4 for a different one"), "{number}");
}

fn rotate(image: &mut ImageMut<'_>, _: &mut Rng) -> Result<()> {
    let pixels = image.data().as_chunks::<3>().0.to_vec();
    image.pixels_mut().zip(pixels.into_iter().rev()).for_each(|(to, from)| *to = from);
    Ok(())
}

#[test]
fn a_custom_transform_gets_the_image_without_its_padding() {
    let samples = samples();
    for augment in [
        Augment::pad_to(64, 56).fill([1, 2, 3]).flip(0.5),
        Augment::letterbox(41, 37).fill([1, 2, 3]),
        Augment::scale_jitter(40, 0.3, 0.9).fill([1, 2, 3]),
        Augment::train(20),
    ] {
        for channels in [3, 1] {
            for dtype in [Dtype::U8, Dtype::F32] {
                let loader = || loader(&samples).augment(augment.clone()).channels(channels).dtype(dtype);
                let width = augment.output_size().width as usize;
                let each = dtype.bytes() * channels;
                let mut filled = 0;
                for (plain, rotated) in loader().into_iter().zip(loader().transform(rotate)) {
                    let (plain, rotated) = (plain.unwrap(), rotated.unwrap());
                    assert!(plain.image_areas().eq(rotated.image_areas()));
                    let image = augment.output_size().area() as usize * each;
                    let images = plain.images().bytes().chunks(image).zip(rotated.images().bytes().chunks(image));
                    for (part, (plain, rotated)) in plain.image_areas().zip(images) {
                        let Rect { x, y, width: w, height: h } = part;
                        for (place, pixel) in rotated.chunks(each).enumerate() {
                            let point = ((place % width) as u32, (place / width) as u32);
                            let inside = (x..x + w).contains(&point.0) && (y..y + h).contains(&point.1);
                            let (column, row) =
                                if inside { (2 * x + w - 1 - point.0, 2 * y + h - 1 - point.1) } else { point };
                            let from = (row as usize * width + column as usize) * each;
                            assert!(pixel == &plain[from..][..each], "{augment:?} at {point:?} of {part:?}");
                            filled += usize::from(!inside);
                        }
                    }
                }
                assert_eq!(filled == 0, augment == Augment::train(20));
            }
        }
    }
}

#[test]
fn a_custom_transform_gets_padding_inside_the_image() {
    let samples = samples();
    let area = Rect::new(0, 0, 48, 48);
    for augment in [
        Augment::letterbox(48, 48).rotate(30.0),
        Augment::random_crop(48).padding(4).pad_if_needed(),
        Augment::random_crop(48).padding(4).padding_mode(Border::Edge).pad_if_needed(),
    ] {
        let check = |image: &mut ImageMut<'_>, _: &mut Rng| {
            assert_eq!((image.width(), image.height()), (48, 48));
            Ok(())
        };
        let loader = loader(&samples).augment(augment);
        let parts = |loader: Loader| -> Vec<Rect> {
            loader.into_iter().flat_map(|batch| batch.unwrap().image_areas().collect::<Vec<_>>()).collect()
        };
        assert!(parts(loader.clone().transform(check)).iter().all(|part| *part == area));
        let plain = parts(loader.clone());
        assert!(plain.iter().any(|part| *part != area));
        assert!(parts(loader.transform(check).transform_moves_pixels(false)) == plain);
    }
}
