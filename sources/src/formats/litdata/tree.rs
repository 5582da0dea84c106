//! Derives the names of a sample's values from the sample's structure, a PyTorch `TreeSpec` in
//! JSON.

use serde::Deserialize;

use crate::error::{Error, Result, counted};

/// A node in a sample's structure, as PyTorch serializes it.
#[derive(Debug, Deserialize)]
struct Node {
    /// The name of a container's Python type, or `None` for a value.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// The keys of a dict, as a JSON list.
    context: Option<String>,
    children_spec: Vec<Node>,
}

const MAX_VALUES: usize = 1024;

/// Returns the names of a sample's values. A name consists of the dict keys and list indices on the
/// path to the value, joined by dots. If the sample is a single value, its name is `0`. `spec` must
/// be a `TreeSpec` in version 1 of PyTorch's serialization format.
pub(super) fn names(spec: &str) -> Result<Vec<String>> {
    let error = |cause: String| Error::in_source(format!("data_spec is not a valid structure: {cause}"));
    // The JSON parser limits the depth, so the recursion below is bounded.
    let (version, root): (u64, Node) = serde_json::from_str(spec).map_err(|e| error(e.to_string()))?;
    if version != 1 {
        return Err(error(format!("its version is {version}: expected version 1")));
    }
    let mut names = Vec::new();
    root.append_names("", &mut names).map_err(error)?;
    if names.len() > MAX_VALUES {
        return Err(error(format!("it has {} values: expected at most {MAX_VALUES}", names.len())));
    }
    Ok(names)
}

impl Node {
    fn append_names(&self, path: &str, names: &mut Vec<String>) -> Result<(), String> {
        let Some(kind) = &self.kind else {
            names.push(if path.is_empty() { "0".to_owned() } else { path.to_owned() });
            return Ok(());
        };
        let keys = match &**kind {
            "builtins.dict" | "collections.OrderedDict" => {
                let context = self.context.as_deref().unwrap_or("null");
                let keys: Vec<serde_json::Value> =
                    serde_json::from_str(context).map_err(|e| format!("invalid keys of a dict: {e}"))?;
                let text = |key: serde_json::Value| key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                keys.into_iter().map(text).collect()
            }
            "builtins.list" | "builtins.tuple" | "collections.deque" => {
                (0..self.children_spec.len()).map(|index| index.to_string()).collect::<Vec<_>>()
            }
            _ => return Err(format!("it has a node of type {kind:?}: expected dicts, lists and tuples")),
        };
        if keys.len() != self.children_spec.len() {
            let values = counted(self.children_spec.len(), "value", "values");
            return Err(format!("a dict has {} but {values}", counted(keys.len(), "key", "keys")));
        }
        let dot = if path.is_empty() { "" } else { "." };
        keys.iter()
            .zip(&self.children_spec)
            .try_for_each(|(key, child)| child.append_names(&format!("{path}{dot}{key}"), names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_named_by_keys_and_positions() {
        let leaf = r#"{"type": null, "context": null, "children_spec": []}"#;
        let node = |kind: &str, context: &str, children: &[&str]| {
            let (kind, children) = (serde_json::json!(kind), children.join(","));
            format!(
                "{{\"type\": {kind}, \"context\": {}, \"children_spec\": [{children}]}}",
                serde_json::json!(context)
            )
        };
        let tuple = node("builtins.tuple", "null", &[leaf, leaf]);
        let dict = node("builtins.dict", r#"["image", "meta", 7]"#, &[leaf, &tuple, leaf]);
        let names_of = |root: &str| names(&format!("[1, {root}]"));
        assert_eq!(names_of(leaf).unwrap(), ["0"]);
        assert_eq!(names_of(&tuple).unwrap(), ["0", "1"]);
        assert_eq!(names_of(&dict).unwrap(), ["image", "meta.0", "meta.1", "7"]);
        for (root, cause) in [
            (node("builtins.dict", "[]", &[leaf]), "0 keys but 1 value"),
            (node("builtins.dict", "{", &[leaf]), "invalid keys of a dict"),
            (node("mine.Point", "null", &[leaf]), "a node of type \"mine.Point\""),
            ("{}".into(), "missing field"),
        ] {
            let e = names_of(&root).unwrap_err();
            assert!(e.cause().contains(cause), "{root}: {e}");
        }
        assert!(
            names("[2, 3]").is_err() && names(&format!("[2, {leaf}]")).unwrap_err().cause().contains("version is 2")
        );
        let deep = "[".repeat(100_000);
        assert!(names(&deep).is_err());
    }
}
