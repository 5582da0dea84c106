//! Writes HDF5, Parquet without the `parquet` crate, and compressed variants of other formats.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use serde_json::{Value as Json, json};

use super::bytes::{npy, npy_i64, varint};
use super::formats::{FORMATS as PLAIN, Format, arrays, by_number, labeled, pixels, plain_bytes, put};
use super::random_dataset::{RandomDataset, SampleData, Value};

pub const FORMATS: &[Format] = &[
    Format { name: "parquet, plain", holds: labeled, write: |s, r| parquet(s, r, 0), key: by_number, mapped: false },
    Format { name: "parquet, snappy", holds: labeled, write: |s, r| parquet(s, r, 1), key: by_number, mapped: false },
    Format { name: "parquet, gzip", holds: labeled, write: |s, r| parquet(s, r, 2), key: by_number, mapped: false },
    Format { name: "parquet, zstd", holds: labeled, write: |s, r| parquet(s, r, 6), key: by_number, mapped: false },
    Format { name: "parquet, lz4", holds: labeled, write: |s, r| parquet(s, r, 7), key: by_number, mapped: false },
    Format { name: "mds, zstd", holds: labeled, write: |s, r| mds(s, r, "zstd"), key: by_number, mapped: true },
    Format { name: "mds, gzip", holds: labeled, write: |s, r| mds(s, r, "gz"), key: by_number, mapped: true },
    Format { name: "mds, snappy", holds: labeled, write: |s, r| mds(s, r, "snappy"), key: by_number, mapped: true },
    Format { name: "litdata, zstd", holds: labeled, write: litdata, key: by_number, mapped: true },
    Format { name: "npz, deflated", holds: pixels, write: npz, key: by_number, mapped: true },
    Format { name: "hdf5, plain", holds: pixels, write: |s, r| hdf5(s, r, false), key: by_number, mapped: true },
    Format { name: "hdf5, deflated", holds: pixels, write: |s, r| hdf5(s, r, true), key: by_number, mapped: true },
];

