//! Tests that documents name in the last column of their tables.
//!
//! Code with `::` in it is the path of a test, or of a module of tests, in the library; after a
//! link to a test file, and with `::` at its front, it is a test in that file. A link is
//! `[text](path)`, or `[label]` with `[label]: path` at the end of the document.

use super::documents::resolve;
use super::source::{File, Tree, Violation, identifier};

/// Documents whose rows name the tests that hold them.
const DOCUMENTS: [&str; 2] = ["docs/compatibility.md", "docs/generations.md"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let documents = DOCUMENTS.iter().filter_map(|path| tree.get(path));
    let mut found = Vec::new();
    for document in documents {
        for (number, line) in document.lines().filter(|(_, line)| line.starts_with("| ")) {
            let cells = line.trim_end().trim_end_matches('|');
            let last = cells.rsplit(" | ").next().expect("a split has a last part");
            for name in missing(tree, document, last) {
                let what = format!("`{name}` is no test: name the one that holds this row");
                found.push(Violation::new(document, number, what));
            }
        }
    }
    found
}

/// The path after `[label]: ` at the front of a line.
fn definition<'a>(line: &'a str, label: &str) -> Option<&'a str> {
    line.strip_prefix('[')?.strip_prefix(label)?.strip_prefix("]: ").map(str::trim_end)
}

/// Names in a cell that the tree does not have.
fn missing(tree: &Tree, document: &File, cell: &str) -> Vec<String> {
    let mut file = None;
    let mut missing = Vec::new();
    // Every second part between backticks is code.
    for (at, part) in cell.split('`').enumerate() {
        if at % 2 == 0 {
            for link in part.split('[').skip(1) {
                let (text, rest) = link.split_once(']').unwrap_or((link, ""));
                let path = rest.strip_prefix('(').and_then(|rest| rest.split(')').next());
                let defined = || document.lines().find_map(|(_, line)| definition(line, text));
                let path = path.or_else(defined).and_then(|it| resolve(&document.path, it));
                let path = path.unwrap_or_default();
                missing.extend((!tree.contains(&path)).then(|| format!("[{text}]")));
                file = tree.get(&path);
            }
        } else if let Some(name) = part.strip_prefix("::") {
            if !file.is_some_and(|file| declares(file, name)) {
                missing.push(part.to_owned());
            }
        } else if part.contains("::") && !is_in_library(tree, part) {
            missing.push(part.to_owned());
        }
    }
    missing
}

/// Whether a path from the root of the library leads to a module or a test.
fn is_in_library(tree: &Tree, path: &str) -> bool {
    let parts: Vec<&str> = path.split("::").collect();
    let file = (1..=parts.len()).rev().find_map(|length| {
        let stem = parts[..length].join("/");
        let file = tree.get(&format!("src/{stem}.rs"));
        Some((file.or_else(|| tree.get(&format!("src/{stem}/mod.rs")))?, length))
    });
    file.is_some_and(|(file, length)| parts[length..].iter().all(|part| declares(file, part)))
}

/// Whether a file has a test or a module of this name.
fn declares(file: &File, name: &str) -> bool {
    let is_named =
        |at: usize, word: &str| identifier(file.code[at + word.len()..].trim_start()) == name;
    let is_test = |at: usize| {
        // Its attributes stand between it and the item before.
        let before = &file.code[..at];
        let attributes = &before[before.rfind(['{', '}', ';']).unwrap_or(0)..];
        attributes.contains("#[test]") || attributes.contains("#[tokio::test")
    };
    file.word("mod").any(|at| is_named(at, "mod"))
        || file.word("fn").any(|at| is_named(at, "fn") && is_test(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_are_not_there_are_found() {
        let document = "| what | test |\n|---|---|\n\
                        | a `c::d` | `a::b::tests::holds`, [t](../tests/t.rs)`::holds`, `::no` |\n\
                        | b | `a::b::tests::no` `a::b::tests` `no::b` [t](../tests/t.rs) – |\n\
                        | c | [t]`::holds`, `::not` [none] |\n\
                        prose `a::no`\n\n[t]: ../tests/t.rs\n";
        let tree = Tree::of(&[
            (DOCUMENTS[0], document),
            ("src/a/b.rs", "mod tests {\n#[test]\nfn holds() {}\n}\n"),
            ("tests/t.rs", "#[test]\nfn holds() {}\nfn no() {}\n// #[test] fn no() {}"),
        ]);
        let found: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        let names: Vec<_> = found.iter().filter_map(|text| text.split('`').nth(1)).collect();
        assert_eq!(names, ["::no", "a::b::tests::no", "no::b", "::not", "[none]"]);
        assert!(found[0].starts_with("docs/compatibility.md:3: "), "{found:?}");
    }
}
