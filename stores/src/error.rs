//! Converts errors of `object_store` to errors that say what to do.

use object_store::client::{HttpError, HttpErrorKind};
use warpfeed_sources::{Error, ErrorKind};

use crate::http::Refused;

const DENIED: &str = "access is denied: check the credentials, and that they may read and list this location";

/// Error codes of S3, Azure and Google Cloud Storage, and phrases in other error messages, each
/// with advice for the user.
const ADVICE: &[(&[&str], &str)] = &[
    (
        &["ExpiredToken", "TokenRefreshRequired", "token has expired"],
        "the credentials have expired: renew them, for example with `aws sso login`, and start again",
    ),
    (
        &["RequestTimeTooSkewed", "RequestExpired"],
        "the clock of this machine differs from the server's: set it, for example with `chronyc makestep`",
    ),
    (
        &["SignatureDoesNotMatch", "InvalidAccessKeyId", "InvalidAuthenticationInfo"],
        "the credentials are refused: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (
        &[
            "AuthorizationHeaderMalformed",
            "PermanentRedirect",
            "incorrectly configured region",
            "IllegalLocationConstraint",
        ],
        "the bucket is in a different region: set AWS_REGION to the region of the bucket",
    ),
    (
        &["NoSuchProfile"],
        "the profile in AWS_PROFILE is in neither ~/.aws/config nor ~/.aws/credentials: check its name",
    ),
    (&["NoSuchBucket", "ContainerNotFound"], "the bucket does not exist: check its name and the endpoint"),
    (&["AccessDenied"], DENIED),
    (
        &["NoSuchUpload"],
        "the server has aborted the upload, for example because of a lifecycle rule of the bucket: start again",
    ),
];

/// Converts the error of a request to `url`. The message begins with `operation`, such as the range
/// of bytes.
pub(crate) fn convert(error: object_store::Error, url: &str, operation: &str) -> Error {
    use object_store::Error as E;
    let text = join_messages(&error);
    let is_in_text = |code: &&str| text.contains(*code);
    let advice = ADVICE.iter().find(|(codes, _)| codes.iter().any(is_in_text)).map(|(_, advice)| *advice);
    // If a response with status 404 contains one of these codes, something other than the object is
    // missing.
    let is_not_found = advice.is_none() && matches!(error, E::NotFound { .. });
    let (refused, http) = (find_source::<Refused>(&error), find_source::<HttpError>(&error));
    let status = refused.map(|refused| refused.status);
    // These errors contain the object's name, which could match the texts below by accident.
    let is_final = matches!(
        error,
        E::NotFound { .. } | E::Precondition { .. } | E::PermissionDenied { .. } | E::Unauthenticated { .. }
    );
    // A server or proxy that is shutting down may send only part of the range, and state this part
    // in the response header.
    let is_other_range = text.contains("Requested ") && text.contains(", got ");
    let is_redirect_loop = text.contains("error following redirect");
    let is_transient = match status {
        _ if is_final || is_redirect_loop => false,
        _ if is_other_range => true,
        Some(408 | 425 | 429 | 500..) => true,
        Some(_) => false,
        None => http.is_some_and(|http| http.kind() != HttpErrorKind::Decode) || text.contains("response body"),
    };
    let is_throttled = matches!(status, Some(429 | 503)) || text.contains("SlowDown");
    let advice = advice.map(str::to_owned).or_else(|| {
        Some(match (&error, status) {
            (E::NotFound { .. }, _) => "the object does not exist: check the URL".to_owned(),
            (E::Precondition { .. }, _) => {
                "the object has changed since it was opened: open the loader again".to_owned()
            }
            (E::PermissionDenied { .. } | E::Unauthenticated { .. }, _) => DENIED.to_owned(),
            (_, Some(405 | 501)) if operation == "listing" => {
                "this server cannot list objects: name them, for example as train-{000..099}.tar".to_owned()
            }
            (_, Some(416)) => "the object is shorter than when it was opened: open the loader again".to_owned(),
            (_, Some(429 | 503)) => "the server is overloaded (too many requests)".to_owned(),
            _ if is_other_range => "the server sent a different range than requested".to_owned(),
            (E::InvalidPath { .. }, _) => {
                "the name of an object under this URL is not a valid path, because a part of it is empty, \".\" \
                 or \"..\": rename or remove it, or open a folder without it"
                    .to_owned()
            }
            _ if is_redirect_loop => "the server redirects this URL in a loop or too often: check the URL".to_owned(),
            _ if text.contains("non-partial") || text.contains("Range request not supported") => {
                "this server does not support byte ranges: use a different server, or copy the dataset".to_owned()
            }
            _ if lacks_credentials(&text) => format!("no credentials were found{}", credential_advice(url)),
            _ if http.is_some_and(|http| http.kind() == HttpErrorKind::Connect) => {
                "cannot connect to the server: check the endpoint and the network".to_owned()
            }
            _ => return None,
        })
    });
    let public_text = remove_secrets(&text);
    let short_text = shorten(&public_text);
    let cause = match advice {
        Some(advice) => format!("{operation}: {advice} ({short_text})"),
        None => format!("{operation}: {short_text}"),
    };
    let kind = match error {
        E::NotFound { .. } | E::Precondition { .. } => ErrorKind::Source,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => ErrorKind::Config,
        _ => ErrorKind::Io,
    };
    let converted = Error::new(kind, cause).at_path(url);
    let converted = if is_not_found { converted.not_found() } else { converted };
    // Attach the source only if its text contains no secrets, because the source may be printed
    // too.
    let converted = if public_text == text { converted.with_source(error) } else { converted };
    match (is_throttled, is_transient) {
        (true, _) => converted.throttled(),
        (false, true) => converted.transient(),
        (false, false) => converted,
    }
}

