//! Tests that a CSV, TSV or JSON Lines table gives the same batches as a folder with the same
//! images, and as a packed copy. Quotes, line endings and byte order marks must be parsed as in
//! a naive parser. Encodings other than UTF-8 must be rejected with the line number. An invalid row
//! must make only its own sample fail, with an error that names the file and the line.

use std::fs;
use std::path::{Path, PathBuf};

use crate::formats::fixture;
use crate::support::exit_on_hang;
use crate::warnings::Warnings;
use proptest::prelude::*;
use warpfeed::field::{Image, MultiHot, NdArray, Ragged};
use warpfeed::pack::{Pack, Recode};
use warpfeed::source::{Source, Table, TableOptions, open};
use warpfeed::{Augment, Dtype, ErrorKind, HostBatch, Loader, OnError, Result};
use warpfeed_synth::Synth;

fn write(root: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

fn all_batches(loader: Loader) -> Vec<HostBatch> {
    loader.prefetch(32).into_iter().collect::<Result<_>>().unwrap()
}

type Row = (String, Option<i64>, Vec<(String, Vec<u8>)>);

fn rows(source: &dyn Source) -> Vec<Row> {
    let mut scratch = Vec::new();
    let row = |index| {
        let label = source.label(index, &mut scratch).unwrap();
        let key = source.key(index, &mut scratch).unwrap();
        let sample = source.read(index, &mut scratch).unwrap();
        assert_eq!((sample.label().unwrap(), sample.key()), (label, &*key));
        let fields =
            sample.fields().iter().map(|(name, value)| (name.to_string(), value.encoded(name).into_owned())).collect();
        (sample.key().to_owned(), label, fields)
    };
    (0..source.len()).map(row).collect()
}

fn column(path: &Path, name: &str) -> Vec<String> {
    let text =
        |(_, _, fields): Row| String::from_utf8(fields.into_iter().find(|(have, _)| have == name).unwrap().1).unwrap();
    rows(&Table::open(path).unwrap()).into_iter().map(text).collect()
}

fn cause(path: &Path) -> String {
    open(path).err().unwrap().to_string()
}

#[test]
fn batches_equal_those_of_the_folder_and_of_the_packed_table() {
    exit_on_hang(|| {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("set");
        Synth::new().images(40).classes(4).side(64).write(&folder).unwrap();
        let source = open(&folder).unwrap();
        let (mut by_name, mut by_number, mut lines) = (String::new(), String::new(), String::new());
        for index in 0..source.len() {
            let path = source.path(index).unwrap();
            let path = path.strip_prefix(root.path()).unwrap().to_str().unwrap();
            let label = source.label(index, &mut Vec::new()).unwrap().unwrap();
            let class = &source.classes()[label as usize];
            by_name += &format!("{path},{class},{index}.5\n");
            by_number += &format!("{path}\t{label}\t{index}.5\n");
            lines +=
                &format!("{{\"path\": \"{path}\", \"label\": {label}, \"score\": {index}.5, \"two\": [{index}, 7]}}\n");
        }
        let tables = [
            write(root.path(), "name.csv", format!("path,label,score\n{by_name}")),
            write(root.path(), "number.tsv", format!("path\tlabel\tscore\n{by_number}")),
            write(root.path(), "lines.jsonl", lines),
        ];
        let options = |loader: Loader| loader.augment(Augment::train(32)).batch_size(8).workers(2).shuffle(3);
        let expected = all_batches(options(Loader::new(&folder)));
        let packed = [root.path().join("t.lmdb"), root.path().join("t.tar")];
        for target in &packed {
            Pack::new(&*open(&tables[2]).unwrap()).recode(Recode::KeepBytes).to(target).unwrap();
        }
        assert_eq!(open(&tables[0]).unwrap().classes(), source.classes());
        for path in tables.iter().chain(&packed) {
            let mut loader = options(Loader::new(path)).field("score", NdArray::new(Dtype::F32, []));
            let lists = !path.extension().is_some_and(|e| e == "csv" || e == "tsv");
            if lists {
                loader = loader.field("two", NdArray::new(Dtype::I64, [2]));
            }
            let batches = all_batches(loader);
            assert_eq!(batches.len(), expected.len());
            for (batch, expected) in batches.iter().zip(&expected) {
                assert_eq!(batch.images().bytes(), expected.images().bytes(), "{}", path.display());
                assert_eq!(batch.labels().unwrap(), expected.labels().unwrap());
                assert!(
                    batch.sample_keys().zip(expected.sample_keys()).all(|(key, name)| key == format!("set/{name}"))
                );
                let scores: Vec<f32> = batch.ids().map(|id| id as f32 + 0.5).collect();
                assert_eq!(batch.field("score").unwrap().as_f32().unwrap(), scores);
                if lists {
                    let two: Vec<i64> = batch.ids().flat_map(|id| [id as i64, 7]).collect();
                    assert_eq!(batch.field("two").unwrap().as_i64().unwrap(), two);
                }
            }
        }
    });
}

#[test]
fn a_table_with_missing_files_is_packed_without_their_keys() {
    let root = tempfile::tempdir().unwrap();
    let table = write(root.path(), "t.csv", "path,label\na/1.png,3\na/gone.png,4\nb.png,5\n");
    fs::create_dir(root.path().join("a")).unwrap();
    for file in ["a/1.png", "b.png"] {
        image::RgbImage::new(2, 2).save(root.path().join(file)).unwrap();
    }
    let (source, packed) = (open(&table).unwrap(), root.path().join("set.tar"));
    let keys: Vec<_> = (0..3).map(|index| source.key(index, &mut Vec::new()).unwrap()).collect();
    assert_eq!(keys, ["a/1", "a/gone", "b"]);
    let error = Pack::new(&*source).to(&packed).unwrap_err().to_string();
    assert!(error.starts_with("sample 1: ") && error.contains("line 3 of"), "{error}");
    Pack::new(&*source).keys(["a/1", "b"]).to(&packed).unwrap();
    let packed = open(&packed).unwrap();
    let labels: Vec<_> = rows(&*packed).into_iter().map(|(key, label, _)| (key, label)).collect();
    assert_eq!(labels, [("a/1".to_owned(), Some(3)), ("b".to_owned(), Some(5))]);
}

#[test]
fn columns_are_found_by_name_or_by_option() {
    let root = tempfile::tempdir().unwrap();
    for file in ["images/a/1.JPG", "images/2.png", "images/m1.png", "images/m2.npy"] {
        write(root.path(), file, file);
    }
    let text = "id,Where,kind,mask,height,weight,note\n\
                7,a/1.JPG,dog,m1.png,1.5,2,first\n\
                8,./2.png,cat,m2.npy,3,4e1,\"a, b\"\n";
    let table = write(root.path(), "t.csv", text);
    let columns = || TableOptions::new().image("Where").root(root.path().join("images")).label("kind");
    let field = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_owned());
    let opened = columns().columns(["note"]).file("mask").gather("Size", ["weight", "height"]).open(&table).unwrap();
    assert_eq!(opened.classes(), ["cat", "dog"]);
    let first = [field("jpg", "images/a/1.JPG"), field("note.txt", "first"), field("size.txt", "2 1.5 ")];
    let second = [field("png", "images/2.png"), field("note.txt", "a, b"), field("size.txt", "4e1 3 ")];
    let with = |fields: [(String, Vec<u8>); 3], mask| fields.into_iter().chain([mask]).collect::<Vec<_>>();
    let expected = [
        ("a/1".to_owned(), Some(1), with(first, field("mask.png", "images/m1.png"))),
        ("2".to_owned(), Some(0), with(second, field("mask.npy", "images/m2.npy"))),
    ];
    assert_eq!(rows(&opened), expected);
    assert_eq!(opened.path(1).unwrap(), root.path().join("images/./2.png"));
    // By default, all columns are read, and a path is replaced by the file's content.
    let names: Vec<String> = rows(&columns().open(&table).unwrap())[0].2.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, ["jpg", "id.txt", "height.txt", "weight.txt", "note.txt", "mask.png"]);
    let plain = rows(&Table::open(&table).unwrap());
    assert_eq!((plain[1].0.as_str(), plain[1].1, plain[1].2.len()), ("1", None, 7));
    let bare = write(root.path(), "bare.csv", "images/2.png;3\nimages/a/1.JPG;4\n");
    let opened = TableOptions::new().headerless().image("0").label("1").open(&bare).unwrap();
    assert_eq!(rows(&opened).iter().map(|row| row.1).collect::<Vec<_>>(), [Some(3), Some(4)]);
    let e = |options: TableOptions| options.open(&table).unwrap_err();
    assert!(e(columns().image("Path")).cause().starts_with("no column \"Path\": the table has \"id\", \"Where\""));
    assert_eq!(e(columns().without_label()).cause(), "label and without_label cannot be combined");
    assert_eq!(
        e(columns().gather("note", ["weight"])).cause(),
        "two columns would become the field \"note\": rename one of them"
    );
    let twice = write(root.path(), "twice.csv", "a,b,a\n1,2,3\n");
    assert!(cause(&twice).contains("columns 0 and 2 have the same name \"a\""));
    let wide = write(
        root.path(),
        "wide.csv",
        format!("{}\n{}\n", (0..40).map(|i| format!("c{i}")).collect::<Vec<_>>().join(","), ["1"; 40].join(",")),
    );
    assert!(
        cause(&wide).contains("40 columns would become fields, but a sample has at most 16")
            && cause(&wide).contains("gather")
    );
    let names: Vec<String> = (0..40).map(|i| format!("c{i}")).collect();
    let joined = TableOptions::new().gather("attributes", names);
    let loader = Loader::new(&wide).table(joined).drop_field("image").drop_field("label");
    let batch = loader.field("attributes", NdArray::new(Dtype::F32, [40])).into_iter().next().unwrap().unwrap();
    assert_eq!(batch.field("attributes").unwrap().as_f32().unwrap(), [1.0; 40]);
}

