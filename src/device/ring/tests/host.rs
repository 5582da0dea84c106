//! Host slots with known contents, and the bytes that are expected on the device.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, unbounded};

use super::super::super::spec::{Array, Lanes, Origin, Spec};
use super::super::super::{SoftLabels, Target};
use super::super::{FullSlot, HostFeed, Repair};
use crate::batch::{BatchInfo, Dtype, Feed, Field, Layout, Normalize, Role, RunPlan, SampleOps, Schema, Wait};
use crate::device::tests::sim::{converted, sample_bytes};
use crate::error::{Error, Result};
use crate::sampler::{Entry, Rng};
use crate::source::BatchIndex;
use crate::transform::Mixing;

pub(super) const BATCH: usize = 4;
pub(super) const BATCHES: u64 = 40;

pub(super) fn array(name: &str, dtype: Dtype, shape: &[usize], role: Role) -> (Field, Role) {
    (Field { name: name.into(), dtype, shape: shape.into() }, role)
}

pub(super) fn spec_of(arrays: Vec<(Field, Role)>, dtype: Dtype, soft_labels: bool) -> Spec {
    let target = Target { dtype, layout: Layout::Nhwc, normalize: Normalize::UNIT, needs_retouch: false };
    let field = Field { name: "soft_label".into(), dtype: Dtype::F32, shape: vec![5] };
    let schema = Schema::new(BATCH, arrays).unwrap();
    Spec::new(&schema, target, soft_labels.then_some(SoftLabels { field, smoothing: 0.1 }))
}

/// Returns the spec of an image and a label. Sizes do not depend on the dtype, because the
/// simulated conversion writes one byte per input byte.
pub(super) fn spec(dtype: Dtype) -> Spec {
    spec_of(vec![image("image", 8, 9), label()], dtype, false)
}

/// Like [`spec`], but with two lanes: the device processes up to two batches of at most `BATCH / 2`
/// samples at the same time.
pub(super) fn overlapping() -> Spec {
    Spec { lanes: Some(Lanes { count: 2, samples: BATCH / 2 }), ..spec(CONVERTED) }
}

pub(super) fn image(name: &str, height: usize, width: usize) -> (Field, Role) {
    array(name, Dtype::U8, &[height, width, 3], Role::Image)
}

pub(super) fn label() -> (Field, Role) {
    array("label", Dtype::I64, &[], Role::Label)
}

pub(super) fn records(image: usize) -> (Field, Role) {
    array("", Dtype::U8, &[SampleOps::BYTES], Role::Records { image_span: image })
}

pub(super) const CONVERTED: Dtype = Dtype::F32;
pub(super) const COPIED: Dtype = Dtype::U8;

