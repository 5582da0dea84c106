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

/// Creates the clients of all stores.
#[derive(Debug, Default)]
pub(crate) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // An error means that the program has already chosen another provider, which is fine too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = options.clone().with_timeout_disabled().with_read_timeout(SILENCE).with_connect_timeout(CONNECT);
        Ok(HttpClient::new(Service(ReqwestConnector::default().connect(&options)?)))
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
