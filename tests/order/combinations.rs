//! Tests random combinations of the options that choose samples. Each must produce the batches of a
//! single-threaded reference that works on plain lists, for random numbers of ranks and workers,
//! for every setting of the last batch, and after resuming at a random batch.

use std::sync::Arc;

use crate::support::{BatchContent, NumberCodec, NumberSource, exit_on_hang, loader, refused};
use proptest::prelude::*;
use warpfeed::decode::{Codecs, Pixels};
use warpfeed::sampler::{Rng, Sampler, Sequential, Shuffled, Subset, Weighted, Windowed};
use warpfeed::source::{Memory, OwnedSample, Sample, Source};
use warpfeed::transform::{Augment, Mosaic, Resizer};
use warpfeed::{Checkpoint, ErrorKind, LastBatch, Loader, Result};

type Draws = Vec<(u64, u64)>;

#[derive(Debug, Clone)]
struct Choice {
    base: Base,
    subset: Option<Vec<u64>>,
    repeat: u64,
}

#[derive(Debug, Clone, Copy)]
enum Base {
    Sequential,
    Shuffled,
    Windowed(u64),
    Weighted,
    Balanced,
    /// A custom sampler with a length that varies with the epoch.
    Custom,
}

struct Backwards(Vec<u64>);

impl Sampler for Backwards {
    fn len(&self, epoch: u64) -> u64 {
        let len = self.0.len() as u64;
        len - epoch % 3 % len
    }
    fn index(&self, epoch: u64, position: u64) -> u64 {
        self.0[(self.len(epoch) - 1 - position) as usize]
    }
}

fn weight(sample: u64) -> f64 {
    (sample % 4) as f64 + 0.5
}

impl Choice {
    fn of(&self, loader: Loader, len: u64, seed: u64) -> Loader {
        let samples = self.subset.clone().unwrap_or_else(|| (0..len).collect());
        let mut loader = match self.base {
            Base::Sequential => loader.seed(seed),
            Base::Shuffled => loader.shuffle(seed),
            Base::Windowed(window) => loader.shuffle_window(window).seed(seed),
            Base::Weighted => loader.weights((0..len).map(weight)).seed(seed),
            Base::Balanced => loader.balanced().seed(seed),
            Base::Custom => loader.sampler(Backwards(samples)).seed(seed),
        };
        if let Some(subset) = &self.subset {
            loader = loader.subset(subset.iter().copied());
        }
        loader.repeat(self.repeat)
    }

    fn list(&self, len: u64, seed: u64, epoch: u64) -> Draws {
        let indices: Vec<u64> = self.subset.clone().unwrap_or_else(|| (0..len).collect());
        let places = indices.len() as u64;
        let label = |place: u64| indices[place as usize] % 10;
        let mut list = Draws::new();
        for pass in epoch * self.repeat..(epoch + 1) * self.repeat {
            // Draw positions in the list of indices, with the variants that `Subset` assigns.
            let take = |order: Arc<dyn Sampler>| -> Draws {
                let subset = Subset::new(indices.clone(), order.clone()).unwrap();
                (0..order.len(pass)).map(|p| (order.index(pass, p), subset.occurrence(pass, p).variant)).collect()
            };
            let draws = match self.base {
                Base::Sequential => take(Arc::new(Sequential::new(places))),
                Base::Shuffled => take(Arc::new(Shuffled::new(places, seed))),
                Base::Windowed(window) => take(Arc::new(Windowed::new(places, seed, window))),
                Base::Weighted => {
                    let weights: Vec<_> = indices.iter().copied().map(weight).collect();
                    take(Arc::new(Weighted::new(&weights, seed).unwrap()))
                }
                Base::Balanced => {
                    let count = |label_: u64| (0..places).filter(|p| label(*p) == label_).count() as f64;
                    let weights: Vec<_> = (0..places).map(|p| 1.0 / count(label(p))).collect();
                    take(Arc::new(Weighted::new(&weights, seed).unwrap()))
                }
                // A custom sampler returns indices of the source, and its variant is the pass.
                Base::Custom => {
                    let order = Backwards(indices.clone());
                    list.extend((0..order.len(pass)).map(|p| (order.index(pass, p), pass)));
                    continue;
                }
            };
            list.extend(draws.into_iter().map(|(place, variant)| (indices[place as usize], variant)));
        }
        list
    }
}

