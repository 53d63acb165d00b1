//! Files and modules: reachable, named for what they hold, and introduced.

use std::collections::BTreeSet;

use super::source::{File, Tree, Violation, identifier};

/// Names for what nobody found a place for.
const VAGUE: [&str; 5] = ["helper", "helpers", "misc", "util", "utils"];

/// Every Rust file of the package belongs to a crate by a chain of `mod` lines.
pub(crate) fn dead_files(tree: &Tree) -> Vec<Violation> {
    let mut reached = BTreeSet::new();
    let mut to_visit: Vec<String> =
        package(tree).filter(|file| is_root(&file.path)).map(|file| file.path.clone()).collect();
    while let Some(path) = to_visit.pop() {
        if let Some(file) = tree.get(&path)
            && reached.insert(path)
        {
            to_visit.extend(children(file));
        }
    }
    package(tree)
        .filter(|file| !reached.contains(&file.path))
        .map(|file| {
            Violation::new(file, 0, "no `mod` line leads here: add one, or delete the file")
        })
        .collect()
}

pub(crate) fn names(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in package(tree) {
        let vague = |part: &str| VAGUE.contains(&part.trim_end_matches(".rs"));
        if file.path.split('/').any(vague) {
            let what = "a name that says nothing: name the module for what it holds";
            found.push(Violation::new(file, 0, what));
        }
        for offset in file.word("mod") {
            let name = identifier(file.code[offset + 3..].trim_start());
            if vague(name) {
                let what = format!("`mod {name}` says nothing: name it for what it holds");
                found.push(Violation::new(file, file.line_of(offset), what));
            }
        }
    }
    found
}

/// Tests in `src` are introduced by the code that they test.
pub(crate) fn docs(tree: &Tree) -> Vec<Violation> {
    package(tree)
        .filter(|file| !(file.is_test() && file.path.starts_with("src/")))
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| Violation::new(file, 1, "start with `//!` and say what the module is for"))
        .collect()
}

/// The Rust files of the main package; clients are packages of their own.
fn package(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.rust().filter(|file| {
        ["src/", "tests/", "benches/"].iter().any(|folder| file.path.starts_with(folder))
    })
}

/// Whether cargo starts a crate here.
fn is_root(path: &str) -> bool {
    if matches!(path, "src/lib.rs" | "src/main.rs") {
        return true;
    }
    let Some(rest) = path.strip_prefix("tests/").or_else(|| path.strip_prefix("benches/")) else {
        return false;
    };
    !rest.contains('/') || (rest.ends_with("/main.rs") && rest.matches('/').count() == 1)
}

/// Where the modules may be that a file declares without their text.
fn children(file: &File) -> Vec<String> {
    let (folder, name) = file.path.rsplit_once('/').expect("files of the package are in folders");
    let stem = name.trim_end_matches(".rs");
    let own_folder = stem == "mod" || is_root(&file.path);
    let folder = if own_folder { folder.to_owned() } else { format!("{folder}/{stem}") };
    let mut found = Vec::new();
    for offset in file.word("mod") {
        let behind = file.code[offset + 3..].trim_start();
        let name = identifier(behind);
        if !name.is_empty() && behind[name.len()..].trim_start().starts_with(';') {
            found.extend(path_attribute(file, offset));
            found.push(format!("{folder}/{name}.rs"));
            found.push(format!("{folder}/{name}/mod.rs"));
        }
    }
    found
}

/// Where `#[path = "…"]` before a `mod` leads.
fn path_attribute(file: &File, offset: usize) -> Option<String> {
    let attribute = file.text[..offset].trim_end().lines().last()?.trim();
    let path = attribute.strip_prefix("#[path = \"")?.strip_suffix("\"]")?;
    let (mut folder, _) = file.path.rsplit_once('/')?;
    let mut below = path;
    while let Some(rest) = below.strip_prefix("../") {
        folder = folder.rsplit_once('/').map_or("", |(parent, _)| parent);
        below = rest;
    }
    Some(if folder.is_empty() { below.to_owned() } else { format!("{folder}/{below}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(violations: &[Violation]) -> Vec<&str> {
        violations.iter().map(|violation| violation.path.as_str()).collect()
    }

    #[test]
    fn dead_files_are_found() {
        let tree = Tree::of(&[
            ("src/lib.rs", "pub mod a;\nmod inline { }\n// mod dead;"),
            ("src/main.rs", ""),
            ("src/a/mod.rs", "mod b;"),
            ("src/a/b.rs", "#[cfg(test)]\nmod tests;"),
            ("src/a/b/tests.rs", ""),
            ("src/a/dead.rs", ""),
            ("src/dead.rs", "mod also_dead;"),
            ("src/inline.rs", ""),
            ("tests/one.rs", "mod server;"),
            ("tests/server/mod.rs", ""),
            ("tests/two/main.rs", "mod part;\n#[path = \"../kit/mod.rs\"]\nmod kit;"),
            ("tests/two/part.rs", ""),
            ("tests/kit/mod.rs", ""),
            ("tests/two/dead.rs", ""),
            ("clients/rust/src/lib.rs", ""),
        ]);
        let dead = ["src/a/dead.rs", "src/dead.rs", "src/inline.rs", "tests/two/dead.rs"];
        assert_eq!(paths(&dead_files(&tree)), dead);
    }

    #[test]
    fn vague_names_are_found() {
        for name in VAGUE {
            let (file, folder) = (format!("src/{name}.rs"), format!("src/{name}/mod.rs"));
            let tree = Tree::of(&[(&file, ""), (&folder, "")]);
            assert_eq!(names(&tree).len(), 2, "{name}");
            let line = format!("\nmod {name} {{}}");
            assert_eq!(names(&Tree::of(&[("src/a.rs", &line)]))[0].line, 2, "{name}");
        }
        assert!(names(&Tree::of(&[("src/miscible.rs", "mod utility;")])).is_empty());
    }

    #[test]
    fn modules_without_introduction_are_found() {
        let tree = Tree::of(&[
            ("src/a.rs", "//! What it is for."),
            ("src/b.rs", "use a;\n//! Too late."),
            ("src/c/tests.rs", "use a;"),
            ("src/c/tests/e.rs", "use a;"),
            ("tests/d.rs", "/// Of something else."),
        ]);
        assert_eq!(paths(&docs(&tree)), ["src/b.rs", "tests/d.rs"]);
    }
}
