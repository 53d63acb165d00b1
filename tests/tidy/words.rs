//! Words that stay out of the tree, and code in comments.
//!
//! The words that no file may have are put together from parts here, because this file is
//! searched like any other.

use super::source::{File, Tree, Violation, words_in};

/// Calls that no code may make, anywhere.
const UNFINISHED: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

/// Calls that the library leaves to `log`.
const PRINTING: [&str; 4] = ["println!", "eprintln!", "print!", "eprint!"];

/// Notes to oneself.
const NOTES: [[&str; 2]; 3] = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]];

/// Beginnings of lines that a merge leaves where it cannot decide.
const CONFLICTS: [[&str; 2]; 2] = [["<<<<", "<<< "], [">>>>", ">>> "]];

/// Paths of somebody's machine, and of material that is not part of the project.
const PLACES: [[&str; 2]; 6] = [
    ["/wo", "rk/"],
    ["/tmp/", "wt"],
    ["/ho", "me/"],
    ["/Us", "ers/"],
    ["/ro", "ot/"],
    ["sha", "red/"],
];

pub(crate) fn forbidden(tree: &Tree) -> Vec<Violation> {
    let mut found: Vec<Violation> = tree.files().iter().flat_map(in_text).collect();
    found.extend(tree.rust().flat_map(in_code));
    found
}

fn in_text(file: &File) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        for word in NOTES.map(|parts| parts.concat()) {
            if words_in(line, &word).next().is_some() {
                let what = format!("`{word}`: do it now, or open an issue");
                found.push(Violation::new(file, number, what));
            }
        }
        if CONFLICTS.iter().any(|parts| line.starts_with(&parts.concat())) {
            found.push(Violation::new(file, number, "a conflict of a merge: decide it"));
        }
        for place in PLACES.map(|parts| parts.concat()) {
            if is_place(line, &place) {
                let what = format!("`{place}`: name nothing that only one machine has");
                found.push(Violation::new(file, number, what));
            }
        }
    }
    found
}

/// A relative path or an address may go through a folder of that name.
fn is_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(i, _)| {
        let before = line[..i].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '~'))
    })
}

fn in_code(file: &File) -> Vec<Violation> {
    let tests = file.test_items();
    let is_test =
        |offset: usize| file.is_test() || tests.iter().any(|range| range.contains(&offset));
    let is_library = file.path.starts_with("src/")
        && file.path != "src/main.rs"
        && !file.path.starts_with("src/commands");
    let mut found = Vec::new();
    let mut report = |offset: usize, what: String| {
        found.push(Violation::new(file, file.line_of(offset), what));
    };
    for word in UNFINISHED {
        file.word(word).for_each(|at| report(at, format!("`{word}`: finish it")));
    }
    for at in file.word(".unwrap()").filter(|at| !is_test(*at)) {
        report(at, "`unwrap()`: handle it, or `expect` and say why it cannot fail".into());
    }
    for word in PRINTING.iter().filter(|_| is_library) {
        for at in file.word(word).filter(|at| !is_test(*at)) {
            report(at, format!("`{word}`: the library speaks through `log`"));
        }
    }
    found
}

pub(crate) fn commented_out_code(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.rust() {
        for ((number, line), code) in file.lines().zip(file.code.lines()) {
            let comment = line[code.trim_end().len()..].trim_start();
            if comment.strip_prefix("//").is_some_and(|text| is_code(text.trim())) {
                let what = "code in a comment: delete it, history has it";
                found.push(Violation::new(file, number, what));
            }
        }
    }
    found
}

/// Whether a plain comment reads as Rust. Documentation may show code, and is not looked at.
fn is_code(comment: &str) -> bool {
    if comment.starts_with(['/', '!']) {
        return false;
    }
    let is_statement = comment.ends_with(';') && comment.contains(['(', '=', ':', '!', '.']);
    let opens = comment.ends_with('{') && !comment.contains('`');
    let is_call = comment.ends_with("();") || comment.ends_with(")?;");
    let closes = matches!(comment, "}" | "};" | "})" | "});" | "},");
    let is_item = ["let ", "use ", "pub ", "mod ", "return "]
        .iter()
        .any(|word| comment.strip_prefix(word).is_some_and(|rest| rest.ends_with(';')));
    let is_attribute = comment.starts_with("#[");
    is_statement || opens || is_call || closes || is_item || is_attribute
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        forbidden(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn notes_are_found_in_every_file() {
        for word in NOTES.map(|parts| parts.concat()) {
            assert_eq!(count("docs/a.md", &format!("a {word}: b")), 1);
            assert_eq!(count("src/a.rs", &format!("// {word}")), 1);
            assert_eq!(count("a.sh", &format!("# a{word}")), 0);
        }
    }

    #[test]
    fn conflicts_of_merges_are_found() {
        let [ours, theirs] = CONFLICTS.map(|parts| parts.concat());
        assert_eq!(count("docs/a.md", &format!("{ours}ours\n=======\n{theirs}theirs\n")), 2);
        assert_eq!(count("src/a.rs", "/// >>>> a"), 0);
    }

    #[test]
    fn places_are_found_in_every_file() {
        for place in PLACES.map(|parts| parts.concat()) {
            assert_eq!(count("docs/a.md", &format!("see `{place}a`")), 1, "{place}");
            assert_eq!(count("docs/a.md", &format!("see `a-{place}a`")), 0, "{place}");
        }
    }

    #[test]
    fn unfinished_code_is_found() {
        assert_eq!(count("src/a.rs", "fn f() { todo!() }"), 1);
        assert_eq!(count("tests/a.rs", "fn f() { unimplemented!(\"a\") }"), 1);
        assert_eq!(count("src/main.rs", "fn f() { dbg!(1); }"), 1);
        assert_eq!(count("src/a.rs", "const A: &str = \"todo!\"; // dbg!"), 0);
    }

    #[test]
    fn unwrap_is_for_tests() {
        let call = "fn f() { a.unwrap(); }";
        assert_eq!(count("src/a.rs", call), 1);
        assert_eq!(count("src/a.rs", &format!("#[cfg(test)]\nmod tests {{ {call} }}")), 0);
        assert_eq!(count("tests/a.rs", call), 0);
        assert_eq!(count("src/a.rs", "fn f() { a.unwrap_or(1); }"), 0);
    }

    #[test]
    fn the_library_does_not_print() {
        for word in PRINTING {
            let call = format!("fn f() {{ {word}(\"a\"); }}");
            assert_eq!(count("src/a.rs", &call), 1, "{word}");
            assert_eq!(count("src/commands/a.rs", &call), 0, "{word}");
            assert_eq!(count("src/main.rs", &call), 0, "{word}");
        }
    }

    #[test]
    fn code_in_comments_is_found() {
        let count = |text: &str| commented_out_code(&Tree::of(&[("src/a.rs", text)])).len();
        for code in ["let a = 1;", "f(1);", "if a {", "}", "use crate::a;", "a.b()?;", "#[test]"] {
            assert_eq!(count(&format!("    // {code}")), 1, "{code}");
            assert_eq!(count(&format!("f(); // {code}")), 1, "{code}");
            assert_eq!(count(&format!("/// {code}")), 0, "{code}");
            assert_eq!(count(code), 0, "{code}");
        }
        for prose in ["The first one wins;", "Use it, let it go.", "See `a()`.", "return early"] {
            assert_eq!(count(&format!("// {prose}")), 0, "{prose}");
        }
        assert_eq!(count("let a = \"// f();\";"), 0);
    }
}
