//! A small inference server with threads as clients. Run with
//! `cargo run --release --example serve`.
//!
//! Eight clients send encoded images, some of which are invalid. The decoder batches requests
//! dynamically: it decodes a batch once the batch contains 16 images, or 2 ms after its first
//! request. Batches are on the GPU if there is one. The "model" responds with the mean of the
//! normalized image, which each client compares with the mean of the same image from a loader.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use warpfeed::source::{self, Source};
use warpfeed::{Augment, Decoder, DynamicBatcher, Error, Loader, Normalize, Result, cuda};

const CLIENTS: usize = 8;
const IMAGES_PER_CLIENT: usize = 200;
const MAX_BATCH: usize = 16;
const MAX_DELAY: Duration = Duration::from_millis(2);

/// The channel for the response to a request.
type Answer = Sender<Result<f32>>;

fn main() -> Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../datasets/mini");
    let images = source::open(folder)?;
    // The server uses the same options as the training loader.
    let training =
        Loader::new(folder).batch_size(MAX_BATCH).augment(Augment::eval(72, 64)).normalize(Normalize::IMAGENET);
    let expected = expected(&training)?;
    match cuda::stream(0) {
        Ok(stream) => serve(training.decoder().cuda(&stream)?, &*images, &expected, |batch| {
            // A real program would queue its model's kernels on `stream` here.
            Ok((0..batch.len()).map(|row| batch.error(row).cloned()).zip(means(&batch.images().download()?)).collect())
        }),
        Err(e) => {
            println!("decoding in host memory, because there is no GPU: {e}");
            serve(training.decoder().host()?, &*images, &expected, |batch| {
                Ok((0..batch.len()).map(|row| batch.error(row).cloned()).zip(means(batch.images().bytes())).collect())
            })
        }
    }
}

fn expected(training: &Loader) -> Result<Vec<f32>> {
    let mut batches = training.clone().host()?;
    let expected_means = batches.epoch(0).map(|batch| Ok(means(batch?.images().bytes()).collect::<Vec<_>>()));
    Ok(expected_means.collect::<Result<Vec<_>>>()?.concat())
}

fn means(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let value = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes);
    let mean = move |image: &[u8]| image.as_chunks().0.iter().map(value).sum::<f32>() / (3.0 * 64.0 * 64.0);
    bytes.chunks_exact(3 * 64 * 64 * 4).map(mean)
}

/// For each image, the decoder's error, if any, and the response of the model.
type Answers = Vec<(Option<Error>, f32)>;

fn serve<B: Send + 'static>(
    decoder: Decoder<B>,
    images: &dyn Source,
    expected: &[f32],
    model: impl Fn(B) -> Result<Answers> + Sync,
) -> Result<()> {
    let decoder = Arc::new(decoder);
    let batcher: DynamicBatcher<B, Answer> = decoder.dynamic_batcher(MAX_DELAY)?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while let Some(batch) = batcher.next() {
                let outputs = batch.pending.wait().and_then(&model);
                for (answer, rows) in batch.requests {
                    let _ = answer.send(match &outputs {
                        Ok(outputs) => match &outputs[rows.start] {
                            (None, mean) => Ok(*mean),
                            (Some(error), _) => Err(error.clone()),
                        },
                        Err(e) => Err(e.clone()),
                    });
                }
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let batcher = &batcher;
                scope.spawn(move || run_client(client, images, expected, batcher))
            })
            .collect();
        let client_results: Vec<_> =
            clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect();
        batcher.close();
        let mut latencies = Vec::new();
        for client in client_results {
            latencies.extend(client?);
        }
        latencies.sort();
        let quantile = |share: f64| latencies[(latencies.len() as f64 * share) as usize].as_secs_f64() * 1e3;
        let stats = decoder.stats();
        println!(
            "{} images in {} batches, {} sent to the GPU; responses after {:.1} ms (median) and {:.1} ms (99th percentile), all correct",
            latencies.len(),
            stats.batches,
            stats.images_sent_to_device,
            quantile(0.5),
            quantile(0.99),
        );
        Ok(())
    })
}

/// Sends images one after the other, and checks the responses. Returns the latency of each
/// response.
fn run_client<B>(
    client: usize,
    images: &dyn Source,
    expected: &[f32],
    batcher: &DynamicBatcher<B, Answer>,
) -> Result<Vec<Duration>> {
    let (mut scratch, mut latencies) = (Vec::new(), Vec::new());
    for round in 0..IMAGES_PER_CLIENT {
        let number = (client * 37 + round * 5) % expected.len();
        let sample = images.read(number, &mut scratch)?;
        let mut image = sample.fields()[0].1.as_bytes().to_vec();
        let is_invalid = (client + round) % 25 == 24;
        if is_invalid {
            image.truncate(image.len() / 2);
        }
        let (answer, receiver) = channel();
        let start = Instant::now();
        batcher.submit([image], answer)?;
        let answer = receiver.recv().expect("the server answers");
        latencies.push(start.elapsed());
        match answer {
            Ok(mean) if !is_invalid && mean == expected[number] => {}
            Err(e) if is_invalid && e.to_string().contains("decode: ") => {}
            answer => panic!("image {number}, bad {is_invalid}: {answer:?}, expected {}", expected[number]),
        }
    }
    Ok(latencies)
}
