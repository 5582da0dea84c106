use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fields::check_images;
use super::memory::{Demand, Room, host_memory};
use super::pictures::PictureOptions;
use super::{Loader, known, listed, processors};
use crate::batch::{HostBatch, Schemas, Slots};
#[cfg(feature = "cuda")]
use crate::cuda::Devices;
#[cfg(feature = "cuda")]
use crate::device::Handoff;
use crate::engine::{
    Balance, Batches, Bounds, Checkpoint, Engine, IntoIter, MOST_READERS, MOST_WORKERS, MakeKeeper, MemoryPlan,
    OnError, Parts, Run, Scratch, ScratchPlan, Settings, Shared, some_batches,
};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result, guarded};
use crate::field::{Device, FieldKind, Fields, Pasted, Written};
use crate::order::Schedule;
use crate::recipe::{Damaged, Recipe, image_room};
use crate::source;
use crate::trace::{self, Trace};
use crate::transform::{Augment, Forms};

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
    /// - [`ErrorKind::Config`] for an option that cannot work, or for options that leave an epoch
    ///   without a batch.
    /// - [`ErrorKind::Io`] or [`ErrorKind::Source`] for a data set that cannot be opened.
    /// - [`ErrorKind::Memory`] if the plan exceeds the [`memory_limit`](Loader::memory_limit) or
    ///   the memory that is available.
    pub fn host(self) -> Result<Batches<HostBatch>> {
        let this = self.with_classes()?;
        let PictureOptions { layout, pinned, .. } = this.pictures;
        let format = this.pictures.written(layout)?;
        let mut parts = this.open(format, None, pinned, |_, _| 0)?;
        let memory = host_memory(parts.schemas.bytes(), parts.memory.slots, pinned, parts.schedule.rank())?;
        let slots: Vec<_> = memory.into_iter().map(|memory| Slots::make(&parts.schemas, memory)).collect();
        let pinned_bytes = slots.iter().filter(|s| s.is_pinned()).count() * parts.schemas.bytes();
        let keeper = (pinned_bytes > 0).then(keeper).flatten();
        parts.memory.pinned_bytes = pinned_bytes;
        let trace = parts.trace.take();
        let engine = Engine::to_host(parts, slots, keeper)?;
        let shared = engine.shared().clone();
        begin_trace(trace, &shared)?;
        Ok(Batches::new(engine, &shared))
    }

    /// Options for opening the data set.
    ///
    /// # Errors
    /// If the list of classes cannot be read.
    pub(super) fn source_options(&self) -> Result<source::Options> {
        let options = source::Options::new().mmap(self.mapped).formats(self.pictures.codecs.formats());
        let options = options
            .lenient(matches!(self.on_error, OnError::Skip { .. }))
            .index(self.indexed)
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

    /// Checks the options and opens the source. The host writes images in `format`, into memory
    /// that is `pinned` or not. `device` is `None` for batches that stay on the host. `beside`
    /// gives the memory, in bytes, that a prefetch takes in addition to the slots.
    pub(super) fn open(
        self,
        format: Written,
        device: Option<Device>,
        pinned: bool,
        beside: impl Fn(&Schemas, usize) -> usize,
    ) -> Result<Parts> {
        source::check_retries(self.retries)?;
        let PictureOptions { seed, decode_share: share, .. } = self.pictures;
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::config(format!("decode_share({share}): a share of the device's time must be 0 to 1")));
        }
        let rank = self.place.rank(self.pictures.local_world_size)?;
        let global_batch = self.batch.of_all(rank.world_size)?;
        self.pictures.augment.check()?;
        if device.is_some() && format.channels == 1 {
            return Err(Error::config("channels(1) on a device, which makes images of 3: use .host() for images of 1"));
        }
        let (mut kinds, augment) = (self.fields()?, &self.pictures.augment);
        let views = kinds.iter().filter_map(|(_, FieldKind(kind))| kind.augment());
        let forms = Forms::of([augment].into_iter().chain(views));
        let moved = self.pictures.moves_pixels && !self.pictures.transforms.is_empty();
        let label = self.label();
        let make = |kinds: &[(String, FieldKind)], augment: &Augment| {
            let made = forms.epochs().map(|epoch| Fields::new(kinds, label, format, (augment, epoch), device));
            let (fields, arrays): (Vec<_>, Vec<_>) = made.collect::<Result<Vec<_>>>()?.into_iter().unzip();
            fields[0].check(augment, moved)?;
            Ok::<_, Error>((fields, arrays))
        };
        let (mut fields, mut arrays) = make(&kinds, augment)?;
        let image = self.spare_image();

        let (options, path) = (self.source_options()?, self.input.path().map(Path::to_owned));
        let pictures = self.pictures;
        let (source, mixture) = match self.opened {
            Some(opened) => opened,
            None => self.input.open(&options, self.sampling.join()?)?,
        };
        if mixture.is_none() && !options.numbers() {
            listed::compare(path.as_deref(), &*source);
        }
        if source.is_empty() {
            return Err(Error::in_source(format!("the {} source has no samples", source.kind())));
        }
        if image && source.has_pictures() == Some(false) {
            tracing::info!("the data set has no pictures, so the batches have no field \"image\"");
            kinds.retain(|(name, _)| name != "image");
            check_images(&kinds, &pictures)?;
            (fields, arrays) = make(&kinds, &pictures.augment)?;
        }
        let named = |e: Error| if let Some(path) = &path { e.at_path(path) } else { e };
        known::check_names(&kinds, &*source).map_err(named)?;
        fields[0].check_labels(&*source)?;
        let reads = known::names_read(&kinds).and_then(|names| source.only(&names)).unwrap_or_else(|| source.clone());
        let processors = processors::processors(&rank);
        let workers = match pictures.workers {
            0 => processors.min(MOST_WORKERS),
            n if n > MOST_WORKERS => {
                return Err(Error::config(format!(
                    "workers({n}): at most {MOST_WORKERS} threads; this process has {processors} processors, and workers(0) chooses a number"
                )));
            }
            n => n,
        };
        let order = self.sampling.open(&*source, mixture, seed, global_batch, workers, self.retries)?;
        let schedule = Schedule::new(order.clone(), global_batch, self.last, rank);
        some_batches(&schedule)?;
        let schemas = Schemas::new(schedule.places() as usize, arrays)?;
        let room = Room::of(pictures.memory_limit);
        // An image, the memory of its effects and of pasted objects, and for mixing by workers a
        // copy of the last image of a batch.
        let image = fields.iter().map(Fields::largest_image).max().unwrap_or(0);
        let mixing = if pictures.augment.mixes() && device.is_none() { image * format.dtype.bytes() } else { 0 };
        let effects = fields[0].augments(&pictures.augment).map(Augment::effects_memory).max().unwrap_or(0) as usize;
        let pasted = pictures.augment.pasted_outputs().map(Pasted::memory).max().unwrap_or(0);
        let transforms = pictures.transforms.iter().map(|transform| transform.memory(image));
        let transforms = transforms.fold(0, usize::saturating_add);
        let images = image_room(&fields, !pictures.transforms.is_empty());
        let scratch = ScratchPlan::ample(workers, processors, images + effects + mixing + pasted)
            .with_transforms(transforms)
            .with_source(room.for_source(reads.ahead_bytes()));
        // The pictures of requests are already in memory.
        let scratch = if self.asked.is_some() { scratch.without_readers() } else { scratch };
        let prefetch = match pictures.prefetch {
            0 => room.automatic_prefetch(pinned, &schemas, &scratch, &beside),
            n => Bounds::exactly(n),
        };
        let demand = Demand { schemas: &schemas, prefetch, scratch, beside: &beside };
        let (host_bytes, scratch) = room.grant(&demand)?;
        let computed = fields[0].computed.iter().map(|field| field.name.clone()).collect();
        let recipe = Recipe {
            source,
            reads,
            codecs: pictures.codecs,
            augment: pictures.augment,
            order,
            transforms: pictures.transforms,
            moves_pixels: pictures.moves_pixels,
            fields,
            forms,
            annotated: self.annotated,
            seed,
            retries: self.retries,
            sample_bytes: pictures.max_sample_bytes,
            strict: pictures.strict,
            damaged: Damaged::default(),
            blank: self.asked.is_some(),
            stand_in: self.asked.is_none() && matches!(self.on_error, OnError::Skip { .. }),
        };
        let settings = Settings::new(processors, workers, prefetch);
        // The answer to a request is waited for, so its worker goes first.
        let settings = if device.is_some() && self.asked.is_none() { settings.for_device() } else { settings };
        let run = Run::new(
            Arc::new(settings),
            Scratch::new(scratch),
            Balance::new(pictures.decode_on.unwrap_or_default(), share, workers),
            computed,
        )?;
        let resume = self.resume.map(|state| state.check(&recipe, &run.counters, &schedule)).transpose()?;
        let slots = Settings::slots_for(prefetch.most);
        Ok(Parts {
            recipe,
            run,
            schedule,
            memory: MemoryPlan {
                slots,
                slots_in_use: slots,
                slot_bytes: schemas.bytes(),
                host_bytes,
                pinned_bytes: 0,
                device_bytes: 0,
                device_slots: 0,
                staging_bytes: 0,
                scratch_bytes: scratch.total(),
                worker_scratch_bytes: scratch.fixed + scratch.own,
                shared_scratch_bytes: scratch.shared,
                ahead_bytes: scratch.ahead,
                source_bytes: scratch.source,
                transform_bytes: scratch.transforms,
            },
            schemas,
            prefetch,
            resume,
            // The run of requests is one epoch.
            epochs: if self.asked.is_some() { 0 } else { self.epochs },
            asked: self.asked,
            on_error: self.on_error,
            timeout: pictures.timeout,
            trace: pictures.trace,
        })
    }
}

