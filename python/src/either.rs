//! Macros for enums with a variant for host batches and a variant for device batches, which
//! requires the `cuda` feature.

/// Declares the enum `$name` with the variants `Host($of<HostBatch>)` and `Cuda($of<DeviceBatch>)`.
macro_rules! either {
    ($(#[$about:meta])* $name:ident of $of:ident) => {
        $(#[$about])*
        pub(crate) enum $name {
            Host($of<warpfeed::HostBatch>),
            #[cfg(feature = "cuda")]
            Cuda($of<crate::gpu::DeviceBatch>),
        }
    };
}

/// Evaluates `$result` with `$it` bound to the content of `$value`, an enum `$either`.
macro_rules! match_either {
    ($either:ident, $value:expr, $it:ident => $result:expr) => {
        match $value {
            $either::Host($it) => $result,
            #[cfg(feature = "cuda")]
            $either::Cuda($it) => $result,
        }
    };
}

/// Converts `$value`, an enum `$from`, to the same variant of `$to`, whose content is `$result`.
/// `$it` is bound to the content of `$value`.
macro_rules! map_either {
    ($from:ident, $value:expr, $it:ident => $to:ident, $result:expr) => {
        match $value {
            $from::Host($it) => $to::Host($result),
            #[cfg(feature = "cuda")]
            $from::Cuda($it) => $to::Cuda($result),
        }
    };
}

pub(crate) use {either, map_either, match_either};
