//! Tests that files in a store deliver the same samples as local files, for several prefetch
//! budgets, sample orders and cache sizes. Also tests memory limits and damaged page indexes.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::Parquet;
use crate::error::Result;
use crate::lists;
use crate::model::Position;
use crate::model::{
    BatchIndex, Lookahead, NextUse, Object, ObjectCache, OwnedSample, ReadCompletion, Source, Store, Tier,
};
use crate::options::Options;

const ROWS: u64 = 300;
const BATCH: u64 = 8;
const URL: &str = "mem://set/x.parquet";

/// Returns an image of 1 to 7 kB. Every seventh row has the same image.
fn image(row: u64) -> Vec<u8> {
    let row = if row.is_multiple_of(7) { 0 } else { row };
    let mut state = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let len = 1000 + next() % 6000;
    let mut bytes = b"\xff\xd8\xff".to_vec();
    bytes.extend((0..len).map(|_| next() as u8));
    bytes
}

/// Writes the test file, with pages of about 16 kB and row groups of 50 rows.
fn write(path: &Path, has_page_index: bool, dictionary: bool) {
    let schema = parse_message_type("message m { required binary image; optional int64 label; }").unwrap();
    let properties = WriterProperties::builder()
        .set_offset_index_disabled(!has_page_index)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_enabled(dictionary)
        .set_dictionary_page_size_limit(30_000)
        .set_write_batch_size(1)
        .set_data_page_size_limit(16_000);
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build())).unwrap();
    for rows in (0..ROWS).collect::<Vec<_>>().chunks(50) {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> = rows.iter().map(|&row| image(row).into()).collect();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let defined: Vec<i16> = rows.iter().map(|row| i16::from(row % 5 > 0)).collect();
        let values: Vec<i64> = rows.iter().filter(|&row| row % 5 > 0).map(|&row| row as i64).collect();
        column.typed::<Int64Type>().write_batch(&values, Some(&defined), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

/// Cached bytes by offset and length, and their total size.
type Blocks = (HashMap<(u64, u64), Vec<u8>>, usize);

/// A store with one object and a cache of `limit` bytes.
struct StoreState {
    file: Vec<u8>,
    limit: usize,
    cached: Mutex<Blocks>,
    bytes: AtomicU64,
    requests: AtomicU64,
    prefetch_requests: AtomicU64,
}

#[derive(Clone)]
struct CachingStore(Arc<StoreState>);

impl Store for CachingStore {
    fn list(&self, _prefix: &str) -> Result<Vec<Object>> {
        self.object(URL).map(|object| vec![object])
    }

    fn object(&self, url: &str) -> Result<Object> {
        Ok(Object { url: url.to_owned(), len: self.0.file.len() as u64, tag: Some("1".into()), server: None })
    }

    fn read(&self, _object: &Object, offset: u64, out: &mut [u8]) -> Result<()> {
        self.0.bytes.fetch_add(out.len() as u64, Ordering::Relaxed);
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        out.copy_from_slice(&self.0.file[offset as usize..][..out.len()]);
        Ok(())
    }

    fn fetch(&self, object: &Object, range: Range<u64>, reply: ReadCompletion) {
        self.0.prefetch_requests.fetch_add(1, Ordering::Relaxed);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        reply.complete(self.read(object, range.start, &mut bytes).map(|()| bytes));
    }

    fn object_cache(&self, _set: u64, order: &Lookahead) -> Option<Arc<dyn ObjectCache>> {
        let (batch, units) = order.batches_from(BatchIndex::default()).find(|(_, units)| !units.is_empty())?;
        assert_eq!(order.next_use(units[0], batch, 1), NextUse::At(batch));
        (self.0.limit > 0).then(|| Arc::new(self.clone()) as Arc<dyn ObjectCache>)
    }
}

impl ObjectCache for CachingStore {
    fn advance_to(&self, _batch: BatchIndex) {}

    fn contains(&self, _object: &Object, offset: u64, len: u64) -> bool {
        self.0.cached.lock().unwrap().0.contains_key(&(offset, len))
    }

    fn get(&self, _object: &Object, offset: u64, out: &mut [u8]) -> Option<Tier> {
        out.copy_from_slice(self.0.cached.lock().unwrap().0.get(&(offset, out.len() as u64))?);
        Some(Tier::Memory)
    }

    fn offer(&self, _object: &Object, offset: u64, bytes: &[u8], _sample: u64, _next: BatchIndex) {
        let (cached, used) = &mut *self.0.cached.lock().unwrap();
        if *used + bytes.len() <= self.0.limit && cached.insert((offset, bytes.len() as u64), bytes.to_vec()).is_none()
        {
            *used += bytes.len();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    Sequential,
    Windowed,
    Shuffled,
}

impl Order {
    /// Maps a position in an epoch to a sample. Each order is its own inverse, so the function also
    /// maps a sample to its position.
    fn map(self, position: u64, epoch: u64) -> u64 {
        let salt = [11, 26, 5][epoch as usize % 3];
        match self {
            Order::Sequential => position,
            Order::Windowed => {
                let (window, offset_in_window) = (position / 50, position % 50);
                window * 50 + (49 + salt - offset_in_window) % 50
            }
            Order::Shuffled => (ROWS - 1 + 7 * salt - position % ROWS) % ROWS,
        }
    }

    fn lookahead(self, bytes: usize) -> Lookahead {
        let batches = ROWS.div_ceil(BATCH);
        let samples = move |batch: BatchIndex| {
            let first = batch.batch * BATCH;
            Some((first..(first + BATCH).min(ROWS)).map(|position| self.map(position, batch.epoch)).collect())
        };
        let next = move |epoch, sample, from| match self.map(sample, epoch) / BATCH {
            batch if batch >= from => Position::At(batch),
            _ => Position::Absent,
        };
        Lookahead::new(bytes, move |_| batches, samples).with_next(next)
    }
}

fn read_owned(set: &Parquet, row: u64) -> OwnedSample {
    OwnedSample::try_from(&set.read(row as usize, &mut Vec::new()).unwrap()).unwrap()
}

fn open(file: &[u8], limit: usize) -> Result<(CachingStore, Arc<Parquet>)> {
    let store = CachingStore(Arc::new(StoreState {
        file: file.to_vec(),
        limit,
        cached: Mutex::default(),
        bytes: AtomicU64::new(0),
        requests: AtomicU64::new(0),
        prefetch_requests: AtomicU64::new(0),
    }));
    let dyn_store: Arc<dyn Store> = Arc::new(store.clone());
    let options = Options::new().store("mem", dyn_store);
    let set = Parquet::open_at(options.locate(Path::new(URL))?, &options)?;
    Ok((store, Arc::new(set)))
}

/// Returns the number of bytes that the store served in each of two epochs.
fn read_epochs(store: &CachingStore, set: &Parquet, expected: &[OwnedSample], order: Order, budget: usize) -> [u64; 2] {
    let prefetcher = set.prefetcher(order.lookahead(budget)).unwrap();
    [0, 1].map(|epoch| {
        let before = store.0.bytes.load(Ordering::Relaxed);
        prefetcher.start(BatchIndex { epoch, batch: 0 });
        for batch in 0..ROWS.div_ceil(BATCH) {
            let rows: Vec<u64> =
                (batch * BATCH..((batch + 1) * BATCH).min(ROWS)).map(|position| order.map(position, epoch)).collect();
            std::thread::scope(|scope| {
                for part in rows.chunks(3) {
                    scope.spawn(move || {
                        for &row in part {
                            assert_eq!(read_owned(set, row), expected[row as usize], "{order:?}: row {row}");
                        }
                    });
                }
            });
            prefetcher.done(BatchIndex { epoch, batch });
            assert!(set.cache.bytes() <= budget - budget / 2, "{order:?}: {} of {budget}", set.cache.bytes());
        }
        store.0.bytes.load(Ordering::Relaxed) - before
    })
}

#[test]
fn remote_samples_equal_local_samples() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    for (has_page_index, dictionary) in [(true, false), (true, true), (false, false), (false, true)] {
        write(&path, has_page_index, dictionary);
        let file = std::fs::read(&path).unwrap();
        let local = Parquet::open(&path).unwrap();
        let expected: Vec<_> = (0..ROWS).map(|row| read_owned(&local, row)).collect();
        let has_image = |row: u64| {
            let mut scratch = Vec::new();
            let sample = local.read(row as usize, &mut scratch).unwrap();
            sample.image().unwrap().1 == image(row)
                && sample.label().unwrap() == (!row.is_multiple_of(5)).then_some(row as i64)
        };
        assert!((0..ROWS).all(has_image));
        for order in [Order::Sequential, Order::Windowed, Order::Shuffled] {
            for budget in [0, 30_000, 300_000, 8 << 20] {
                for limit in [0, 200_000, 8 << 20] {
                    let (store, set) = open(&file, limit).unwrap();
                    let case = format!("index {has_page_index}, dictionary {dictionary}, {order:?}, {budget}, {limit}");
                    let [cold, warm] = read_epochs(&store, &set, &expected, order, budget);
                    let network = set.network_stats().unwrap();
                    assert_eq!(network.has_cache, limit > 0 && budget > 0, "{case}");
                    if budget == 8 << 20 {
                        // The whole file fits in the cache of decoded pages, so the store serves
                        // hardly any byte twice.
                        assert!(50 * cold <= 51 * network.used_bytes && warm == 0, "{case}: {cold} {warm} {network:?}");
                        assert!(network.used_bytes <= file.len() as u64, "{case}: {network:?}");
                        assert!(store.0.prefetch_requests.load(Ordering::Relaxed) > 0, "{case}");
                        // All requests have completed by now. The store did not count the request
                        // that looked up the object, so add 1.
                        let sent = [&store.0.bytes, &store.0.requests].map(|count| count.load(Ordering::Relaxed));
                        assert_eq!([network.received_bytes, network.requests], [sent[0], sent[1] + 1], "{case}");
                    }
                }
            }
        }
    }
}

#[test]
fn large_unindexed_column_is_checked_against_the_memory_plan() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    let schema = Arc::new(parse_message_type("message m { required binary image; }").unwrap());
    let write = |has_page_index: bool| {
        let properties = WriterProperties::builder()
            .set_offset_index_disabled(!has_page_index)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_dictionary_enabled(false)
            .set_write_batch_size(1)
            .set_data_page_size_limit(1 << 20);
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema.clone(), Arc::new(properties.build())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let value = [&b"\xff\xd8\xff"[..], &vec![7; 10 << 20]].concat();
        column.typed::<ByteArrayType>().write_batch(&vec![value.into(); 14], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        open(&std::fs::read(&path).unwrap(), 0).unwrap().1
    };
    let (large, mib) = (140 << 20, 1 << 20);
    let order = |bytes| Lookahead::new(bytes, |_| 0, |_| None);
    let set = write(false);
    assert!((2 * large..600 * mib).contains(&set.prefetch_bytes()), "{}", set.prefetch_bytes());
    set.check().unwrap();
    let prefetcher = set.prefetcher(order(256 * mib));
    let e = set.check().unwrap_err();
    assert!(e.cause().starts_with("row group 0, column \"image\": the column chunk has 1468"), "{e}");
    assert!(
        e.cause().contains("raise the loader's memory_limit") && e.cause().contains("write_page_index=True"),
        "{e}"
    );
    assert_eq!(e.path(), Some(Path::new(URL)));
    drop(prefetcher);
    let _prefetcher = set.prefetcher(order(set.prefetch_bytes()));
    set.check().unwrap();
    let read = |row: usize| assert_eq!(set.read(row, &mut Vec::new()).unwrap().image().unwrap().1.len(), 3 + 10 * mib);
    let before = set.network_stats().unwrap().received_bytes;
    (0..14).for_each(read);
    assert!(
        set.network_stats().unwrap().received_bytes - before < 150 << 20,
        "decoded pages must not evict the column chunk"
    );
    drop(set);
    let set = write(true);
    let _prefetcher = set.prefetcher(order(256 * mib));
    set.check().unwrap();
    set.read(13, &mut Vec::new()).unwrap();
}

#[test]
fn page_index_that_does_not_match_its_pages_fails() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    write(&path, true, false);
    let mut file = std::fs::read(&path).unwrap();
    let (_, set) = open(&file, 0).unwrap();
    let samples: Vec<_> = (0..50).map(|row| read_owned(&set, row)).collect();
    let column = set.files.parquet_files[0].metadata.row_group(0).column(0);
    let offset = column.offset_index_offset().unwrap() as usize;
    let index_range = offset..offset + column.offset_index_length().unwrap() as usize;
    let mut error_count = 0;
    for index in index_range {
        let before = file[index];
        for step in [1, 2, 0xfe] {
            file[index] = before.wrapping_add(step);
            let Ok((_, set)) = open(&file, 0) else { continue };
            for (row, expected) in samples.iter().enumerate() {
                match set.read(row, &mut Vec::new()) {
                    Ok(sample) => {
                        assert_eq!(OwnedSample::try_from(&sample).unwrap(), *expected, "byte {index}, row {row}")
                    }
                    Err(e) => {
                        assert!(e.cause().contains("row group 0, column \"image\""), "{e}");
                        error_count += 1;
                    }
                }
            }
        }
        file[index] = before;
    }
    assert!(error_count > 0);
}

#[test]
fn remote_lists_request_enough_memory() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.parquet");
    lists::write(&path);
    let (_, set) = open(&std::fs::read(&path).unwrap(), 0).unwrap();
    let order = |bytes| Lookahead::new(bytes, |_| 0, |_| None);
    let prefetcher = set.prefetcher(order(set.prefetch_bytes()));
    set.check().unwrap();
    for row in [0, lists::ROWS - 1] {
        assert!(set.read(row, &mut Vec::new()).unwrap().field("ones.npy").is_some());
    }
    drop(prefetcher);
    let prefetcher = set.prefetcher(order(set.prefetch_bytes() / 2));
    let e = set.check().unwrap_err();
    assert!(e.cause().contains("column \"ones\": decoding the lists of a row group needs "), "{e}");
    drop(prefetcher);
    let selection = set.select_fields(&["id".to_owned()]).unwrap();
    assert!(selection.prefetch_bytes() <= 1 << 20);
    let _prefetcher = selection.prefetcher(order(selection.prefetch_bytes()));
    selection.check().unwrap();
    assert_eq!(selection.read(9, &mut Vec::new()).unwrap().names(), ["id.npy"]);
}
