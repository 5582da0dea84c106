//! Tests the arrays of a batch. Each must have the declared type and shape, and values that follow
//! from the `u8` images by the documented formula.

use crate::reference::{self, Ops};
use crate::support::{self, NumberCodec, NumberSource, loader, reference_epoch, refused};
use half::{bf16, f16};
use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use warpfeed::field;
use warpfeed::format::Format;
use warpfeed::sampler::{Rng, Sampler as _, Shuffled};
use warpfeed::source::{Memory, OwnedSample, Source as _};
use warpfeed::transform::{Augment, Mix, Mixing, RandomErasing};
use warpfeed::{Dtype, HostBatch, Layout, Loader, Normalize, OnError};

const SIDE: usize = 16;
const DTYPES: [Dtype; 4] = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16];

fn first(loader: Loader) -> HostBatch {
    loader.into_iter().next().unwrap().unwrap()
}

fn expected(images: &[u8], n: usize, p: usize, c: usize) -> f32 {
    let (scale, bias) = Normalize::IMAGENET.scale_bias();
    scale[c].mul_add(f32::from(images[(n * SIDE * SIDE + p) * 3 + c]), bias[c])
}

#[test]
fn every_float_dtype_and_layout_holds_the_normalized_pixels() {
    let source = NumberSource::new(7);
    let pixels = reference_epoch(&source, NumberCodec, &Augment::train(SIDE as u32), None, 0, 7).remove(0).images;
    for layout in [Layout::Nhwc, Layout::Nchw] {
        let index_of = |n: usize, p: usize, c: usize| match layout {
            Layout::Nhwc => (n * SIDE * SIDE + p) * 3 + c,
            Layout::Nchw => (n * 3 + c) * SIDE * SIDE + p,
        };
        let make = |dtype| first(loader(source.clone()).normalize(Normalize::IMAGENET).dtype(dtype).layout(layout));
        let (f32s, f16s, bf16s) = (make(Dtype::F32), make(Dtype::F16), make(Dtype::Bf16));
        let shape = if layout == Layout::Nhwc { [7, SIDE, SIDE, 3] } else { [7, 3, SIDE, SIDE] };
        assert_eq!(f32s.images().shape(), shape);
        for n in 0..7 {
            for p in 0..SIDE * SIDE {
                for c in 0..3 {
                    let value = expected(&pixels, n, p, c);
                    assert_eq!(f32s.images().as_f32().unwrap()[index_of(n, p, c)], value);
                    assert_eq!(f16s.images().as_f16().unwrap()[index_of(n, p, c)], f16::from_f32(value));
                    assert_eq!(bf16s.images().as_bf16().unwrap()[index_of(n, p, c)], bf16::from_f32(value));
                }
            }
        }
        assert!(f32s.images().as_u8().is_none() && f32s.images().as_f16().is_none());
    }
}

#[test]
fn normalize_gives_floats_and_the_default_is_bytes() {
    let dtype = |loader| first(loader).images().dtype();
    assert_eq!(dtype(loader(NumberSource::new(7))), Dtype::U8);
    assert_eq!(dtype(loader(NumberSource::new(7)).normalize(Normalize::IMAGENET)), Dtype::F32);
    assert_eq!(dtype(loader(NumberSource::new(7)).normalize(Normalize::IMAGENET).dtype(Dtype::F16)), Dtype::F16);
}

#[test]
fn labels_ids_and_keys_belong_to_their_images() {
    let batch = first(loader(NumberSource::new(20)).sampler(warpfeed::sampler::Shuffled::new(20, 3)));
    let ids: Vec<u64> = batch.ids().collect();
    assert_eq!(batch.labels().unwrap(), ids.iter().map(|id| *id as i64 % 10).collect::<Vec<_>>());
    assert_eq!(
        batch.sample_keys().collect::<Vec<_>>(),
        ids.iter().map(|i| format!("class{}/{i:06}", i % 10)).collect::<Vec<_>>()
    );
    assert_eq!((batch.epoch(), batch.batch_index(), batch.len()), (0, 0, 7));
    assert!(batch.soft_labels().is_none() && batch.field("soft_label").is_none(), "soft labels were not requested");
    let batch = first(loader(NumberSource::new(20)).soft_labels(10, 0.0));
    let rows = batch.soft_labels().unwrap();
    assert_eq!((rows.shape(), rows.bytes()), (vec![7, 10], batch.field("soft_label").unwrap().bytes()));
    for (row, label) in rows.as_f32().unwrap().chunks(10).zip(batch.labels().unwrap()) {
        assert_eq!((row[*label as usize], row.iter().sum::<f32>()), (1.0, 1.0));
    }
}

