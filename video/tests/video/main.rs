//! Tests of the public interface, with the videos that `fixtures/make.sh` has made.

#[cfg(feature = "av1")]
mod av1;
mod mp4;
mod record;
mod rgb;
mod support;
