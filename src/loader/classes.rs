//! Setters for the class list.

use std::path::Path;

use super::Loader;
use super::class_list::ClassList;
#[cfg(doc)]
use crate::source::Classes;

/// Setters for the class list.
impl Loader {
    /// Sets the list of class names. The label of a class is the index of its name in the list. By
    /// default, each dataset numbers its own classes.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let classes = ["cat", "dog", "fox"];
    /// let train = Loader::new("train").classes(classes);
    /// let val = Loader::new("val").classes(classes); // No cats here, but a dog is still 1.
    /// ```
    ///
    /// The list applies to the labels and to the classes of boxes, for datasets of every format.
    /// [`balanced`](Loader::balanced) and [`split_stratified`](Loader::split_stratified) use the
    /// new labels. All datasets of a [mixture](Loader::mixture) share the list. In a dataset
    /// without class names, labels are indices into the list.
    ///
    /// Opening fails if the list is empty or contains duplicates, or if the dataset has a class
    /// that is not in the list. With [`OnError::Skip`](crate::OnError::Skip), samples of unlisted
    /// classes are skipped instead.
    pub fn classes(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.classes = ClassList::Names(names.into_iter().map(Into::into).collect());
        self
    }

    /// Reads the list of [`classes`](Loader::classes) from a text file with one name per line, or
    /// from a `.json` file with an array of names. The file is read when the loader is opened; see
    /// [`Classes::read`].
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let train = Loader::new("train").classes_file("classes.txt");
    /// ```
    pub fn classes_file(mut self, path: impl AsRef<Path>) -> Self {
        self.classes = ClassList::File(path.as_ref().to_owned());
        self
    }
}
