//! Decodes pages within a memory limit.

use std::collections::VecDeque;
use std::ops::Range;

use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;

use super::block::{Block, BufferBytes, Decoded};
use super::codec::decompress;
use super::header::{Header, PageKind};
use super::input::{ByteSource, guarded};
use super::schema::{Leaf, Levels, ValueType};
use super::{delta, index};
use crate::error::{Error, Result, reserve};

/// Maximum number of values per page. Memory for the values is allocated before they are decoded,
/// so this limit guards against damaged counts. It is high because run-length encoding is compact:
/// pyarrow's defaults can put 20,000 lists of 512 equal numbers into one page.
const MAX_VALUES: usize = 64 << 20;
/// Number of bytes that the estimate for a list column adds for the dictionary, because the
/// metadata does not declare the dictionary's size.
const DICTIONARY_RESERVE_BYTES: u64 = 8 << 20;
const LISTS: &str = "the lists of a row group";

#[derive(Clone, Copy)]
pub(super) struct ColumnChunk<'a> {
    pub(super) metadata: &'a ColumnChunkMetaData,
    pub(super) leaf: Leaf,
    pub(super) levels: Option<Levels>,
    pub(super) rows: usize,
    pub(super) assume_compressed: bool,
    /// Maximum memory in bytes for decoding one page, or all pages of a list column.
    pub(super) limit: usize,
    /// The page limit, in bytes, that a loader sets if its memory limit allows.
    pub(super) max_grant: usize,
}

