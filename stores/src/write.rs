//! Uploads on top of `object_store`.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::task::JoinSet;
use warpfeed::source::Upload;
use warpfeed::{Error, ErrorKind, Result};

use crate::error::convert;
use crate::open::Place;
use crate::runtime::Process;
use crate::store::wait;

/// Size of a part. Some servers want all parts but the last to have the same.
const PART: usize = 8 << 20;
/// Maximum number of parts of an object on S3.
const MOST_PARTS: u64 = 10_000;
/// Number of parts that are sent at the same time.
const AT_ONCE: usize = 4;
const WHAT: &str = "uploading";

/// An object that is being uploaded. A small one is one request, and a larger one is sent in parts.
pub(crate) struct Uploading {
    store: Arc<dyn ObjectStore>,
    path: Path,
    url: String,
    /// Bytes that are not sent yet; less than a part.
    buffer: Vec<u8>,
    parts: Option<Parts>,
}

/// Parts of an upload that has begun.
struct Parts {
    upload: Box<dyn MultipartUpload>,
    sending: JoinSet<object_store::Result<()>>,
    begun: u64,
}

impl Uploading {
    pub(crate) fn new(place: Place, url: &str) -> Self {
        let Place { store, path, .. } = place;
        Uploading { store, path, url: url.to_owned(), buffer: Vec::new(), parts: None }
    }

    /// Runs a request and waits for it.
    fn ask<T: Send + 'static>(&self, request: BoxFuture<'static, object_store::Result<T>>) -> Result<T> {
        let url = self.url.clone();
        wait(async move { request.await.map_err(|e| convert(e, &url, WHAT)) })
    }

    /// Begins to send the buffer as a part.
    fn send(&mut self) -> Result<()> {
        let Parts { mut upload, mut sending, begun } = match self.parts.take() {
            Some(parts) => parts,
            None => {
                let (store, path) = (self.store.clone(), self.path.clone());
                let upload = self.ask(Box::pin(async move { store.put_multipart(&path).await }))?;
                Parts { upload, sending: JoinSet::new(), begun: 0 }
            }
        };
        if begun == MOST_PARTS {
            let cause = format!("an object of more than {MOST_PARTS} parts of {PART} bytes; choose smaller shards");
            self.parts = Some(Parts { upload, sending, begun });
            return Err(Error::config(cause).at_path(&self.url));
        }
        let runtime = &Process::current()?.runtime;
        let part = {
            let _inside = runtime.enter();
            upload.put_part(PutPayload::from(std::mem::take(&mut self.buffer)))
        };
        sending.spawn_on(part, runtime.handle());
        self.parts = Some(Parts { upload, sending, begun: begun + 1 });
        self.sent(AT_ONCE - 1)
    }

    /// Waits until at most `left` parts are being sent.
    fn sent(&mut self, left: usize) -> Result<()> {
        let Some(Parts { upload, mut sending, begun }) = self.parts.take() else { return Ok(()) };
        let url = self.url.clone();
        // The set comes back after an error too, so that the upload is aborted.
        let (sending, sent) = wait(async move {
            let mut sent = Ok(());
            while sending.len() > left && sent.is_ok() {
                sent = match sending.join_next().await {
                    Some(Ok(part)) => part.map_err(|e| convert(e, &url, WHAT)),
                    Some(Err(e)) => Err(Error::new(ErrorKind::Io, format!("{WHAT}: interrupted: {e}")).at_path(&url)),
                    None => break,
                };
            }
            Ok((sending, sent))
        })?;
        self.parts = Some(Parts { upload, sending, begun });
        sent
    }

    /// Whether the object exists.
    fn exists(&self) -> Result<bool> {
        let (store, path) = (self.store.clone(), self.path.clone());
        self.ask(Box::pin(async move {
            match store.head(&path).await {
                Err(object_store::Error::NotFound { .. }) => Ok(false),
                found => found.map(|_| true),
            }
        }))
    }

    fn put(&self, bytes: Vec<u8>, mode: PutMode) -> Result<bool> {
        let (store, path) = (self.store.clone(), self.path.clone());
        self.ask(Box::pin(async move {
            match store.put_opts(&path, bytes.into(), PutOptions { mode, ..PutOptions::default() }).await {
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
                put => put.map(|_| true),
            }
        }))
    }
}

impl Upload for Uploading {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            // A part is sent when more follows, so that the last one is never empty.
            if self.buffer.len() == PART {
                self.send()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PART - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    fn complete(mut self: Box<Self>, new: bool) -> Result<bool> {
        if self.parts.is_none() {
            let bytes = std::mem::take(&mut self.buffer);
            return self.put(bytes, if new { PutMode::Create } else { PutMode::Overwrite });
        }
        self.send()?;
        self.sent(0)?;
        // S3 checks this once more when it completes the upload.
        if new && self.exists()? {
            return Ok(false);
        }
        let Some(Parts { mut upload, .. }) = self.parts.take() else { return Ok(false) };
        let completed = self.ask(Box::pin(async move {
            match upload.complete().await {
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                    let _ = upload.abort().await;
                    Ok(false)
                }
                completed => completed.map(|_| true),
            }
        }))?;
        Ok(completed)
    }
}

impl Drop for Uploading {
    /// Aborts the upload, so that the server does not keep its parts.
    fn drop(&mut self) {
        if let Some(Parts { mut upload, mut sending, .. }) = self.parts.take()
            && let Ok(process) = Process::current()
        {
            process.runtime.spawn(async move {
                sending.shutdown().await;
                let _ = upload.abort().await;
            });
        }
    }
}
