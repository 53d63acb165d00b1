//! Bytes to trees.

use super::{
    ARRAY, BIG_INTEGER, BYTES, CLASS, Class, END, FIRST_NUMBER, INNER, LEAF, NULL, OBJECT,
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

/// Fault of an encoded tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TreeError {
    /// The bytes are not a stream of a tree.
    #[error("byte {0} does not fit the format of a Merkle tree")]
    Malformed(usize),
    /// No node of 0.6 makes a tree of this depth or number of leaves.
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

/// Reads a tree of any shape. Where a range is divided at a token that does not exist here (a
/// string with half a character, as halving in Java makes them) two leaves become one.
pub(crate) fn decode(bytes: &[u8], partitioner: Partitioner) -> Result<MerkleTree, TreeError> {
    let mut reader = Reader { reader: ByteReader::new(bytes), known: Vec::new() };
    let head = reader.reader.u32()?;
    reader.check(head == STREAM_HEAD)?;
    reader.object(&[&TREE])?;
    // Depth, most leaves and leaves are not needed.
    reader.reader.take(1 + 8 + 8)?;
    let leaves = reader.leaves(partitioner)?;
    reader.check(reader.reader.is_empty())?;
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
    MerkleTree::of_leaves(partitioner, &splits, hashes).ok_or(TreeError::Order)
}

/// A numbered part of the stream.
#[derive(Clone, Copy)]
enum Known<'a> {
    Class(&'static Class),
    /// A text as its field, or an array: by its first byte.
    Bytes(u8, &'a [u8]),
    Object,
}

struct Reader<'a> {
    reader: ByteReader<'a>,
    known: Vec<Known<'a>>,
}

/// An inner node whose children are being read.
enum Begun {
    /// Its left child is being read.
    Left,
    /// Its right child is being read, after this leaf.
    Right(usize),
}

impl<'a> Reader<'a> {
    fn check(&self, fits: bool) -> Result<(), TreeError> {
        if fits { Ok(()) } else { Err(TreeError::Malformed(self.reader.position())) }
    }

    fn expect(&mut self, byte: u8) -> Result<(), TreeError> {
        let fits = self.reader.u8()? == byte;
        self.check(fits)
    }

    /// Reads the target of a reference, after its first byte.
    fn reference(&mut self) -> Result<Known<'a>, TreeError> {
        let place = self.reader.u32()?.checked_sub(FIRST_NUMBER).map(|place| place as usize);
        let known = place.and_then(|place| self.known.get(place));
        known.copied().ok_or(TreeError::Malformed(self.reader.position()))
    }

    /// Reads one of these classes.
    fn class(&mut self, allowed: &[&'static Class]) -> Result<&'static Class, TreeError> {
        let class = match self.reader.u8()? {
            REFERENCE => match self.reference()? {
                Known::Class(class) => Some(class),
                _ => None,
            },
            CLASS => {
                let name = self.reader.utf()?;
                let class = allowed.iter().copied().find(|class| class.name == name);
                if let Some(class) = class {
                    self.new_class(class)?;
                }
                class
            }
            _ => None,
        };
        let class = class.filter(|class| allowed.contains(class));
        class.ok_or(TreeError::Malformed(self.reader.position()))
    }

    /// Reads the first occurrence of a class after its name, with its parents. Its version may
    /// differ, its fields may not.
    fn new_class(&mut self, class: &'static Class) -> Result<(), TreeError> {
        self.reader.u64()?;
        self.known.push(Known::Class(class));
        self.expect(class.flags)?;
        let is_alike = usize::from(self.reader.u16()?) == class.fields.len();
        self.check(is_alike)?;
        for (kind, name, signature) in class.fields {
            self.expect(*kind)?;
            let is_alike = self.reader.utf()? == *name;
            self.check(is_alike)?;
            if signature.is_some() {
                self.bytes(TEXT)?;
            }
        }
        self.expect(END)?;
        match class.parent {
            Some(parent) => self.class(&[parent]).map(|_| ()),
            None => self.expect(NULL),
        }
    }

    /// Reads a text, as its field, or an array.
    fn bytes(&mut self, kind: u8) -> Result<&'a [u8], TreeError> {
        let tag = self.reader.u8()?;
        if tag == REFERENCE {
            return match self.reference()? {
                Known::Bytes(known, bytes) if known == kind => Ok(bytes),
                _ => Err(TreeError::Malformed(self.reader.position())),
            };
        }
        self.check(tag == kind)?;
        let bytes = if kind == ARRAY {
            self.class(&[&BYTES])?;
            self.reader.bytes()?
        } else {
            let field = self.reader.rest();
            let length = self.reader.prefixed()?.len();
            field.get(..2 + length).unwrap_or_default()
        };
        self.known.push(Known::Bytes(kind, bytes));
        Ok(bytes)
    }

    /// Reads the head of an object of one of these classes.
    fn object(&mut self, classes: &[&'static Class]) -> Result<&'static Class, TreeError> {
        self.expect(OBJECT)?;
        let class = self.class(classes)?;
        self.known.push(Known::Object);
        Ok(class)
    }

    /// The leaves with the tokens after them: `None` after the last one, and for tokens that do not
    /// exist here.
    fn leaves(
        &mut self,
        partitioner: Partitioner,
    ) -> Result<Vec<(TreeHash, Option<Token>)>, TreeError> {
        let mut leaves: Vec<(TreeHash, Option<Token>)> = Vec::new();
        let mut begun: Vec<Begun> = Vec::new();
        loop {
            if *self.object(&[&INNER, &LEAF])? == INNER {
                if self.reader.rest().first() == Some(&NULL) {
                    self.reader.u8()?;
                } else {
                    self.bytes(ARRAY)?;
                }
                begun.push(Begun::Left);
                if begun.len() > MOST_NODES_ABOVE {
                    return Err(TreeError::TooLarge);
                }
                continue;
            }
            let at = self.reader.position();
            let hash = TreeHash::new(self.bytes(ARRAY)?).ok_or(TreeError::Malformed(at))?;
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
        self.object(&[token_class(partitioner)])?;
        let token = match partitioner {
            Partitioner::Random => self.big_integer()?,
            Partitioner::OrderPreserving => {
                let text = ByteReader::new(self.bytes(TEXT)?).sound_utf();
                let at = self.reader.position();
                match text.map_err(|_| TreeError::Malformed(at))? {
                    Some(text) => Token::ordered(text.as_bytes().into()),
                    None => return Ok(None),
                }
            }
            Partitioner::CollatingOrderPreserving => Token::collated(self.bytes(ARRAY)?.into()),
        };
        Ok(Some(token))
    }

    fn big_integer(&mut self) -> Result<Token, TreeError> {
        self.object(&[&BIG_INTEGER])?;
        self.reader.take(4 * 4)?;
        let sign = self.reader.i32()?;
        let magnitude = self.bytes(ARRAY)?;
        self.check(magnitude.len() <= 16 && sign == i32::from(!magnitude.is_empty()))?;
        self.expect(END)?;
        let number = magnitude.iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
        Ok(Token::Random(number))
    }
}
