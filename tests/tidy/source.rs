//! The files of the tree, and enough of Rust's grammar to tell code from comments and strings.

use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Names of what is not ours, wherever it is.
const SKIPPED: [&str; 4] = [".git", ".venv", "__pycache__", "target"];

/// Where a server that was started here keeps its data.
const SERVER_DATA: &str = "data";

/// Files that are text and ours to write; recorded data in other formats is left alone.
const TEXT: [&str; 14] = [
    "rs", "md", "toml", "sh", "py", "rb", "yml", "yaml", "html", "css", "js", "thrift", "xml",
    "csv",
];

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Path from the root of the tree.
    pub path: String,
    /// From 1; 0 for the whole file.
    pub line: usize,
    /// The fault and what to do.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(file: &File, line: usize, what: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// All text files below a root.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: Vec<File>,
    /// Paths of everything, also of what is no text.
    paths: Vec<String>,
}

impl Tree {
    /// The tree that this test was built from.
    pub(crate) fn load() -> Self {
        let mut tree = Self::default();
        tree.add_folder(Path::new(env!("CARGO_MANIFEST_DIR")), "");
        tree.paths.sort();
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree
    }

    /// A tree for trying a rule: paths and contents.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        Self {
            paths: files.iter().map(|(path, _)| (*path).to_owned()).collect(),
            files: files.iter().map(|(path, text)| File::new(path, text)).collect(),
        }
    }

    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.extension() == "rs")
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file or folder of that path is there.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        self.paths.iter().any(|other| other == path || other.starts_with(&folder))
    }

    fn add_folder(&mut self, folder: &Path, prefix: &str) {
        for entry in fs::read_dir(folder).expect("the tree can be read") {
            let entry = entry.expect("the tree can be read");
            let name = entry.file_name().into_string().expect("names of ours are UTF-8");
            let path = format!("{prefix}{name}");
            if SKIPPED.contains(&name.as_str()) || path == SERVER_DATA {
                continue;
            }
            if entry.path().is_dir() {
                self.add_folder(&entry.path(), &format!("{path}/"));
                continue;
            }
            let extension = extension(&path);
            if (extension.is_empty() || TEXT.contains(&extension))
                && let Ok(text) = fs::read_to_string(entry.path())
            {
                self.files.push(File::new(&path, &text));
            }
            self.paths.push(path);
        }
    }
}

