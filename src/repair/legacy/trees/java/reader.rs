//! Bytes to trees.

use super::{
    ARRAY, BIG_INTEGER, BYTES, CLASS, CLASSES, Class, END, FIRST_NUMBER, INNER, LEAF, NULL, OBJECT,
    REFERENCE, STREAM_HEAD, TEXT, TREE, token_class,
};
use crate::base::bytes::{ByteReader, Malformed};
use crate::base::java::JavaReader;
use crate::repair::compare::TreeHash;
use crate::repair::legacy::trees::tree::{MOST_DEPTH, MerkleTree};
use crate::ring::{Partitioner, Token};

/// Most leaves of a tree from outside. Nodes of 0.6 make 32768.
const MOST_LEAVES: usize = 1 << 16;

/// Most nodes above a leaf of a tree from outside.
const MOST_NODES_ABOVE: usize = MOST_DEPTH as usize + 2;

/// Why bytes are no tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::repair) enum TreeError {
    /// They are no such stream, or there is something else in it.
    #[error("byte {0} does not fit the format of a Merkle tree")]
    Malformed(usize),
    /// No node of 0.6 makes a tree so deep or of so many leaves.
    #[error("the Merkle tree is too large")]
    TooLarge,
    /// The tokens do not divide the ring.
    #[error("the tokens of the Merkle tree are not in order")]
    Order,
}

impl From<Malformed> for TreeError {
    fn from(Malformed(at): Malformed) -> Self {
        Self::Malformed(at)
    }
}

/// Reads a tree of any shape. Where its peer has divided a range at what is no token here (strings
/// with half a character, as halving in Java makes them) two leaves become one.
pub(in crate::repair) fn decode(
    bytes: &[u8],
    partitioner: Partitioner,
) -> Result<MerkleTree, TreeError> {
    let mut reader = Reader { reader: ByteReader::new(bytes), known: Vec::new() };
    if reader.reader.u32()? != STREAM_HEAD {
        return Err(TreeError::Malformed(0));
    }
    reader.object(&TREE)?;
    // Depth, most leaves and leaves: what these are shows.
    reader.reader.take(1 + 8 + 8)?;
    let leaves = reader.leaves(partitioner)?;
    if !reader.reader.is_empty() {
        return Err(TreeError::Malformed(reader.reader.position()));
    }
    let (mut splits, mut hashes) = (Vec::new(), Vec::new());
    let mut begun = TreeHash::default();
    for (hash, end) in leaves {
        begun.combine(&hash);
        if let Some(end) = end {
            splits.push(end);
            hashes.push(std::mem::take(&mut begun));
        }
    }
    hashes.push(begun);
    MerkleTree::of_leaves(partitioner, splits, hashes).ok_or(TreeError::Order)
}

