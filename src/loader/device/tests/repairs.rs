//! Tests that workers decode the images that the device could not decode.

use std::collections::HashMap;
use std::sync::Mutex;

use super::*;
use crate::engine::SampleError;
use crate::error::Error;
use crate::field::Image;
use crate::source::{Sample, Source};
use crate::transform::Policy;

/// One in five images contains an invalid Huffman code.
fn damaged() -> Vec<Vec<u8>> {
    let mut images = originals(false);
    for image in images.iter_mut().skip(4).step_by(5) {
        let offset = image.len() * 2 / 3;
        image[offset..offset + 12].copy_from_slice(&[0xff, 0].repeat(6));
    }
    images
}

/// A source that counts reads. A worker reads a sample again if the device could not decode its
/// image.
struct Reads {
    samples: Samples,
    second_read: SecondRead,
    /// Reads per sample, and the names of the threads that read a sample again.
    state: Mutex<(HashMap<usize, u32>, Vec<String>)>,
}

#[derive(Clone, Copy, PartialEq)]
enum SecondRead {
    Succeeds,
    Delayed(Duration),
    Fails,
}

impl Reads {
    fn new(second_read: SecondRead) -> Arc<Self> {
        let samples = damaged().into_iter().enumerate();
        let sample = |(n, bytes)| OwnedSample::new(format!("{n}")).field("jpg", bytes).label(n as i64 % 7);
        Arc::new(Reads { samples: Samples::new(samples.map(sample).collect()), second_read, state: Mutex::default() })
    }

    fn read_twice(&self) -> (Vec<usize>, Vec<String>) {
        let mut state = self.state.lock().unwrap();
        let mut twice: Vec<usize> = state.0.drain().filter(|read| read.1 > 1).map(|read| read.0).collect();
        twice.sort_unstable();
        (twice, std::mem::take(&mut state.1))
    }
}

impl Source for Reads {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let mut state = self.state.lock().unwrap();
        let reads = state.0.entry(index).or_default();
        *reads += 1;
        if *reads > 1 {
            state.1.push(std::thread::current().name().unwrap_or_default().to_owned());
            drop(state);
            match self.second_read {
                SecondRead::Succeeds => {}
                SecondRead::Delayed(time) => std::thread::sleep(time),
                SecondRead::Fails => return Err(Error::in_source("the disk is gone")),
            }
        }
        self.samples.read(index, scratch)
    }
}

fn reading(source: &Arc<Reads>) -> Loader {
    Loader::source(source.clone()).batch_size(8).shuffle(3).workers(2).prefetch(2).augment(Augment::resize(32, 32))
}

type Opened = (Batches<ConsumerBatch<Sim>>, Sim);

fn open(loader: Loader) -> Opened {
    let sim = Sim::new(Mistake::None, 20);
    let consumer = sim.stream().unwrap();
    // With `epochs(0)`, the loader does not prefetch the next epoch. Otherwise, the prefetching
    // would count as reading samples again.
    let loader = loader.decode_on(DecodeOn::Gpu).epochs(0);
    let DeviceLoader { ring, shared } = loader.open_device(sim.clone(), consumer).unwrap();
    (Batches::new(ring, &shared), sim)
}

/// Returns the batches before the first error, and that error.
fn epoch((opened, sim): &mut Opened, epoch: u64, first: u64) -> (Vec<Vec<u8>>, Option<Error>) {
    let mut batches = Vec::new();
    for batch in opened.epoch_from(epoch, first) {
        match batch {
            Ok(batch) => batches.push(pixels(sim, &batch)),
            Err(e) => return (batches, Some(e)),
        }
    }
    (batches, None)
}

#[test]
fn damaged_images_are_decoded_by_workers() {
    let source = Reads::new(SecondRead::Succeeds);
    let (batches, error) = epoch(&mut open(reading(&source)), 0, 0);
    let (twice, threads) = source.read_twice();
    assert!(error.is_none() && twice.len() > 3, "{twice:?} were damaged");
    assert!(batches == on_host(reading(&source), 0), "the batches must be in order and bit-identical");
    assert!(threads.iter().all(|thread| thread.starts_with("warpfeed-") && thread != "warpfeed-copy"), "{threads:?}");
}

/// AugMix has no device code, so a worker finishes the image `view`. If the device then fails to
/// decode the other image of the same sample, a worker decodes that image again and must leave
/// `view` unchanged.
#[test]
fn images_that_a_worker_has_finished_are_not_written_again() {
    let loader = || {
        let view = Image::new().augment(Augment::eval(32, 32).policy(Policy::aug_mix()));
        reading(&Reads::new(SecondRead::Succeeds)).field("view", view)
    };
    let mut host = loader().host().unwrap();
    let expected: Vec<_> = host.epoch(0).map(|batch| batch.unwrap().field("view").unwrap().bytes().to_vec()).collect();
    let (mut opened, sim) = open(loader());
    let found: Vec<_> = opened.epoch(0).map(|batch| pixels_of(&sim, &batch.unwrap(), Some("view"))).collect();
    assert!(found == expected.into_iter().map(all_converted).collect::<Vec<_>>());
    assert!(opened.stats().device_failed_samples > 3);
}

