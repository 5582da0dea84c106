//! Parses page headers.

use parquet::basic::Encoding;

use super::thrift::CompactReader;

/// Maximum size of a page header, in bytes. Headers can be large, because their statistics may
/// contain whole values.
pub(super) const MAX_HEADER_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) len: usize,
    /// Length of the page in the file, in bytes, without the header.
    pub(super) compressed_len: usize,
    /// Decompressed size of the page, in bytes.
    pub(super) size: usize,
    /// CRC-32 of the page as stored in the file, without the header.
    pub(super) crc: Option<u32>,
    /// Number of values, including nulls.
    pub(super) values: usize,
    pub(super) kind: PageKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PageKind {
    /// A page of any other type, such as an index page. It contains no values.
    Other,
    Dictionary {
        encoding: Encoding,
        is_sorted: bool,
    },
    /// A data page of version 1, which compresses its levels together with its values.
    DataV1 {
        encoding: Encoding,
        definition_encoding: Encoding,
        repetition_encoding: Encoding,
    },
    /// A data page of version 2, which stores its levels uncompressed before the values.
    DataV2 {
        encoding: Encoding,
        row_count: usize,
        null_count: usize,
        definition_bytes: usize,
        repetition_bytes: usize,
        is_compressed: bool,
    },
}

impl Header {
    /// Parses the header at the start of `bytes`. Returns `None` if it is incomplete or damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        // The fields of `PageHeader` in Parquet's Thrift definition:
        // 1: page type (0: data, 2: dictionary, 3: data of version 2)
        // 2: uncompressed size
        // 3: compressed size
        // 4: checksum
        // 5: header of a data page
        // 7: header of a dictionary page
        // 8: header of a data page of version 2
        let mut reader = CompactReader::new(bytes);
        let (mut kind, mut sizes, mut crc) = (None, [None; 2], None);
        let (mut values, mut page_fields) = (0, None);
        let (mut last, mut seen) = (0, SeenFields::default());
        loop {
            let (field, field_type) = reader.field_header(last)?;
            if field_type > 0 {
                seen.record(field)?;
            }
            match (field, field_type) {
                (_, 0) => break,
                (1, 5) => kind = Some(reader.integer()?),
                (2 | 3, 5) => sizes[field as usize - 2] = usize::try_from(reader.integer()?).ok(),
                (4, 5) => crc = Some(reader.integer()? as u32),
                (5 | 7 | 8, 12) => {
                    let fields = StructFields::read(&mut reader)?;
                    values = fields.size(1)?;
                    page_fields = Some((field, fields));
                }
                _ => reader.skip(field_type, 0)?,
            }
            last = field;
        }
        let kind = match (kind?, page_fields) {
            (0, Some((5, fields))) => PageKind::DataV1 {
                encoding: fields.encoding(2)?,
                definition_encoding: fields.encoding(3)?,
                repetition_encoding: fields.encoding(4)?,
            },
            (2, Some((7, fields))) => {
                PageKind::Dictionary { encoding: fields.encoding(2)?, is_sorted: fields.integers[3] == Some(1) }
            }
            (3, Some((8, fields))) => PageKind::DataV2 {
                null_count: fields.size(2)?,
                row_count: fields.size(3)?,
                encoding: fields.encoding(4)?,
                definition_bytes: fields.size(5)?,
                repetition_bytes: fields.size(6)?,
                is_compressed: fields.integers[7] != Some(0),
            },
            (0 | 2 | 3, _) => return None,
            _ => PageKind::Other,
        };
        let [size, compressed_len] = sizes;
        Some(Header { len: reader.position(), compressed_len: compressed_len?, size: size?, crc, values, kind })
    }

    /// Returns the number of values of a data page, which is the number of rows if the column has
    /// no lists. Returns `None` for other pages.
    pub(super) fn row_count(&self) -> Option<usize> {
        matches!(self.kind, PageKind::DataV1 { .. } | PageKind::DataV2 { .. }).then_some(self.values)
    }

    pub(super) fn encoding(&self) -> Option<Encoding> {
        match self.kind {
            PageKind::Other => None,
            PageKind::Dictionary { encoding, .. }
            | PageKind::DataV1 { encoding, .. }
            | PageKind::DataV2 { encoding, .. } => Some(encoding),
        }
    }

    /// Returns whether the page contains indices into the dictionary instead of values.
    pub(super) fn needs_dictionary(&self) -> bool {
        !matches!(self.kind, PageKind::Dictionary { .. })
            && matches!(self.encoding(), Some(Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY))
    }
}

