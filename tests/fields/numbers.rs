//! Tests batches with any number of named fields: images, fixed-shape arrays, variable-length rows
//! with counts, and custom types.

use crate::reference_fields::npy;
use crate::support::exit_on_hang;
use warpfeed::batch::Field;
use warpfeed::decode::Size;
use warpfeed::field::{
    BoxFormat, BoxReader, Boxes, FieldType, FieldWriter, Image, Input, Label, NdArray, Ragged, RowMut,
};
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{Augment, Dtype, ErrorKind, HostBatch, Loader, OnError, Result};

fn image(side: usize, color: u8) -> Vec<u8> {
    npy("|u1", &format!("({side}, {side}, 3)"), &vec![color; side * side * 3])
}

fn rows(n: u64) -> Vec<u8> {
    (0..n as i64).flat_map(|row| (100 * n as i64 + row).to_le_bytes()).collect()
}

fn sample(n: u64) -> OwnedSample {
    OwnedSample::new(format!("{n}"))
        .field("rgb.npy", image(16, n as u8))
        .field("right.npy", image(16, 100 + n as u8))
        .field("tokens", rows(n % 7))
        .field("text", "x".repeat(n as usize % 5))
        .label(n as i64)
}

fn loader() -> Loader {
    Loader::source(Memory::new((0..50).map(sample).collect())).augment(Augment::pass_through(16, 16)).batch_size(8)
}

fn all_batches(loader: Loader) -> Vec<HostBatch> {
    loader.prefetch(8).into_iter().collect::<Result<_>>().unwrap()
}

#[test]
fn f64_fields_are_exact_and_f32_rejects_inexact_integers() {
    let number = |n: i64| OwnedSample::new(format!("{n}")).field("x.txt", format!("{} 0.1", n + (1 << 24)));
    let set = || Memory::new((0..10).map(number).collect());
    let loader = || Loader::source(set()).drop_field("image").drop_field("label").batch_size(5);
    let (numbers, rows) = (|dtype| NdArray::new(dtype, [2]), |dtype| Ragged::new(dtype, [], 3));
    for batch in all_batches(loader().field("x", numbers(Dtype::F64)).shuffle(1)) {
        let expected: Vec<f64> = batch.ids().flat_map(|id| [(id + (1 << 24)) as f64, 0.1]).collect();
        let actual = batch.field("x").unwrap();
        assert_eq!((actual.dtype(), actual.elements::<f64>().unwrap()), (Dtype::F64, &expected[..]));
    }
    let batches = all_batches(loader().field("x", rows(Dtype::F64).padding(-1.5_f64)));
    assert_eq!(batches[0].field("x").unwrap().elements::<f64>().unwrap()[..3], [16_777_216.0, 0.1, -1.5]);
    let refused = |loader: Loader| loader.into_iter().find_map(|batch| batch.err()).unwrap();
    for e in [refused(loader().field("x", numbers(Dtype::F32))), refused(loader().field("x", rows(Dtype::F32)))] {
        assert_eq!((e.kind(), e.sample()), (ErrorKind::Source, Some(1)), "{e}");
        assert!(e.to_string().contains("16777217, which float32 cannot hold exactly (read it as float64"), "{e}");
    }
}

#[test]
fn rows_of_different_lengths_are_padded_and_counted() {
    exit_on_hang(|| {
        for workers in [1, 3] {
            let loader = loader()
                .workers(workers)
                .field("tokens", Ragged::new(Dtype::I64, [], 6).padding(-1_i64))
                .field("text", Ragged::bytes(4));
            for batch in all_batches(loader) {
                let (tokens, text) = (batch.field("tokens").unwrap(), batch.field("text").unwrap());
                assert_eq!((tokens.shape(), text.shape()), (vec![batch.len(), 6], vec![batch.len(), 4]));
                let (counts, lengths) = (batch.counts("tokens").unwrap(), batch.counts("text").unwrap());
                for (place, id) in batch.ids().enumerate() {
                    let n = id % 7;
                    let mut expected: Vec<i64> = (0..n as i64).map(|row| 100 * n as i64 + row).collect();
                    expected.resize(6, -1);
                    assert_eq!(tokens.as_i64().unwrap()[place * 6..][..6], expected);
                    let mut letters = "x".repeat(id as usize % 5).into_bytes();
                    letters.resize(4, 0);
                    assert_eq!(text.bytes()[place * 4..][..4], letters);
                    assert_eq!((counts[place], lengths[place]), (n as i64, id as i64 % 5));
                }
                assert!(batch.counts("image").is_none() && batch.field("tokens.count").is_some());
            }
        }
    });
}

