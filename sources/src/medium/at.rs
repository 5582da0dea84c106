use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Medium;
use super::ahead::Remote;
use super::download::{Companions, bring};
use super::tree::Tree;
use crate::error::Result;
use crate::model::{Location, Stores};

/// What is opened: a file or a folder of a medium, or a part of it.
#[derive(Clone)]
pub(crate) struct At {
    /// Its path, or its URL.
    pub(crate) path: PathBuf,
    /// The part, such as `train` in `all.lmdb/train`.
    pub(crate) part: Option<String>,
    pub(crate) medium: Medium,
}

impl At {
    /// What is at `path`, a path or a URL.
    ///
    /// # Errors
    /// If the URL has no store.
    pub(crate) fn of(path: &Path, mapped: bool, stores: &Stores) -> Result<Self> {
        let (path, medium) = match Location::of(path) {
            Location::Path(path) => (path, Medium::Machine { mapped }),
            Location::Url(url) => {
                let remote = Arc::new(Remote::new(stores.of(&url)?.clone()));
                (url.into(), Medium::Store { remote, listed: Arc::default() })
            }
        };
        Ok(At { path, part: None, medium })
    }

    /// What is at `path` of this machine.
    pub(crate) fn here(path: &Path) -> Self {
        At { path: path.to_owned(), part: None, medium: Medium::Machine { mapped: true } }
    }

    /// The URL, without a slash at its end. A path of this machine need not be text.
    pub(crate) fn url(&self) -> &str {
        self.path.to_str().unwrap_or_default().trim_end_matches('/')
    }

    /// The folder. That of a store must be [listed](Medium::list).
    pub(crate) fn tree(&self) -> Tree<'_> {
        match &self.medium {
            Medium::Machine { .. } => Tree::Local(&self.path),
            Medium::Store { remote, listed } => Tree::Stored(self.url(), listed, remote),
        }
    }

    /// Lists what is below the URL, if it is in a store. Returns whether anything is there.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub(crate) fn list(&mut self) -> Result<bool> {
        let url = self.url().to_owned();
        self.medium.list(&url)?;
        Ok(!matches!(&self.medium, Medium::Store { listed, .. } if listed.is_empty()))
    }

    /// Whether it is a folder. That of a store is listed.
    ///
    /// # Errors
    /// If the system or the store cannot tell. Nothing at a URL is the error of the URL.
    #[cfg(feature = "parquet")]
    pub(crate) fn is_folder(&mut self) -> Result<bool> {
        let url = self.url().to_owned();
        let Medium::Store { remote, listed } = &mut self.medium else {
            return crate::machine::file::is_folder(&self.path);
        };
        if !listed.is_empty() {
            return Ok(listed[0].url != url);
        }
        let asked = url.clone();
        match remote.repeated(move |store| store.object(&asked)) {
            Ok(object) => {
                *listed = [object].into();
                Ok(false)
            }
            // The error of the URL itself is clearer, unless files lie below it.
            Err(e) => {
                if matches!(self.list(), Ok(true)) {
                    Ok(true)
                } else {
                    Err(e)
                }
            }
        }
    }

    /// The files, brought to this machine if they are in a store.
    ///
    /// # Errors
    /// If nothing is there, or the store cannot bring it.
    pub(crate) fn brought(&self, companions: &Companions, mapped: bool) -> Result<Self> {
        let Medium::Store { remote, .. } = &self.medium else { return Ok(self.clone()) };
        let path = bring(companions, remote, self.url()).map_err(|e| e.at_path(&self.path))?;
        Ok(At { path, part: self.part.clone(), medium: Medium::Machine { mapped } })
    }
}
