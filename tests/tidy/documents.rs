//! Documents: their links, and the list of dependencies.

use std::collections::BTreeMap;

use super::source::{File, Tree, Violation};

const DEPENDENCIES: &str = "docs/dependencies.md";

/// Links to files must lead to one; other addresses are not looked at.
pub(crate) fn links(tree: &Tree) -> Vec<Violation> {
    let documents = tree.files().iter().filter(|file| file.extension() == "md");
    let mut found = Vec::new();
    for file in documents {
        for (line, target) in targets(file) {
            let path = target.split('#').next().expect("a split has a first part");
            let is_elsewhere = path.contains("://") || path.starts_with("mailto:");
            if path.is_empty() || is_elsewhere {
                continue;
            }
            if !resolve(&file.path, path).is_some_and(|path| tree.contains(&path)) {
                let what = format!("`{target}` leads nowhere: correct the link");
                found.push(Violation::new(file, line, what));
            }
        }
    }
    found
}

/// The targets of `[text](target)` and `[name]: target`, outside code.
fn targets(file: &File) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in file.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every second part between backticks is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (i, start) in prose.match_indices("](") {
            let rest = &prose[i + start.len()..];
            let end = rest.find([')', ' ']).unwrap_or(rest.len());
            found.push((number, rest[..end].to_owned()));
        }
        if prose.starts_with('[')
            && let Some((_, target)) = prose.split_once("]: ")
        {
            found.push((number, target.split(' ').next().unwrap_or_default().to_owned()));
        }
    }
    found
}

/// The path from the root of the tree, of a link in a document; `None` if it leads out.
pub(crate) fn resolve(document: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Every dependency has a row that says why, and every row a dependency.
pub(crate) fn dependencies(tree: &Tree) -> Vec<Violation> {
    let manifest = tree.get("Cargo.toml").expect("the package has a manifest");
    let used = used(manifest);
    let Some(list) = tree.get(DEPENDENCIES) else {
        return vec![Violation::new(manifest, 0, format!("{DEPENDENCIES} is missing"))];
    };
    let explained: BTreeMap<&str, usize> = list.lines().filter_map(row).collect();
    let mut found = Vec::new();
    for (name, line) in &used {
        if !explained.contains_key(name) {
            let what = format!("`{name}` has no row in {DEPENDENCIES}: say what it saves");
            found.push(Violation::new(manifest, *line, what));
        }
    }
    for (name, line) in &explained {
        if !used.contains_key(name) {
            let what = format!("`{name}` is not in Cargo.toml: remove the row");
            found.push(Violation::new(list, *line, what));
        }
    }
    found
}

/// The names of all kinds of dependencies in a manifest, with their lines.
fn used(manifest: &File) -> BTreeMap<&str, usize> {
    let mut found = BTreeMap::new();
    let mut in_section = false;
    for (number, line) in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end().trim_end_matches(']');
            in_section = section.ends_with("dependencies");
            if let Some((_, name)) = section.split_once("dependencies.") {
                found.insert(name, number);
            }
        } else if in_section
            && let Some((name, _)) = line.split_once('=')
            && !line.starts_with(['#', ' '])
        {
            // `name.workspace = true` and the like.
            let name = name.trim().split('.').next().expect("a split has a first part");
            found.insert(name, number);
        }
    }
    found
}

/// The name in the first cell of a row of the list.
fn row((number, line): (usize, &str)) -> Option<(&str, usize)> {
    let cell = line.strip_prefix('|')?.split('|').next()?.trim();
    Some((cell.strip_prefix('`')?.strip_suffix('`')?, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_are_found() {
        let text = "[a](b.md) [c](sub/) and\n[d](../README.md#part \"title\")\n\
                    [e](https://example.org/x) [f](#part) `[g](none)`\n```\n[h](none)\n```\n\
                    [i](none.md) [j](../../out)\n[k]: none.md\n";
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("docs/b.md", ""),
            ("docs/sub/c.md", ""),
            ("README.md", "[a](docs/a.md) [b](b.md)"),
        ]);
        let found: Vec<_> = links(&tree).into_iter().map(|it| (it.path, it.line)).collect();
        let expected = [("docs/a.md", 7), ("docs/a.md", 7), ("docs/a.md", 8), ("README.md", 1)];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }

    #[test]
    fn dependencies_and_rows_must_match() {
        let manifest = "[package]\nname = \"p\"\n[dependencies]\n# a comment = 1\na = \"1\"\n\
                        b = { version = \"2\" }\n[dev-dependencies]\nc.workspace = true\n\
                        [target.'cfg(unix)'.dependencies]\nd = \"1\"\n\
                        [dependencies.e]\nversion = \"1\"\n[features]\nf = []\n";
        let list = "| crate | need |\n|---|---|\n| `a` | x |\n| `z` | x |\n";
        let tree = Tree::of(&[("Cargo.toml", manifest), (DEPENDENCIES, list)]);
        let found: Vec<_> = dependencies(&tree).iter().map(ToString::to_string).collect();
        let starts: Vec<_> =
            found.iter().map(|it| it.split('`').nth(1).unwrap_or_default()).collect();
        assert_eq!(starts, ["b", "c", "d", "e", "z"]);
        assert!(found[0].starts_with("Cargo.toml:6: ") && found[4].starts_with(DEPENDENCIES));
        assert_eq!(dependencies(&Tree::of(&[("Cargo.toml", manifest)])).len(), 1);
    }
}
