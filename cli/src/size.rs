use bytesize::ByteSize;

/// Formats a number of bytes in decimal units, as is usual for disks.
pub(crate) fn format_bytes(n: u64) -> String {
    ByteSize(n).display().si().to_string()
}

pub(crate) fn format_count(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Parses a positive number of bytes, such as `1GB`, `300 MB`, `1.5GiB` or `4096`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    match text.parse()? {
        // The parser returns the maximum for larger numbers.
        ByteSize(0 | u64::MAX) => Err("expected a number of bytes above 0, such as 1GB or 512MiB".to_owned()),
        ByteSize(bytes) => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_both_kinds_of_units() {
        for (text, bytes) in
            [("1GB", 1_000_000_000), ("1.5 GiB", 3 << 29), ("300mb", 300_000_000), ("4096", 4096), ("7 B", 7)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "GB", "0", "-1GB", "1XB", "1..5GB", "99999999TB", "nan"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        assert_eq!([999, 1_000, 1_549_999, 2_000_000_000].map(format_bytes), ["999 B", "1.0 kB", "1.5 MB", "2.0 GB"]);
    }
}
