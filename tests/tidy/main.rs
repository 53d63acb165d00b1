//! House rules that a compiler does not know: which layer may use which, how long files and
//! functions are, which words stay out of the tree, that nothing is dead and no link is broken.
//!
//! Every rule is a function from the tree to what breaks it, so that each can be tried on a tree
//! of a few lines: a rule that finds nothing there could not fail on ours either.

mod census;
mod documents;
mod layers;
mod messages;
mod modules;
mod named_tests;
mod sizes;
mod source;
mod words;

use source::{Tree, Violation};

/// Says for each violation where it is and what to do.
fn check(rule: impl Fn(&Tree) -> Vec<Violation>) {
    let violations = rule(&Tree::load());
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "\n\n{}\n\n", lines.join("\n"));
}

/// An empty or half-read tree would keep every rule.
#[test]
fn the_whole_tree_is_read() {
    let tree = Tree::load();
    for path in ["src/lib.rs", "src/base/fs.rs", "tests/tidy/main.rs", "Cargo.toml", "README.md"] {
        assert!(tree.get(path).is_some(), "{path} was not read");
    }
    assert!(tree.get(".ci/run").is_some(), "files in hidden folders of ours count as well");
    assert!(tree.files().iter().all(|file| !file.path.starts_with("target/")));
}

#[test]
fn layers_use_only_what_is_below_them() {
    check(layers::check);
}

#[test]
fn files_are_short() {
    check(sizes::files);
}

/// `tests/count.sh` shows the table.
#[test]
fn folders_keep_their_budgets() {
    println!("{}", census::table(&Tree::load()));
    check(census::check);
}

#[test]
fn functions_are_short() {
    check(sizes::functions);
}

#[test]
fn lines_are_narrow() {
    check(sizes::widths);
}

#[test]
fn forbidden_words_stay_out() {
    check(words::forbidden);
}

#[test]
fn code_is_not_commented_out() {
    check(words::commented_out_code);
}

#[test]
fn no_file_is_dead() {
    check(modules::dead_files);
}

#[test]
fn modules_are_named_for_what_they_hold() {
    check(modules::names);
}

#[test]
fn modules_say_what_they_are_for() {
    check(modules::docs);
}

#[test]
fn links_lead_somewhere() {
    check(documents::links);
}

#[test]
fn tests_that_documents_name_are_there() {
    check(named_tests::check);
}

#[test]
fn messages_that_documents_quote_are_there() {
    check(messages::check);
}

#[test]
fn dependencies_are_explained() {
    check(documents::dependencies);
}
