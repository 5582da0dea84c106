//! [`VideoFile`]: a video file and its sample table. [`VideoFileCache`]: caches the most recently
//! used video files.
//!
//! The sample table maps a frame to the packets of its group of pictures. The packets become a
//! [record](warpfeed_video::record), which a codec decodes like an image.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use warpfeed_video::{Codec, ErrorKind, Input, Packet, Track, record};

use crate::error::{Error, Result, append};
use crate::machine::bytes::grow_to;
use crate::machine::cancel::{self, POLL_INTERVAL};
use crate::model::VideoInfo;
use crate::storage::OpenFile;

/// Maximum number of packets in the tables that stay in memory. A packet takes 28 bytes. The files
/// that are being read may exceed this maximum.
const MAX_PACKETS: usize = 1 << 20;
/// Maximum size of a prefetched group of pictures, in bytes.
const MAX_GROUP_BYTES: u64 = 16 << 20;
/// Maximum number of bytes of other tracks between two packets that one request reads.
const MAX_GAP_BYTES: u64 = 64 << 10;

/// Returns the prefetch key of the group of pictures that starts with packet `first`.
pub(crate) fn group_key(file: u32, first: usize) -> u64 {
    u64::from(file) << 32 | first as u64
}

pub(crate) struct VideoFile {
    file: OpenFile,
    track: Track,
    /// Path relative to the dataset, for messages.
    name: String,
    /// Number of the file in the dataset, for prefetch keys.
    number: Option<u32>,
}

impl VideoFile {
    pub(crate) fn new(file: OpenFile, name: String) -> Result<Self> {
        let with_path = |e: Error| e.at_path(&file.path);
        let track = warpfeed_video::open(&FileInput(&file)).map_err(|e| with_path(from_video_error(e)))?;
        warpfeed_video::check(track.config().codec).map_err(|e| with_path(Error::in_source(e.to_string())))?;
        Ok(VideoFile { file, track, name, number: None })
    }

    pub(crate) fn with_number(self, number: Option<u32>) -> Self {
        VideoFile { number, ..self }
    }

    pub(crate) fn number(&self) -> Option<u32> {
        self.number
    }

    pub(crate) fn info(&self) -> VideoInfo {
        let config = self.track.config();
        let pixels = u64::from(config.width) * u64::from(config.height);
        VideoInfo { pixels, needs_gpu: config.codec != Codec::Av1 }
    }

    pub(crate) fn track(&self) -> &Track {
        &self.track
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.file.check()
    }

    pub(crate) fn packet_reader(self: &Arc<Self>) -> PacketReader {
        PacketReader { video: self.clone(), read_runs: Vec::new() }
    }

    /// Yields the packet range of each group of pictures that contains some of `packets`.
    fn groups_with(&self, packets: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (packets_in_track, mut next_packet) = (self.track.packets(), packets.start);
        std::iter::from_fn(move || {
            if next_packet >= packets.end {
                return None;
            }
            let start = packets_in_track[..=next_packet].iter().rposition(|packet| packet.is_key).unwrap_or(0);
            let next_key = packets_in_track[next_packet + 1..].iter().position(|packet| packet.is_key);
            next_packet = next_key.map_or(packets_in_track.len(), |len| next_packet + 1 + len);
            Some(start..next_packet)
        })
    }

    /// Returns the byte range of a group of pictures. Returns `None` if the group is too large to
    /// be read at once, is scattered over the file, or extends past the end of the file.
    fn group_bytes(&self, group: Range<usize>) -> Option<Range<u64>> {
        let packets = &self.track.packets()[group];
        let start = packets.iter().map(|packet| packet.offset).min()?;
        let end = packets.iter().map(packet_end).max()?;
        let needed: u64 = packets.iter().map(|packet| u64::from(packet.size)).sum();
        let is_compact = end - start <= needed.saturating_mul(2).saturating_add(MAX_GAP_BYTES);
        (is_compact && end - start <= MAX_GROUP_BYTES && end <= self.file.len()).then_some(start..end)
    }

    /// Returns the first packet and the byte range of each group of pictures that is fetched if
    /// `frames` are read in this order. A group occurs again if a later frame returns to it,
    /// because [`PacketReader::fetch`] has dropped its bytes by then. Omits groups without a [byte
    /// range](VideoFile::group_bytes).
    pub(crate) fn groups(&self, frames: &[usize]) -> Vec<(usize, Range<u64>)> {
        let (mut groups, mut previous) = (Vec::new(), Vec::new());
        for &frame in frames {
            let needed: Vec<Range<usize>> = self.groups_with(self.needed_packets(frame)).collect();
            for group in needed.iter().filter(|group| !previous.contains(*group)) {
                groups.extend(self.group_bytes(group.clone()).map(|bytes| (group.start, bytes)));
            }
            previous = needed;
        }
        groups
    }

    fn needed_packets(&self, frame: usize) -> Range<usize> {
        self.track.start_packet(frame)..self.track.packet_index(frame) + 1
    }

