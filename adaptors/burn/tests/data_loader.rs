//! Tests the order of the epochs, resuming, errors, and slices of the `DataLoader`.

use std::sync::Arc;

use burn_core::data::dataloader::DataLoader;
use burn_core::tensor::{Device, Int, Tensor};
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{Augment, HostBatch, Loader, Result};
use warpfeed_burn::{BatchLoader, ToBurn, data_loader};
use warpfeed_synth::Synth;

fn loader() -> Loader {
    let source = Synth::new().images(50).classes(3).side(32).memory().unwrap();
    Loader::source(source).augment(Augment::train(8)).batch_size(8).shuffle(3)
}

fn ids(batch: HostBatch, _: &Device) -> Result<Vec<u64>> {
    Ok(batch.ids().collect())
}

fn collect_batches<O: Send + 'static>(loader: &dyn DataLoader<O>) -> Vec<O> {
    loader.iter().map(|item| item.unwrap()).collect()
}

fn expected(epoch: u64) -> Vec<Vec<u64>> {
    let mut batches = loader().host().unwrap();
    batches.epoch(epoch).map(|batch| batch.unwrap().ids().collect()).collect()
}

#[test]
fn each_pass_is_the_next_epoch_and_counts_its_samples() {
    let train = data_loader(loader().host().unwrap(), Device::flex(), ids);
    assert_eq!(train.num_items(), 50);
    for epoch in 0..3 {
        let (mut iterator, mut seen) = (train.iter(), Vec::new());
        while let Some(batch) = iterator.next() {
            seen.push(batch.unwrap());
            let progress = iterator.progress();
            assert_eq!((progress.items_processed, progress.items_total), (seen.concat().len(), 50));
        }
        assert_eq!(seen, expected(epoch));
    }
    // Dropping an iterator early ends its epoch.
    assert_eq!(train.iter().next().unwrap().unwrap(), expected(3)[0]);
    let moved = train.to_device(&Device::flex());
    assert_eq!(collect_batches(&*moved), expected(4));
}

#[test]
fn a_resumed_loader_continues_where_it_stopped() {
    let mut batches = loader().host().unwrap();
    for batch in batches.epoch(1).take(3) {
        batch.unwrap();
    }
    let resumed = loader().resume(batches.checkpoint()).host().unwrap();
    let train = data_loader(resumed, Device::flex(), ids);
    assert_eq!(collect_batches(&*train), expected(1)[3..]);
    assert_eq!(collect_batches(&*train), expected(2));
}

#[test]
fn a_loader_error_ends_the_pass_and_names_the_sample() {
    let broken =
        Memory::new(vec![OwnedSample::new("bad").field("jpg", b"\xff\xd8\xff\xe0 not an image".to_vec()).label(0)]);
    let batches = Loader::source(broken).augment(Augment::train(8)).host().unwrap();
    let train: Arc<BatchLoader<(Tensor<4>, Tensor<1, Int>)>> =
        data_loader(batches, Device::flex(), |batch, device| batch.to_burn(device));
    let errors: Vec<String> = train.iter().map(|item| item.map(|_| ()).unwrap_err().to_string()).collect();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].starts_with("sample 0 (bad): "), "{}", errors[0]);
}

#[test]
fn iterating_over_a_strict_slice_fails() {
    let train = data_loader(loader().host().unwrap(), Device::flex(), ids);
    let part = train.slice(0, 25);
    let errors: Vec<String> = part.iter().map(|item| item.unwrap_err().to_string()).collect();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("samples 0 to 25") && errors[0].contains("`rank`"), "{}", errors[0]);
    assert_eq!(collect_batches(&*train.slice(0, 50)), expected(0));
}
