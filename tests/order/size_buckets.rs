//! Tests that every batch of size buckets contains images of a single bucket, in that bucket's
//! size, for one to three ranks, for one and three workers, and after resuming at varying batches.

use crate::support::refused;
use warpfeed::decode::Size;
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::transform::Mosaic;
use warpfeed::{Augment, ErrorKind, HostBatch, LastBatch, Loader, OnError};

fn png(rng: &mut Rng, width: u32, height: u32) -> Vec<u8> {
    let pixels = (0..width * height * 3).map(|_| rng.next_u64() as u8).collect();
    let mut bytes = std::io::Cursor::new(Vec::new());
    let image = image::RgbImage::from_raw(width, height, pixels).unwrap();
    image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

struct Case {
    images: Vec<Size>,
    samples: Memory,
    sizes: Vec<Size>,
    budget: Option<u64>,
    batch: usize,
    last: LastBatch,
    shuffled: bool,
    augment: Augment,
}

impl Case {
    fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 2, 3);
        let size =
            |rng: &mut Rng, max_side: u64| Size::new(1 + rng.below(max_side) as u32, 1 + rng.below(max_side) as u32);
        let images: Vec<Size> = (0..1 + rng.below(40)).map(|_| size(&mut rng, 30)).collect();
        let mut sizes: Vec<Size> = Vec::new();
        for _ in 0..1 + rng.below(5) {
            let mut next = size(&mut rng, 12);
            // Some buckets have the aspect ratio of an earlier one.
            if let Some(first) = sizes.first().filter(|_| rng.chance(0.3)) {
                next = Size::new(first.width * 2, first.height * 2);
            }
            if !sizes.contains(&next) {
                sizes.push(next);
            }
        }
        let sample = |(id, size): (usize, &Size)| {
            OwnedSample::new(id.to_string()).field("png", png(&mut rng, size.width, size.height)).label(id as i64)
        };
        let samples = Memory::new(images.iter().enumerate().map(sample).collect());
        let largest = sizes.iter().map(|size| size.area()).max().unwrap();
        Case {
            samples,
            budget: rng.chance(0.6).then(|| largest + rng.below(3 * largest)),
            batch: 3 + rng.below(9) as usize,
            last: if rng.chance(0.3) { LastBatch::Drop } else { LastBatch::Keep },
            shuffled: rng.chance(0.7),
            augment: if rng.chance(0.5) { Augment::cover(1, 1) } else { Augment::train(1) },
            images,
            sizes,
        }
    }

    fn loader(&self) -> Loader {
        let loader = Loader::source(self.samples.clone())
            .augment(self.augment.clone())
            .size_buckets(self.images.clone(), self.sizes.clone())
            .global_batch_size(self.batch)
            .last_batch(self.last)
            .seed(5)
            .epochs(0);
        let loader = if self.shuffled { loader.shuffle(5) } else { loader };
        self.budget.map_or(loader.clone(), |budget| loader.budget(budget))
    }

    fn buckets(&self) -> Vec<usize> {
        let bucket = |image: &Size| {
            let ratio = |size: &Size| (f64::from(size.width) / f64::from(size.height)).ln();
            let mut best = 0;
            for (index, size) in self.sizes.iter().enumerate().skip(1) {
                let [distance, other] = [size, &self.sizes[best]].map(|size| (ratio(size) - ratio(image)).abs());
                let [fits, other_fits] = [size, &self.sizes[best]].map(|size| size.area() <= image.area());
                let is_better = match (fits, other_fits) {
                    (true, true) => size.area() > self.sizes[best].area(),
                    (false, false) => size.area() < self.sizes[best].area(),
                    _ => fits,
                };
                if distance < other - 1e-9 || ((distance - other).abs() <= 1e-9 && is_better) {
                    best = index;
                }
            }
            best
        };
        self.images.iter().map(bucket).collect()
    }

    fn counts(&self) -> Vec<(usize, usize)> {
        let buckets = self.buckets();
        let mut counts = Vec::new();
        for (bucket, size) in self.sizes.iter().enumerate() {
            let mut remaining = buckets.iter().filter(|number| **number == bucket).count();
            let max_images =
                self.budget.map_or(u64::MAX, |budget| budget / size.area()).min(self.batch as u64) as usize;
            while remaining >= max_images || (remaining > 0 && self.last == LastBatch::Keep) {
                counts.push((bucket, remaining.min(max_images)));
                remaining -= remaining.min(max_images);
            }
        }
        counts.sort_unstable();
        counts
    }

    fn alone(&self, epoch: u64, id: u64) -> Vec<u8> {
        let size = self.sizes[self.buckets()[id as usize]];
        let augment = self.augment.clone().with_output_size(size.width, size.height);
        let loader = Loader::source(self.samples.clone()).augment(augment).seed(5).subset(vec![id]).batch_size(1);
        let mut batches = loader.epochs(0).workers(1).host().unwrap();
        let batch = batches.epoch(epoch).next().unwrap().unwrap();
        batch.field("image").unwrap().bytes().to_vec()
    }
}

