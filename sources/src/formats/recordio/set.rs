use std::sync::Arc;

use super::index::{Entry, MOST, entries};
use super::record::{FRAME, frame};
use super::rows::{HEADER, Labels, RecordRows, columns, integer};
use crate::error::{Result, collected};
use crate::medium::download::Companions;
use crate::medium::{At, HeldFile, Medium};
use crate::options::{Opened, Options};
use crate::values::items::{Items, Rows, Samples};

/// Without an index, one is made.
const COMPANIONS: Companions =
    Companions { beside: |url| Some(format!("{}.idx", url.strip_suffix(".rec").unwrap_or(url))), ..Companions::NONE };

/// Opens a RecordIO file, with the `.idx` file next to it if there is one. A file of a store without
/// an index is brought to this machine, because all of it is read to find the records.
///
/// # Errors
/// If a file cannot be read or is damaged, or has no records.
pub(crate) fn open(at: At, options: &Options) -> Opened {
    let path = &*at.path;
    let medium = &at.medium;
    let file = medium.open(path)?;
    let listed = medium.find(&path.with_extension("idx"), MOST)?;
    if medium.is_store() && listed.is_none() {
        return open(at.brought(&COMPANIONS, options.mapped)?, options);
    }
    let entries = entries(&file, listed)?;
    let len = file.len();
    let ends = entries.iter().skip(1).map(|entry| entry.at).chain([len]);
    let spans = collected(entries.iter().zip(ends).map(|(entry, end)| Ok((*entry, (entry.at, end)))))?;
    let images = images(&file, &spans)?;
    let is_image = |key: u64| images.as_ref().is_none_or(|range| range.contains(&key));
    let spans = spans.into_iter().filter(|(entry, _)| is_image(entry.key)).map(|(_, span)| Ok(span));
    let spans = collected(spans)?;
    let labels = if options.wanted().without_label { Labels::Numbers } else { labels(medium, &file, &spans)? };
    let items = Items::new(vec![(file, Samples::Spans(spans))])?;
    Ok(Arc::new(Rows::new(path, items, RecordRows::new(labels), options)?))
}

/// Maximum number of records that opening looks at to find the type of the labels.
const SURVEYED: usize = 64;

/// The type of the labels, by some of the records. A record that is damaged does not count.
fn labels(medium: &Medium, file: &HeldFile, spans: &[(u64, u64)]) -> Result<Labels> {
    let count = spans.len().min(SURVEYED);
    // The first and the last, and others between them.
    let places: Vec<usize> = (0..count).map(|place| place * (spans.len() - 1) / (count - 1).max(1)).collect();
    let numbers = medium.in_parallel(&places, |&place| {
        let ((start, end), mut scratch) = (spans[place], Vec::new());
        // One label may follow the header, as an array, or lie in it. Several follow it.
        let head = file.get(start, (end - start).min((FRAME + HEADER + 4) as u64), &mut scratch)?;
        let (Some((part, _)), Some(data)) = (frame(head), head.get(FRAME..)) else { return Ok(false) };
        let Ok((label, _)) = columns(data, part) else { return Ok(false) };
        Ok(label.len() > 4 || data.get(label).is_some_and(|label| integer(label).is_none()))
    })?;
    Ok(if numbers.contains(&true) { Labels::Numbers } else { Labels::Integers })
}

/// The keys of the images, in a file of InsightFace: its record 0 has no image, and its first
/// label is the end of their keys. The records after them describe persons.
fn images(file: &HeldFile, spans: &[(Entry, (u64, u64))]) -> Result<Option<std::ops::Range<u64>>> {
    let Some((_, (start, end))) = spans.iter().find(|(entry, _)| entry.key == 0) else { return Ok(None) };
    let mut scratch = Vec::new();
    let head = file.get(*start, (end - start).min(64), &mut scratch)?;
    let Some((len, _)) = frame(head) else { return Ok(None) };
    let Some(data) = FRAME.checked_add(len).and_then(|end| head.get(FRAME..end)) else { return Ok(None) };
    match columns(data, len) {
        Ok((labels, image)) if image.is_empty() && labels.start == HEADER && labels.len() == 8 => {
            let first = f32::from_le_bytes([data[HEADER], data[HEADER + 1], data[HEADER + 2], data[HEADER + 3]]);
            Ok(Some(1..first.max(1.0) as u64))
        }
        _ => Ok(None),
    }
}