fn cut(draws: &Draws, global: usize, last: LastBatch, rank: usize, world: usize) -> Vec<Vec<(u64, u64, bool)>> {
    let mut batches = Vec::new();
    for chunk in draws.chunks(global) {
        if chunk.len() < global && last == LastBatch::Drop {
            break;
        }
        let mut ranks = vec![Vec::new(); world];
        // Each rank gets consecutive samples. The ranks get the same numbers of samples as in a
        // round-robin distribution.
        let mut counts = vec![0; world];
        (0..chunk.len()).for_each(|i| counts[i % world] += 1);
        let mut samples = chunk.iter();
        for (rank, count) in ranks.iter_mut().zip(counts) {
            rank.extend(samples.by_ref().take(count).map(|&(id, variant)| (id, variant, true)));
        }
        let places = match last {
            LastBatch::Pad => global.div_ceil(world),
            _ => 1,
        };
        let mut padding = draws.iter().cycle();
        for rank in &mut ranks {
            while rank.len() < places && last != LastBatch::Drop {
                let &(id, variant) = padding.next().unwrap();
                rank.push((id, variant, false));
            }
        }
        batches.push(ranks.swap_remove(rank));
    }
    batches
}

fn original(source: &dyn Source, augment: &Augment, seed: u64, id: u64, variant: u64) -> Vec<u8> {
    let mut scratch = Vec::new();
    let sample = source.read(id as usize, &mut scratch).unwrap();
    let bytes = sample.image().unwrap().1;
    let codecs = Codecs::only(NumberCodec);
    let mut original = codecs.open(bytes).unwrap();
    let plan = augment.plan(original.size(), &mut Rng::new(seed, variant, id)).unwrap();
    let mut pixels = Pixels::new();
    original.decode(plan.region, &mut pixels).unwrap();
    let mut image = vec![0; plan.output.area() as usize * 3];
    Resizer::new().run(&pixels, &plan, &mut image).unwrap();
    image
}

type Seen = Vec<(Vec<(u64, bool)>, Vec<u8>)>;

fn rest_of(loader: Loader, epochs: u64) -> Seen {
    let mut batches = loader.host().unwrap();
    let mut seen = Seen::new();
    for epoch in batches.first_epoch()..epochs {
        for batch in batches.epoch(epoch) {
            let batch = batch.unwrap();
            seen.push((batch.ids().zip(batch.valid()).collect(), BatchContent::from(&batch).images));
        }
    }
    seen
}

