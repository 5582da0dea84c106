//! Tests which module may import which. Modules are ordered along the data flow, and a module
//! imports only from modules upstream of it, and never through a re-export of the crate root.
//! Neither the files of a folder nor the groups of a module may depend on each other circularly. A
//! `mod.rs` contains only a table of contents. `warpfeed-sources` follows the same rules with its
//! own order. In `warpfeed-jpeg`, only the rules on circular dependencies and `mod.rs` apply.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

struct Rules {
    /// The modules in data flow order. A module imports only from earlier ones.
    flow: &'static [&'static str],
    /// Modules outside of the data flow, each with everything that it may import.
    outside: &'static [(&'static str, &'static [&'static str])],
    /// Modules that are divided into groups, in order. A group imports only from earlier groups of
    /// its module.
    groups: &'static [(&'static str, &'static [&'static str])],
    /// Whether the limit [`MAX_FILES`] applies to all folders except the crate root, or only to
    /// modules with groups.
    small: bool,
}

/// The data flow from a sample index to the user. `trace` is near the beginning, because modules of
/// all stages may use it. Dataset writers are outside of the flow and use modules at its beginning.
const WARPFEED: Rules = Rules {
    flow: &[
        "error",
        "trace",
        "sampler",
        "source",
        "decode",
        "transform",
        "batch",
        "field",
        "device",
        "recipe",
        "engine",
        "loader",
    ],
    outside: &[("pack", &["error", "sampler", "source", "decode", "transform", "pack"])],
    groups: &[("engine", &["settings", "state", "reading", "working", "delivering", "serving"])],
    small: false,
};

/// The data flow from local files to the detection of a path's format.
const SOURCES: Rules = Rules {
    flow: &["error", "stats", "format", "machine", "model", "storage", "options", "values", "formats", "open"],
    outside: &[],
    groups: &[],
    small: true,
};

const MAX_FILES: usize = 25;

/// Macros that define setters on a type that is downstream of them: the macro's module, and the
/// type. Such a macro may refer to nothing else downstream. The documentation of `transform::ops`
/// explains why.
const SETTERS: [(&str, &str); 1] = [("transform::ops::random_effect", "transform::Augment")];

type Name = Vec<String>;

struct Module {
    file: PathBuf,
    references: Seen,
}

struct Crate {
    modules: BTreeMap<Name, Module>,
    uses: BTreeMap<Name, BTreeMap<String, Name>>,
}

impl Crate {
    fn read(src: &Path) -> Self {
        let (mut modules, mut tests) = (BTreeMap::new(), Vec::new());
        for path in rust_files(src) {
            let file = path.strip_prefix(src).unwrap().to_owned();
            let mut name: Name = file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if matches!(&**name.last().unwrap(), "mod" | "lib") {
                name.pop();
            }
            let code = syn::parse_file(&fs::read_to_string(&path).unwrap());
            let code = code.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            add(&mut modules, &mut tests, name, &file, &code.items);
        }
        modules.retain(|name, _| !tests.iter().any(|test| name.starts_with(test)));
        let mut tree = Crate { modules, uses: BTreeMap::new() };
        let module_uses = |(name, module): (&Name, &Module)| {
            let import = |(alias, path): &(String, Name)| Some((alias.clone(), tree.absolute(name, path)?.0));
            (name.clone(), module.references.uses.iter().filter_map(import).collect())
        };
        tree.uses = tree.modules.iter().map(module_uses).collect();
        tree
    }

    /// Resolves `path` to an absolute name. Also returns whether the path reached the root through
    /// `super`. Returns `None` if the path leads out of the crate.
    fn absolute(&self, module: &Name, path: &[String]) -> Option<(Name, bool)> {
        let supers = path.iter().take_while(|part| *part == "super").count();
        let base = match &*path[0] {
            "crate" => return Some((path[1..].to_vec(), false)),
            "self" => return Some(([module, &path[1..]].concat(), false)),
            "super" => &module[..module.len().saturating_sub(supers)],
            first if self.modules.contains_key(&below(module, first)) => &module[..],
            _ => return None,
        };
        Some(([base, &path[supers..]].concat(), supers > 0 && base.is_empty()))
    }

