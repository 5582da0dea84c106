//! The formats, each with a writer of the simplest valid files, and with what it can hold.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use warpfeed::pack::{LmdbWriter, TarWriter, WriteOptions, Writer};
use warpfeed::source::{Memory, OwnedSample};

use super::bytes::{Flat, field, little, npy, npy_i64, varint, zip};
use super::drawn::{Kind, One, Set};

/// One format.
pub struct Format {
    pub name: &'static str,
    /// Whether it can hold the set.
    pub holds: fn(&Set) -> bool,
    /// Writes the set into an empty folder. Returns the path to open, relative to the folder.
    pub write: fn(&Set, &Path) -> &'static str,
    /// The keys of its samples.
    pub key: fn(&Set, usize) -> String,
    /// Whether its files are mapped, so that `mmap(false)` has an effect.
    pub mapped: bool,
}

fn by_class(set: &Set, n: usize) -> String {
    format!("{}/{}", set.classes[set.samples[n].class], set.samples[n].name)
}

fn by_number(_: &Set, n: usize) -> String {
    n.to_string()
}

fn by_name(set: &Set, n: usize) -> String {
    set.samples[n].name.clone()
}

fn labelled(set: &Set) -> bool {
    set.kind != Kind::Boxes
}

/// Sets without columns beside the picture and the label.
fn plain(set: &Set) -> bool {
    matches!(set.kind, Kind::Labelled | Kind::Pixels)
}

fn pixels(set: &Set) -> bool {
    set.kind == Kind::Pixels
}

fn boxes(set: &Set) -> bool {
    set.kind == Kind::Boxes
}

pub const FORMATS: &[Format] = &[
    Format { name: "folder", holds: plain, write: folder, key: by_class, mapped: false },
    Format { name: "tar", holds: |_| true, write: tar, key: by_class, mapped: true },
    Format { name: "tar shards", holds: |_| true, write: shards, key: by_class, mapped: true },
    Format { name: "lmdb", holds: |_| true, write: lmdb, key: by_class, mapped: false },
    Format { name: "csv", holds: labelled, write: csv, key: |set, n| format!("pictures/{}", by_name(set, n)), mapped: false },
    Format { name: "tsv", holds: labelled, write: tsv, key: |set, n| format!("pictures/{}", by_name(set, n)), mapped: false },
    Format { name: "json lines", holds: labelled, write: jsonl, key: |set, n| format!("pictures/{}", by_name(set, n)), mapped: false },
    Format { name: "mds", holds: labelled, write: mds, key: by_number, mapped: true },
    Format { name: "litdata", holds: labelled, write: litdata, key: by_number, mapped: true },
    Format { name: "beton", holds: |set| plain(set) && (pixels(set) || set.codec() == Some("jpg")), write: beton, key: by_number, mapped: true },
    Format { name: "recordio", holds: plain, write: recordio, key: by_number, mapped: true },
    Format { name: "tfrecord", holds: labelled, write: tfrecord, key: |_, n| format!("x/{n}"), mapped: true },
    #[cfg(feature = "parquet")]
    Format { name: "parquet", holds: labelled, write: parquet, key: by_number, mapped: false },
    Format { name: "arrow", holds: labelled, write: arrow, key: by_number, mapped: true },
    Format { name: "npy", holds: pixels, write: npy_folder, key: by_number, mapped: true },
    Format { name: "npz", holds: pixels, write: npz, key: by_number, mapped: true },
    Format { name: "safetensors", holds: pixels, write: safetensors, key: by_number, mapped: true },
    Format { name: "torch", holds: pixels, write: torch, key: by_number, mapped: true },
    #[cfg(feature = "hdf5")]
    Format { name: "hdf5", holds: pixels, write: hdf5, key: by_number, mapped: true },
    Format { name: "coco", holds: boxes, write: coco, key: by_name, mapped: false },
    Format { name: "yolo", holds: boxes, write: yolo, key: by_name, mapped: false },
    Format { name: "voc", holds: boxes, write: voc, key: by_name, mapped: false },
];

