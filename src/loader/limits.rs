use super::Loader;
use crate::engine::OnError;

/// Errors.
impl Loader {
    /// Sets what happens if a sample cannot be read, decoded or transformed; [`OnError::CancelToken`] by
    /// default.
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
