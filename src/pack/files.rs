//! Packed datasets in local folders.
//!
//! An attempt writes a shard under a unique name, then creates a hard link with the name of the
//! complete shard, so that concurrent attempts cannot overwrite each other. A lock prevents
//! concurrent merges. The journal of a part records its complete shards with their checksums.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::destination::{self as dest, Attempt, Destination, Lock, MERGE_END, State};
use super::names::Names;
use super::plan::Plan;
use super::set::{Set, ShardEntry};
use crate::error::{Error, ErrorKind, Result};
use crate::source::attempt::{Attempted, create, remove_abandoned, remove_if_there, sync_folder_of, try_lock};
use crate::source::{MANIFEST_END, is_stopped, rename};

/// Interval at which a process tries again to acquire the merge lock.
const SLICE: Duration = Duration::from_millis(20);

/// A packed dataset in a local folder.
pub(super) struct Files {
    names: Names,
}

impl Files {
    /// Creates the destination for the set `target`, whose name ends in `.tar`.
    pub(super) fn new(target: &Path) -> Self {
        Files { names: Names::new(target, true) }
    }
}

impl Destination for Files {
    fn at(&self, end: &str) -> PathBuf {
        self.names.beside(end)
    }

    fn target(&self) -> PathBuf {
        self.names.target.clone()
    }

    fn ends(&self) -> Result<Vec<String>> {
        self.names.ends()
    }

    fn get(&self, end: &str) -> Result<Option<Vec<u8>>> {
        let path = self.at(end);
        match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|e| Error::io(path, &e)),
        }
    }

    fn put(&self, end: &str, bytes: &[u8], new: bool) -> Result<bool> {
        let path = self.at(end);
        let folder = self.names.folder();
        fs::create_dir_all(folder).map_err(|e| Error::io(folder, &e))?;
        let (attempt, mut file) = create(&path).map_err(|e| Error::io(&path, &e))?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        let placed = written.and_then(|()| match new {
            false => rename(&attempt, &path).map(|()| true),
            true => match fs::hard_link(&attempt, &path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                // The file system does not support hard links.
                Err(_) if !path.exists() => rename(&attempt, &path).map(|()| true),
                linked => linked.map(|()| true),
            },
        });
        let _ = fs::remove_file(&attempt);
        sync_folder_of(&path);
        placed.map_err(|e| Error::io(path, &e))
    }

    fn remove(&self, end: &str) -> Result<()> {
        remove_if_there(&self.at(end))
    }

    fn remove_attempts(&self, attempts: &[String]) -> Result<()> {
        attempts.iter().try_for_each(|end| remove_abandoned(&self.at(end)))
    }

    fn in_place(&self) -> bool {
        false
    }

    fn begin(&self, number: u64, id: &str) -> Result<Box<dyn Attempt>> {
        let path = self.at(&format!("{}.{id}", dest::shard(number)));
        let (path, file) = create(&path).map_err(|e| Error::io(path, &e))?;
        Ok(Box::new(Writing { path, file, staged: self.at(&dest::staged(number, id)) }))
    }

    /// Appends to the journal of the part. The journal is not synced to disk, because a shard whose
    /// line is lost is simply packed again.
    fn note(&self, part: (u64, u64), _: u64, id: &str, entry: &ShardEntry) -> Result<()> {
        let path = self.at(&dest::journal(part, id));
        let line = Line { plan: id.to_owned(), entry: entry.clone() };
        let json = serde_json::to_string(&line).expect("numbers and text");
        // Start with a line break, because the preceding line may be incomplete.
        let line = format!("\n{} {json}\n", sum(crc32fast::hash(json.as_bytes())));
        let open = File::options().create(true).append(true).open(&path);
        open.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|e| Error::io(&path, &e))
    }

    /// Ignores incomplete lines.
    fn noted(&self, part: (u64, u64), _: Range<u64>, id: &str) -> Result<Vec<ShardEntry>> {
        let text = self.get(&dest::journal(part, id))?.unwrap_or_default();
        let entry = |line: &[u8]| {
            let (written, json) = std::str::from_utf8(line).ok()?.split_once(' ')?;
            let line: Line = serde_json::from_str(json).ok()?;
            (written == sum(crc32fast::hash(json.as_bytes())) && line.plan == id).then_some(line.entry)
        };
        let mut entries: Vec<ShardEntry> = text.split(|&byte| byte == b'\n').filter_map(entry).collect();
        // Two attempts may have recorded the same entry.
        entries.sort_by(|a, b| (a.first, &a.name).cmp(&(b.first, &b.name)));
        entries.dedup_by(|a, b| a.name == b.name);
        Ok(entries)
    }

    fn place(&self, number: u64, state: State<'_>) -> PathBuf {
        let renamed = self.at(&dest::shard(number));
        match state {
            State::Staged(id) => self.at(&dest::staged(number, id)),
            State::Merging(id) => {
                Some(self.at(&dest::staged(number, id))).filter(|path| path.exists()).unwrap_or(renamed)
            }
            State::Merged => renamed,
        }
    }

    fn has(&self, number: u64, state: State<'_>, entry: &ShardEntry, whole: bool) -> Result<bool> {
        let path = self.place(number, state);
        if whole { has(&path, entry) } else { Ok(has_size(&path, entry)) }
    }

    fn lock(&self) -> Result<Lock> {
        let path = self.at(".lock.partial");
        loop {
            match try_lock(&path)? {
                Attempted::Locked(locked) => return Ok(Box::new(locked)),
                // If the folder is absent or read-only, no other merge can run either.
                Attempted::Unsupported => return Ok(Box::new(())),
                Attempted::Held if is_stopped() => return Err(stopped()),
                Attempted::Held => std::thread::sleep(SLICE),
            }
        }
    }

    fn publish(&self, plan: &Plan, shards: Vec<ShardEntry>, existing: &[u64]) -> Result<Set> {
        // From here until all shards have been renamed, the folder does not contain a valid set.
        if !dest::is_renaming(self, plan)? {
            self.remove(MANIFEST_END)?;
            // Remove the old shards before any new shard is renamed, so that the two sets are never
            // mixed.
            existing.iter().try_for_each(|&old| self.remove(&dest::shard(old)))?;
            sync_folder_of(&self.names.target);
            dest::write(self, MERGE_END, plan, false)?;
        }
        let id = plan.id();
        for (number, entry) in (0..).zip(&shards) {
            let shard = self.at(&dest::shard(number));
            match rename(self.at(&dest::staged(number, &id)), &shard) {
                Ok(()) => {}
                // An interrupted merge has already renamed the shard.
                Err(e) if e.kind() == io::ErrorKind::NotFound && has_size(&shard, entry) => {}
                Err(e) => return Err(Error::io(&shard, &e)),
            }
        }
        // A user may have removed a shard in the meantime.
        let gone = (0..).zip(&shards).map(|(number, entry)| (self.at(&dest::shard(number)), entry));
        if let Some((shard, _)) = gone.into_iter().find(|(shard, entry)| !has_size(shard, entry)) {
            return Err(
                Error::in_source("the shard is missing or its size has changed: pack its part again").at_path(shard)
            );
        }
        sync_folder_of(&self.names.target);
        let set = Set::new(plan.clone(), shards);
        dest::write(self, MANIFEST_END, &set, false)?;
        Ok(set)
    }
}