    /// Follows all re-exports to the module that defines `name`.
    fn home(&self, name: &Name) -> Name {
        let mut name = name.clone();
        for _ in 0..8 {
            let module = (0..=name.len()).rev().map(|n| &name[..n]).find(|m| self.modules.contains_key(*m)).unwrap();
            let through = name.get(module.len()).and_then(|item| self.uses.get(module)?.get(item));
            match through {
                Some(real) => name = [&real[..], &name[module.len() + 1..]].concat(),
                None => return module.to_vec(),
            }
        }
        panic!("the re-exports of {} form a cycle", name.join("::"));
    }

    /// Returns the references between modules of the crate. Omits re-exports, references in the
    /// crate root, and the references of [`SETTERS`]. A reference is the module, the absolute name,
    /// and whether the path reached the root through `super`.
    fn imports(&self) -> Vec<(Name, Name, bool)> {
        let mut imports = self.references();
        imports.retain(|(module, name, _)| !SETTERS.contains(&(&module.join("::"), &name.join("::"))));
        imports
    }

    fn references(&self) -> Vec<(Name, Name, bool)> {
        let mut imports = Vec::new();
        for (module, Module { references: seen, .. }) in self.modules.iter().filter(|(module, _)| !module.is_empty()) {
            let paths = seen.paths.iter().chain(seen.uses.iter().filter(|u| !seen.shown.contains(&u.0)).map(|u| &u.1));
            imports.extend(
                paths
                    .filter_map(|path| self.absolute(module, path))
                    .map(|(name, leaves)| (module.clone(), name, leaves)),
            );
        }
        imports
    }

    fn file(&self, name: &Name) -> String {
        self.modules[name].file.display().to_string()
    }
}

#[derive(Default)]
struct Seen {
    paths: Vec<Name>,
    uses: Vec<(String, Name)>,
    shown: BTreeSet<String>,
    bodies: usize,
}

impl Seen {
    fn tree(&mut self, tree: &UseTree, mut path: Name, shown: bool) {
        match tree {
            UseTree::Path(tree_path) => {
                path.push(tree_path.ident.to_string());
                self.tree(&tree_path.tree, path, shown);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree, path.clone(), shown)),
            UseTree::Glob(_) => self.paths.push(path),
            UseTree::Name(_) | UseTree::Rename(_) => {
                let (name, alias) = match tree {
                    UseTree::Rename(rename) => (rename.ident.to_string(), rename.rename.to_string()),
                    UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
                    _ => unreachable!("matched above"),
                };
                let alias = if name == "self" { path.last().cloned().unwrap_or_default() } else { alias };
                if name != "self" {
                    path.push(name);
                }
                if shown {
                    self.shown.insert(alias.clone());
                }
                self.uses.push((alias, path));
            }
        }
    }
}

