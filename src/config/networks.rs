//! Networks of the other nodes.

use ipnet::IpNet;
use std::net::IpAddr;

/// Reads `10.1.0.0/16`, `fd00::/8`, or an address alone; `None` if it is neither.
pub(super) fn parse_network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().map(IpNet::from).ok())
}

/// Networks whose addresses may connect to `StoragePort`; all may if there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerNetworks(pub Vec<IpNet>);

impl PeerNetworks {
    /// Whether an address may connect.
    pub fn admit(&self, address: IpAddr) -> bool {
        self.0.is_empty() || self.0.iter().any(|network| network.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_admits_what_has_its_first_bits() {
        let admits = |network: &str, address: &str| {
            PeerNetworks(vec![parse_network(network).unwrap()]).admit(address.parse().unwrap())
        };
        assert!(admits("10.1.0.0/16", "10.1.255.255") && !admits("10.1.0.0/16", "10.2.0.0"));
        assert!(admits("10.1.2.3/8", "10.9.9.9"), "bits after the prefix do not count");
        assert!(admits("10.1.2.3", "10.1.2.3") && !admits("10.1.2.3", "10.1.2.2"));
        assert!(admits("fd00::/8", "fdff::1") && !admits("0.0.0.0/0", "::1"));
        for text in ["", "10.0.0.0/", "10.0.0.0/33", "10.0.0/8", "host", "1.2.3.4/-1"] {
            assert_eq!(parse_network(text), None, "{text}");
        }
    }
}
