//! Opens RecordIO files.

use std::sync::Arc;

use super::index::{Entry, MAX_IDX_BYTES, read_entries};
use super::layout::{LABEL_HEADER_BYTES, LabelType, RecordIoLayout, integer_label, label_and_image_ranges};
use super::record::{FRAME_HEADER_BYTES, parse_frame_header};
use crate::error::{Result, try_collect};
use crate::options::{Opened, Options};
use crate::storage::download::Companions;
use crate::storage::{DatasetLocation, OpenFile, Storage};
use crate::values::items::{RowSource, SampleFiles, SampleSpans};

const COMPANIONS: Companions = Companions {
    companion_url: |url| Some(format!("{}.idx", url.strip_suffix(".rec").unwrap_or(url))),
    ..Companions::NONE
};

/// Opens a RecordIO file, and the `.idx` file next to it if there is one. If a RecordIO file in an
/// object store has no `.idx` file, the RecordIO file is downloaded, because finding its records
/// requires scanning the whole file.
pub(crate) fn open(location: DatasetLocation, options: &Options) -> Opened {
    let path = &*location.path;
    let storage = &location.storage;
    let file = storage.open(path)?;
    let idx_content = storage.find(&path.with_extension("idx"), MAX_IDX_BYTES)?;
    if storage.is_store() && idx_content.is_none() {
        return open(location.downloaded(&COMPANIONS, options.mapped)?, options);
    }
    let entries = read_entries(&file, idx_content)?;
    let len = file.len();
    let ends = entries.iter().skip(1).map(|entry| entry.offset).chain([len]);
    let spans = try_collect(entries.iter().zip(ends).map(|(entry, end)| Ok((*entry, (entry.offset, end)))))?;
    let image_keys = find_image_keys(&file, &spans)?;
    let is_image = |key: u64| image_keys.as_ref().is_none_or(|range| range.contains(&key));
    let spans = spans.into_iter().filter(|(entry, _)| is_image(entry.key)).map(|(_, span)| Ok(span));
    let spans = try_collect(spans)?;
    let label_type = if options.column_choice().without_label {
        LabelType::Numbers
    } else {
        find_label_type(storage, &file, &spans)?
    };
    let sample_files = SampleFiles::new(vec![(file, SampleSpans::Spans(spans))])?;
    Ok(Arc::new(RowSource::new(path, sample_files, RecordIoLayout::new(label_type), options)?))
}

const MAX_SURVEYED_RECORDS: usize = 64;

/// Determines the type of the labels from up to [`MAX_SURVEYED_RECORDS`] records. The type is
/// `Numbers` if any of them has several labels or a label that is not an integer. `spans` contains
/// the start and the end of each record, in bytes. Damaged records are ignored.
fn find_label_type(storage: &Storage, file: &OpenFile, spans: &[(u64, u64)]) -> Result<LabelType> {
    let count = spans.len().min(MAX_SURVEYED_RECORDS);
    // The records are evenly spaced, and include the first and the last.
    let records: Vec<usize> = (0..count).map(|n| n * (spans.len() - 1) / (count - 1).max(1)).collect();
    let are_numbers = storage.in_parallel(&records, |&record| {
        let ((start, end), mut scratch) = (spans[record], Vec::new());
        // Read enough bytes for one label: a single label may be in the header or after it. If
        // there are several labels, only their number matters.
        let head =
            file.get(start, (end - start).min((FRAME_HEADER_BYTES + LABEL_HEADER_BYTES + 4) as u64), &mut scratch)?;
        let (Some((part_len, _)), Some(data)) = (parse_frame_header(head), head.get(FRAME_HEADER_BYTES..)) else {
            return Ok(false);
        };
        let Ok((label, _)) = label_and_image_ranges(data, part_len) else { return Ok(false) };
        Ok(label.len() > 4 || data.get(label).is_some_and(|label| integer_label(label).is_none()))
    })?;
    Ok(if are_numbers.contains(&true) { LabelType::Numbers } else { LabelType::Integers })
}

/// Returns the range of the keys of image records in a file written by InsightFace, or `None` for
/// other files. In a file written by InsightFace, the record with key 0 has two labels and no
/// image. Its first label is the end of the range. The records with keys from the end of the range
/// describe identities. `spans` contains each record's entry, and its start and end in bytes.
fn find_image_keys(file: &OpenFile, spans: &[(Entry, (u64, u64))]) -> Result<Option<std::ops::Range<u64>>> {
    let Some((_, (start, end))) = spans.iter().find(|(entry, _)| entry.key == 0) else { return Ok(None) };
    let mut scratch = Vec::new();
    let head = file.get(*start, (end - start).min(64), &mut scratch)?;
    let Some((len, _)) = parse_frame_header(head) else { return Ok(None) };
    let Some(data) = FRAME_HEADER_BYTES.checked_add(len).and_then(|end| head.get(FRAME_HEADER_BYTES..end)) else {
        return Ok(None);
    };
    match label_and_image_ranges(data, len) {
        Ok((labels, image)) if image.is_empty() && labels.start == LABEL_HEADER_BYTES && labels.len() == 8 => {
            let end_key = f32::from_le_bytes([
                data[LABEL_HEADER_BYTES],
                data[LABEL_HEADER_BYTES + 1],
                data[LABEL_HEADER_BYTES + 2],
                data[LABEL_HEADER_BYTES + 3],
            ]);
            Ok(Some(1..end_key.max(1.0) as u64))
        }
        _ => Ok(None),
    }
}
