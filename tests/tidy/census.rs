//! The size of the tree beside what it may be: code lines of each folder, error types, public
//! types, words of documents. The budgets are a table, so that growth is a line in a diff.
//!
//! Code lines leave out blank lines, comments and tests; tables (csv, toml) below `src/` count.
//! Words of documents leave out the parts generated from tables in the code.

use super::source::{File, Tree, Violation, words_in};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where the budgets are: `what,budget,goal`, comments behind `#`.
pub(crate) const BUDGETS: &str = "tests/tidy/budgets.csv";

/// Extensions of tables that count as code.
const TABLES: [&str; 2] = ["csv", "toml"];

/// Counts of the whole tree by name: folders of `src/` and the totals.
pub(crate) fn count(tree: &Tree) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut add = |what: &str, count: usize| *counts.entry(what.to_owned()).or_default() += count;
    for file in tree.files() {
        let lines = Lines::of(file);
        add("tests and benches", lines.tests);
        if let Some(path) = file.path.strip_prefix("src/") {
            let folder = path.split_once('/').map_or("src", |(folder, _)| folder);
            add(folder, lines.production);
            add("production", lines.production);
        }
        add("error types", in_production(file, error_types));
        add("public types", in_production(file, public_types));
        if file.path.starts_with("docs/") {
            add("words in docs", written_words(&file.text));
        }
    }
    counts
}

/// Counts the words of a document, except generated parts: those between `<!-- name -->` and
/// `<!-- end -->`.
fn written_words(text: &str) -> usize {
    let mut is_generated = false;
    let mut words = 0;
    for line in text.lines() {
        let marker = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        match marker {
            Some(name) => is_generated = name != "end",
            None if is_generated => {}
            None => words += line.split_whitespace().count(),
        }
    }
    words
}

/// The table of counts, budgets and goals, for people.
pub(crate) fn table(tree: &Tree) -> String {
    let counts = count(tree);
    let mut text = format!("{:<20}{:>8}{:>8}{:>8}\n", "", "now", "budget", "goal");
    for Budget { what, allowed, goal } in budgets(tree) {
        let now = counts.get(&what).copied().unwrap_or_default();
        writeln!(text, "{what:<20}{now:>8}{allowed:>8}{goal:>8}").expect("a string takes all");
    }
    text
}

/// Counts above their budgets, and rows of the table that fit nothing.
pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let counts = count(tree);
    let budgets = budgets(tree);
    let violation = |what| Violation { path: BUDGETS.to_owned(), line: 0, what };
    let mut found = Vec::new();
    for (what, now) in &counts {
        match budgets.iter().find(|it| it.what == *what) {
            Some(Budget { allowed, .. }) if now > allowed => {
                let text = format!("`{what}`: {now}, {allowed} are allowed: remove, or raise it");
                found.push(violation(text));
            }
            Some(_) => {}
            None => found.push(violation(format!("`{what}` ({now}) has no budget: add a row"))),
        }
    }
    let is_gone = |it: &&Budget| !counts.contains_key(&it.what);
    let gone = budgets.iter().filter(is_gone);
    found.extend(gone.map(|it| violation(format!("`{}` is not in the tree", it.what))));
    found
}

/// A row of the table.
struct Budget {
    what: String,
    allowed: usize,
    goal: usize,
}

fn budgets(tree: &Tree) -> Vec<Budget> {
    let text = tree.get(BUDGETS).map(|file| file.text.as_str()).unwrap_or_default();
    let rows = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let row = |row: &str| {
        let mut fields = row.split(',').map(str::trim);
        let what = fields.next().expect("a row has a name").to_owned();
        let mut number = || fields.next().and_then(|it| it.parse().ok()).expect("name,budget,goal");
        Budget { what, allowed: number(), goal: number() }
    };
    rows.filter(|it| !it.is_empty()).map(row).collect()
}

/// Code lines of one file.
#[derive(Default)]
struct Lines {
    production: usize,
    tests: usize,
}

impl Lines {
    fn of(file: &File) -> Self {
        let is_table = file.path.starts_with("src/") && TABLES.contains(&file.extension());
        if file.extension() != "rs" && !is_table {
            return Self::default();
        }
        let comment = if is_table { "#" } else { "//" };
        let count = |text: &str| {
            let lines = text.lines().map(str::trim);
            lines.filter(|line| !line.is_empty() && !line.starts_with(comment)).count()
        };
        let all = count(&file.text);
        if file.is_test() {
            return Self { production: 0, tests: all };
        }
        let tests = file.test_items().into_iter().map(|range| count(&file.text[range])).sum();
        Self { production: all - tests, tests }
    }
}

/// Counts something in the code of a file that is not for tests.
fn in_production(file: &File, count: fn(&str) -> usize) -> usize {
    if file.is_test() || !file.path.starts_with("src/") {
        return 0;
    }
    let in_tests: usize = file.test_items().into_iter().map(|it| count(&file.code[it])).sum();
    count(&file.code) - in_tests
}

fn error_types(code: &str) -> usize {
    let derives = words_in(code, "derive").filter(|start| {
        let list = code[*start..].split(']').next().unwrap_or_default();
        words_in(list, "Error").next().is_some()
    });
    let by_hand = words_in(code, "Error for").count();
    derives.count() + by_hand
}

fn public_types(code: &str) -> usize {
    let kinds = ["pub struct", "pub enum", "pub trait", "pub type"];
    kinds.iter().map(|kind| words_in(code, kind).count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "//! Text.\n\nuse a::Error;\n\n/// Text.\n#[derive(Debug, Error)]\n\
        pub struct A {\n    b: u8,\n}\n\n#[cfg(test)]\nmod tests {\n    pub enum C {}\n}\n";

    const DOCUMENT: &str = "one two\n<!-- rows -->\n| a | b |\n<!-- end -->\nthree\n";

    fn tree(budgets: &str) -> Tree {
        Tree::of(&[("src/a/b.rs", FILE), ("docs/a.md", DOCUMENT), (BUDGETS, budgets)])
    }

    #[test]
    fn comments_tests_and_generated_words_do_not_count() {
        let counts = count(&tree(""));
        assert_eq!((counts["a"], counts["production"], counts["tests and benches"]), (5, 5, 4));
        assert_eq!((counts["error types"], counts["public types"]), (1, 1));
        assert_eq!(counts["words in docs"], 3);
    }

    #[test]
    fn what_is_above_its_budget_is_found() {
        let rest = "production,5,5\ntests and benches,4,4\nerror types,1,1\npublic types,1,1\n";
        let found = |row: &str| check(&tree(&format!("{rest}words in docs,3,3\n{row}"))).len();
        assert_eq!(found("a,5,4  # as it is"), 0);
        assert_eq!(found("a,4,4"), 1);
        assert_eq!(found(""), 1, "a folder without a budget");
        assert_eq!(found("a,5,4\nb,1,1"), 1, "a budget without a folder");
    }
}
