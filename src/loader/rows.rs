//! The single-valued options, with one row per option.
//!
//! A row defines the field with its default; the setter on the loader and, if marked `both`, on the
//! decoder; the link in the table of options; the keyword of the Python package, which has the same
//! name or the name after `as`; and the call in reports. A setter that does more than assign a
//! field is written elsewhere, and listed as `named` at the end.

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
    /// The single-valued options, and the options for images.
    ImageOptions {
        augment: Augment = Augment::eval(256, 224),
        transforms: Vec<Arc<dyn Transform>> = Vec::new(),
        codecs: Codecs = Codecs::new(),
        trace: Option<(PathBuf, trace::Schedule)> = None,
    }

    purpose "in which order", "The seed." {
        /// Sets the seed for shuffling and for all augmentation; 0 by default.
        ///
        /// ```
        /// # use warpfeed::{Augment, Loader};
        /// let in_order = Loader::new("train").augment(Augment::train(224)).seed(42);
        /// ```
        both fn seed(seed: u64) -> u64 = 0;
    }

    purpose "batches", "The ranks of a machine, and the last batch." {
        /// Sets the number of ranks on this machine, including this one. The ranks divide its
        /// cores: with automatic [`workers`](Self::workers), each rank starts its share of the
        /// threads. Opening fails if the number is 0.
        ///
        /// By default the number comes from the launcher's environment ([`Rank::from_env`]). Set it
        /// if the ranks are started differently, for example by a program that spawns itself.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let third_of_eight_on_one_machine = Loader::new("train").rank(2, 8).local_world_size(8);
        /// ```
        loader fn local_world_size(ranks: usize) -> Option<usize> = None;

        /// Sets what happens to the last batch of an epoch if there are not enough samples to fill
        /// it; [`LastBatch::Keep`] by default.
        ///
        /// ```
        /// # use warpfeed::{LastBatch, Loader};
        /// let loader = Loader::new("train").last_batch(LastBatch::Drop);
        /// ```
        loader fn last_batch(last: LastBatch) -> LastBatch = LastBatch::Keep;
    }

    purpose "fields", "Missing labels and rotated images." {
        /// Reads missing labels as -1; off by default.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let images = Loader::new("flat-folder").unlabeled(true);
        /// ```
        ///
        /// By default, a batch must have labels for all of its samples or for none:
        ///
        /// - If no sample of the batch has a label, as in a flat folder of images,
        ///   [`HostBatch::labels`](crate::HostBatch::labels) fails. All other fields can be read.
        /// - If only some samples have a label, each sample without a label fails, and the error
        ///   names the sample and its file. [`on_error`](Self::on_error) sets the policy.
        ///
        /// Therefore, a label of -1 comes either from the sample itself or from this option.
        loader fn unlabeled(unlabeled: bool) -> bool = false;

        /// Sets whether annotations refer to the stored pixels or to the image after its EXIF
        /// rotation, for images whose size does not reveal it. Unset by default.
        ///
        /// The option applies to boxes with their masks and points, [`Mask`](crate::field::Mask),
        /// [`DenseMap`](crate::field::DenseMap) and [`Keypoints`](crate::field::Keypoints). Some
        /// annotations declare the size of the annotated image, or have a size of their own. If
        /// this size matches either the stored or the rotated image but not both, the option has no
        /// effect. Otherwise, the option decides. This concerns images that are square, rotated by
        /// 180 degrees or mirrored, and coordinates without a size, such as those of YOLO datasets.
        /// If the option is unset, such samples fail.
        ///
        /// ```
        /// # use warpfeed::{AnnotationFrame, Loader};
        /// // Annotated in a tool that applies the EXIF rotation, as browsers do.
        /// let loader = Loader::new("coco8/data.yaml").annotations_follow(AnnotationFrame::Upright);
        /// ```
        loader fn annotations_follow(image: AnnotationFrame) -> Option<AnnotationFrame> = None;
    }

    purpose "images", "Pixels and their layout in the batch." {
        /// Sets whether the steps of [`transform`](Self::transform) may move pixels; true by
        /// default. Masks, boxes and other fields that are transformed together with the image
        /// require steps that do not move pixels, such as color changes.
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
        loader fn transform_moves_pixels(moves: bool) -> bool = true, as image_transform_moves_pixels;

        /// Computes `(pixel / 255 - mean) / std` per channel. The dtype becomes F32 unless
        /// [`dtype`](Self::dtype) sets a different float type. Without this option, float images
        /// contain `pixel / 255`.
        ///
        /// ```
        /// # use warpfeed::{Loader, Normalize};
        /// let loader = Loader::new("train").normalize(Normalize::IMAGENET);
        /// ```
        both fn normalize(normalize: Normalize) -> Option<Normalize> = None;

        /// Sets the element type of the images: F32, F16, BF16, or U8 for unchanged pixels. The
        /// default is U8, or F32 with [`normalize`](Self::normalize).
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

        /// Sets the number of channels of the images: 3 by default, or 1 for grayscale. All steps
        /// of the augmentation operate on RGB. The result is then converted to luminance as with
        /// Pillow's `convert("L")`, which leaves gray images unchanged. After that, the image is
        /// normalized with the first of the three means and standard deviations, erased and mixed.
        ///
        /// Batches on a device always have three channels.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("x-rays").channels(1); // (N, H, W, 1)
        /// ```
        both fn channels(channels: usize) -> usize = 3;

        /// Sets the color behind transparent pixels of PNG, WebP, GIF and TIFF. By default, alpha
        /// is dropped, as in torchvision, and transparent pixels have the color that the file
        /// stores for them. To keep alpha as a channel, use
        /// [`DenseMap::of_channels(4)`](crate::field::DenseMap::of_channels).
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("logos").background([255; 3]);
        /// ```
        both fn background(color: [u8; 3]) -> Option<[u8; 3]> = None;

        /// Sets whether images with more than 8 bits per channel are converted to 8 bits; off by
        /// default. 16-bit values keep their upper 8 bits, and floats from 0 to 1 are scaled to 0
        /// to 255. By default, a sample with such an image fails, because 12-bit scans and
        /// measurements would lose most of their content. To read the values unchanged, use
        /// [`DenseMap`](crate::field::DenseMap).
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("photographs").convert_to_u8(true);
        /// ```
        both fn convert_to_u8(converts: bool) -> bool = false;
    }

    purpose "speed", "Performance. These options do not change the batches." {
        /// Sets the number of worker threads, which read, decode and transform. The number affects
        /// only speed: batches are bit-identical.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").workers(8);
        /// ```
        ///
        /// 0, the default, means one thread per core that this process may use. Use more workers if
        /// a decoder or a transform blocks. Slow storage does not need more workers: if reads block
        /// on a disk or a network, reader threads read ahead for the workers. 32 readers are
        /// started at the first blocking read, and their number increases up to 512 as long as that
        /// makes reading faster. Readers sleep while reads do not block. The samples that they hold
        /// are part of [`Batches::memory_plan`].
        ///
        /// Each worker uses a thread and scratch memory for its images. Opening fails with more
        /// than 768 workers.
        both fn workers(threads: usize) -> usize = 0, as num_workers;

        /// Sets the number of batches that are prepared ahead of the consumer. The number affects
        /// only speed.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").prefetch(4);
        /// ```
        ///
        /// The loader allocates `prefetch + 2` slots, because the consumer holds one slot and
        /// another one is being filled. More than a few batches help only if the time per sample or
        /// per step varies a lot.
        ///
        /// With 0, the default, the number is adjusted automatically. It starts at 2. If the
        /// consumer waits while workers are idle because all slots are full, the number is doubled,
        /// up to 16. An increase that does not raise throughput is undone. A consumer that keeps
        /// batches alive gets more slots as long as some are free.
        ///
        /// All slots are allocated when the loader is opened, limited by
        /// [`memory_limit`](Self::memory_limit). Without a limit, automatic prefetching uses up to
        /// 1 GiB, or 256 MiB of page-locked memory, within the available memory, but at least two
        /// batches. Pages that are never touched are never committed. For batches on a device, the
        /// number on the device is fixed at 2, and only the number of host slots is adjusted.
        loader fn prefetch(batches: usize) -> usize = 0;

        /// Sets whether batches are in page-locked memory, from which a GPU can copy without
        /// involving the CPU; off by default.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").pinned(true);
        /// ```
        ///
        /// Uploads from page-locked memory are asynchronous, even through cudarc's safe calls. You
        /// may still drop a batch immediately: the loader reuses its memory only after all work
        /// that was submitted to the devices before the drop has completed. As long as such work
        /// occupies slots, the loader prepares fewer batches ahead.
        #[cfg_attr(
            feature = "cuda",
            doc = "\n[`HostBatch::release_on`](crate::HostBatch::release_on) names the stream that reads the batch: then the loader waits for that stream only."
        )]
        ///
        /// There are two limitations:
        ///
        /// - The loader does not track work in CUDA contexts other than the device's primary
        ///   context. Programs with such contexts must call `release_on`.
        /// - When a batch is dropped, the loader records an event for all work in the context. This
        ///   can invalidate a CUDA graph capture on a stream that is unknown to the loader, which
        ///   the driver reports at the end of the capture. The loader knows the streams from
        ///   [`cuda::stream`](crate::cuda::stream) and the streams passed to `release_on`.
        ///
        /// Without a CUDA driver, the loader logs one warning and uses pageable memory, as
        /// [`Batches::memory_plan`] shows. Page-locking takes about 0.3 ms per MB when the loader
        /// is opened. Page-locked memory cannot be swapped out.
        both fn pinned(pinned: bool) -> bool = false, as pin_memory;

        /// Sets whether workers or the device decode JPEGs for batches in device memory;
        /// [`DecodeOn::Cpu`] by default. The choice affects only speed: batches are bit-identical.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// use warpfeed::DecodeOn;
        ///
        /// let loader = Loader::new("train.lmdb").decode_on(DecodeOn::Auto);
        /// ```
        ///
        /// With [`DecodeOn::Gpu`], workers only extract the parts of a JPEG that the crop needs,
        /// and the device decodes, crops, resizes and flips the image. [`DecodeOn::Auto`] does so
        /// only while the workers alone would be slower than the consumer. On an H200, a batch of
        /// 256 crops takes 0.6 ms of the device's time from packed files (`warpfeed pack`), and 1.5
        /// ms from plain files.
        ///
        /// Workers decode everything else: progressive, CMYK and damaged JPEGs, other formats, and
        /// all images of a loader with a [`transform`](Self::transform), because transforms run on
        /// the host. [`Stats::decoded_on_device`] counts the images that the device decoded.
        ///
        /// In addition to the batches, the device needs about 2.4 MB of memory per sample of a
        /// batch, which is included in [`Batches::memory_plan`]. The option has no effect on
        /// batches in host memory.
        ///
        /// [`Stats::decoded_on_device`]: crate::Stats::decoded_on_device
        loader fn decode_on(decode_on: DecodeOn) -> Option<DecodeOn> = None;

        /// Sets the maximum fraction of the device's time that may be spent on decoding JPEGs, from
        /// 0 to 1; 1 by default. Workers decode the remaining images.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// use warpfeed::DecodeOn;
        ///
        /// let loader = Loader::new("train.lmdb").decode_on(DecodeOn::Gpu).decode_share(0.03);
        /// ```
        ///
        /// The fraction is averaged over a few tenths of a second. Decoding time is measured as the
        /// time between two events before and after the decoding of a batch. Concurrent work slows
        /// decoding down and increases this time, so decoding may use less of the device than the
        /// fraction suggests. The decoding time is reported in [`Stats::device_decode`].
        ///
        /// # Errors
        /// Opening fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if `share` is less
        /// than 0 or greater than 1.
        ///
        /// [`Stats::device_decode`]: crate::Stats::device_decode
        both fn decode_share(share: f64) -> f64 = 1.0;

        /// Sets the number of epochs that the program uses; unlimited by default. The loader does
        /// not prepare epoch `epochs` or later epochs ahead, so a run with this many epochs ends
        /// without unnecessary reads.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let ninety_epochs = Loader::new("train").epochs(90);
        /// ```
        ///
        /// Without this option, the loader prepares the first batches of the next epoch while an
        /// epoch ends, and discards them if the program does not request that epoch; see
        /// [`Batches::epoch`]. Only free slots are used for these batches: at most
        /// [`prefetch`](Self::prefetch) + 2 on the host, and the same number again on a device.
        /// Later epochs can still be requested, and are then prepared on request. With 0, every
        /// epoch is prepared on request. Choose 0 if your own code, such as a
        /// [`transform`](Self::transform), depends on state that the program changes between
        /// epochs.
        loader fn epochs(epochs: u64) -> u64 = u64::MAX;

        /// Sets whether tar shards are memory-mapped; `true` by default. With `false`, shards are
        /// read with system calls.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let network_drive = Loader::new("/mnt/nfs/train-{000..099}.tar").mmap(false);
        /// ```
        ///
        /// If a mapped shard is truncated or its disk fails while the shard is in use, the process
        /// is killed by `SIGBUS`. With system calls, only the sample fails. System calls are also
        /// suitable for network file systems. They require a copy of the encoded bytes and one open
        /// file per shard; see [`Tar::open_unmapped`](crate::source::Tar::open_unmapped).
        ///
        /// The option does not affect folders, which are never mapped, or sources that are already
        /// open. The LMDB library always maps its files, so opening an LMDB with `false` fails.
        loader fn mmap(mapped: bool) -> bool = true;
    }

    purpose "limits and faults", "Errors and limits." {
        /// Sets the number of retries after a [transient](Error::is_transient) read error of the
        /// source (`EIO`, `EINTR`, `EAGAIN`, `ESTALE`, `EMFILE`, `ENFILE`, `ENOMEM`, a timeout); 3
        /// by default. 0 disables retries. If the last attempt fails, the sample fails. `EMFILE`,
        /// `ENFILE` and `ENOMEM` end the epoch instead, because they are not caused by the sample.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let network_drive = Loader::new("/mnt/nfs/train").retries(10);
        /// ```
        ///
        /// The first pause lasts 5 ms. Each further pause is four times as long, up to one second.
        /// Each retry is logged as a warning and counted in
        /// [`Stats::retries`](crate::Stats::retries). Reads for [`resume`](Self::resume) and
        /// [`balanced`](Self::balanced) are also retried, but the retries for `balanced` are not
        /// counted. Each worker has one buffer per retry.
        ///
        /// Opening fails with more than 1,000 retries, because so many retries would delay a batch
        /// by a quarter of an hour.
        loader fn retries(times: usize) -> usize = source::RETRIES;

        /// Sets whether a sample fails if its image has any damage; off by default.
        ///
        /// Decoding continues past damage inside a JPEG, like libjpeg, which prints a warning. By
        /// default, a loader counts such images in [`Stats::damaged`](crate::Stats::damaged), and
        /// logs one warning per sample. It detects damage only where it decodes. It does not detect
        /// damage outside the crop, damage that results in valid codes, or excess data at the end
        /// of a segment.
        ///
        /// A strict loader first reads each image completely, like [`check`](crate::decode::check)
        /// and `warpfeed verify`, and rejects an image with any damage. The result does not depend
        /// on the crop, or on whether a worker or the device decodes the image. Workers perform
        /// this check, even for images that a device decodes. The check takes longer than decoding
        /// the whole image, so loading photographs takes two to three times as long. For a large
        /// dataset, run `warpfeed verify --strict` once instead.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").strict(true);
        /// ```
        ///
        /// The [`decode`](crate::decode) module lists what counts as damage.
        /// [`on_error`](Self::on_error) sets the policy for such a sample.
        both fn strict(strict: bool) -> bool = false;

        /// Limits the total memory of the loader on host and device, in bytes. This includes the
        /// slots and the scratch memory of workers; see [`MemoryPlan`](crate::MemoryPlan).
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").memory_limit(4 << 30);
        /// ```
        ///
        /// Opening fails if the slots need more than the limit. Workers use the remaining memory as
        /// scratch memory. With little scratch memory, fewer large images are decoded at the same
        /// time. Automatic [`prefetch`](Self::prefetch) stays within the limit.
        ///
        /// Without a limit, opening fails if the plan needs more host memory than is available on
        /// the machine or in the container's cgroup (Linux only). In that case, the scratch memory
        /// of workers is limited to half of the memory that the slots leave free. Setting a limit
        /// replaces this check.
        both fn memory_limit(bytes: usize) -> Option<usize> = None;

        /// Limits the number of pixels that an image header may declare; 2^28 (16,384 by 16,384) by
        /// default. An image that declares more fails before memory is allocated for it.
        ///
        /// The limit applies to every codec, including custom ones.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").max_pixels(50_000_000);
        /// ```
        both fn max_pixels(pixels: u64) -> Option<u64> = None;

        /// Limits the total size of the stored fields of a sample; 2^31 bytes by default. A larger
        /// sample fails before it is decoded.
        ///
        /// Samples in mapped sources (tar and LMDB) and in requests are checked before they are
        /// copied. If a sample consists of separate files, as in folders and tables, the file sizes
        /// are checked before reading. Samples in tar shards with [`mmap(false)`](Self::mmap) are
        /// checked after reading, which reads at most 2 GiB.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train.tar").max_sample_bytes(64 << 20);
        /// ```
        loader fn max_sample_bytes(bytes: u64) -> u64 = 1 << 31;

        /// Sets how long a request for the next batch waits while the consumer holds every slot; 30
        /// s by default. After this time, the request fails. Waiting for a slow worker does not
        /// count, but is logged.
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