impl<'a> Visit<'a> for Seen {
    fn visit_item(&mut self, item: &'a Item) {
        match item {
            // A nested module is handled as a separate module.
            Item::Mod(_) => {}
            Item::Fn(function) if is_test(&function.attrs) => {}
            Item::Impl(block) if is_test(&block.attrs) => {}
            Item::Use(import) if is_test(&import.attrs) => {}
            Item::Use(import) => self.tree(&import.tree, Vec::new(), !matches!(import.vis, Visibility::Inherited)),
            item => visit::visit_item(self, item),
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'a syn::Macro) {
        // Doc comments and string literals contain no imports.
        let text = mac.tokens.to_string().replace("\\\"", "");
        let text: String = text.split('"').step_by(2).collect();
        let joined = text.split("::").map(str::trim).collect::<Vec<_>>().join("\0");
        for path in joined.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\0') {
            let names: Name = path.split('\0').map(str::to_owned).collect();
            if names.len() > 1 && !names[0].is_empty() {
                self.paths.push(names.into_iter().filter(|name| !name.is_empty()).collect());
            }
        }
    }

    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.bodies += 1;
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.bodies += 1;
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        self.bodies += usize::from(function.default.is_some());
        visit::visit_trait_item_fn(self, function);
    }

    // `pub(in crate::formats)` and `#[derive]` are not imports.
    fn visit_visibility(&mut self, _: &'a Visibility) {}
    fn visit_attribute(&mut self, _: &'a Attribute) {}
}

fn add(modules: &mut BTreeMap<Name, Module>, tests: &mut Vec<Name>, name: Name, file: &Path, items: &[Item]) {
    let mut seen = Seen::default();
    for item in items {
        seen.visit_item(item);
        if let Item::Mod(child) = item {
            let inline = below(&name, &child.ident.to_string());
            match &child.content {
                // The entry covers all modules inside this one.
                _ if is_test(&child.attrs) => tests.push(inline),
                Some((_, items)) => add(modules, tests, inline, file, items),
                None => {}
            }
        }
    }
    modules.insert(name, Module { file: file.to_owned(), references: seen });
}

fn is_test(attributes: &[Attribute]) -> bool {
    let test = |attribute: &Attribute| attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test");
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg") && test(attribute))
}

fn below(name: &Name, child: &str) -> Name {
    [&name[..], &[child.to_owned()]].concat()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Lists imports that go against the data flow, use a re-export of the crate root, or reach the
/// root through `super`.
fn against_the_flow(all: &Crate, rules: &Rules) -> BTreeSet<String> {
    let mut violations = BTreeSet::new();
    for (module, name, leaves) in all.imports() {
        let module_name = module[0].as_str();
        let path = name.join("::");
        if leaves {
            violations.insert(format!("{}: `super` leaves the folder for {path}", all.file(&module)));
        }
        let named = name.first().map_or("", |first| first);
        if !all.modules.contains_key(&name[..1.min(name.len())]) || name.is_empty() {
            violations.insert(format!("{}: crate::{path} is imported through the crate root", all.file(&module)));
        }
        let home = all.home(&name);
        for import in [Some(named), home.first().map(|first| &**first)].into_iter().flatten() {
            let outside = rules.outside.iter().find(|(module, _)| *module == module_name).map(|(_, imports)| *imports);
            let allowed = match rules.flow.iter().position(|flow| *flow == module_name) {
                Some(place) => &rules.flow[..=place],
                None => outside.unwrap_or_else(|| panic!("{}: {module_name} is not in the flow", all.file(&module))),
            };
            let is_module = all.modules.contains_key(&[import.to_owned()][..]);
            if is_module && !allowed.contains(&import) {
                violations.insert(format!("{}: {module_name} imports {import}", all.file(&module)));
            }
        }
    }
    violations
}

/// Lists violations of the rules on groups: imports against the order of the groups or through the
/// table of contents of their module, files without a group, and folders with too many files.
fn against_the_groups(all: &Crate, rules: &Rules) -> BTreeSet<String> {
    let mut violations = BTreeSet::new();
    let groups = |name: &Name| rules.groups.iter().find(|group| name.first().is_some_and(|first| first == group.0));
    let place =
        |flow: &[&str], name: &Name| flow.iter().position(|group| name.get(1).is_some_and(|part| part == group));
    for name in all.modules.keys() {
        if let Some((module, flow)) = groups(name).filter(|(_, flow)| name.len() > 1 && place(flow, name).is_none()) {
            violations.insert(format!("{}: not in a group of {module}: {}", all.file(name), flow.join(", ")));
        }
    }
    let mut sizes: BTreeMap<&[String], usize> = BTreeMap::new();
    for module in all.modules.keys().filter(|module| module.len() > 1 && (rules.small || groups(module).is_some())) {
        *sizes.entry(&module[..module.len() - 1]).or_default() += 1;
    }
    for (folder, size) in sizes.into_iter().filter(|(_, size)| *size > MAX_FILES) {
        violations.insert(format!("{}: {size} files and folders, more than {MAX_FILES}", folder.join("/")));
    }
    for (importer, name, _) in all.imports() {
        let Some((module, flow)) = groups(&importer) else { continue };
        let (Some(own_place), true) = (place(flow, &importer), name[0] == *module) else { continue };
        match place(flow, &name) {
            None => {
                violations.insert(format!("{}: {} is imported through {module}", all.file(&importer), name.join("::")));
            }
            Some(there) if there > own_place => {
                violations.insert(format!("{}: {} imports {}", all.file(&importer), flow[own_place], flow[there]));
            }
            Some(_) => {}
        }
    }
    violations
}

/// Lists files in the same folder that depend on each other circularly. A subfolder counts as one
/// file. Unless `in_root`, files in the crate root are exempt, because the flow orders them.
fn circles(all: &Crate, in_root: bool) -> BTreeSet<String> {
    let mut folders: BTreeMap<Name, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, name, _) in all.imports() {
        let home = all.home(&name);
        let shared = module.iter().zip(&home).take_while(|(a, b)| a == b).count();
        if module == home || (shared == 0 && !in_root) {
            continue;
        }
        let file = |module: &Name| module.get(shared).cloned().unwrap_or_else(|| "mod".to_owned());
        folders.entry(module[..shared].to_vec()).or_default().entry(file(&module)).or_default().insert(file(&home));
    }
    let mut circles = BTreeSet::new();
    for (folder, needs) in folders {
        let reach = |from: &String| {
            let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(file) = next.pop() {
                next.extend(needs.get(file).into_iter().flatten().filter(|needed| reached.insert((*needed).clone())));
            }
            reached
        };
        for file in needs.keys() {
            let reached = reach(file);
            if reached.contains(file) {
                let circle: Vec<String> = reached.into_iter().filter(|other| reach(other).contains(file)).collect();
                circles.insert(format!("{}: {} depend on each other", folder.join("/"), circle.join(", ")));
            }
        }
    }
    circles
}

fn full_tables(all: &Crate) -> BTreeSet<String> {
    let tables = all.modules.iter().filter(|(_, module)| module.file.ends_with("mod.rs"));
    let full = tables.filter(|(_, module)| module.references.bodies > 0);
    full.map(|(_, module)| format!("{}: functions in a table of contents", module.file.display())).collect()
}

fn find_violations(all: &Crate, rules: &Rules) -> BTreeSet<String> {
    [against_the_flow(all, rules), against_the_groups(all, rules), circles(all, false), full_tables(all)]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn modules_and_folders_import_only_from_upstream() {
    for (folder, rules) in [("src", &WARPFEED), ("sources/src", &SOURCES)] {
        let all = Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        let imports = all.imports().len();
        assert!(imports > 500, "only {imports} imports found: is this looking at the right files?");
        let violations: Vec<_> = find_violations(&all, rules).into_iter().collect();
        assert!(violations.is_empty(), "{folder} violates the rules:\n    {}", violations.join("\n    "));
    }
}

#[test]
fn setters_name_the_type_that_they_extend() {
    let all = Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    for (importer, name) in SETTERS {
        let is_used = |(from, to, _): &(Name, Name, bool)| from.join("::") == importer && to.join("::") == name;
        assert!(all.references().iter().any(is_used), "{importer} no longer names {name}: remove it from SETTERS");
    }
}

#[test]
fn files_of_the_jpeg_crate_depend_in_one_direction() {
    let all = Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("jpeg/src"));
    assert!(all.imports().len() > 100, "is this looking at the right files?");
    let violations: Vec<_> = circles(&all, true).into_iter().chain(full_tables(&all)).collect();
    assert!(violations.is_empty(), "the JPEG crate violates the rules:\n    {}", violations.join("\n    "));
}

#[test]
fn each_kind_of_violation_is_detected() {
    let src = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path = src.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "lib.rs",
        "mod decode; mod engine; mod error; mod loader; mod sampler; mod source; mod transform; pub use sampler::Rank;",
    );
    write("decode.rs", "pub struct Codec;");
    write("error.rs", "pub enum Error {} #[cfg(test)] mod tests { use crate::loader::Loader; }");
    write("loader.rs", "use crate::sampler::Rank; pub struct Loader(Rank);");
    write("sampler/mod.rs", "mod rank; mod rng; mod tests_of; pub use rank::Rank; #[cfg(test)] mod tests;");
    write("sampler/rank.rs", "use super::rng::Rng; pub struct Rank(Rng); use crate::decode::Codec;");
    // Through the re-export, `rank` and `rng` depend on each other.
    write("sampler/rng.rs", "pub struct Rng; fn f(_: super::Rank) { g::<super::super::error::Error>() }");
    write("sampler/tests_of.rs", "mod inline { use super::super::Rank; use super::super::super::loader; }");
    write("sampler/tests.rs", "use crate::loader::Loader;");
    write("source/mod.rs", "mod lmdb; pub trait Source { fn len(&self) -> usize { 0 } }");
    write("source/lmdb.rs", "use super::Source; fn f(_: crate::Rank) { format!(\"{}\", crate::loader::NAME) }");
    write("engine/mod.rs", "mod alone; mod state; mod working; pub use state::Run;");
    write("engine/alone.rs", "pub struct Alone;");
    write("engine/state.rs", "use crate::engine::working::Pool; pub struct Run(Pool);");
    write("engine/working.rs", "use crate::engine::Run; pub struct Pool; fn f(_: super::state::Run) {}");
    for number in 0..=MAX_FILES {
        write(&format!("engine/state/f{number}.rs"), "");
    }
    // A setter may name only its type. The rows of a list in a macro are imports.
    write("transform/mod.rs", "mod augment; mod ops; pub use augment::{Augment, Plan};");
    write("transform/augment.rs", "pub struct Augment(super::ops::op::Op); pub struct Plan;");
    write(
        "transform/ops/mod.rs",
        "mod op; mod random_effect; mod tone; operations! { tone::Tone { \"invert\" Invert } }",
    );
    write("transform/ops/op.rs", "operations! { super::$mod::$op } pub struct Op;");
    write("transform/ops/tone.rs", "use super::random_effect::random_effect; use super::op::Op; pub struct Tone(Op);");
    let setter = "impl $crate::transform::Augment { fn f(_: &$crate::transform::Plan) {} }";
    write(
        "transform/ops/random_effect.rs",
        &format!("macro_rules! random_effect {{ () => {{ {setter} }} }} pub(super) use random_effect;"),
    );
    let expected = [
        "engine/alone.rs: not in a group of engine: settings, state, reading, working, delivering, serving",
        "engine/state.rs: state imports working",
        "engine/working.rs: engine::Run is imported through engine",
        "engine/state: 26 files and folders, more than 25",
        "engine: state, working depend on each other",
        "sampler/rank.rs: sampler imports decode",
        "sampler/rng.rs: `super` leaves the folder for error::Error",
        "sampler/tests_of.rs: `super` leaves the folder for loader",
        "sampler/tests_of.rs: sampler imports loader",
        "sampler: rank, rng depend on each other",
        "source/lmdb.rs: crate::Rank is imported through the crate root",
        "source/lmdb.rs: source imports loader",
        "source/mod.rs: functions in a table of contents",
        "transform/ops: mod, op, tone depend on each other",
        "transform: augment, ops depend on each other",
    ];
    assert_eq!(find_violations(&Crate::read(src.path()), &WARPFEED), expected.map(str::to_owned).into());
    let small: BTreeSet<String> = (0..=MAX_FILES).map(|n| format!("source/f{n}.rs")).collect();
    small.iter().for_each(|file| write(file, ""));
    let full = "source: 27 files and folders, more than 25".to_owned();
    assert!(!find_violations(&Crate::read(src.path()), &WARPFEED).contains(&full));
    assert!(find_violations(&Crate::read(src.path()), &Rules { small: true, ..WARPFEED }).contains(&full));
}

