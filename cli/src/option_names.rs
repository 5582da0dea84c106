//! Replaces the library's options in messages with command-line flags.
//!
//! The messages name options in Rust syntax, such as `batch_size(64)` and
//! `.keep_undecodable(true)`.

/// Options whose flag has the same name, with hyphens.
const OPTIONS: [&str; 10] = [
    "batch_size",
    "force",
    "keep_undecodable",
    "prefetch",
    "seed",
    "shard_samples",
    "shard_size",
    "strict",
    "convert_to_u8",
    "workers",
];

const TABLE_CALLS: [(&str, &str); 6] = [
    ("TableOptions::delimiter", "--delimiter"),
    ("TableOptions::file", "--file-column"),
    ("TableOptions::headerless", "--no-header"),
    ("TableOptions::label", "--label-column"),
    ("TableOptions::image", "--image-column"),
    ("TableOptions::root", "--root"),
];

const PHRASES: [(&str, &str); 9] = [
    (
        "Loader::annotations_follow(AnnotationFrame::Stored) or (AnnotationFrame::Upright)",
        "--annotations-follow stored or upright",
    ),
    ("Loader::classes or Loader::classes_file", "--classes FILE"),
    ("(`Loader::trace`)", "(--trace FILE)"),
    ("TableOptions::columns", "--columns"),
    ("TableOptions::gather", "--gather"),
    ("open one of the two by its format, tar or folder", "choose with --format tar or --format folder"),
    ("; use Coco::with_images for a different folder", ""),
    ("; use `Lmdb::with_layout` for other layouts", ""),
    ("call Lmdb::rgb or Lmdb::bgr", "write encoded images, as convert_imageset --encoded does"),
];

pub(crate) fn in_flags(message: &str) -> String {
    respell(message, &PHRASES, |name, value| {
        let table_flag = TABLE_CALLS.iter().find(|(call, _)| *call == name).map(|(_, flag)| (*flag).to_owned());
        let flag = table_flag.or_else(|| OPTIONS.contains(&name).then(|| format!("--{}", name.replace('_', "-"))))?;
        Some(if matches!(value, "" | "true") { flag } else { format!("{flag} {value}") })
    })
}

/// Replaces `phrases` in `message`, and then each call that sets an option, such as
/// `.batch_size(64)`. `call` receives the name of a call and the text in its parentheses, and
/// returns the replacement, or `None` if the call does not set an option. A dot before the name of a
/// replaced call is removed.
pub fn respell(message: &str, phrases: &[(&str, &str)], call: impl Fn(&str, &str) -> Option<String>) -> String {
    let message = phrases.iter().fold(message.to_owned(), |message, (rust, other)| message.replace(rust, other));
    let mut respelled = String::with_capacity(message.len());
    let mut rest = &*message;
    while let Some(paren) = rest.find('(') {
        let (before, after) = (&rest[..paren], &rest[paren + 1..]);
        let prefix = before.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        let option = after.split_once(')').and_then(|(value, end)| Some((call(&before[prefix.len()..], value)?, end)));
        match option {
            Some((option, end)) => {
                respelled += prefix.strip_suffix('.').unwrap_or(prefix);
                respelled += &option;
                rest = end;
            }
            None => {
                respelled += &rest[..=paren];
                rest = after;
            }
        }
    }
    respelled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_flags_and_other_text_is_unchanged() {
        for (message, expected) in [
            ("batch_size(0): expected at least 1", "--batch-size 0: expected at least 1"),
            ("use .force(true) to replace it", "use --force to replace it"),
            ("`.keep_undecodable(true)` packs them", "`--keep-undecodable` packs them"),
            ("say so with TableOptions::image(\"jpg\") for", "say so with --image-column \"jpg\" for"),
            ("choose with TableOptions::columns, or", "choose with --columns, or"),
            ("batch_size(8) with prefetch(1) fits", "--batch-size 8 with --prefetch 1 fits"),
            ("`.repeat(n)` makes one epoch (of n)", "`.repeat(n)` makes one epoch (of n)"),
            ("sample 3 (a(b): 2 (", "sample 3 (a(b): 2 ("),
            ("workers(", "workers("),
            ("Fotos/ä(1).jpg: workers(0)", "Fotos/ä(1).jpg: --workers 0"),
        ] {
            assert_eq!(in_flags(message), expected);
        }
    }
}
