//! Fuzzes the readers of files that describe a dataset: COCO's JSON, YOLO's `data.yaml` and label
//! files, Pascal VOC's XML, and tables. Cases are written to disk, because the readers follow the
//! paths in them.

use std::fs;
use std::path::Path;

use crate::error::Result;
use crate::formats::{Coco, Voc, Yolo};
use crate::fuzz::{self, Random};
use crate::model::{Sample, Source};
use crate::options::TableOptions;
use crate::values::Npy;

const JSON: [&[u8]; 18] = [
    b"\"id\":",
    b"\"image_id\":9",
    b"\"category_id\":7",
    b"\"file_name\":",
    b"\"bbox\":[",
    b"\"keypoints\":[",
    b"\"segmentation\":",
    b"\"iscrowd\":true",
    b"null",
    b"-1",
    b"1e400",
    b"1e38",
    b"18446744073709551616",
    b"\"\\ud800\"",
    b"[[[[[[[[[[[[[[[[",
    b"../a.png",
    b"/dev/zero",
    b"{},",
];
const YAML: [&[u8]; 18] = [
    b"names:\n",
    b"nc: 2\n",
    b"kpt_shape: [1, 2]\n",
    b"train: images\n",
    b"path: ..\n",
    b"path: /dev/zero\n",
    b"  0: ",
    b"- ",
    b"? ",
    b": ",
    b"{",
    b"[",
    b"&a ",
    b"*a",
    b"|\n",
    b"---\n",
    b"!!binary ",
    b"\t",
];
const LABELS: [&[u8]; 8] =
    [b" ", b"\n", b"0 0.5 0.5 1 1\n", b"nan", b"1e400", b"-0", b"1e-300", b"99999999999999999999"];
const XML: [&[u8]; 16] = [
    b"<object>",
    b"</object>",
    b"<name>",
    b"<bndbox>",
    b"<xmin>1</xmin>",
    b"<size>",
    b"<width>0</width>",
    b"<difficult>",
    b"<!DOCTYPE a [<!ENTITY b \"&b;&b;\">]>",
    b"&b;",
    b"&#0;",
    b"<![CDATA[",
    b"<?x?>",
    b"xmlns:a=\"b\"",
    b"nan",
    b"1e400",
];
const TABLE: [&[u8]; 18] = [
    b"\"",
    b"\"\"",
    b"\n",
    b"\r\n",
    b"\r",
    b",",
    b";",
    b"\t",
    b"\xef\xbb\xbf",
    b"path",
    b"label",
    b"a.png",
    b"../a.png",
    b"/dev/zero",
    b"[1, 2]",
    b"{\"a\": 1}",
    b"1e400",
    b"-9223372036854775809",
];

/// Creates a folder with images for all of these formats.
fn folder() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for name in ["a.png", "b.png", "images/a.png", "JPEGImages/a.png"] {
        write(name, b"\x89PNG of no size");
    }
    write("data.yaml", b"train: images\nnames: [x, y]\n");
    write("labels/a.txt", b"");
    write("Annotations/a.xml", b"");
    root
}

/// Reads each sample, and checks the valid samples and reads them again. Returns whether any sample
/// is valid.
fn reads(source: &dyn Source) -> bool {
    let (mut scratch, mut again) = (Vec::new(), Vec::new());
    let valid = (0..source.len()).filter(|&index| {
        let Ok(sample) = source.read(index, &mut scratch) else { return false };
        check(source, &sample);
        assert!(source.read(index, &mut again).is_ok_and(|other| other.fields() == sample.fields()));
        let label = source.label(index, &mut again);
        if let (Ok(own_label), Ok(label)) = (sample.label(), label) {
            assert_eq!(own_label, label, "sample {index}");
        }
        true
    });
    valid.count() > 0
}

/// Checks that the edges of a sample's boxes are ordered, that the widths are finite, and that the
/// arrays have one row per box. If the dataset has class names, also checks that the classes exist.
fn check(source: &dyn Source, sample: &Sample<'_>) {
    let array = |name: &str| {
        let bytes = sample.field(name)?;
        let npy = Npy::read(&bytes).expect("sources write valid arrays");
        let rows = npy.shape.as_ref().expect("a shape")[0];
        Some((rows, npy.item_size, npy.data.to_vec()))
    };
    let Some((count, _, edges)) = array("boxes.npy") else { return };
    for name in ["boxes.class.npy", "boxes.crowd.npy", "boxes.area.npy", "boxes.difficult.npy", "boxes.points.npy"] {
        assert!(array(name).is_none_or(|(rows, ..)| rows == count), "{name}");
    }
    for edges in edges.as_chunks::<16>().0 {
        let [left, top, right, bottom] =
            [0, 4, 8, 12].map(|offset| f32::from_le_bytes(edges[offset..offset + 4].try_into().unwrap()));
        assert!(left <= right && top <= bottom && right - left < f32::INFINITY, "{left} {top} {right} {bottom}");
    }
    if let (false, Some((_, 8, classes))) = (source.classes().is_empty(), array("boxes.class.npy")) {
        let classes = classes.as_chunks().0.iter().map(|class| i64::from_le_bytes(*class));
        assert!(classes.into_iter().all(|class| (0..source.classes().len() as i64).contains(&class)));
    }
}