type Batch = Vec<(u64, Vec<u8>)>;

fn read(case: &Case, loader: Loader, epoch: u64, first: u64) -> Vec<Batch> {
    let (buckets, mut batches) = (case.buckets(), loader.host().unwrap());
    let batches = batches.epoch_from(epoch, first).map(|batch| {
        let batch = batch.unwrap();
        let image = batch.field("image").unwrap();
        let ids: Vec<(u64, bool)> = batch.ids().zip(batch.valid()).collect();
        let size = Size::new(image.shape()[2] as u32, image.shape()[1] as u32);
        let bytes = size.area() as usize * 3;
        assert_eq!(image.bytes().len(), ids.len() * bytes);
        for (id, _) in ids.iter().filter(|(_, valid)| *valid) {
            assert_eq!(size, case.sizes[buckets[*id as usize]], "sample {id}");
        }
        let rows = ids.iter().zip(image.bytes().chunks(bytes)).filter(|((_, valid), _)| *valid);
        rows.map(|((id, _), row)| (*id, row.to_vec())).collect()
    });
    batches.collect()
}

#[test]
fn batches_of_size_buckets_equal_naive_ones() {
    let (mut checked, mut mixed_sizes) = (0, 0);
    for seed in 0..200 {
        let case = Case::random(seed);
        let expected = case.counts();
        if expected.is_empty() {
            assert!(case.loader().host().unwrap_err().to_string().contains("no batch"), "seed {seed}");
            continue;
        }
        checked += 1;
        let epoch = seed % 3;
        let unbroken = read(&case, case.loader().workers(1), epoch, 0);
        let buckets = case.buckets();
        let mut counts: Vec<_> = unbroken.iter().map(|batch| (buckets[batch[0].0 as usize], batch.len())).collect();
        counts.sort_unstable();
        assert_eq!(counts, expected, "seed {seed}");
        mixed_sizes += usize::from(counts[0].0 != counts[counts.len() - 1].0);
        let mut ids: Vec<u64> = unbroken.iter().flatten().map(|(id, _)| *id).collect();
        for (id, pixels) in unbroken.iter().flatten().step_by(5) {
            assert!(*pixels == case.alone(epoch, *id), "seed {seed}, sample {id}");
        }
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), unbroken.iter().map(Vec::len).sum::<usize>(), "seed {seed}: a sample occurs twice");
        assert!(read(&case, case.loader().workers(3), epoch, 0) == unbroken, "seed {seed}: three workers");
        for world in [2, 3] {
            let share = |rank| read(&case, case.loader().workers(1).rank(rank, world), epoch, 0);
            let shares: Vec<_> = (0..world).map(share).collect();
            for (number, batch) in unbroken.iter().enumerate() {
                let joined: Batch = shares.iter().flat_map(|share| share[number].clone()).collect();
                assert!(joined == *batch, "seed {seed}, {world} ranks, batch {number}");
            }
        }
        let stop = seed % (unbroken.len() as u64 + 1);
        let mut first = case.loader().workers(1).rank(0, 2).host().unwrap();
        first.epoch_from(epoch, 0).take(stop as usize).for_each(drop);
        let state = first.checkpoint();
        if stop > 0 && stop < unbroken.len() as u64 {
            let rest = read(&case, case.loader().workers(1).resume(state.clone()), epoch, stop);
            assert!(rest == unbroken[stop as usize..], "seed {seed}: resumed at {stop}");
            let doubled: Vec<Size> = case.sizes.iter().map(|s| Size::new(s.width * 2, s.height * 2)).collect();
            let budget = case.budget.map_or(u64::MAX, |budget| budget * 4);
            let other = case.loader().size_buckets(case.images.clone(), doubled).budget(budget);
            assert_eq!(other.resume(state).host().unwrap_err().kind(), ErrorKind::Config);
        }
    }
    assert!(checked > 150 && mixed_sizes > 80, "{checked} {mixed_sizes}");
}

#[test]
fn the_memory_plan_of_size_buckets_fits_the_largest_batch() {
    let images = [Size::new(30, 30), Size::new(60, 20)].repeat(50);
    let samples = images.iter().map(|_| OwnedSample::new("a").field("png", vec![0])).collect();
    let sizes = [Size::new(100, 100), Size::new(30, 10)];
    let loader = Loader::source(Memory::new(samples)).augment(Augment::cover(1, 1)).drop_field("label").batch_size(40);
    let slot = |loader: Loader| loader.prefetch(2).host().unwrap().memory_plan().slot_bytes;
    let bucketed = loader.size_buckets(images, sizes);
    assert_eq!(slot(bucketed.clone()), (40 * 30_000_usize).next_multiple_of(256));
    // A batch has two images of 10,000 pixels, or 40 of 300 pixels. A slot must hold either batch.
    assert_eq!(slot(bucketed.budget(25_000)), (2 * 30_000_usize).next_multiple_of(256));
}

