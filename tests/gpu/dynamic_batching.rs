//! Tests dynamic batching, which combines the requests of many clients into full batches. A batch
//! that does not fill up must start after `max_delay`, and each request must receive its own
//! images.
//!
//! Every test runs in host memory and, if there is a driver, on a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::decoder::{Answer, everywhere, loader_images, pixels, random_jpegs, requests};
use warpfeed::{Decoder, DecoderBuilder, DynamicBatch, DynamicBatcher, ErrorKind};

const NEVER: Duration = Duration::from_secs(60);

fn joined<B: Answer, T: Send + 'static>(
    open: &impl Fn(DecoderBuilder) -> Decoder<B>,
    options: DecoderBuilder,
    delay: Duration,
) -> (Arc<Decoder<B>>, DynamicBatcher<B, T>) {
    let decoder = Arc::new(open(options));
    let joined = decoder.dynamic_batcher(delay).unwrap();
    (decoder, joined)
}

fn values<B, T: Copy>(batch: &DynamicBatch<B, T>) -> Vec<T> {
    batch.requests.iter().map(|(value, _)| *value).collect()
}

#[test]
fn requests_fill_batches_and_each_gets_its_own_images() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let mut images = random_jpegs(31);
        images[4] = b"no image".to_vec();
        let good: Vec<_> = random_jpegs(31);
        let expected = loader_images(&good, pixels);
        let (decoder, joined) = joined(&open, requests(pixels).max_in_flight(6), NEVER);
        let counts = [3, 5, 1, 8, 2, 5, 1, 6];
        let first: Vec<usize> = (0..counts.len()).map(|n| counts[..n].iter().sum()).collect();
        for (number, (&first, count)) in first.iter().zip(counts).enumerate() {
            joined.submit(images[first..first + count].to_vec(), number).unwrap();
        }
        // The last batch is not full, so it waits until `close` is called.
        let mut batches: Vec<DynamicBatch<B, usize>> = (0..4).map(|_| joined.next().unwrap()).collect();
        joined.close();
        batches.push(joined.next().unwrap());
        assert!(joined.next().is_none() && joined.next().is_none());
        assert_eq!(
            batches.iter().map(values).collect::<Vec<_>>(),
            [vec![0, 1], vec![2], vec![3], vec![4, 5, 6], vec![7]]
        );
        for DynamicBatch { pending, requests } in batches {
            let batch = pending.wait().unwrap();
            let bytes = batch.bytes();
            let each: Vec<_> = bytes.chunks(bytes.len() / batch.len()).collect();
            assert_eq!(requests.iter().map(|(_, places)| places.len()).sum::<usize>(), batch.len());
            for (number, places) in requests {
                assert_eq!(places.len(), counts[number]);
                for (place, image) in places.zip(first[number]..) {
                    assert_eq!(batch.error(place).is_some(), image == 4);
                    assert!(image == 4 || each[place] == expected[image], "request {number}, image {image}");
                }
            }
        }
        let e = joined.submit(good[..1].to_vec(), 0).unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.to_string().contains("close was called"), "{e}");
        assert!(decoder.decode(good[..2].to_vec()).is_ok(), "the decoder was closed");
    }
    everywhere!(check);
}

#[test]
fn a_batch_starts_after_the_delay_of_its_first_request() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let delay = Duration::from_millis(80);
        let (_, joined) = joined(&open, requests(pixels), delay);
        for number in 0..3 {
            let since = Instant::now();
            joined.submit(random_jpegs(2), number).unwrap();
            joined.submit(random_jpegs(1), number + 10).unwrap();
            let batch = joined.next().unwrap();
            assert!(since.elapsed() >= delay, "{:?}", since.elapsed());
            assert_eq!(batch.requests, [(number, 0..2), (number + 10, 2..3)]);
            assert_eq!(batch.pending.wait().unwrap().len(), 3);
        }
    }
    everywhere!(check);
}

