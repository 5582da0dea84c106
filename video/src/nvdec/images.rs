//! [`Images`] records which surface contains which image, and which images are damaged.
//!
//! Once an image is decoded, the engine reports whether it is damaged. A frame counts as faulty if
//! its own image or an earlier one in decoding order is damaged. Whether a frame fails therefore
//! depends only on the packets since the key frame, not on which other frames are read.
//!
//! Leading images, which precede the key frame in presentation order, may refer to images before
//! the key frame. Their damage makes only later leading images faulty, because images that follow
//! the key frame in presentation order do not refer to leading images.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Image {
    /// Index in decoding order, counted from the key frame.
    pub(super) index: usize,
    pub(super) packet: usize,
    /// True if the image precedes the key frame in presentation order.
    pub(super) is_leading: bool,
    pub(super) is_field: bool,
    pub(super) is_damaged: Option<bool>,
}

#[derive(Debug, Default)]
pub(super) struct Images {
    surfaces: Vec<Option<Image>>,
    /// Number of images since the key frame.
    count: usize,
    /// The index and the packet of the first damaged image that is not a leading image.
    first_damaged: Option<(usize, usize)>,
    /// The index and the packet of the first damaged leading image.
    first_damaged_leading: Option<(usize, usize)>,
}

impl Images {
    pub(super) fn clear(&mut self) {
        *self = Images::default();
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn add(&mut self, surface: usize, packet: usize, is_leading: bool, is_field: bool) {
        if self.surfaces.len() <= surface {
            self.surfaces.resize(surface + 1, None);
        }
        self.surfaces[surface] = Some(Image { index: self.count, packet, is_leading, is_field, is_damaged: None });
        self.count += 1;
    }

    pub(super) fn get_mut(&mut self, surface: usize) -> Option<&mut Image> {
        self.surfaces.get_mut(surface).and_then(Option::as_mut)
    }

    pub(super) fn find(&self, index: usize) -> Option<(usize, Image)> {
        let mut images =
            self.surfaces.iter().enumerate().filter_map(|(index, image)| image.map(|image| (index, image)));
        images.find(|(_, image)| image.index == index)
    }

    /// Returns the surfaces of the images up to `index` that are not known to be damaged or intact.
    pub(super) fn unchecked_surfaces(&self, index: usize) -> impl Iterator<Item = usize> {
        let is_unknown = move |image: &Image| image.index <= index && image.is_damaged.is_none();
        let images = self.surfaces.iter().enumerate();
        images.filter(move |(_, image)| image.as_ref().is_some_and(is_unknown)).map(|(index, _)| index)
    }

    pub(super) fn set_damaged(&mut self, surface: usize, is_damaged: bool) {
        let Some(image) = self.get_mut(surface) else { return };
        image.is_damaged = Some(is_damaged);
        if is_damaged {
            let (position, is_leading) = ((image.index, image.packet), image.is_leading);
            let first = if is_leading { &mut self.first_damaged_leading } else { &mut self.first_damaged };
            *first = Some(first.map_or(position, |first| first.min(position)));
        }
    }

    /// Returns the packet that makes an image faulty, if any. The damage of all images up to this
    /// image must be known, and this image must still be in its surface.
    pub(super) fn damaged_packet(&self, index: usize) -> Option<usize> {
        let is_leading = self.find(index).is_some_and(|(_, image)| image.is_leading);
        let first_leading = self.first_damaged_leading.filter(|_| is_leading);
        let first = self.first_damaged.into_iter().chain(first_leading).min();
        first.filter(|&(first, _)| first <= index).map(|(_, packet)| packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_of_leading_images_spreads_to_later_leading_images_only() {
        let expected = [(false, [None, Some(1), Some(1), Some(1)]), (true, [None, Some(1), Some(1), None])];
        for (is_leading, expected) in expected {
            let mut images = Images::default();
            for index in 0..4 {
                images.add(index, index, is_leading && matches!(index, 1 | 2), false);
            }
            for index in 0..4 {
                images.set_damaged(index, index == 1);
            }
            assert_eq!([0, 1, 2, 3].map(|index| images.damaged_packet(index)), expected);
        }
    }

    #[test]
    fn the_states_of_images_up_to_a_frame_are_requested_once() {
        let mut images = Images::default();
        for index in 0..4 {
            images.add(index, index, false, false);
        }
        assert_eq!(images.unchecked_surfaces(2).collect::<Vec<_>>(), [0, 1, 2]);
        for index in 0..3 {
            images.set_damaged(index, false);
        }
        assert_eq!(images.unchecked_surfaces(3).collect::<Vec<_>>(), [3]);
        // Use the surface again.
        images.add(0, 4, false, false);
        assert_eq!(images.unchecked_surfaces(4).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(images.find(0), None, "the image was replaced");
        assert_eq!(images.find(4).map(|(surface, image)| (surface, image.packet)), Some((0, 4)));
    }
}