/// One line of a journal.
#[derive(Serialize, Deserialize)]
struct Line {
    plan: String,
    entry: ShardEntry,
}

/// A shard that an attempt is writing.
struct Writing {
    path: PathBuf,
    file: File,
    staged: PathBuf,
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Attempt for Writing {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn keep(self: Box<Self>, entry: &ShardEntry) -> Result<()> {
        match fs::hard_link(&self.path, &self.staged) {
            Ok(()) => Ok(()),
            Err(_) if has(&self.staged, entry)? => Ok(()),
            // The existing file is damaged, or the file system does not support hard links.
            Err(_) => rename(&self.path, &self.staged).map_err(|e| Error::io(&self.staged, &e)),
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Io, "merging was stopped")
}

/// Returns whether the size and checksum of the file at `path` match `entry`.
fn has(path: &Path, entry: &ShardEntry) -> Result<bool> {
    let io = |e: io::Error| Error::io(path, &e);
    let mut file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file.map_err(io)?,
    };
    if file.metadata().map_err(io)?.len() != entry.bytes {
        return Ok(false);
    }
    let (mut hasher, mut buffer) = (crc32fast::Hasher::new(), [0; 1 << 16]);
    loop {
        if is_stopped() {
            return Err(stopped());
        }
        match file.read(&mut buffer).map_err(io)? {
            0 => return Ok(sum(hasher.finalize()) == entry.crc32),
            read => hasher.update(&buffer[..read]),
        }
    }
}

/// Returns whether the size of the file at `path` matches `entry`.
fn has_size(path: &Path, entry: &ShardEntry) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == entry.bytes)
}

/// Formats a checksum as it is stored in manifests.
pub(super) fn sum(crc: u32) -> String {
    format!("{crc:08x}")
}

#[cfg(test)]
mod tests {
    use super::super::destination::Leftovers;
    use super::*;

    #[test]
    fn a_small_file_is_written_despite_concurrent_cleanup() {
        let root = tempfile::tempdir().unwrap();
        let (files, done) = (Files::new(&root.path().join("x.tar")), std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    files.remove_attempts(&Leftovers::of(&files.ends().unwrap()).attempts).unwrap();
                }
            });
            let written: Result<Vec<bool>> =
                (0..300).map(|n: u32| files.put(".plan.partial", &n.to_le_bytes(), false)).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            written.unwrap();
        });
        assert_eq!(files.get(".plan.partial").unwrap().unwrap(), 299_u32.to_le_bytes());
        assert_eq!(files.ends().unwrap(), [".plan.partial"]);
    }

    #[test]
    fn a_lock_is_held_by_one_and_leaves_no_file() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::new(&root.path().join("x.tar"));
        let held = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let _lock = files.lock().unwrap();
                        assert_eq!(held.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(files.ends().unwrap().is_empty());
    }
}