#[test]
fn other_fields_are_delivered_with_the_batch() {
    let sample = |n: u8| {
        let embedding: Vec<u8> = [f32::from(n), 0.5].iter().flat_map(|v| v.to_le_bytes()).collect();
        OwnedSample::new(format!("{n}")).field("img", u64::from(n).to_le_bytes()).field("emb", embedding)
    };
    let source = Memory::new((0..5).map(sample).collect());
    let make = |shape: &[usize]| {
        Loader::source(source.clone())
            .codec(NumberCodec)
            .augment(Augment::train(16))
            .field("emb", field::NdArray::new(Dtype::F32, shape))
    };
    let batch = first(make(&[2]));
    let view = batch.field("emb").unwrap();
    assert_eq!((view.shape(), view.as_f32().unwrap()[2..4].to_vec()), (vec![5, 2], vec![1.0, 0.5]));
    assert!(batch.field("other").is_none());

    let e = make(&[3]).into_iter().next().unwrap().unwrap_err();
    assert_eq!(
        e.to_string(),
        "sample 0 (0): source: field \"emb\" has 8 bytes, but its dtype and shape need 12; it is read as an array without a \
         header, because its name does not end in npy, json or txt"
    );
    let e = make(&[2]).field("mask", field::NdArray::new(Dtype::U8, [1])).into_iter().next().unwrap().unwrap_err();
    assert!(e.to_string().contains("no field \"mask\" among"), "{e}");
}

#[test]
fn mixed_pixels_combine_each_image_with_its_partner() {
    let source = NumberSource::new(40);
    let plain: Vec<_> =
        loader(source.clone()).shuffle(2).into_iter().map(|b| support::BatchContent::from(&b.unwrap())).collect();
    for (mix, cut) in [(Mix::mixup(0.4), false), (Mix::cutmix(1.0), true)] {
        for workers in [1, 4] {
            let make = loader(source.clone()).shuffle(2).augment(Augment::train(16).mix(mix.clone()));
            let make = make.soft_labels(40, 0.0).workers(workers);
            for (batch, plain) in make.into_iter().zip(&plain) {
                let batch = batch.unwrap();
                let mixing = *batch.mixing().unwrap();
                assert_eq!(mixing.cutmix_area.is_some(), cut);
                let (pixels, image, n) = (batch.images().as_u8().unwrap(), SIDE * SIDE * 3, batch.len());
                for i in 0..n {
                    let (images, partner) =
                        (&plain.images[i * image..], &plain.images[Mixing::partner(i, n) * image..]);
                    for index in 0..image {
                        let (x, y) = ((index / 3 % SIDE) as u32, (index / 3 / SIDE) as u32);
                        let value = match mixing.cutmix_area {
                            Some(r) if (r.x..r.x + r.width).contains(&x) && (r.y..r.y + r.height).contains(&y) => {
                                partner[index]
                            }
                            Some(_) => images[index],
                            None => {
                                let sum = mixing.weight * f32::from(images[index])
                                    + (1.0 - mixing.weight) * f32::from(partner[index]);
                                let actual = pixels[i * image + index];
                                assert!((sum - f32::from(actual)).abs() <= 0.501, "{sum} became {actual}");
                                actual
                            }
                        };
                        assert_eq!(pixels[i * image + index], value, "sample {i} at ({x}, {y})");
                    }
                }
            }
        }
    }
}

fn erased(source: &NumberSource, augment: &Augment, seed: u64, epoch: u64, id: u64) -> Ops {
    let mut scratch = Vec::new();
    let sample = source.read(id as usize, &mut scratch).unwrap();
    let size = NumberCodec.open(sample.image().unwrap().1).unwrap().size();
    let plan = augment.plan(size, &mut Rng::new(seed, epoch, id)).unwrap();
    Ops { erase: plan.erased().map(|erase| (erase.rect, erase.value)), ..Ops::default() }
}

