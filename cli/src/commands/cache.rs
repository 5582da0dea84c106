//! The `cache` subcommand: manages the local cache for datasets in object stores.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use warpfeed_stores::{Cache, Contents, check, empty, refresh, show};

use crate::data::DataArgs;
use crate::size::format_count;
use crate::{Outcome, progress, size};

/// Show, fill, check, refresh or empty the local cache for datasets in object stores
///
/// A cache is a folder that contains data and object listings from object stores. Data is cached in
/// blocks, or in whole files for formats that need local files. A loader uses a cache only if the
/// program configures one (Rust: Cache::open, Python: cache_bytes). Every command can run while
/// other processes use the folder.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  warpfeed cache show /local/cache
  warpfeed cache warm s3://bucket/train --dir /local/cache --bytes 500GB
  warpfeed cache check /local/cache   # deletes damaged data
  warpfeed cache refresh /local/cache # the next opening finds new objects
  warpfeed cache empty /local/cache")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// List the datasets in the cache with their sizes
    Show(Folder),
    /// Read a whole dataset once; the cache keeps as much of it as fits
    Warm(Box<Warm>),
    /// Check all blocks, listings and whole files, except whole files that a process is downloading
    /// or removing; delete damaged ones, and exit with code 1 if there were any
    Check(Folder),
    /// Delete the cached listings, so that new objects are found when a dataset is next opened
    Refresh(Refresh),
    /// Delete all blocks and listings, and the whole files that no process is using
    Empty(Folder),
}

#[derive(clap::Args)]
struct Folder {
    /// Cache folder [default: $WARPFEED_CACHE/blocks, $XDG_CACHE_HOME/warpfeed/blocks, or
    /// ~/.cache/warpfeed/blocks]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Refresh {
    #[command(flatten)]
    folder: Folder,
    /// Delete only damaged listings and the listings of URLs that begin with this URL; an empty URL
    /// selects all listings
    #[arg(long, value_name = "URL", default_value = "")]
    url: String,
}

#[derive(clap::Args)]
struct Warm {
    /// Dataset in an object store
    #[arg(value_name = "URL")]
    url: PathBuf,
    /// Cache folder [default: $WARPFEED_CACHE/blocks, $XDG_CACHE_HOME/warpfeed/blocks, or
    /// ~/.cache/warpfeed/blocks]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Maximum size of the cache, such as 500GB
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    bytes: u64,
    #[command(flatten)]
    data: DataArgs,
}

/// Describes the blocks and the whole files in a cache.
fn summary(contents: &Contents) -> String {
    let (files, file_bytes) = total(&contents.files);
    let (blocks, bytes) = (contents.blocks, size::format_bytes(contents.bytes + file_bytes));
    format!("{} and {}, {bytes}", count_blocks(blocks), format_count(files, "whole file", "whole files"))
}

fn count_blocks(blocks: u64) -> String {
    format_count(blocks, "block", "blocks")
}

fn total(files: &BTreeMap<String, (u64, u64)>) -> (u64, u64) {
    files.values().fold((0, 0), |sum, (files, bytes)| (sum.0 + files, sum.1 + bytes))
}

fn folder_or_default(dir: Option<PathBuf>) -> warpfeed::Result<PathBuf> {
    dir.map_or_else(Cache::default_path, Ok)
}

impl Args {
    pub(crate) fn run(self) -> Outcome {
        let out = &mut std::io::stdout();
        match self.action {
            Action::Show(Folder { dir }) => {
                let dir = folder_or_default(dir)?;
                let Contents { blocks, bytes, sets, listings, files, others, .. } = show(&dir)?;
                writeln!(out, "{}: {}, {}", dir.display(), count_blocks(blocks), size::format_bytes(bytes))?;
                for (set, (blocks, bytes)) in sets {
                    writeln!(out, "  {set}: {}, {}", count_blocks(blocks), size::format_bytes(bytes))?;
                }
                for (url, (objects, age)) in listings {
                    let objects = format_count(objects, "object", "objects");
                    writeln!(out, "  {url}: a listing of {objects}, {age} s old")?;
                }
                for (set, (files, bytes)) in files {
                    let files = format_count(files, "whole file", "whole files");
                    writeln!(out, "  {set}: {files}, {}", size::format_bytes(bytes))?;
                }
                for other in others {
                    writeln!(out, "  unknown file: {}", other.display())?;
                }
            }
            Action::Check(Folder { dir }) => {
                let dir = folder_or_default(dir)?;
                let Contents { blocks, damaged, .. } = check(&dir)?;
                let dir = dir.display();
                writeln!(out, "{dir}: {blocks} valid blocks, {damaged} damaged blocks, listings and files deleted")?;
                return Ok(if damaged == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            Action::Refresh(Refresh { folder: Folder { dir }, url }) => {
                let dir = folder_or_default(dir)?;
                let listings = format_count(refresh(&dir, &url)?, "listing", "listings");
                writeln!(out, "{}: deleted {listings}", dir.display())?;
            }
            Action::Empty(Folder { dir }) => {
                let dir = folder_or_default(dir)?;
                let Contents { blocks, bytes, listings, files, .. } = empty(&dir)?;
                let (old_files, remaining_files) = (total(&files), total(&show(&dir)?.files));
                let files = old_files.0.saturating_sub(remaining_files.0);
                let bytes = size::format_bytes(bytes + old_files.1.saturating_sub(remaining_files.1));
                let listings = format_count(listings.len() as u64, "listing", "listings");
                let (blocks, files) = (count_blocks(blocks), format_count(files, "whole file", "whole files"));
                writeln!(out, "{}: deleted {blocks}, {listings} and {files}, {bytes}", dir.display())?;
            }
            Action::Warm(warm) => {
                let dir = folder_or_default(warm.dir)?;
                let cache = Cache::open(&dir, warm.bytes)?;
                let source = warm.data.open_with_stores(&warm.url, cache.stores(warpfeed_stores::all()))?;
                let bar = progress::bar(source.len());
                let warm_result = warpfeed_stores::warm(&*source, || bar.inc(1));
                bar.finish_and_clear();
                warm_result?;
                writeln!(out, "{}: {}", dir.display(), summary(&show(&dir)?))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_a_warm_cache_counts_whole_files() {
        let mut contents = Contents::default();
        assert_eq!(summary(&contents), "0 blocks and 0 whole files, 0 B");
        contents.files =
            [("s3://b/a", (2, 3_000_000)), ("s3://b/c", (1, 1_000_000))].map(|(k, v)| (k.into(), v)).into();
        (contents.blocks, contents.bytes) = (5, 1_000_000);
        assert_eq!(summary(&contents), format!("5 blocks and 3 whole files, {}", size::format_bytes(5_000_000)));
    }
}
