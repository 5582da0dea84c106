//! [`FolderDestination`] packs to a local folder.
//!
//! A process writes a shard under a unique name. The process then adds a hard link under the name
//! of a complete shard, because a hard link, unlike a rename, cannot overwrite the shard of a
//! concurrent process. If the file system does not support hard links, the process renames the
//! shard. The journal of a part records its complete shards with their checksums. A lock file
//! prevents concurrent merges if the file system supports locks.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::destination::{self as dest, Destination, Lock, MERGE_SUFFIX, ShardState, ShardWriter};
use super::manifests::{Manifest, ShardEntry};
use super::names::ShardNames;
use super::plan::Plan;
use crate::error::{Error, ErrorKind, Result};
use crate::source::temp_files::{LockAttempt, create, remove_abandoned, remove_if_exists, sync_folder_of, try_lock};
use crate::source::{MANIFEST_SUFFIX, is_stopped, rename};

const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

pub(super) struct FolderDestination {
    names: ShardNames,
}

impl FolderDestination {
    /// Creates the destination for `target`. Suffixes replace its ending `.tar`, if any.
    pub(super) fn new(target: &Path) -> Self {
        FolderDestination { names: ShardNames::new(target, true) }
    }
}

impl Destination for FolderDestination {
    fn path_of(&self, suffix: &str) -> PathBuf {
        self.names.sibling_path(suffix)
    }

    fn target(&self) -> PathBuf {
        self.names.target.clone()
    }

    fn suffixes(&self) -> Result<Vec<String>> {
        self.names.suffixes()
    }

    fn get(&self, suffix: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path_of(suffix);
        match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            result => result.map(Some).map_err(|e| Error::io(path, &e)),
        }
    }

    fn put(&self, suffix: &str, bytes: &[u8], must_be_new: bool) -> Result<bool> {
        let path = self.path_of(suffix);
        let folder = self.names.folder();
        fs::create_dir_all(folder).map_err(|e| Error::io(folder, &e))?;
        let (temporary_path, mut file) = create(&path).map_err(|e| Error::io(&path, &e))?;
        let write_result = file.write_all(bytes).and_then(|()| file.sync_all());
        let result = write_result.and_then(|()| match must_be_new {
            false => rename(&temporary_path, &path).map(|()| true),
            true => match fs::hard_link(&temporary_path, &path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                // The file system does not support hard links.
                Err(_) if !path.exists() => rename(&temporary_path, &path).map(|()| true),
                link_result => link_result.map(|()| true),
            },
        });
        let _ = fs::remove_file(&temporary_path);
        sync_folder_of(&path);
        result.map_err(|e| Error::io(path, &e))
    }

    fn remove(&self, suffix: &str) -> Result<()> {
        remove_if_exists(&self.path_of(suffix))
    }

    fn remove_attempts(&self, attempts: &[String]) -> Result<()> {
        attempts.iter().try_for_each(|suffix| remove_abandoned(&self.path_of(suffix)).map(drop))
    }

    fn uploads_in_place(&self) -> bool {
        false
    }

    fn begin_shard(&self, number: u64, plan_id: &str) -> Result<Box<dyn ShardWriter>> {
        let path = self.path_of(&format!("{}.{plan_id}", dest::shard_suffix(number)));
        let (path, file) = create(&path).map_err(|e| Error::io(path, &e))?;
        Ok(Box::new(ShardFile { path, file, staged_path: self.path_of(&dest::staged_suffix(number, plan_id)) }))
    }

    /// Appends an entry to the journal without flushing it to the disk. If an entry is lost, its
    /// shard and all later shards of the part are packed again.
    fn record_shard(&self, part: (u64, u64), _: u64, plan_id: &str, entry: &ShardEntry) -> Result<()> {
        let path = self.path_of(&dest::journal_suffix(part, plan_id));
        let line = JournalLine { plan: plan_id.to_owned(), entry: entry.clone() };
        let json = serde_json::to_string(&line).expect("a journal line serializes to JSON");
        // The last line may be incomplete, so the entry begins with a line break.
        let line = format!("\n{} {json}\n", format_crc32(crc32fast::hash(json.as_bytes())));
        let open = File::options().create(true).append(true).open(&path);
        open.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|e| Error::io(&path, &e))
    }

    fn recorded_shards(&self, part: (u64, u64), _: Range<u64>, plan_id: &str) -> Result<Vec<ShardEntry>> {
        let text = self.get(&dest::journal_suffix(part, plan_id))?.unwrap_or_default();
        let entry = |line: &[u8]| {
            let (crc32, json) = std::str::from_utf8(line).ok()?.split_once(' ')?;
            let line: JournalLine = serde_json::from_str(json).ok()?;
            (crc32 == format_crc32(crc32fast::hash(json.as_bytes())) && line.plan == plan_id).then_some(line.entry)
        };
        let mut entries: Vec<ShardEntry> = text.split(|&byte| byte == b'\n').filter_map(entry).collect();
        // Two attempts may have recorded the same entry.
        entries.sort_by(|a, b| (a.first, &a.name).cmp(&(b.first, &b.name)));
        entries.dedup_by(|a, b| a.name == b.name);
        Ok(entries)
    }

    fn shard_path(&self, number: u64, state: ShardState<'_>) -> PathBuf {
        let final_path = self.path_of(&dest::shard_suffix(number));
        match state {
            ShardState::Staged(plan_id) => self.path_of(&dest::staged_suffix(number, plan_id)),
            ShardState::Merging(plan_id) => Some(self.path_of(&dest::staged_suffix(number, plan_id)))
                .filter(|path| path.exists())
                .unwrap_or(final_path),
            ShardState::Merged => final_path,
        }
    }

    fn has_shard(
        &self,
        number: u64,
        state: ShardState<'_>,
        entry: &ShardEntry,
        must_be_complete: bool,
    ) -> Result<bool> {
        let path = self.shard_path(number, state);
        if must_be_complete { has_content(&path, entry) } else { Ok(has_size(&path, entry)) }
    }

    fn lock(&self) -> Result<Lock> {
        let path = self.path_of(".lock.partial");
        loop {
            match try_lock(&path)? {
                LockAttempt::Locked(lock) => return Ok(Box::new(lock)),
                // In a folder that is missing or read-only, no other process can merge either. If
                // the file system does not support locks, a warning has been logged.
                LockAttempt::Unsupported => return Ok(Box::new(())),
                LockAttempt::HeldElsewhere if is_stopped() => return Err(stopped_error()),
                LockAttempt::HeldElsewhere => std::thread::sleep(LOCK_RETRY_INTERVAL),
            }
        }
    }

    fn publish(&self, plan: &Plan, shards: Vec<ShardEntry>, old_shards: &[u64]) -> Result<Manifest> {
        // Until all shards have been renamed, the folder does not contain a complete dataset.
        if !dest::is_renaming(self, plan)? {
            self.remove(MANIFEST_SUFFIX)?;
            // Removing the old shards before any new shard is renamed keeps the two datasets apart.
            old_shards.iter().try_for_each(|&old_shard| self.remove(&dest::shard_suffix(old_shard)))?;
            sync_folder_of(&self.names.target);
            dest::write_json(self, MERGE_SUFFIX, plan, false)?;
        }
        let plan_id = plan.id();
        for (number, entry) in (0..).zip(&shards) {
            let shard = self.path_of(&dest::shard_suffix(number));
            match rename(self.path_of(&dest::staged_suffix(number, &plan_id)), &shard) {
                Ok(()) => {}
                // An interrupted merge has already renamed the shard.
                Err(e) if e.kind() == io::ErrorKind::NotFound && has_size(&shard, entry) => {}
                Err(e) => return Err(Error::io(&shard, &e)),
            }
        }
        // A user may have removed a shard while the merge was running.
        let paths = (0..).zip(&shards).map(|(number, entry)| (self.path_of(&dest::shard_suffix(number)), entry));
        if let Some((shard, _)) = paths.into_iter().find(|(shard, entry)| !has_size(shard, entry)) {
            return Err(
                Error::in_source("the shard is missing, or its size has changed: pack its part again").at_path(shard)
            );
        }
        sync_folder_of(&self.names.target);
        let manifest = Manifest::new(plan.clone(), shards);
        dest::write_json(self, MANIFEST_SUFFIX, &manifest, false)?;
        Ok(manifest)
    }
}

