//! Uploads objects with `object_store`.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use futures_util::future::BoxFuture;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use warpfeed_sources::Upload;
use warpfeed_sources::{Error, ErrorKind, Result};

use crate::error::convert;
use crate::http::creating;
use crate::open::StorePath;
use crate::runtime::Process;
use crate::store::wait;

/// Size of a part, in bytes. Some servers require all parts except the last to have the same size.
const PART_BYTES: usize = 8 << 20;
/// Maximum number of parts of an upload, the limit of S3.
const MAX_PARTS: u64 = 10_000;
const MAX_PARTS_IN_FLIGHT: usize = 4;
/// Maximum time that a caller waits for its upload to be aborted.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);
const OPERATION: &str = "uploading";

/// An object that is being uploaded: in one request if it fits in one part, and in several parts if
/// it does not.
///
/// If an upload fails or is dropped, it is aborted, so that the server can delete its parts. Some
/// bytes of a failed upload may be missing, so it cannot be completed later.
pub(crate) struct ObjectUpload {
    store: Arc<dyn ObjectStore>,
    path: Path,
    url: String,
    /// Bytes that have not been sent, at most one part.
    buffer: Vec<u8>,
    state: UploadState,
}

enum UploadState {
    /// No part has been sent, so all bytes are in the buffer.
    Buffered,
    /// A multipart upload is starting or has started. Tasks share the upload, because a task may
    /// outlive the call that started it if the caller stops waiting.
    Parts(Arc<Mutex<Parts>>),
    Ended,
}

#[derive(Default)]
struct Parts {
    /// The upload, or `None` until the server has started it.
    upload: Option<Box<dyn MultipartUpload>>,
    in_flight: JoinSet<object_store::Result<()>>,
    started_count: u64,
}

impl Parts {
    async fn wait_for_in_flight(&mut self, limit: usize, url: &str) -> Result<()> {
        while self.in_flight.len() > limit {
            match self.in_flight.join_next().await {
                Some(Ok(part)) => part.map_err(|e| convert(e, url, OPERATION))?,
                Some(Err(e)) => return Err(interrupted(url, e)),
                None => break,
            }
        }
        Ok(())
    }

    fn upload(&mut self, url: &str) -> Result<&mut Box<dyn MultipartUpload>> {
        self.upload.as_mut().ok_or_else(|| interrupted(url, "it has not started"))
    }
}

fn interrupted(url: &str, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("{OPERATION}: interrupted: {cause}")).at_path(url)
}

impl ObjectUpload {
    pub(crate) fn new(location: StorePath, url: &str) -> Self {
        let StorePath { store, path, .. } = location;
        ObjectUpload { store, path, url: url.to_owned(), buffer: Vec::new(), state: UploadState::Buffered }
    }

    fn failed_upload_error(&self) -> Error {
        interrupted(&self.url, "an earlier part has failed")
    }

