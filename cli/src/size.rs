//! Numbers of bytes, for people to read and write.

/// `n` bytes in the units of 1000 that disks are sold in.
pub(crate) fn bytes(n: u64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "KB")];
    match units.iter().find(|(unit, _)| n as f64 >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", n as f64 / unit),
        None => format!("{n} B"),
    }
}

/// The number of bytes in `1GB`, `300 MB`, `1.5GiB` or `4096`; not 0.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1u64 << 40,
        _ => return Err(format!("no unit {unit:?}; KB, MB, GB, TB, KiB, MiB, GiB and TiB are known")),
    };
    let bytes = number.parse::<f64>().ok().map(|n| n * factor as f64);
    match bytes {
        Some(bytes) if (1.0..9e18).contains(&bytes) => Ok(bytes as u64),
        _ => Err("want a number of bytes above 0, such as 1GB or 512MiB".to_owned()),
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
        assert_eq!([999, 1_000, 1_549_999, 2_000_000_000].map(bytes), ["999 B", "1.0 KB", "1.5 MB", "2.0 GB"]);
    }
}