/// Creates the trace file and starts tracing. This is the last step of opening, so that a refused
/// loader does not touch an existing file.
pub(super) fn begin_trace(trace: Option<(PathBuf, trace::Schedule)>, shared: &Shared) -> Result<()> {
    if let Some((path, schedule)) = trace {
        let (run, source) = (&shared.run, shared.recipe.source.clone());
        let network = Box::new(move || guarded(|| Ok(source.network())).unwrap_or_default());
        run.counters.trace_to(Trace::new(&path, schedule, (run.settings.workers, MOST_READERS), network)?);
    }
    Ok(())
}

/// Keeper of page-locked batches that a device may still read.
#[cfg(feature = "cuda")]
fn keeper() -> Option<MakeKeeper> {
    Some(Box::new(|free| Ok(Arc::new(Handoff::new(Devices::new(), free)?))))
}

#[cfg(not(feature = "cuda"))]
fn keeper() -> Option<MakeKeeper> {
    None
}

impl IntoIterator for Loader {
    type Item = Result<HostBatch>;
    type IntoIter = IntoIter;

    /// Opens the loader and makes one pass, epoch 0. If opening fails, the error is the only item.
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
    use crate::batch::{Dtype, Field, Free, Keeper, Layout, Memory, Role, Schema};
    use crate::engine::filled;
    use crate::error::ErrorKind;
    use crate::source::{Memory as Samples, OwnedSample};
    use crate::transform::{Mix, Mixing};

