//! Parses URLs, and creates the clients for them.

use std::env;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientOptions, HeaderMap, HeaderValue, ObjectStore, RetryConfig};
use warpfeed_sources::{Error, Result};

use crate::error::convert;
use crate::http::Connector;
use crate::profile::Profile;
use crate::runtime::{Client, Process};

/// Number of additional requests that a client may send to divide its first reads among several
/// connections, because new connections are slow. This number suffices for the indexes of 18 shards
/// of 1 GB (2 additional requests each) together with a first batch of 8 photographs (4 each).
const EXTRA_REQUESTS: u64 = 72;

pub(crate) struct StorePath {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Name of the server, or `None` if the URL determines the server.
    pub(crate) server: Option<Arc<str>>,
    pub(crate) path: Path,
    /// Common prefix of the URLs of all objects in the store.
    pub(crate) root: String,
    /// Whether URLs contain percent-encoded keys, as on web servers.
    pub(crate) is_web: bool,
    /// Whether reads send HTTP's conditional headers. A store that a user has created might not
    /// support these: for example, the ETags of an in-memory store have no quotes.
    pub(crate) supports_conditions: bool,
    /// See [`Client`].
    pub(crate) extra_requests: Arc<AtomicU64>,
}

impl StorePath {
    pub(crate) fn for_reading(url: &str) -> Result<Self> {
        StorePath::new(url, Access::Read)
    }

    /// Returns the location of `url` for writing, with a client that retries requests.
    pub(crate) fn for_writing(url: &str) -> Result<Self> {
        StorePath::new(url, Access::Write)
    }

    fn new(url: &str, access: Access) -> Result<Self> {
        let parts = UrlParts::parse(url)?;
        let is_web = matches!(&*parts.scheme, "http" | "https");
        if (is_web || parts.scheme == "hf") && access == Access::Write {
            let cause = "this store is read-only: write to s3://, gs:// or az://, or to this machine";
            return Err(Error::config(cause).at_path(url));
        }
        let process = Process::current()?;
        let name = match access {
            Access::Read => parts.root.clone(),
            Access::Write => format!("write {}", parts.root),
        };
        let Client { store, server, extra_requests } = process.client(name, || {
            // Some builders start tasks, which need the runtime.
            let _guard = process.runtime.enter();
            client(&parts, url, access).map_err(|e| convert(e, url, "opening the store"))
        })?;
        let path = path(parts.key, is_web).map_err(|cause| Error::config(cause).at_path(url))?;
        Ok(StorePath { store, server, path, root: parts.root, is_web, supports_conditions: true, extra_requests })
    }

    /// Returns the location of the Hub's file at `url` in the version of `commit`.
    pub(crate) fn at_commit(url: &str, commit: &str) -> Result<Self> {
        let parts = UrlParts::parse(url)?;
        StorePath::for_reading(&format!("hf://{}@{commit}/{}", hub_name(parts.bucket).0, parts.key))
    }

    pub(crate) fn url(&self, path: &Path) -> String {
        let key = if self.is_web { percent_encode_key(path.as_ref()) } else { path.to_string() };
        format!("{}/{key}", self.root)
    }
}

pub(crate) fn path(key: &str, is_web: bool) -> Result<Path, String> {
    let path = if is_web { Path::from_url_path(key) } else { Path::parse(key) };
    path.map_err(|e| format!("invalid object name: {e}"))
}

fn percent_encode_key(key: &str) -> String {
    key.chars().fold(String::new(), |mut url, c| {
        match c {
            '%' => url.push_str("%25"),
            '?' => url.push_str("%3F"),
            '#' => url.push_str("%23"),
            ' ' => url.push_str("%20"),
            c => url.push(c),
        }
        url
    })
}

pub(crate) fn is_hub(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("hf"))
}

#[derive(Debug, PartialEq, Eq)]
struct UrlParts<'a> {
    /// The scheme in lowercase.
    scheme: String,
    /// The URL up to the key, without the slash before the key.
    root: String,
    bucket: &'a str,
    key: &'a str,
}

