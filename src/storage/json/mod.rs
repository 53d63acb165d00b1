//! Rows as JSON, in the shape of `sstable2json` of 0.6.
//!
//! One row in a line, in token order. Names and values are hexadecimal digits:
//!
//! ```json
//! {
//!   "user1": [["6e616d65", "416461", 1000, false], ["7061", "6affc2fd", 2000, true]],
//!   "user2": [{"deletedAt": 5000, "localDeletionTime": 1795146621}]
//! }
//! ```
//!
//! A column is its name, its value, its timestamp and whether it is deleted; the value of a deleted
//! one is its local deletion time. In a super column family the row is an object:
//!
//! ```json
//! {
//!   "row": { "73": {"deletedAt": -9223372036854775808, "subColumns": [["63", "76", 1, false]]}}
//! }
//! ```
//!
//! What 0.6 could not express is added where there is something to say, and only there:
//!
//! * the deletion of a row, as the first element of its array, or as the first members of its
//!   object: `"deletedAt"` and `"localDeletionTime"`. No super column can have these names, since
//!   they are not hexadecimal. The `json2sstable` of 0.6 refuses such rows rather than forget the
//!   deletion; the export can leave them out for it;
//! * the local deletion time of a super column, as its member `"localDeletionTime"`, which
//!   `json2sstable` of 0.6 does not look at;
//! * for a value that expires, seconds to live and the second of its end as fifth and sixth element
//!   of its column;
//! * the deletion of a prefix or of a range of columns, as a column with `"prefix"` or `"range"` in
//!   place of the fourth element. The name of a range are its bounds, as they are stored; in a
//!   super column family it stands in the super column without a name;
//! * row keys are escaped as JSON asks for. A key that is not UTF-8 is written as `"\u0000hex:"`
//!   and its bytes in hexadecimal digits; so is one that itself begins like this.

/// The fourth value of a column that deletes a prefix, or a range, of columns.
const PREFIX: &str = "prefix";
const RANGE: &str = "range";

mod export;
mod import;
mod parse;
mod runs;
#[cfg(test)]
mod tests;
mod text;

pub use export::{ExportError, Exported, Selection, Shape, export};
pub use import::{ImportError, Imported, Importer};
pub use text::{key_text, parse_key};