/// What has a number.
#[derive(Clone, Copy)]
enum Known<'a> {
    Class(&'static Class),
    Text(&'a [u8]),
    Array(&'a [u8]),
    Object,
}

struct Reader<'a> {
    reader: ByteReader<'a>,
    known: Vec<Known<'a>>,
}

/// A node that was begun.
enum Begun {
    /// Its left child is being read.
    Left,
    /// Its right child is being read, behind this leaf.
    Right(usize),
}

impl<'a> Reader<'a> {
    fn malformed<T>(&self) -> Result<T, TreeError> {
        Err(TreeError::Malformed(self.reader.position()))
    }

    /// Reads what a reference goes to, behind its first byte.
    fn reference(&mut self) -> Result<Known<'a>, TreeError> {
        let at = self.reader.position();
        let place = self.reader.u32()?.checked_sub(FIRST_NUMBER).map(|place| place as usize);
        let known = place.and_then(|place| self.known.get(place));
        known.copied().ok_or(TreeError::Malformed(at))
    }

    /// Reads a class and those it is one of.
    fn class(&mut self) -> Result<&'static Class, TreeError> {
        let (mut first, mut child): (Option<&Class>, Option<&Class>) = (None, None);
        loop {
            let at = self.reader.position();
            let (class, is_known) = match self.reader.u8()? {
                NULL => (None, true),
                REFERENCE => match self.reference()? {
                    Known::Class(class) => (Some(class), true),
                    _ => return Err(TreeError::Malformed(at)),
                },
                CLASS => (Some(self.new_class()?), false),
                _ => return Err(TreeError::Malformed(at)),
            };
            let fits = child.map_or(class.is_some(), |child| child.parent == class);
            if !fits {
                return Err(TreeError::Malformed(at));
            }
            first = first.or(class);
            child = class;
            if let (true, Some(first)) = (is_known, first) {
                return Ok(first);
            }
        }
    }

    /// Reads a class that comes for the first time, up to that of which it is one. Its number of a
    /// version does not count, but its fields do.
    fn new_class(&mut self) -> Result<&'static Class, TreeError> {
        let at = self.reader.position();
        let name = self.reader.utf()?;
        let class = CLASSES.into_iter().find(|class| class.name == name);
        let class = class.ok_or(TreeError::Malformed(at))?;
        self.reader.u64()?;
        self.known.push(Known::Class(class));
        let is_alike = self.reader.u8()? == class.flags
            && usize::from(self.reader.u16()?) == class.fields.len();
        if !is_alike {
            return Err(TreeError::Malformed(at));
        }
        for (kind, name, signature) in class.fields {
            let at = self.reader.position();
            if self.reader.u8()? != *kind || self.reader.utf()? != *name {
                return Err(TreeError::Malformed(at));
            }
            if signature.is_some() {
                self.text()?;
            }
        }
        if self.reader.u8()? != END {
            return self.malformed();
        }
        Ok(class)
    }

    /// A text, as its field.
    fn text(&mut self) -> Result<&'a [u8], TreeError> {
        let at = self.reader.position();
        match self.reader.u8()? {
            TEXT => {
                let field = self.reader.rest();
                let length = self.reader.prefixed()?.len();
                let field = field.get(..2 + length).unwrap_or_default();
                self.known.push(Known::Text(field));
                Ok(field)
            }
            REFERENCE => match self.reference()? {
                Known::Text(field) => Ok(field),
                _ => Err(TreeError::Malformed(at)),
            },
            _ => Err(TreeError::Malformed(at)),
        }
    }

    /// Reads what stands before the values of an object of this class.
    fn object(&mut self, class: &'static Class) -> Result<(), TreeError> {
        let at = self.reader.position();
        if self.any_object()? == class { Ok(()) } else { Err(TreeError::Malformed(at)) }
    }

    fn any_object(&mut self) -> Result<&'static Class, TreeError> {
        if self.reader.u8()? != OBJECT {
            return self.malformed();
        }
        let class = self.class()?;
        self.known.push(Known::Object);
        Ok(class)
    }

    fn array(&mut self) -> Result<&'a [u8], TreeError> {
        let at = self.reader.position();
        match self.reader.u8()? {
            ARRAY if self.class()? == &BYTES => {
                let bytes = self.reader.bytes()?;
                self.known.push(Known::Array(bytes));
                Ok(bytes)
            }
            REFERENCE => match self.reference()? {
                Known::Array(bytes) => Ok(bytes),
                _ => Err(TreeError::Malformed(at)),
            },
            _ => Err(TreeError::Malformed(at)),
        }
    }

    /// The leaves with the tokens behind them: none behind the last one, nor where it is no token
    /// of ours.
    fn leaves(
        &mut self,
        partitioner: Partitioner,
    ) -> Result<Vec<(TreeHash, Option<Token>)>, TreeError> {
        let mut leaves: Vec<(TreeHash, Option<Token>)> = Vec::new();
        let mut begun: Vec<Begun> = Vec::new();
        loop {
            let at = self.reader.position();
            let class = self.any_object()?;
            if *class == INNER {
                if self.reader.rest().first() == Some(&NULL) {
                    self.reader.u8()?;
                } else {
                    self.array()?;
                }
                begun.push(Begun::Left);
                if begun.len() > MOST_NODES_ABOVE {
                    return Err(TreeError::TooLarge);
                }
                continue;
            }
            if *class != LEAF {
                return Err(TreeError::Malformed(at));
            }
            let hash = TreeHash::new(self.array()?).ok_or(TreeError::Malformed(at))?;
            leaves.push((hash, None));
            if leaves.len() > MOST_LEAVES {
                return Err(TreeError::TooLarge);
            }
            // The leaf ends all nodes of which it is the last child.
            loop {
                match begun.pop() {
                    None => return Ok(leaves),
                    Some(Begun::Left) => {
                        begun.push(Begun::Right(leaves.len() - 1));
                        break;
                    }
                    Some(Begun::Right(leaf)) => leaves[leaf].1 = self.token(partitioner)?,
                }
            }
        }
    }

    fn token(&mut self, partitioner: Partitioner) -> Result<Option<Token>, TreeError> {
        let at = self.reader.position();
        self.object(token_class(partitioner))?;
        let token = match partitioner {
            Partitioner::Random => self.big_integer()?,
            Partitioner::OrderPreserving => {
                let text = ByteReader::new(self.text()?).sound_utf();
                match text.map_err(|_| TreeError::Malformed(at))? {
                    Some(text) => Token::ordered(text.as_bytes().into()),
                    None => return Ok(None),
                }
            }
            Partitioner::CollatingOrderPreserving => Token::collated(self.array()?.into()),
        };
        Ok(Some(token))
    }

    fn big_integer(&mut self) -> Result<Token, TreeError> {
        let at = self.reader.position();
        self.object(&BIG_INTEGER)?;
        self.reader.take(4 * 4)?;
        let sign = self.reader.i32()?;
        let magnitude = self.array()?;
        let fits = magnitude.len() <= 16 && sign == i32::from(!magnitude.is_empty());
        if !fits || self.reader.u8()? != END {
            return Err(TreeError::Malformed(at));
        }
        let number = magnitude.iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
        Ok(Token::Random(number))
    }
}