/// Compares mixed batches with a reference that does the device kernel's arithmetic.
/// `tests/gpu/kernels.rs` compares the kernel with the same reference, so host and device agree.
#[test]
fn a_mixed_batch_has_the_bits_of_the_device_kernel() {
    const SEED: u64 = 2;
    let (source, order) = (NumberSource::new(40), Shuffled::new(40, SEED));
    // Fill with fractional values, values outside 0–255, and values not exactly representable in
    // 16 bits.
    let erasing = RandomErasing::new(0.7).value([100.4, 300.25, -1.3]);
    for (dtype, layout) in DTYPES.iter().flat_map(|&d| [(d, Layout::Nhwc), (d, Layout::Nchw)]) {
        for mix in [Mix::mixup(0.4), Mix::cutmix(1.0)] {
            let augment = Augment::train(SIDE as u32).erase(erasing.clone());
            let open = loader(source.clone()).dtype(dtype).layout(layout).drop_field("label");
            let open = open.augment(augment.clone().mix(mix.clone()));
            let open = if dtype == Dtype::U8 { open } else { open.normalize(Normalize::IMAGENET) };
            let mut batches = open.shuffle(SEED).workers(2).host().unwrap();
            for epoch in 0..3 {
                let plain = reference_epoch(&source, NumberCodec, &augment, Some(SEED), epoch, 7);
                for (batch, plain) in batches.epoch(epoch).zip(plain) {
                    let batch = batch.unwrap();
                    let mixing =
                        mix.draw(SEED, epoch, batch.batch_index(), Size::new(SIDE as u32, SIDE as u32)).unwrap();
                    let ops = |i: usize| {
                        let id = order.index(epoch, batch.batch_index() * 7 + i as u64);
                        let (mut ops, partner) =
                            (erased(&source, &augment, SEED, epoch, id), Mixing::partner(i, batch.len()));
                        match mixing.cutmix_area {
                            None => ops.mix = Some((partner, mixing.weight)),
                            Some(rect) => ops.cut = Some((partner, rect)),
                        }
                        ops
                    };
                    let ops: Vec<Ops> = (0..batch.len()).map(ops).collect();
                    let expected =
                        reference::convert(&plain.images, &ops, (SIDE, SIDE), dtype, layout, Normalize::IMAGENET);
                    let actual = batch.images().bytes();
                    let differing = actual.iter().zip(&expected).filter(|(a, b)| a != b).count();
                    let what = format!("{dtype:?} {layout:?} {mix:?} epoch {epoch} batch {}", batch.batch_index());
                    assert_eq!((actual.len(), differing), (expected.len(), 0), "{what}: (length, mismatched bytes)");
                }
            }
        }
    }
}

fn soft_row(label: i64, partner: Option<(i64, f32)>, classes: usize, smoothing: f32) -> Vec<f32> {
    let is = |label: i64, class: usize| if label == class as i64 { 1.0 } else { 0.0 };
    let share = |k| match partner {
        Some((other, weight)) => is(other, k) * (1.0 - weight) + is(label, k) * weight,
        None => is(label, k),
    };
    (0..classes).map(|k| (1.0 - smoothing).mul_add(share(k), smoothing / classes as f32)).collect()
}

#[test]
fn soft_labels_have_the_bits_of_the_device_kernel() {
    let source = NumberSource::new(40);
    for (mix, classes, smoothing) in [
        (None, 10, 0.1),
        (Some(Mix::mixup(0.4)), 10, 0.0),
        (Some(Mix::mixup(0.4)), 1000, 0.1),
        (Some(Mix::cutmix(1.0).probability(0.5)), 13, 0.3),
    ] {
        let augment = mix.iter().cloned().fold(Augment::train(SIDE as u32), Augment::mix);
        let open = loader(source.clone()).augment(augment).soft_labels(classes, smoothing).shuffle(5).workers(2);
        let mut batches = open.host().unwrap();
        let rows = (7 * classes * 4).next_multiple_of(256);
        let plain = (7 * SIDE * SIDE * 3usize).next_multiple_of(256) + 256;
        assert_eq!(batches.memory_plan().slot_bytes, plain + rows, "the plan includes the rows");
        for batch in batches.epoch(1) {
            let (batch, mut mixed) = (batch.unwrap(), 0);
            let (labels, n) = (batch.labels().unwrap(), batch.len());
            for (i, row) in batch.soft_labels().unwrap().as_f32().unwrap().chunks(classes).enumerate() {
                let partner = batch.mixing().map(|mixing| (labels[Mixing::partner(i, n)], mixing.weight));
                mixed += usize::from(partner.is_some());
                let bits = |row: &[f32]| row.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(row), bits(&soft_row(labels[i], partner, classes, smoothing)));
            }
            assert!(mixed == 0 || mixed == n);
        }
    }
}

