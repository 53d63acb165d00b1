//! SSTables: sorted rows in one immutable file.
//!
//! # Format, version 2
//!
//! Numbers are big-endian, varints LEB128. A file `<column family>-<generation>.sst` consists of
//!
//! ```text
//! header      "ALEXSST" and u8 version
//! blocks      data, column index and row index blocks, as they became full
//! summary     one block
//! filter      one block: the Bloom filter over the row keys (filter.rs)
//! properties  one block (properties.rs)
//! footer      u64 offset, u32 length of summary, of filter, of properties;
//!             u32 CRC32 of the footer so far; "ALEXSST" and u8 version
//! ```
//!
//! Each block is compressed and carries its own checksum (block.rs). The format is frozen: what
//! comes after it gets another number, and files of this one can be read forever. Files of version
//! 1 have no cells that 0.6 does not have.
//!
//! * **Row index blocks** hold an entry for each row, in token order, as many as `IndexInterval`
//!   says, or as make up a block (entry.rs): key and token, row deletion, number of cells. The
//!   cells of a small row stand in its entry, and nowhere else. Of another the entry tells the
//!   greatest timestamp, the last place, and the *extents*: which entries of which data blocks are
//!   the row's, and the place of the first cell of each. A reader can so leave out files, and
//!   blocks, that a slice does not touch.
//! * **Data blocks** hold the cells of all other rows as [`crate::model::cell::Cell::encode`]
//!   writes them. Several rows share a block; a row may begin in one block and go on in others.
//!   Which rows these are, and what deletes them as a whole, a block says itself (row_part.rs): all
//!   that was written can be read from data blocks and entries of small rows alone, and everything
//!   else is derived from them.
//! * **Column index blocks** hold the extents of a row that has many, in their order. Where there
//!   are several such blocks, extents of them make up the next level of a tree, up to the one root
//!   to which the row's entry points. The cost of reaching a place of a row grows with the
//!   logarithm of its width, and writing a row takes the memory of one block for each level.
//! * **The summary** holds the first key of each row index block, and is kept in memory.

pub mod block;
pub mod blocks;
pub mod cursor;
pub mod entry;
pub mod filter;
pub mod outputs;
pub mod properties;
pub mod reader;
pub mod row_part;
pub mod scan;
pub mod writer;

pub use block::Compression;
pub use blocks::{Access, Blocks};
pub use cursor::CellCursor;
pub use entry::RowEntry;
pub use outputs::{OutputOptions, Outputs, SplitWriter, WrittenFile, discard};
pub use properties::Properties;
pub use reader::SsTable;
pub use writer::{SsTableWriter, WriterOptions};

/// First and last bytes of every file.
const MAGIC: &[u8; 7] = b"ALEXSST";

/// The version that is written. Earlier ones are read.
const VERSION: u8 = 2;

/// Bytes of the header.
const HEADER_LENGTH: u64 = 8;

/// Bytes of the footer.
const FOOTER_LENGTH: usize = 3 * 12 + 4 + 8;

#[cfg(test)]
pub(in crate::storage) mod tests;