#[test]
fn too_many_rows_fail_unless_truncated() {
    let rows = || Ragged::new(Dtype::I64, [], 4);
    let e = loader().field("tokens", rows()).into_iter().find_map(Result::err).unwrap();
    assert_eq!(
        (e.sample(), e.cause()),
        (
            Some(5),
            "field \"tokens\" has 5 rows, but Ragged::new(.., 4) allows at most 4: use Ragged::new(.., 5) or more, \
         or .truncate()"
        )
    );
    let cut = all_batches(loader().field("tokens", rows().truncate()));
    assert_eq!(cut[0].counts("tokens").unwrap(), [0, 1, 2, 3, 4, 4, 4, 0]);
    let e = loader().field("tokens", Ragged::new(Dtype::I64, [2], 4)).into_iter().find_map(Result::err).unwrap();
    assert_eq!((e.sample(), e.cause()), (Some(1), "field \"tokens\" has 8 bytes: expected 16 bytes for each row"));
    let refused = |loader: Loader| loader.host().unwrap_err().to_string();
    assert!(
        refused(loader().field("tokens", Ragged::new(Dtype::I64, [], 0)))
            .contains("the maximum number of rows is 0: expected at least 1")
    );
    assert!(refused(loader().field("tokens", rows().padding(0.5_f32))).contains("the padding has the type float32"));
}

#[test]
fn several_images_of_a_sample_are_cropped_and_flipped_alike() {
    exit_on_hang(|| {
        // The images are identical, so equal output means equal transforms.
        let gradient = || {
            let mut bytes = image(40, 0);
            let start = bytes.len() - 40 * 40 * 3;
            bytes[start..].iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 251) as u8);
            bytes
        };
        let sample = |i| OwnedSample::new(format!("{i}")).field("a.npy", gradient()).field("b.npy", gradient());
        let source = Memory::new((0..30).map(sample).collect());
        let augment = Augment::train(16).jitter(warpfeed::transform::ColorJitter::new().brightness(0.4));
        let loader = Loader::source(source).batch_size(8).augment(augment).workers(2);
        let loader = loader.field("image", Image::from_field("a.npy")).field("other", Image::from_field("b.npy"));
        let batches = all_batches(loader.drop_field("label"));
        assert!(batches.iter().any(|batch| batch.images().bytes().iter().any(|&byte| byte > 0)));
        let mut crops = std::collections::HashSet::new();
        for batch in &batches {
            assert_eq!(batch.images().bytes(), batch.field("other").unwrap().bytes());
            crops.extend(batch.images().bytes().chunks(16 * 16 * 3).map(<[u8]>::to_vec));
        }
        assert_eq!(crops.len(), 30, "each sample has a different crop");
    });
}

#[test]
fn images_are_found_by_name_and_mixed_separately() {
    exit_on_hang(|| {
        let mix = warpfeed::transform::Mix::mixup(0.4);
        let loader = loader().augment(Augment::pass_through(16, 16).mix(mix)).drop_field("label");
        let loader = loader.field("right", Image::from_field("right.npy"));
        for batch in all_batches(loader) {
            let n = batch.len();
            let (left, right) = (batch.images(), batch.field("right").unwrap());
            let mixing = batch.mixing().expect("the batch is mixed");
            let ids: Vec<u64> = batch.ids().collect();
            for place in 0..n {
                let (label, partner) = (ids[place] as f32, ids[(place + n - 1) % n] as f32);
                let mixed = label * mixing.weight + partner * (1.0 - mixing.weight);
                let pixel = |view: warpfeed::TensorView<'_>| f32::from(view.bytes()[place * 16 * 16 * 3]);
                assert!((pixel(left) - mixed).abs() <= 0.51, "{} for {mixed}", pixel(left));
                assert!((pixel(right) - mixed - 100.0).abs() <= 0.51, "{} for {mixed} + 100", pixel(right));
            }
        }
    });
}