#[test]
fn a_column_holds_paths_if_one_of_its_first_values_exists() {
    let root = tempfile::tempdir().unwrap();
    for file in ["1.png", "2.png", "m/2.png"] {
        write(root.path(), file, file);
    }
    let names = |row: usize, table: &Table| -> Result<Vec<String>> {
        let mut scratch = Vec::new();
        let sample = table.read(row, &mut scratch)?;
        Ok(sample.fields().iter().map(|(name, _)| name.to_string()).collect())
    };
    let table = Table::open(write(root.path(), "t.csv", "path,mask,x\n1.png,m/1.png,0.5\n2.png,m/2.png,7\n")).unwrap();
    assert_eq!(names(1, &table).unwrap(), ["png", "x.txt", "mask.png"]);
    let e = names(0, &table).unwrap_err();
    assert!(e.path().unwrap().ends_with("m/1.png") && e.cause().contains("line 2 of"), "{e}");
    let path = write(root.path(), "u.csv", "path,mask\n1.png,n/1.png\n2.png,n/2.png\n");
    let warnings = Warnings::default();
    let table = tracing::subscriber::with_default(warnings.clone(), || Table::open(&path)).unwrap();
    assert_eq!(names(0, &table).unwrap(), ["png", "mask.txt"]);
    let warnings = warnings.0.lock().unwrap().join("\n");
    assert!(warnings.contains("column \"mask\" seems to contain image paths (such as \"n/1.png\")"), "{warnings}");
    let table = Table::open(write(root.path(), "v.csv", "path,note\n1.png,m/2.png\n2.png,none\n")).unwrap();
    assert_eq!(names(0, &table).unwrap(), ["png", "note.txt"]);
}