fn choices() -> impl Strategy<Value = Choice> {
    let base = prop_oneof![
        Just(Base::Sequential),
        Just(Base::Shuffled),
        (1u64..40).prop_map(Base::Windowed),
        Just(Base::Weighted),
        Just(Base::Balanced),
        Just(Base::Custom),
    ];
    let subset = proptest::option::of(proptest::collection::vec(0u64..20, 1..30));
    (base, subset, 1u64..4).prop_map(|(base, subset, repeat)| Choice { base, subset, repeat })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_combinations_equal_the_naive_lists(
        choice in choices(),
        len in 20u64..70,
        seed: u64,
        global in 3usize..20,
        last in prop_oneof![Just(LastBatch::Keep), Just(LastBatch::Drop), Just(LastBatch::Pad)],
        (rank, world) in (1usize..4).prop_flat_map(|world| (0..world, Just(world))),
        workers in 1usize..4,
        point in 0.0f64..=1.0,
    ) {
        const EPOCHS: u64 = 2;
        exit_on_hang(|| {
            let source = NumberSource::new(len as usize);
            let augment = Augment::train(16);
            let mut expected = Seen::new();
            for epoch in 0..EPOCHS {
                let draws = choice.list(len, seed, epoch);
                for batch in cut(&draws, global, last, rank, world) {
                    let image = |&(id, variant, _): &(u64, u64, bool)| original(&source, &augment, seed, id, variant);
                    let ids = batch.iter().map(|&(id, _, valid)| (id, valid)).collect();
                    expected.push((ids, batch.iter().flat_map(image).collect()));
                }
            }
            let make = |rank, world| {
                let loader = loader(source.clone()).global_batch_size(global).last_batch(last).rank(rank, world);
                choice.of(loader, len, seed)
            };
            if expected.is_empty() {
                let refused = make(rank, world).host().map(|_| ()).unwrap_err();
                assert!(refused.to_string().starts_with("config: an epoch has no batch"), "{refused}");
                return;
            }
            assert!(rest_of(make(rank, world).workers(workers), EPOCHS) == expected);

            let stop = (point * expected.len() as f64) as usize;
            let mut batches = make(0, 4 - world).workers(1).host().unwrap();
            let mut left = stop;
            for epoch in 0..EPOCHS {
                let count = batches.epoch(epoch).take(left).map(Result::unwrap).count();
                left -= count;
                if left == 0 {
                    break;
                }
            }
            let state: Checkpoint = serde_json::from_str(&serde_json::to_string(&batches.checkpoint()).unwrap()).unwrap();
            assert!(rest_of(make(rank, world).workers(workers).resume(state), EPOCHS) == expected[stop..]);
        });
    }
}

#[test]
fn repeated_samples_in_an_epoch_are_augmented_independently() {
    let originals = |loader: Loader| {
        let mut samples: Vec<(u64, Vec<u8>)> = Vec::new();
        for batch in loader {
            let batch = batch.unwrap();
            samples.extend(batch.ids().zip(batch.images().as_u8().unwrap().chunks(16 * 16 * 3).map(<[u8]>::to_vec)));
        }
        samples
    };
    let twice = |samples: Vec<(u64, Vec<u8>)>| {
        let (mut pairs, mut same) = (0, 0);
        for (i, first) in samples.iter().enumerate() {
            for other in &samples[i + 1..] {
                pairs += usize::from(first.0 == other.0);
                same += usize::from(first == other);
            }
        }
        assert!(pairs >= 10, "{pairs} pairs");
        assert_eq!(same, 0, "{same} of {pairs} pairs of repeated samples are equal");
    };
    twice(originals(loader(NumberSource::new(20)).repeat(2)));
    twice(originals(loader(NumberSource::new(20)).shuffle(1).subset([3; 6])));
    twice(originals(loader(NumberSource::new(20)).weights((0..20).map(|i| f64::from(i % 2))).repeat(2)));
}

#[test]
fn balanced_draws_every_class_equally_often() {
    let label = |i: usize| [0, 1, 2][usize::from(i >= 900) + usize::from(i >= 990)];
    let sample = |i: usize| OwnedSample::new(format!("{i}")).field("img", (i as u64).to_le_bytes()).label(label(i));
    let source = Memory::new((0..1000).map(sample).collect());
    let make =
        || Loader::source(source.clone()).codec(NumberCodec).augment(Augment::train(16)).batch_size(100).repeat(3);
    let mut counts = [0; 3];
    for batch in make().balanced().seed(4) {
        batch.unwrap().labels().unwrap().iter().for_each(|&label| counts[label as usize] += 1);
    }
    assert!(counts.iter().all(|n| (880..1120).contains(n)), "{counts:?} of 1000 each");
}