impl<'a> UrlParts<'a> {
    fn parse(url: &'a str) -> Result<Self> {
        let error = |cause: &str| Error::config(cause).at_path(url);
        let (original_scheme, rest) = url.split_once("://").ok_or_else(|| error("not a URL"))?;
        let scheme = original_scheme.to_ascii_lowercase();
        if scheme == "hf" {
            let example = "hf://datasets/org/name/path, or hf://datasets/org/name@revision/path";
            let mut parts = rest.splitn(4, '/');
            let (Some("datasets"), Some(_), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(error(&format!("expected the URL of a dataset on the Hub: {example}")));
            };
            if name.is_empty() {
                return Err(error(&format!("expected the URL of a dataset on the Hub: {example}")));
            }
            let mut key = parts.next().unwrap_or_default();
            // The revisions of pull requests and of converted datasets contain slashes.
            if name.ends_with("@refs")
                && let Some(("pr" | "convert", below)) = key.split_once('/')
            {
                key = below.split_once('/').map_or("", |(_, key)| key);
            }
            let bucket = rest[..rest.len() - key.len()].trim_end_matches('/');
            return Ok(UrlParts { scheme, root: format!("{original_scheme}://{bucket}"), bucket, key });
        }
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(error("the URL has no bucket or host"));
        }
        // The URL may contain secrets, so these errors must not contain all of it.
        if scheme.starts_with("http") && url.contains('?') {
            return Err(Error::config(
                "a signed URL is valid for one request, but the loader sends several; use s3://, gs:// or az:// with credentials",
            )
            .at_path(url.split('?').next().unwrap_or_default()));
        }
        if let Some((user, host)) = bucket.split_once('@')
            && (scheme.starts_with("http") || user.contains(':'))
        {
            let cause =
                "the URL contains a user name or password, which would appear in messages; use a URL without them";
            return Err(Error::config(cause).at_path(format!("{original_scheme}://{host}/{key}")));
        }
        Ok(UrlParts { scheme, root: format!("{original_scheme}://{bucket}"), bucket, key })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Access {
    /// Reads are not retried here, because the loader retries them.
    fn retries(self) -> RetryConfig {
        match self {
            Access::Read => RetryConfig { max_retries: 0, ..RetryConfig::default() },
            Access::Write => RetryConfig::default(),
        }
    }

    fn connector(self, supports_conditions: bool) -> Connector {
        match self {
            Access::Read => Connector::Read,
            Access::Write => Connector::Write { supports_conditions },
        }
    }
}

fn client(parts: &UrlParts<'_>, url: &str, access: Access) -> object_store::Result<Client> {
    let (store, server): (Arc<dyn ObjectStore>, _) = match &*parts.scheme {
        "s3" | "s3a" => s3_client(parts.bucket, access)?,
        "gs" => {
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(parts.bucket);
            let server = builder.get_config_value(&GoogleConfigKey::BaseUrl);
            (
                Arc::new(builder.with_retry(access.retries()).with_http_connector(access.connector(false)).build()?),
                server,
            )
        }
        "http" | "https" => (Arc::new(web_client(&parts.root, HeaderMap::new())?), None),
        "hf" => (Arc::new(hub_client(parts.bucket)?), Some(hub_endpoint()).filter(|server| server != HUB)),
        _ => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(url);
            let keys = [AzureConfigKey::AccountName, AzureConfigKey::Endpoint];
            let server: Vec<_> = keys.iter().filter_map(|key| builder.get_config_value(key)).collect();
            let emulator = builder.get_config_value(&AzureConfigKey::UseEmulator).filter(|used| used == "true");
            let server: Vec<_> = server.into_iter().chain(emulator.map(|_| "emulator".to_owned())).collect();
            let store = builder.with_retry(access.retries()).with_http_connector(access.connector(false)).build()?;
            (Arc::new(store), Some(server.join(" ")))
        }
    };
    let server = server.map(|server| server.trim_end_matches('/').to_owned()).filter(|server| !server.is_empty());
    // The Hub limits the rate of requests.
    let extra_requests = if parts.scheme == "hf" { 0 } else { EXTRA_REQUESTS };
    Ok(Client { store, server: server.map(Into::into), extra_requests: Arc::new(extra_requests.into()) })
}

