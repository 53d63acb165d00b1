//! The nodes of the ring as text: what `ring`, `status`, `describecluster`, `gossipinfo`, `hints`,
//! `streams` and `allowreturn` print.

use super::print::load;
use super::progress::amount;
use crate::admin::report::{StreamReport, Streams};
use crate::admin::ring_report::{
    AllowedReturn, ClusterDescription, ClusterStatus, GossipEndpoint, HintState, HintTarget, Hints,
    NodeStatus, Ring, RingEndpoint, RingState, Software, Status,
};
use crate::base::utc::UtcTime;
use crate::replica::HintStats;
use std::fmt::Write;
use std::net::IpAddr;

/// The layout of 0.6, which shows those that own a token.
pub(super) fn render_ring(ring: &Ring) -> String {
    let owns_token =
        |it: &&RingEndpoint| matches!(it.state, RingState::Normal | RingState::Leaving);
    let members: Vec<&RingEndpoint> = ring.endpoints.iter().filter(owns_token).collect();
    let mut text = String::new();
    let mut line = |cells: [&str; 5], art: &str| {
        let [address, status, load, owns, token] = cells;
        // The longest addresses move the rest by one or two places.
        let _ = writeln!(text, "{address:<13} {status:<11}{load:<14}{owns:<8}{token:<43}{art}");
    };
    line(["Address", "Status", "Load", "Owns", "Range"], "Ring");
    let token = |endpoint: &RingEndpoint| endpoint.token.clone().unwrap_or_default();
    if let [_, .., last] = members[..] {
        // Each line has the right end of a range; here is the left end of the first.
        line(["", "", "", "", &token(last)], "");
    }
    for (place, endpoint) in members.iter().enumerate() {
        let status = format!("{:?}", endpoint.status);
        let (load, owns) = (known(endpoint.load_bytes, load), known(endpoint.owns, percent));
        let cells = [&*endpoint.address.to_string(), &status, &load, &owns, &token(endpoint)];
        line(cells, art(place, members.len()));
    }
    let is_local = |it: &&RingEndpoint| it.address == ring.local;
    if let Some(local) = ring.endpoints.iter().find(is_local)
        && local.state == RingState::Outside
    {
        let status = format!("{:?}", local.status);
        let load = known(local.load_bytes, load);
        line([&*local.address.to_string(), &status, &load, "0.00%", "(no place on the ring)"], "");
    }
    text
}

/// A value as text, if it is known.
fn known<T>(value: Option<T>, show: fn(T) -> String) -> String {
    value.map_or_else(|| "?".to_owned(), show)
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

fn time(millis: u64) -> String {
    UtcTime(millis).to_string()
}

/// Picture of the ring after the line of a place.
fn art(place: usize, count: usize) -> &'static str {
    match place {
        0 => "|<--|",
        _ if place + 1 == count => "|-->|",
        _ if count <= 4 => "|   |",
        _ if place.is_multiple_of(2) => "v   |",
        _ => "|   ^",
    }
}

