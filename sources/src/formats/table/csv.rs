use std::ops::Range;

use csv_core::{ReadRecordResult, ReaderBuilder};

use super::cells::{Cell, Cells};
use super::text::line_of;

/// Values separated by a delimiter ([RFC 4180](https://www.rfc-editor.org/rfc/rfc4180)): a cell
/// that begins with a quote may contain delimiters, line ends and doubled quotes. In any other cell
/// a quote is a character like others. Empty lines are ignored.
#[derive(Debug)]
pub(super) struct Csv {
    delimiter: u8,
}

/// Reason for which parsing ended.
pub(super) enum End {
    /// End of a row, with the start of the next one.
    Row(usize),
    /// End of the text, without a further row.
    Text,
    /// End of the text within quotes. [`Csv::check_quotes`] returns where they begin.
    Quoted,
}

impl Csv {
    pub(super) fn new(delimiter: u8) -> Self {
        Csv { delimiter }
    }

    /// The delimiter of a text with this header line: a comma, or a semicolon or tab if the header
    /// has no comma.
    pub(super) fn delimiter(header: &str) -> u8 {
        match header {
            header if header.contains(',') => b',',
            header if header.contains(';') => b';',
            header if header.contains('\t') => b'\t',
            _ => b',',
        }
    }

    /// Checks the quotes of the row at `row` of `text`: a quoted cell ends at a delimiter, a line
    /// end or the end of the text.
    ///
    /// The parser accepts anything. It adds text after the closing quote to the cell, so a quote
    /// that is never closed would take all rows up to the next quote into one cell.
    ///
    /// # Errors
    /// The position of the first quoted cell that ends elsewhere, and the cause.
    pub(super) fn check_quotes(&self, text: &[u8], row: Range<usize>) -> Result<(), (usize, String)> {
        let Some(first) = memchr::memchr(b'"', &text[row.clone()]) else { return Ok(()) };
        let (mut opened, mut quoted, mut begun) = (row.start + first, false, false);
        // Text before the first quote of a row has no quoted cells.
        let before = text[row.start..opened].last();
        begun |= before.is_some_and(|&byte| byte != self.delimiter && !is_line_end(byte));
        let mut bytes = (opened..).zip(&text[opened..row.end]).peekable();
        while let Some((at, &byte)) = bytes.next() {
            match byte {
                b'"' if quoted && bytes.next_if(|(_, next)| **next == b'"').is_some() => {}
                b'"' if quoted => {
                    quoted = false;
                    let after =
                        text[at + 1..].iter().take_while(|byte| **byte != self.delimiter && !is_line_end(**byte));
                    let (count, line) = (after.count(), line_of(text, at));
                    if count > 0 {
                        let after =
                            String::from_utf8_lossy(&text[at + 1..][..count]).chars().take(20).collect::<String>();
                        return Err((
                            opened,
                            format!(
                                "a quoted cell begins here and ends in line {line}, but {after:?} follows its closing quote \
                                 instead of a delimiter or a line end; is a quote missing, or not doubled within the cell?"
                            ),
                        ));
                    }
                }
                b'"' if !begun => (opened, quoted, begun) = (at, true, true),
                _ if quoted => {}
                byte => begun = byte != self.delimiter && !is_line_end(byte),
            }
        }
        if quoted {
            return Err((
                opened,
                "a quote is opened and never closed; it would swallow all rows from here on".to_owned(),
            ));
        }
        Ok(())
    }

    /// Parses the row at byte `start` of `text`.
    pub(super) fn row(&self, text: &[u8], start: usize, cells: &mut Cells) -> End {
        let blank = text[start..].iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
        let start = start + blank;
        if start == text.len() {
            return End::Text;
        }
        let Cells { text: out, ends: out_ends, spans, csv } = cells;
        // A cloned reader does not work, and building one takes longer than most rows.
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
        let mut ended = false;
        loop {
            if out.len() < written + 256 {
                out.resize(2 * (written + 256), 0);
            }
            if out_ends.len() < ends + 16 {
                out_ends.resize(2 * (ends + 16), 0);
            }
            let (result, read, wrote, ended_cells) =
                reader.read_record(input, &mut out[written..], &mut out_ends[ends..]);
            (input, written, ends) = (&input[read..], written + wrote, ends + ended_cells);
            match result {
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {}
                // Adds the final line end that the text lacks. It completes the last row, unless
                // quotes are open.
                ReadRecordResult::InputEmpty if !ended => (input, ended) = (b"\n", true),
                ReadRecordResult::InputEmpty => return End::Quoted,
                ReadRecordResult::End => return End::Text,
                ReadRecordResult::Record => {
                    let mut from = 0;
                    spans.clear();
                    spans.extend(out_ends[..ends].iter().map(|&end| {
                        let span = from..end;
                        from = end;
                        (Some(Cell::Text), span)
                    }));
                    return End::Row(if ended { text.len() } else { text.len() - input.len() });
                }
            }
        }
    }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}
