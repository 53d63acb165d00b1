//! `nodetool allowreturn`. 0.6 had no such command: it took back who was removed.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::ring_report::AllowedReturn;
use serde::Serialize;
use std::net::IpAddr;

#[derive(Debug, clap::Args, Serialize)]
pub(super) struct Arguments {
    /// Address of the removed node
    address: IpAddr,
}

pub(super) fn run(client: &Client, arguments: &Arguments) -> Result<Output, NodetoolError> {
    let allowed: AllowedReturn = client.work("/api/v1/ring/allow-return", arguments)?;
    Ok(Output::new(&allowed, render(allowed)))
}

fn render(AllowedReturn { address, returned }: AllowedReturn) -> String {
    let what = if returned {
        "is in the ring again"
    } else {
        "is taken back into the ring when it has been started anew"
    };
    format!("{address} {what}. That concerns this node: allow it at every other one as well\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_do_is_told() {
        let address = IpAddr::from([10, 0, 0, 2]);
        let text = |returned| render(AllowedReturn { address, returned });
        assert!(text(true).starts_with("10.0.0.2 is in the ring again."), "{}", text(true));
        assert!(text(false).contains(" when it has been started anew."), "{}", text(false));
        assert!(text(false).ends_with(" at every other one as well\n"), "{}", text(false));
    }
}
