//! Tests that the debug output of an error is its message, that its `source` is the underlying
//! error, and that options for opening that no dataset uses are rejected.

use std::error::Error as _;
use std::io;

use warpfeed::source::{self, Sample, Source, TableOptions};
use warpfeed::{Augment, Error, ErrorKind, Loader, OnError, Result};

#[test]
fn debug_of_an_error_equals_display() {
    let e = Loader::new("/no/such/folder").host().unwrap_err();
    assert_eq!(format!("{e:?}"), e.to_string());
    assert!(format!("Error: {e:?}").starts_with("Error: /no/such/folder: io: "), "{e:?}");
    let boxed: Box<dyn std::error::Error> = e.into();
    assert!(
        format!("{boxed:?}").starts_with("/no/such/folder: io: "),
        "printed by a `main` that returns `Box<dyn Error>`"
    );
}

#[test]
fn the_operating_systems_error_is_the_source() {
    let e = Loader::new("/no/such/folder").host().unwrap_err();
    let system = e.source().and_then(|source| source.downcast_ref::<io::Error>()).unwrap();
    assert_eq!((system.kind(), system.raw_os_error()), (io::ErrorKind::NotFound, e.os_code()));
    // A batch's error is a clone of the sample's error, with the same source.
    let root = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/no/such/image", root.path().join("a.jpg")).unwrap();
    let e = Loader::new(root.path()).into_iter().next().unwrap().unwrap_err();
    assert_eq!((e.kind(), e.sample()), (ErrorKind::Io, Some(0)));
    assert!(e.source().is_some_and(|source| source.is::<io::Error>()), "{e}");
}

/// The crate documentation and docs/bad-samples.md show this message.
#[test]
fn a_truncated_image_fails_with_its_file_and_position() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("n01440764");
    std::fs::create_dir(&folder).unwrap();
    let (mut jpeg, (width, height)) = (Vec::new(), (176, 192));
    let noise: Vec<u8> = (0..176_u32 * 192 * 3).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut encoder = jpeg_encoder::Encoder::new(&mut jpeg, 80);
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::R_4_2_0);
    encoder.encode(&noise, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    let path = folder.join("x.JPEG");
    std::fs::write(&path, &jpeg[..4096]).unwrap();
    let e = Loader::new(root.path()).into_iter().next().unwrap().unwrap_err();
    let (message, place) = (e.to_string(), path.display());
    let rest =
        message.strip_prefix(&format!("sample 0 (n01440764/x): {place}: decode: jpeg ends at byte 4096 in MCU "));
    let mcu = rest.and_then(|rest| rest.strip_suffix(" of 132")).and_then(|mcu| mcu.parse::<u32>().ok());
    assert!(mcu.is_some_and(|mcu| mcu < 132), "{message}");
}

struct Remote;

#[derive(Debug)]
struct Refused(u16);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "status {}", self.0)
    }
}

impl std::error::Error for Refused {}

impl Source for Remote {
    fn len(&self) -> usize {
        4
    }

    fn read<'a>(&'a self, _: usize, _: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let refused = Refused(403);
        Err(Error::in_source(format!("the store says {refused}")).with_source(refused))
    }
}

#[test]
fn an_error_of_user_code_is_returned_unchanged() {
    let e = Loader::source(Remote).augment(Augment::resize(8, 8)).into_iter().next().unwrap().unwrap_err();
    assert_eq!(e.to_string(), "sample 0: source: the store says status 403");
    assert_eq!(e.source().and_then(|source| source.downcast_ref::<Refused>()).map(|refused| refused.0), Some(403));
    let skipped =
        Loader::source(Remote).on_error(OnError::Skip { max_skipped: 9 }).into_iter().next().unwrap().unwrap_err();
    assert_eq!(skipped.kind(), ErrorKind::TooManySkipped);
    let last = skipped.source().and_then(|last| last.downcast_ref::<Error>()).unwrap();
    assert!(last.sample() == Some(3) && last.source().is_some_and(|source| source.is::<Refused>()), "{last}");
}

#[test]
fn an_option_for_opening_that_no_dataset_uses_is_rejected() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("set");
    for class in ["cat", "dog"] {
        std::fs::create_dir_all(folder.join(class)).unwrap();
        image::RgbImage::new(8, 8).save(folder.join(class).join("1.png")).unwrap();
    }
    let (table, numbers) = (root.path().join("t.csv"), root.path().join("x.npy"));
    std::fs::write(&table, "where,label\nset/cat/1.png,0\nset/dog/1.png,1\n").unwrap();
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
    let npy = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat();
    std::fs::write(&numbers, npy).unwrap();
    let columns = || TableOptions::new().image("where");
    let source = || Loader::source(source::open(&folder).unwrap());
    let eval = |loader: Loader| loader.augment(Augment::resize(8, 8)).batch_size(2).host();
    for (loader, path, words) in [
        (Loader::new(&folder).table(columns()), Some(&folder), "table describes columns"),
        (source().table(columns()), None, "table describes columns"),
        (
            Loader::new(&table).table(columns()).cache_listing(true),
            Some(&table),
            "cache_listing(true) saves the listing",
        ),
        (source().cache_listing(true), None, "cache_listing(true) saves the listing"),
        (Loader::new(&numbers).table(TableOptions::new().root("x")), Some(&numbers), "root of TableOptions applies to"),
    ] {
        let e = eval(loader).unwrap_err();
        assert!(e.kind() == ErrorKind::Config && e.cause().contains(words), "{e}");
        assert_eq!(e.path(), path.map(|path| &**path), "{e}");
    }
    let e = source::Options::new().cache_listing(true).open(&table).err().unwrap();
    assert!(e.cause().contains("cache_listing(true) saves the listing"), "{e}");
    // An option is accepted if at least one dataset uses it, if a dataset was opened with it, or if
    // it has its default value.
    let both = Loader::mixture([(&table, 0.5), (&folder, 0.5)]).table(columns()).cache_listing(true).keep_labels();
    eval(both).unwrap();
    let [half, _] = Loader::new(&table).table(columns()).split([0.5, 0.5], 1).unwrap();
    eval(half).unwrap();
    eval(Loader::new(&folder).table(TableOptions::new()).cache_listing(false)).unwrap();
}