fn put(root: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// The samples with all that the set has.
pub fn owned(set: &Set) -> Vec<OwnedSample> {
    let of = |(n, one): (usize, &One)| {
        let sample = OwnedSample::new(by_class(set, n)).field(one.extension, one.picture.clone());
        match set.kind {
            Kind::Labelled | Kind::Pixels => sample.label(one.class as i64),
            Kind::Columns => {
                let score = one.score.to_string();
                sample.field("score.txt", score).field("caption.txt", one.caption.clone()).label(one.class as i64)
            }
            Kind::Boxes => {
                let edges: Vec<u8> = one.boxes.iter().flat_map(|(edges, _)| edges).flat_map(|edge| (*edge as f32).to_le_bytes()).collect();
                let classes: Vec<i64> = one.boxes.iter().map(|(_, class)| *class as i64).collect();
                sample.field("boxes.npy", npy("<f4", &[classes.len(), 4], &edges)).field("boxes.class.npy", npy_i64(&classes))
            }
        }
    };
    set.samples.iter().enumerate().map(of).collect()
}

pub fn memory(set: &Set) -> Memory {
    Memory::new(owned(set)).with_classes(set.classes.clone())
}

fn folder(set: &Set, root: &Path) -> &'static str {
    for (n, one) in set.samples.iter().enumerate() {
        put(root, &format!("{}.{}", by_class(set, n), one.extension), &one.picture);
    }
    ""
}

fn written(set: &Set, mut writer: impl Writer) {
    for sample in owned(set) {
        writer.put(&sample.as_sample().unwrap()).unwrap();
    }
    Box::new(writer).finish().unwrap();
}

fn options(set: &Set) -> WriteOptions {
    WriteOptions { classes: set.classes.clone(), ..WriteOptions::default() }
}

fn tar(set: &Set, root: &Path) -> &'static str {
    written(set, TarWriter::create(root.join("set.tar"), &options(set)).unwrap());
    "set.tar"
}

fn shards(set: &Set, root: &Path) -> &'static str {
    let options = WriteOptions { shard_size: Some(8_000), ..options(set) };
    written(set, TarWriter::create(root.join("set.tar"), &options).unwrap());
    ""
}

fn lmdb(set: &Set, root: &Path) -> &'static str {
    written(set, LmdbWriter::create(root.join("set.lmdb"), &options(set)).unwrap());
    "set.lmdb"
}

/// Names of the columns beside the picture, and the values of a sample as text.
fn columns(set: &Set) -> &'static [&'static str] {
    if set.kind == Kind::Columns { &["label", "score", "caption"] } else { &["label"] }
}

fn separated(set: &Set, root: &Path, separator: &str) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut lines = vec![[&["path"], columns(set)].concat().join(separator)];
    for one in &set.samples {
        let path = format!("pictures/{}.{}", one.name, one.extension);
        put(root, &path, &one.picture);
        let mut cells = vec![path, one.class.to_string()];
        if set.kind == Kind::Columns {
            cells.extend([one.score.to_string(), quoted(&one.caption)]);
        }
        lines.push(cells.join(separator));
    }
    lines.join("\n") + "\n"
}

fn csv(set: &Set, root: &Path) -> &'static str {
    put(root, "set.csv", separated(set, root, ","));
    "set.csv"
}

fn tsv(set: &Set, root: &Path) -> &'static str {
    put(root, "set.tsv", separated(set, root, "\t"));
    "set.tsv"
}

fn jsonl(set: &Set, root: &Path) -> &'static str {
    let mut text = String::new();
    for one in &set.samples {
        let path = format!("pictures/{}.{}", one.name, one.extension);
        put(root, &path, &one.picture);
        let row = match set.kind {
            Kind::Columns => json!({"path": path, "label": one.class, "score": one.score, "caption": one.caption}),
            _ => json!({"path": path, "label": one.class}),
        };
        text += &format!("{row}\n");
    }
    put(root, "set.jsonl", text);
    "set.jsonl"
}

/// Samples of a shard of the formats with shards.
const SHARD: usize = 4;

