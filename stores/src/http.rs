//! Creates the HTTP clients of the stores that URLs name. There is no limit on the total time of a
//! response, and errors of reads preserve the server's status.

use std::fmt;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// Time without a received byte after which a read fails.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without a received byte after which a request of an upload fails. The server responds to a
/// part only when it has received the whole part.
const PART_TIMEOUT: Duration = Duration::from_secs(300);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ERROR_BODY_BYTES: usize = 1 << 16;

/// A response with an error status, which `object_store` would hide in a private type.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}: {}", self.status, self.text)
    }
}

impl std::error::Error for Refused {}

tokio::task_local! {
    /// Set while a task sends a request that must not replace an existing object.
    static CREATING: ();
}

/// Makes `completion`, which completes an upload, fail if an object of the same name exists. Only
/// some stores support this condition; see [`Connector`].
pub(crate) async fn creating<T>(completion: impl Future<Output = T>) -> T {
    CREATING.scope((), completion).await
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Connector {
    /// For reads, which the loader retries. `object_store` sends each request once.
    Read,
    /// For uploads, which `object_store` retries. `supports_conditions` is true if the server
    /// supports S3's condition for completing an upload. `object_store` cannot set the header for
    /// this condition. The header does not need to be signed.
    Write { supports_conditions: bool },
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // This call fails if the program has installed a provider. That provider works as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let read_timeout = match self {
            Connector::Read => READ_TIMEOUT,
            Connector::Write { .. } => PART_TIMEOUT,
        };
        let options = options
            .clone()
            .with_timeout_disabled()
            .with_read_timeout(read_timeout)
            .with_connect_timeout(CONNECT_TIMEOUT);
        let client = ReqwestConnector::default().connect(&options)?;
        Ok(match self {
            Connector::Read => HttpClient::new(ErrorStatusClient(client)),
            Connector::Write { supports_conditions: true } => HttpClient::new(ConditionalClient(client)),
            Connector::Write { supports_conditions: false } => client,
        })
    }
}

/// An HTTP client that adds the header for [`creating`].
#[derive(Debug)]
struct ConditionalClient(HttpClient);

#[async_trait::async_trait]
impl HttpService for ConditionalClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_completion = request.method() == http::Method::POST
            && request.uri().query().is_some_and(|query| query.contains("uploadId="));
        if is_completion && CREATING.try_with(|_| ()).is_ok() {
            request.headers_mut().insert(http::header::IF_NONE_MATCH, http::HeaderValue::from_static("*"));
        }
        self.0.execute(request).await
    }
}

/// An HTTP client that converts most error statuses to [`Refused`].
#[derive(Debug)]
struct ErrorStatusClient(HttpClient);

#[async_trait::async_trait]
impl HttpService for ErrorStatusClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.execute(request).await?;
        let status = response.status().as_u16();
        // For these status codes, `object_store` has its own errors, which preserve the text.
        if status < 400 || matches!(status, 401 | 403 | 404 | 409 | 412) {
            return Ok(response);
        }
        let text = match Limited::new(response.into_body(), MAX_ERROR_BODY_BYTES).collect().await {
            Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            Err(_) => String::new(),
        };
        Err(HttpError::new(HttpErrorKind::Unknown, Refused { status, text }))
    }
}
