//! Parts of documents that come from tables in the code.

use std::fs;
use std::path::Path;

/// A part of a document, between the lines `<!-- NAME -->` and `<!-- end -->`, with what stands
/// before and after it.
pub(crate) fn part(document: &str, name: &str) -> [String; 3] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = fs::read_to_string(path).unwrap();
    let begin = format!("<!-- {name} -->\n");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{begin} is missing"));
    let (part, after) = rest.split_once("<!-- end -->").expect("the part ends");
    [format!("{before}{begin}"), part.to_owned(), format!("<!-- end -->{after}")]
}

/// Fails unless a part of a document is this text. With `UPDATE_GOLDENFILES=1` writes the text
/// there.
pub(crate) fn check_part(document: &str, name: &str, text: &str) {
    let [before, part, after] = part(document, name);
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
        fs::write(path, before + text + &after).unwrap();
        return;
    }
    assert!(part == text, "{document} differs from the code: run with UPDATE_GOLDENFILES=1");
}
