//! Resolves the revision of a dataset on the Hugging Face Hub to a commit, and lists the commit's
//! files.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::{AUTHORIZATION, LINK};
use http_body_util::BodyExt;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequestBody};
use object_store::{ClientOptions, ObjectStoreExt};
use warpfeed_sources::Object;
use warpfeed_sources::{Error, ErrorKind, Result};

use crate::error::convert;
use crate::http::Connector;
use crate::open::{StorePath, hub_endpoint, hub_name, percent_encode};
use crate::runtime::PerProcess;
use crate::store::{COMMIT, wait, within_timeout};

/// Maximum number of pages of a listing. A page of the Hub lists up to 1,000 files.
const MAX_PAGES: usize = 100_000;

/// The commits that this process has found for revisions, by the URL of the request.
type Commits = Mutex<HashMap<String, String>>;

/// Returns the commit of the revision at `location`. A process stores the first commit that it
/// finds for a revision, so that a table, its files and all later reads use this commit even if the
/// branch moves.
async fn commit_of(client: &HttpClient, location: &StorePath) -> Result<String> {
    static COMMITS: PerProcess<Commits> = PerProcess::new();
    let (name, revision) = hub_name(location.root.split_once("://").map_or("", |(_, name)| name));
    // A full hash is already a commit.
    if revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(revision);
    }
    let commits =
        || Ok::<_, Error>(COMMITS.get(|| Ok(Mutex::default()))?.lock().unwrap_or_else(PoisonError::into_inner));
    let url = format!("{}/api/{name}/revision/{revision}", hub_endpoint());
    if let Some(commit) = commits()?.get(&url) {
        return Ok(commit.clone());
    }
    let (response, _) = request_page(client, &url).await?;
    let invalid_response = || Error::new(ErrorKind::Io, format!("listing {url}: the response contains no commit"));
    let commit = parse_commit(&response).ok_or_else(invalid_response)?;
    // If several threads have requested the commit, all of them use the first response.
    Ok(commits()?.entry(url).or_insert(commit).clone())
}

fn client() -> Result<HttpClient> {
    let options = ClientOptions::new().with_allow_http(true);
    Connector::Read.connect(&options).map_err(|e| Error::new(ErrorKind::Io, e.to_string()))
}

/// Returns the object at `location`. The object's tag contains the commit.
pub(crate) fn object(location: StorePath, url: String) -> Result<Object> {
    wait(async move {
        let commit = match client() {
            Ok(client) => commit_of(&client, &location).await,
            Err(e) => Err(e),
        };
        let commit = commit.map_err(|e| e.at_path(&url))?;
        let location = StorePath::at_commit(&url, &commit)?;
        let meta = within_timeout(location.store.head(&location.path), &url, "opening").await?;
        Ok(Object { url, len: meta.size, tag: Some(format!("{COMMIT}{commit}")), server: location.server })
    })
}

