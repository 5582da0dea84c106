//! Copies one segment without its stuffed zeros. All versions produce the same bytes.

/// Copies from `data[offset..]` to `stream[written..]` until a marker or the end of the data, without
/// the zero stuffed after each `ff`. Returns the positions after the last byte read and after the
/// last byte written, or `None` if `stream` is too short. May write a few more bytes, because
/// copying whole vectors costs less than stopping exactly.
pub(crate) type Unstuff = fn(data: &[u8], offset: usize, stream: &mut [u8], written: usize) -> Option<(usize, usize)>;

/// Returns the AVX-512 version if `name` is `avx512` and this CPU supports it, and otherwise the
/// plain Rust version.
pub(crate) fn unstuff(name: &str) -> Unstuff {
    #[cfg(target_arch = "x86_64")]
    if let Some(vectors) = super::avx512::unstuff().filter(|_| name == "avx512") {
        return vectors;
    }
    let _ = name;
    scalar
}

pub(super) fn scalar(data: &[u8], mut offset: usize, stream: &mut [u8], mut written: usize) -> Option<(usize, usize)> {
    loop {
        (offset, written) = copy_until_ff(data, offset, stream, written)?;
        match data.get(offset + 1) {
            Some(0) => (offset, written) = (offset + 2, written + 1),
            _ => return Some((offset, written)),
        }
    }
}

const STEP_BYTES: usize = 32;

/// Copies from `data[offset..]` to `stream[written..]` until the next `ff` or the end of the data.
/// May write bytes after the returned positions, including the `ff`.
fn copy_until_ff(data: &[u8], mut offset: usize, stream: &mut [u8], mut written: usize) -> Option<(usize, usize)> {
    while let (Some(from), Some(to)) =
        (data[offset..].first_chunk::<STEP_BYTES>(), stream[written..].first_chunk_mut::<STEP_BYTES>())
    {
        *to = *from;
        if let Some(length) = find_ff(from) {
            return Some((offset + length, written + length));
        }
        (offset, written) = (offset + STEP_BYTES, written + STEP_BYTES);
    }
    while offset < data.len() && data[offset] != 0xff {
        *stream.get_mut(written)? = data[offset];
        (offset, written) = (offset + 1, written + 1);
    }
    if offset < data.len() {
        *stream.get_mut(written)? = 0xff;
    }
    Some((offset, written))
}

fn find_ff(bytes: &[u8; STEP_BYTES]) -> Option<usize> {
    // The check has no branch per byte, so the compiler vectorizes it.
    let has_ff = bytes.iter().fold(false, |has_ff, &byte| has_ff | (byte == 0xff));
    has_ff.then(|| {
        let mut mask = 0;
        for (i, word) in bytes.chunks_exact(8).enumerate() {
            let word = !u64::from_le_bytes(word.try_into().expect("eight bytes"));
            // Set the highest bit of each zero byte, and pack these bits. No carry crosses a byte.
            let low = 0x7f7f_7f7f_7f7f_7f7f;
            let zero = !(((word & low) + low) | word | low);
            mask |= ((zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56 & 0xff) << (8 * i);
        }
        mask.trailing_zeros() as usize
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::kernels::Backend;

    fn naive(data: &[u8], mut offset: usize) -> (usize, Vec<u8>) {
        let mut bytes = Vec::new();
        while offset < data.len() {
            match (data[offset], data.get(offset + 1)) {
                (0xff, Some(0)) => {
                    bytes.push(0xff);
                    offset += 2;
                }
                (0xff, _) => break,
                (byte, _) => {
                    bytes.push(byte);
                    offset += 1;
                }
            }
        }
        (offset, bytes)
    }

    fn data() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            20 => (1u8..255).prop_map(|byte| vec![byte]),
            2 => Just(vec![0xff, 0]),
            1 => Just(vec![0]),
        ];
        let end = prop_oneof![Just(vec![]), Just(vec![0xff]), Just(vec![0xff, 0xff, 0]), Just(vec![0xff, 0xd3, 9, 9])];
        let runs = prop::collection::vec(prop::collection::vec(byte, 0..200), 0..4);
        (runs, end, prop::collection::vec(any::<u8>(), 0..100)).prop_map(|(runs, end, after)| {
            let mut data: Vec<u8> = runs.into_iter().flatten().flatten().collect();
            data.extend(end);
            data.extend(after);
            data
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_backend_copies_the_bytes_of_the_reference(
            data in data(), skip in 0usize..70, before in 0usize..70, spare in 0usize..140, short in 0usize..40,
        ) {
            let skip = skip.min(data.len());
            let (end, expected) = naive(&data, skip);
            for backend in Backend::available() {
                let mut stream = vec![0x55; before + expected.len() + 1 + spare];
                let actual = backend.unstuff()(&data, skip, &mut stream, before);
                prop_assert_eq!(actual, Some((end, before + expected.len())), "{:?}", backend.name());
                prop_assert!(stream[before..].starts_with(&expected), "{:?}", backend.name());
                prop_assert!(stream[..before].iter().all(|&byte| byte == 0x55), "{:?}", backend.name());
                if expected.len() > short {
                    let mut stream = vec![0x55; before + expected.len() - 1 - short];
                    prop_assert_eq!(backend.unstuff()(&data, skip, &mut stream, before), None, "{:?}", backend.name());
                }
            }
        }
    }
}
