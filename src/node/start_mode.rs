//! The way in which a node starts: as a member, by joining, or by replacing another node.

use super::{NodeError, NodeOptions};
use crate::base::clock::Clock;
use crate::config::{Properties, Settings};
use crate::repair::{StartMode, StartOptions};
use crate::ring::Token;
use crate::storage::Database;
use crate::storage::database::StorageError;
use crate::storage::system::local_placement::SavedPlace;
use crate::storage::system::{self, Identity, IdentityError};

/// Establishes the identity of the node, and the way in which it starts. Directories of the
/// original are taken over then.
pub(super) fn begin(
    settings: &Settings,
    options: &NodeOptions,
    storage: &Database,
    clock: &dyn Clock,
) -> Result<(Identity, StartMode), NodeError> {
    let place = SavedPlace::read(storage).map_err(IdentityError::from)?;
    if place == SavedPlace::Left {
        return Err(NodeError::Decommissioned);
    }
    let wish = start_wish(settings, options)?;
    let (cluster, now) = (&settings.cluster_name, clock.now_secs());
    let identity = system::establish_identity(storage, cluster, now, wish.joins())?;
    let has_begun = place != SavedPlace::Joining(None) || identity.former.is_some();
    let saved_token = match place {
        SavedPlace::First => identity.former.clone(),
        _ => identity.token.clone(),
    };
    storage.finish_takeover().map_err(StorageError::from)?;
    let start_mode = StartMode::new(&identity, place, wish);
    if let StartMode::Join { .. } = start_mode
        && !has_begun
    {
        // Data would not be those that the last start collected.
        system::check_no_data(storage)?;
    }
    match (&saved_token, &start_mode) {
        (Some(token), _) => {
            log::info!("Saved Token found: {}", settings.partitioner.display_token(token));
        }
        (None, StartMode::First { .. }) => {
            log::info!("Saved Token not found. Asking other nodes whether they know this one");
            if settings.auto_bootstrap {
                log::info!(
                    "This node will not auto bootstrap because it is configured to be a seed node."
                );
            }
        }
        _ => {}
    }
    Ok((identity, start_mode))
}

/// The token of `cassandra.replace_token`.
pub(super) fn replaced_token(
    settings: &Settings,
    properties: &Properties,
) -> Result<Option<Token>, NodeError> {
    let Some(text) = properties.replace_token() else { return Ok(None) };
    let token = settings.partitioner.parse_token(text);
    token.map(Some).map_err(|source| NodeError::ReplaceToken { token: text.to_owned(), source })
}

fn start_wish(settings: &Settings, options: &NodeOptions) -> Result<StartOptions, NodeError> {
    let partitioner = settings.partitioner;
    let token = settings.initial_token.as_deref();
    let is_seed = settings.seeds.contains(&settings.network.listen_address);
    Ok(StartOptions {
        token: token.and_then(|text| partitioner.parse_token(text).ok()),
        bootstraps: settings.auto_bootstrap && !is_seed,
        replaces: replaced_token(settings, &options.properties)?,
        accepts_loss: options.properties.accept_data_loss(),
    })
}
