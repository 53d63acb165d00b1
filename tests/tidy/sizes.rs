//! How long files and functions are, and how wide lines.

use super::source::{File, Tree, Violation, identifier};

/// Without modules for tests.
const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;
const TEST_FUNCTION_LINES: usize = 100;
const LINE_CHARS: usize = 100;

pub(crate) fn files(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        let in_tests: usize =
            file.test_items().into_iter().map(|range| file.text[range].lines().count()).sum();
        let lines = file.text.lines().count() - in_tests;
        if lines > FILE_LINES {
            let what = format!("{lines} lines without tests, {FILE_LINES} are allowed: split it");
            found.push(Violation::new(file, 0, what));
        }
    }
    found
}

pub(crate) fn functions(tree: &Tree) -> Vec<Violation> {
    tree.rust().flat_map(long_functions).collect()
}

fn long_functions(file: &File) -> Vec<Violation> {
    let tests = file.test_items();
    let mut found = Vec::new();
    for offset in file.word("fn") {
        let name = identifier(file.code[offset + 2..].trim_start().trim_start_matches('$'));
        // A pointer type has no name, a trait's method may have no body.
        if name.is_empty() {
            continue;
        }
        let Some(body) = file.block_from(offset) else { continue };
        let is_test = file.is_test() || tests.iter().any(|range| range.contains(&offset));
        let allowed = if is_test { TEST_FUNCTION_LINES } else { FUNCTION_LINES };
        let line = file.line_of(offset);
        let lines = file.line_of(body.end - 1) + 1 - line;
        if lines > allowed {
            let what = format!("`{name}` has {lines} lines, {allowed} are allowed: divide it");
            found.push(Violation::new(file, line, what));
        }
    }
    found
}

pub(crate) fn widths(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.rust() {
        for (number, line) in file.lines() {
            let chars = line.chars().count();
            if chars > LINE_CHARS {
                let what = format!("{chars} characters, {LINE_CHARS} are allowed: wrap the line");
                found.push(Violation::new(file, number, what));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(rule: fn(&Tree) -> Vec<Violation>, path: &str, text: &str) -> usize {
        rule(&Tree::of(&[(path, text)])).len()
    }

    fn function(lines: usize) -> String {
        format!("fn f(\n) {{{}}}\n", "\n".repeat(lines - 2))
    }

    #[test]
    fn long_files_are_found() {
        let text = "\n".repeat(FILE_LINES);
        assert_eq!(count(files, "src/a.rs", &text), 0);
        assert_eq!(count(files, "src/a.rs", &format!("{text}\n")), 1);
        assert_eq!(count(files, "src/a/tests.rs", &format!("{text}\n")), 0);
        let tests = "#[cfg(test)]\nmod tests {\n\n}";
        assert_eq!(count(files, "src/a.rs", &format!("{text}{tests}")), 0);
        assert_eq!(count(files, "src/a.rs", &format!("{text}\n{tests}")), 1);
    }

    #[test]
    fn long_functions_are_found() {
        let allowed = function(FUNCTION_LINES);
        let long = function(FUNCTION_LINES + 1);
        assert_eq!(count(functions, "src/a.rs", &allowed), 0);
        assert_eq!(count(functions, "src/a.rs", &long), 1);
        assert_eq!(count(functions, "src/a.rs", &format!("impl A {{ {long} }}")), 1);
        assert_eq!(count(functions, "src/a.rs", &format!("trait A {{ fn a(); {long} }}")), 1);
        let inside = format!("#[cfg(test)]\nmod tests {{ {long} }}");
        assert_eq!(count(functions, "src/a.rs", &inside), 0);
        assert_eq!(count(functions, "tests/a.rs", &function(TEST_FUNCTION_LINES)), 0);
        assert_eq!(count(functions, "tests/a.rs", &function(TEST_FUNCTION_LINES + 1)), 1);
        let pointer = format!("const A: fn() = a;\n{}", "\n".repeat(FUNCTION_LINES));
        assert_eq!(count(functions, "src/a.rs", &format!("{pointer}fn b() {{}}")), 0);
    }

    #[test]
    fn the_line_is_that_of_the_function() {
        let text = format!("\n\n{}", function(FUNCTION_LINES + 1));
        assert_eq!(functions(&Tree::of(&[("src/a.rs", &text)]))[0].line, 3);
    }

    #[test]
    fn wide_lines_are_found() {
        assert_eq!(count(widths, "src/a.rs", &"ä".repeat(LINE_CHARS)), 0);
        assert_eq!(count(widths, "src/a.rs", &"ä".repeat(LINE_CHARS + 1)), 1);
        assert_eq!(count(widths, "a.md", &"a".repeat(LINE_CHARS + 1)), 0);
    }
}
