//! Placements of the replicas of each keyspace, by settings and the files that these need.

use super::classes::{SnitchName, StrategyName};
use super::datacenters::{self, Datacenters};
use super::error::ConfigError;
use super::properties::Properties;
use super::rack_file::RackFileSource;
use super::settings::{KeyspaceSettings, Settings};
use super::xml::read_bounded;
use crate::ring::{Location, ReplicaPlacement, ReplicationStrategy, Snitch};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The placements of all keyspaces.
#[derive(Debug)]
pub struct Placements {
    /// By the name of the keyspace, without `system`, which every node keeps for itself.
    pub by_keyspace: BTreeMap<String, ReplicaPlacement>,
    /// The file of `PropertyFileEndPointSnitch`, if a keyspace has that snitch.
    pub rack_file: Option<Arc<RackFileSource>>,
}

/// Paths of the files of snitches.
#[derive(Debug, Clone, Copy)]
pub struct SnitchFiles<'a> {
    /// `rack.properties`.
    pub racks: &'a Path,
    /// `DC-Config.xml`.
    pub data_centers: &'a Path,
}

/// Files that have been read already, since keyspaces share them.
struct Reader<'a> {
    files: SnitchFiles<'a>,
    racks: Option<Arc<RackFileSource>>,
    data_centers: Option<Datacenters>,
}

impl Placements {
    /// Reads what the keyspaces of a server need.
    pub fn read(settings: &Settings, properties: &Properties) -> Result<Self, ConfigError> {
        let racks = properties.rack_file();
        let data_centers = Path::new(datacenters::DEFAULT_FILE);
        Self::read_from(settings, SnitchFiles { racks: &racks, data_centers })
    }

    /// The same with files at these places.
    pub fn read_from(settings: &Settings, files: SnitchFiles<'_>) -> Result<Self, ConfigError> {
        let mut reader = Reader { files, racks: None, data_centers: None };
        let mut by_keyspace = BTreeMap::new();
        for keyspace in &settings.keyspaces {
            let placement = reader.placement(keyspace).map_err(|fault| {
                let fault = format!("keyspace {}: {fault}", keyspace.name);
                ConfigError::at(&settings.origin, keyspace.line, fault)
            })?;
            by_keyspace.insert(keyspace.name.clone(), placement);
        }
        Ok(Self { by_keyspace, rack_file: reader.racks })
    }
}

impl Reader<'_> {
    fn placement(&mut self, keyspace: &KeyspaceSettings) -> Result<ReplicaPlacement, ConfigError> {
        let snitch = self.snitch(keyspace.snitch)?;
        let strategy = match keyspace.strategy {
            StrategyName::RackUnaware => ReplicationStrategy::RackUnaware,
            StrategyName::RackAware => ReplicationStrategy::RackAware,
            StrategyName::DatacenterShard => return self.per_data_center(keyspace, snitch),
        };
        let replication_factor = keyspace.replication_factor as usize;
        Ok(ReplicaPlacement { strategy, replication_factor, snitch })
    }

    fn snitch(&mut self, name: SnitchName) -> Result<Snitch, ConfigError> {
        Ok(match name {
            SnitchName::EndPoint => Snitch::EndPoint,
            SnitchName::PropertyFile => Snitch::PropertyFile(Arc::clone(self.racks()?.racks())),
            SnitchName::Datacenter => Snitch::Datacenter(Arc::clone(&self.data_centers()?.map)),
        })
    }

    fn per_data_center(
        &mut self,
        keyspace: &KeyspaceSettings,
        snitch: Snitch,
    ) -> Result<ReplicaPlacement, ConfigError> {
        let configured = &keyspace.datacenter_replication_factors;
        let factors = if configured.is_empty() {
            self.data_centers()?.replication_factors.clone()
        } else {
            let known = known_data_centers(&snitch);
            if let Some(name) = configured.keys().find(|name| !known.contains(*name)) {
                return Err(unknown_data_center(name, keyspace.snitch, &snitch, &known));
            }
            configured.iter().map(|(name, &factor)| (name.clone(), factor as usize)).collect()
        };
        if factors.values().all(|&factor| factor == 0) {
            let text = "no data centre has a replica: every write would be lost";
            return Err(ConfigError::startup(text.to_owned()));
        }
        Ok(ReplicaPlacement::per_data_center(factors, snitch))
    }

    fn racks(&mut self) -> Result<&Arc<RackFileSource>, ConfigError> {
        let racks = match self.racks.take() {
            Some(racks) => racks,
            None => Arc::new(RackFileSource::open(self.files.racks)?),
        };
        Ok(self.racks.insert(racks))
    }

    fn data_centers(&mut self) -> Result<&Datacenters, ConfigError> {
        let centers = match self.data_centers.take() {
            Some(centers) => centers,
            None => read_data_centers(self.files.data_centers)?,
        };
        Ok(self.data_centers.insert(centers))
    }
}