/// Lists the objects under the URL `prefix` with the Hub's HTTP API
/// (`/api/datasets/{org}/{name}/tree/{commit}/{path}?recursive=true`). The tag of each object
/// contains the commit, and reads request the file's version in this commit.
pub(crate) fn list(location: Arc<StorePath>, prefix: String) -> Result<Vec<Object>> {
    wait(async move {
        let failed = |e: Error| e.at_path(&prefix);
        let invalid_response = |cause: String| failed(Error::new(ErrorKind::Io, cause));
        let client = client().map_err(failed)?;
        let name = hub_name(location.root.split_once("://").map_or("", |(_, name)| name)).0;
        let folder = percent_encode(location.path.as_ref(), "-._~/");
        let api = format!("{}/api/{name}", hub_endpoint());
        let commit = commit_of(&client, &location).await.map_err(failed)?;
        let tag = Some(format!("{COMMIT}{commit}"));
        let mut next_url = Some(format!("{api}/tree/{commit}/{folder}?recursive=true"));
        let (mut objects, mut seen_pages, mut paths) = (Vec::new(), HashSet::new(), HashSet::new());
        while let Some(page) = next_url {
            if !seen_pages.insert(page.clone()) {
                return Err(invalid_response(format!("listing {page}: the pages link to each other in a loop")));
            }
            if seen_pages.len() > MAX_PAGES {
                return Err(invalid_response(format!("listing {page}: more than {MAX_PAGES} pages")));
            }
            let (response, following_url) = request_page(&client, &page).await.map_err(failed)?;
            let files = parse_files(&response)
                .ok_or_else(|| invalid_response(format!("listing {page}: the response is not a list of files")))?;
            for (path, len) in files {
                if !paths.insert(path.clone()) {
                    return Err(invalid_response(format!("listing {page}: {path:?} is listed twice")));
                }
                let path = object_store::path::Path::parse(&path)
                    .map_err(|e| invalid_response(format!("listing {page}: invalid name: {e}")))?;
                let url = location.url(&path);
                if url.starts_with(&prefix) {
                    objects.push(Object { url, len, tag: tag.clone(), server: location.server.clone() });
                }
            }
            next_url = following_url;
        }
        objects.sort_by(|a, b| a.url.cmp(&b.url));
        Ok(objects)
    })
}

async fn request_page(client: &HttpClient, url: &str) -> Result<(Vec<u8>, Option<String>)> {
    let failed = |e: &dyn std::fmt::Display| Error::new(ErrorKind::Io, format!("listing {url}: {e}"));
    let mut request = http::Request::get(url);
    // The token must never be sent to a different server, even if a `Link` header refers to one.
    let is_hub = url.strip_prefix(&hub_endpoint()).is_some_and(|path| path.starts_with('/'));
    if let (Ok(token), true) = (std::env::var("HF_TOKEN"), is_hub) {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(HttpRequestBody::empty()).map_err(|e| failed(&e))?;
    // `convert` adds the status to the message.
    let request_error = |e: HttpError| {
        let generic = object_store::Error::Generic { store: "hub", source: Box::new(e) };
        convert(generic, url, "listing")
    };
    let response = client.execute(request).await.map_err(request_error)?;
    let (status, next_url) =
        (response.status(), response.headers().get(LINK).and_then(|link| next_page(link.to_str().ok()?)));
    let body = response.into_body().collect().await.map_err(|e| failed(&e).transient())?.to_bytes().to_vec();
    if !status.is_success() {
        let advice = "check the name, and set HF_TOKEN for a private dataset";
        return Err(Error::in_source(format!("listing {url}: {advice} (status {status})")));
    }
    Ok((body, next_url))
}

fn parse_commit(json: &[u8]) -> Option<String> {
    let revision: serde_json::Value = serde_json::from_slice(json).ok()?;
    let commit = revision["sha"].as_str()?;
    (!commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| commit.to_owned())
}

fn parse_files(json: &[u8]) -> Option<Vec<(String, u64)>> {
    let entries: serde_json::Value = serde_json::from_slice(json).ok()?;
    let files = entries.as_array()?.iter().filter(|entry| entry["type"] == "file");
    files.map(|file| Some((file["path"].as_str()?.to_owned(), file["size"].as_u64()?))).collect()
}

/// Returns the URL of the next page from a `Link` header (RFC 8288).
fn next_page(link: &str) -> Option<String> {
    let part = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    Some(part.split_once('<')?.1.split_once('>')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_lists_files_and_links_to_the_next_page() {
        let json = br#"[{"type":"directory","path":"a","size":0},{"type":"file","path":"a/b c.tar","size":7}]"#;
        assert_eq!(parse_files(json).unwrap(), [("a/b c.tar".to_owned(), 7)]);
        assert_eq!(parse_files(b"{}"), None);
        let link = "<https://h/api?cursor=x>; rel=\"next\", <https://h>; rel=\"first\"";
        assert_eq!(next_page(link).as_deref(), Some("https://h/api?cursor=x"));
        assert_eq!(next_page("<https://h>; rel=\"first\""), None);
    }
}