fn packed(compression: &str, bytes: &[u8]) -> Vec<u8> {
    match compression {
        "zstd" => zstd::bulk::compress(bytes, 1).unwrap(),
        "gz" => {
            let mut out = GzEncoder::new(Vec::new(), Compression::fast());
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
        "snappy" => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
        "deflate" => {
            let mut out = DeflateEncoder::new(Vec::new(), Compression::fast());
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
        _ => lz4_flex::block::compress(bytes),
    }
}

fn rewrite(plain: &str, dataset: &RandomDataset, root: &Path, change: impl Fn(&mut Json)) -> String {
    let path = (PLAIN.iter().find(|format| format.name == plain).unwrap().write)(dataset, root);
    let index = root.join("index.json");
    let mut json = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    change(&mut json);
    fs::write(index, json.to_string()).unwrap();
    path
}

fn replace(root: &Path, from: &str, to: &str, compression: &str) -> usize {
    let bytes = packed(compression, &fs::read(root.join(from)).unwrap());
    fs::remove_file(root.join(from)).unwrap();
    put(root, to, &bytes);
    bytes.len()
}

fn mds(dataset: &RandomDataset, root: &Path, compression: &str) -> String {
    rewrite("mds", dataset, root, |index| {
        for shard in index["shards"].as_array_mut().unwrap() {
            let plain = shard["raw_data"]["basename"].as_str().unwrap().to_owned();
            let name = format!("{plain}.{compression}");
            let len = replace(root, &plain, &name, compression);
            shard["compression"] = json!(compression);
            shard["zip_data"] = json!({"basename": name, "bytes": len, "hashes": {}});
        }
    })
}

fn litdata(dataset: &RandomDataset, root: &Path) -> String {
    rewrite("litdata", dataset, root, |index| {
        index["config"]["compression"] = json!("zstd");
        for chunk in index["chunks"].as_array_mut().unwrap() {
            let plain = chunk["filename"].as_str().unwrap().to_owned();
            let name = plain.replace(".bin", ".zstd.bin");
            replace(root, &plain, &name, "zstd");
            chunk["filename"] = json!(name);
        }
    })
}

/// Writes a ZIP archive of deflated arrays, as `numpy.savez_compressed` does.
fn npz(dataset: &RandomDataset, root: &Path) -> String {
    let (pixels, shape, labels) = arrays(dataset);
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in [("images.npy", npy("|u1", &shape, &pixels)), ("labels.npy", npy_i64(&labels))] {
        let (start, content) = (out.len() as u32, packed("deflate", &data));
        let mut head = vec![20, 0, 0, 0, 8, 0, 0, 0, 0x21, 0];
        head.extend(crc32fast::hash(&data).to_le_bytes());
        head.extend([content.len(), data.len()].map(|len| len as u32).map(u32::to_le_bytes).concat());
        head.extend((name.len() as u32).to_le_bytes());
        out.extend([b"PK\x03\x04", &head[..], name.as_bytes(), &content].concat());
        directory.extend([b"PK\x01\x02\x14\0", &head[..], &[0; 10], &start.to_le_bytes(), name.as_bytes()].concat());
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0\x02\0\x02\0");
    out.extend([directory.len() as u32, start].map(u32::to_le_bytes).concat());
    out.extend([0, 0]);
    put(root, "dataset.npz", out);
    "dataset.npz".into()
}

fn hdf5(dataset: &RandomDataset, root: &Path, is_deflated: bool) -> String {
    let (pixels, shape, labels) = arrays(dataset);
    let mut file = hdf5_pure::FileBuilder::new();
    let shape = shape.map(|side| side as u64);
    let images = file.create_dataset("images").with_u8_data(&pixels).with_shape(&shape);
    if is_deflated {
        images.with_chunks(&[1, shape[1], shape[2], 3]).with_deflate(1);
    }
    file.create_dataset("labels").with_i64_data(&labels).with_shape(&[labels.len() as u64]);
    put(root, "dataset.h5", file.finish().unwrap());
    "dataset.h5".into()
}

#[derive(Default)]
struct Thrift(Vec<u8>, u8);

impl Thrift {
    fn head(&mut self, field: u8, kind: u8) -> &mut Vec<u8> {
        self.0.push((field - self.1) << 4 | kind);
        self.1 = field;
        &mut self.0
    }

    fn number(mut self, field: u8, kind: u8, number: usize) -> Self {
        self.head(field, kind).extend(varint(2 * number as u64));
        self
    }

    fn int(self, field: u8, number: usize) -> Self {
        self.number(field, 5, number)
    }

    fn long(self, field: u8, number: usize) -> Self {
        self.number(field, 6, number)
    }

    fn text(mut self, field: u8, text: &str) -> Self {
        self.head(field, 8).extend([&varint(text.len() as u64), text.as_bytes()].concat());
        self
    }

    fn inner(mut self, field: u8, inner: Thrift) -> Self {
        let bytes = inner.end();
        self.head(field, 12).extend(bytes);
        self
    }

    fn list(mut self, field: u8, kind: u8, values: &[Vec<u8>]) -> Self {
        let out = self.head(field, 9);
        if values.len() < 15 {
            out.push((values.len() as u8) << 4 | kind);
        } else {
            out.extend([&[0xf0 | kind][..], &varint(values.len() as u64)].concat());
        }
        out.extend(values.concat());
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push(0);
        self.0
    }
}

fn parquet(dataset: &RandomDataset, root: &Path, codec: usize) -> String {
    const NAMES: [&str; 8] = ["", "snappy", "gz", "", "", "", "zstd", "lz4"];
    let columns: Vec<_> = ["image"].into_iter().chain(dataset.columns().iter().copied()).collect();
    let is_number =
        |column: &str| column != "image" && matches!(dataset.value(&dataset.samples[0], column), Value::Int(_));
    let kind = |column: &str| if is_number(column) { 2 } else { 6 };
    let (mut out, mut groups) = (b"PAR1".to_vec(), Vec::new());
    for samples in dataset.samples.chunks(7) {
        let (start, mut chunks) = (out.len(), Vec::new());
        for column in &columns {
            let (first, mut plain_len) = (out.len(), 0);
            for page in samples.chunks(4) {
                let value = |sample: &SampleData| {
                    let bytes = if *column == "image" {
                        sample.encoded.clone()
                    } else {
                        plain_bytes(dataset.value(sample, column))
                    };
                    let len = (bytes.len() as u32).to_le_bytes();
                    if is_number(column) { bytes } else { [&len[..], &bytes].concat() }
                };
                let plain = page.iter().map(value).collect::<Vec<_>>().concat();
                let content = if codec == 0 { plain.clone() } else { packed(NAMES[codec], &plain) };
                let data = Thrift::default().int(1, page.len()).int(2, 0).int(3, 3).int(4, 3);
                let head = Thrift::default().int(1, 0).int(2, plain.len()).int(3, content.len()).inner(5, data).end();
                plain_len += head.len() + plain.len();
                out.extend([head, content].concat());
            }
            let name = [&varint(column.len() as u64), column.as_bytes()].concat();
            let about = Thrift::default().int(1, kind(column)).list(2, 5, &[varint(0)]).list(3, 8, &[name]);
            let about = about.int(4, codec).long(5, samples.len()).long(6, plain_len).long(7, out.len() - first);
            chunks.push(Thrift::default().long(2, first).inner(3, about.long(9, first)).end());
        }
        let group = Thrift::default().list(1, 12, &chunks).long(2, out.len() - start).long(3, samples.len());
        groups.push(group.end());
    }
    let mut schema = vec![Thrift::default().text(4, "m").int(5, columns.len()).end()];
    for column in &columns {
        let element = Thrift::default().int(1, kind(column)).int(3, 0).text(4, column);
        let is_text = *column != "image" && matches!(dataset.value(&dataset.samples[0], column), Value::Text(_));
        schema.push(if is_text { element.int(6, 0).end() } else { element.end() });
    }
    let footer =
        Thrift::default().int(1, 1).list(2, 12, &schema).long(3, dataset.samples.len()).list(4, 12, &groups).end();
    let len = (footer.len() as u32).to_le_bytes();
    put(root, "dataset.parquet", [&out[..], &footer, &len, b"PAR1"].concat());
    "dataset.parquet".into()
}
