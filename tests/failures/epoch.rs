//! Describes a loader's batches as text, and checks a loader after one of its system calls or
//! allocations has failed.

use warpfeed::{HostBatch, Loader, Result};

/// Lists the samples of a batch, one per line. A line ends with `true` if the content belongs to
/// the sample.
fn describe(batch: &HostBatch) -> String {
    let labels = batch.labels().map(<[i64]>::to_vec).unwrap_or_default();
    let views: Vec<_> = batch.fields().filter_map(|field| batch.field(&field.name)).collect();
    let mut lines = String::new();
    for (place, ((id, key), valid)) in batch.ids().zip(batch.sample_keys()).zip(batch.valid()).enumerate() {
        let mut hasher = crc32fast::Hasher::new();
        for bytes in views.iter().map(|view| view.bytes()) {
            let size = bytes.len() / batch.len();
            hasher.update(&bytes[place * size..][..size]);
        }
        let label = labels.get(place);
        lines.push_str(&format!("{id} {key} {label:?} {:08x} {valid}\n", hasher.finalize()));
    }
    lines
}

fn batches(loader: Loader, count: usize) -> Result<String> {
    let mut batches = loader.host()?;
    let mut text = String::new();
    for batch in batches.epoch(0).take(count) {
        text.push_str(&describe(&batch?));
    }
    for fault in batches.sample_errors() {
        let sample = fault.error.sample().expect("a fault has a sample");
        text.push_str(&format!("fault {sample} {}\n", fault.error));
    }
    Ok(text)
}

/// Returns whether `text` describes the expected epoch, except for replaced samples. At least one
/// fault must be listed, and each replaced sample must be listed as a fault.
fn is_replaced(text: &str, expected: &str) -> bool {
    let (mut lines, mut named) = (Vec::new(), Vec::new());
    for line in text.lines() {
        match line.strip_prefix("fault ") {
            Some(fault) => named.extend(fault.split(' ').next()),
            None => lines.push(line),
        }
    }
    let same = |(line, expected): (&&str, &str)| {
        *line == expected || line.ends_with(" false") && named.iter().any(|id| expected.split(' ').next() == Some(id))
    };
    !named.is_empty() && lines.len() == expected.lines().count() && lines.iter().zip(expected.lines()).all(same)
}

pub(crate) fn names_a_place(error: &warpfeed::Error) -> bool {
    let text = error.to_string();
    let options = ["workers", "batch_size", "prefetch", "memory_limit", "thread"];
    error.path().is_some() || error.sample().is_some() || options.iter().any(|option| text.contains(option))
}

/// Loads the first `count` batches. After a failure, a second loader must deliver the expected
/// batches.
pub(crate) fn twice(
    loader: &dyn Fn() -> Result<Loader>,
    count: usize,
    expected: Option<&str>,
) -> std::result::Result<String, String> {
    let load = || loader().and_then(|loader| batches(loader, count));
    match load() {
        Ok(text) if expected.is_some_and(|expected| is_replaced(&text, expected)) => Err(text),
        Ok(text) => Ok(text),
        Err(e) if !names_a_place(&e) => Err(format!("wrong: the error names no location: {e}")),
        Err(e) => match load() {
            Ok(text) if expected.is_none_or(|expected| text == expected) => Err(e.to_string()),
            Ok(text) => Err(format!("wrong: after {e}: {text}")),
            Err(again) => Err(format!("wrong: after {e}, again: {again}")),
        },
    }
}
