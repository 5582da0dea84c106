//! Chooses a Huffman table: either the standard table or a table optimized for the symbols (ITU
//! T.81, annex K.2).

use crate::huffman::HuffmanSpec;

/// An optimized table must save more than this many bytes, compared to the standard table.
///
/// This crate's decoder caches the standard tables, but must build any other table for each image.
/// Building a table takes as long as decoding 1,400 bytes (7 µs). For images smaller than 300
/// pixels, all optimized tables together save less than 1,400 bytes. The threshold is lower because
/// bytes must also be stored and read.
const MIN_SAVING: u64 = 512;

/// Returns the standard table unless an optimized table saves more than [`MIN_SAVING`]. The symbols
/// occur `counts[symbol]` times.
pub(super) fn choose_table(counts: &[u32; 256], is_ac: bool, is_chroma: bool) -> HuffmanSpec {
    let (standard, optimized) = (HuffmanSpec::standard(is_ac, is_chroma), optimal_table(counts));
    match (total_bits(&standard, counts, is_ac), total_bits(&optimized, counts, is_ac)) {
        (Some(standard_bits), Some(optimized_bits)) if standard_bits <= optimized_bits + 8 * MIN_SAVING => standard,
        _ => optimized,
    }
}

/// Returns the size in bits of the table's symbol list and of the codes of all symbols, or `None`
/// if a symbol has no code.
fn total_bits(spec: &HuffmanSpec, counts: &[u32; 256], is_ac: bool) -> Option<u64> {
    let (mut coded, mut bits) = (0, 8 * spec.values().len() as u64);
    for code in spec.codes(is_ac).ok()? {
        let count = u64::from(counts[usize::from(code.symbol)]);
        coded += count;
        bits += count * u64::from(code.length);
    }
    (coded == counts.iter().map(|&n| u64::from(n)).sum::<u64>()).then_some(bits)
}

/// Maximum length of a code before codes are shortened to 16 bits.
const MAX_UNLIMITED_LENGTH: usize = 128;