/// Creates a client for S3, and returns the client with the name of its server. This name is the
/// endpoint or, if no endpoint is set, the [`partition`] of the region: on AWS, the name of a
/// bucket is unique within a partition.
fn s3_client(bucket: &str, access: Access) -> object_store::Result<(Arc<dyn ObjectStore>, Option<String>)> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    let missing = |builder: &AmazonS3Builder, key: AmazonS3ConfigKey| builder.get_config_value(&key).is_none();
    let profile = Profile::read().map_err(|name| {
        let source = format!("NoSuchProfile: {name}").into();
        object_store::Error::Generic { store: "S3", source }
    })?;
    let other_variables =
        ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
    if missing(&builder, AmazonS3ConfigKey::AccessKeyId)
        && other_variables.iter().all(|name| env::var_os(name).is_none())
        && let (Some(key), Some(secret)) = (profile.key, profile.secret)
    {
        builder = builder.with_access_key_id(key).with_secret_access_key(secret);
        if let Some(token) = profile.token {
            builder = builder.with_token(token);
        }
    }
    if let Some(region) = profile.region
        && missing(&builder, AmazonS3ConfigKey::Region)
    {
        builder = builder.with_region(region);
    }
    // `AWS_ENDPOINT_URL_S3` takes precedence over `AWS_ENDPOINT_URL`, as in the builder.
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::S3Endpoint);
    let mut endpoint = endpoint.or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    if endpoint.is_none()
        && let Some(profile_endpoint) = profile.endpoint
    {
        builder = builder.with_endpoint(&profile_endpoint);
        endpoint = Some(profile_endpoint);
    }
    if let Some(endpoint) = &endpoint {
        check_endpoint(endpoint)?;
    }
    // A user who sets an endpoint that begins with `http://` has chosen an unencrypted connection.
    if endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    // Not every S3-compatible server supports bulk removal.
    builder = builder.with_disable_bulk_delete(true);
    let server = endpoint.or_else(|| partition(&builder.get_config_value(&AmazonS3ConfigKey::Region)?));
    Ok((Arc::new(builder.with_retry(access.retries()).with_http_connector(access.connector(true)).build()?), server))
}

/// Checks that an endpoint begins with `http://` or `https://`. Without a scheme, the client would
/// panic on each request.
fn check_endpoint(endpoint: &str) -> object_store::Result<()> {
    if ["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme)) {
        return Ok(());
    }
    let cause = format!("the endpoint {endpoint:?} (AWS_ENDPOINT_URL) must begin with https:// or http://");
    Err(object_store::Error::Generic { store: "S3", source: cause.into() })
}

/// Returns the partition of a region, or `None` for the default partition. Each partition has its
/// own buckets.
fn partition(region: &str) -> Option<String> {
    let prefix = ["cn-", "us-gov-", "us-iso-", "us-isob-", "us-isof-", "eu-isoe-", "eusc-"]
        .into_iter()
        .find(|prefix| region.starts_with(prefix));
    prefix.map(|prefix| format!("aws {prefix}"))
}

fn web_client(root: &str, headers: HeaderMap) -> object_store::Result<object_store::http::HttpStore> {
    let options = ClientOptions::new().with_allow_http(true).with_default_headers(headers);
    HttpBuilder::new()
        .with_url(root)
        .with_client_options(options)
        .with_retry(Access::Read.retries())
        .with_http_connector(Connector::Read)
        .build()
}

/// Creates a client for the Hub. `bucket` is `datasets/org/name` or `datasets/org/name@revision`.
fn hub_client(bucket: &str) -> object_store::Result<object_store::http::HttpStore> {
    let (name, revision) = hub_name(bucket);
    let mut headers = HeaderMap::new();
    if let Ok(token) = env::var("HF_TOKEN")
        && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {token}"))
    {
        value.set_sensitive(true);
        headers.insert("authorization", value);
    }
    web_client(&format!("{}/{name}/resolve/{revision}", hub_endpoint()), headers)
}

/// Returns the name of a dataset on the Hub and its percent-encoded revision, `main` by default.
pub(crate) fn hub_name(bucket: &str) -> (&str, String) {
    let (name, revision) = bucket.split_once('@').unwrap_or((bucket, "main"));
    // Keep `%`: a revision may contain slashes, so the user may have encoded it already.
    (name, percent_encode(revision, "-._~%"))
}

/// Percent-encodes a text, except for ASCII letters, ASCII digits and the characters in `allowed`.
pub(crate) fn percent_encode(text: &str, allowed: &str) -> String {
    text.bytes().fold(String::new(), |mut url, byte| {
        let is_allowed = byte.is_ascii_alphanumeric() || allowed.as_bytes().contains(&byte);
        match is_allowed {
            true => url.push(char::from(byte)),
            false => url.push_str(&format!("%{byte:02X}")),
        }
        url
    })
}

const HUB: &str = "https://huggingface.co";

