//! Tests that the Python methods, the table in the documentation and the test cases match the rows.
//! `WARPFEED_BLESS=1 cargo test --all-features --lib rows` regenerates them.

use std::path::Path;

use super::naive::{Pair, pair};
use crate::sampler::Rng;
use crate::transform::ops;
use crate::transform::ops::OnPixels;
use crate::transform::ops::effect::Naive;
use crate::transform::ops::row::{Row, Sheet};
use crate::written;

fn row<R: Row>(name: &str, rng: &mut Rng) -> (Sheet, Vec<Pair>)
where
    R::Effect: Naive + Copy + 'static,
    OnPixels: From<R::Effect>,
{
    assert_eq!(name, R::NAME, "the list names a row after its setter");
    (R::sheet(), R::tried().iter().map(|row| pair(row.effect(rng))).collect())
}

macro_rules! listed {
    (
        pixels { $($mod:ident::$effect:ident { $($name:literal $op:ident),* },)+ }
        values { $($values:tt)* }
        tests { $tmod:ident::$teffect:ident { $tname:literal $top:ident }, }
    ) => {
        /// Returns the rows, each with the effects for its test values. The last row exists only in
        /// tests.
        pub(super) fn rows(rng: &mut Rng) -> Vec<(Sheet, Vec<Pair>)> {
            vec![$($(row::<ops::$mod::$op>($name, rng),)*)+ row::<ops::$tmod::$top>($tname, rng)]
        }
    };
}
effects!(listed);

/// Returns the rows that users can call.
pub(crate) fn sheets() -> Vec<Sheet> {
    let mut rows = rows(&mut Rng::new(0, 0, 0));
    rows.pop();
    rows.into_iter().map(|(sheet, _)| sheet).collect()
}

impl Sheet {
    /// Returns a call with option values for which the effect is visible.
    pub(crate) fn seen(&self, probability: &str) -> String {
        let values: Vec<&str> = self.options.iter().map(|option| option.seen).chain([probability]).collect();
        format!("{}({})", self.name, values.join(", "))
    }

    /// Returns the same call as a step in JSON.
    pub(crate) fn call(&self) -> String {
        let values = self.seen("0.1")[self.name.len() + 1..].replace('(', "[").replace(')', "]");
        format!("{{\"{}\": [{values}}}", self.name)
    }

    /// Returns the method of Python's `Augment`.
    fn method(&self) -> String {
        let (mut taken, mut given) = (String::new(), String::new());
        for option in self.options {
            let name = option.name;
            let (hint, value) = match option.r#type {
                "f64" => ("float", format!("float({name})")),
                "u32" => ("int", name.to_owned()),
                "(f64, f64)" => ("Range", format!("_pair({name})")),
                other => panic!("{name}: Python has no type for {other}"),
            };
            taken += &format!("{name}: {hint}");
            option.default.iter().for_each(|default| taken += &format!(" = {default}"));
            taken += ", ";
            given += &format!("{value}, ");
        }
        let doc: Vec<String> = self.doc.iter().map(|line| line.trim().replace('`', "``")).collect();
        format!(
            "    def {name}(self, {taken}probability: float = {}) -> Augment:\n        \"\"\"{}\"\"\"\n        \
             return self._with(\"{name}\", {given}float(probability))  # type: ignore[no-any-return]\n\n",
            self.probability,
            doc.join("\n        "),
            name = self.name
        )
    }

    /// Returns the row of the table in the documentation.
    fn described(&self) -> String {
        let names: Vec<&str> = self.options.iter().map(|option| option.name).chain(["probability"]).collect();
        let doc: Vec<&str> = self.doc.iter().map(|line| line.trim()).collect();
        format!("| `.{}({})` | {} |\n", self.name, names.join(", "), doc.join(" ").trim_end_matches('.'))
    }
}

#[test]
fn the_documentation_and_python_have_the_rows() {
    let all = |of: &dyn Fn(&Sheet) -> String| sheets().iter().map(of).collect::<String>();
    let table = format!("| setter | effect |\n|---|---|\n{}", all(&Sheet::described));
    written::part("docs/augmentation.md", ["<!-- rows -->\n", "<!-- end of rows -->"], &table);
    // The published crate contains only the library.
    if Path::new(env!("CARGO_MANIFEST_DIR")).join("python").is_dir() {
        let by = |comment: &str| {
            ["The rows of src/transform/ops, which its tests write.\n", "End of the rows."]
                .map(|text| format!("{comment} {text}"))
        };
        let part = |path: &str, [begin, end]: [String; 2], indent: &str, text: String| {
            written::part(path, [&begin, &format!("{indent}{end}")], &text);
        };
        part("python/warpfeed/_augment.py", by("#"), "    ", all(&Sheet::method));
        let case = |sheet: &Sheet| {
            format!("    \"{}\": (Augment.train(32), lambda a: a.{}),\n", sheet.name, sheet.seen("1.0"))
        };
        part("python/tests/test_augment.py", by("#"), "    ", all(&case));
        let call = |sheet: &Sheet| format!("            none().{},\n", sheet.seen("1.0"));
        part("tests/gpu/kernels.rs", by("//"), "            ", all(&call));
    }
}

#[test]
fn the_first_values_of_a_row_have_a_visible_effect() {
    let mut rng = Rng::new(5, 0, 0);
    for (sheet, effects) in rows(&mut rng) {
        let size = crate::decode::Size::new(16, 16);
        let before: Vec<[u8; 3]> =
            (0..size.area()).map(|_| std::array::from_fn(|_| rng.below(200) as u8 + 20)).collect();
        assert!(effects[0].1.naive(&before, size) != before, "{}", sheet.name);
    }
}
