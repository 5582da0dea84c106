use crate::decode::Size;

/// Size of a picture after its EXIF orientation (1 to 8) is applied.
pub(crate) fn upright_size(stored: Size, orientation: u8) -> Size {
    if orientation >= 5 { Size::new(stored.height, stored.width) } else { stored }
}

/// Copies `from`, RGB pixels of size `stored`, to `to`, turned and mirrored as the EXIF orientation says.
///
/// Orientation 1 is upright, 2 mirrored, 3 turned by 180 degrees, 4 mirrored top to bottom, 5 transposed, 6 to be turned by 90 degrees clockwise, 7 transposed
/// along the other diagonal, 8 to be turned by 270 degrees clockwise (EXIF 2.32, tag 274).
///
/// # Panics
/// If a buffer is not of the size that `stored` says.
pub(crate) fn copy_upright(from: &[u8], stored: Size, orientation: u8, to: &mut [u8]) {
    let (w, h) = (stored.width as usize, stored.height as usize);
    assert!(from.len() == w * h * 3 && to.len() == from.len());
    if w == 0 || h == 0 {
        return;
    }
    let from = from.as_chunks::<3>().0;
    // Source of output pixel (x, y): start + x * right + y * down, in pixels.
    let (start, right, down) = match orientation {
        2 => (w - 1, -1, w as isize),
        3 => (w * h - 1, -1, -(w as isize)),
        4 => ((h - 1) * w, 1, -(w as isize)),
        5 => (0, w as isize, 1),
        6 => ((h - 1) * w, -(w as isize), 1),
        7 => (w * h - 1, -(w as isize), -1),
        8 => (w - 1, w as isize, -1),
        _ => (0, 1, w as isize),
    };
    let out = upright_size(stored, orientation);
    for (y, row) in to.as_chunks_mut::<3>().0.chunks_exact_mut(out.width as usize).enumerate() {
        let first = start as isize + y as isize * down;
        for (x, pixel) in row.iter_mut().enumerate() {
            *pixel = from[(first + x as isize * right) as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_orientation_is_undone() {
        // The picture "F" of TIFF's and EXIF's own illustration: rows "abc", "def" upright.
        let stored = |text: &str| text.bytes().flat_map(|b| [b, b, b]).collect::<Vec<_>>();
        let cases = [
            (1, (3, 2), "abcdef"),
            (2, (3, 2), "cbafed"),
            (3, (3, 2), "fedcba"),
            (4, (3, 2), "defabc"),
            (5, (2, 3), "adbecf"),
            (6, (2, 3), "cfbead"),
            (7, (2, 3), "fcebda"),
            (8, (2, 3), "daebfc"),
        ];
        for (orientation, (w, h), text) in cases {
            let size = Size::new(w, h);
            let mut out = vec![0; 18];
            copy_upright(&stored(text), size, orientation, &mut out);
            assert_eq!(upright_size(size, orientation), Size::new(3, 2));
            assert_eq!(out, stored("abcdef"), "orientation {orientation}");
        }
    }
}
