//! Parts of documents that come from tables in the code.

use std::fs;
use std::path::Path;

/// Fails unless the part of a document between the lines `<!-- NAME -->` and `<!-- end -->` is this
/// text. With `UPDATE_GOLDENFILES=1` writes the text there.
pub(crate) fn check_part(document: &str, name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let old = fs::read_to_string(&path).unwrap();
    let begin = format!("<!-- {name} -->\n");
    let (before, rest) = old.split_once(&begin).unwrap_or_else(|| panic!("{begin} is missing"));
    let (part, after) = rest.split_once("<!-- end -->").expect("the part ends");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(&path, format!("{before}{begin}{text}<!-- end -->{after}")).unwrap();
        return;
    }
    assert!(part == text, "{document} differs from the code: run with UPDATE_GOLDENFILES=1");
}
