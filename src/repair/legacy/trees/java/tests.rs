//! Trees of the classes of 0.6.13, and laws for all others.

use super::*;
use crate::repair::compare::TreeHash;
use crate::repair::legacy::trees::tree::MerkleTree;
use crate::ring::Token;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Read;

/// Messages that nodes of 0.6.13 sent in repair, and trees that its classes wrote.
pub(crate) fn recorded() -> BTreeMap<String, Vec<u8>> {
    let packed = include_bytes!("../../../../../tests/data/streams-0.6.13.txt.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let entry = |line: &str| {
        let (name, hex) = line.rsplit_once(' ').unwrap();
        let (digits, []) = hex.as_bytes().as_chunks::<2>() else { panic!("odd digits") };
        let byte = |it: &[u8; 2]| u8::from_str_radix(str::from_utf8(it).unwrap(), 16).unwrap();
        (name.to_owned(), digits.iter().map(byte).collect())
    };
    text.lines().map(entry).collect()
}

#[test]
fn recorded_trees_are_read_and_written_alike() {
    let recorded = recorded();
    for (name, partitioner, split) in [
        ("repair 3", Partitioner::Random, Token::Random(1 << 126)),
        ("repair 4", Partitioner::OrderPreserving, Token::ordered("耀".as_bytes().into())),
        ("repair 5", Partitioner::CollatingOrderPreserving, Token::collated([0x80][..].into())),
    ] {
        let tree = decode(&recorded[name], partitioner).unwrap();
        let leaves = [&[][..], &[1, 2, 3, 4]].map(|bytes| TreeHash::new(bytes).unwrap());
        assert_eq!((tree.splits(), tree.hashes()), (vec![split], leaves.to_vec()), "{name}");
        assert_eq!(encode(&tree).unwrap(), recorded[name], "{name}");
        let other = Partitioner::ALL.into_iter().find(|it| *it != partitioner).unwrap();
        assert!(matches!(decode(&recorded[name], other), Err(TreeError::Malformed(_))));
    }
}

#[test]
fn a_tree_can_be_one_leaf() {
    let mut tree = MerkleTree::even(Partitioner::Random, 0);
    for _ in 0..2 {
        let bytes = encode(&tree).unwrap();
        assert_eq!(decode(&bytes, Partitioner::Random), Ok(tree.clone()));
        tree.add(&Token::Random(5), &TreeHash::from([7; 32]));
    }
}

/// Halving in Java divides at half a character.
#[test]
fn a_split_that_is_no_token_here_is_none() {
    let tree = |split: &[u8]| {
        let mut bytes = recorded()["repair 4"].clone();
        bytes.truncate(bytes.len() - 5);
        bytes.extend([0, split.len() as u8]);
        bytes.extend(split);
        decode(&bytes, Partitioner::OrderPreserving)
    };
    let joined = tree(&[0xed, 0xa0, 0x80]).unwrap();
    assert_eq!(joined.splits(), []);
    assert_eq!(joined.hashes(), [TreeHash::new(&[1, 2, 3, 4]).unwrap()]);
    assert_eq!(tree(b""), Err(TreeError::Order), "the ring begins with that");
}

#[test]
fn depth_and_size_are_bounded() {
    let tree = &recorded()["repair 3"];
    // One more node within a node, again and again.
    let inner = [&[OBJECT, REFERENCE, 0, 0x7e, 0, 3, NULL][..]; 1000].concat();
    let bytes = [&tree[..367], &inner].concat();
    assert_eq!(decode(&bytes, Partitioner::Random), Err(TreeError::TooLarge));
    let even = |depth| encode(&MerkleTree::even(Partitioner::Random, depth)).unwrap();
    assert!(decode(&even(16), Partitioner::Random).is_ok());
    assert_eq!(decode(&even(17), Partitioner::Random), Err(TreeError::TooLarge));
}

fn tree() -> impl Strategy<Value = MerkleTree> {
    let partitioner = prop_oneof![
        Just(Partitioner::Random),
        Just(Partitioner::OrderPreserving),
        Just(Partitioner::CollatingOrderPreserving),
    ];
    let rows = vec(("[a-c]{1,4}", any::<[u8; 32]>()), 0..20);
    (partitioner, rows, 1usize..200, any::<bool>()).prop_map(|(it, rows, leaves, is_even)| {
        let tokens = rows.iter().map(|(key, _)| it.token(key.as_bytes()));
        let mut tree = if is_even {
            MerkleTree::even(it, leaves.ilog2() as u8)
        } else {
            MerkleTree::by_samples(it, tokens.collect(), leaves)
        };
        for (key, hash) in &rows {
            tree.add(&it.token(key.as_bytes()), &TreeHash::from(*hash));
        }
        tree
    })
}

proptest! {
    #[test]
    fn trees_are_read_back(tree in tree()) {
        let bytes = encode(&tree).unwrap();
        prop_assert_eq!(decode(&bytes, tree.partitioner), Ok(tree));
    }

    #[test]
    fn damaged_trees_are_read_without_panic(
        tree in tree(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(&tree).unwrap();
        prop_assert!(decode(&bytes[..cut.index(bytes.len())], tree.partitioner).is_err());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = decode(&bytes, tree.partitioner);
    }
}
