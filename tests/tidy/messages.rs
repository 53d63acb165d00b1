//! Messages of the server that documents quote: the source must still have them.
//!
//! A quotation is code at the front of an item of a list, as in `` - `cannot read …`: ``. Further
//! ones follow after a comma.

use super::source::{File, Tree, Violation};

const DOCUMENTS: [&str; 2] = ["docs/operations.md", "docs/troubleshooting.md"];

/// Stands for what differs from message to message.
const VARIABLE: char = '…';

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let is_source = |file: &&File| file.path.starts_with("src/") && !file.is_test();
    let sources: Vec<String> = tree.rust().filter(is_source).map(|it| joined(&it.text)).collect();
    let has = |message: &str| sources.iter().any(|source| contains(source, message));
    let documents = DOCUMENTS.iter().filter_map(|path| tree.get(path));
    let mut found = Vec::new();
    for document in documents {
        for (line, message) in quotations(document) {
            if !has(&message) {
                let what = format!("`{message}` is no message of the server: correct or remove it");
                found.push(Violation::new(document, line, what));
            }
        }
    }
    found
}

/// Whether a text has the fixed parts of a message, in their order.
fn contains(source: &str, message: &str) -> bool {
    let mut rest = Some(source);
    for part in message.split(VARIABLE) {
        rest = rest.and_then(|rest| Some(rest.split_once(part)?.1));
    }
    rest.is_some()
}

/// A source without the breaks inside its strings, and quotes as they are printed.
fn joined(source: &str) -> String {
    let mut lines = source.split("\\\n");
    let mut text = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        text.push_str(line.trim_start());
    }
    text.replace("\\\"", "\"")
}

/// The messages that a document quotes, with the lines of their items.
fn quotations(document: &File) -> Vec<(usize, String)> {
    let mut items: Vec<(usize, String)> = Vec::new();
    let mut in_item = false;
    for (number, line) in document.lines() {
        if let Some(text) = line.strip_prefix("- ") {
            items.push((number, text.to_owned()));
            in_item = true;
        } else if let (Some(text), true) = (line.strip_prefix("  "), in_item) {
            let (_, item) = items.last_mut().expect("an item goes on");
            item.push(' ');
            item.push_str(text);
        } else {
            in_item = false;
        }
    }
    let split = |(number, item): (usize, String)| {
        let mut rest = item.as_str();
        let mut messages = Vec::new();
        while let Some((message, after)) = rest.strip_prefix('`').and_then(|it| it.split_once('`'))
        {
            messages.push((number, message.to_owned()));
            rest = after.strip_prefix(", ").unwrap_or_default();
        }
        messages
    };
    items.into_iter().flat_map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_are_not_in_the_source_are_found() {
        let document = "- `cannot read … of a`, `cannot\n  read … of b`: text `no message`\n\
                        - `it said \"no\" to …`: text\n- `cannot … say`: `no message`\n\
                        \n  `no message`\n- text `no message`\n";
        let source = "a(\"cannot read {path} of \\\n    a: {error}\");\n\
                      b(\"it said \\\"no\\\" to {them}\");";
        let tree = Tree::of(&[
            (DOCUMENTS[1], document),
            ("src/a.rs", source),
            ("src/b.rs", "c(\"say what you cannot \");"),
            ("src/b/tests.rs", "c(\"cannot read {path} of b\")"),
        ]);
        let found: Vec<_> = check(&tree).iter().map(|it| (it.line, it.what.clone())).collect();
        let lines: Vec<_> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 4], "{found:?}");
        assert!(found[0].1.starts_with("`cannot read … of b`"), "{found:?}");
    }
}
