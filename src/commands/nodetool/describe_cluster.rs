//! `nodetool describecluster`: whether the nodes agree on what they have to agree on. 0.6 had no
//! such command.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::ring_report::ClusterDescription;
use std::fmt::Write;
use std::net::IpAddr;

pub(super) fn run(client: &Client) -> Result<Output, NodetoolError> {
    let description: ClusterDescription = client.get("/api/v1/cluster")?;
    let output = Output::new(&description, render(&description));
    Ok(if description.agree { output } else { output.failing() })
}

fn render(description: &ClusterDescription) -> String {
    let ClusterDescription { cluster_name, partitioner, snitches, schemas, .. } = description;
    let mut text = format!("Cluster: {cluster_name}\n");
    let _ = writeln!(text, "Partitioner: {partitioner}");
    let _ = writeln!(text, "Snitch: {}", snitches.join(", "));
    text.push_str("Schema and settings:\n");
    let mut group = |name: &str, addresses: &[IpAddr]| {
        if !addresses.is_empty() {
            let _ = writeln!(text, "\t{name}: [{}]", list(addresses));
        }
    };
    for schema in schemas {
        group(&schema.fingerprint, &schema.addresses);
    }
    group("unknown", &description.unknown);
    group("unreachable", &description.unreachable);
    if description.agree {
        text.push_str("All live nodes that tell agree\n");
    } else {
        let _ = writeln!(
            text,
            "They do not agree: look at partitioner, keyspaces, column families and GCGraceSeconds \
             in the storage-conf.xml of {}",
            list(&description.look_at)
        );
    }
    text
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::ring_report::SchemaGroup;

    #[test]
    fn nodes_are_grouped_and_those_that_differ_named() {
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let group = |fingerprint: &str, last: &[u8]| SchemaGroup {
            fingerprint: fingerprint.to_owned(),
            addresses: last.iter().map(|last| address(*last)).collect(),
        };
        let mut description = ClusterDescription {
            cluster_name: "Test".into(),
            partitioner: "P".into(),
            snitches: vec!["S".into()],
            agree: false,
            schemas: vec![group("1f", &[1, 2]), group("2e", &[3])],
            unknown: vec![address(4)],
            unreachable: vec![],
            look_at: vec![address(3)],
        };
        let head = "Cluster: Test\nPartitioner: P\nSnitch: S\nSchema and settings:\n\
                    \t1f: [10.0.0.1, 10.0.0.2]\n";
        let text = render(&description);
        assert!(text.starts_with(&format!("{head}\t2e: [10.0.0.3]\n\tunknown: [10.0.0.4]\n")));
        assert!(text.ends_with(" in the storage-conf.xml of 10.0.0.3\n"), "{text}");
        description.schemas.truncate(1);
        (description.agree, description.unknown) = (true, vec![]);
        assert_eq!(render(&description), format!("{head}All live nodes that tell agree\n"));
    }
}
