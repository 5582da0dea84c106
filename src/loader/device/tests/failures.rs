//! Makes a different driver call fail in each run, alone or together with all later calls. Tests
//! that the delivered batches are intact, that the consumer gets all batches or an error, and that
//! no object still refers to the device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::error::Error;
use crate::source::{Sample, Source};

/// A source with an `Arc` whose strong count shows whether the source is still alive.
struct Watched(Samples, #[allow(dead_code)] Arc<()>);

impl Source for Watched {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.0.read(index, scratch)
    }
}

/// The delivered batches, and the errors.
type Seen = (Vec<Vec<u8>>, Vec<Error>);

/// Repeats `run`, each time with a different failing driver call. If `WARPFEED_SWEEP_ALL` is set,
/// every call fails once, and otherwise only the first calls and some of the later calls. Returns
/// the number of failures per driver function.
fn sweep(run: impl Fn(&Sim) -> Seen) -> BTreeMap<String, usize> {
    let (expected, none) = run(&Sim::new(Mistake::None, 0));
    assert!(none.is_empty() && !expected.is_empty());
    let mut swept = BTreeMap::new();
    let is_exhaustive = std::env::var_os("WARPFEED_SWEEP_ALL").is_some();
    for lasts in [true, false] {
        // The number of calls varies, because threads poll until their copies are complete.
        let (mut missed, mut next) = (0, 0);
        loop {
            let n = next;
            // Later calls are mostly polling, so test fewer and fewer of them.
            next += if is_exhaustive { 1 } else { 1 + n / 12 };
            let sim = Sim::new(Mistake::None, 0);
            if lasts {
                sim.fail_after(n)
            } else {
                sim.fail_once_after(n)
            }
            let (batches, errors) = run(&sim);
            let is_whole =
                batches.iter().zip(&expected).all(|(actual, expected)| actual.is_empty() || actual == expected);
            let failed = sim.first_failure();
            let what = format!("call {n}, {failed:?}, lasts: {lasts}: {errors:?}");
            assert!(is_whole, "{what}: wrong pixels");
            let is_reported = |e: &Error| e.kind() == ErrorKind::Cuda && e.cause().contains("simulated error");
            assert!(errors.iter().all(is_reported), "{what}");
            let is_complete = batches.len() == expected.len() && batches.iter().all(|batch| !batch.is_empty());
            assert!(is_complete || !errors.is_empty(), "{what}: a batch is missing without an error");
            let since = Instant::now();
            while !sim.is_idle() && since.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_micros(50));
            }
            assert!(sim.is_idle(), "{what}: the device is not idle");
            match failed {
                Some(call) => *swept.entry(call).or_default() += 1,
                None => missed += 1,
            }
            if missed == 3 {
                break;
            }
        }
    }
    swept
}

fn epoch(sim: &Sim, loader: &Loader) -> Seen {
    let (mut batches, mut errors) = (Vec::new(), Vec::new());
    let opened =
        sim.stream().and_then(|stream| loader.clone().open_device::<_, ConsumerBatch<Sim>>(sim.clone(), stream));
    let mut device = match opened {
        Ok(device) => device,
        Err(e) => return (batches, vec![e]),
    };
    for epoch in 0..2 {
        device.start(epoch, 0);
        while let Some(batch) = device.ring.next(&mut Wait::begins(&mut || Some(Duration::from_millis(100)))) {
            match batch {
                Ok(batch) => {
                    batch.shared.consumer.finish();
                    batches.push(arrived(&batch, None));
                }
                Err(e) => errors.push(e),
            }
        }
    }
    (batches, errors)
}

#[test]
fn every_driver_call_may_fail_while_batches_are_prepared() {
    let images = originals(true);
    let token = Arc::new(());
    for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu] {
        for dtype in [Dtype::U8, Dtype::F32] {
            let samples = images[..12].iter().zip(0..);
            let samples =
                samples.map(|(bytes, n)| OwnedSample::new(format!("{n}")).field("jpg", bytes.clone()).label(n));
            let run = |sim: &Sim| {
                let source = Watched(Samples::new(samples.clone().collect()), token.clone());
                let loader = Loader::source(source).batch_size(4).workers(2).prefetch(2).augment(Augment::train(24));
                let seen = epoch(sim, &loader.dtype(dtype).decode_on(decode_on));
                let since = Instant::now();
                while Arc::strong_count(&token) > 1 && since.elapsed() < Duration::from_secs(20) {
                    std::thread::sleep(Duration::from_micros(50));
                }
                assert_eq!(Arc::strong_count(&token), 1, "the loader still holds its source");
                seen
            };
            println!("{decode_on:?}, {dtype:?}: {:?}", sweep(run));
        }
    }
}

#[test]
fn every_driver_call_may_fail_while_a_decoder_answers() {
    let images = originals(true);
    let swept = sweep(|sim| {
        let (mut batches, mut errors) = (Vec::new(), Vec::new());
        let decoder = match open_decoder(sim, |options| options.decode_on(DecodeOn::Gpu)) {
            Ok(decoder) => decoder,
            Err(e) => return (batches, vec![e]),
        };
        let mut take = |answer: Result<ConsumerBatch<Sim>>| match answer {
            Ok(batch) => {
                batch.shared.consumer.finish();
                batches.push(arrived(&batch, None));
            }
            // A placeholder, so that later batches keep their index.
            Err(e) => {
                batches.push(Vec::new());
                errors.push(e);
            }
        };
        for requests in [3, 1] {
            let answers: Vec<_> =
                images.chunks(8).take(requests).map(|request| decoder.submit(request.to_vec())).collect();
            answers.into_iter().for_each(|answer| take(answer.and_then(|answer| answer.wait())));
        }
        (batches, errors)
    });
    println!("decoder: {swept:?}");
}