#[test]
fn a_loader_without_an_image_decodes_nothing() {
    exit_on_hang(|| {
        let sample = |i: u64| OwnedSample::new(format!("{i}")).field("tokens", rows(i % 7));
        let source = Memory::new((0..50).map(sample).collect());
        let loader = Loader::source(source).batch_size(8).drop_field("image").drop_field("label");
        let batches = all_batches(loader.field("tokens", Ragged::new(Dtype::I64, [], 6)));
        assert_eq!(batches.iter().map(|batch| batch.len()).sum::<usize>(), 50);
        let names: Vec<_> = batches[0].fields().map(|field| field.name.clone()).collect();
        assert_eq!(names, ["tokens", "tokens.count"]);
        let e = batches[0].labels().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Config);
        assert!(e.cause().starts_with("labels: the batch has no label field: remove drop_field(\"label\")"), "{e}");
    });
}

#[test]
fn the_byte_limit_of_a_sample_also_applies_without_an_image() {
    let rows = || Ragged::new(Dtype::I64, [], 6);
    // Sample n has two images, 8 * (n % 7) bytes of tokens and n % 5 bytes of text.
    let limit = 2 * image(16, 0).len() as u64 + 9;
    let loader = loader().drop_field("image").field("tokens", rows()).max_sample_bytes(limit);
    let e = loader.into_iter().find_map(Result::err).unwrap();
    let cause = format!("the sample has {} bytes, but max_sample_bytes is {limit}", limit + 9);
    assert_eq!((e.sample(), e.cause()), (Some(2), &*cause));
}

#[test]
fn a_field_name_suffix_determines_the_number_format() {
    let npy = |descr: &str, shape: &str, data: Vec<u8>| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), &data].concat()
    };
    let (values, count) = ([1.0_f64, 2.0, 3.0, 4.0, 5.0, 6.0], 6);
    let raw: Vec<u8> = values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
    let fields: [(&str, Vec<u8>); 5] = [
        ("x", raw.clone()),
        ("x.npy", npy("<f4", "(3, 2)", raw)),
        ("x.npy", npy(">f8", "(3, 2)", values.iter().flat_map(|v| v.to_be_bytes()).collect())),
        ("x.json", b"[[1, 2], [3.0, 4], [5, 6]]".to_vec()),
        ("x.txt", b"1 2 3 4 5 6".to_vec()),
    ];
    let open = |name: &str, bytes: &[u8]| {
        let sample = OwnedSample::new("s").field(name, bytes);
        Loader::source(Memory::new(vec![sample])).drop_field("image").drop_field("label").workers(1)
    };
    for (name, bytes) in &fields {
        let numbers = all_batches(open(name, bytes).field("x", NdArray::new(Dtype::F32, [3, 2])));
        assert_eq!(numbers[0].field("x").unwrap().as_f32().unwrap(), values.map(|v| v as f32), "{name}");
        let rows = all_batches(open(name, bytes).field("x", Ragged::new(Dtype::F32, [2], 4).padding(-1_f32)));
        let expected: Vec<f32> = values.iter().map(|v| *v as f32).chain([-1.0, -1.0]).collect();
        assert_eq!(rows[0].field("x").unwrap().as_f32().unwrap(), expected, "{name}");
        assert_eq!(rows[0].counts("x").unwrap(), [3]);
        let plain = all_batches(open(name, bytes).field("x", Ragged::bytes(400)));
        assert_eq!(plain[0].counts("x").unwrap(), [bytes.len() as i64]);
        assert_eq!(plain[0].field("x").unwrap().bytes()[..bytes.len()], bytes[..]);
        if *name != "x.npy" && *name != "x.json" {
            let every_value = all_batches(open(name, bytes).field(name, NdArray::new(Dtype::F32, [count])));
            assert_eq!(every_value[0].field(name).unwrap().as_f32().unwrap(), values.map(|v| v as f32), "{name}");
        }
    }
    let cause = |loader: Loader| loader.into_iter().find_map(Result::err).unwrap().cause().to_owned();
    let (name, bytes) = &fields[1];
    let numbers = open(name, bytes).field("x", NdArray::new(Dtype::F32, [2, 3]));
    assert_eq!(cause(numbers), "field \"x.npy\" has the shape [3, 2]: expected [2, 3]");
    let rows = open(name, bytes).field("x", Ragged::new(Dtype::F32, [3], 4));
    assert_eq!(cause(rows), "field \"x.npy\" has the shape [3, 2]: expected rows of shape [3]");
    let fractional = open("x.txt", b"1 2.5").field("x", Ragged::new(Dtype::I64, [], 4));
    assert_eq!(cause(fractional), "field \"x.txt\": element 1 is 2.5, which int64 cannot hold");
}