/// Builds the optimal table for symbols that occur `counts[symbol]` times, with codes of at most 16
/// bits, as libjpeg's `jpeg_gen_optimal_table` does. Codes that consist only of ones stay unused.
fn optimal_table(counts: &[u32; 256]) -> HuffmanSpec {
    // Figure K.1 searches for the two smallest weights. Two sorted queues replace the search: one
    // for the symbols, and one for the new nodes. The code that consists only of ones must stay
    // unused. It is assigned to the reserved symbol 256, which is the rarest and so gets one of the
    // longest codes.
    let weight_of = |s: usize| counts.get(s).map_or(1, |&n| u64::from(n) << 16);
    let mut leaves: Vec<(u64, usize)> = (0..257).map(|s| (weight_of(s), s)).filter(|&(n, _)| n > 0).collect();
    leaves.sort_unstable();
    let count = leaves.len();
    // Leaves have the indices 0 to count - 1. Nodes have the following indices, in the order of
    // creation.
    let (mut weight, mut parent): (Vec<u64>, _) = (leaves.iter().map(|&(n, _)| n).collect(), vec![0; 2 * count - 1]);
    let (mut leaf, mut node) = (0, count);
    while weight.len() < 2 * count - 1 {
        let new_node = weight.len();
        let mut remove_least = || {
            let smallest =
                if leaf < count && (node == new_node || weight[leaf] <= weight[node]) { &mut leaf } else { &mut node };
            parent[*smallest] = new_node;
            *smallest += 1;
            weight[*smallest - 1]
        };
        let sum = remove_least() + remove_least();
        weight.push(sum);
    }
    // Every parent has a higher index than its children.
    let mut length = vec![0usize; 2 * count - 1];
    for i in (0..length.len() - 1).rev() {
        length[i] = length[parent[i]] + 1;
    }

    // Figures K.2 and K.3: shorten codes of more than 16 bits by lengthening other codes.
    let mut bits = [0u16; MAX_UNLIMITED_LENGTH];
    length[..count].iter().for_each(|&l| bits[l] += 1);
    for i in (17..MAX_UNLIMITED_LENGTH).rev() {
        while bits[i] > 0 {
            let j = (1..i - 1).rev().find(|&j| bits[j] > 0).expect("a prefix code has shorter codes");
            bits[i] -= 2;
            bits[i - 1] += 1;
            bits[j + 1] += 2;
            bits[j] -= 1;
        }
    }
    let longest = bits.iter().rposition(|&n| n > 0).expect("there is at least the reserved code");
    bits[longest] -= 1;

    let mut order: Vec<(usize, usize)> =
        leaves.iter().zip(&length).map(|(&(_, s), &l)| (l, s)).filter(|&(_, s)| s < 256).collect();
    order.sort_unstable();
    let values: Vec<u8> = order.iter().map(|&(_, s)| s as u8).collect();
    HuffmanSpec::new(std::array::from_fn(|i| bits[i + 1] as u8), &values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Follows figure K.1 literally. Returns the total number of bits and the longest code's
    /// length.
    fn reference(counts: &[u32; 256]) -> (u64, usize) {
        let mut freq: Vec<u64> = counts.iter().map(|&n| n.into()).chain([1]).collect();
        let (mut size, mut others) = ([0usize; 257], [usize::MAX; 257]);
        let find_least = |freq: &[u64], but: usize| {
            (0..257).filter(|&i| i != but && freq[i] > 0).min_by_key(|&i| (freq[i], std::cmp::Reverse(i)))
        };
        while let Some(mut a) = find_least(&freq, 257)
            && let Some(mut b) = find_least(&freq, a)
        {
            freq[a] += freq[b];
            freq[b] = 0;
            size[a] += 1;
            while others[a] != usize::MAX {
                a = others[a];
                size[a] += 1;
            }
            others[a] = b;
            size[b] += 1;
            while others[b] != usize::MAX {
                b = others[b];
                size[b] += 1;
            }
        }
        let total = counts.iter().zip(size).map(|(&n, l)| u64::from(n) * l as u64).sum();
        (total, size.into_iter().max().unwrap())
    }

    fn check(counts: &[u32; 256]) -> u64 {
        let spec = optimal_table(counts);
        let codes: Vec<_> = spec.codes(true).unwrap().collect();
        assert_eq!(codes.len(), counts.iter().filter(|&&n| n > 0).count());
        let is_valid = codes.iter().all(|c| c.length <= 16 && c.code != (((1u32 << c.length) - 1) as u16));
        assert!(is_valid, "a code is all ones or too long");
        codes.iter().map(|c| u64::from(c.length) * u64::from(counts[usize::from(c.symbol)])).sum()
    }

    proptest! {
        #[test]
        fn an_optimized_table_uses_no_more_bits_than_annex_k(
            few in prop::collection::vec((any::<u8>(), 1u32..200), 1..100)
        ) {
            let mut counts = [0; 256];
            few.iter().for_each(|&(symbol, n)| counts[usize::from(symbol)] = n);
            let (least, longest) = reference(&counts);
            prop_assume!(longest <= 16);
            prop_assert!(check(&counts) <= least);
        }
    }

    #[test]
    fn an_optimized_table_must_save_more_than_the_minimum() {
        let mut counts = [0; 256];
        counts[0x42] = 10;
        let saved = |counts: &[u32; 256]| {
            let standard = total_bits(&HuffmanSpec::standard(true, false), counts, true).unwrap();
            standard - total_bits(&optimal_table(counts), counts, true).unwrap()
        };
        let mut chosen = Vec::new();
        while saved(&counts) < 2 * 8 * MIN_SAVING {
            let is_optimized = choose_table(&counts, true, false) != HuffmanSpec::standard(true, false);
            assert_eq!(is_optimized, saved(&counts) > 8 * MIN_SAVING, "{} bits saved", saved(&counts));
            chosen.push(is_optimized);
            counts[0x42] += 1;
        }
        assert!(chosen.contains(&false) && chosen.contains(&true));
    }

    #[test]
    fn a_symbol_without_a_standard_code_needs_an_optimized_table() {
        let mut counts = [0; 256];
        counts[0x0b] = 1;
        assert_eq!(total_bits(&HuffmanSpec::standard(true, false), &counts, true), None);
        assert_eq!(choose_table(&counts, true, false).values(), [0x0b]);
    }

    #[test]
    fn codes_have_at_most_16_bits() {
        let mut counts = [0u32; 256];
        let (mut a, mut b) = (1u32, 1);
        for n in counts.iter_mut().take(40) {
            *n = a;
            (a, b) = (b, a + b);
        }
        assert!(reference(&counts).1 > 16);
        check(&counts);
        assert!(optimal_table(&counts).counts()[15] > 0);
    }

    #[test]
    fn a_single_symbol_gets_a_one_bit_code() {
        let mut counts = [0; 256];
        counts[0x42] = 7;
        assert_eq!(check(&counts), 7);
        let counts = [1; 256];
        check(&counts);
    }
}
