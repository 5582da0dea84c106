//! Encodes `.npy` files, ZIP archives, Protobuf fields and Flatbuffers.

pub fn npy(descr: &str, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let sides = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let one = if shape.len() == 1 { "," } else { "" };
    let mut dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sides}{one}), }}");
    while !(10 + dict.len() + 1).is_multiple_of(64) {
        dict.push(' ');
    }
    dict.push('\n');
    [b"\x93NUMPY\x01\0", &(dict.len() as u16).to_le_bytes()[..], dict.as_bytes(), data].concat()
}

pub fn npy_i64(numbers: &[i64]) -> Vec<u8> {
    npy("<i8", &[numbers.len()], &little(numbers))
}

pub fn little(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

pub fn zip(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in files {
        let start = out.len() as u32;
        let mut head = Vec::new();
        head.extend([20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0]);
        head.extend(crc32fast::hash(data).to_le_bytes());
        head.extend((data.len() as u32).to_le_bytes());
        head.extend((data.len() as u32).to_le_bytes());
        head.extend((name.len() as u16).to_le_bytes());
        head.extend([0, 0]);
        out.extend(b"PK\x03\x04");
        out.extend(&head);
        out.extend(name.as_bytes());
        out.extend(data);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&head);
        directory.extend([0; 10]);
        directory.extend(start.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, count) = (out.len() as u32, (files.len() as u16).to_le_bytes());
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([count, count].concat());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0, 0]);
    out
}

pub fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

pub fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(bytes.len() as u64), bytes].concat()
}

pub enum Flat {
    Byte(u8),
    Short(i16),
    Int(i32),
    Long(i64),
    Text(&'static str),
    Table(Vec<(usize, Flat)>),
    Tables(Vec<Flat>),
    /// A vector of structs: the size of one struct in bytes, and the bytes of all of them.
    Structs(usize, Vec<u8>),
}

impl Flat {
    fn inline(&self) -> usize {
        match self {
            Flat::Byte(_) => 1,
            Flat::Short(_) => 2,
            Flat::Long(_) => 8,
            _ => 4,
        }
    }

    pub fn file(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        let root = self.write(&mut out);
        out[..4].copy_from_slice(&(root as u32).to_le_bytes());
        out.resize(out.len().next_multiple_of(8), 0);
        out
    }

    /// Appends a value that is stored by reference, and returns its offset.
    fn write(&self, out: &mut Vec<u8>) -> usize {
        let align = |out: &mut Vec<u8>, alignment: usize, off: usize| {
            while out.len() % alignment != off {
                out.push(0);
            }
        };
        match self {
            Flat::Text(text) => {
                align(out, 4, 0);
                let start = out.len();
                out.extend((text.len() as u32).to_le_bytes());
                out.extend(text.as_bytes());
                out.push(0);
                start
            }
            Flat::Structs(size, bytes) => {
                align(out, 8, 4);
                let start = out.len();
                out.extend(((bytes.len() / size) as u32).to_le_bytes());
                out.extend(bytes);
                start
            }
            Flat::Tables(tables) => {
                align(out, 4, 0);
                let start = out.len();
                out.extend((tables.len() as u32).to_le_bytes());
                let first = out.len();
                out.resize(first + 4 * tables.len(), 0);
                for (n, table) in tables.iter().enumerate() {
                    let (from, place) = (first + 4 * n, table.write(out));
                    out[from..from + 4].copy_from_slice(&((place - from) as u32).to_le_bytes());
                }
                start
            }
            Flat::Table(values) => {
                let slots = values.iter().map(|value| value.0 + 1).max().unwrap_or(0);
                let vtable_len = 4 + 2 * slots;
                // Pad so that the table, which follows its vtable, starts at a multiple of 8.
                while !(out.len() + vtable_len).is_multiple_of(8) {
                    out.push(0);
                }
                let vtable = out.len();
                let table = vtable + vtable_len;
                out.resize(table, 0);
                out.extend((vtable_len as i32).to_le_bytes());
                let mut places = Vec::new();
                for (slot, value) in values {
                    align(out, value.inline(), 0);
                    let place = out.len();
                    let entry = vtable + 4 + 2 * slot;
                    out[entry..entry + 2].copy_from_slice(&((place - table) as u16).to_le_bytes());
                    match value {
                        Flat::Byte(byte) => out.push(*byte),
                        Flat::Short(number) => out.extend(number.to_le_bytes()),
                        Flat::Int(number) => out.extend(number.to_le_bytes()),
                        Flat::Long(number) => out.extend(number.to_le_bytes()),
                        _ => {
                            out.extend([0; 4]);
                            places.push((place, value));
                        }
                    }
                }
                let end = out.len();
                out[vtable..vtable + 2].copy_from_slice(&(vtable_len as u16).to_le_bytes());
                out[vtable + 2..vtable + 4].copy_from_slice(&((end - table) as u16).to_le_bytes());
                for (from, value) in places {
                    let place = value.write(out);
                    out[from..from + 4].copy_from_slice(&((place - from) as u32).to_le_bytes());
                }
                table
            }
            _ => unreachable!("inline"),
        }
    }
}

pub fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ (0x82f6_3b78 & 0_u32.wrapping_sub(crc & 1)))
    };
    !bytes.iter().fold(!0, step)
}