#[derive(Debug)]
struct Region;

impl FieldType for Region {
    fn describe_arrays(&self, name: &str, _: Size) -> Result<Vec<Field>> {
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::F32, shape: vec![4] }])
    }

    fn write(&self, input: &Input<'_>, place: &mut RowMut<'_>) -> Result<()> {
        let window = input.plan.expect("the loader has an image").window;
        let corners = [window.x, window.y, window.width, window.height].map(|v| v as f32);
        place.bytes(0).copy_from_slice(&corners.map(f32::to_ne_bytes).concat());
        Ok(())
    }
}

#[test]
fn a_custom_field_type_receives_the_plan_of_the_image() {
    exit_on_hang(|| {
        let pixels: Vec<u8> = (0..16).flat_map(|y| (0..16).flat_map(move |x| [x, y, 0])).collect();
        let sample = |n: u64| OwnedSample::new(format!("{n}")).field("rgb.npy", npy("|u1", "(16, 16, 3)", &pixels));
        let source = Memory::new((0..50).map(sample).collect());
        let loader = Loader::source(source).drop_field("label").augment(Augment::random_crop(8)).batch_size(8);
        let mut corners = std::collections::BTreeSet::new();
        for batch in all_batches(loader.field("region", Region).workers(2)) {
            let (regions, images) = (batch.field("region").unwrap(), batch.images());
            let images = images.as_u8().unwrap().chunks(8 * 8 * 3);
            for (region, image) in regions.as_f32().unwrap().chunks(4).zip(images) {
                assert_eq!(region, [f32::from(image[0]), f32::from(image[1]), 8.0, 8.0]);
                corners.insert([image[0], image[1]]);
            }
        }
        assert!(corners.len() > 10, "{corners:?}");
    });
}

#[derive(Debug)]
struct Dice;

impl FieldType for Dice {
    fn describe_arrays(&self, name: &str, _: Size) -> Result<Vec<Field>> {
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::I64, shape: vec![4] }])
    }

    fn write(&self, input: &Input<'_>, place: &mut RowMut<'_>) -> Result<()> {
        let (mut rng, mut again) = (input.rng(), input.rng());
        let thrown: Vec<u8> = (0..4).flat_map(|_| rng.below(1 << 62).to_ne_bytes()).collect();
        assert!(thrown.chunks(8).all(|number| number == again.below(1 << 62).to_ne_bytes()));
        place.bytes(0).copy_from_slice(&thrown);
        Ok(())
    }
}