    /// The faults of four mixed samples in a slot whose fields `damage` changed, so that the batch
    /// is filled but cannot be finished.
    fn faults(damage: impl Fn(&mut Field, Role)) -> Vec<Option<String>> {
        let mut bmp = b"BM\x3e\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\x18\0".to_vec();
        bmp.extend([0; 32]);
        let sample = |n: i64| OwnedSample::new(n.to_string()).field("bmp", bmp.clone()).label(n % 2);
        let loader = Loader::source(Samples::new((0..4).map(sample).collect())).batch_size(4).soft_labels(2, 0.1);
        let loader = loader.augment(Augment::pass_through(2, 1).mix(Mix::mixup(0.2)));
        let format = loader.pictures.written(Layout::Nhwc).unwrap();
        let parts = loader.open(format, None, false, |_, _| 0).unwrap();
        let arrays = parts.schemas.form(0).spans.iter().map(|span| {
            let mut field = span.field.clone();
            damage(&mut field, span.role);
            (field, span.role)
        });
        let schemas = Schemas::one(Schema::new(4, arrays).unwrap());
        let slot = Slots::make(&schemas, Memory::heap(schemas.bytes()).unwrap());
        let mixing = Some(Mixing { weight: 0.5, cut: None });
        let full = filled((parts.recipe, Arc::new(parts.run)), slot, (4, mixing), false).0;
        (0..4).map(|place| full.meta(place).fault.as_ref().map(ToString::to_string)).collect()
    }