#[test]
fn mutually_exclusive_choices_are_refused() {
    type Choice = (&'static str, fn(Loader) -> Loader);
    let choices: [Choice; 5] = [
        ("sampler", |l| l.sampler(Backwards((0..10).collect()))),
        ("weights", |l| l.weights([1.0; 10])),
        ("balanced", |l| l.balanced()),
        ("shuffle_window", |l| l.shuffle_window(5)),
        ("buckets", |l| l.buckets(0..10, [5])),
    ];
    let refused = |loader: Loader, one: &str, other: &str| {
        let e = loader.host().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Config);
        assert!(e.cause().contains(&format!("{one} and {other}: each decides the order")), "{one}, {other}: {e}");
    };
    for (i, (one, first)) in choices.iter().enumerate() {
        assert!(first(loader(NumberSource::new(10))).host().is_ok(), "{one} alone");
        for (other, second) in &choices[i + 1..] {
            refused(second(first(loader(NumberSource::new(10)))), one, other);
            refused(first(second(loader(NumberSource::new(10)))), one, other);
        }
        // `shuffle` passes its seed to the other options, except for `sampler`, which excludes it.
        let shuffled = first(loader(NumberSource::new(10)).shuffle(1));
        if *one == "sampler" { refused(shuffled, one, "shuffle") } else { assert!(shuffled.host().is_ok(), "{one}") }
    }
}

#[test]
fn invalid_choices_are_refused() {
    let make = || loader(NumberSource::new(10));
    refused(make().subset([0, 10]), "subset: entry 1 is sample 10, but the source has 10 samples");
    refused(make().subset([]), "subset: the list of indices is empty");
    refused(make().weights([1.0; 9]), "9 weights, but the source has 10 samples");
    refused(make().subset([1, 2]).weights([1.0; 2]), "2 weights, but the source has 10 samples; even with a subset");
    refused(make().weights([0.0; 10]), "all 10 weights are 0");
    refused(make().repeat(0), "repeat(0)");
    refused(make().decode_share(1.5), "decode_share(1.5)");
    refused(make().decode_share(f64::NAN), "decode_share(NaN)");
    refused(make().shuffle_window(0), "shuffle_window(0)");
    let unlabeled = Memory::new(vec![OwnedSample::new("a").label(1), OwnedSample::new("b")]);
    let e = Loader::source(unlabeled).balanced().host().unwrap_err();
    assert!(e.to_string().contains("sample 1 (b): source: no label, but balanced() requires one"), "{e}");
    struct Panics;
    impl Source for Panics {
        fn len(&self) -> usize {
            3
        }
        fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
            panic!("no labels today")
        }
    }
    let e = Loader::source(Panics).balanced().host().unwrap_err();
    assert_eq!((e.kind(), e.sample(), e.cause()), (ErrorKind::Panic, Some(0), "no labels today"));
}

#[test]
fn every_choice_uses_source_indices_even_with_a_subset() {
    let subset: Vec<u64> = (0..40).rev().filter(|n| n % 3 == 1).collect();
    let ids = |loader: Loader| -> Vec<u64> {
        let mut delivered = Vec::new();
        for batch in loader {
            let batch = batch.unwrap();
            let drawn = original(&NumberSource::new(40), &Augment::eval(16, 16), 0, batch.ids().next().unwrap(), 0);
            assert_eq!(batch.images().as_u8().unwrap()[..drawn.len()], drawn);
            assert!(batch.ids().zip(batch.labels().unwrap()).all(|(id, label)| id as i64 % 10 == *label));
            delivered.extend(batch.ids());
        }
        delivered
    };
    let make =
        || loader(NumberSource::new(40)).augment(Augment::eval(16, 16)).batch_size(5).subset(subset.iter().copied());
    assert_eq!(ids(make()), subset);
    assert_eq!(ids(make().sampler(Backwards(vec![1, 37, 4]))), [4, 37, 1]);
    assert_eq!(ids(make().weights((0..40).map(|i| f64::from(u8::from(i == 13 || i == 14))))), [13; 13]);
    let mut bucketed = ids(make().buckets((0..40).map(|i| if i < 20 { 9 } else { 1 }), [5]));
    assert!(bucketed[..6].iter().all(|&id| id >= 20) && bucketed[6..].iter().all(|&id| id < 20));
    bucketed.sort_unstable();
    assert!(bucketed.iter().eq(subset.iter().rev()));
    let [part] = make().split([1.0], 3).unwrap();
    let mut part = ids(part);
    part.sort_unstable();
    assert!(part.iter().eq(subset.iter().rev()));
    // 2 is a valid position but not a sample of the subset, and 99 is out of range.
    for outside in [2, 99] {
        let e = make().sampler(Backwards(vec![1, outside])).into_iter().find_map(Result::err).unwrap();
        let text =
            format!("the sampler returned sample {outside} at position 0 of epoch 0, which is not in the subset");
        assert!(e.kind() == ErrorKind::Config && e.to_string().contains(&text), "{e}");
    }
    // The other samples of a mosaic must also come from the subset.
    let joined = Augment::letterbox(16, 16).mosaic(Mosaic::new());
    let joined = loader(NumberSource::new(40)).augment(joined).drop_field("label").batch_size(1).subset([1]);
    let e = joined.sampler(Backwards((2..40).chain([1]).collect())).into_iter().next().unwrap().unwrap_err();
    assert!(e.kind() == ErrorKind::Config && e.to_string().contains("not in the subset"), "{e}");
}