#[test]
fn invalid_soft_labels_are_rejected() {
    let open = |classes, smoothing| loader(NumberSource::new(20)).soft_labels(classes, smoothing);
    let refused = |loader: Loader| loader.host().err().unwrap().to_string();
    assert_eq!(refused(open(0, 0.0)), "config: soft_labels(0, ..): expected at least one class");
    assert!(refused(open(10, 1.5)).contains("smoothing=1.5"));
    assert!(refused(open(10, f32::NAN)).contains("smoothing=NaN"));
    assert!(refused(open(10, 0.0).field("soft_label", field::NdArray::new(Dtype::F32, [10]))).contains("soft_label"));
    let e = open(4, 0.0).into_iter().next().unwrap().unwrap_err();
    assert_eq!((e.sample(), e.cause()), (Some(4), "label 4, but soft_labels has only the classes 0 to 3"));
}

#[test]
fn smoothing_takes_the_class_count_from_the_dataset() {
    let mini = concat!(env!("CARGO_MANIFEST_DIR"), "/datasets/mini");
    let open = || Loader::new(mini).augment(Augment::eval(16, 16)).batch_size(8).shuffle(1);
    let rows = |loader: Loader| {
        let batch = first(loader);
        let rows = batch.soft_labels().unwrap();
        (rows.shape().to_vec(), rows.as_f32().unwrap().to_vec())
    };
    let expected = rows(open().soft_labels(4, 0.1));
    assert_eq!(expected.0, [8, 4]);
    assert_eq!(rows(open().soft_labels(None, 0.1)), expected);
    let [part] = open().soft_labels(None, 0.1).split([1.0], 3).unwrap();
    assert_eq!(rows(part).0, [8, 4]);
    let mixture = Loader::mixture([(mini, 0.5), (mini, 0.5)]).augment(Augment::eval(16, 16)).batch_size(8);
    assert_eq!(rows(mixture.soft_labels(None, 0.1)).0, [8, 4]);
    let five = ["banded-ring", "dotted-triangle", "extra", "plain-disc", "striped-cross"];
    assert_eq!(rows(open().classes(five).soft_labels(None, 0.1)).0, [8, 5]);
    let e = loader(NumberSource::new(8)).soft_labels(None, 0.1).host().unwrap_err();
    assert!(e.cause().contains("the dataset has no class names"), "{e}");
}

#[test]
fn options_that_no_field_uses_are_refused() {
    let emb = || field::NdArray::new(Dtype::F32, [2]);
    let no_image = || loader(NumberSource::new(8)).drop_field("image").field("emb", emb());
    let keep = |_: &mut warpfeed::transform::ImageMut<'_>, _: &mut Rng| Ok(());
    refused(no_image().normalize(Normalize::IMAGENET), "normalize changes images, but the loader has no image field");
    refused(no_image().dtype(Dtype::F16), "dtype changes images");
    refused(no_image().channels(1), "channels changes images");
    refused(no_image().transform(keep), "transform changes images");
    no_image().field("image", field::Image::new()).dtype(Dtype::F16).transform(keep).host().unwrap();
    let no_label = || loader(NumberSource::new(8)).drop_field("label");
    refused(no_label().soft_labels(10, 0.1), "soft_labels changes the label, but the loader has no label field");
    refused(no_label().soft_labels(None, 0.1), "soft_labels changes the label, but the loader has no label field");
    refused(no_label().unlabeled(true), "unlabeled changes the label, but the loader has no label field");
    no_label().field("class", field::Label::new()).soft_labels(10, 0.1).host().unwrap();
}

/// A mixed image shows two images, but a class label describes only one of them.
#[test]
fn mixing_without_soft_labels_is_refused_with_advice() {
    let open = |mix| loader(NumberSource::new(8)).augment(Augment::train(SIDE as u32).mix(mix));
    for mix in [Mix::mixup(0.4), Mix::cutmix(1.0), Mix::either(0.4, 1.0).probability(0.1)] {
        let e = open(mix.clone()).host().err().unwrap();
        assert_eq!(e.kind(), warpfeed::ErrorKind::Config);
        for way in [".soft_labels(classes, smoothing)", ".drop_field(\"label\")"] {
            assert!(e.cause().contains(way), "{e}");
        }
        let class = |loader: Loader| loader.drop_field("label").field("class", field::Label::new());
        assert!(class(open(mix.clone())).host().is_err());
        class(open(mix.clone())).soft_labels(10, 0.1).host().unwrap();
        open(mix.clone()).soft_labels(10, 0.1).host().unwrap();
        open(mix.clone()).drop_field("label").host().unwrap();
        let emb = field::NdArray::new(Dtype::F32, [2]);
        open(mix).drop_field("image").field("emb", emb).host().unwrap(); // no image is mixed
    }
}

