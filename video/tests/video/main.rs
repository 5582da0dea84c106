//! Tests of the public interface, with the videos that `fixtures/make.sh` has made.

mod mp4;
mod support;