fn colors(name: &str, len: u64, label: i64) -> Arc<dyn Source> {
    let sample = |i: u64| OwnedSample::new(format!("{name}/{i}")).field("img", i.to_le_bytes()).label(label);
    Arc::new(Memory::new((0..len).map(sample).collect()))
}

#[test]
fn a_mixture_keeps_its_proportions_on_any_ranks_and_resumed() {
    let make = || {
        let parts = [(colors("a", 300, 1), 3.0), (colors("b", 40, 2), 1.0)];
        Loader::mixture(parts).codec(NumberCodec).augment(Augment::train(16)).global_batch_size(20).seed(6)
    };
    let run = |loader: Loader| {
        let mut batches = loader.host().unwrap();
        let mut seen = Vec::new();
        for epoch in batches.first_epoch()..2 {
            let source = batches.source().clone();
            for batch in batches.epoch(epoch) {
                let batch = batch.unwrap();
                for ((id, key), &label) in batch.ids().zip(batch.sample_keys()).zip(batch.labels().unwrap()) {
                    assert_eq!(
                        (source.dataset_index(id as usize), &key[..1]),
                        [(0, "a"), (1, "b")][label as usize - 1]
                    );
                }
                seen.push(BatchContent::from(&batch));
            }
        }
        (seen, batches.checkpoint())
    };
    let (unbroken, _) = run(make());
    let samples: usize = unbroken.iter().map(|batch| batch.ids.len()).sum();
    let of_a = unbroken.iter().flat_map(|batch| &batch.labels).filter(|label| **label == 1).count();
    assert_eq!(samples, 680);
    assert!((470..550).contains(&of_a), "{of_a} of 680 draws are from the dataset with proportion 3/4");

    let parts: Vec<_> = (0..3).map(|rank| run(make().rank(rank, 3)).0).collect();
    for (number, batch) in unbroken.iter().enumerate() {
        let ids: Vec<_> = parts.iter().flat_map(|rank| rank[number].ids.clone()).collect();
        let images: Vec<_> = parts.iter().flat_map(|rank| rank[number].images.clone()).collect();
        assert!((&ids, &images) == (&batch.ids, &batch.images), "batch {number}");
    }
    for stop in [1, 16, 17, 30] {
        let mut batches = make().rank(1, 2).host().unwrap();
        let remaining = stop - batches.epoch(0).take(stop).count();
        if remaining > 0 {
            assert_eq!(batches.epoch(1).take(remaining).count(), remaining);
        }
        assert!(run(make().resume(batches.checkpoint())).0 == unbroken[stop..], "from batch {stop}");
    }
    let e = make().sampler(Sequential::new(3)).host().unwrap_err();
    assert!(e.to_string().contains("source::Concat") && e.to_string().contains("sampler::Mixture::of"), "{e}");
    let e = Loader::mixture([("no/such/place", 1.0)]).host().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Io);
}