/// Returns whether an error is about missing credentials: it mentions them outside of a URL, or a
/// request to the server that a cloud machine asks for its credentials has failed.
fn lacks_credentials(text: &str) -> bool {
    const SERVERS: [&str; 2] = ["://169.254.169.254", "://metadata"];
    SERVERS.iter().any(|server| text.contains(server))
        || text.split_whitespace().any(|word| !word.contains('/') && word.contains("credential"))
}

fn credential_advice(url: &str) -> &'static str {
    match url.split_once("://").map_or("", |(scheme, _)| scheme) {
        "s3" => {
            ": set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or AWS_SKIP_SIGNATURE=true for public \
             data"
        }
        "gs" => ": set GOOGLE_APPLICATION_CREDENTIALS to the path of a key file",
        "az" => ": set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        _ => "",
    }
}

fn join_messages(error: &dyn std::error::Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

fn find_source<'a, T: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(cause) = error.downcast_ref() {
            return Some(cause);
        }
        next = error.source();
    }
    None
}

/// Removes secrets from `text`. A server's XML is reduced to the code and the message, because
/// other elements may contain tokens. The query of a URL is removed, because it may contain a
/// signature.
fn remove_secrets(text: &str) -> String {
    let mut public = text.to_owned();
    if let Some(start) = text.find("<?xml").into_iter().chain(text.find("<Error")).min() {
        let end = text[start..].find("</Error>").map_or(text.len(), |end| start + end + "</Error>".len());
        let element = |name: &str| {
            let (_, rest) = text[start..end].split_once(&format!("<{name}>"))?;
            Some(rest.split('<').next().unwrap_or_default().trim())
        };
        let parts: Vec<_> = ["Code", "Message"].into_iter().filter_map(element).collect();
        public = format!("{}{}{}", &text[..start], parts.join(": "), &text[end..]);
    }
    let mut without_queries = String::new();
    while let Some(scheme) = public.find("://") {
        let url = &public[scheme..];
        let end =
            url.find(|c: char| c.is_whitespace() || "()\"'<>".contains(c)).map_or(public.len(), |end| scheme + end);
        let query_start = public[..end].find('?').filter(|&query| query > scheme).unwrap_or(end);
        without_queries.push_str(&public[..query_start]);
        public.drain(..end);
    }
    without_queries + &public
}

