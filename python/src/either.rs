//! What the package has for batches in host memory, and the same for batches on a device.

/// Declares an enum of the two: `$of` of host batches, and `$of` of batches on a device.
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

/// Evaluates `$result` with what is in an `$either`.
macro_rules! of {
    ($either:ident, $value:expr, $it:ident => $result:expr) => {
        match $value {
            $either::Host($it) => $result,
            #[cfg(feature = "cuda")]
            $either::Cuda($it) => $result,
        }
    };
}

/// Makes a `$to` with `$result`, of what is in a `$from`.
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
