//! Opens a loader: checks the options, opens the source, plans the memory, and creates the engine.
//!
//! Each step consumes the value that the previous step returned, from `CheckedLoader` to
//! `EngineConfig`, so the compiler enforces the order of the steps. Batch memory is allocated, and
//! the engine's threads are started, only after the options have been checked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cores::DecodedOnGpu;
use super::fields::check_images;
use super::images::ImageOptions;
use super::memory::{MemoryBound, MemoryDemand, host_memory, max_slots_bytes};
use super::sampling::{Buckets, OpenOrder, Sampling};
use super::{Loader, class_list, cores, field_names};
use crate::batch::{Field, FreeSlot, HostBatch, Role, Schemas};
use crate::decode::DecodedCache;
use crate::engine::{
    Balance, Batches, Bounds, Checkpoint, Engine, EngineConfig, IntoIter, MAX_READERS, MAX_WORKERS, MemoryPlan,
    OnError, Runtime, Scratch, ScratchPlan, Settings, Shared, check_not_empty,
};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result, counted, guarded};
use crate::field::{AnyFieldType, ArrayFormat, DeviceSplit, Fields, Pasted};
use crate::recipe::{Augments, DamageLog, Recipe, image_buffer_bytes};
use crate::sampler::{Rank, Sampler, Schedule};
use crate::source::{self, Source};
use crate::trace::{self, Trace};
use crate::transform::{Augment, OutputSizes};

