//! [`Segments`] draws COCO's segmentations as masks that are bit-identical to `pycocotools`.
//!
//! A segmentation is a list of polygons `[[x, y, x, y, ...], ...]`, or a run-length code (RLE)
//! `{"size": [height, width], "counts": [...]}`. The counts may be packed into text. Runs go down
//! the columns, and the first run consists of zeros.
//!
//! **Polygon pixels.** COCO draws the outline of a polygon on a grid with five times the
//! resolution, and fills the pixels between the points where the outline crosses the center of a
//! column. Other libraries draw different edges. `tests/fixtures/segments` contains examples.
//!
//! **Limits.** The crossings are stored in one byte per pixel. The number of crossings is limited,
//! because the time to draw an edge grows with the number of columns that it crosses, and a polygon
//! may have any number of long edges.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::decode::Size;
use crate::error::{Error, Result, resize};
use crate::source::Value;

const STEPS_PER_PIXEL: f64 = 5.0;
/// Maximum absolute coordinate in pixels.
const MAX_COORDINATE: f64 = 1e6;
/// Maximum number of crossings per segmentation, in images of up to this many pixels. A
/// segmentation of a larger image may have as many crossings as the image has pixels.
const MAX_CROSSINGS: u64 = 1 << 22;

#[derive(Debug, Default)]
pub(crate) struct Segments {
    segments: Vec<Segment>,
    /// End of each polygon in `points`.
    polygon_ends: Vec<usize>,
    /// Alternating x and y coordinates of all polygons.
    points: Vec<f64>,
    runs: Vec<u64>,
    crossings: Crossings,
}

#[derive(Debug, Default)]
struct Crossings {
    /// For each pixel in column-major order, 1 if the number of crossings at the pixel is odd, and
    /// 0 otherwise. There is one more byte than the mask has pixels. All bytes are 0 when a polygon
    /// begins.
    odd: Vec<u8>,
    /// Index of the first byte that was changed. If no byte was changed, greater than `last`.
    first: usize,
    /// Index of the last byte that was changed.
    last: usize,
    /// Number of crossings that the segmentation may still add.
    remaining: u64,
}

impl Crossings {
    fn begin(&mut self, area: usize) {
        // A polygon that failed may not have cleared its crossings.
        if self.first <= self.last {
            self.odd.fill(0);
        }
        resize(&mut self.odd, area + 1, 0);
        (self.first, self.last, self.remaining) = (usize::MAX, 0, (area as u64).max(MAX_CROSSINGS));
    }

    fn add(&mut self, pixel: usize) {
        self.odd[pixel] ^= 1;
        (self.first, self.last) = (self.first.min(pixel), self.last.max(pixel));
    }

    /// Fills the polygon, and clears the crossings. A pixel is inside if the number of crossings up
    /// to and including this pixel, in column-major order, is odd.
    fn fill(&mut self, mask: &mut [u8]) {
        if self.first > self.last {
            return;
        }
        let (first_pixel, odd) = (self.first, &mut self.odd[self.first..=self.last]);
        let mut pixels = memchr::memchr_iter(1, odd).map(|pixel| first_pixel + pixel);
        while let Some(pixel) = pixels.next() {
            let end = pixels.next().unwrap_or(mask.len());
            mask[pixel..end].fill(1);
        }
        odd.fill(0);
        (self.first, self.last) = (usize::MAX, 0);
    }
}

#[derive(Debug, Clone, Copy)]
enum Segment {
    None,
    /// The index of the first polygon in `polygon_ends`, and the number of polygons.
    Polygons(usize, usize),
    /// The height and width of the image, and a range in `runs`.
    Runs([u64; 2], usize, usize),
}

impl Segments {
    /// Reads the segmentations of a sample, and returns their number. `value` is the content of
    /// `boxes.masks.json`, or lists of numbers with one polygon per segmentation.
    pub(crate) fn read(&mut self, value: Value<'_>) -> Result<usize> {
        let Value::Lists(outlines) = value else { return self.parse(value.as_bytes()) };
        self.clear();
        for outline in outlines.iter() {
            let polygon =
                if outline.len() == 0 { Segment::None } else { Segment::Polygons(self.polygon_ends.len(), 1) };
            self.segments.push(polygon);
            if outline.len() > 0 {
                self.points.extend(outline);
                self.polygon_ends.push(self.points.len());
            }
        }
        Ok(self.segments.len())
    }