fn read_data_centers(path: &Path) -> Result<Datacenters, ConfigError> {
    let origin = path.display().to_string();
    let bytes = read_bounded(path).map_err(|error| {
        ConfigError::startup(format!(
            "DatacenterEndPointSnitch needs {origin}, which cannot be read: {error}. It says which \
             second and third octets of addresses are which data centre and rack"
        ))
    })?;
    Datacenters::parse(&bytes, &origin)
}

/// The names of the data centres in which nodes can be.
fn known_data_centers(snitch: &Snitch) -> BTreeSet<String> {
    let names = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
    match snitch {
        Snitch::EndPoint => octets(),
        Snitch::Datacenter(map) => names(map.data_centers()),
        Snitch::PropertyFile(racks) => racks.current().map_or_else(octets, |file| {
            let mut names: BTreeSet<String> = names(file.data_centers());
            // Nodes that the file does not list are there.
            names.insert(Location::unknown().data_center);
            names
        }),
    }
}

/// The data centres of `EndPointSnitch`.
fn octets() -> BTreeSet<String> {
    (0..=u8::MAX).map(|octet| octet.to_string()).collect()
}

fn unknown_data_center(
    name: &str,
    class: SnitchName,
    snitch: &Snitch,
    known: &BTreeSet<String>,
) -> ConfigError {
    let known = match snitch {
        Snitch::EndPoint => "second octets of addresses, from 0 to 255".to_owned(),
        Snitch::PropertyFile(racks) if racks.current().is_none() => {
            "second octets of addresses, since there is no rack file".to_owned()
        }
        _ => known.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
    };
    let class = class.class_name();
    let snitch = class.rsplit('.').next().unwrap_or(class);
    ConfigError::startup(format!(
        "DatacenterReplicationFactor names the data centre {name}, which {snitch} does not know \
         (known: {known})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loader;
    use crate::model::comparator::ComparatorRegistry;
    use std::fs;
    use std::path::PathBuf;
    use tempfile::TempDir;

    const CENTERS: &str = "<EndPoints>
        <DataCenter name='North' ip2ndQuad='18' replicationFactor='2'>
          <rack name='R1' ip3rdQuad='5'/><rack name='R2' ip3rdQuad='6'/>
        </DataCenter>
        <DataCenter name='South' ip2ndQuad='19' replicationFactor='1'>
          <rack name='R1' ip3rdQuad='5'/>
        </DataCenter>
      </EndPoints>";

    const RACKS: &str = "10.18.5.1=East:R1\n10.18.5.2=West:R1\n";

    /// A directory with the files of snitches.
    struct Files(TempDir);

    impl Files {
        fn new() -> Self {
            let files = Self(tempfile::tempdir().unwrap());
            fs::write(files.path("racks"), RACKS).unwrap();
            fs::write(files.path("centers"), CENTERS).unwrap();
            files
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// The placement of a keyspace, or why there is none.
        fn read(&self, strategy: &str, snitch: &str, ours: &str) -> Result<Placements, String> {
            let locator = "org.apache.cassandra.locator";
            let keyspace = format!(
                "<Keyspaces><Keyspace Name='K'>
                   <ReplicaPlacementStrategy>{locator}.{strategy}</ReplicaPlacementStrategy>
                   <ReplicationFactor>3</ReplicationFactor>
                   <EndPointSnitch>{locator}.{snitch}</EndPointSnitch>{ours}
                 </Keyspace></Keyspaces>"
            );
            let text = include_str!("../../storage-conf.xml");
            let (before, rest) = text.split_once("<Keyspaces>").unwrap();
            let (_, after) = rest.split_once("</Keyspaces>").unwrap();
            let text = format!("{before}{keyspace}{after}");
            let comparators = ComparatorRegistry::default();
            let loaded = Loader::for_server(&comparators).parse(&text, "c.xml");
            let settings = loaded.map_err(|errors| errors.errors[0].to_string())?.settings;
            let (racks, data_centers) = (self.path("racks"), self.path("centers"));
            let files = SnitchFiles { racks: &racks, data_centers: &data_centers };
            Placements::read_from(&settings, files).map_err(|error| error.to_string())
        }
    }

    fn factor(name: &str, replicas: u32) -> String {
        format!(
            "<DatacenterReplicationFactor Datacenter='{name}'>{replicas}\
             </DatacenterReplicationFactor>"
        )
    }

    const PER_CENTER: &str = "DatacenterShardStategy";

    #[test]
    fn settings_lead_to_placements() {
        let files = Files::new();
        let by_name = |names: &[(&str, usize)]| {
            let factors = names.iter().map(|&(name, factor)| (name.to_owned(), factor));
            ReplicationStrategy::PerDataCenter(Arc::new(factors.collect()))
        };
        let shard = by_name(&[("North", 2), ("South", 1)]);
        let mine = by_name(&[("South", 5)]);
        let octet = by_name(&[("0", 0), ("18", 2)]);
        let named = by_name(&[("West", 2), ("default", 1)]);
        let (rack_aware, unaware) =
            (ReplicationStrategy::RackAware, ReplicationStrategy::RackUnaware);
        let two = factor("18", 2) + &factor("0", 0);
        let west = factor("West", 2) + &factor("default", 1);
        for (strategy, snitch, ours, expected, replicas, center) in [
            ("RackUnawareStrategy", "EndPointSnitch", "", unaware, 3, "18"),
            ("RackAwareStrategy", "PropertyFileEndPointSnitch", "", rack_aware, 3, "East"),
            (PER_CENTER, "DatacenterEndPointSnitch", "", shard, 3, "North"),
            (PER_CENTER, "DatacenterEndPointSnitch", &*factor("South", 5), mine, 5, "North"),
            (PER_CENTER, "EndPointSnitch", &*two, octet, 2, "18"),
            (PER_CENTER, "PropertyFileEndPointSnitch", &*west, named, 3, "East"),
        ] {
            let placements = files.read(strategy, snitch, ours).unwrap();
            let placement = &placements.by_keyspace["K"];
            assert_eq!(placement.strategy, expected);
            assert_eq!(placement.replication_factor, replicas);
            let topology = placement.snitch.topology();
            assert_eq!(topology.data_center([10, 18, 5, 1].into()), center);
            assert_eq!(placements.rack_file.is_some(), snitch.starts_with("Property"));
        }
    }

    #[track_caller]
    fn refused(files: &Files, snitch: &str, ours: &str, message: &str) {
        let error = files.read(PER_CENTER, snitch, ours).unwrap_err();
        assert!(error.starts_with("c.xml:") && error.contains(message), "{error}");
    }

    #[test]
    fn what_cannot_be_placed_is_refused() {
        let files = Files::new();
        let [octets, racks, centers] =
            ["EndPointSnitch", "PropertyFileEndPointSnitch", "DatacenterEndPointSnitch"];
        let dc1 = factor("DC1", 1);
        refused(&files, octets, "", "DatacenterShardStrategy requires Datacenter");
        refused(&files, octets, &dc1, "known: second octets of addresses, from 0 to 255");
        refused(&files, octets, &factor("018", 1), "the data centre 018, which EndPointSnitch");
        refused(&files, racks, &dc1, "known: East, West, default");
        refused(&files, centers, &dc1, "known: North, South");
        refused(&files, octets, &factor("18", 0), "keyspace K: no data centre has a replica");
        fs::write(files.path("centers"), "<EndPoints/>").unwrap();
        refused(&files, centers, "", "no data centre has a replica");
        fs::write(files.path("centers"), "<EndPoints>").unwrap();
        refused(&files, centers, "", "<EndPoints> is never closed");
        fs::remove_file(files.path("centers")).unwrap();
        refused(&files, centers, &dc1, "keyspace K: DatacenterEndPointSnitch needs ");
        fs::write(files.path("racks"), "a=\\u1").unwrap();
        refused(&files, racks, &dc1, "Could not process ");
        fs::remove_file(files.path("racks")).unwrap();
        refused(&files, racks, &dc1, "since there is no rack file");
    }
}
