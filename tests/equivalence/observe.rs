//! Records what a user observes of a dataset: samples, batches, faults, errors, checkpoints, and
//! the files packed from the dataset.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use warpfeed::pack::{Pack, Recode};
use warpfeed::source::Source;
use warpfeed::{Batches, Checkpoint, Error, HostBatch, Loader, Result};

use super::random_dataset::{Choice, EPOCHS, Random};

pub struct Member {
    pub format: &'static str,
    pub storage: &'static str,
    pub open: Box<dyn Fn() -> Result<Arc<dyn Source>>>,
    pub load: Box<dyn Fn() -> Loader>,
}

#[derive(Default)]
pub struct Observations {
    pub opened: Vec<String>,
    pub samples: Vec<String>,
    /// Batches without their keys, and errors reduced to their causes.
    pub batches: Vec<String>,
    /// Keys of each delivered batch, including the batches of the interrupted and the resumed run.
    pub keys: Vec<Vec<(u64, String)>>,
    pub faults: Vec<String>,
    pub errors: Vec<String>,
    pub state: Vec<String>,
    pub resumed: Vec<String>,
    pub packed: Vec<String>,
    pub is_refused: bool,
    pub classes: Vec<String>,
}

pub fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ bytes.len() as u64;
    for piece in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    hash ^ hash >> 32
}

impl Observations {
    pub fn parts(&self) -> [(&'static str, Vec<String>); 9] {
        let keys = self.keys.iter().map(|keys| format!("{keys:?}")).collect();
        [
            ("opened", self.opened.clone()),
            ("samples", self.samples.clone()),
            ("batches", self.batches.clone()),
            ("keys", keys),
            ("faults", self.faults.clone()),
            ("errors", self.errors.clone()),
            ("state", self.state.clone()),
            ("resumed", self.resumed.clone()),
            ("packed", self.packed.clone()),
        ]
    }
}

fn clean(text: &str, root: &Path) -> String {
    text.replace(root.to_str().unwrap(), "$ROOT")
}

fn samples(source: &dyn Source, root: &Path) -> Vec<String> {
    let mut scratch = Vec::new();
    let sample = |n: usize| {
        let label = source.label(n, &mut Vec::new()).map_err(|e| e.to_string());
        let key = source.key(n, &mut Vec::new()).map_err(|e| e.to_string());
        let mut line = format!("{n} {key:?} {label:?} {:?} {}", source.path(n), source.dataset_index(n));
        match source.read(n, &mut scratch) {
            Err(e) => write!(line, " {e}").unwrap(),
            Ok(sample) => {
                for (name, value) in sample.fields() {
                    write!(line, " {name} {:016x} {:016x}", hash(value.as_bytes()), hash(&value.encoded(name)))
                        .unwrap();
                }
                write!(line, " {:?} {:?}", sample.key(), sample.label().map_err(|e| e.to_string())).unwrap();
            }
        }
        clean(&line, root)
    };
    (0..source.len()).map(sample).collect()
}

fn batch(batch: &HostBatch) -> String {
    let mut line = format!("{}/{}", batch.epoch(), batch.batch_index());
    for place in 0..batch.len() {
        let (id, valid) = (batch.ids().nth(place).unwrap(), batch.valid().nth(place).unwrap());
        write!(line, " {id}{}", if valid { "" } else { "*" }).unwrap();
        if let Some(e) = batch.error(place) {
            write!(line, "({:?} {})", e.sample(), e.cause()).unwrap();
        }
    }
    for field in batch.fields() {
        let Some(view) = batch.field(&field.name) else { continue };
        write!(line, " {} {:?} {:?} {:016x}", field.name, view.dtype(), view.shape(), hash(view.bytes())).unwrap();
    }
    if let Some(texts) = batch.texts("caption") {
        write!(line, " {:?}", texts.collect::<Vec<_>>()).unwrap();
    }
    write!(line, " labels {:?}", batch.labels().map_err(|e| e.cause().to_owned())).unwrap();
    write!(line, " shown {:?} {:?}", batch.image_areas().collect::<Vec<_>>(), batch.mixing()).unwrap();
    line
}

fn cause(e: &Error) -> String {
    let mut cause = e.cause().to_owned();
    // Remove the key and path if the cause quotes the error of one sample:
    // `...; the last: sample 3 (KEY): PATH: decode: ...`.
    if let Some(start) = cause.find(": sample ").and_then(|start| Some(start + cause[start..].find(" (")?)) {
        let end = KINDS.iter().filter_map(|kind| cause[start..].find(kind)).min();
        cause.replace_range(start..start + end.unwrap_or(0), "");
    }
    format!("error of {:?}: {:?} {cause}", e.sample(), e.kind())
}

const KINDS: [&str; 4] = [": decode: ", ": source: ", ": transform: ", ": config: "];

struct Run<'a> {
    root: &'a Path,
    observations: &'a mut Observations,
}

