//! Positions of samples: the image's components on the grid of MCUs, and the part that a region
//! needs.

use std::ops::Range;

use super::header::Header;
use crate::pixels::{Rect, Size};

/// Maximum number of components.
pub(super) const MOST_COMPONENTS: usize = 4;

/// Conversion of a component's samples to one per pixel. The choice is that of libjpeg-turbo
/// (`jinit_upsampler`, with fancy upsampling).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upsampling {
    /// Already full size.
    None,
    /// Twice as many columns, with the triangle filter.
    H2V1,
    /// Twice as many rows.
    H1V2,
    /// Twice as many columns and rows.
    H2V2,
    /// Every sample repeated this many times across and down.
    Replicate(u32, u32),
}

impl Upsampling {
    /// Whether a row of pixels also needs the row of samples above or below its own.
    pub(super) fn looks_up_and_down(self) -> bool {
        matches!(self, Upsampling::H1V2 | Upsampling::H2V2)
    }

    /// Whether a pixel also needs the next sample to its left or right.
    pub(super) fn looks_sideways(self) -> bool {
        matches!(self, Upsampling::H2V1 | Upsampling::H2V2)
    }
}

/// Meaning of the components' samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Color {
    Gray,
    YCbCr,
    Rgb,
    /// Cyan, magenta, yellow and black, inverted as Adobe writes them.
    Cmyk,
    /// CMYK whose first three components are coded as YCbCr.
    Ycck,
}

/// One component on the grid of MCUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Component {
    /// Blocks of this component in an MCU, across and down.
    pub(super) h: u32,
    pub(super) v: u32,
    /// Position of its first block in an MCU.
    pub(super) first: u32,
    /// Pixels per sample, across and down.
    pub(super) across: u32,
    pub(super) down: u32,
    /// Number of samples that contain pixels of the image.
    pub(crate) size: Size,
    pub(super) upsampling: Upsampling,
}

/// The layout of an image with one, three or four components that this decoder supports.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// Size as stored.
    pub(crate) size: Size,
    pub(super) color: Color,
    parts: [Component; MOST_COMPONENTS],
    count: usize,
    /// Number of MCUs in a row, and of MCU rows.
    pub(super) mcus: (u32, u32),
    /// Size of an MCU in pixels, across and down.
    pub(super) mcu: (u32, u32),
    /// Number of blocks in an MCU.
    pub(super) blocks: u32,
}

impl Layout {
    /// Creates the layout of a file. The error is the name of the file's kind, if this decoder does
    /// not support it.
    ///
    /// The meaning of the components follows libjpeg (`default_decompress_parms`).
    pub(super) fn new(header: &Header) -> Result<Layout, String> {
        let frame = &header.frame;
        if let Some(kind) = frame.foreign_kind() {
            return Err(kind);
        }
        let components = frame.components();
        let ids = [0, 1, 2].map(|i| components.get(i).map_or(0, |c| c.id));
        let color = match (components.len(), header.jfif, header.adobe_transform) {
            (1, ..) => Color::Gray,
            (3, true, _) => Color::YCbCr,
            (3, false, Some(0)) => Color::Rgb,
            (3, false, None) if ids == *b"RGB" => Color::Rgb,
            (3, ..) => Color::YCbCr,
            (4, _, None | Some(0)) => Color::Cmyk,
            (4, ..) => Color::Ycck,
            (n, ..) => return Err(format!("a JPEG of {n} components")),
        };
        // A scan of one component has one block per MCU, whatever its sampling factors.
        let gray = components.len() == 1;
        let (h_max, v_max) = if gray { (1, 1) } else { frame.max_sampling() };
        let mut blocks = 0;
        let empty =
            Component { h: 1, v: 1, first: 0, across: 1, down: 1, size: frame.size, upsampling: Upsampling::None };
        let mut parts = [empty; MOST_COMPONENTS];
        for (part, c) in parts.iter_mut().zip(components) {
            let (h, v) = if gray { (1, 1) } else { (u32::from(c.h), u32::from(c.v)) };
            if h_max % h != 0 || v_max % v != 0 {
                return Err(format!("a JPEG with sampling factors {h}x{v} next to {h_max}x{v_max}"));
            }
            let (across, down) = (h_max / h, v_max / v);
            let size = Size::new(frame.size.width.div_ceil(across), frame.size.height.div_ceil(down));
            let upsampling = match (across, down) {
                (1, 1) => Upsampling::None,
                (2, 1) if size.width > 2 => Upsampling::H2V1,
                (1, 2) => Upsampling::H1V2,
                (2, 2) if size.width > 2 => Upsampling::H2V2,
                _ => Upsampling::Replicate(across, down),
            };
            *part = Component { h, v, first: blocks, across, down, size, upsampling };
            blocks += h * v;
        }
        let mcu = (8 * h_max, 8 * v_max);
        let mcus = (frame.size.width.div_ceil(mcu.0), frame.size.height.div_ceil(mcu.1));
        Ok(Layout { size: frame.size, color, parts, count: components.len(), mcus, mcu, blocks })
    }

    /// The one, three or four components.
    pub(super) fn parts(&self) -> &[Component] {
        &self.parts[..self.count]
    }
}

/// The part of one component that a region needs.
#[derive(Debug, Clone, Default)]
pub(super) struct Span {
    /// Columns and rows, in blocks.
    pub(super) columns: Range<u32>,
    pub(crate) rows: Range<u32>,
}

/// The part of an image that a region needs.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// The region in pixels of the stored image.
    pub(super) region: Rect,
    /// Columns and rows of MCUs, with the margin for upsampling.
    pub(super) columns: Range<u32>,
    pub(crate) rows: Range<u32>,
    spans: [Span; MOST_COMPONENTS],
}

impl Window {
    /// Creates the window of `region`, which must lie inside the image.
    pub(crate) fn new(layout: &Layout, region: Rect) -> Window {
        let mut spans: [Span; MOST_COMPONENTS] = Default::default();
        let (mut columns, mut rows) = (layout.mcus.0..0, layout.mcus.1..0);
        for (part, span) in layout.parts().iter().zip(&mut spans) {
            let margin = |looks: bool| u32::from(looks);
            let reach = |from: u32, count: u32, step: u32, margin: u32, end: u32| {
                let (first, last) = (from / step, (from + count - 1) / step);
                first.saturating_sub(margin) / 8..((last + margin).min(end - 1)) / 8 + 1
            };
            let sideways = margin(part.upsampling.looks_sideways());
            let upright = margin(part.upsampling.looks_up_and_down());
            span.columns = reach(region.x, region.width, part.across, sideways, part.size.width);
            span.rows = reach(region.y, region.height, part.down, upright, part.size.height);
            columns.start = columns.start.min(span.columns.start / part.h);
            columns.end = columns.end.max((span.columns.end - 1) / part.h + 1);
            rows.start = rows.start.min(span.rows.start / part.v);
            rows.end = rows.end.max((span.rows.end - 1) / part.v + 1);
        }
        Window { region, columns, rows, spans }
    }

    /// The blocks of component `index` that are needed.
    pub(super) fn span(&self, index: usize) -> &Span {
        &self.spans[index]
    }
}
