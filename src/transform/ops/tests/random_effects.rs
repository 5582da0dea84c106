//! Tests that the Python methods, the table in the documentation, and the test cases that are
//! generated from the random effects are up to date. To regenerate them, run `WARPFEED_BLESS=1
//! cargo test --all-features --lib random_effects`.

use std::path::Path;

use super::naive::{Pair, pair};
use crate::generated_files;
use crate::sampler::Rng;
use crate::transform::ops;
use crate::transform::ops::AnyPixelEffect;
use crate::transform::ops::effect::NaiveReference;
use crate::transform::ops::random_effect::{EffectDescription, RandomEffect};

fn effect_cases<R: RandomEffect>(name: &str, rng: &mut Rng) -> (EffectDescription, Vec<Pair>)
where
    R::Effect: NaiveReference + Copy + 'static,
    AnyPixelEffect: From<R::Effect>,
{
    assert_eq!(name, R::NAME, "the name in `effects!` must equal the name of the setter");
    (R::description(), R::with_test_values().iter().map(|operation| pair(operation.draw_effect(rng))).collect())
}

macro_rules! define_cases {
    (
        pixels { $($mod:ident::$effect:ident { $($name:literal $op:ident),* },)+ }
        values { $($values:tt)* }
        tests { $tmod:ident::$teffect:ident { $tname:literal $top:ident }, }
    ) => {
        /// Returns the test cases of all random effects. The cases cover all test values. The last
        /// effect, `halve`, exists only in tests.
        pub(super) fn cases(rng: &mut Rng) -> Vec<(EffectDescription, Vec<Pair>)> {
            vec![$($(effect_cases::<ops::$mod::$op>($name, rng),)*)+ effect_cases::<ops::$tmod::$top>($tname, rng)]
        }
    };
}
effects!(define_cases);

pub(crate) fn effect_descriptions() -> Vec<EffectDescription> {
    let mut cases = cases(&mut Rng::new(0, 0, 0));
    cases.pop();
    cases.into_iter().map(|(description, _)| description).collect()
}

impl EffectDescription {
    /// Returns the source text of a call with which the effect is visible.
    pub(crate) fn visible_call(&self, probability: &str) -> String {
        let values: Vec<&str> = self.options.iter().map(|option| option.visible_value).chain([probability]).collect();
        format!("{}({})", self.name, values.join(", "))
    }

    pub(crate) fn step(&self) -> String {
        let values = self.visible_call("0.1")[self.name.len() + 1..].replace('(', "[").replace(')', "]");
        format!("{{\"{}\": [{values}}}", self.name)
    }

    fn python_method(&self) -> String {
        let (mut parameters, mut arguments) = (String::new(), String::new());
        for option in self.options {
            let name = option.name;
            let (hint, value) = match option.r#type {
                "f64" => ("float", format!("float({name})")),
                "u32" => ("int", name.to_owned()),
                "(f64, f64)" => ("Range", format!("_pair({name})")),
                other => panic!("{name}: Python has no type for {other}"),
            };
            parameters += &format!("{name}: {hint}");
            option.default.iter().for_each(|default| parameters += &format!(" = {default}"));
            parameters += ", ";
            arguments += &format!("{value}, ");
        }
        let doc: Vec<String> = self.doc.iter().map(|line| line.trim().replace('`', "``")).collect();
        format!(
            "    def {name}(self, {parameters}probability: float = {}) -> Augment:\n        \"\"\"{}\"\"\"\n        \
             return self._with(\"{name}\", {arguments}float(probability))  # type: ignore[no-any-return]\n\n",
            self.probability,
            doc.join("\n        "),
            name = self.name
        )
    }

    fn table_row(&self) -> String {
        let names: Vec<&str> = self.options.iter().map(|option| option.name).chain(["probability"]).collect();
        let doc: Vec<&str> = self.doc.iter().map(|line| line.trim()).collect();
        format!("| `.{}({})` | {} |\n", self.name, names.join(", "), doc.join(" ").trim_end_matches('.'))
    }
}

#[test]
fn generated_files_match_the_random_effects() {
    let text_for_effects =
        |text_of: &dyn Fn(&EffectDescription) -> String| effect_descriptions().iter().map(text_of).collect::<String>();
    let table = format!("| setter | effect |\n|---|---|\n{}", text_for_effects(&EffectDescription::table_row));
    generated_files::check_part("docs/augmentation.md", ["<!-- rows -->\n", "<!-- end of rows -->"], &table);
    // The published crate does not contain the Python package.
    if Path::new(env!("CARGO_MANIFEST_DIR")).join("python").is_dir() {
        let notice = |comment: &str| {
            ["Generated: one item per random effect in src/transform/ops.\n", "End of the generated items."]
                .map(|text| format!("{comment} {text}"))
        };
        let part = |path: &str, [begin, end]: [String; 2], indent: &str, text: String| {
            generated_files::check_part(path, [&begin, &format!("{indent}{end}")], &text);
        };
        part("python/warpfeed/_augment.py", notice("#"), "    ", text_for_effects(&EffectDescription::python_method));
        let case = |description: &EffectDescription| {
            format!(
                "    \"{}\": (Augment.train(32), lambda a: a.{}),\n",
                description.name,
                description.visible_call("1.0")
            )
        };
        part("python/tests/test_augment.py", notice("#"), "    ", text_for_effects(&case));
        let call =
            |description: &EffectDescription| format!("            none().{},\n", description.visible_call("1.0"));
        part("tests/gpu/kernels.rs", notice("//"), "            ", text_for_effects(&call));
    }
}

#[test]
fn the_first_test_values_have_a_visible_effect() {
    let mut rng = Rng::new(5, 0, 0);
    for (description, effects) in cases(&mut rng) {
        let size = crate::decode::Size::new(16, 16);
        let before: Vec<[u8; 3]> =
            (0..size.area()).map(|_| std::array::from_fn(|_| rng.below(200) as u8 + 20)).collect();
        assert!(effects[0].1.naive(&before, size) != before, "{}", description.name);
    }
}
