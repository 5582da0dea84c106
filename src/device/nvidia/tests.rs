//! The ring on a GPU with slots that are always full. This measures the ring alone, without
//! workers.

use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};

use super::super::{CudaBatch, FullSlot, HostFeed, Repair, Ring, Target};
use super::*;
use crate::batch::{BatchInfo, Course, Dtype, Feed, Field, Layout, Normalize, Role, Schema};
use crate::cuda::{AfterFork, Pinned};
use crate::order::Entry;

const BATCH: usize = 256;
const SIDE: usize = 224;

struct Prefilled {
    free: Receiver<Prepared>,
    home: Sender<Prepared>,
    next: u64,
    end: u64,
}

type Prepared = Box<([Pinned; 2], BatchInfo)>;

struct Slot {
    prepared: Option<Prepared>,
    home: Sender<Prepared>,
}

impl Feed for Prefilled {
    type Batch = Slot;
    fn start(&mut self, course: Course) {
        (self.next, self.end) = (course.first.batch, course.batches);
    }
    fn next(&mut self, idle: &mut dyn FnMut() -> Option<Duration>) -> Option<Result<Slot>> {
        if self.next == self.end {
            return None;
        }
        loop {
            if let Ok(mut prepared) = self.free.recv_timeout(idle()?) {
                let header = &mut prepared.1.header;
                (header.number, header.labelled) = (self.next, true);
                header.entries.resize(BATCH, Entry { sample: 0, variant: 0, valid: true });
                self.next += 1;
                return Some(Ok(Slot { prepared: Some(prepared), home: self.home.clone() }));
            }
        }
    }
    fn stop(&mut self) {
        self.next = self.end;
    }
    fn ready(&self) -> usize {
        self.free.len()
    }
}

impl HostFeed for Prefilled {
    fn repair(&mut self, _: Slot, _: &[usize]) -> Repair<Slot> {
        unreachable!("nothing is decoded on the device")
    }
    fn repaired(&mut self, _: Slot) -> Result<Slot> {
        unreachable!("nothing is decoded on the device")
    }
}

impl FullSlot for Slot {
    fn info(&self) -> &BatchInfo {
        &self.prepared.as_ref().unwrap().1
    }
    fn info_mut(&mut self) -> &mut BatchInfo {
        &mut self.prepared.as_mut().unwrap().1
    }
    fn bytes(&self, field: usize) -> &[u8] {
        &self.prepared.as_ref().unwrap().0[field]
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _ = self.home.send(self.prepared.take().unwrap());
    }
}

/// The target is 97 % of a bare copy of the same size. `cargo test --lib -- --ignored --nocapture
/// the_ring_keeps`.
#[test]
#[ignore = "a measurement; needs a GPU and a quiet machine"]
fn the_ring_keeps_the_bus_busy() {
    let stream = match crate::cuda::stream(0) {
        Ok(stream) => stream,
        Err(e) => return eprintln!("skipped: {e}"),
    };
    let context = Context::of(&stream).unwrap();
    let bytes = BATCH * SIDE * SIDE * 3;
    let own = Stream::new(&context).unwrap();
    let bare = {
        let (pinned, memory) =
            (Pinned::new(&context, bytes, AfterFork::Absent).unwrap(), Memory::new(&context, bytes).unwrap());
        let copies = |n: usize| {
            // SAFETY: `pinned` stays alive and unchanged until the wait below.
            (0..n).for_each(|_| unsafe { own.upload(&memory, 0, &pinned) }.unwrap());
            own.synchronize().unwrap();
        };
        copies(20);
        let since = Instant::now();
        copies(300);
        (300 * bytes) as f64 / since.elapsed().as_secs_f64() / 1e9
    };
    for (dtype, layout) in [(Dtype::U8, Layout::Nhwc), (Dtype::F16, Layout::Nchw), (Dtype::F32, Layout::Nchw)] {
        let (home, free) = bounded(4);
        for _ in 0..4 {
            let pinned = |len| Pinned::new(&context, len, AfterFork::Absent).unwrap();
            let fields = [pinned(bytes), pinned(BATCH * 8)];
            home.send(Box::new((fields, BatchInfo::new(BATCH)))).unwrap();
        }
        let supply = Prefilled { free, home, next: 0, end: 0 };
        let field = |name: &str, dtype, shape| Field { name: name.into(), dtype, shape };
        let image = (field("image", Dtype::U8, vec![SIDE, SIDE, 3]), Role::Picture);
        let label = (field("label", Dtype::I64, vec![]), Role::Label);
        let schema = Schema::new(BATCH, [image, label]).unwrap();
        let spec = Spec::new(&schema, Target { dtype, layout, normalize: Normalize::IMAGENET, retouched: false }, None);
        let consumer = Stream::lent(&stream).unwrap();
        let gpu = Nvidia(context.clone());
        let times = std::sync::Arc::new(crate::trace::Counters::new(0, 0, Vec::new()));
        let mut ring: Ring<_, CudaBatch> =
            Ring::new(gpu, consumer, vec![spec], 4, Duration::from_secs(10), supply, times).unwrap();
        let mut rates = Vec::new();
        for _ in 0..3 {
            ring.start(Course::one(0, 0..520));
            let mut since = Instant::now();
            while let Some(batch) = ring.next(&mut || Some(Duration::from_millis(100))) {
                if batch.unwrap().number() == 19 {
                    stream.synchronize().unwrap();
                    since = Instant::now();
                }
            }
            stream.synchronize().unwrap();
            rates.push((500 * bytes) as f64 / since.elapsed().as_secs_f64() / 1e9);
        }
        rates.sort_by(f64::total_cmp);
        let share = 100.0 * rates[1] / bare;
        println!(
            "{} {layout:?}: {:.2} GB/s through the ring, {share:.1} % of the bare {bare:.2} GB/s",
            dtype.name(),
            rates[1]
        );
    }
}
