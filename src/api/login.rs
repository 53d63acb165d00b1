//! Logging in.

use super::{Api, Authenticator, LoginError, Session};
use crate::thrift::Failure;
use crate::thrift::idl::LoginArgs;
use std::sync::atomic::Ordering;

/// The most characters of a client's text in a log line.
const LONGEST_SHOWN: usize = 200;

/// Marks the connection as logged in. Nothing ever takes the mark away, and it is good for all
/// keyspaces, as in 0.6. A login that fails is logged, and the next one of its address waits.
pub(super) async fn login(
    api: &Api,
    session: &Session,
    args: LoginArgs<'_>,
) -> Result<(), Failure> {
    if let Authenticator::Simple(simple) = &api.authenticator {
        let Some(turn) = api.login_turns.wait(session.client).await else {
            return Err(LoginError::TooManyFailed.into());
        };
        let LoginArgs { keyspace, auth_request } = &args;
        if let Err(error) = simple.login(keyspace, &auth_request.credentials).await {
            let (client, keyspace) = (session.client, shown(keyspace));
            let why = shown(&error.to_string());
            log::warn!("a login from {client} for keyspace {keyspace} failed: {why}");
            turn.end_late();
            return Err(error.into());
        }
        turn.end();
    }
    session.logged_in.store(true, Ordering::Relaxed);
    Ok(())
}

/// The beginning of a text that a client chose, on one line.
fn shown(text: &str) -> String {
    text.chars().take(LONGEST_SHOWN).flat_map(char::escape_debug).collect()
}
