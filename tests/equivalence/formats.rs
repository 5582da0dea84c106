//! Dataset formats without optional dependencies. Each has a writer that produces a minimal valid
//! dataset, and a predicate for the datasets that the format can represent.

use std::fs;
use std::path::Path;

use serde_json::json;
use warpfeed::pack::{DatasetWriter, LmdbWriter, Pack, Recode, TarWriter, WriteOptions};
use warpfeed::source::{Memory, OwnedSample};

use super::bytes::{Flat, crc32c, field, little, npy, npy_i64, varint, zip};
use super::random_dataset::{Kind, RandomDataset, SampleData, Value};

pub struct Format {
    pub name: &'static str,
    pub holds: fn(&RandomDataset) -> bool,
    /// Writes the dataset into an empty folder. Returns the path to open, relative to the folder.
    pub write: fn(&RandomDataset, &Path) -> String,
    pub key: fn(&RandomDataset, usize) -> String,
    /// Whether the test also opens the files with `mmap(false)`.
    pub mapped: bool,
}

fn by_class(dataset: &RandomDataset, n: usize) -> String {
    format!("{}/{}", dataset.classes[dataset.samples[n].class], dataset.samples[n].name)
}

pub fn by_number(_: &RandomDataset, n: usize) -> String {
    n.to_string()
}

fn by_name(dataset: &RandomDataset, n: usize) -> String {
    dataset.samples[n].name.clone()
}

pub fn labeled(dataset: &RandomDataset) -> bool {
    dataset.kind != Kind::Boxes
}

fn plain(dataset: &RandomDataset) -> bool {
    matches!(dataset.kind, Kind::Labeled | Kind::Pixels)
}

fn numbered(dataset: &RandomDataset) -> bool {
    plain(dataset) && !dataset.has_class_names
}

pub fn pixels(dataset: &RandomDataset) -> bool {
    dataset.kind == Kind::Pixels
}

fn masks(dataset: &RandomDataset) -> bool {
    dataset.kind == Kind::Masks
}

pub const FOLDER_WITH_MASKS: &str = "folder with masks";
pub const MASKS: &str = "masks";

fn boxes(dataset: &RandomDataset) -> bool {
    dataset.kind == Kind::Boxes
}

/// Formats that can be read from an object store without a local cache.
pub const BY_RANGES: [&str; 21] = [
    "tar",
    "tar shards",
    "folder",
    "csv",
    "tsv",
    "json lines",
    "coco",
    "mds",
    "litdata",
    "beton",
    "recordio",
    "npy",
    "npz",
    "safetensors",
    "torch",
    "parquet",
    "parquet, plain",
    "parquet, snappy",
    "parquet, gzip",
    "parquet, zstd",
    "parquet, lz4",
];

pub const FORMATS: &[Format] = &[
    Format { name: "folder", holds: plain, write: folder, key: by_class, mapped: false },
    Format { name: FOLDER_WITH_MASKS, holds: masks, write: folder_with_masks, key: by_class, mapped: false },
    Format { name: "tar", holds: |_| true, write: tar, key: by_class, mapped: true },
    Format { name: "tar shards", holds: |_| true, write: shards, key: by_class, mapped: true },
    Format { name: "lmdb", holds: |_| true, write: lmdb, key: by_class, mapped: false },
    Format {
        name: "csv",
        holds: labeled,
        write: csv,
        key: |dataset, n| format!("images/{}", by_name(dataset, n)),
        mapped: false,
    },
    Format {
        name: "tsv",
        holds: labeled,
        write: tsv,
        key: |dataset, n| format!("images/{}", by_name(dataset, n)),
        mapped: false,
    },
    Format {
        name: "json lines",
        holds: labeled,
        write: jsonl,
        key: |dataset, n| format!("images/{}", by_name(dataset, n)),
        mapped: false,
    },
    Format { name: "mds", holds: labeled, write: mds, key: by_number, mapped: true },
    Format { name: "litdata", holds: labeled, write: litdata, key: by_number, mapped: true },
    Format {
        name: "beton",
        holds: |dataset| numbered(dataset) && (pixels(dataset) || dataset.codec() == Some("jpg")),
        write: beton,
        key: by_number,
        mapped: true,
    },
    Format { name: "recordio", holds: numbered, write: recordio, key: by_number, mapped: true },
    Format { name: "tfrecord", holds: labeled, write: tfrecord, key: |_, n| format!("x/{n}"), mapped: true },
    Format { name: "arrow", holds: labeled, write: arrow, key: by_number, mapped: true },
    Format { name: "npy", holds: pixels, write: npy_folder, key: by_number, mapped: true },
    Format { name: "npz", holds: pixels, write: npz, key: by_number, mapped: true },
    Format { name: "safetensors", holds: pixels, write: safetensors, key: by_number, mapped: true },
    Format { name: "torch", holds: pixels, write: torch, key: by_number, mapped: true },
    Format { name: "coco", holds: boxes, write: coco, key: by_name, mapped: false },
    Format { name: "yolo", holds: boxes, write: yolo, key: by_name, mapped: false },
    Format { name: "voc", holds: boxes, write: voc, key: by_name, mapped: false },
];

