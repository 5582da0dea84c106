//! Translates the crate's messages from Rust to Python spelling.
//!
//! The crate's messages show options as in Rust: `unlabeled(true)`,
//! `.soft_labels(classes, smoothing)`. Calls to setters become keyword arguments, and [`NAMES`]
//! contains replacements for other texts. `python/tests/test_message_spelling.py` fails if the
//! translation of a message in the crate's source still contains Rust spelling.

use warpfeed_cli::respell;

use crate::options::single_value_options;

/// Setters with the same name as their keyword argument, in addition to [`single_value_options`].
const OPTIONS: [&str; 18] = [
    "balanced",
    "budget",
    "classes",
    "classes_file",
    "distributed",
    "drop_field",
    "force",
    "cache_listing",
    "keep_undecodable",
    "keep_labels",
    "match_labels_by_name",
    "max_in_flight",
    "max_queued",
    "shard_samples",
    "shard_size",
    "soft_labels",
    "truncate",
    "weights",
];

/// A text comes before all shorter texts that it contains.
const NAMES: [(&str, &str); 62] = [
    ("call Checkpoint::any_augment", "remove \"augment\" from the state"),
    ("add .field(\"image\", Image::new())", "add fields={\"image\": Image()}"),
    ("use .host() for", "use device=\"cpu\" for"),
    (".decode_on(DecodeOn::Auto)", "decode_on=\"auto\""),
    (
        "Loader::annotations_follow(AnnotationFrame::Stored) or (AnnotationFrame::Upright)",
        "annotations_follow=\"stored\" or \"upright\"",
    ),
    ("rank(rank, world_size)", "rank=... and world_size=..."),
    ("DecodeOn::Auto", "decode_on=\"auto\""),
    ("Loader::classes or Loader::classes_file", "classes=[...] or classes_file=\"...\""),
    ("pixels that Loader::transform moves", "pixels that image_transform moves"),
    ("transform changes images", "image_transform changes images"),
    ("Loader::trace", "trace="),
    ("use Coco::with_images for", "use warpfeed.Coco(json, images=...) for"),
    ("TableOptions::image(", "TableOptions(image="),
    ("TableOptions::file(", "TableOptions(files="),
    ("TableOptions::label(", "TableOptions(label="),
    ("TableOptions::headerless", "TableOptions(headerless=True)"),
    ("with TableOptions::image", "with TableOptions(image=...)"),
    ("with TableOptions::label", "with TableOptions(label=...)"),
    ("open one of the two by its format, tar or folder, or move them apart", "move them apart"),
    ("; use `Lmdb::with_layout` for other layouts", ""),
    ("call Lmdb::rgb or Lmdb::bgr", "write encoded images, as convert_imageset --encoded does"),
    (". For an order within each source, use sampler::Mixture::of", ""),
    (", create the stream with warpfeed::cuda::stream, or return the batch with release_on", ""),
    ("with Concat::match_labels_by_name", "with warpfeed.Concat(parts, match_labels_by_name=True)"),
    ("source::Concat", "warpfeed.Concat"),
    ("use Zip::by_index if", "pass check_keys=False if"),
    ("with Zip::with_prefix", "with prefixes=[...]"),
    ("; allow padding, or exclude", "; set pad_short_videos=True, or exclude"),
    ("with LeRobotOptions::features", "with LeRobot(features=[...])"),
    ("last_batch(Pad)", "last_batch=\"pad\""),
    ("frames(true)", "frames=True"),
    ("size_buckets", "SizeBuckets"),
    ("augment_for", "augments"),
    ("LastBatch::Keep", "last_batch=\"keep\""),
    ("LastBatch::Drop", "last_batch=\"drop\""),
    ("LastBatch::Pad", "last_batch=\"pad\""),
    ("OnError::Skip", "max_skipped=n"),
    ("call PackedTokens::max_documents for the number", "set max_documents=... of PackedTokens"),
    ("Image::from_field(", "Image("),
    ("Image::frames(", "Image(frames="),
    ("DenseMap::image", "DenseMap(image=True)"),
    ("DenseMap::frames(", "DenseMap(frames="),
    ("DenseMap::source_field(name)", "DenseMap(source_field=name)"),
    ("Patches::images(", "Patches(images="),
    ("the content that Frames::encode returns", "a list of images"),
    ("open it with `Codecs::open`", "open it with the registry"),
    ("Boxes::new(", "Boxes("),
    ("Ragged::new(", "Ragged("),
    ("DenseMap::with_channels(", "DenseMap("),
    ("field::Boxes", "warpfeed.Boxes"),
    ("field::Patches", "warpfeed.Patches"),
    ("field::DenseMap", "warpfeed.DenseMap"),
    ("use Border::Constant", "leave out padding_mode"),
    ("Interpolation::Bilinear", "the interpolation \"bilinear\""),
    ("Augment::", "Augment."),
    ("Ragged::", "Ragged."),
    ("Boxes::", "Boxes."),
    ("MultiHot::separator(", "MultiHot(separator="),
    ("MultiHot::", "MultiHot."),
    ("use Mask::colors", "use Mask(classes={(128, 0, 0): 1})"),
    ("Mask::", "Mask."),
    ("TableOptions::", "TableOptions."),
];

pub(crate) fn in_python(message: &str) -> String {
    respell(message, &NAMES, |name, value| {
        let keyword = single_value_options()
            .find(|(setter, keyword)| [setter, keyword].contains(&&name))
            .map(|(_, keyword)| keyword);
        let option = keyword.or_else(|| OPTIONS.contains(&name).then_some(name))?;
        let value = match value {
            "" | "true" => "True".to_owned(),
            "false" => "False".to_owned(),
            values if name == "drop_field" => format!("[{values}]"),
            values if values.contains(',') => format!("({})", values.replace("..", "...")),
            value => value.to_owned(),
        };
        Some(format!("{option}={value}"))
    })
}
