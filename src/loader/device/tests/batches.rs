//! Tests the methods of device batches on the simulated device.

use super::*;
use crate::device::DeviceBatch;

/// The simulated device uses host memory.
#[allow(unsafe_code)]
fn bytes_at(address: u64, len: usize) -> Vec<u8> {
    // SAFETY: the address belongs to a batch or a copy that the caller still holds, and all writes
    // to that memory have finished.
    unsafe { std::slice::from_raw_parts(address as *const u8, len) }.to_vec()
}

#[test]
#[allow(unsafe_code)]
fn device_batches_have_the_fields_of_host_batches() {
    let loader = loader(&originals(false));
    let sim = Sim::new(Mistake::None, 20);
    let (consumer, other) = (sim.stream().unwrap(), sim.stream().unwrap());
    let mut batches = loader.clone().open_on(sim.clone(), consumer).unwrap();
    let mut host = loader.host().unwrap();
    let mut copies = Vec::new();
    for (batch, expected) in batches.epoch(1).zip(host.epoch(1)) {
        let (batch, expected): (DeviceBatch<Sim>, _) = (batch.unwrap(), expected.unwrap());
        assert_eq!(
            (batch.batch_index(), batch.sample_keys().collect::<Vec<_>>()),
            (expected.batch_index(), expected.sample_keys().collect::<Vec<_>>())
        );
        assert!(batch.fields().map(|field| &field.name).eq(expected.fields().map(|field| &field.name)));
        let (images, labels) = (batch.images(), batch.labels().unwrap());
        assert_eq!((images.dtype(), images.shape()), (Dtype::U8, &*expected.images().shape()));
        assert_eq!((labels.dtype(), &labels.strides()[..], labels.len()), (Dtype::I64, &[1][..], batch.len()));
        assert!(batch.field("nothing").is_none() && batch.soft_labels().is_none() && labels.device() == 0);
        assert_eq!(labels.download().unwrap(), bytemuck::cast_slice::<_, u8>(expected.labels().unwrap()));
        let pixels = images.download().unwrap();
        assert_eq!(pixels, expected.images().bytes());
        assert_eq!(bytes_at(images.device_ptr(), pixels.len()), pixels);
        // SAFETY: the stream belongs to the device and outlives the batch.
        unsafe { batch.use_on(other.raw()) }.unwrap();
        // SAFETY: as above.
        let copy = unsafe { batch.copy_on("image", other.raw()) }.unwrap().expect("the batch has a field \"image\"");
        // SAFETY: as above.
        assert!(unsafe { batch.copy_on("nothing", other.raw()) }.unwrap().is_none());
        let batch = Arc::new(batch);
        let shared = batch.dlpack("label").unwrap();
        assert_eq!(
            (shared.tensor().device_type, shared.tensor().data as u64),
            (1, batch.field("label").unwrap().device_ptr())
        );
        drop((batch, shared));
        // SAFETY: as above.
        unsafe { copy.use_on(other.raw()) }.unwrap();
        copies.push((copy, pixels));
    }
    other.finish();
    assert_eq!(copies.len(), 6);
    for (copy, pixels) in &copies {
        assert_eq!(bytes_at(copy.device_ptr(), pixels.len()), *pixels, "a copy outlives its batch");
    }
    assert!(batches.device_stats().batch_copies >= 6, "batches prepared for the next epoch are counted too");
}