impl Run<'_> {
    fn error(&mut self, e: &Error) -> String {
        self.observations.errors.push(clean(&e.to_string(), self.root));
        cause(e)
    }

    fn epochs(&mut self, batches: &mut Batches<HostBatch>, stop: u64) -> Vec<String> {
        let (mut lines, mut remaining) = (Vec::new(), stop);
        for number in batches.first_epoch()..EPOCHS {
            let mut epoch = batches.epoch(number);
            lines.push(format!("epoch {number} of {}", epoch.len()));
            while remaining > 0 {
                let Some(next) = epoch.next() else { break };
                remaining -= 1;
                match next {
                    Ok(next) => {
                        lines.push(batch(&next));
                        self.observations.keys.push(next.ids().zip(next.sample_keys().map(str::to_owned)).collect());
                    }
                    Err(e) => lines.push(self.error(&e)),
                }
                self.observations.state.push(serde_json::to_string(&epoch.checkpoint()).unwrap());
            }
            if remaining == 0 {
                break;
            }
        }
        lines
    }

    fn faults(&self, batches: &Batches<HostBatch>) -> Vec<String> {
        let faults = batches.sample_errors();
        let damaged = format!("{} damaged", batches.stats().damaged_images);
        let faults = faults.iter().map(|fault| format!("{}/{} {}", fault.epoch, fault.batch, cause(&fault.error)));
        [damaged].into_iter().chain(faults).collect()
    }
}

pub fn observe(member: &Member, choice: &Choice, random: &mut Random, root: &Path) -> Observations {
    let mut observations = Observations::default();
    let source = match (member.open)() {
        Ok(source) => source,
        Err(e) => {
            observations.opened.push(clean(&e.to_string(), root));
            observations.is_refused = true;
            return observations;
        }
    };
    let (kind, len, classes) = (source.kind(), source.len(), source.classes());
    let fields = source.fields();
    observations.opened.push(format!("{kind} {len} {classes:?} {:?} {fields:?}", source.category_ids()));
    observations.classes = classes.to_vec();
    observations.samples = samples(&*source, root);
    let open = |resumed: bool| choice.of((member.load)(), resumed);
    let opened = open(false).and_then(Loader::host);
    let mut run = Run { root, observations: &mut observations };
    match opened {
        Err(e) => {
            let line = run.error(&e);
            run.observations.batches.push(line);
        }
        Ok(mut batches) => {
            let lines = run.epochs(&mut batches, u64::MAX);
            run.observations.batches = lines;
            run.observations.faults = run.faults(&batches);
            drop(batches);
            let (lines, state) = {
                let mut batches = open(false).and_then(Loader::host).unwrap();
                let lines = run.epochs(&mut batches, choice.stop);
                (lines, batches.checkpoint())
            };
            let text = serde_json::to_string(&state).unwrap();
            let state: Checkpoint = serde_json::from_str(&text).unwrap();
            run.observations.state.push(text);
            let resumed = open(true).map(|loader| loader.resume(state)).and_then(Loader::host);
            let mut rest = match resumed {
                Err(e) => vec![run.error(&e)],
                Ok(mut batches) => run.epochs(&mut batches, u64::MAX),
            };
            run.observations.resumed = lines;
            run.observations.resumed.append(&mut rest);
        }
    }
    observations.packed = packed(&*source, random, root);
    observations
}

fn packed(source: &dyn Source, random: &mut Random, root: &Path) -> Vec<String> {
    let out = root.join("packed");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).unwrap();
    let recode = random.pick(&[Recode::KeepBytes, Recode::Lossless, Recode::MaxSide(20)]);
    let mut pack = Pack::new(source).recode(recode).workers(1 + random.below(3)).keep_undecodable(random.one_in(2));
    let name = match random.below(3) {
        0 => "x.lmdb",
        1 => "x.tar",
        _ => {
            pack = pack.shard_samples(1 + random.below(6) as u64);
            "x.tar"
        }
    };
    let mut lines = vec![match pack.to(out.join(name)) {
        Ok(report) => format!("{} samples", report.samples),
        Err(e) => clean(&e.to_string(), root),
    }];
    let mut names: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names {
        let bytes = if path.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
        lines.push(format!("{} {:016x}", clean(path.to_str().unwrap(), root), hash(&bytes)));
    }
    lines
}
