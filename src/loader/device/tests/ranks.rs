//! Tests ranks that train in lockstep on simulated devices.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::*;
use crate::engine::Checkpoint;
use crate::sampler::LastBatch;
use crate::source::{Sample, Source};

const EPOCHS: u64 = 2;
/// Samples per global batch, which is not divisible by the eight ranks.
const GLOBAL: usize = 20;

/// A source with some slow reads. The case and the rank determine which reads are slow.
struct Uneven {
    originals: Arc<[Vec<u8>]>,
    pace: u64,
}

impl Source for Uneven {
    fn len(&self) -> usize {
        self.originals.len()
    }

    fn read<'a>(&'a self, index: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let mut rng = Rng::new(self.pace, 0, index as u64);
        if rng.chance(0.2) {
            thread::sleep(Duration::from_micros(rng.below(1_500)));
        }
        Ok(Sample::new("").with_field("jpg", &self.originals[index])?.with_label(index as i64))
    }
}

/// Epoch and number of a batch.
type At = (u64, u64);
/// Index, validity and pixels of each sample of a batch.
type Share = Vec<(u64, bool, Vec<u8>)>;

#[derive(Clone)]
struct Case {
    originals: Arc<[Vec<u8>]>,
    number: u64,
    last: LastBatch,
}

impl Case {
    fn loader(&self, rank: usize, world: usize) -> Loader {
        let pace = self.number * 1000 + rank as u64;
        let mut rng = Rng::new(pace, 1, 1);
        let decode_on = [DecodeOn::Cpu, DecodeOn::Gpu, DecodeOn::Auto][rng.below(3) as usize];
        let (workers, prefetch) = (1 + rng.below(3) as usize, 1 + rng.below(3) as usize);
        let loader = Loader::source(Uneven { originals: self.originals.clone(), pace }).shuffle(3).decode_on(decode_on);
        let loader = loader.augment(Augment::train(32)).workers(workers).prefetch(prefetch);
        loader.global_batch_size(GLOBAL).last_batch(self.last).rank(rank, world)
    }

    /// Returns the batches of all ranks, and the final checkpoint of each rank.
    fn train(
        &self,
        world: usize,
        state: Option<&Checkpoint>,
        steps: usize,
    ) -> (BTreeMap<At, Vec<Share>>, Vec<Checkpoint>) {
        let (give, take) = channel();
        let (in_step, device) = (Arc::new(Barrier::new(world)), Sim::new(Mistake::None, 15));
        let threads: Vec<_> = (0..world)
            .map(|rank| {
                let loader = self.loader(rank, world);
                let loader = state.map_or(loader.clone(), |state| loader.resume(state.clone()));
                let separate = Sim::new(Mistake::None, rank * 10);
                let sim = if self.number.is_multiple_of(2) { device.clone() } else { separate };
                let (give, in_step) = (give.clone(), in_step.clone());
                thread::spawn(move || train_rank(rank, loader, &sim, steps, &in_step, &give))
            })
            .collect();
        drop(give);
        let mut seen = BTreeMap::<At, Vec<Share>>::new();
        for _ in 0..world * steps {
            let (rank, batch, share) = take.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|e| {
                panic!("case {}: {e} after {:?} on {world} ranks", self.number, seen.keys().last());
            });
            let shares = seen.entry(batch).or_insert_with(|| vec![Share::new(); world]);
            assert!(shares[rank].is_empty(), "rank {rank} received batch {batch:?} twice");
            shares[rank] = share;
        }
        (seen, threads.into_iter().map(|thread| thread.join().unwrap()).collect())
    }
}

fn train_rank(
    rank: usize,
    loader: Loader,
    sim: &Sim,
    steps: usize,
    in_step: &Barrier,
    give: &Sender<(usize, At, Share)>,
) -> Checkpoint {
    let consumer = sim.stream().unwrap();
    let DeviceLoader { ring, shared } = loader.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), consumer).unwrap();
    let mut batches: Batches<ConsumerBatch<Sim>> = Batches::new(ring, &shared);
    let mut remaining = steps;
    for epoch in batches.first_epoch()..EPOCHS {
        for batch in batches.epoch(epoch).take(remaining) {
            let batch = batch.unwrap();
            // Like an all-reduce, this wait ends once all ranks have joined it.
            in_step.wait();
            let (info, bytes) = (&batch.slot().info, pixels(sim, &batch));
            let images = bytes.chunks(bytes.len() / info.len()).map(<[u8]>::to_vec);
            let share = info.ids().zip(info.valid()).zip(images).map(|((id, valid), image)| (id, valid, image));
            give.send((rank, (info.epoch(), info.batch_index()), share.collect())).unwrap();
            remaining -= 1;
        }
        if remaining == 0 {
            break;
        }
    }
    batches.checkpoint()
}

#[test]
fn eight_ranks_share_each_batch_and_continue_with_five() {
    let originals: Arc<[Vec<u8>]> = originals(false).into();
    for number in 0..6 {
        let last = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad][number as usize % 3];
        let case = Case { originals: originals.clone(), number, last };
        let mut alone = case.loader(0, 1).host().unwrap();
        let mut expected = BTreeMap::<At, Share>::new();
        for epoch in 0..EPOCHS {
            for batch in alone.epoch(epoch) {
                let batch = batch.unwrap();
                let images = batch.images().bytes().chunks(32 * 32 * 3).map(<[u8]>::to_vec);
                let share = batch.ids().zip(batch.valid()).zip(images).map(|((id, valid), image)| (id, valid, image));
                expected.insert((epoch, batch.batch_index()), share.filter(|sample| sample.1).collect());
            }
        }
        let stop = 1 + Rng::new(number, 2, 2).below(expected.len() as u64 - 1) as usize;
        let (mut seen, states) = case.train(8, None, stop);
        assert!(states.iter().all(|state| *state == states[0]), "all ranks have the same checkpoint");
        let (after, _) = case.train(5, Some(&states[0]), expected.len() - stop);
        assert!(after.keys().all(|batch| !seen.contains_key(batch)));
        seen.extend(after);
        let joined = |shares: Vec<Share>| shares.into_iter().flatten().filter(|sample| sample.1).collect::<Share>();
        let seen: BTreeMap<At, Share> = seen.into_iter().map(|(batch, shares)| (batch, joined(shares))).collect();
        assert!(seen.keys().eq(expected.keys()), "case {number}: {:?}", seen.keys());
        assert!(seen == expected, "case {number}, {last:?}: the shares are complete");
    }
}
