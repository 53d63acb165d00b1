//! Host names to addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};

/// What the configuration asks of the machine's name service; tests bring their own.
pub trait Resolver {
    /// The name of this machine.
    fn local_host_name(&self) -> io::Result<String>;
    /// The addresses of a host, the preferred one first. Never an empty list.
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The operating system's resolver.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn local_host_name(&self) -> io::Result<String> {
        let uname = rustix::system::uname();
        let name = uname.nodename().to_str();
        name.map(str::to_owned).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }

    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found: Vec<IpAddr> = (host, 0).to_socket_addrs()?.map(|a| a.ip()).collect();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(found)
    }
}

/// The one address that a configured host stands for. Literal addresses need no resolver. IPv4
/// is preferred: peers of 0.6 exchange addresses of four bytes.
pub fn resolve_one(resolver: &dyn Resolver, host: &str) -> io::Result<IpAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        // Nodes know each other by address, which is to have one form.
        return Ok(address.to_canonical());
    }
    let found = resolver.resolve(host)?;
    let preferred = found.iter().find(|a| a.is_ipv4()).or(found.first());
    preferred.map(IpAddr::to_canonical).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The address of this machine's host name, or loopback when the name leads nowhere.
pub fn local_address(resolver: &dyn Resolver) -> IpAddr {
    let named = resolver.local_host_name().and_then(|name| resolve_one(resolver, &name));
    named.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<IpAddr>);

    impl Resolver for Fixed {
        fn local_host_name(&self) -> io::Result<String> {
            Ok("here".to_owned())
        }
        fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
            if host == "here" { Ok(self.0.clone()) } else { Err(io::ErrorKind::NotFound.into()) }
        }
    }

    #[test]
    fn four_byte_addresses_are_preferred() {
        let (v6, v4) = ("::1".parse().unwrap(), "10.0.0.7".parse().unwrap());
        assert_eq!(resolve_one(&Fixed(vec![v6, v4]), "here").unwrap(), v4);
        assert_eq!(resolve_one(&Fixed(vec![v6]), "here").unwrap(), v6);
        assert_eq!(resolve_one(&Fixed(vec![]), "192.0.2.1").unwrap().to_string(), "192.0.2.1");
        assert!(resolve_one(&Fixed(vec![v4]), "elsewhere").is_err());
    }

    #[test]
    fn an_unknown_local_name_is_loopback() {
        assert_eq!(local_address(&Fixed(vec![])).to_string(), "127.0.0.1");
        assert_eq!(
            local_address(&Fixed(vec!["10.0.0.7".parse().unwrap()])).to_string(),
            "10.0.0.7"
        );
    }

    #[test]
    fn the_system_knows_loopback_and_its_own_name() {
        assert!(resolve_one(&SystemResolver, "localhost").unwrap().is_loopback());
        assert!(!SystemResolver.local_host_name().unwrap().is_empty());
    }
}