#[test]
fn a_table_with_only_a_header_is_named() {
    let root = tempfile::tempdir().unwrap();
    let path = write(root.path(), "empty.csv", "path,label\n");
    let e = Loader::new(&path).host().unwrap_err();
    assert_eq!((e.path(), e.cause()), (Some(&*path), "the table source has no samples"));
}

#[test]
fn paths_may_omit_the_image_extension() {
    let root = tempfile::tempdir().unwrap();
    for file in ["train/p0.jpg", "train/p.1.jpg", "train/p2.jpg"] {
        write(root.path(), file, file);
    }
    let path = write(root.path(), "t.csv", "image_id,label\np0,3\np.1,4\np2.jpg,5\np3,6\n");
    let options = || TableOptions::new().image("image_id").root(root.path().join("train"));
    let table = options().open(&path).unwrap();
    for (row, (key, file)) in [("p0", "p0.jpg"), ("p.1", "p.1.jpg"), ("p2", "p2.jpg")].into_iter().enumerate() {
        let mut scratch = Vec::new();
        let sample = table.read(row, &mut scratch).unwrap();
        assert_eq!((sample.key(), sample.image()), (key, Some(("jpg", format!("train/{file}").as_bytes()))));
        assert_eq!(table.key(row, &mut Vec::new()).unwrap(), key);
        assert_eq!(table.path(row).unwrap(), root.path().join("train").join(file));
    }
    let e = table.read(3, &mut Vec::new()).unwrap_err();
    assert!(e.path().unwrap().ends_with("p3.jpg") && e.cause().contains("line 5 of"), "{e}");
    write(root.path(), "train/p0.png", "png");
    let e = options().open(&path).unwrap_err();
    assert!(e.cause().contains("p0.jpg and p0.png") && e.path() == Some(&*path), "{e}");
}

#[test]
fn integers_that_differ_only_in_leading_zeros_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let open = |labels: &[&str]| {
        let text: String = labels.iter().map(|label| format!("1,{label}\n")).collect();
        Table::open(write(root.path(), "t.csv", format!("x,label\n{text}")))
    };
    for labels in [["007", "01", "07"], ["7", "1", "007"], ["0", "1", "00"]] {
        let e = open(&labels).unwrap_err();
        let words =
            format!("line 2: column \"label\": {:?} and {:?} on line 4 denote the same integer", labels[0], labels[2]);
        assert!(e.kind() == ErrorKind::Config && e.cause().contains(&words), "{e}");
    }
    let labels_of = |table: Table| rows(&table).iter().map(|row| row.1).collect::<Vec<_>>();
    assert_eq!(labels_of(open(&["007", "010", "007", "1.0", "1"]).unwrap()), [7, 10, 7, 1, 1].map(Some));
    // As class names, "007" and "07" are distinct.
    let path = write(root.path(), "t.csv", "x,label\n1,007\n2,07\n3,cat\n");
    assert_eq!(Table::open(&path).unwrap().classes(), ["007", "07", "cat"]);
}

