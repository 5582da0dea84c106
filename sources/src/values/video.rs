//! [`VideoFile`]: a video file and its sample table. [`VideoFiles`]: the most recently used files.
//!
//! The sample table maps a frame to the packets of its group of pictures. The packets become a
//! [record](warpfeed_video::record), which a codec decodes like an image.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use warpfeed_video::{ErrorKind, Input, Packet, Track, record};

use crate::error::{Error, Result, append};
use crate::storage::OpenFile;

/// Maximum number of packets in the tables that stay in memory. A packet takes 28 bytes. The tables
/// of files that are being read may exceed this maximum.
const MAX_PACKETS: usize = 1 << 20;

/// An open video file and its sample table.
pub(crate) struct VideoFile {
    file: OpenFile,
    track: Track,
    /// Path of the file relative to the dataset, for messages.
    name: String,
}

impl VideoFile {
    /// Reads the sample table of a file.
    ///
    /// # Errors
    /// If the file is damaged, or if its container or its codec is not supported.
    pub(crate) fn new(file: OpenFile, name: String) -> Result<Self> {
        let at = |e: Error| e.at_path(&file.path);
        let track = warpfeed_video::open(&Ranges(&file)).map_err(|e| at(of_video(e)))?;
        warpfeed_video::check(track.config().codec).map_err(|e| at(Error::in_source(e.to_string())))?;
        Ok(VideoFile { file, track, name })
    }

    pub(crate) fn track(&self) -> &Track {
        &self.track
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    /// Checks that the file is unchanged.
    ///
    /// # Errors
    /// If the file has changed.
    pub(crate) fn check(&self) -> Result<()> {
        self.file.check()
    }

    /// Appends the record of a frame.
    ///
    /// # Errors
    /// If the packets cannot be read, or the file has changed.
    pub(crate) fn append(&self, frame: usize, to: &mut Vec<u8>) -> Result<()> {
        let packets = self.track.needed(frame);
        let label = format!("{}: frame {frame} at {} s", self.name, self.track.time(frame).seconds());
        self.start(&label, packets.len() as u32, to)?;
        self.append_packets(packets, frame, to)
    }

    /// Appends the start of a record to which packets of one group of pictures can be appended.
    /// After each packet, the bytes are the record of a frame.
    ///
    /// # Errors
    /// If the file has changed.
    pub(crate) fn start_group(&self, to: &mut Vec<u8>) -> Result<()> {
        self.start(&self.name, record::ALL, to)
    }

    fn start(&self, label: &str, count: u32, to: &mut Vec<u8>) -> Result<()> {
        self.file.check()?;
        record::start(self.track.config(), self.track.orientation(), label, count, to).map_err(of_video)
    }

    /// Appends packets to a record. `frame` is the frame that needs them, for messages.
    ///
    /// # Errors
    /// If the packets cannot be read.
    pub(crate) fn append_packets(&self, packets: &[Packet], frame: usize, to: &mut Vec<u8>) -> Result<()> {
        let mut page = Vec::new();
        // Packets of a video are often adjacent, so that a single read suffices.
        let end = |packet: &Packet| packet.offset.saturating_add(packet.size.into());
        for run in packets.chunk_by(|a, b| end(a) == b.offset) {
            let range = run[0].offset..end(&run[run.len() - 1]);
            let mut rest = self.bytes(range, frame, &mut page)?;
            for packet in run {
                let (bytes, next) = rest.split_at(packet.size as usize);
                append(to, &packet.size.to_le_bytes())?;
                append(to, bytes)?;
                rest = next;
            }
        }
        Ok(())
    }

    /// Reads the bytes in `range`. `frame` is the frame that they contain, for messages.
    fn bytes<'a>(&'a self, range: Range<u64>, frame: usize, page: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let len = self.file.len();
        if range.end > len {
            return Err(Error::in_source(format!(
                "frame {frame} ends at byte {}, but the file has only {len} bytes: it is truncated",
                range.end
            )));
        }
        page.clear();
        self.file.get(range.start, range.end - range.start, page)
    }
}

/// The most recently used video files of a dataset.
pub(crate) struct VideoFiles {
    open: Mutex<OpenFiles>,
    max_files: usize,
}

#[derive(Default)]
struct OpenFiles {
    /// Each open file, and when it was last used.
    files: HashMap<usize, (Arc<VideoFile>, u64)>,
    uses: u64,
    packets: usize,
}

impl VideoFiles {
    /// Creates a cache of at most `max_files` files, whose tables have at most [`MAX_PACKETS`]
    /// packets.
    pub(crate) fn new(max_files: usize) -> Self {
        VideoFiles { open: Mutex::default(), max_files }
    }

    /// Returns the file with this index. Calls `read` if it is not open.
    ///
    /// # Errors
    /// The error of `read`.
    pub(crate) fn get(&self, index: usize, read: impl FnOnce() -> Result<VideoFile>) -> Result<Arc<VideoFile>> {
        let locked = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut open = locked();
            open.uses += 1;
            let now = open.uses;
            if let Some((file, used)) = open.files.get_mut(&index) {
                *used = now;
                return Ok(file.clone());
            }
        }
        // Do not hold the lock while a table is read. Two threads may therefore read the same
        // table.
        let file = Arc::new(read()?);
        let mut open = locked();
        let open = &mut *open;
        if let Some((file, _)) = open.files.get(&index) {
            return Ok(file.clone());
        }
        open.packets += file.track.packets().len();
        open.files.insert(index, (file.clone(), open.uses));
        while (open.packets > MAX_PACKETS || open.files.len() > self.max_files) && open.files.len() > 1 {
            let oldest = open.files.iter().filter(|(at, _)| **at != index).min_by_key(|(_, (_, used))| *used);
            let Some((&oldest, _)) = oldest else { break };
            if let Some((file, _)) = open.files.remove(&oldest) {
                open.packets -= file.track.packets().len();
            }
        }
        Ok(file)
    }

    /// Checks that the open files are unchanged.
    ///
    /// # Errors
    /// If a file has changed.
    pub(crate) fn check(&self) -> Result<()> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.files.values().try_for_each(|(own, _)| own.check())
    }
}

/// Reads ranges of a file.
struct Ranges<'a>(&'a OpenFile);

impl Input for Ranges<'_> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> std::io::Result<()> {
        let end = offset.checked_add(to.len() as u64).filter(|&end| end <= self.0.len());
        end.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        self.0.fill(offset, to).map_err(std::io::Error::other)
    }
}

/// Converts an error of the video crate. Storage errors are returned unchanged.
fn of_video(e: warpfeed_video::Error) -> Error {
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