#[test]
fn image_sizes_are_upright_and_zero_for_unreadable_headers() {
    let mut rng = Rng::new(1, 1, 1);
    let rotated = include_bytes!("../fixtures/orientation/6.jpg").to_vec(); // stored as 48x32
    let files = [png(&mut rng, 7, 3), vec![1, 2, 3], rotated, png(&mut rng, 5, 5)];
    let samples = files.iter().map(|file| OwnedSample::new("a").field("png", file.clone()).label(0)).collect();
    let loader = Loader::source(Memory::new(samples)).augment(Augment::cover(1, 1)).batch_size(3);
    let images = loader.image_sizes().unwrap();
    assert_eq!(images, [Size::new(7, 3), Size::new(0, 0), Size::new(32, 48), Size::new(5, 5)]);
    // The unreadable image counts as a square, and fails when it is loaded.
    let sizes = [Size::new(4, 2), Size::new(3, 3), Size::new(2, 4)];
    let loader = loader.size_buckets(images, sizes);
    let lens: Vec<_> = loader.clone().host().unwrap().epoch(0).map(|batch| batch.map(|batch| batch.len())).collect();
    let errors: Vec<String> = lens.iter().filter_map(|batch| Some(batch.as_ref().err()?.to_string())).collect();
    assert!(errors.len() == 1 && errors[0].contains("sample 1"), "{errors:?}");
    let skip = loader.on_error(OnError::Skip { max_skipped: 1 });
    let valid = |batch: HostBatch| batch.ids().zip(batch.valid()).filter(|(_, valid)| *valid).collect::<Vec<_>>();
    let mut ids: Vec<u64> = skip.host().unwrap().epoch(0).flat_map(|b| valid(b.unwrap())).map(|(id, _)| id).collect();
    ids.sort_unstable();
    // A valid sample may replace the failed one.
    ids.dedup();
    assert_eq!(ids, [0, 2, 3]);
}

#[test]
fn image_sizes_respect_the_limit_of_the_sample_size() {
    let mut rng = Rng::new(1, 1, 1);
    let folder = tempfile::tempdir().unwrap();
    let images = [png(&mut rng, 7, 3), png(&mut rng, 90, 90)];
    for (name, image) in ["a.png", "b.png"].iter().zip(&images) {
        std::fs::write(folder.path().join(name), image).unwrap();
    }
    let samples = images.iter().map(|image| OwnedSample::new("x").field("png", image.clone())).collect();
    let largest = images[1].len() as u64;
    for loader in [Loader::new(folder.path()), Loader::source(Memory::new(samples))] {
        let loader = loader.augment(Augment::cover(1, 1)).drop_field("label");
        let sizes = loader.clone().max_sample_bytes(largest).image_sizes().unwrap();
        assert_eq!(sizes, [Size::new(7, 3), Size::new(90, 90)]);
        let e = loader.max_sample_bytes(largest - 1).image_sizes().unwrap_err().to_string();
        assert!(e.contains("sample 1") && e.contains(&format!("{largest} bytes")), "{e}");
    }
}

#[test]
fn options_incompatible_with_size_buckets_are_refused() {
    let mut rng = Rng::new(1, 1, 1);
    let sample = |id: usize| OwnedSample::new(id.to_string()).field("png", png(&mut rng, 9, 9)).label(0);
    let loader = Loader::source(Memory::new((0..4).map(sample).collect())).augment(Augment::cover(1, 1)).batch_size(2);
    let (images, size) = (vec![Size::new(9, 9); 4], Size::new(8, 8));
    let bucketed = |sizes: &[Size]| loader.clone().size_buckets(images.clone(), sizes.to_vec());
    for (loader, text) in [
        (
            loader.clone().size_buckets(vec![size; 3], [size]),
            "size_buckets: 3 image sizes, but the source has 4 samples",
        ),
        (bucketed(&[]), "size_buckets: 0 sizes: expected 1 to 256"),
        (bucketed(&[size, Size::new(0, 3)]), "augment: the output is 0x3"),
        (bucketed(&[Size::new(70_000, 3)]), "augment: the output is 70000x3"),
        (bucketed(&[size, size]), "size_buckets: 8x8 is listed twice"),
        (bucketed(&[size]).last_batch(LastBatch::Pad), "size_buckets and last_batch(Pad)"),
        (bucketed(&[size]).budget(63), "budget(63) is too small"),
        (bucketed(&[size]).repeat(2), "size_buckets and repeat cannot be combined"),
        (bucketed(&[size]).weights(vec![1.0; 4]), "weights and size_buckets: each decides the order"),
        (
            bucketed(&[size]).augment(Augment::cover(1, 1).from_epoch(1, Augment::cover(2, 2))),
            "size_buckets and Augment::from_epoch cannot be combined",
        ),
        (
            bucketed(&[size]).augment(Augment::train(8).mosaic(Mosaic::new())),
            "size_buckets cannot be combined with mosaic or copy_paste",
        ),
    ] {
        refused(loader, text);
    }
}
