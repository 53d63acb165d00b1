//! The machine that a configuration is for: addresses of hosts, memory, directories.

use crate::base::machine;
use rustix::fs::{Access, FsWord, PROC_SUPER_MAGIC};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::Path;
use std::{fs, io};

/// Type of the file system below `/sys`.
const SYSFS_MAGIC: FsWord = 0x6265_6572;

/// Facts of a machine that decide whether a server can run there with a configuration.
pub trait Machine {
    /// The name of this machine.
    fn local_host_name(&self) -> io::Result<String>;
    /// The addresses of a host, the preferred one first. Never an empty list.
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
    /// Bytes of memory that a process may use.
    fn memory_bytes(&self) -> u64;
    /// Fails if a directory is not there and cannot be created, or cannot be written to. Creates
    /// nothing.
    fn check_directory(&self, path: &Path) -> io::Result<()>;
}

/// The machine of this process.
#[derive(Debug, Default, Clone, Copy)]
pub struct ThisMachine;

impl Machine for ThisMachine {
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

    fn memory_bytes(&self) -> u64 {
        machine::memory_bytes()
    }

    fn check_directory(&self, path: &Path) -> io::Result<()> {
        for ancestor in std::path::absolute(path)?.ancestors() {
            match fs::metadata(ancestor) {
                Ok(found) if !found.is_dir() => return Err(io::ErrorKind::NotADirectory.into()),
                Ok(_) => {
                    rustix::fs::access(ancestor, Access::WRITE_OK | Access::EXEC_OK)?;
                    // Root may write there by its permissions, and cannot.
                    let file_system = rustix::fs::statfs(ancestor)?.f_type;
                    let is_of_kernel = [PROC_SUPER_MAGIC, SYSFS_MAGIC].contains(&file_system);
                    let refusal = is_of_kernel.then(|| io::ErrorKind::PermissionDenied.into());
                    return refusal.map_or(Ok(()), Err);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A machine that meets every configuration, for tools that read one without running a server:
/// all hosts are loopback, memory has no end, and directories are not looked at.
#[derive(Debug, Default, Clone, Copy)]
pub struct AnyMachine;

impl Machine for AnyMachine {
    fn local_host_name(&self) -> io::Result<String> {
        Ok("localhost".to_owned())
    }

    fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }

    fn memory_bytes(&self) -> u64 {
        u64::MAX
    }

    fn check_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// The one address that a configured host stands for. Literal addresses are not looked up. IPv4
/// is preferred: peers of 0.6 exchange addresses of four bytes.
pub fn resolve_one(machine: &dyn Machine, host: &str) -> io::Result<IpAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        // Nodes know each other by address, which is to have one form.
        return Ok(address.to_canonical());
    }
    let found = machine.resolve(host)?;
    let preferred = found.iter().find(|a| a.is_ipv4()).or(found.first());
    preferred.map(IpAddr::to_canonical).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The address of this machine's host name, or loopback when the name leads nowhere.
pub fn local_address(machine: &dyn Machine) -> IpAddr {
    let named = machine.local_host_name().and_then(|name| resolve_one(machine, &name));
    named.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<IpAddr>);

    impl Machine for Fixed {
        fn local_host_name(&self) -> io::Result<String> {
            Ok("here".to_owned())
        }
        fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
            if host == "here" { Ok(self.0.clone()) } else { Err(io::ErrorKind::NotFound.into()) }
        }
        fn memory_bytes(&self) -> u64 {
            u64::MAX
        }
        fn check_directory(&self, _path: &Path) -> io::Result<()> {
            Ok(())
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
        assert!(resolve_one(&ThisMachine, "localhost").unwrap().is_loopback());
        assert!(!ThisMachine.local_host_name().unwrap().is_empty());
    }

    #[test]
    fn a_directory_is_checked_without_being_created() {
        let root = tempfile::tempdir().unwrap();
        let new = root.path().join("a/b");
        ThisMachine.check_directory(&new).unwrap();
        assert!(!root.path().join("a").exists());
        fs::write(root.path().join("a"), "").unwrap();
        for path in [&new, &root.path().join("a"), Path::new("/proc/x"), Path::new("/sys/x")] {
            assert!(ThisMachine.check_directory(path).is_err(), "{}", path.display());
        }
    }
}