    fn send_and_wait<T: Send + 'static>(&self, request: BoxFuture<'static, object_store::Result<T>>) -> Result<T> {
        let url = self.url.clone();
        wait(async move { request.await.map_err(|e| convert(e, &url, OPERATION)) })
    }

    fn parts(&mut self) -> Result<Arc<Mutex<Parts>>> {
        match &self.state {
            UploadState::Parts(parts) => return Ok(parts.clone()),
            UploadState::Ended => return Err(self.failed_upload_error()),
            UploadState::Buffered => {}
        }
        let parts = Arc::<Mutex<Parts>>::default();
        self.state = UploadState::Parts(parts.clone());
        let (store, path, url, shared) = (self.store.clone(), self.path.clone(), self.url.clone(), parts.clone());
        // An upload can be aborted only if the response to this request arrives. The separate task
        // completes the request even if its caller gives up.
        let task = Process::current()?.runtime.spawn(async move {
            let mut parts = shared.lock().await;
            parts.upload = Some(store.put_multipart(&path).await.map_err(|e| convert(e, &url, OPERATION))?);
            Ok(())
        });
        let url = self.url.clone();
        wait(async move { task.await.map_err(|e| interrupted(&url, e))? })?;
        Ok(parts)
    }

    fn send(&mut self) -> Result<()> {
        let (parts, url) = (self.parts()?, self.url.clone());
        let bytes = PutPayload::from(std::mem::take(&mut self.buffer));
        wait(async move {
            let mut parts = parts.lock().await;
            if parts.started_count == MAX_PARTS {
                let cause = format!(
                    "the object needs more than {MAX_PARTS} parts of {PART_BYTES} bytes: choose smaller shards"
                );
                return Err(Error::config(cause).at_path(url));
            }
            let part = parts.upload(&url)?.put_part(bytes);
            parts.in_flight.spawn(part);
            parts.started_count += 1;
            parts.wait_for_in_flight(MAX_PARTS_IN_FLIGHT - 1, &url).await
        })
    }

    fn finish(&mut self, must_create: bool) -> Result<bool> {
        match self.state {
            UploadState::Buffered => {
                let bytes = std::mem::take(&mut self.buffer);
                return self.put(bytes, if must_create { PutMode::Create } else { PutMode::Overwrite });
            }
            UploadState::Parts(_) => self.send()?,
            UploadState::Ended => {}
        }
        let (parts, store, path, url) = (self.parts()?, self.store.clone(), self.path.clone(), self.url.clone());
        wait(async move {
            let mut parts = parts.lock().await;
            parts.wait_for_in_flight(0, &url).await?;
            // S3 checks this condition again when it completes the upload.
            if must_create && exists(&*store, &path, &url).await? {
                return Ok(false);
            }
            let upload = parts.upload(&url)?;
            let completed = if must_create { creating(upload.complete()).await } else { upload.complete().await };
            match completed {
                Ok(_) => Ok(true),
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. })
                    if must_create =>
                {
                    Ok(false)
                }
                // If an earlier attempt completed the upload and its response was lost, the upload
                // no longer exists.
                Err(object_store::Error::NotFound { .. }) if must_create && exists(&*store, &path, &url).await? => {
                    Ok(false)
                }
                Err(e) => Err(convert(e, &url, OPERATION)),
            }
        })
    }

    fn put(&self, bytes: Vec<u8>, mode: PutMode) -> Result<bool> {
        let (store, path) = (self.store.clone(), self.path.clone());
        self.send_and_wait(Box::pin(async move {
            match store.put_opts(&path, bytes.into(), PutOptions { mode, ..PutOptions::default() }).await {
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
                result => result.map(|_| true),
            }
        }))
    }

    fn abort(&mut self) {
        let UploadState::Parts(parts) = std::mem::replace(&mut self.state, UploadState::Ended) else { return };
        let Ok(process) = Process::current() else { return };
        let (sender, receiver) = sync_channel(1);
        process.runtime.spawn(async move {
            let mut parts = parts.lock().await;
            // A part that arrives after the abort would stay on the server.
            parts.in_flight.shutdown().await;
            if let Some(upload) = &mut parts.upload {
                let _ = upload.abort().await;
            }
            let _ = sender.send(());
        });
        // Wait, because the process may be about to exit, which would prevent the abort. The wait
        // is short, because the server might not respond.
        let _ = receiver.recv_timeout(ABORT_TIMEOUT);
    }
}

async fn exists(store: &dyn ObjectStore, path: &Path, url: &str) -> Result<bool> {
    match store.head(path).await {
        Err(object_store::Error::NotFound { .. }) => Ok(false),
        result => result.map(|_| true).map_err(|e| convert(e, url, OPERATION)),
    }
}

impl Upload for ObjectUpload {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        if matches!(self.state, UploadState::Ended) {
            return Err(self.failed_upload_error());
        }
        while !bytes.is_empty() {
            // A full part is sent only when more bytes follow, so that the last part is never
            // empty.
            if self.buffer.len() == PART_BYTES
                && let Err(e) = self.send()
            {
                self.abort();
                return Err(e);
            }
            let (part, rest) = bytes.split_at(bytes.len().min(PART_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(part);
            bytes = rest;
        }
        Ok(())
    }

    fn complete(mut self: Box<Self>, must_create: bool) -> Result<bool> {
        let completed = self.finish(must_create);
        match completed {
            Ok(true) => self.state = UploadState::Ended,
            Ok(false) | Err(_) => self.abort(),
        }
        completed
    }
}

impl Drop for ObjectUpload {
    fn drop(&mut self) {
        self.abort();
    }
}