impl ColumnChunk<'_> {
    /// Decodes the page in `bytes`, which starts with its header. Fails unless `bytes` is exactly
    /// one data page, with one value for each of `rows`.
    pub(super) fn decode_page(
        self,
        bytes: &[u8],
        rows: Range<usize>,
        dictionary: impl FnOnce() -> Result<Page>,
    ) -> Result<Block> {
        let header = index::read_header(ByteSource::Slice(0, bytes), 0, bytes.len() as u64)?;
        let count = header.row_count().filter(|_| header.len + header.compressed_len == bytes.len());
        if count != Some(rows.len()) {
            let cause = format!(
                "damaged: expected a data page of {} rows and {} bytes at row {}",
                rows.len(),
                bytes.len(),
                rows.start
            );
            return Err(Error::in_source(cause));
        }
        let mut pages = Pages::default();
        pages.account(&header, self)?;
        if header.needs_dictionary() {
            let dictionary = dictionary()?;
            pages.dictionary_bytes = dictionary.buffer().len();
            pages.pages.push_back(dictionary);
        }
        pages.add(self.decompress_page(&header, &bytes[header.len..])?, self)?;
        self.decode_block(rows, pages)
    }

    /// Decompresses the dictionary page in `bytes`, which starts with its header.
    pub(super) fn decompress_dictionary(self, bytes: &[u8]) -> Result<Page> {
        let header = index::read_header(ByteSource::Slice(0, bytes), 0, bytes.len() as u64)?;
        if !matches!(header.kind, PageKind::Dictionary { .. }) {
            return Err(Error::in_source("damaged: expected a dictionary page"));
        }
        Pages::default().account(&header, self)?;
        self.decompress_page(&header, &bytes[header.len..][..header.compressed_len])
    }

    /// Reads the header of the page in `bytes`. Returns a lower bound on the bytes of memory needed
    /// to decode the page, and whether the page needs the dictionary.
    pub(super) fn decode_cost(self, bytes: &[u8]) -> Result<(usize, bool)> {
        let header = index::read_header(ByteSource::Slice(0, bytes), 0, bytes.len() as u64)?;
        let mut pages = Pages::default();
        pages.account(&header, self)?;
        Ok((pages.decode_bytes, header.needs_dictionary()))
    }

    /// Reads the page headers in `range` until they account for all values of the column chunk.
    /// Returns each header with the offset of the page's data, and a lower bound on the bytes of
    /// memory needed to decode all pages.
    pub(super) fn scan_headers(self, bytes: ByteSource<'_>, range: Range<u64>) -> Result<(Vec<(u64, Header)>, usize)> {
        let (mut pages, mut offset, mut page_headers) = (Pages::default(), range.start, Vec::new());
        let values = self.metadata.num_values();
        let values = usize::try_from(values).map_err(|_| {
            Error::in_source(format!("damaged: the column claims {values} values, which is impossible"))
        })?;
        while pages.value_count < values {
            let header = index::read_header(bytes, offset, range.end)?;
            pages.account(&header, self)?;
            let start = offset + header.len as u64;
            offset = start + header.compressed_len as u64;
            page_headers.push((start, header));
        }
        if pages.value_count != values {
            let cause = format!("damaged: the pages have {} values, but the column claims {values}", pages.value_count);
            return Err(Error::in_source(cause));
        }
        Ok((page_headers, pages.decode_bytes))
    }

    /// Decodes all lists of the column chunk. `page_headers` comes from
    /// [`scan_headers`](ColumnChunk::scan_headers).
    pub(super) fn decode_lists(self, bytes: ByteSource<'_>, page_headers: &[(u64, Header)]) -> Result<Block> {
        let mut pages = Pages::default();
        for (start, header) in page_headers.iter().filter(|(_, header)| header.kind != PageKind::Other) {
            let body = bytes.get(*start, header.compressed_len as u64)?;
            pages.account(header, self)?;
            pages.add(self.decompress_page(header, &body)?, self)?;
        }
        self.decode_block(0..self.rows, pages)
    }

    /// Returns the number of bytes of memory needed to decode one value: the value that the
    /// `parquet` crate returns, our copy of it or its row index, and its levels.
    fn value_bytes(self) -> usize {
        let descriptor = self.metadata.column_descr();
        let levels = usize::from(descriptor.max_def_level() > 0) + usize::from(descriptor.max_rep_level() > 0);
        let value = match self.leaf.value_type {
            ValueType::Bytes | ValueType::Text => size_of::<ByteArray>() + size_of::<u32>(),
            ValueType::Half => size_of::<ByteArray>() + 8,
            ValueType::Bool => 2,
            ValueType::Number(element) => element.size() + 8,
        };
        value + levels * size_of::<i16>()
    }

    /// Returns the number of bytes of memory needed to decode one value of the dictionary.
    fn dictionary_value_bytes(self) -> usize {
        match self.leaf.value_type {
            ValueType::Bytes | ValueType::Text | ValueType::Half => size_of::<ByteArray>(),
            ValueType::Bool => 1,
            ValueType::Number(element) => element.size().max(4),
        }
    }

    /// Returns the number of values, and the larger of the compressed and the uncompressed size in
    /// bytes, as declared in the metadata.
    fn declared_sizes(self) -> (u64, u64) {
        let pages = self.metadata.uncompressed_size().max(self.metadata.compressed_size());
        (u64::try_from(self.metadata.num_values()).unwrap_or(0), u64::try_from(pages).unwrap_or(0))
    }

    /// Estimates the number of bytes needed to decode all lists of the column chunk, from the sizes
    /// in the metadata. Adds a reserve for the dictionary, because its size is not declared. Also
    /// adds half of the pages' size, because compression may enlarge some pages.
    pub(super) fn list_decode_bytes(self) -> u64 {
        let (values, pages) = self.declared_sizes();
        values
            .saturating_mul(self.value_bytes() as u64)
            .saturating_add(pages)
            .saturating_add(pages / 2 + DICTIONARY_RESERVE_BYTES)
    }

    /// Estimates the number of bytes that the decoded values take, from the sizes in the metadata.
    pub(super) fn decoded_bytes(self) -> u64 {
        let (values, pages) = self.declared_sizes();
        match self.leaf.value_type {
            ValueType::Bytes | ValueType::Text => pages,
            ValueType::Half | ValueType::Bool => pages.max(values.saturating_mul(4)),
            ValueType::Number(element) => pages.max(values.saturating_mul(element.size() as u64)),
        }
    }

    /// Checks the checksum and the sizes of a page, and decompresses it. `body` is the page without
    /// its header.
    fn decompress_page(self, header: &Header, body: &[u8]) -> Result<Page> {
        if header.crc.is_some_and(|crc| crc != crc32fast::hash(body)) {
            return Err(Error::in_source("damaged: a page has a wrong checksum"));
        }
        let codec = self.metadata.compression();
        let is_uncompressed = codec == Compression::UNCOMPRESSED;
        let (level_bytes, has_compressed_values) = match header.kind {
            PageKind::DataV2 { definition_bytes, repetition_bytes, is_compressed, .. } => {
                (definition_bytes + repetition_bytes, (is_compressed || self.assume_compressed) && !is_uncompressed)
            }
            _ => (0, !is_uncompressed),
        };
        let mut bytes = Vec::new();
        if has_compressed_values {
            let (levels, values) =
                body.split_at_checked(level_bytes).filter(|_| level_bytes <= header.size).ok_or_else(|| {
                    Error::in_source(format!(
                        "damaged: a page has {} bytes, {} when decompressed, but claims {level_bytes} bytes of levels",
                        body.len(),
                        header.size
                    ))
                })?;
            reserve(&mut bytes, header.size)?;
            bytes.extend_from_slice(levels);
            decompress(codec, values, header.size - level_bytes, &mut bytes)?;
        } else if body.len() == header.size {
            reserve(&mut bytes, body.len())?;
            bytes.extend_from_slice(body);
        } else {
            let cause = format!("damaged: a page has {} bytes, but its header claims {}", body.len(), header.size);
            return Err(Error::in_source(cause));
        }
        let (buf, num_values) = (bytes.into(), header.values as u32);
        Ok(match header.kind {
            PageKind::Other => return Err(Error::in_source("damaged: unknown page type")),
            PageKind::Dictionary { encoding, is_sorted } => {
                Page::DictionaryPage { buf, num_values, encoding, is_sorted }
            }
            PageKind::DataV1 { encoding, definition_encoding, repetition_encoding } => Page::DataPage {
                buf,
                num_values,
                encoding,
                def_level_encoding: definition_encoding,
                rep_level_encoding: repetition_encoding,
                statistics: None,
            },
            PageKind::DataV2 { encoding, row_count, null_count, definition_bytes, repetition_bytes, is_compressed } => {
                Page::DataPageV2 {
                    buf,
                    num_values,
                    encoding,
                    num_nulls: null_count as u32,
                    num_rows: row_count as u32,
                    def_levels_byte_len: definition_bytes as u32,
                    rep_levels_byte_len: repetition_bytes as u32,
                    is_compressed,
                    statistics: None,
                }
            }
        })
    }

    fn decode_block(self, rows: Range<usize>, pages: Pages) -> Result<Block> {
        guarded(|| {
            let buffers = BufferBytes { pages: pages.page_bytes, dictionary: pages.dictionary_bytes };
            let decoded = Decoded::new(self.metadata, self.leaf.value_type, Box::new(pages), buffers, rows.len())?;
            decoded.block(rows.start, self.metadata.column_descr().max_def_level(), self.levels)
        })
    }
}

