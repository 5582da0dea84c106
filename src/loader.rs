#[cfg(feature = "cuda")]
mod cuda;
mod labels;
mod limits;
mod memory;
mod processors;
mod sampling;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Dtype, HostBatch, Layout, Normalize, Schema, Slots};
#[cfg(feature = "cuda")]
use crate::cuda::Devices;
use crate::decode::{Codec, Codecs};
#[cfg(feature = "cuda")]
use crate::device::Handoff;
use crate::engine::{
    Batches, Bounds, Delivery, Engine, IntoIter, MOST_WORKERS, MakeKeeper, MemoryPlan, OnError, Parts, READERS, Run,
    Scratch, ScratchPlan, Settings, State, some_batches,
};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::field::{Device, FieldKind, Fields, Written, Image, Label};
use crate::order::{Last, Rank, Schedule};
use crate::recipe::Recipe;
use crate::source::{self, Concat, Join, Source};
use crate::trace::{self, Trace};
use crate::transform::{Augment, Transform};
use limits::check_retries;
use memory::{Demand, Room, host_memory};
use sampling::Sampling;

/// The options of a data loader.
///
/// Setters take and give the loader by value, and never fail; all checks happen when it is opened,
/// by [`host`](Loader::host) or by going into a `for` loop.
///
/// ```no_run
/// # fn main() -> warpfeed::Result<()> {
/// use warpfeed::{Augment, Loader};
///
/// let mut batches = Loader::new("train").batch(256).shuffle(42).augment(Augment::train(224)).workers(8).prefetch(4).host()?;
/// for epoch in 0..90 {
///     for batch in batches.epoch(epoch) {
///         let batch = batch?;
///         println!("{:?} {:?}", batch.images(), batch.labels()?);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a loader does nothing until it is opened with `host` or iterated"]
#[derive(Clone)]
pub struct Loader {
    input: Input,
    mapped: bool,
    batch: Share,
    place: Place,
    sampling: Sampling,
    seed: u64,
    last: Last,
    resume: Option<State>,
    workers: usize,
    pinned: bool,
    prefetch: usize,
    codecs: Codecs,
    augment: Augment,
    transforms: Vec<Arc<dyn Transform>>,
    normalize: Option<Normalize>,
    dtype: Option<Dtype>,
    layout: Layout,
    fields: Vec<(String, FieldKind)>,
    without: Vec<String>,
    on_error: OnError,
    timeout: Duration,
    memory_limit: Option<usize>,
    limits: Limits,
    trace: Option<(PathBuf, trace::Schedule)>,
    soft_labels: Option<(usize, f32)>,
    unlabelled: bool,
}

#[derive(Clone)]
enum Input {
    Path(PathBuf),
    Source(Arc<dyn Source>),
    /// Several, and what share of the samples each has.
    Mixture(Vec<(Input, f64)>),
}

/// The number of samples and the proportion of each part of a mixture.
type Proportions = Vec<(u64, f64)>;

impl Input {
    /// The source; of a mixture with its proportions, its labels joined as `join` says.
    fn open(self, options: &source::Options, join: Option<Join>) -> Result<(Arc<dyn Source>, Option<Proportions>)> {
        if join.is_some() && !matches!(self, Input::Mixture(_)) {
            return Err(Error::config(
                "by_class_name and keep_labels say how a mixture joins its data sets, and this is no mixture; \
                 source::Concat has both for sets that are joined without one",
            ));
        }
        match self {
            Input::Path(path) => Ok((options.open(path)?, None)),
            Input::Source(source) => Ok((source, None)),
            Input::Mixture(parts) if parts.is_empty() => Err(Error::config("mixture: there are no data sets in it")),
            Input::Mixture(parts) => {
                let open = |(part, proportion): (Input, f64)| Ok((part.open(options, None)?.0, proportion));
                let parts = parts.into_iter().map(open).collect::<Result<Vec<_>>>()?;
                let mixture = parts.iter().map(|(part, proportion)| (part.len() as u64, *proportion)).collect();
                let parts = parts.into_iter().map(|(part, _)| part).collect();
                Ok((Arc::new(Concat::join(parts, join.unwrap_or_default())?), Some(mixture)))
            }
        }
    }
}

/// What a sample may claim before anything is made of it, and how often it may be asked for.
#[derive(Clone, Copy)]
struct Limits {
    retries: usize,
    /// Bytes of all fields together.
    sample_bytes: u64,
}