/// Returns JPEGs of all types, with random bytes overwritten. The damage includes invalid codes,
/// coefficients past the end of a block, unexpected restart markers, and codes that remain valid
/// but change the pixels.
fn with_noise() -> Samples {
    let mut rng = Rng::new(11, 0, 0);
    let sample = |(n, mut jpeg): (usize, Vec<u8>)| {
        let start = jpeg.windows(2).rposition(|marker| marker == [0xff, 0xda]).unwrap() + 14;
        for _ in 0..1 + rng.below(3) {
            let offset = start + rng.below((jpeg.len() - start - 2) as u64) as usize;
            jpeg[offset] = rng.below(256) as u8;
        }
        OwnedSample::new(format!("{n}")).field("jpg", jpeg).label(0)
    };
    let images = (0..8).flat_map(|_| originals(false)).enumerate();
    Samples::new(images.map(sample).collect())
}

#[test]
fn the_damage_count_does_not_depend_on_the_decoder() {
    let loader = || Loader::source(with_noise()).batch_size(8).workers(2).augment(Augment::resize(32, 32)).epochs(0);
    let mut host = loader().host().unwrap();
    let expected: Vec<_> = host.epoch(0).map(|batch| batch.unwrap().images().bytes().to_vec()).collect();
    let mut opened = open(loader());
    let (actual, error) = epoch(&mut opened, 0, 0);
    assert!(error.is_none() && actual == expected, "{error:?}");
    let [actual, expected] = [opened.0.stats().damaged_images, host.stats().damaged_images];
    assert!(actual == expected && expected > 40, "{actual} on the device, {expected} on the host");
    // The loader does not count coefficients past the end of a block as damage, but `check` reports
    // them.
    let samples = with_noise();
    let noticed = (0..samples.len()).filter(|&n| {
        let sample = samples.read(n, &mut Vec::new()).map(|sample| check(&sample.field("jpg").unwrap()));
        matches!(sample.unwrap(), Condition::Tolerated(_))
    });
    assert!(noticed.count() as u64 > expected + 4);
}

#[test]
fn a_sample_that_cannot_be_read_again_fails_alone() {
    let source = Reads::new(SecondRead::Fails);
    let skipping = reading(&source).on_error(OnError::Skip { max_skipped: 48 });
    let mut opened = open(skipping);
    let (batches, error) = epoch(&mut opened, 0, 0);
    assert!(error.is_none() && batches.len() == 6, "the epoch must continue: {error:?}");
    let (twice, _) = source.read_twice();
    let faults: Vec<SampleError> = opened.0.sample_errors();
    let mut failed: Vec<String> = faults.iter().map(|fault| fault.error.to_string()).collect();
    failed.sort();
    assert!(!twice.is_empty() && failed.len() == twice.len(), "{twice:?} were read again, {failed:?} failed");
    assert!(failed.iter().all(|error| error.contains("the disk is gone")), "{failed:?}");
    drop(opened);

    let (before, error) = epoch(&mut open(reading(&source)), 0, 0);
    assert!(error.unwrap().to_string().contains("the disk is gone"));
    source.read_twice();
    assert!(before == on_host(reading(&source), 0)[..before.len()]);
}

#[test]
fn an_epoch_can_be_abandoned_while_workers_redecode() {
    let source = Reads::new(SecondRead::Delayed(Duration::from_millis(3)));
    let expected = on_host(reading(&Reads::new(SecondRead::Succeeds)), 7);
    for turn in 0..12 {
        let mut opened = open(reading(&source));
        for short in 0..4 {
            let mut epoch = opened.0.epoch(short);
            for _ in 0..(turn + short) % 4 {
                epoch.next().unwrap().unwrap();
            }
            std::thread::sleep(Duration::from_micros(turn * 400));
        }
        if turn % 2 == 0 {
            let (batches, error) = epoch(&mut opened, 7, 0);
            assert!(error.is_none() && batches == expected, "turn {turn}");
        }
        source.read_twice();
    }
}

#[test]
fn damaged_requests_do_not_block_the_copy_thread() {
    let damaged: Vec<Vec<u8>> = damaged().into_iter().skip(4).step_by(5).take(8).collect();
    let sim = Sim::new(Mistake::None, 20);
    let decoder = decoder(&sim);
    let expected = |images: &[Vec<u8>]| {
        let loader = Loader { sampling: Default::default(), ..loader(images) };
        on_host(loader.augment(Augment::eval(40, 36)), 0).concat()
    };
    let sound = originals(false)[..8].to_vec();
    let requests = [&damaged, &sound, &damaged, &damaged, &sound];
    for _ in 0..4 {
        let answers: Vec<_> = requests.iter().map(|request| decoder.submit((*request).clone()).unwrap()).collect();
        for (answer, request) in answers.into_iter().zip(requests) {
            let batch = answer.wait().unwrap();
            assert!(
                pixels(&sim, &batch) == expected(request)
                    && (0..8).all(|place| batch.slot().info.error(place).is_none())
            );
        }
    }
}