#[test]
fn a_canceled_request_is_in_no_batch_and_frees_its_place() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let (decoder, joined) = joined(&open, requests(pixels).max_queued(2), NEVER);
        let request = joined.submit(random_jpegs(1), "one").unwrap();
        let two = joined.submit(random_jpegs(1), "two").unwrap();
        let e = joined.submit(random_jpegs(1), "three").unwrap_err();
        assert!(e.kind() == ErrorKind::Busy && e.to_string().contains("max_queued is 2"), "{e}");
        assert_eq!((joined.cancel(request), joined.cancel(request), joined.cancel(two + 1)), (Some("one"), None, None));
        joined.submit(random_jpegs(3), "three").unwrap();
        for (request, count) in [(Vec::new(), 0), (random_jpegs(9), 9)] {
            let e = joined.submit(request, "wrong").unwrap_err();
            assert!(e.to_string().contains(&format!("a request has {count} images: the decoder accepts 1 to 8")));
        }
        joined.close();
        assert_eq!(joined.next().unwrap().requests, [("two", 0..1), ("three", 1..4)]);
        assert!(joined.next().is_none() && joined.cancel(two).is_none());
        let e = decoder.dynamic_batcher::<()>(NEVER + Duration::from_millis(1)).unwrap_err();
        assert!(e.to_string().contains("max_delay=60.001s: the maximum is 60s"), "{e}");
    }
    everywhere!(check);
}

struct Watched(Vec<u8>, #[allow(dead_code)] Arc<()>);

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn an_image_that_is_too_large_is_dropped_when_it_is_submitted() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let good = random_jpegs(1).remove(0);
        let (_, joined) = joined(&open, requests(pixels).max_sample_bytes(good.len() as u64), NEVER);
        let alive = Arc::new(());
        joined.submit([good.clone(), vec![0; good.len() + 1]].map(|bytes| Watched(bytes, alive.clone())), ()).unwrap();
        assert_eq!(Arc::strong_count(&alive), 2, "only the good image is still alive");
        joined.close();
        let batch = joined.next().unwrap().pending.wait().unwrap();
        let text = format!("the image has {} bytes, but max_sample_bytes is {}", good.len() + 1, good.len());
        assert!(batch.error(0).is_none() && batch.error(1).unwrap().to_string().contains(&text));
    }
    everywhere!(check);
}

#[test]
fn a_full_decoder_queue_drops_no_batched_request() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let (decoder, joined) = joined(&open, requests(pixels).max_in_flight(1).max_queued(1), NEVER);
        let (mut requests, mut refusals) = (Vec::new(), 0);
        while refusals < 4 {
            match decoder.submit(random_jpegs(1)) {
                Ok(pending) => requests.push(pending),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Busy);
                    refusals += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
        joined.submit(random_jpegs(8), "full").unwrap();
        let batch = joined.next().unwrap();
        drop(requests);
        assert_eq!((batch.pending.wait().unwrap().len(), batch.requests), (8, vec![("full", 0..8)]));
    }
    everywhere!(check);
}

#[test]
fn closing_the_decoder_answers_batched_requests_at_once() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let begun = std::time::Instant::now();
        let (decoder, joined) = joined(&open, requests(pixels), Duration::from_secs(60));
        joined.submit(random_jpegs(1), 7).unwrap();
        decoder.close();
        let batch = joined.next().unwrap();
        assert_eq!(values(&batch), [7]);
        let e = batch.pending.wait().err().unwrap();
        assert!(e.to_string().contains("the decoder was dropped or closed"), "{e}");
        assert!(joined.next().is_none() && begun.elapsed() < Duration::from_secs(30));
    }
    everywhere!(check);
}

#[test]
fn batched_requests_end_with_their_decoder_or_batcher() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let alive = Arc::new(());
        for round in 0..6 {
            let (decoder, joined) = joined(&open, requests(pixels).max_in_flight(1), Duration::ZERO);
            for _ in 0..20 {
                joined.submit(random_jpegs(8), alive.clone()).unwrap();
            }
            std::thread::sleep(Duration::from_millis(round));
            drop(joined);
            assert_eq!(Arc::strong_count(&alive), 1, "no thread keeps a request");
            assert!(decoder.decode(random_jpegs(1)).is_ok());
        }
        let (decoder, joined) = joined(&open, requests(pixels), Duration::ZERO);
        decoder.close();
        let e = joined.submit(random_jpegs(2), alive.clone()).err().unwrap();
        assert!(e.to_string().contains("the decoder was closed"), "{e}");
        assert!(joined.next().is_none(), "a refused request is waiting");
        let e = decoder.decode(random_jpegs(1)).err().unwrap();
        assert!(e.to_string().contains("the decoder was dropped"), "{e}");
    }
    everywhere!(check);
}
