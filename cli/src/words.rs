//! Replaces the crate's options in messages by the program's flags.
//!
//! The crate's messages name options in Rust syntax: `batch_size(64)`, `.keep_bad(true)`. Users of
//! the program set flags.

/// Options whose flags have the same name.
const OPTIONS: [&str; 8] = ["batch_size", "force", "keep_bad", "prefetch", "seed", "shard_size", "strict", "workers"];

/// Options whose flags have a different name.
const CALLS: [(&str, &str); 6] = [
    ("TableOptions::delimiter", "--delimiter"),
    ("TableOptions::file", "--file-column"),
    ("TableOptions::headerless", "--no-header"),
    ("TableOptions::label", "--label-column"),
    ("TableOptions::picture", "--picture-column"),
    ("TableOptions::root", "--root"),
];

/// Other phrases.
const PHRASES: [(&str, &str); 8] = [
    ("Loader::annotations_follow(Exif::Stored) or (Exif::Upright) says", "--annotations-follow stored or upright says"),
    ("Loader::classes or Loader::classes_file", "--classes FILE"),
    ("(`Loader::trace`)", "(--trace FILE)"),
    ("TableOptions::columns", "--columns"),
    ("TableOptions::gather", "--gather"),
    ("open one of the two with `Tar::open` or `Folder::open`, or move them apart", "move them apart"),
    ("; Coco::with_pictures takes another folder", ""),
    ("; `Lmdb::with_layout` reads others", ""),
];

/// Returns `message` with flags in place of options.
pub(crate) fn in_flags(message: &str) -> String {
    let message = PHRASES.iter().fold(message.to_owned(), |message, (rust, flag)| message.replace(rust, flag));
    let mut spelt = String::with_capacity(message.len());
    let mut rest = &*message;
    while let Some(open) = rest.find('(') {
        let (before, call) = rest.split_at(open);
        let at = before.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).map_or(0, |at| at + 1);
        let named = CALLS.iter().find(|(name, _)| *name == &before[at..]).map(|(_, flag)| (*flag).to_owned());
        let same = OPTIONS.contains(&&before[at..]).then(|| format!("--{}", before[at..].replace('_', "-")));
        let (Some(flag), Some(close)) = (named.or(same), call.find(')')) else {
            spelt += &rest[..=open];
            rest = &call[1..];
            continue;
        };
        spelt += before[..at].strip_suffix('.').unwrap_or(&before[..at]);
        spelt += &flag;
        match &call[1..close] {
            "" | "true" => {}
            value => spelt.extend([" ", value]),
        }
        rest = &call[close + 1..];
    }
    spelt + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_flags_and_other_words_stay() {
        for (message, expected) in [
            ("batch_size(0): a batch has at least one sample", "--batch-size 0: a batch has at least one sample"),
            ("use .force(true) to replace it", "use --force to replace it"),
            ("`.keep_bad(true)` packs them", "`--keep-bad` packs them"),
            ("say so with TableOptions::picture(\"jpg\") for", "say so with --picture-column \"jpg\" for"),
            ("choose with TableOptions::columns, or", "choose with --columns, or"),
            ("batch_size(8) with prefetch(1) fits", "--batch-size 8 with --prefetch 1 fits"),
            ("`.repeat(n)` makes one epoch (of n)", "`.repeat(n)` makes one epoch (of n)"),
            ("sample 3 (a(b): 2 (", "sample 3 (a(b): 2 ("),
            ("workers(", "workers("),
        ] {
            assert_eq!(in_flags(message), expected);
        }
    }
}
