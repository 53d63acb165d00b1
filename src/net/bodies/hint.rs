//! The header HINT of a mutation: for whom else the receiver keeps it.
//!
//! The value is the bytes of addresses, one after the other, of the length that the addresses of
//! the cluster have: 4 or 16.

use super::error::BodyError;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The value of the header for these nodes.
pub fn encode(targets: &[IpAddr]) -> Vec<u8> {
    let mut out = Vec::with_capacity(targets.len() * 16);
    for target in targets {
        match target {
            IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
        }
    }
    out
}

/// Most nodes that one mutation is kept for: no row has as many replicas. Each costs a copy of the
/// mutation on the disk.
const MAX_TARGETS: usize = 64;

/// Reads the value: each target once. Addresses are of the kind of this node's own.
pub fn decode(value: &[u8], local: IpAddr) -> Result<BTreeSet<IpAddr>, BodyError> {
    let length = if local.is_ipv4() { 4 } else { 16 };
    if value.len() > MAX_TARGETS * length {
        return Err(BodyError::Malformed(MAX_TARGETS * length));
    }
    let (targets, rest): (BTreeSet<IpAddr>, _) = match local {
        IpAddr::V4(_) => {
            let (addresses, rest) = value.as_chunks::<4>();
            (addresses.iter().map(|&address| address.into()).collect(), rest)
        }
        IpAddr::V6(_) => {
            let (addresses, rest) = value.as_chunks::<16>();
            let address = |&address: &[u8; 16]| IpAddr::from(address).to_canonical();
            (addresses.iter().map(address).collect(), rest)
        }
    };
    if rest.is_empty() { Ok(targets) } else { Err(BodyError::Malformed(value.len() - rest.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn nobody_makes_this_node_keep_a_mutation_for_the_whole_world() {
        let many: Vec<IpAddr> = (0..1000u32).map(|i| std::net::Ipv4Addr::from(i).into()).collect();
        let local = [127, 0, 0, 1].into();
        assert_eq!(decode(&encode(&many), local), Err(BodyError::Malformed(MAX_TARGETS * 4)));
        assert_eq!(decode(&encode(&[local; 32]), local), Ok(BTreeSet::from([local])));
    }

    proptest! {
        #[test]
        fn targets_are_read_back(
            v4 in vec(any::<std::net::Ipv4Addr>(), 0..MAX_TARGETS),
            v6 in vec(any::<std::net::Ipv6Addr>(), 0..MAX_TARGETS),
            odd in 1usize..4,
        ) {
            let v4: Vec<IpAddr> = v4.into_iter().map(IpAddr::from).collect();
            let v6: Vec<IpAddr> = v6.into_iter().map(|it| it.to_canonical()).collect();
            let set = |targets: &[IpAddr]| targets.iter().copied().collect::<BTreeSet<_>>();
            prop_assert_eq!(decode(&encode(&v4), [127, 0, 0, 1].into()), Ok(set(&v4)));
            let v6: Vec<IpAddr> = v6.into_iter().filter(IpAddr::is_ipv6).collect();
            prop_assert_eq!(decode(&encode(&v6), [0; 16].into()), Ok(set(&v6)));
            let mut cut = encode(&v4);
            cut.extend(vec![1; odd]);
            prop_assert_eq!(
                decode(&cut, [127, 0, 0, 1].into()),
                Err(BodyError::Malformed(v4.len() * 4))
            );
        }
    }
}
