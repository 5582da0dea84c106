//! Formats a loader as text.

use std::fmt::{self, Debug, Display, Write as _};

use super::Loader;
use super::batch_size::{BatchSize, RankOrigin};
use super::class_list::ClassList;
use super::images::ImageOptions;
use super::input::Input;
use super::sampling::Buckets;
use crate::engine::OnError;
use crate::field::AnyFieldType;

#[derive(Default)]
pub(super) struct Calls(String);

impl Calls {
    pub(super) fn add<T: Debug>(&mut self, name: &str, value: &T, default: &T) {
        self.add_text(name, &format!("{value:?}"), &format!("{default:?}"));
    }

    fn add_text(&mut self, name: &str, value: &str, default: &str) {
        if value != default {
            let inner = value.strip_prefix("Some(").and_then(|inner| inner.strip_suffix(')'));
            self.push(name, inner.unwrap_or(value));
        }
    }

    fn push(&mut self, name: &str, value: impl Display) {
        write!(self.0, ".{name}({value})").expect("writing to a string cannot fail");
    }

    /// Shows the number of values instead of the values.
    fn write_option<T>(&mut self, name: &str, values: Option<&[T]>) {
        if let Some(values) = values {
            self.push(name, format_args!("{} values", values.len()));
        }
    }
}

impl Display for ImageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut calls = Calls::default();
        calls.push("augment", &self.augment);
        (0..self.transforms.len()).for_each(|_| calls.push("transform", ".."));
        for ((name, value), (_, default)) in self.rows().iter().zip(Self::default().rows()) {
            calls.add_text(name, value, &default);
        }
        self.trace.iter().for_each(|(path, _)| calls.push("trace", path.display()));
        f.write_str(&calls.0)
    }
}

impl Debug for ImageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// Prints the dataset, the batch size, the augmentation, and the setter calls that change a
/// default. Stores, codecs, columns of a table and a checkpoint are omitted.
impl Display for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loader { sampling, fields, views, images, own_augments, .. } = self;
        match &self.input {
            Input::Path(path) => write!(f, "Loader::new({path:?})"),
            Input::Source(source) => write!(f, "Loader::source({})", source.kind()),
            Input::Mixture(parts) => write!(f, "Loader::mixture({} datasets)", parts.len()),
        }?;
        let mut calls = Calls::default();
        match self.effective_batch_size() {
            BatchSize::PerRank(samples) => calls.push("batch_size", samples),
            BatchSize::Global(samples) => calls.push("global_batch_size", samples),
        }
        match self.rank_origin {
            RankOrigin::Explicit { rank, world_size } => {
                calls.add("rank", &format_args!("{rank}, {world_size}"), &format_args!("0, 1"))
            }
            RankOrigin::Environment => calls.push("distributed", ""),
        }
        calls.add("shuffle", &sampling.is_shuffled.then_some(images.seed), &None);
        calls.add("shuffle_window", &sampling.shuffle_window, &None);
        calls.add("repeat", &sampling.repeat, &None);
        calls.add("mixture_options", &sampling.mixture, &None);
        calls.write_option("subset", sampling.subset.as_deref());
        calls.write_option("weights", sampling.weights.as_deref());
        match &sampling.buckets {
            Some(Buckets::Lengths { lengths, .. }) => calls.write_option("buckets", Some(&lengths[..])),
            Some(Buckets::Sizes { images, .. }) => calls.write_option("size_buckets", Some(&images[..])),
            None => {}
        }
        calls.add("budget", &sampling.budget, &None);
        let Loader { classes, dropped_fields, soft_labels, caches_listing, masks, on_error, .. } = self;
        let flags = [
            ("balanced", sampling.is_balanced),
            ("match_labels_by_name", sampling.match_labels_by_name),
            ("keep_labels", sampling.keep_labels),
        ];
        flags.into_iter().filter(|(_, is_set)| *is_set).for_each(|(name, _)| calls.push(name, ""));
        sampling.sampler.iter().for_each(|_| calls.push("sampler", ".."));
        match classes {
            ClassList::Unset => {}
            ClassList::Names(names) => calls.write_option("classes", Some(names)),
            ClassList::File(path) => calls.push("classes_file", path.display()),
        }
        calls.add("cache_listing", caches_listing, &false);
        calls.add("masks", masks, &None);
        calls.add("views", views, &Vec::new());
        fields.iter().for_each(|(name, AnyFieldType(kind))| calls.push("field", format_args!("{name:?}, {kind:?}")));
        dropped_fields.iter().for_each(|name| calls.push("drop_field", format_args!("{name:?}")));
        calls.add("soft_labels", soft_labels, &None);
        calls.add("on_error", on_error, &OnError::default());
        for (dataset, augment) in own_augments {
            calls.push("augment_for", format_args!("{dataset}, {augment}"));
        }
        write!(f, "{}{images}", calls.0)
    }
}

impl Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Augment, Layout, field};

    #[test]
    fn a_loader_prints_augmentation_and_changed_options() {
        let plain = Loader::new("train");
        assert_eq!(
            plain.to_string(),
            r#"Loader::new("train").batch_size(32).augment(Augment.eval(shorter=256, side=224))"#
        );
        let loader = plain.batch_size(4).shuffle(7).augment(Augment::train(64).flip(0.0)).workers(0).prefetch(3);
        let loader = loader.layout(Layout::Nchw).memory_limit(5).field("text", field::Text::new()).balanced();
        let loader = loader.drop_field("label");
        assert_eq!(
            loader.subset([1, 2]).to_string(),
            "Loader::new(\"train\").batch_size(4).shuffle(7).subset(2 values).balanced()\
             .field(\"text\", Text { source_field: None }).drop_field(\"label\").augment(Augment.train(side=64).flip(probability=0.0))\
             .seed(7).layout(Nchw).prefetch(3).memory_limit(5)"
        );
    }

    #[test]
    fn setting_a_default_prints_no_call() {
        let set = Loader::new("a").seed(0).workers(0).mmap(true).strict(false).retries(3).channels(3).decode_share(1.0);
        assert_eq!(set.to_string(), Loader::new("a").to_string());
    }
}
