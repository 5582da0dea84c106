//! Remembers which surface contains which image, and which images are damaged.
//!
//! An engine reports damage of an image when its decoding has ended. A frame is faulty if its image
//! is damaged, or an image before it in decoding order that others may refer to. So whether a frame
//! is faulty depends on the packets from the key frame to the frame, and not on which frames are
//! read.
//!
//! Images that precede the key frame in presentation order do not count, because they may refer to
//! images before the key frame, and later images do not refer to them.

/// An image in a surface of the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Image {
    /// Its index in decoding order.
    pub(super) index: usize,
    pub(super) packet: usize,
    pub(super) is_reference: bool,
    /// Whether it precedes the key frame in presentation order.
    pub(super) is_leading: bool,
    /// Whether it consists of a single field so far.
    pub(super) is_field: bool,
    pub(super) is_damaged: Option<bool>,
}

/// The images since a key frame.
#[derive(Debug, Default)]
pub(super) struct Images {
    /// By surface.
    surfaces: Vec<Option<Image>>,
    count: usize,
    /// Index and packet of the first damaged image that others may refer to.
    damaged: Option<(usize, usize)>,
}

impl Images {
    /// Forgets all images.
    pub(super) fn clear(&mut self) {
        self.surfaces.clear();
        self.count = 0;
        self.damaged = None;
    }

    /// Returns the number of images so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds an image that the engine will write into `surface`.
    pub(super) fn add(&mut self, surface: usize, packet: usize, is_reference: bool, is_leading: bool, is_field: bool) {
        if self.surfaces.len() <= surface {
            self.surfaces.resize(surface + 1, None);
        }
        let index = self.count;
        self.count += 1;
        self.surfaces[surface] = Some(Image { index, packet, is_reference, is_leading, is_field, is_damaged: None });
    }

    /// Adds the second field of the image in `surface`.
    pub(super) fn complete(&mut self, surface: usize) {
        if let Some(image) = self.surfaces.get_mut(surface).and_then(Option::as_mut) {
            image.is_field = false;
        }
    }

    /// Returns the surface that contains an image, unless a later image has replaced it.
    pub(super) fn surface(&self, index: usize) -> Option<(usize, Image)> {
        let mut images = self.surfaces.iter().enumerate().filter_map(|(at, image)| image.map(|image| (at, image)));
        images.find(|(_, image)| image.index == index)
    }

    /// Returns the surfaces of the images up to `index` with a state that is not known yet.
    pub(super) fn unknown(&self, index: usize) -> impl Iterator<Item = usize> {
        let is_unknown = move |image: &Image| image.index <= index && image.is_damaged.is_none();
        let images = self.surfaces.iter().enumerate();
        images.filter(move |(_, image)| image.as_ref().is_some_and(is_unknown)).map(|(at, _)| at)
    }

    /// Returns whether `surface` contains an image with a state that is not known yet.
    pub(super) fn is_unknown(&self, surface: usize) -> bool {
        self.surfaces.get(surface).copied().flatten().is_some_and(|image| image.is_damaged.is_none())
    }

    /// Sets the state of the image in `surface`.
    pub(super) fn set(&mut self, surface: usize, is_damaged: bool) {
        let Some(image) = self.surfaces.get_mut(surface).and_then(Option::as_mut) else { return };
        image.is_damaged = Some(is_damaged);
        if is_damaged && image.is_reference && !image.is_leading {
            let found = (image.index, image.packet);
            self.damaged = Some(self.damaged.map_or(found, |first| first.min(found)));
        }
    }

    /// Returns the packet that makes an image faulty, if any. The states of all images up to this
    /// one must be known.
    pub(super) fn fault(&self, image: Image) -> Option<usize> {
        match self.damaged {
            Some((index, packet)) if index <= image.index => Some(packet),
            _ => {
                let now = self.surface(image.index).map(|(_, image)| image)?;
                (now.is_damaged == Some(true)).then_some(now.packet)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds images in surfaces 0, 1, 2 and so on, then sets all states.
    fn run(images: &[(bool, bool, bool)]) -> Vec<Option<usize>> {
        let mut all = Images::default();
        for (at, &(is_reference, is_leading, _)) in images.iter().enumerate() {
            all.add(at, at, is_reference, is_leading, false);
        }
        for (at, &(.., is_damaged)) in images.iter().enumerate() {
            all.set(at, is_damaged);
        }
        (0..images.len()).map(|at| all.fault(all.surface(at).unwrap().1)).collect()
    }

    #[test]
    fn damage_spreads_from_references_to_all_later_images() {
        let fine = (true, false, false);
        assert_eq!(run(&[fine, fine, fine]), [None; 3]);
        assert_eq!(run(&[fine, (true, false, true), fine, fine]), [None, Some(1), Some(1), Some(1)]);
        assert_eq!(run(&[fine, (false, false, true), fine]), [None, Some(1), None], "nothing refers to it");
    }

    #[test]
    fn damage_before_the_key_frame_in_presentation_order_does_not_spread() {
        assert_eq!(run(&[(true, false, false), (true, true, true), (true, false, false)]), [None, Some(1), None]);
    }

    #[test]
    fn the_states_of_images_up_to_a_frame_are_requested_once() {
        let mut images = Images::default();
        for at in 0..4 {
            images.add(at, at, true, false, false);
        }
        assert_eq!(images.unknown(2).collect::<Vec<_>>(), [0, 1, 2]);
        for at in 0..3 {
            images.set(at, false);
        }
        assert_eq!(images.unknown(3).collect::<Vec<_>>(), [3]);
        // The surface is used again.
        images.add(0, 4, true, false, false);
        assert_eq!(images.unknown(4).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(images.surface(0), None, "the image was replaced");
        assert_eq!(images.surface(4).map(|(surface, image)| (surface, image.packet)), Some((0, 4)));
    }
}
