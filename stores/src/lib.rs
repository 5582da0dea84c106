//! Object stores for the data loader `warpfeed`: S3, Google Cloud Storage, Azure, web servers, and
//! datasets on the Hugging Face Hub.
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
//! | `s3://bucket/key` | S3, and S3-compatible servers | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_SKIP_SIGNATURE`; `AWS_PROFILE` in `~/.aws`; web identity; the roles of ECS, EKS and EC2 |
//! | `gs://bucket/key` | Google Cloud Storage | `GOOGLE_APPLICATION_CREDENTIALS`, `GOOGLE_SERVICE_ACCOUNT`; the metadata server |
//! | `az://container/key` | Azure | `AZURE_STORAGE_ACCOUNT_NAME` with `AZURE_STORAGE_ACCOUNT_KEY`, a SAS token, or an identity |
//! | `https://host/path` | a web server with byte ranges | none |
//! | `hf://datasets/org/name/path` | the Hugging Face Hub | `HF_TOKEN` for private datasets |
//!
//! A process keeps up to two clients per bucket, host, or revision of a dataset on the Hub: one for
//! reads and one for uploads. All clients share two to four worker threads, which start when a
//! store is first used. Requests never run on the threads of your tokio runtime. A forked process
//! starts its own threads.
//!
//! A store does not retry the requests of a read. Instead, the loader retries them, and sends fewer
//! requests if a server is overloaded. If the server states the version of an object, each response
//! to a read must have the version that was opened. If the version differs, the read fails, so that
//! bytes of two versions are not mixed. Weak versions, such as modification times in whole seconds,
//! may miss a change.
//!
//! A request of a read fails if no bytes arrive for 30 seconds, but there is no limit on the total
//! time of a response. A store retries the requests of uploads. Each of these requests fails if no
//! bytes arrive for 300 seconds. Because new connections are slow, a client may divide each of its
//! first reads into several requests.

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

pub use cache::{Cache, CacheStats, Contents, check, empty, refresh, show, warm};
pub use object_store;

/// The URL schemes for which [`all`] returns stores.
pub const SCHEMES: [&str; 11] = ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "hf"];

/// Returns a store for each of [`SCHEMES`]. The stores are configured by the usual environment
/// variables. Most of these are read when a bucket is first used.
pub fn all() -> Vec<(&'static str, Arc<dyn Store>)> {
    let store: Arc<dyn Store> = Arc::new(store::ByUrl);
    SCHEMES.map(|scheme| (scheme, store.clone())).into()
}

/// Wraps your own `store`. The path of an object is its URL without the scheme and the host.
///
/// Build the store without retries (`max_retries: 0` in its `RetryConfig`), because the loader
/// retries failed requests. After a `fork`, build the store again.
///
/// ```
/// use std::sync::Arc;
/// use warpfeed::Loader;
/// use warpfeed_stores::object_store::memory::InMemory;
///
/// let loader = Loader::new("mem://any/train").store("mem", warpfeed_stores::store(Arc::new(InMemory::new())));
/// ```
///
/// All stores that are opened with the same URL must contain the same objects. If they do not, use
/// [`store_at`], so that a [`Cache`] never mixes their objects.
pub fn store(store: Arc<dyn object_store::ObjectStore>) -> Arc<dyn Store> {
    Arc::new(store::SingleStore(store, None))
}

/// Wraps your own `store` like [`store()`], and names its server with any string, such as an
/// endpoint. A [`Cache`] never uses the bytes of one server for another server.
pub fn store_at(server: &str, store: Arc<dyn object_store::ObjectStore>) -> Arc<dyn Store> {
    Arc::new(store::SingleStore(store, Some(server.into())))
}