/// Bytes after a table of their ends: how MDS and LitData begin a shard. `before` lies between.
fn with_offsets(before: &[u8], rows: &[Vec<u8>]) -> Vec<u8> {
    let mut at = (4 + 4 * (rows.len() + 1) + before.len()) as u32;
    let mut out = (rows.len() as u32).to_le_bytes().to_vec();
    out.extend(at.to_le_bytes());
    for row in rows {
        at += row.len() as u32;
        out.extend(at.to_le_bytes());
    }
    out.extend(before);
    rows.iter().for_each(|row| out.extend(row));
    out
}

fn length(bytes: &[u8]) -> [u8; 4] {
    (bytes.len() as u32).to_le_bytes()
}

fn mds(set: &Set, root: &Path) -> &'static str {
    // Sets of pixels are arrays of any shape, others encoded pictures.
    let side = set.samples[0].size;
    let picture = match (set.kind, set.codec()) {
        (Kind::Pixels, _) => format!("ndarray:uint8:{},{},3", side.1, side.0),
        (_, Some("jpg")) => "jpeg".to_owned(),
        (_, Some(_)) => "png".to_owned(),
        (_, None) => "bytes".to_owned(),
    };
    let sized = set.kind == Kind::Pixels;
    let size = if sized { json!(side.0 * side.1 * 3) } else { json!(null) };
    let (names, encodings, sizes) = match set.kind {
        Kind::Columns => (
            json!(["caption", "image", "label", "score"]),
            json!(["str", picture, "int", "int"]),
            json!([null, size, 8, 8]),
        ),
        _ => (json!(["image", "label"]), json!([picture, "int"]), json!([size, 8])),
    };
    let mut listed = Vec::new();
    for (number, samples) in set.samples.chunks(SHARD).enumerate() {
        let row = |one: &One| {
            let image = if sized { &one.pixels } else { &one.picture };
            let mut row = Vec::new();
            if set.kind == Kind::Columns {
                row.extend(length(one.caption.as_bytes()));
            }
            if !sized {
                row.extend(length(image));
            }
            if set.kind == Kind::Columns {
                row.extend(one.caption.as_bytes());
            }
            row.extend(image);
            row.extend((one.class as i64).to_le_bytes());
            if set.kind == Kind::Columns {
                row.extend(one.score.to_le_bytes());
            }
            row
        };
        let rows: Vec<_> = samples.iter().map(row).collect();
        let mut shard = json!({
            "column_encodings": encodings, "column_names": names, "column_sizes": sizes,
            "compression": null, "format": "mds", "hashes": [], "size_limit": 1 << 26, "version": 2,
        });
        let bytes = with_offsets(shard.to_string().as_bytes(), &rows);
        let name = format!("shard.{number:05}.mds");
        shard["raw_data"] = json!({"basename": name, "bytes": bytes.len(), "hashes": {}});
        shard["zip_data"] = json!(null);
        shard["samples"] = json!(samples.len());
        put(root, &name, bytes);
        listed.push(shard);
    }
    put(root, "index.json", json!({"shards": listed, "version": 2}).to_string());
    ""
}

fn litdata(set: &Set, root: &Path) -> &'static str {
    let (names, formats) = match set.kind {
        Kind::Columns => (json!(["image", "label", "score", "caption"]), json!(["jpeg", "int", "int", "str"])),
        _ => (json!(["image", "label"]), json!(["jpeg", "int"])),
    };
    let leaf = json!({"type": null, "context": null, "children_spec": []});
    let leaves = vec![leaf; formats.as_array().unwrap().len()];
    let spec = json!([1, {"type": "builtins.dict", "context": names.to_string(), "children_spec": leaves}]);
    let mut chunks = Vec::new();
    for (number, samples) in set.samples.chunks(SHARD).enumerate() {
        let row = |one: &One| {
            let mut values = vec![one.picture.clone(), (one.class as i64).to_le_bytes().to_vec()];
            if set.kind == Kind::Columns {
                values.extend([one.score.to_le_bytes().to_vec(), one.caption.clone().into_bytes()]);
            }
            [values.iter().flat_map(|value| length(value)).collect(), values.concat()].concat()
        };
        let bytes = with_offsets(&[], &samples.iter().map(row).collect::<Vec<_>>());
        let name = format!("chunk-0-{number}.bin");
        chunks.push(json!({"chunk_bytes": bytes.len(), "chunk_size": samples.len(), "dim": null, "filename": name}));
        put(root, &name, bytes);
    }
    let config = json!({
        "chunk_bytes": null, "chunk_size": SHARD, "compression": null, "data_format": formats,
        "data_spec": spec.to_string(), "encryption": null, "item_loader": "PyTreeLoader",
    });
    put(root, "index.json", json!({"chunks": chunks, "config": config, "updated_at": "0"}).to_string());
    ""
}

