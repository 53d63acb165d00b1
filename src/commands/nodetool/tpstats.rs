//! `nodetool tpstats`: the layout of 0.6, with those of its pools that something here corresponds
//! to.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::report::Pool;
use std::fmt::Write;

pub(super) fn run(client: &Client) -> Result<Output, NodetoolError> {
    let pools: Vec<Pool> = client.get("/api/v1/pools")?;
    Ok(Output::new(&pools, render(&pools)))
}

fn render(pools: &[Pool]) -> String {
    let mut text =
        format!("{:<25}{:>10}{:>10}{:>15}\n", "Pool Name", "Active", "Pending", "Completed");
    for Pool { pool, active, pending, completed } in pools {
        let _ = writeln!(text, "{pool:<25}{active:>10}{pending:>10}{completed:>15}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_0_6() {
        let pool = |name: &str, completed| Pool {
            pool: name.to_owned(),
            active: 0,
            pending: 0,
            completed,
        };
        let expected = "\
            Pool Name                    Active   Pending      Completed\n\
            GMFD                              0         0              0\n\
            ROW-MUTATION-STAGE                0         0              7\n";
        assert_eq!(render(&[pool("GMFD", 0), pool("ROW-MUTATION-STAGE", 7)]), expected);
    }
}
