//! Tests that any two options either take effect together or cause an error that names both. An
//! option that is rejected even on its own need not name the other. [`SILENT`] lists the
//! exceptions.
//!
//! Opens a loader with each pair of [`Loader`]'s setters. A setter with a visible effect has a
//! condition on the run that holds only if the setter was called.
//! `python/tests/test_options_together.py` does the same for Python.

mod data;
mod run;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use syn::{FnArg, ImplItem, Item, ReturnType, Type, Visibility};
use warpfeed::decode::Size;
use warpfeed::field::{Image, Mask};
use warpfeed::sampler::{At, MixtureOptions};
use warpfeed::source::{Store, TableOptions};
use warpfeed::trace::Schedule;
use warpfeed::{
    AnnotationFrame, Augment, CacheFormat, DecodeOn, Dtype, LastBatch, Layout, Loader, Normalize, OnError, Result,
};

use self::data::{
    COUNT, Data, LISTED, LISTED_IN_FILE, OF_FIRST, ORDER, Own, Red, SUBSET, World, darker, length, write,
};
use self::run::{ImageValues, Run};
use crate::objects::Objects;
use crate::process::{OWN, child};

enum Does {
    /// Compares a run with a run without the setter.
    Shows(fn(&Run, &Run) -> bool),
    /// This data does not show the effect.
    Nothing,
    /// Opening or running fails with an error that contains this text.
    Stops(&'static str),
}
use Does::{Nothing, Shows, Stops};

struct Setter {
    name: &'static str,
    set: fn(Loader, &World<'_>) -> Result<Loader>,
    does: Does,
}

const fn setter(name: &'static str, does: Does, set: fn(Loader, &World<'_>) -> Result<Loader>) -> Setter {
    Setter { name, set, does }
}

/// All setters, in the order in which they are called.
static SETTERS: &[Setter] = &[
    setter("store", Shows(|run, _| run.opened), |l, w| Ok(l.store("one", Objects::of(w.root, "one://data")))),
    setter("stores", Shows(|run, _| run.opened), |l, w| {
        let store: Arc<dyn Store> = Arc::new(Objects::of(w.root, "two://data"));
        Ok(l.stores([("two", store)]))
    }),
    setter("cache_listing", Shows(|run, _| run.indexed), |l, _| Ok(l.cache_listing(true))),
    setter("masks", Shows(|run, _| run.has("mask") && run.masks_fit()), |l, _| {
        Ok(l.masks("masks").field("mask", Mask::new(Dtype::U8)))
    }),
    setter("table", Shows(Run::has_other_labels), |l, _| Ok(l.table(TableOptions::new().label("species")))),
    setter(
        "match_labels_by_name",
        Shows(|run, _| run.classes == ["even", "odd", "zero"] && run.named(run.truth())),
        |l, _| Ok(l.match_labels_by_name()),
    ),
    setter("keep_labels", Shows(Run::keeps_labels), |l, _| Ok(l.keep_labels())),
    setter("mixture_options", Shows(|run, other| run.ids(0) != other.ids(0)), |l, _| {
        Ok(l.keep_labels()
            .mixture_options(MixtureOptions::new().draws_per_round(4).proportions(At::Sample(8), [0.75, 0.25])))
    }),
    setter("classes", Shows(|run, _| run.classes == LISTED && run.named(run.truth())), |l, _| Ok(l.classes(LISTED))),
    setter("classes_file", Shows(|run, _| run.classes == LISTED_IN_FILE && run.named(run.truth())), |l, w| {
        Ok(l.classes_file(w.root.join("classes.txt")))
    }),
    setter("codec", Shows(|run, _| run.images().iter().all(ImageValues::is_flat)), |l, _| Ok(l.codec(Red))),
    setter("batch_size", Shows(|run, _| run.sizes(0)[0] == 3), |l, _| Ok(l.batch_size(3))),
    setter("global_batch_size", Shows(|run, _| run.largest() == if run.ranks == 2 { 3 } else { 6 }), |l, _| {
        Ok(l.global_batch_size(6))
    }),
    setter(
        "last_batch",
        Shows(|run, _| {
            let sizes = run.sizes(0);
            sizes.iter().all(|size| *size == sizes[0]) && run.batches.last().unwrap().valid.contains(&false)
        }),
        |l, _| Ok(l.last_batch(LastBatch::Pad)),
    ),
    setter("rank", Shows(|run, other| run.is_less_than(other, 0.6)), |l, _| Ok(l.rank(0, 2))),
    setter(
        "distributed",
        Shows(|run, other| run.rank == 1 && (other.ranks == 2 || run.is_less_than(other, 0.6))),
        |l, _| Ok(l.distributed()),
    ),
    setter("local_world_size", Nothing, |l, _| Ok(l.local_world_size(2))),
    setter("shuffle", Shows(Run::is_mixed), |l, _| Ok(l.shuffle(7))),
    setter("shuffle_window", Shows(Run::is_mixed), |l, _| Ok(l.shuffle_window(3))),
    setter("seed", Shows(|run, other| run.seed == 5 && run.bytes() != other.bytes()), |l, _| Ok(l.seed(5))),
    setter(
        "sampler",
        Shows(|run, _| run.ids(0).iter().all(|id| ORDER.contains(id)) && !run.ids(0).is_sorted()),
        |l, _| Ok(l.sampler(Own)),
    ),
    setter("subset", Shows(|run, _| run.all_ids().all(|id| SUBSET.contains(&id))), |l, _| Ok(l.subset(SUBSET))),
    setter("weights", Shows(|run, _| run.all_ids().all(|id| id % 3 > 0)), |l, w| {
        Ok(l.weights((0..w.samples).map(|id| (id % 3) as f64)))
    }),
    setter(
        "balanced",
        Shows(|run, _| {
            let few = run.all_ids().filter(|id| id % COUNT >= OF_FIRST).count();
            few as f64 >= 0.3 * run.all_ids().count() as f64
        }),
        |l, _| Ok(l.balanced()),
    ),
    setter("buckets", Shows(|run, _| (0..2).all(|epoch| run.mixed_lengths(epoch) <= 1)), |l, w| {
        Ok(l.buckets((0..w.samples).map(length), [4]))
    }),
    setter("size_buckets", Shows(Run::has_one_parity_per_batch), |l, w| {
        let images = (0..w.samples).map(|id| Size::new(1, 1 + (id % 2) as u32));
        Ok(l.size_buckets(images, [Size::new(8, 8), Size::new(8, 12)]))
    }),
    setter("budget", Shows(|run, _| (0..2).all(|epoch| run.mixed_lengths(epoch) == 0)), |l, w| {
        Ok(l.buckets((0..w.samples).map(length), [4]).budget(1 << 20))
    }),
    setter("split", Shows(|run, other| run.is_less_than(other, 0.9)), |l, _| {
        let [part, _] = l.split([0.8, 0.2], 1)?;
        Ok(part)
    }),
    setter("split_stratified", Shows(|run, other| run.is_less_than(other, 0.6)), |l, _| {
        let [part, _] = l.split_stratified([0.5, 0.5], 1)?;
        Ok(part)
    }),
    setter("repeat", Shows(|run, other| run.ids(0).len() as f64 >= 1.5 * other.ids(0).len() as f64), |l, _| {
        Ok(l.repeat(2))
    }),
    setter("cache_decoded", Nothing, |l, _| Ok(l.cache_decoded(1 << 20))),
    setter("cache_format", Nothing, |l, _| Ok(l.cache_format(CacheFormat::Coefficients))),
    setter("epochs", Nothing, |l, _| Ok(l.epochs(1))),
    setter("augment", Shows(|run, _| run.sides() == [6].into()), |l, _| Ok(l.augment(Augment::resize(6, 6).flip(0.5)))),
    setter("augment_for", Shows(|run, other| run.bytes() != other.bytes()), |l, _| {
        Ok(l.keep_labels().augment_for(1, Augment::resize(8, 8).flip(1.0)))
    }),
    setter("views", Shows(|run, _| run.sides() == [5, 7].into() && run.has("views.1") && !run.has("image")), |l, _| {
        Ok(l.views([5, 7].map(|side| Augment::resize(side, side).flip(0.5))))
    }),
    setter("transform", Shows(|run, other| run.brightest() < 0.502 && other.brightest() > 0.502), |l, _| {
        Ok(l.transform(darker))
    }),
    setter("transform_moves_pixels", Nothing, |l, _| Ok(l.transform_moves_pixels(false))),
    setter("normalize", Shows(|run, _| run.images().iter().all(|image| image.least() < 0.0)), |l, _| {
        Ok(l.normalize(Normalize::IMAGENET))
    }),
    setter("dtype", Shows(|run, _| run.image_arrays().all(|field| field.dtype == Dtype::F16)), |l, _| {
        Ok(l.dtype(Dtype::F16))
    }),
    setter("layout", Shows(|run, _| run.image_arrays().all(|field| matches!(field.shape[1], 1 | 3))), |l, _| {
        Ok(l.layout(Layout::Nchw))
    }),
    setter("channels", Shows(|run, _| run.images().iter().all(|image| image.channels == 1)), |l, _| Ok(l.channels(1))),
    setter("background", Shows(|run, _| run.images().iter().all(ImageValues::is_flat_above)), |l, _| {
        Ok(l.background([9, 99, 199]))
    }),
    setter("convert_to_u8", Nothing, |l, _| Ok(l.convert_to_u8(true))),
    setter("field", Shows(|run, _| run.has("small")), |l, _| {
        Ok(l.field("small", Image::new().augment(Augment::resize(3, 3))))
    }),
    setter("annotations_follow", Nothing, |l, _| Ok(l.annotations_follow(AnnotationFrame::Upright))),
    setter("drop_field label", Shows(|run, _| !run.has("label")), |l, _| Ok(l.drop_field("label"))),
    setter("drop_field image", Shows(|run, _| !run.has("image")), |l, _| Ok(l.drop_field("image"))),
    setter("soft_labels", Shows(|run, _| run.has("soft_label")), |l, _| Ok(l.soft_labels(3, 0.1))),
    setter("unlabeled", Nothing, |l, _| Ok(l.unlabeled(true))),
    setter("workers", Shows(|run, _| run.workers == 2), |l, _| Ok(l.workers(2))),
    setter("prefetch", Shows(|run, _| run.prefetch == 2), |l, _| Ok(l.prefetch(2))),
    setter("pinned", Nothing, |l, _| Ok(l.pinned(true))),
    setter("decode_on", Nothing, |l, _| Ok(l.decode_on(DecodeOn::Auto))),
    setter("decode_share", Nothing, |l, _| Ok(l.decode_share(0.5))),
    setter("mmap", Nothing, |l, _| Ok(l.mmap(false))),
    setter("on_error", Nothing, |l, _| Ok(l.on_error(OnError::Skip { max_skipped: 2 }))),
    setter("retries", Nothing, |l, _| Ok(l.retries(1))),
    setter("strict", Nothing, |l, _| Ok(l.strict(true))),
    setter("held_batches_timeout", Nothing, |l, _| Ok(l.held_batches_timeout(Duration::from_secs(20)))),
    setter("memory_limit", Stops("memory_limit"), |l, _| Ok(l.memory_limit(1))),
    setter("max_pixels", Stops("the limit is 15"), |l, _| Ok(l.max_pixels(15))),
    setter("max_sample_bytes", Stops("max_sample_bytes is 8"), |l, _| Ok(l.max_sample_bytes(8))),
    setter("trace", Shows(|run, _| run.traced), |l, w| Ok(l.trace(w.trace(), SCHEDULE))),
    setter("resume", Shows(|run, _| run.batches[0].number == 1), |l, w| {
        Ok(match &w.saved {
            Some(saved) => l.resume(serde_json::from_str(saved).unwrap()),
            None => l,
        })
    }),
];

const SCHEDULE: Schedule = Schedule { wait: 0, warmup: 0, active: 2, repeat: 1 };

/// Pairs in which the second setter silently removes the effect of the first, with the reason why
/// that is allowed.
const SILENT: &[(&str, &str, &str)] = &[
    ("classes", "classes_file", LATER),
    ("batch_size", "global_batch_size", LATER),
    ("rank", "distributed", LATER),
    ("buckets", "budget", "this call of budget also needs buckets"),
    ("size_buckets", "budget", "this call of budget also needs buckets"),
    ("buckets", "size_buckets", LATER),
    ("keep_labels", "mixture_options", "this call of mixture_options also needs keep_labels"),
    ("keep_labels", "augment_for", "this call of augment_for also needs keep_labels"),
    ("subset", "sampler", "documented: the order must stay within the subset"),
    ("table", "drop_field label", "the column of labels is not read"),
    ("augment", "size_buckets", "documented: the size of the bucket replaces the output size"),
    ("augment", "views", "documented: each view has its own augmentation"),
    ("augment", "drop_field image", "documented: no image is decoded"),
    ("codec", "drop_field image", "no image is decoded"),
    ("max_pixels", "drop_field image", "no image is decoded"),
    ("seed", "drop_field image", "nothing is drawn"),
    ("seed", "codec", "images of one color look the same if they are flipped"),
    ("background", "codec", "a custom codec has no transparent pixels"),
];
const LATER: &str = "documented: the later of two calls for the same setting wins";

fn words(name: &str) -> &[&str] {
    match name {
        "store" => &["one://"],
        "stores" => &["two://"],
        "masks" => &["\"mask\"", "masks"],
        "match_labels_by_name" => &["match_labels_by_name", "mixture"],
        "keep_labels" => &["keep_labels", "mixture"],
        "mixture_options" | "augment_for" => &["mixture", "keep_labels", "augment_for"],
        "classes_file" => &["classes"],
        "split" | "split_stratified" => &["split", "subset"],
        "drop_field label" | "drop_field image" => {
            &["drop_field", "the loader has no image field", "the loader has no label field"]
        }
        _ => &[],
    }
}

fn names(error: &str, setter: &str) -> bool {
    let words = words(setter);
    if words.is_empty() { error.contains(setter) } else { words.iter().any(|word| error.contains(word)) }
}

type Known = Rc<std::result::Result<Run, String>>;

struct Alone<'a> {
    root: &'a Path,
    answers: RefCell<BTreeMap<(String, Data), Known>>,
}

