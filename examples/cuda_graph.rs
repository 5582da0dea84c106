//! Captures a training step into a CUDA graph and replays it over batches.
//!
//! ```text
//! cargo run --release --example cuda_graph
//! ```
//!
//! A CUDA graph contains the addresses that were used during its capture, but the addresses of the
//! loader's batches change. The step therefore reads from fixed buffers. Before each launch of the
//! graph, a batch is copied into these buffers on the device.
//!
//! Requesting a batch during the capture fails, because the loader's waits would become part of the
//! graph. The capture and the loader can still be used after this error. The exit code is 0 if the
//! weights and the loss are bit-identical with and without the graph, and 1 if they are not.
//! Without a GPU, the example prints a message, and the exit code is 0.
#![allow(unsafe_code)]

use std::sync::Arc;

use warpfeed::cuda::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use warpfeed::cuda::cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use warpfeed::cuda::cudarc::nvrtc::Ptx;
use warpfeed::{Augment, Batches, CudaBatch, Dtype, LastBatch, Layout, Loader, Normalize, cuda};
use warpfeed_synth::Synth;

const BATCH: usize = 32;
const SIDE: u32 = 64;
const CLASSES: u32 = 4;
const FEATURES: u32 = 192;
const WEIGHTS: u32 = CLASSES * (FEATURES + 1);
const RATE: f32 = 0.1;
const EPOCHS: u64 = 3;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    if let Err(e) = cuda::available() {
        println!("skipped: {e}");
        return Ok(());
    }
    let stream = cuda::stream(0)?;
    // cudarc makes each use of a buffer wait for an event recorded after the previous use. During a
    // capture, the driver rejects events that were recorded before the capture. SAFETY: this
    // program uses its buffers on one stream only, and the loader synchronizes its own streams.
    unsafe { stream.context().disable_event_tracking() };
    let mut batches = Loader::source(Synth::new().images(640).classes(CLASSES as usize).side(64).memory()?)
        .batch_size(BATCH)
        .last_batch(LastBatch::Drop)
        .shuffle(42)
        .augment(Augment::train(SIDE).scale(0.5, 1.0))
        .normalize(Normalize::IMAGENET)
        .dtype(Dtype::F32)
        .layout(Layout::Nchw)
        .prefetch(3)
        .cuda(&stream)?;
    let mut step = Step::new(&stream)?;
    let (expected_weights, expected_loss) = without_graph(&mut step, &mut batches)?;
    step.reset()?;
    let (weights, loss) = with_graph(&mut step, &mut batches)?;

    if expected_weights.iter().all(|w| *w == 0.0) {
        return Err("the steps left the weights at zero".into());
    }
    if let Some(i) = (0..expected_weights.len()).find(|&i| expected_weights[i].to_bits() != weights[i].to_bits()) {
        return Err(format!("weight {i} is {} with the graph and {} without", weights[i], expected_weights[i]).into());
    }
    if loss.to_bits() != expected_loss.to_bits() {
        return Err(format!("the summed loss is {loss} with the graph and {expected_loss} without").into());
    }
    // Check for errors that occurred in destructors.
    stream.context().check_err()?;
    println!("{} weights agree bit for bit after {EPOCHS} epochs", expected_weights.len());
    Ok(())
}

fn without_graph(step: &mut Step, batches: &mut Batches<CudaBatch>) -> Result<(Vec<f32>, f32)> {
    for epoch in 0..EPOCHS {
        for batch in batches.epoch(epoch) {
            step.copy_batch(&batch?)?;
            step.launch()?;
        }
    }
    Ok(step.result()?)
}

fn with_graph(step: &mut Step, batches: &mut Batches<CudaBatch>) -> Result<(Vec<f32>, f32)> {
    let stream = step.stream.clone();
    let mut epoch = batches.epoch(0);
    step.copy_batch(&epoch.next().ok_or("an epoch without batches")??)?;

    // The global mode is the strictest, but driver calls from the loader's threads do not
    // invalidate the capture.
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    step.launch()?;
    let batch_during_capture = epoch.next();
    let graph = stream.end_capture(CUgraphInstantiate_flags(0))?.ok_or("the capture returned no graph")?;
    match batch_during_capture {
        Some(Err(e)) => println!("requested a batch during the capture: {e}"),
        Some(Ok(batch)) => return Err(format!("batch {} was delivered into the capture", batch.batch_index()).into()),
        None => return Err("the epoch ended during the capture".into()),
    }

    graph.launch()?;
    let mut steps = 1;
    for batch in epoch {
        let batch = batch?;
        if batch.batch_index() != steps {
            return Err(format!("received batch {} instead of batch {steps}", batch.batch_index()).into());
        }
        step.copy_batch(&batch)?;
        graph.launch()?;
        steps += 1;
    }
    for epoch in 1..EPOCHS {
        for batch in batches.epoch(epoch) {
            step.copy_batch(&batch?)?;
            graph.launch()?;
            steps += 1;
        }
    }
    println!("replayed the graph for {steps} batches");
    Ok(step.result()?)
}

