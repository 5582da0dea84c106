//! Types that have one variant for batches in host memory and one for batches on a device.

/// Declares an enum with the two variants `$of<HostBatch>` and `$of<DeviceBatch>`.
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

/// Evaluates `$result` with `$it` bound to the content of an `$either`.
macro_rules! of {
    ($either:ident, $value:expr, $it:ident => $result:expr) => {
        match $value {
            $either::Host($it) => $result,
            #[cfg(feature = "cuda")]
            $either::Cuda($it) => $result,
        }
    };
}

/// Converts a `$from` to a `$to` with the same variant and the content `$result`.
macro_rules! made {
    ($from:ident, $value:expr, $it:ident => $to:ident, $result:expr) => {
        match $value {
            $from::Host($it) => $to::Host($result),
            #[cfg(feature = "cuda")]
            $from::Cuda($it) => $to::Cuda($result),
        }
    };
}

pub(crate) use {either, made, of};