/// All nodes at a glance, with an exit code for scripts.
pub(super) fn render_status(status: &ClusterStatus) -> String {
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
        line([
            &node.address.to_string(),
            &format!("{:?}", node.status),
            &format!("{:?}", node.state),
            &known(node.load_bytes, load),
            &known(node.owns, percent),
            &known(node.since_millis, time),
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

/// Whether the nodes agree on what they have to agree on.
pub(super) fn render_cluster(description: &ClusterDescription) -> String {
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
    if description.held_back_by.is_empty() {
        text.push_str("Extensions of the wire: all nodes understand them\n");
    } else {
        let _ = writeln!(
            text,
            "Extensions of the wire: held back by {}, which does not announce them: Apache \
             Cassandra, or an older version of this program",
            list(&description.held_back_by)
        );
    }
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

/// Reports of the nodes about themselves.
pub(super) fn render_gossip(endpoints: &[GossipEndpoint]) -> String {
    let mut text = String::new();
    for endpoint in endpoints {
        let GossipEndpoint { address, status, phi, generation, heartbeat, states } = endpoint;
        let _ = writeln!(text, "/{address}");
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "  {name}:{value}");
        };
        line("status", &format!("{status:?}"));
        if let Some(phi) = phi {
            line("phi", &format!("{phi:.2}"));
        }
        line("generation", &generation.to_string());
        line("heartbeat", &heartbeat.to_string());
        for (name, state) in states {
            line(name, &state.value);
        }
    }
    text
}

/// Hints that the node keeps for others that were down or too slow.
pub(super) fn render_hints(hints: &Hints) -> String {
    if !hints.enabled {
        return "hinted handoff is off (HintedHandoffEnabled)\n".to_owned();
    }
    let mut text = String::new();
    if !hints.targets.is_empty() {
        let mut line = |cells: [&str; 5]| {
            let [target, count, bytes, oldest, state] = cells;
            let _ = writeln!(text, "{target:<15} {count:>12} {bytes:>15}  {oldest:<26}{state}");
        };
        line(["Address", "Hints", "Bytes", "Oldest", "State"]);
        for target in &hints.targets {
            line([
                &target.address.to_string(),
                &target.hints.to_string(),
                &target.bytes.to_string(),
                &known(target.oldest_millis, time),
                &hint_state(target),
            ]);
        }
    }
    let count: u64 = hints.targets.iter().map(|target| target.hints).sum();
    let bytes: u64 = hints.targets.iter().map(|target| target.bytes).sum();
    let HintStats { stored, read, expired, .. } = hints.stats;
    let lost = hints.stats.refused_full + hints.stats.refused_no_space + hints.stats.failed;
    let _ = writeln!(text, "waiting: {count} ({bytes} bytes) for {} nodes", hints.targets.len());
    let _ = writeln!(
        text,
        "since the start: {stored} stored, {lost} not stored, {read} handed out, {expired} too old"
    );
    text
}

fn hint_state(target: &HintTarget) -> String {
    let HintTarget { address, recipient, .. } = target;
    let mut text = match (target.state, target.put_off_seconds) {
        (HintState::Delivering, _) => "being delivered".to_owned(),
        (HintState::Due, _) => "due".to_owned(),
        (HintState::PutOff, Some(seconds)) => format!("put off for {seconds} s"),
        (HintState::PutOff, None) => "put off".to_owned(),
        (HintState::Down, _) => "down".to_owned(),
    };
    if address != recipient {
        let _ = write!(text, ", {recipient} gets them");
    }
    text
}

/// The lines of 0.6 but for those of files: data move as pages of ranges, and the sender does not
/// know how many more there will be.
pub(super) fn render_streams(streams: &Streams, host: Option<IpAddr>) -> String {
    let mut text = format!("Mode: {}\n", streams.mode);
    let amount = streams.operation.as_ref().map(amount).filter(|amount| !amount.is_empty());
    if let Some(amount) = amount {
        let _ = writeln!(text, "Progress: {amount}");
    }
    direction(&mut text, &streams.sending, host, ("sending", "Streaming to", "to"), |it| {
        it.family.to_string()
    });
    direction(&mut text, &streams.receiving, host, ("receiving", "Streaming from", "from"), |it| {
        format!("{}: {}", it.family.keyspace, it.family.column_family)
    });
    text
}

fn direction(
    text: &mut String,
    streams: &[StreamReport],
    host: Option<IpAddr>,
    (verb, title, preposition): (&str, &str, &str),
    name: impl Fn(&StreamReport) -> String,
) {
    let is_meant = |it: &&StreamReport| host.is_none_or(|host| it.address == host);
    let mut last = None;
    for stream in streams.iter().filter(is_meant) {
        if last != Some(stream.address) {
            let _ = writeln!(text, "{title}: /{}", stream.address);
        }
        last = Some(stream.address);
        let _ = writeln!(text, "   {} {}/?", name(stream), stream.bytes);
    }
    match (last, host) {
        (Some(_), _) => {}
        (None, Some(host)) if !streams.is_empty() => {
            let _ = writeln!(text, " Nothing streaming {preposition} /{host}");
        }
        (None, _) => {
            let _ = writeln!(text, "Not {verb} any streams.");
        }
    }
}

/// That of 0.6 took back every node that was removed, so it had no such command.
pub(super) fn render_return(AllowedReturn { address, returned }: &AllowedReturn) -> String {
    let what = if *returned {
        "is in the ring again"
    } else {
        "is taken back into the ring when it has been started anew"
    };
    format!("{address} {what}. That concerns this node: allow it at every other one as well\n")
}
