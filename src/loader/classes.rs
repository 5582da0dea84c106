use std::path::Path;

use super::Loader;
use super::class_list::Listed;
#[cfg(doc)]
use crate::source::Classes;

/// Class numbering.
impl Loader {
    /// Numbers the classes by this list: a class's label is the index of its name. By default each
    /// dataset numbers its own classes.
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let classes = ["cat", "dog", "fox"];
    /// let train = Loader::new("train").classes(classes);
    /// let val = Loader::new("val").classes(classes); // No cats here, but a dog is still 1.
    /// ```
    ///
    /// The list applies to labels and to the classes of boxes, in every dataset.
    /// [`balanced`](Loader::balanced) and [`split_by_class`](Loader::split_by_class) see the new
    /// labels. The datasets of a [mixture](Loader::mixture) share the list. If a dataset has no
    /// class names, its labels are indices into the list.
    ///
    /// Opening fails if a class is not in the list, if the list is empty, or if a name occurs
    /// twice. With [`OnError::Skip`](crate::OnError::Skip), samples of a class that is not in the
    /// list are skipped instead.
    pub fn classes(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.classes = Listed::Names(names.into_iter().map(Into::into).collect());
        self
    }

    /// Numbers the classes as [`classes`](Loader::classes) does, by a text file with one name per
    /// line or a `.json` file with an array of names. Opening reads the file; see
    /// [`Classes::read`].
    ///
    /// ```
    /// # use warpfeed::Loader;
    /// let train = Loader::new("train").classes_file("classes.txt");
    /// ```
    pub fn classes_file(mut self, path: impl AsRef<Path>) -> Self {
        self.classes = Listed::File(path.as_ref().to_owned());
        self
    }
}