/// The structures of FFCV's writer, as in `tests/fixtures/formats/beton.py`.
fn beton(set: &Set, root: &Path) -> &'static str {
    const PAGE: usize = 1 << 15;
    let (count, raw) = (set.samples.len(), set.kind == Kind::Pixels);
    let mut head = Vec::new();
    for (name, kind) in [("image", 2_u8), ("label", 1)] {
        let mut description = vec![0; 1041];
        description[0] = kind;
        description[1..=name.len()].copy_from_slice(name.as_bytes());
        head.extend(description);
    }
    let start = (24 + head.len() + 24 * count).next_multiple_of(PAGE);
    let (mut data, mut table) = (Vec::<u8>::new(), Vec::new());
    for (n, one) in set.samples.iter().enumerate() {
        let picture = if raw { &one.pixels } else { &one.picture };
        if data.len() % PAGE + picture.len() > PAGE {
            data.resize(data.len().next_multiple_of(PAGE), 0);
        }
        let place = (start + data.len()) as u64;
        data.extend(picture);
        let (width, height) = if raw { one.size } else { (0, 0) };
        head.push(u8::from(raw));
        head.extend((width as u16).to_le_bytes());
        head.extend((height as u16).to_le_bytes());
        head.extend(place.to_le_bytes());
        head.extend([0; 3]);
        head.extend((one.class as i64).to_le_bytes());
        table.extend([n as u64, place, picture.len() as u64].map(u64::to_le_bytes).concat());
    }
    data.resize(data.len().next_multiple_of(PAGE), 0);
    let mut out = [2_u16.to_le_bytes(), 2_u16.to_le_bytes()].concat();
    out.extend((PAGE as u32).to_le_bytes());
    out.extend((count as u64).to_le_bytes());
    out.extend(((start + data.len()) as u64).to_le_bytes());
    out.extend(head);
    out.resize(start, 0);
    put(root, "set.beton", [out, data, table].concat());
    "set.beton"
}

fn recordio(set: &Set, root: &Path) -> &'static str {
    const MAGIC: [u8; 4] = 0xced7_230a_u32.to_le_bytes();
    let (mut out, mut index) = (Vec::new(), String::new());
    for (n, one) in set.samples.iter().enumerate() {
        index += &format!("{n}\t{}\n", out.len());
        let record = [&[0; 4][..], &(one.class as f32).to_le_bytes(), &[0; 16], &one.picture].concat();
        assert!(record.chunks(4).all(|word| word != MAGIC), "the record has to be split");
        out.extend(MAGIC);
        out.extend((record.len() as u32).to_le_bytes());
        out.extend(record);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    put(root, "set.rec", out);
    put(root, "set.idx", index);
    "set.rec"
}

fn tfrecord(set: &Set, root: &Path) -> &'static str {
    let checksum = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let entry = |name: &str, feature: Vec<u8>| field(1, &[field(1, name.as_bytes()), field(2, &feature)].concat());
    let bytes = |value: &[u8]| field(1, &field(1, value));
    let number = |value: i64| field(3, &field(1, &varint(value as u64)));
    let mut out = Vec::new();
    for one in &set.samples {
        let mut entries = vec![
            entry("image/encoded", bytes(&one.picture)),
            entry("image/class/label", number(one.class as i64)),
        ];
        if set.kind == Kind::Columns {
            entries.push(entry("score", number(one.score)));
            entries.push(entry("caption", bytes(one.caption.as_bytes())));
        }
        let example = field(1, &entries.concat());
        let len = (example.len() as u64).to_le_bytes();
        out.extend(len);
        out.extend(checksum(&len));
        out.extend(&example);
        out.extend(checksum(&example));
    }
    put(root, "x.tfrecord", out);
    "x.tfrecord"
}

