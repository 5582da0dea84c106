//! An in-memory object store.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use warpfeed::source::{Object, Store};
use warpfeed::{Error, Result};

#[derive(Default)]
pub struct Objects(BTreeMap<String, Vec<u8>>);

impl Objects {
    pub fn of(folder: &Path, url: &str) -> Objects {
        let mut objects = Objects::default();
        objects.add(folder, url);
        objects
    }

    fn add(&mut self, folder: &Path, url: &str) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let url = format!("{url}/{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() {
                self.add(&path, &url);
            } else {
                self.0.insert(url, fs::read(&path).unwrap());
            }
        }
    }
}

impl Store for Objects {
    fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        self.0.keys().filter(|url| url.starts_with(prefix)).map(|url| self.object(url)).collect()
    }

    fn object(&self, url: &str) -> Result<Object> {
        let bytes = self.0.get(url).ok_or_else(|| Error::in_source("no such object").at_path(url).not_found())?;
        Ok(Object { url: url.to_owned(), len: bytes.len() as u64, tag: Some("1".to_owned()), server: None })
    }

    fn read(&self, object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(&self.0[&object.url][offset as usize..][..out.len()]);
        Ok(())
    }
}
