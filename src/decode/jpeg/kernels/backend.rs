//! Choice of the instruction set.

use super::functions::Kernels;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::decode::jpeg::entropy;
use crate::decode::jpeg::segments::{self, Unstuff};

/// An instruction set to decode with. A value exists only for instruction sets that the CPU has,
/// because only their files create it, after checking the CPU.
#[derive(Clone, Copy)]
pub(in crate::decode) struct Backend {
    name: &'static str,
    kernels: Kernels,
    entropy: entropy::Backend,
    unstuff: Unstuff,
}

impl Backend {
    /// Plain Rust, for any CPU.
    pub(in crate::decode::jpeg) fn scalar() -> Backend {
        Backend {
            name: "scalar",
            kernels: scalar::KERNELS,
            entropy: entropy::Backend::scalar(),
            unstuff: segments::unstuff("scalar"),
        }
    }

    /// The best one that this CPU has, or the one named by the environment variable
    /// `WARPFEED_JPEG`, if the CPU has it.
    pub(in crate::decode) fn choose() -> Backend {
        let named = std::env::var("WARPFEED_JPEG").unwrap_or_default();
        let available = Self::available();
        *available.iter().find(|b| b.name == named).unwrap_or(&available[available.len() - 1])
    }

    /// All that this CPU has, the best one last.
    pub(in crate::decode) fn available() -> Vec<Backend> {
        #[cfg(target_arch = "x86_64")]
        let vectors = [
            ("avx2", avx2::kernels().zip(entropy::Backend::bmi())),
            ("avx512", avx512::kernels().zip(entropy::Backend::avx512())),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let vectors = [("", None); 0];
        let able = |(name, parts): (_, Option<_>)| {
            parts.map(|(kernels, entropy)| Backend { name, kernels, entropy, unstuff: segments::unstuff(name) })
        };
        std::iter::once(Self::scalar()).chain(vectors.into_iter().filter_map(able)).collect()
    }

    pub(in crate::decode) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Copies a segment without its stuffed zeros.
    pub(in crate::decode::jpeg) fn unstuff(&self) -> Unstuff {
        self.unstuff
    }

    #[cfg(test)]
    pub(in crate::decode::jpeg) fn name(&self) -> &'static str {
        self.name
    }

    pub(in crate::decode) fn entropy(&self) -> entropy::Backend {
        self.entropy
    }
}
