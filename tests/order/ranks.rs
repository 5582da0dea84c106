//! Tests how batches are divided among ranks. All ranks must get the same number of batches. No
//! sample may go to two ranks, except for padding, which must be marked. The global batches must be
//! the same for any number of ranks.

use std::process::{Command, Stdio};

use crate::process::child;
use crate::support::{BatchContent, NumberSource, exit_on_hang, loader, refused};
use proptest::prelude::*;
use warpfeed::{ErrorKind, LastBatch, Loader, Rank};

fn epoch(loader: Loader, epoch: u64) -> Vec<(BatchContent, Vec<bool>)> {
    let mut batches = loader.host().unwrap();
    let contents: Vec<_> = batches
        .epoch(epoch)
        .enumerate()
        .map(|(number, b)| {
            let b = b.unwrap();
            assert_eq!((b.epoch(), b.batch_index()), (epoch, number as u64));
            (BatchContent::from(&b), b.valid().collect())
        })
        .collect();
    assert_eq!(contents.len() as u64, batches.num_batches(epoch));
    contents
}

fn join<'a>(parts: impl Iterator<Item = &'a (BatchContent, Vec<bool>)>) -> BatchContent {
    let mut joined = BatchContent { ids: vec![], keys: vec![], labels: vec![], images: vec![] };
    for (part, valid) in parts {
        let image = part.images.len() / part.ids.len();
        for place in (0..part.ids.len()).filter(|&place| valid[place]) {
            joined.ids.push(part.ids[place]);
            joined.keys.push(part.keys[place].clone());
            joined.labels.push(part.labels[place]);
            joined.images.extend(&part.images[place * image..][..image]);
        }
    }
    joined
}

const WORLDS: [usize; 4] = [1, 2, 3, 8];