/// A training step of a softmax classifier, with its buffers.
struct Step {
    stream: Arc<CudaStream>,
    pool: CudaFunction,
    errors: CudaFunction,
    descend: CudaFunction,
    images: CudaSlice<f32>,
    labels: CudaSlice<i64>,
    features: CudaSlice<f32>,
    error: CudaSlice<f32>,
    weights: CudaSlice<f32>,
    loss: CudaSlice<f32>,
}

impl Step {
    fn new(stream: &Arc<CudaStream>) -> std::result::Result<Self, DriverError> {
        let module = stream.context().load_module(Ptx::from_src(include_str!("kernels/graph.ptx")))?;
        Ok(Step {
            pool: module.load_function("pool")?,
            errors: module.load_function("errors")?,
            descend: module.load_function("descend")?,
            images: stream.alloc_zeros(BATCH * 3 * (SIDE * SIDE) as usize)?,
            labels: stream.alloc_zeros(BATCH)?,
            features: stream.alloc_zeros(BATCH * FEATURES as usize)?,
            error: stream.alloc_zeros(BATCH * CLASSES as usize)?,
            weights: stream.alloc_zeros(WEIGHTS as usize)?,
            loss: stream.alloc_zeros(BATCH)?,
            stream: stream.clone(),
        })
    }

    /// Queues a copy of the batch into the buffers. The batch may be dropped afterward, because its
    /// memory is reused only after the copy.
    fn copy_batch(&mut self, batch: &CudaBatch) -> Result<()> {
        self.stream.memcpy_dtod(&batch.images().view::<f32>()?, &mut self.images)?;
        self.stream.memcpy_dtod(&batch.labels()?.view::<i64>()?, &mut self.labels)?;
        Ok(())
    }

    /// Queues the step's kernels, or adds them to the graph during a capture.
    fn launch(&mut self) -> std::result::Result<(), DriverError> {
        let (stream, n) = (&self.stream, BATCH as u32);
        let launch_config = |count: u32| LaunchConfig {
            grid_dim: (count.div_ceil(256), 1, 1),
            block_dim: (256, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut pool = stream.launch_builder(&self.pool);
        pool.arg(&mut self.features).arg(&self.images).arg(&n).arg(&SIDE);
        // SAFETY: the arguments match the kernel's declaration in `graph.cu`, and the buffers are
        // large enough for BATCH images.
        unsafe { pool.launch(launch_config(n * FEATURES)) }?;
        let mut errors = stream.launch_builder(&self.errors);
        errors.arg(&mut self.error).arg(&mut self.loss).arg(&self.features).arg(&self.labels).arg(&self.weights);
        // SAFETY: as above.
        unsafe { errors.arg(&n).arg(&CLASSES).launch(launch_config(n)) }?;
        let mut descend = stream.launch_builder(&self.descend);
        descend.arg(&mut self.weights).arg(&self.error).arg(&self.features).arg(&n).arg(&CLASSES).arg(&RATE);
        // SAFETY: as above.
        unsafe { descend.launch(launch_config(WEIGHTS)) }?;
        Ok(())
    }

    fn reset(&mut self) -> std::result::Result<(), DriverError> {
        self.stream.memset_zeros(&mut self.weights)?;
        self.stream.memset_zeros(&mut self.loss)
    }

    /// Returns the weights, and the loss summed over all steps.
    fn result(&self) -> std::result::Result<(Vec<f32>, f32), DriverError> {
        let loss = self.stream.clone_dtoh(&self.loss)?;
        Ok((self.stream.clone_dtoh(&self.weights)?, loss.iter().sum()))
    }
}
