//! The text of the project: its layering, its promises and its licences.

mod layering;
mod licences;
mod promises;
