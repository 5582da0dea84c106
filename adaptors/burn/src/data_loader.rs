//! A `DataLoader` for burn's `Learner` that returns the batches of a warpfeed loader.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use burn_core::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn_core::data::dataset::DatasetError;
use burn_core::tensor::Device;
use warpfeed::{Batches, Error, HostBatch, Result};

/// Creates a `DataLoader` for burn's `Learner` from the batches of a warpfeed loader. `map`
/// converts each batch to the type that the `Learner` consumes.
///
/// Each pass over the `DataLoader` runs the next epoch, starting at [`Batches::first_epoch`]. If
/// the loader was resumed, the first pass starts at the checkpoint, even in the middle of an epoch.
/// The iterators return errors of the warpfeed loader and of `map` as [`DatasetError`]s.
///
/// ```
/// use burn_core::data::dataloader::DataLoader;
/// use burn_core::tensor::Device;
/// use warpfeed_burn::{ToBurn, data_loader};
///
/// # fn main() -> warpfeed::Result<()> {
/// # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap();
/// let batches = warpfeed::Loader::new("datasets/mini").batch_size(16).shuffle(42).host()?;
/// let train = data_loader(batches, Device::default(), |batch, device| batch.to_burn(device));
/// for item in train.iter() {
///     let (images, labels) = item.unwrap();
/// }
/// # Ok(())
/// # }
/// ```
///
/// For several devices, open one loader per device with [`Loader::rank`](warpfeed::Loader::rank).
/// If you pass a single loader, burn splits it into ranges of samples, and iterating over a range
/// returns an error.
pub fn data_loader<O: Send + 'static>(
    batches: Batches<HostBatch>,
    device: Device,
    map: impl Fn(HostBatch, &Device) -> Result<O> + Send + Sync + 'static,
) -> Arc<BatchLoader<O>> {
    let (requests, request_receiver) = mpsc::channel::<Request>();
    let (first_epoch, samples) = (batches.first_epoch(), batches.epoch_len(batches.first_epoch()));
    // burn iterates through a shared reference to its `DataLoader`, but `Batches::epoch` needs a
    // mutable reference, so a thread owns the batches. The thread does not prefetch, because the
    // warpfeed loader does.
    let spawned = thread::Builder::new().name("warpfeed-burn".into()).spawn(move || serve(batches, &request_receiver));
    let requests = spawned.is_ok().then_some(requests);
    let next_epoch = AtomicUsize::new(usize::try_from(first_epoch).unwrap_or(usize::MAX));
    let loader_thread = LoaderThread {
        requests: Mutex::new(requests),
        next_epoch,
        samples: usize::try_from(samples).unwrap_or(usize::MAX),
    };
    Arc::new(BatchLoader { loader_thread: Arc::new(loader_thread), map: Arc::new(map), device, range: None })
}

struct Request {
    epoch: u64,
    sender: mpsc::SyncSender<Result<HostBatch>>,
}

fn serve(mut batches: Batches<HostBatch>, request_receiver: &mpsc::Receiver<Request>) {
    while let Ok(Request { epoch, sender }) = request_receiver.recv() {
        for batch in batches.epoch(epoch) {
            // Sending fails if the iterator was dropped.
            if sender.send(batch).is_err() {
                break;
            }
        }
    }
}

struct LoaderThread {
    /// `None` if the thread that owns the batches could not be started.
    requests: Mutex<Option<mpsc::Sender<Request>>>,
    next_epoch: AtomicUsize,
    samples: usize,
}

type Map<O> = dyn Fn(HostBatch, &Device) -> Result<O> + Send + Sync;

/// The burn `DataLoader` that [`data_loader`] returns.
pub struct BatchLoader<O> {
    loader_thread: Arc<LoaderThread>,
    map: Arc<Map<O>>,
    device: Device,
    /// The range of samples that `slice` requested, or `None` for all samples.
    range: Option<(usize, usize)>,
}

impl<O: Send + 'static> DataLoader<O> for BatchLoader<O> {
    /// Returns an iterator over the next epoch. Its first item becomes available once all earlier
    /// iterators are exhausted or dropped; until then, `next` blocks.
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let (sender, batches) = mpsc::sync_channel(0);
        let error = match self.range {
            Some((start, end)) => {
                let cause = format!(
                    "samples {start} to {end}: this loader cannot be split; open one loader per device, with `rank`"
                );
                Some(Error::config(cause))
            }
            None => {
                let epoch = self.loader_thread.next_epoch.fetch_add(1, Ordering::Relaxed) as u64;
                let requests = self.loader_thread.requests.lock().unwrap_or_else(|broken| broken.into_inner());
                let is_sent =
                    requests.as_ref().is_some_and(|requests| requests.send(Request { epoch, sender }).is_ok());
                (!is_sent).then(|| Error::config("the data loader thread could not be started, or panicked"))
            }
        };
        Box::new(Epoch { loader: self, batches, error, processed: 0 })
    }

    fn num_items(&self) -> usize {
        self.loader_thread.samples
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(BatchLoader { device: device.clone(), ..self.shared() })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        let is_full = (start, end) == (0, self.loader_thread.samples);
        Arc::new(BatchLoader { range: (!is_full).then_some((start, end)), ..self.shared() })
    }
}

impl<O> BatchLoader<O> {
    fn shared(&self) -> Self {
        BatchLoader {
            loader_thread: self.loader_thread.clone(),
            map: self.map.clone(),
            device: self.device.clone(),
            range: self.range,
        }
    }
}

impl<O> std::fmt::Debug for BatchLoader<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchLoader").field("samples", &self.loader_thread.samples).finish_non_exhaustive()
    }
}

struct Epoch<'a, O> {
    loader: &'a BatchLoader<O>,
    batches: mpsc::Receiver<Result<HostBatch>>,
    error: Option<Error>,
    processed: usize,
}

impl<O> Iterator for Epoch<'_, O> {
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.error.take() {
            return Some(Err(DatasetError::new(error)));
        }
        let item = self.batches.recv().ok()?.and_then(|batch| {
            self.processed += batch.len();
            (self.loader.map)(batch, &self.loader.device)
        });
        Some(item.map_err(DatasetError::new))
    }
}

impl<O> DataLoaderIterator<O> for Epoch<'_, O> {
    fn progress(&self) -> Progress {
        Progress::new(self.processed, self.loader.loader_thread.samples, Some("items".to_owned()))
    }
}