fn check(samples: usize, global: usize, last: LastBatch, seed: Option<u64>, workers: usize) {
    let options = || {
        let loader = loader(NumberSource::new(samples)).global_batch_size(global).last_batch(last).workers(workers);
        seed.map_or(loader.clone(), |seed| loader.shuffle(seed))
    };
    if last == LastBatch::Drop && samples < global {
        assert_eq!(options().host().map(|_| ()).unwrap_err().kind(), ErrorKind::Config);
        return;
    }
    let batches = epoch(options(), 2);
    let contents: Vec<_> = batches.iter().map(|batch| join(std::iter::once(batch))).collect();
    let mut seen: Vec<_> = contents.iter().flat_map(|batch| &batch.ids).copied().collect();
    seen.sort_unstable();
    match last {
        LastBatch::Drop => assert_eq!(seen.len(), samples / global * global),
        LastBatch::Keep | LastBatch::Pad => assert_eq!(seen, (0..samples as u64).collect::<Vec<_>>()),
    }
    seen.dedup();
    assert_eq!(seen.len(), contents.iter().map(|batch| batch.ids.len()).sum::<usize>(), "no sample occurs twice");

    for world in WORLDS.into_iter().filter(|&world| world <= global) {
        let ranks: Vec<_> = (0..world).map(|rank| epoch(options().rank(rank, world), 2)).collect();
        for (number, expected) in contents.iter().enumerate() {
            let parts = || ranks.iter().map(|rank| &rank[number]);
            assert!(
                join(parts()) == *expected,
                "batch {number} of {world} ranks differs from the batch of a single rank"
            );
            let sizes: Vec<_> = parts().map(|part| part.0.ids.len()).collect();
            let (smallest, largest) = (*sizes.iter().min().unwrap(), *sizes.iter().max().unwrap());
            let padding = parts().flat_map(|part| &part.1).filter(|valid| !**valid).count();
            match last {
                LastBatch::Pad => assert_eq!((smallest, largest), (global.div_ceil(world), global.div_ceil(world))),
                LastBatch::Drop => {
                    assert!(padding == 0 && sizes.iter().sum::<usize>() == global && largest - smallest <= 1)
                }
                LastBatch::Keep => {
                    assert!(padding == world.saturating_sub(expected.ids.len()) && largest - smallest <= 1)
                }
            }
        }
        assert!(ranks.iter().all(|rank| rank.len() == contents.len()), "every rank has {} batches", contents.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn global_batches_are_the_same_for_any_number_of_ranks(
        samples in 1usize..90,
        global in 1usize..40,
        last in prop_oneof![Just(LastBatch::Keep), Just(LastBatch::Drop), Just(LastBatch::Pad)],
        seed in proptest::option::of(any::<u64>()),
        workers in 1usize..4,
    ) {
        exit_on_hang(|| check(samples, global, last, seed, workers));
    }
}

#[test]
fn batch_size_is_per_rank_and_global_batch_size_for_all() {
    for rank in 0..3 {
        let per_rank = epoch(loader(NumberSource::new(100)).shuffle(1).batch_size(7).rank(rank, 3), 0);
        assert!(per_rank == epoch(loader(NumberSource::new(100)).shuffle(1).global_batch_size(21).rank(rank, 3), 0));
        assert_eq!(per_rank.len(), 5);
        assert!(per_rank[..4].iter().all(|batch| batch.0.ids.len() == 7));
    }
    let batches = loader(NumberSource::new(100)).rank(2, 3).host().unwrap();
    assert_eq!((batches.rank().rank, batches.rank().world_size), (2, 3));
}

#[test]
fn invalid_ranks_are_refused() {
    let make = || loader(NumberSource::new(100));
    refused(make().rank(3, 3), "rank 3 is not less than the world size 3");
    refused(make().rank(0, 0), "rank 0 is not less than the world size 0");
    refused(make().global_batch_size(2).rank(0, 3), "global_batch_size(2) on 3 ranks");
    refused(make().global_batch_size(0), "global_batch_size(0)");
    refused(make().batch_size(usize::MAX).rank(0, 3), "the product overflows");
}

#[test]
#[ignore = "started by another test"]
fn print_the_error_without_a_launcher() {
    println!("\n{}", loader(NumberSource::new(10)).distributed().host().unwrap_err());
}

#[test]
#[ignore = "started by another test"]
fn print_an_epoch_of_one_rank() {
    if Rank::from_env().unwrap().is_none() {
        return;
    }
    let batches = epoch(
        loader(NumberSource::new(103)).shuffle(5).global_batch_size(24).last_batch(LastBatch::Pad).distributed(),
        1,
    );
    for (content, valid) in batches {
        let places = content.ids.iter().zip(valid).map(|(id, valid)| format!("{id}{}", if valid { "" } else { "-" }));
        println!("\nbatch {}", places.collect::<Vec<_>>().join(" "));
    }
}

#[test]
fn real_processes_find_their_rank_under_each_launcher() {
    let launchers = [
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("RANK", "WORLD_SIZE"),
    ];
    let without_launcher = |mut command: Command| {
        for (rank, world) in launchers {
            command.env_remove(rank).env_remove(world);
        }
        // Under SLURM, the loader requires this variable, which srun sets.
        command.env("SLURM_STEP_ID", "0").stdout(Stdio::piped());
        command
    };
    let alone =
        String::from_utf8(without_launcher(child!(print_the_error_without_a_launcher)).output().unwrap().stdout)
            .unwrap();
    for words in
        ["RANK and WORLD_SIZE (torchrun)", "OMPI_COMM_WORLD_RANK", "SLURM_NTASKS (SLURM)", "rank(rank, world_size)"]
    {
        assert!(alone.contains(words), "{alone}");
    }

    let expected = epoch(loader(NumberSource::new(103)).shuffle(5).global_batch_size(24), 1);
    for (world, (rank_name, world_name)) in WORLDS.into_iter().zip(launchers) {
        let start = |rank: usize| {
            let mut command = without_launcher(child!(print_an_epoch_of_one_rank));
            command.env(rank_name, rank.to_string()).env(world_name, world.to_string()).spawn().unwrap()
        };
        let processes: Vec<_> = (0..world).map(start).collect();
        let printed: Vec<Vec<String>> = processes
            .into_iter()
            .map(|process| {
                let output = process.wait_with_output().unwrap();
                assert!(output.status.success());
                let text = String::from_utf8(output.stdout).unwrap();
                text.lines().filter_map(|line| line.strip_prefix("batch ")).map(str::to_owned).collect()
            })
            .collect();
        let mut marked = 0;
        for (number, (content, _)) in expected.iter().enumerate() {
            let places: Vec<&str> = printed.iter().flat_map(|rank| rank[number].split(' ')).collect();
            assert_eq!(places.len(), 24);
            let ids: Vec<u64> = places.iter().filter_map(|id| id.parse().ok()).collect();
            assert_eq!(ids, content.ids, "batch {number} of {world} processes");
            marked += places.len() - ids.len();
        }
        assert_eq!(marked, 5 * 24 - 103);
        assert!(printed.iter().all(|rank| rank.len() == 5));
    }
}

/// A process that a batch script starts without `srun` must not become a rank, because it would
/// load only a share of the samples.
#[test]
fn a_batch_script_without_srun_has_no_rank() {
    let mut command = child!(print_the_error_without_a_launcher);
    for name in ["RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_ID"] {
        command.env_remove(name);
    }
    command.env("SLURM_PROCID", "0").env("SLURM_NTASKS", "8");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("SLURM_PROCID is 0 and SLURM_NTASKS is 8, but SLURM_STEP_ID is not set"), "{text}");
}
