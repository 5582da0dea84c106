//! Formats a sample as the members of a tar file.

use std::ops::Range;

use crate::error::{Error, Result, reserve};
use crate::source::{CLASSES_MEMBER, KEY_RECORD, Sample};

const BLOCK_BYTES: usize = 512;
/// The two blocks of zeros that end a tar file.
pub(super) const END_BLOCKS: [u8; 2 * BLOCK_BYTES] = [0; 2 * BLOCK_BYTES];
/// Maximum size in a ustar header, which has 11 octal digits.
const MAX_OCTAL_SIZE: u64 = (1 << 33) - 1;

/// Appends the members of `sample` to `out`. Returns the sample's stem, which is the path of its
/// files without the extension. `previous_stem` is the stem of the previous sample in the shard.
/// Calls `on_field` with the name of each field, and the range of its data in `out`.
///
/// Fails if the sample has neither fields nor a label, if the name of a field cannot be a file
/// extension, or if the label is not a number. `out` may then contain some members.
pub(super) fn append_sample(
    sample: &Sample<'_>,
    previous_stem: &str,
    out: &mut Vec<u8>,
    mut on_field: impl FnMut(&str, Range<usize>),
) -> Result<String> {
    let label = sample.label()?;
    if sample.fields().is_empty() && label.is_none() {
        return Err(Error::in_source("the sample has no fields and no label, so it cannot be stored in a tar file"));
    }
    let mut stem = make_stem(sample.key());
    if stem == previous_stem {
        stem.push('~');
    }
    let key = (stem != sample.key()).then(|| sample.key());
    for &(name, value) in sample.fields() {
        // Readers would interpret these names as a different name or as a path.
        if name.is_empty() || name.contains(['/', '\0']) || name.to_lowercase() != name {
            return Err(Error::in_source(format!(
                "field name {name:?} is not a valid file extension: expected lower case, without \"/\""
            )));
        }
        on_field(name, append_member(out, &format!("{stem}.{name}"), key, &value.encoded(name))?);
    }
    if let Some(label) = label {
        on_field("cls", append_member(out, &format!("{stem}.cls"), key, label.to_string().as_bytes())?);
    }
    Ok(stem)
}

/// Returns the member with the class names, or no bytes if there are none.
pub(super) fn classes_member(names: &[String]) -> Result<Vec<u8>> {
    let mut member = Vec::new();
    if !names.is_empty() {
        let names = serde_json::to_vec(names).expect("text is JSON");
        append_member(&mut member, CLASSES_MEMBER, None, &names)?;
    }
    Ok(member)
}

/// Returns the path of the files for `key`, without the extension. The path is `key` itself, unless
/// readers would misinterpret this key, or would write the files outside the folder.
fn make_stem(key: &str) -> String {
    let (folders, base) = key.rsplit_once('/').map_or((None, key), |(folders, base)| (Some(folders), base));
    let safe_component =
        |name: &str| if matches!(name, "" | "." | "..") { "_".to_owned() } else { name.replace('\0', "_") };
    let base = safe_component(base).replace('.', "_");
    match folders {
        None => base,
        Some(folders) => {
            let folders: Vec<String> = folders.split('/').map(safe_component).collect();
            format!("{}/{base}", folders.join("/"))
        }
    }
}

/// Appends a PAX header if one is needed, the header, and the data, padded to whole blocks. Returns
/// the range of the data.
fn append_member(out: &mut Vec<u8>, path: &str, key: Option<&str>, data: &[u8]) -> Result<Range<usize>> {
    reserve(out, data.len() + 4 * BLOCK_BYTES)?;
    let size = data.len() as u64;
    let split = split_path(path);
    let mut records = String::new();
    if split.is_none() {
        records += &pax_record("path", path);
    }
    if size > MAX_OCTAL_SIZE {
        records += &pax_record("size", &size.to_string());
    }
    if let Some(key) = key {
        records += &pax_record(KEY_RECORD, key);
    }
    if !records.is_empty() {
        out.extend_from_slice(&build_header("", "./PaxHeaders/x", records.len() as u64, b'x'));
        out.extend_from_slice(records.as_bytes());
        out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
    }
    // This is the name for readers without PAX support. It is truncated at a character boundary.
    let (prefix, name) = split.unwrap_or_else(|| {
        let end = (0..=path.len().min(100)).rev().find(|&end| path.is_char_boundary(end)).unwrap_or(0);
        ("", &path[..end])
    });
    out.extend_from_slice(&build_header(prefix, name, size.min(MAX_OCTAL_SIZE), b'0'));
    let start = out.len();
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
    Ok(start..start + data.len())
}

/// Splits a path into the prefix (up to 155 bytes) and the name (up to 100 bytes) of a ustar
/// header. Returns `None` if this is impossible, or if the path is not ASCII.
fn split_path(path: &str) -> Option<(&str, &str)> {
    if !path.is_ascii() {
        return None;
    }
    if path.len() <= 100 {
        return Some(("", path));
    }
    let slash = path.len() - 101 + path[path.len() - 101..].find('/')?;
    (1..=155).contains(&slash).then(|| (&path[..slash], &path[slash + 1..])).filter(|(_, name)| !name.is_empty())
}

/// Returns a PAX record: `LENGTH KEYWORD=VALUE` and a line feed, where LENGTH is the length of the
/// whole record.
fn pax_record(keyword: &str, value: &str) -> String {
    let base_len = keyword.len() + value.len() + 3;
    let mut len = base_len + 1;
    while len != base_len + len.to_string().len() {
        len = base_len + len.to_string().len();
    }
    format!("{len} {keyword}={value}\n")
}

/// Returns a ustar header (POSIX.1-1988). The prefix, the name and the size must fit into their
/// fields.
fn build_header(prefix: &str, name: &str, size: u64, type_flag: u8) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut write = |offset: usize, bytes: &[u8]| block[offset..offset + bytes.len()].copy_from_slice(bytes);
    write(0, name.as_bytes());
    write(100, b"0000644\0"); // mode
    write(108, b"0000000\0"); // uid
    write(116, b"0000000\0"); // gid
    write(124, format!("{size:011o}\0").as_bytes());
    write(136, b"00000000000\0"); // mtime
    write(148, b"        "); // chksum, which counts as spaces in the checksum
    write(156, &[type_flag]);
    write(257, b"ustar\x0000"); // magic and version
    write(345, prefix.as_bytes());
    let checksum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{checksum:06o}\0 ").as_bytes());
    block
}
