//! The classes of the original that a configuration may name, as closed sets.
//!
//! The original loads any class; here the built-in ones are known and all others are refused
//! with the text that the original has for a class it cannot load.

/// Check of logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthenticatorName {
    /// Everyone.
    AllowAll,
    /// Users of a password file, for the keyspaces of an access file.
    Simple,
}

impl AuthenticatorName {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::AllowAll, Self::Simple];

    /// The full class name, which is the only form that the original accepts.
    pub fn class_name(self) -> &'static str {
        match self {
            Self::AllowAll => "org.apache.cassandra.auth.AllowAllAuthenticator",
            Self::Simple => "org.apache.cassandra.auth.SimpleAuthenticator",
        }
    }
}

/// Which nodes hold the replicas of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StrategyName {
    /// The next nodes on the ring.
    RackUnaware,
    /// One replica in another data centre and one in another rack, the others next on the ring.
    RackAware,
    /// A number of replicas for each data centre.
    DatacenterShard,
}

impl StrategyName {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::RackUnaware, Self::RackAware, Self::DatacenterShard];

    /// The full class name. That of the data-centre strategy is misspelt in the original.
    pub fn class_name(self) -> &'static str {
        match self {
            Self::RackUnaware => "org.apache.cassandra.locator.RackUnawareStrategy",
            Self::RackAware => "org.apache.cassandra.locator.RackAwareStrategy",
            Self::DatacenterShard => "org.apache.cassandra.locator.DatacenterShardStategy",
        }
    }
}

/// Source of the rack and data centre of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SnitchName {
    /// The second octet of the address is the data centre, the third the rack.
    EndPoint,
    /// A properties file says it (`-DrackFile`).
    PropertyFile,
    /// An XML file says it, together with the replicas of each data centre.
    Datacenter,
}

impl SnitchName {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::EndPoint, Self::PropertyFile, Self::Datacenter];

    /// The full class name, which is the only form that the original accepts.
    pub fn class_name(self) -> &'static str {
        match self {
            Self::EndPoint => "org.apache.cassandra.locator.EndPointSnitch",
            Self::PropertyFile => "org.apache.cassandra.locator.PropertyFileEndPointSnitch",
            Self::Datacenter => "org.apache.cassandra.locator.DatacenterEndPointSnitch",
        }
    }
}