/// One text file.
#[derive(Debug)]
pub(crate) struct File {
    /// Path from the root of the tree.
    pub path: String,
    /// As it is on disk.
    pub text: String,
    /// For Rust: the text with blanks in place of comments and of what is in quotes, so that
    /// offsets and lines are the same. Otherwise empty.
    pub code: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = if extension(path) == "rs" { blank(text) } else { String::new() };
        Self { path: path.into(), text: text.into(), code }
    }

    pub(crate) fn extension(&self) -> &str {
        extension(&self.path)
    }

    /// Lines from 1, with their numbers.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// The line of an offset, from 1.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        self.text[..offset].matches('\n').count() + 1
    }

    /// Whether the whole file is about tests.
    pub(crate) fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.starts_with("benches/")
            || self.path.ends_with("/tests.rs")
            || self.path.contains("/tests/")
    }

    /// Where the modules, functions and the like are that exist for tests only.
    pub(crate) fn test_items(&self) -> Vec<Range<usize>> {
        let attributes = self.code.match_indices("#[cfg(test)]");
        attributes
            .filter_map(|(start, attribute)| {
                let block = self.block_from(start + attribute.len())?;
                Some(start..block.end)
            })
            .collect()
    }

    /// The first block in braces from an offset on, unless a semicolon comes before it.
    pub(crate) fn block_from(&self, offset: usize) -> Option<Range<usize>> {
        let mut nested = 0_usize;
        let mut braces = 0_usize;
        let mut open = None;
        for (i, byte) in self.code.bytes().enumerate().skip(offset) {
            match byte {
                b'(' | b'[' if open.is_none() => nested += 1,
                b')' | b']' if open.is_none() => nested = nested.saturating_sub(1),
                b';' if open.is_none() && nested == 0 => return None,
                b'{' => {
                    open = open.or(Some(i));
                    braces += 1;
                }
                b'}' => {
                    braces = braces.checked_sub(1)?;
                    if braces == 0 {
                        return Some(open?..i + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Where a word stands in the code, as a word of its own.
    pub(crate) fn word<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        words_in(&self.code, word)
    }
}

/// The extension of a path, empty if there is none.
fn extension(path: &str) -> &str {
    Path::new(path).extension().and_then(|it| it.to_str()).unwrap_or_default()
}

/// Where a word stands in a text, with no letter, digit or underscore beside it.
pub(crate) fn words_in<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(i, _)| i).filter(move |&i| {
        let before = text[..i].chars().next_back();
        let behind = text[i + word.len()..].chars().next();
        // What begins or ends with a sign is a word there in any case.
        let starts = word.starts_with(is_part) && before.is_some_and(is_part);
        let ends = word.ends_with(is_part) && behind.is_some_and(is_part);
        !starts && !ends
    })
}

/// The identifier at the start of a text.
pub(crate) fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Replaces comments and the inside of literals by blanks, byte for byte; newlines stay.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut i = 0;
    while i < bytes.len() {
        let (end, quotes) = match bytes[i] {
            b'/' if bytes[i..].starts_with(b"//") => (line_end(bytes, i), 0),
            b'/' if bytes[i..].starts_with(b"/*") => (comment_end(bytes, i), 0),
            b'"' => (string_end(bytes, i), 1),
            b'\'' => match char_end(bytes, i) {
                Some(end) => (end, 1),
                None => (i + 1, 1),
            },
            b'r' if i == 0 || !is_identifier(bytes[i - 1]) || bytes[i - 1] == b'b' => {
                match raw_string_end(bytes, i) {
                    Some(end) => (end, 0),
                    None => (i + 1, 1),
                }
            }
            _ => (i + 1, 1),
        };
        for byte in &mut code[i + quotes..end.saturating_sub(quotes).max(i + quotes)] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        i = end;
    }
    String::from_utf8(code).expect("whole literals and comments are blanked")
}

fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn line_end(bytes: &[u8], start: usize) -> usize {
    bytes[start..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| start + n)
}

/// Block comments nest.
fn comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut i = start;
    while i < bytes.len() {
        if bytes[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if bytes[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut i = start + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

/// `None` for a lifetime.
fn char_end(bytes: &[u8], start: usize) -> Option<usize> {
    let body = bytes.get(start + 1..)?;
    if body.first() == Some(&b'\\') {
        let escaped = body.get(2..)?.iter().position(|b| *b == b'\'')?;
        return Some(start + 1 + 2 + escaped + 1);
    }
    let len = std::str::from_utf8(&body[..body.len().min(4)])
        .or_else(|e| std::str::from_utf8(&body[..e.valid_up_to()]))
        .ok()?
        .chars()
        .next()?
        .len_utf8();
    (body.get(len) == Some(&b'\'')).then_some(start + 1 + len + 1)
}

/// `None` for what only starts like a raw string.
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let hashes = bytes[start + 1..].iter().take_while(|b| **b == b'#').count();
    if bytes.get(start + 1 + hashes) != Some(&b'"') {
        return None;
    }
    let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let body = start + 2 + hashes;
    let end = bytes[body..].windows(close.len()).position(|w| w == close)?;
    Some(body + end + close.len())
}

#[test]
fn comments_and_literals_are_blanked() {
    let blanked = |text: &str| File::new("a.rs", text).code;
    assert_eq!(blanked("a // b\nc"), "a     \nc");
    assert_eq!(blanked("a /* b /* c */ d */ e"), "a                   e");
    let literals = r#"f("a // \" b", 'x', '"', '\'', 'ä')"#;
    assert_eq!(blanked(literals), r#"f("         ", ' ', ' ', '  ', '  ')"#);
    assert_eq!(blanked("r#\"a\"b\"# + br\"c\" + r"), "         + b     + r");
    assert_eq!(blanked("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
    assert_eq!(blanked("for_var\"a\""), "for_var\" \"");
}

#[test]
fn blocks_are_found() {
    let block = |text: &str| {
        let file = File::new("a.rs", text);
        file.block_from(0).map(|range| text[range].to_owned())
    };
    assert_eq!(block("fn f(a: [u8; 2]) { g({}); \"}\" } }").unwrap(), "{ g({}); \"}\" }");
    assert_eq!(block("fn f(); fn g() {}"), None);
    assert_eq!(block("fn f() {"), None);
}

#[test]
fn test_items_are_found() {
    for item in ["mod tests", "pub(super) mod tests", "#[allow(a)]\nmod tests", "fn f()"] {
        let text = format!("fn a() {{}}\n#[cfg(test)]\n{item} {{\n let b;\n}}\nfn c() {{}}");
        let file = File::new("src/a.rs", &text);
        let [range] = &file.test_items()[..] else { panic!("{item} was not found") };
        let found = &text[range.clone()];
        assert!(found.contains("let b"), "{found}");
        assert!(!found.contains("fn a") && !found.contains("fn c"), "{found}");
    }
    for elsewhere in ["mod tests;", "use a::b;"] {
        let file = File::new("src/a.rs", &format!("#[cfg(test)]\n{elsewhere}\nfn a() {{}}"));
        assert!(file.test_items().is_empty(), "{elsewhere}");
    }
}

#[test]
fn words_stand_alone() {
    let found = |text: &str, word: &str| words_in(text, word).count();
    assert_eq!(found("fn fnord(my_fn: fn())", "fn"), 2);
    assert_eq!(found("a.unwrap() unwrap_or()", ".unwrap()"), 1);
}

#[test]
fn folders_of_a_tree_exist() {
    let tree = Tree::of(&[("docs/a.md", "")]);
    assert!(tree.contains("docs") && tree.contains("docs/a.md") && !tree.contains("doc"));
}
