//! Macros for enums with a `Host` variant and, with the `cuda` feature, a `Cuda` variant.

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

/// Matches `$value`, of type `$either`, and evaluates `$result` with `$it` bound to the payload.
macro_rules! match_either {
    ($either:ident, $value:expr, $it:ident => $result:expr) => {
        match $value {
            $either::Host($it) => $result,
            #[cfg(feature = "cuda")]
            $either::Cuda($it) => $result,
        }
    };
}

/// Matches `$value`, of type `$from`, and wraps `$result` in the same variant of `$to`. `$it` is
/// bound to the payload.
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
