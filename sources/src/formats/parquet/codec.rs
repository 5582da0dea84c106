//! Decompresses pages. The output never exceeds the size that the page's header declares.

use std::io::Read;

use parquet::basic::Compression;

use crate::error::{Error, ErrorKind, Result};

/// Appends the decompressed bytes, which must be exactly `size` bytes, to `out`.
pub(super) fn decompress(compression: Compression, input: &[u8], size: usize, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.try_reserve_exact(size).map_err(|_| Error::new(ErrorKind::Memory, format!("cannot allocate {size} bytes")))?;
    // Some writers do not compress empty pages.
    if size == 0 && input.is_empty() {
        return Ok(());
    }
    match compression {
        Compression::UNCOMPRESSED => match input.len() == size {
            true => out.extend_from_slice(input),
            false => return Err(damaged(compression, &format!("has {} bytes: expected {size}", input.len()))),
        },
        Compression::SNAPPY => {
            out.resize(start + size, 0);
            let written = snap::raw::Decoder::new().decompress(input, &mut out[start..]);
            let written = written.map_err(|e| damaged(compression, &e.to_string()))?;
            return check_size(compression, written, size);
        }
        Compression::GZIP(_) => read_exactly(compression, flate2::read::MultiGzDecoder::new(input), size, out)?,
        Compression::ZSTD(_) => {
            out.resize(start + size, 0);
            let mut decoder = zstd::bulk::Decompressor::new().map_err(|e| damaged(compression, &e.to_string()))?;
            let written = decoder.decompress_to_buffer(input, &mut out[start..]);
            let written = written.map_err(|e| damaged(compression, &e.to_string()))?;
            return check_size(compression, written, size);
        }
        Compression::LZ4_RAW => {
            out.resize(start + size, 0);
            return decompress_lz4(input, &mut out[start..])
                .ok_or_else(|| damaged(compression, "invalid data, or a different size than declared"));
        }
        // Writers disagree on the framing of LZ4: Hadoop frames, LZ4 frames, or raw blocks.
        Compression::LZ4 => {
            out.resize(start + size, 0);
            if decompress_hadoop(input, &mut out[start..]).is_some() {
                return Ok(());
            }
            out.truncate(start);
            if read_exactly(compression, lz4_flex::frame::FrameDecoder::new(input), size, out).is_ok() {
                return Ok(());
            }
            out.truncate(start);
            out.resize(start + size, 0);
            return decompress_lz4(input, &mut out[start..])
                .ok_or_else(|| damaged(compression, "invalid data, or a different size than declared"));
        }
        other => {
            let name = format!("{other:?}");
            let name = name.split('(').next().unwrap_or_default().to_lowercase();
            return Err(Error::in_source(format!("unsupported compression {name}")));
        }
    }
    Ok(())
}

/// Appends exactly `size` bytes to `out`. Fails if more bytes follow.
fn read_exactly(compression: Compression, input: impl Read, size: usize, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.resize(start + size, 0);
    let mut input = input.take(size as u64 + 1);
    input.read_exact(&mut out[start..]).map_err(|e| damaged(compression, &e.to_string()))?;
    match input.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(damaged(compression, &format!("decompresses to more than {size} bytes"))),
        Err(e) => Err(damaged(compression, &e.to_string())),
    }
}

fn check_size(compression: Compression, written: usize, size: usize) -> Result<()> {
    if written == size {
        Ok(())
    } else {
        Err(damaged(compression, &format!("decompresses to {written} bytes: expected {size}")))
    }
}

fn decompress_lz4(input: &[u8], out: &mut [u8]) -> Option<()> {
    (lz4_flex::block::decompress_into(input, out).ok()? == out.len()).then_some(())
}

/// Decompresses Hadoop's framing of LZ4. Each block is preceded by its decompressed size and its
/// compressed size, as 32-bit big-endian integers.
fn decompress_hadoop(mut input: &[u8], mut out: &mut [u8]) -> Option<()> {
    while !input.is_empty() {
        let (sizes, rest) = input.split_at_checked(8)?;
        let word = |offset: usize| {
            u32::from_be_bytes([sizes[offset], sizes[offset + 1], sizes[offset + 2], sizes[offset + 3]]) as usize
        };
        let (block, after) = rest.split_at_checked(word(4))?;
        let (piece, others) = out.split_at_mut_checked(word(0))?;
        decompress_lz4(block, piece)?;
        (input, out) = (after, others);
    }
    out.is_empty().then_some(())
}

fn damaged(compression: Compression, cause: &str) -> Error {
    let name = format!("{compression:?}");
    let name = name.split('(').next().unwrap_or_default().to_lowercase();
    Error::in_source(format!("damaged: a page compressed with {name}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use parquet::basic::{GzipLevel, ZstdLevel};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn framed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn blocks(bytes: &[u8]) -> Vec<u8> {
        let (first, second) = bytes.split_at(bytes.len() / 3);
        let block = |bytes: &[u8]| {
            let packed = lz4_flex::block::compress(bytes);
            [&(bytes.len() as u32).to_be_bytes()[..], &(packed.len() as u32).to_be_bytes(), &packed].concat()
        };
        [block(first), block(second)].concat()
    }

    fn every_compression(bytes: &[u8]) -> Vec<(Compression, Vec<u8>)> {
        let raw = lz4_flex::block::compress(bytes);
        vec![
            (Compression::UNCOMPRESSED, bytes.to_vec()),
            (Compression::SNAPPY, snap::raw::Encoder::new().compress_vec(bytes).unwrap()),
            (Compression::GZIP(GzipLevel::default()), gzip(bytes)),
            (Compression::ZSTD(ZstdLevel::default()), zstd::bulk::compress(bytes, 1).unwrap()),
            (Compression::LZ4_RAW, raw.clone()),
            (Compression::LZ4, raw),
            (Compression::LZ4, framed(bytes)),
            (Compression::LZ4, blocks(bytes)),
        ]
    }

    #[test]
    fn every_compression_restores_the_bytes_and_checks_the_size() {
        let bytes: Vec<u8> = (0..5000_u32).flat_map(|n| (n / 7 * n).to_le_bytes()).collect();
        for (case, (compression, packed)) in every_compression(&bytes).into_iter().enumerate() {
            let mut out = b"before".to_vec();
            decompress(compression, &packed, bytes.len(), &mut out).unwrap_or_else(|e| panic!("{case}: {e}"));
            assert!(out.strip_prefix(b"before") == Some(&bytes[..]), "{case}");
            for size in [0, 1, bytes.len() - 1, bytes.len() + 1] {
                let e = decompress(compression, &packed, size, &mut Vec::new()).unwrap_err();
                assert!(e.cause().contains("damaged: a page compressed with"), "{case}: {e}");
            }
            for len in [0, 1, 9, packed.len() - 5] {
                assert!(decompress(compression, &packed[..len], bytes.len(), &mut Vec::new()).is_err(), "{case}");
            }
        }
        let e = decompress(Compression::LZO, b"", 7, &mut Vec::new()).unwrap_err();
        assert!(e.cause().contains("unsupported compression lzo"), "{e}");
    }

    #[test]
    fn page_takes_no_more_memory_than_it_declares() {
        for (compression, packed) in every_compression(&vec![0; 4 << 20]) {
            let mut out = Vec::new();
            decompress(compression, &packed, 1000, &mut out).unwrap_err();
            assert!(out.capacity() < 1 << 16, "{compression:?}: {}", out.capacity());
        }
    }
}
