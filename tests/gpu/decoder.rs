//! Tests that a decoder returns the same pixels as a loader for each request. Images that cannot be
//! decoded must be reported individually. The decoder must reuse its memory, and serve several
//! threads at the same time.
//!
//! Most tests run in host memory and, if there is a driver, on a device. The others run only in
//! host memory.

use std::collections::HashSet;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::device::noisy_gradient;
use jpeg_encoder::SamplingFactor::{F_1_1, F_1_2, F_2_1, F_2_2, F_4_1};
use jpeg_encoder::{ColorType, Encoder};
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::transform::Mix;
use warpfeed::{Augment, BatchInfo, Decoder, DecoderBuilder, Dtype, ErrorKind, HostBatch, Layout, Loader, Normalize};

pub(crate) trait Answer: Deref<Target = BatchInfo> + Send + 'static {
    fn bytes(&self) -> Vec<u8>;
    fn address(&self) -> u64;
}

impl Answer for HostBatch {
    fn bytes(&self) -> Vec<u8> {
        self.images().bytes().to_vec()
    }

    fn address(&self) -> u64 {
        self.images().bytes().as_ptr() as u64
    }
}

#[cfg(feature = "cuda")]
impl Answer for warpfeed::CudaBatch {
    fn bytes(&self) -> Vec<u8> {
        self.images().download().unwrap()
    }

    fn address(&self) -> u64 {
        self.images().device_ptr()
    }
}

macro_rules! everywhere {
    ($check:ident) => {{
        $check(|options: DecoderBuilder| options.host().unwrap());
        #[cfg(feature = "cuda")]
        match warpfeed::cuda::stream(0) {
            Ok(stream) => $check(|options: DecoderBuilder| options.cuda(&stream).unwrap()),
            Err(e) => $crate::require::missing("cuda", e),
        }
    }};
}
pub(crate) use everywhere;

pub(crate) fn random_jpegs(count: u64) -> Vec<Vec<u8>> {
    let image = |n: u64| {
        let mut rng = Rng::new(n, 7, 7);
        let (width, height) = (30 + rng.below(200) as u16, 30 + rng.below(200) as u16);
        let pixels = noisy_gradient(&mut rng, width, height);
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 40 + (n % 60) as u8);
        encoder.set_sampling_factor([F_2_2, F_2_1, F_1_1, F_1_2, F_4_1][n as usize % 5]);
        encoder.set_progressive(n % 9 == 8);
        if n % 3 == 1 {
            encoder.set_restart_interval(1 + rng.below(20) as u16);
        }
        encoder.encode(&pixels, width, height, ColorType::Rgb).unwrap();
        bytes
    };
    (0..count).map(image).collect()
}