pub(crate) fn hub_endpoint() -> String {
    let endpoint = env::var("HF_ENDPOINT").unwrap_or_else(|_| HUB.to_owned());
    endpoint.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_an_endpoint_uses_the_bucket_in_the_url() {
        for (url, store) in [
            ("s3://images/train", "AmazonS3(images)"),
            ("gs://images/train", "GoogleCloudStorage(images)"),
            ("az://images@account.dfs.core.windows.net/train", "MicrosoftAzure"),
            ("hf://datasets/org/name", "HttpStore"),
            ("https://host/train", "HttpStore"),
        ] {
            for access in [Access::Read, Access::Write] {
                let description = client(&UrlParts::parse(url).unwrap(), url, access).unwrap().store.to_string();
                assert!(description.contains(store), "{url}: {description}");
            }
        }
    }

    #[test]
    fn an_endpoint_without_a_scheme_is_rejected() {
        for endpoint in ["http://127.0.0.1:9000", "https://minio.example"] {
            check_endpoint(endpoint).unwrap();
        }
        for endpoint in ["127.0.0.1:9000", "minio.example", "s3://minio", ""] {
            let error = check_endpoint(endpoint).unwrap_err().to_string();
            assert!(error.contains(&format!("{endpoint:?}")) && error.contains("AWS_ENDPOINT_URL"), "{error}");
        }
    }

    #[test]
    fn a_url_is_split_into_its_bucket_and_key() {
        for (url, root, bucket, key) in [
            ("s3://b/a/b c%20.jpg", "s3://b", "b", "a/b c%20.jpg"),
            ("gs://b", "gs://b", "b", ""),
            ("https://host:80/a/x.tar", "https://host:80", "host:80", "a/x.tar"),
            ("S3://b/x", "S3://b", "b", "x"),
            (
                "abfss://container@account.dfs.core.windows.net/x",
                "abfss://container@account.dfs.core.windows.net",
                "container@account.dfs.core.windows.net",
                "x",
            ),
            ("hf://datasets/org/name", "hf://datasets/org/name", "datasets/org/name", ""),
            ("hf://datasets/org/name@v1/a/b.tar", "hf://datasets/org/name@v1", "datasets/org/name@v1", "a/b.tar"),
            (
                "hf://datasets/org/name@refs/pr/1/a/b.tar",
                "hf://datasets/org/name@refs/pr/1",
                "datasets/org/name@refs/pr/1",
                "a/b.tar",
            ),
            (
                "hf://datasets/org/name@refs/convert/parquet",
                "hf://datasets/org/name@refs/convert/parquet",
                "datasets/org/name@refs/convert/parquet",
                "",
            ),
        ] {
            let scheme = url.split("://").next().unwrap().to_lowercase();
            assert_eq!(UrlParts::parse(url).unwrap(), UrlParts { scheme, root: root.to_owned(), bucket, key });
        }
        for (url, words) in [
            ("hf://org/name", "hf://datasets/org/name/path"),
            ("s3:///x", "no bucket"),
            ("https://host/x?X-Amz-Signature=1", "signed URL"),
        ] {
            assert!(UrlParts::parse(url).unwrap_err().cause().contains(words), "{url}");
        }
        for url in ["https://host/x?X-Amz-Signature=SECRET", "https://host?sig=SECRET", "https://me:SECRET@host/x"] {
            let e = UrlParts::parse(url).unwrap_err();
            assert!(e.path().unwrap().to_str().unwrap().starts_with("https://host"), "{e}");
            assert!(!e.to_string().contains("SECRET") && !e.to_string().contains("me:"), "{e}");
        }
        for (bucket, revision) in [
            ("datasets/o/n", "main"),
            ("datasets/o/n@v1.0", "v1.0"),
            ("datasets/o/n@refs/pr/1", "refs%2Fpr%2F1"),
            ("datasets/o/n@refs%2Fpr%2F1", "refs%2Fpr%2F1"),
            ("datasets/o/n@fix#7", "fix%237"),
        ] {
            assert_eq!(hub_name(bucket), ("datasets/o/n", revision.to_owned()));
        }
        assert_eq!(path("a/b%20c", true).unwrap().as_ref(), "a/b c");
        assert_eq!(path("a/b%20c", false).unwrap().as_ref(), "a/b%20c");
        assert_eq!(percent_encode_key("a/b c%3"), "a/b%20c%253");
        assert_eq!(partition("eu-west-1"), None);
        assert_ne!(partition("cn-north-1"), partition("us-gov-west-1"));
        for region in ["us-isof-south-1", "eu-isoe-west-1", "eusc-de-east-1"] {
            assert!(partition(region).is_some_and(|partition| partition != "aws us-iso-"), "{region}");
        }
    }
}
