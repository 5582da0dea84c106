//! Setter for the error policy.

use super::Loader;
use crate::engine::OnError;

/// Setter for the error policy.
impl Loader {
    /// Sets the policy for samples that cannot be read, decoded or transformed; [`OnError::Stop`]
    /// by default.
    ///
    /// ```
    /// # use warpfeed::{Loader, OnError};
    /// let loader = Loader::new("train").on_error(OnError::Skip { max_skipped: 100 });
    /// ```
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }
}
