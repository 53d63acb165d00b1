//! Networks of the other nodes.

use std::fmt;
use std::net::IpAddr;

/// All addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

impl Network {
    /// Reads `10.1.0.0/16`, `fd00::/8`, or an address alone; `None` if it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').unzip();
        let address: IpAddr = address.unwrap_or(text).parse().ok()?;
        let all_bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = prefix.map_or(Ok(all_bits), str::parse).ok()?;
        (prefix_bits <= all_bits).then_some(Self { address, prefix_bits })
    }

    /// Whether an address belongs to it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let common_bits = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        common_bits >= u32::from(self.prefix_bits)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

/// Networks whose addresses may connect to `StoragePort`; all may if there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerNetworks(pub Vec<Network>);

impl PeerNetworks {
    /// Whether an address may connect.
    pub fn admit(&self, address: IpAddr) -> bool {
        self.0.is_empty() || self.0.iter().any(|network| network.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        Network::parse(network).unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_contains_what_has_its_first_bits() {
        assert!(contains("10.1.0.0/16", "10.1.255.255") && !contains("10.1.0.0/16", "10.2.0.0"));
        assert!(contains("10.1.2.3/8", "10.9.9.9"), "bits after the prefix do not count");
        assert!(contains("10.1.2.3", "10.1.2.3") && !contains("10.1.2.3", "10.1.2.2"));
        assert!(contains("0.0.0.0/0", "203.0.113.9") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("fd00::/8", "fdff::1") && !contains("fd00::/8", "fe80::1"));
    }

    #[test]
    fn other_texts_are_no_networks() {
        for text in ["", "10.0.0.0/", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "host", "1.2.3.4/-1"]
        {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
