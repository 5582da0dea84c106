//! Tests that `Batches::next_interruptible` delivers the same epochs as `Batches::epoch`. A wait
//! that times out must lose no batch. A checkpoint loaded during an epoch must resume at its
//! position.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{BatchContent, NumberSource, exit_on_hang, loader};
use warpfeed::{Batches, ErrorKind, HostBatch};

const WAIT: Duration = Duration::from_millis(50);

fn rest(epochs: &mut Batches<HostBatch>) -> Vec<BatchContent> {
    std::iter::from_fn(|| epochs.next_interruptible(&mut || Some(WAIT)))
        .map(|batch| BatchContent::from(&batch.unwrap()))
        .collect()
}

#[test]
fn an_epoch_reports_its_remaining_batches() {
    let mut batches = loader(NumberSource::new(50)).batch_size(7).shuffle(3).host().unwrap();
    assert_eq!(batches.num_batches(0), 8);
    let mut epoch = batches.epoch_from(0, 3);
    assert_eq!((epoch.len(), epoch.is_empty()), (5, false));
    for remaining in (0..5).rev() {
        drop(epoch.next().unwrap().unwrap());
        assert_eq!(epoch.len(), remaining);
    }
    assert!(epoch.next().is_none() && epoch.is_empty());
}

#[test]
fn interruptible_epochs_equal_those_of_a_loop() {
    let mut batches = loader(NumberSource::new(50)).shuffle(3).host().unwrap();
    let mut epochs = loader(NumberSource::new(50)).shuffle(3).host().unwrap();
    assert!(epochs.next_interruptible(&mut || Some(WAIT)).is_none(), "there is a batch before an epoch has begun");
    for epoch in [0, 1, 1, 5] {
        let expected: Vec<_> = batches.epoch(epoch).map(|batch| BatchContent::from(&batch.unwrap())).collect();
        epochs.begin(epoch);
        assert_eq!(rest(&mut epochs), expected);
        assert_eq!(epochs.checkpoint(), batches.checkpoint());
        assert!(epochs.next_interruptible(&mut || Some(WAIT)).is_none(), "there is a batch after the epoch has ended");
    }
    for first in [0, 3, 8, 99] {
        let expected: Vec<_> = batches.epoch_from(1, first).map(|batch| BatchContent::from(&batch.unwrap())).collect();
        epochs.begin_from(1, first);
        assert_eq!(rest(&mut epochs), expected);
        assert_eq!(epochs.checkpoint(), batches.checkpoint());
    }
    epochs.begin(0);
    drop(epochs.next_interruptible(&mut || Some(WAIT)).unwrap().unwrap());
    epochs.begin(2);
    assert_eq!(rest(&mut epochs).len(), 8);
}

#[test]
fn a_timed_out_wait_loses_no_batch() {
    exit_on_hang(|| {
        let mut epochs = loader(NumberSource::new(50)).host().unwrap();
        epochs.begin(0);
        let unbroken = rest(&mut epochs);
        epochs.begin(0);
        let (mut came, mut given_up) = (Vec::new(), 0);
        while came.len() < unbroken.len() {
            match epochs.next_interruptible(&mut || None) {
                Some(batch) => came.push(BatchContent::from(&batch.unwrap())),
                None => given_up += 1,
            }
            if given_up % 3 == 2 {
                given_up += 1;
                came.extend(
                    epochs.next_interruptible(&mut || Some(WAIT)).map(|batch| BatchContent::from(&batch.unwrap())),
                );
            }
        }
        assert_eq!(came, unbroken);
        assert!(given_up > 0, "no wait timed out");
    });
}

#[test]
fn a_checkpoint_can_be_loaded_during_an_epoch() {
    let open = || loader(NumberSource::new(50)).shuffle(3).host().unwrap();
    let mut run = open();
    run.begin(0);
    let _ = rest(&mut run);
    run.begin(1);
    (0..3).for_each(|_| drop(run.next_interruptible(&mut || Some(WAIT)).unwrap().unwrap()));
    let state = run.checkpoint();
    let last_batches = rest(&mut run);

    let mut other = open();
    other.begin(7);
    drop(other.next_interruptible(&mut || Some(WAIT)));
    other.resume(&state).unwrap();
    assert_eq!((other.first_epoch(), other.checkpoint()), (1, state.clone()));
    assert!(other.next_interruptible(&mut || Some(WAIT)).is_none(), "the epoch in progress continues");
    other.begin(0);
    assert_eq!(rest(&mut other).len(), 0, "epochs before the saved one are empty");
    other.begin(1);
    assert_eq!(rest(&mut other), last_batches);
    other.begin(1);
    assert_eq!(rest(&mut other).len(), 8, "a repeated epoch is complete");

    let mut refused = loader(NumberSource::new(50)).shuffle(4).host().unwrap();
    let e = refused.resume(&state).unwrap_err();
    assert!(e.kind() == ErrorKind::Config && e.cause().contains("the seed differs"), "{e}");
    refused.begin(0);
    assert_eq!(rest(&mut refused).len(), 8, "a refused checkpoint leaves the loader at its start");
}

#[test]
fn an_exported_field_keeps_its_batch_and_has_its_bytes() {
    exit_on_hang(|| {
        let mut epochs = loader(NumberSource::new(200)).prefetch(2).host().unwrap();
        epochs.begin(0);
        let first = Arc::new(epochs.next_interruptible(&mut || Some(WAIT)).unwrap().unwrap());
        let (expected, label) = (first.images().bytes().to_vec(), first.labels().unwrap().to_vec());
        let (images, labels) = (first.dlpack("image").unwrap(), first.dlpack("label").unwrap());
        assert!(first.dlpack("other").is_none());
        drop(first);
        assert_eq!(rest(&mut epochs).len(), 28);
        let bytes = |tensor: &warpfeed::batch::DlTensor, len: usize| {
            assert_eq!((tensor.device_type, tensor.device_id, tensor.byte_offset), (1, 0, 0));
            // SAFETY: the export keeps the batch alive, and its field has this many bytes.
            #[allow(unsafe_code)]
            unsafe { std::slice::from_raw_parts(tensor.data.cast::<u8>(), len) }.to_vec()
        };
        assert_eq!(
            bytes(images.tensor(), expected.len()),
            expected,
            "the exported image is unchanged after 28 more batches"
        );
        let label_bytes: Vec<u8> = label.iter().flat_map(|label| label.to_ne_bytes()).collect();
        assert_eq!(bytes(labels.tensor(), label_bytes.len()), label_bytes);
        drop(images);
        // The exported labels still occupy one of the four slots.
        epochs.begin(1);
        let batches: Vec<_> = (0..3).map(|_| epochs.next_interruptible(&mut || Some(WAIT)).unwrap().unwrap()).collect();
        drop(labels);
        assert!(epochs.next_interruptible(&mut || Some(WAIT)).unwrap().is_ok(), "the slot was not returned");
        drop(batches);
    });
}
