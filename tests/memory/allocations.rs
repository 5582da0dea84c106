//! Tests that, after a warm-up, no thread allocates memory per sample or per batch: at least one of
//! twelve epochs must make fewer allocations than it has batches. All images are JPEGs, because the
//! crates that decode other formats allocate memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::counting::ALLOCATIONS;
use crate::process::serial;
use crate::support::exit_on_hang;
use warpfeed::decode::Codecs;
use warpfeed::field::{Boxes, Keypoints, Mask, NdArray, Patches};
use warpfeed::pack::{Pack, Recode};
use warpfeed::source::{Memory, OwnedSample, Sample, Source, TableOptions, Value};
use warpfeed::transform::{Interpolation, Mosaic};
use warpfeed::{Augment, CacheFormat, Dtype, Loader, Normalize, Result};
use warpfeed_synth::Synth;

/// A source in which some reads block, so that the loader starts reader threads.
struct Waits(Arc<dyn Source>);

impl Source for Waits {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        if index.is_multiple_of(4) {
            std::thread::sleep(Duration::from_micros(500));
        }
        // Resize `scratch` like a source that reads files, to test that the loader reuses it.
        scratch.resize(64 << 10, 0);
        self.0.read(index, scratch)
    }
}

#[test]
fn nothing_is_allocated_for_a_sample_or_a_batch_once_warm() {
    let _serial = serial();
    exit_on_hang(|| {
        let root = tempfile::tempdir().unwrap();
        let (folder, lmdb) = (root.path().join("set"), root.path().join("set.lmdb"));
        Synth::new().images(400).classes(4).side(96).write(&folder).unwrap();
        // The PNG decoder allocates memory for each image.
        let every_jpeg = Recode::Quality { quality: 90, max_side: None };
        Pack::new(&*warpfeed::source::open(&folder).unwrap()).recode(every_jpeg).to(&lmdb).unwrap();
        let packed = warpfeed::source::open(&lmdb).unwrap();
        let waits: Arc<dyn Source> = Arc::new(Waits(packed.clone()));
        for (source, ahead) in [(packed.clone(), false), (waits, true)] {
            epochs_without_allocations(image(source), ahead);
        }
        // Only some of the images fit into the cache.
        for (format, bytes) in [(CacheFormat::Pixels, 4 << 20), (CacheFormat::Coefficients, 1 << 20)] {
            epochs_without_allocations(image(packed.clone()).cache_decoded(bytes).cache_format(format), false);
        }
        let size = NdArray::new(Dtype::F32, [2]);
        epochs_without_allocations(image(table(&folder)).field("size", size), false);
        let lmdb = root.path().join("annotated.lmdb");
        Pack::new(&annotated(&*packed)).recode(Recode::KeepBytes).to(&lmdb).unwrap();
        let source = warpfeed::source::open(&lmdb).unwrap();
        let bicubic = Augment::train(64).interpolation(Interpolation::Bicubic);
        for augment in [Augment::train(64), Augment::letterbox(64, 48), Augment::iou_crop(32, 32), bicubic] {
            let boxes = Boxes::new(4).column("class", Dtype::I32).masks().points(2);
            let loader = image(source.clone()).augment(augment).field("boxes", boxes);
            let loader = loader.field("mask", Mask::new(Dtype::I64)).field("spots", Keypoints::new(2));
            epochs_without_allocations(loader, false);
        }
        let patches = Patches::qwen2_vl().patch(8).max_pixels(4096);
        epochs_without_allocations(image(source.clone()).field("patches", patches), false);
        let boxes = Boxes::new(16).column("class", Dtype::I32).masks().points(2);
        let mosaics = image(source).augment(Augment::letterbox(64, 48).mosaic(Mosaic::new())).drop_field("label");
        epochs_without_allocations(mosaics.field("boxes", boxes).field("mask", Mask::new(Dtype::I64)), false);
    });
}

fn table(folder: &Path) -> Arc<dyn Source> {
    let set = warpfeed::source::open(folder).unwrap();
    let paths = (0..set.len()).map(|index| set.path(index).unwrap());
    let jpegs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "jpg"));
    let rows: String = jpegs.map(|path| format!("{},cat,\"1.5 2\"\n", path.display())).collect();
    let file = folder.with_extension("csv");
    std::fs::write(&file, format!("path,label,size\n{rows}")).unwrap();
    Arc::new(TableOptions::new().image("path").open(file).unwrap())
}

fn annotated(source: &dyn Source) -> Memory {
    let sample = |index: usize| {
        let mut scratch = Vec::new();
        let read = source.read(index, &mut scratch).unwrap();
        let (name, bytes) = read.image().unwrap();
        let size = Codecs::new().open(bytes).unwrap().size();
        // The PNG decoder allocates memory for each mask, so masks are arrays.
        let mask: Vec<u8> =
            (0..size.height).flat_map(|y| (0..size.width).map(move |x| (x / 9 + y / 7) as u8)).collect();
        let shape = [size.height as usize, size.width as usize];
        let mask = Value::from(warpfeed::source::Numbers::new(&mask, &shape).unwrap()).encoded("mask.npy").into_owned();
        let floats = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        OwnedSample::new(format!("{index}"))
            .field(name, bytes)
            .field("mask.npy", mask)
            .field("boxes", floats(&[0.1, 0.1, 0.6, 0.5, 0.2, 0.3, 0.9, 0.8]))
            .field("boxes.units.txt", "relative")
            .field("boxes.class.txt", "3 5")
            .field("boxes.points", floats(&[0.2, 0.2, 2.0, 0.4, 0.3, 1.0, 0.5, 0.5, 2.0, 0.0, 0.0, 0.0]))
            .field("boxes.masks.json", "[[[0.1, 0.1, 0.6, 0.1, 0.6, 0.5]], [[0.2, 0.3, 0.9, 0.3, 0.9, 0.8]]]")
            .field("spots.json", "[[1, 2], [30.5, 31]]")
            .label(1)
    };
    Memory::new((0..source.len()).map(sample).collect())
}

fn image(source: Arc<dyn Source>) -> Loader {
    let loader = Loader::source(source).batch_size(16).augment(Augment::train(64));
    loader.normalize(Normalize::IMAGENET).dtype(Dtype::F16).workers(2)
}

fn epochs_without_allocations(loader: Loader, ahead: bool) {
    let mut batches = loader.host().unwrap();
    // Workers get different samples each time, until all scratch memory has its maximum size.
    let mut counted = Vec::new();
    for _ in 0..12 {
        let before = ALLOCATIONS.load(SeqCst);
        for batch in batches.epoch(0) {
            batch.unwrap();
        }
        counted.push(ALLOCATIONS.load(SeqCst) - before);
    }
    assert_eq!(batches.stats().readahead.is_some(), ahead);
    let (warm, batches) = (counted.iter().min().unwrap(), batches.num_batches(0));
    assert!(
        *warm < batches as usize,
        "an epoch of {batches} batches and 400 samples made at least {warm} allocations: {counted:?}, ahead {ahead}"
    );
}
