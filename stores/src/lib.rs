//! Object stores for the data loader `warpfeed`: S3, Google Cloud Storage, Azure, web servers,
//! and datasets of the Hugging Face hub.
//!
//! ```no_run
//! use warpfeed::{Augment, Loader};
//!
//! let loader = Loader::new("s3://bucket/train").stores(warpfeed_stores::all());
//! let batches = loader.batch_size(256).shuffle(42).augment(Augment::train(224)).host()?;
//! # Ok::<(), warpfeed_sources::Error>(())
//! ```
//!
//! | URL | store | credentials |
//! |---|---|---|
//! | `s3://bucket/key` | S3, and servers with its interface | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_SKIP_SIGNATURE`; `AWS_PROFILE` of `~/.aws`; web identity; the roles of ECS, EKS and EC2 |
//! | `gs://bucket/key` | Google Cloud Storage | `GOOGLE_APPLICATION_CREDENTIALS`, `GOOGLE_SERVICE_ACCOUNT`; the metadata server |
//! | `az://container/key` | Azure | `AZURE_STORAGE_ACCOUNT_NAME` with `AZURE_STORAGE_ACCOUNT_KEY`, a SAS token, or an identity |
//! | `https://host/path` | a web server with byte ranges | none |
//! | `hf://datasets/org/name/path` | the Hugging Face hub | `HF_TOKEN` for private datasets |
//!
//! A process has one client for each bucket. All clients share two separate threads, never those of
//! your tokio runtime. The threads start with the first request, also after a `fork`.
//!
//! Requests are sent once. The loader repeats them, slows down if a server is too busy, and asks
//! for the version of the object that it opened, so that bytes of two versions are never mixed. A
//! request fails if nothing arrives for 30 seconds. The duration of the whole answer is not
//! limited.

/// The code of README.md, run as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod cache;
mod error;
mod http;
mod hub;
mod open;
mod profile;
mod runtime;
mod store;
mod write;

use std::sync::Arc;

use warpfeed_sources::Store;

pub use cache::{Cache, Contents, Counts, check, empty, refresh, show, warm};
pub use object_store;

/// Schemes of the URLs that [`all`] opens.
pub const SCHEMES: [&str; 11] = ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "hf"];

/// A store for each of [`SCHEMES`], configured by the usual environment variables. They are read
/// when a bucket is first used.
pub fn all() -> Vec<(&'static str, Arc<dyn Store>)> {
    let store: Arc<dyn Store> = Arc::new(store::ByUrl);
    SCHEMES.map(|scheme| (scheme, store.clone())).into()
}

/// Reads from your own `store`. The path of an object is its URL without scheme and host.
///
/// Disable the retries of a store that you build (`RetryConfig::max_retries`): the loader repeats
/// requests itself. After a `fork`, build the store again.
///
/// ```
/// use std::sync::Arc;
/// use warpfeed::Loader;
/// use warpfeed_stores::object_store::memory::InMemory;
///
/// let loader = Loader::new("mem://any/train").store("mem", warpfeed_stores::store(Arc::new(InMemory::new())));
/// ```
///
/// All stores that are opened with the same URL should hold the same objects. Use [`store_at`] if
/// they do not, so that a [`Cache`] never mixes them.
pub fn store(store: Arc<dyn object_store::ObjectStore>) -> Arc<dyn Store> {
    Arc::new(store::One(store, None))
}

/// Reads from your own `store` like [`store`], on the server with this name. Any text will do, such
/// as an endpoint: what a [`Cache`] keeps of one server is never used for another.
pub fn store_at(server: &str, store: Arc<dyn object_store::ObjectStore>) -> Arc<dyn Store> {
    Arc::new(store::One(store, Some(server.into())))
}