/// Reduces `text` to one line, and truncates it after 300 characters.
fn shorten(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(source: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: Box::new(source) }
    }

    fn refused(status: u16, text: &str) -> object_store::Error {
        generic(HttpError::new(HttpErrorKind::Unknown, Refused { status, text: text.to_owned() }))
    }

    #[test]
    fn an_error_contains_advice_and_whether_to_retry() {
        for (error, words, transient, throttled) in [
            (refused(400, "<Code>ExpiredToken</Code>"), "credentials have expired", false, false),
            (refused(400, "<Code>AuthorizationHeaderMalformed</Code>"), "set AWS_REGION", false, false),
            (refused(405, ""), "status 405", false, false),
            (refused(416, ""), "shorter than when", false, false),
            (refused(429, ""), "too many requests", true, true),
            (refused(500, "oops"), "status 500: oops", true, false),
            (refused(503, "<Code>SlowDown</Code>"), "too many requests", true, true),
            (
                generic(HttpError::new(HttpErrorKind::Connect, Refused { status: 0, text: "x".into() })),
                "x",
                false,
                false,
            ),
        ] {
            let e = convert(error, "s3://b/x", "bytes 0 to 9");
            assert!(e.cause().starts_with("bytes 0 to 9: ") && e.cause().contains(words), "{e}");
            assert_eq!((e.is_transient(), e.is_throttled()), (transient, throttled), "{e}");
            assert_eq!(e.path().unwrap().to_str(), Some("s3://b/x"));
        }
        let missing = |text: &str| {
            let error = object_store::Error::NotFound { path: "response body.tar".into(), source: text.into() };
            convert(error, "s3://b/response body.tar", "opening")
        };
        assert!(!missing("404").is_transient() && missing("404").is_not_found());
        for (code, words) in [("NoSuchBucket", "check its name"), ("NoSuchUpload", "has aborted the upload")] {
            let e = missing(&format!("<Code>{code}</Code>"));
            assert!(e.cause().contains(words) && !e.is_not_found(), "{e}");
        }
        let secret = "<?xml version=\"1.0\"?><Error><Code>ExpiredToken</Code><Message>The token has expired.</Message>\
                      <Token-0>SECRET</Token-0></Error>";
        let e = convert(refused(400, secret), "s3://b/x", "opening");
        assert!(e.cause().ends_with("status 400: ExpiredToken: The token has expired.)"), "{e}");
        let sent = "error sending request for url (https://a.blob.core.windows.net/c/x?sig=SECRET&x=1): timed out";
        let sent = convert(generic(std::io::Error::other(sent)), "az://c/x", "opening");
        assert!(sent.cause().ends_with("(https://a.blob.core.windows.net/c/x): timed out"), "{sent}");
        assert!(!format!("{e:?}{sent:?}").contains("SECRET"));
        let denied = |text: &str| object_store::Error::PermissionDenied { path: "x".into(), source: text.into() };
        let e = convert(denied("<Code>RequestTimeTooSkewed</Code>"), "s3://b/x", "opening");
        assert!(e.cause().contains("clock of this machine") && !e.is_transient(), "{e}");
        let e = convert(denied("<Code>AccessDenied</Code>"), "s3://b/x", "opening");
        assert!(e.cause().contains("access is denied") && e.kind() == ErrorKind::Config, "{e}");
        // S3 allows keys that are not valid paths.
        let source = object_store::path::Path::parse("set/a//b.jpg").unwrap_err();
        let e = convert(object_store::Error::InvalidPath { source }, "s3://b/set", "listing");
        assert!(e.cause().contains("\"set/a//b.jpg\"") && e.cause().contains("rename or remove it"), "{e}");
        let e = convert(refused(405, ""), "s3://b/x", "listing");
        assert!(e.cause().contains("this server cannot list objects"), "{e}");
        for (url, text, advice) in [
            ("s3://b/metadata.jsonl", "performing GET https://b.s3/metadata.jsonl: credential-store/x: reset", None),
            (
                "s3://b/x",
                "performing PUT http://169.254.169.254/latest/api/token: timed out",
                Some("set AWS_ACCESS_KEY_ID"),
            ),
            (
                "gs://b/x",
                "GET http://metadata.google.internal/token: timed out",
                Some("set GOOGLE_APPLICATION_CREDENTIALS"),
            ),
            ("az://b/x", "no credential was configured", Some("set AZURE_STORAGE_ACCOUNT_NAME")),
        ] {
            let e = convert(generic(std::io::Error::other(text)), url, "opening");
            assert_eq!(e.cause().contains("no credentials were found"), advice.is_some(), "{e}");
            assert!(advice.is_none_or(|advice| e.cause().contains(advice)), "{e}");
        }
        let e = convert(refused(403, "<Error><Code>AccessDenied</Code></Error>"), "s3://b/x", "listing");
        assert!(e.cause().contains("access is denied") && !e.is_transient(), "{e}");
    }
}
