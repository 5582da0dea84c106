//! The listing of a data set of the Hugging Face hub.

use std::collections::HashSet;
use std::sync::Arc;

use http::header::{AUTHORIZATION, LINK};
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequestBody};
use warpfeed::source::Object;
use warpfeed::{Error, ErrorKind, Result};

use crate::error::convert;
use crate::http::Connector;
use crate::open::{Place, hub_endpoint, hub_name};
use crate::store::{COMMIT, wait};

/// Maximum number of pages of a listing. The hub's have 1,000 files each.
const PAGES: usize = 100_000;

/// The objects of the data set whose URL begins with `prefix`, by the hub's HTTP interface
/// (`/api/datasets/{org}/{name}/tree/{commit}/{path}?recursive=true`). The tag of an object is the
/// commit of the revision at this time, and reads ask for the file of this commit.
pub(crate) fn list(place: Arc<Place>, prefix: String) -> Result<Vec<Object>> {
    wait(async move {
        let failed = |e: Error| e.at_path(&prefix);
        let broken = |cause: String| failed(Error::new(ErrorKind::Io, cause));
        let client =
            Connector::Read.connect(&ClientOptions::new().with_allow_http(true)).map_err(|e| broken(e.to_string()))?;
        let (name, revision) = hub_name(place.root.split_once("://").map_or("", |(_, name)| name));
        let folder = place.path.as_ref();
        let api = format!("{}/api/{name}", hub_endpoint());
        let address = format!("{api}/revision/{revision}");
        let (answer, _) = body_of(&client, &address).await.map_err(failed)?;
        let commit = commit(&answer).ok_or_else(|| broken(format!("listing {address}: the answer has no commit")))?;
        let tag = Some(format!("{COMMIT}{commit}"));
        let mut next = Some(format!("{api}/tree/{commit}/{folder}?recursive=true"));
        let (mut found, mut seen, mut paths) = (Vec::new(), HashSet::new(), HashSet::new());
        while let Some(page) = next {
            if !seen.insert(page.clone()) {
                return Err(broken(format!("listing {page}: the pages follow each other in a circle")));
            }
            if seen.len() > PAGES {
                return Err(broken(format!("listing {page}: more than {PAGES} pages")));
            }
            let (answer, after) = body_of(&client, &page).await.map_err(failed)?;
            let files =
                files(&answer).ok_or_else(|| broken(format!("listing {page}: the answer is not a list of files")))?;
            for (path, len) in files {
                if !paths.insert(path.clone()) {
                    return Err(broken(format!("listing {page}: {path:?} is listed twice")));
                }
                let path = object_store::path::Path::parse(&path)
                    .map_err(|e| broken(format!("listing {page}: invalid name: {e}")))?;
                let url = place.url(&path);
                if url.starts_with(&prefix) {
                    found.push(Object { url, len, tag: tag.clone(), server: place.server.clone() });
                }
            }
            next = after;
        }
        found.sort_by(|a, b| a.url.cmp(&b.url));
        Ok(found)
    })
}

/// The answer at `address`, and the address of the next page.
async fn body_of(client: &HttpClient, address: &str) -> Result<(Vec<u8>, Option<String>)> {
    let failed = |e: &dyn std::fmt::Display| Error::new(ErrorKind::Io, format!("listing {address}: {e}"));
    let mut request = http::Request::get(address);
    // Pages of another server, to which a link may lead, do not get the token.
    let own = address.strip_prefix(&hub_endpoint()).is_some_and(|path| path.starts_with('/'));
    if let (Ok(token), true) = (std::env::var("HF_TOKEN"), own) {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(HttpRequestBody::empty()).map_err(|e| failed(&e))?;
    // The server's refusals are errors too, with their status.
    let refused = |e: HttpError| {
        let generic = object_store::Error::Generic { store: "hub", source: Box::new(e) };
        convert(generic, address, "listing")
    };
    let answer = client.execute(request).await.map_err(refused)?;
    let (status, link) = (answer.status(), answer.headers().get(LINK).and_then(|link| next(link.to_str().ok()?)));
    let body = answer.into_body().collect().await.map_err(|e| failed(&e).transient())?.to_bytes().to_vec();
    if !status.is_success() {
        let advice = "check the name, and set HF_TOKEN for a private data set";
        return Err(Error::in_source(format!("listing {address}: {advice} (status {status})")));
    }
    Ok((body, link))
}

/// The commit of a revision.
fn commit(json: &[u8]) -> Option<String> {
    let revision: serde_json::Value = serde_json::from_slice(json).ok()?;
    let commit = revision["sha"].as_str()?;
    (!commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| commit.to_owned())
}

fn files(json: &[u8]) -> Option<Vec<(String, u64)>> {
    let entries: serde_json::Value = serde_json::from_slice(json).ok()?;
    let files = entries.as_array()?.iter().filter(|entry| entry["type"] == "file");
    files.map(|file| Some((file["path"].as_str()?.to_owned(), file["size"].as_u64()?))).collect()
}

/// The address of the next page in a `Link` header (RFC 8288).
fn next(link: &str) -> Option<String> {
    let part = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    Some(part.split_once('<')?.1.split_once('>')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_lists_files_and_links_the_next() {
        let json = br#"[{"type":"directory","path":"a","size":0},{"type":"file","path":"a/b c.tar","size":7}]"#;
        assert_eq!(files(json).unwrap(), [("a/b c.tar".to_owned(), 7)]);
        assert_eq!(files(b"{}"), None);
        let link = "<https://h/api?cursor=x>; rel=\"next\", <https://h>; rel=\"first\"";
        assert_eq!(next(link).as_deref(), Some("https://h/api?cursor=x"));
        assert_eq!(next("<https://h>; rel=\"first\""), None);
    }
}