#[test]
fn labels_are_integers_names_or_fields() {
    let root = tempfile::tempdir().unwrap();
    let labels = |values: &[&str]| {
        let text: String = values.iter().enumerate().map(|(i, value)| format!("{i},{value}\n")).collect();
        let table = Table::open(write(root.path(), "t.csv", format!("x,label\n{text}"))).unwrap();
        let rows = rows(&table);
        (rows.iter().map(|row| row.1).collect::<Vec<_>>(), table.classes().to_vec(), rows[0].2.len())
    };
    assert_eq!(labels(&["3", "-1", "3.0"]), (vec![Some(3), Some(-1), Some(3)], vec![], 1));
    assert_eq!(labels(&["3", "", "1"]), (vec![Some(3), None, Some(1)], vec![], 1));
    let names = ["10", "2", "cat"].map(str::to_owned).to_vec();
    assert_eq!(labels(&["2", "cat", "10", "2"]), (vec![Some(1), Some(2), Some(0), Some(1)], names, 1));
    assert_eq!(labels(&["0.5", "2"]), (vec![None, None], vec![], 2), "a number for regression is a field");
    let table = write(root.path(), "t.csv", "x,label\n1,0.5\n2,-3\n");
    let loader = Loader::new(&table).drop_field("image").field("label", NdArray::new(Dtype::F32, []));
    let batch = loader.into_iter().next().unwrap().unwrap();
    assert_eq!(batch.field("label").unwrap().as_f32().unwrap(), [0.5, -3.0]);
    let table = write(root.path(), "t.csv", "x,label\n1,3\n2,\n");
    let loader = || Loader::new(&table).drop_field("image").field("x", NdArray::new(Dtype::I64, []));
    let e = loader().into_iter().find_map(Result::err).unwrap();
    assert!(e.sample() == Some(1) && e.cause().contains("no label"), "{e}");
    assert_eq!(loader().unlabeled(true).into_iter().next().unwrap().unwrap().labels().unwrap(), [3, -1]);
    let lines = write(root.path(), "t.jsonl", "{\"label\": 4}\n\n{\"label\": null, \"b\": [1]}\n{\"label\": \"5\"}\n");
    assert_eq!(
        rows(&Table::open(&lines).unwrap()).iter().map(|row| row.1).collect::<Vec<_>>(),
        [Some(4), None, Some(5)]
    );
    let lists = write(root.path(), "l.jsonl", "{\"label\": [1, 2]}\n{\"label\": []}\n");
    assert_eq!(column(&lists, "label.json"), ["[1, 2]", "[]"]);
}

#[test]
fn a_missing_value_mark_among_integers_fails_its_row() {
    let root = tempfile::tempdir().unwrap();
    for mark in ["NA", "nan", "None", "?"] {
        let text: String = (0..12).map(|label| format!("{label},{label}\n")).collect();
        let path = write(root.path(), "t.csv", format!("x,label\n{mark},{mark}\n{text}"));
        let (table, mut scratch) = (Table::open(&path).unwrap(), Vec::new());
        let labels: Vec<_> = (1..13).map(|row| table.label(row, &mut scratch).unwrap().unwrap()).collect();
        assert_eq!(labels, (0..12).collect::<Vec<_>>(), "{mark}: numbers must stay as they are");
        let e = table.label(0, &mut scratch).unwrap_err();
        assert_eq!(e.cause(), format!("line 2: label {mark:?} is not an integer"));
    }
    // In a column without integers, or with a class list, a missing-value mark such as "NA" is an
    // ordinary class name.
    let classes = |text: &str| Table::open(write(root.path(), "t.csv", text)).unwrap().classes().to_vec();
    assert_eq!(classes("x,label\n1,NA\n2,DE\n"), ["DE", "NA"]);
    assert_eq!(classes("x,label\n1,NA\n2,?\n3,NA\n"), ["?", "NA"]);
    let path = write(root.path(), "t.csv", "x,label\n1,2\n2,NA\n");
    let batch = Loader::new(&path).classes(["NA", "2"]).drop_field("image").into_iter().next().unwrap().unwrap();
    assert_eq!(batch.labels().unwrap(), [1, 0]);
}