pub fn put(root: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

pub fn owned(dataset: &RandomDataset) -> Vec<OwnedSample> {
    let owned_sample = |(n, sample): (usize, &SampleData)| {
        let built = OwnedSample::new(by_class(dataset, n)).field(sample.extension, sample.encoded.clone());
        match dataset.kind {
            Kind::Labeled | Kind::Pixels => built.label(sample.class as i64),
            Kind::Columns => {
                let score = sample.score.to_string();
                built.field("score.txt", score).field("caption.txt", sample.caption.clone()).label(sample.class as i64)
            }
            Kind::Masks => built.field("mask.png", sample.mask.clone()).label(sample.class as i64),
            Kind::Boxes => {
                let edges: Vec<u8> = sample
                    .boxes
                    .iter()
                    .flat_map(|(edges, _)| edges)
                    .flat_map(|edge| (*edge as f32).to_le_bytes())
                    .collect();
                let classes: Vec<i64> = sample.boxes.iter().map(|(_, class)| *class as i64).collect();
                built
                    .field("boxes.npy", npy("<f4", &[classes.len(), 4], &edges))
                    .field("boxes.class.npy", npy_i64(&classes))
            }
        }
    };
    dataset.samples.iter().enumerate().map(owned_sample).collect()
}

pub fn memory(dataset: &RandomDataset) -> Memory {
    Memory::new(owned(dataset)).with_classes(dataset.classes.clone())
}

fn folder(dataset: &RandomDataset, root: &Path) -> String {
    for (n, sample) in dataset.samples.iter().enumerate() {
        put(root, &format!("{}.{}", by_class(dataset, n), sample.extension), &sample.encoded);
    }
    String::new()
}

fn folder_with_masks(dataset: &RandomDataset, root: &Path) -> String {
    folder(dataset, &root.join("images"));
    for (n, sample) in dataset.samples.iter().enumerate() {
        put(root, &format!("{MASKS}/{}.png", by_class(dataset, n)), &sample.mask);
    }
    "images".into()
}

fn written(dataset: &RandomDataset, mut writer: impl DatasetWriter) {
    for sample in owned(dataset) {
        writer.put(&sample.as_sample().unwrap()).unwrap();
    }
    Box::new(writer).finish().unwrap();
}

fn options(dataset: &RandomDataset) -> WriteOptions {
    WriteOptions { classes: dataset.classes.clone(), ..WriteOptions::default() }
}

fn tar(dataset: &RandomDataset, root: &Path) -> String {
    written(dataset, TarWriter::create(root.join("dataset.tar"), &options(dataset)).unwrap());
    "dataset.tar".into()
}

fn shards(dataset: &RandomDataset, root: &Path) -> String {
    // Damaged images are copied byte for byte.
    let source = memory(dataset);
    let pack = Pack::new(&source).recode(Recode::KeepBytes).keep_undecodable(true).shard_samples(SHARD as u64);
    pack.to(root.join("dataset.tar")).unwrap();
    one_of(dataset, &["", "dataset.tar", "dataset.manifest.json"])
}

fn lmdb(dataset: &RandomDataset, root: &Path) -> String {
    written(dataset, LmdbWriter::create(root.join("dataset.lmdb"), &options(dataset)).unwrap());
    "dataset.lmdb".into()
}

/// Collects the values of a row except the image. Masks become paths of files.
fn cells(dataset: &RandomDataset, sample: &SampleData, root: &Path) -> Vec<serde_json::Value> {
    let cell = |column: &&str| match dataset.value(sample, column) {
        Value::Int(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Png(bytes) => {
            let path = format!("masks/{}.png", sample.name);
            put(root, &path, bytes);
            json!(path)
        }
    };
    dataset.columns().iter().map(cell).collect()
}

fn separated(dataset: &RandomDataset, root: &Path, separator: &str) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut lines = vec![[&["path"], dataset.columns()].concat().join(separator)];
    for sample in &dataset.samples {
        let path = format!("images/{}.{}", sample.name, sample.extension);
        put(root, &path, &sample.encoded);
        let cells = cells(dataset, sample, root).into_iter().map(|cell| match cell.as_str() {
            Some(text) => quoted(text),
            None => cell.to_string(),
        });
        lines.push([path].into_iter().chain(cells).collect::<Vec<_>>().join(separator));
    }
    lines.join("\n") + "\n"
}

fn csv(dataset: &RandomDataset, root: &Path) -> String {
    put(root, "dataset.csv", separated(dataset, root, ","));
    "dataset.csv".into()
}

fn tsv(dataset: &RandomDataset, root: &Path) -> String {
    put(root, "dataset.tsv", separated(dataset, root, "\t"));
    "dataset.tsv".into()
}

fn jsonl(dataset: &RandomDataset, root: &Path) -> String {
    let mut text = String::new();
    for sample in &dataset.samples {
        let path = format!("images/{}.{}", sample.name, sample.extension);
        put(root, &path, &sample.encoded);
        let mut row = json!({"path": path});
        for (name, cell) in dataset.columns().iter().zip(cells(dataset, sample, root)) {
            row[*name] = cell;
        }
        text += &format!("{row}\n");
    }
    put(root, "dataset.jsonl", text);
    "dataset.jsonl".into()
}

const SHARD: usize = 3;

/// Builds a shard as in MDS and LitData: the number of rows, a table of their offsets, `before`,
/// and `rows`.
fn with_offsets(before: &[u8], rows: &[Vec<u8>]) -> Vec<u8> {
    let mut offset = (4 + 4 * (rows.len() + 1) + before.len()) as u32;
    let mut out = (rows.len() as u32).to_le_bytes().to_vec();
    out.extend(offset.to_le_bytes());
    for row in rows {
        offset += row.len() as u32;
        out.extend(offset.to_le_bytes());
    }
    out.extend(before);
    rows.iter().for_each(|row| out.extend(row));
    out
}

fn length(bytes: &[u8]) -> [u8; 4] {
    (bytes.len() as u32).to_le_bytes()
}

pub fn plain_bytes(value: Value) -> Vec<u8> {
    match value {
        Value::Int(number) => number.to_le_bytes().to_vec(),
        Value::Text(text) => text.into_bytes(),
        Value::Png(bytes) => bytes,
    }
}

fn mds(dataset: &RandomDataset, root: &Path) -> String {
    let side = dataset.samples[0].size;
    let encoded = match (dataset.kind, dataset.codec()) {
        (Kind::Pixels, _) => format!("ndarray:uint8:{},{},3", side.1, side.0),
        (_, Some("jpg")) => "jpeg".to_owned(),
        (_, Some(_)) => "png".to_owned(),
        (_, None) => "bytes".to_owned(),
    };
    let of_pixels = dataset.kind == Kind::Pixels;
    let (mut names, mut encodings) = (vec!["image"], vec![encoded]);
    let mut sizes = vec![of_pixels.then_some(side.0 * side.1 * 3)];
    for column in dataset.columns() {
        let (encoding, size) = match dataset.value(&dataset.samples[0], column) {
            Value::Int(_) => ("int", Some(8)),
            Value::Text(_) => ("str", None),
            Value::Png(_) => ("png", None),
        };
        names.push(column);
        encodings.push(encoding.to_owned());
        sizes.push(size);
    }
    let mut listed = Vec::new();
    for (number, samples) in dataset.samples.chunks(SHARD).enumerate() {
        let row = |sample: &SampleData| {
            let image = if of_pixels { &sample.pixels } else { &sample.encoded };
            let values = dataset.columns().iter().map(|column| plain_bytes(dataset.value(sample, column)));
            let values: Vec<_> = [image.clone()].into_iter().chain(values).collect();
            let of_any_length = values.iter().zip(&sizes).filter(|(_, size)| size.is_none());
            [of_any_length.flat_map(|(value, _)| length(value)).collect(), values.concat()].concat()
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
    one_of(dataset, &["", "index.json"])
}

fn one_of(dataset: &RandomDataset, paths: &[&str]) -> String {
    paths[(dataset.variant % paths.len() as u64) as usize].to_owned()
}

fn litdata(dataset: &RandomDataset, root: &Path) -> String {
    let (mut names, mut formats) = (vec!["image"], vec!["jpeg"]);
    for column in dataset.columns() {
        names.push(column);
        formats.push(match dataset.value(&dataset.samples[0], column) {
            Value::Int(_) => "int",
            Value::Text(_) => "str",
            Value::Png(_) => "jpeg",
        });
    }
    let leaves = vec![json!({"type": null, "context": null, "children_spec": []}); formats.len()];
    let spec = json!([1, {"type": "builtins.dict", "context": json!(names).to_string(), "children_spec": leaves}]);
    let mut chunks = Vec::new();
    for (number, samples) in dataset.samples.chunks(SHARD).enumerate() {
        let row = |sample: &SampleData| {
            let values = dataset.columns().iter().map(|column| plain_bytes(dataset.value(sample, column)));
            let values: Vec<_> = [sample.encoded.clone()].into_iter().chain(values).collect();
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
    one_of(dataset, &["", "index.json"])
}

/// Writes the same structs as FFCV's writer; see `tests/fixtures/formats/beton.py`.
fn beton(dataset: &RandomDataset, root: &Path) -> String {
    const PAGE: usize = 1 << 15;
    let (count, raw) = (dataset.samples.len(), dataset.kind == Kind::Pixels);
    let mut head = Vec::new();
    for (name, kind) in [("image", 2_u8), ("label", 1)] {
        let mut description = vec![0; 1041];
        description[0] = kind;
        description[1..=name.len()].copy_from_slice(name.as_bytes());
        head.extend(description);
    }
    let start = (24 + head.len() + 24 * count).next_multiple_of(PAGE);
    let (mut data, mut table) = (Vec::<u8>::new(), Vec::new());
    for (n, sample) in dataset.samples.iter().enumerate() {
        let encoded = if raw { &sample.pixels } else { &sample.encoded };
        if data.len() % PAGE + encoded.len() > PAGE {
            data.resize(data.len().next_multiple_of(PAGE), 0);
        }
        let place = (start + data.len()) as u64;
        data.extend(encoded);
        let (width, height) = if raw { sample.size } else { (0, 0) };
        head.push(u8::from(raw));
        head.extend((width as u16).to_le_bytes());
        head.extend((height as u16).to_le_bytes());
        head.extend(place.to_le_bytes());
        head.extend([0; 3]);
        head.extend((sample.class as i64).to_le_bytes());
        table.extend([n as u64, place, encoded.len() as u64].map(u64::to_le_bytes).concat());
    }
    data.resize(data.len().next_multiple_of(PAGE), 0);
    let mut out = [2_u16.to_le_bytes(), 2_u16.to_le_bytes()].concat();
    out.extend((PAGE as u32).to_le_bytes());
    out.extend((count as u64).to_le_bytes());
    out.extend(((start + data.len()) as u64).to_le_bytes());
    out.extend(head);
    out.resize(start, 0);
    put(root, "dataset.beton", [out, data, table].concat());
    "dataset.beton".into()
}

fn recordio(dataset: &RandomDataset, root: &Path) -> String {
    const MAGIC: [u8; 4] = 0xced7_230a_u32.to_le_bytes();
    let (mut out, mut index) = (Vec::new(), String::new());
    for (n, sample) in dataset.samples.iter().enumerate() {
        index += &format!("{n}\t{}\n", out.len());
        let (label, id) = ((sample.class as f32).to_le_bytes(), (n as u64).to_le_bytes());
        let record = [&[0; 4][..], &label, &id, &[0; 8], &sample.encoded].concat();
        assert!(
            record.chunks(4).all(|word| word != MAGIC),
            "records that contain the magic number must be split, which this writer does not do"
        );
        out.extend(MAGIC);
        out.extend((record.len() as u32).to_le_bytes());
        out.extend(record);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    put(root, "dataset.rec", out);
    put(root, "dataset.idx", index);
    "dataset.rec".into()
}

fn tfrecord(dataset: &RandomDataset, root: &Path) -> String {
    let checksum = |bytes: &[u8]| crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let entry = |name: &str, feature: Vec<u8>| field(1, &[field(1, name.as_bytes()), field(2, &feature)].concat());
    let bytes = |value: &[u8]| field(1, &field(1, value));
    let number = |value: i64| field(3, &field(1, &varint(value as u64)));
    let mut out = Vec::new();
    for sample in &dataset.samples {
        let mut entries = vec![entry("image/encoded", bytes(&sample.encoded))];
        for column in dataset.columns() {
            let name = if *column == "label" && !dataset.has_class_names { "image/class/label" } else { column };
            entries.push(match dataset.value(sample, column) {
                Value::Int(value) => entry(name, number(value)),
                value => entry(name, bytes(&plain_bytes(value))),
            });
        }
        let example = field(1, &entries.concat());
        let len = (example.len() as u64).to_le_bytes();
        out.extend(len);
        out.extend(checksum(&len));
        out.extend(&example);
        out.extend(checksum(&example));
    }
    put(root, "x.tfrecord", out);
    "x.tfrecord".into()
}

/// Builds a message of Arrow's stream format. `kind` is 1 for a schema and 3 for a record batch.
fn message(kind: u8, header: Flat, body: &[u8]) -> Vec<u8> {
    let values = vec![(0, Flat::Short(4)), (1, Flat::Byte(kind)), (2, header), (3, Flat::Long(body.len() as i64))];
    let head = Flat::Table(values).file();
    [&[0xff; 4], &(head.len() as u32).to_le_bytes()[..], &head, body].concat()
}

fn arrow(dataset: &RandomDataset, root: &Path) -> String {
    /// Arrow's codes of the types `Int`, `Binary` and `Utf8`.
    const TYPES: [u8; 3] = [2, 4, 5];
    let kind_of = |column: &&'static str| match dataset.value(&dataset.samples[0], column) {
        Value::Int(_) => (*column, 0),
        Value::Png(_) => (*column, 1),
        Value::Text(_) => (*column, 2),
    };
    let columns: Vec<_> = [("image", 1)].into_iter().chain(dataset.columns().iter().map(kind_of)).collect();
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
    for samples in dataset.samples.chunks(5) {
        let (mut body, mut buffers, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        let mut buffer = |bytes: &[u8]| {
            buffers.extend(little(&[body.len() as i64, bytes.len() as i64]));
            body.extend(bytes);
            body.resize(body.len().next_multiple_of(8), 0);
        };
        for (column, kind) in &columns {
            nodes.extend(little(&[samples.len() as i64, 0]));
            let bytes: Vec<Vec<u8>> = match *column {
                "image" => samples.iter().map(|sample| sample.encoded.clone()).collect(),
                _ => samples.iter().map(|sample| plain_bytes(dataset.value(sample, column))).collect(),
            };
            // No value is null, so the validity buffer is empty.
            buffer(&[]);
            if *kind > 0 {
                let mut ends = vec![0_i32];
                for bytes in &bytes {
                    ends.push(ends.last().unwrap() + bytes.len() as i32);
                }
                buffer(&ends.iter().flat_map(|end| end.to_le_bytes()).collect::<Vec<_>>());
            }
            buffer(&bytes.concat());
        }
        let rows = Flat::Long(samples.len() as i64);
        let batch = Flat::Table(vec![(0, rows), (1, Flat::Structs(16, nodes)), (2, Flat::Structs(16, buffers))]);
        out.extend(message(3, batch, &body));
    }
    out.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    put(root, "dataset.arrow", out);
    "dataset.arrow".into()
}

pub fn arrays(dataset: &RandomDataset) -> (Vec<u8>, [usize; 4], Vec<i64>) {
    let (width, height) = dataset.samples[0].size;
    let pixels = dataset.samples.iter().flat_map(|sample| &sample.pixels).copied().collect();
    let labels = dataset.samples.iter().map(|sample| sample.class as i64).collect();
    (pixels, [dataset.samples.len(), height as usize, width as usize, 3], labels)
}

fn npy_folder(dataset: &RandomDataset, root: &Path) -> String {
    let (pixels, shape, labels) = arrays(dataset);
    put(root, "images.npy", npy("|u1", &shape, &pixels));
    put(root, "labels.npy", npy_i64(&labels));
    String::new()
}

fn npz(dataset: &RandomDataset, root: &Path) -> String {
    let (pixels, shape, labels) = arrays(dataset);
    let files = [("images.npy".to_owned(), npy("|u1", &shape, &pixels)), ("labels.npy".to_owned(), npy_i64(&labels))];
    put(root, "dataset.npz", zip(&files));
    "dataset.npz".into()
}

fn safetensors(dataset: &RandomDataset, root: &Path) -> String {
    let (pixels, shape, labels) = arrays(dataset);
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
    put(root, "dataset.safetensors", [&len, head.as_bytes(), &pixels, &little(&labels)].concat());
    "dataset.safetensors".into()
}

/// Writes the pickle of a dict of two tensors, in the format of `torch.save`.
fn torch(dataset: &RandomDataset, root: &Path) -> String {
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
    let (pixels, shape, labels) = arrays(dataset);
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
    put(root, "dataset.pt", zip(&files));
    "dataset.pt".into()
}

fn coco(dataset: &RandomDataset, root: &Path) -> String {
    let (mut images, mut annotations) = (Vec::new(), Vec::new());
    for (n, sample) in dataset.samples.iter().enumerate() {
        let name = format!("{}.{}", sample.name, sample.extension);
        put(root, &name, &sample.encoded);
        images.push(json!({"id": n, "file_name": name, "width": sample.size.0, "height": sample.size.1}));
        for ([left, upper, right, lower], class) in &sample.boxes {
            let bbox = [*left, *upper, right - left, lower - upper];
            annotations.push(json!({"id": annotations.len(), "image_id": n, "category_id": 10 + class, "bbox": bbox}));
        }
    }
    let categories: Vec<_> =
        dataset.classes.iter().enumerate().map(|(n, name)| json!({"id": 10 + n, "name": name})).collect();
    let dataset = json!({"images": images, "annotations": annotations, "categories": categories});
    put(root, "_annotations.coco.json", dataset.to_string());
    String::new()
}

fn yolo(dataset: &RandomDataset, root: &Path) -> String {
    for sample in &dataset.samples {
        put(root, &format!("images/{}.{}", sample.name, sample.extension), &sample.encoded);
        let line = |([left, upper, right, lower], class): &([u32; 4], usize)| {
            let share = |numbers: u32, side: u32| f64::from(numbers) / f64::from(side);
            let (width, height) = sample.size;
            let center = (share(left + right, 2 * width), share(upper + lower, 2 * height));
            format!(
                "{class} {} {} {} {}\n",
                center.0,
                center.1,
                share(right - left, width),
                share(lower - upper, height)
            )
        };
        put(root, &format!("labels/{}.txt", sample.name), sample.boxes.iter().map(line).collect::<String>());
    }
    let names: String = dataset.classes.iter().map(|name| format!("- {name}\n")).collect();
    put(root, "data.yaml", format!("train: images\nnames:\n{names}"));
    "data.yaml".into()
}

fn voc(dataset: &RandomDataset, root: &Path) -> String {
    for sample in &dataset.samples {
        put(root, &format!("JPEGImages/{}.{}", sample.name, sample.extension), &sample.encoded);
        let object = |([left, upper, right, lower], class): &([u32; 4], usize)| {
            let (name, left, upper) = (&dataset.classes[*class], left + 1, upper + 1);
            format!(
                "<object><name>{name}</name><bndbox><xmin>{left}</xmin><ymin>{upper}</ymin><xmax>{right}</xmax>\
                 <ymax>{lower}</ymax></bndbox></object>"
            )
        };
        let objects: String = sample.boxes.iter().map(object).collect();
        let (width, height) = sample.size;
        let size = format!("<size><width>{width}</width><height>{height}</height><depth>3</depth></size>");
        put(root, &format!("Annotations/{}.xml", sample.name), format!("<annotation>{size}{objects}</annotation>"));
    }
    String::new()
}