/// The folder of a vendor's driver. Few files outside of it may refer to its items. A different
/// vendor gets a separate folder, an opener next to `loader/nvidia.rs`, and a line in each of the
/// other files.
const DRIVER: &str = "src/device/nvidia";
const NAMES_THE_DRIVER: [&str; 6] = [
    "cli/src/commands/doctor_gpu.rs",
    "python/src/gpu.rs",
    "src/device/locked.rs",
    "src/device/mod.rs",
    "src/lib.rs",
    "src/loader/nvidia.rs",
];
/// Types from other folders that have additional methods in the driver's folder or in
/// `src/loader/nvidia.rs`. Of the methods of such types, only the additional ones may mention types
/// of `cudarc` in public.
const NAME_CUDARC: [&str; 3] = ["DecoderBuilder", "DeviceTensor", "Loader"];

fn paths(items: &[Item]) -> Vec<Name> {
    let mut seen = Seen::default();
    items.iter().for_each(|item| seen.visit_item(item));
    let mut paths: Vec<Name> = seen.paths.into_iter().chain(seen.uses.into_iter().map(|(_, path)| path)).collect();
    for item in items {
        if let Item::Mod(module) = item
            && let Some((_, items)) = &module.content
            && !is_test(&module.attrs)
        {
            paths.extend(self::paths(items));
        }
    }
    paths
}

