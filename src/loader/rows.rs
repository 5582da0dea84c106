//! The options that are one value: a row for each.
//!
//! A row gives the field with its default; the setter of a loader, and with `both` that of a decoder; the
//! link in the table of options; the keyword of the Python package, of the same name or the one after `as`,
//! with its type and default; and the call in reports. A setter that does more than set a field is written
//! where it belongs, and `named` at the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Dtype, Layout, Normalize};
use crate::decode::{AnnotationFrame, Codecs};
#[cfg(doc)]
use crate::engine::Batches;
use crate::engine::DecodeOn;
#[cfg(doc)]
use crate::error::Error;
use crate::sampler::LastBatch;
#[cfg(doc)]
use crate::sampler::Rank;
use crate::source;
use crate::trace;
use crate::transform::{Augment, Transform};

options! {
    /// The options that are one value, and those of images.
    ImageOptions {
        augment: Augment = Augment::eval(256, 224),
        transforms: Vec<Arc<dyn Transform>> = Vec::new(),
        codecs: Codecs = Codecs::new(),
        trace: Option<(PathBuf, trace::Schedule)> = None,
    }

    purpose "in which order", "The seed." {
        /// Sets the seed of the shuffle and of all augmentation; 0 by default.
        ///
        /// ```
        /// # use warpfeed::{Augment, Loader};
        /// let in_order = Loader::new("train").augment(Augment::train(224)).seed(42);
        /// ```
        both fn seed(seed: u64) -> u64 = 0;
    }

    purpose "batches", "The ranks of a machine, and the last batch." {
        /// Sets the number of ranks on this machine, including this one. They share its cores:
        /// with automatic [`workers`](Self::workers), each rank starts its share of the threads. 0 is
        /// an error.
        ///
        /// By default the number comes from the launcher's environment ([`Rank::from_env`]). Set it if
        /// the ranks are started in another way, for example by a program that starts itself again.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let third_of_eight_on_one_machine = Loader::new("train").rank(2, 8).local_world_size(8);
        /// ```
        loader fn local_world_size(ranks: usize) -> Option<usize> = None;

        /// Sets the treatment of the last batch of an epoch if the samples do not fill it;
        /// [`LastBatch::ObjectCache`] by default.
        ///
        /// ```
        /// # use warpfeed::{LastBatch, Loader};
        /// let loader = Loader::new("train").last_batch(LastBatch::Drop);
        /// ```
        loader fn last_batch(last: LastBatch) -> LastBatch = LastBatch::ObjectCache;
    }

    purpose "fields", "Missing labels and turned images." {
        /// Reads missing labels as -1; off by default.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let images = Loader::new("flat-folder").unlabeled(true);
        /// ```
        ///
        /// By default, each batch has labels for all of its samples or for none:
        ///
        /// - If none of its samples has a label, [`HostBatch::labels`](crate::HostBatch::labels) is an
        ///   error. All other fields can be read. An example is a flat folder of images.
        /// - If some have a label, each sample without one is an error that names sample and file.
        ///   [`on_error`](Self::on_error) specifies what follows.
        ///
        /// A label of -1 therefore comes from the sample itself or from this option.
        loader fn unlabeled(unlabeled: bool) -> bool = false;

        /// Sets which version of a turned image was annotated if the sizes do not tell: the pixels as
        /// stored, or the image that EXIF turns upright. Unset by default.
        ///
        /// The option applies to boxes with their masks and points, [`Mask`](crate::field::Mask),
        /// [`DenseMap`](crate::field::DenseMap) and [`Keypoints`](crate::field::Keypoints). They declare the size of
        /// the annotated image, or have a size of their own. If only the stored or only the upright
        /// image has this size, that one was annotated, and the option has no effect. Otherwise the
        /// option decides: for images that are square, turned by 180 degrees or mirrored, and for
        /// coordinates without a size, such as those of YOLO. Without the option, such a sample is an
        /// error.
        ///
        /// ```
        /// # use warpfeed::{AnnotationFrame, Loader};
        /// // Labeled in a tool that shows images upright, as browsers do.
        /// let loader = Loader::new("coco8/data.yaml").annotations_follow(AnnotationFrame::Upright);
        /// ```
        loader fn annotations_follow(image: AnnotationFrame) -> Option<AnnotationFrame> = None;
    }

    purpose "images", "Pixels and their layout in the batch." {
        /// Sets whether the steps of [`transform`](Self::transform) may move pixels; true by default.
        /// Masks, boxes and other fields that follow the image need steps that leave each pixel in
        /// its place, such as changes of colors.
        ///
        /// ```
        /// # use warpfeed::{Dtype, Loader, field::Mask, sampler::Rng, transform::ImageMut};
        /// fn invert(image: &mut ImageMut<'_>, _: &mut Rng) -> warpfeed::Result<()> {
        ///     image.data_mut().iter_mut().for_each(|v| *v = 255 - *v);
        ///     Ok(())
        /// }
        /// let loader = Loader::new("train").field("mask", Mask::new(Dtype::U8));
        /// let loader = loader.transform(invert).transform_moves_pixels(false);
        /// ```
        loader fn transform_moves_pixels(moves: bool) -> bool = true;

        /// Computes `(pixel / 255 - mean) / std` per channel. The dtype becomes F32 unless
        /// [`dtype`](Self::dtype) sets another float. Without this option float images are `pixel /
        /// 255`.
        ///
        /// ```
        /// # use warpfeed::{Loader, Normalize};
        /// let loader = Loader::new("train").normalize(Normalize::IMAGENET);
        /// ```
        both fn normalize(normalize: Normalize) -> Option<Normalize> = None;

        /// Sets the element type of the images: F32, F16, BF16, or U8 for unchanged pixels. The default
        /// is U8, or F32 with [`normalize`](Self::normalize).
        ///
        /// ```
        /// # use warpfeed::{Dtype, Loader, Normalize};
        /// let loader = Loader::new("train").normalize(Normalize::IMAGENET).dtype(Dtype::F16);
        /// ```
        both fn dtype(dtype: Dtype) -> Option<Dtype> = None;

        /// Sets the order of the images' axes; [`Layout::Nhwc`] by default.
        ///
        /// ```
        /// # use warpfeed::{Layout, Loader};
        /// let loader = Loader::new("train").layout(Layout::Nchw);
        /// ```
        both fn layout(layout: Layout) -> Layout = Layout::Nhwc;

        /// Sets the number of channels of the images: 3 by default, or 1 for grayscale. All steps of
        /// the augmentation see RGB. The finished image becomes its brightness, as by Pillow's
        /// `convert("L")`, which leaves gray images unchanged. Then it is normalized, with the first
        /// of the three numbers, and its values are erased and mixed.
        ///
        /// Batches on a device have three channels.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("x-rays").channels(1); // (N, H, W, 1)
        /// ```
        both fn channels(channels: usize) -> usize = 3;

        /// Sets the color behind transparent pixels of PNG, WebP, GIF and TIFF. By default alpha is
        /// dropped, as by torchvision, and transparent pixels show the color that the file stores for
        /// them. [`DenseMap::of_channels(4)`](crate::field::DenseMap::of_channels) keeps alpha as a channel.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("logos").background([255; 3]);
        /// ```
        both fn background(color: [u8; 3]) -> Option<[u8; 3]> = None;

        /// Sets whether images of more than 8 bits per channel become images of 8 bits; off by
        /// default. Values of 16 bits keep their upper 8, and floats from 0 to 1 become 0 to 255. By
        /// default such an image is an error of its sample, because 12-bit scans and measurements lose
        /// most of their content. [`DenseMap`](crate::field::DenseMap) reads their values unchanged.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("photographs").convert_to_u8(true);
        /// ```
        both fn convert_to_u8(converts: bool) -> bool = false;
    }

    purpose "speed", "Performance. These options do not change the batches." {
        /// Sets the number of worker threads, which read, decode and transform. The number only affects
        /// speed: batches stay the same, bit for bit.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").workers(8);
        /// ```
        ///
        /// 0, the default, means one thread for each core that this process may use. Set more for
        /// a decoder or a transform that blocks. Slow storage does not need more workers: if reads
        /// block on a disk or a network, 32 reader threads read ahead for the workers, and up to 512
        /// while more make reading faster. They start at the first blocking read, and sleep while reads
        /// do not block. Their samples stay within the memory of [`Batches::memory_plan`].
        ///
        /// Each worker costs a thread and scratch memory for its images. More than 768 workers are an
        /// error when the loader is opened.
        both fn workers(threads: usize) -> usize = 0, as num_workers;

        /// Sets the number of batches that are prepared ahead of the consumer. The number only affects
        /// speed.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").prefetch(4);
        /// ```
        ///
        /// The loader holds `prefetch + 2` slots: the consumer has one, and one is being filled. More
        /// than a few batches help only if the times of samples or steps vary a lot.
        ///
        /// 0, the default, is automatic. It starts with 2 batches. If the consumer waits while workers
        /// are idle for lack of slots, the number is doubled, up to 16. An increase that does not raise
        /// throughput is undone. A consumer that keeps batches alive gets more slots while some are
        /// free.
        ///
        /// All slots are allocated on opening, limited by [`memory_limit`](Self::memory_limit)
        /// (default: 1 GiB, or 256 MiB if page-locked, within the available memory, and always at least
        /// two batches). Pages that are never touched are never committed. With batches on a device, 2
        /// batches are kept ready, and only the number of host slots adapts.
        loader fn prefetch(batches: usize) -> usize = 0;

        /// Sets whether batches are in page-locked memory, from which a GPU copies without the host's
        /// help; off by default.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").pinned(true);
        /// ```
        ///
        /// Uploads from page-locked memory are asynchronous, also with cudarc's safe calls. You may
        /// still drop a batch at once. A thread of the loader makes sure that its memory is written
        /// again only after all work submitted to the devices before the drop has completed. While a
        /// long step keeps slots, the loader prepares fewer batches ahead.
        #[cfg_attr(
            feature = "cuda",
            doc = "\n[`HostBatch::release_on`](crate::HostBatch::release_on) names the stream that reads the batch: then the loader waits for that stream only."
        )]
        ///
        /// There are two limits:
        ///
        /// - The loader does not see work in a CUDA context other than the device's primary one.
        ///   Programs with such contexts need `release_on`.
        /// - For a dropped batch, the loader marks all work in the context. This can invalidate a CUDA
        ///   graph capture of a stream that the loader does not know. The driver reports that at the
        ///   end of the capture. The loader knows streams of [`cuda::stream`](crate::cuda::stream) and
        ///   those passed to `release_on`.
        ///
        /// Without a CUDA driver the loader logs one warning and uses pageable memory, which
        /// [`Batches::memory_plan`] shows. Page-locking takes about 0.3 ms per MB on opening. The
        /// memory cannot be swapped out.
        both fn pinned(pinned: bool) -> bool = false, as pin_memory;

        /// Sets where JPEGs of batches in device memory are decoded; [`DecodeOn::Cpu`] by default. The
        /// choice only affects speed: batches stay the same, bit for bit.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// use warpfeed::DecodeOn;
        ///
        /// let loader = Loader::new("train.lmdb").decode_on(DecodeOn::Auto);
        /// ```
        ///
        /// With [`DecodeOn::Gpu`] workers only extract the parts of a JPEG that its crop needs. The
        /// device decodes, crops, resizes and flips them. [`DecodeOn::Auto`] does so while the workers
        /// on their own are too slow for the consumer. On an H200 a batch of 256 crops takes 0.6 ms of
        /// the device's time from packed files (`warpfeed pack`), and 1.5 ms from plain ones.
        ///
        /// Workers decode everything else: progressive, CMYK and damaged JPEGs, other formats,
        /// and all images of a loader with a [`transform`](Self::transform), because it
        /// runs on the host. [`Stats::decoded_on_device`] counts the images that the device decoded.
        ///
        /// The device needs about 2.4 MB of memory per sample of a batch in addition to the batches;
        /// [`Batches::memory_plan`] includes it. Batches in host memory ignore the option.
        ///
        /// [`Stats::decoded_on_device`]: crate::Stats::decoded_on_device
        loader fn decode_on(decode_on: DecodeOn) -> Option<DecodeOn> = None;

        /// Sets the maximum share of the device's time for decoding JPEGs, from 0 to 1; 1 by default.
        /// Workers decode the remaining images.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// use warpfeed::DecodeOn;
        ///
        /// let loader = Loader::new("train.lmdb").decode_on(DecodeOn::Gpu).decode_share(0.03);
        /// ```
        ///
        /// The share is averaged over some tenths of a second. It counts the time between the events
        /// around the decoding of a batch. If other work runs at the same time, the device decodes more
        /// slowly, and decoding then uses less of the device than this time suggests.
        /// [`Stats::device_decode`] reports the time.
        ///
        /// # Errors
        /// A share below 0 or above 1 fails with [`ErrorKind::Config`](crate::ErrorKind::Config) on
        /// opening.
        ///
        /// [`Stats::device_decode`]: crate::Stats::device_decode
        both fn decode_share(share: f64) -> f64 = 1.0;

        /// Sets the number of epochs that the program takes; unlimited by default. The loader prepares
        /// nothing for epoch `epochs` and later ones before they are requested, so a run of this many
        /// epochs ends without a read in vain.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let ninety_epochs = Loader::new("train").epochs(90);
        /// ```
        ///
        /// Without it, the loader prepares the first batches of the next epoch while an epoch ends, and
        /// discards them if the program does not ask for them; see [`Batches::epoch`]. They take the
        /// slots that are free anyway: at most [`prefetch`](Self::prefetch) + 2 batches, and on a
        /// device as many again. Later epochs can still be requested, and then begin on request. With 0
        /// each epoch begins on request. Choose 0 if your own code, such as a
        /// [`transform`](Self::transform), depends on state that the program changes between epochs.
        loader fn epochs(epochs: u64) -> u64 = u64::MAX;

        /// Sets whether tar shards are memory-mapped; `true` by default. With `false`, shards are read
        /// with system calls.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let network_drive = Loader::new("/mnt/nfs/train-{000..099}.tar").mmap(false);
        /// ```
        ///
        /// If a mapped shard is truncated or its disk fails while it is in use, the process dies with
        /// `SIGBUS`. With reads, the same is an ordinary sample error. Reads also suit network file
        /// systems. They cost a copy of the encoded bytes and one open file per shard; see
        /// [`Tar::open_unmapped`](crate::source::Tar::open_unmapped).
        ///
        /// The option does not affect folders, which are always read, or sources that are already open.
        /// The LMDB library always maps its files: with `false`, opening an LMDB is an error.
        loader fn mmap(mapped: bool) -> bool = true;
    }

    purpose "limits and faults", "Errors and limits." {
        /// Sets how often a sample is read again after a [transient](Error::is_transient) error of its
        /// source (`EIO`, `EINTR`, `EAGAIN`, `ESTALE`, `EMFILE`, `ENFILE`, `ENOMEM`, a timeout); 3 by
        /// default. 0 means never. If the last attempt fails too, the error counts. `EMFILE`, `ENFILE`
        /// and `ENOMEM` then end the epoch, because they say nothing about the sample.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let network_drive = Loader::new("/mnt/nfs/train").retries(10);
        /// ```
        ///
        /// The first pause lasts 5 ms. Each further pause is four times as long, up to one second. Each
        /// retry is logged as a warning and counted in [`Stats::retries`](crate::Stats::retries). The
        /// reads of [`resume`](Self::resume) and [`balanced`](Self::balanced) are retried too;
        /// those of `balanced` are not counted. A worker keeps one buffer for each retry.
        ///
        /// More than 1,000 retries are an error when the loader is opened: they would hold up a batch
        /// for a quarter of an hour.
        loader fn retries(times: usize) -> usize = source::RETRIES;

        /// Sets whether damage in an image is an error of its sample; off by default.
        ///
        /// Decoding continues past damage inside a JPEG, as libjpeg does with a warning. By default a
        /// loader counts such images in [`Stats::damaged`](crate::Stats::damaged) and names each sample
        /// once in the log, as a warning. It sees only the damage that decoding meets: damage outside the
        /// crop, damage that leaves valid codes, and data that is left over at the end of a segment are
        /// neither counted nor named.
        ///
        /// A strict loader first reads all of each image, as [`check`](crate::decode::check) and
        /// `warpfeed verify` do, and refuses it for damage anywhere. The result is the same for every
        /// crop, and wherever the image is decoded. Workers do this reading, also for images that a
        /// device decodes. It takes longer than decoding the whole image, so photographs take two to
        /// three times as long. For a large dataset run `warpfeed verify --strict` once instead.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").strict(true);
        /// ```
        ///
        /// The [`decode`](crate::decode) module lists what counts as damage.
        /// [`on_error`](Self::on_error) sets the policy for such a sample.
        both fn strict(strict: bool) -> bool = false;

        /// Limits the bytes that the loader holds, on host and device together: slots and workers'
        /// scratch; see [`MemoryPlan`](crate::MemoryPlan).
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").memory_limit(4 << 30);
        /// ```
        ///
        /// Opening fails if the slots need more. Workers get the rest as scratch. With little scratch,
        /// fewer large images are decoded at once. An automatic [`prefetch`](Self::prefetch) stays
        /// within the limit.
        ///
        /// Without a limit, opening fails if the plan needs more host memory than is available on the
        /// machine or in the container's cgroup (Linux only). Workers' scratch is then at most half of
        /// what the slots leave. Setting a limit replaces this check.
        both fn memory_limit(bytes: usize) -> Option<usize> = None;

        /// Limits the pixels that an image's header may claim; 2^28 (16,384 by 16,384) by default. An
        /// image that claims more fails, and no memory is allocated for it.
        ///
        /// The limit holds for every codec, including your own.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").max_pixels(50_000_000);
        /// ```
        both fn max_pixels(pixels: u64) -> Option<u64> = None;

        /// Limits the bytes of all stored fields of a sample together; 2^31 by default. A larger sample
        /// fails before it is decoded.
        ///
        /// Mapped sources (tar and LMDB) and requests are checked before any copy. Files of a sample,
        /// such as those of folders and tables, are refused by their size before they fill the memory.
        /// Tar shards with [`mmap(false)`](Self::mmap) are checked after reading, at most 2 GiB.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train.tar").max_sample_bytes(64 << 20);
        /// ```
        loader fn max_sample_bytes(bytes: u64) -> u64 = 1 << 31;

        /// Sets how long a call for the next batch waits while the consumer holds every slot; 30 s by
        /// default. Then the call fails. Time spent on a slow worker does not count, but is logged.
        ///
        /// ```
        /// # use std::time::Duration;
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").timeout(Duration::from_secs(5));
        /// ```
        loader fn timeout(timeout: Duration) -> Duration = Duration::from_secs(30);
    }

    named { repeat, shuffle, shuffle_window, batch_size, global_batch_size }
}
