//! Datasets on the Hugging Face Hub: resolves a revision to a commit, and lists the files of the
//! commit.

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
use crate::open::{StorePath, hub_endpoint, hub_name, in_address};
use crate::runtime::PerProcess;
use crate::store::{COMMIT, heard, wait};

/// Maximum number of pages in a listing. Each page of the Hub lists 1,000 files.
const PAGES: usize = 100_000;

/// Commits of the revisions that this process has resolved, by address.
type Commits = Mutex<HashMap<String, String>>;

/// Returns the commit of the revision at `place`. A process requests the commit only once, so that
/// a table, its files and every later read belong to the same commit even if the branch moves.
///
/// # Errors
/// If the request fails, or if the response of the Hub contains no commit.
async fn commit_of(client: &HttpClient, place: &StorePath) -> Result<String> {
    static COMMITS: PerProcess<Commits> = PerProcess::new();
    let (name, revision) = hub_name(place.root.split_once("://").map_or("", |(_, name)| name));
    // A full hash is already a commit.
    if revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(revision);
    }
    let commits =
        || Ok::<_, Error>(COMMITS.get(|| Ok(Mutex::default()))?.lock().unwrap_or_else(PoisonError::into_inner));
    let address = format!("{}/api/{name}/revision/{revision}", hub_endpoint());
    if let Some(commit) = commits()?.get(&address) {
        return Ok(commit.clone());
    }
    let (answer, _) = body_of(client, &address).await?;
    let broken = || Error::new(ErrorKind::Io, format!("listing {address}: the answer has no commit"));
    let commit = commit(&answer).ok_or_else(broken)?;
    // Another thread may have requested the commit at the same time. All threads use the first
    // response.
    Ok(commits()?.entry(address).or_insert(commit).clone())
}

fn client() -> Result<HttpClient> {
    let options = ClientOptions::new().with_allow_http(true);
    Connector::Read.connect(&options).map_err(|e| Error::new(ErrorKind::Io, e.to_string()))
}

/// Returns the file at `url` on the Hub. Its tag is the commit.
pub(crate) fn object(place: StorePath, url: String) -> Result<Object> {
    wait(async move {
        let commit = match client() {
            Ok(client) => commit_of(&client, &place).await,
            Err(e) => Err(e),
        };
        let commit = commit.map_err(|e| e.at_path(&url))?;
        let place = StorePath::of_commit(&url, &commit)?;
        let meta = heard(place.store.head(&place.path), &url, "opening").await?;
        Ok(Object { url, len: meta.size, tag: Some(format!("{COMMIT}{commit}")), server: place.server })
    })
}

/// Lists the objects of the dataset below the URL `prefix` with the Hub's HTTP API
/// (`/api/datasets/{org}/{name}/tree/{commit}/{path}?recursive=true`). The tag of each object is
/// the commit, and reads request the file as of this commit.
pub(crate) fn list(place: Arc<StorePath>, prefix: String) -> Result<Vec<Object>> {
    wait(async move {
        let failed = |e: Error| e.at_path(&prefix);
        let broken = |cause: String| failed(Error::new(ErrorKind::Io, cause));
        let client = client().map_err(failed)?;
        let name = hub_name(place.root.split_once("://").map_or("", |(_, name)| name)).0;
        let folder = in_address(place.path.as_ref(), "-._~/");
        let api = format!("{}/api/{name}", hub_endpoint());
        let commit = commit_of(&client, &place).await.map_err(failed)?;
        let tag = Some(format!("{COMMIT}{commit}"));
        let mut next = Some(format!("{api}/tree/{commit}/{folder}?recursive=true"));
        let (mut found, mut seen, mut paths) = (Vec::new(), HashSet::new(), HashSet::new());
        while let Some(page) = next {
            if !seen.insert(page.clone()) {
                return Err(broken(format!("listing {page}: the pages link to each other in a loop")));
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

/// Requests a page. Returns its content and the address of the next page.
async fn body_of(client: &HttpClient, address: &str) -> Result<(Vec<u8>, Option<String>)> {
    let failed = |e: &dyn std::fmt::Display| Error::new(ErrorKind::Io, format!("listing {address}: {e}"));
    let mut request = http::Request::get(address);
    // Never send the token to another server, even if a `Link` header points to it.
    let own = address.strip_prefix(&hub_endpoint()).is_some_and(|path| path.starts_with('/'));
    if let (Ok(token), true) = (std::env::var("HF_TOKEN"), own) {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(HttpRequestBody::empty()).map_err(|e| failed(&e))?;
    // If the server refuses the request, the error contains the status.
    let refused = |e: HttpError| {
        let generic = object_store::Error::Generic { store: "hub", source: Box::new(e) };
        convert(generic, address, "listing")
    };
    let answer = client.execute(request).await.map_err(refused)?;
    let (status, link) = (answer.status(), answer.headers().get(LINK).and_then(|link| next(link.to_str().ok()?)));
    let body = answer.into_body().collect().await.map_err(|e| failed(&e).transient())?.to_bytes().to_vec();
    if !status.is_success() {
        let advice = "check the name, and set HF_TOKEN for a private dataset";
        return Err(Error::in_source(format!("listing {address}: {advice} (status {status})")));
    }
    Ok((body, link))
}

/// Parses the commit from the Hub's description of a revision.
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

/// Returns the address of the next page in a `Link` header (RFC 8288).
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