    fn clear(&mut self) {
        self.segments.clear();
        self.polygon_ends.clear();
        self.points.clear();
        self.runs.clear();
    }

    fn parse(&mut self, json: &[u8]) -> Result<usize> {
        self.clear();
        let mut reader = serde_json::Deserializer::from_slice(json);
        let result = List(self).deserialize(&mut reader).and_then(|()| reader.end());
        result.map_err(|e| Error::in_source(format!("segmentations: {e}")))?;
        Ok(self.segments.len())
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        !matches!(self.segments.get(index), None | Some(Segment::None))
    }

    /// Draws segmentation `index` into `mask`, with one byte (0 or 1) per pixel, **column by
    /// column**: pixel (x, y) is at `x * height + y`. `size` is the size of the annotated image.
    /// The points (x, y) of polygons are multiplied by `scale`.
    ///
    /// # Errors
    /// Fails if the segmentation is missing, if the run lengths do not fit the image, if a polygon
    /// has fewer than three points, an odd number of coordinates or a coordinate beyond one million
    /// pixels, or if there are more than 2^22 crossings and more crossings than pixels.
    pub(crate) fn draw(&mut self, index: usize, size: Size, scale: (f64, f64), mask: &mut Vec<u8>) -> Result<()> {
        let (width, height) = (size.width as usize, size.height as usize);
        mask.clear();
        resize(mask, width * height, 0);
        match *self.segments.get(index).unwrap_or(&Segment::None) {
            Segment::None => Err(Error::in_source(format!("segmentation {index} is missing"))),
            Segment::Polygons(first, count) => {
                self.crossings.begin(mask.len());
                for polygon in first..first + count {
                    let start = if polygon == 0 { 0 } else { self.polygon_ends[polygon - 1] };
                    let points = &self.points[start..self.polygon_ends[polygon]];
                    add_polygon(points, (width, height), scale, &mut self.crossings).map_err(|e| {
                        Error::in_source(format!("segmentation {index}: polygon {}: {e}", polygon - first))
                    })?;
                    self.crossings.fill(mask);
                }
                Ok(())
            }
            Segment::Runs([coded_height, coded_width], first, end) => {
                if (coded_height, coded_width) != (height as u64, width as u64) {
                    return Err(Error::in_source(format!(
                        "segmentation {index}: the run lengths are for {coded_width}x{coded_height} pixels, but the image has \
                         {width}x{height}"
                    )));
                }
                let (mut position, mut is_ones) = (0u64, false);
                for &run in &self.runs[first..end] {
                    let run_end = position.saturating_add(run);
                    if is_ones && run_end <= mask.len() as u64 {
                        mask[position as usize..run_end as usize].fill(1);
                    }
                    (position, is_ones) = (run_end, !is_ones);
                }
                if position != mask.len() as u64 {
                    let pixels = mask.len();
                    return Err(Error::in_source(format!(
                        "segmentation {index}: the run lengths cover {position} pixels, but the image has {pixels}"
                    )));
                }
                Ok(())
            }
        }
    }
}

fn add_polygon(
    points: &[f64],
    (width, height): (usize, usize),
    scale: (f64, f64),
    crossings: &mut Crossings,
) -> Result<(), String> {
    let vertices = points.as_chunks::<2>().0;
    if vertices.len() < 3 || !points.len().is_multiple_of(2) {
        return Err(format!("{} numbers: expected an even number of at least 6", points.len()));
    }
    let to_step = |number: f64, scale: f64| {
        let pixels = number * scale;
        if pixels.abs() > MAX_COORDINATE {
            return Err(format!("a point has the coordinate {pixels}, but the image has {width}x{height} pixels"));
        }
        Ok((STEPS_PER_PIXEL * pixels + 0.5) as i64)
    };
    let point = |[x, y]: [f64; 2]| Ok::<_, String>((to_step(x, scale.0)?, to_step(y, scale.1)?));
    let first_vertex = point(vertices[0])?;
    let mut previous = first_vertex;
    for corner in vertices[1..].iter().map(|&corner| point(corner)).chain([Ok(first_vertex)]) {
        let corner = corner?;
        add_edge(previous, corner, (width, height), crossings)?;
        previous = corner;
    }
    Ok(())
}