/// How large a batch is.
#[derive(Debug, Clone, Copy)]
enum Share {
    /// Samples of each rank.
    Rank(usize),
    /// Samples of all ranks together.
    Global(usize),
}

/// Which rank this is.
#[derive(Clone, Copy)]
enum Place {
    Given { rank: usize, world: usize },
    Environment,
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Loader { input, batch, seed, workers, prefetch, augment, dtype, layout, .. } = self;
        f.debug_struct("Loader")
            .field("input", input)
            .field("batch", batch)
            .field("seed", seed)
            .field("workers", workers)
            .field("prefetch", prefetch)
            .field("augment", augment)
            .field("dtype", dtype)
            .field("layout", layout)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Input::Path(path) => path.fmt(f),
            Input::Source(source) => write!(f, "{} source", source.kind()),
            Input::Mixture(parts) => parts.fmt(f),
        }
    }
}

impl Loader {
    /// A loader of the data set at `path`: a folder of class folders, a flat folder of pictures, an
    /// LMDB, a tar shard, a folder of shards, or a pattern such as `train-{000..099}.tar`. Which
    /// one is found out when it is opened; see [`source::open`].
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self::from_input(Input::Path(path.as_ref().to_owned()))
    }

    /// A loader of a source of your own, or of one opened before:
    /// `Loader::source(source::open("train")?)`.
    pub fn source(source: impl Source + 'static) -> Self {
        Self::shared_source(Arc::new(source))
    }

    /// A loader of a source that others use too, such as a second loader with other augmentation.
    pub fn shared_source(source: Arc<dyn Source>) -> Self {
        Self::from_input(Input::Source(source))
    }

    fn from_input(input: Input) -> Self {
        Loader {
            input,
            mapped: true,
            batch: Share::Rank(32),
            place: Place::Given { rank: 0, world: 1 },
            sampling: Sampling::default(),
            seed: 0,
            last: Last::default(),
            resume: None,
            workers: 0,
            pinned: false,
            prefetch: 0,
            codecs: Codecs::new(),
            augment: Augment::eval(256, 224),
            transforms: Vec::new(),
            normalize: None,
            dtype: None,
            layout: Layout::default(),
            fields: Vec::new(),
            without: Vec::new(),
            on_error: OnError::default(),
            timeout: Duration::from_secs(30),
            memory_limit: None,
            limits: Limits { retries: 3, sample_bytes: 1 << 31 },
            trace: None,
            soft_labels: None,
            unlabelled: false,
        }
    }

    /// Whether tar shards are memory-mapped, as they are by default. `false` reads them instead,
    /// for files that may be cut short while they are open: that, and a medium that fails, is then
    /// an error of the sample whatever the moment, never a `SIGBUS` that ends the process, as it is
    /// if a mapped shard is cut short while workers are busy. It suits network file systems too. It
    /// costs a copy of the encoded bytes, and an open file a shard; see
    /// [`Tar::open_unmapped`](source::Tar::open_unmapped).
    ///
    /// Without effect on folders, which are always read, and on sources that were opened before. An
    /// LMDB is always mapped, by its library: with `false` it is refused when the loader is opened.
    pub fn mapped(mut self, mapped: bool) -> Self {
        self.mapped = mapped;
        self
    }

    /// Samples in a batch, N; 32 by default. Larger batches cost N times the memory of a sample in
    /// every slot. 0 is an error.
    ///
    /// With several [ranks](Loader::rank) it is the batch of each of them, as PyTorch's
    /// `batch_size` is under `DistributedSampler`: the global batch grows with the world.
    /// [`global_batch`](Loader::global_batch) says it the other way round; the later of the two
    /// calls counts.
    pub fn batch(mut self, samples: usize) -> Self {
        self.batch = Share::Rank(samples);
        self
    }

    /// Samples that all [ranks](Loader::rank) together have in a batch: a run then sees the same
    /// global batches on any number of them.
    ///
    /// Each rank has an equal share. Where the world does not divide `samples`, the first ranks
    /// have one sample more than the others (weigh their gradients by [`HostBatch::len`]), or, with
    /// [`Last::Pad`], the others have one place of padding. Fewer samples than ranks are an error.
    pub fn global_batch(mut self, samples: usize) -> Self {
        self.batch = Share::Global(samples);
        self
    }

    /// Delivers the share of process `rank` of `world`, of processes that train together; 0 of 1 by
    /// default.
    ///
    /// Nothing is exchanged between the ranks: each knows the order of all samples, and takes its
    /// own part of each global batch. So with the same options all of them have the same number of
    /// batches, and each sample of an epoch goes to exactly one rank, but for what
    /// [`last`](Loader::last) does at its end. Global batch g is the same samples in the same
    /// order, with the same augmentation, for any world, when rank 0's part comes first, then rank
    /// 1's, and so on. What pairs samples of a batch stays within a rank: [`mix`](Augment::mix),
    /// and the stand-ins of [`OnError::Skip`].
    pub fn rank(mut self, rank: usize, world: usize) -> Self {
        self.place = Place::Given { rank, world };
        self
    }

    /// [`rank`](Loader::rank) as the launcher's environment says (torchrun, Open MPI, SLURM); see
    /// [`Rank::from_env`]. Opening it without a launcher is an error.
    ///
    /// Ranks on one machine share its processors when [`workers`](Loader::workers) is automatic:
    /// each takes its part, by what the launcher says of their number (`LOCAL_WORLD_SIZE`,
    /// `OMPI_COMM_WORLD_LOCAL_SIZE`, `SLURM_NTASKS_PER_NODE`), or what the launcher binds it to.
    pub fn distributed(mut self) -> Self {
        self.place = Place::Environment;
        self
    }

    /// Seed of the shuffle and of all augmentation; 0 by default.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What happens to an epoch's last batch when the samples do not fill it; [`Last::Keep`] by
    /// default.
    pub fn last(mut self, last: Last) -> Self {
        self.last = last;
        self
    }

    /// Goes on where another run stood, exact to the batch, in constant time. The number of
    /// workers, of batches made ahead and of [ranks](Loader::rank) may be another than in that run,
    /// as long as the global batch is the same (see [`global_batch`](Loader::global_batch)).
    ///
    /// [`Batches::epoch`] then begins the saved epoch at the saved batch. The samples that
    /// [`OnError::Skip`] allows are counted anew.
    ///
    /// Opening it is an [`ErrorKind::Config`] that names both values if the state was saved by a
    /// loader of another seed, batch, order or data set, as far as [`State`] can tell; it reads
    /// eight samples for that.
    pub fn resume(mut self, state: State) -> Self {
        self.resume = Some(state);
        self
    }

    /// Worker threads that read, decode and transform. The number changes the speed and nothing
    /// else: batches are the same, bit for bit, for any number.
    ///
    /// 0, the default, is one for each processor that this process may use. More are of use for a
    /// decoder or a transform that waits. A source that waits for a disk or a network needs no more:
    /// when reads are seen to wait, up to 32 threads of their own read for the workers. They are
    /// started then, sleep while reads do not wait, and hold samples within the memory of
    /// [`Batches::plan`]. Each worker costs a thread and scratch for the pictures in hand. More than
    /// 4,096 are an error when the loader is opened.
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads;
        self
    }

    /// Whether batches lie in page-locked memory, which the GPU can copy from without the host's
    /// help; off by default.
    ///
    /// Uploads from there are asynchronous, those of cudarc's safe calls too. A batch may be
    /// dropped at once nevertheless: its memory is written again after all work that the devices
    /// had been given by then. The wait is on a thread of the loader's own. A step that takes long
    /// keeps slots so long, and the loader then prepares fewer batches ahead of the host.
    ///
    /// Two limits. Work of a CUDA context that a program makes beside the device's primary one is
    /// not seen: there `release_on` is needed. And a CUDA graph capture of a stream that the loader
    /// has never been given can be invalidated by the mark that a dropped batch needs; the driver
    /// reports that at the end of the capture. Streams of [`cuda::stream`](crate::cuda::stream),
    /// and those given to `release_on`, are known.
    #[cfg_attr(
        feature = "cuda",
        doc = "[`HostBatch::release_on`] names the stream that reads the batch: then nothing else is waited for."
    )]
    ///
    /// Without a CUDA driver there is none to be had: a warning is logged once, ordinary memory is
    /// used, and [`Batches::plan`] says so. It costs time when the loader is opened, about 0.3 ms a
    /// MB, and the memory cannot be swapped out.
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// Batches that are made ahead of the consumer. Like [`workers`](Loader::workers) it changes
    /// the speed alone.
    ///
    /// Each costs a slot of memory; one more is in the consumer's hands and one more is being
    /// filled, so that the loader holds `prefetch + 2` slots. More than a few help only when the
    /// time that samples or steps take varies much.
    ///
    /// 0, the default, is automatic: 2 to begin with, and twice as many, up to 16, when the
    /// consumer waits although workers idle because all slots are taken; kept if more samples come.
    /// A consumer that keeps batches alive is given more slots, as long as there are any. All slots
    /// there may be are allocated when the loader is opened, within the
    /// [`memory_limit`](Loader::memory_limit), or, without one, 1 GiB (256 MiB if page-locked; but
    /// always for 2) and what the machine has left. Ordinary memory that was never used stays the
    /// system's. On a device there are 2 batches, and what adapts is the host's slots.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// Crop, resize, flip and what else is done to each picture, and so the size of the images;
    /// `Augment::eval(256, 224)` by default.
    pub fn augment(mut self, augment: Augment) -> Self {
        self.augment = augment;
        self
    }

    /// Adds a step of your own on the `u8` image after [`augment`](Loader::augment), before it is
    /// normalised. Called more than once, the steps follow each other.
    pub fn transform(mut self, transform: impl Transform + 'static) -> Self {
        self.transforms.push(Arc::new(transform));
        self
    }

    /// Per-channel `(pixel / 255 - mean) / std`, such as [`Normalize::IMAGENET`]. It makes the
    /// dtype F32 unless [`dtype`](Loader::dtype) says another float. Without it, float images are
    /// `pixel / 255`.
    pub fn normalize(mut self, normalize: Normalize) -> Self {
        self.normalize = Some(normalize);
        self
    }

    /// Element type of the images: U8 (the default: pixels as they are), F32, F16 or BF16.
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Order of the images' axes; [`Layout::Nhwc`] by default.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Adds a codec of your own to the [built-in ones](crate::decode#what-is-read). It is asked
    /// before them, and before those that were added earlier, so that it may take a format over.
    ///
    /// Files in a folder with an extension of its [format](Codec::format) are then samples, and a
    /// field that is named after the format is a sample's image. [`Codec`] has an example of one.
    ///
    /// ```no_run
    /// # use warpfeed::{Augment, Loader, decode::RawRgb};
    /// // Fields of 32 * 32 * 3 bytes, which are the pixels themselves.
    /// let arrays = Loader::new("arrays.lmdb").codec(RawRgb::new(32, 32));
    /// let loader = arrays.augment(Augment::exact(32, 32));
    /// ```
    pub fn codec(mut self, codec: impl Codec + 'static) -> Self {
        self.codecs = self.codecs.with(codec);
        self
    }

    /// Delivers the field `name` of every sample, of the kind that is given: see
    /// [`field`](crate::field). A field called `image` or `label` replaces the one that there is by
    /// default.
    ///
    /// Found in the batch with [`HostBatch::field`] under the same name. A sample without it, or
    /// whose bytes do not fit the kind, is an error.
    ///
    /// ```no_run
    /// use warpfeed::field::Numbers;
    /// use warpfeed::{Dtype, Loader};
    ///
    /// let batches = Loader::new("train.lmdb").field("emb", Numbers::new(Dtype::F32, [768])).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn field(mut self, name: &str, kind: impl Into<FieldKind>) -> Self {
        self.fields.push((name.to_owned(), kind.into()));
        self
    }

    /// Leaves out a field that there is by default: `image` or `label`. Without an image nothing is
    /// decoded, and the augmentation has no effect.
    ///
    /// ```no_run
    /// use warpfeed::field::Rows;
    /// use warpfeed::{Dtype, Loader};
    ///
    /// let batches = Loader::new("texts.tar").without("image").field("tokens", Rows::new(Dtype::I64, [], 512)).host()?;
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn without(mut self, name: &str) -> Self {
        self.without.push(name.to_owned());
        self
    }

    /// Writes a trace of the batches that `schedule` names to `path`, as Chrome trace events:
    /// [Perfetto](https://ui.perfetto.dev), `chrome://tracing` and TensorBoard open it. No trace by
    /// default.
    ///
    /// A row a worker, the coordinator, the consumer, and on a device the copy stream, the convert
    /// stream and the consumer's stream, each placed by the device's own clock. Spans carry the
    /// sample, its key, its bytes and its batch; [`trace::span`](crate::trace::span()) adds your
    /// own. Outside of the schedule's windows it costs next to nothing. The file is made when the
    /// loader is opened, as the last step of that, and is whole after each window and after the
    /// loader is dropped.
    ///
    /// ```no_run
    /// # use warpfeed::{Loader, trace::Schedule};
    /// let batches = Loader::new("train").trace("trace.json", Schedule { wait: 1, warmup: 1, active: 3, repeat: 1 }).host();
    /// ```
    pub fn trace(mut self, path: impl AsRef<Path>, schedule: trace::Schedule) -> Self {
        self.trace = Some((path.as_ref().to_owned(), schedule));
        self
    }

    /// Opens the loader with batches in host memory.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an option that cannot work, or for options that together leave an
    /// epoch without a batch, [`ErrorKind::Io`] or [`ErrorKind::Source`] for a data set that cannot
    /// be opened, [`ErrorKind::Memory`] beyond the [`memory_limit`](Loader::memory_limit), or what
    /// the machine has left.
    pub fn host(self) -> Result<Batches<HostBatch>> {
        let (layout, pinned) = (self.layout, self.pinned);
        let format = self.written(layout)?;
        let parts = self.open(format, None, pinned, |_, _| 0)?;
        let memory = host_memory(parts.schema.bytes, parts.memory.slots, pinned, parts.schedule.rank())?;
        let slots: Vec<_> = memory.into_iter().map(|memory| Slots::make(&parts.schema, memory)).collect();
        let pinned_bytes = slots.iter().filter(|s| s.is_pinned()).count() * parts.schema.bytes;
        let keeper = (pinned_bytes > 0).then(keeper).flatten();
        let memory = MemoryPlan { pinned_bytes, ..parts.memory };
        let (trace, room) = (parts.trace.clone(), parts.prefetch.least + 1);
        let engine = Engine::new(parts, slots, keeper)?;
        begin_trace(trace, engine.run())?;
        let (shared, resume) = (engine.shared(memory, room), engine.resume);
        Ok(Batches::new(Delivery::to_host(engine), Arc::new(shared), resume))
    }

    /// How the host writes images that a batch has in `layout`.
    fn written(&self, layout: Layout) -> Result<Written> {
        let dtype = self.dtype.unwrap_or(if self.normalize.is_some() { Dtype::F32 } else { Dtype::U8 });
        if dtype == Dtype::U8 && self.normalize.is_some() {
            return Err(Error::config("normalize needs dtype f32, f16 or bf16; dtype is u8"));
        }
        let normalize = self.normalize.unwrap_or(Normalize::UNIT);
        Ok(Written { size: self.augment.output_size(), dtype, layout, normalize })
    }

    /// How a data set is opened.
    fn source_options(&self) -> source::Options {
        source::Options::new().mapped(self.mapped).formats(self.codecs.formats())
    }

    /// The names and kinds of all fields: those there are by default first.
    fn fields(&self) -> Result<Vec<(String, FieldKind)>> {
        let (classes, unlabelled) = (self.soft_labels, self.unlabelled);
        let label = Label::new().unlabelled(unlabelled);
        let label = classes.map_or(label, |(classes, smoothing)| label.soft(classes, smoothing));
        let mut fields: Vec<(String, FieldKind)> =
            vec![("image".to_owned(), Image::new().into()), ("label".to_owned(), label.into())];
        for name in &self.without {
            let Some(place) = fields.iter().position(|(field, _)| field == name) else {
                return Err(Error::config(format!(
                    "without({name:?}): by default there are the fields \"image\" and \"label\", each to be left out once"
                )));
            };
            fields.remove(place);
        }
        let defaults = fields.len();
        for (name, kind) in &self.fields {
            match fields[..defaults].iter_mut().find(|(field, _)| field == name) {
                Some((_, default)) => *default = kind.clone(),
                None => fields.push((name.clone(), kind.clone())),
            }
        }
        Ok(fields)
    }

    /// Checks the options and opens the source; images are to be written by the host as `format`
    /// says, into memory that is `pinned` or not. `device` is none for batches that stay on the
    /// host. `beside` is what a number of batches ahead takes beside the slots, in bytes.
    fn open(
        self,
        format: Written,
        device: Option<Device>,
        pinned: bool,
        beside: impl Fn(&Schema, usize) -> usize,
    ) -> Result<Parts> {
        check_retries(self.limits.retries)?;
        let rank = match self.place {
            Place::Given { rank, world } => Rank::new(rank, world)?,
            Place::Environment => Rank::of_launcher()?,
        };
        let global_batch = self.batch.of_all(rank.world)?;
        self.augment.check()?;
        let (fields, arrays) = Fields::new(&self.fields()?, format, device)?;

        let options = self.source_options();
        let (source, mixture) = self.input.open(&options, self.sampling.join()?)?;
        if source.is_empty() {
            return Err(Error::in_source(format!("the {} source has no samples", source.kind())));
        }
        let processors = processors::processors(&rank);
        let workers = match self.workers {
            0 => processors,
            n if n > MOST_WORKERS => {
                return Err(Error::config(format!(
                    "workers({n}): at most {MOST_WORKERS} threads; this process has {processors} processors, and workers(0) finds a number"
                )));
            }
            n => n,
        };
        let skip = self.sampling.skip;
        let order =
            self.sampling.open(&*source, mixture, self.seed, global_batch, workers, self.limits.retries)?;
        let schedule = Schedule::new(order, global_batch, self.last, rank);
        some_batches(&schedule, skip, source.len())?;
        let schema = Arc::new(Schema::new(schedule.places() as usize, arrays)?);
        let room = Room::of(self.memory_limit);
        // An image, and a copy of the last one of a batch that workers mix.
        let image = if fields.images.is_empty() { 0 } else { format.size.area() as usize * 3 };
        let mixing = if self.augment.mixes() && device.is_none() { image * format.dtype.bytes() } else { 0 };
        let scratch = ScratchPlan::ample(workers, processors, image + mixing);
        let prefetch = match self.prefetch {
            0 => room.automatic_prefetch(pinned, &schema, &scratch, &beside),
            n => Bounds::exactly(n),
        };
        let demand = Demand { schema: &schema, prefetch, scratch, beside: &beside };
        let (host_bytes, scratch) = room.grant(&demand)?;
        let recipe = Recipe {
            source,
            codecs: self.codecs,
            augment: self.augment,
            transforms: self.transforms,
            fields,
            seed: self.seed,
            retries: self.limits.retries,
            sample_bytes: self.limits.sample_bytes,
            stand_in: matches!(self.on_error, OnError::Skip { .. }),
        };
        let resume = self.resume.map(|state| state.check(&recipe, &schedule)).transpose()?;
        let slots = Settings::slots_for(prefetch.most);
        Ok(Parts {
            recipe,
            run: Run::new(Arc::new(Settings::new(processors, workers, prefetch)), Scratch::new(scratch)),
            schedule,
            memory: MemoryPlan {
                slots,
                slots_in_use: slots,
                slot_bytes: schema.bytes,
                host_bytes,
                pinned_bytes: 0,
                device_bytes: 0,
                staging_bytes: 0,
                scratch_bytes: scratch.total(),
                worker_scratch_bytes: scratch.fixed + scratch.own,
                shared_scratch_bytes: scratch.shared,
                ahead_bytes: scratch.ahead,
            },
            schema,
            prefetch,
            resume,
            on_error: self.on_error,
            timeout: self.timeout,
            trace: self.trace,
        })
    }
}

