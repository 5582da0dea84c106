//! Checks the sizes that delta-encoded data declares. The `parquet` crate allocates as much memory
//! as the data declares, so the check must precede decoding.
//!
//! `Encodings.md` of the Parquet format specifies the encodings `DELTA_BINARY_PACKED`,
//! `DELTA_LENGTH_BYTE_ARRAY` and `DELTA_BYTE_ARRAY`.

/// Returns an upper bound on the decoded size of `DELTA_BYTE_ARRAY` data, in bytes. In this
/// encoding, each value is a prefix of the previous value, followed by a suffix. The data contains
/// the lengths of the prefixes, then the suffixes. Returns `None` if the prefix lengths or the
/// header of the suffixes are damaged, or if either declares more than `limit` values. Does not
/// check the suffixes themselves.
pub(super) fn decoded_size(bytes: &[u8], limit: usize) -> Option<u64> {
    let (prefix_bytes, suffixes) = sum_values(bytes, limit)?;
    check_count(suffixes, limit)?;
    Some(prefix_bytes + suffixes.len() as u64)
}

/// Returns `None` if the header of `DELTA_BINARY_PACKED` data is damaged or declares more than
/// `limit` numbers.
pub(super) fn check_count(bytes: &[u8], limit: usize) -> Option<()> {
    (Header::read(&mut &bytes[..])?.count <= limit).then_some(())
}

struct Header {
    /// Values per miniblock.
    miniblock_len: usize,
    /// Miniblocks per block.
    miniblocks: usize,
    /// Total number of values.
    count: usize,
    /// The first value, which is not part of a miniblock.
    first_value: i64,
}

impl Header {
    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut size = || usize::try_from(varint(bytes)?).ok();
        let (block, miniblocks, count) = (size()?, size()?, size()?);
        let first_value = signed_varint(bytes)?;
        let is_valid = miniblocks > 0 && block.is_multiple_of(miniblocks) && (block / miniblocks).is_multiple_of(32);
        is_valid.then_some(Header { miniblock_len: block / miniblocks, miniblocks, count, first_value })
    }
}

/// Returns the sum of the numbers at the start of `bytes`, and the remaining bytes. Returns `None`
/// if the data is damaged, if there are more than `limit` numbers, or if a number is negative.
fn sum_values(mut bytes: &[u8], limit: usize) -> Option<(u64, &[u8])> {
    let Header { miniblock_len, miniblocks, count, first_value } = Header::read(&mut bytes)?;
    if count > limit {
        return None;
    }
    let mut number = first_value as i32;
    let (mut total, mut remaining) = (u64::try_from(number).ok()?, count.saturating_sub(1));
    while remaining > 0 {
        let min_step = signed_varint(&mut bytes)? as i32;
        let (widths, rest) = bytes.split_at_checked(miniblocks)?;
        bytes = rest;
        for &width in widths {
            if remaining == 0 {
                break;
            }
            let width = usize::from(width);
            if width > 32 {
                return None;
            }
            // Writers may omit the padding of the last miniblock.
            let values_here = miniblock_len.min(remaining);
            let packed_len = (miniblock_len.checked_mul(width)? / 8).min(bytes.len());
            if values_here * width > packed_len * 8 {
                return None;
            }
            let (packed, rest) = bytes.split_at(packed_len);
            for index in 0..values_here {
                let step = read_bits(packed, index * width, width).wrapping_add(min_step as u32);
                number = number.wrapping_add(step as i32);
                total += u64::try_from(number).ok()?;
            }
            bytes = rest;
            remaining -= values_here;
        }
    }
    Some((total, bytes))
}

/// Reads `width` bits, starting at bit `bit`, least significant bit first.
fn read_bits(bytes: &[u8], bit: usize, width: usize) -> u32 {
    let mut word = [0; 8];
    let tail = &bytes[(bit / 8).min(bytes.len())..];
    let len = tail.len().min(8);
    word[..len].copy_from_slice(&tail[..len]);
    ((u64::from_le_bytes(word) >> (bit % 8)) & ((1 << width) - 1)) as u32
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn signed_varint(bytes: &mut &[u8]) -> Option<i64> {
    let value = varint(bytes)?;
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(bytes: &mut Vec<u8>, mut value: u64) {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }

    fn zigzag(value: i64) -> u64 {
        ((value << 1) ^ (value >> 63)) as u64
    }

    /// Encodes `numbers` in blocks of 128 with four miniblocks each. The last miniblock is padded
    /// with zeros.
    fn packed(numbers: &[i32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for value in [128, 4, numbers.len() as u64, zigzag(numbers[0].into())] {
            push(&mut bytes, value);
        }
        let steps: Vec<i32> = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        for block in steps.chunks(128) {
            let min_step = *block.iter().min().unwrap();
            push(&mut bytes, zigzag(min_step.into()));
            let rests: Vec<u32> = block.iter().map(|&step| step.wrapping_sub(min_step) as u32).collect();
            let width = |part: usize| {
                let block = rests.iter().skip(part * 32).take(32);
                block.map(|rest| 32 - rest.leading_zeros()).max().unwrap_or(0)
            };
            (0..4).for_each(|part| bytes.push(width(part) as u8));
            for (part, block) in rests.chunks(32).enumerate() {
                let (mut word, mut bit_count) = (0_u64, 0);
                for index in 0..32 {
                    word |= u64::from(block.get(index).copied().unwrap_or(0)) << bit_count;
                    bit_count += width(part);
                    while bit_count >= 8 {
                        bytes.push(word as u8);
                        word >>= 8;
                        bit_count -= 8;
                    }
                }
            }
        }
        bytes
    }

    #[test]
    fn the_sum_of_encoded_numbers_is_correct() {
        for len in [1, 2, 31, 33, 128, 129, 130, 1000] {
            let numbers: Vec<i32> = (0..len).map(|n| n * 7919 % 4093 * (n % 5)).collect();
            let mut bytes = packed(&numbers);
            let end = bytes.len();
            bytes.extend(b"after");
            let total: i64 = numbers.iter().map(|&number| i64::from(number)).sum();
            assert_eq!(sum_values(&bytes, numbers.len()), Some((total as u64, &b"after"[..])), "{len}");
            assert_eq!(sum_values(&bytes, numbers.len() - 1), None);
            assert!(check_count(&bytes, numbers.len()).is_some() && check_count(&bytes, numbers.len() - 1).is_none());
            assert!((0..end.min(20)).all(|len| sum_values(&bytes[..len], 1000).is_none()));
        }
        let mut claims = Vec::new();
        for value in [128, 4, u64::from(u32::MAX), 0] {
            push(&mut claims, value);
        }
        assert_eq!((check_count(&claims, 4 << 20), decoded_size(&claims, 4 << 20)), (None, None));
        assert_eq!(sum_values(&packed(&[3, -2]), 9), None);
    }
}
