//! Writes TIFF files with any number of channels.

use warpfeed::decode::Size;

/// Encodes a little-endian TIFF file with `rows` rows per strip. Channels are interleaved if
/// `planes` is 1, and planar otherwise. Every channel has the same `bits` and sample `format`.
pub(crate) fn tiff(
    (size, rows): (Size, u32),
    data: &[u8],
    channels: u16,
    (bits, format): (u16, u16),
    planes: u16,
    orientation: u16,
) -> Vec<u8> {
    let photometric = if matches!(channels, 3 | 4) { 2 } else { 1 };
    let extra_channels = channels.saturating_sub(if photometric == 2 { 3 } else { 1 });
    assert_eq!(size.height % rows, 0, "all strips must have the same height");
    let strip_count = size.height / rows * u32::from(planes);
    let strip_bytes = data.len() as u32 / strip_count;
    // An entry is the tag, the type (3: 16 bits, 4: 32 bits) and the values.
    let repeat = |value: u16, count: u16| vec![u32::from(value); usize::from(count)];
    let entries = [
        (256, 4, vec![size.width]),
        (257, 4, vec![size.height]),
        (258, 3, repeat(bits, channels)),
        (259, 3, vec![1]),
        (262, 3, vec![photometric]),
        (273, 4, (0..strip_count).map(|number| 8 + number * strip_bytes).collect()),
        (274, 3, vec![u32::from(orientation)]),
        (277, 3, vec![u32::from(channels)]),
        (278, 4, vec![rows]),
        (279, 4, vec![strip_bytes; strip_count as usize]),
        (284, 3, vec![if planes > 1 { 2 } else { 1 }]),
        (338, 3, repeat(0, extra_channels)),
        (339, 3, repeat(format, channels)),
    ];
    let entries: Vec<(u16, u16, Vec<u32>)> = entries.into_iter().filter(|(.., values)| !values.is_empty()).collect();
    let directory = 8 + data.len().next_multiple_of(2) as u32;
    let mut values_offset = directory + 2 + entries.len() as u32 * 12 + 4;
    let mut bytes = [&b"II*\0"[..], &directory.to_le_bytes(), data].concat();
    bytes.resize(directory as usize, 0);
    bytes.extend((entries.len() as u16).to_le_bytes());
    let mut outside_values = Vec::new();
    for (tag, kind, values) in entries {
        let value_bytes: Vec<u8> =
            values.iter().flat_map(|value| value.to_le_bytes()[..if kind == 3 { 2 } else { 4 }].to_vec()).collect();
        bytes.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
        bytes.extend((values.len() as u32).to_le_bytes());
        if value_bytes.len() <= 4 {
            bytes.extend(value_bytes.iter().chain(&[0; 4]).take(4));
        } else {
            bytes.extend(values_offset.to_le_bytes());
            values_offset += value_bytes.len() as u32;
            outside_values.extend(value_bytes);
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(outside_values);
    bytes
}
