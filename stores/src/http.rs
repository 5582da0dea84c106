//! The HTTP client. It does not limit the duration of an answer, and its errors keep the server's
//! status.

use std::fmt;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// A request fails if nothing arrives for this long.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);
/// A part of an upload may take this long, and the server answers only after it.
const SENDING: Duration = Duration::from_secs(300);
const CONNECT: Duration = Duration::from_secs(10);
/// Maximum bytes of an error's text that are read.
const TEXT: usize = 1 << 16;

/// An answer with an error status, which `object_store` would hide in a private type.
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
    /// Set while a request is sent that must not replace an object.
    static CREATING: ();
}

/// Completes an upload only if no object has its name, on stores whose [`Connector`] can say so.
pub(crate) async fn creating<T>(completing: impl Future<Output = T>) -> T {
    CREATING.scope((), completing).await
}

/// Creates the clients of all stores.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Connector {
    /// Requests are sent once, because the loader repeats them.
    Read,
    /// `object_store` repeats requests. `conditional` says that the server has S3's condition for
    /// completing an upload. `object_store` does not offer it, and it does not need to be signed.
    Write { conditional: bool },
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // An error means that the program has already chosen another provider, which is fine too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let silence = match self {
            Connector::Read => SILENCE,
            Connector::Write { .. } => SENDING,
        };
        let options = options.clone().with_timeout_disabled().with_read_timeout(silence).with_connect_timeout(CONNECT);
        let client = ReqwestConnector::default().connect(&options)?;
        Ok(match self {
            Connector::Read => HttpClient::new(Service(client)),
            Connector::Write { conditional: true } => HttpClient::new(Conditional(client)),
            Connector::Write { conditional: false } => client,
        })
    }
}

/// Adds the condition of [`creating`].
#[derive(Debug)]
struct Conditional(HttpClient);

#[async_trait::async_trait]
impl HttpService for Conditional {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let completes = request.method() == http::Method::POST
            && request.uri().query().is_some_and(|query| query.contains("uploadId="));
        if completes && CREATING.try_with(|_| ()).is_ok() {
            request.headers_mut().insert(http::header::IF_NONE_MATCH, http::HeaderValue::from_static("*"));
        }
        self.0.execute(request).await
    }
}

#[derive(Debug)]
struct Service(HttpClient);

#[async_trait::async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.execute(request).await?;
        let status = response.status().as_u16();
        // `object_store` has its own errors for 401, 403, 404, 409 and 412, with their text.
        if status < 400 || matches!(status, 401 | 403 | 404 | 409 | 412) {
            return Ok(response);
        }
        let text = match Limited::new(response.into_body(), TEXT).collect().await {
            Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            Err(_) => String::new(),
        };
        Err(HttpError::new(HttpErrorKind::Unknown, Refused { status, text }))
    }
}
