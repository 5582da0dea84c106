//! The crate's own JPEG decoder.
