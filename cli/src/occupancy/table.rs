//! [`Table`], the occupancy of a kernel by block size, as text and as a plot.

use std::fmt::{self, Write as _};

use super::{Factor, Limits, Occupancy, Usage};

/// The occupancy of a kernel for each block size that is a multiple of the warp size.
///
/// `Display` formats the table as text, and [`svg`](Table::svg) draws it as a plot.
#[derive(Debug, Clone)]
pub struct Table {
    limits: Limits,
    usage: Usage,
    rows: Vec<Row>,
}

/// A row of the table, for one block size.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Occupancy at this block size.
    pub occupancy: Occupancy,
    /// Whether the kernel can be launched with this block size, and no other block size in the
    /// table allows more warps.
    pub best: bool,
}

impl Table {
    /// Computes the table for a kernel with `usage` on a multiprocessor with `limits`.
    pub fn new(limits: Limits, usage: Usage) -> Self {
        let sizes = (1..=limits.threads_per_block / limits.warp_size).map(|warps| warps * limits.warp_size);
        let occupancies = sizes.map(|block| limits.occupancy(usage, block)).collect::<Vec<_>>();
        let most_warps = occupancies.iter().map(|o| o.warps).max().unwrap_or(0);
        let rows = occupancies
            .into_iter()
            .map(|occupancy| Row { occupancy, best: most_warps > 0 && occupancy.warps == most_warps })
            .collect();
        Table { limits, usage, rows }
    }

    /// Returns the rows, smallest block size first.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the occupancy at the largest block size with the maximum number of warps, which is
    /// the size that the driver suggests. Returns `None` if the kernel cannot be launched with any
    /// block size.
    pub fn best(&self) -> Option<Occupancy> {
        self.rows.iter().rev().find(|row| row.best).map(|row| row.occupancy)
    }

    fn title(&self) -> String {
        let Limits { capability, name, .. } = self.limits;
        let Usage { registers, shared } = self.usage;
        format!(
            "compute capability {capability} ({name}), {registers} registers per thread, {shared} bytes of shared memory per block"
        )
    }

    /// Returns a bar chart as a self-contained SVG document, with one bar per block size. The
    /// height of a bar shows the occupancy, and its color shows the limiting resource.
    pub fn svg(&self) -> String {
        const WIDTH: f64 = 860.0;
        const HEIGHT: f64 = 360.0;
        const LEFT: f64 = 56.0;
        const TOP: f64 = 56.0;
        const PLOT_WIDTH: f64 = 784.0;
        const PLOT_HEIGHT: f64 = 236.0;
        let step = PLOT_WIDTH / self.rows.len() as f64;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"13\">Occupancy: {}</text>\n",
            self.title()
        );
        for percent in [0, 25, 50, 75, 100] {
            let y = TOP + PLOT_HEIGHT * (1.0 - f64::from(percent) / 100.0);
            let (x2, label) = (LEFT + PLOT_WIDTH, LEFT - 6.0);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{x2}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{label}\" y=\"{:.1}\" text-anchor=\"end\">{percent}%</text>",
                y + 4.0
            );
        }
        for (i, row) in self.rows.iter().enumerate() {
            let o = row.occupancy;
            let (x, height) = (LEFT + step * i as f64, PLOT_HEIGHT * o.fraction());
            let _ = writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{}\"><title>{} threads: {} blocks, {} of {} \
                 warps, limited by {}</title></rect>",
                x + step * 0.12,
                TOP + PLOT_HEIGHT - height,
                step * 0.76,
                color(o.limiting()),
                o.block,
                o.blocks,
                o.warps,
                o.max_warps,
                o.limiting().name()
            );
            if o.block.is_multiple_of(128) {
                let (x, y) = (x + step * 0.5, TOP + PLOT_HEIGHT + 16.0);
                let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", o.block);
            }
        }
        let y = TOP + PLOT_HEIGHT + 44.0;
        let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{y}\">threads per block; limited by</text>");
        for (i, factor) in
            [Factor::Warps, Factor::Registers, Factor::SharedMemory, Factor::Blocks].into_iter().enumerate()
        {
            let x = LEFT + 150.0 + 120.0 * i as f64;
            let (box_y, text_x) = (y - 10.0, x + 16.0);
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{box_y}\" width=\"11\" height=\"11\" fill=\"{}\"/><text x=\"{text_x}\" y=\"{y}\">{}</text>",
                color(factor),
                factor.name()
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

/// Colors of the Okabe-Ito palette, which color-blind readers can distinguish.
fn color(factor: Factor) -> &'static str {
    match factor {
        Factor::Warps => "#009e73",
        Factor::Registers => "#d55e00",
        Factor::SharedMemory => "#0072b2",
        Factor::Blocks => "#e69f00",
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.title())?;
        writeln!(f, "{:>7} {:>7} {:>7} {:>10}  limited by", "threads", "blocks", "warps", "occupancy")?;
        for row in &self.rows {
            let o = row.occupancy;
            let warps = format!("{}/{}", o.warps, o.max_warps);
            let (percent, mark) = (o.fraction() * 100.0, if row.best { "  *" } else { "" });
            writeln!(f, "{:>7} {:>7} {warps:>7} {percent:>8.1}%  {}{mark}", o.block, o.blocks, o.limiting().name())?;
        }
        match self.best() {
            Some(o) => write!(f, "\n* highest occupancy; the largest of these block sizes is {} threads", o.block),
            None => write!(f, "\nthe kernel cannot be launched with any block size"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(registers: u32, shared: usize) -> Table {
        Table::new(Limits::of("9.0".parse().unwrap()).unwrap(), Usage { registers, shared })
    }

    #[test]
    fn text_has_a_row_per_block_size_and_marks_the_best() {
        let text = table(32, 0).to_string();
        assert_eq!(text.lines().count(), 3 + 32 + 2, "{text}");
        assert!(text.contains("    256       8   64/64    100.0%  warps  *\n"), "{text}");
        assert!(text.contains("     32      32   32/64     50.0%  blocks\n"), "{text}");
        assert!(text.ends_with("the largest of these block sizes is 1024 threads"), "{text}");
        assert!(table(255, 0).best().is_some_and(|o| o.block == 256));
        assert!(table(32, 1 << 20).to_string().ends_with("the kernel cannot be launched with any block size"));
    }

    #[test]
    fn the_plot_is_complete_and_has_a_bar_per_block_size() {
        let svg = table(64, 20_000).svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<title>").count(), 32);
        assert_eq!(svg.matches('"').count() % 2, 0);
    }
}