#[test]
fn a_mixed_label_column_is_class_names_with_a_warning() {
    let root = tempfile::tempdir().unwrap();
    let path = write(root.path(), "t.csv", "x,label\n1,3\n2,11\n3,unknown\n4,2\n");
    let warned = |path: &Path, classes: &[&str]| {
        let warnings = Warnings::default();
        let names = tracing::subscriber::with_default(warnings.clone(), || {
            let loader = Loader::new(path).drop_field("image");
            let loader = if classes.is_empty() { loader } else { loader.classes(classes.iter().copied()) };
            loader.host().unwrap().classes().to_vec()
        });
        let warnings = warnings.0.lock().unwrap().join("\n");
        (names, warnings)
    };
    let (names, warnings) = warned(&path, &[]);
    assert_eq!(names, ["11", "2", "3", "unknown"]);
    let words = "t.csv: column \"label\": 3 labels are integers and 1 is text (first \"unknown\" on line 4): all are \
                 used as class names, in the order of their bytes";
    assert!(warnings.ends_with(words), "{warnings}");
    assert_eq!(warned(&path, &["2", "3", "11", "unknown"]).1, "", "with a class list, there is no warning");
    assert_eq!(warned(&write(root.path(), "u.csv", "x,label\n1,a\n2,b\n"), &[]).1, "");
    let (names, warnings) = warned(&write(root.path(), "na.csv", "x,label\n1,cat\n2,NA\n3,None\n"), &[]);
    assert_eq!(names, ["NA", "None", "cat"]);
    let words = "na.csv: column \"label\": \"NA\" is used as a class name; if it means that the label is missing, \
                 leave the cell empty";
    assert!(warnings.ends_with(words), "{warnings}");
    let path = write(root.path(), "v.csv", "x,label\n1,3\n2,1.5\n");
    let batch = Loader::new(&path).drop_field("image").field("x", NdArray::new(Dtype::I64, [])).into_iter().next();
    let e = batch.unwrap().unwrap().labels().unwrap_err();
    assert!(e.cause().contains("v.csv: line 3: column \"label\" has no labels: \"1.5\" is neither"), "{e}");
}

#[test]
fn an_unlisted_class_fails_with_its_line() {
    let root = tempfile::tempdir().unwrap();
    let table = write(root.path(), "t.csv", "x,label\n1,cat\n2,wolf\n3,owl\n4,wolf\n");
    let loader =
        || Loader::new(&table).drop_field("image").field("x", NdArray::new(Dtype::I64, [])).classes(["dog", "cat"]);
    let e = loader().host().unwrap_err();
    assert_eq!((e.kind(), e.path()), (ErrorKind::Config, Some(&*table)));
    assert!(e.cause().starts_with("line 3: class \"wolf\" (and 1 more) is not in the list of 2 classes"), "{e}");
    let mut batches = loader().on_error(OnError::Skip { max_skipped: 3 }).host().unwrap();
    let batch = batches.epoch(0).next().unwrap().unwrap();
    assert_eq!((batch.labels().unwrap(), batch.valid().filter(|valid| *valid).count()), (&[1, 1, 1, 1][..], 1));
    let mut causes: Vec<String> = batches.sample_errors().iter().map(|fault| fault.error.to_string()).collect();
    causes.sort();
    assert!(causes[0].ends_with("t.csv: source: line 3: class \"wolf\" is not in the list of 2 classes"), "{causes:?}");
    assert!(causes[1].contains("line 4: class \"owl\"") && causes[2].contains("line 5: "), "{causes:?}");
}

