//! Tests of all effects together.

pub(super) mod naive;
mod parity;
mod rows;

pub(crate) use rows::row_descriptions;
