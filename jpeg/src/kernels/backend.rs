//! [`Backend`] is the instruction set to decode with.

use super::functions::Kernels;
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::entropy;
use crate::segments::{self, Unstuff};

/// A value exists only if this CPU has the instruction set, because only the module of the
/// instruction set can create its functions, and the module checks the CPU first.
#[derive(Clone, Copy)]
pub(crate) struct Backend {
    name: &'static str,
    kernels: Kernels,
    entropy: entropy::Backend,
    unstuff: Unstuff,
}

impl Backend {
    pub(crate) fn scalar() -> Backend {
        Backend {
            name: "scalar",
            kernels: scalar::KERNELS,
            entropy: entropy::Backend::scalar(),
            unstuff: segments::unstuff("scalar"),
        }
    }

    /// Chooses the instruction set that the `WARPFEED_JPEG` environment variable names. Chooses the
    /// best instruction set of the CPU if the variable is not set, or names an instruction set that
    /// the CPU does not support.
    pub(crate) fn choose() -> Backend {
        let backend_name = std::env::var("WARPFEED_JPEG").unwrap_or_default();
        let available = Self::available();
        *available.iter().find(|b| b.name == backend_name).unwrap_or(&available[available.len() - 1])
    }

    /// Returns the instruction sets that this CPU supports, best last.
    pub(crate) fn available() -> Vec<Backend> {
        #[cfg(target_arch = "x86_64")]
        let vectors = [
            ("avx2", avx2::kernels().zip(entropy::Backend::bmi())),
            ("avx512", avx512::kernels().zip(entropy::Backend::avx512())),
        ];
        #[cfg(target_arch = "aarch64")]
        let vectors = [("neon", neon::kernels().map(|kernels| (kernels, entropy::Backend::scalar())))];
        #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
        let vectors = [("", None); 0];
        let supported = |(name, functions): (_, Option<_>)| {
            functions.map(|(kernels, entropy)| Backend { name, kernels, entropy, unstuff: segments::unstuff(name) })
        };
        std::iter::once(Self::scalar()).chain(vectors.into_iter().filter_map(supported)).collect()
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    pub(crate) fn unstuff(&self) -> Unstuff {
        self.unstuff
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn entropy(&self) -> entropy::Backend {
        self.entropy
    }
}

#[cfg(test)]
mod tests {
    use super::super::functions::{EXPAND_PADDING, PADDING, value_bytes};
    use super::*;
    use crate::fuzz::Random;

    fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
        let is_extreme = random.below(3) == 0;
        (0..count).map(|_| if is_extreme { [0, 255][random.below(2)] } else { random.below(256) as u8 }).collect()
    }

    #[test]
    #[cfg(target_arch = "aarch64")]
    fn arm_decodes_with_neon() {
        assert_eq!(Backend::choose().name, "neon");
    }

    #[test]
    fn blocks_equal_plain_rust_at_the_limits_of_16_bits() {
        let scalar = Backend::scalar().kernels;
        for Backend { name, kernels, .. } in Backend::available() {
            for case in 0..1200 {
                let random = &mut Random::new(case);
                let blocks = 1 + random.below(9);
                let coefficient = |random: &mut Random| match case % 3 {
                    0 => random.below(400) as i16 - 200,
                    1 => random.below(1 << 16) as u16 as i16,
                    _ => [0, 0, 0, 0, i16::MIN, i16::MAX][random.below(6)],
                };
                let coefficients: Vec<i16> = (0..64 * blocks).map(|_| coefficient(random)).collect();
                let limit = [40, 1 << 16, 2][case as usize % 3];
                let quant: [u16; 64] = std::array::from_fn(|_| random.below(limit) as u16);
                let offsets: Vec<u32> = (0..blocks as u32).map(|block| 64 * block).collect();
                let stride = 8 * blocks + PADDING;
                for transform in [|kernels: &Kernels| kernels.idct, |kernels: &Kernels| kernels.idct_zigzag] {
                    let run = |kernels: &Kernels| {
                        let mut samples = vec![0; 9 * stride];
                        transform(kernels)(&coefficients, &offsets, &quant, &mut samples, stride);
                        samples.chunks(stride).take(8).flat_map(|row| row[..8 * blocks].to_vec()).collect::<Vec<_>>()
                    };
                    assert!(run(&kernels) == run(&scalar), "{name}, case {case}");
                }
            }
        }
    }

    #[test]
    fn expanded_blocks_equal_plain_rust() {
        let scalar = Backend::scalar().kernels;
        for Backend { name, kernels, .. } in Backend::available() {
            for case in 0..1200 {
                let random = &mut Random::new(case);
                let blocks = random.below(9);
                let mask = |random: &mut Random| match random.below(4) {
                    0 => random.next(),
                    1 => random.next() & random.next() & 0xffff,
                    2 => random.next() & !1,
                    _ => [0, 1, u64::MAX, u64::MAX - 1][random.below(4)],
                };
                let masks: Vec<u64> = (0..blocks).map(|_| mask(random)).collect();
                let dc: Vec<i16> = (0..blocks).map(|_| random.next() as i16).collect();
                let values = bytes(random, masks.iter().map(|&mask| value_bytes(mask)).sum::<usize>() + EXPAND_PADDING);
                let run = |kernels: &Kernels| {
                    let mut out = vec![7; 64 * blocks];
                    (kernels.expand)(&masks, &dc, &values, &mut out);
                    out
                };
                assert!(run(&kernels) == run(&scalar), "{name}, case {case}");
            }
        }
    }

    #[test]
    fn rows_equal_plain_rust() {
        let scalar = Backend::scalar().kernels;
        for Backend { name, kernels, .. } in Backend::available() {
            for case in 0..1200 {
                let random = &mut Random::new(case);
                let n = 1 + random.below(100);
                let [a, b, c] = [(); 3].map(|()| bytes(random, n + 2 * PADDING));
                let run = |kernels: &Kernels| {
                    let [mut h2v1, mut h1v2, mut h2v2] = [(); 3].map(|()| vec![0; 2 * n + 2 * PADDING]);
                    (kernels.h2v1)(&a, n, &mut h2v1);
                    (kernels.h1v2)(&a, &b, n, 1 + case as u8 % 2, &mut h1v2);
                    (kernels.h2v2)(&a, &b, n, &mut h2v2);
                    let mut rgb = vec![0; 3 * n];
                    (kernels.ycc_to_rgb)(&a, &b, &c, &mut rgb);
                    [h2v1[..2 * n].to_vec(), h1v2[..n].to_vec(), h2v2[..2 * n].to_vec(), rgb]
                };
                assert!(run(&kernels) == run(&scalar), "{name}, {n} samples, case {case}");
            }
        }
    }
}