#[cfg(feature = "parquet")]
fn parquet(set: &Set, root: &Path) -> &'static str {
    use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    let more = match set.kind {
        Kind::Columns => "required int64 score; required binary caption (UTF8);",
        _ => "",
    };
    let message = format!("message m {{ required binary image; required int64 label; {more} }}");
    let schema = Arc::new(parse_message_type(&message).unwrap());
    // Pages of a few pictures, and several row groups.
    let properties = WriterProperties::builder().set_write_batch_size(1).set_data_page_size_limit(2_000);
    let file = fs::File::create(root.join("set.parquet")).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
    for samples in set.samples.chunks(7) {
        let mut group = writer.next_row_group().unwrap();
        let texts = |of: &dyn Fn(&One) -> Vec<u8>| samples.iter().map(|one| of(one).into()).collect::<Vec<ByteArray>>();
        let numbers = |of: &dyn Fn(&One) -> i64| samples.iter().map(of).collect::<Vec<_>>();
        let count = if set.kind == Kind::Columns { 4 } else { 2 };
        for column in 0..count {
            let mut out = group.next_column().unwrap().unwrap();
            match column {
                0 => out.typed::<ByteArrayType>().write_batch(&texts(&|one| one.picture.clone()), None, None),
                1 => out.typed::<Int64Type>().write_batch(&numbers(&|one| one.class as i64), None, None),
                2 => out.typed::<Int64Type>().write_batch(&numbers(&|one| one.score), None, None),
                _ => out.typed::<ByteArrayType>().write_batch(&texts(&|one| one.caption.clone().into()), None, None),
            }
            .unwrap();
            out.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    "set.parquet"
}

/// A message of Arrow's stream format. 1 is a schema, 3 a batch of records.
fn message(kind: u8, header: Flat, body: &[u8]) -> Vec<u8> {
    let values = vec![(0, Flat::Short(4)), (1, Flat::Byte(kind)), (2, header), (3, Flat::Long(body.len() as i64))];
    let head = Flat::Table(values).file();
    [&[0xff; 4], &(head.len() as u32).to_le_bytes()[..], &head, body].concat()
}

fn arrow(set: &Set, root: &Path) -> &'static str {
    /// Types of Flatbuffers: `Int`, `Binary` and `Utf8`.
    const TYPES: [u8; 3] = [2, 4, 5];
    let all = [("image", 1), ("label", 0), ("score", 0), ("caption", 2)];
    let columns = &all[..if set.kind == Kind::Columns { 4 } else { 2 }];
    let named = |&(name, kind): &(&'static str, usize)| {
        let of_type = match kind {
            0 => vec![(0, Flat::Int(64)), (1, Flat::Byte(1))],
            _ => Vec::new(),
        };
        let (of_type, children) = (Flat::Table(of_type), Flat::Tables(Vec::new()));
        Flat::Table(vec![(0, Flat::Text(name)), (2, Flat::Byte(TYPES[kind])), (3, of_type), (5, children)])
    };
    let schema = Flat::Table(vec![(1, Flat::Tables(columns.iter().map(named).collect()))]);
    let mut out = message(1, schema, &[]);
    for samples in set.samples.chunks(5) {
        let (mut body, mut buffers, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        let mut buffer = |bytes: &[u8]| {
            buffers.extend(little(&[body.len() as i64, bytes.len() as i64]));
            body.extend(bytes);
            body.resize(body.len().next_multiple_of(8), 0);
        };
        for (column, _) in columns {
            nodes.extend(little(&[samples.len() as i64, 0]));
            buffer(&[]);
            let bytes: Vec<&[u8]> = match *column {
                "image" => samples.iter().map(|one| &one.picture[..]).collect(),
                "caption" => samples.iter().map(|one| one.caption.as_bytes()).collect(),
                "label" => {
                    buffer(&little(&samples.iter().map(|one| one.class as i64).collect::<Vec<_>>()));
                    continue;
                }
                _ => {
                    buffer(&little(&samples.iter().map(|one| one.score).collect::<Vec<_>>()));
                    continue;
                }
            };
            let mut ends = vec![0_i32];
            for bytes in &bytes {
                ends.push(ends.last().unwrap() + bytes.len() as i32);
            }
            buffer(&ends.iter().flat_map(|end| end.to_le_bytes()).collect::<Vec<_>>());
            buffer(&bytes.concat());
        }
        let rows = Flat::Long(samples.len() as i64);
        let batch = Flat::Table(vec![(0, rows), (1, Flat::Structs(16, nodes)), (2, Flat::Structs(16, buffers))]);
        out.extend(message(3, batch, &body));
    }
    out.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    put(root, "set.arrow", out);
    "set.arrow"
}

/// All pixels, the sides of the array, and all labels.
fn arrays(set: &Set) -> (Vec<u8>, [usize; 4], Vec<i64>) {
    let (width, height) = set.samples[0].size;
    let pixels = set.samples.iter().flat_map(|one| &one.pixels).copied().collect();
    let labels = set.samples.iter().map(|one| one.class as i64).collect();
    (pixels, [set.samples.len(), height as usize, width as usize, 3], labels)
}

fn npy_folder(set: &Set, root: &Path) -> &'static str {
    let (pixels, shape, labels) = arrays(set);
    put(root, "images.npy", npy("|u1", &shape, &pixels));
    put(root, "labels.npy", npy_i64(&labels));
    ""
}