/// Checks that the lists of a column chunk can be decoded within `limit` bytes. `need` comes from
/// [`ColumnChunk::list_decode_bytes`]. The error suggests a higher memory limit only if a loader
/// would then grant enough: a loader grants at most `max_grant` bytes.
pub(super) fn check_list_memory(need: u64, limit: usize, max_grant: usize) -> Result<()> {
    if need <= limit as u64 { Ok(()) } else { Err(memory_error(LISTS, need, limit, max_grant)) }
}

fn memory_error(content: &str, need: u64, limit: usize, max_grant: usize) -> Error {
    let advice = if need <= max_grant as u64 { "raise the loader's memory_limit, " } else { "" };
    Error::in_source(format!(
        "decoding {content} needs {need} bytes of memory, but the limit is {limit}: {advice}write the file again with \
         smaller pages or row groups, or leave the column out with TableOptions::columns"
    ))
}

/// Decompressed pages, in the order in which the `parquet` crate decodes them.
#[derive(Default)]
struct Pages {
    pages: VecDeque<Page>,
    page_bytes: usize,
    value_count: usize,
    /// Size of the dictionary in bytes. The cache counts it once for all pages.
    dictionary_bytes: usize,
    /// Lower bound on the bytes of memory needed to decode the pages.
    decode_bytes: usize,
}

