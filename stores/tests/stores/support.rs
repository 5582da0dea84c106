//! A test server that implements HTTP and S3.
#![allow(dead_code, unreachable_pub)] // no test uses everything

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A server of objects, with byte ranges, versions, uploads, and S3's `ListObjectsV2` with a single
/// page.
#[derive(Default)]
pub struct Server {
    /// Version and bytes of each object, by its path, such as `/bucket/key`.
    pub objects: Mutex<BTreeMap<String, (u64, Vec<u8>)>>,
    /// If this is not 0, the server refuses some range requests, truncates some responses, and
    /// closes some connections without a response.
    pub faults: AtomicU64,
    /// Seed for random faults of requests for objects, or 0 for no faults. The third and later
    /// attempts at a range have no random fault.
    pub schedule: AtomicU64,
    pub attempts: Mutex<BTreeMap<(String, usize), u64>>,
    pub fault_counts: Mutex<BTreeMap<u64, u64>>,
    pub expired: AtomicBool,
    pub requests: AtomicU64,
    /// Whether listings contain ETags without quotes, like Azure's.
    pub omits_quotes: AtomicBool,
    /// Whether the server never responds to range requests.
    pub silent: AtomicBool,
    /// Number of requests that are waiting for a response that never comes.
    pub waiting: AtomicU64,
    /// Complete responses by path, or by method and path, in order. The last response repeats.
    pub scripts: Mutex<BTreeMap<String, Vec<String>>>,
    /// Request line and headers of every request.
    pub received: Mutex<Vec<String>>,
    /// Uploads in progress, each with its parts by number.
    pub uploads: Mutex<BTreeMap<String, BTreeMap<usize, Vec<u8>>>>,
}

/// Number of a response without a fault. It is greater than the number of any fault.
pub const NO_FAULT: u64 = 10;

pub fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap()
}

/// Returns the response with a fault, and whether the connection stays open. `body` is the part of
/// the object that begins at offset `start`.
fn faulty(
    fault: u64,
    body: &[u8],
    start: usize,
    len: usize,
    more: &str,
    head: &dyn Fn(&str, &str, usize) -> Vec<u8>,
) -> (Vec<u8>, bool) {
    let partial = |body: &[u8], declared: usize| {
        let range = format!("{more}Content-Range: bytes {start}-{}/{len}\r\n", start + body.len() - 1);
        [&head("206 Partial Content", &range, declared)[..], body].concat()
    };
    let half = &body[..body.len().div_ceil(2)];
    match fault {
        0 => (head("503 Slow Down", "", 0), true),
        1 => (head("429 Too Many Requests", "", 0), true),
        2 => (head("500 Internal Server Error", "", 0), true),
        // The server sends no response, half of the header, or half of the body.
        3 => (Vec::new(), false),
        4 => (b"HTTP/1.1 206 Part".to_vec(), false),
        5 => {
            let body_bytes = partial(body, body.len());
            (body_bytes[..body_bytes.len() - body.len() / 2 - 1].to_vec(), false)
        }
        // The server sends a shorter range than requested, with a correct header or with a wrong
        // header.
        6 => (partial(half, half.len()), true),
        7 => {
            let range = format!("{more}Content-Range: bytes {start}-{}/{len}\r\n", start + body.len() - 1);
            ([&head("206 Partial Content", &range, half.len())[..], half].concat(), true)
        }
        8 => {
            thread::sleep(std::time::Duration::from_millis(60));
            (partial(body, body.len()), true)
        }
        // The body starts late and ends early.
        9 => {
            thread::sleep(std::time::Duration::from_millis(20));
            (partial(half, body.len()), false)
        }
        _ => (partial(body, body.len()), true),
    }
}

impl Server {
    /// Starts a server that receives all requests for `s3://` and `hf://`, for a test in a separate
    /// process.
    #[allow(unsafe_code)]
    pub fn start_for_urls() -> (Arc<Server>, String) {
        let (server, address) = Server::start();
        let variables = [
            ("AWS_ENDPOINT_URL", &*address),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_REGION", "us-east-1"),
            ("HF_ENDPOINT", &*address),
        ];
        for (name, value) in variables {
            // SAFETY: this is the only test in the process, and the server reads no environment
            // variables.
            unsafe { std::env::set_var(name, value) };
        }
        (server, address)
    }