fn zoo() -> Vec<Vec<u8>> {
    let mut images = random_jpegs(40);
    // Damage the entropy-coded data, so that a decoder loses synchronization.
    for image in images.iter_mut().skip(5).step_by(7) {
        let offset = image.len() * 3 / 4;
        image[offset..offset + 4].copy_from_slice(&[0x12, 0xef, 0x55, 0xaa]);
    }
    let exif = b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let turned = [&images[0][..2], exif, &images[0][2..]].concat();
    images.push(turned);
    for format in [image::ImageFormat::Png, image::ImageFormat::WebP, image::ImageFormat::Bmp] {
        let image = image::RgbImage::from_fn(90, 70, |x, y| image::Rgb([x as u8, y as u8, (x * y) as u8]));
        let mut bytes = std::io::Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        images.push(bytes.into_inner());
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/jpeg_kinds");
    for name in ["cmyk", "cmyk_progressive", "ycck", "sampling_1x3", "sampling_3x2", "sampling_chroma_larger"] {
        images.push(std::fs::read(format!("{folder}/{name}.jpg")).unwrap());
    }
    let mut large = Vec::new();
    let pixels: Vec<u8> = (0..1500 * 1500 * 3_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    Encoder::new(&mut large, 90).encode(&pixels, 1500, 1500, ColorType::Rgb).unwrap();
    images.push(large);
    images
}

pub(crate) fn pixels(loader: Loader) -> Loader {
    loader.batch_size(8).workers(2).augment(Augment::eval(72, 64))
}

/// A decoder that must produce the same pixels as the loader that `with` configures.
pub(crate) fn requests(with: impl Fn(Loader) -> Loader) -> DecoderBuilder {
    with(Loader::new("a decoder opens no dataset")).decoder()
}

pub(crate) fn loader_images(images: &[Vec<u8>], with: impl Fn(Loader) -> Loader) -> Vec<Vec<u8>> {
    let samples = images.iter().map(|bytes| OwnedSample::new("x").field("jpg", bytes.clone())).collect();
    let mut batches = with(Loader::source(Memory::new(samples))).host().unwrap();
    let each = |batch: HostBatch| {
        let bytes = batch.images().bytes();
        bytes.chunks(bytes.len() / batch.len()).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    batches.epoch(0).flat_map(|batch| each(batch.unwrap())).collect()
}

#[test]
fn a_decoder_gives_the_pixels_of_a_loader() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let zoo = zoo();
        let formats = [
            (Dtype::U8, Layout::Nhwc),
            (Dtype::U8, Layout::Nchw),
            (Dtype::F16, Layout::Nchw),
            (Dtype::Bf16, Layout::Nhwc),
            (Dtype::F32, Layout::Nchw),
        ];
        for (dtype, layout) in formats {
            let with = |loader| {
                let loader = pixels(loader).dtype(dtype).layout(layout);
                if dtype == Dtype::U8 { loader } else { loader.normalize(Normalize::IMAGENET) }
            };
            let (expected, decoder) = (loader_images(&zoo, with), open(requests(with)));
            let mut rest = &zoo[..];
            let mut answers = Vec::new();
            while !rest.is_empty() {
                let (request, remaining) = rest.split_at(rest.len().min(1 + answers.len() % 8));
                answers.push(decoder.submit(request.to_vec()).unwrap());
                rest = remaining;
            }
            let actual = answers.into_iter().flat_map(|answer| {
                let batch = answer.wait().unwrap();
                assert!((0..batch.valid().len()).all(|place| batch.error(place).is_none()));
                assert!(batch.valid().all(|valid| valid));
                let bytes = batch.bytes();
                bytes.chunks(bytes.len() / batch.valid().len()).map(<[u8]>::to_vec).collect::<Vec<_>>()
            });
            let actual: Vec<_> = actual.collect();
            assert_eq!(actual.len(), expected.len());
            for (place, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                assert!(actual == expected, "image {place}, {dtype:?} {layout:?}");
            }
        }
    }
    everywhere!(check);
}

#[test]
fn requests_that_overlap_have_the_pixels_of_a_loader() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let zoo = zoo();
        let with = |loader| pixels(loader).dtype(Dtype::F16).layout(Layout::Nchw).normalize(Normalize::IMAGENET);
        let (expected, mut rng) = (loader_images(&zoo, with), Rng::new(4, 0, 0));
        for (batch, sizes) in [(1, &[1][..]), (8, &[1, 1, 8]), (40, &[1, 1, 1, 1, 3, 10, 11, 40])] {
            let decoder = open(requests(with).batch_size(batch).max_in_flight(6));
            let mut pending = std::collections::VecDeque::new();
            for round in 0..600 {
                let size = sizes[rng.below(sizes.len() as u64) as usize];
                let first = rng.below((zoo.len() - size + 1) as u64) as usize;
                pending.push_back((first, size, decoder.submit(zoo[first..first + size].to_vec()).unwrap()));
                if pending.len() < 6 {
                    continue;
                }
                let (first, size, answer) = pending.pop_front().unwrap();
                let bytes = answer.wait().unwrap().bytes();
                for (place, found) in bytes.chunks(bytes.len() / size).enumerate() {
                    assert!(found == expected[first + place], "round {round}: image {}", first + place);
                }
            }
        }
    }
    everywhere!(check);
}

