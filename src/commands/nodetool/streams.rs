//! `nodetool streams [host]`, also as `netstats`: what the node is about, and which data move.
//!
//! The lines are those of 0.6, but for the files, which there are none of: data move as pieces of
//! ranges, and who sends them does not know how many more there will be.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::report::{StreamReport, Streams};
use std::fmt::Write;
use std::net::IpAddr;

/// Whose streams.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only those to and from this node
    #[arg(value_name = "HOST")]
    peer: Option<IpAddr>,
}

pub(super) fn run(client: &Client, arguments: &Arguments) -> Result<Output, NodetoolError> {
    let streams: Streams = client.get("/api/v1/streams")?;
    Ok(Output::new(&streams, render(&streams, arguments.peer)))
}

fn render(streams: &Streams, host: Option<IpAddr>) -> String {
    let mut text = format!("Mode: {}\n", streams.mode);
    direction(&mut text, &streams.sending, host, ("sending", "Streaming to", "to"), |it| {
        format!("{}.{}", it.keyspace, it.column_family)
    });
    direction(&mut text, &streams.receiving, host, ("receiving", "Streaming from", "from"), |it| {
        format!("{}: {}", it.keyspace, it.column_family)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_0_6() {
        let stream = |host, bytes| StreamReport {
            address: [10, 0, 0, host].into(),
            keyspace: "Keyspace1".to_owned(),
            column_family: "Standard1".to_owned(),
            bytes,
        };
        let mut streams =
            Streams { mode: "Normal".to_owned(), sending: Vec::new(), receiving: Vec::new() };
        assert_eq!(
            render(&streams, None),
            "Mode: Normal\nNot sending any streams.\nNot receiving any streams.\n"
        );
        streams.sending = vec![stream(2, 700)];
        streams.receiving = vec![stream(3, 70), stream(3, 7)];
        assert_eq!(
            render(&streams, None),
            "Mode: Normal\n\
             Streaming to: /10.0.0.2\n   Keyspace1.Standard1 700/?\n\
             Streaming from: /10.0.0.3\n   Keyspace1: Standard1 70/?\n   Keyspace1: Standard1 7/?\n"
        );
        assert_eq!(
            render(&streams, Some([10, 0, 0, 2].into())),
            "Mode: Normal\nStreaming to: /10.0.0.2\n   Keyspace1.Standard1 700/?\n \
             Nothing streaming from /10.0.0.2\n"
        );
    }
}