impl Pages {
    /// Adds a page to the totals and checks them. Call this before allocating memory for the page.
    fn account(&mut self, header: &Header, column: ColumnChunk<'_>) -> Result<()> {
        let (size, values, limit) = (header.size.max(header.compressed_len), header.values, column.limit);
        // A value takes at least one byte of a dictionary page, so the page's size bounds the
        // count.
        let is_dictionary = matches!(header.kind, PageKind::Dictionary { .. });
        let max_values = if is_dictionary { size.min(MAX_VALUES) } else { MAX_VALUES };
        if values > max_values {
            return Err(Error::in_source(format!(
                "a page of {size} bytes claims {values} values: the limit is {max_values} values"
            )));
        }
        self.value_count += if is_dictionary || header.kind == PageKind::Other { 0 } else { values };
        let value_bytes = if is_dictionary { column.dictionary_value_bytes() } else { column.value_bytes() };
        self.decode_bytes = self.decode_bytes.saturating_add(size).saturating_add(values * value_bytes);
        self.check(column, limit)
    }

    fn check(&self, column: ColumnChunk<'_>, limit: usize) -> Result<()> {
        if self.decode_bytes <= limit {
            return Ok(());
        }
        let (content, need) = match column.levels {
            Some(_) => (LISTS, column.list_decode_bytes().max(self.decode_bytes as u64)),
            None => ("a page", self.decode_bytes as u64),
        };
        Err(memory_error(content, need, limit, column.max_grant))
    }

    /// Adds a page that [`account`](Pages::account) has accepted. For delta-encoded byte strings,
    /// also checks the lengths of the values, because page headers do not bound these lengths.
    fn add(&mut self, page: Page, column: ColumnChunk<'_>) -> Result<()> {
        let values = page.num_values() as usize;
        let delta = match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => {
                encoded_values(&page, column.metadata).map(|bytes| delta::check_count(bytes, values).map(|()| 0))
            }
            Encoding::DELTA_BYTE_ARRAY => {
                encoded_values(&page, column.metadata).map(|bytes| delta::decoded_size(bytes, values))
            }
            _ => Some(Some(0)),
        };
        let delta_bytes =
            delta.flatten().ok_or_else(|| Error::in_source("damaged: invalid value lengths in a page"))?;
        self.decode_bytes = usize::try_from(delta_bytes)
            .map_or(usize::MAX, |delta_bytes| self.decode_bytes.saturating_add(delta_bytes));
        self.check(column, column.limit)?;
        self.page_bytes += page.buffer().len() + delta_bytes as usize;
        self.pages.push_back(page);
        Ok(())
    }
}