#[test]
fn a_bad_image_does_not_affect_the_others() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let with = |loader| pixels(loader).normalize(Normalize::IMAGENET);
        let decoder = open(requests(with).max_pixels(1 << 16));
        let good = random_jpegs(4);
        let black = image::RgbImage::new(64, 64);
        let mut png = std::io::Cursor::new(Vec::new());
        black.write_to(&mut png, image::ImageFormat::Png).unwrap();
        let expected = loader_images(&[&good[..], &[png.into_inner()]].concat(), with);
        let short = good[1][..good[1].len() / 2].to_vec();
        let huge = {
            let mut bytes = Vec::new();
            Encoder::new(&mut bytes, 50).encode(&[9; 300 * 300], 300, 300, ColorType::Luma).unwrap();
            bytes
        };
        let bad_images: [(Vec<u8>, &str); 4] = [
            (b"no image".to_vec(), "decode: "),
            (Vec::new(), "decode: "),
            (short, "decode: jpeg ends at byte "),
            (huge, "decode: "),
        ];
        for (bad_image, cause) in &bad_images {
            // Decode valid images first, so that the slots contain a valid image at the position of
            // the bad one.
            for _ in 0..8 {
                decoder.decode(good.clone()).unwrap();
            }
            let batch = decoder.decode([good[0].clone(), good[1].clone(), bad_image.clone(), good[3].clone()]).unwrap();
            let errors: Vec<_> = (0..4).map(|place| batch.error(place).map(ToString::to_string)).collect();
            let error = errors[2].as_ref().unwrap_or_else(|| panic!("no error with the cause {cause:?}"));
            assert!(error.starts_with(&format!("sample 2: {cause}")), "{error}");
            assert!([0, 1, 3].iter().all(|place| errors[*place].is_none()), "{errors:?}");
            assert!(batch.valid().eq([true, true, false, true]));
            let bytes = batch.bytes();
            let each: Vec<_> = bytes.chunks(bytes.len() / 4).collect();
            for (place, image) in [(0, 0), (1, 1), (2, 4), (3, 3)] {
                assert!(
                    each[place] == expected[image],
                    "{cause:?}: position {place} must show image {image} (4 is black)"
                );
            }
        }
        let batch = decoder.decode(vec![b"bad".to_vec(); 8]).unwrap();
        assert!(
            (0..8).all(|place| batch.error(place).is_some()),
            "a bad image in a request with only bad images has no error"
        );
        assert!(batch.error(8).is_none());
        assert!(decoder.decode(good).unwrap().valid().all(|valid| valid));
    }
    everywhere!(check);
}

#[test]
fn memory_is_reused() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let decoder = open(requests(pixels).max_in_flight(2));
        let (images, plan) = (random_jpegs(8), decoder.memory_plan());
        let mut addresses = HashSet::new();
        for round in 0..100 {
            addresses.insert(decoder.decode(images[..1 + round % 8].to_vec()).unwrap().address());
        }
        assert!(addresses.len() <= plan.slots, "batches at {} addresses with {plan}", addresses.len());
        assert_eq!(decoder.memory_plan(), plan);
    }
    everywhere!(check);
}

#[test]
fn threads_that_share_a_decoder_get_their_own_answers() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let images = random_jpegs(24);
        let (expected, decoder) = (loader_images(&images, pixels), open(requests(pixels).max_in_flight(6)));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (decoder, images, expected) = (&decoder, &images, &expected);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread, 3, 3);
                    for _ in 0..30 {
                        let places: Vec<_> = (0..=rng.below(7)).map(|_| rng.below(24) as usize).collect();
                        let batch = decoder.decode(places.iter().map(|place| images[*place].clone())).unwrap();
                        let expected_bytes =
                            places.iter().map(|place| &expected[*place][..]).collect::<Vec<_>>().concat();
                        assert!(batch.bytes() == expected_bytes, "thread {thread}: {places:?}");
                    }
                });
            }
        });
    }
    everywhere!(check);
}