fn names_the_driver(path: &Name) -> bool {
    const WORDS: [&str; 8] =
        ["cuda", "cudarc", "nvidia", "CudaContext", "CudaSlice", "CudaStream", "CudaView", "DeviceRepr"];
    // `Loader::cuda` is an associated function of a type.
    let of_a_type = |i: usize| i > 0 && path[i - 1].starts_with(char::is_uppercase);
    path.iter().enumerate().any(|(i, part)| WORDS.contains(&&**part) && !of_a_type(i))
}

/// Lists files outside of the driver's folder, except tests, that refer to the driver.
fn namers(root: &Path, sources: &[&str]) -> Vec<String> {
    let files = sources.iter().flat_map(|source| rust_files(&root.join(source)));
    let mut names: Vec<String> = files
        .filter(|file| {
            let code = syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap();
            !file.starts_with(root.join(DRIVER)) && paths(&code.items).iter().any(names_the_driver)
        })
        .map(|file| file.strip_prefix(root).unwrap().display().to_string())
        .filter(|file| !file.contains("/tests/") && !file.ends_with("/tests.rs"))
        .collect();
    names.sort();
    names
}

/// Lists types that are defined elsewhere and have inherent methods in `files`.
fn gaining(files: &[PathBuf]) -> Vec<String> {
    let (mut defined, mut gaining) = (BTreeSet::new(), BTreeSet::new());
    for file in files {
        for item in syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap().items {
            match item {
                Item::Struct(item) => drop(defined.insert(item.ident.to_string())),
                Item::Enum(item) => drop(defined.insert(item.ident.to_string())),
                Item::Impl(block) if block.trait_.is_none() => {
                    let syn::Type::Path(path) = &*block.self_ty else {
                        panic!("{}: the type of an impl is not a path", file.display())
                    };
                    gaining.insert(path.path.segments.last().unwrap().ident.to_string());
                }
                _ => {}
            }
        }
    }
    gaining.difference(&defined).cloned().collect()
}

