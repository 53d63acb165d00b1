//! Logging in.

use super::{Api, Session};
use crate::wire::Failure;
use crate::wire::service::LoginArgs;

/// Marks the connection as logged in. Nothing ever takes the mark away, and it is good for all
/// keyspaces, as in 0.6.
pub(super) async fn login(
    api: &Api,
    session: &mut Session,
    args: LoginArgs<'_>,
) -> Result<(), Failure> {
    api.authenticator.login(&args.keyspace, &args.auth_request.credentials).await?;
    session.logged_in = true;
    Ok(())
}