#[test]
fn batches_outlive_a_decoder_dropped_with_requests_in_flight() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let images = random_jpegs(8);
        let expected = loader_images(&images, pixels).concat();
        for round in 0..12 {
            let decoder = open(requests(pixels));
            let batch = decoder.decode(images.clone()).unwrap();
            let pending: Vec<_> = (0..6).map(|_| decoder.submit(images.clone()).unwrap()).collect();
            drop(decoder.submit(images.clone()).unwrap());
            std::thread::sleep(Duration::from_millis(round % 6));
            let since = Instant::now();
            drop(decoder);
            assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
            for answer in pending {
                match answer.wait() {
                    Ok(batch) => assert!(batch.bytes() == expected),
                    Err(e) => assert!(e.to_string().contains("the decoder was dropped"), "{e}"),
                }
            }
            assert!(batch.bytes() == expected);
        }
    }
    everywhere!(check);
}

#[test]
fn a_request_without_a_free_slot_fails_and_later_ones_succeed() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let decoder = open(requests(pixels).max_in_flight(1).held_batches_timeout(Duration::from_millis(200)));
        let images = random_jpegs(3);
        let expected = loader_images(&images, pixels).concat();
        let mut batches = Vec::new();
        let error = loop {
            match decoder.decode(images.clone()) {
                Ok(batch) => batches.push(batch),
                Err(e) => break e,
            }
        };
        assert!(batches.len() >= 2 && error.kind() == ErrorKind::Timeout, "{}: {error}", batches.len());
        let waiting: Vec<_> = (0..3).map(|_| decoder.submit(images.clone()).unwrap()).collect();
        assert!(batches.drain(..).all(|batch| batch.bytes() == expected));
        for answer in waiting {
            // The first request may have timed out already.
            match answer.wait() {
                Ok(batch) => assert!(batch.bytes() == expected),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Timeout),
            }
        }
        assert!(decoder.decode(images).unwrap().bytes() == expected);
    }
    everywhere!(check);
}

fn all_held<B: Answer>(open: &impl Fn(DecoderBuilder) -> Decoder<B>, queued: usize) -> (Decoder<B>, Vec<B>) {
    let options = Decoder::builder().batch_size(2).workers(2).augment(Augment::resize(8, 8));
    let decoder = open(options.max_in_flight(1).max_queued(queued));
    let plan = decoder.memory_plan();
    let slots = if plan.device_slots > 0 { plan.device_slots } else { plan.slots };
    let image = dot(0);
    let batches = (0..slots).map(|_| decoder.decode([image.clone()]).unwrap()).collect();
    (decoder, batches)
}

#[derive(Clone)]
struct Dot(Arc<[u8]>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Dot {
    fn as_ref(&self) -> &[u8] {
        self.1.fetch_add(1, Relaxed);
        &self.0
    }
}

fn dot(shade: u8) -> Dot {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let image = image::RgbImage::from_pixel(8, 8, image::Rgb([shade; 3]));
    image.write_to(&mut bytes, image::ImageFormat::Bmp).unwrap();
    Dot(bytes.into_inner().into(), Arc::default())
}

#[test]
fn a_dropped_request_frees_its_place_in_a_full_queue() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let (decoder, batches) = all_held(&open, 5);
        let mut pending = Vec::new();
        let error = loop {
            match decoder.submit([dot(7)]) {
                Ok(answer) => pending.push(answer),
                Err(e) => break e,
            }
            if pending.len() == 5 {
                std::thread::sleep(Duration::from_millis(100));
            }
        };
        assert!((5..20).contains(&pending.len()), "{}", pending.len());
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().starts_with("busy: 5 requests are queued, and max_queued is 5; "), "{error}");
        pending.pop();
        pending.push(decoder.submit([dot(7)]).unwrap());
        assert_eq!(decoder.submit([dot(7)]).err().unwrap().kind(), ErrorKind::Busy);
        drop(batches);
        for answer in pending {
            assert_eq!(answer.wait().unwrap().bytes(), [7; 8 * 8 * 3]);
        }
        assert_eq!(decoder.decode([dot(9)]).unwrap().bytes(), [9; 8 * 8 * 3]);
    }
    everywhere!(check);
}

