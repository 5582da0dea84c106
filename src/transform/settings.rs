use crate::decode::Size;
use crate::transform::crop::Crop;
use crate::transform::interpolation::Resampling;
use crate::transform::ops::Op;
use crate::transform::step::{Setting, Sides};
use crate::transform::zoom::Zoom;
use crate::transform::{Border, CopyPaste, Interpolation, Mix, Mosaic};

/// The combined effect of all steps of an augmentation except `Augment::from_epoch`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    pub(super) crop: Crop,
    pub(super) output: Size,
    pub(super) fill: [u8; 3],
    interpolation: Interpolation,
    antialias: bool,
    pub(super) flip: f64,
    pub(super) vertical_flip: f64,
    pub(super) ops: Vec<Op>,
    pub(super) mix: Option<Mix>,
    pub(super) mosaic: Option<Mosaic>,
    pub(super) copy_paste: Option<CopyPaste>,
    /// The last setter that the crop does not support, and a description of the crops that support
    /// it.
    pub(super) misuse: Option<(&'static str, &'static str)>,
    pub(super) unknown_preset: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            crop: Crop::PassThrough,
            output: Size::new(0, 0),
            fill: [0; 3],
            interpolation: Interpolation::Bilinear,
            antialias: true,
            flip: 0.0,
            vertical_flip: 0.0,
            ops: Vec::new(),
            mix: None,
            mosaic: None,
            copy_paste: None,
            misuse: None,
            unknown_preset: None,
        }
    }
}

impl Setting {
    /// Returns whether this is a constructor, which must be the first step of an augmentation.
    pub(super) fn is_constructor(&self) -> bool {
        self.initial_crop().is_some()
    }

    fn initial_crop(&self) -> Option<(Crop, Sides)> {
        let square = |side: u32| Sides { height: side, width: side };
        let random = || Crop::Random { scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0] };
        Some(match *self {
            Setting::Train { side } | Setting::Preset { side, .. } => (random(), square(side)),
            Setting::Eval { shorter, side } => (Crop::ShorterSide(shorter), square(side)),
            Setting::CenterCrop { side } => (Crop::Center, square(side)),
            Setting::RandomCrop { side } => {
                (Crop::Padded { padding: 0, border: Border::Constant, pads_if_needed: false }, square(side))
            }
            Setting::RandomResize { side, low, high } => (Crop::RandomResize([low, high]), square(side)),
            Setting::ShortestSize { ref sides, longest } => {
                (Crop::ShortestSize { sides: sides.clone(), longest }, square(longest))
            }
            Setting::Resize { size } => (Crop::Stretch, size),
            Setting::Cover { size } => (Crop::Cover, size),
            Setting::PassThrough { size } => (Crop::PassThrough, size),
            Setting::PadTo { size } => (Crop::PadTo { shrinks_larger: false }, size),
            Setting::Letterbox { size } => (Crop::Letterbox, size),
            Setting::ScaleJitter { side, low, high } => (Crop::ScaleJitter([low, high]), square(side)),
            Setting::IouCrop { size } => (Crop::Iou(None), size),
            _ => return None,
        })
    }

    /// Returns the name of this setter, and a description of the crops that support it. Only for
    /// setters that not every crop supports.
    fn supported_crops(&self) -> (&'static str, &'static str) {
        match self {
            Setting::ShrinkLarger {} => ("shrink_larger", "Augment::pad_to"),
            Setting::ZoomOut { .. } => ("zoom_out", "Augment::iou_crop"),
            Setting::Padding { .. } => ("padding", "Augment::random_crop"),
            Setting::PaddingMode { .. } => ("padding_mode", "Augment::random_crop"),
            Setting::PadIfNeeded {} => ("pad_if_needed", "Augment::random_crop"),
            Setting::Scale { .. } => ("scale", "the random crop of Augment::train"),
            Setting::Ratio { .. } => ("ratio", "the random crop of Augment::train"),
            _ => (
                "fill",
                "letterbox, scale_jitter, random_crop, random_resize, shortest_size, pad_to, zoom_out or mosaic",
            ),
        }
    }
}

impl Settings {
    pub(super) fn set(&mut self, setting: &Setting) {
        match (setting, &mut self.crop) {
            (Setting::ShrinkLarger {}, Crop::PadTo { shrinks_larger }) => *shrinks_larger = true,
            (&Setting::ZoomOut { probability, low, high }, Crop::Iou(zoom)) => {
                *zoom = Some(Zoom { probability, scale: [low, high] });
            }
            (&Setting::Padding { pixels }, Crop::Padded { padding, .. }) => *padding = pixels,
            (&Setting::PaddingMode { mode }, Crop::Padded { border, .. }) => *border = mode,
            (Setting::PadIfNeeded {}, Crop::Padded { pads_if_needed, .. }) => *pads_if_needed = true,
            (&Setting::Scale { low, high }, Crop::Random { scale, .. }) => *scale = [low, high],
            (&Setting::Ratio { low, high }, Crop::Random { ratio, .. }) => *ratio = [low, high],
            (&Setting::Fill { red, green, blue }, crop) if crop.may_leave_uncovered() || self.mosaic.is_some() => {
                self.fill = [red, green, blue];
            }
            (&Setting::Interpolation { filter }, _) => self.interpolation = filter,
            (&Setting::Antialias { on: is_on }, _) => self.antialias = is_on,
            (Setting::WithOutputSize { size }, _) => self.output = Size::new(size.width, size.height),
            (&Setting::Flip { probability }, _) => self.flip = probability,
            (&Setting::VerticalFlip { probability }, _) => self.vertical_flip = probability,
            (Setting::Mix(mix), _) => self.mix = Some(mix.clone()),
            (Setting::Mosaic(mosaic), _) => self.mosaic = Some(mosaic.clone()),
            (Setting::CopyPaste(copy_paste), _) => self.copy_paste = Some(copy_paste.clone()),
            (setting, _) => match setting.initial_crop() {
                Some((crop, Sides { height, width })) => self.set_crop(setting, crop, Size::new(width, height)),
                None => self.misuse = Some(setting.supported_crops()),
            },
        }
    }

    fn set_crop(&mut self, setting: &Setting, crop: Crop, output: Size) {
        (self.crop, self.output) = (crop, output);
        match setting {
            Setting::Train { .. } => self.flip = 0.5,
            // The preset is unknown, because `Augment::preset` expands known names to other steps.
            Setting::Preset { name, .. } => self.unknown_preset = Some(name.clone()),
            _ => {}
        }
    }

    /// Adds an operation. Random erasing is the only operation on values. A sample has at most one
    /// erased rectangle, so a second random erasing replaces the first.
    pub(super) fn add_op(&mut self, op: &Op) {
        let is_same = |other: &Op| std::mem::discriminant(other) == std::mem::discriminant(op);
        self.ops.retain(|other| !(op.changes_values() && is_same(other)));
        self.ops.push(op.clone());
    }

    pub(super) fn resampling(&self) -> Resampling {
        Resampling { filter: self.interpolation, antialias: self.antialias }
    }
}