#[test]
fn field_random_numbers_depend_on_seed_epoch_sample_and_field() {
    exit_on_hang(|| {
        let thrown = |loader: Loader, epoch: u64, from: u64| {
            let loader = loader.field("dice", Dice).field("other", Dice);
            let mut batches = loader.host().unwrap();
            let mut numbers = std::collections::BTreeMap::new();
            for batch in batches.epoch_from(epoch, from) {
                let batch = batch.unwrap();
                let [dice, other] = ["dice", "other"].map(|name| batch.field(name).unwrap());
                let each = dice.as_i64().unwrap().chunks(4).zip(other.as_i64().unwrap().chunks(4));
                for (id, (dice, other)) in batch.ids().zip(each) {
                    assert_ne!(dice, other, "each field has its own random numbers");
                    numbers.insert(id, dice.to_vec());
                }
            }
            numbers
        };
        let open = |seed: u64| loader().augment(Augment::train(8)).shuffle(seed);
        let drawn = thrown(open(3).workers(1), 1, 0);
        assert_eq!(drawn.len(), 50);
        assert_eq!(drawn.values().collect::<std::collections::HashSet<_>>().len(), 50);
        assert_eq!(thrown(open(3).workers(4).batch_size(5), 1, 0), drawn);
        assert_eq!(thrown(open(3).drop_field("image"), 1, 0), drawn, "the numbers do not depend on the image");
        let rest = thrown(open(3).workers(3), 1, 4);
        assert!(
            rest.len() == 18 && rest.iter().all(|(id, numbers)| drawn[id] == *numbers),
            "a run from batch 4 draws other numbers"
        );
        for (seed, epoch) in [(3, 0), (4, 1)] {
            assert!(thrown(open(seed), epoch, 0).iter().all(|(id, numbers)| drawn[id] != *numbers));
        }
    });
}

#[derive(Debug)]
struct Wrapped<K>(K);

impl<K: FieldType> FieldType for Wrapped<K> {
    fn describe_arrays(&self, name: &str, output_size: Size) -> Result<Vec<Field>> {
        self.0.describe_arrays(name, output_size)
    }

    fn write(&self, input: &Input<'_>, place: &mut RowMut<'_>) -> Result<()> {
        self.0.write(input, place)
    }

    fn follows_image(&self) -> bool {
        self.0.follows_image()
    }

    fn write_is_cheap(&self) -> bool {
        self.0.write_is_cheap()
    }

    fn scratch_bytes(&self, input: &Input<'_>) -> u64 {
        self.0.scratch_bytes(input)
    }

    fn writer(&self) -> FieldWriter<'_> {
        self.0.writer()
    }

    fn boxes(&self) -> Option<BoxReader> {
        self.0.boxes()
    }
}

#[test]
fn a_custom_field_type_may_wrap_any_built_in_type() {
    exit_on_hang(|| {
        let sample = |n: u64| {
            let boxes = [1.0_f32, 2.0, 9.0, 12.0 + n as f32 % 4.0].map(f32::to_le_bytes).concat();
            sample(n).field("boxes", boxes)
        };
        let open = |mix: bool| {
            let loader = Loader::source(Memory::new((0..50).map(sample).collect())).batch_size(8).workers(2).shuffle(1);
            let mixed = || Augment::train(8).mix(warpfeed::transform::Mix::cutmix(1.0));
            loader.augment(if mix { mixed() } else { Augment::iou_crop(8, 8) })
        };
        let boxes = || Boxes::new(3).out_format(BoxFormat::Cxcywh);
        let bytes = |loader: Loader| {
            let values_of = |batch: &HostBatch| {
                batch
                    .fields()
                    .map(|f| (f.name.clone(), batch.field(&f.name).unwrap().bytes().to_vec()))
                    .collect::<Vec<_>>()
            };
            let batches: Vec<_> =
                all_batches(loader).iter().map(|batch| (values_of(batch), batch.labels().unwrap().to_vec())).collect();
            batches
        };
        let (plain, wrapped) = (open(false).field("boxes", boxes()), open(false).field("boxes", Wrapped(boxes())));
        assert_eq!(
            bytes(plain),
            bytes(wrapped.field("image", Wrapped(Image::new())).field("label", Wrapped(Label::new())))
        );
        let wrapped = open(true).field("image", Wrapped(Image::new())).field("label", Wrapped(Label::new()));
        assert_eq!(bytes(open(true).soft_labels(50, 0.1)), bytes(wrapped.soft_labels(50, 0.1)));
    });
}