impl Alone<'_> {
    fn run(&self, name: &str, data: &Data) -> Known {
        let key = (name.to_owned(), data.clone());
        if let Some(run) = self.answers.borrow().get(&key) {
            return run.clone();
        }
        let names: Vec<&str> = [name].into_iter().filter(|name| !name.is_empty()).collect();
        let saved = (name == "resume").then(|| self.saved("", data)).flatten();
        let run = Rc::new(Run::of(&names, data, self.root, saved));
        self.answers.borrow_mut().insert(key, run.clone());
        run
    }

    fn saved(&self, name: &str, data: &Data) -> Option<String> {
        self.run(name, data).as_ref().as_ref().ok()?.saved.clone()
    }
}

fn pair(one: &Setter, other: &Setter, alone: &Alone<'_>) -> std::result::Result<&'static str, String> {
    let names = [one.name, other.name];
    let data = Data::of(&names);
    let saved =
        names.contains(&"resume").then(|| alone.saved(if names[0] == "resume" { names[1] } else { names[0] }, &data));
    let both = Run::of(&names, &data, alone.root, saved.flatten());
    let is_silent = |setter: &Setter, rest: &Setter| {
        SILENT.iter().any(|(name, next, _)| (*name, *next) == (setter.name, rest.name))
    };
    for (setter, rest) in [(one, other), (other, one)] {
        if let Stops(text) = setter.does {
            let Err(e) = &both else {
                let silent = is_silent(setter, rest).then_some("pairs have one that changes nothing");
                return silent.ok_or_else(|| format!("{} has no effect together with {}", setter.name, rest.name));
            };
            return if e.contains(text) || matches!(rest.does, Stops(text) if e.contains(text)) {
                Ok("limits hold")
            } else {
                Err(format!("{} with {}: {e}", setter.name, rest.name))
            };
        }
    }
    let both = match both {
        Ok(both) => both,
        Err(e) => {
            // A setter that is rejected even on its own need not name the other setter.
            let is_same = |name: &str| alone.run(name, &data).as_ref().as_ref().is_err_and(|alone| *alone == e);
            let same_names: Vec<_> = names.into_iter().filter(|name| is_same(name)).collect();
            let mut expected_names = if same_names.is_empty() { names.to_vec() } else { same_names };
            expected_names.retain(|name| !self::names(&e, name));
            let enough = expected_names.is_empty();
            return if enough {
                Ok("pairs are refused")
            } else {
                Err(format!("{} and {} are refused with: {e}", names[0], names[1]))
            };
        }
    };
    for (setter, rest) in [(one, other), (other, one)] {
        let without = alone.run(rest.name, &data);
        let without = without.as_ref().as_ref().cloned().unwrap_or_default();
        let silent = is_silent(setter, rest);
        let problem = match setter.does {
            Nothing if both != without => "has an unexpected effect together with",
            Shows(_) if both == without => "has no effect together with",
            Shows(shows) if !shows(&both, &without) => "does not have the expected effect together with",
            _ if silent => {
                return Err(format!("SILENT lists {} with {}, but the former has an effect", setter.name, rest.name));
            }
            _ => continue,
        };
        if !silent {
            return Err(format!("{} {problem} {}", setter.name, rest.name));
        }
    }
    Ok(match (&one.does, &other.does) {
        (Nothing, _) | (_, Nothing) => "pairs have one that changes nothing",
        _ => "pairs act",
    })
}

#[test]
fn each_pair_of_setters_acts_or_is_refused_with_both_names() {
    // The child process acts as the second of two ranks.
    if std::env::var_os(OWN).is_none() {
        let mut command = child!(each_pair_of_setters_acts_or_is_refused_with_both_names);
        let status = command.env(OWN, "1").env("RANK", "1").env("WORLD_SIZE", "2").status().unwrap();
        assert!(status.success(), "the test failed in its child process");
    } else {
        check_pairs();
    }
}

fn check_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    write(&root);
    let alone = Alone { root: &root, answers: RefCell::default() };
    let mut problems = Vec::new();
    for setter in SETTERS {
        let data = Data::of(&[setter.name]);
        let (with, without) = (alone.run(setter.name, &data), alone.run("", &data));
        let without = without.as_ref().as_ref().cloned().unwrap_or_default();
        match (&setter.does, with.as_ref()) {
            (Shows(_), Ok(run)) if *run == without => problems.push(format!("{} has no effect", setter.name)),
            (Shows(shows), Ok(run)) if !shows(run, &without) => {
                problems.push(format!("{} does not have the expected effect", setter.name));
            }
            // A condition that also holds without the setter proves nothing.
            (Shows(shows), Ok(_)) if without.opened && shows(&without, &without) => {
                problems.push(format!("the condition of {} also holds without it", setter.name));
            }
            (Nothing, Ok(run)) if *run != without => problems.push(format!("{} has an unexpected effect", setter.name)),
            (Stops(_), Ok(_)) => problems.push(format!("{} has no effect", setter.name)),
            (Stops(text), Err(e)) if e.contains(text) => {}
            (_, Err(e)) => problems.push(format!("{}: {e}", setter.name)),
            _ => {}
        }
    }
    let mut counts = BTreeMap::<_, u32>::new();
    for (place, first) in SETTERS.iter().enumerate() {
        for other in &SETTERS[place + 1..] {
            match pair(first, other, &alone) {
                Ok(what) => *counts.entry(what).or_default() += 1,
                Err(problem) => problems.push(problem),
            }
        }
    }
    println!("setters: {}, pairs: {counts:?}, problems: {}", SETTERS.len(), problems.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn public_setters() -> BTreeSet<String> {
    // A macro generates the setters in `OPTIONS`.
    let mut setters: BTreeSet<_> = Loader::OPTIONS.iter().map(|[setter, ..]| (*setter).to_owned()).collect();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/loader")).unwrap() {
        let path = entry.unwrap().path();
        let Some("rs") = path.extension().and_then(|end| end.to_str()) else { continue };
        for item in syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap().items {
            if let Item::Macro(call) = &item
                && call.mac.path.is_ident("shared_setters")
            {
                let tokens: Vec<_> = call.mac.tokens.clone().into_iter().map(|token| token.to_string()).collect();
                setters.extend(tokens.windows(2).filter(|pair| pair[0] == "fn").map(|pair| pair[1].clone()));
            }
            let Item::Impl(block) = item else { continue };
            if block.trait_.is_some() || !matches!(&*block.self_ty, Type::Path(of) if of.path.is_ident("Loader")) {
                continue;
            }
            for method in block.items {
                let ImplItem::Fn(method) = method else { continue };
                let takes = matches!(method.sig.inputs.first(), Some(FnArg::Receiver(of)) if of.reference.is_none());
                let ReturnType::Type(_, returned) = &method.sig.output else { continue };
                let returned = idents(returned);
                let is_loader = returned.iter().any(|word| word == "Self" || word == "Loader");
                if takes && is_loader && matches!(method.vis, Visibility::Public(_)) {
                    setters.insert(method.sig.ident.to_string());
                }
            }
        }
    }
    setters
}

fn idents(kind: &Type) -> Vec<String> {
    struct Words(Vec<String>);
    impl<'a> syn::visit::Visit<'a> for Words {
        fn visit_ident(&mut self, ident: &'a syn::Ident) {
            self.0.push(ident.to_string());
        }
    }
    let mut words = Words(Vec::new());
    syn::visit::visit_type(&mut words, kind);
    words.0
}

#[test]
fn the_table_has_every_setter_of_the_loader() {
    let setters: BTreeSet<_> = SETTERS.iter().map(|setter| setter.name.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(setters, public_setters());
    let names: BTreeSet<_> = SETTERS.iter().map(|setter| setter.name).collect();
    assert!(names.len() == SETTERS.len() && names.len() >= 57);
    assert!(SILENT.iter().all(|(one, other, why)| names.contains(one) && names.contains(other) && !why.is_empty()));
}