#[test]
fn a_batch_of_one_stays_unmixed() {
    let open =
        |augment| loader(NumberSource::new(8)).batch_size(7).augment(augment).dtype(Dtype::F16).soft_labels(10, 0.0);
    let plain = open(Augment::train(SIDE as u32)).into_iter().nth(1).unwrap().unwrap();
    let mixed = open(Augment::train(SIDE as u32).mix(Mix::mixup(0.4))).into_iter().nth(1).unwrap().unwrap();
    assert_eq!((mixed.len(), mixed.mixing()), (1, None));
    assert!(mixed.images().bytes() == plain.images().bytes());
    assert_eq!(mixed.soft_labels().unwrap().as_f32(), plain.soft_labels().unwrap().as_f32());
}

/// Pixels are stored in the slot until they are mixed, so mixing needs no other memory.
#[test]
fn mixing_takes_no_additional_memory() {
    for dtype in DTYPES {
        let open = || loader(NumberSource::new(20)).drop_field("label").dtype(dtype);
        let plan = |augment| open().augment(augment).host().unwrap().memory_plan();
        let (plain, mixed) = (plan(Augment::train(16)), plan(Augment::train(16).mix(Mix::mixup(0.4))));
        assert_eq!(plain.host_bytes, mixed.host_bytes);
    }
}

#[test]
fn a_replacement_sample_is_mixed_with_its_erased_rectangle() {
    struct Holes;
    impl Codec for Holes {
        fn format(&self) -> Format {
            Format::any("holes")
        }
        fn open<'a>(&self, bytes: &'a [u8]) -> warpfeed::Result<EncodedImage<'a>> {
            NumberCodec.open(bytes)
        }
        fn decode(&self, original: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> warpfeed::Result<()> {
            match NumberCodec::number(original.bytes())? % 3 {
                0 => Err(warpfeed::Error::decode("a hole")),
                _ => NumberCodec.decode(original, region, out),
            }
        }
    }
    let source = NumberSource::new(14);
    let augment = Augment::train(SIDE as u32).erase(RandomErasing::new(0.6).value([5.0, -2.0, 0.3]));
    let mix = Mix::mixup(0.4);
    let mut batches = loader(source.clone())
        .codec(Holes)
        .on_error(OnError::Skip { max_skipped: 100 })
        .augment(augment.clone().mix(mix.clone()))
        .drop_field("label")
        .dtype(Dtype::F16)
        .host()
        .unwrap();
    let plain = reference_epoch(&source, NumberCodec, &augment, None, 0, 7);
    for (batch, plain) in batches.epoch(0).zip(plain) {
        let (batch, image) = (batch.unwrap(), SIDE * SIDE * 3);
        let mixing = batch.mixing().unwrap();
        let donor = |i: usize| (0..7).map(|d| (i + d) % 7).find(|&p| plain.ids[p] % 3 > 0).unwrap();
        let pixels: Vec<u8> = (0..7).flat_map(|i| plain.images[donor(i) * image..][..image].to_vec()).collect();
        let ops = |i: usize| {
            let mut ops = erased(&source, &augment, 0, 0, plain.ids[donor(i)]);
            ops.mix = Some((Mixing::partner(i, 7), mixing.weight));
            ops
        };
        let ops: Vec<Ops> = (0..7).map(ops).collect();
        assert!(ops.iter().any(|ops| ops.erase.is_some()));
        let expected = reference::convert(&pixels, &ops, (SIDE, SIDE), Dtype::F16, Layout::Nhwc, Normalize::UNIT);
        assert!(batch.images().bytes() == expected, "batch {}", batch.batch_index());
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn fields_are_ndarray_views_of_their_shape() {
    let batch = first(loader(NumberSource::new(7)).normalize(Normalize::IMAGENET).layout(Layout::Nchw));
    let array = batch.images().array::<f32>().unwrap();
    assert_eq!(array.shape(), [7, 3, SIDE, SIDE]);
    assert_eq!(array[[6, 2, 15, 15]], *batch.images().as_f32().unwrap().last().unwrap());
    assert!(batch.images().array::<u8>().is_none());
}
