//! The listing of a data set of the Hugging Face hub.

use std::sync::Arc;

use http::header::{AUTHORIZATION, LINK};
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpRequestBody};
use warpfeed::source::Object;
use warpfeed::{Error, ErrorKind, Result};

use crate::http::Connector;
use crate::open::{Place, hub_endpoint, hub_name};
use crate::store::wait;

/// The objects of the data set whose URL begins with `prefix`, by the hub's HTTP interface
/// (`/api/datasets/{org}/{name}/tree/{revision}/{path}?recursive=true`). The hub's version of a
/// file differs from the ETag that its server returns, so objects have no tag, and only the length
/// is compared.
pub(crate) fn list(place: Arc<Place>, prefix: String) -> Result<Vec<Object>> {
    wait(async move {
        let failed = |cause: String| Error::new(ErrorKind::Io, cause).at_path(&prefix);
        let client =
            Connector.connect(&ClientOptions::new().with_allow_http(true)).map_err(|e| failed(e.to_string()))?;
        let (name, revision) = hub_name(place.root.trim_start_matches("hf://"));
        let folder = place.path.as_ref();
        let mut next = Some(format!("{}/api/{name}/tree/{revision}/{folder}?recursive=true", hub_endpoint()));
        let mut found = Vec::new();
        while let Some(page) = next {
            let (files, after) = page_of(&client, &page).await.map_err(failed)?;
            found.extend(files.into_iter().filter_map(|(path, len)| {
                let url = place.url(&object_store::path::Path::parse(&path).ok()?);
                url.starts_with(&prefix).then_some(Object { url, len, tag: None })
            }));
            next = after;
        }
        found.sort_by(|a, b| a.url.cmp(&b.url));
        Ok(found)
    })
}

/// Paths and lengths of the files of one page, and the address of the next page.
type Page = (Vec<(String, u64)>, Option<String>);

async fn page_of(client: &HttpClient, address: &str) -> std::result::Result<Page, String> {
    let mut request = http::Request::get(address);
    if let Ok(token) = std::env::var("HF_TOKEN") {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(HttpRequestBody::empty()).map_err(|e| format!("listing {address}: {e}"))?;
    let answer = client.execute(request).await.map_err(|e| format!("listing {address}: {e}"))?;
    let (status, link) = (answer.status(), answer.headers().get(LINK).and_then(|link| next(link.to_str().ok()?)));
    let body = answer.into_body().collect().await.map_err(|e| format!("listing {address}: {e}"))?.to_bytes();
    if !status.is_success() {
        let text = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
        let advice = "check the name, and set HF_TOKEN for a private data set";
        return Err(format!("listing {address}: {advice} (status {status}: {text})"));
    }
    Ok((files(&body).ok_or_else(|| format!("listing {address}: the answer is not a list of files"))?, link))
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