fn npz(set: &Set, root: &Path) -> &'static str {
    let (pixels, shape, labels) = arrays(set);
    let files = [("images.npy".to_owned(), npy("|u1", &shape, &pixels)), ("labels.npy".to_owned(), npy_i64(&labels))];
    put(root, "set.npz", zip(&files));
    "set.npz"
}

fn safetensors(set: &Set, root: &Path) -> &'static str {
    let (pixels, shape, labels) = arrays(set);
    let end = pixels.len();
    let mut head = json!({
        "images": {"dtype": "U8", "shape": shape, "data_offsets": [0, end]},
        "labels": {"dtype": "I64", "shape": [labels.len()], "data_offsets": [end, end + 8 * labels.len()]},
    })
    .to_string();
    while !head.len().is_multiple_of(8) {
        head.push(' ');
    }
    let len = (head.len() as u64).to_le_bytes();
    put(root, "set.safetensors", [&len, head.as_bytes(), &pixels, &little(&labels)].concat());
    "set.safetensors"
}

/// The pickle of a dictionary of two tensors, as `torch.save` writes it.
fn torch(set: &Set, root: &Path) -> &'static str {
    fn number(out: &mut Vec<u8>, number: usize) {
        out.push(b'J');
        out.extend((number as i32).to_le_bytes());
    }
    fn text(out: &mut Vec<u8>, text: &str) {
        out.push(b'X');
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text.as_bytes());
    }
    fn tuple(out: &mut Vec<u8>, numbers: &[usize]) {
        out.push(b'(');
        numbers.iter().for_each(|side| number(out, *side));
        out.push(b't');
    }
    let (pixels, shape, labels) = arrays(set);
    let mut out = b"\x80\x02}(".to_vec();
    for (n, (name, storage, shape)) in
        [("images", "ByteStorage", &shape[..]), ("labels", "LongStorage", &[labels.len()])].into_iter().enumerate()
    {
        text(&mut out, name);
        out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        text(&mut out, "storage");
        out.extend(format!("ctorch\n{storage}\n").as_bytes());
        text(&mut out, &n.to_string());
        text(&mut out, "cpu");
        number(&mut out, shape.iter().product());
        out.extend(b"tQ");
        number(&mut out, 0);
        tuple(&mut out, shape);
        let strides: Vec<usize> = (1..=shape.len()).map(|axis| shape[axis..].iter().product()).collect();
        tuple(&mut out, &strides);
        out.extend(b"\x89ccollections\nOrderedDict\n)RtR");
    }
    out.extend(b"u.");
    let files = [
        ("set/data.pkl".to_owned(), out),
        ("set/byteorder".to_owned(), b"little".to_vec()),
        ("set/data/0".to_owned(), pixels),
        ("set/data/1".to_owned(), little(&labels)),
        ("set/version".to_owned(), b"3\n".to_vec()),
    ];
    put(root, "set.pt", zip(&files));
    "set.pt"
}

