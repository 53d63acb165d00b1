//! Trees to bytes.

use super::{
    ARRAY, BIG_INTEGER, BYTES, CLASS, Class, END, FIRST_NUMBER, INNER, LEAF, NULL, OBJECT,
    REFERENCE, STREAM_HEAD, TEXT, TREE, token_class,
};
use crate::base::java::{JavaWriter, TooLong};
use crate::repair::compare::TreeHash;
use crate::repair::compare::leaves::middle;
use crate::repair::legacy::trees::tree::{MOST_DEPTH, MerkleTree};
use crate::ring::{Partitioner, Token};
use std::collections::HashMap;

/// Size that 0.6 states for all its trees.
const MOST_SIZE: u64 = 32768;

/// Writes a tree byte for byte as Java does. Fails only for tokens that no halving makes.
pub(crate) fn encode(tree: &MerkleTree) -> Result<Vec<u8>, TooLong> {
    let hashes = tree.hashes();
    let bytes = Vec::with_capacity(1024 + 120 * hashes.len());
    let mut out = Writer { bytes, next: FIRST_NUMBER, known: HashMap::new(), empty_hash: None };
    out.bytes.extend_from_slice(&STREAM_HEAD.to_be_bytes());
    out.begin_object(&TREE)?;
    out.bytes.push(MOST_DEPTH);
    out.bytes.extend_from_slice(&MOST_SIZE.to_be_bytes());
    out.bytes.extend_from_slice(&(hashes.len() as u64).to_be_bytes());
    out.nodes(tree, &hashes)?;
    Ok(out.bytes)
}

/// A pending part of the stream.
enum Task<'a> {
    /// The node that has these splits below it, and covers the range between two tokens.
    Node { from: usize, to: usize, left: &'a Token, right: &'a Token },
    /// The token at which a node divides its range: after its children.
    Token(&'a Token),
}

struct Writer {
    bytes: Vec<u8>,
    /// The next number.
    next: u32,
    /// The numbers of classes and of texts, which have different names.
    known: HashMap<&'static str, u32>,
    /// The number of the one empty array that all empty leaves share.
    empty_hash: Option<u32>,
}

impl Writer {
    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn reference(&mut self, number: u32) {
        self.bytes.push(REFERENCE);
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    fn class(&mut self, class: &'static Class) -> Result<(), TooLong> {
        let mut next = Some(class);
        // A class stands within its subclass, after the fields.
        while let Some(class) = next {
            if let Some(number) = self.known.get(class_key(class)) {
                let number = *number;
                self.reference(number);
                return Ok(());
            }
            self.bytes.push(CLASS);
            self.bytes.put_utf(class.name.as_bytes())?;
            self.bytes.extend_from_slice(&class.uid.to_be_bytes());
            let number = self.number();
            self.known.insert(class_key(class), number);
            self.bytes.push(class.flags);
            self.bytes.extend_from_slice(&(class.fields.len() as u16).to_be_bytes());
            for (kind, name, signature) in class.fields {
                self.bytes.push(*kind);
                self.bytes.put_utf(name.as_bytes())?;
                if let Some(text) = signature {
                    self.signature(text)?;
                }
            }
            self.bytes.push(END);
            next = class.parent;
        }
        self.bytes.push(NULL);
        Ok(())
    }

    fn signature(&mut self, text: &'static str) -> Result<(), TooLong> {
        if let Some(number) = self.known.get(text) {
            let number = *number;
            self.reference(number);
            return Ok(());
        }
        let number = self.number();
        self.known.insert(text, number);
        self.bytes.push(TEXT);
        self.bytes.put_utf(text.as_bytes())
    }

    fn begin_object(&mut self, class: &'static Class) -> Result<(), TooLong> {
        self.bytes.push(OBJECT);
        self.class(class)?;
        self.number();
        Ok(())
    }

    fn array(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.bytes.push(ARRAY);
        self.class(&BYTES)?;
        self.number();
        self.bytes.put_bytes(bytes);
        Ok(())
    }

    fn hash(&mut self, hash: &TreeHash) -> Result<(), TooLong> {
        if !hash.as_bytes().is_empty() {
            return self.array(hash.as_bytes());
        }
        if let Some(number) = self.empty_hash {
            self.reference(number);
            return Ok(());
        }
        self.array(&[])?;
        self.empty_hash = Some(self.next - 1);
        Ok(())
    }

    fn nodes(&mut self, tree: &MerkleTree, hashes: &[TreeHash]) -> Result<(), TooLong> {
        let (splits, partitioner) = (&tree.splits(), tree.partitioner);
        let minimum = &Token::Minimum;
        let mut tasks =
            vec![Task::Node { from: 0, to: splits.len(), left: minimum, right: minimum }];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Node { from, to, .. } if from == to => {
                    self.begin_object(&LEAF)?;
                    self.hash(&hashes[from])?;
                }
                Task::Node { from, to, left, right } => {
                    let middle = middle(partitioner, left, right);
                    let found = middle.and_then(|it| splits[from..to].binary_search(&it).ok());
                    // A tree that was not made by halving gets a shape of its own.
                    let at = found.map_or(usize::midpoint(from, to), |found| from + found);
                    let token = &splits[at];
                    self.begin_object(&INNER)?;
                    self.bytes.push(NULL);
                    tasks.push(Task::Token(token));
                    tasks.push(Task::Node { from: at + 1, to, left: token, right });
                    tasks.push(Task::Node { from, to: at, left, right: token });
                }
                Task::Token(token) => self.token(token, partitioner)?,
            }
        }
        Ok(())
    }

    fn token(&mut self, token: &Token, partitioner: Partitioner) -> Result<(), TooLong> {
        self.begin_object(token_class(partitioner))?;
        let bytes = partitioner.token_to_bytes(token);
        match partitioner {
            Partitioner::Random => self.big_integer(&bytes),
            Partitioner::OrderPreserving => {
                self.number();
                self.bytes.push(TEXT);
                self.bytes.put_utf(&bytes)
            }
            Partitioner::CollatingOrderPreserving => self.array(&bytes),
        }
    }

    /// A number that is not negative, as its two's complement.
    fn big_integer(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        let magnitude = match bytes {
            [0, rest @ ..] => rest,
            bytes => bytes,
        };
        self.begin_object(&BIG_INTEGER)?;
        // Java keeps caches in these, and computes them again when they are read.
        for unknown in [-1i32, -1, -2, -2, i32::from(!magnitude.is_empty())] {
            self.bytes.extend_from_slice(&unknown.to_be_bytes());
        }
        self.array(magnitude)?;
        self.bytes.push(END);
        Ok(())
    }
}

/// A class and a type may have one name: arrays do.
fn class_key(class: &'static Class) -> &'static str {
    if *class == BYTES { "class [B" } else { class.name }
}