    /// Keeps all slots, and reports a device error from the third request on.
    #[derive(Default)]
    struct Fails(AtomicUsize, Mutex<Vec<Free>>);

    impl Keeper<Free> for Fails {
        fn keep(&self, slot: Free) {
            self.1.lock().unwrap().push(slot);
        }

        fn wanted(&self, wanted: bool) -> Result<()> {
            let requests = self.0.fetch_add(usize::from(wanted), Relaxed);
            if requests < 2 { Ok(()) } else { Err(Error::new(ErrorKind::Cuda, "the device is lost")) }
        }

        fn kept(&self) -> usize {
            0
        }

        fn waits_for_a_capture(&self) -> bool {
            false
        }

        fn idle_since(&self) -> Option<Instant> {
            None
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    /// A source that counts its reads.
    struct Counted(Arc<AtomicUsize>);

    impl crate::source::Source for Counted {
        fn len(&self) -> usize {
            1 << 30
        }

        fn read<'a>(&'a self, index: usize, _: &'a mut Vec<u8>) -> Result<crate::source::Sample<'a>> {
            self.0.fetch_add(1, Relaxed);
            // Reads that waited would start more readers.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(200) {}
            Ok(crate::source::Sample::new("").with_label(index as i64))
        }
    }

    #[test]
    fn after_a_device_error_of_the_hand_off_nothing_more_is_prepared() {
        let reads = Arc::new(AtomicUsize::new(0));
        let loader = Loader::source(Counted(reads.clone())).without("image").batch_size(64).workers(2).prefetch(60);
        let format = loader.pictures.written(Layout::Nhwc).unwrap();
        let parts = loader.open(format, None, false, |_, _| 0).unwrap();
        let slot = |_| Slots::make(&parts.schemas, Memory::heap(parts.schemas.bytes()).unwrap());
        let slots = (0..parts.memory.slots).map(slot).collect();
        let engine = Engine::to_host(parts, slots, Some(Box::new(|_| Ok(Arc::new(Fails::default()))))).unwrap();
        let shared = engine.shared().clone();
        let mut batches = Batches::new(engine, &shared);
        let mut epoch = batches.epoch(0);
        let results: Vec<_> = epoch.by_ref().map(|batch| batch.map(drop)).collect();
        assert!(results.len() < 4 && results.last().unwrap().as_ref().unwrap_err().kind() == ErrorKind::Cuda);
        // Parts that workers had begun may still end.
        let mut after = 0;
        while std::mem::replace(&mut after, reads.load(Relaxed)) < after {
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(after < 62 * 64, "{after} of {} samples that fit the slots", 62 * 64);
        drop(epoch);
        assert_eq!(batches.epoch(1).next().unwrap().unwrap_err().kind(), ErrorKind::Cuda);
    }

    #[test]
    fn a_failure_while_a_batch_is_finished_is_a_fault_of_each_of_its_samples() {
        assert_eq!(faults(|_, _| ()), [const { None }; 4]);
        // Mixing reports that its images have the wrong length.
        let wider = faults(|field, role| {
            if role == Role::Picture {
                field.shape[0] += 1;
            }
        });
        assert!(wider.iter().flatten().filter(|e| e.contains("4 images of 6 bytes each")).count() == 4, "{wider:?}");
        // Rows of shares panic, because their bytes are not floats.
        let bytes = faults(|field, role| {
            if role == Role::SoftLabels {
                (field.dtype, field.shape) = (Dtype::U8, vec![3]);
            }
        });
        assert!(
            bytes.iter().flatten().filter(|e| e.contains("panicked at the end of batch")).count() == 4,
            "{bytes:?}"
        );
    }
}