#[cfg(feature = "hdf5")]
fn hdf5(set: &Set, root: &Path) -> &'static str {
    let (pixels, shape, labels) = arrays(set);
    let mut file = hdf5_pure::FileBuilder::new();
    file.create_dataset("images").with_u8_data(&pixels).with_shape(&shape.map(|side| side as u64));
    file.create_dataset("labels").with_i64_data(&labels).with_shape(&[labels.len() as u64]);
    put(root, "set.h5", file.finish().unwrap());
    "set.h5"
}

fn coco(set: &Set, root: &Path) -> &'static str {
    let (mut images, mut annotations) = (Vec::new(), Vec::new());
    for (n, one) in set.samples.iter().enumerate() {
        let name = format!("{}.{}", one.name, one.extension);
        put(root, &name, &one.picture);
        images.push(json!({"id": n, "file_name": name, "width": one.size.0, "height": one.size.1}));
        for ([left, upper, right, lower], class) in &one.boxes {
            let bbox = [*left, *upper, right - left, lower - upper];
            annotations.push(json!({"id": annotations.len(), "image_id": n, "category_id": 10 + class, "bbox": bbox}));
        }
    }
    let categories: Vec<_> =
        set.classes.iter().enumerate().map(|(n, name)| json!({"id": 10 + n, "name": name})).collect();
    let set = json!({"images": images, "annotations": annotations, "categories": categories});
    put(root, "_annotations.coco.json", set.to_string());
    ""
}

fn yolo(set: &Set, root: &Path) -> &'static str {
    for one in &set.samples {
        put(root, &format!("images/{}.{}", one.name, one.extension), &one.picture);
        let line = |([left, upper, right, lower], class): &([u32; 4], usize)| {
            let share = |numbers: u32, side: u32| f64::from(numbers) / f64::from(side);
            let (width, height) = one.size;
            let centre = (share(left + right, 2 * width), share(upper + lower, 2 * height));
            format!("{class} {} {} {} {}\n", centre.0, centre.1, share(right - left, width), share(lower - upper, height))
        };
        put(root, &format!("labels/{}.txt", one.name), one.boxes.iter().map(line).collect::<String>());
    }
    let names: String = set.classes.iter().map(|name| format!("- {name}\n")).collect();
    put(root, "data.yaml", format!("train: images\nnames:\n{names}"));
    "data.yaml"
}

fn voc(set: &Set, root: &Path) -> &'static str {
    for one in &set.samples {
        put(root, &format!("JPEGImages/{}.{}", one.name, one.extension), &one.picture);
        let object = |([left, upper, right, lower], class): &([u32; 4], usize)| {
            let (name, left, upper) = (&set.classes[*class], left + 1, upper + 1);
            format!(
                "<object><name>{name}</name><bndbox><xmin>{left}</xmin><ymin>{upper}</ymin><xmax>{right}</xmax>\
                 <ymax>{lower}</ymax></bndbox></object>"
            )
        };
        let objects: String = one.boxes.iter().map(object).collect();
        let (width, height) = one.size;
        let size = format!("<size><width>{width}</width><height>{height}</height><depth>3</depth></size>");
        put(root, &format!("Annotations/{}.xml", one.name), format!("<annotation>{size}{objects}</annotation>"));
    }
    ""
}