#[test]
fn canceled_requests_among_ten_thousand_are_not_decoded() {
    const COUNT: usize = 10_000;
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let (decoder, batches) = all_held(&open, COUNT);
        let reads = Arc::new(AtomicUsize::new(0));
        let dots: Vec<_> = (0..=255).map(|shade| Dot(dot(shade).0, reads.clone())).collect();
        let ask = |thread: usize| {
            let ask = |number: usize| (number % 256, decoder.submit([dots[number % 256].clone()]).unwrap());
            (0..COUNT / 4).map(|number| ask(7 * number + thread)).collect::<Vec<_>>()
        };
        let (mut dropped, mut live) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || ask(thread))).collect();
            for (number, answer) in threads.into_iter().flat_map(|thread| thread.join().unwrap()).enumerate() {
                if number % 2 == 0 { dropped.push(answer) } else { live.push(answer) }
            }
        });
        // Submitting a request reads only the length of each image. Workers read the bytes later.
        let read = reads.load(Relaxed);
        assert!((COUNT..COUNT + 20).contains(&read), "{read} reads of {COUNT} requests");
        drop(dropped);
        drop(batches);
        std::thread::scope(|scope| {
            for part in live.chunks_mut(COUNT / 16) {
                let part: Vec<_> = part.iter_mut().map(|(shade, answer)| (*shade, answer)).collect();
                scope.spawn(move || {
                    for (shade, mut answer) in part {
                        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                        let batch = loop {
                            match std::pin::Pin::new(&mut answer).poll(&mut Context::from_waker(&waker)) {
                                Poll::Ready(batch) => break batch.unwrap(),
                                Poll::Pending => std::thread::park(),
                            }
                        };
                        assert_eq!(batch.bytes(), [shade as u8; 8 * 8 * 3]);
                    }
                });
            }
        });
        let read = reads.load(Relaxed) - COUNT;
        // Requests that had begun before they were dropped may have read their images.
        assert!((COUNT / 2..COUNT / 2 + 16).contains(&read), "{read} of {COUNT} images were decoded");
        assert!(decoder.stats().batches < COUNT as u64 / 2 + 32);
    }
    everywhere!(check);
}

#[test]
fn an_oversized_image_is_released_at_once_and_fails_alone() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let decoder = open(requests(pixels).max_sample_bytes(100_000));
        let (small, large) = (dot(3), Dot(vec![0; 100_001].into(), Arc::default()));
        let answer = decoder.submit([small.clone(), large.clone(), small]).unwrap();
        assert_eq!(Arc::strong_count(&large.0), 1, "references to the oversized image");
        assert_eq!(large.1.load(Relaxed), 1, "reads of the oversized image: only its length is needed");
        let batch = answer.wait().unwrap();
        assert!(batch.valid().eq([true, false, true]));
        let error = batch.error(1).unwrap().to_string();
        assert_eq!(error, "sample 1: source: the image has 100001 bytes, but max_sample_bytes is 100000");
    }
    everywhere!(check);
}

#[test]
fn a_waker_that_panics_does_not_cause_a_hang() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker of a test");
        }
    }
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        for drops in [false, true] {
            let (decoder, batches) = all_held(&open, 10);
            let waker = Waker::from(Arc::new(Panics));
            let mut answers: Vec<_> = (0..3).map(|_| decoder.submit([dot(5)]).unwrap()).collect();
            for answer in &mut answers[..2] {
                assert!(answer.poll_ready(&mut Context::from_waker(&waker)).is_pending());
            }
            if drops {
                drop(decoder);
            } else {
                drop(batches);
                assert!(answers[0].is_ready_within(Duration::from_secs(30)));
                drop(answers.drain(..1));
            }
            for answer in answers {
                assert!(answer.is_ready_within(Duration::from_secs(30)), "no answer arrives");
                assert_eq!(answer.wait().is_err(), drops);
            }
        }
    }
    everywhere!(check);
}