    pub fn start() -> (Arc<Server>, String) {
        let (server, listener) = (Arc::new(Server::default()), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = format!("http://{}", listener.local_addr().unwrap());
        let shared = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let server = shared.clone();
                thread::spawn(move || server.serve(&stream.unwrap()));
            }
        });
        (server, address)
    }

    pub fn put(&self, path: &str, bytes: Vec<u8>) {
        let mut objects = self.objects.lock().unwrap();
        let version = objects.get(path).map_or(0, |(version, _)| version + 1);
        objects.insert(path.to_owned(), (version, bytes));
    }

    pub fn upload(&self, path: &str) -> Option<String> {
        let prefix = format!("{}.", path.replace('/', "."));
        self.uploads.lock().unwrap().keys().find(|id| id.starts_with(&prefix)).cloned()
    }

    fn serve(&self, mut stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let request = reader.by_ref().lines().next()?.ok()?;
            let mut headers = BTreeMap::new();
            loop {
                let line = reader.by_ref().lines().next()?.ok()?;
                let Some((name, value)) = line.split_once(':') else { break };
                headers.insert(name.to_lowercase(), value.trim().to_owned());
            }
            let mut body = vec![0; headers.get("content-length").map_or(0, |len| len.parse().unwrap())];
            reader.read_exact(&mut body).ok()?;
            let mut words = request.split(' ');
            let (method, target) = (words.next()?, words.next()?);
            self.received.lock().unwrap().push(format!("{request} {headers:?}"));
            if headers.contains_key("range") && self.silent.load(Ordering::SeqCst) {
                // The client closes the connection when it gives up.
                self.waiting.fetch_add(1, Ordering::SeqCst);
                let _ = reader.read(&mut [0]);
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                return None;
            }
            if let Some(response) = self.scripted(target).or_else(|| self.scripted(&format!("{method} {target}"))) {
                stream.write_all(response.as_bytes()).ok()?;
                return None;
            }
            let (response, is_kept) = match method {
                "PUT" | "POST" | "DELETE" => (self.modify(method, target, &headers, body), true),
                _ => self.response(method, target, &headers),
            };
            stream.write_all(&response).ok()?;
            if !is_kept {
                return None;
            }
        }
    }

    fn scripted(&self, target: &str) -> Option<String> {
        let mut scripts = self.scripts.lock().unwrap();
        let responses = scripts.get_mut(target)?;
        Some(if responses.len() > 1 { responses.remove(0) } else { responses[0].clone() })
    }

    fn modify(&self, method: &str, target: &str, headers: &BTreeMap<String, String>, body: Vec<u8>) -> Vec<u8> {
        let head = |status: &str, text: &str| {
            format!("HTTP/1.1 {status}\r\nETag: \"e\"\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let parameter = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name));
        let mut uploads = self.uploads.lock().unwrap();
        let refused = || {
            let new = headers.get("if-none-match").is_some_and(|value| value == "*");
            new && self.objects.lock().unwrap().contains_key(path)
        };
        let id = parameter("uploadId=").unwrap_or_default();
        match (method, parameter("partNumber=")) {
            ("POST", _) if query.starts_with("uploads") => {
                let id = format!("{}.{}", path.replace('/', "."), self.requests.fetch_add(1, Ordering::SeqCst));
                uploads.insert(id.clone(), BTreeMap::new());
                let text =
                    format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>");
                head("200 OK", &text)
            }
            (_, _) if !id.is_empty() && !uploads.contains_key(id) => {
                head("404 Not Found", "<Error><Code>NoSuchUpload</Code></Error>")
            }
            ("PUT", Some(number)) => {
                uploads.get_mut(id).unwrap().insert(number.parse().unwrap(), body);
                head("200 OK", "")
            }
            ("POST", _) if !id.is_empty() => {
                if refused() {
                    return head("412 Precondition Failed", "<Error><Code>PreconditionFailed</Code></Error>");
                }
                let parts = uploads.remove(id).unwrap();
                self.put(path, parts.into_values().flatten().collect());
                let text = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>";
                head("200 OK", text)
            }
            ("DELETE", _) if !id.is_empty() => {
                uploads.remove(id);
                head("204 No Content", "")
            }
            ("PUT", None) if refused() => head("412 Precondition Failed", ""),
            ("PUT", None) => {
                self.put(path, body);
                head("200 OK", "")
            }
            _ => {
                self.objects.lock().unwrap().remove(path);
                head("204 No Content", "")
            }
        }
    }

    /// Also returns whether the connection stays open.
    fn response(&self, method: &str, target: &str, headers: &BTreeMap<String, String>) -> (Vec<u8>, bool) {
        let head = |status: &str, more: &str, len: usize| {
            let time = "Last-Modified: Mon, 23 Nov 2026 07:00:00 GMT";
            format!("HTTP/1.1 {status}\r\n{time}\r\nContent-Length: {len}\r\n{more}\r\n").into_bytes()
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = &*decoded(path);
        if query.contains("list-type=2") {
            let xml = self.listing(path, query);
            return ([head("200 OK", "", xml.len()), xml.into_bytes()].concat(), true);
        }
        let objects = self.objects.lock().unwrap();
        let Some((version, bytes)) = objects.get(path) else { return (head("404 Not Found", "", 0), true) };
        let tag = format!("\"v{version}\"");
        if headers.get("if-match").is_some_and(|expected| *expected != tag) {
            return (head("412 Precondition Failed", "", 0), true);
        }
        let more = format!("ETag: {tag}\r\n");
        if method == "HEAD" {
            return (head("200 OK", &more, bytes.len()), true);
        }
        let range = headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let (start, end) =
            range.map_or((0, bytes.len()), |(start, end)| (start.parse().unwrap(), end.parse::<usize>().unwrap() + 1));
        let body = &bytes[start..end];
        if self.expired.load(Ordering::SeqCst) {
            let text = "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>";
            return ([&head("403 Forbidden", "", text.len())[..], text.as_bytes()].concat(), true);
        }
        let seed = self.schedule.load(Ordering::SeqCst);
        if seed > 0 {
            let fault = self.fault(seed, path, start);
            // A delayed response must not block other requests.
            let (body, len) = (body.to_vec(), bytes.len());
            drop(objects);
            return faulty(fault, &body, start, len, &more, &head);
        }
        let partial = format!("{more}Content-Range: bytes {start}-{}/{}\r\n", end - 1, bytes.len());
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        match (self.faults.load(Ordering::SeqCst), number % 7) {
            (1.., 1) => (head("503 Slow Down", "", 0), true),
            (1.., 3) => {
                ([&head("206 Partial Content", &partial, body.len())[..], &body[..body.len() / 2]].concat(), false)
            }
            (1.., 5) => (Vec::new(), false),
            _ => ([&head("206 Partial Content", &partial, body.len())[..], body].concat(), true),
        }
    }

    fn fault(&self, seed: u64, path: &str, start: usize) -> u64 {
        let attempt = {
            let mut attempts = self.attempts.lock().unwrap();
            let attempt = attempts.entry((path.to_owned(), start)).or_default();
            *attempt += 1;
            *attempt
        };
        let hash = path.bytes().fold(start as u64, |hash, byte| hash.wrapping_mul(31) + u64::from(byte));
        let random = (seed ^ hash << 8 ^ attempt << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        let fault = if attempt > 2 { NO_FAULT } else { random % 16 };
        *self.fault_counts.lock().unwrap().entry(fault.min(NO_FAULT)).or_default() += 1;
        fault
    }

    fn listing(&self, bucket: &str, query: &str) -> String {
        let parameter = |name: &str| {
            decoded(&query.split('&').find_map(|part| part.strip_prefix(name)).unwrap_or("").replace('+', " "))
        };
        let (prefix, delimited) = (parameter("prefix="), !parameter("delimiter=").is_empty());
        let (mut keys, mut folders) = (String::new(), std::collections::BTreeSet::new());
        let root = format!("{}/", bucket.trim_end_matches('/'));
        for (path, (version, bytes)) in self.objects.lock().unwrap().iter() {
            let Some(key) = path.strip_prefix(&root).filter(|key| key.starts_with(&prefix)) else { continue };
            if let (true, Some((folder, _))) = (delimited, key[prefix.len()..].split_once('/')) {
                folders.insert(format!("{prefix}{folder}/"));
                continue;
            }
            let quote = if self.omits_quotes.load(Ordering::SeqCst) { "" } else { "&quot;" };
            let (time, len) = ("2026-11-23T07:00:00.000Z", bytes.len());
            keys += &format!(
                "<Contents><Key>{key}</Key><LastModified>{time}</LastModified><ETag>{quote}v{version}{quote}</ETag><Size>{len}</Size></Contents>"
            );
        }
        let folders: String =
            folders.iter().map(|f| format!("<CommonPrefixes><Prefix>{f}</Prefix></CommonPrefixes>")).collect();
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{keys}{folders}</ListBucketResult>")
    }
}
