//! An in-memory object store.
#![allow(dead_code, unreachable_pub)] // not every test uses all of it

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use warpfeed::source::{Object, Store};
use warpfeed::{Error, Result};

/// The newest version of an object: its version number and its bytes.
type Newest = (u64, Vec<u8>);

/// The newest version of each object, by URL. Clones share the objects.
#[derive(Clone, Default)]
pub struct Objects(pub Arc<Mutex<BTreeMap<String, Newest>>>);

impl Objects {
    /// Returns the files in `folder` and its subfolders, with URLs below `url`.
    pub fn of(folder: &Path, url: &str) -> Objects {
        let objects = Objects::default();
        objects.add(folder, url);
        objects
    }

    pub fn add(&self, folder: &Path, url: &str) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let url = format!("{url}/{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() { self.add(&path, &url) } else { self.put(&url, fs::read(&path).unwrap()) }
        }
    }

    pub fn put(&self, url: &str, bytes: Vec<u8>) {
        let mut objects = self.0.lock().unwrap();
        let version = objects.get(url).map_or(0, |(version, _)| version + 1);
        objects.insert(url.to_owned(), (version, bytes));
    }

    pub fn bytes(&self, object: &Object, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.read(object, range.start, &mut bytes).map(|()| bytes)
    }

    /// Returns the total size of the objects in bytes.
    pub fn size(&self) -> u64 {
        self.0.lock().unwrap().values().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

impl FromIterator<(String, Vec<u8>)> for Objects {
    fn from_iter<I: IntoIterator<Item = (String, Vec<u8>)>>(files: I) -> Self {
        let objects = files.into_iter().map(|(url, bytes)| (url, (0, bytes)));
        Objects(Arc::new(Mutex::new(objects.collect())))
    }
}

impl Store for Objects {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let urls: Vec<_> = self.0.lock().unwrap().keys().filter(|url| url.starts_with(prefix)).cloned().collect();
        urls.iter().map(|url| self.object(url)).collect()
    }

    fn object(&self, url: &str) -> Result<Object> {
        let objects = self.0.lock().unwrap();
        let (version, bytes) =
            objects.get(url).ok_or_else(|| Error::in_source("no such object").at_path(url).not_found())?;
        Ok(Object { url: url.to_owned(), len: bytes.len() as u64, tag: Some(version.to_string()), server: None })
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        let objects = self.0.lock().unwrap();
        let (version, bytes) = &objects[&object.url];
        if object.tag != Some(version.to_string()) {
            return Err(
                Error::in_source("the object changed: its tag is no longer the expected one").at_path(&object.url)
            );
        }
        out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
        Ok(())
    }
}
