//! Python spelling in the crate's messages.
//!
//! The crate's messages show options as its users write them: `unlabeled(true)`,
//! `.soft_labels(classes, smoothing)`. A call of a setter becomes a keyword argument by one rule,
//! whatever its values. Only other names are listed. `python/tests/test_words.py` reads every
//! message in the crate's source and fails for one that still has Rust spelling.

use warpfeed_cli::respell;

use crate::options::rows;

/// Setters that are keyword arguments of the same name, except those that are one value.
const OPTIONS: [&str; 16] = [
    "balanced",
    "match_labels_by_name",
    "classes",
    "classes_file",
    "distributed",
    "force",
    "index",
    "keep_bad",
    "keep_labels",
    "max_queued",
    "shard_samples",
    "shard_size",
    "soft_labels",
    "truncated",
    "weights",
    "without",
];

/// Other names, with the longer ones first.
const NAMES: [(&str, &str); 45] = [
    ("call Checkpoint::any_augment", "remove \"augment\" from the state"),
    ("add .field(\"image\", Image::new())", "add fields={\"image\": Image()}"),
    ("use .host() for", "use device=\"cpu\" for"),
    (".decode_on(DecodeOn::Auto)", "decode_on=\"auto\""),
    ("Loader::annotations_follow(Exif::Stored) or (Exif::Upright)", "annotations_follow=\"stored\" or \"upright\""),
    ("rank(rank, world_size)", "rank=... and world_size=..."),
    ("DecodeOn::Auto", "decode_on=\"auto\""),
    ("Loader::classes or Loader::classes_file", "classes=[...] or classes_file=\"...\""),
    ("Loader::transform, which", "transform=f, which"),
    ("Loader::trace", "trace="),
    ("Coco::with_images takes another folder", "warpfeed.Coco(json, images=...) takes another folder"),
    ("TableOptions::image(", "TableOptions(image="),
    ("TableOptions::file(", "TableOptions(files="),
    ("TableOptions::label(", "TableOptions(label="),
    ("TableOptions::headerless", "TableOptions(headerless=True)"),
    ("with TableOptions::image", "with TableOptions(image=...)"),
    ("with TableOptions::label", "with TableOptions(label=...)"),
    ("open one of the two by its format, tar or folder, or move them apart", "move them apart"),
    ("; `Lmdb::with_layout` reads others", ""),
    ("Lmdb::bgr or Lmdb::rgb says which", "write encoded images, as convert_imageset --encoded does"),
    (". For an order within each source, use sampler::Mixture::of", ""),
    (", make the stream with warpfeed::cuda::stream, or give the batch back with release_on", ""),
    ("with Concat::match_labels_by_name", "with warpfeed.Concat(parts, match_labels_by_name=True)"),
    ("source::Concat", "warpfeed.Concat"),
    ("LastBatch::Keep", "last_batch=\"keep\""),
    ("LastBatch::Drop", "last_batch=\"drop\""),
    ("LastBatch::Pad", "last_batch=\"pad\""),
    ("OnError::Skip", "max_skipped=n"),
    ("Image::of(", "Image("),
    ("open it with `Codecs::open`", "open it with the registry"),
    ("Boxes::new(", "Boxes("),
    ("Rows::new(", "Rows("),
    ("Map::of_channels(", "Map("),
    ("field::Boxes", "warpfeed.Boxes"),
    ("field::Map", "warpfeed.Map"),
    ("use Border::Constant", "leave out border"),
    ("Filter::Bilinear", "the filter \"bilinear\""),
    ("Augment::", "Augment."),
    ("Rows::", "Rows."),
    ("Boxes::", "Boxes."),
    ("MultiHot::separator(", "MultiHot(separator="),
    ("MultiHot::", "MultiHot."),
    ("Mask::colors gives each color its number", "Mask(classes={(128, 0, 0): 1}) gives each color its number"),
    ("Mask::", "Mask."),
    ("TableOptions::", "TableOptions."),
];

/// A message of the crate for users of Python.
pub(crate) fn in_python(message: &str) -> String {
    respell(message, &NAMES, |name, value| {
        let plain = rows().find(|(setter, _)| *setter == name).map(|(_, keyword)| keyword);
        let option = plain.or_else(|| OPTIONS.contains(&name).then_some(name))?;
        let value = match value {
            "" | "true" => "True".to_owned(),
            "false" => "False".to_owned(),
            values if name == "without" => format!("[{values}]"),
            values if values.contains(',') => format!("({})", values.replace("..", "...")),
            value => value.to_owned(),
        };
        Some(format!("{option}={value}"))
    })
}