/// Returns the encoded values of a page without the levels that precede them, or `None` if the
/// levels exceed the page.
fn encoded_values<'a>(page: &'a Page, column: &ColumnChunkMetaData) -> Option<&'a [u8]> {
    let descriptor = column.column_descr();
    let bytes: &[u8] = page.buffer();
    match page {
        Page::DictionaryPage { .. } => Some(bytes),
        Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
            bytes.get(*def_levels_byte_len as usize + *rep_levels_byte_len as usize..)
        }
        Page::DataPage { def_level_encoding, rep_level_encoding, num_values, .. } => {
            let levels =
                [(descriptor.max_rep_level(), rep_level_encoding), (descriptor.max_def_level(), def_level_encoding)];
            levels.iter().filter(|(max_level, _)| *max_level > 0).try_fold(bytes, |bytes, &(max_level, encoding)| {
                if *encoding == Encoding::RLE {
                    let (len, rest) = bytes.split_first_chunk()?;
                    return rest.get(u32::from_le_bytes(*len) as usize..);
                }
                let bits = (i16::BITS - max_level.leading_zeros()) as usize;
                bytes.get((*num_values as usize * bits).div_ceil(8)..)
            })
        }
    }
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pages.pop_front().map(Ok)
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        Ok(self.pages.pop_front())
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Ok(self.pages.front().map(|page| PageMetadata {
            num_rows: match page {
                Page::DataPageV2 { num_rows, .. } => Some(*num_rows as usize),
                _ => None,
            },
            num_levels: Some(page.num_values() as usize),
            is_dict: page.is_dictionary_page(),
        }))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.pages.pop_front();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use parquet::data_type::{ByteArrayType, Int32Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::formats::Parquet;
    use crate::model::{Lookahead, Source};

    fn write(path: &Path, encoding: Encoding, values: &[ByteArray]) {
        let schema = Arc::new(parse_message_type("message m { required binary text (UTF8); }").unwrap());
        let properties = WriterProperties::builder().set_dictionary_enabled(false).set_encoding(encoding);
        let properties = properties.set_data_page_size_limit(1 << 30).set_write_batch_size(1 << 30);
        let file = std::fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
    }

    /// Writes a file in which each of `rows` rows has a list of two numbers in the `list` column.
    fn write_lists(path: &Path, rows: usize) {
        let schema = "message m { required group list (LIST) { repeated group list { required int32 element; } } }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = WriterProperties::builder().set_dictionary_enabled(false).build();
        let file = std::fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let (values, begins): (Vec<i32>, Vec<i16>) = (0..2 * rows).map(|n| (n as i32, (n % 2) as i16)).unzip();
        column.typed::<Int32Type>().write_batch(&values, Some(&vec![1; 2 * rows]), Some(&begins)).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
    }

    /// Replaces 64-bit numbers in the footer. `from` must occur `count` times; `occurrences` lists
    /// the occurrences to replace with `to`.
    fn with_footer_numbers(bytes: &[u8], [from, to]: [u16; 2], count: usize, occurrences: &[usize]) -> Vec<u8> {
        // In compact Thrift, the byte 0x16 means that the field number increases by 1 and the type
        // is 6 (i64). The value is a zigzag varint of two bytes.
        let field = |number: u16| [0x16, (2 * number) as u8 | 0x80, ((2 * number) >> 7) as u8];
        let size = u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap()) as usize;
        let start = bytes.len() - 8 - size;
        let positions: Vec<usize> =
            memchr::memmem::find_iter(&bytes[start..], &field(from)).map(|offset| start + offset).collect();
        assert_eq!(positions.len(), count);
        let mut changed = bytes.to_vec();
        occurrences.iter().for_each(|&index| changed[positions[index]..][..3].copy_from_slice(&field(to)));
        changed
    }

    #[test]
    fn inconsistent_row_counts_fail() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.parquet");
        let values: Vec<ByteArray> = (0..7777).map(|n| format!("{n}").into_bytes().into()).collect();
        write(&path, Encoding::PLAIN, &values);
        let file = std::fs::read(&path).unwrap();
        let read = |bytes: &[u8], rows: usize| {
            std::fs::write(&path, bytes).unwrap();
            let set = Parquet::open(&path)?;
            assert_eq!(set.len(), rows);
            set.read(0, &mut Vec::new()).map(drop)
        };
        let text = |occurrences: &[usize]| with_footer_numbers(&file, [7777, 7770], 3, occurrences);
        assert!(read(&text(&[]), 7777).is_ok());
        // The footer contains three counts, in this order: the rows of the file, the values of the
        // column, and the rows of the row group.
        let cases = [
            (&[0][..], "the footer claims 7770 rows, but the row groups have 7777"),
            (&[1], "row group 0, column \"text\": damaged: expected 7777 values, one per row, found 7770"),
            (&[0, 2], "row group 0, column \"text\": damaged: expected 7770 values, one per row, found 7777"),
            // If all counts are wrong in the same way, only the page headers reveal it.
            (&[0, 1, 2], "a page at row 0 claims 7777 rows, but the row group has 7770 rows"),
        ];
        for (occurrences, expected) in cases {
            let e = read(&text(occurrences), 7770).unwrap_err();
            assert!(e.cause().contains(expected) && e.path() == Some(&*path), "{e}");
        }
        write_lists(&path, 777);
        let file = std::fs::read(&path).unwrap();
        assert!(read(&file, 777).is_ok());
        let e = read(&with_footer_numbers(&file, [777, 770], 2, &[0, 1]), 770).unwrap_err();
        assert!(
            e.cause().contains("row group 0, column \"list\": damaged: the column chunk has more than the 770 rows"),
            "{e}"
        );
        let e = read(&with_footer_numbers(&file, [1554, 1550], 1, &[0]), 777).unwrap_err();
        assert!(e.cause().contains("the pages have 1554 values, but the column claims 1550"), "{e}");
        assert_eq!(e.path(), Some(&*path));
    }

    fn read(path: &Path, row: usize) -> Result<Vec<u8>> {
        let set = Parquet::open(path)?;
        let mut scratch = Vec::new();
        let sample = set.read(row, &mut scratch)?;
        Ok(sample.field("text.txt").unwrap().into_owned())
    }

    #[test]
    fn delta_encoded_values_are_bounded_in_memory() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.parquet");
        let values: Vec<ByteArray> =
            (0..500).map(|n| format!("a long shared beginning {n}").into_bytes().into()).collect();
        for encoding in [Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY] {
            write(&path, encoding, &values);
            for row in [0, 7, 499] {
                assert_eq!(read(&path, row).unwrap(), values[row].data(), "{encoding}");
            }
        }
        // 2,000 values of 50 kB decode to 100 MB, but the file is smaller than 200 kB.
        write(&path, Encoding::DELTA_BYTE_ARRAY, &vec![vec![b'x'; 50_000].into(); 2000]);
        assert!(std::fs::metadata(&path).unwrap().len() < 200_000);
        let set = Parquet::open(&path).unwrap();
        let _prefetcher = set.prefetcher(Lookahead::new(0, |_| 0, |_| None));
        let mut scratch = Vec::new();
        let e = set.read(3, &mut scratch).unwrap_err();
        assert!(e.cause().contains("row group 0, column \"text\": decoding a page needs 10"), "{e}");
        assert!(e.cause().contains("smaller pages") && e.path() == Some(&*path), "{e}");
        // The message suggests a higher limit only if a loader would then grant more.
        assert!(!e.cause().contains("memory_limit"), "{e}");
        set.page_limit.set_max_grant(1 << 30);
        assert!(set.read(3, &mut scratch).unwrap_err().cause().contains("raise the loader's memory_limit"));
    }

    #[test]
    fn page_with_a_wrong_checksum_fails() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats/parquet/checksums.parquet");
        let bytes = std::fs::read(&path).unwrap();
        let root = tempfile::tempdir().unwrap();
        let copy = root.path().join("x.parquet");
        let offset = memchr::memmem::find(&bytes, b"row 17").unwrap();
        let mut changed = bytes.clone();
        changed[offset + 5] = b'8';
        std::fs::write(&copy, &changed).unwrap();
        assert_eq!(read(&path, 17).unwrap(), b"row 17");
        let e = read(&copy, 17).unwrap_err();
        assert!(e.cause().contains("a page has a wrong checksum"), "{e}");
        assert_eq!(read(&copy, 0).unwrap(), b"row 0", "other pages can still be read");
    }
}