#[test]
fn several_labels_are_multi_hot_or_numbers_with_a_count() {
    let root = tempfile::tempdir().unwrap();
    let table = write(
        root.path(),
        "t.csv",
        "label,numbers,list\ncat|dog,2 0,\"[\"\"dog\"\"]\"\n,1,[]\ndog,,\"[0, \"\"fox\"\"]\"\n",
    );
    let classes = ["cat", "dog", "fox"];
    let open =
        || Loader::new(&table).table(TableOptions::new().without_label()).drop_field("image").drop_field("label");
    let hot = |name: &str, kind: MultiHot| {
        let batch = open().field(name, kind).into_iter().next().unwrap()?;
        Ok::<_, warpfeed::Error>(batch.field(name).unwrap().bytes().to_vec())
    };
    let ones = |kind: MultiHot| kind.dtype(Dtype::U8);
    assert_eq!(hot("label", ones(MultiHot::new(classes).separator('|'))).unwrap(), [1, 1, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(hot("numbers", ones(MultiHot::numbered(3))).unwrap(), [1, 0, 1, 0, 1, 0, 0, 0, 0]);
    assert_eq!(hot("list", ones(MultiHot::new(classes))).unwrap(), [0, 1, 0, 0, 0, 0, 1, 0, 1]);
    let floats: Vec<u8> = [1_f32, 0., 1., 0., 1., 0., 0., 0., 0.].iter().flat_map(|v| v.to_ne_bytes()).collect();
    assert_eq!(hot("numbers", MultiHot::new(classes)).unwrap(), floats);
    let e = |name: &str, kind: MultiHot| hot(name, kind).unwrap_err().cause().to_owned();
    assert!(
        e("label", MultiHot::new(["cat", "dog"])).contains("class \"cat|dog\", which is not in the list of 2 classes")
    );
    assert!(e("numbers", MultiHot::numbered(2)).contains("has the label 2: expected 0 to 1"));
    assert!(e("list", MultiHot::new(["dog", "cat"])).contains("class \"fox\", which is not in the list of 2"));
    assert!(e("label", MultiHot::numbered(2)).contains("which is not a number"));
    let refused = |kind| open().field("label", kind).host().unwrap_err().to_string();
    assert!(
        refused(MultiHot::new(["a", "a"])).contains("listed twice")
            && refused(MultiHot::numbered(0)).contains("one class")
    );
    let batch =
        open().field("numbers", Ragged::new(Dtype::I64, [], 3).padding(-1_i64)).into_iter().next().unwrap().unwrap();
    assert_eq!(batch.field("numbers").unwrap().as_i64().unwrap(), [2, 0, -1, 1, -1, -1, -1, -1, -1]);
    assert_eq!(batch.counts("numbers").unwrap(), [2, 1, 0]);
}

#[test]
fn a_bad_row_is_one_bad_sample_with_its_line() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a.png", "a");
    let text = "path,x,y\r\na.png,\"1\n2\",3\r\na.png,4\r\na.png,5,6,7\r\nb.png,8,9\r\n,1,2\r\na.png,10,11";
    let table = open(write(root.path(), "t.csv", text)).unwrap();
    assert_eq!(table.len(), 6);
    let read =
        |index| table.read(index, &mut Vec::new()).map(|sample| sample.fields().len()).map_err(|e| e.to_string());
    let file = root.path().join("t.csv").display().to_string();
    assert_eq!((read(0), read(5)), (Ok(3), Ok(3)));
    assert_eq!(
        read(1).unwrap_err(),
        format!("{file}: source: line 4: the row has 2 cells, but the table has 3 columns")
    );
    assert_eq!(
        read(2).unwrap_err(),
        format!("{file}: source: line 5: the row has 4 cells, but the table has 3 columns")
    );
    let missing = read(3).unwrap_err();
    // The error's path is the missing file, so that programs can collect the files to repair.
    let place = format!("{}: io: No such file", root.path().join("b.png").display());
    assert!(
        missing.starts_with(&place) && missing.ends_with(&format!("; line 6 of {file} names this file")),
        "{missing}"
    );
    assert_eq!(
        read(4).unwrap_err(),
        format!("{file}: source: line 7: the cell in column \"path\" is empty: expected a path")
    );
    let lines =
        open(write(root.path(), "t.jsonl", "{\"x\": 1}\n[2]\n{\"x\": 1, \"x\": 2}\n{\"x\": \n{\"y\": 3}")).unwrap();
    let read =
        |index| lines.read(index, &mut Vec::new()).map(|sample| sample.fields().len()).map_err(|e| e.to_string());
    assert_eq!((lines.len(), read(0), read(4)), (5, Ok(1), Ok(1)));
    assert!(read(1).unwrap_err().contains("line 2: invalid type: sequence, expected one JSON object per line"));
    assert!(read(2).unwrap_err().contains("line 3: key \"x\" occurs twice at column"));
    assert!(read(3).unwrap_err().contains("line 4: EOF while parsing"));
    let gathered = write(root.path(), "g.csv", "a,b\n1,2\n3,\n");
    let gathered = TableOptions::new().gather("v", ["a", "b"]).open(gathered).unwrap();
    let e = gathered.read(1, &mut Vec::new()).unwrap_err();
    assert_eq!(e.cause(), "line 3: column \"b\" of field \"v.txt\" is \"\": expected a single number");
}

#[test]
fn a_chosen_label_column_names_its_first_bad_value() {
    let root = tempfile::tempdir().unwrap();
    let floats = write(root.path(), "f.csv", "path,age\na.png,2.0\nb.png,0.5\n");
    let e = TableOptions::new().label("age").open(&floats).unwrap_err();
    assert_eq!((e.kind(), e.path()), (ErrorKind::Config, Some(&*floats)));
    let words = "line 3: column \"age\" has no labels: \"0.5\" is neither an integer nor a class name; read the \
                 column as a field of type NdArray";
    assert_eq!(e.cause(), words);
    // The error names the first bad value, and not an earlier marker of a missing value.
    let with_marker = write(root.path(), "m.csv", "path,age\na.png,nan\nb.png,0.5\n");
    assert_eq!(TableOptions::new().label("age").open(with_marker).unwrap_err().cause(), words);
    let objects = write(root.path(), "o.jsonl", "{\"path\": \"a.png\", \"tags\": {\"a\": 1}}\n");
    let e = TableOptions::new().label("tags").open(objects).unwrap_err();
    assert!(e.cause().ends_with("read the column as a field of type Text"), "{e}");
    let lists = write(root.path(), "l.jsonl", "{\"path\": \"a.png\", \"tags\": [1]}\n");
    let e = TableOptions::new().label("tags").open(lists).unwrap_err();
    assert!(
        e.cause().starts_with("line 1: column \"tags\" has no labels: \"[1]\"") && e.cause().ends_with("MultiHot"),
        "{e}"
    );
    // If the label column is not chosen explicitly, a column `label` with other values is read as a
    // field.
    let named = write(root.path(), "n.csv", "path,label\na.png,0.5\n");
    assert!(TableOptions::new().open(named).is_ok());
}

#[test]
fn empty_lines_before_the_header_do_not_hide_the_delimiter() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a.png"), "").unwrap();
    let table = write(root.path(), "t.csv", "\n\r\npath;score;label\na.png;0,5;7\n");
    let [(key, label, fields)] = &rows(&Table::open(&table).unwrap())[..] else { panic!("expected one row") };
    assert_eq!((&**key, *label), ("a", Some(7)));
    assert!(fields.contains(&("score.txt".to_owned(), b"0,5".to_vec())), "{fields:?}");
}

