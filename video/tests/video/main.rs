//! Tests the public interface with the videos that `fixtures/make.sh` creates.

#[cfg(feature = "av1")]
mod av1;
mod mkv;
mod mp4;
#[cfg(feature = "nvdec")]
mod nvdec;
mod record;
#[cfg(feature = "nvdec")]
#[path = "../../../tests/support/require.rs"]
mod require;
mod rgb;
mod support;
