//! Resumes an interrupted run after the last saved batch, with one or more processes.
//!
//! ```text
//! cargo run --example resume                                             stop with Ctrl-C; start again
//! mpirun -n 2 target/debug/examples/resume                               the same global batches, shared by two ranks
//! RANK=1 WORLD_SIZE=2 cargo run --example resume                         the share of rank 1 of two
//! ```

use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use warpfeed::{Augment, Checkpoint, Loader, Rank};

const EPOCHS: u64 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let rank = Rank::from_env()?.unwrap_or(Rank::SINGLE);
    let checkpoint = std::env::temp_dir().join("warpfeed-resume.json");

    let mut loader = Loader::new("datasets/mini")
        .global_batch_size(16)
        .shuffle(42)
        .augment(Augment::train(64))
        .rank(rank.rank, rank.world_size);
    match fs::read(&checkpoint) {
        Ok(text) => loader = loader.resume(serde_json::from_slice::<Checkpoint>(&text)?),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e.into()),
    }

    let mut batches = loader.host()?;
    for epoch in batches.first_epoch()..EPOCHS {
        let mut epoch = batches.epoch(epoch);
        while let Some(batch) = epoch.next() {
            let batch = batch?;
            println!("epoch {} batch {}: {:?}", batch.epoch(), batch.batch_index(), batch.ids().collect::<Vec<_>>());
            std::thread::sleep(Duration::from_millis(50)); // a training step
            if rank.rank == 0 {
                // A real program would save the checkpoint with the model. The rename replaces the
                // file atomically.
                let new = checkpoint.with_extension("new");
                fs::write(&new, serde_json::to_vec(&epoch.checkpoint())?)?;
                fs::rename(&new, &checkpoint)?;
            }
        }
    }
    if rank.rank == 0 {
        fs::remove_file(&checkpoint)?;
    }
    Ok(())
}