impl Share {
    /// Samples of all ranks together.
    fn of_all(self, world: usize) -> Result<u64> {
        match self {
            Share::Rank(0) => Err(Error::config("batch(0): a batch has at least one sample")),
            Share::Rank(n) => n
                .checked_mul(world)
                .map(|n| n as u64)
                .ok_or_else(|| Error::config(format!("batch({n}) on {world} ranks: more samples than can be counted"))),
            Share::Global(n) if n < world => {
                Err(Error::config(format!("global_batch({n}) on {world} ranks: each has at least one sample")))
            }
            Share::Global(n) => Ok(n as u64),
        }
    }
}

/// Makes the file of the trace and begins it. The last step of opening, so that a loader that is
/// refused leaves a file of that name as it was.
fn begin_trace(trace: Option<(PathBuf, trace::Schedule)>, run: &Run) -> Result<()> {
    if let Some((path, schedule)) = trace {
        run.counters.trace_to(Trace::new(&path, schedule, run.settings.workers, READERS)?);
    }
    Ok(())
}

/// Who keeps page-locked batches that a device may still read.
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

    /// Opens the loader and makes one pass, epoch 0. An error of opening is the first and only
    /// item.
    fn into_iter(self) -> IntoIter {
        IntoIter::new(self.host())
    }
}

#[cfg(test)]
#[path = "../tests/fuzz/resume.rs"]
mod fuzz;
