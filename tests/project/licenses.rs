//! Tests that every distributed package ships both licenses.

use std::fs;
use std::path::Path;

#[test]
fn every_package_contains_both_licenses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let license = fs::read_to_string(root.join(name)).unwrap();
        // `cargo package` takes only files in the package's folder, and follows the symbolic links
        // to the licenses there.
        for package in [
            "cli",
            "datasets/synth",
            "jpeg",
            "python",
            "sources",
            "stores",
            "video",
            "adaptors/burn",
            "adaptors/candle",
            "adaptors/tch",
        ] {
            let content = fs::read_to_string(root.join(package).join(name));
            assert!(content.is_ok_and(|content| content == license), "{package}: {name} differs from the repository's");
        }
    }
    let project = fs::read_to_string(root.join("python/pyproject.toml")).unwrap();
    assert!(project.lines().any(|line| line == r#"license-files = ["LICENSE-*"]"#), "the wheel lacks the licenses");
}