#[derive(Serialize, Deserialize)]
struct JournalLine {
    plan: String,
    entry: ShardEntry,
}

struct ShardFile {
    path: PathBuf,
    file: File,
    staged_path: PathBuf,
}

impl Write for ShardFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ShardWriter for ShardFile {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn publish(self: Box<Self>, entry: &ShardEntry) -> Result<()> {
        match fs::hard_link(&self.path, &self.staged_path) {
            Ok(()) => Ok(()),
            Err(_) if has_content(&self.staged_path, entry)? => Ok(()),
            // The existing file is damaged, or the file system does not support hard links.
            Err(_) => rename(&self.path, &self.staged_path).map_err(|e| Error::io(&self.staged_path, &e)),
        }
    }
}

impl Drop for ShardFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn stopped_error() -> Error {
    Error::new(ErrorKind::Io, "checking or merging shards was stopped")
}

fn has_content(path: &Path, entry: &ShardEntry) -> Result<bool> {
    let io_error = |e: io::Error| Error::io(path, &e);
    let mut file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file.map_err(io_error)?,
    };
    if file.metadata().map_err(io_error)?.len() != entry.bytes {
        return Ok(false);
    }
    let (mut hasher, mut buffer) = (crc32fast::Hasher::new(), [0; 1 << 16]);
    loop {
        if is_stopped() {
            return Err(stopped_error());
        }
        match file.read(&mut buffer).map_err(io_error)? {
            0 => return Ok(format_crc32(hasher.finalize()) == entry.crc32),
            len => hasher.update(&buffer[..len]),
        }
    }
}

fn has_size(path: &Path, entry: &ShardEntry) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == entry.bytes)
}

pub(super) fn format_crc32(crc: u32) -> String {
    format!("{crc:08x}")
}

#[cfg(test)]
mod tests {
    use super::super::destination::TemporaryFiles;
    use super::*;

    #[test]
    fn small_files_survive_concurrent_cleanup() {
        let root = tempfile::tempdir().unwrap();
        let (files, done) =
            (FolderDestination::new(&root.path().join("x.tar")), std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    files.remove_attempts(&TemporaryFiles::from_suffixes(&files.suffixes().unwrap()).attempts).unwrap();
                }
            });
            let written: Result<Vec<bool>> =
                (0..300).map(|n: u32| files.put(".plan.partial", &n.to_le_bytes(), false)).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            written.unwrap();
        });
        assert_eq!(files.get(".plan.partial").unwrap().unwrap(), 299_u32.to_le_bytes());
        assert_eq!(files.suffixes().unwrap(), [".plan.partial"]);
    }

    #[test]
    fn the_lock_is_exclusive_and_leaves_no_file() {
        let root = tempfile::tempdir().unwrap();
        let files = FolderDestination::new(&root.path().join("x.tar"));
        let holders = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let _lock = files.lock().unwrap();
                        assert_eq!(holders.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        holders.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(files.suffixes().unwrap().is_empty());
    }
}