#[test]
fn only_the_drivers_folder_and_one_opener_name_the_driver() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // `video` looks up functions of the driver itself, and does not depend on `cudarc`.
    let sources = ["cli/src", "jpeg/src", "python/src", "sources/src", "src", "stores/src"];
    assert_eq!(namers(root, &sources), NAMES_THE_DRIVER);
}

/// Programs that use only host batches must not be affected by a release of `cudarc`.
#[test]
fn methods_of_the_host_name_no_type_of_cudarc() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = rust_files(&root.join(DRIVER));
    files.push(root.join("src/loader/nvidia.rs"));
    assert_eq!(gaining(&files), NAME_CUDARC);
}

#[test]
fn each_way_to_name_the_driver_is_detected() {
    let root = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    };
    let driver = write("src/device/nvidia/gpu.rs", "use cudarc::driver::CudaStream; struct Own; impl Own {}");
    write("src/a.rs", "use cudarc::driver;");
    write("src/b.rs", "fn f() { crate::device::nvidia::stream(0); }");
    write("src/c.rs", "mod inner { fn f(_: super::CudaStream) {} }");
    write("src/d.rs", "use warpfeed::cuda::{self, stream};");
    write(
        "src/e.rs",
        "fn f(loader: Loader) { Tensor::cuda(); loader.cuda(\"cudarc::x\") } #[cfg(test)] mod tests { use cudarc::x; }",
    );
    write("src/f/tests.rs", "use cudarc::x;");
    assert_eq!(namers(root.path(), &["src"]), ["src/a.rs", "src/b.rs", "src/c.rs", "src/d.rs"]);
    assert!(gaining(std::slice::from_ref(&driver)).is_empty());
    let other = write("src/device/nvidia/host.rs", "impl HostBatch { pub fn release_on(self) {} } impl Clone for X {}");
    assert_eq!(gaining(&[driver, other]), ["HostBatch"]);
}
