//! `nodetool status`: all nodes at a glance, with an exit code for scripts. 0.6 had no such
//! command.

use super::client::Client;
use super::info::load;
use super::{NodetoolError, Output};
use crate::admin::ring_report::{ClusterStatus, NodeStatus, Software, Status};
use crate::base::utc::UtcTime;
use std::fmt::Write;

pub(super) fn run(client: &Client) -> Result<Output, NodetoolError> {
    let status: ClusterStatus = client.get("/api/v1/status")?;
    let output = Output::new(&status, render(&status));
    Ok(if status.healthy { output } else { output.failing() })
}

fn render(status: &ClusterStatus) -> String {
    let mut text = String::new();
    let mut line = |cells: [&str; 8]| {
        let [address, status, state, load, owns, since, version, token] = cells;
        let _ = writeln!(
            text,
            "{address:<15} {status:<7}{state:<9}{load:<14}{owns:<9}{since:<26}{version:<18}{token}"
        );
    };
    line(["Address", "Status", "State", "Load", "Owns", "Since", "Version", "Token"]);
    for node in &status.nodes {
        let since = node.since_millis.map_or_else(|| "?".into(), |it| UtcTime(it).to_string());
        line([
            &node.address.to_string(),
            &format!("{:?}", node.status),
            &format!("{:?}", node.state),
            &node.load_bytes.map_or_else(|| "?".into(), load),
            &node.owns.map_or_else(|| "?".into(), |share| format!("{:.2}%", share * 100.0)),
            &since,
            &version(node),
            node.token.as_deref().unwrap_or("-"),
        ]);
    }
    for trouble in &status.troubles {
        let _ = writeln!(text, "{}: {trouble}", status.local);
    }
    text.push_str(&summary(status));
    text
}

fn version(node: &NodeStatus) -> String {
    match &node.software {
        Some(Software::Alexandra(version)) => format!("Alexandra {version}").trim_end().to_owned(),
        Some(Software::Original) => "original".to_owned(),
        None => "?".to_owned(),
    }
}

fn summary(ClusterStatus { nodes, local, troubles, .. }: &ClusterStatus) -> String {
    let up = nodes.iter().filter(|node| node.status == Status::Up).count();
    let down = nodes.len() - up;
    let mut to_look_at: Vec<String> = nodes
        .iter()
        .filter(|node| !node.healthy)
        .map(|node| format!("{} ({:?}, {:?})", node.address, node.status, node.state))
        .collect();
    if !troubles.is_empty() && nodes.iter().all(|node| node.healthy || node.address != *local) {
        to_look_at.push(format!("{local} (see above)"));
    }
    let rest = if to_look_at.is_empty() {
        "all is well".to_owned()
    } else {
        format!("look at {}", to_look_at.join(", "))
    };
    format!("{} nodes, {up} up, {down} down: {rest}\n", nodes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::ring_report::RingState;
    use std::net::IpAddr;

    fn node(last: u8, status: Status, state: RingState) -> NodeStatus {
        NodeStatus {
            address: IpAddr::from([10, 0, 0, last]),
            status,
            state,
            healthy: status == Status::Up && state == RingState::Normal,
            since_millis: Some(1_290_241_963_120),
            load_bytes: Some(1536),
            owns: Some(0.5),
            token: Some("7".into()),
            software: Some(Software::Alexandra("1.2.3".into())),
        }
    }

    fn status(nodes: Vec<NodeStatus>) -> ClusterStatus {
        let healthy = nodes.iter().all(|node| node.healthy);
        let local = IpAddr::from([10, 0, 0, 1]);
        ClusterStatus { cluster_name: "Test".into(), local, healthy, troubles: Vec::new(), nodes }
    }

    #[test]
    fn each_node_is_a_line_and_the_last_one_sums_up() {
        let mut silent = node(2, Status::Down, RingState::Leaving);
        (silent.load_bytes, silent.owns, silent.since_millis) = (None, None, None);
        (silent.token, silent.software) = (None, None);
        let mut original = node(3, Status::Up, RingState::Normal);
        original.software = Some(Software::Original);
        let text = render(&status(vec![node(1, Status::Up, RingState::Normal), silent, original]));
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let since = "2010-11-20T08:32:43.120Z";
        let first = ["10.0.0.1", "Up", "Normal", "1.5", "KB", "50.00%", since, "Alexandra"];
        assert_eq!(lines[1][..8], first);
        assert_eq!(lines[1][8..], ["1.2.3", "7"]);
        assert_eq!(lines[2], ["10.0.0.2", "Down", "Leaving", "?", "?", "?", "?", "-"]);
        assert_eq!(lines[3][7..], ["original", "7"]);
        let last = "3 nodes, 2 up, 1 down: look at 10.0.0.2 (Down, Leaving)";
        assert_eq!(text.lines().last(), Some(last));
    }

    #[test]
    fn a_cluster_without_trouble_is_said_to_be_well() {
        let text = render(&status(vec![node(1, Status::Up, RingState::Normal)]));
        assert_eq!(text.lines().last(), Some("1 nodes, 1 up, 0 down: all is well"));
    }
}