/// The fields of a struct that have occurred so far. A repeated field is treated as damage, because
/// parsers disagree on which occurrence counts.
#[derive(Default)]
struct SeenFields(u64);

impl SeenFields {
    fn record(&mut self, field: i64) -> Option<()> {
        // Negative field numbers, and numbers from 64, do not fit into the bit set. Parquet does
        // not define such fields, so their repetitions do not matter.
        let Some(bit) = u32::try_from(field).ok().and_then(|field| 1_u64.checked_shl(field)) else { return Some(()) };
        let previous = self.0;
        self.0 |= bit;
        (previous & bit == 0).then_some(())
    }
}

/// The `i32` and boolean fields 0 to 7 of a struct, indexed by field number. Other fields are
/// ignored.
#[derive(Default)]
struct StructFields {
    integers: [Option<i64>; 8],
}

impl StructFields {
    fn read(reader: &mut CompactReader<'_>) -> Option<Self> {
        let (mut fields, mut last, mut seen) = (StructFields::default(), 0, SeenFields::default());
        loop {
            let (field, field_type) = reader.field_header(last)?;
            if field_type > 0 {
                seen.record(field)?;
            }
            let value = match field_type {
                0 => return Some(fields),
                1 => Some(1),
                2 => Some(0),
                5 => Some(reader.integer()?),
                _ => {
                    reader.skip(field_type, 0)?;
                    None
                }
            };
            if let (Ok(field), Some(value)) = (usize::try_from(field), value)
                && let Some(integer) = fields.integers.get_mut(field)
            {
                *integer = Some(value);
            }
            last = field;
        }
    }

    fn size(&self, field: usize) -> Option<usize> {
        usize::try_from(self.integers[field]?).ok()
    }

    #[expect(deprecated, reason = "older files use BIT_PACKED and PLAIN_DICTIONARY")]
    fn encoding(&self, field: usize) -> Option<Encoding> {
        Some(match self.integers[field]? {
            0 => Encoding::PLAIN,
            2 => Encoding::PLAIN_DICTIONARY,
            3 => Encoding::RLE,
            4 => Encoding::BIT_PACKED,
            5 => Encoding::DELTA_BINARY_PACKED,
            6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            7 => Encoding::DELTA_BYTE_ARRAY,
            8 => Encoding::RLE_DICTIONARY,
            9 => Encoding::BYTE_STREAM_SPLIT,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_page_headers_are_read_and_partial_ones_are_not() {
        // A data page of version 1: the page type, the sizes 100 and 60, the checksum -2, and 7
        // plain values with run-length encoded levels.
        let bytes = [
            0x15, 0x00, 0x15, 0xc8, 0x01, 0x15, 0x78, 0x15, 0x03, 0x1c, 0x15, 0x0e, 0x15, 0x00, 0x15, 0x06, 0x15, 0x06,
            0x00, 0x00, 0xff,
        ];
        let header = Header::read(&bytes).unwrap();
        assert_eq!((header.len, header.size, header.compressed_len, header.values), (20, 100, 60, 7));
        assert_eq!((header.crc, header.row_count(), header.needs_dictionary()), (Some(-2_i32 as u32), Some(7), false));
        let levels = Encoding::RLE;
        assert_eq!(
            header.kind,
            PageKind::DataV1 { encoding: Encoding::PLAIN, definition_encoding: levels, repetition_encoding: levels }
        );
        assert!((0..20).all(|len| Header::read(&bytes[..len]).is_none()));
    }

    #[test]
    fn repeated_header_field_is_damage() {
        let page = [0x15, 0, 0x15, 8, 0x15, 8];
        let page_fields = [0x2c, 0x15, 14, 0x15, 0, 0x15, 6, 0x15, 6];
        let read = |parts: &[&[u8]]| Header::read(&parts.concat()).map(|header| (header.size, header.values));
        assert_eq!(read(&[&page, &page_fields, &[0, 0]]), Some((4, 7)));
        // The first three headers repeat the size, the number of values, and the struct. The last
        // has the unknown field 128 in addition.
        assert_eq!(read(&[&page, &page_fields, &[0, 0x05, 4, 10, 0]]), None);
        assert_eq!(read(&[&page, &page_fields, &[0x05, 2, 16, 0, 0]]), None);
        let again = [0x0c, 10, 0x15, 14, 0x15, 0, 0x15, 6, 0x15, 6, 0];
        assert_eq!(read(&[&page, &page_fields, &[0], &again, &[0]]), None);
        assert_eq!(read(&[&page, &page_fields, &[0, 0x05, 0x80, 2, 16, 0]]), Some((4, 7)));
    }
}
