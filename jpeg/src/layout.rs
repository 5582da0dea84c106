//! [`Layout`] describes the components of an image on the grid of MCUs. [`Window`] describes the
//! blocks that a region needs.

use std::ops::Range;

use super::header::Header;
use crate::pixels::{Rect, Size};

pub(super) const MAX_COMPONENTS: usize = 4;

/// How a component is upsampled to one sample per pixel. The choice follows libjpeg-turbo
/// (`jinit_upsampler`, with fancy upsampling).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upsampling {
    None,
    H2V1,
    H1V2,
    H2V2,
    Replicate(u32, u32),
}

impl Upsampling {
    pub(super) fn needs_vertical_neighbors(self) -> bool {
        matches!(self, Upsampling::H1V2 | Upsampling::H2V2)
    }

    pub(super) fn needs_horizontal_neighbors(self) -> bool {
        matches!(self, Upsampling::H2V1 | Upsampling::H2V2)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Color {
    Gray,
    YCbCr,
    Rgb,
    /// Cyan, magenta, yellow and black, inverted as Adobe writes them.
    Cmyk,
    /// CMYK with the first three components encoded as YCbCr.
    Ycck,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Component {
    pub(super) h: u32,
    pub(super) v: u32,
    /// Index of the component's first block in an MCU.
    pub(super) first_block: u32,
    /// Number of pixels per sample horizontally.
    pub(super) h_expand: u32,
    /// Number of pixels per sample vertically.
    pub(super) v_expand: u32,
    /// Size in samples, without padding.
    pub(crate) size: Size,
    pub(super) upsampling: Upsampling,
}

#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// Size of the stored image.
    pub(crate) size: Size,
    pub(super) color: Color,
    components: [Component; MAX_COMPONENTS],
    component_count: usize,
    pub(super) mcus_per_row: u32,
    pub(super) mcu_rows: u32,
    /// Size of an MCU in pixels.
    pub(super) mcu_size: (u32, u32),
    pub(super) blocks_per_mcu: u32,
}

impl Layout {
    /// Computes the layout of an image. The color space is determined as in libjpeg
    /// (`default_decompress_parms`).
    pub(super) fn new(header: &Header) -> Result<Layout, String> {
        let frame = &header.frame;
        if let Some(kind) = frame.unsupported_kind() {
            return Err(kind);
        }
        let components = frame.components();
        let ids = [0, 1, 2].map(|i| components.get(i).map_or(0, |c| c.id));
        let color = match (components.len(), header.is_jfif, header.adobe_transform) {
            (1, ..) => Color::Gray,
            (3, true, _) => Color::YCbCr,
            (3, false, Some(0)) => Color::Rgb,
            (3, false, None) if ids == *b"RGB" => Color::Rgb,
            (3, ..) => Color::YCbCr,
            (4, _, None | Some(0)) => Color::Cmyk,
            (4, ..) => Color::Ycck,
            (n, ..) => return Err(format!("a JPEG with {n} components")),
        };
        let is_gray = components.len() == 1;
        let (h_max, v_max) = if is_gray { (1, 1) } else { frame.max_sampling() };
        let mut blocks_per_mcu = 0;
        let empty = Component {
            h: 1,
            v: 1,
            first_block: 0,
            h_expand: 1,
            v_expand: 1,
            size: frame.size,
            upsampling: Upsampling::None,
        };
        let mut layout_components = [empty; MAX_COMPONENTS];
        for (component, c) in layout_components.iter_mut().zip(components) {
            let (h, v) = if is_gray { (1, 1) } else { (u32::from(c.h), u32::from(c.v)) };
            if h_max % h != 0 || v_max % v != 0 {
                return Err(format!("a JPEG with sampling factors {h}x{v} that do not divide {h_max}x{v_max}"));
            }
            let (h_expand, v_expand) = (h_max / h, v_max / v);
            let size = Size::new(frame.size.width.div_ceil(h_expand), frame.size.height.div_ceil(v_expand));
            let upsampling = match (h_expand, v_expand) {
                (1, 1) => Upsampling::None,
                (2, 1) if size.width > 2 => Upsampling::H2V1,
                (1, 2) => Upsampling::H1V2,
                (2, 2) if size.width > 2 => Upsampling::H2V2,
                _ => Upsampling::Replicate(h_expand, v_expand),
            };
            *component = Component { h, v, first_block: blocks_per_mcu, h_expand, v_expand, size, upsampling };
            blocks_per_mcu += h * v;
        }
        let mcu_size = (8 * h_max, 8 * v_max);
        Ok(Layout {
            size: frame.size,
            color,
            components: layout_components,
            component_count: components.len(),
            mcus_per_row: frame.size.width.div_ceil(mcu_size.0),
            mcu_rows: frame.size.height.div_ceil(mcu_size.1),
            mcu_size,
            blocks_per_mcu,
        })
    }

    pub(super) fn components(&self) -> &[Component] {
        &self.components[..self.component_count]
    }
}

/// The blocks of one component that a region needs.
#[derive(Debug, Clone, Default)]
pub(super) struct Span {
    pub(super) columns: Range<u32>,
    pub(crate) rows: Range<u32>,
}

#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// The region in pixels of the stored image.
    pub(super) region: Rect,
    /// The needed columns and rows of MCUs, including the margin for upsampling.
    pub(super) columns: Range<u32>,
    pub(crate) rows: Range<u32>,
    spans: [Span; MAX_COMPONENTS],
}

impl Window {
    /// Finds the MCUs and blocks that `region` needs. The region must be inside the image.
    pub(crate) fn new(layout: &Layout, region: Rect) -> Window {
        let mut spans: [Span; MAX_COMPONENTS] = Default::default();
        let (mut columns, mut rows) = (layout.mcus_per_row..0, layout.mcu_rows..0);
        for (component, span) in layout.components().iter().zip(&mut spans) {
            let margin = |has_neighbors: bool| u32::from(has_neighbors);
            let block_range = |start: u32, count: u32, step: u32, margin: u32, end: u32| {
                let (first, last) = (start / step, (start + count - 1) / step);
                first.saturating_sub(margin) / 8..((last + margin).min(end - 1)) / 8 + 1
            };
            let horizontal_margin = margin(component.upsampling.needs_horizontal_neighbors());
            let vertical_margin = margin(component.upsampling.needs_vertical_neighbors());
            span.columns =
                block_range(region.x, region.width, component.h_expand, horizontal_margin, component.size.width);
            span.rows =
                block_range(region.y, region.height, component.v_expand, vertical_margin, component.size.height);
            columns.start = columns.start.min(span.columns.start / component.h);
            columns.end = columns.end.max((span.columns.end - 1) / component.h + 1);
            rows.start = rows.start.min(span.rows.start / component.v);
            rows.end = rows.end.max((span.rows.end - 1) / component.v + 1);
        }
        Window { region, columns, rows, spans }
    }

    pub(super) fn span(&self, index: usize) -> &Span {
        &self.spans[index]
    }
}
