//! The options that have a single value. Each has one entry, called a row.
//!
//! A row defines a field of `ImageOptions` with its default, and the setter of the loader. If the
//! row is marked `both`, it also defines the setter of the decoder. From the row, the macro
//! generates the link in the table of options, the keyword in the Python package, and the setter
//! call in reports. The keyword is the name of the setter, or the name after `as`.
//!
//! The list `named` at the end contains setters from other files that `Loader::set` can call.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Dtype, Layout, Normalize};
use crate::decode::{AnnotationFrame, CacheFormat, Codecs};
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
    ImageOptions {
        augment: Augment = Augment::eval(256, 224),
        transforms: Vec<Arc<dyn Transform>> = Vec::new(),
        codecs: Codecs = Codecs::new(),
        trace: Option<(PathBuf, trace::Schedule)> = None,
    }

    purpose "in which order", "The seed." {
        /// Sets the seed for shuffling, for weighted draws and for all augmentation; 0 by default.
        ///
        /// ```
        /// # use warpfeed::{Augment, Loader};
        /// let in_order = Loader::new("train").augment(Augment::train(224)).seed(42);
        /// ```
        both fn seed(seed: u64) -> u64 = 0;
    }

    purpose "batches", "The ranks of a machine, and the last batch." {
        /// Sets the number of ranks on this machine, including this one. The ranks divide the cores
        /// of the machine among themselves. Unless [`workers`](Self::workers) is set, each rank
        /// derives its number of workers from its share of the cores. Opening fails if the number
        /// is 0.
        ///
        /// By default, the number comes from the launcher's environment ([`Rank::from_env`]). If
        /// the environment does not describe this rank or does not contain the number, the default
        /// is 1. Set the number if no launcher starts the ranks, for example because your program
        /// spawns them itself.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let third_of_eight_on_one_machine = Loader::new("train").rank(2, 8).local_world_size(8);
        /// ```
        loader fn local_world_size(ranks: usize) -> Option<usize> = None;

        /// Sets what happens to the last batch of an epoch if too few samples remain to fill it;
        /// [`LastBatch::Keep`] by default.
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
        /// By default, a batch must have labels for all of its samples or for none of them:
        ///
        /// - If no sample of the batch has a label, as in a flat folder of images,
        ///   [`HostBatch::labels`](crate::HostBatch::labels) fails, but all other fields can be
        ///   read.
        /// - If only some samples have a label, each sample without a label fails. The error names
        ///   the sample. [`on_error`](Self::on_error) determines how the loader continues.
        ///
        /// By default, a sample with a negative label fails as well, so `labels` contains -1 only
        /// with this option. With [`soft_labels`](Self::soft_labels), every sample without a label
        /// fails by default.
        loader fn unlabeled(unlabeled: bool) -> bool = false;

        /// Sets which version of an image was annotated: the pixels as stored in the file, or the
        /// image after its EXIF rotation. Unset by default.
        ///
        /// The option applies to boxes with their masks and points, [`Mask`](crate::field::Mask),
        /// [`DenseMap`](crate::field::DenseMap) and [`Keypoints`](crate::field::Keypoints). It
        /// affects only images with an EXIF rotation, which includes mirroring.
        ///
        /// Some annotations declare the size of the annotated image, or have a size of their own.
        /// If this size matches only the stored or only the rotated image, the size determines the
        /// version, and the option has no effect. If the size matches both, or if there is no size,
        /// the option determines the version, and the sample fails if the option is not set. The
        /// size matches both if the rotation preserves it: if the image is square, or is only
        /// mirrored or rotated by 180 degrees. Coordinates in YOLO datasets are an example of
        /// annotations without a size.
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
        /// default. Fields that are transformed together with the image, such as masks and boxes,
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

        /// Normalizes pixels to `(pixel / 255 - mean) / std`, per channel. The element type becomes
        /// F32 unless [`dtype`](Self::dtype) sets a different float type. Opening fails if `dtype`
        /// is U8. Without this option, float images contain `pixel / 255`.
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

        /// Sets the order of the axes of the images; [`Layout::Nhwc`] by default.
        ///
        /// ```
        /// # use warpfeed::{Layout, Loader};
        /// let loader = Loader::new("train").layout(Layout::Nchw);
        /// ```
        both fn layout(layout: Layout) -> Layout = Layout::Nhwc;

        /// Sets the number of channels of the images: 3 by default, or 1 for grayscale. All steps
        /// on `u8` pixels operate on RGB. The result is then converted to luminance, like
        /// Pillow's `convert("L")`, which leaves gray images unchanged. Finally, the image is
        /// normalized (with the first of the three means and standard deviations), erased and
        /// mixed.
        ///
        /// A device supports only 3 channels. With 1, opening for a device fails.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("x-rays").channels(1); // (N, H, W, 1)
        /// ```
        both fn channels(channels: usize) -> usize = 3;

        /// Sets the color behind transparent pixels, in all built-in formats with alpha. By
        /// default, alpha is dropped, as in torchvision, and a transparent pixel has its stored
        /// color. To keep alpha as a channel, use
        /// [`DenseMap::with_channels(4)`](crate::field::DenseMap::with_channels).
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("logos").background([255; 3]);
        /// ```
        both fn background(color: [u8; 3]) -> Option<[u8; 3]> = None;

        /// Sets whether images with more than 8 bits per channel are converted to 8 bits; off by
        /// default. 16-bit values keep their upper 8 bits, and floats from 0 to 1 are scaled to 0
        /// to 255. The option has no effect on custom codecs.
        ///
        /// If the option is off, a sample with such an image fails. An automatic conversion could
        /// discard most of the content of 12-bit scans and measurements. To read the values
        /// unchanged, use [`DenseMap`](crate::field::DenseMap).
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("photographs").convert_to_u8(true);
        /// ```
        both fn convert_to_u8(converts: bool) -> bool = false;
    }

    purpose "speed", "Performance. These options do not change the batches." {
        /// Sets the number of worker threads, which read, decode and transform samples. The number
        /// affects speed and memory, but not the content of batches.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").workers(8);
        /// ```
        ///
        /// 0, the default, means one thread per core that this process may use, but at most 768.
        /// There are two exceptions. If a GPU decodes JPEGs, one of every 16 cores is reserved for
        /// other threads. If a GPU decodes videos, workers spend most of their time waiting for its
        /// decoders, so the loader starts at least 24 workers, or four per core if that is fewer.
        /// [Ranks](Self::local_world_size) on the same machine divide its cores.
        ///
        /// Use more workers if a decoder or a transform blocks. Slow storage does not require more
        /// workers: if reads block on a disk or a network, reader threads read ahead for the
        /// workers. The loader starts 32 readers once workers have been blocked in several reads
        /// and for at least 5% of their time. As long as more readers make reading faster, the
        /// loader adds readers, up to 512. [`Batches::memory_plan`] includes the samples of the
        /// readers.
        ///
        /// Each worker uses a thread and scratch memory for its images. Opening fails with more
        /// than 768 workers.
        both fn workers(threads: usize) -> usize = 0, as num_workers;

        /// Sets the number of batches that are prepared ahead of the consumer. The number affects
        /// speed and memory, but not the content of batches.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").prefetch(4);
        /// ```
        ///
        /// The loader allocates `prefetch + 2` batch buffers, called slots: the consumer holds one
        /// of the two additional slots, and workers fill the other. Preparing more than a few
        /// batches ahead helps only if the time per sample or per step varies a lot.
        ///
        /// With 0, the default, the loader adjusts the number automatically, as far as memory
        /// permits:
        ///
        /// - The number starts at 2, or higher if two batches have fewer samples than there are
        ///   workers.
        /// - If the consumer waits while workers are idle because all slots are full, the number is
        ///   doubled, up to 16. An increase that does not raise throughput is undone.
        /// - If the consumer waits for a single batch while all later batches are ready, the number
        ///   is doubled as well, and this increase is not undone. This happens when a few samples
        ///   are far slower than the others.
        /// - If the consumer holds all slots that are in use, the loader puts an unused slot into
        ///   use, as long as there is one.
        ///
        /// All slots are allocated when the loader is opened. [`memory_limit`](Self::memory_limit)
        /// includes their memory. Without such a limit, the slots for automatic prefetching take up
        /// to 1 GiB. Page-locked slots take up to 256 MiB, or up to 2 GiB for videos on a device if
        /// [`decode_on`](Self::decode_on) is `Gpu` or `Auto`. Two batches are prepared ahead even
        /// if their slots take more than that, provided that the memory is available. The operating
        /// system does not commit pageable memory that is never touched.
        ///
        /// With a device, up to `prefetch` batches are also ready in device memory. If the number
        /// is adjusted automatically, up to 2 batches are ready in device memory, and the loader
        /// adjusts only the number of host slots.
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
        /// may still drop a batch immediately: the loader reuses the memory only after all devices
        /// have finished the work that was submitted before the drop. Until then, fewer batches are
        /// prepared ahead.
        #[cfg_attr(
            feature = "cuda",
            doc = "\n[`HostBatch::release_on`](crate::HostBatch::release_on) names the stream that reads the batch, so that the loader waits only for that stream."
        )]
        ///
        /// There are two limitations:
        ///
        /// - The loader does not track work in CUDA contexts other than the primary context of each
        ///   device. Programs with such contexts must call `release_on`.
        /// - When a batch is dropped, the loader records an event for all work in the context. This
        ///   can invalidate the capture of a CUDA graph on a stream that the loader does not know;
        ///   the driver reports this when the capture ends. The loader knows the streams from
        ///   [`cuda::stream`](crate::cuda::stream) and the streams passed to `release_on`.
        ///
        /// If page-locking fails, for example without a CUDA driver, the process logs one warning,
        /// and the loader uses pageable memory, as [`Batches::memory_plan`] shows. Page-locking
        /// takes about 0.3 ms per MB when the loader is opened. Page-locked memory cannot be
        /// swapped out.
        both fn pinned(pinned: bool) -> bool = false, as pin_memory;

        /// Sets where JPEGs are decoded for batches in device memory; [`DecodeOn::Cpu`] by default.
        /// The choice affects speed and memory, but batches are bit-identical in all cases.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// use warpfeed::DecodeOn;
        ///
        /// let loader = Loader::new("train.lmdb").decode_on(DecodeOn::Auto);
        /// ```
        ///
        /// With [`DecodeOn::Gpu`], a worker only extracts the parts of a JPEG that the crop needs,
        /// and the device decodes, crops, resizes and flips the image. [`DecodeOn::Auto`] does so
        /// only for images that the workers have no time to decode. On an H200, decoding a batch of
        /// 256 crops takes 0.6 ms of device time if `warpfeed pack` has packed the files, and 1.5
        /// ms otherwise.
        ///
        /// Workers decode all images that the device does not support, such as progressive, CMYK
        /// and damaged JPEGs, other formats, and mosaics. If the loader has a
        /// [`transform`](Self::transform), workers decode all images, because transforms run on the
        /// host. [`Stats::images_sent_to_device`] counts the images that workers send to the
        /// device.
        ///
        /// Decoding needs about 3.9 MB of device memory per source image of a batch, in addition to
        /// the batches themselves, as [`Batches::memory_plan`] shows. The option has no effect on
        /// batches in host memory.
        ///
        /// [`Stats::images_sent_to_device`]: crate::Stats::images_sent_to_device
        loader fn decode_on(decode_on: DecodeOn) -> Option<DecodeOn> = None;

        /// Limits the fraction of the device's time that decoding JPEGs may take, from 0 to 1; 1 by
        /// default. Workers decode the remaining images.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// use warpfeed::DecodeOn;
        ///
        /// let loader = Loader::new("train.lmdb").decode_on(DecodeOn::Gpu).decode_share(0.03);
        /// ```
        ///
        /// The fraction is averaged over a few tenths of a second. The decoding time of a batch is
        /// the time between an event before decoding and an event after it. Other kernels that run
        /// on the device at the same time increase this time, so decoding may use less of the
        /// device than the fraction suggests. [`Stats::device_decode`] reports the decoding time.
        ///
        /// # Errors
        /// Opening fails with [`ErrorKind::Config`](crate::ErrorKind::Config) if the fraction is
        /// not from 0 to 1.
        ///
        /// [`Stats::device_decode`]: crate::Stats::device_decode
        both fn decode_share(share: f64) -> f64 = 1.0;

        /// Sets the size in bytes of a cache of decoded images in memory; 0, the default, disables
        /// it. In later epochs, workers crop the images in the cache instead of decoding them.
        /// Batches are bit-identical with any size.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").cache_decoded(32 << 30);
        /// ```
        ///
        /// An image takes 3 bytes per pixel: 0.5 to 0.6 MB for a photograph of ImageNet, which has
        /// 0.11 MB as a JPEG. If the cache is too small for all images, it stores the images that
        /// are decoded first, and later epochs decode only the other images. The first epoch is
        /// slower, because images for the cache are decoded completely instead of only their crop.
        /// [`Stats::decoded_cache`](crate::Stats::decoded_cache) counts hits and misses.
        ///
        /// - Samples are still read in every epoch. An image with changed encoded bytes is
        ///   decoded again, but its earlier version stays in the cache.
        /// - The cache holds images and the frames of clips. It does not hold damaged images,
        ///   uncompressed images, masks, dense maps and patches.
        /// - JPEGs that a GPU decodes ([`decode_on`](Self::decode_on)) do not use the cache.
        /// - Each rank has its own cache. In a shuffled epoch, a rank processes different samples
        ///   than in the previous epoch, so each cache needs space for the images of the whole
        ///   dataset.
        ///
        /// The memory is allocated as images are added, and it is part of [`Batches::memory_plan`].
        /// Opening fails if this memory is not available.
        loader fn cache_decoded(bytes: usize) -> usize = 0;

        /// Sets how the [cache of decoded images](Self::cache_decoded) stores JPEGs;
        /// [`CacheFormat::Pixels`] by default. Without a cache, this option has no effect.
        ///
        /// If the pixels of a dataset do not fit in memory, its DCT coefficients may:
        /// [`CacheFormat::Coefficients`] takes about 0.25 MB for a photograph of ImageNet. Later
        /// epochs then skip Huffman decoding, which takes most of the time to decode a JPEG.
        ///
        /// ```
        /// use warpfeed::CacheFormat;
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").cache_decoded(32 << 30).cache_format(CacheFormat::Coefficients);
        /// ```
        ///
        /// Images in other formats are stored as pixels. So is a JPEG if its coefficients take more
        /// memory than its pixels.
        loader fn cache_format(format: CacheFormat) -> CacheFormat = CacheFormat::Pixels;

        /// Sets the number of epochs that the program uses; unlimited by default. The loader never
        /// prepares later epochs ahead, so a run with this many epochs ends without unnecessary
        /// reads.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let ninety_epochs = Loader::new("train").epochs(90);
        /// ```
        ///
        /// Without this option, the loader prepares the first batches of the next epoch toward the
        /// end of each epoch, and discards them if the program does not request that epoch; see
        /// [`Batches::epoch`]. These batches use only free slots: at most
        /// [`prefetch`](Self::prefetch) + 2 on the host, and `prefetch` + 1 on a device.
        ///
        /// Epochs beyond this number can still be requested, and are then prepared on request. With
        /// 0, every epoch is prepared on request. Choose 0 if your own code, such as a
        /// [`transform`](Self::transform), depends on state that the program changes between
        /// epochs.
        loader fn epochs(epochs: u64) -> u64 = u64::MAX;

        /// Sets whether the files of a dataset, such as tar shards, may be memory-mapped; `true` by
        /// default. With `false`, they are read with system calls.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let network_drive = Loader::new("/mnt/nfs/train-{000..099}.tar").mmap(false);
        /// ```
        ///
        /// If a mapped shard is truncated, or its disk fails, while the shard is in use, a `SIGBUS`
        /// signal can kill the process. With system calls, only the sample fails. System calls are
        /// also suitable for network file systems. Their cost is that the encoded bytes are copied,
        /// and that each shard stays open; see
        /// [`Tar::open_unmapped`](crate::source::Tar::open_unmapped).
        ///
        /// The option has no effect on folders, which are never mapped, and on sources that are
        /// already open. Opening an LMDB with `false` fails, because the LMDB library always maps
        /// its files.
        loader fn mmap(mapped: bool) -> bool = true;
    }

    purpose "limits and faults", "Errors and limits." {
        /// Sets the number of retries after a [transient](Error::is_transient) read error of the
        /// source, such as `EIO`, `ESTALE`, `EMFILE` or a timeout; 3 by default. 0 disables
        /// retries. If the last attempt fails, the sample fails. After `EMFILE`, `ENFILE` and
        /// `ENOMEM`, the batch fails even with [`OnError::Skip`](crate::OnError::Skip), because the
        /// sample does not cause these errors.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let network_drive = Loader::new("/mnt/nfs/train").retries(10);
        /// ```
        ///
        /// The loader waits 5 ms before the first retry, and four times as long before each further
        /// retry, up to one second. Each retry is logged as a warning and counted in
        /// [`Stats::read_retries`](crate::Stats::read_retries). Reads for [`resume`](Self::resume),
        /// [`balanced`](Self::balanced), [`split_stratified`](Self::split_stratified) and
        /// [`image_sizes`](Self::image_sizes) are also retried, but only the retries for `resume`
        /// are counted. A worker processes up to eight samples at the same time, and has one buffer
        /// per sample and attempt.
        ///
        /// Opening fails if `times` is greater than 1,000, because the pauses of 1,000 retries add
        /// up to about 17 minutes per read.
        loader fn retries(times: usize) -> usize = source::RETRIES;

        /// Sets whether a sample fails if its image has any damage; off by default.
        ///
        /// The decoder continues past damage inside a JPEG, as libjpeg does. By default, a loader
        /// counts such images in [`Stats::damaged_images`](crate::Stats::damaged_images), and logs
        /// one warning for each of the first 100 samples with damage. The loader detects damage
        /// only in the data that it decodes. It does not detect damage outside the crop, damaged
        /// codes that happen to be valid, or excess data at the end of a segment.
        ///
        /// A strict loader first reads each image completely, like [`check`](crate::decode::check)
        /// and `warpfeed verify`, and rejects an image with any damage. The result depends neither
        /// on the crop nor on where the image is decoded. Workers perform this check, even for
        /// images that a device decodes. The check takes longer than decoding the whole image, so
        /// loading photographs takes two to three times as long. For a large dataset, run `warpfeed
        /// verify --strict` once instead.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").strict(true);
        /// ```
        ///
        /// The [`decode`](crate::decode) module lists what counts as damage.
        /// [`on_error`](Self::on_error) sets what happens to such a sample.
        both fn strict(strict: bool) -> bool = false;

        /// Limits the total memory of the loader on host and device, in bytes. The total includes
        /// the slots and the scratch memory of workers; see [`MemoryPlan`](crate::MemoryPlan).
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").memory_limit(4 << 30);
        /// ```
        ///
        /// Opening fails if the sum of the slots, the device memory, the [cache of decoded
        /// images](Self::cache_decoded) and the minimum scratch memory of the workers exceeds the
        /// limit. Workers use the remaining memory as additional scratch memory. The less there is,
        /// the fewer large images are decoded at the same time. Automatic
        /// [`prefetch`](Self::prefetch) stays within the limit.
        ///
        /// Without a limit, two rules apply on Linux. Opening fails if the same sum without the
        /// device memory exceeds the memory that is available on the machine or in the container's
        /// cgroup. The additional scratch memory is limited to half of the remaining memory.
        /// Setting a limit replaces both rules.
        both fn memory_limit(bytes: usize) -> Option<usize> = None;

        /// Limits the number of pixels that an image header may declare; 2^28 (16,384 by 16,384) by
        /// default. An image that declares more pixels fails before memory is allocated for its
        /// pixels.
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
        /// Samples in memory-mapped files (tar shards and LMDB) are checked before they are copied.
        /// In folders and tables, the sizes of a sample's files are checked before the files are
        /// read. Samples in tar shards with [`mmap(false)`](Self::mmap) are checked only after they
        /// have been read, and at most 2 GiB are read.
        ///
        /// ```
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train.tar").max_sample_bytes(64 << 20);
        /// ```
        loader fn max_sample_bytes(bytes: u64) -> u64 = 1 << 31;

        /// Sets how long a request for the next batch may wait while the consumer itself holds the
        /// batches of all slots; 30 s by default. After this time, the request fails. Waiting for
        /// a slow worker does not count: such a wait is only logged.
        ///
        /// ```
        /// # use std::time::Duration;
        /// # use warpfeed::Loader;
        /// let loader = Loader::new("train").held_batches_timeout(Duration::from_secs(5));
        /// ```
        loader fn held_batches_timeout(timeout: Duration) -> Duration = Duration::from_secs(30);
    }

    named { repeat, shuffle, shuffle_window, batch_size, global_batch_size }
}