#[test]
fn a_missing_header_line_is_detected() {
    let root = tempfile::tempdir().unwrap();
    image::RgbImage::new(8, 8).save(root.path().join("a.png")).unwrap();
    let table = write(root.path(), "t.csv", "a.png,1\na.png,2\n");
    let e = TableOptions::new().open(&table).unwrap_err();
    let words = "the columns \"a.png\", \"1\" include no image column, and the name \"a.png\" looks like a value.";
    assert!(e.cause().starts_with(words) && e.cause().contains("headerless"), "{e}");
    let both = TableOptions::new().headerless().image("0").label("1").open(&table).unwrap();
    assert_eq!((both.len(), both.label(0, &mut Vec::new()).unwrap()), (2, Some(1)));
}

#[test]
fn a_misspelled_field_fails_with_the_intended_name() {
    let root = tempfile::tempdir().unwrap();
    let path = write(root.path(), "t.csv", "age,caption,score\n1,a,0.5\n2,b,0.25\n");
    let open = |path: &Path, name: &str| {
        let loader =
            Loader::new(path).drop_field("image").drop_field("label").field(name, NdArray::new(Dtype::F32, []));
        loader.on_error(OnError::Skip { max_skipped: 10 }).host()
    };
    assert!(["age", "age.txt", "score"].iter().all(|name| open(&path, name).is_ok()));
    let e = open(&path, "aeg").unwrap_err();
    let cause = "no field \"aeg\" among [\"age\", \"caption\", \"score\"]; did you mean \"age\"?";
    assert_eq!((e.kind(), e.cause(), e.path()), (ErrorKind::Config, cause, Some(&*path)));
    assert!(!open(&path, "weight").unwrap_err().cause().contains("did you mean"));
    for name in ["arrow/saved", "parquet/hub/train", "arrays/stored.npz"] {
        let e = open(&fixture(name), "nothing").unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.cause().starts_with("no field \"nothing\""), "{name}: {e}");
    }
    let joined = Loader::mixture([(&path, 0.5), (&path, 0.5)]).classes(["a", "b"]);
    let e =
        joined.drop_field("image").drop_field("label").field("agee", NdArray::new(Dtype::F32, [])).host().unwrap_err();
    assert!(e.cause().contains("did you mean \"age\"?"), "{e}");
}

#[test]
fn the_label_error_names_the_integer_columns() {
    let root = tempfile::tempdir().unwrap();
    let path = write(root.path(), "t.csv", "fine_label,age,coarse_label\n1,0.5,0\n2,0.25,1\n");
    let load = |loader: Loader| loader.drop_field("image").into_iter().next().unwrap().unwrap();
    let e = load(Loader::new(&path)).labels().unwrap_err();
    assert_eq!(
        e.cause(),
        "no label column was found; \"fine_label\", \"coarse_label\" have integers: \
         select one with TableOptions::label(\"fine_label\"), or read -1 with unlabeled(true)"
    );
    let chosen = load(Loader::new(&path).table(TableOptions::new().label("fine_label")));
    assert_eq!(chosen.labels().unwrap(), [1, 2]);
    let path = write(root.path(), "u.csv", "age\n0.5\n");
    let load = load(Loader::new(&path).field("age", NdArray::new(Dtype::F32, [])));
    assert!(load.labels().unwrap_err().cause().starts_with("no label, and no other sample of its batch has one"));
}

#[test]
fn an_empty_cell_for_a_number_is_named_as_empty() {
    let root = tempfile::tempdir().unwrap();
    image::RgbImage::new(8, 8).save(root.path().join("a.png")).unwrap();
    let table = write(root.path(), "t.csv", "path,age\na.png,\n");
    let loader = Loader::new(&table).augment(Augment::pass_through(8, 8)).drop_field("label");
    let mut batches = loader.field("age", NdArray::new(Dtype::F32, [])).host().unwrap();
    let e = batches.epoch(0).next().unwrap().unwrap_err();
    assert!(e.cause().contains("field \"age.txt\" is empty: expected a single number; store a value"), "{e}");
}

#[test]
fn a_missing_file_is_skipped_and_listed_on_request() {
    let root = tempfile::tempdir().unwrap();
    for name in ["a.png", "c.png"] {
        image::RgbImage::new(8, 8).save(root.path().join(name)).unwrap();
    }
    let table = write(root.path(), "t.csv", "path,label\na.png,0\nb.png,1\nc.png,2\n");
    let loader = Loader::new(&table).augment(Augment::pass_through(8, 8)).on_error(OnError::Skip { max_skipped: 1 });
    let mut batches = loader.host().unwrap();
    let batch = batches.epoch(0).next().unwrap().unwrap();
    assert_eq!(batch.labels().unwrap(), [0, 2, 2]);
    let fault = batches.sample_errors()[0].error.to_string();
    assert!(fault.contains("sample 1") && fault.contains("line 3") && fault.contains("b.png"), "{fault}");
}

