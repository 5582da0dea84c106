//! Parses CSV and TSV.

use std::ops::Range;

use csv_core::{ReadRecordResult, ReaderBuilder};

use super::cells::{CellKind, Cells};
use super::text::line_of;

/// A parser for values that are separated by a delimiter ([RFC
/// 4180](https://www.rfc-editor.org/rfc/rfc4180)). A cell that starts with a quote may contain
/// delimiters, line ends and doubled quotes. In other cells, quotes are ordinary characters. Empty
/// lines are ignored.
#[derive(Debug)]
pub(super) struct Csv {
    delimiter: u8,
}

/// Why parsing a row ended.
pub(super) enum RowEnd {
    /// The row is complete, and ends at this offset.
    Complete(usize),
    EndOfText,
    /// The text ends inside a quoted cell. [`Csv::check_quotes`] finds the start of the cell.
    OpenQuote,
}

impl Csv {
    pub(super) fn new(delimiter: u8) -> Self {
        Csv { delimiter }
    }

    /// Returns the delimiter of a table with this header: a comma if `header` contains one,
    /// otherwise a semicolon, otherwise a tab. Returns a comma if `header` contains none of them.
    pub(super) fn delimiter(header: &str) -> u8 {
        match header {
            header if header.contains(',') => b',',
            header if header.contains(';') => b';',
            header if header.contains('\t') => b'\t',
            _ => b',',
        }
    }

    /// Checks that each quoted cell in `row` is closed, and followed by a delimiter, a line end or
    /// the end of the text. The error is the offset of the first invalid cell, and the cause.
    ///
    /// The parser itself accepts any input, and appends text after a closing quote to the cell.
    /// Without this check, an unclosed quote would merge all rows up to the next quote into one
    /// cell.
    pub(super) fn check_quotes(&self, text: &[u8], row: Range<usize>) -> Result<(), (usize, String)> {
        let Some(first) = memchr::memchr(b'"', &text[row.clone()]) else { return Ok(()) };
        let (mut quote_start, mut is_quoted, mut has_text) = (row.start + first, false, false);
        // An unquoted cell may have begun before the first quote.
        let previous = text[row.start..quote_start].last();
        has_text |= previous.is_some_and(|&byte| byte != self.delimiter && !is_line_end(byte));
        let mut bytes = (quote_start..).zip(&text[quote_start..row.end]).peekable();
        while let Some((offset, &byte)) = bytes.next() {
            match byte {
                b'"' if is_quoted && bytes.next_if(|(_, next)| **next == b'"').is_some() => {}
                b'"' if is_quoted => {
                    is_quoted = false;
                    let after =
                        text[offset + 1..].iter().take_while(|byte| **byte != self.delimiter && !is_line_end(**byte));
                    let (count, line) = (after.count(), line_of(text, offset));
                    if count > 0 {
                        let after =
                            String::from_utf8_lossy(&text[offset + 1..][..count]).chars().take(20).collect::<String>();
                        return Err((
                            quote_start,
                            format!(
                                "a quoted cell starts here and ends on line {line}, but its closing quote is followed \
                                 by {after:?}: expected a delimiter or a line end; double the quotes inside a cell"
                            ),
                        ));
                    }
                }
                b'"' if !has_text => (quote_start, is_quoted, has_text) = (offset, true, true),
                _ if is_quoted => {}
                byte => has_text = byte != self.delimiter && !is_line_end(byte),
            }
        }
        if is_quoted {
            return Err((
                quote_start,
                "a quoted cell is never closed, so it would contain all following rows".to_owned(),
            ));
        }
        Ok(())
    }

    pub(super) fn parse_row(&self, text: &[u8], start: usize, cells: &mut Cells) -> RowEnd {
        let blank_len = text[start..].iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
        let start = start + blank_len;
        if start == text.len() {
            return RowEnd::EndOfText;
        }
        let Cells { text: out, ends: out_ends, cells, csv } = cells;
        // Reuse the reader, because building one takes longer than parsing most rows. Clones do not
        // work, because `csv_core` copies only part of the state machine.
        let reader = match csv {
            Some((delimiter, reader)) if *delimiter == self.delimiter => {
                reader.reset();
                reader
            }
            other => {
                let reader = ReaderBuilder::new().delimiter(self.delimiter).build();
                &mut other.insert((self.delimiter, Box::new(reader))).1
            }
        };
        let (mut input, mut written, mut ends) = (&text[start..], 0, 0);
        let mut has_added_line_end = false;
        loop {
            if out.len() < written + 256 {
                out.resize(2 * (written + 256), 0);
            }
            if out_ends.len() < ends + 16 {
                out_ends.resize(2 * (ends + 16), 0);
            }
            let (result, read, new_bytes, ended_cells) =
                reader.read_record(input, &mut out[written..], &mut out_ends[ends..]);
            (input, written, ends) = (&input[read..], written + new_bytes, ends + ended_cells);
            match result {
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {}
                // Add the missing line end. It completes the last row unless the text ends inside
                // quotes.
                ReadRecordResult::InputEmpty if !has_added_line_end => (input, has_added_line_end) = (b"\n", true),
                ReadRecordResult::InputEmpty => return RowEnd::OpenQuote,
                ReadRecordResult::End => return RowEnd::EndOfText,
                ReadRecordResult::Record => {
                    let mut start = 0;
                    cells.clear();
                    cells.extend(out_ends[..ends].iter().map(|&end| {
                        let span = start..end;
                        start = end;
                        (Some(CellKind::Text), span)
                    }));
                    return RowEnd::Complete(if has_added_line_end { text.len() } else { text.len() - input.len() });
                }
            }
        }
    }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}