impl Loader {
    /// Opens the loader with batches in host memory.
    ///
    /// ```no_run
    /// # use warpfeed::Loader;
    /// let mut batches = Loader::new("train").batch_size(256).shuffle(42).host()?;
    /// for batch in batches.epoch(0) {
    ///     let batch = batch?;
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Config`] if an option is invalid or does not fit the dataset, if the dataset
    ///   lacks a field that the loader reads, if the [checkpoint](Loader::resume) does not match,
    ///   or if the first epoch would have no batches.
    /// - [`ErrorKind::Io`] or [`ErrorKind::Source`] if the dataset cannot be opened, if a label
    ///   that is required for opening cannot be read, or if the dataset has no samples.
    /// - [`ErrorKind::Io`] if the [`trace`](Loader::trace) file cannot be created, or if a
    ///   thread cannot be started.
    /// - [`ErrorKind::Memory`] if the loader would exceed the
    ///   [`memory_limit`](Loader::memory_limit) or the available memory, or if memory cannot be
    ///   allocated.
    pub fn host(self) -> Result<Batches<HostBatch>> {
        let field_types = self.fields()?;
        let loader = self.with_classes()?;
        let ImageOptions { layout, pinned, .. } = loader.images;
        let (format, split) = (loader.images.format(layout)?, DeviceSplit::host(&loader.dataset_augments()?));
        let mut config = loader.open(field_types, format, split, |_, _| 0)?;
        let (memory, reclaimer) =
            host_memory(config.schemas.bytes(), config.shared.memory.slots, pinned, config.shared.schedule.rank())?;
        let slots: Vec<_> = memory.into_iter().map(|memory| FreeSlot::new(&config.schemas, memory)).collect();
        let pinned_bytes = slots.iter().filter(|s| s.is_pinned()).count() * config.schemas.bytes();
        config.shared.memory.pinned_bytes = pinned_bytes;
        let trace = config.trace.take();
        let engine = Engine::to_host(config, slots, reclaimer)?;
        let shared = engine.shared().clone();
        begin_trace(trace, &shared)?;
        Ok(Batches::new(engine, &shared))
    }

    /// Returns the options for opening the source. Fails if the class list cannot be read or is
    /// invalid.
    pub(super) fn source_options(&self) -> Result<source::Options> {
        let options = source::Options::new().mmap(self.images.mmap).formats(self.images.codecs.formats());
        let options = options
            .defer_unknown_classes(matches!(self.on_error, OnError::Skip { .. }))
            .cache_listing(self.caches_listing)
            .with_stores(self.stores.clone());
        let options = match &self.masks {
            Some(masks) => options.masks(masks),
            None => options,
        };
        #[cfg(feature = "tables")]
        let options = options.table(self.table.clone());
        Ok(match self.classes.open()? {
            Some(classes) => options.classes(classes),
            None => options,
        })
    }

    /// Checks the options, opens the source, and plans the memory. Workers write images in
    /// `format`, and `split` determines which steps run on the device. `device_bytes` returns the
    /// device memory in bytes for a prefetch depth.
    pub(super) fn open(
        self,
        field_types: Vec<(String, AnyFieldType)>,
        format: ArrayFormat,
        split: DeviceSplit,
        device_bytes: impl Fn(&Schemas, usize) -> usize,
    ) -> Result<EngineConfig> {
        let open_loader = CheckedLoader::new(self, field_types, format, split)?.open()?;
        let memory_division = open_loader.plan_memory(&device_bytes)?;
        open_loader.engine_config(memory_division)
    }
}

struct CheckedLoader {
    loader: Loader,
    format: ArrayFormat,
    split: DeviceSplit,
    rank: Rank,
    global_batch: u64,
    field_types: Vec<(String, AnyFieldType)>,
    augments: Augments,
    output_sizes: OutputSizes,
    /// The fields of a batch, indexed by the `variant` in the batch's header. There is one entry
    /// per size bucket, or per combination of output sizes that the image fields have in some
    /// epoch.
    fields: Vec<Fields>,
    /// The arrays of a batch, indexed like `fields`.
    arrays: Vec<Vec<(Field, Role)>>,
}

impl CheckedLoader {
    fn new(
        loader: Loader,
        field_types: Vec<(String, AnyFieldType)>,
        format: ArrayFormat,
        split: DeviceSplit,
    ) -> Result<Self> {
        source::check_retries(loader.images.retries)?;
        let ImageOptions { decode_share, local_world_size, .. } = &loader.images;
        if !(0.0..=1.0).contains(decode_share) {
            return Err(Error::config(format!(
                "decode_share({decode_share}): expected a fraction of the device's time, from 0 to 1"
            )));
        }
        let rank = loader.rank_origin.rank(*local_world_size)?;
        let global_batch = loader.global_batch(rank.world_size)?;
        let augments = loader.all_augments()?;
        let augment = augments.common();
        if split.on_device && format.channels == 1 {
            return Err(Error::config("channels(1): a device supports only 3 channels; use .host() for 1"));
        }
        check_sizes(&loader.sampling, augments.common(), &field_types)?;
        let output_sizes = OutputSizes::collect(
            [augment].into_iter().chain(field_types.iter().filter_map(|(_, AnyFieldType(kind))| kind.augment())),
        );
        let (fields, arrays) = (Vec::new(), Vec::new());
        let mut checked_loader = CheckedLoader {
            loader,
            format,
            split,
            rank,
            global_batch,
            field_types,
            augments,
            output_sizes,
            fields,
            arrays,
        };
        checked_loader.create_fields()?;
        Ok(checked_loader)
    }

    fn create_fields(&mut self) -> Result<()> {
        let ImageOptions { transform_moves_pixels, transforms, .. } = &self.loader.images;
        let (augments, may_move_pixels) = (&self.augments, *transform_moves_pixels && !transforms.is_empty());
        let label = self.loader.label().with_joining_step(augments.iter().flat_map(Augment::joining_steps).next());
        let fields_for =
            |augment: &Augment, epoch| Fields::new(&self.field_types, label, self.format, (augment, epoch), self.split);
        let fields_of_sizes = if augments.variants().is_empty() || augments.depend_on_dataset() {
            self.output_sizes
                .first_epochs()
                .map(|epoch| fields_for(augments.common(), epoch))
                .collect::<Result<Vec<_>>>()?
        } else {
            augments.variants().iter().map(|augment| fields_for(augment, 0)).collect::<Result<_>>()?
        };
        (self.fields, self.arrays) = fields_of_sizes.into_iter().unzip();
        if !augments.depend_on_dataset() {
            return self.fields[0].check(augments.common(), may_move_pixels);
        }
        for (dataset, augment) in augments.variants().iter().enumerate() {
            let result = fields_for(augment, 0).and_then(|(fields, _)| fields.check(augment, may_move_pixels));
            result.map_err(|e| Error::config(format!("dataset {dataset}: {}", e.cause())))?;
        }
        Ok(())
    }

    fn open(mut self) -> Result<OpenLoader> {
        let (options, path) = (self.loader.source_options()?, self.loader.input.path().map(Path::to_owned));
        let (source, mixture) = match self.loader.open_input.take() {
            Some(open_input) => open_input,
            None => self.loader.input.clone().open(&options, self.loader.sampling.join()?)?,
        };
        if mixture.is_none() && !options.has_classes() {
            class_list::warn_about_differences(path.as_deref(), &*source);
        }
        let add_path = |e: Error| if let Some(path) = &path { e.at_path(path) } else { e };
        if source.is_empty() {
            return Err(add_path(Error::in_source(format!("the {} source has no samples", source.kind()))));
        }
        if self.loader.may_omit_image() && source.has_images() == Some(false) {
            tracing::info!("the dataset has no images, so the batches have no field \"image\"");
            self.field_types.retain(|(name, _)| name != "image");
            check_images(&self.field_types, &self.loader.images)?;
            self.create_fields()?;
        }
        field_names::check_names(&self.field_types, &*source).map_err(add_path)?;
        self.fields[0].check_labels(&*source)?;
        let read_source = field_names::required_names(&self.field_types)
            .and_then(|names| source.select_fields(&names))
            .unwrap_or_else(|| source.clone());
        let video = read_source.video_info();
        if let Some(space) = &mut self.split.decode
            && let Some(video) = video
            && space.reserve_for_video(video.pixels)
        {
            self.create_fields()?;
        }
        let cores = cores::available_cores(&self.rank);
        let decoded_on_gpu = match video {
            Some(video) if video.needs_gpu => DecodedOnGpu::Videos,
            None if self.split.decode.is_some() => DecodedOnGpu::Jpegs,
            _ => DecodedOnGpu::Nothing,
        };
        let automatic_workers = cores::automatic_workers(cores, decoded_on_gpu).min(MAX_WORKERS);
        let workers = match self.loader.images.workers {
            0 => automatic_workers,
            n if n > MAX_WORKERS => {
                return Err(Error::config(format!(
                    "workers({n}): the maximum is {MAX_WORKERS}; workers(0) starts {automatic_workers} on this machine"
                )));
            }
            n => n,
        };
        if let Some(proportions) = &mixture {
            self.augments = self.augments.with_dataset_sizes(proportions.iter().map(|(samples, _)| *samples));
        }
        let Loader { sampling, images: ImageOptions { seed, retries, last_batch, .. }, .. } = &self.loader;
        let batch_rule = (self.global_batch, *last_batch);
        let OpenOrder { order, live_order, batched_order } =
            sampling.clone().open_order(&*source, mixture, *seed, batch_rule, workers, *retries)?;
        let schedule = Schedule::new(order.clone(), self.global_batch, *last_batch, self.rank);
        let schedule = schedule.with_live_order(live_order).with_batched_order(batched_order);
        check_not_empty(&schedule)?;
        let arrays = std::mem::take(&mut self.arrays);
        let schemas = Schemas::new((0..).map(|variant| schedule.rows_of_size(variant) as usize).zip(arrays))?;
        Ok(OpenLoader {
            checked_loader: self,
            source,
            read_source,
            has_videos: video.is_some(),
            order,
            schedule,
            schemas,
            cores,
            workers,
        })
    }
}

struct OpenLoader {
    checked_loader: CheckedLoader,
    source: Arc<dyn Source>,
    /// The source that workers read from, restricted to the required fields if possible.
    read_source: Arc<dyn Source>,
    has_videos: bool,
    order: Arc<dyn Sampler>,
    schedule: Schedule,
    schemas: Schemas,
    cores: usize,
    workers: usize,
}

struct MemoryDivision {
    prefetch: Bounds,
    scratch: ScratchPlan,
}

impl OpenLoader {
    /// Chooses the prefetch depth and the sizes of the scratch memory. Fails if the total exceeds
    /// the limit or the available memory.
    fn plan_memory(&self, device_bytes: &dyn Fn(&Schemas, usize) -> usize) -> Result<MemoryDivision> {
        let CheckedLoader { loader: Loader { images, batch_sampler, .. }, format, split, fields, augments, .. } =
            &self.checked_loader;
        let (schemas, bound) = (&self.schemas, MemoryBound::from_limit(images.memory_limit));
        // Each worker needs memory for one output image, its effects, and pasted objects. A worker
        // that mixes images also needs memory for a copy of the last image of a batch.
        let image_bytes = fields.iter().map(Fields::largest_image_bytes).max().unwrap_or(0);
        let mixing_bytes =
            if augments.common().mixes() && !split.on_device { image_bytes * format.dtype.bytes() } else { 0 };
        let image_augments = fields[0].augments(augments.common()).chain(augments.variants());
        let effect_bytes = image_augments.map(Augment::effects_memory).max().unwrap_or(0) as usize;
        let pasted_bytes =
            augments.iter().flat_map(Augment::copy_paste_output_sizes).map(Pasted::memory).max().unwrap_or(0);
        let transform_bytes = images.transforms.iter().map(|transform| transform.retained_bytes(image_bytes));
        let transform_bytes = transform_bytes.fold(0, usize::saturating_add);
        let image_buffer = image_buffer_bytes(fields, !images.transforms.is_empty());
        let scratch =
            ScratchPlan::ample(self.workers, self.cores, image_buffer + effect_bytes + mixing_bytes + pasted_bytes)
                .with_transforms(transform_bytes)
                .with_cache(if batch_sampler.is_some() { 0 } else { images.cache_decoded })
                .with_source(bound.source_budget(self.read_source.prefetch_bytes()));
        // A `Decoder` needs no readers, because its requests contain the encoded images.
        let scratch = if batch_sampler.is_some() { scratch.without_readers() } else { scratch };
        let prefetch = match images.prefetch {
            0 => {
                let has_videos = split.decode.is_some() && self.has_videos;
                let max_bytes = max_slots_bytes(split.on_device || images.pinned, has_videos);
                bound.automatic_prefetch(max_bytes, schemas, &scratch, device_bytes)
            }
            depth => Bounds::exactly(depth),
        };
        // The prefetch depth of a `Decoder` is its number of requests in flight.
        let depth_option = if batch_sampler.is_some() { "max_in_flight" } else { "prefetch" };
        let scratch = bound.plan_scratch(&MemoryDemand { schemas, prefetch, depth_option, scratch, device_bytes })?;
        Ok(MemoryDivision { prefetch, scratch })
    }

    fn engine_config(self, memory_division: MemoryDivision) -> Result<EngineConfig> {
        let OpenLoader { checked_loader, source, read_source, order, schedule, schemas, cores, workers, .. } = self;
        let CheckedLoader { loader, split, fields, output_sizes, augments, .. } = checked_loader;
        let MemoryDivision { prefetch, scratch } = memory_division;
        let options = loader.to_string();
        let ImageOptions { decode_on, decode_share, seed, held_batches_timeout, .. } = loader.images;
        let computed_names = fields[0].computed_fields.iter().map(|field| field.name.clone()).collect();
        let is_decoder = loader.batch_sampler.is_some();
        let can_copy = !is_decoder && fields.iter().all(|fields| can_copy(&*read_source, fields));
        let recipe = Recipe {
            can_copy,
            source,
            read_source,
            codecs: loader.images.codecs(),
            augments,
            cache: (scratch.cache_bytes > 0)
                .then(|| DecodedCache::new(scratch.cache_bytes, loader.images.cache_format)),
            order,
            transforms: loader.images.transforms,
            may_move_pixels: loader.images.transform_moves_pixels,
            fields,
            output_sizes,
            annotation_frame: loader.images.annotations_follow,
            seed,
            retries: loader.images.retries,
            max_sample_bytes: loader.images.max_sample_bytes,
            is_strict: loader.images.strict,
            damage_log: DamageLog::default(),
            blanks_failed: is_decoder,
            replaces_failed: !is_decoder && matches!(loader.on_error, OnError::Skip { .. }),
        };
        let mut settings = Settings::new(cores, workers, prefetch);
        if !is_decoder {
            settings.raise_initial_prefetch(schedule.rows_of_size(0) as usize);
        }
        settings.options = options;
        // `for_device` lowers the priority of workers. A `Decoder` does not call it, because
        // callers wait for its workers.
        let settings = if split.on_device && !is_decoder { settings.for_device() } else { settings };
        let balance = Balance::new(decode_on.unwrap_or_default(), decode_share, workers);
        let runtime = Runtime::new(Arc::new(settings), Scratch::new(scratch), balance, computed_names)?;
        let resume = loader.resume.map(|state| state.check(&recipe, &runtime.counters, &schedule)).transpose()?;
        let (position, restored_order) = resume.unwrap_or_default();
        if let (Some(restored_order), Some(live_order)) = (restored_order, schedule.live_order()) {
            live_order.set(restored_order);
        }
        let memory = MemoryPlan::new(Settings::slots_for(prefetch.max), schemas.bytes(), &scratch);
        let epoch_limit = if is_decoder { 0 } else { loader.images.epochs };
        let shared = Shared::new((recipe, runtime, schedule), memory, (loader.on_error, epoch_limit), position);
        Ok(EngineConfig {
            shared,
            schemas,
            batch_sampler: loader.batch_sampler,
            timeout: held_batches_timeout,
            trace: loader.images.trace,
        })
    }
}

impl Loader {
    /// Returns the augmentation of each dataset of a mixture, or a single augmentation if
    /// [`augment_for`](Loader::augment_for) was not called. Fails if `augment_for` was called but
    /// the loader is not a mixture, the dataset does not exist, or views replace the image.
    pub(super) fn dataset_augments(&self) -> Result<Vec<Augment>> {
        let common = &self.images.augment;
        let Some(last_dataset) = self.own_augments.keys().max() else { return Ok(vec![common.clone()]) };
        let Some(dataset_count) = self.input.dataset_count() else {
            return Err(Error::config("augment_for: expected a mixture, but this loader has one dataset"));
        };
        if *last_dataset >= dataset_count {
            return Err(Error::config(format!(
                "augment_for: there is no dataset {last_dataset}: the mixture has {}, numbered from 0",
                counted(dataset_count as u64, "dataset", "datasets")
            )));
        }
        if !self.views.is_empty() {
            return Err(Error::config(
                "augment_for has no effect on views, because each view has its own augmentation: remove either \
                 augment_for or the views",
            ));
        }
        Ok((0..dataset_count).map(|dataset| self.own_augments.get(&dataset).unwrap_or(common).clone()).collect())
    }

    /// Returns the augmentations of image fields that do not set their own augmentation. Fails if
    /// an augmentation is invalid, or if the augmentations of two datasets have different image
    /// sizes or mix batches differently.
    fn all_augments(&self) -> Result<Augments> {
        if !self.own_augments.is_empty() {
            return Augments::by_dataset(self.dataset_augments()?);
        }
        let augment = &self.images.augment;
        augment.check()?;
        let sizes = self.sampling.buckets.as_ref().map_or(&[][..], Buckets::sizes);
        let variants = sizes.iter().map(|size| augment.clone().with_output_size(size.width, size.height)).collect();
        Ok(Augments::by_variant(augment.clone(), variants))
    }
}

/// If [size buckets](Loader::size_buckets) are set, checks that the loader's `augment` supports
/// them, and that no image field changes its size between epochs.
fn check_sizes(sampling: &Sampling, augment: &Augment, field_types: &[(String, AnyFieldType)]) -> Result<()> {
    let sizes = sampling.buckets.as_ref().map_or(&[][..], Buckets::sizes);
    if sizes.is_empty() {
        return Ok(());
    }
    if augment.joining_steps().next().is_some() {
        return Err(Error::config(
            "size_buckets cannot be combined with mosaic or copy_paste: the combined images may belong to different buckets",
        ));
    }
    let mut augments = field_types.iter().filter_map(|(_, AnyFieldType(kind))| kind.augment()).chain([augment]);
    if augments.any(|augment| augment.change_epochs().next().is_some()) {
        return Err(Error::config(
            "size_buckets and Augment::from_epoch cannot be combined: both determine the image size of a batch",
        ));
    }
    sizes.iter().try_for_each(|size| augment.clone().with_output_size(size.width, size.height).check())
}

fn can_copy(source: &dyn Source, fields: &Fields) -> bool {
    let result = guarded(|| {
        let names = source.fields().unwrap_or_default();
        let [name] = &names[..] else { return Ok(false) };
        Ok(fields.sole_copied_field(name).is_some()
            && !source.is_empty()
            && source.stored(0, &mut String::new()).is_some())
    });
    result.unwrap_or(false)
}

/// Creates the trace file and starts tracing. This must be the last step of opening, so that a
/// loader that cannot be opened does not overwrite an existing file.
pub(super) fn begin_trace(trace: Option<(PathBuf, trace::Schedule)>, shared: &Shared) -> Result<()> {
    if let Some((path, schedule)) = trace {
        let (runtime, source) = (&shared.runtime, shared.recipe.source.clone());
        let network = Box::new(move || guarded(|| Ok(source.network_stats())).unwrap_or_default());
        runtime.counters.set_trace(Trace::new(&path, schedule, (runtime.settings.workers, MAX_READERS), network)?);
    }
    Ok(())
}

impl IntoIterator for Loader {
    type Item = Result<HostBatch>;
    type IntoIter = IntoIter;

    /// Opens the loader and returns an iterator over the batches of epoch 0. If the loader
    /// [resumes](Loader::resume) a run, the iterator returns the remaining batches of the
    /// checkpoint's epoch instead. If opening fails, the error is the only item.
    fn into_iter(self) -> IntoIter {
        let first = self.resume.as_ref().map_or(0, Checkpoint::epoch);
        IntoIter::new(self.epochs(first.saturating_add(1)).host())
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::batch::{Dtype, FreeSlot, Layout, Schema, SlotMemory, SlotReclaimer};
    use crate::engine::{DeviceImages, fill_slot};
    use crate::error::ErrorKind;
    use crate::source::{Memory as Samples, OwnedSample};
    use crate::transform::{Mix, Mixing};

    /// Changes each field with `damage`, then fills and mixes a batch of four samples. Returns each
    /// sample's error.
    fn errors_after(damage: impl Fn(&mut Field, Role)) -> Vec<Option<String>> {
        let mut bmp = b"BM\x3e\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\x18\0".to_vec();
        bmp.extend([0; 32]);
        let sample = |n: i64| OwnedSample::new(n.to_string()).field("bmp", bmp.clone()).label(n % 2);
        let loader = Loader::source(Samples::new((0..4).map(sample).collect())).batch_size(4).soft_labels(2, 0.1);
        let loader = loader.augment(Augment::pass_through(2, 1).mix(Mix::mixup(0.2)));
        let (format, split) =
            (loader.images.format(Layout::Nhwc).unwrap(), DeviceSplit::host([&loader.images.augment]));
        let field_types = loader.fields().unwrap();
        let config = loader.open(field_types, format, split, |_, _| 0).unwrap();
        let arrays = config.schemas.variant(0).spans.iter().map(|span| {
            let mut field = span.field.clone();
            damage(&mut field, span.role);
            (field, span.role)
        });
        let schemas = Schemas::one(Schema::new(4, arrays).unwrap());
        let slot = FreeSlot::new(&schemas, SlotMemory::heap(schemas.bytes()).unwrap());
        let mixing = Some(Mixing { weight: 0.5, cutmix_area: None });
        let full = fill_slot(&config.shared, slot, 4, mixing, DeviceImages::None).0;
        (0..4).map(|row| full.meta(row).fault.as_ref().map(ToString::to_string)).collect()
    }

    #[derive(Default)]
    struct FailingReclaimer(AtomicUsize, Mutex<Vec<FreeSlot>>);

    impl SlotReclaimer<FreeSlot> for FailingReclaimer {
        fn reclaim(&self, slot: FreeSlot) {
            self.1.lock().unwrap().push(slot);
        }

        fn set_waiting(&self, is_waiting: bool) -> Result<()> {
            let requests = self.0.fetch_add(usize::from(is_waiting), Relaxed);
            if requests < 2 { Ok(()) } else { Err(Error::new(ErrorKind::Cuda, "the device is lost")) }
        }

        fn pending_slots(&self) -> usize {
            0
        }

        fn is_blocked_by_capture(&self) -> bool {
            false
        }

        fn idle_since(&self) -> Option<Instant> {
            None
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    struct CountingSource(Arc<AtomicUsize>);

    impl crate::source::Source for CountingSource {
        fn len(&self) -> usize {
            1 << 30
        }

        fn read<'a>(&'a self, index: usize, _: &'a mut Vec<u8>) -> Result<crate::source::Sample<'a>> {
            self.0.fetch_add(1, Relaxed);
            // Spin instead of sleeping, because reads that block would start reader threads.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(200) {}
            Ok(crate::source::Sample::new("").with_label(index as i64))
        }
    }

    #[test]
    fn a_device_error_while_waiting_ends_the_run() {
        let reads = Arc::new(AtomicUsize::new(0));
        let loader =
            Loader::source(CountingSource(reads.clone())).drop_field("image").batch_size(64).workers(2).prefetch(60);
        let (format, split) =
            (loader.images.format(Layout::Nhwc).unwrap(), DeviceSplit::host([&loader.images.augment]));
        let field_types = loader.fields().unwrap();
        let config = loader.open(field_types, format, split, |_, _| 0).unwrap();
        let slot = |_| FreeSlot::new(&config.schemas, SlotMemory::heap(config.schemas.bytes()).unwrap());
        let slots = (0..config.shared.memory.slots).map(slot).collect();
        let engine =
            Engine::to_host(config, slots, Some(Box::new(|_| Ok(Arc::new(FailingReclaimer::default()))))).unwrap();
        let shared = engine.shared().clone();
        let mut batches = Batches::new(engine, &shared);
        let mut epoch = batches.epoch(0);
        let results: Vec<_> = epoch.by_ref().map(|batch| batch.map(drop)).collect();
        assert!(results.len() < 4 && results.last().unwrap().as_ref().unwrap_err().kind() == ErrorKind::Cuda);
        // Workers may still finish the groups of rows that they have started.
        let mut read_count = 0;
        while std::mem::replace(&mut read_count, reads.load(Relaxed)) < read_count {
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(read_count < 62 * 64, "read {read_count} samples in total, expected fewer than {}", 62 * 64);
        drop(epoch);
        assert_eq!(batches.epoch(1).next().unwrap().unwrap_err().kind(), ErrorKind::Cuda);
    }

    #[test]
    fn a_failure_while_finishing_a_batch_fails_all_samples() {
        assert_eq!(errors_after(|_, _| ()), [const { None }; 4]);
        // Mixing fails because the images have the wrong length.
        let wide_errors = errors_after(|field, role| {
            if role == Role::Image {
                field.shape[0] += 1;
            }
        });
        assert!(
            wide_errors.iter().flatten().filter(|e| e.contains("4 images of 6 bytes each")).count() == 4,
            "{wide_errors:?}"
        );
        // Writing soft labels panics, because their field contains 3 bytes per row instead of
        // floats.
        let byte_errors = errors_after(|field, role| {
            if role == Role::SoftLabels {
                (field.dtype, field.shape) = (Dtype::U8, vec![3]);
            }
        });
        assert!(
            byte_errors.iter().flatten().filter(|e| e.contains("panicked while finishing batch")).count() == 4,
            "{byte_errors:?}"
        );
    }
}