#[test]
fn other_text_encodings_are_refused_with_the_line() {
    let root = tempfile::tempdir().unwrap();
    let cause = |bytes: &[u8]| cause(&write(root.path(), "t.csv", bytes));
    let utf16: Vec<u8> = "\u{feff}x,y\n1,2\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(cause(&utf16).ends_with("line 1: the text is UTF-16: save the table as UTF-8"));
    assert!(cause(&utf16[2..]).contains("line 1: the text contains a zero byte, so it may be UTF-16"));
    assert!(cause(b"x,y\r\n1,2\r\n3,caf\xe9\r\n").contains("line 3: byte 0xe9 is not UTF-8"));
    for empty in [&b""[..], b"\xef\xbb\xbf", b"\n\r\n \n"] {
        assert!(cause(empty).ends_with("the table is empty"), "{empty:?}");
    }
    let header = write(root.path(), "h.csv", "x,y\n");
    assert!(Loader::new(&header).host().unwrap_err().cause().contains("no samples"));
}

#[test]
fn a_mask_in_a_separate_file_is_an_image_field() {
    let root = tempfile::tempdir().unwrap();
    for (name, value) in [("a.png", 10), ("m.png", 90)] {
        image::RgbImage::from_pixel(8, 8, image::Rgb([value; 3])).save(root.path().join(name)).unwrap();
    }
    let table = write(root.path(), "t.csv", "file_name,mask\na.png,m.png\n");
    let loader = Loader::new(&table).augment(Augment::pass_through(8, 8)).field("mask", Image::from_field("mask.png"));
    let batch = loader.into_iter().next().unwrap().unwrap();
    assert_eq!((batch.images().bytes()[0], batch.field("mask").unwrap().bytes()[0]), (10, 90));
}

fn naive(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut begun) = (false, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' if quoted || cell.is_empty() => (quoted, begun) = (!quoted, true),
            ',' if !quoted => {
                row.push(std::mem::take(&mut cell));
                begun = true;
            }
            '\n' | '\r' if !quoted => {
                if begun || !cell.is_empty() {
                    row.push(std::mem::take(&mut cell));
                    rows.push(std::mem::take(&mut row));
                }
                begun = false;
            }
            c => {
                cell.push(c);
                begun = true;
            }
        }
    }
    if begun {
        row.push(cell);
        rows.push(row);
    }
    rows
}

fn quoted(cell: &str, always: bool) -> String {
    let must = always || cell.is_empty() || cell.contains([',', '"', '\n', '\r']);
    if must { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_cells_are_parsed_as_by_a_naive_parser(
        cells in prop::collection::vec(("[a-z\",\r\n é\t;]{0,6}", "[a-z\",\r\n]{0,6}"), 1..20),
        (always, mark, last) in (any::<bool>(), any::<bool>(), any::<bool>()),
        end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
    ) {
        let lines: Vec<String> =
            cells.iter().map(|(a, b)| format!("{},{}", quoted(a, always), quoted(b, always))).collect();
        let text = format!("{}one,two{end}{}{}", if mark { "\u{feff}" } else { "" }, lines.join(end), if last { end } else { "" });
        let root = tempfile::tempdir().unwrap();
        let table = write(root.path(), "t.csv", &text);
        let parsed = naive(text.trim_start_matches('\u{feff}'));
        for (place, name) in ["one.txt", "two.txt"].into_iter().enumerate() {
            let actual = column(&table, name);
            prop_assert_eq!(&actual, &parsed[1..].iter().map(|row| row[place].clone()).collect::<Vec<_>>());
            prop_assert_eq!(actual, cells.iter().map(|cell| [&cell.0, &cell.1][place].clone()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn random_json_text_is_read_unchanged(values in prop::collection::vec(any::<String>(), 1..10)) {
        let values: Vec<String> = values.into_iter().map(|value| value.replace('\0', "")).collect();
        let lines: Vec<String> = values.iter().map(|value| serde_json::json!({ "v": value }).to_string()).collect();
        let root = tempfile::tempdir().unwrap();
        let table = write(root.path(), "t.ndjson", lines.join("\r\n"));
        prop_assert_eq!(column(&table, "v.txt"), values);
    }

    #[test]
    fn random_bytes_are_a_table_or_an_error(
        bytes in prop::collection::vec(prop::sample::select(b"a1,;\t\"\r\n {}[]:\\\xc3\xa9\xff.\0".to_vec()), 0..120),
        name in prop::sample::select(vec!["t.csv", "t.tsv", "t.jsonl"]),
    ) {
        let root = tempfile::tempdir().unwrap();
        if let Ok(table) = open(write(root.path(), name, &bytes)) {
            for index in 0..table.len() {
                let _ = table.read(index, &mut Vec::new()).map(|sample| sample.label());
                let _ = (table.label(index, &mut Vec::new()), table.path(index));
            }
        }
    }
}