/// Adds the crossings of the edge between the points `from` and `to`. Their coordinates (x, y) are
/// in steps of the grid, five per pixel. An edge crosses the center of column x between the steps
/// 5x + 2 and 5x + 3.
fn add_edge(
    from: (i64, i64),
    to: (i64, i64),
    (width, height): (usize, usize),
    crossings: &mut Crossings,
) -> Result<(), String> {
    let (dx, dy) = ((from.0 - to.0).abs(), (from.1 - to.1).abs());
    let is_flat = dx >= dy;
    // Draw every edge in ascending order along its longer axis, so that polygons with a common edge
    // agree on its points.
    let (start, end) = if (is_flat && from.0 > to.0) || (!is_flat && from.1 > to.1) { (to, from) } else { (from, to) };
    let (left, right) = (start.0.min(end.0), start.0.max(end.0));
    let (first, last) = ((left - 2 + 4).div_euclid(5).max(0), (right - 3).div_euclid(5).min(width as i64 - 1));
    let columns = (last - first + 1).max(0) as u64;
    crossings.remaining = crossings.remaining.checked_sub(columns).ok_or_else(|| {
        let max_crossings = (width as u64 * height as u64).max(MAX_CROSSINGS);
        format!("up to this polygon, the outlines cross columns of the {width}x{height} image more than {max_crossings} times")
    })?;
    for column in first..=last {
        let middle = 5 * column + 2;
        let y = if is_flat {
            let slope = (end.1 - start.1) as f64 / dx as f64;
            let y = |x: i64| (start.1 as f64 + slope * (x - start.0) as f64 + 0.5) as i64;
            y(middle).min(y(middle + 1))
        } else {
            let slope = (end.0 - start.0) as f64 / dy as f64;
            let x = |step: i64| (start.0 as f64 + slope * step as f64 + 0.5) as i64;
            // x is monotonic, so bisection finds the last step before the crossing.
            let (mut low, mut high) = (0, dy);
            while high - low > 1 {
                let step = low.midpoint(high);
                if (x(step) > middle) == (x(0) > middle) {
                    low = step;
                } else {
                    high = step;
                }
            }
            start.1 + low
        };
        let row = ((y as f64 + 0.5) / STEPS_PER_PIXEL - 0.5).clamp(0.0, height as f64).ceil() as usize;
        crossings.add(column as usize * height + row);
    }
    Ok(())
}

macro_rules! seeds {
    ($($name:ident $method:ident)*) => {
        $(impl<'de> DeserializeSeed<'de> for $name<'_> {
            type Value = ();

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.$method(self)
            }
        })*
    };
}
seeds! { List deserialize_seq Segmentation deserialize_any Numbers deserialize_seq Counts deserialize_any }

struct List<'a>(&'a mut Segments);

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of segmentations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Segmentation(&mut *self.0))?.is_some() {}
        Ok(())
    }
}

struct Segmentation<'a>(&'a mut Segments);

impl<'de> Visitor<'de> for Segmentation<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of polygons, an object with size and counts, or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.0.segments.push(Segment::None);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut polygons: A) -> Result<(), A::Error> {
        let first = self.0.polygon_ends.len();
        while polygons.next_element_seed(Numbers(&mut self.0.points))?.is_some() {
            self.0.polygon_ends.push(self.0.points.len());
        }
        self.0.segments.push(Segment::Polygons(first, self.0.polygon_ends.len() - first));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (first, mut size, mut counts) = (self.0.runs.len(), None, false);
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::Size => size = Some(map.next_value::<[u64; 2]>()?),
                Key::Counts if counts => return Err(de::Error::custom("counts occurs twice")),
                Key::Counts => {
                    map.next_value_seed(Counts(&mut self.0.runs))?;
                    counts = true;
                }
                Key::Other => {
                    map.next_value::<de::IgnoredAny>()?;
                }
            }
        }
        let size = size.filter(|_| counts).ok_or_else(|| de::Error::custom("run lengths need size and counts"))?;
        self.0.segments.push(Segment::Runs(size, first, self.0.runs.len()));
        Ok(())
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Key {
    Size,
    Counts,
    #[serde(other)]
    Other,
}

