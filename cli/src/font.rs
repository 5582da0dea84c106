//! A font of 5 by 7 dots: enough for class names.

/// Dots across a letter; one more is left between letters.
pub(crate) const WIDTH: u32 = 5;
/// Dots down.
pub(crate) const HEIGHT: u32 = 7;

/// Letters, and below each how it is drawn.
const SHEET: [(&str, [&str; HEIGHT as usize]); 4] = [
    (
        "ABCDEFGHIJKLM",
        [
            ".###. ####. .#### ####. ##### ##### .#### #...# .###. ..### #...# #.... #...#",
            "#...# #...# #.... #...# #.... #.... #.... #...# ..#.. ...#. #..#. #.... ##.##",
            "#...# #...# #.... #...# #.... #.... #.... #...# ..#.. ...#. #.#.. #.... #.#.#",
            "##### ####. #.... #...# ####. ####. #..## ##### ..#.. ...#. ##... #.... #.#.#",
            "#...# #...# #.... #...# #.... #.... #...# #...# ..#.. ...#. #.#.. #.... #...#",
            "#...# #...# #.... #...# #.... #.... #...# #...# ..#.. #..#. #..#. #.... #...#",
            "#...# ####. .#### ####. ##### #.... .#### #...# .###. .##.. #...# ##### #...#",
        ],
    ),
    (
        "NOPQRSTUVWXYZ",
        [
            "#...# .###. ####. .###. ####. .#### ##### #...# #...# #...# #...# #...# #####",
            "##..# #...# #...# #...# #...# #.... ..#.. #...# #...# #...# #...# #...# ....#",
            "##..# #...# #...# #...# #...# #.... ..#.. #...# #...# #...# .#.#. .#.#. ...#.",
            "#.#.# #...# ####. #...# ####. .###. ..#.. #...# #...# #.#.# ..#.. ..#.. ..#..",
            "#..## #...# #.... #.#.# #.#.. ....# ..#.. #...# .#.#. #.#.# .#.#. ..#.. .#...",
            "#..## #...# #.... #..#. #..#. ....# ..#.. #...# .#.#. ##.## #...# ..#.. #....",
            "#...# .###. #.... .##.# #...# ####. ..#.. .###. ..#.. #...# #...# ..#.. #####",
        ],
    ),
    (
        "0123456789-_.",
        [
            ".###. ..#.. .###. ####. ...#. ##### .###. ##### .###. .###. ..... ..... .....",
            "#...# .##.. #...# ....# ..##. #.... #.... ....# #...# #...# ..... ..... .....",
            "#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...# ..... ..... .....",
            "#.#.# ..#.. ...#. .###. #..#. ....# ####. ..#.. .###. .#### .###. ..... .....",
            "##..# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....# ..... ..... .....",
            "#...# ..#.. .#... ....# ...#. #...# #...# .#... #...# ....# ..... ..... .##..",
            ".###. .###. ##### ####. ...#. .###. .###. .#... .###. .###. ..... ##### .##..",
        ],
    ),
    (
        ",/:+()'#?",
        [
            "..... ....# ..... ..... ...#. .#... ..#.. .#.#. .###.",
            "..... ....# ..#.. ..#.. ..#.. ..#.. ..#.. .#.#. #...#",
            "..... ...#. ..#.. ..#.. .#... ...#. ..... ##### ....#",
            "..... ..#.. ..... ##### .#... ...#. ..... .#.#. ...#.",
            "..#.. .#... ..#.. ..#.. .#... ...#. ..... ##### ..#..",
            "..#.. #.... ..#.. ..#.. ..#.. ..#.. ..... .#.#. .....",
            ".#... #.... ..... ..... ...#. .#... ..... .#.#. ..#..",
        ],
    ),
];

/// Columns and rows of the dots of `letter`. Lower case is drawn as upper case, a space is empty,
/// anything unknown is a question mark.
pub(crate) fn dots(letter: char) -> impl Iterator<Item = (u32, u32)> {
    let letter = letter.to_ascii_uppercase();
    let find = |letter| SHEET.iter().find_map(|(letters, rows)| Some((letters.find(letter)?, rows)));
    let found = if letter == ' ' { None } else { find(letter).or_else(|| find('?')) };
    let (at, rows) = found.map_or((0, &[""; HEIGHT as usize]), |(n, rows)| (n * (WIDTH as usize + 1), rows));
    rows.iter().zip(0..).flat_map(move |(row, v)| {
        let own = row.bytes().skip(at).take(WIDTH as usize).zip(0..);
        own.filter_map(move |(dot, u)| (dot == b'#').then_some((u, v)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_has_its_own_drawing() {
        let mut seen = std::collections::BTreeMap::new();
        for (letters, rows) in SHEET {
            assert!(rows.iter().all(|row| row.len() == letters.len() * 6 - 1), "{letters}");
            for letter in letters.chars() {
                let drawn: Vec<_> = dots(letter).collect();
                assert!(!drawn.is_empty());
                assert_eq!(seen.insert(drawn, letter), None, "{letter}");
            }
        }
        assert_eq!(dots(' ').count(), 0);
        assert!(dots('é').eq(dots('?')) && dots('g').eq(dots('G')));
    }
}
