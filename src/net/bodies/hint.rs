//! The header HINT of a mutation: for whom else the receiver keeps it.
//!
//! The value is the bytes of addresses, one after the other, of the length that the addresses of
//! the cluster have: 4 or 16.

use super::error::BodyError;
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

/// Reads the value. Addresses are of the kind of this node's own.
pub fn decode(value: &[u8], local: IpAddr) -> Result<Vec<IpAddr>, BodyError> {
    let (targets, rest): (Vec<IpAddr>, _) = match local {
        IpAddr::V4(_) => {
            let (addresses, rest) = value.as_chunks::<4>();
            (addresses.iter().map(|&address| address.into()).collect(), rest)
        }
        IpAddr::V6(_) => {
            let (addresses, rest) = value.as_chunks::<16>();
            (addresses.iter().map(|&address| address.into()).collect(), rest)
        }
    };
    if rest.is_empty() { Ok(targets) } else { Err(BodyError::Malformed(value.len() - rest.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn targets_are_read_back(
            v4: Vec<std::net::Ipv4Addr>, v6: Vec<std::net::Ipv6Addr>, odd in 1usize..4,
        ) {
            let v4: Vec<IpAddr> = v4.into_iter().map(IpAddr::from).collect();
            let v6: Vec<IpAddr> = v6.into_iter().map(IpAddr::from).collect();
            prop_assert_eq!(decode(&encode(&v4), [127, 0, 0, 1].into()), Ok(v4.clone()));
            prop_assert_eq!(decode(&encode(&v6), [0; 16].into()), Ok(v6));
            let mut cut = encode(&v4);
            cut.extend(vec![1; odd]);
            prop_assert_eq!(
                decode(&cut, [127, 0, 0, 1].into()),
                Err(BodyError::Malformed(v4.len() * 4))
            );
        }
    }
}
