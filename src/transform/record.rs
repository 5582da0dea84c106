//! Records: structs that Rust code writes and CUDA code reads.
//!
//! A record is a sequence of 32-bit words. [`record!`](crate::transform::record) declares the
//! struct and its conversion to words. In tests, the macro also generates the C declaration, which
//! must equal the declaration in `device/nvidia/kernels/*.cuh`.

use crate::decode::Rect;

pub(crate) trait Record: Sized {
    const WORDS: usize;

    fn write_words(&self, out: &mut [u32]);

    fn read_words(from: &[u32]) -> Self;

    /// Returns the C type of a field, and the suffix after the field's name, such as `[3]`.
    #[cfg(test)]
    fn c_type() -> (String, String);

    /// Returns the C declaration, or an empty string if C already has the type.
    #[cfg(test)]
    fn declaration() -> String {
        String::new()
    }
}

impl Record for u32 {
    const WORDS: usize = 1;

    fn write_words(&self, out: &mut [u32]) {
        out[0] = *self;
    }

    fn read_words(from: &[u32]) -> Self {
        from[0]
    }

    #[cfg(test)]
    fn c_type() -> (String, String) {
        ("u32".into(), String::new())
    }
}

impl Record for f32 {
    const WORDS: usize = 1;

    fn write_words(&self, out: &mut [u32]) {
        out[0] = self.to_bits();
    }

    fn read_words(from: &[u32]) -> Self {
        f32::from_bits(from[0])
    }

    #[cfg(test)]
    fn c_type() -> (String, String) {
        ("float".into(), String::new())
    }
}

/// Stores the low word first. CUDA aligns a double to 8 bytes, so the field must start at an even
/// word.
impl Record for f64 {
    const WORDS: usize = 2;

    fn write_words(&self, out: &mut [u32]) {
        let bits = self.to_bits();
        (out[0], out[1]) = (bits as u32, (bits >> 32) as u32);
    }

    fn read_words(from: &[u32]) -> Self {
        f64::from_bits(u64::from(from[0]) | u64::from(from[1]) << 32)
    }

    #[cfg(test)]
    fn c_type() -> (String, String) {
        ("double".into(), String::new())
    }
}

impl<T: Record, const N: usize> Record for [T; N] {
    const WORDS: usize = N * T::WORDS;

    fn write_words(&self, out: &mut [u32]) {
        self.iter().zip(out.chunks_exact_mut(T::WORDS)).for_each(|(value, out)| value.write_words(out));
    }

    fn read_words(from: &[u32]) -> Self {
        std::array::from_fn(|i| T::read_words(&from[i * T::WORDS..]))
    }

    #[cfg(test)]
    fn c_type() -> (String, String) {
        let (name, after) = T::c_type();
        (name, format!("[{N}]{after}"))
    }
}

impl Record for Rect {
    const WORDS: usize = 4;

    fn write_words(&self, out: &mut [u32]) {
        [self.x, self.y, self.width, self.height].write_words(out);
    }

    fn read_words(from: &[u32]) -> Self {
        Rect::new(from[0], from[1], from[2], from[3])
    }

    #[cfg(test)]
    fn c_type() -> (String, String) {
        ("Rect".into(), String::new())
    }

    #[cfg(test)]
    fn declaration() -> String {
        "// A rectangle in pixels.\nstruct Rect { u32 x, y, width, height; };\n".into()
    }
}

/// Declares a struct with [`Record`] fields, and implements [`Record`] for it. `align 16` aligns
/// the struct in CUDA, so that kernels can load it in 16-byte vectors.
macro_rules! record {
    (
        $(#[doc = $doc:literal])*
        $vis:vis struct $name:ident $(align $align:literal)? {
            $($(#[doc = $field_doc:literal])* $field_vis:vis $field:ident: $type:ty),+ $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        $vis struct $name {
            $($(#[doc = $field_doc])* $field_vis $field: $type,)+
        }

        impl $crate::transform::Record for $name {
            const WORDS: usize = 0 $(+ <$type as $crate::transform::Record>::WORDS)+;

            fn write_words(&self, to: &mut [u32]) {
                $(
                    let (words, to) = to.split_at_mut(<$type as $crate::transform::Record>::WORDS);
                    $crate::transform::Record::write_words(&self.$field, words);
                )+
                let _ = to;
            }

            fn read_words(from: &[u32]) -> Self {
                $(
                    let ($field, from) = from.split_at(<$type as $crate::transform::Record>::WORDS);
                    let $field = <$type as $crate::transform::Record>::read_words($field);
                )+
                let _ = from;
                $name { $($field),+ }
            }

            #[cfg(test)]
            fn c_type() -> (String, String) {
                (stringify!($name).into(), String::new())
            }

            #[cfg(test)]
            fn declaration() -> String {
                let mut text = String::new();
                $(text += &format!("//{}\n", $doc);)*
                text += "struct ";
                $(text += &format!("__align__({}) ", $align);)?
                text += concat!(stringify!($name), " {\n");
                $(
                    $(text += &format!("    //{}\n", $field_doc);)*
                    let (before, after) = <$type as $crate::transform::Record>::c_type();
                    text += &format!("    {before} {}{after};\n", stringify!($field));
                )+
                let bytes = 4 * <$name as $crate::transform::Record>::WORDS;
                text + &format!("}};\nstatic_assert(sizeof({0}) == {bytes}, \"{0}\");\n", stringify!($name))
            }
        }
    };
}

pub(crate) use record;

#[cfg(test)]
mod tests {
    use super::*;

    record! {
        /// A record of each kind of field.
        struct Sample align 16 {
            /// One word.
            word: u32,
            floats: [f32; 3],
            wide: [f64; 2],
            rects: [Rect; 2],
        }
    }

    #[test]
    fn records_store_their_fields_in_order() {
        let rects = [Rect::new(1, 2, 3, 4), Rect::new(5, 6, 7, 8)];
        let sample = Sample { word: 9, floats: [0.5, -1.0, 3e9], wide: [1.5, -2e-9], rects };
        let mut words = [0; Sample::WORDS];
        sample.write_words(&mut words);
        let wide = [1.5f64, -2e-9].map(f64::to_bits).map(|bits| [bits as u32, (bits >> 32) as u32]).concat();
        let floats = [0.5f32, -1.0, 3e9].map(f32::to_bits);
        assert_eq!(words[..], [&[9], &floats[..], &wide, &[1, 2, 3, 4, 5, 6, 7, 8]].concat());
        assert_eq!(Sample::read_words(&words), sample);
    }

    #[test]
    fn c_declarations_have_the_same_fields() {
        let expected = "// A record of each kind of field.\nstruct __align__(16) Sample {\n    // One word.\n    u32 word;\n    \
                        float floats[3];\n    double wide[2];\n    Rect rects[2];\n};\n\
                        static_assert(sizeof(Sample) == 64, \"Sample\");\n";
        assert_eq!(Sample::declaration(), expected);
    }
}
