//! Tests that ranks and resumed runs get the same batches on devices as on the host, and that each
//! rank uses only the device of its local rank.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

use std::sync::Arc;

use crate::device::noise::{NoiseImages, loader};
use crate::device::stream;
use crate::process::child;
use crate::reference::checksum;
use warpfeed::cuda;
use warpfeed::cuda::cudarc::driver::CudaStream;
use warpfeed::{Augment, Checkpoint, CudaBatch, Dtype, HostBatch, LastBatch, Layout, Loader, Normalize, Rank};

type Seen = (u64, u64, Vec<u64>, Vec<bool>, u64);

fn seen_on_host(batch: &HostBatch) -> Seen {
    let sum = checksum(batch.images().bytes());
    (batch.epoch(), batch.batch_index(), batch.ids().collect(), batch.valid().collect(), sum)
}

fn seen_on_device(batch: &CudaBatch) -> Seen {
    let sum = checksum(&batch.images().download().unwrap());
    (batch.epoch(), batch.batch_index(), batch.ids().collect(), batch.valid().collect(), sum)
}

fn devices() -> usize {
    cuda::cudarc::driver::CudaContext::device_count().unwrap() as usize
}

fn shared_run(source: &Arc<NoiseImages>) -> Loader {
    let loader = loader(source, Augment::train(32)).global_batch_size(24).last_batch(LastBatch::Pad);
    loader.dtype(Dtype::F16).layout(Layout::Nchw).normalize(Normalize::IMAGENET)
}

const EPOCHS: u64 = 3;

fn host_run(loader: Loader) -> Vec<Seen> {
    let mut batches = loader.host().unwrap();
    let first = batches.first_epoch();
    (first..EPOCHS).flat_map(|e| batches.epoch(e).map(|b| seen_on_host(&b.unwrap())).collect::<Vec<_>>()).collect()
}

fn device_run(loader: Loader, stream: &Arc<CudaStream>) -> Vec<Seen> {
    let mut batches = loader.cuda(stream).unwrap();
    let first = batches.first_epoch();
    (first..EPOCHS).flat_map(|e| batches.epoch(e).map(|b| seen_on_device(&b.unwrap())).collect::<Vec<_>>()).collect()
}

/// Ranks are assigned to the devices round-robin. A run can be resumed with a different world size.
#[test]
fn device_ranks_and_resumed_runs_equal_the_host() {
    let Some(first) = stream() else { return };
    let mut streams = vec![first];
    streams.extend((1..devices()).map(|ordinal| cuda::stream(ordinal).unwrap()));
    let source = Arc::new(NoiseImages::new(101, 40));
    let open = |rank, world| shared_run(&source).rank(rank, world);
    for world in 1..=3 {
        for rank in 0..world {
            let stream = &streams[rank % streams.len()];
            assert_eq!(device_run(open(rank, world), stream), host_run(open(rank, world)), "rank {rank} of {world}");
        }
    }
    // 101 samples in batches of 24 make five batches per epoch.
    for (stop, before, after) in [(0, 1, 2), (2, 2, 1), (5, 2, 3), (7, 3, 2), (14, 1, 1)] {
        let states: Vec<Checkpoint> = (0..before)
            .map(|rank| {
                let mut batches = open(rank, before).cuda(&streams[rank % streams.len()]).unwrap();
                let mut remaining = stop;
                for epoch in 0..EPOCHS {
                    remaining -= batches.epoch(epoch).take(remaining).inspect(|batch| assert!(batch.is_ok())).count();
                    if remaining == 0 {
                        break;
                    }
                }
                batches.checkpoint()
            })
            .collect();
        assert!(states.iter().all(|state| *state == states[0]), "ranks save different checkpoints");
        for rank in 0..after {
            let unbroken = host_run(open(rank, after));
            let resumed = || open(rank, after).resume(states[0].clone());
            let what = format!("from batch {stop}, rank {rank} of {after} after {before} ranks");
            assert_eq!(device_run(resumed(), &streams[rank % streams.len()]), unbroken[stop..], "{what}");
            assert_eq!(host_run(resumed()), unbroken[stop..], "{what}, on the host");
        }
    }
    eprintln!("on {} devices", streams.len());
}

#[test]
#[ignore = "started by another test"]
fn run_one_rank_on_its_device() {
    use cuda::cudarc::driver::sys;
    let Some(rank) = Rank::from_env().unwrap() else { return };
    let ordinal = rank.local_rank.unwrap();
    let source = Arc::new(NoiseImages::new(101, 40));
    let stream = cuda::stream(ordinal).unwrap();
    let mut batches = shared_run(&source).distributed().cuda(&stream).unwrap();
    let batch = Arc::new(batches.epoch(0).next().unwrap().unwrap());
    let mut device = -1i32;
    // SAFETY: the attribute is an int, which fits into `device`, and the address belongs to a batch
    // that is alive.
    let status = unsafe {
        let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        sys::cuPointerGetAttribute((&raw mut device).cast(), attribute, batch.images().device_ptr())
    };
    assert_eq!(
        (status, device),
        (sys::CUresult::CUDA_SUCCESS, ordinal as i32),
        "the images are on the device of the rank"
    );
    assert_eq!(batch.dlpack("image").unwrap().tensor().device_id, ordinal as i32);
    drop(batch);
    drop(batches);
    let run = device_run(shared_run(&source).distributed(), &stream);
    let pinned = shared_run(&source).distributed().pinned(true).host().unwrap();
    assert_eq!(pinned.memory_plan().pinned_bytes, pinned.memory_plan().host_bytes);
    for other in (0..devices()).filter(|other| *other != ordinal) {
        let (mut handle, mut flags, mut active) = (0, 0, -1);
        // SAFETY: the three out-pointers are valid for writes.
        let status = unsafe {
            assert_eq!(sys::cuDeviceGet(&raw mut handle, other as i32), sys::CUresult::CUDA_SUCCESS);
            sys::cuDevicePrimaryCtxGetState(handle, &raw mut flags, &raw mut active)
        };
        assert_eq!(
            (status, active),
            (sys::CUresult::CUDA_SUCCESS, 0),
            "rank {ordinal} has a context on device {other}"
        );
    }
    println!("saw {run:?}");
}

#[test]
fn each_rank_uses_only_the_device_of_its_local_rank() {
    let Some(_stream) = stream() else { return };
    let world = devices();
    if world < 2 {
        return crate::require::missing("two-devices", "there is only one");
    }
    let source = Arc::new(NoiseImages::new(101, 40));
    let start = |rank: usize| {
        child!(run_one_rank_on_its_device)
            .envs(["RANK", "LOCAL_RANK"].map(|name| (name, rank.to_string())))
            .envs(["WORLD_SIZE", "LOCAL_WORLD_SIZE"].map(|name| (name, world.to_string())))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let ranks: Vec<_> = (0..world).map(start).collect();
    for (rank, process) in ranks.into_iter().enumerate() {
        let output = process.wait_with_output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "rank {rank}: {stdout}");
        let expected = format!("saw {:?}", host_run(shared_run(&source).rank(rank, world)));
        assert!(stdout.contains(&expected), "rank {rank}'s batches differ from the host path's");
    }
    eprintln!("{world} ranks, each on its own device");
}