    /// `frame` is the frame that needs the bytes, for messages.
    fn check_end(&self, range: &Range<u64>, frame: usize) -> Result<()> {
        let len = self.file.len();
        if range.end <= len {
            return Ok(());
        }
        Err(Error::in_source(format!(
            "frame {frame} ends at byte {}, but the file has only {len} bytes: it is truncated",
            range.end
        )))
    }

    /// Reads the bytes in `range`. `frame` is the frame that needs the bytes, for messages.
    fn bytes<'a>(&'a self, range: Range<u64>, frame: usize, page: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        self.check_end(&range, frame)?;
        page.clear();
        self.file.get(range.start, range.end - range.start, page)
    }
}

fn packet_end(packet: &Packet) -> u64 {
    packet.offset.saturating_add(packet.size.into())
}

/// Reads the packets of the frames of one sample. A run of bytes that was read from a store stays
/// in memory until a [fetch](PacketReader::fetch) needs none of its packets.
pub(crate) struct PacketReader {
    video: Arc<VideoFile>,
    /// Bytes that were read from a store, with their offsets.
    read_runs: Vec<(u64, Vec<u8>)>,
}

impl PacketReader {
    pub(crate) fn append_record(&mut self, frame: usize, out: &mut Vec<u8>) -> Result<()> {
        let track = self.video.track();
        let packets = self.video.needed_packets(frame);
        let label = format!("{}: frame {frame} at {} s", self.video.name, track.time(frame).seconds());
        self.start(&label, packets.len() as u32, out)?;
        self.fetch(packets.clone(), frame)?;
        self.append(packets, frame, out)
    }

    /// Appends the start of a record to which packets of one group of pictures can be appended.
    /// After each packet, the bytes are the record of a frame.
    pub(crate) fn start_group(&self, out: &mut Vec<u8>) -> Result<()> {
        self.start(&self.video.name, record::ALL_PACKETS, out)
    }

    fn start(&self, label: &str, count: u32, out: &mut Vec<u8>) -> Result<()> {
        let VideoFile { file, track, .. } = &*self.video;
        file.check()?;
        record::write_header(track.config(), track.orientation(), label, count, out).map_err(from_video_error)
    }

    /// Reads `packets` from the store. Does nothing for a local file. `frame` is the frame that
    /// needs the packets, for messages.
    pub(crate) fn fetch(&mut self, packets: Range<usize>, frame: usize) -> Result<()> {
        let VideoFile { file, track, number, .. } = &*self.video;
        let Some((object, remote)) = file.object() else { return Ok(()) };
        let all_packets = track.packets();
        self.read_runs
            .retain(|run| all_packets[packets.clone()].iter().any(|packet| packet_in_run(run, packet).is_some()));
        for group in self.video.groups_with(packets.clone()) {
            let needed_in_group = group.start.max(packets.start)..group.end.min(packets.end);
            let missing: Vec<&Packet> =
                all_packets[needed_in_group].iter().filter(|packet| self.bytes_of(packet).is_none()).collect();
            if missing.is_empty() {
                continue;
            }
            if let Some((number, range)) = number.zip(self.video.group_bytes(group.clone())) {
                let mut bytes = Vec::new();
                let out = grow_to(&mut bytes, range.end - range.start)?;
                if remote.read_prefetched(group_key(number, group.start), object, range.start, out)? {
                    self.read_runs.push((range.start, bytes));
                    continue;
                }
            }
            // Bytes of other tracks are often between the packets.
            for run in missing.chunk_by(|a, b| packet_end(a) <= b.offset && b.offset - packet_end(a) <= MAX_GAP_BYTES) {
                let range = run[0].offset..packet_end(run[run.len() - 1]);
                self.video.check_end(&range, frame)?;
                let mut bytes = Vec::new();
                file.fill(range.start, grow_to(&mut bytes, range.end - range.start)?)?;
                self.read_runs.push((range.start, bytes));
            }
        }
        Ok(())
    }

    fn bytes_of(&self, packet: &Packet) -> Option<&[u8]> {
        self.read_runs.iter().find_map(|run| packet_in_run(run, packet))
    }

    /// Appends the sizes and the bytes of `packets` to `out`. Packets in a store must have been
    /// [fetched](PacketReader::fetch). `frame` is for messages.
    pub(crate) fn append(&self, packets: Range<usize>, frame: usize, out: &mut Vec<u8>) -> Result<()> {
        let mut page = Vec::new();
        // Packets of a video are often adjacent.
        for run in self.video.track.packets()[packets].chunk_by(|a, b| packet_end(a) == b.offset && !self.is_stored()) {
            let range = run[0].offset..packet_end(&run[run.len() - 1]);
            let mut remaining = match self.bytes_of(&run[0]) {
                Some(bytes) => bytes,
                None => self.video.bytes(range, frame, &mut page)?,
            };
            for packet in run {
                let (bytes, after_packet) = remaining.split_at(packet.size as usize);
                append(out, &packet.size.to_le_bytes())?;
                append(out, bytes)?;
                remaining = after_packet;
            }
        }
        Ok(())
    }

    fn is_stored(&self) -> bool {
        self.video.file.object().is_some()
    }
}

