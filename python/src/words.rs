/// What the crate's messages call by its name in Rust, and its name here.
const NAMES: [(&str, &str); 11] = [
    ("use .host() for", "use device=\"cpu\" for"),
    (".decode_on(DecodeOn::Auto)", "decode_on=\"auto\""),
    ("pinned(true)", "pin_memory=True"),
    (".pinned(false)", "pin_memory=False"),
    ("`.force(true)`", "force=True"),
    ("Loader::classes or Loader::classes_file", "classes=[...] or classes_file=\"...\""),
    ("`Loader::trace`", "`trace=`"),
    ("Coco::with_pictures takes another folder", "warpfeed.Coco(json, pictures=...) takes another folder"),
    ("Augment::", "Augment."),
    ("`.repeat(n)`", "`repeat=n`"),
    ("DecodeOn::Auto lets", "decode_on=\"auto\" lets"),
];

/// A message of the crate for users of Python.
pub(crate) fn in_python(message: &str) -> String {
    NAMES.iter().fold(message.to_owned(), |message, (rust, python)| message.replace(rust, python))
}
