//! Tests that every request to a decoder is answered with its own images, rejected or canceled, for
//! each explored interleaving of the threads that submit, decode, receive and close.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::scheduler;
use crate::support::silence_panics;
use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::sampler::Rng;
use warpfeed::{Augment, Decoder, Error, ErrorKind, HostBatch, Result};

const SIDE: u32 = 4;

/// A codec that decodes one byte to pixels of this value. Some bytes fail or panic.
struct Byte;

fn is_bad(byte: u8) -> bool {
    byte % 5 == 3
}

impl Codec for Byte {
    fn format(&self) -> Format {
        Format::any("byte")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        match bytes[0] {
            byte if is_bad(byte) && byte % 2 == 0 => Err(Error::decode("a bad byte")),
            _ => Ok(EncodedImage::new(bytes, Size::new(SIDE, SIDE))),
        }
    }

    fn decode(&self, original: &mut EncodedImage<'_>, _: Rect, out: &mut Pixels) -> Result<()> {
        let byte = original.bytes()[0];
        assert!(!is_bad(byte), "a bad byte");
        if byte % 5 == 1 {
            std::thread::sleep(Duration::from_micros(300));
        }
        out.reset(Size::new(SIDE, SIDE)).fill(byte);
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Does {
    Waits,
    Cancels,
    /// The client polls for the response before waiting for it.
    Polls,
    /// The client holds the batch while it waits for the next one.
    Keeps,
}

#[derive(Debug)]
struct Drawn {
    batch: usize,
    workers: usize,
    queued: usize,
    clients: Vec<Vec<(Vec<u8>, Does)>>,
    closes: Option<u64>,
}

impl Drawn {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 5, 5);
        let mut below = |end: u64| rng.next_u64() % end;
        let batch = 1 + below(4);
        let request = |below: &mut dyn FnMut(u64) -> u64| {
            let originals = (0..1 + below(batch)).map(|_| 1 + below(255) as u8).collect();
            let does = [Does::Waits, Does::Waits, Does::Cancels, Does::Polls, Does::Keeps][below(5) as usize];
            (originals, does)
        };
        let clients = (0..1 + below(2)).map(|_| (0..1 + below(6)).map(|_| request(&mut below)).collect()).collect();
        Drawn {
            batch: batch as usize,
            workers: 1 + below(3) as usize,
            queued: [1, 8][below(2) as usize],
            clients,
            closes: (below(3) == 0).then(|| below(6)),
        }
    }

    fn run(&self) -> [u64; 3] {
        let decoder = Decoder::builder().codec(Byte).augment(Augment::pass_through(SIDE, SIDE)).batch_size(self.batch);
        let decoder = Arc::new(decoder.workers(self.workers).max_queued(self.queued).max_in_flight(1).host().unwrap());
        let counts: Arc<[AtomicU64; 3]> = Arc::default();
        std::thread::scope(|scope| {
            let clients = self.clients.iter().map(|requests| {
                let (decoder, counts) = (decoder.clone(), counts.clone());
                scope.spawn(move || self.client(requests, &decoder, &counts))
            });
            let clients: Vec<_> = clients.collect();
            if let Some(answers) = self.closes {
                while counts[0].load(Relaxed) < answers && Arc::strong_count(&decoder) > 1 {
                    std::thread::sleep(Duration::from_micros(100));
                }
                decoder.close();
            }
            // The end of a scope does not wait until its threads have exited.
            clients.into_iter().for_each(|client| client.join().unwrap());
        });
        drop(decoder);
        [0, 1, 2].map(|n| counts[n].load(Relaxed))
    }

    fn client(&self, requests: &[(Vec<u8>, Does)], decoder: &Decoder<HostBatch>, counts: &[AtomicU64; 3]) {
        let mut held_batch = None;
        for (bytes, does) in requests {
            let pending = match decoder.submit(bytes.iter().map(|byte| vec![*byte])) {
                Ok(pending) => pending,
                Err(e) => {
                    assert!(e.kind() == ErrorKind::Busy || self.closes.is_some(), "{e}");
                    counts[1].fetch_add(1, Relaxed);
                    continue;
                }
            };
            match does {
                Does::Cancels => continue,
                Does::Polls => while !pending.is_ready_within(Duration::from_micros(50)) {},
                Does::Waits | Does::Keeps => {}
            }
            match pending.wait() {
                Ok(batch) => {
                    check(&batch, bytes);
                    held_batch = Some((batch, bytes)).filter(|_| matches!(does, Does::Keeps));
                    counts[0].fetch_add(1, Relaxed);
                }
                Err(e) => {
                    assert!(self.closes.is_some(), "{e}");
                    counts[2].fetch_add(1, Relaxed);
                }
            }
            if let Some((batch, bytes)) = &held_batch {
                check(batch, bytes);
            }
        }
    }
}

fn check(batch: &HostBatch, bytes: &[u8]) {
    let images = batch.images().as_u8().expect("u8 images");
    let image = (SIDE * SIDE * 3) as usize;
    assert_eq!(images.len(), bytes.len() * image);
    for (place, &byte) in bytes.iter().enumerate() {
        assert_eq!(batch.error(place).is_some(), is_bad(byte), "{byte}: {:?}", batch.error(place));
        let pixel = if is_bad(byte) { 0 } else { byte };
        assert!(images[place * image..][..image].iter().all(|&actual| actual == pixel), "{byte}");
    }
}

#[test]
fn the_order_of_threads_changes_no_answer() {
    crate::process::own_process!(the_order_of_threads_changes_no_answer);
    silence_panics();
    let explored = scheduler::explore(scheduler::seeds(0..1000), |seed| {
        let counts = Drawn::new(seed / 10).run();
        assert_eq!(scheduler::running_threads(), 0, "threads outlive the decoder");
        counts
    });
    let explored = explored.unwrap_or_else(|seed| panic!("schedule {seed}: {:?}", Drawn::new(seed / 10)));
    println!("{}; requests answered, refused, ended: {:?}", explored.summary, explored.counts);
    assert!(explored.counts.iter().all(|&count| count > 0) || scheduler::are_selected());
}