/// Returns the bytes of `packet` in `bytes`, which start at offset `start` of the file.
fn packet_in_run<'a>((start, bytes): &'a (u64, Vec<u8>), packet: &Packet) -> Option<&'a [u8]> {
    let offset = usize::try_from(packet.offset.checked_sub(*start)?).ok()?;
    bytes.get(offset..offset.checked_add(packet.size as usize)?)
}

/// The most recently used video files of a dataset.
pub(crate) struct VideoFileCache {
    open: Mutex<OpenFiles>,
    /// A condition that is notified when a table has been read.
    table_loaded: Condvar,
    max_files: usize,
    listeners: Mutex<Vec<Weak<Listener>>>,
}

/// Called when a file has been opened, before the threads that need the file continue.
pub(crate) type Listener = dyn Fn(&VideoFile) + Send + Sync;

#[derive(Default)]
struct OpenFiles {
    /// Each open file, and the time of its last use.
    files: HashMap<usize, (Arc<VideoFile>, u64)>,
    clock: u64,
    packets: usize,
    /// Files with tables that are being read.
    opening: HashSet<usize>,
}

impl VideoFileCache {
    /// Caches at most `max_files` files, with at most [`MAX_PACKETS`] packets in their tables. The
    /// file that was opened last is cached even if it exceeds these limits.
    pub(crate) fn new(max_files: usize) -> Self {
        VideoFileCache { open: Mutex::default(), table_loaded: Condvar::new(), max_files, listeners: Mutex::default() }
    }

    /// Calls `listener`, until it is dropped, whenever a file has been opened.
    pub(crate) fn add_listener(&self, listener: &Arc<Listener>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(listener));
    }

    fn lock(&self) -> MutexGuard<'_, OpenFiles> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, index: usize) -> Option<Arc<VideoFile>> {
        self.lock().find(index)
    }

    /// Returns an open file. Calls `read` if the file is not open yet. If several threads need the
    /// file, one of them reads its table, and the others wait. Fails if `read` fails, or if the
    /// calling thread is canceled while it waits.
    pub(crate) fn get(&self, index: usize, read: impl FnOnce() -> Result<VideoFile>) -> Result<Arc<VideoFile>> {
        let mut open = self.lock();
        loop {
            if !open.opening.contains(&index) {
                match open.find(index) {
                    Some(file) => return Ok(file),
                    None => _ = open.opening.insert(index),
                }
                break;
            }
            open = self.table_loaded.wait_timeout(open, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            cancel::check()?;
        }
        drop(open);
        let opening = OpeningGuard { files: self, index };
        let file = Arc::new(read()?);
        let mut open = self.lock();
        open.packets += file.track.packets().len();
        let last_use = open.clock;
        open.files.insert(index, (file.clone(), last_use));
        open.shrink(index, self.max_files);
        drop(open);
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener(&file));
        drop(opening);
        Ok(file)
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.lock().files.values().try_for_each(|(file, _)| file.check())
    }
}

impl OpenFiles {
    fn find(&mut self, index: usize) -> Option<Arc<VideoFile>> {
        self.clock += 1;
        let (file, last_use) = self.files.get_mut(&index)?;
        *last_use = self.clock;
        Some(file.clone())
    }

    /// Closes the least recently used files, except the file `latest`, until the limits are met.
    fn shrink(&mut self, latest: usize, max_files: usize) {
        while (self.packets > MAX_PACKETS || self.files.len() > max_files) && self.files.len() > 1 {
            let oldest = self
                .files
                .iter()
                .filter(|(file_index, _)| **file_index != latest)
                .min_by_key(|(_, (_, last_use))| *last_use);
            let Some((&oldest, _)) = oldest else { break };
            if let Some((file, _)) = self.files.remove(&oldest) {
                self.packets -= file.track.packets().len();
            }
        }
    }
}

/// Marks a table as being read. When this value is dropped, the threads that wait for the table
/// wake up.
struct OpeningGuard<'a> {
    files: &'a VideoFileCache,
    index: usize,
}

impl Drop for OpeningGuard<'_> {
    fn drop(&mut self) {
        self.files.lock().opening.remove(&self.index);
        self.files.table_loaded.notify_all();
    }
}

struct FileInput<'a>(&'a OpenFile);

impl Input for FileInput<'_> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        let end = offset.checked_add(out.len() as u64).filter(|&end| end <= self.0.len());
        end.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        self.0.fill(offset, out).map_err(std::io::Error::other)
    }
}

/// Converts an error of the video library. Storage errors stay unchanged.
fn from_video_error(e: warpfeed_video::Error) -> Error {
    let (kind, text) = (e.kind(), e.to_string());
    if kind == ErrorKind::Io
        && let Some(Ok(e)) = e.into_io().map(|e| e.downcast::<Error>())
    {
        return e;
    }
    match kind {
        ErrorKind::Memory => Error::new(crate::error::ErrorKind::Memory, text),
        _ => Error::in_source(text),
    }
}

#[cfg(test)]
#[path = "../../tests/fuzz/videos.rs"]
mod fuzz;