#[test]
fn a_mixture_of_subsets_and_weights_keeps_its_proportions() {
    let labeled = |name: &str, len: u64| -> Arc<dyn Source> {
        let label = |i: u64| i64::from(i.is_multiple_of(10));
        let sample = |i: u64| OwnedSample::new(format!("{name}/{i}")).field("img", i.to_le_bytes()).label(label(i));
        Arc::new(Memory::new((0..len).map(sample).collect()))
    };
    let make = || {
        let parts = [(labeled("a", 300), 3.0), (labeled("b", 40), 1.0)];
        Loader::mixture(parts).codec(NumberCodec).augment(Augment::train(16)).batch_size(20).seed(6)
    };
    // A dataset with proportion 0 still contributes to the epoch's length.
    let parts = [(labeled("a", 300), 1.0), (labeled("b", 40), 0.0)];
    let none = Loader::mixture(parts).codec(NumberCodec).augment(Augment::train(16)).batch_size(20).host().unwrap();
    assert_eq!(none.num_batches(0), 340 / 20);
    let draws = |loader: Loader| -> Vec<(u64, i64)> {
        let mut batches = loader.host().unwrap();
        let mut delivered = Vec::new();
        for epoch in 0.. {
            for batch in batches.epoch(epoch) {
                let batch = batch.unwrap();
                delivered.extend(batch.ids().zip(batch.labels().unwrap().iter().copied()));
            }
            if delivered.len() >= 10_000 {
                break;
            }
        }
        delivered.truncate(10_000);
        assert_eq!(delivered.iter().filter(|draw| draw.0 < 300).count(), 7500);
        delivered
    };
    let times = |draws: &[(u64, i64)]| {
        let mut times = vec![0; 340];
        draws.iter().for_each(|draw| times[draw.0 as usize] += 1);
        times
    };
    let list: Vec<u64> = (0..340).filter(|i| i % 3 == 0).rev().collect();
    // Each pass contains the 100 samples of the first dataset and the 14 of the second once.
    let subset = times(&draws(make().subset(list.iter().copied())));
    for (sample, &times) in subset.iter().enumerate() {
        let expected = match sample {
            _ if sample % 3 > 0 => 0..=0,
            0..300 => 75..=75,
            _ => 2500 / 14..=2500 / 14 + 1,
        };
        assert!(expected.contains(&times), "sample {sample} was drawn {times} times");
    }
    let windowed = times(&draws(make().shuffle_window(64)));
    assert!(windowed[..300].iter().all(|&n| n == 25) && windowed[300..].iter().all(|&n| (62..=63).contains(&n)));
    let weighted =
        times(&draws(make().weights((0..340).map(|i| f64::from(u8::from((150..300).contains(&i) || i >= 320))))));
    assert!((0..340).all(|i| (weighted[i] > 0) == ((150..300).contains(&i) || i >= 320)));
    let both = make().subset(list.iter().copied()).weights((0..340).map(|i| f64::from(i % 2)));
    assert!(times(&draws(both)).iter().enumerate().all(|(i, &n)| (n > 0) == (i % 3 == 0 && i % 2 == 1)));
    let rare = draws(make().balanced());
    for (first, expected) in [(0, 7500), (300, 2500)] {
        let ones = rare.iter().filter(|draw| (first..first + 300).contains(&draw.0) && draw.1 == 1).count();
        assert!(
            (expected * 45 / 100..expected * 55 / 100).contains(&ones),
            "{ones} of {expected} are of the rare class"
        );
    }

    refused(make().subset([1, 2]), "mixture and subset: the subset has no sample of source 1, which has the");
    refused(make().subset([1, 340]), "entry 1 is sample 340, but the source has 340 samples");
    refused(make().weights([1.0; 339]), "339 weights, but the source has 340");
    refused(make().weights((0..340).map(|i| f64::from(u8::from(i < 300)))), "source 1: weights: all 40 weights are 0");
}