struct Numbers<'a>(&'a mut Vec<f64>);

impl<'de> Visitor<'de> for Numbers<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a polygon: a list of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(number) = list.next_element()? {
            self.0.push(number);
        }
        Ok(())
    }
}

struct Counts<'a>(&'a mut Vec<u64>);

impl<'de> Visitor<'de> for Counts<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("run lengths: a list of numbers, or a string")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(number) = list.next_element()? {
            self.0.push(number);
        }
        Ok(())
    }

    /// Reads counts that COCO packed into text. A number consists of groups of five bits, lowest
    /// bits first. Each group is one character: the code of `0` plus the group, plus 32 if more
    /// groups follow. The highest bit of the last group is the sign. The first three numbers are
    /// runs, and each later number is the difference from the run two positions earlier.
    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        let first = self.0.len();
        let (mut number, mut bits) = (0i64, 0);
        for letter in text.bytes() {
            let code = match letter {
                48..=111 if bits < 60 => i64::from(letter - 48),
                48..=111 => return Err(E::custom("a number in run lengths has more than 12 characters")),
                _ => return Err(E::custom(format!("invalid character {:?} in run lengths", char::from(letter)))),
            };
            number |= (code & 31) << bits;
            bits += 5;
            if code & 32 != 0 {
                continue;
            }
            if code & 16 != 0 {
                number |= -1 << bits;
            }
            if self.0.len() - first > 2 {
                number = number.saturating_add_unsigned(self.0[self.0.len() - 2]);
            }
            let run = u64::try_from(number)
                .map_err(|_| E::custom(format!("a run has {number} pixels: expected at least 0")))?;
            self.0.push(run);
            (number, bits) = (0, 0);
        }
        if bits > 0 { Err(E::custom("the run lengths end in the middle of a number")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Case {
        segmentation: serde_json::Value,
        size: [u32; 2],
        runs: Vec<usize>,
    }

    fn mask(runs: &[usize]) -> Vec<u8> {
        runs.iter().zip([0, 1].into_iter().cycle()).flat_map(|(&run, value)| std::iter::repeat_n(value, run)).collect()
    }

    /// Compares masks with the masks of `pycocotools`. `WARPFEED_SEGMENTS` may contain the path of
    /// a different file of cases that `make.py` wrote.
    #[test]
    fn masks_equal_pycocotools() {
        let file = std::env::var("WARPFEED_SEGMENTS");
        let file =
            file.unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/segments/cases.json").into());
        let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let (mut segments, mut drawn) = (Segments::default(), Vec::new());
        assert!(cases.len() >= 96);
        for Case { segmentation, size: [height, width], runs } in cases {
            let json = serde_json::to_vec(&[&segmentation]).unwrap();
            assert_eq!(segments.parse(&json).unwrap(), 1);
            segments.draw(0, Size::new(width, height), (1.0, 1.0), &mut drawn).unwrap();
            assert!(drawn == mask(&runs), "{width}x{height}: {segmentation}");
        }
    }

    #[test]
    fn segmentations_are_drawn_separately_and_scaled() {
        let mut segments = Segments::default();
        let json = br#" [[[0,0,4,0,4,2,0,2]], {"counts":[2,2,4],"size":[2,4]}, [[0,0,1,0,1,1,0,1]], null, []] "#;
        assert_eq!(segments.parse(json).unwrap(), 5);
        let mut draw = |index, scale| {
            let mut mask = Vec::new();
            segments.draw(index, Size::new(4, 2), scale, &mut mask).map(|()| mask)
        };
        assert_eq!(draw(0, (1.0, 1.0)).unwrap(), [1; 8]);
        assert_eq!(draw(1, (1.0, 1.0)).unwrap(), [0, 0, 1, 1, 0, 0, 0, 0]);
        assert_eq!(draw(2, (4.0, 2.0)).unwrap(), [1; 8]);
        assert!(draw(3, (1.0, 1.0)).unwrap_err().cause().contains("segmentation 3 is missing"));
        assert_eq!(draw(4, (1.0, 1.0)).unwrap(), [0; 8]);
    }

    /// Without the limit, the 4,000 edges would take one step per column each: 65 million steps.
    #[test]
    fn polygons_with_too_many_crossings_are_rejected() {
        let zigzag = |edges: usize| {
            let points = (0..edges).map(|i| format!("{},{}", i % 2 * 16384, i % 64)).collect::<Vec<_>>();
            format!("[[[{}]]]", points.join(","))
        };
        let (mut segments, mut drawn) = (Segments::default(), Vec::new());
        let mut draw = |json: &str| {
            segments.parse(json.as_bytes()).unwrap();
            segments.draw(0, Size::new(16384, 64), (1.0, 1.0), &mut drawn).map(|()| drawn.clone())
        };
        let square = "[[[0,0,8,0,8,8,0,8]]]";
        let before = draw(square).unwrap();
        let e = draw(&zigzag(4000)).unwrap_err();
        assert_eq!(
            e.cause(),
            "segmentation 0: polygon 0: up to this polygon, the outlines cross columns of the 16384x64 image more than \
             4194304 times"
        );
        assert_eq!(draw(square).unwrap(), before, "the failed polygon leaves no pixels");
        assert!(draw(&zigzag(200)).unwrap().contains(&1), "a hand-drawn polygon is accepted");
    }

    #[test]
    fn errors_state_the_position_of_an_invalid_segmentation() {
        let cause = |json: &str| {
            let mut segments = Segments::default();
            let parsed = segments.parse(json.as_bytes());
            let drawn = parsed.and_then(|_| segments.draw(0, Size::new(4, 2), (1.0, 1.0), &mut Vec::new()));
            drawn.unwrap_err().cause().to_owned()
        };
        for (json, words) in [
            (r#"{"size":[2,4]}"#, "expected a list of segmentations at line 1 column"),
            (r#"[{"size":[2,4]}]"#, "run lengths need size and counts"),
            (r#"[{"size":[3,4],"counts":[12]}]"#, "the run lengths are for 4x3 pixels, but the image has 4x2"),
            (r#"[{"size":[2,4],"counts":[1,2]}]"#, "the run lengths cover 3 pixels, but the image has 8"),
            (
                r#"[{"size":[2,4],"counts":[18446744073709551615,9,9]}]"#,
                "the run lengths cover 18446744073709551615 pixels",
            ),
            (r#"[{"size":[2,4],"counts":[-1]}]"#, "at line 1 column"),
            (r#"[{"size":[2,4],"counts":"!"}]"#, "invalid character '!' in run lengths"),
            (r#"[{"size":[2,4],"counts":"oooooooooooooooo"}]"#, "a number in run lengths has more than 12 characters"),
            (r#"[{"size":[2,4],"counts":"o"}]"#, "end in the middle of a number"),
            (r#"[{"size":[2,4],"counts":"O"}]"#, "a run has -1 pixels"),
            (r#"[[[0,0,1,1]]]"#, "segmentation 0: polygon 0: 4 numbers: expected an even number of at least 6"),
            (r#"[[[0,0,1,1,2,2],[0,0,1,1,2,2,3]]]"#, "polygon 1: 7 numbers"),
            (r#"[[[0,0,1,1,1e9,2]]]"#, "a point has the coordinate 1000000000, but the image has 4x2 pixels"),
            (r#"[[0,0,1,1]]"#, "a polygon: a list of numbers at line 1 column"),
            (r#"["x"]"#, "at line 1 column"),
            ("[] []", "trailing characters"),
            ("[", "EOF"),
        ] {
            assert!(cause(json).contains(words), "{json}: {}", cause(json));
        }
    }
}
