//! Golden scripts: stories about the behaviour of a layer, in which commands and their output are
//! read side by side. Those of a layer are in `tests/scripts/<layer>/`, and run through its public
//! interface. Those of nodetool run with the unit tests.
//!
//! Run one layer with `cargo test --test integration -- scripts::gossip`. After a change of
//! behaviour write the new output into the scripts and review the diff:
//! `UPDATE_GOLDENFILES=1 cargo test --test integration -- scripts`.

mod admin;
mod cli;
mod config;
mod coordinator;
mod cql;
mod cql_pages;
mod gossip;
mod member;
mod repair;
mod server;
mod storage;
mod stress;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Runs every script of a layer, in the order of their names, and names those that fail.
fn run_all(layer: &str, run: impl Fn(&Path)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(layer);
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut scripts: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|it| it == "script")).collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "no scripts in {}", folder.display());
    let fails = |script: &PathBuf| catch_unwind(AssertUnwindSafe(|| run(script))).is_err();
    scripts.retain(fails);
    assert!(scripts.is_empty(), "these scripts fail: {scripts:#?}");
}