/// Returns whether the dataset can be opened and contains a valid sample.
fn is_valid<S: Source>(source: Result<S>) -> bool {
    source.is_ok_and(|source| reads(&source))
}

fn coco(root: &Path, files: &[Vec<u8>], seed: u64) -> bool {
    let json = root.join("instances.json");
    fs::write(&json, Random::new(seed).mutated(files, &JSON)).unwrap();
    is_valid(Coco::with_images(&json, root))
}

fn yolo(root: &Path, yaml: &[Vec<u8>], labels: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let mutates_yaml = random.below(2) == 0;
    let (yaml, labels) = match mutates_yaml {
        true => (random.mutated(yaml, &YAML), labels[0].clone()),
        false => (yaml[0].clone(), random.mutated(labels, &LABELS)),
    };
    fs::write(root.join("data.yaml"), yaml).unwrap();
    fs::write(root.join("labels/a.txt"), labels).unwrap();
    is_valid(Yolo::open(root.join("data.yaml")))
}

fn voc(root: &Path, files: &[Vec<u8>], seed: u64) -> bool {
    fs::write(root.join("Annotations/a.xml"), Random::new(seed).mutated(files, &XML)).unwrap();
    is_valid(Voc::open(root))
}

fn table(root: &Path, files: &[Vec<u8>], seed: u64) -> bool {
    let random = &mut Random::new(seed);
    let path = root.join(random.pick(&["t.csv", "t.tsv", "t.jsonl"]));
    let options = match random.below(3) {
        0 => TableOptions::new().image("path").label("label"),
        _ => TableOptions::new(),
    };
    fs::write(&path, random.mutated(files, &TABLE)).unwrap();
    is_valid(options.open(&path))
}

fn jsons() -> Vec<Vec<u8>> {
    let set = r#"{"images": [{"id": 9, "file_name": "b.png", "width": 20, "height": 10},
        {"id": 2, "file_name": "a.png", "width": 20, "height": 10}],
        "annotations": [{"id": 100, "image_id": 9, "category_id": 90, "bbox": [1.5, 2, 3, 4], "iscrowd": 0,
        "segmentation": [[1.5, 2, 4.5, 2, 4.5, 6.25]], "keypoints": [1, 2, 2, 0, 0, 0]},
        {"image_id": 2, "category_id": 7, "bbox": [0, 0, 20, 10],
        "segmentation": {"counts": [50, 150], "size": [10, 20]}}],
        "categories": [{"id": 90, "name": "brush", "keypoints": ["nose", "ear"]}, {"id": 7, "name": "train"}]}"#;
    let named = r#"{"images": [{"id": "x-1", "file_name": "a.png", "width": 0, "height": 0}], "categories": []}"#;
    [set, named].map(|text| text.as_bytes().to_vec()).into()
}

fn yamls() -> [Vec<Vec<u8>>; 2] {
    let yaml =
        ["train: images\nnames: [x, y]\n", "path: .\ntrain: [images]\nval: images\nnc: 2\nnames:\n  0: x\n  1: y\n"];
    let labels = ["1 0.5 0.5 0.5 0.4\n0 0.25 0.25 0.1 0.1\n", "0 0.1 0.1 0.5 0.1 0.5 0.5\n\n1 0.5 0.5 1 1", ""];
    [yaml.map(|text| text.as_bytes().to_vec()).into(), labels.map(|text| text.as_bytes().to_vec()).into()]
}

fn xmls() -> Vec<Vec<u8>> {
    let text = "<annotation><size><width>20</width><height>10</height><depth>3</depth></size>
        <object><name>person</name><difficult>1</difficult>
        <bndbox><xmin>2</xmin><ymin>2</ymin><xmax>3</xmax><ymax>3</ymax></bndbox></object>
        <object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>20</xmax><ymax>10</ymax></bndbox></object>
        </annotation>";
    vec![text.as_bytes().to_vec(), b"<annotation></annotation>".to_vec()]
}

fn tables() -> Vec<Vec<u8>> {
    let texts = [
        "path,label,score\na.png,cat,0.5\nb.png,dog,-1e3\n",
        "a.png\t1\nb.png\t2\n",
        "img;text\n\"a.png\";\"one \"\"word\"\"\"\n\"b.png\";\"two\nlines\"\n",
        "{\"path\": \"a.png\", \"label\": 3, \"box\": [1, 2.5]}\n{\"path\": \"b.png\", \"label\": null}\n",
        "{\"x\": \"\\u00e9\", \"deep\": {\"a\": [[1], [2, 3]]}}\n\n{\"x\": true}\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

#[test]
fn coco_json() {
    let (root, files) = (folder(), jsons());
    fuzz::run("coco", |seed| coco(root.path(), &files, seed));
}

#[test]
fn yolo_files() {
    let (root, [yaml, labels]) = (folder(), yamls());
    fuzz::run("yolo", |seed| yolo(root.path(), &yaml, &labels, seed));
}

#[test]
fn voc_xml() {
    let (root, files) = (folder(), xmls());
    fuzz::run("voc", |seed| voc(root.path(), &files, seed));
}

#[test]
fn table_text() {
    let (root, files) = (folder(), tables());
    fuzz::run("table", |seed| table(root.path(), &files, seed));
}
