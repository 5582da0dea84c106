/// How to decode. Only the functions below create a `Backend`, after they have checked the CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backend(Kind);

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Bmi,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Backend {
    pub(crate) fn scalar() -> Backend {
        Backend(Kind::Scalar)
    }

    /// Decodes in plain registers, on a CPU with BMI1, BMI2, LZCNT and MOVBE.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn bmi() -> Option<Backend> {
        let is_supported = is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("movbe");
        is_supported.then_some(Backend(Kind::Bmi))
    }

    /// Decodes in vectors while many lanes are busy, on a CPU with AVX-512 F, BW, DQ and VL and the
    /// instructions of [`bmi`](Self::bmi).
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn avx512() -> Option<Backend> {
        let is_supported = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        Self::bmi().filter(|_| is_supported).map(|_| Backend(Kind::Avx512))
    }

    pub(super) fn kind(self) -> Kind {
        self.0
    }
}