#[test]
fn the_memory_plan_and_verdict_describe_a_server() {
    let decoder = requests(pixels).host().unwrap();
    let plan = decoder.memory_plan();
    assert_eq!((plan.readahead_bytes, plan.device_slots), (0, 0));
    assert!(!plan.to_string().contains("ahead"), "{plan}");
    for _ in 0..8 {
        decoder.decode(random_jpegs(4)).unwrap();
    }
    assert!(decoder.stats().on_request && decoder.stats().since(&decoder.stats()).on_request);
    let verdict = decoder.stats().verdict().to_string();
    assert!(verdict.contains("requests of 4.0 images"), "{verdict}");
    assert!(!verdict.contains("step") && !verdict.contains("Loader::trace"), "{verdict}");
    assert_eq!(decoder.stats().readahead, None);
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn an_answer_is_awaited_as_a_future() {
    fn check<B: Answer>(open: impl Fn(DecoderBuilder) -> Decoder<B>) {
        let decoder = open(requests(pixels));
        let (images, waker) = (random_jpegs(8), Waker::from(Arc::new(Unpark(std::thread::current()))));
        let expected = loader_images(&images, pixels).concat();
        let answer = decoder.submit(images.clone()).unwrap();
        assert!(answer.is_ready_within(Duration::from_secs(30)) && answer.is_ready());
        drop(answer);
        for _ in 0..20 {
            let mut answer = pin!(decoder.submit(images.clone()).unwrap());
            let batch = loop {
                match answer.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(batch) => break batch.unwrap(),
                    Poll::Pending => std::thread::park(),
                }
            };
            assert!(batch.bytes() == expected);
        }
    }
    everywhere!(check);
}

#[test]
fn a_panic_in_user_code_fails_its_image() {
    #[derive(Clone)]
    struct Bytes(Vec<u8>, bool);
    impl AsRef<[u8]> for Bytes {
        fn as_ref(&self) -> &[u8] {
            assert!(!self.1, "these bytes must not be read");
            &self.0
        }
    }
    let decoder = requests(pixels).host().unwrap();
    let images: Vec<_> = random_jpegs(3).into_iter().enumerate().map(|(n, bytes)| Bytes(bytes, n == 1)).collect();
    for _ in 0..3 {
        let batch = decoder.decode(images.clone()).unwrap();
        assert!(batch.valid().eq([true, false, true]));
        assert_eq!(batch.error(1).unwrap().kind(), ErrorKind::Panic);
    }
}

#[test]
fn invalid_requests_are_refused() {
    let decoder = requests(pixels).host().unwrap();
    assert_eq!(decoder.max_batch(), 8);
    let refused = |count| decoder.decode(vec![Vec::<u8>::new(); count]).unwrap_err().to_string();
    assert_eq!(refused(0), "config: a request has 0 images: the decoder accepts 1 to 8");
    assert_eq!(refused(9), "config: a request has 9 images: the decoder accepts 1 to 8");
    let options = Decoder::builder;
    let mixing = Augment::train(64).mix(Mix::mixup(0.2));
    let error = options().augment(mixing).host().unwrap_err().to_string();
    assert_eq!(error, "config: augment mixes images, but a decoder processes each image separately; remove the mixing");
    let error = options().batch_size(0).host().unwrap_err().to_string();
    assert!(error.starts_with("config: batch_size(0): "), "{error}");
    let error = options().max_queued(0).host().unwrap_err().to_string();
    assert!(error.contains("max_queued(0): expected at least 1"), "{error}");
}