/// A field that counts concurrent writes. The `large` field declares more memory than the
/// workers have in total; other fields declare none.
#[derive(Debug, Default, Clone)]
struct Large(std::sync::Arc<[std::sync::atomic::AtomicUsize; 2]>);

impl FieldType for Large {
    fn describe_arrays(&self, name: &str, _: Size) -> Result<Vec<Field>> {
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::U8, shape: vec![] }])
    }

    fn scratch_bytes(&self, input: &Input<'_>) -> u64 {
        if input.name == "large" { u64::MAX } else { 0 }
    }

    fn write(&self, _: &Input<'_>, place: &mut RowMut<'_>) -> Result<()> {
        use std::sync::atomic::Ordering::SeqCst;
        let [now, max_running] = &*self.0;
        max_running.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(2));
        now.fetch_sub(1, SeqCst);
        place.bytes(0).fill(7);
        Ok(())
    }
}

#[test]
fn writes_wait_for_the_memory_that_their_field_declares() {
    exit_on_hang(|| {
        // Returns the maximum number of concurrent writes. Stops after the first epoch that
        // reaches `enough`.
        let most_in = |name: &str, epochs: u64, enough: usize| {
            let (kind, source) = (Large::default(), Memory::new((0..400).map(|n| sample(n % 50)).collect()));
            let loader = Loader::source(source).drop_field("image").batch_size(32).workers(4);
            let mut batches = loader.field(name, kind.clone()).host().unwrap();
            let max_running = || kind.0[1].load(std::sync::atomic::Ordering::SeqCst);
            for epoch in (0..epochs).take_while(|_| max_running() < enough) {
                for batch in batches.epoch(epoch) {
                    assert!(batch.unwrap().field(name).unwrap().bytes().iter().all(|&byte| byte == 7));
                }
            }
            max_running()
        };
        assert_eq!(most_in("large", 1, 2), 1, "each worker waits for memory");
        assert!(most_in("small", 20, 2) > 1, "no two writes ran concurrently, although they declare no memory");
    });
}

#[test]
fn a_sample_without_a_field_fails_or_is_replaced_as_a_whole() {
    exit_on_hang(|| {
        let some = |n: u64| if n == 3 { OwnedSample::new("3").field("rgb.npy", image(16, 3)) } else { sample(n) };
        let source = Memory::new((0..50).map(some).collect());
        let open = || {
            let loader = Loader::source(source.clone()).augment(Augment::pass_through(16, 16)).batch_size(8);
            loader.field("tokens", Ragged::new(Dtype::I64, [], 6)).unlabeled(true)
        };
        let e = open().into_iter().find_map(Result::err).unwrap();
        assert!(e.sample() == Some(3) && e.cause().starts_with("no field \"tokens\" among"), "{e}");
        let batches = all_batches(open().on_error(OnError::Skip { max_skipped: 1 }));
        assert_eq!(batches[0].counts("tokens").unwrap(), [0, 1, 2, 4, 4, 5, 6, 0], "sample 4 is the replacement");
        assert_eq!(batches[0].images().bytes()[3 * 16 * 16 * 3], 4);
        assert!(!batches[0].valid().nth(3).unwrap());
    });
}

#[test]
fn invalid_batches_are_refused() {
    let refused = |loader: Loader| loader.host().unwrap_err().to_string();
    assert!(refused(loader().drop_field("image").drop_field("label")).contains("removes every field"));
    assert!(refused(loader().drop_field("depth")).contains("drop_field(\"depth\")"));
    let two = loader().field("class", Label::new());
    assert!(refused(two).contains("a loader can have only one label"));
    let count = loader().field("tokens", Ragged::bytes(4)).field("tokens.count", NdArray::new(Dtype::I64, []));
    assert!(refused(count).contains("duplicate field"));
    let many = (0..16).fold(loader(), |loader, i| loader.field(&format!("p{i}"), Image::new()));
    assert!(refused(many).contains("expected at most 16"));
}
