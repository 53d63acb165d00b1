//! The direction in which the layers use each other.

use super::source::{File, Tree, Violation, identifier};

/// Layers that each layer may use besides itself and `base`.
const LAYERS: [(&str, &[&str]); 17] = [
    ("base", &[]),
    ("model", &[]),
    ("ring", &["model"]),
    ("config", &["model", "ring"]),
    ("storage", &["model", "ring", "config"]),
    ("gossip", &["model", "ring", "config"]),
    ("net", &["model", "ring", "config"]),
    ("schema", &["storage", "gossip", "net", "model", "ring", "config"]),
    ("replica", &["storage", "net", "model", "ring"]),
    ("coordinator", &["replica", "net", "ring", "gossip", "model"]),
    ("server", &[]),
    ("service", &["coordinator", "schema", "model", "ring", "config"]),
    ("thrift", &["server", "service", "config", "model"]),
    ("client", &["thrift"]),
    ("cql", &["server", "service", "schema", "config", "model"]),
    ("repair", &["replica", "storage", "net", "model", "ring", "gossip", "config"]),
    (
        "node",
        &[
            "admin",
            "service",
            "server",
            "repair",
            "coordinator",
            "replica",
            "schema",
            "storage",
            "net",
            "gossip",
            "ring",
            "config",
            "model",
        ],
    ),
];

/// Layers that report on the others or put them together, and may use them all. No layer may use
/// these, except that a node starts its admin side.
const ABOVE: [&str; 5] = ["admin", "assembly", "commands", "lib", "main"];

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let in_src = tree.rust().filter_map(|file| Some((file, file.path.strip_prefix("src/")?)));
    in_src.flat_map(|(file, path)| check_file(file, path)).collect()
}

/// `path` is the one below `src/`.
fn check_file(file: &File, path: &str) -> Vec<Violation> {
    let from = identifier(path);
    if ABOVE.contains(&from) {
        return Vec::new();
    }
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == from) else {
        let what = format!("`{from}` is no layer: add it to the table of the tidy test");
        return vec![Violation::new(file, 0, what)];
    };
    // The kit is there for tests only, so that the compiler keeps it out of the rest.
    let may_use = |to: &str| to == from || ["base", "kit"].contains(&to) || allowed.contains(&to);
    let mut found = Vec::new();
    for (offset, to) in uses(file) {
        if !may_use(&to) {
            let what =
                format!("`{from}` may not use `{to}`: move the code, or turn the need round");
            found.push(Violation::new(file, file.line_of(offset), what));
        }
    }
    for offset in escapes(file, path) {
        let what = "leaves its layer by `super`: write `crate::`";
        found.push(Violation::new(file, file.line_of(offset), what));
    }
    found
}

/// The layers that a file names behind `crate::`, in `use` lines and in paths.
fn uses(file: &File) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for offset in file.word("crate") {
        let Some(path) = after_colons(&file.code[offset + "crate".len()..]) else { continue };
        if path.starts_with('{') {
            found.extend(group(path).into_iter().map(|name| (offset, name)));
        } else {
            found.push((offset, identifier(path).to_owned()));
        }
    }
    found
}

/// The text behind `::`, if it stands there.
fn after_colons(text: &str) -> Option<&str> {
    Some(text.trim_start().strip_prefix("::")?.trim_start())
}

/// The first names of the members of `{a::b, c::{d, e}}`.
fn group(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut is_start = false;
    for (i, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && (c == '{' || c == ',') {
            is_start = true;
        } else if is_start && !c.is_whitespace() {
            is_start = false;
            names.push(identifier(&text[i..]).to_owned());
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Where a chain of `super::` goes up to the root of the crate.
fn escapes(file: &File, path: &str) -> Vec<usize> {
    let depth = path.trim_end_matches(".rs").trim_end_matches("/mod").split('/').count();
    let modules = inline_modules(file);
    let mut found = Vec::new();
    let mut chain_end = 0;
    for offset in file.word("super") {
        if offset < chain_end {
            continue;
        }
        let mut ups = 0;
        let mut rest = &file.code[offset..];
        while let Some(behind) = rest.strip_prefix("super").and_then(after_colons) {
            ups += 1;
            rest = behind;
        }
        chain_end = file.code.len() - rest.len();
        let inside = modules.iter().filter(|module| module.contains(&offset)).count();
        if ups >= depth + inside {
            found.push(offset);
        }
    }
    found
}

/// Modules written within the file.
fn inline_modules(file: &File) -> Vec<std::ops::Range<usize>> {
    file.word("mod").filter_map(|offset| file.block_from(offset)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn breaks(path: &str, text: &str, line: usize) {
        let found = found(path, text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{path}:{line}: ")), "{found:?}");
    }

    #[track_caller]
    fn keeps(path: &str, text: &str) {
        assert_eq!(found(path, text), [""; 0]);
    }

    #[test]
    fn lower_layers_do_not_use_higher_ones() {
        breaks("src/model/row.rs", "\nuse crate::storage::Store;", 2);
        breaks("src/storage/mod.rs", "fn f() { crate::net::send() }", 1);
        breaks("src/server.rs", "use crate::model::row;", 1);
        breaks("src/ring/a.rs", "use crate::{\n    base::fs,\n    config::{a, model},\n};", 1);
        breaks("src/ring/a.rs", "use crate :: config;", 1);
        breaks("src/base/a.rs", "#[cfg(test)]\nmod tests {\n use crate::model::Row;\n}", 3);
        breaks("src/storage/a.rs", "use crate::admin::Metrics;", 1);
        breaks("src/storage/a.rs", "use crate::Node;", 1);
    }

    #[test]
    fn higher_layers_use_lower_ones() {
        keeps("src/storage/a.rs", "use crate::model::Row;\nuse crate::{base::fs, ring::Token};");
        keeps("src/thrift/a.rs", "use crate::server::{storage, admin};");
        keeps("src/admin/a.rs", "use crate::storage::Store;");
        keeps("src/main.rs", "use crate::commands;");
        keeps("src/model/a.rs", "//! See [`crate::storage`].\nconst A: &str = \"crate::net\";");
        keeps("src/model/a.rs", "pub(crate) struct Row(pub(in crate::model) u8);");
    }

    #[test]
    fn super_does_not_lead_out() {
        breaks("src/model/a.rs", "use super::super::storage::Store;", 1);
        breaks("src/model/mod.rs", "use super::storage::Store;", 1);
        keeps("src/model/a.rs", "use super::row;\nmod b { use super::super::row; }");
    }

    #[test]
    fn a_new_folder_needs_its_place() {
        breaks("src/unknown/a.rs", "", 0);
    }
}