pub(super) fn host_bytes(spec: &Spec) -> Vec<usize> {
    let span_of = |array: &Array| match array.origin {
        Origin::Copied { span } => Some((span, array.field.sample_bytes())),
        Origin::Converted { span, height, width, .. } => Some((span, height * width * 3)),
        Origin::SoftLabels { .. } => None,
    };
    let mut spans: Vec<(usize, usize)> = spec.arrays.iter().filter_map(span_of).collect();
    spans.sort_unstable();
    assert!(spans.iter().enumerate().all(|(i, (span, _))| i == *span), "every span must be uploaded once");
    spans.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Returns the number of samples in a batch. With lanes, five batches that fit into a lane
/// alternate with four full ones. Without lanes, only the last batch is not full.
pub(super) fn count(spec: &Spec, number: u64) -> usize {
    match spec.lanes {
        Some(lanes) if number % 9 < 5 => 1 + number as usize % lanes.samples,
        None if number == BATCHES - 1 => BATCH - 1,
        _ => BATCH,
    }
}

/// Returns the bytes of each host span of a batch.
pub(super) fn content(spec: &Spec, epoch: u64, number: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(1, epoch, number);
    let random = |bytes: usize| (0..bytes * count(spec, number)).map(|_| rng.next_u64() as u8).collect();
    host_bytes(spec).into_iter().map(random).collect()
}

/// Returns the bytes that each array of a batch must have on the device.
pub(super) fn expected_on_device(spec: &Spec, epoch: u64, number: u64) -> Vec<Vec<u8>> {
    let host = content(spec, epoch, number);
    let input = |array: usize| match spec.arrays[array].origin {
        Origin::Copied { span } | Origin::Converted { span, .. } => &host[span],
        Origin::SoftLabels { .. } => unreachable!("soft labels are not an input of any array"),
    };
    let content_of = |array: &Array| {
        let (host_bytes, records) = match array.origin {
            Origin::Copied { span } => return host[span].clone(),
            Origin::Converted { span, records, .. } => (&host[span], records),
            Origin::SoftLabels { labels, records, .. } => (input(labels), records),
        };
        let (output_bytes, read) = sample_bytes(array);
        let byte = |i: usize| {
            let record = records.map_or(0, |records| input(records)[i / output_bytes * SampleOps::BYTES]);
            converted(host_bytes[i / output_bytes * read + i % output_bytes % read], record)
        };
        (0..count(spec, number) * output_bytes).map(byte).collect()
    };
    spec.arrays.iter().map(content_of).collect()
}

pub(super) struct HostSlot {
    // The bytes are atomic. If a faulty ring lets the slot be refilled while it is copied, the
    // result is a wrong batch instead of undefined behavior.
    fields: Vec<(Box<[AtomicU8]>, usize)>,
    info: BatchInfo,
    free_sender: Option<Sender<HostSlot>>,
}

/// Returns the key of a sample. Consecutive keys have different lengths.
pub(super) fn key(number: u64, row: usize) -> String {
    format!("{number}/{row}/").repeat((number as usize + row) % 5 + 1)
}

pub(super) fn mixing(number: u64) -> Option<Mixing> {
    (number % 2 == 1).then_some(Mixing { weight: number as f32 / BATCHES as f32, cutmix_area: None })
}

impl FullSlot for HostSlot {
    fn info(&self) -> &BatchInfo {
        &self.info
    }
    fn info_mut(&mut self) -> &mut BatchInfo {
        &mut self.info
    }
    fn bytes(&self, span: usize) -> &[u8] {
        let (bytes, len) = &self.fields[span];
        let bytes = &bytes[..*len];
        // SAFETY: `AtomicU8` has the layout of `u8`. The ring uses only the address and the length
        // of the slice, and the simulated device reads the bytes as atomics.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }
}

impl Drop for HostSlot {
    fn drop(&mut self) {
        if let Some(free_sender) = self.free_sender.take() {
            let fields = std::mem::take(&mut self.fields);
            let _ = free_sender.send(HostSlot { fields, info: std::mem::take(&mut self.info), free_sender: None });
        }
    }
}

/// A simulated loader with two host slots. It takes up to `delay` microseconds per batch.
pub(super) struct TestFeed {
    spec: Spec,
    free: Receiver<HostSlot>,
    free_sender: Sender<HostSlot>,
    epoch: u64,
    next: u64,
    delay: u64,
    rng: Rng,
    pub(super) failing: Option<u64>,
}

impl TestFeed {
    pub(super) fn new(spec: &Spec, delay: u64) -> Self {
        let (free_sender, free) = unbounded();
        for _ in 0..2 {
            let bytes = |n: usize| (0..n * BATCH).map(|_| AtomicU8::new(0)).collect();
            let fields = host_bytes(spec).into_iter().map(|n| (bytes(n), 0)).collect();
            let slot = HostSlot { fields, info: BatchInfo::new(BATCH), free_sender: None };
            free_sender.send(slot).unwrap();
        }
        TestFeed {
            spec: spec.clone(),
            free,
            free_sender,
            epoch: 0,
            next: BATCHES,
            delay,
            rng: Rng::new(9, 9, 9),
            failing: None,
        }
    }
}

impl Feed for TestFeed {
    type Batch = HostSlot;

    fn start(&mut self, run_plan: RunPlan) {
        assert_eq!(run_plan.batch_count, BATCHES);
        (self.epoch, self.next) = (run_plan.first.epoch, run_plan.first.batch);
    }

    fn position(&self) -> Option<BatchIndex> {
        (self.next < BATCHES).then_some(BatchIndex { epoch: self.epoch, batch: self.next })
    }

    fn receive(&mut self, wait: &mut Wait<'_>) -> Option<Result<HostSlot>> {
        let mut slot = loop {
            match self.free.recv_timeout(wait.pause()?) {
                Ok(slot) => break slot,
                Err(_) => continue,
            }
        };
        if self.delay > 0 {
            std::thread::sleep(Duration::from_micros(self.rng.below(self.delay)));
        }
        let number = self.next;
        self.next += 1;
        if self.failing == Some(number) {
            slot.free_sender = Some(self.free_sender.clone());
            self.next = BATCHES;
            return Some(Err(Error::decode("a bad sample")));
        }
        let content = content(&self.spec, self.epoch, number);
        for ((bytes, len), content) in slot.fields.iter_mut().zip(&content) {
            bytes.iter().zip(content).for_each(|(to, &from)| to.store(from, Relaxed));
            *len = content.len();
        }
        let BatchInfo { header, samples } = &mut slot.info;
        header.entries.clear();
        let entry = |i| Entry { sample: number * 10 + i as u64, variant: 0, valid: true };
        header.entries.extend((0..count(&self.spec, number)).map(entry));
        samples.iter_mut().enumerate().for_each(|(place, sample)| sample.key = key(number, place));
        (header.epoch, header.batch_index) = (self.epoch, number);
        (header.mixing, header.has_labels) = (mixing(number), number % 3 == 1);
        header.next = self.position();
        slot.free_sender = Some(self.free_sender.clone());
        Some(Ok(slot))
    }

    fn stop(&mut self) {
        self.next = BATCHES;
    }

    fn ready(&self) -> usize {
        self.free.len()
    }
}

impl HostFeed for TestFeed {
    fn repair(&mut self, _: HostSlot, _: &[usize]) -> Repair<HostSlot> {
        unreachable!("nothing is decoded on the device")
    }
    fn finish_repair(&mut self, _: HostSlot) -> Result<HostSlot> {
        unreachable!("nothing is decoded on the device")
    }
}
